"""Programs in a terminal of the IDE: theirs is the keyboard, and their end is known however they come to it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.wire.types import InitializeRequestArguments
from tests.client import Session
from tests.client.session import launch_configuration
from tests.client.timeline import DEADLINE
from tests.conftest import NewSession
from tests.server.programs import PAUSING, RUNNING_ON, write
from tests.server.terminal import Terminal


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """A terminal to come."""
    terminal = Terminal()
    yield terminal
    terminal.close()
    if terminal.program is not None:
        terminal.wait()


@pytest.fixture
def session(new_session: NewSession, terminal: Terminal) -> Session:
    """A session whose client has that terminal."""
    return new_session(reverse_requests={"runInTerminal": terminal.serve})


def _launch(session: Session, tmp_path: Path, text: str, **options: object) -> None:
    session.launch(write(tmp_path, text), console="integratedTerminal", **options)


def test_the_program_reads_the_keyboard(session: Session, terminal: Terminal) -> None:
    session.launch("waits_for_input", console="integratedTerminal")
    terminal.wait_for("your name?")
    terminal.type(b"Ada\n")
    assert session.wait_for_exit() == 0
    terminal.wait_for("hello Ada")
    assert session.output("stdout") == ""
    assert terminal.wait() == 0


def test_the_request_says_where_and_shows_no_secret(session: Session, terminal: Terminal, tmp_path: Path) -> None:
    _launch(
        session,
        tmp_path,
        "import os; print('in', os.getcwd(), os.environ['WHO'])",
        cwd=str(tmp_path),
        env={"WHO": "me"},
    )
    assert session.wait_for_exit() == 0
    terminal.wait_for(f"in {tmp_path} me")
    request = terminal.requests[0]
    assert request["kind"] == "integrated"
    assert request["cwd"] == str(tmp_path)
    assert "env" not in request
    assert not Path(request["args"][-1]).exists(), "the file with the secret is left over"


def test_a_removed_variable_is_not_there(session: Session, terminal: Terminal, tmp_path: Path) -> None:
    _launch(session, tmp_path, "import os; print('home is', os.environ.get('HOME'))", env={"HOME": None})
    session.wait_for_exit()
    terminal.wait_for("home is None")


@pytest.mark.parametrize(
    ("end", "exit_code", "of_terminal"),
    [("os._exit(7)", 7, 7), ("os.kill(os.getpid(), 11)", -11, 139), ("raise SystemExit(3)", 3, 3)],
)
def test_the_exit_code_is_known(
    session: Session, terminal: Terminal, tmp_path: Path, end: str, exit_code: int, of_terminal: int
) -> None:
    _launch(session, tmp_path, f"import os\n{end}\n")
    assert session.wait_for_exit() == exit_code
    assert terminal.wait() == of_terminal
    if exit_code < 0:
        assert "SIGSEGV (signal 11)" in session.output("important")


def test_control_c_is_for_the_program(session: Session, terminal: Terminal, tmp_path: Path) -> None:
    _launch(
        session,
        tmp_path,
        "import time\n"
        "try:\n    print('running', flush=True); time.sleep(600)\n"
        "except KeyboardInterrupt:\n    print('interrupted'); raise SystemExit(5)\n",
    )
    terminal.wait_for("running")
    terminal.type(b"\x03")
    assert session.wait_for_exit() == 5
    terminal.wait_for("interrupted")


def test_control_z_does_not_lose_the_program(session: Session, terminal: Terminal, tmp_path: Path) -> None:
    _launch(session, tmp_path, "print('running', flush=True)\nprint('read', input())\n")
    terminal.wait_for("running")
    terminal.type(b"\x1a")
    terminal.type(b"typed\n")
    assert session.wait_for_exit() == 0
    terminal.wait_for("read typed")


def test_a_paused_program_in_a_terminal_is_ended_by_disconnect(
    session: Session, terminal: Terminal, tmp_path: Path
) -> None:
    _launch(session, tmp_path, PAUSING)
    session.wait_for_stop("breakpoint")
    session.disconnect()
    assert terminal.wait() == 128 + signal.SIGKILL


def test_terminate_and_restart(session: Session, terminal: Terminal, tmp_path: Path) -> None:
    _launch(session, tmp_path, PAUSING)
    session.wait_for_stop("breakpoint")
    first = terminal.program
    session.request("restart")
    session.wait_for_stop("breakpoint")
    assert first is not None
    assert first.wait(DEADLINE) == 128 + signal.SIGKILL
    session.request("terminate")
    assert session.wait_for_exit() == -signal.SIGTERM


def test_a_program_that_is_let_go_stays_in_its_terminal(session: Session, terminal: Terminal, tmp_path: Path) -> None:
    _launch(session, tmp_path, "print('running', flush=True)\nprint('read', input())\n")
    terminal.wait_for("running")
    session.disconnect(terminateDebuggee=False)
    session._server.wait(DEADLINE)
    terminal.type(b"after\n")
    terminal.wait_for("read after")
    assert terminal.wait() == 0


def test_the_program_ends_with_the_server(session: Session, terminal: Terminal, tmp_path: Path) -> None:
    _launch(session, tmp_path, "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + RUNNING_ON)
    terminal.wait_for("running")
    os.kill(session.server_process_id, signal.SIGKILL)
    assert terminal.wait() in {128 + signal.SIGKILL, 1}
    session.close()
    assert session.processes_left == []


def test_the_end_is_reported_when_the_terminal_is_closed(session: Session, terminal: Terminal, tmp_path: Path) -> None:
    _launch(session, tmp_path, RUNNING_ON)
    terminal.wait_for("running")
    terminal.close()
    assert session.wait_for_exit() == -signal.SIGHUP
    assert "SIGHUP" in session.output("important")


def test_a_supervisor_that_is_killed_is_reported(session: Session, terminal: Terminal, tmp_path: Path) -> None:
    _launch(session, tmp_path, RUNNING_ON)
    terminal.wait_for("running")
    assert terminal.program is not None
    terminal.program.kill()
    session.timeline.expect_event("terminated")
    assert "exit status is unknown" in session.output("important")


def test_a_client_without_a_terminal_is_reported(new_session: NewSession, tmp_path: Path) -> None:
    session = new_session()
    session.initialize(InitializeRequestArguments(adapter_id="dynamo"))
    program = write(tmp_path, "print('ran')")
    text = session.refusal("launch", launch_configuration(program, console="externalTerminal"))
    assert "internalConsole" in text
    session.launch(program)
    assert session.wait_for_exit() == 0


def test_a_terminal_that_cannot_be_opened_is_reported(new_session: NewSession, tmp_path: Path) -> None:
    def refuse(_: object) -> object:
        raise OSError("no terminals left")

    session = new_session(reverse_requests={"runInTerminal": refuse})
    session.initialize()
    text = session.refusal(
        "launch", launch_configuration(write(tmp_path, "print('ran')"), console="integratedTerminal")
    )
    assert "no terminals left" in text


def test_a_terminal_in_which_nothing_happens_is_reported(new_session: NewSession, tmp_path: Path) -> None:
    session = new_session(reverse_requests={"runInTerminal": lambda request: {"shellProcessId": 1}})
    session.initialize()
    text = session.refusal(
        "launch",
        launch_configuration(write(tmp_path, "print('ran')"), console="integratedTerminal", launchTimeout=1.0),
    )
    assert "within 1 s" in text


def test_a_program_that_cannot_be_executed_is_reported(session: Session, terminal: Terminal, tmp_path: Path) -> None:
    python = write(tmp_path, "\x00\x01 no program", "python")
    python.chmod(0o755)
    session.initialize()
    with pytest.raises(RequestFailed, match="cannot start"):
        _launch(session, tmp_path, "print('ran')", python=str(python))
    assert "cannot start" in terminal.wait_for("cannot start")


def test_a_program_that_dies_before_it_connects_is_reported(session: Session, tmp_path: Path) -> None:
    python = write(tmp_path, "#!/bin/sh\nexit 9\n", "python")
    python.chmod(0o755)
    session.initialize()
    with pytest.raises(RequestFailed, match="exited with code 9"):
        _launch(session, tmp_path, "print('ran')", python=str(python))


def test_the_interpreter_of_the_server_runs_the_supervisor(
    session: Session, terminal: Terminal, tmp_path: Path
) -> None:
    _launch(session, tmp_path, "print('ran')", noDebug=True)
    assert session.wait_for_exit() == 0
    terminal.wait_for("ran")
    assert terminal.requests[0]["args"][0] == sys.executable
