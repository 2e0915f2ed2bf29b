"""Runs the program in the terminal of the prompt, so that it can read its input: what is typed, or a file.

The client's reader thread starts it. It leads a session of its own: Ctrl-C is for the prompt, which pauses the program.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from dynamo_dap.protocol.messages import Request, decode
from dynamo_dap.protocol.types import RunInTerminalRequestArguments, RunInTerminalResponseBody


class OwnTerminal:
    """Serves the server's ``runInTerminal``; one per prompt."""

    def __init__(self, given: Path | None) -> None:
        """Feed the file ``given`` to the program; None for what is typed while it runs."""
        self._given = given
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(self, request: Request) -> RunInTerminalResponseBody:
        """Start what the server asks for.

        Raises:
            OSError: the program or its input cannot be opened.
        """
        asked = decode(request.arguments, RunInTerminalRequestArguments, "arguments of 'runInTerminal'")
        environment = dict(os.environ)
        for name, value in (asked.env or {}).items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value
        given = None if self._given is None else self._given.open("rb")
        try:
            process = subprocess.Popen(asked.args, cwd=asked.cwd, env=environment, stdin=given, start_new_session=True)
        finally:
            if given is not None:
                given.close()
        self._processes.append(process)
        return RunInTerminalResponseBody(process.pid)

    def end(self, seconds: float) -> None:
        """Wait for the supervisors, which end with the session."""
        while self._processes:
            process = self._processes.pop()
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
