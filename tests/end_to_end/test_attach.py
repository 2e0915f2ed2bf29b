"""Attaching to a program that listens, leaving it, and coming back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamo_dap.protocol.connection import RequestFailed
from tests.client import FIXTURES, Session
from tests.client.free_program import FreeProgram
from tests.client.session import free_port
from tests.client.timeline import DEADLINE
from tests.conftest import NewSession


class ListeningProgram(FreeProgram):
    """A run of ``fixtures/listening.py``."""

    def __init__(self) -> None:
        super().__init__(FIXTURES / "listening.py")
        self.host, self.port = self.address()


@pytest.fixture
def program() -> Iterator[ListeningProgram]:
    """A program that waits for a debugger."""
    program = ListeningProgram()
    yield program
    program.end()


def test_attach_detach_and_attach_again(new_session: NewSession, program: ListeningProgram) -> None:
    first = new_session()
    first.attach(program.host, program.port, "listening", "compute")
    stop = first.wait_for_stop("breakpoint", at="compute")
    assert program.wait_for_line("attached")
    assert first.timeline.events[0]["event"] in ("initialized", "process", "output")
    assert stop.frame["Locals"]["x"].text.startswith("Tensor")
    process = next(event["body"] for event in first.timeline.events if event["event"] == "process")
    assert process["startMethod"] == "attach"
    assert process["systemProcessId"] == program.process_id
    first.disconnect()
    assert program.process.poll() is None, "the program ended with the debugger"

    second = new_session()
    second.attach(program.host, program.port, "listening", "return")
    stop = second.wait_for_stop("breakpoint", at="return")
    assert stop.frame["Locals"]["y"].text.startswith("Tensor")
    # End the program, from the debug console in a frame that calls the compiled function.
    main = stop.frame_called("main")
    main.evaluate("going.clear() or going.append(False)", context="repl")
    second.set_breakpoints("listening")
    second.resume()
    second.timeline.expect_event("terminated")
    assert program.wait_for_line("steps True")
    assert program.process.wait(DEADLINE) == 0


def test_a_stop_before_the_client_is_configured_is_reported_after(
    new_session: NewSession, program: ListeningProgram
) -> None:
    first = new_session()
    first.attach(program.host, program.port)
    assert program.wait_for_line("attached")
    first.disconnect()
    second = new_session()
    with second.configuring("attach", {"connect": {"host": program.host, "port": program.port}}):
        second.set_breakpoints("listening", "compute")
        deadline = time.monotonic() + DEADLINE
        while not _is_held(second):
            assert time.monotonic() < deadline, "the program does not stop at the breakpoint"
        assert "stopped" not in [event["event"] for event in second.timeline.events]
    second.wait_for_stop("breakpoint", at="compute")
    second.disconnect()


def _is_held(session: Session) -> bool:
    try:
        session.request("stackTrace", {"threadId": 1})
    except RequestFailed:
        return False
    return True


def test_the_program_outlives_a_server_that_dies(new_session: NewSession, program: ListeningProgram) -> None:
    session = new_session()
    session.attach(program.host, program.port, "listening", "compute")
    session.wait_for_stop("breakpoint", at="compute")
    os.kill(session.server_process_id, 9)
    session.timeline.wait_for_end()

    again = new_session()
    again.attach(program.host, program.port)
    # Breakpoints can also be set while the program runs.
    again.set_breakpoints("listening", "compute")
    again.wait_for_stop("breakpoint", at="compute")
    again.disconnect(terminateDebuggee=False)
    assert program.process.poll() is None


def test_disconnect_can_end_the_program(new_session: NewSession, program: ListeningProgram) -> None:
    session = new_session()
    session.attach(program.host, program.port, "listening", "compute")
    session.wait_for_stop("breakpoint", at="compute")
    session.disconnect(terminateDebuggee=True)
    assert program.process.wait(DEADLINE) != 0


def test_a_program_can_be_attached_to_from_its_start_on(new_session: NewSession, tmp_path: Path) -> None:
    """The program only listens once everything for a debugger is ready."""
    path = tmp_path / "program.py"
    port = free_port()
    path.write_text(f"import dynamo_dap\ndynamo_dap.listen({port})\ndynamo_dap.wait_for_client()\nprint('done')\n")
    for _ in range(5):
        session = new_session()
        session.initialize()
        program = FreeProgram(path)
        refusals: list[str] = []
        while True:
            try:
                session.attach("127.0.0.1", port)
                break
            except RequestFailed as failed:
                refusals.append(str(failed))
        assert not [text for text in refusals if "no program listens" not in text]
        assert refusals, "it was tried before the program listened"
        program.wait_for_line("done")
        assert program.process.wait(DEADLINE) == 0


def test_one_debugger_at_a_time(new_session: NewSession, program: ListeningProgram) -> None:
    first, second = new_session(), new_session()
    first.attach(program.host, program.port)
    second.initialize()
    text = second.refusal("attach", {"connect": {"host": program.host, "port": program.port}})
    assert "attached" in text
    assert program.wait_for_line("attached")


def test_a_wrong_token_is_refused(new_session: NewSession, program: ListeningProgram) -> None:
    session = new_session()
    session.initialize()
    text = session.refusal(
        "attach", {"connect": {"host": program.host, "port": program.port, "accessToken": "guessed"}}
    )
    assert "token" in text


def test_breakpoint_in_a_program_without_a_debugger_does_nothing(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import dynamo_dap\ndynamo_dap.breakpoint()\nprint('ran', dynamo_dap.is_client_connected())\n")
    ran = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=DEADLINE, check=True)
    assert ran.stdout == "ran False\n"


def test_breakpoint_in_a_launched_program_stops(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import dynamo_dap\nname = 'value'\ndynamo_dap.breakpoint()\nprint('ran')\n")
    session.launch(program)
    stop = session.wait_for_stop("breakpoint")
    assert stop.frame.path == program
    assert stop.frame.evaluate("name").text == "'value'"
    assert session.run_to_end() == 0
