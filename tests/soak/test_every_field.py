"""Every request, each field drawn anew, many at once, in eight states of a session: each is answered, with a reason.

``make soak MESSAGES=100000`` draws that many in each state, new ones each time; the suite draws few, and the same.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.wire.framing import frame
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Fixture, Session
from tests.client.session import Stop
from tests.end_to_end.test_faults import ENDING, RESUMING, SETTING
from tests.soak.counts import count, is_soaking
from tests.soak.fields import NO_JSON, Ids, argument_types, arguments
from tests.soak.lives import DEFAULTS, PLACES, PROGRAM

MESSAGES = count("MESSAGES", 300)
BURSTS = count("MESSAGES", 60) // 10
BATCH = 40
"""Messages that are sent without waiting for an answer."""
pytestmark = pytest.mark.timeout(600 + MESSAGES)

STEPS = ("next", "stepIn", "stepOut", "continue")


class Asked:
    """Requests that were sent without waiting, and their answers."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seq = 1_000_000
        self._sent: dict[int, bytes] = {}
        session.stream.allow_bad_requests()

    def send(self, command: str, given: object, no_json: bytes | None = None) -> int:
        """Send a request, some number in it replaced by ``no_json``."""
        self._seq += 1
        message = {"seq": self._seq, "type": "request", "command": command, "arguments": given}
        body = json.dumps(message).encode()
        if no_json is not None:
            body = body.replace(b": 1,", b": " + no_json + b",", 1)
        self._sent[self._seq] = body
        self._session.stream.write_unchecked(frame(body))
        return self._seq

    def check(self) -> dict[int, dict[str, Any]]:
        """Wait until all are answered; a refusal has its reason. Return the answers."""
        answers: dict[int, dict[str, Any]] = {}
        seen = 0

        def are_all_there() -> bool:
            nonlocal seen
            entries = self._session.timeline.entries
            for entry in entries[seen:]:
                if not entry.sent and entry.message.get("type") == "response":
                    answers.setdefault(entry.message["request_seq"], entry.message)
            seen = len(entries)
            return self._sent.keys() <= answers.keys()

        try:
            self._session.timeline.wait_until(are_all_there, "an answer to every request")
        except AssertionError:
            left = [self._sent[seq][:300] for seq in self._sent.keys() - answers.keys()]
            raise AssertionError(f"{len(left)} are not answered: {left}") from None
        for seq, body in self._sent.items():
            if not answers[seq]["success"]:
                check_reason(answers[seq], body)
        self._sent.clear()
        return answers


def check_reason(answer: dict[str, Any], request: bytes) -> None:
    """A refusal says why, as readable text, and why is not a defect of ours."""
    error = (answer.get("body") or {}).get("error") or {}
    text = error.get("format", "")
    for name, value in (error.get("variables") or {}).items():
        text = text.replace("{" + name + "}", value)
    about = f"{request[:300]!r}: {answer}"
    assert text.strip(), f"refused without a reason: {about}"
    assert answer.get("message"), f"refused without a message: {about}"
    for defect in ("internal error", "Internal error", "Traceback", "see log"):
        assert defect not in text, f"a defect: {about}"
    assert len(text) < 10_000, f"a reason of {len(text)} characters: {about[:2000]}"


def test_every_field_in_every_state(session: Session) -> None:
    dice = dice_of("fields")
    asked = Asked(session)
    for state, ids in states(session):
        commands = [each for each in argument_types() if each not in kept_from(state)]
        for begin in range(0, MESSAGES, BATCH):
            for number in range(begin, min(begin + BATCH, MESSAGES)):
                # Each in its turn: all are drawn, however few are wanted.
                command = commands[number % len(commands)]
                given = arguments(dice, argument_types()[command], ids)
                if is_harmless(command, given, state):
                    asked.send(command, given, dice.choice([None] * 15 + list(NO_JSON.values())))
            asked.check()


def states(session: Session) -> Iterator[tuple[str, Ids]]:
    """Bring a session into one state after the other; yield its name, and ids that are valid in it."""
    yield "connected", {}
    session.initialize()
    yield "initialized", {}
    with session.launching(PROGRAM, args=["--long"], **DEFAULTS):
        session.set_breakpoints(PROGRAM, PLACES["eager"], mode="eager")
        yield "configuring", ids_of(session, None)
        session.set_breakpoints(PROGRAM, PLACES["eager"], mode="eager")
    for kind, following in zip(PLACES, [*[*PLACES][1:], ""], strict=True):
        stop = session.wait_for_stop("breakpoint")
        yield kind, ids_of(session, stop)
        forget_breakpoints(session)
        assert session.client.evaluate("1 + 1", stop.frame.data.id, "watch").result == "2"
        if following:
            session.set_breakpoints(PROGRAM, SourceBreakpoint(line=PROGRAM.line(PLACES[following]), mode=following))
        session.resume()
    yield "running", ids_of(session, None)
    session.request("terminate")
    session.timeline.expect_event("terminated")
    yield "over", {}


