"""Converts findings to diagnostics, fixes to code actions, and compiled functions to lenses. It has no side effects.

A finding is shown at the present line of its code, and only while the code is unchanged.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lsprotocol.types import (
    CodeAction,
    CodeActionDisabled,
    CodeDescription,
    CodeLens,
    Command,
    Diagnostic,
    DiagnosticRelatedInformation,
    DiagnosticSeverity,
    DiagnosticTag,
    Location,
    Position,
    Range,
    TextEdit,
    WorkspaceEdit,
)
from rich.console import Console

from dynamo_dap.fixes.document import Document, Positions
from dynamo_dap.fixes.edits import Edit, Fix
from dynamo_dap.fixes.findings import NOT_TRIED, Finding, Kind
from dynamo_dap.fixes.trial import Trial
from dynamo_dap.protocol.texts import counted
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import TRACING, Compile, CompiledFunction, Place, counts_of
from dynamo_dap.records.report.text_report import print_report

SOURCE = "torch.compile"
QUICK_FIX = "quickfix.torchCompile"
"""The kind of our code actions, by which an editor's extension finds them."""
_SEVERITIES = {
    Kind.GRAPH_BREAK: DiagnosticSeverity.Warning,
    Kind.RECOMPILE: DiagnosticSeverity.Information,
    Kind.LIMIT: DiagnosticSeverity.Warning,
    Kind.SKIPPED: DiagnosticSeverity.Information,
    Kind.FAILED: DiagnosticSeverity.Error,
    Kind.SPECIALIZED: DiagnosticSeverity.Information,
    Kind.CUDA_GRAPH: DiagnosticSeverity.Information,
    Kind.SLOW: DiagnosticSeverity.Information,
    Kind.NEVER_TRACED: DiagnosticSeverity.Hint,
}
DocumentOf = Callable[[Place], Document | None]


def lines_of(document: Document, finding: Finding) -> tuple[int, int] | None:
    """Return a finding's present first and last line; None if its code was changed."""
    first, last = document.now(finding.place.line), document.now(finding.last_line)
    if first is None or last is None or last < first:
        return None
    if finding.is_about_function:
        function = document.function_at(finding.place)
        return (function.lineno, function.lineno) if function is not None else (first, first)
    return first, last


def diagnostic_of(
    document: Document, finding: Finding, positions: Positions, document_of: DocumentOf, tried: Sequence[Trial] = ()
) -> Diagnostic | None:
    """Return a finding's diagnostic in ``document``; None if its code was changed.

    ``tried`` are the trials of its fixes. An advice that one of them carried out is not called untried.
    """
    lines = lines_of(document, finding)
    if lines is None:
        return None
    here = Location(document.uri, positions.code(document, *lines))
    related = [DiagnosticRelatedInformation(here, trial.line()) for trial in tried]
    related += [
        DiagnosticRelatedInformation(Location(other.uri, there), _as_tried(one.text, tried))
        for one in finding.related
        for other in (document_of(one.place),)
        for there in (_range(other, one.place, positions) if other else None,)
        if other is not None and there is not None
    ]
    return Diagnostic(
        range=here.range,
        message="\n".join(_as_tried(line, tried) for line in finding.text.split("\n")),
        severity=_SEVERITIES[finding.kind],
        code=finding.code or finding.kind.value,
        code_description=CodeDescription(finding.link) if finding.link else None,
        source=SOURCE,
        tags=[DiagnosticTag.Unnecessary] if finding.kind is Kind.NEVER_TRACED else None,
        related_information=related or None,
    )


def _as_tried(text: str, tried: Sequence[Trial]) -> str:
    """Remove the note that a hint or an advice was not tried, if a tried fix carries it out."""
    is_tried = any(one.fix.follows and one.fix.follows in text for one in tried)
    return text.replace(f"{NOT_TRIED}: ", ": ", 1) if is_tried else text


def _range(document: Document, place: Place, positions: Positions) -> Range | None:
    line = document.now(place.line)
    return None if line is None else positions.code(document, line, line)


TRY_FIX = "dynamo.tryFix"
"""The command that tries fixes; its only argument is a ``PlaceToTry``."""


@dataclass(frozen=True)
class PlaceToTry:
    """The fixes to try: one by its title, or all of a line, which is counted from 0 as in LSP."""

    uri: str
    line: int
    title: str | None


def place_to_try(given: Sequence[object]) -> PlaceToTry | None:
    """Parse the command's arguments, one ``{"uri", "line", "title"?}``; return None for others."""
    match given:
        case [{"uri": str(uri), "line": int(line), **others}]:
            title = others.get("title")
            return PlaceToTry(uri, line, title if isinstance(title, str) else None)
        case _:
            return None


def trial_of(fix: Fix, diagnostic: Diagnostic, uri: str) -> CodeAction:
    """Return the action that tries a fix on a copy."""
    title = f"Try this fix: {fix.title}"
    place = {"uri": uri, "line": diagnostic.range.start.line, "title": fix.title}
    return CodeAction(title, QUICK_FIX, [diagnostic], command=Command(title, TRY_FIX, arguments=[place]))


STOP_WHERE_SET = "dynamo.stopWhereSet"
"""A command of the client: its only argument is a list of ``{"uri", "line"}``, lines counted from 0 as in LSP."""


def stop_of(finding: Finding, diagnostic: Diagnostic, document_of: DocumentOf) -> CodeAction | None:
    """Return the action that sets a breakpoint at each line that may set a changed value; None if there is none."""
    changed = finding.changed
    lines = [
        (document, document.now(place.line))
        for place in (() if changed is None else changed.places)
        for document in (document_of(place),)
        if document is not None
    ]
    places = [{"uri": document.uri, "line": line - 1} for document, line in lines if line is not None]
    if changed is None or not places:
        return None
    title = f"Stop where {changed.name} is set ({counted(len(places), 'breakpoint')})"
    return CodeAction(title, QUICK_FIX, [diagnostic], command=Command(title, STOP_WHERE_SET, arguments=[places]))


