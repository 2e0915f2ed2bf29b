"""Runs the program in the prompt's terminal, so that it can read typed input.

The client's reader thread starts the program as the leader of its own process session: Ctrl-C reaches only the prompt,
which then pauses the program.
"""

from __future__ import annotations

import os
import subprocess

from dynamo_dap.protocol.wire.messages import Request, decode
from dynamo_dap.protocol.wire.types import RunInTerminalRequestArguments, RunInTerminalResponseBody


class OwnTerminal:
    """Serves the server's ``runInTerminal``; one for each prompt."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(self, request: Request) -> RunInTerminalResponseBody:
        """Start the command that the server requests.

        Raises:
            OSError: the program cannot be started.
        """
        asked = decode(request.arguments, RunInTerminalRequestArguments, "arguments of 'runInTerminal'")
        environment = dict(os.environ)
        for name, value in (asked.env or {}).items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value
        process = subprocess.Popen(asked.args, cwd=asked.cwd, env=environment, start_new_session=True)
        self._processes.append(process)
        return RunInTerminalResponseBody(process.pid)

    def end(self, seconds: float) -> None:
        """Wait for the started supervisors, which end with the session; kill those that have not ended in time."""
        while self._processes:
            process = self._processes.pop()
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
