"""While debugpy has no reason to trace, the program's main thread is not traced; asked for something, it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.client import Fixture, Session

PROGRAM = Fixture("eager/untraced")

Start = Callable[..., None]


@pytest.fixture
def start(session: Session, tmp_path: Path) -> Iterator[Start]:
    """Starts the program with the filter that VS Code sets by itself. It stands still after the test, and is ended."""
    file = tmp_path / "goes_on"
    file.touch()

    def start(*compile_time: str, mode: str = "compile-time", **options: object) -> None:
        with session.launching(PROGRAM, mode=mode, args=[str(file)], **options):
            session.request("setExceptionBreakpoints", {"filters": ["uncaught"]})
            if compile_time:
                session.set_breakpoints(PROGRAM, *compile_time, mode="compile-time")

    yield start
    session.set_breakpoints(PROGRAM)
    file.unlink()
    assert session.run_to_end() == 0
    assert session.output("stdout") == "traced by None\nended\n"


def test_a_breakpoint_that_is_set_while_it_runs_is_hit(session: Session, start: Start) -> None:
    start()
    session.wait_for_output("traced by None")
    assert session.set_breakpoints(PROGRAM, "after")[0].verified
    stop = session.wait_for_stop("breakpoint", at="after")
    assert stop.frame["Locals"]["result"]["0"].text == "2.0"
    session.next()


def test_it_pauses(session: Session, start: Start) -> None:
    start()
    session.wait_for_output("traced by None")
    session.client.pause(session.client.threads()[0].id)
    stop = session.wait_for_stop("pause")
    assert stop.frames[-1].name == "<module>"


def test_a_step_out_of_a_trace_lands_on_the_eager_line(session: Session, start: Start) -> None:
    start("traced")
    session.wait_for_stop("breakpoint", at="traced")
    session.step_out(at="call")
    session.next(at="after")


def test_a_breakpoint_that_is_set_while_dynamo_traces_is_hit(session: Session, start: Start) -> None:
    start("traced")
    session.wait_for_stop("breakpoint", at="traced")
    session.set_breakpoints(PROGRAM, "count", mode="eager")
    session.resume()
    session.wait_for_stop("breakpoint", at="count")


def test_a_breakpoint_that_is_set_in_generated_code_is_hit(session: Session, start: Start) -> None:
    """On Python 3.11 the thread is traced by the run-time engine then, which passes on to debugpy from there."""
    start(mode="run-time", stopOnGeneratedCode=True)
    session.wait_for_stop("entry")
    session.set_breakpoints(PROGRAM, "after", mode="eager")
    session.next(granularity="instruction")
    session.resume()
    session.wait_for_stop("breakpoint", at="after")