def forget_breakpoints(session: Session) -> None:
    """What was drawn has set others."""
    session.set_breakpoints(PROGRAM)
    for kind in ("Function", "Instruction", "Data"):
        session.request(f"set{kind}Breakpoints", {"breakpoints": []})
    session.request("setExceptionBreakpoints", {"filters": []})


def kept_from(state: str) -> frozenset[str]:
    """Return the commands that would lead out of ``state``, or write files."""
    served = {"connected": {"initialize"}, "initialized": {"launch", "attach"}}.get(state, {"restart", "terminate"})
    always = {"disconnect", "dynamoRecordCall", *served}
    return frozenset(always | ({"configurationDone"} if state == "configuring" else set()))


def is_harmless(command: str, given: Any, state: str) -> bool:
    """Whether a request leaves the program in ``state``."""
    if command in RESUMING:
        return not isinstance(given, dict) or state in ("connected", "initialized", "over")
    if state == "compile-time" and command in SETTING | {"dynamoKeep", "dynamoForget"}:
        return not isinstance(given, dict)  # they lead to another trace
    if command in SETTING and isinstance(given, dict):
        return str(given.get("name") or given.get("expression")) not in ("number", "each", "total", "x", "log", "y")
    if state in ("running", "configuring"):
        # One of these may stop it.
        return command not in ("setBreakpoints", "setFunctionBreakpoints", "setExceptionBreakpoints")
    return True


def ids_of(session: Session, stop: Stop | None) -> dict[str, Sequence[Any]]:
    """Return what the session and its stop have shown."""
    threads = [each.id for each in session.client.threads()]
    ids: dict[str, Sequence[Any]] = {"threadId": threads, "path": [str(PROGRAM.path)], "program": ["nowhere.py"]}
    if stop is not None:
        scopes = [scope.variable.variables_reference for scope in stop.frame.scopes.values()]
        ids |= {"frameId": [each.data.id for each in stop.frames], "variablesReference": scopes}
        found = session.request("variables", {"variablesReference": scopes[0]})["variables"]
        ids |= {"name": [each["name"] for each in found], "expression": ["number", "x", "log", "__stack__"]}
    return ids


def dice_of(name: str) -> random.Random:
    """Make a generator; its seed is in the report of a failure."""
    seed = random.SystemRandom().randrange(2**32) if is_soaking("MESSAGES") else len(name)
    print(f"{name}: seed {seed}")  # noqa: T201  (pytest shows it with a failure)
    return random.Random(seed)


QUESTIONS = tuple(each for each in argument_types() if each not in RESUMING | ENDING | {"dynamoRecordCall"})


@pytest.mark.parametrize("kind", PLACES)
def test_requests_around_a_step_are_answered(session: Session, kind: str) -> None:
    """Many at once, with a step in their midst: the thread continues while they are on their way."""
    dice = dice_of(kind)
    with session.launching(PROGRAM, args=["--long"], **DEFAULTS):
        session.set_breakpoints(PROGRAM, PLACES[kind], mode=kind)
    asked, types = Asked(session), argument_types()
    for _ in range(BURSTS):
        stop = session.wait_for_stop()
        ids = ids_of(session, stop)
        step = dice.randrange(12)
        for number in range(16):
            if number == step:
                asked.send(dice.choice(STEPS), {"threadId": stop.thread_id})
            command = dice.choice(("completions", "evaluate", "variables", "scopes", dice.choice(QUESTIONS)))
            given = arguments(dice, types[command], ids)
            if is_harmless(command, given, "running"):
                asked.send(command, given)
        asked.check()
        session.set_breakpoints(PROGRAM, PLACES[kind], mode=kind)


WAITS = """import sys
while True:
    number = 3  #@here
    open(sys.argv[1]).read()
"""


def test_requests_around_a_continue_are_answered_while_the_program_waits(session: Session, tmp_path: Path) -> None:
    """The thread does not stop again, by which it would serve what is left over, until all is answered."""
    dice, gate = dice_of("waits"), tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "waits.py").write_text(WAITS, encoding="utf-8")
    program = Fixture(tmp_path / "waits.py")
    session.launch(program, "here", args=[str(gate)])
    asked = Asked(session)
    for _ in range(BURSTS):
        stop = session.wait_for_stop("breakpoint")
        reference, frame_id = stop.frame["Locals"].variable.variables_reference, stop.frame.data.id
        given = {
            "completions": {"text": "num", "column": 4, "frameId": frame_id},
            "evaluate": {"expression": "number", "frameId": frame_id, "context": "watch"},
            "variables": {"variablesReference": reference},
            "scopes": {"frameId": frame_id},
            "setVariable": {"variablesReference": reference, "name": "number", "value": "4"},
            "setExpression": {"expression": "number", "value": "5", "frameId": frame_id},
            "stepInTargets": {"frameId": frame_id},
            "exceptionInfo": {"threadId": stop.thread_id},
        }
        step = dice.randrange(20)
        for number in range(20):
            if number == step:
                asked.send("continue", {"threadId": stop.thread_id})
            command = dice.choice([*given])
            asked.send(command, given[command])
        asked.check()
        gate.write_text("", encoding="utf-8")
    session.wait_for_stop("breakpoint")
