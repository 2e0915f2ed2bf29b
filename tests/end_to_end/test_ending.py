"""Ending a session by terminate, disconnect or restart leaves no process."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

from tests.client import Session
from tests.client.processes import marked_with
from tests.client.timeline import DEADLINE


def test_terminate_ends_the_program(session: Session) -> None:
    session.launch("endings/runs_on")
    session.wait_for_output("running")
    session.request("terminate")
    session.timeline.expect_event("terminated")
    assert "ended by itself" not in session.output()


def test_terminate_ends_a_program_that_does_not_want_to(session: Session) -> None:
    session.launch("endings/runs_on", args=["--ignore-interrupt"])
    session.wait_for_output("running")
    session.request("terminate")
    session.timeline.expect_event("terminated")
    assert "ended by itself" not in session.output()


def test_terminate_while_tracing_is_paused(session: Session) -> None:
    session.launch("basic", "first")
    session.wait_for_stop("breakpoint", at="first")
    session.request("terminate")
    session.timeline.expect_event("terminated")
    assert "result" not in session.output("stdout")


def test_disconnect_ends_a_launched_program_by_default(session: Session) -> None:
    session.launch("basic", "first")
    session.wait_for_stop("breakpoint", at="first")
    session.disconnect()
    session.close()
    assert session.processes_left == []
    assert "result" not in session.output("stdout")


OUTLIVES = """\
import pathlib, time
print("running", flush=True)
here, deadline = pathlib.Path(__file__).parent, time.monotonic() + 600
while not (here / "server is gone").exists() and time.monotonic() < deadline:
    time.sleep(0.02)
print("nobody reads this", flush=True)
(here / "ran on").write_text("to its end")
"""


def test_disconnect_can_let_a_launched_program_run_on(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "outlives.py"
    program.write_text(OUTLIVES)
    session.launch(program)
    session.wait_for_output("running")
    process = psutil.Process(_process_ids(session)[0])
    server = psutil.Process(session.server_process_id)
    session.disconnect(terminateDebuggee=False)
    session.client.close()
    psutil.wait_procs([server], timeout=DEADLINE)
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
    (tmp_path / "server is gone").touch()
    assert not psutil.wait_procs([process], timeout=DEADLINE)[1]
    assert (tmp_path / "ran on").read_text() == "to its end"


def test_processes_that_the_program_started_end_with_it(session: Session) -> None:
    session.launch("endings/leaves_child")
    session.wait_for_output("child")
    match = re.search(r"child (\d+)", session.output("stdout"))
    assert match is not None
    assert int(match[1]) in [process.pid for process in marked_with(session.mark)]
    session.disconnect(terminateDebuggee=True)
    session.close()
    assert session.processes_left == []


def test_restart_runs_the_program_again_with_its_breakpoints(session: Session) -> None:
    session.launch("basic", "first", args=["x"])
    session.wait_for_stop("breakpoint", at="first")
    before = _process_ids(session)
    session.request("restart")
    stop = session.wait_for_stop("breakpoint", at="first")
    assert len(_process_ids(session)) == len(before) + 1
    assert stop.frame["Locals"]["x"].text.startswith("Tensor")
    assert session.output("stdout") == ""
    assert session.finish() == 0
    assert "result 87.0" in session.output("stdout")


def _process_ids(session: Session) -> list[int]:
    return [event["body"]["systemProcessId"] for event in session.timeline.events if event["event"] == "process"]
