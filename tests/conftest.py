"""What all tests share: sessions that are closed and checked, and their transcripts in the report of a failure."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.debuggee.wrapping import locks
from tests import failures
from tests.client import Session
from tests.durations import LONGEST, long_tests
from tests.failures import pytest_collectreport, pytest_terminal_summary, pytest_testnodedown
from tests.kept_caches import forget_torn_libraries

__all__ = ["pytest_collectreport", "pytest_terminal_summary", "pytest_testnodedown"]

_sessions = pytest.StashKey[list[Session]]()

NewSession = Callable[..., Session]


def pytest_configure(config: pytest.Config) -> None:
    """Make a run independent of how it was started, and keep what is compiled from run to run.

    Inductor's C++ takes seconds, our Python 0.2 s for each of a thousand processes where no bytecode is written.
    """
    locks.check_order()
    if failures.is_controller(config):
        failures.forget_earlier_runs()
    # A job in the background ignores SIGINT, one of nohup SIGHUP, and so would every program under test.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Threads of OpenMP that spin while they wait take most of the processors' time where many programs run at once.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # What tests agree to, and their key, are not the user's.
    state = tempfile.TemporaryDirectory(prefix="dynamo-dap-state-")
    os.environ["XDG_STATE_HOME"] = state.name
    config.add_cleanup(state.cleanup)
    if config.pluginmanager.hasplugin("cacheprovider"):
        kept = config.cache.mkdir("inductor")
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(kept))
        if failures.is_controller(config):
            forget_torn_libraries(kept)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that are known to take long: ``make test`` leaves them out. Begin with the longest."""
    long = long_tests()
    for item in items:
        if item.nodeid.partition("[")[0] in long:
            item.add_marker(pytest.mark.long)
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


@pytest.fixture(autouse=True)
def _no_hook_fails() -> Iterator[None]:
    """A hook of ours that fails in this process, as an assertion in one does, fails the test."""
    from dynamo_dap.debuggee.wrapping import patches  # with locks that check their order

    failed: list[BaseException | None] = []

    def note(_: str) -> None:
        failed.append(sys.exc_info()[1])

    patches.reporters.append(note)
    yield
    patches.reporters.remove(note)
    for group in patches.all_patches():
        group.is_off = False
    for error in failed:
        if error is not None:
            raise error


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
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the transcripts and the server's logs to a failure."""
    report = yield
    if report.failed:
        sessions = item.stash.get(_sessions, [])
        failures.keep(report, sessions)
        for number, session in enumerate(sessions, start=1):
            report.sections.append((f"transcript of session {number}", session.timeline.transcript()))
            report.sections.append((f"logs of session {number}", session.logs()))
    return report
