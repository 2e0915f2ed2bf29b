"""Fixes graph breaks; each fix is offered only if the record says that it helps. It has no side effects.

- a call of ``torch._dynamo.graph_break()`` is removed;
- a setting that torch's hint names is set below the imports;
- ``torch._check`` is added before a data-dependent branch that went the same way in every recorded call;
- the fixes of ``data_dependence``, if the record does not show which way such a branch went;
- an inlined function with a break runs eagerly (``@torch.compiler.disable``), if it got graphs of its own;
- a call that prints or logs moves to the end of its function: the graph stays whole.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from dynamo_dap.fixes.data_dependence import fixes_of_condition, opposite
from dynamo_dap.fixes.document import Document, Function, first_line
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
from dynamo_dap.fixes.findings import Kind
from dynamo_dap.protocol.requests.branches import CAPTURING_SETTINGS
from dynamo_dap.protocol.texts import NOT_PYTHON
from dynamo_dap.records.model import Compile, Graph, GraphBreak, Node


def fixes(situation: Situation) -> Iterator[Fix]:
    """Yield possible fixes of a graph break."""
    found = situation.finding.graph_break
    if situation.finding.kind is not Kind.GRAPH_BREAK or found is None:
        return
    yield from _set(situation, found)
    if situation.finding.is_of_library:
        # The break is in a library: the user's line only contains the call into it.
        return
    yield from _removed(situation)
    promised = list(_promised(situation, found))
    yield from promised or fixes_of_condition(situation, found)
    yield from _disabled(situation)
    yield from _moved(situation)


# -- torch._dynamo.graph_break() -----------------------------------------------------------------------------------


def _removed(situation: Situation) -> Iterator[Fix]:
    document = situation.document
    statement = document.statement_at(situation.line)
    if not isinstance(statement, ast.Expr) or not _is_graph_break(document, statement.value):
        return
    if not is_alone(document, statement):
        return
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    block = next(
        (
            block
            for node in ast.walk(document.tree or ast.Module([], []))
            for block in _blocks(node)
            if statement in block
        ),
        [],
    )
    lines = [f"{document.indentation(first)}pass"] if len(block) == 1 else []
    title = f"Remove {document.source(statement.value)}"
    yield Fix(title, (replace_lines(document, first, last, *lines),), follows="torch._dynamo.graph_break()")


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def _is_graph_break(document: Document, call: ast.expr) -> bool:
    if not isinstance(call, ast.Call):
        return False
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return document.source(call.func) in ("torch._dynamo.graph_break", "_dynamo.graph_break", "graph_break") and all(
        isinstance(one, ast.Constant) for one in given
    )


# -- settings that torch's hints name ------------------------------------------------------------------------------

_SETTINGS = tuple(f"torch._dynamo.config.{name} = True" for name in CAPTURING_SETTINGS)
_SCALARS = _SETTINGS[0]
_LOGGING = "torch._dynamo.config.reorderable_logging_functions"
_TRACKER = re.compile(r"<class '[\w.]*\.(\w+)'>")
_REORDERABLE = frozenset({"TensorVariable", "ConstantVariable", "StringFormatVariable"})
"""The arguments that torch can pass to a function that runs after the graph."""
_BUILTIN = re.compile(r"builtin operator `(?P<name>print)`")


def _set(situation: Situation, found: GraphBreak) -> Iterator[Fix]:
    document = situation.document
    line = below_imports(document)
    if line is None:
        return
    hints = "\n".join(found.hints)
    for setting in _SETTINGS:
        if setting in hints and not (setting == _SCALARS and _is_branched_on(situation)):
            yield Fix(f"Set {setting}", (insert_lines(document, line, setting),), follows=setting)
    function = _BUILTIN.search(found.explanation or "")
    statement = document.statement_at(situation.line)
    takes = _TRACKER.findall(found.context or "")
    can_wait = set(takes) <= _REORDERABLE and _can_print_later(situation, statement)
    if _LOGGING in hints and function is not None and can_wait:
        text = f"{_LOGGING}.add({function['name']})"
        title = f"Let Dynamo run {function['name']} after the graph (reorderable_logging_functions)"
        yield Fix(title, (insert_lines(document, line, text),), follows=_LOGGING)


def _can_print_later(situation: Situation, statement: ast.stmt | None) -> bool:
    """Return whether a ``print`` after the graph has the same output: no operation works in place.

    Never in an inlined function: there torch 2.13 prints the caller's result instead of the function's argument.
    """
    if len(situation.finding.stack) > 1:
        return False
    return isinstance(statement, ast.Expr) and not any(
        _is_in_place(node)
        for compiled in _parts(situation)
        for graph in compiled.graphs
        for node in graph.nodes
        if node.operation != "placeholder"
    )


def _is_branched_on(situation: Situation) -> bool:
    """Return whether the program branches on the captured number; the graph would then break at that branch."""
    document = situation.document
    statement = document.statement_at(situation.line)
    function = document.function_around(situation.line)
    if isinstance(statement, ast.If | ast.While | ast.Assert):
        return True
    if not isinstance(statement, ast.Assign) or function is None:
        return False
    names = {node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    tests = [node.test for node in ast.walk(function) if isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp)]
    return any(isinstance(node, ast.Name) and node.id in names for test in tests for node in ast.walk(test))


# -- torch._check --------------------------------------------------------------------------------------------------


def _promised(situation: Situation, found: GraphBreak) -> Iterator[Fix]:
    document = situation.document
    statement = document.statement_at(situation.line)
    if not _is_about_a_number(found) or not isinstance(statement, ast.If | ast.Assert):
        return
    starts = document.text(statement.lineno).lstrip().startswith(("if", "assert"))
    held = _constant_outcome(situation, statement)
    if not starts or held is None or not knows_torch(document, statement.lineno):
        return
    condition = document.source(statement.test) if held else opposite(document, statement.test)
    check = f"torch._check({condition})"
    edit = insert_lines(document, statement.lineno, f"{document.indentation(statement.lineno)}{check}")
    yield Fix(f"Add {check}: true in every recorded call; raises otherwise", (edit,))


def _is_about_a_number(found: GraphBreak) -> bool:
    """Return whether the branch is on a symbolic number: ``torch._check`` cannot assert anything about a tensor."""
    context, message = found.context or "", found.message or ""
    return "SymNodeVariable" in context or "Could not guard on data-dependent expression" in message


def _constant_outcome(situation: Situation, statement: ast.If | ast.Assert) -> bool | None:
    """Return which way the branch always went; None if it went both ways, or if that is unknown."""
    if isinstance(statement, ast.Assert):
        return True if _rest(situation) else None
    body = range(statement.body[0].lineno, (statement.body[-1].end_lineno or 0) + 1)
    ways = set()
    for compiled in _rest(situation):
        traced = [
            line for one in compiled.traced for line in one.traced if one.place == situation.finding.function.place
        ]
        now = [line for line in map(situation.document.now, traced) if line is not None]
        others = [line for line in now if line not in body and line != situation.line]
        if any(line in body for line in now):
            ways.add(True)
        elif others:
            ways.add(False)
    return ways.pop() if len(ways) == 1 else None


# -- torch.compiler.disable ----------------------------------------------------------------------------------------

_DECORATOR = "@torch.compiler.disable"
_DESCRIPTORS = frozenset(
    {"property", "cached_property", "classmethod", "staticmethod", "abstractmethod", "setter", "getter", "deleter"}
)
"""Decorators that do not return a function: the new decorator must be below them."""


def _disabled(situation: Situation) -> Iterator[Fix]:
    """Offer to disable an inlined function that got graphs of its own. This saves them, not the break at the call."""
    document = situation.document
    function = document.function_around(situation.line)
    if not isinstance(function, ast.FunctionDef) or not _is_inlined(situation, function):
        return
    decorators = [document.source(one) for one in function.decorator_list]
    if any("compile" in text for text in decorators) or not knows_torch(document, first_line(function)):
        return
    graphs = _graphs_of(situation, function)
    if graphs == 0 or _is_generator(function):
        return
    line = _line_of_decorator(function, decorators)
    text = f"{document.indentation(line)}{_DECORATOR}"
    saved = f"saves {graphs} graph{'s' if graphs > 1 else ''}"
    title = f"Disable compiling {function.name} ({_DECORATOR}): {saved}; callers still break at the call"
    yield Fix(title, (insert_lines(document, line, text),))


def _line_of_decorator(function: ast.FunctionDef, decorators: Sequence[str]) -> int:
    """Return the line for a new decorator: below every decorator that does not return a function."""
    line = first_line(function)
    for node, text in zip(function.decorator_list, decorators, strict=True):
        if text.split("(")[0].split(".")[-1] in _DESCRIPTORS:
            line = (node.end_lineno or node.lineno) + 1
    return line


def _is_generator(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))


def _is_inlined(situation: Situation, function: Function) -> bool:
    """Return whether a caller that inlined ``function`` broke in it, so that Dynamo compiles it separately."""
    stacks = [other.stack for other in situation.others if len(other.stack) > 1]
    inside = range(first_line(function), (function.end_lineno or function.lineno) + 1)
    return any(situation.document.line_of(stack[-1].place) in inside for stack in stacks)


def _graphs_of(situation: Situation, function: Function) -> int:
    """Return the number of graphs with operations in a function's own compiles."""
    lines = (first_line(function), function.lineno)
    return sum(
        _computes(graph)
        for known in situation.record.functions
        if situation.document.line_of(known.place) in lines
        for compiled in known.compiles
        for graph in compiled.graphs
    )


