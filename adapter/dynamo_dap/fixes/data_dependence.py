"""Fixes a branch that depends on data. Each fix suits only some data, so it is offered only after a trial.

- ``torch._check`` of the condition, or of its opposite: the branch goes one way for all data;
- ``torch._check_is_size`` of a number, if the condition tests whether it is 0 or more;
- ``guard_or_false`` and ``statically_known_true``: the branch is not taken while Dynamo traces;
- ``torch.cond``: both branches are in the graph.

It has no side effects.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

from dynamo_dap.fixes.document import Document, Function
from dynamo_dap.fixes.edits import (
    Edit,
    Fix,
    Situation,
    below_imports,
    insert_lines,
    is_alone,
    knows_torch,
    replace_lines,
)
from dynamo_dap.protocol.requests.branches import BRANCH_ON_TENSOR, branch_of
from dynamo_dap.protocol.texts import NOT_PYTHON
from dynamo_dap.records.model import GraphBreak

_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
_GUARDS = ("guard_or_false", "statically_known_true")


def fixes_of_condition(situation: Situation, found: GraphBreak) -> Iterator[Fix]:
    """Yield fixes that let the trace continue at a data-dependent branch."""
    statement = situation.document.statement_at(situation.line)
    if statement is None or isinstance(statement, ast.While | ast.For | Function):
        return
    if found.condition is not None:
        yield from _checked(situation, statement, found.condition)
        yield from _guarded(situation, statement)
    if found.condition is not None or found.reason == BRANCH_ON_TENSOR:
        yield from _as_cond(situation.document, statement)


def opposite(document: Document, test: ast.expr) -> str:
    """Return a condition's opposite as Python."""
    return _negated(test) or f"not ({document.source(test)})"


def _negated(test: ast.expr) -> str | None:
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITES:
        return ast.unparse(ast.Compare(test.left, [_OPPOSITES[type(test.ops[0])]()], test.comparators))
    return None


def checks(situation: Situation, condition: str) -> Iterator[Fix]:
    """Yield ``torch._check`` of a condition and of its opposite."""
    statement = situation.document.statement_at(situation.line)
    if statement is not None and not isinstance(statement, ast.While | ast.For | Function):
        yield from _checked(situation, statement, condition)


# -- checks --------------------------------------------------------------------------------------------------------


def _checked(situation: Situation, statement: ast.stmt, condition: str) -> Iterator[Fix]:
    document, line = situation.document, statement.lineno
    starts = document.text(line).lstrip().startswith(("if ", "assert ", "return "))
    if not (starts or is_alone(document, statement)) or not knows_torch(document, line):
        return
    try:
        parsed = ast.parse(condition, mode="eval").body
    except NOT_PYTHON:  # the record may belong to another program
        return
    for one in (condition, _negated(parsed) or f"not ({condition})"):
        yield _before(
            document,
            line,
            "Assume the condition for all data, and raise an error if it is false",
            f"torch._check({one})",
        )
    if (name := _possible_size(parsed)) is not None:
        yield _before(
            document, line, "Assume that the value is a valid size for all data", f"torch._check_is_size({name})"
        )


def _before(document: Document, line: int, what: str, check: str) -> Fix:
    edit = insert_lines(document, line, f"{document.indentation(line)}{check}")
    return Fix(f"{what}: {check}", (edit,), (), True)


def _possible_size(condition: ast.expr) -> str | None:
    """Return the number in a condition whose outcome follows from "the number is 0 or more"; else None."""
    match condition:
        case ast.Compare(ast.Name(name), [ast.Lt() | ast.GtE()], [ast.Constant(0)]):
            return name
        case ast.Compare(ast.Name(name), [ast.Eq() | ast.NotEq()], [ast.UnaryOp(ast.USub(), ast.Constant(1))]):
            return name
    return None


# -- guard_or_false, statically_known_true -------------------------------------------------------------------------


def _guarded(situation: Situation, statement: ast.stmt) -> Iterator[Fix]:
    document = situation.document
    below = below_imports(document)
    if not isinstance(statement, ast.If) or below is None or statement.test.end_lineno != statement.test.lineno:
        return
    test, line = statement.test, statement.test.lineno
    first, last = document.column(line, test.col_offset), document.column(line, test.end_col_offset or 0)
    text = document.source(test)
    for guard in _GUARDS:
        edits = (
            insert_lines(document, below, f"from torch.fx.experimental.symbolic_shapes import {guard}"),
            Edit(document, line, first, line, last, f"{guard}({text})"),
        )
        yield Fix(f"Do not take the branch in compiled code: {guard}({text})", edits, (), True)


# -- torch.cond ----------------------------------------------------------------------------------------------------


def _as_cond(document: Document, statement: ast.stmt) -> Iterator[Fix]:
    """Yield a fix that writes the branch as ``torch.cond``, if each side computes one value."""
    if not is_alone(document, statement) or not knows_torch(document, statement.lineno):
        return
    following = _next(document, statement)
    branch = branch_of(statement, following if following is not None and is_alone(document, following) else None)
    if branch is not None:
        begin = "return " if branch.target is None else f"{branch.target} = "
        call = _cond(document, branch.test, branch.one, branch.other)
        indentation = document.indentation(statement.lineno)
        comments = [f"{indentation}{comment}" for comment in _comments(document, statement.lineno, branch.last)]
        edit = replace_lines(document, statement.lineno, branch.last, *comments, f"{indentation}{begin}{call}")
        yield Fix("Trace both branches: torch.cond", (edit,), (), True, follows="torch.cond")


def _comments(document: Document, first: int, last: int) -> Iterator[str]:
    tokens = tokenize.generate_tokens(io.StringIO("\n".join(document.lines)).readline)
    yield from (one.string for one in tokens if one.type == tokenize.COMMENT and first <= one.start[0] <= last)


def _next(document: Document, statement: ast.stmt) -> ast.stmt | None:
    function = document.function_around(statement.lineno)
    body = [] if function is None else function.body
    at = body.index(statement) + 1 if statement in body else len(body)
    return body[at] if at < len(body) else None


def _cond(document: Document, test: ast.expr, one: ast.expr, other: ast.expr) -> str:
    sides = ", ".join(f"lambda: {_copied(document, side)}" for side in (one, other))
    return f"torch.cond({_in_one_line(document, test)}, {sides})"


def _copied(document: Document, side: ast.expr) -> str:
    """Return one side of the branch as a copy if it is an input: torch.cond must not return an input itself."""
    return f"{side.id}.clone()" if isinstance(side, ast.Name) else _in_one_line(document, side)


def _in_one_line(document: Document, node: ast.expr) -> str:
    text = document.source(node)
    return ast.unparse(node) if "\n" in text or not text else text
