"""Code lenses over compiled functions: a summary of their compiles, and a link to their record. Pure."""

from __future__ import annotations

import io

from lsprotocol.types import CodeLens, Command
from rich.console import Console

from dynamo_dap.language_server.document import Document
from dynamo_dap.language_server.positions import Positions
from dynamo_dap.record.events import Record
from dynamo_dap.record.model import TRACING, CompiledFunction, counts_of
from dynamo_dap.record.text_report import print_report
from dynamo_dap.record.texts import counted

OPEN_RECORD = "dynamo-dap.openRecord"
WRITE_REPORT = "dynamo.writeReport"
"""Takes nothing, and returns the path of a page, null when nothing was recorded."""
_WIDTH = 110
_UNFINISHED = "not finished"


def lenses(record: Record, document: Document, positions: Positions) -> list[CodeLens]:
    """Return a lens for each compiled function of a file."""
    found = []
    for number, function in enumerate(record.functions):
        node = document.function_at(function.place) if document.is_at(function.place) else None
        if node is not None:
            at = positions.span(document, node.lineno, 0, 0)
            found.append(CodeLens(at, Command(title(function), OPEN_RECORD, arguments=[number])))
    return found


def title(function: CompiledFunction) -> str:
    """Return ``2 graphs, 1 break, 3 recompiles, 0.8 s``; it says so when the newest compile is still traced."""
    if all(one.state == TRACING for one in function.compiles):
        return _UNFINISHED
    counts = counts_of(function.compiles)
    parts = [
        counted(counts.graphs, "graph"),
        *([counted(counts.breaks, "break")] if counts.breaks else []),
        *([counted(counts.recompiles, "recompile")] if counts.recompiles else []),
        f"{counts.seconds:.1f} s",
    ]
    if any(one.limit for one in function.compiles):
        parts.append("limit reached")
    if function.compiles[-1].state == TRACING:
        parts.append(_UNFINISHED)
    return ", ".join(parts)


def record_text(record: Record, number: int) -> str:
    """Return the report of a function, by its number in the record; of the whole program with -1."""
    only = record.functions[number] if 0 <= number < len(record.functions) else None
    output = io.StringIO()
    console = Console(file=output, width=_WIDTH, highlight=False, soft_wrap=True, color_system=None)
    print_report(record, console, only)
    return output.getvalue()
