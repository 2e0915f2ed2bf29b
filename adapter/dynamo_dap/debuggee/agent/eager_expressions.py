"""Evaluates Python expressions and statements over real values, in ordinary and generated frames.

Runs on the held thread. An expression runs as in Python, side effects included. The agent interrupts an ``evaluate``
request that takes too long.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import keyword
import types
from collections.abc import Callable, Iterator, Mapping, MutableMapping

from dynamo_dap.debuggee.agent.own_rank import NAME, extra_names
from dynamo_dap.debuggee.values.model import EvaluationError, Value
from dynamo_dap.debuggee.values.objects import stored_attribute
from dynamo_dap.debuggee.values.python_values import present
from dynamo_dap.debuggee.values.type_facts import kind_of, kinds_in
from dynamo_dap.protocol.wire.types import CompletionItem

_NOTHING = Value("", children=None)


def evaluate_python(
    expression: str,
    context: str,
    global_names: dict[str, object],
    local_names: MutableMapping[str, object],
    console: Callable[[str], None],
) -> Value:
    """Return the value of ``expression``; in the ``repl`` context, it may also be statements.

    What the expression prints goes to ``console``. Names that statements assign are added to ``local_names``.

    Raises:
        EvaluationError: the expression does not parse.
        Exception: whatever the expression raises.
    """
    tree = _parse(expression, allow_statements=context == "repl")
    with _printing_to(console):
        if isinstance(tree, ast.Expression):
            value = eval(_compiled(tree), *_names(global_names, local_names))
            return present(value, expression.strip())
        names, locals_ = _names(global_names, local_names)
        exec(_compiled(tree), names, locals_)
        local_names.update(locals_)
    return _NOTHING


def is_true_python(expression: str, global_names: dict[str, object], local_names: Mapping[str, object]) -> bool:
    """Return whether ``expression`` is true. Raises like ``evaluate_python``."""
    code = _compiled(_parse(expression, allow_statements=False))
    beside = extra_names(global_names, local_names) if NAME in code.co_names else {}
    return bool(eval(code, *_names({**beside, **global_names}, local_names)))


def _names(
    global_names: dict[str, object], local_names: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, object]]:
    if global_names is local_names:
        return global_names, global_names
    # Put the locals among the globals, too: comprehensions and lambdas in the expression see only these.
    together = {"__builtins__": builtins, **global_names, **local_names}
    return together, dict(local_names)


def _parse(expression: str, *, allow_statements: bool) -> ast.Expression | ast.Module:
    text = expression.strip()
    try:
        return ast.parse(text, "<expression>", "eval")
    except SyntaxError as error:
        if not allow_statements:
            raise EvaluationError(f"not a Python expression: {error.msg}") from None
    try:
        return ast.parse(text, "<statement>", "exec")
    except SyntaxError as error:
        raise EvaluationError(f"not valid Python: {error.msg}") from None


def _compiled(tree: ast.Expression | ast.Module) -> types.CodeType:
    return compile(tree, "<expression>", "eval" if isinstance(tree, ast.Expression) else "exec")


class _Console(io.TextIOBase):
    """A text file that passes all output to a function."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def write(self, text: str) -> int:
        self._write(text)
        return len(text)


@contextlib.contextmanager
def _printing_to(console: Callable[[str], None]) -> Iterator[None]:
    with contextlib.redirect_stdout(_Console(console)):
        yield


def complete_python(text: str, column: int, names: Mapping[str, object]) -> list[CompletionItem]:
    """Return completions of the name or attribute path that ends before the 1-based ``column``.

    Attributes come from the value's type and ``__dict__``; no property runs.
    """
    before = text[: column - 1]
    start = len(before)
    while start and (before[start - 1].isalnum() or before[start - 1] in "_."):
        start -= 1
    path, _dot, prefix = before[start:].rpartition(".")
    kinds = kinds_at(path, names) or {}
    found = [name for name in kinds if name.startswith(prefix) and (prefix.startswith("_") or not name.startswith("_"))]
    start, length = column - 1 - len(prefix), len(prefix)
    return [CompletionItem(label=name, start=start, length=length, type=kinds[name]) for name in found[:200]]


_MISSING = object()


def kinds_at(path: str, names: Mapping[str, object]) -> dict[str, str] | None:
    """Return the attributes of the object at the dotted ``path``, each with its DAP kind.

    For an empty path, return ``names``, builtins and keywords. Return None if no object is found without running a
    property.
    """
    if not path:
        known = {**vars(builtins), **names}
        kinds = {name: kind_of(known[name]) for name in dict.fromkeys((*names, *vars(builtins)))}
        return kinds | {name: "keyword" for name in keyword.kwlist if name not in kinds}
    first, *rest = path.split(".")
    value = names.get(first, vars(builtins).get(first, _MISSING))
    for name in rest:
        value = _MISSING if value is _MISSING else stored_attribute(value, name, _MISSING)
    return None if value is _MISSING else kinds_in(value)
