"""The examples of the walkthrough stop where their texts say."""

from __future__ import annotations

import pytest

from tests.client.fixtures import FIXTURES, Fixture
from tests.client.session import Session

EXAMPLES = FIXTURES.parent / "vscode-extension" / "media" / "examples"


def _line(name: str, text: str) -> int:
    lines = (EXAMPLES / name).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


@pytest.mark.parametrize(
    ("name", "filter_", "text", "expected"),
    [
        ("graph_break.py", "graph-break", "the graph breaks here", "Data-dependent branching"),
        ("recompile.py", "recompile", "@torch.compile", "mode == 'double'"),
        ("nan.py", "nan", "0 / 0 is made here", "3 of 3 elements are NaN"),
    ],
)
def test_an_example_stops_at_its_line(session: Session, name: str, filter_: str, text: str, expected: str) -> None:
    with session.launching(Fixture(EXAMPLES / name)):
        session.request("setExceptionBreakpoints", {"filters": [filter_]})
    stop = session.wait_for_stop("exception")
    assert stop.frame.line == _line(name, text)
    assert expected in stop.body["text"]
    assert session.run_to_end() == 0


def test_the_breakpoint_of_the_first_example_is_hit_in_each_call(session: Session) -> None:
    marked = _line("breakpoint.py", "a breakpoint is set here")
    session.launch(Fixture(EXAMPLES / "breakpoint.py"), marked)
    for number in range(3):
        local = session.wait_for_stop("breakpoint").frame["Locals"].texts()
        assert f"= {[float(number)] * 3}" in local["x"]
        session.resume()
    assert session.wait_for_exit() == 0
