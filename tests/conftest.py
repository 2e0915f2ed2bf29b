"""What all tests share: sessions that are closed and checked, and their transcripts in the report of a failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client import Session

_sessions = pytest.StashKey[list[Session]]()

NewSession = Callable[..., Session]


def pytest_configure(config: pytest.Config) -> None:
    """Have what is compiled kept, for all tests and from run to run: Inductor's C++ takes seconds, our Python 0.2 s.

    Each of a thousand processes would compile that of the debugger anew where no bytecode is written.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if config.pluginmanager.hasplugin("cacheprovider"):
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(config.cache.mkdir("inductor")))


@pytest.fixture
def new_session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewSession]:
    """Make sessions; each is closed and checked after the test."""
    made: list[Session] = []
    request.node.stash[_sessions] = made

    def make(**options: Any) -> Session:
        session = Session(tmp_path / f"session-{len(made) + 1}", **options)
        made.append(session)
        return session

    yield make
    problems: list[str] = []
    for session in made:
        session.close()
        problems += session.problems()
    assert not problems, "\n".join(problems)


@pytest.fixture
def session(new_session: NewSession) -> Session:
    """One session over stdio, not yet initialized."""
    return new_session()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the transcripts and the server's logs to a failure."""
    report = yield
    if report.failed:
        for number, session in enumerate(item.stash.get(_sessions, []), start=1):
            report.sections.append((f"transcript of session {number}", session.timeline.transcript()))
            report.sections.append((f"logs of session {number}", session.logs()))
    return report
