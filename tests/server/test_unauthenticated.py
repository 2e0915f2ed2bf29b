"""Who has not shown a token costs little, is cut off, and keeps nobody out; and what is secret stays out of the log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.launch.children import listening
from dynamo_dap.protocol.log_file import LogFileHandler, loggable
from dynamo_dap.server.client import unauthenticated
from tests.client import FIXTURES, Fixture, Session
from tests.client.free_program import FreeProgram
from tests.client.timeline import DEADLINE
from tests.server.programs import write
from tests.server.test_tcp import TcpServer

DEFAULTS = {"eager": True, "mode": "both"}
"""The helper that tests launch by has others."""


FEW_FILES = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", sys.executable]
"""Starts a Python that may open 64 files. The process that runs the tests needs more, by the time."""


def silent_connections(host: str, port: int) -> list[socket.socket]:
    """A hundred of them, each one announcing much; they may be cut off at once."""
    made = [socket.create_connection((host, port), DEADLINE) for _ in range(100)]
    for one in made[::2]:
        with contextlib.suppress(OSError):  # cut off already
            one.sendall(b"Content-Length: 250000000\r\n\r\n" + b"x" * 100_000)
    return made


def test_a_server_outlives_a_hundred_silent_connections(tmp_path: Path) -> None:
    server = TcpServer("--listen", "127.0.0.1:0", python=FEW_FILES)
    silent = silent_connections("127.0.0.1", server.port)
    client = server.connect()
    client.run(write(tmp_path, "print('ran')"), server.token)
    client.wait_for("exited")
    assert server.process.poll() is None
    assert _resident_megabytes(server.process.pid) < 200
    cut_off = [one for one in silent if _is_closed(one)]
    assert len(cut_off) >= 100 - unauthenticated.MAXIMUM
    for one in silent:
        one.close()
    server.end()


def test_a_program_that_listens_outlives_them_too(session: Session) -> None:
    program = FreeProgram(FIXTURES / "listening.py", python=FEW_FILES)
    host, port = program.address()
    silent = silent_connections(host, port)
    session.attach(host, port, "listening", "compute", **DEFAULTS)
    session.wait_for_stop("breakpoint", at="compute")
    cut_off = [one for one in silent if _is_closed(one)]
    assert len(cut_off) >= 100 - unauthenticated.MAXIMUM
    session.disconnect()
    for one in silent:
        one.close()
    program.end()


UNAUTHENTICATED_FIRST = """#!{python}
import contextlib, json, os, resource, sys
from dynamo_dap.protocol.wire.local_sockets import connect_locally
resource.setrlimit(resource.RLIMIT_NOFILE, (512, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
job = json.loads(os.environ["DYNAMO_DAP_LAUNCH"])
for name in ("address", "debugpyAddress"):
    host, port = job[name].split(":")
    for number in range(100):
        peer = connect_locally(host, int(port), None)
        with contextlib.suppress(OSError):  # cut off already
            number % 2 or peer.sendall(b"Content-Length: 250000000\\r\\n\\r\\n" + b"x" * 100_000)
        os.set_inheritable(peer.detach(), True)  # open as long as the program runs
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


def test_a_launched_program_comes_through_a_crowd_of_them(session: Session, tmp_path: Path) -> None:
    """They came first, at both sockets that a program and its debugpy connect to, and the server may open few files."""
    python = tmp_path / "python"
    python.write_text(UNAUTHENTICATED_FIRST.format(python=sys.executable))
    python.chmod(0o755)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.prlimit(session.server_process_id, resource.RLIMIT_NOFILE, (64, limits[1]))
    program = Fixture(write(tmp_path, "value = 1\nprint(value)  #@here\n"))
    with session.launching(program, python=[str(python)], **DEFAULTS):
        session.set_breakpoints(program, "here")
    stop = session.wait_for_stop("breakpoint", at="here")
    assert stop.frame["Locals"]["value"].text == "1"
    assert _resident_megabytes(session.server_process_id) < 200
    assert session.run_to_end() == 0


def test_an_unauthenticated_connection_has_so_long_and_then_makes_room() -> None:
    async def go() -> None:
        cut: list[str] = []
        waiting = unauthenticated.UnauthenticatedConnections(patience=0.05)
        waiting.admit(slow := lambda: cut.append("slow"))
        waiting.admit(quick := lambda: cut.append("quick"))
        waiting.forget(quick)
        deadline = time.monotonic() + DEADLINE
        while not cut and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        assert cut == ["slow"]
        patient = unauthenticated.UnauthenticatedConnections(patience=1000)
        for number in range(unauthenticated.MAXIMUM + 2):
            patient.admit(lambda number=number: cut.append(str(number)))
        assert cut == ["slow", "0", "1"]
        waiting.forget(slow)
        patient.close()
        assert len(cut) == 1 + unauthenticated.MAXIMUM + 2

    asyncio.run(go())


def test_a_program_that_listens_cuts_off_who_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_PATIENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = listening._Acceptor(listener, "the token", Agent())
        threading.Thread(target=acceptor.run, daemon=True).start()
        with socket.create_connection(listener.getsockname()[:2], DEADLINE) as silent:
            assert silent.recv(1) == b""


def test_accepting_continues_when_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        with socket.create_server(("127.0.0.1", 0)) as port:
            loop = asyncio.get_running_loop()
            accept, failures = loop.sock_accept, [OSError(24, "Too many open files")]

            async def fail_first(sock: socket.socket) -> object:
                if failures:
                    raise failures.pop()
                return await accept(sock)

            monkeypatch.setattr(loop, "sock_accept", fail_first)
            with socket.create_connection(port.getsockname()[:2]):
                connected = await asyncio.wait_for(anext(unauthenticated.connections_to(port)), DEADLINE)
                connected.close()
            assert not failures

    asyncio.run(go())


def test_the_log_is_the_users_own_and_holds_no_environment(session: Session, tmp_path: Path) -> None:
    secret = "never to be seen"
    program = write(tmp_path, "import os; print(len(os.environ['PASSWORD']))")
    session.launch(program, **DEFAULTS, env={"PASSWORD": secret, "GONE": None}, console="internalConsole")
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == f"{len(secret)}\n"
    text = session._log.read_text()
    assert "PASSWORD" in text
    assert secret not in text
    assert stat.S_IMODE(session._log.stat().st_mode) == 0o600


def test_a_log_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    file = tmp_path / "log"
    before = "2026-01-01 00:00:00,000 DEBUG server before\n"
    file.write_text(before)
    file.chmod(0o644)
    LogFileHandler(file, encoding="utf-8").close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == before


def test_what_is_secret_is_not_logged() -> None:
    body = {"env": {"A": "one"}, "list": [{"accessToken": "two", "token": None}], "text": 'say "token": "three"'}
    assert loggable(body) == (
        '{"env":{"A":"..."},"list":[{"accessToken":"...","token":null}],"text":"say \\"token\\": \\"three\\""}'
    )


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        while data := connection.recv(65536):
            assert data
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def _resident_megabytes(process_id: int) -> float:
    if sys.platform != "linux":
        return 0.0
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
