"""Moving a statement that breaks the graph to the end of its function: one graph instead of two. Pure.

Only a call that stands alone, in the function's own block, and reads nothing that is changed below it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dynamo_dap.language_server.document import Document, Function
from dynamo_dap.language_server.findings import Kind
from dynamo_dap.language_server.fixes.edits import Edit, Fix, Situation, insert_lines, replace_lines

_RESULT = "result"


def fixes(situation: Situation) -> Iterator[Fix]:
    """Yield the fix if it changes nothing but the order of what the user sees."""
    finding, document = situation.finding, situation.document
    function = document.function_around(situation.line)
    if finding.kind is not Kind.GRAPH_BREAK or function is None:
        return
    statement = next((one for one in function.body if one.lineno == situation.line), None)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return
    below = function.body[function.body.index(statement) + 1 :]
    if not below or not _can_move(statement, below):
        return
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    moved = document.lines[first - 1 : last]
    if last < below[0].lineno:
        edits = replace_lines(document, first, last), *_at_the_end(document, function, moved)
        yield Fix(f"Move {document.source(statement.value.func)}(...) to the end of {function.name}", edits)


def _can_move(statement: ast.Expr, below: Sequence[ast.stmt]) -> bool:
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    last = below[-1]
    nested = [node for one in below for node in ast.walk(one) if isinstance(node, ast.Return) and node is not last]
    return not nested and not any(names & set(_changed(one)) for one in below)


def _changed(statement: ast.stmt) -> Iterator[str]:
    """Yield names that a statement binds, stores into, or calls a method of that works in place."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield _root(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_in_place(node.func.attr):
            yield _root(node.func)


def _is_in_place(name: str) -> bool:
    methods = ("append", "extend", "update", "clear", "pop", "insert", "remove", "sort", "reverse", "add", "setdefault")
    return name in methods or (name.endswith("_") and not name.endswith("__"))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _at_the_end(document: Document, function: Function, moved: Sequence[str]) -> Iterator[Edit]:
    last = function.body[-1]
    end = last.end_lineno or last.lineno
    if not isinstance(last, ast.Return):
        yield insert_lines(document, end + 1, *moved)
    elif last.value is None or isinstance(last.value, ast.Name | ast.Constant):
        yield insert_lines(document, last.lineno, *moved)
    else:
        name = _unused_name(function)
        indentation = document.indentation(last.lineno)
        value = document.source(last.value).splitlines()
        lines = [f"{indentation}{name} = {value[0]}", *value[1:], *moved, f"{indentation}return {name}"]
        yield replace_lines(document, last.lineno, end, *lines)


def _unused_name(function: Function) -> str:
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    names = (_RESULT, *(f"{_RESULT}_{number}" for number in range(2, 100)))
    return next(name for name in names if name not in used)
