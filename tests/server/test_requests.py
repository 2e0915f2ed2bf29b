"""How requests are refused, answered and cancelled: texts, ids, and the order of messages."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.debuggee.agent import handlers as _agent_handlers  # noqa: F401  (registers them)
from dynamo_dap.debuggee.agent import requests as agent
from dynamo_dap.debuggee.agent.interruption import Interruptible
from dynamo_dap.debuggee.values.model import Interrupted
from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.contract import CUSTOM_PREFIX, ErrorId
from dynamo_dap.protocol.wire.messages import ErrorBody, decode
from dynamo_dap.server.client.capabilities import AGENT_CAPABILITIES, FORWARDED_REQUESTS
from dynamo_dap.server.sessions import handlers as _handlers  # noqa: F401  (registers them)
from dynamo_dap.server.sessions.session import handlers
from tests.client import Session
from tests.client.session import launch_configuration
from tests.client.timeline import DEADLINE
from tests.server.programs import PAUSING, RUNNING_ON, write


def _error(session: Session, command: str, arguments: Any = None) -> tuple[int, str]:
    with pytest.raises(RequestFailed) as failed:
        session.request(command, arguments)
    error = decode(failed.value.response.body, ErrorBody, "error").error
    assert error is not None
    return error.id, error.text


def test_the_server_passes_on_whatever_the_agent_answers() -> None:
    """Read from both packages: a request that only one of them knows would be refused, or hang."""
    answered = set(agent.HANDLERS)
    custom = {command for command in answered if command.startswith(CUSTOM_PREFIX)}
    assert answered - custom <= {*FORWARDED_REQUESTS, *handlers}
    assert answered >= set(FORWARDED_REQUESTS)


def test_capabilities_are_those_of_the_agent_and_of_the_handlers(session: Session) -> None:
    capabilities = session.initialize()
    for name in AGENT_CAPABILITIES.__struct_fields__:
        if (offered := getattr(AGENT_CAPABILITIES, name)) is not None:
            found = getattr(capabilities, name)
            assert all(one in found for one in offered) if isinstance(offered, list) else found == offered, name
    assert capabilities.supports_configuration_done_request
    assert capabilities.supports_restart_request
    assert capabilities.supports_terminate_request
    assert capabilities.support_terminate_debuggee
    assert capabilities.supports_cancel_request
    assert capabilities.supports_function_breakpoints
    assert not capabilities.supports_loaded_sources_request
    assert capabilities.supports_step_back


def test_each_refusal_has_its_id(session: Session, tmp_path: Path) -> None:
    session.stream.allow_bad_requests()
    assert _error(session, "threads")[0] == ErrorId.NOT_INITIALIZED
    session.initialize()
    assert _error(session, "initialize", {"adapterID": "x"})[0] == ErrorId.INITIALIZED_TWICE
    assert _error(session, "dance")[0] == ErrorId.UNKNOWN_REQUEST
    assert _error(session, "gotoTargets", {})[0] == ErrorId.NO_PROGRAM
    assert _error(session, "next", {"threadId": 1})[0] == ErrorId.NO_PROGRAM
    assert _error(session, "dynamoGraph", {})[0] == ErrorId.NO_PROGRAM
    error_id, text = _error(session, "cancel", {"requestId": "one"})
    assert error_id == ErrorId.INVALID_ARGUMENTS
    assert "$.requestId" in text
    program = write(tmp_path, RUNNING_ON)
    session.launch(program)
    error_id, text = _error(session, "setBreakpoints", {"source": {"path": "a"}, "breakpoints": [{"line": "1"}]})
    assert error_id == ErrorId.INVALID_ARGUMENTS
    assert "$.breakpoints[0].line" in text
    assert _error(session, "launch", launch_configuration(program))[0] == ErrorId.STARTED_TWICE
    assert _error(session, "attach", {"port": 5})[0] == ErrorId.STARTED_TWICE


def test_after_the_end(session: Session, tmp_path: Path) -> None:
    """IDEs continue asking while they learn of the end; what arms nothing is not an error to them."""
    session.launch(write(tmp_path, "print('ran')"))
    assert session.wait_for_exit() == 0
    assert _error(session, "stackTrace", {"threadId": 1})[0] == ErrorId.PROGRAM_ENDED
    assert session.request("threads") == {"threads": []}
    session.request("configurationDone")
    session.request("terminate")
    session.disconnect()


def test_a_broken_agent_message_is_logged_and_no_more(session: Session, tmp_path: Path) -> None:
    program = write(
        tmp_path,
        "import gc, dynamo_dap.protocol.connection as c\n"
        "mine = next(o for o in gc.get_objects() if isinstance(o, c.Connection))\n"
        "mine._stream.write(b'Content-Length: 8\\r\\n\\r\\nnot json')\n"
        "mine.send_event('output', {'output': 'still there'})\n",
    )
    session.launch(program)
    assert session.wait_for_exit() == 0
    assert session.output("console") == "still there"
    assert "invalid message" in session.logs()


def test_cancel_reaches_an_evaluation(session: Session, tmp_path: Path) -> None:
    session.launch(write(tmp_path, PAUSING), evaluationTimeout=60)
    stop = session.wait_for_stop("breakpoint")
    arguments = {"expression": "[1 for _ in iter(int, 1) if _]", "frameId": stop.frame.data.id, "context": "repl"}
    pending = session.client.send("evaluate", arguments)
    sent = next(e.message for e in reversed(session.timeline.entries) if e.message.get("command") == "evaluate")
    session.request("cancel", {"requestId": sent["seq"]})
    with pytest.raises(RequestFailed) as failed:
        pending.result(DEADLINE)
    assert failed.value.response.message == "cancelled"
    assert session.run_to_end() == 0


def test_work_that_is_cancelled_before_it_begins_is_not_begun() -> None:
    """Such as by a ``cancel`` right behind the request, while the first evaluation of all starts a watchdog."""
    cancelled = Interruptible(60)
    cancelled.interrupt()
    with pytest.raises(Interrupted), cancelled.running():
        raise AssertionError("it was begun")
    assert not cancelled.timed_out
    over = Interruptible(60)
    with over.running():
        pass
    over.interrupt()
    late = Interruptible(0.0)
    deadline = time.monotonic() + DEADLINE
    with contextlib.suppress(Interrupted), late.running():
        while time.monotonic() < deadline:
            pass
    assert late.timed_out


def test_cancelling_what_has_been_answered_is_no_error(session: Session) -> None:
    session.initialize()
    session.request("cancel", {"requestId": 1})
    session.request("cancel", {"requestId": 4711})
    session.request("cancel", {"progressId": "none"})
    session.launch("plain")
    assert session.wait_for_exit() == 0


def test_a_launch_can_be_cancelled(session: Session, tmp_path: Path) -> None:
    session.initialize()
    slow = write(tmp_path, "#!/bin/sh\nsleep 50\n", "python")
    slow.chmod(0o755)
    pending = session.client.send("launch", launch_configuration("plain", python=str(slow)))
    assert _error(session, "threads")[0] == ErrorId.PROGRAM_STARTING
    sent = next(e.message for e in session.timeline.entries if e.message.get("command") == "launch")
    session.request("cancel", {"requestId": sent["seq"]})
    with pytest.raises(RequestFailed) as failed:
        pending.result(DEADLINE)
    assert failed.value.response.message == "cancelled"
    session.launch("plain")
    assert session.wait_for_exit() == 0


@pytest.mark.parametrize("command", ["terminate", "disconnect"])
def test_the_session_can_be_ended_while_the_program_starts(session: Session, tmp_path: Path, command: str) -> None:
    session.initialize()
    slow = write(tmp_path, "#!/bin/sh\nsleep 50\n", "python")
    slow.chmod(0o755)
    pending = session.client.send("launch", launch_configuration("plain", python=str(slow)))
    session.request(command)
    with pytest.raises(RequestFailed):
        pending.result(DEADLINE)
    if command == "terminate":
        session.timeline.expect_event("terminated")
        session.disconnect()


def test_an_answer_precedes_the_events_that_followed_it(session: Session, tmp_path: Path) -> None:
    session.launch(write(tmp_path, "import dynamo_dap\nfor i in range(30):\n    dynamo_dap.breakpoint()\n"))
    for _ in range(30):
        session.wait_for_stop("breakpoint")
        session.resume()
    session.wait_for_exit()
    messages = [entry.message for entry in session.timeline.entries if not entry.sent]
    kinds = [m.get("command") or m["event"] for m in messages if (m.get("command") or m["event"]) != "process"]
    stops = [kind for kind in kinds[kinds.index("stopped") :] if kind != "continued"]
    assert stops[:60] == ["stopped", "continue"] * 30


def test_custom_requests_reach_the_agent(session: Session, tmp_path: Path) -> None:
    session.launch(write(tmp_path, RUNNING_ON))
    error_id, text = _error(session, "dynamoNoSuchThing", {})
    assert error_id != ErrorId.UNKNOWN_REQUEST, "the server refused it, and not the agent"
    assert "dynamoNoSuchThing" in text
