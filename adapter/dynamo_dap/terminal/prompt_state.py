"""The state of a prompt between two commands, and questions to the user.

Used on the prompt's thread; lives as long as the debugger, over restarts of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dynamo_dap.terminal.tensors import Shown


class Displays:
    """Expressions to show at each stop in one function."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        """Each expression and its last value."""

    def changes(self, evaluate: Callable[[str], str]) -> list[str]:
        """Evaluate all, and print the changes since the last time."""
        reported = []
        for expression, before in self.values.items():
            value = self.values[expression] = evaluate(expression)
            if value != before:
                reported.append(f"display {expression}: {value}  [old: {before}]")
        return reported


@dataclass
class PromptState:
    """The memory of one prompt."""

    read: Callable[[str], str | None] | None = None
    """Reads a further line of a command after showing a prompt; None where nobody types."""
    is_interactive: bool = False
    """Whether a person answers, and not a script."""
    last_line: str = ""
    """What Enter repeats."""
    aliases: dict[str, str] = field(default_factory=dict)
    displays: dict[tuple[str, str], Displays] = field(default_factory=dict)
    """What to show at each stop in a function, by its name and file."""
    next_listed: int | None = None
    """The line with which ``list`` goes on."""
    shown_tensor: Shown | None = None
    """The tensor of the last ``show``."""
    pending_commands: list[str] = field(default_factory=list)
    """Commands of the breakpoints that were hit last."""

    def confirms(self, question: str) -> bool:
        """Ask a person; without one the answer is yes."""
        if not self.is_interactive or self.read is None:
            return True
        return (self.read(f"{question} [y/N] ") or "").strip().lower() in ("y", "yes")
