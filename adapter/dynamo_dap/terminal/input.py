"""Reads commands from the command line or a file, from a prompt with history and completion, or from a pipe.

Runs on the prompt's thread.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory

from dynamo_dap.protocol.access.private_files import state_folder

PROMPT = "(dynamo) "

Complete = Callable[[str], "Iterable[tuple[str, int]]"]
"""Completions for the text before the cursor: what to insert, and how many characters it replaces."""


class LineSource(Protocol):
    """A source of commands, one after the other."""

    echoes: bool
    """Whether to print each command, because the terminal does not show it."""

    def read(self, prompt: str) -> str | None:
        """Show ``prompt`` to the user and return the next line; None at the end.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed.
        """


class GivenLines:
    """Yields given commands, then those of ``following``."""

    def __init__(self, lines: Iterable[str], following: LineSource) -> None:
        self._lines: Iterator[str] = iter(lines)
        self._following = following
        self.echoes = True

    def read(self, prompt: str) -> str | None:
        """Return the next command."""
        for line in self._lines:
            return line
        self.echoes = self._following.echoes
        return self._following.read(prompt)


class PipedLines:
    """Commands from a standard input that is not a terminal."""

    echoes = True

    def read(self, prompt: str) -> str | None:
        """Return the next line."""
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None


class PromptLines:
    """Commands typed at a prompt."""

    echoes = False

    def __init__(self, complete: Complete) -> None:
        self._prompt: PromptSession[str] = PromptSession(
            history=FileHistory(str(_history_file())), completer=_Completer(complete), complete_while_typing=False
        )

    def read(self, prompt: str) -> str | None:
        """Return the next line; None on Ctrl-D."""
        try:
            return self._prompt.prompt(prompt)
        except EOFError:
            return None


def standard_lines(complete: Complete) -> LineSource:
    """Return a prompt if standard input is a terminal, else a reader of its lines."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return PipedLines()
    # A process that a shell starts in the background ignores Ctrl-C, but here Ctrl-C must pause the program.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return PromptLines(complete)


class _Completer(Completer):
    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        for text, replaced in self._complete(document.text_before_cursor):
            yield Completion(text, start_position=-replaced)


def _history_file() -> Path:
    """Return a file in the XDG state directory."""
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder / "history"
