"""Manages the debugged program as a process: the server's interface to it, and a child process of the server.

The child's output is captured (console ``internalConsole``). Runs on the event loop; one thread per child waits for its
end and posts it. Lives from the start of the program to the end of the session, or to the restart.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from dynamo_dap.protocol.requests.contract import ErrorId
from dynamo_dap.protocol.texts import why_refused
from dynamo_dap.server.client.errors import StartRefused


class OwnedProcess(Protocol):
    """A process that belongs to the session. It ends with the session unless it is detached."""

    exited: asyncio.Future[int | None]
    """Its exit code once it has ended and its output was passed on: ``-N`` for death by signal N, None if unknown."""

    @property
    def recent_errors(self) -> str:
        """The last lines of its stderr; empty if they went elsewhere."""

    def flush_output(self, *, whole_lines: bool) -> None:
        """Pass on its output so far."""

    def terminate(self) -> None:
        """Ask it to end: SIGTERM to its whole group."""

    def kill(self) -> None:
        """End it and its whole group at once."""

    def detach(self) -> None:
        """Detach it: it outlives the session, and its output is discarded."""

    def close(self) -> None:
        """Kill the rest of the group, unless detached, and release everything. Called at the end of the session."""


def death_by_signal(exit_code: int) -> str | None:
    """Return ``SIGSEGV (signal 11)`` for exit code -11; None if no signal ended it."""
    if exit_code >= 0:
        return None
    try:
        return f"{signal.Signals(-exit_code).name} (signal {-exit_code})"
    except ValueError:
        return f"signal {-exit_code}"


_CHUNK_BYTES = 64 * 1024
_DRAIN_CHUNKS = 32
"""The most chunks to read at the end: more than a pipe holds, but finite if a descendant never stops writing."""
_REMEMBERED_CHARACTERS = 4000


_GATHER_SECONDS = 0.003
"""Seconds to gather output: an unbuffered program writes small pieces, such as each ``^`` of a traceback."""
_LINE_SECONDS = 0.1
"""Seconds that an incomplete line waits for its end, so that no text of the other pipe comes between its pieces."""


class OutputPump:
    """Reads one pipe and passes on its text, decoded as UTF-8 across chunks."""

    def __init__(self, descriptor: int, on_text: Callable[[str], None]) -> None:
        """Take ``descriptor`` over and begin to read it on the running loop."""
        self.descriptor = descriptor
        self.recent = ""
        """The last characters read."""
        self._on_text = on_text
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._beginning = ""
        """An incomplete line, which is passed on with the next data."""
        self._loop = asyncio.get_running_loop()
        self._is_reading = True
        self._gathering: asyncio.TimerHandle | None = None
        self._waiting: asyncio.TimerHandle | None = None
        """Passes the incomplete line on."""
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._gather)

    def flush(self, *, whole_lines: bool = False) -> None:
        """Pass on the output so far, so that it precedes later messages.

        ``whole_lines``: the next message is a line itself, so an incomplete line waits for its end.
        """
        if self._is_reading:
            self._read_chunk(whole_lines=whole_lines)
            if not whole_lines:
                self._hand_out("")

    def drain(self) -> None:
        """Pass on everything in the pipe and stop reading.

        Call it after the process's end: the pipe then has its whole output, even if another process holds the pipe.
        """
        for _ in range(_DRAIN_CHUNKS):
            if not self._is_reading or not self._read_chunk():
                break
        self.stop()
        self._take(self._decoder.decode(b"", final=True))
        self._hand_out("")

    def stop(self) -> None:
        """Stop reading; the pipe keeps its contents."""
        if self._is_reading:
            self._hand_out("")
            self._is_reading = False
            self._loop.remove_reader(self.descriptor)
            if self._gathering is not None:
                self._gathering.cancel()
            if self._waiting is not None:
                self._waiting.cancel()

    def close(self) -> None:
        """Close the pipe."""
        self.stop()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _gather(self) -> None:
        self._loop.remove_reader(self.descriptor)
        self._gathering = self._loop.call_later(_GATHER_SECONDS, self._read_gathered)

    def _read_gathered(self) -> None:
        self._gathering = None
        if self._is_reading:
            self._read_chunk(whole_lines=True)
        if self._is_reading:
            if self._beginning and self._waiting is None:
                self._waiting = self._loop.call_later(_LINE_SECONDS, self._pass_on_beginning)
            self._loop.add_reader(self.descriptor, self._gather)

    def _pass_on_beginning(self) -> None:
        self._waiting = None
        self._hand_out("")

    def _read_chunk(self, *, whole_lines: bool = False) -> bool:
        """Read once. Return False if there is nothing now, or ever again."""
        try:
            data = os.read(self.descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.stop()
            return False
        self._take(self._decoder.decode(data), whole_lines=whole_lines)
        return True

    def _take(self, text: str, *, whole_lines: bool = False) -> None:
        self.recent = (self.recent + text)[-_REMEMBERED_CHARACTERS:]
        lines, newline, beginning = text.rpartition("\n") if whole_lines else (text, "", "")
        if whole_lines and not newline:
            self._beginning += beginning
            return
        self._hand_out(lines + newline)
        self._beginning = beginning

    def _hand_out(self, text: str) -> None:
        text, self._beginning = self._beginning + text, ""
        if text:
            self._on_text(text)


_log = logging.getLogger(__name__)

_DISCARD = Path(__file__).with_name("discard_output.py")


class ChildProcess:
    """Runs the program as a child of the server (``OwnedProcess``).

    The child leads its own session and process group, and its standard input is a file or empty. Where the system
    allows it, an ended child stays a zombie until ``close``. Until then no other process group can get its id, so that
    a kill hits no other program.
    """

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        on_output: Callable[[str, str], None],
        *,
        input_file: Path | None = None,
    ) -> None:
        """Start ``command``. ``on_output`` gets pieces of text with their category, ``stdout`` or ``stderr``.

        Raises:
            StartRefused: the system could not start it.
        """
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int | None] = self._loop.create_future()
        with _opened(input_file) as given:
            try:
                self._child = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=environment,
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,
                )
            except OSError as error:
                raise _not_started(command, error) from None
        _log.info("started process %d: %s", self._child.pid, command)
        self._is_detached = False
        self._is_closed = False
        try:
            output, errors = _take_descriptor(self._child.stdout), _take_descriptor(self._child.stderr)
        except OSError as error:
            self._child.kill()
            self._child.wait()
            raise _not_started(command, error) from None
        self._outputs = OutputPump(output, lambda text: on_output(text, "stdout"))
        self._errors = OutputPump(errors, lambda text: on_output(text, "stderr"))
        name = f"dynamo-dap end of process {self._child.pid}"
        threading.Thread(target=self._wait_for_end, name=name, daemon=True).start()

    @property
    def recent_errors(self) -> str:
        """The last lines on stderr."""
        return self._errors.recent

    def flush_output(self, *, whole_lines: bool) -> None:
        """Pass on the pipes' contents."""
        self._outputs.flush(whole_lines=whole_lines)
        self._errors.flush(whole_lines=whole_lines)

    def terminate(self) -> None:
        """Send SIGTERM to the group."""
        self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the group."""
        self._signal_group(signal.SIGKILL)

    def detach(self) -> None:
        """Give the pipes to a process that discards the output: without a reader, the program would get SIGPIPE."""
        if self._is_detached or self.exited.done():
            return
        self._is_detached = True
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
        """Kill the rest of the group, unless detached, and close the pipes."""
        if self._is_closed:
            return
        if not self._is_detached:
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
        """Wait without reaping, where the system allows that (on the child's own thread)."""
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
        elif not self._is_detached:
            self._outputs.drain()
            self._errors.drain()
        if not self.exited.done():
            self.exited.set_result(exit_code)


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[IO[bytes] | int]:
    """Open the input of a program. It must be a file: opening a pipe would wait for a writer."""
    if path is None:
        yield subprocess.DEVNULL
        return
    try:
        if not path.is_file():
            raise StartRefused(ErrorId.INVALID_OPTION, f'"inputFile": {path} does not exist')
        file = path.open("rb")
    except OSError as error:
        raise StartRefused(ErrorId.INVALID_OPTION, f'"inputFile": cannot read {path}: {error.strerror}') from None
    with file:
        yield file


def _not_started(command: Sequence[str], error: OSError) -> StartRefused:
    error.filename = None  # it is in the text
    return StartRefused(ErrorId.CANNOT_START, f"cannot start {command[0]}: {why_refused(error)}")


def _take_descriptor(pipe: IO[bytes] | None) -> int:
    """Return our own descriptor for a pipe of ``Popen``, and close the original."""
    assert pipe is not None
    descriptor = os.dup(pipe.fileno())
    pipe.close()
    return descriptor