# -- moving --------------------------------------------------------------------------------------------------------

_RESULT = "result"
_LEVELS = frozenset({"debug", "info", "warning", "warn", "error", "critical", "exception", "log"})
_READING = frozenset(
    {
        "shape",
        "dtype",
        "device",
        "ndim",
        "requires_grad",
        "is_cuda",
        "size",
        "dim",
        "numel",
        "item",
        "tolist",
        "sum",
        "mean",
        "max",
        "min",
        "std",
        "var",
        "norm",
        "abs",
        "detach",
        "cpu",
        "float",
        "double",
        "int",
        "any",
        "all",
        "isnan",
        "isinf",
        "isfinite",
        "format",
    }
)
"""Attributes and methods of tensors and texts that change nothing."""
_TENSOR = re.compile(r"(?:b|[iu]\d+|bf16|f\d+\w*|c\d+)8?\[.*\]$")


def _moved(situation: Situation) -> Iterator[Fix]:
    document = situation.document
    function = document.function_around(situation.line)
    stack = situation.finding.stack
    if not isinstance(function, ast.FunctionDef) or len(stack) > 1:
        # At the end of an inlined function the statement would still cut the caller's graph.
        return
    statement = next((one for one in function.body if one.lineno == situation.line), None)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return
    below = function.body[function.body.index(statement) + 1 :]
    if not below or not is_alone(document, statement) or not is_alone(document, below[-1]):
        return
    if not _only_reports(document, statement.value) or not _can_move(situation, statement, below):
        return
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    moved = document.lines[first - 1 : last]
    edits = replace_lines(document, first, last), *_at_the_end(document, function, moved)
    called = document.source(statement.value.func)
    yield Fix(f"Move {called}(...) to the end of {function.name}: the graph stays whole", edits)


