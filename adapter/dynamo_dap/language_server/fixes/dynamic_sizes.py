"""``torch._dynamo.mark_dynamic`` for a size that recompiles, before the call that was compiled first. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynamo_dap.language_server.document import Document, Function, first_line
from dynamo_dap.language_server.fixes.edits import Edit, Fix, Situation, insert_lines
from dynamo_dap.record.model import Compile

_SIZE = re.compile(
    r"tensor '(?P<name>[^\W\d]\w*)' size mismatch at index (?P<index>\d+)\. expected (?P<then>\d+), actual (?P<now>\d+)"
)


def fixes(situation: Situation) -> Iterator[Fix]:
    """Yield the fix, if the call and its argument are found."""
    failure = situation.finding.failure
    size = _SIZE.match(failure.expression) if failure else None
    if failure is None or size is None or min(int(size["then"]), int(size["now"])) < 2:
        # Sizes 0 and 1 are always compiled for themselves.
        return
    first = next((one for one in situation.finding.function.compiles if one.id == failure.compile_id), None)
    document = situation.document_of(first.caller) if first is not None and first.caller is not None else None
    if first is None or document is None:
        return
    argument = _argument(situation, document, first, size["name"])
    statement = document.statement_at(document.line_of(first.caller) or 0)
    if argument is not None and statement is not None:
        edits = tuple(_edits(document, statement, argument, size["name"], int(size["index"])))
        yield Fix(f"Mark size {size['index']} of {size['name']} as dynamic before the call", edits)


def _edits(document: Document, statement: ast.stmt, argument: ast.expr, name: str, index: int) -> Iterator[Edit]:
    line = first_line(statement)
    indentation = document.indentation(line)
    if isinstance(argument, ast.Name):
        yield insert_lines(document, line, f"{indentation}torch._dynamo.mark_dynamic({argument.id}, {index})")
        return
    scope = document.function_around(line) or document.tree or statement
    used = {node.id for node in ast.walk(scope) if isinstance(node, ast.Name)}
    variable = name if name not in used else f"{name}_input"
    yield insert_lines(
        document,
        line,
        f"{indentation}{variable} = {document.source(argument)}",
        f"{indentation}torch._dynamo.mark_dynamic({variable}, {index})",
    )
    first, last = argument.lineno, argument.end_lineno or argument.lineno
    start, end = document.column(first, argument.col_offset), document.column(last, argument.end_col_offset or 0)
    yield Edit(document, first, start, last, end, variable)


def _argument(situation: Situation, document: Document, first: Compile, name: str) -> ast.expr | None:
    """Return the expression that the call gives for a parameter."""
    place = situation.finding.function.place
    own = situation.document_of(place) if place is not None else None
    function = own.function_at(place) if own is not None else None
    statement = document.statement_at(document.line_of(first.caller) or 0)
    if function is None or statement is None or isinstance(statement, Function):
        return None
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    named = [call for call in calls if _name(call.func) == function.name]
    others = [call for call in calls if not document.source(call.func).startswith("torch.")]
    given = [_given(call, function, name) for call in [*named, *others]]
    return next((one for one in given if one is not None), None)


def _name(callee: ast.expr) -> str:
    return callee.id if isinstance(callee, ast.Name) else getattr(callee, "attr", "")


def _given(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if parameters[:1] == ["self"]:
        parameters = parameters[1:]
    if name not in parameters or any(isinstance(one, ast.Starred) for one in call.args):
        return None
    index = parameters.index(name)
    return call.args[index] if index < len(call.args) else None
