"""A user's desk with an editor on it: a terminal, a home of its own, and a program to debug."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client import Fixture

FIXTURE = Fixture("eager/compiled_in_loop")
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "editors.md"
DRIVERS = Path(__file__).parent
SECONDS = 90
"""What a driver waits for one thing at most."""


def readme_block(language: str, *, holds: str) -> str:
    """The block of the guide in ``language`` that holds a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (block,) = [one for one in blocks if holds in one]
    return block


def editor(name: str) -> str:
    """The editor's executable; the test is left out when there is none."""
    if "EDITOR_PLUGINS" not in os.environ:
        pytest.skip("make test-editors runs it")
    variable = f"EDITOR_{name.upper()}"
    found = shutil.which(os.environ.get(variable) or name)
    if found is None:
        pytest.skip(f"{name} is not installed (or give its path as {variable})")
    return found


def plugin(name: str) -> Path:
    """The folder of a plugin; the test is left out when there is none."""
    plugins = os.environ.get("EDITOR_PLUGINS", "")
    folder = Path(plugins, name)
    if not plugins or not folder.is_dir():
        pytest.skip(f"{name} is not there: make test-editors PLUGINS=FOLDER, where FOLDER/{name} is")
    return folder.resolve()


class Screen:
    """A terminal with an editor in it."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        """Start ``command``; what it shows is read by ``wait_for`` and ``wait_for_end``."""
        pyte = pytest.importorskip("pyte")
        self._screen = pyte.Screen(160, 50)
        # Colours are not checked, and pyte does not know all the ways to ask for them.
        self._screen.select_graphic_rendition = lambda *attributes, private=False: None
        self._stream = pyte.ByteStream(self._screen)
        self._master, slave = pty.openpty()
        termios.__dict__["tcsetwinsize"](slave, (50, 160))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LOGIN, *command],
            cwd=folder,
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *problem: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    @property
    def text(self) -> str:
        """What it shows."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until it shows something."""
        self._read_until(lambda: re.search(pattern, self.text, re.MULTILINE) is not None, f"{pattern!r} is not shown")
        found = re.search(pattern, self.text, re.MULTILINE)
        assert found is not None
        return found

    def wait_until_gone(self, text: str) -> None:
        """Wait until it has stopped showing something."""
        self._read_until(lambda: text not in self.text, f"{text!r} is still shown")

    def wait_for_end(self) -> None:
        """Wait until the editor has ended."""
        self._read_until(lambda: self._process.poll() is not None, "the editor does not end", 3 * SECONDS)

    def _read_until(self, is_so: Callable[[], bool], problem: str, seconds: float = SECONDS) -> None:
        until = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < until, f"{problem}:\n{self.text}"
            if select.select([self._master], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):  # it has ended
                    self._stream.feed(os.read(self._master, 65536))


_LOGIN = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
"""As a login does: a new session, whose terminal this is."""


class Desk:
    """A user's place: a home of its own, a program to debug, and ``python3`` with the adapter on the PATH."""

    def __init__(self, folder: Path, python: str | Path = sys.executable) -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        self.report = folder / "report"
        tools = folder / "tools"
        for made in (self.home, self.work, tools):
            made.mkdir()
        # Not the whole environment's folder: editors have Pythons of their own, which would be confused.
        (tools / "python3").write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
        (tools / "python3").chmod(0o755)
        self.program = self.work / "program.py"
        self.program.write_text(FIXTURE.path.read_text(encoding="utf-8"), encoding="utf-8")
        self.environment = {
            **{
                name: text
                for name, text in os.environ.items()
                if not name.startswith(("XDG_", "VIRTUAL_ENV", "EDITOR"))
            },
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "TERM": "xterm-256color",
            "DYNAMO_DAP_LOG": str(folder / "server.log"),
            "PROGRAM": str(self.program),
            "LINE": str(FIXTURE.line("fn2")),
            "REPORT": str(self.report),
            "SECONDS": str(SECONDS),
        }

    def configure(self, language: str, *, holds: str, change: Callable[[str], str] = str) -> None:
        """Hand the guide's lines to a driver, as a user changes them."""
        configuration = self.home / "configuration"
        configuration.write_text(change(readme_block(language, holds=holds)))
        self.environment["CONFIGURATION"] = str(configuration)

    def run(self, *command: str | Path) -> None:
        """Run an editor until it ends."""
        with Screen([str(part) for part in command], self.work, self.environment) as screen:
            screen.wait_for_end()
            self.screen_text = screen.text

    def check(self, cached_calls: int = 0) -> None:
        """The report is that of a session: stopped in the trace with its values, stepped, ended.

        A driver may also report the stops in cached calls, from the second call on.
        """
        reported = self.report.read_text(encoding="utf-8") if self.report.exists() else ""
        first, second = FIXTURE.line("fn2"), FIXTURE.line("fn3")
        again = "".join(
            rf"again {first} fn Tensor f32\[2\] cpu = \[2\.0, 2\.0\] Call {call} of fn \[0/0\]\n"
            for call in range(2, 2 + cached_calls)
        )
        expected = rf"stopped {first} fn Tensor f32\[2\] cpu.*\nstepped {second}\n{again}ended\n"
        assert re.fullmatch(expected, reported), f"{reported}\n{self.screen_text}"


def run_neovim(desk: Desk, number: int, change: Callable[[str], str] = str) -> None:
    """Run a configuration of the guide, the lines of which ``change`` makes a user's own."""
    nvim, nvim_dap = editor("nvim"), plugin("nvim-dap")
    desk.configure("lua", holds="dap.adapters.dynamo", change=change)
    desk.environment["NUMBER"] = str(number)
    desk.run(nvim, "--headless", "-u", "NONE", "--cmd", f"set runtimepath^={nvim_dap}", "-l", DRIVERS / "neovim.lua")
