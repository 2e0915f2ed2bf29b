"""Marks a size that causes recompiles with ``torch._dynamo.maybe_mark_dynamic``, before the first compiled call.

Torch itself gives this advice: the mark has no effect if the size is specialized after all. Only tensors can be marked,
and a later call may pass something else, so each mark is below an ``isinstance``. The recompile shows which sizes share
a symbol; the fix marks all of them. There is no fix if the size became a constant again, or is tied to something that
is not an argument of the call. The functions have no side effects.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence

from dynamo_dap.fixes.document import Document, Function, first_line
from dynamo_dap.fixes.edits import Edit, Fix, Situation, insert_lines, is_alone, knows_torch
from dynamo_dap.records.model import TRACING, Compile

_SIZE = re.compile(
    r"tensor '(?P<name>[^\W\d]\w*)' size mismatch at index (?P<index>\d+)\. expected (?P<then>\d+), actual (?P<now>\d+)"
)
_SHAPE = re.compile(r"^\w+\[(?P<sizes>[^\[\]]*)\]")
_SYMBOL = re.compile(r"\bs\d+\b")
_MARK = "torch._dynamo.maybe_mark_dynamic"
_SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)
"""Statements that evaluate their parts once, from left to right."""
_CONDITIONAL_OR_REPEATED = (
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.BoolOp,
    ast.IfExp,
)


def fixes(situation: Situation) -> Iterator[Fix]:
    """Yield the fix, if the call and its arguments are found."""
    failure = situation.finding.failure
    size = _SIZE.match(failure.expression) if failure else None
    if failure is None or size is None or min(int(size["then"]), int(size["now"])) < 2:
        # Sizes 0 and 1 always get their own compile.
        return
    compiles = situation.finding.function.compiles
    first = next((one for one in compiles if one.id == failure.compile_id), None)
    tied = _tied(compiles, situation.finding.compiles[0], size["name"], int(size["index"]))
    document = situation.document_of(first.caller) if first is not None and first.caller is not None else None
    if first is None or document is None or tied is None:
        return
    line = document.line_of(first.caller) or 0
    statement = document.statement_at(line)
    if statement is None or isinstance(statement, Function) or not knows_torch(document, line):
        return
    call, parameters = _call(situation, document, statement, list(tied))
    if call is not None and not _may_not_run(statement, call):
        arguments = {name: parameters[name] for name in tied}
        edits = _edits(document, statement, arguments, tied)
        sizes = ", ".join(f"{_words(indices)} of {name}" for name, indices in tied.items())
        if edits:
            title = f"Mark {sizes} as dynamic before the call (maybe_mark_dynamic)"
            yield Fix(title, tuple(edits), follows=_MARK)


def _words(indices: Sequence[int]) -> str:
    return f"size{'s' if len(indices) > 1 else ''} {' and '.join(map(str, indices))}"


# -- what the record says ------------------------------------------------------------------------------------------


def _tied(compiles: Sequence[Compile], then: Compile, name: str, index: int) -> dict[str, list[int]] | None:
    """Return the sizes of parameters that share the size's symbol in ``then``, the compile that made it dynamic.

    None if a compile made the size constant, or if it is tied to something that is not a parameter.
    """
    if any(re.match(rf"(?:L\['{name}'\]|{name})\.size\(\)\[{index}\] == ", text) for text in _specialized(compiles)):
        return None
    shapes = {
        value.name: _sizes(value.text) for value in then.values if value.is_parameter and value.source == value.name
    }
    if then.state == TRACING and not shapes:
        # The debugger stopped in this compile: the sizes with the same symbol are not known yet, and one mark is safe.
        return {name: [index]}
    own = shapes.get(name, [])
    symbols = set(_SYMBOL.findall(own[index])) if index < len(own) else set()
    if not symbols:
        return None
    found = {
        one: [at for at, text in enumerate(sizes) if symbols & {*_SYMBOL.findall(text)}]
        for one, sizes in shapes.items()
    }
    tied = {one: indices for one, indices in found.items() if indices}
    return None if _is_tied_elsewhere(then, symbols, tied) else {name: tied.pop(name), **tied}


def _specialized(compiles: Sequence[Compile]) -> Iterator[str]:
    return (size.expression for one in compiles for size in one.specializations)


def _sizes(text: str) -> list[str]:
    shape = _SHAPE.match(text)
    return shape["sizes"].split(", ") if shape and shape["sizes"] else []


def _is_tied_elsewhere(then: Compile, symbols: set[str], parameters: dict[str, list[int]]) -> bool:
    """Return whether the first graph has another input with one of the symbols: a buffer, a global, a number."""
    inputs = [node for graph in then.graphs[:1] for node in graph.nodes if node.operation == "placeholder"]
    given = {f"L_{name}_" for name in parameters}
    return any(
        node.target.startswith(("L_", "G_"))
        and node.target not in given
        and symbols & {*_SYMBOL.findall(node.value or "")}
        for node in inputs
    )


# -- the call ------------------------------------------------------------------------------------------------------


def _call(
    situation: Situation, document: Document, statement: ast.stmt, names: Sequence[str]
) -> tuple[ast.Call | None, dict[str, ast.expr]]:
    """Return the call of the compiled function and its arguments ``names``; None for the call if it is ambiguous."""
    place = situation.finding.function.place
    own = situation.document_of(place) if place is not None else None
    function = own.function_at(place) if own is not None else None
    if function is None:
        return None, {}
    calls = [node for part in _parts_at(statement) for node in ast.walk(part) if isinstance(node, ast.Call)]
    given = [(call, {name: _given(call, function, name) for name in names}) for call in calls]
    whole = [(call, {**found}) for call, found in given if all(one is not None for one in found.values())]
    named = [one for one in whole if _name(one[0].func) == function.name]
    compiled = [one for one in whole if document.source(one[0].func) in _compiled_names(document)]
    others = [one for one in whole if not document.source(one[0].func).startswith("torch.")]
    for candidates in (named, compiled, others):
        if candidates:
            call, found = candidates[0]
            return (call, {name: one for name, one in found.items() if one}) if len(candidates) == 1 else (None, {})
    return None, {}


def _parts_at(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the parts of a statement in its own line, without the blocks below it."""
    for _, value in ast.iter_fields(statement):
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST) and not isinstance(one, ast.stmt | ast.excepthandler):
                yield one