def _only_reports(document: Document, call: ast.Call) -> bool:
    """Return whether a call only prints or logs, and its arguments have no side effects."""
    text = document.source(call.func)
    if text == "print":
        known = not _is_bound(document, "print")
    elif text in ("warnings.warn", "sys.stdout.write", "sys.stderr.write"):
        known = True
    else:
        owner, _, method = text.rpartition(".")
        known = method in _LEVELS and (owner == "logging" or _is_logger(document, owner))
    keywords = all(isinstance(keyword.value, ast.Constant) for keyword in call.keywords)
    return known and keywords and all(_is_plain(arg) for arg in call.args)


def _is_bound(document: Document, name: str) -> bool:
    for node in ast.walk(document.tree or ast.Module([], [])):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            return True
        if isinstance(node, Function | ast.ClassDef) and node.name == name:
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name) in (name, "*"):
            return True
    return False


def _is_logger(document: Document, owner: str) -> bool:
    """Return whether a name is bound to a result of ``logging.getLogger``."""
    return any(
        isinstance(node, ast.Assign)
        and owner in [document.source(target) for target in node.targets]
        and isinstance(node.value, ast.Call)
        and document.source(node.value.func) in ("logging.getLogger", "getLogger")
        for node in ast.walk(document.tree or ast.Module([], []))
    )


