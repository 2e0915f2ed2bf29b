"""Edits to files of the user's, before they are put into the client's terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dynamo_dap.language_server.document import Document
from dynamo_dap.language_server.findings import Finding
from dynamo_dap.record.model import Place


@dataclass(frozen=True)
class Edit:
    """Replace a text; lines counted from 1, columns from 0 in characters. Nothing is replaced by an insertion."""

    document: Document
    first_line: int
    first_column: int
    last_line: int
    last_column: int
    text: str


def insert_lines(document: Document, line: int, *lines: str) -> Edit:
    """Return the insertion of whole lines before a line."""
    return Edit(document, line, 0, line, 0, "".join(f"{one}\n" for one in lines))


def replace_lines(document: Document, first: int, last: int, *lines: str) -> Edit:
    """Return the replacement of whole lines, of which the last is not the file's last."""
    return Edit(document, first, 0, last + 1, 0, "".join(f"{one}\n" for one in lines))


@dataclass(frozen=True)
class Fix:
    """Something that a person might do about a finding."""

    title: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Situation:
    """What a fix is made from."""

    finding: Finding
    document: Document
    """The finding's file."""
    line: int
    """The finding's line now."""
    others: Sequence[Finding]
    """All findings of the file."""
    document_of: Callable[[Place], Document | None]
