"""Extends a fix with checks, if the trace with the fix stops at a further data-dependent condition.

It has no side effects.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynamo_dap.fixes.data_dependence import checks
from dynamo_dap.fixes.document import Document
from dynamo_dap.fixes.edits import Edit, Fix, Situation, edited, replace_lines
from dynamo_dap.fixes.findings import Finding, Kind, findings_of
from dynamo_dap.records.advice.items import at
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import GraphBreak, Place
from dynamo_dap.records.texts import digest_of_line


@dataclass(frozen=True)
class FurtherCondition:
    """A condition that the trace reaches only with a fix."""

    text: str
    """For example ``n >= 2 at model.py:31``; the line is one of the fixed file."""
    fixes: tuple[Fix, ...]
    """The fix, combined with each check for the condition."""


def further_condition(fix: Fix, before: Sequence[Record], after: Sequence[Record]) -> FurtherCondition | None:
    """Return the first condition that only the run with the fix reaches; None if torch names no such condition."""
    known = {found.reason for record in before for found in _breaks(record)}
    for document in {edit.document.path: edit.document for edit in fix.edits}.values():
        lines = edited(document, fix.edits).split("\n")
        # The record refers to the lines of the fixed copy, not to the file on disk.
        changed = Document(document.path, document.uri, lines, [digest_of_line(line) for line in lines])
        for record in after:
            for finding in findings_of(record).get(document.path, []):
                found = finding.graph_break
                if found is None or found.condition is None or found.reason in known:
                    continue
                return FurtherCondition(
                    f"{found.condition} at {at(finding.place)}",
                    tuple(_with_checks(fix, document, changed, finding, found.condition, record)),
                )
    return None


def _breaks(record: Record) -> Iterator[GraphBreak]:
    return (found for _, compiled in record.compiles() for found in compiled.breaks)


def _with_checks(
    fix: Fix, document: Document, changed: Document, finding: Finding, condition: str, record: Record
) -> Iterator[Fix]:
    def document_of(place: Place) -> Document | None:
        return changed if changed.is_at(place) else None

    line = changed.now(finding.place.line)
    if line is None or finding.kind is not Kind.GRAPH_BREAK or len({edit.document.path for edit in fix.edits}) > 1:
        return
    for check in checks(Situation(finding, changed, line, [finding], document_of, record), condition):
        lines = edited(changed, check.edits).split("\n")
        title = f"{fix.title}, and {check.title.rpartition(': ')[2]}"
        yield Fix(title, tuple(_edits(document, lines)), (), True, fix.follows)


def _edits(document: Document, lines: Sequence[str]) -> Iterator[Edit]:
    """Yield the edits that turn a document into ``lines``; its last line must stay the same."""
    matcher = difflib.SequenceMatcher(None, list(document.lines), list(lines), autojunk=False)
    for what, first, last, start, end in matcher.get_opcodes():
        if what != "equal":
            yield replace_lines(document, first + 1, last, *lines[start:end])