def _is_plain(node: ast.expr) -> bool:
    """Return whether an expression has only names, constants, and attributes and methods in ``_READING``."""
    match node:
        case ast.Constant() | ast.Name():
            return True
        case ast.JoinedStr(values=parts):
            return all(_is_plain(part.value if isinstance(part, ast.FormattedValue) else part) for part in parts)
        case ast.BinOp(left=left, right=right):
            return _is_plain(left) and _is_plain(right)
        case ast.Tuple(elts=items):
            return all(map(_is_plain, items))
        case ast.Attribute(value=value, attr=name):
            return name in _READING and _is_plain(value)
        case ast.Subscript(value=value, slice=index):
            return isinstance(index, ast.Constant) and _is_plain(value)
        case ast.Call(func=ast.Attribute() as callee, args=args, keywords=[]):
            return _is_plain(callee) and all(map(_is_plain, args))
        case _:
            return False


def _can_move(situation: Situation, statement: ast.Expr, below: Sequence[ast.stmt]) -> bool:
    called = {id(node) for node in ast.walk(statement.value.func)} if isinstance(statement.value, ast.Call) else set()
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and id(node) not in called}
    last = below[-1]
    leaves = (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await)
    nested = [node for one in below for node in ast.walk(one) if isinstance(node, leaves) and node is not last]
    if nested or any(names & set(_changed(one)) for one in below):
        return False
    return all(_never_changes(situation, name) for name in names) and _graph_is_cut(situation)


def _never_changes(situation: Situation, name: str) -> bool:
    """Return whether a name was a tensor or a constant in every compile."""
    texts = [value.text for one in _parts(situation) for value in one.values if value.name == name]
    return bool(texts) and all(_TENSOR.match(text) or _is_constant(text) for text in texts)


def _is_constant(text: str) -> bool:
    try:
        return isinstance(ast.literal_eval(text), int | float | complex | str | bytes | None)
    except NOT_PYTHON:
        return re.fullmatch(r"[\w\s+*/().-]*\bs\d+\b[\w\s+*/().-]*", text) is not None


def _graph_is_cut(situation: Situation) -> bool:
    """Return whether both sides of the break have operations, and no operation after the break works in place."""
    rest = _rest(situation)
    if not rest or any(one.breaks for one in rest):
        return False
    graphs = [graph for one in rest for graph in one.graphs]
    if any(len(graph.nodes) < graph.node_count or any(map(_is_in_place, graph.nodes)) for graph in graphs):
        return False
    above = [graph for one in situation.finding.compiles for graph in one.graphs]
    return any(map(_computes, graphs)) and any(map(_computes, above))


def _computes(graph: Graph) -> bool:
    return any(node.operation.startswith("call_") for node in graph.nodes)


def _is_in_place(node: Node) -> bool:
    name, expression = node.target.rpartition(".")[2], node.expression or ""
    if node.operation in ("placeholder", "output", "get_attr"):
        return False
    return (
        (name.endswith("_") and not name.endswith("__"))
        or (node.target.startswith(("operator.i", "_operator.i")) and name not in ("inv", "invert", "index", "indexOf"))
        or name in ("setitem", "delitem")
        or re.search(r"inplace\s*=\s*True|\bout\s*=|, True\)$", expression) is not None
    )


def _parts(situation: Situation) -> list[Compile]:
    """Return every compile of the finding's function and of its resume functions."""
    return situation.finding.function.compiles


def _rest(situation: Situation) -> list[Compile]:
    """Return the compiles of the resume functions after the break."""
    ending = f"(resumed at line {situation.finding.place.line})"
    return [one for one in _parts(situation) if one.name.endswith(ending)]


def _changed(statement: ast.stmt) -> Iterator[str]:
    """Yield names that a statement binds, stores into, or changes by an in-place method."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield _root(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _works_in_place(node.func.attr):
            yield _root(node.func)


def _works_in_place(name: str) -> bool:
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
    used |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    names = (_RESULT, *(f"{_RESULT}_{number}" for number in range(2, 100)))
    return next(name for name in names if name not in used)
