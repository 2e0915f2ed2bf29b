"""What an expression or a malformed request may do: nothing to the program, and nothing to the session.

With the default options of a launch; each at the three kinds of stops.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.types import SourceBreakpoint
from tests.client import Fixture, Session
from tests.client.session import Stop

PROGRAM = Fixture("faults")
DEFAULTS = {"eager": True, "mode": "both"}
"""The helper that tests launch by has others."""
KINDS = {"eager": "eager", "compile-time": "trace", "run-time": "generated"}
"""Modes of breakpoints, and where they stop in the program."""


def stops(session: Session, **options: Any) -> Iterator[tuple[str, Stop]]:
    """Launch the program and yield its stops, one of each kind; then let it end as it would undebugged."""
    with session.launching(PROGRAM, **DEFAULTS, **options):
        breakpoints = [SourceBreakpoint(line=PROGRAM.line(place), mode=mode) for mode, place in KINDS.items()]
        session.set_breakpoints(PROGRAM, *breakpoints)
    for kind, place in KINDS.items():
        stop = session.wait_for_stop("breakpoint", at=None if kind == "run-time" else place)
        yield kind, stop
        if kind != "run-time":
            session.resume()
    session.set_breakpoints(PROGRAM)
    assert session.run_to_end() == 0
    assert session.output("stdout") == "eager 3\ntraced [8.0, 8.0]\nagain [8.0, 8.0]\n"


@pytest.mark.parametrize("context", ["watch", "hover", "repl", "clipboard"])
def test_whatever_an_expression_raises_is_its_answer(session: Session, context: str) -> None:
    session.expects_program_traceback = True  # the console shows one for what was typed there
    for kind, stop in stops(session):
        for expression, raised in (
            ("exit(5)", "SystemExit: 5"),
            ("leave()", "SystemExit: from leave"),
            ("str(HOSTILE)", "SystemExit: from __str__"),
            ("HOSTILE.name", "SystemExit: from __getattr__"),
            ("len(HOSTILE)", "SystemExit: from __len__"),
            ("exec('raise KeyboardInterrupt')", "KeyboardInterrupt"),
            ("exec('raise GeneratorExit')", "GeneratorExit"),
            ("1 / 0", "ZeroDivisionError"),
        ):
            answered = answer(stop, expression, context)
            assert all(part in answered for part in raised.split(": ")), f"{expression} at an {kind} stop: {answered}"
        assert "Hostile" in answer(stop, "HOSTILE", context) or "SystemExit" in answer(stop, "HOSTILE", context)
        if context == "repl":
            assert "SystemExit" in answer(stop, "raise SystemExit", context)
        assert answer(stop, "len('name')", context) == "4"


def answer(stop: Stop, expression: str, context: str) -> str:
    """The value of an expression, or the text of its refusal."""
    try:
        return stop.frame.evaluate(expression, context).text
    except RequestFailed as failed:
        return str(failed)


def test_values_that_end_the_program_are_shown_and_set(session: Session) -> None:
    for kind, stop in stops(session):
        for scope in stop.frame.scopes.values():
            scope.open(2)
        if kind == "eager":
            assert "HOSTILE" in stop.frame["Globals"]
            assert "hostile" in stop.frame["Locals"]
            assert stop.frame["Locals"]["number"].text == "3"
        reference = stop.frame["Locals"].variable.variables_reference
        refused = session.refusal(
            "setVariable", {"variablesReference": reference, "name": "number", "value": "leave()"}
        )
        assert "SystemExit" in refused or kind != "eager", refused
        for value in ("leave()", "str(HOSTILE)"):
            arguments = {"expression": "number", "value": value, "frameId": stop.frame.data.id}
            refused = session.refusal("setExpression", arguments)
            assert "SystemExit" in refused or kind != "eager", refused
        for text in ("HOSTILE.", "hostile.", "leave().", "num"):
            arguments = {"text": text, "column": len(text) + 1, "frameId": stop.frame.data.id}
            assert "targets" in session.request("completions", arguments)
        assert answer(stop, "number", "watch") == "3" or kind == "run-time"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("expression", ["leave()", "HOSTILE", "exec('raise KeyboardInterrupt')"])
def test_a_condition_that_ends_the_program_stops_it(session: Session, kind: str, expression: str) -> None:
    with session.launching(PROGRAM, **DEFAULTS):
        line = PROGRAM.line(KINDS[kind])
        session.set_breakpoints(PROGRAM, SourceBreakpoint(line=line, mode=kind, condition=expression))
    stop = session.wait_for_stop("breakpoint")
    session.timeline.wait_until(
        lambda: any(name in session.output() for name in ("SystemExit", "KeyboardInterrupt")), "what the condition did"
    )
    assert answer(stop, "len('name')", "watch") == "4"
    session.set_breakpoints(PROGRAM)
    assert session.run_to_end() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_log_messages_and_hit_conditions_that_end_the_program(session: Session, kind: str) -> None:
    with session.launching(PROGRAM, **DEFAULTS):
        place = SourceBreakpoint(line=PROGRAM.line(KINDS[kind]), mode=kind)
        place.log_message = "left by {leave()} and {HOSTILE} or {number}"
        last = SourceBreakpoint(line=PROGRAM.line("again"), mode="eager", hit_condition="leave()")
        session.set_breakpoints(PROGRAM, place, last)
    # One that fails stops: better once too often.
    assert session.wait_for_stop("breakpoint", at="again").frame.evaluate("number").text == "3"
    assert session.run_to_end() == 0
    assert "from leave" in session.output()
    # debugpy's log messages have the category of what the program prints.
    printed = session.output("stdout").replace("from leave\n", "", 1)
    assert printed == "eager 3\ntraced [8.0, 8.0]\nagain [8.0, 8.0]\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_cannot_be_interrupted_holds_up_its_thread_alone(session: Session, kind: str) -> None:
    """``time.sleep`` of the main thread: everything else is answered meanwhile, and the frame is usable afterwards."""
    with session.launching(PROGRAM, **DEFAULTS, evaluationTimeout=0.5):
        session.set_breakpoints(PROGRAM, KINDS[kind], mode=kind)
    stop = session.wait_for_stop("breakpoint")
    frame = stop.frame.data.id
    waiting = session.client.send("evaluate", {"expression": "other_thing", "frameId": frame, "context": "watch"})
    with pytest.raises(RequestFailed, match="other_thing"):
        waiting.result(20)
    sleeping = session.client.send(
        "evaluate", {"expression": "__import__('time').sleep(12)", "frameId": frame, "context": "watch"}
    )
    behind = session.client.send("evaluate", {"expression": "1 + 1", "frameId": frame, "context": "watch"})
    began = time.monotonic()
    for pending in (sleeping, behind):
        with pytest.raises(RequestFailed, match="cannot be interrupted"):
            pending.result(20)
    assert "sleep(12)" in session.refusal("evaluate", {"expression": "2 + 2", "frameId": frame, "context": "watch"})
    threads = {one.name: one.id for one in session.client.threads()}
    session.request("stackTrace", {"threadId": threads["other"]})
    session.request("pause", {"threadId": threads["other"]})
    session.request("setBreakpoints", {"source": {"path": str(PROGRAM.path)}, "breakpoints": []})
    assert time.monotonic() - began < 12, "it was answered when the call was over"
    session.wait_for_output("looked at again", "important")
    assert stop.frame.evaluate("1 + 1").text == "2"
    assert session.refusal("evaluate", {"expression": "exec('while True: pass')", "frameId": frame}).endswith(
        "was interrupted"
    )
    assert stop.frame.evaluate("1 + 1").text == "2"
