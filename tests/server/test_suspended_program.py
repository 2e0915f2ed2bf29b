"""A program that SIGSTOP has suspended: every request is answered, and all continues after SIGCONT."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.client import Fixture, Session
from tests.client.timeline import DEADLINE
from tests.conftest import NewSession

PROGRAM = """\
import torch

@torch.compile(backend="eager")
def fn(x):
    y = x + 1  #@traced
    return y * 2  #@after

def main():
    first = 1
    fn(torch.ones(3))  #@eager
    print("done", flush=True)  #@last

main()
"""


def process_of(session: Session) -> psutil.Process:
    reported = next(event["body"] for event in session.timeline.events if event["event"] == "process")
    return psutil.Process(reported["systemProcessId"])


def suspend(process: psutil.Process) -> None:
    """Suspend the program: its threads stop some time after the signal was sent."""
    process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + DEADLINE
    while not all(psutil.Process(thread.id).status() == psutil.STATUS_STOPPED for thread in process.threads()):
        assert time.monotonic() < deadline, "the program was not suspended"
        time.sleep(0.01)


@pytest.fixture(params=["traced", "eager"])
def stopped(request: pytest.FixtureRequest, new_session: NewSession, tmp_path: Path) -> tuple[Session, int]:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    session = new_session()
    session.launch(Fixture(path), request.param)
    stop = session.wait_for_stop("breakpoint")
    return session, stop.thread_id


def test_every_request_is_answered_and_all_continues(stopped: tuple[Session, int]) -> None:
    session, thread = stopped
    (frame,) = session.request("stackTrace", {"threadId": thread, "levels": 1})["stackFrames"]
    scopes = session.request("scopes", {"frameId": frame["id"]})
    local = {"variablesReference": scopes["scopes"][0]["variablesReference"]}
    variables = session.request("variables", local)
    threads = session.request("threads")
    process = process_of(session)
    suspend(process)
    try:
        # What was asked before is known.
        assert session.request("threads") == threads
        assert session.request("stackTrace", {"threadId": thread, "levels": 1})["stackFrames"] == [frame]
        assert session.request("scopes", {"frameId": frame["id"]}) == scopes
        assert session.request("variables", local) == variables
        for command, arguments in (
            ("evaluate", {"expression": "1 + 1", "frameId": frame["id"]}),
            ("completions", {"text": "to", "column": 3, "frameId": frame["id"]}),
            ("pause", {"threadId": thread}),
            ("next", {"threadId": thread}),
            ("setVariable", {**local, "name": "first", "value": "2"}),
            ("stackTrace", {"threadId": thread, "startFrame": 1, "levels": 1}),
        ):
            assert f"'{command}': a signal" in session.refusal(command, arguments)
    finally:
        process.send_signal(signal.SIGCONT)
    assert session.request("evaluate", {"expression": "1 + 1", "frameId": frame["id"]})["result"] == "2"
    session.resume()
    assert session.wait_for_exit() == 0
    assert "done" in session.output("stdout")


def test_breakpoints_take_effect_when_the_program_continues(stopped: tuple[Session, int], tmp_path: Path) -> None:
    """They are pending, with the reason; an event says when they are set."""
    session, _ = stopped
    program = Fixture(tmp_path / "program.py")
    process = process_of(session)
    suspend(process)
    try:
        (pending,) = session.set_breakpoints(program, "last")
        assert not pending.verified
        assert "'setBreakpoints': a signal" in (pending.message or "")
        assert not session.request("setExceptionBreakpoints", {"filters": ["nan"]})["breakpoints"][0]["verified"]
    finally:
        process.send_signal(signal.SIGCONT)
    changed = session.timeline.expect_event("breakpoint")["breakpoint"]
    assert (changed["id"], changed["verified"]) == (pending.id, True)
    session.resume()
    assert session.wait_for_stop("breakpoint", at="last").body["hitBreakpointIds"] == [pending.id]


def test_a_session_ends_while_the_program_is_suspended(stopped: tuple[Session, int]) -> None:
    session, _ = stopped
    process = process_of(session)
    suspend(process)
    session.request("disconnect", {"terminateDebuggee": True})
    psutil.wait_procs([process], timeout=DEADLINE)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_program_that_suspends_itself_meanwhile(new_session: NewSession, tmp_path: Path) -> None:
    """The requests have reached it by then: they are answered after a while, and heeded later."""
    path = tmp_path / "program.py"
    path.write_text("import os, signal\nvalue = 1  #@here\nprint('done')\n")
    session = new_session()
    session.launch(Fixture(path), "here")
    stop = session.wait_for_stop("breakpoint")
    process = process_of(session)
    frame = stop.frame.data.id
    stops = {"expression": "os.kill(os.getpid(), signal.SIGSTOP)", "frameId": frame}
    assert "takes effect" in session.refusal("evaluate", stops)
    process.send_signal(signal.SIGCONT)
    session.resume()
    assert session.wait_for_exit() == 0
