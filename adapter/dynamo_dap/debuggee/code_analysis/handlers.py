"""Whether an exception that reaches a line of a function is caught in that function.

Decided from the source, so that it is the same for every version of Python, and for traced functions as for those that
run; without the source nothing counts as caught. No code of the program is called: names are looked up, and of an
expression that is more than names and attributes only the last name counts. Pure; any thread.
"""

from __future__ import annotations

import ast
import builtins
import functools
import linecache
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SUPPRESSING = frozenset({"suppress", "raises", "assertRaises", "assertRaisesRegex"})
"""Context managers that swallow the exceptions they are given: the standard library's, pytest's and unittest's."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def is_caught(
    code: types.CodeType, line: int, names: Sequence[Mapping[str, object]], kind: type[BaseException]
) -> bool:
    """Whether ``code`` catches an exception of ``kind`` that reaches its ``line``, and does not raise it again.

    ``names`` are the namespaces of the function, the innermost first.
    """
    body = _body(code)
    return body is not None and _catches(body, line, (*names, vars(builtins)), kind)


def _body(code: types.CodeType) -> list[ast.stmt] | None:
    tree = _tree("".join(linecache.getlines(code.co_filename)))
    if tree is None or code.co_name == "<module>":
        return None if tree is None else tree.body
    for node in ast.walk(tree):
        if isinstance(node, _Function) and node.name == code.co_name:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if code.co_firstlineno in (first, node.lineno):
                return node.body
    # A lambda or a comprehension has no statements.
    return None


@functools.lru_cache(maxsize=32)
def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _catches(body: Sequence[ast.stmt], line: int, names: Sequence[Mapping[str, object]], kind: type) -> bool:
    statement = next((one for one in body if one.lineno <= line <= (one.end_lineno or one.lineno)), None)
    if statement is None or isinstance(statement, _Function):
        return False
    if any(_catches(inner, line, names, kind) for inner in _blocks(statement)):
        return True
    if isinstance(statement, ast.With | ast.AsyncWith):
        return _is_in(statement.body, line) and any(
            _suppresses(item.context_expr, names, kind) for item in statement.items
        )
    handlers: list[ast.ExceptHandler] | None = getattr(statement, "handlers", None)
    if handlers is None or not _is_in(getattr(statement, "body", []), line):
        return False
    matching = (handler for handler in handlers if handler.type is None or _matches(handler.type, names, kind))
    return any(not _raises_again(one) for one in list(matching)[:1])


def _blocks(statement: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        block = getattr(statement, field, None)
        if isinstance(block, list):
            yield block
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def _is_in(body: Sequence[ast.stmt], line: int) -> bool:
    return body[0].lineno <= line <= (body[-1].end_lineno or body[-1].lineno)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    if not isinstance(last, ast.Raise):
        return False
    return last.exc is None or (isinstance(last.exc, ast.Name) and last.exc.id == handler.name)


def _suppresses(manager: ast.expr, names: Sequence[Mapping[str, object]], kind: type) -> bool:
    if not isinstance(manager, ast.Call) or _last_name(manager.func) not in _SUPPRESSING:
        return False
    return any(_matches(arg, names, kind) for arg in manager.args)


def _matches(wanted: ast.expr, names: Sequence[Mapping[str, object]], kind: type) -> bool:
    if isinstance(wanted, ast.Tuple):
        return any(_matches(element, names, kind) for element in wanted.elts)
    found = _value(wanted, names)
    if isinstance(found, type):
        return found in kind.__mro__
    if isinstance(found, tuple):
        return any(one in kind.__mro__ for one in found if isinstance(one, type))
    return _last_name(wanted) in {one.__name__ for one in kind.__mro__}


def _last_name(expression: ast.expr) -> str | None:
    return getattr(expression, "attr", None) or getattr(expression, "id", None)


def _value(expression: ast.expr, names: Sequence[Mapping[str, object]]) -> Any:
    """Return what a dotted name stands for; None when that cannot be told."""
    if isinstance(expression, ast.Name):
        return next((space[expression.id] for space in names if expression.id in space), None)
    if isinstance(expression, ast.Attribute):
        owner = _value(expression.value, names)
        if isinstance(owner, types.ModuleType | type):
            return vars(owner).get(expression.attr)
    return None
