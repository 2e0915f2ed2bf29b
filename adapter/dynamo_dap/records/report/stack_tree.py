"""Prints the user's stacks as a tree, with the compiles at their ends.

Stacks with the same outer frames share a branch, as in tlparse's stack trie.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from dynamo_dap.protocol.texts import counted
from dynamo_dap.records.advice.items import at
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import Compile, StackLine

_COLORS = {"failed": "red", "skipped": "yellow"}


@dataclass
class _Branch:
    """A frame, the frames that it called, and the compiles whose stacks end here."""

    below: dict[StackLine, _Branch] = field(default_factory=dict)
    compiles: list[Compile] = field(default_factory=list)


def print_stacks(record: Record, console: Console) -> None:
    """Print the tree of a record's stacks."""
    root = _Branch()
    for _, compiled in record.compiles():
        branch = root
        for frame in compiled.stack:
            branch = branch.below.setdefault(StackLine(frame.place, frame.function), _Branch())
        branch.compiles.append(compiled)
    console.print("[bold]Stacks[/bold]")
    tree = Tree("", hide_root=True)
    _grow(tree, root)
    console.print(tree)


def _grow(tree: Tree, branch: _Branch) -> None:
    for frame, below in branch.below.items():
        _grow(tree.add(escape(f"{frame.function} ({at(frame.place)})")), below)
    for compiled in branch.compiles:
        again = f", restarted {counted(len(compiled.attempts) - 1, 'time')}" if len(compiled.attempts) > 1 else ""
        broke = f", {counted(len(compiled.breaks), 'graph break')}" if compiled.breaks else ""
        text = escape(f"[{compiled.id}] {compiled.name}: {compiled.state}{again}{broke}")
        color = _COLORS.get(compiled.state)
        tree.add(f"[{color}]{text}[/{color}]" if color else text)
