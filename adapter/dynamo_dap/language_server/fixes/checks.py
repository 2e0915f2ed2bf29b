"""``torch._check`` before a branch on a size that depends on data. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynamo_dap.language_server.document import Document
from dynamo_dap.language_server.fixes.edits import Fix, Situation, insert_lines
from dynamo_dap.record.model import GraphBreak

_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}


def fixes(situation: Situation) -> Iterator[Fix]:
    """Yield a fix for each way the branch may be known to go."""
    found, document = situation.finding.graph_break, situation.document
    statement = document.statement_at(situation.line)
    if found is None or not _is_about_a_number(found) or not isinstance(statement, ast.If | ast.While | ast.Assert):
        return
    if not document.text(statement.lineno).lstrip().startswith(("if", "while", "assert")):
        return
    for condition in (document.source(statement.test), _opposite(document, statement.test)):
        check = f"torch._check({condition})"
        edit = insert_lines(document, statement.lineno, f"{document.indentation(statement.lineno)}{check}")
        yield Fix(f"Promise that it always holds: {check}", (edit,))


def _is_about_a_number(found: GraphBreak) -> bool:
    """Whether the branch is on a symbolic number; of a tensor nothing can be promised to Dynamo."""
    context, message = found.context or "", found.message or ""
    return "SymNodeVariable" in context or "Could not guard on data-dependent expression" in message


def _opposite(document: Document, test: ast.expr) -> str:
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITES:
        return ast.unparse(ast.Compare(test.left, [_OPPOSITES[type(test.ops[0])]()], test.comparators))
    return f"not ({document.source(test)})"
