"""Reads the problems that ``torch.export.draft_export`` logged. Runs on one thread, and lives as long as its record."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from dynamo_dap.records.events import Record
from dynamo_dap.records.model import ExportProblem, Place, StackLine
from dynamo_dap.trace_logs.entries import Entry, Frame, harmless
from dynamo_dap.trace_logs.event_texts import as_written

EXPORT_KINDS = (
    "missing_fake_kernel",
    "mismatched_fake_kernel",
    "propagate_real_tensors_provenance",
    "exported_program",
)
_MOST = 1000
_LINE = re.compile(r"# File: (?P<path>.+?):(?P<line>\d+) in .+?(?:, code: (?P<code>.*))?$")
_SYMBOL = re.compile(r"\b(?:zuf|[sufz])\d+\b")
_EQUAL = re.compile(r"^(?P<relation>Eq|Ne)\((?P<left>[^(),]+), (?P<right>[^(),]+)\)$")


class _Locals(msgspec.Struct):
    locals: dict[str, Any] = {}


class _Event(msgspec.Struct):
    op: str = ""
    reason: str = ""
    expr: str = ""
    result: str = ""
    user_stack: list[Frame] | None = None
    symbol_to_sources: dict[str, str] = {}
    frame_locals: _Locals | None = None


class DraftExports:
    """Collects the problems of exports, and their places."""

    def __init__(
        self, record: Record, stack: Callable[[list[Frame] | None], list[StackLine]], mapped: Callable[[str], str]
    ) -> None:
        """Fill ``record``; ``stack`` returns the user's part of a stack."""
        self._record = record
        self._stack = stack
        self._mapped = mapped

    def take(self, entry: Entry) -> None:
        """Take an entry of ``EXPORT_KINDS``, or a guard that was added outside of compiles.

        Raises:
            msgspec.MsgspecError: the entry is malformed.
        """
        if entry.kind == "exported_program":
            self._find_places(entry.payload)
            return
        event = msgspec.json.decode(entry.metadata, type=dict[str, msgspec.Raw])
        found = msgspec.json.decode(event[entry.kind], type=_Event)
        stack = self._stack(found.user_stack)
        problem = ExportProblem(
            entry.kind, harmless(_subject(found)), harmless(found.reason.strip()), stack[-1].place if stack else None
        )
        known = self._record.export_problems
        if len(known) < _MOST and (entry.kind != "guard_added" or found.symbol_to_sources):
            known.append(problem)

    def _find_places(self, program: str) -> None:
        """Find the lines of problems with operators in the text of the exported program."""
        places: dict[str, Place] = {}
        place = None
        for line in program.splitlines():
            if (match := _LINE.search(line)) is not None:
                place = Place(self._mapped(harmless(match["path"])), int(match["line"]))
            elif place is not None and (called := re.search(r"= torch\.ops\.([\w.]+)\(", line)) is not None:
                places.setdefault(called[1], place)
        self._record.export_problems = [
            problem
            if problem.place is not None
            else msgspec.structs.replace(problem, place=places.get(problem.subject))
            for problem in self._record.export_problems
        ]


def _subject(event: _Event) -> str:
    """Return the operator, or the assumption with the program's names where they are known."""
    if event.op:
        return event.op
    names = {symbol: as_written(source) for symbol, source in event.symbol_to_sources.items()}
    for name, value in (event.frame_locals.locals if event.frame_locals is not None else {}).items():
        if isinstance(value, list) and len(value) == 1 and _SYMBOL.fullmatch(str(value[0])):
            names.setdefault(str(value[0]), name)
    text = _EQUAL.sub(
        lambda match: f"{match['left']} {'==' if match['relation'] == 'Eq' else '!='} {match['right']}", event.expr
    )
    text = _SYMBOL.sub(lambda match: names.get(match[0], match[0]), text)
    return f"not ({text})" if event.result == "False" else text
