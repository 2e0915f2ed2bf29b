"""Starts servers over stdio, forked by a zygote: importing a server takes as long as a test with it.

Runs on the thread of a test.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Mapping
from typing import IO

from dynamo_dap.protocol.wire.streams import ByteStream, PipeStream
from dynamo_dap.terminal.client import ServerProcess
from tests.client import substitute, zygote
from tests.client.timeline import DEADLINE


def start_server(environment: Mapping[str, str], standard_error: IO[bytes]) -> ServerProcess | ForkedServer:
    """Start a server over stdio; fork it unless Python itself reads a variable of ``environment`` at its start."""
    folder = zygote.folder_of("server", {})
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(folder / "socket"))
    its_input, to_server = os.pipe()
    from_server, its_output = os.pipe()
    variables = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
    arguments = ["-u", str(folder / "server.py")]
    substitute.ask(connection, arguments, variables, (its_input, its_output, standard_error.fileno()))
    os.close(its_input)
    os.close(its_output)
    process_id = substitute.receive(connection)
    stream = PipeStream(from_server, to_server)
    if process_id:
        return ForkedServer(connection, process_id, stream)
    stream.close()
    connection.close()
    return ServerProcess(environment=environment, standard_error=standard_error)


class ForkedServer:
    """A server with the methods of ``ServerProcess``. Its zygote kills it if this process ends first."""

    def __init__(self, connection: socket.socket, process_id: int, stream: ByteStream) -> None:
        self._connection, self.process_id, self.stream = connection, process_id, stream
        self._exit_code: int | None = None

    def wait(self, timeout: float) -> int:
        """Wait until the server has ended, and return its exit code. Raises ``TimeoutError``."""
        if self._exit_code is None:
            self._connection.settimeout(timeout)
            self._exit_code = os.waitstatus_to_exitcode(substitute.receive(self._connection))
            self._connection.close()
        return self._exit_code

    def end(self, grace: float = 5.0) -> None:
        """Close the stream, which asks the server to end; kill it after ``grace`` seconds."""
        self.stream.close()
        try:
            self.wait(grace)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process_id, signal.SIGKILL)
            self.wait(DEADLINE)
