"""The table of commands, and running one by what was typed.

Commands run on the prompt's thread, print through the view, and raise ``UsageError`` for wrong input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dynamo_dap.terminal.debugger import Debugger
from dynamo_dap.terminal.errors import UsageError

Run = Callable[[Debugger, str], None]
Complete = Callable[[Debugger, str], Iterable[tuple[str, int]]]
"""Completions of an argument: what to insert, and how many characters before the cursor it replaces."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    names: tuple[str, ...]
    """The full name first, then short forms."""
    argument: str
    meaning: str
    run: Run
    complete: Complete | None


commands: list[Command] = []


def command(names: str, argument: str = "", complete: Complete | None = None) -> Callable[[Run], Run]:
    """Register the decorated function; the first line of its docstring is what ``help`` says."""

    def register(run: Run) -> Run:
        meaning = (run.__doc__ or "").partition("\n")[0].rstrip(".")
        commands.append(Command(tuple(names.split()), argument, meaning, run, complete))
        return run

    return register


def execute(debugger: Debugger, line: str) -> None:
    """Run one command line; an empty one does nothing, one that begins with ``!`` is evaluated.

    Raises:
        UsageError: there is no such command, or it makes no sense now.
    """
    line = line.strip()
    if line.startswith("!"):
        line = f"print {line[1:]}"
    if line:
        name, _, argument = line.partition(" ")
        find(name).run(debugger, argument.strip())


def find(name: str) -> Command:
    """The command called ``name``, or the only one that begins so.

    Raises:
        UsageError: there is none, or there are several.
    """
    exact = [one for one in commands if name in one.names]
    begun = exact or [one for one in commands if one.names[0].startswith(name)]
    if not begun:
        raise UsageError(f"there is no command {name!r}: 'help' lists them, 'print {name}' evaluates an expression")
    if len(begun) > 1:
        raise UsageError(f"{name!r} may be {' or '.join(one.names[0] for one in begun)}")
    return begun[0]