def action_of(fix: Fix, diagnostic: Diagnostic, positions: Positions, trial: Trial | None) -> CodeAction:
    """Return the action that applies a fix.

    The title says whether the fix was tried. A fix that is proven to help is preferred; one that changes results is
    disabled.
    """
    edit = workspace_edit(fix, positions)
    tried = "not tried" if trial is None else f"tried: {trial.short_summary()}"
    action = CodeAction(f"{fix.title} ({tried})", QUICK_FIX, [diagnostic], edit=edit, is_preferred=False)
    if trial is not None:
        action.is_preferred = trial.is_proven
    if trial is not None and trial.changes_result:
        action.disabled, action.edit = CodeActionDisabled(trial.verdict), None
    return action


def workspace_edit(fix: Fix, positions: Positions) -> WorkspaceEdit:
    """Return a fix's edits."""
    changes: dict[str, list[TextEdit]] = {}
    for edit in fix.edits:
        changes.setdefault(edit.document.uri, []).append(_text_edit(edit, positions))
    return WorkspaceEdit(changes=dict(changes))


def _text_edit(edit: Edit, positions: Positions) -> TextEdit:
    document = edit.document
    start = _position(document, edit.first_line, edit.first_column, positions)
    end = _position(document, edit.last_line, edit.last_column, positions)
    if edit.last_line <= len(document.lines):
        return TextEdit(Range(start, end), edit.text)
    # The file's last line has no line end.
    text = edit.text.removesuffix("\n")
    return TextEdit(Range(start, end), f"\n{text}" if edit.first_line > len(document.lines) else text)


def _position(document: Document, line: int, column: int, positions: Positions) -> Position:
    if line > len(document.lines):
        line = len(document.lines)
        column = len(document.text(line))
    return positions.position(document, line, column)


OPEN_RECORD = "dynamo-dap.openRecord"
WRITE_REPORT = "dynamo.writeReport"
"""The command that writes a report. It takes no arguments; it returns a page's path, or null if there is no record."""
_WIDTH = 110
_UNFINISHED = "not finished"
_MOST_CALLERS = 2


def lenses(record: Record, document: Document, positions: Positions) -> list[CodeLens]:
    """Return a lens for each compiled or profiled function of a file."""
    found = []
    for number, function in enumerate(record.functions):
        node = document.function_at(function.place) if document.is_at(function.place) else None
        if node is None:
            continue
        callers = () if counts_of(function.compiles).graphs else _inlining(function, record.functions)
        text = title(function, has_ended=record.ended is not None, callers=callers)
        if text:
            at = positions.span(document, node.lineno, 0, 0)
            found.append(CodeLens(at, Command(text, OPEN_RECORD, arguments=[number, document.path])))
    for timed in record.profiled:
        node = document.function_at(timed.place) if document.is_at(timed.place) else None
        if node is not None:
            at = positions.span(document, node.lineno, 0, 0)
            text = f"traced {counted(timed.traced, 'time')}, {timed.seconds:.1f} s"
            found.append(CodeLens(at, Command(text, OPEN_RECORD, arguments=[-1, document.path])))
    return found


def _inlining(function: CompiledFunction, functions: Sequence[CompiledFunction]) -> list[str]:
    """Return the names of the functions that inline ``function`` without a graph break in it."""
    return [
        caller.name
        for caller in functions
        if caller is not function and any(_inlines(one, function) for one in caller.compiles)
    ]


def _inlines(compiled: Compile, function: CompiledFunction) -> bool:
    traced = [one for one in compiled.traced if one.place == function.place]
    lines = {(one.place.path, line) for one in traced for line in one.lines}
    broken = [place for one in compiled.breaks for place in (one.place, *(call.place for call in one.stack))]
    is_broken = any(place is None or (place.path, place.line) in lines for place in broken)
    return bool(traced and compiled.graphs) and not is_broken


def title(function: CompiledFunction, *, has_ended: bool, callers: Sequence[str] = ()) -> str:
    """Return ``2 graphs, 1 break, 3 recompiles, 0.8 s``; empty before the first compile has finished.

    The title names unfinished compiles if the program has ended: before, they may still finish. If the function's own
    compiles have no graph, it names the ``callers`` that inline the function.
    """
    unfinished = [one.id for one in function.compiles if one.state == TRACING]
    if len(unfinished) == len(function.compiles):
        return _UNFINISHED if has_ended else ""
    counts = counts_of(function.compiles)
    inlined = f"inlined into {', '.join(callers[:_MOST_CALLERS])}; " if callers and not counts.graphs else ""
    parts = [
        inlined + (counted(counts.graphs, "graph") if counts.graphs else "no graph of its own"),
        *([counted(counts.breaks, "break")] if counts.breaks else []),
        *([counted(counts.recompiles, "recompile")] if counts.recompiles else []),
        f"{counts.seconds:.1f} s",
    ]
    if any(one.limit for one in function.compiles):
        parts.append("limit reached")
    if unfinished and has_ended:
        parts.append(f"{', '.join(unfinished)} {_UNFINISHED}")
    return ", ".join(parts)


def record_text(record: Record, number: int) -> str:
    """Return the report on a function, by its number in the record, or on the whole program for -1."""
    only = record.functions[number] if 0 <= number < len(record.functions) else None
    output = io.StringIO()
    console = Console(file=output, width=_WIDTH, highlight=False, soft_wrap=True, color_system=None)
    print_report(record, console, only)
    return output.getvalue()
