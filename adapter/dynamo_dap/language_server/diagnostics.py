"""Findings as diagnostics of the editor: on the lines where the code is now, while it is still what was recorded."""

from __future__ import annotations

import re
from collections.abc import Callable

from lsprotocol.types import (
    CodeDescription,
    Diagnostic,
    DiagnosticRelatedInformation,
    DiagnosticSeverity,
    DiagnosticTag,
    Location,
    Range,
)

from dynamo_dap.language_server.document import Document
from dynamo_dap.language_server.findings import Finding, Kind
from dynamo_dap.language_server.positions import Positions
from dynamo_dap.record.model import Place

SOURCE = "dynamo-dap"
_SEVERITIES = {
    Kind.GRAPH_BREAK: DiagnosticSeverity.Warning,
    Kind.RECOMPILE: DiagnosticSeverity.Information,
    Kind.LIMIT: DiagnosticSeverity.Warning,
    Kind.SKIPPED: DiagnosticSeverity.Information,
    Kind.FAILED: DiagnosticSeverity.Error,
    Kind.SPECIALIZED: DiagnosticSeverity.Information,
    Kind.NEVER_TRACED: DiagnosticSeverity.Hint,
}
_PAGE = re.compile(r"https://[\w.-]+/[\w./-]*")
"""A record may name anything as torch's page: a command of the editor, too."""
DocumentOf = Callable[[Place], Document | None]


def lines_of(document: Document, finding: Finding) -> tuple[int, int] | None:
    """Return first and last line of a finding now; None when its code was changed."""
    first, last = document.now(finding.place.line), document.now(finding.last_line)
    if first is None or last is None or last < first:
        return None
    if finding.is_about_function:
        function = document.function_at(finding.place)
        return (function.lineno, function.lineno) if function is not None else (first, first)
    return first, last


def diagnostic_of(
    document: Document, finding: Finding, positions: Positions, document_of: DocumentOf
) -> Diagnostic | None:
    """Return the diagnostic of a finding in ``document``; None when its code was changed."""
    lines = lines_of(document, finding)
    if lines is None:
        return None
    related = [
        DiagnosticRelatedInformation(Location(other.uri, there), one.text)
        for one in finding.related
        for other in (document_of(one.place),)
        for there in (_range(other, one.place, positions) if other else None,)
        if other is not None and there is not None
    ]
    return Diagnostic(
        range=positions.code(document, *lines),
        message=finding.text,
        severity=_SEVERITIES[finding.kind],
        code=finding.code or finding.kind.value,
        code_description=CodeDescription(finding.link) if finding.link and _PAGE.fullmatch(finding.link) else None,
        source=SOURCE,
        tags=[DiagnosticTag.Unnecessary] if finding.kind is Kind.NEVER_TRACED else None,
        related_information=related or None,
    )


def _range(document: Document, place: Place, positions: Positions) -> Range | None:
    line = document.now(place.line)
    return None if line is None else positions.code(document, line, line)
