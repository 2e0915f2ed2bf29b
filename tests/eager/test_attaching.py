"""Attaches to running programs, or lets programs connect, and debugs ordinary Python as well."""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dynamo_dap.protocol.connection import RequestFailed
from tests.client import FIXTURES, Session, thread_events
from tests.client.fixtures import Fixture
from tests.client.free_program import FreeProgram
from tests.client.timeline import DEADLINE
from tests.conftest import NewSession

CONNECTS = Fixture("eager/connects")
LISTENS = Fixture("eager/debugpy_listens")

Start = Callable[..., FreeProgram]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts programs, and ends them after the test."""
    started: list[FreeProgram] = []

    def start(path: Path, *arguments: str) -> FreeProgram:
        started.append(FreeProgram(path, *arguments))
        return started[-1]

    yield start
    for program in started:
        program.end()


def test_attach_again_with_eager_debugging(new_session: NewSession, start: Start) -> None:
    program = start(FIXTURES / "listening.py")
    host, port = program.address()
    for where in ({"connect": {"host": host, "port": port}}, {"host": host, "port": port}):
        session = new_session()
        with session.configuring("attach", where):
            session.set_breakpoints("listening", "again", "compute")
        places = {session.wait_for_stop("breakpoint").marker, session.continue_to_stop().marker}
        assert places == {"again", "compute"}
        session.disconnect()
        assert program.process.poll() is None


def test_a_function_that_was_compiled_before_anybody_attached(new_session: NewSession, start: Start) -> None:
    """Breakpoints stop in it in every session, with its values: all of its calls are cached calls."""
    program = start(FIXTURES / "compiled_before.py")
    host, port = program.address()
    for _ in range(2):
        session = new_session()
        with session.configuring("attach", {"connect": {"host": host, "port": port}}):
            session.set_breakpoints("compiled_before", "after")
        for _ in range(2):
            stop = session.wait_for_stop("breakpoint", at="after")
            assert stop.frame.evaluate("y.tolist()").text == "[2.0, 2.0, 2.0]"
            session.resume()
        session.disconnect()


def test_a_thread_that_stopped_before_the_client_is_configured_is_not_announced_after_its_stop(
    new_session: NewSession, start: Start
) -> None:
    """Debugpy announces threads a tenth of a second after a client connects."""
    program = start(FIXTURES / "listening.py")
    host, port = program.address()
    for delay in (0.06, 0.09, 0.12, 0.15):
        session = new_session()
        with session.configuring("attach", {"connect": {"host": host, "port": port}}):
            session.set_breakpoints("listening", "compute")
            # The program compiles every 50 ms, so it may be held by now, without an event so far.
            time.sleep(delay)
        session.wait_for_stop("breakpoint", at="compute")
        session.disconnect()
        assert not thread_events.problems_of(session.timeline.entries)


def wait_for_address(session: Session) -> int:
    session.wait_for_output("Waiting for a program")
    match = re.search(r"connect\(\(\"127\.0\.0\.1\", (\d+)\)\)", session.output())
    assert match is not None
    return int(match[1])


def test_a_program_connects_to_a_server_that_waits(session: Session, start: Start) -> None:
    session.initialize()
    beginning = session.begin("attach", {"listen": {"port": 0}})
    program = start(CONNECTS.path, str(wait_for_address(session)))
    session.timeline.expect_event("initialized")
    assert all(one.verified for one in session.set_breakpoints(CONNECTS, "double", "call"))
    session.client.configuration_done()
    beginning.result(DEADLINE)
    stop = session.wait_for_stop("breakpoint", at="call")
    session.continue_to_stop(at="double")
    stop = session.next()
    assert stop.frame["Locals"]["result"].text == "42"
    stop = session.continue_to_stop(at="end")
    session.disconnect()
    assert program.process.wait(DEADLINE) == 0, "the program ended with the debugger"
    assert program.lines == ["connected True", "ended"]


def test_who_shows_the_wrong_token_is_turned_away_and_the_right_one_still_comes(session: Session, start: Start) -> None:
    session.initialize()
    beginning = session.begin("attach", {"listen": {"port": 0, "accessToken": "right"}})
    port = str(wait_for_address(session))
    assert "no access token" in start(CONNECTS.path, port).wait_for_line("refused")
    assert "right token" in start(CONNECTS.path, port, "wrong").wait_for_line("refused")
    program = start(CONNECTS.path, port, "right")
    session.timeline.expect_event("initialized")
    session.client.configuration_done()
    beginning.result(DEADLINE)
    session.wait_for_stop("breakpoint")
    session.disconnect()
    assert program.process.wait(DEADLINE) == 0


def test_waiting_for_a_program_can_be_given_up(session: Session) -> None:
    session.initialize()
    beginning = session.begin("attach", {"listen": {"port": 0}})
    port = wait_for_address(session)
    session.disconnect()
    with pytest.raises(RequestFailed):
        beginning.result(DEADLINE)
    session.timeline.wait_for_end()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_listening_beyond_this_machine_needs_a_token(session: Session) -> None:
    session.initialize()
    text = session.refusal("attach", {"listen": {"host": "0.0.0.0", "port": 0}})
    assert "accessToken" in text
    assert "either" in session.refusal("attach", {"listen": {"port": 0}, "connect": {"port": 5}})


def test_a_program_that_listens_for_debugpy(new_session: NewSession, start: Start) -> None:
    """The server loads the agent into the program, and the session works like any other."""
    program = start(LISTENS.path)
    host, port = program.address()
    for turn in range(2):
        session = new_session()
        with session.configuring("attach", {"connect": {"host": host, "port": port}}):
            assert all(one.verified for one in session.set_breakpoints(LISTENS, "compute", "again"))
        stop = session.wait_for_stop("breakpoint", at="compute" if turn == 0 else None)
        if turn == 0:
            assert program.wait_for_line("attached")
            assert stop.frame["Locals"]["x"].text.startswith("Tensor f32[2]")
            assert [frame.name for frame in stop.frames] == ["compute", "main", "<module>"]
        stacks = {}
        for _ in range(2):
            stop = session.continue_to_stop()
            stacks[stop.marker] = [frame.name for frame in stop.frames]
        assert stacks == {"compute": ["compute", "main", "<module>"], "again": ["main", "<module>"]}
        session.disconnect()
        assert program.process.poll() is None


WAITS_FOR_ITS_END = """
import sys, time
import dynamo_dap
from dynamo_dap.debuggee.eager import pydevd_internals
wait = pydevd_internals.wait_until_configured
def wait_after_its_end(is_cancelled):
    pydevd = sys.modules["pydevd"]
    pydevd.get_global_debugger().dispose_and_kill_all_pydevd_threads()
    while pydevd.get_global_debugger() is not None:
        time.sleep(0.01)
    wait(is_cancelled)
