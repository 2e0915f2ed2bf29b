"""``restart``: a new process under the old breakpoints, in the same session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.client import Session
from tests.client.session import launch_configuration
from tests.client.timeline import DEADLINE
from tests.server.programs import PAUSING, RUNNING_ON, write

STEPPED = """\
def first():
    return 1

def second():
    return 2

import dynamo_dap, sys
print("arguments", sys.argv[1:], flush=True)
dynamo_dap.breakpoint()
print("after", flush=True)
"""


def _process_ids(session: Session) -> list[int]:
    return [event["body"]["systemProcessId"] for event in session.timeline.events if event["event"] == "process"]


def test_the_program_starts_anew(session: Session, tmp_path: Path) -> None:
    session.launch(write(tmp_path, PAUSING), args=["a"])
    session.wait_for_stop("breakpoint")
    session.request("restart")
    stop = session.wait_for_stop("breakpoint")
    assert stop.frame.evaluate("value").text == "[2, ['a']]"
    old, new = _process_ids(session)
    assert old != new
    with pytest.raises(ProcessLookupError):
        os.kill(old, 0)
    assert session.run_to_end() == 0
    names = [event["event"] for event in session.timeline.events]
    assert names.count("initialized") == 1
    assert names.count("terminated") == 1
    assert names.count("exited") == 1, "the end of the first process is not an end of the session"


def test_the_thread_that_was_stopped_is_asked_to_continue_and_to_end(session: Session, tmp_path: Path) -> None:
    """VS Code keeps a stop until it is continued, and would show the title of the old one."""
    session.launch(write(tmp_path, PAUSING))
    thread_id = session.wait_for_stop("breakpoint").thread_id
    session.request("restart")
    session.wait_for_stop("breakpoint")
    reported = [(one["event"], one["body"].get("reason")) for one in session.timeline.events if "body" in one]
    about = [one for one in reported if one[0] in ("stopped", "continued", "thread")]
    end = about.index(("thread", "exited"))
    assert about[end - 1 : end] == [("continued", None)]
    assert session.run_to_end() == 0
    assert thread_id is not None


def test_new_arguments_are_taken(session: Session, tmp_path: Path) -> None:
    program = write(tmp_path, PAUSING)
    session.launch(program, args=["a"])
    session.wait_for_stop("breakpoint")
    session.request("restart", {"arguments": launch_configuration(program, args=["b", "c"])})
    stop = session.wait_for_stop("breakpoint")
    assert stop.frame.evaluate("value").text == "[3, ['b', 'c']]"
    # And they are kept for the next time.
    session.request("restart", {"arguments": None})
    assert session.wait_for_stop("breakpoint").frame.evaluate("value").text == "[3, ['b', 'c']]"


def test_breakpoints_are_set_again_under_the_same_ids(session: Session, tmp_path: Path) -> None:
    program = write(tmp_path, STEPPED)
    other = write(tmp_path, "def third():\n    return 3\n", "other.py")
    with session.launching(program):
        session.set_breakpoints(other, 2)
        before = [one.id for one in session.set_breakpoints(program, 2, 5)]
        session.set_breakpoints(other)
        session.request("setFunctionBreakpoints", {"breakpoints": [{"name": "second"}]})
        session.request("setExceptionBreakpoints", {"filters": []})
    session.wait_for_stop("breakpoint")
    asked = len(session.timeline.entries)
    session.request("restart")
    session.wait_for_stop("breakpoint")
    changed = [
        entry.message["body"]["breakpoint"]
        for entry in session.timeline.entries[asked:]
        if entry.message.get("event") == "breakpoint"
    ]
    assert [one["id"] for one in changed if one.get("line") in {2, 5}][:2] == before
    assert all(one["verified"] for one in changed if one.get("line") in {2, 5})
    again = [one.id for one in session.set_breakpoints(program, 2, 5)]
    assert len(set(again)) == 2


def test_threads_of_the_old_process_are_gone_for_the_ide(session: Session, tmp_path: Path) -> None:
    session.launch(write(tmp_path, PAUSING))
    thread = session.wait_for_stop("breakpoint").thread_id
    session.request("restart")
    gone = session.timeline.expect_event("thread")
    assert gone == {"reason": "exited", "threadId": thread}
    session.wait_for_stop("breakpoint")


def test_an_answer_comes_before_the_first_stop(session: Session, tmp_path: Path) -> None:
    session.launch(write(tmp_path, PAUSING))
    session.wait_for_stop("breakpoint")
    session.request("restart")
    session.wait_for_stop("breakpoint")
    received = [entry.message for entry in session.timeline.entries if not entry.sent]
    kinds = [message.get("command") or message["event"] for message in received]
    assert kinds.index("restart") < len(kinds) - 1 - kinds[::-1].index("stopped")


def test_wrong_new_arguments_leave_the_program_alone(session: Session, tmp_path: Path) -> None:
    session.launch(write(tmp_path, PAUSING))
    stop = session.wait_for_stop("breakpoint")
    text = session.refusal("restart", {"arguments": {"program": "/no/such/program.py"}})
    assert "does not exist" in text
    assert stop.frame.evaluate("value").text == "[1, []]"
    assert session.run_to_end() == 0


def test_a_program_that_does_not_start_again_ends_the_session(session: Session, tmp_path: Path) -> None:
    program = write(tmp_path, PAUSING)
    session.launch(program)
    session.wait_for_stop("breakpoint")
    impostor = write(tmp_path, "#!/bin/sh\necho broken >&2\nexit 9\n", "python")
    impostor.chmod(0o755)
    text = session.refusal("restart", {"arguments": launch_configuration(program, python=str(impostor))})
    assert "exited with code 9" in text
    assert "broken" in text
    session.timeline.expect_event("terminated")
    session.disconnect()


def test_what_has_ended_cannot_be_restarted(session: Session, tmp_path: Path) -> None:
    session.initialize()
    assert "no program is running" in session.refusal("restart")
    session.launch(write(tmp_path, "print('ran')"))
    session.wait_for_exit()
    assert "no program is running" in session.refusal("restart")


def test_restarts_in_a_row(session: Session, tmp_path: Path) -> None:
    session.launch(write(tmp_path, RUNNING_ON))
    first, second = session.client.send("restart"), session.client.send("restart")
    first.result(DEADLINE)
    assert session.refusal("launch", launch_configuration("plain"))
    outcomes = []
    for pending in (second, session.client.send("restart")):
        try:
            pending.result(DEADLINE)
            outcomes.append(True)
        except Exception as error:  # noqa: BLE001 - refused in words is right too
            outcomes.append("no program is running" in str(error))
    assert outcomes == [True, True]
    session.disconnect()
    session.close()
    assert session.processes_left == []
