"""Applies debugpy's exception filters to exceptions that are raised while Dynamo traces.

debugpy does not see these: Dynamo models the traced code's exceptions and passes them between the traced functions.
Whether debugpy would have stopped in ordinary Python depends on the exception's handlers: in the traced functions, and
in the Python code below them. A handler is found in the source, so that every version of Python gives the same answer;
without the source, no exception counts as caught. The module looks names up and calls no code of the program. If a
handler's type is not a dotted name but a longer expression, only its last name is compared. Runs on the tracing thread,
and keeps nothing.
"""

from __future__ import annotations

import ast
import builtins
import functools
import linecache
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynamo_dap.debuggee.agent.engine import RAISED, UNCAUGHT, USER_UNHANDLED
from dynamo_dap.debuggee.agent.user_code import is_debugger_file, is_torch_file, is_user_file
from dynamo_dap.debuggee.bytecode.exact_types import has_base, is_a, is_one_of
from dynamo_dap.debuggee.torch_api.compiles.errors import is_machinery
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.protocol.texts import NOT_PYTHON

PYTHON_FILTERS = frozenset({RAISED, USER_UNHANDLED, UNCAUGHT})

_IGNORED = (StopIteration, StopAsyncIteration, GeneratorExit)
"""Exceptions for which debugpy does not stop: they end loops."""


@dataclass(frozen=True, slots=True)
class _Running:
    """A function on the stack, traced or running."""

    code: types.CodeType
    line: int
    names: Sequence[Mapping[str, object]]

    @property
    def is_user_code(self) -> bool:
        return is_user_file(self.code.co_filename)

    def catches(self, kind: type[BaseException]) -> bool:
        # Torch's own frames raise the program's exceptions again.
        return not is_torch_file(self.code.co_filename) and is_caught(self.code, self.line, self.names, kind)


def filters_met(
    chain: Sequence[TracedFrame], below: types.FrameType | None, kind: type[BaseException]
) -> frozenset[str]:
    """Return the filters that stop for an exception of ``kind`` that leaves the trace.

    ``chain`` has the traced functions, innermost first; none of them catches the exception. ``below`` is the Python
    frame that called the compiled function.
    """
    if issubclass(kind, _IGNORED):
        return frozenset()
    stack = [*_traced(chain), *_running(below)]
    left = len(stack)
    for index, running in enumerate(stack):
        if index >= len(chain) and running.catches(kind):
            left = index
            break
    met = {RAISED, *([UNCAUGHT] if left == len(stack) else [])}
    passed = stack[:left]
    followed_by = [*stack[1:], None]
    for running, caller in zip(passed, followed_by, strict=False):
        if running.is_user_code and (caller is None or not caller.is_user_code):
            met.add(USER_UNHANDLED)
    return frozenset(met)


def is_caught_in_trace(chain: Sequence[TracedFrame], kind: type[BaseException]) -> bool:
    """Return whether a traced function catches an exception of ``kind`` that the innermost has raised."""
    return not issubclass(kind, _IGNORED) and any(running.catches(kind) for running in _traced(chain))


def _traced(chain: Sequence[TracedFrame]) -> Iterator[_Running]:
    for frame in chain:
        yield _Running(frame.code, frame.line, (frame.globals,))


def _running(frame: types.FrameType | None) -> Iterator[_Running]:
    """Yield the Python frames, without the machinery of Dynamo and of the debugger."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_bootstrap_inner" and frame.f_globals.get("__name__") == "threading":
            # ``threading`` only reports an exception that ends a thread: that does not count as a handler.
            return
        if not is_debugger_file(code.co_filename) and not is_machinery(frame):
            yield _Running(code, frame.f_lineno or 1, (frame.f_locals, frame.f_globals))
        frame = frame.f_back


_SUPPRESSING = frozenset({"suppress", "raises", "assertRaises", "assertRaisesRegex"})
"""Context managers that swallow exceptions: the standard library's, pytest's and unittest's."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def is_caught(
    code: types.CodeType, line: int, names: Sequence[Mapping[str, object]], kind: type[BaseException]
) -> bool:
    """Return whether ``code`` catches an exception of ``kind`` at ``line``, and does not raise it again.

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
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if code.co_firstlineno in (first, node.lineno):
                return node.body
    # A lambda or a comprehension has no statements.
    return None


@functools.lru_cache(maxsize=32)
def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except NOT_PYTHON:
        return None


def _catches(body: Sequence[ast.stmt], line: int, names: Sequence[Mapping[str, object]], kind: type) -> bool:
    statement = next((each for each in body if each.lineno <= line <= (each.end_lineno or each.lineno)), None)
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
    return any(not _raises_again(each) for each in list(matching)[:1])


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
    value = _value(wanted, names)
    if is_a(value, type):
        return has_base(kind, value)
    if is_a(value, tuple):
        return any(has_base(kind, cls) for cls in tuple.__iter__(value) if is_a(cls, type))
    return _last_name(wanted) in {cls.__name__ for cls in kind.__mro__}


def _last_name(expression: ast.expr) -> str | None:
    return getattr(expression, "attr", None) or getattr(expression, "id", None)


def _value(expression: ast.expr, names: Sequence[Mapping[str, object]]) -> object:
    """Return the object of a dotted name; None if it is unknown."""
    if isinstance(expression, ast.Name):
        return next((space[expression.id] for space in names if expression.id in space), None)
    if isinstance(expression, ast.Attribute):
        owner = _value(expression.value, names)
        if is_one_of(owner, (types.ModuleType, type)):
            return vars(owner).get(expression.attr)
    return None
