"""Messages of recorded sessions, changed at random, at every socket and pipe there is; afterwards all is as before.

The program is stopped in each of the three kinds of code meanwhile. ``make soak MESSAGES=100000`` sends that many to
each, new ones each time; the suite sends few, and the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.requests.contract import AUTHORIZE
from dynamo_dap.protocol.wire.framing import frame
from dynamo_dap.protocol.wire.local_sockets import connect_locally
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Fixture, Session
from tests.client.free_program import FreeProgram
from tests.client.session import Stop
from tests.client.timeline import DEADLINE
from tests.conftest import NewSession
from tests.end_to_end.test_faults import ENDING, KINDS, RESUMING, SETTING, check_usable, stops
from tests.end_to_end.test_faults import PROGRAM as FAULTS
from tests.soak.counts import count, is_soaking
from tests.soak.lives import DEFAULTS, PLACES, PROGRAM
from tests.soak.mutation import mutated_body, mutated_stream, request_in

MESSAGES = count("MESSAGES", 240)
BATCH = 40
"""Messages after which it is looked whether all is as before."""

pytestmark = pytest.mark.timeout(300 + MESSAGES)


def dice_of(name: str) -> random.Random:
    """Make a generator; its seed is in the report of a failure."""
    seed = random.SystemRandom().randrange(2**32) if is_soaking("MESSAGES") else len(name)
    print(f"{name}: seed {seed}")  # noqa: T201  (pytest shows it with a failure)
    return random.Random(seed)


def sent_at(session: Session, stop: Stop) -> list[bytes]:
    """Ask what an editor asks at a stop, and return the requests that the session has sent so far."""
    frame_id, thread = stop.frame.data.id, stop.thread_id
    for scope in stop.frame.scopes.values():
        scope.open(1)
    for command, arguments in (
        ("evaluate", {"expression": "number", "frameId": frame_id, "context": "hover"}),
        ("completions", {"text": "nu", "column": 3, "frameId": frame_id}),
        ("dynamoCompiles", {}),
        ("dynamoTimeline", {"threadId": thread, "count": 5}),
        ("exceptionInfo", {"threadId": thread}),
        ("setExceptionBreakpoints", {"filters": ["uncaught"]}),
        ("setFunctionBreakpoints", {"breakpoints": [{"name": "nobody"}]}),
        ("breakpointLocations", {"source": {"path": str(PROGRAM.path)}, "line": 3}),
        ("cancel", {"requestId": 3}),
    ):
        with contextlib.suppress(Exception):
            session.request(command, arguments)
    messages = [entry.message for entry in session.timeline.entries if entry.sent]
    return [json.dumps(message).encode() for message in messages if message["type"] == "request"]


HARMFUL = RESUMING | ENDING | SETTING | {"dynamoKeep", "dynamoSetOption", "dynamoForget", "dynamoRecordCall"}
"""What these do is what they are for: a message that may still be one of them is not sent on the session itself."""


def is_harmless(body: bytes) -> bool:
    """Whether the program stays where it is, whatever a reader makes of it."""
    request = request_in(body)
    return request is None or request["command"] not in HARMFUL


def test_a_session_continues(session: Session) -> None:
    """Over the pipe of the session itself: each message is answered, or reported, and the next one is served."""
    dice = dice_of("stdio")
    session.stream.allow_bad_requests()
    for _kind, stop in stops(session):
        bodies = [body for body in sent_at(session, stop) if is_harmless(body)]
        sent = 0
        while sent < MESSAGES // 3:
            body = mutated_body(dice, dice.choice(bodies))
            if is_harmless(body):
                session.stream.write_unchecked(frame(body))
                sent += 1
                if sent % BATCH == 0:
                    check_usable(session, stop)
        check_usable(session, stop)
        set_again(session)
    refused = [one for one in session.timeline.entries if not one.sent and one.message.get("success") is False]
    assert len(refused) > MESSAGES // 20, "these messages are too good to show anything"


def set_again(session: Session) -> None:
    """Set the breakpoints of ``stops``: some messages may have set others."""
    wanted = [SourceBreakpoint(line=FAULTS.line(place), mode=mode) for mode, place in KINDS.items()]
    session.set_breakpoints(FAULTS, *wanted)
    session.request("setExceptionBreakpoints", {"filters": []})
    session.request("setFunctionBreakpoints", {"breakpoints": []})


def unauthenticated(address: tuple[str, int], dice: random.Random, bodies: list[bytes], messages: int) -> None:
    """Connect again and again, each time send something, and read what comes until it is cut off, or all is sent."""
    for _ in range(messages):
        with connect_locally(*address, timeout=DEADLINE) as connection:
            connection.settimeout(DEADLINE)
            with contextlib.suppress(OSError):  # cut off already
                connection.sendall(mutated_stream(dice, bodies))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass


def with_beginnings(bodies: list[bytes], token: str = "guessed") -> list[bytes]:
    """Add what one begins with, and a wrong token."""
    arguments: dict[str, dict[str, Any]] = {
        AUTHORIZE: {"token": token},
        "attach": {"accessToken": token, "connect": {"port": 1}},
        "launch": {"accessToken": token, "program": "/nowhere.py"},
    }
    begin = [{"seq": 1, "type": "request", "command": name, "arguments": each} for name, each in arguments.items()]
    return [*bodies, *(json.dumps(each).encode() for each in begin)]


def test_a_server_that_listens_serves_its_session(new_session: NewSession) -> None:
    dice, session = dice_of("--listen"), new_session(transport="tcp")
    for _kind, stop in stops(session):
        bodies = with_beginnings(sent_at(session, stop))
        unauthenticated(session.address, dice, bodies, MESSAGES // 3)
        check_usable(session, stop)


@pytest.mark.parametrize("kind", PLACES)
def test_a_program_that_listens_serves_its_session(new_session: NewSession, kind: str) -> None:
    """``dynamo_dap.listen()``; and the next debugger is let in, too."""
    dice, program = dice_of(kind), FreeProgram(PROGRAM.path, "--listen")
    try:
        host, port = program.address()
        session = new_session()
        with session.configuring("attach", {"connect": {"host": host, "port": port}, **DEFAULTS}):
            session.set_breakpoints(PROGRAM, PLACES[kind], mode=kind)
        stop = session.wait_for_stop("breakpoint")
        unauthenticated((host, port), dice, with_beginnings(sent_at(session, stop)), MESSAGES // 6)
        check_usable(session, stop)
        session.disconnect()
        second = new_session()
        with second.configuring("attach", {"connect": {"host": host, "port": port}, **DEFAULTS}):
            second.set_breakpoints(PROGRAM, PLACES["eager"], mode="eager")
        check_usable(second, second.wait_for_stop("breakpoint"))
        second.disconnect()
    finally:
        program.end()


COMES_BEFORE = """#!{python}
import json, os, random, sys
sys.path[:0] = {path!r}
from tests.soak.test_mutated_messages import unauthenticated, with_beginnings
job = json.loads(os.environ["DYNAMO_DAP_LAUNCH"])
dice, first = random.Random({seed}), json.dumps({{"seq": 1, "type": "request", "command": "initialize"}}).encode()
for name in ("address", "debugpyAddress"):
    host, _, port = job[name].rpartition(":")
    unauthenticated((host, int(port)), dice, with_beginnings([first]), {messages})
