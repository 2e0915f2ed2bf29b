"""Fixes as code actions of the editor."""

from __future__ import annotations

from lsprotocol.types import CodeAction, CodeActionKind, Command, Diagnostic, Position, Range, TextEdit, WorkspaceEdit

from dynamo_dap.language_server.document import Document
from dynamo_dap.language_server.fixes.edits import Edit, Fix
from dynamo_dap.language_server.positions import Positions

TRY_FIX = "dynamo-dap.tryFix"


def trial_of(fix: Fix, diagnostic: Diagnostic, uri: str) -> CodeAction:
    """Return the action that tries a fix, on a copy."""
    title = f"Try this fix: {fix.title}"
    return CodeAction(
        title, CodeActionKind.QuickFix, [diagnostic], command=Command(title, TRY_FIX, arguments=[uri, fix.title])
    )


def action_of(fix: Fix, diagnostic: Diagnostic, positions: Positions, *, is_proven: bool) -> CodeAction:
    """Return the action that applies a fix; one that is proven to help is preferred."""
    changes: dict[str, list[TextEdit]] = {}
    for edit in fix.edits:
        changes.setdefault(edit.document.uri, []).append(_text_edit(edit, positions))
    return CodeAction(
        fix.title,
        kind=CodeActionKind.QuickFix,
        diagnostics=[diagnostic],
        edit=WorkspaceEdit(changes=dict(changes)),
        is_preferred=is_proven or None,
    )


def _text_edit(edit: Edit, positions: Positions) -> TextEdit:
    document = edit.document
    start = _position(document, edit.first_line, edit.first_column, positions)
    end = _position(document, edit.last_line, edit.last_column, positions)
    if edit.last_line <= len(document.lines):
        return TextEdit(Range(start, end), edit.text)
    # The file's last line has no end.
    text = edit.text.removesuffix("\n")
    return TextEdit(Range(start, end), f"\n{text}" if edit.first_line > len(document.lines) else text)


def _position(document: Document, line: int, column: int, positions: Positions) -> Position:
    if line > len(document.lines):
        line = len(document.lines)
        column = len(document.text(line))
    return positions.position(document, line, column)
