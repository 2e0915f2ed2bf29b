"""Defines one piece of advice, and helpers for its kinds. It has no side effects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePath

from dynamo_dap.records.advice.settings import Setting
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import Compile, CompiledFunction, Place


class Kind(Enum):
    """The kinds of items, the most important first."""

    FAILED = "failed"
    LIMIT = "limit"
    BREAK = "graph break"
    CHANGE = "recompile"
    SPECIALIZED = "specialized"
    CUDA_GRAPH = "cuda graph"


@dataclass
class Item:
    """One finding with advice."""

    kind: Kind
    title: str
    facts: list[str] = field(default_factory=list)
    """What happened, one line each."""
    advice: list[str] = field(default_factory=list)
    link: str | None = None
    place: Place | None = None
    """Where it happened."""
    callers: list[Place] = field(default_factory=list)
    """The user's lines that called it."""
    compiles: list[str] = field(default_factory=list)
    """Ids of the compiles in which it happened, or that it caused."""
    seconds: float = 0.0
    """Duration of the compiles that it caused."""
    function: str = ""
    """The function in which it happened; for a break the innermost one, which may be inlined."""
    subject: str = ""
    """The reason, in words that are the same in every run: torch's reason, or the value that changed between calls."""
    values: list[str] = field(default_factory=list)
    """The subject's values."""
    depth: int = 0
    """The number of callers of the function, in the compile with the fewest."""
    settings: list[Setting] = field(default_factory=list)
    """Torch settings that may help; they were not tried."""
    cause: str = ""
    """Why a size changes, if known: sizes with different causes are never merged."""
    way: list[Place] = field(default_factory=list)
    """The lines from the compiled function down to the break, outermost first."""


def not_tried(record: Record, items: Iterable[Item]) -> str | None:
    """Return a note that no advice was tried, and how to try it if possible; None if there is no advice."""
    advised = [item for item in items if item.advice]
    if not advised:
        return None
    text = "None of this was tried on the program."
    is_of_log = record.started is not None and record.started.log is not None
    if is_of_log or all(item.place is None for item in advised):
        return text
    return f"{text} To try it: `dynamo-dap report --try`, or `dynamo-dap fix FILE:LINE`"


def users_line(record: Record, item: Item) -> Place | None:
    """Return the line that a user can edit: for a library's finding, the calling line."""
    if item.place is None or not (item.place.path in record.libraries or _IN_TORCH.search(item.place.path)):
        return item.place
    own = record.sources.keys() - record.libraries
    return next((place for place in [*reversed(item.way), *item.callers] if place.path in own), item.place)


_IN_TORCH = re.compile(r"[/\\](?:site|dist)-packages[/\\]torch[/\\]")


def caller_of(function: CompiledFunction, compiled: Compile) -> Place | None:
    """Return the user's calling line; for a resume function, the line at which it begins."""
    return compiled.caller or next((one.caller for one in function.compiles if one.caller is not None), None)


def at(place: Place) -> str:
    """Return a short place: ``model.py:31``."""
    return f"{PurePath(place.path).name}:{place.line}"


def called(places: Iterable[Place | None]) -> list[Place]:
    """Return the known places without repetition."""
    return list(dict.fromkeys(place for place in places if place is not None))


def compiles_of(functions: Iterable[CompiledFunction]) -> Iterator[tuple[CompiledFunction, Compile]]:
    """Return every compile with its function."""
    return ((function, compiled) for function in functions for compiled in function.compiles)
