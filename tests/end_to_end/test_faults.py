"""An expression or a malformed request has no effect on the program or the session.

Each is tried with the default options of a launch, at the three kinds of stops.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect
import pytest

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.wire.framing import frame
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from dynamo_dap.server.client.capabilities import EAGER_ARGUMENTS, FORWARDED_REQUESTS
from dynamo_dap.server.sessions.session import handlers
from tests.client import Fixture, Session
from tests.client.session import Stop
from tests.client.timeline import DEADLINE

PROGRAM = Fixture("faults")
DEFAULTS = {"eager": True, "mode": "both"}
"""The default values of these launch options."""
KINDS = {"eager": "eager", "compile-time": "trace", "run-time": "generated"}
"""The modes of breakpoints, each with its stop in the program."""


def stops(session: Session, **options: Any) -> Iterator[tuple[str, Stop]]:
    """Launch the program and yield its stops, one of each kind; then let it end as without a debugger."""
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
    session.expects_program_traceback = True  # the console shows the traceback of a typed expression
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
    """Return the value of an expression, or the text of its refusal."""
    try:
        return stop.frame.evaluate(expression, context).text
    except RequestFailed as failed:
        return str(failed)


def test_values_that_end_the_program_are_shown_and_set(session: Session) -> None:
    for kind, first in stops(session):
        stop = first
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
        stop = _after_refusal(session, stop, kind)
        for value in ("leave()", "str(HOSTILE)"):
            arguments = {"expression": "number", "value": value, "frameId": stop.frame.data.id}
            refused = session.refusal("setExpression", arguments)
            assert "SystemExit" in refused or kind != "eager", refused
            stop = _after_refusal(session, stop, kind)
        for text in ("HOSTILE.", "hostile.", "leave().", "num"):
            arguments = {"text": text, "column": len(text) + 1, "frameId": stop.frame.data.id}
            assert "targets" in session.request("completions", arguments)
        assert answer(stop, "number", "watch") == "3" or kind == "run-time"


def _after_refusal(session: Session, stop: Stop, kind: str) -> Stop:
    """Return the stop after a refused assignment in a trace, which is the same place again."""
    return session.wait_for_stop("breakpoint", at=stop.marker) if kind == "compile-time" else stop


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
    # A condition that fails stops the program: better too often than never.
    assert session.wait_for_stop("breakpoint", at="again").frame.evaluate("number").text == "3"
    assert session.run_to_end() == 0
    assert "from leave" in session.output()
    # debugpy's log messages have the same category as the program's output.
    printed = session.output("stdout").replace("from leave\n", "", 1)
    assert printed == "eager 3\ntraced [8.0, 8.0]\nagain [8.0, 8.0]\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_cannot_be_interrupted_holds_up_its_thread_alone(
    session: Session, tmp_path: Path, kind: str
) -> None:
    """The main thread waits in a C function: all other requests are answered, and the frame is usable afterwards."""
    with session.launching(PROGRAM, **DEFAULTS, evaluationTimeout=0.5):
        session.set_breakpoints(PROGRAM, KINDS[kind], mode=kind)
    stop = session.wait_for_stop("breakpoint")
    frame = stop.frame.data.id
    waiting = session.client.send("evaluate", {"expression": "other_thing", "frameId": frame, "context": "watch"})
    with pytest.raises(RequestFailed, match="other_thing"):
        waiting.result(DEADLINE)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = session.client.send("evaluate", {"expression": f"open({str(pipe)!r}).read()", "frameId": frame})
    behind = session.client.send("evaluate", {"expression": "1 + 1", "frameId": frame, "context": "watch"})
    for pending in (reading, behind):
        with pytest.raises(RequestFailed, match="cannot be interrupted"):
            pending.result(DEADLINE)
    assert "open(" in session.refusal("evaluate", {"expression": "2 + 2", "frameId": frame, "context": "watch"})
    threads = {one.name: one.id for one in session.client.threads()}
    assert "is running" in session.refusal("stackTrace", {"threadId": threads["other"]})
    session.request("pause", {"threadId": threads["other"]})
    session.request("setBreakpoints", {"source": {"path": str(PROGRAM.path)}, "breakpoints": []})
    pipe.write_text("", encoding="utf-8")  # only now can the call end
    session.wait_for_output("inspected again", "important")
    assert stop.frame.evaluate("1 + 1").text == "2"
    assert session.refusal("evaluate", {"expression": "exec('while True: pass')", "frameId": frame}).endswith(
        "was interrupted"
    )
    assert stop.frame.evaluate("1 + 1").text == "2"


def test_evaluations_are_cancelled_running_or_waiting(session: Session) -> None:
    for kind, stop in stops(session, evaluationTimeout=60):
        arguments = {"frameId": stop.frame.data.id, "context": "watch"}
        pending = [
            session.client.send("evaluate", {"expression": expression, **arguments})
            for expression in ("[1 for _ in iter(int, 1) if _]", "len('ab')", "len('abc')")
        ]
        sent = [entry.message for entry in session.timeline.entries if entry.message.get("command") == "evaluate"]
        running, waiting = [message["seq"] for message in sent if message["type"] == "request"][-3:-1]
        session.request("cancel", {"requestId": waiting})
        session.request("cancel", {"requestId": running})
        for one in pending[:2]:
            with pytest.raises(RequestFailed) as failed:
                one.result(DEADLINE)
            assert failed.value.response.message == "cancelled", kind
        assert b'"3"' in bytes(pending[2].result(DEADLINE))
        assert answer(stop, "len('abcd')", "watch") == "4"


NOT_OFFERED = (
    "loadedSources",
    "readMemory",
    "terminateThreads",
    "dance",
)
INTO_THE_PAST = frozenset({"dynamoGoTo", "dynamoRunBack", "restartFrame", "reverseContinue", "stepBack"})
SETTING = frozenset({"setExpression", "setVariable"})
RESUMING = frozenset({"continue", "goto", "next", "pause", "stepIn", "stepOut"}) | INTO_THE_PAST
ENDING = frozenset({"attach", "configurationDone", "disconnect", "initialize", "launch", "restart", "terminate"})


def argument_types() -> dict[str, type]:
    """Return the type of the arguments of every request that the server knows."""
    found = FORWARDED_REQUESTS | EAGER_ARGUMENTS
    found |= {
        command: handler.arguments for command, handler in handlers.items() if handler.arguments is not msgspec.Raw
    }
    return dict(sorted(found.items()))


def wrong_values(kind: Any) -> list[object]:
    """Return JSON values that are not of the type ``kind`` (of ``msgspec.inspect``)."""
    if isinstance(kind, msgspec.inspect.UnionType):
        kind = next(one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType))
    wrong: dict[type, list[object]] = {
        msgspec.inspect.IntType: ["1", [], {}, 1.5, True],
        msgspec.inspect.StrType: [1, [], {}, False],
        msgspec.inspect.BoolType: ["yes", 1, []],
        msgspec.inspect.ListType: [1, "one", {}, [None], [[]]],
        msgspec.inspect.StructType: [1, "one", [1]],
    }
    return wrong.get(type(kind), [])


ODD_VALUES: dict[type, list[object]] = {int: [-1, 0, 2**31, 2**70], str: ["", "\0", "\u2028", "x" * 10_000, "🦊" * 9]}


DEEP = b"[" * 2000 + b"]" * 2000
UNREADABLE = {
    "deep": b'{"seq": 9001, "type": "request", "command": "evaluate", "arguments": {"a": ' + DEEP + b"}}",
    "half": b'{"seq": 9002, "type": "request", "command": "evaluate", "arguments": {"expression": "\\ud83d"}}',
    "no UTF-8": b'{"seq": 9003, "type": "request", "command": "evaluate", "arguments": {"expression": "\xed\xa0"}}',
    "cut": b'{"seq": 9004, "type": "request", "command": "evaluate", "arguments": {"expression": "a',
    "no command": b'{"seq": 9005, "type": "request", "arguments": {}}',
}


def test_messages_that_cannot_be_read_change_nothing(session: Session) -> None:
    for kind, stop in stops(session):
        for name, body in UNREADABLE.items():
            session.stream.write_unchecked(frame(body))
            assert answer(stop, "len('ab')", "watch") == "2", f"{name} at an {kind} stop"
        session.stream.write_unchecked(b"Content-Length: " + b"1" * 5000 + b"\r\n\r\n{}")
        assert answer(stop, "len('abc')", "watch") == "3", f"a length of 5,000 digits at an {kind} stop"
        # A lone surrogate is a text as well.
        assert answer(stop, "'a' + chr(0xd83d)", "watch").count("d83d") == 1
        refused = [one for one in session.timeline.entries if not one.sent and one.message.get("success") is False]
        assert {9001, 9002, 9003, 9004} <= {one.message["request_seq"] for one in refused}


@pytest.mark.parametrize("kind", KINDS)
def test_malformed_arguments_change_nothing(session: Session, kind: str) -> None:
    """Send each argument of each request with values of wrong types, then with odd values of the right type."""
    dice = random.Random(10)
    session.stream.allow_bad_requests()
    with session.launching(PROGRAM, **DEFAULTS):
        session.set_breakpoints(PROGRAM, KINDS[kind], mode=kind)
    stop = session.wait_for_stop("breakpoint", at=None if kind == "run-time" else KINDS[kind])
    valid = valid_arguments(stop)
    session.refusal("gotoTargets", {"source": {"path": str(PROGRAM.path)}, "line": []})
    for command, arguments_type in argument_types().items():
        fields = msgspec.inspect.type_info(arguments_type).fields  # type: ignore[attr-defined]
        base = {field.encode_name: valid[field.encode_name] for field in fields if field.required}
        for arguments in ([1], "text", 5, *wrong_fields(fields, base)):
            session.refusal(command, arguments)
        # In a trace, setting a value starts a changed trace.
        leaves = RESUMING | ENDING | (SETTING if kind == "compile-time" else frozenset())
        for field in fields if command not in leaves else ():
            for value in ODD_VALUES.get(type(base.get(field.encode_name)), []):
                answered(session, command, {**base, field.encode_name: value})
        if dice.random() < 0.3:
            check_usable(session, stop)
    for command in NOT_OFFERED:
        session.refusal(command, {"threadId": stop.thread_id})
    for command in ("dynamoCompiles", "dynamoGraph", "dynamoGuards"):
        for arguments in ([1], "text", 5, {"frameId": []}, {"id": {}}):
            answered(session, command, arguments)
    check_usable(session, stop)
    assert not {"continued", "terminated", "exited"} & {event["event"] for event in session.timeline.events}
    session.set_breakpoints(PROGRAM)
    assert session.run_to_end() == 0


def valid_arguments(stop: Stop) -> dict[str, object]:
    """Return a value of the right type for each argument that a request requires."""
    path = str(PROGRAM.path)
    return {
        "threadId": stop.thread_id,
        "frameId": stop.frame.data.id,
        "targetId": 1,
        "sourceReference": 1,
        "variablesReference": stop.frame["Locals"].variable.variables_reference,
        "locationReference": 1,
        "name": "number",
        "value": "3",
        "expression": "number",
        "text": "num",
        "column": 1,
        "line": 1,
        "memoryReference": "0x10",
        "instructionCount": 1,
        "adapterID": "dynamo",
        "source": {"path": path},
        "breakpoints": [],
        "filters": [],
    }


def wrong_fields(fields: Sequence[Any], base: dict[str, object]) -> Iterator[dict[str, object]]:
    """Yield arguments with one field of the wrong type, or without one that is required."""
    for field in fields:
        for value in wrong_values(field.type):
            yield {**base, field.encode_name: value}
        if field.required:
            yield {name: value for name, value in base.items() if name != field.encode_name}


def answered(session: Session, command: str, arguments: object) -> None:
    """Send a request that may succeed or fail."""
    with contextlib.suppress(RequestFailed):
        session.request(command, arguments)


def check_usable(session: Session, stop: Stop) -> None:
    """Check that the thread is at the same place and can be inspected."""
    frames = session.client.stack_trace(stop.thread_id).stack_frames
    assert frames[0].line == stop.frame.line
    assert session.client.evaluate("1 + 1", frames[0].id, "watch").result == "2"
