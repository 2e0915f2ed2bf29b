"""Holds the prompt's commands, which the command modules register.

The table is filled while those modules are imported, and only read afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from dynamo_dap.terminal.breakpoints import UsageError
from dynamo_dap.terminal.debugger import Debugger

Run = Callable[[Debugger, str], None]
Complete = Callable[[Debugger, str], Iterable[tuple[str, int]]]
"""Returns completions of an argument: what to insert, and how many characters before the cursor it replaces."""

_NAMES = """
a alias args b break bt c cl clear commands condition cont continue d debug disable display down enable exceptions exit
h help ignore interact j jump l list ll longlist n next p pp q quit r restart return retval run rv s source step tbreak
u unalias undisplay unt until up w whatis where
"""
PDB_NAMES = frozenset(_NAMES.split())
"""Names of pdb's commands. As in pdb, they take precedence over variables of the same name."""


class Group(Enum):
    """A heading of ``help``."""

    RUN = "Run"
    BREAK = "Break"
    LOOK = "Look around"
    VALUES = "Values"
    COMPILED = "Compiled code"
    PAST = "Back, what-if"
    SESSION = "Session"


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    names: tuple[str, ...]
    """The full name first, then short forms."""
    group: Group
    argument: str
    meaning: str
    example: str
    run: Run
    complete: Complete | None
    repeats: bool
    """Whether Enter repeats it."""


commands: list[Command] = []


def command(
    names: str,
    group: Group,
    argument: str = "",
    *,
    example: str = "",
    complete: Complete | None = None,
    repeats: bool = True,
) -> Callable[[Run], Run]:
    """Register the decorated function; ``help`` shows its docstring and ``example``."""

    def register(run: Run) -> Run:
        meaning = " ".join((run.__doc__ or "").split())
        all_names = tuple(names.split())
        commands.append(Command(all_names, group, argument, meaning, example or all_names[0], run, complete, repeats))
        return run

    return register


def find(name: str) -> Command | None:
    """Return the command with this full name or short form."""
    return next((one for one in commands if name in one.names), None)


def number(text: str) -> int:
    """Parse a whole number from 0 on.

    Raises:
        UsageError: ``text`` is something else.
    """
    if not text.isdigit():
        raise UsageError(f"{text!r} is not a number: 'p EXPRESSION' evaluates an expression")
    return int(text)


def count(text: str) -> int:
    """Parse a repeat count; an empty text means 1.

    Raises:
        UsageError: ``text`` is not a whole number from 1 on.
    """
    read = number(text or "1")
    if not read:
        raise UsageError("give a number of steps, at least 1")
    return read
