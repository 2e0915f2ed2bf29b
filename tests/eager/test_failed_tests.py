"""Debugs pytest: it stops only at the line that fails a test, and the debugger causes no warnings of pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client import Session

TESTS = """\
import pytest
import torch


@torch.compile(backend="eager")
def loss(x):
    return x.mean()


def test_skipped():
    pytest.skip("not here")


@pytest.mark.xfail
def test_expected():
    assert 1 == 2


def test_raises():
    with pytest.raises(ValueError):
        int("x")


def test_loss():
    value = loss(torch.full((3,), 2.0)).item()
    assert value == 1.0
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("filters", [["uncaught"], []])
def test_it_stops_at_the_assert_that_fails_a_test(session: Session, tmp_path: Path, filters: list[str]) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    path = tmp_path / "test_loss.py"
    path.write_text(TESTS)
    with session.configuring("launch", {"module": "pytest", "args": ["-q", str(path)], "cwd": str(tmp_path)}):
        session.request("setExceptionBreakpoints", {"filters": filters})
    if filters:
        stop = session.wait_for_stop("exception")
        assert (stop.frames[0].name, stop.frames[0].line) == (
            "test_loss",
            TESTS.splitlines().index("    assert value == 1.0") + 1,
        )
        assert stop.frames[0].evaluate("value").text == "2.0"
        session.resume()
    session.timeline.expect_event("terminated")
    output = session.output("stdout")
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed in" in output, "no word of a warning"
