"""Keeps a prompt's state between commands, and asks the user questions.

Runs on the prompt's thread; lives as long as the debugger, across restarts of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dynamo_dap.protocol.wire.types import StoppedEventBody
from dynamo_dap.terminal.tensors import Shown


class Displays:
    """Expressions to show at each stop in one function."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        """Each expression and its last value."""

    def changes(self, evaluate: Callable[[str], str]) -> list[str]:
        """Evaluate all expressions, and return a text for each change since the last time."""
        reported = []
        for expression, before in self.values.items():
            value = self.values[expression] = evaluate(expression)
            if value != before:
                reported.append(f"display {expression}: {value}  [old: {before}]")
        return reported


@dataclass(frozen=True)
class LeftFunction:
    """The function that returned in the last step."""

    stop: StoppedEventBody
    """The stop in its caller, at the end of the step."""
    function: str


@dataclass
class PromptState:
    """The memory of one prompt."""

    read: Callable[[str], str | None] | None = None
    """Shows a prompt and reads a further line of a command; None for commands from a script."""
    is_interactive: bool = False
    """Whether a user answers, not a script."""
    last_line: str = ""
    """What Enter repeats."""
    aliases: dict[str, str] = field(default_factory=dict)
    displays: dict[tuple[str, str], Displays] = field(default_factory=dict)
    """What to show at each stop in a function, by its name and file."""
    next_listed: int | None = None
    """The line at which ``list`` continues."""
    shown_tensor: Shown | None = None
    """The tensor of the last ``show``."""
    left: LeftFunction | None = None
    pending_commands: list[str] = field(default_factory=list)
    """The commands of the last hit breakpoints that have not run yet."""

    def confirms(self, question: str) -> bool:
        """Return whether the user confirms; True without asking if the commands come from a file or a pipe."""
        if not self.is_interactive or self.read is None:
            return True
        return (self.read(f"{question} [y/N] ") or "").strip().lower() in ("y", "yes")
