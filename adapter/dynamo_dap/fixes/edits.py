"""Defines edits to the user's files, before conversion for the client, and helpers of all fixes."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dynamo_dap.fixes.document import Document
from dynamo_dap.fixes.findings import Finding
from dynamo_dap.protocol.texts import NOT_PYTHON
from dynamo_dap.records.advice.settings import Setting
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import Place

_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages|lib[/\\]python\d+\.\d+)[/\\]")


@dataclass(frozen=True)
class Edit:
    """Replaces a range of a text; for an insertion it is empty. Lines count from 1, columns from 0 in characters."""

    document: Document
    first_line: int
    first_column: int
    last_line: int
    last_column: int
    text: str


def insert_lines(document: Document, line: int, *lines: str) -> Edit:
    """Insert whole lines before a line."""
    return Edit(document, line, 0, line, 0, "".join(f"{one}\n" for one in lines))


def replace_lines(document: Document, first: int, last: int, *lines: str) -> Edit:
    """Replace whole lines; not for the file's last line."""
    return Edit(document, first, 0, last + 1, 0, "".join(f"{line}\n" for line in lines))


@dataclass(frozen=True)
class Fix:
    """A possible fix of a finding."""

    title: str
    edits: tuple[Edit, ...]
    settings: tuple[Setting, ...] = ()
    """Torch settings, for a fix without an edit."""
    needs_trial: bool = False
    """Whether it assumes something about the data, so that it is offered only after a trial."""
    follows: str = ""
    """A name that occurs in each hint or advice that this fix carries out; empty if there is none."""


@dataclass(frozen=True)
class Situation:
    """The input of the functions that make fixes."""

    finding: Finding
    document: Document
    """The finding's file."""
    line: int
    """The finding's present line."""
    others: Sequence[Finding]
    """All findings of the file."""
    document_of: Callable[[Place], Document | None]
    record: Record


def edited(document: Document, edits: Iterable[Edit]) -> str:
    """Return a document's text after edits, with line feeds as line ends."""
    return edited_text(document.path, document.lines, edits, ["\n"] * (len(document.lines) - 1), "\n")


def edited_text(path: str, lines: Sequence[str], edits: Iterable[Edit], ends: Sequence[str], newline: str) -> str:
    """Return a file's text after edits, whose positions refer to the text before.

    Insertions at one place keep their order. ``ends`` are the line ends of all lines but the last; new lines end with
    ``newline``.
    """
    text = "".join(line + end for line, end in zip(lines, [*ends, ""], strict=True))
    starts = [0]
    for line, line_end in zip(lines, [*ends, newline], strict=True):
        starts.append(starts[-1] + len(line) + len(line_end))

    def offset(line: int, column: int) -> int:
        return min(starts[min(line, len(lines) + 1) - 1] + column, len(text))

    spans = [
        (offset(one.first_line, one.first_column), offset(one.last_line, one.last_column), number, one)
        for number, one in enumerate(edits)
        if one.document.path == path
    ]
    for start, end, _, edit in sorted(spans, key=lambda span: span[:3], reverse=True):
        # The file's last line may have no line end.
        before = newline if start == len(text) and text and lines[-1] and start == end else ""
        text = text[:start] + before + edit.text.replace("\n", newline) + text[end:]
    return text


def still_parses(fix: Fix) -> bool:
    """Return whether every file is still valid Python after a fix."""
    for document in {edit.document.path: edit.document for edit in fix.edits}.values():
        try:
            ast.parse(edited(document, fix.edits))
        except NOT_PYTHON:
            return False
    return bool(fix.edits)


def is_in_library(path: str) -> bool:
    """Return whether a file belongs to an installed package or the standard library: the user must not edit it."""
    return _LIBRARY.search(path) is not None


def knows_torch(document: Document, at: int) -> bool:
    """Return whether ``torch`` at a line is the package: it is imported above, and not one of the user's names."""
    tree = document.tree
    if tree is None:
        return False
    imported = [
        node.lineno
        for node in tree.body
        if isinstance(node, ast.Import)
        and any(name.name.split(".")[0] == "torch" and name.asname is None for name in node.names)
    ]
    function = document.function_around(at)
    rebound = any(
        isinstance(node, ast.Name) and node.id == "torch" and not isinstance(node.ctx, ast.Load)
        for node in ast.walk(tree)
    )
    # A function's body can also run after imports below it.
    return not rebound and any(function is not None or line < at for line in imported)


def below_imports(document: Document) -> int | None:
    """Return the line below the imports at the file's beginning, if torch is imported there."""
    last = None
    has_torch = False
    for node in document.tree.body if document.tree else ():
        if isinstance(node, ast.Import | ast.ImportFrom):
            last = node.end_lineno
            has_torch |= isinstance(node, ast.Import) and any(
                name.name.split(".")[0] == "torch" and (name.asname is None) for name in node.names
            )
        elif last is not None:
            break
    return last + 1 if last is not None and has_torch else None


def is_alone(document: Document, statement: ast.stmt) -> bool:
    """Return whether a statement's lines contain nothing else, so that lines may be put around it."""
    last = statement.end_lineno or statement.lineno
    before = document.text(statement.lineno)[: document.column(statement.lineno, statement.col_offset)]
    after = document.text(last)[document.column(last, statement.end_col_offset or 0) :].strip()
    return not before.strip() and (not after or after.startswith("#"))
