"""Exceptions that are raised while Dynamo traces stop at the same lines as in ordinary Python, with the trace alive.

Uses the default launch options. The expected lines come from the same program, uncompiled.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dynamo_dap.fixes.findings import Kind, findings_of
from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import SUFFIX
from tests.client import Session
from tests.client.fixtures import Fixture
from tests.client.timeline import ExpectationError
from tests.conftest import NewSession
from tests.records.test_graph_break_stops import info_of

PROGRAM = '''\
"""Fails in functions that are inlined into compiled ones."""
import sys

import torch

compiled = (lambda function: function) if "plain" in sys.argv else torch.compile(backend=sys.argv[1])
whole = (lambda function: function) if "plain" in sys.argv else torch.compile(backend=sys.argv[1], fullgraph=True)


def misshaped(x):
    y = x + 1
    return y.reshape(7, 7)  #@reshape


@compiled
def fails(x):
    return misshaped(x) * 2  #@fails


class Model(torch.nn.Module):
    def forward(self, x):
        return misshaped(x) * 3


def checked(x):
    if x.shape[0] == 3:
        raise ValueError("three rows")  #@raise
    return x


@compiled
def handles(x):
    try:
        return checked(x) + 1
    except (KeyError, ValueError):
        return x - 1


@whole
def raises(x):
    return checked(x) + 1


@compiled
def misses(x):
    try:
        return x + {}["key"]  #@key
    except LookupError:
        return x + 1


def attempt(function):
    try:
        function(torch.ones(3, 4))
    except OSError:
        pass
    except (TypeError, RuntimeError, ValueError) as error:
        print("caught", type(error).__name__)


if __name__ == "__main__":
    names = {**globals(), "model": compiled(Model())}
    for name in sys.argv[2].split(","):
        attempt(names[name])
    if "die" in sys.argv:
        fails(torch.ones(3, 4))
'''

FAILING = ("reshape", "raise", "key")


def launch(session: Session, folder: Path, filters: list[str], *arguments: str) -> Path:
    """Launch the program with exception filters."""
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    configuration = {"program": str(program), "python": [sys.executable], "args": list(arguments)}
    session.expects_program_traceback = True
    with session.configuring("launch", configuration):
        session.request("setExceptionBreakpoints", {"filters": filters})
    return program


def lines_of_stops(session: Session) -> list[str]:
    """The lines of all stops until the end of the program."""
    found: list[str] = []
    while True:
        try:
            stop = session.wait_for_stop("exception")
        except ExpectationError:
            session.timeline.expect_event("terminated")
            return found
        found.append(stop.user_frames[0].marker or f"{stop.user_frames[0]}")
        session.resume()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("raised", ["reshape", "reshape", "raise", "key", "raise", "reshape"]),
        ("userUnhandled", ["reshape", "reshape"]),
        ("uncaught", ["reshape"]),
    ],
)
def test_it_stops_where_ordinary_python_does(
    new_session: NewSession, tmp_path: Path, name: str, expected: list[str]
) -> None:
    functions = "fails,model,handles,misses,raises"
    plain, compiled = new_session(), new_session()
    launch(plain, tmp_path, [name], "eager", functions, "die", "plain")
    launch(compiled, tmp_path, [name], "eager", functions, "die")
    found = [lines_of_stops(plain), lines_of_stops(compiled)]
    if name == "raised":  # this filter stops in each caller that an exception passes, except in traced callers
        found = [[line for line in lines if line in FAILING] for lines in found]
    assert found == [expected, expected]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_the_trace_is_alive_and_the_users_error_comes_first(session: Session, tmp_path: Path, backend: str) -> None:
    program = launch(session, tmp_path, ["uncaught"], backend, "handles", "die")
    stop = session.wait_for_stop("exception", at="reshape")
    info = info_of(session, stop)
    assert info["exceptionId"] == "RuntimeError"
    assert info["description"].startswith("shape '[7, 7]' is invalid"), info
    assert " for input of size 12\n" in info["description"]
    assert info["details"]["typeName"] == "RuntimeError"
    assert [one["typeName"] for one in info["details"]["innerException"]] == ["TorchRuntimeError"]
    assert [frame.marker for frame in stop.user_frames[:2]] == ["reshape", "fails"]
    assert stop.user_frames[-1].name == "<module>"
    assert stop.frame["Locals"]["y"].text.startswith("Tensor f32[3, 4] cpu")
    assert stop.frame.evaluate("y.shape[0] * 2").text == "6"
    assert "x + 1" in " ".join(stop.frame["Graph"].texts().values())
    # Ordinary Python does not stop again for this exception.
    assert session.run_to_end() == 1
    assert "TorchRuntimeError" in session.output("stderr")

    record = read_record(next(tmp_path.rglob(f"*{SUFFIX}")))
    failed = [one for _, one in record.compiles() if one.state == "failed"]
    line = Fixture(program).line("reshape")
    assert [(one.problem_place.path, one.problem_place.line) for one in failed if one.problem_place] == [
        (str(program), line)
    ]
    assert (failed[0].problem or "").startswith("RuntimeError: shape '[7, 7]' is invalid")
    (finding,) = [one for one in findings_of(record)[str(program)] if one.kind is Kind.FAILED]
    assert finding.place.line == line


def test_an_exception_where_breaks_are_errors(session: Session, tmp_path: Path) -> None:
    launch(session, tmp_path, ["unsupported", "uncaught"], "eager", "raises")
    stop = session.wait_for_stop("exception", at="raise")
    info = info_of(session, stop)
    assert info["exceptionId"].startswith("Graph break: Observed exception")
    assert info["description"].startswith("ValueError: three rows\n"), info
    assert stop.frame["Locals"]["x"].text.startswith("Tensor f32[3, 4] cpu")
    assert session.run_to_end() == 0


@pytest.mark.parametrize("name", ["raised", "uncaught"])
def test_the_first_lines_of_a_long_exception_are_shown_and_the_whole_is_below(
    session: Session, tmp_path: Path, name: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text("raise ValueError('\\n\\n'.join(f'reason {number}' for number in range(40)))\n")
    session.expects_program_traceback = True
    with session.launching(program):
        session.client.set_exception_filters([name])
    info = info_of(session, session.wait_for_stop("exception"))
    assert info["description"].endswith("reason 4\n… 35 more lines below")
    assert info["details"]["message"].endswith("reason 39")
    trace = info["details"]["stackTrace"].rstrip()
    assert trace.index("program.py") < trace.index("reason 0\n\n")
    assert trace.endswith("reason 39")
    assert trace.count("reason 20") == 1
