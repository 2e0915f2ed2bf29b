"""The server over TCP: who may use it, and one session after and beside another."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dynamo_dap.protocol.connection import Connection, RequestFailed
from dynamo_dap.protocol.wire.messages import Event, Request, to_builtins
from dynamo_dap.protocol.wire.streams import SocketStream
from tests.client.timeline import DEADLINE
from tests.server.programs import RUNNING_ON, write


class TcpServer:
    """A server process that listens."""

    def __init__(self, *arguments: str, token: str | None = None, python: Sequence[str] = (sys.executable,)) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "DYNAMO_DAP_ACCESS_TOKEN"}
        if token is not None:
            environment["DYNAMO_DAP_ACCESS_TOKEN"] = token
        self.process = subprocess.Popen(
            [*python, "-m", "dynamo_dap", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        listens = re.search(r":(\d+)$", self.process.stderr.readline())
        assert listens is not None
        self.port = int(listens[1])
        self.token = token
        if "--access-token" not in arguments and token is None:
            self.token = self.process.stderr.readline().removeprefix("access token: ").strip()

    def connect(self) -> TcpClient:
        """Connect a client that has introduced itself."""
        client = TcpClient(self.port)
        client.connection.request("initialize", {"adapterID": "dynamo"}, timeout=DEADLINE)
        return client

    def end(self) -> None:
        """End it as a user would."""
        self.process.terminate()
        assert self.process.wait(DEADLINE) == 0


class TcpClient:
    """The least client."""

    def __init__(self, port: int) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()
        self.is_closed = False
        self.connection = Connection(SocketStream(socket.create_connection(("127.0.0.1", port), DEADLINE)), "server")
        self.connection.start(self)

    def run(self, program: Path, token: str | None) -> None:
        """Launch ``program`` and let it run."""
        arguments = {"program": str(program), **({"accessToken": token} if token is not None else {})}
        self.connection.request("launch", arguments, timeout=DEADLINE)
        self.connection.request("configurationDone", timeout=DEADLINE)

    def wait_for(self, event: str) -> Event:
        """Wait for an event."""

        def found() -> list[Event]:
            return [one for one in self.events if one.event == event]

        with self._changed:
            assert self._changed.wait_for(found, DEADLINE), f"no {event!r} in {[one.event for one in self.events]}"
            return found()[0]

    def wait_for_end(self) -> None:
        """Wait until the server has closed the connection."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.is_closed, DEADLINE), "the server kept the connection"

    def on_request(self, request: Request) -> None:
        self.connection.respond_error(request, "no")

    def on_event(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def on_invalid_message(self, problem: str) -> None:
        raise AssertionError(problem)

    def on_closed(self, problem: str | None) -> None:
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()


@pytest.fixture
def server() -> Iterator[TcpServer]:
    """A server on a free port, with a token that it made up."""
    server = TcpServer("--listen", "127.0.0.1:0")
    yield server
    server.end()


def test_a_client_needs_the_token_that_was_printed(server: TcpServer, tmp_path: Path) -> None:
    program = write(tmp_path, "print('ran')")
    client = server.connect()
    for wrong in (None, "", "guessed", (server.token or "")[:-1]):
        with pytest.raises(RequestFailed, match="access token"):
            client.run(program, wrong)
    client.run(program, server.token)
    assert to_builtins(client.wait_for("exited").body) == {"exitCode": 0}


def test_attach_needs_the_token_too(server: TcpServer) -> None:
    with pytest.raises(RequestFailed, match="access token"):
        server.connect().connection.request("attach", {"port": server.port}, timeout=DEADLINE)


def test_sessions_follow_one_another_and_stand_beside_one_another(server: TcpServer, tmp_path: Path) -> None:
    long = server.connect()
    long.run(write(tmp_path, RUNNING_ON, "long.py"), server.token)
    for number in range(3):
        client = server.connect()
        client.run(write(tmp_path, f"raise SystemExit({number})"), server.token)
        assert to_builtins(client.wait_for("exited").body) == {"exitCode": number}
        client.connection.request("disconnect", timeout=DEADLINE)
        client.wait_for_end()
    assert not [event for event in long.events if event.event == "exited"]


def test_garbage_ends_one_session_and_not_the_server(server: TcpServer, tmp_path: Path) -> None:
    with socket.create_connection(("127.0.0.1", server.port), DEADLINE) as browser:
        browser.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
        received = b""
        while data := browser.recv(65536):
            received += data
    assert b"terminated" in received
    client = server.connect()
    client.run(write(tmp_path, "print('ran')"), server.token)
    client.wait_for("terminated")


def test_what_was_launched_ends_with_the_server(tmp_path: Path) -> None:
    server = TcpServer("--listen", "127.0.0.1:0")
    client = server.connect()
    client.run(write(tmp_path, RUNNING_ON), server.token)
    process_id = to_builtins(client.wait_for("process").body)["systemProcessId"]
    client.wait_for("output")
    server.end()
    client.wait_for_end()
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)


def test_the_debugged_program_does_not_get_the_servers_token(tmp_path: Path) -> None:
    server = TcpServer("--listen", "127.0.0.1:0", token="of the server")
    client = server.connect()
    client.run(write(tmp_path, "import os; print(sorted(n for n in os.environ if 'ACCESS' in n))"), "of the server")
    client.wait_for("terminated")
    outputs = [to_builtins(event.body) for event in client.events if event.event == "output"]
    assert "".join(one["output"] for one in outputs if one["category"] == "stdout") == "[]\n"
    server.end()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--listen", "0.0.0.0:0"], "without an access token"),
        (["--listen", "[::]:0"], "without an access token"),
        (["--listen", "nonsense"], "HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "HOST:PORT"),
        (["--listen", "no.such.host.invalid:0"], "no.such.host.invalid"),
        (["--access-token", "x"], "--listen"),
        (["--log", "/no/such/folder/log"], "/no/such/folder/log"),
        (["dance"], "dance"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(arguments: list[str], expected: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "dynamo_dap", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        stdin=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name != "DYNAMO_DAP_ACCESS_TOKEN"},
    )
    assert ran.returncode == 2
    assert expected in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stdout == ""


def test_another_address_is_listened_on_with_a_token(tmp_path: Path) -> None:
    server = TcpServer("--listen", "0.0.0.0:0", "--access-token", "agreed")
    client = server.connect()
    with pytest.raises(RequestFailed, match="access token"):
        client.run(write(tmp_path, "print('ran')"), None)
    client.run(write(tmp_path, "print('ran')"), "agreed")
    client.wait_for("terminated")
    server.end()


def test_a_port_that_is_taken_is_reported(server: TcpServer) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "dynamo_dap", "--listen", f"127.0.0.1:{server.port}"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert ran.returncode == 2
    assert str(server.port) in ran.stderr
    assert "Traceback" not in ran.stderr
