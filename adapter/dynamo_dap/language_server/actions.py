"""Offers fixes as code actions of the editor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lsprotocol.types import (
    CodeAction,
    CodeActionDisabled,
    CodeActionKind,
    Command,
    Diagnostic,
    Position,
    Range,
    TextEdit,
    WorkspaceEdit,
)

from dynamo_dap.language_server.document import Document
from dynamo_dap.language_server.fixes.edits import Edit, Fix
from dynamo_dap.language_server.positions import Positions
from dynamo_dap.language_server.trying import Trial

TRY_FIX = "dynamo.tryFix"
"""Its one argument is what ``place_to_try`` reads."""


@dataclass(frozen=True)
class PlaceToTry:
    """What the command is given: one fix by its title, or all that are known for a line, counted from 0 as in LSP."""

    uri: str
    line: int
    title: str | None


def place_to_try(given: Sequence[Any]) -> PlaceToTry | None:
    """Return what a client gave the command, one ``{"uri", "line", "title"?}``; None when it is not that."""
    match given:
        case [{"uri": str(uri), "line": int(line), **others}]:
            title = others.get("title")
            return PlaceToTry(uri, line, title if isinstance(title, str) else None)
        case _:
            return None


def trial_of(fix: Fix, diagnostic: Diagnostic, uri: str) -> CodeAction:
    """Return the action that tries a fix, on a copy."""
    title = f"Try this fix: {fix.title}"
    place = {"uri": uri, "line": diagnostic.range.start.line, "title": fix.title}
    return CodeAction(title, CodeActionKind.QuickFix, [diagnostic], command=Command(title, TRY_FIX, arguments=[place]))


def action_of(fix: Fix, diagnostic: Diagnostic, positions: Positions, trial: Trial | None) -> CodeAction:
    """Return the action that applies a fix.

    One that is proven to help is preferred; one that was found to change what the program computes is not offered.
    """
    changes: dict[str, list[TextEdit]] = {}
    for edit in fix.edits:
        changes.setdefault(edit.document.uri, []).append(_text_edit(edit, positions))
    action = CodeAction(
        fix.title, CodeActionKind.QuickFix, [diagnostic], edit=WorkspaceEdit(changes=dict(changes)), is_preferred=False
    )
    if trial is not None:
        action.title = f"{fix.title} (tried: {trial.in_short()})"
        action.is_preferred = trial.is_proven
    if trial is not None and trial.changes_result:
        action.disabled, action.edit = CodeActionDisabled(trial.verdict), None
    return action


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
