"""A dynamo-dap server as a child process that speaks DAP over its standard input and output.

Started and ended by whichever thread owns the session; lives as long as the session.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

from dynamo_dap.protocol.streams import PipeStream

DEFAULT_COMMAND = (sys.executable, "-m", "dynamo_dap")


class ServerProcess:
    """The child process and the byte stream to it."""

    def __init__(
        self,
        command: Sequence[str] = DEFAULT_COMMAND,
        *,
        environment: Mapping[str, str] | None = None,
        standard_error: IO[bytes] | int | None = None,
    ) -> None:
        """Start ``command``; ``standard_error`` is as for ``subprocess``, inherited when None."""
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=standard_error,
            env=dict(os.environ if environment is None else environment),
            # Ctrl-C in a terminal is for the client, which asks the server to pause the program.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # The stream owns its descriptors, so that nothing closes them twice.
        self.stream = PipeStream(os.dup(self._process.stdout.fileno()), os.dup(self._process.stdin.fileno()))
        self._process.stdout.close()
        self._process.stdin.close()

    @property
    def process_id(self) -> int:
        """The server's process id."""
        return self._process.pid

    def wait(self, timeout: float) -> int:
        """Wait until the server has ended and return its exit code.

        Raises:
            TimeoutError: it was still running after ``timeout`` seconds.
        """
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the server (process {self.process_id}) did not end within {timeout:g} s") from None

    def end(self, grace: float = 5.0) -> None:
        """Close the stream, which asks the server to end, and kill it when it has not within ``grace`` seconds."""
        self.stream.close()
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
