"""A debugged program that is the server's own child, its output captured (console ``internalConsole``).

Used on the loop; one thread per child waits for its end and posts it. Lives from the start of the program to the end of
the session, or to the restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from dynamo_dap.protocol.contract import ErrorId
from dynamo_dap.server.errors import StartRefused
from dynamo_dap.server.launching.output import OutputPump

_log = logging.getLogger(__name__)

_DISCARD = Path(__file__).with_name("discard_output.py")


class ChildProcess:
    """See ``OwnedProcess``. The child leads a session and process group of its own, with nothing to read on stdin.

    It stays a zombie until ``close``, where the system allows that: as long as it is one, no other process group can
    have its id, and a kill cannot hit a stranger.
    """

    def __init__(
        self, command: Sequence[str], cwd: Path, environment: Mapping[str, str], on_output: Callable[[str, str], None]
    ) -> None:
        """Start ``command``. ``on_output`` gets pieces of text with their category, ``stdout`` or ``stderr``.

        Raises:
            StartRefused: the system could not start it.
        """
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int | None] = self._loop.create_future()
        try:
            self._child = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            text = f"cannot start {command[0]}: {error.strerror or error}"
            raise StartRefused(ErrorId.CANNOT_START, text) from None
        _log.info("started process %d: %s", self._child.pid, command)
        self._is_let_go = False
        self._is_closed = False
        self._outputs = OutputPump(_take_descriptor(self._child.stdout), lambda text: on_output(text, "stdout"))
        self._errors = OutputPump(_take_descriptor(self._child.stderr), lambda text: on_output(text, "stderr"))
        name = f"dynamo-dap end of process {self._child.pid}"
        threading.Thread(target=self._wait_for_end, name=name, daemon=True).start()

    @property
    def recent_errors(self) -> str:
        """The last lines on stderr."""
        return self._errors.recent

    def flush_output(self, *, whole_lines: bool) -> None:
        """Pass on what is in the pipes."""
        self._outputs.flush(whole_lines=whole_lines)
        self._errors.flush(whole_lines=whole_lines)

    def terminate(self) -> None:
        """SIGTERM to the group."""
        self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the group."""
        self._signal_group(signal.SIGKILL)

    def let_go(self) -> None:
        """Give the pipes to a process that reads them to nowhere: without a reader, the program would get SIGPIPE."""
        if self._is_let_go or self.exited.done():
            return
        self._is_let_go = True
        pipes = [self._outputs, self._errors]
        for pump in pipes:
            pump.stop()
            os.set_blocking(pump.descriptor, True)
        descriptors = [pump.descriptor for pump in pipes]
        subprocess.Popen(
            [sys.executable, "-I", "-S", str(_DISCARD), *map(str, descriptors)],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        """Kill what is left of the group, unless let go, and close the pipes."""
        if self._is_closed:
            return
        if not self._is_let_go:
            self.kill()
        self._is_closed = True
        self._outputs.close()
        self._errors.close()
        if self.exited.done():
            self._child.wait()

    def _signal_group(self, number: signal.Signals) -> None:
        if not self._is_closed:
            _log.info("%s to process group %d", number.name, self._child.pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, number)

    def _wait_for_end(self) -> None:
        """Wait without reaping where the system can do that (on the child's own thread)."""
        if hasattr(os, "waitid"):
            result = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
            assert result is not None
            exit_code = result.si_status if result.si_code == os.CLD_EXITED else -result.si_status
        else:
            exit_code = self._child.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server is ending
            self._loop.call_soon_threadsafe(self._ended, exit_code)

    def _ended(self, exit_code: int) -> None:
        _log.info("process %d ended with %d", self._child.pid, exit_code)
        if self._is_closed:
            self._child.wait()
        elif not self._is_let_go:
            self._outputs.drain()
            self._errors.drain()
        if not self.exited.done():
            self.exited.set_result(exit_code)


def _take_descriptor(pipe: IO[bytes] | None) -> int:
    """Return a descriptor of our own for a pipe of ``Popen``, and close that."""
    assert pipe is not None
    descriptor = os.dup(pipe.fileno())
    pipe.close()
    return descriptor
