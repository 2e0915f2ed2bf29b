"""A program that no debugger started, and its output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.client import processes, zygote
from tests.client.fixtures import Fixture
from tests.client.session import TRACEBACK
from tests.client.timeline import DEADLINE

_COMPLAINT = (
    "Exception ignored in: <function _DeleteDummyThreadOnDel",
    TRACEBACK,
    "  File ",
    "TypeError: 'NoneType' object",
)
"""Printed by Python 3.13.0 to 3.13.2 at their end, because of debugpy's thread objects (CPython issue 130522)."""
_AGENTS_LOG = "torch/distributed/elastic/agent/"
"""torchrun logs a traceback, but succeeds, if the torchrun of another node left their last barrier before."""


class FreeProgram:
    """A running program. One that imports torch is forked (``zygote``); then ``process`` is its substitute."""

    def __init__(
        self,
        path: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        python: Sequence[str] | None = None,
        launcher: Sequence[str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Start the program, in ``folder``, with ``python`` if another command must start Python.

        ``launcher`` is a command that runs the program; it gets the program and its arguments.
        """
        self._mark = uuid.uuid4().hex
        if python is None:
            python = zygote.python() if Fixture(path).imports_torch else [sys.executable]
        self.process = subprocess.Popen(
            [*(launcher if launcher is not None else [*python, "-u"]), str(path), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**(os.environ if environment is None else environment), processes.MARK: self._mark},
            start_new_session=True,
            cwd=folder,
        )
        self._lines: list[str] = []
        self._arrived = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def lines(self) -> list[str]:
        """The lines printed so far, without those of Python's own defect."""
        lines = list(self._lines)
        begin = len(lines) - len(_COMPLAINT)
        if begin >= 0 and all(line.startswith(text) for line, text in zip(lines[begin:], _COMPLAINT, strict=True)):
            del lines[begin:]
        return lines

    @property
    def process_id(self) -> int:
        """The id of the process that runs the program."""
        found = {one.pid for one in processes.marked_with(self._mark)}
        return next(iter(found - {self.process.pid}), self.process.pid)

    def wait_for_line(self, beginning: str, deadline: float = DEADLINE) -> str:
        """Wait until the program has printed a line with this beginning."""

        def found() -> list[str]:
            return [line for line in self.lines if line.startswith(beginning)]

        with self._arrived:
            assert self._arrived.wait_for(found, deadline), f"no line {beginning!r}, only {self.lines}"
            return found()[0]

    def address(self) -> tuple[str, int]:
        """The address at which the program listens, as it prints it."""
        match = re.fullmatch(r"listening on (.*):(\d+)", self.wait_for_line("listening on"))
        assert match is not None
        return match[1], int(match[2])

    def end(self) -> None:
        """Kill the program; it must not have failed before."""
        self.process.kill()
        self.process.wait()
        failed = [line for line in self.lines if TRACEBACK in line and _AGENTS_LOG not in line]
        assert not failed, "\n".join(self.lines)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._arrived:
                self._lines.append(line.rstrip("\n"))
                self._arrived.notify_all()
