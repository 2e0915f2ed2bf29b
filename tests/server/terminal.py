"""A terminal as an IDE opens one: a pseudo-terminal with a session of its own, in which one command runs."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from typing import Any

from dynamo_dap.protocol.wire.messages import Request, to_builtins
from tests.client.timeline import DEADLINE


class Terminal:
    """Serves ``runInTerminal`` and shows what is in the terminal."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.program: subprocess.Popen[bytes] | None = None
        self._master = -1
        self._text = b""

    def serve(self, request: Request) -> object:
        """Open the terminal and run the command in it."""
        arguments = to_builtins(request.arguments)
        self.requests.append(arguments)
        self._master, slave = pty.openpty()
        # As a login does: a new session whose controlling terminal this is.
        login = (
            "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
            "os.execvp(sys.argv[1], sys.argv[1:])"
        )
        self.program = subprocess.Popen(
            [arguments["args"][0], "-c", login, *arguments["args"]],
            cwd=arguments["cwd"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        return {"shellProcessId": self.program.pid}

    def type(self, text: bytes) -> None:
        """Type into the terminal; byte 3 is Ctrl-C, byte 26 Ctrl-Z."""
        os.write(self._master, text)

    def wait_for(self, text: str, deadline: float = DEADLINE) -> str:
        """Wait until ``text`` is shown and return all that is."""
        until = time.monotonic() + deadline
        while text.encode() not in self._text:
            left = until - time.monotonic()
            assert left > 0, f"no {text!r} in the terminal, only {self._text!r}"
            if select.select([self._master], [], [], left)[0]:
                try:
                    self._text += os.read(self._master, 65536)
                except OSError:
                    raise AssertionError(f"no {text!r} in the terminal before it ended: {self._text!r}") from None
        return self._text.decode()

    def wait(self, deadline: float = DEADLINE) -> int:
        """Wait until the command has ended and return its exit code."""
        assert self.program is not None
        return self.program.wait(deadline)

    def close(self) -> None:
        """Close the terminal, as a user closes its window."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1
