"""Runs our commands, each as a process under a guard. A client may wait for a command's end in several calls.

Runs on the server's event loop; a run lives until its end is reported, or the server ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shlex
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult

from dynamo_dap.assistants.answers import answer, last_of
from dynamo_dap.assistants.guard import guarded
from dynamo_dap.protocol.texts import marked

_READ = 8 * 1024 * 1024
"""The most bytes that are read of a run's output, from its end."""
_END_SECONDS = 6.0
_TAIL = 2000
INPUT = "input"
"""The file in a run's folder that the program reads."""


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    status: int
    output: str
    """Our command's output."""
    errors: str
    """Other output; for most commands, the program's."""
    folder: Path
    """The folder for files, which is removed after the answer."""


Finish = Callable[[Ended], CallToolResult]


class Runs:
    """The runs of one client."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._runs: dict[int, _Run] = {}

    async def ask(
        self,
        words: Sequence[str],
        cwd: Path,
        finish: Finish,
        seconds: float,
        own_folder: str | None = None,
        *,
        given: str | None = None,
    ) -> CallToolResult:
        """Run ``dynamo-dap`` with these words; return the answer of ``finish``, or that the command still runs.

        In the words, a new folder replaces ``own_folder``; it is removed after the answer. The program reads ``given``.
        """
        run = _Run(next(self._numbers), list(words), cwd, finish, own_folder, given)
        self._runs[run.number] = run
        await run.begin()
        return await self._reported(run, seconds)

    async def wait(self, number: int, seconds: float) -> CallToolResult:
        """Wait further for a run.

        Raises:
            ToolError: no run has that number.
        """
        return await self._reported(self._known(number), seconds)

    async def end(self, number: int) -> str:
        """End a run with everything that it started; return what it was."""
        run = self._known(number)
        del self._runs[number]
        await run.end()
        return run.text

    @property
    def numbers(self) -> list[int]:
        """The numbers of the runs whose end was not reported yet."""
        return list(self._runs)

    async def close(self) -> None:
        """End all runs: the client is gone."""
        with anyio.CancelScope(shield=True):
            await asyncio.gather(*(run.end() for run in self._runs.values()))
        self._runs.clear()

    def _known(self, number: int) -> _Run:
        if number not in self._runs:
            raise ToolError(f"unknown run {number}; running: {', '.join(map(str, self._runs)) or 'nothing'}")
        return self._runs[number]

    async def _reported(self, run: _Run, seconds: float) -> CallToolResult:
        try:
            ended = await run.wait(seconds)
        except asyncio.CancelledError:
            # The client cancelled the call that waits for the run.
            self._runs.pop(run.number, None)
            with anyio.CancelScope(shield=True):
                await run.end()
            raise
        if ended is None:
            text = f"{run.text} is still running after {run.seconds():.0f} s."
            text += f" Ask again with the tool wait, run={run.number}; the tool end ends it."
            reported = marked(last_of(run.printed(), _TAIL))
            data = {"stillRunning": True, "run": run.number}
            return answer(f"{text}\nPrinted so far:\n{reported}" if reported else text, data)
        self._runs.pop(run.number, None)
        try:
            return run.finish(ended)
        finally:
            run.forget()


class _Run:
    def __init__(
        self, number: int, words: list[str], cwd: Path, finish: Finish, own_folder: str | None, given: str | None
    ) -> None:
        self.number = number
        self.finish = finish
        self.text = shlex.join(["dynamo-dap", *words])
        self._cwd = cwd
        self._kept = tempfile.TemporaryDirectory(prefix="dynamo-dap-")
        self._folder = Path(self._kept.name)
        self._given = None if given is None else self._folder / INPUT
        if self._given is not None and given is not None:
            self._given.write_text(given, encoding="utf-8")
        self._words = [word.replace(own_folder, str(self._folder)) for word in words] if own_folder else words
        self._process: asyncio.subprocess.Process | None = None
        self._began = asyncio.get_running_loop().time()

    async def begin(self) -> None:
        environment = {
            name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "CLICOLOR_FORCE")
        }
        with (self._folder / "output").open("wb") as output, (self._folder / "errors").open("wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *guarded(self._words, self._given),
                cwd=self._cwd,
                env={**environment, "PYTHONUNBUFFERED": "1"},
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=errors,
            )

    async def wait(self, seconds: float) -> Ended | None:
        """Return how the run ended; None if it still runs after ``seconds``."""
        assert self._process is not None
        try:
            status = await asyncio.wait_for(self._process.wait(), seconds)
        except asyncio.TimeoutError:
            return None
        return Ended(status, self._read("output"), self._read("errors"), self._folder)

    def printed(self) -> str:
        """Return the output so far."""
        return self._read("errors") + self._read("output")

    def seconds(self) -> float:
        """Return how long the command has been running."""
        return asyncio.get_running_loop().time() - self._began

    async def end(self) -> None:
        """End the run: the guard ends the command when its stdin is closed."""
        if self._process is not None and self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                await asyncio.wait_for(self._process.wait(), _END_SECONDS)
            except asyncio.TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
        self.forget()

    def forget(self) -> None:
        """Remove the run's files."""
        self._kept.cleanup()

    def _read(self, name: str) -> str:
        path = self._folder / name
        if not path.exists():
            return ""
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - _READ, 0))
            return file.read().decode(errors="replace")