pydevd_internals.wait_until_configured = wait_after_its_end
host, port = dynamo_dap.listen(("127.0.0.1", 0))
print(f"listening on {host}:{port}", flush=True)
dynamo_dap.wait_for_client()
print("went on", flush=True)
"""


def test_a_program_that_waits_for_a_client_continues_when_debugpy_is_gone(
    session: Session, start: Start, tmp_path: Path
) -> None:
    """Let debugpy end after its client has configured it, and before the program waits."""
    path = tmp_path / "program.py"
    path.write_text(WAITS_FOR_ITS_END, encoding="utf-8")
    program = start(path)
    host, port = program.address()
    with session.configuring("attach", {"connect": {"host": host, "port": port}, "eager": True}):
        pass
    program.wait_for_line("went on")


def own_address() -> str:
    """An address of this machine other than loopback. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


def test_a_program_beyond_this_machine_is_debugged_without_its_eager_code(
    session: Session, start: Start, tmp_path: Path
) -> None:
    host = own_address()
    program = tmp_path / "program.py"
    program.write_text(
        "import dynamo_dap\n"
        "host, port = dynamo_dap.listen(('0.0.0.0', 0), access_token='agreed')\n"
        "print(f'listening on {host}:{port}')\n"
        "dynamo_dap.wait_for_client()\n"
        "dynamo_dap.breakpoint()\n"
    )
    _, port = start(program).address()
    with session.configuring("attach", {"connect": {"host": host, "port": port, "accessToken": "agreed"}}):
        pass
    session.wait_for_stop("breakpoint")
    assert "ordinary Python is not" in session.output("important")
    session.disconnect()


def another_home(folder: Path) -> dict[str, str]:
    home, temporary = folder / "home", folder / "temporary"
    home.mkdir()
    temporary.mkdir()
    folders = {"HOME": str(home), "TMPDIR": str(temporary), "XDG_RUNTIME_DIR": "", "XDG_STATE_HOME": ""}
    return {**os.environ, **folders}


def test_a_program_with_another_home_says_where_it_searched_for_a_server(session: Session, tmp_path: Path) -> None:
    session.initialize()
    session.begin("attach", {"listen": {"port": 0}})
    port = str(wait_for_address(session))
    environment = another_home(tmp_path)
    program = FreeProgram(CONNECTS.path, port, environment=environment, python=[sys.executable])
    try:
        refused = program.wait_for_line("refused")
    finally:
        program.end()
    assert f"{port}-*.json in {environment['HOME']}" in refused
    assert environment["TMPDIR"] in refused


def test_a_program_with_another_home_is_found_where_the_message_says(session: Session, tmp_path: Path) -> None:
    """The program's token is in its own home and temporary folder, where the server does not look by itself."""
    environment = another_home(tmp_path)
    program = FreeProgram(FIXTURES / "listening.py", environment=environment, python=[sys.executable])
    try:
        host, port = program.address()
        session.initialize()
        with pytest.raises(RequestFailed) as refused:
            session.begin("attach", {"connect": {"host": host, "port": port}}).result(DEADLINE)
    finally:
        program.end()
    assert f"{port}-*.json in " in str(refused.value)
    assert str(Path.home() / ".local" / "state" / "dynamo-dap") in str(refused.value)