print("unauthenticated connections were there", file=sys.stderr)
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


def test_the_ports_of_agent_and_debugpy_take_the_right_one(session: Session, tmp_path: Path) -> None:
    """Unauthenticated clients come first, at both ports that a program and its debugpy connect to."""
    python = tmp_path / "python"
    seed = dice_of("the agent's port").randrange(2**32)
    path = [entry for entry in sys.path if entry] + [str(Path(__file__).parents[2])]
    python.write_text(
        COMES_BEFORE.format(python=sys.executable, path=path, seed=seed, messages=MESSAGES // 6), encoding="utf-8"
    )
    python.chmod(0o755)
    (tmp_path / "program.py").write_text("value = 1\nprint(value)  #@here\n", encoding="utf-8")
    program = Fixture(tmp_path / "program.py")
    session.client.timeout = 60 + MESSAGES  # unauthenticated connections come first
    with session.launching(program, python=[str(python)], **DEFAULTS, launchTimeout=60 + MESSAGES):
        session.set_breakpoints(program, "here")
    stop = session.wait_for_stop("breakpoint", at="here")
    check_usable(session, stop)
    assert session.run_to_end() == 0
    assert "unauthenticated connections were there" in session.output("stderr")


CONNECTS = """
import dynamo_dap
dynamo_dap.connect()
value = 1
print(value)  #@here
"""


def test_a_session_that_waits_for_programs_takes_the_right_one(session: Session, tmp_path: Path) -> None:
    """Unauthenticated clients come first, and while it is debugged."""
    dice, program = dice_of("listen"), Fixture(tmp_path / "program.py")
    program.path.write_text(CONNECTS, encoding="utf-8")
    session.initialize()
    listen = {"host": "127.0.0.1", "port": 0, "timeout": 300 + MESSAGES, "accessToken": "right"}
    beginning = session.begin("attach", {"listen": listen, **DEFAULTS})
    session.wait_for_output("export DYNAMO_DAP_CONNECT=")
    match = re.search(r"(127\.0\.0\.1):(\d+)#right", session.output())
    assert match is not None
    address = match[1], int(match[2])
    first = json.dumps({"seq": 1, "type": "request", "command": "initialize"}).encode()
    unauthenticated(address, dice, with_beginnings([first]), MESSAGES // 6)
    running = FreeProgram(program.path, environment={**os.environ, "DYNAMO_DAP_CONNECT": match[0]})
    try:
        session.timeline.expect_event("initialized")
        session.set_breakpoints(program, "here")
        session.client.configuration_done()
        beginning.result(DEADLINE)
        stop = session.wait_for_stop("breakpoint", at="here")
        unauthenticated(address, dice, with_beginnings([first]), MESSAGES // 6)
        assert stop.frame.evaluate("value").text == "1"
        session.disconnect(terminateDebuggee=False)
        assert running.process.wait(DEADLINE) == 0
    finally:
        running.end()


def test_a_message_that_is_cut_ends_its_session_alone(new_session: NewSession) -> None:
    """Lengths and headers that are wrong: the session is over, its program with it, and nothing is left."""
    dice = dice_of("cut")
    for _ in range(max(3, MESSAGES // 100)):
        session = new_session()
        session.stream.allow_bad_requests()
        session.initialize()
        begin = [json.dumps(one.message).encode() for one in session.timeline.entries if one.sent]
        session.stream.write_unchecked(mutated_stream(dice, begin))
        session.client.close()
        session.close()
        assert session.processes_left == []
