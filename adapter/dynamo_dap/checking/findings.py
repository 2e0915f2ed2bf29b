"""Finds the problems in a program's records, each once, with a key that stays the same when lines move.

It has no side effects.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from dynamo_dap.records.advice.gathering import what_to_do
from dynamo_dap.records.advice.items import Item, Kind, at, users_line
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import CompiledFunction, Counts, Place, SkippedFrame, counts_of

SKIPPED = "skipped"
_RESUMED = re.compile(r" \(resumed at line \d+\)$")
KINDS = (*(kind.value for kind in Kind), SKIPPED)


class Finding(Struct, rename="camel", omit_defaults=True, frozen=True):
    """One problem of a function's compiles."""

    kind: Annotated[str, Meta(extra={"choices": KINDS})]
    function: str
    reason: str
    """The reason, in words that are the same in every run."""
    count: int = 1
    """The number of changes of a value between calls; 1 for other problems."""
    path: str | None = None
    """Relative to the folder of the check with ``/`` if it lies below, else absolute."""
    line: int | None = None
    column: int | None = None
    title: str = ""
    """The readable text, with the values of this run."""
    details: list[str] = []
    hints: list[str] = []
    link: str | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """The part that is the same in another run and after an edit. Several lines of a function may share it."""
        return self.kind, self.function, self.reason

    @property
    def where(self) -> str:
        """The place as readable text: ``model.py:31``; empty if there is none."""
        return "" if self.path is None else f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Totals:
    """Counts of a program or of one function."""

    breaks: int
    """Graph breaks: a break in many compiles, from many callers or in many processes counts once."""
    recompiles: int
    graphs: int
    compile_seconds: float


@dataclass
class Part:
    """The findings and counts of the whole program, or of one compiled function with the functions that it inlines."""

    place: Place | None = None
    findings: set[tuple[str, str, str, str | None, int | None]] = field(default_factory=set)
    """The keys of the findings, with their places."""
    counts: list[Counts] = field(default_factory=list)
    """The counts of each process."""

    def add(self, record: Record, only: CompiledFunction | None = None) -> list[Finding]:
        """Add the findings of ``record`` about the program, or about one function; return them."""
        self.counts.append(record.counts() if only is None else counts_of(only.compiles))
        found = [_finding(record, item) for item in what_to_do(record, only)]
        self.findings |= {(*one.key, one.path, one.line) for one in found}
        return found

    @property
    def totals(self) -> Totals:
        """Return the counts of all processes."""
        return Totals(
            sum(kind == Kind.BREAK.value for kind, *_ in self.findings),
            sum(one.recompiles for one in self.counts),
            sum(one.graphs for one in self.counts),
            sum(one.seconds for one in self.counts),
        )

    def has(self, finding: Finding) -> bool:
        """Return whether this part has a finding with the key of ``finding``."""
        return any(each[:3] == finding.key for each in self.findings)


@dataclass(frozen=True)
class Found:
    """The findings of records."""

    findings: list[Finding]
    program: Part
    functions: dict[str, Part]
    """The parts of compiled functions, by name."""

    def counts(self) -> Counter[tuple[str, str, str]]:
        """Return how often each finding occurs, by key."""
        counts: Counter[tuple[str, str, str]] = Counter()
        for finding in self.findings:
            counts[finding.key] += finding.count
        return counts

    def functions_like(self, pattern: str) -> dict[str, Part]:
        """Return the functions whose names match ``pattern``, a shell pattern."""
        return {name: part for name, part in self.functions.items() if fnmatchcase(name, pattern)}


def findings_in(records: Iterable[Record], folder: Path | None) -> Found:
    """Return the problems in a program's records; paths are relative to ``folder``."""
    findings: dict[tuple[object, ...], Finding] = {}
    program, functions = Part(), dict[str, Part]()
    for record in records:
        for finding in [*program.add(record), *map(_skip, record.skipped)]:
            # Several processes of a program may have the same finding, which counts once.
            same = (*finding.key, finding.path, finding.line)
            known = findings.setdefault(same, finding)
            findings[same] = replace(known, count=max(known.count, finding.count))
        for function in record.functions:
            part = functions.setdefault(function.name, Part(place=function.place))
            part.add(record, function)
    ordered = sorted((_seen_from(folder, one) for one in findings.values()), key=_order)
    return Found(ordered, program, functions)


def _order(finding: Finding) -> tuple[int, str, int, str]:
    return KINDS.index(finding.kind), finding.path or "", finding.line or 0, finding.reason


def _finding(record: Record, item: Item) -> Finding:
    place = users_line(record, item)
    inside = [] if place == item.place or item.place is None else [f"in the library, at {at(item.place)}"]
    return Finding(
        item.kind.value,
        _RESUMED.sub("", item.function),
        _FOLDERS.sub("", item.subject),
        max(len(item.values) - 1, 1),
        *_where(place),
        title=f"Graph break: {item.subject}" if item.kind is Kind.BREAK else item.title,
        details=[*inside, *item.facts],
        hints=item.advice,
        link=item.link,
    )


def _skip(frame: SkippedFrame) -> Finding:
    reason = _FOLDERS.sub("", frame.reason)
    title = f"{frame.name} is not compiled: {reason}"
    return Finding(SKIPPED, frame.name, reason, 1, *_where(frame.place), title=title)


_FOLDERS = re.compile(r"(?<![\w.:/])(?:/|[A-Za-z]:[\\/])(?:[^\s'\":,()\\/]+[\\/])+")
"""The folders of an absolute path. They differ between machines, so a finding's key must not contain them."""


def _where(place: Place | None) -> tuple[str | None, int | None, int | None]:
    return (None, None, None) if place is None else (place.path, place.line, place.column)


def _seen_from(folder: Path | None, finding: Finding) -> Finding:
    return (
        finding
        if folder is None or finding.path is None
        else replace(finding, path=path_seen_from(folder, finding.path))
    )


def path_seen_from(folder: Path, path: str) -> str:
    """Return ``path`` relative to ``folder`` with ``/`` if it lies below, else as it is."""
    try:
        return Path(path).relative_to(folder).as_posix()
    except ValueError:
        return path
