"""Setting breakpoints takes work in proportion to their number: counted in calls of functions, not in seconds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dynamo_dap.protocol.wire.types import Breakpoint
from dynamo_dap.server.backends.breakpoints import BreakpointMemory, Remembered
from tests.client import Fixture, Session

FEW, MANY = 500, 2_000
AT_MOST = 1.1 * MANY / FEW
CALLS_FOR_EACH = 200
"""At most, by both debuggers together. It was about 4,000 in a file that does not parse."""
COUNTS = """
import json, sys
from _pydevd_bundle.pydevd_process_net_command_json import PyDevJsonCommandProcessor
from dynamo_dap.debuggee.agent.breakpoints import BreakpointTable

calls = []

def counted(owner, name):
    plain = getattr(owner, name)
    def counting(*given):
        number = 0
        def count(frame, event, argument):
            nonlocal number
            number += event in ("call", "c_call")
        sys.setprofile(count)
        try:
            return plain(*given)
        finally:
            sys.setprofile(None)
            calls.append((name, number))
    setattr(owner, name, counting)

counted(PyDevJsonCommandProcessor, "on_setbreakpoints_request")
counted(BreakpointTable, "set_lines")
value = 0  #@here
"""
"""Which of the two looks into the file first, and has the work of that, is chance."""
KINDS = {
    "statements": ("def function(x):\n", "    x = x + 1\n", ""),
    "functions": ("", "def function{}(x): return x + 1\n", ""),
    "methods": ("class Model:\n", "    @property\n    def method{}(self): return self\n", ""),
    "comments": ("def function(x):\n", "    # nothing\n", "    return x\n"),
    "mistake": ("", "def function{}(x): return x + 1\n", "    return x\n"),
}
"""The beginning of a file, what is repeated in it, and its end. Python itself is slow with functions of one name."""


@pytest.mark.parametrize("fields", [{}, {"condition": "x == 3"}, {"logMessage": "{x}"}], ids=["plain", "if", "log"])
def test_the_program_does_work_in_proportion(session: Session, tmp_path: Path, fields: dict[str, str]) -> None:
    """Both debuggers in it, for files of all kinds, set for the first time and again with one more."""
    path = tmp_path / "counts.py"
    path.write_text(COUNTS, encoding="utf-8")
    session.launch(Fixture(path), "here", mode="both", eager=True)
    stop = session.wait_for_stop("breakpoint", at="here")
    for kind, (head, repeated, end) in KINDS.items():
        work: list[int] = []
        for number in (FEW, MANY):
            written = tmp_path / f"{kind}{number}.py"
            text = "".join([head, *(repeated.format(line) for line in range(number)), end])
            written.write_text(text, encoding="utf-8")
            stop.frame.evaluate("calls.clear()")
            for count in (number, number + 1):
                lines = [{"line": line, **fields} for line in range(1, count + 1)]
                session.request("setBreakpoints", {"source": {"path": str(written)}, "breakpoints": lines})
            counts = json.loads(stop.frame.evaluate("json.dumps(calls)").text.strip("'"))
            assert sorted(name for name, _ in counts) == ["on_setbreakpoints_request"] * 2 + ["set_lines"] * 2
            work.append(sum(number for _, number in counts))
        few, many = work
        assert many < CALLS_FOR_EACH * (2 * MANY + 1), kind
        assert many < AT_MOST * few, f"{kind}: {few} calls for {FEW} breakpoints, {many} for {MANY}"


class _Backend:
    def __init__(self, name: str) -> None:
        self.name = name


def test_the_server_does_work_in_proportion() -> None:
    """It merges the answers of both debuggers, and gives ids."""

    def calls(number: int) -> int:
        memory, made = BreakpointMemory(), 0
        lines = [{"line": line} for line in range(number)]
        raw = msgspec.Raw(msgspec.json.encode({"source": {"path": "a.py"}, "breakpoints": lines}))
        answers = [Breakpoint(verified=True, id=line + 1, line=line) for line in range(number)]
        body = msgspec.Raw(msgspec.json.encode({"breakpoints": answers}))

        def count(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            for _ in range(2):
                remembered = Remembered("setBreakpoints", "a.py", raw, number)
                merged = memory.merge(remembered, [(_Backend("agent"), body), (_Backend("debugpy"), body)])
        finally:
            sys.setprofile(None)
        assert len(merged.breakpoints or ()) == number
        return made

    few, many = calls(FEW), calls(MANY)
    assert few > FEW
    assert many < AT_MOST * few