def _compiled_names(document: Document) -> set[str]:
    """Return the names that are bound to a result of ``torch.compile``, or whose ``compile`` method is called."""
    found = set()
    for node in ast.walk(document.tree or ast.Module([], [])):
        if isinstance(node, ast.Assign) and "compile(" in document.source(node.value):
            found |= {document.source(target) for target in node.targets}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "compile":
            found.add(document.source(node.func.value))
    return found


def _name(callee: ast.expr) -> str:
    return callee.id if isinstance(callee, ast.Name) else getattr(callee, "attr", "")


def _given(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if parameters[:1] == ["self"]:
        parameters = parameters[1:]
    if name not in parameters or any(isinstance(arg, ast.Starred) for arg in call.args):
        return None
    index = parameters.index(name)
    return call.args[index] if index < len(call.args) else None


def _may_not_run(statement: ast.stmt, call: ast.Call) -> bool:
    """Return whether a statement may run the call never or repeatedly: its names may not exist before the statement."""
    return any(
        isinstance(node, _CONDITIONAL_OR_REPEATED) and any(one is call for one in ast.walk(node))
        for node in ast.walk(statement)
    )


# -- the edits -----------------------------------------------------------------------------------------------------


def _edits(
    document: Document, statement: ast.stmt, arguments: dict[str, ast.expr], tied: dict[str, list[int]]
) -> list[Edit]:
    """Return the edits; none if they would change the order of evaluation."""
    line = first_line(statement)
    indentation = document.indentation(line)
    before = document.text(line)[: document.column(line, statement.col_offset)]
    if before.strip() or isinstance(statement, ast.While):
        return []
    lines: list[str] = []
    edits: list[Edit] = []
    marks: dict[str, list[int]] = {}
    scope = document.function_around(line) or document.tree or statement
    used = {node.id for node in ast.walk(scope) if isinstance(node, ast.Name)}
    for name, argument in sorted(arguments.items(), key=lambda item: (item[1].lineno, item[1].col_offset)):
        variable = argument.id if isinstance(argument, ast.Name) else None
        if variable is None:
            if not _comes_first(statement, argument, list(arguments.values())) or not is_alone(document, statement):
                return []
            variable = next(one for one in _names(name) if one not in used)
            used.add(variable)
            lines.append(f"{indentation}{variable} = {document.source(argument)}")
            edits.append(_replacement(document, argument, variable))
        marks[variable] = [*marks.get(variable, []), *tied[name]]
    inner = indentation + ("\t" if indentation.endswith("\t") else "    ")
    for variable, indices in marks.items():
        lines.append(f"{indentation}if isinstance({variable}, torch.Tensor):")
        lines += [f"{inner}{_MARK}({variable}, {index})" for index in dict.fromkeys(indices)]
    return [insert_lines(document, line, *lines), *edits]


def _names(name: str) -> Iterator[str]:
    yield name
    yield f"{name}_input"
    yield from (f"{name}_input_{number}" for number in itertools.count(2))


def _comes_first(statement: ast.stmt, argument: ast.expr, moved: Sequence[ast.expr]) -> bool:
    """Return whether every call before an argument moves with it, so that side effects keep their order."""
    if not isinstance(statement, _SIMPLE):
        return False
    start = argument.lineno, argument.col_offset
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call | ast.Await | ast.Yield | ast.NamedExpr)]
    for node in calls:
        is_around = any(one is argument for one in ast.walk(node))
        is_moved = any(one is node for other in moved for one in ast.walk(other))
        if (node.lineno, node.col_offset) < start and not is_around and not is_moved:
            return False
    return True


def _replacement(document: Document, argument: ast.expr, variable: str) -> Edit:
    first, last = argument.lineno, argument.end_lineno or argument.lineno
    start, end = document.column(first, argument.col_offset), document.column(last, argument.end_col_offset or 0)
    return Edit(document, first, start, last, end, variable)
