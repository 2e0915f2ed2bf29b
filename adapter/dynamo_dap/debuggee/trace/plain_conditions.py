"""Evaluates conditions that only compare plain constants, ``1 > 2`` or ``mask is None and layer == 3``, at little cost.

Such conditions run no code of the program or of torch. So the trace needs no protection, which takes most of the time
of a full evaluation. All other conditions are left to ``evaluation``. Runs on the tracing thread.
"""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Mapping
from dataclasses import dataclass

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import Known, Unrealized
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import is_tracker
from dynamo_dap.protocol.texts import NOT_PYTHON

_PLAIN: frozenset[type] = frozenset({bool, float, int, str, type(None)})
_COMPARING = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Tuple, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp),
    *(ast.cmpop, ast.boolop, ast.unaryop, ast.Add, ast.Sub, ast.Mod, ast.FloorDiv),
)
_MOST_BITS = 64
"""Limit for numbers: larger ones take time."""


@dataclass(frozen=True)
class _Condition:
    code: types.CodeType
    names: frozenset[str]
    has_remainder: bool
    """Whether it contains ``%``, which also formats strings and may then take long."""


def truth(frame: TracedFrame, condition: str, names: Mapping[str, object]) -> bool | None:
    """Return whether a condition holds; None if that needs the full evaluation.

    ``names`` can be used besides those of the frame.
    """
    compiled = _compiled(condition)
    if compiled is None:
        return None
    values: dict[str, object] = {}
    for name in compiled.names:
        value = names[name] if name in names else frame.lookup(name)
        if is_tracker(value):
            form = frame.form_of(value)
            value = form.value if isinstance(form, Known | Unrealized) else form
        if not _is_plain(value) or (compiled.has_remainder and type(value) is str):
            return None
        values[name] = value
    try:
        return bool(eval(compiled.code, {"__builtins__": {}}, values))
    except Exception:  # noqa: BLE001  (the full evaluation reports it)
        return None


def _is_plain(value: object) -> bool:
    return is_exactly(value, _PLAIN) and (type(value) is not int or int.bit_length(value) <= _MOST_BITS)


@functools.lru_cache(maxsize=256)
def _compiled(condition: str) -> _Condition | None:
    try:
        tree = ast.parse(condition.strip(), "<condition>", "eval")
    except NOT_PYTHON:
        return None
    nodes = list(ast.walk(tree))
    constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
    has_remainder = any(isinstance(node, ast.Mod) for node in nodes)
    if not all(isinstance(node, _COMPARING) for node in nodes) or not all(map(_is_plain, constants)):
        return None
    if has_remainder and any(isinstance(value, str) for value in constants):
        return None
    if any(_is_warned_of(node) for node in nodes if isinstance(node, ast.Compare)):
        return None
    names = frozenset(node.id for node in nodes if isinstance(node, ast.Name))
    return _Condition(compile(tree, "<condition>", "eval"), names, has_remainder)


def _is_warned_of(compared: ast.Compare) -> bool:
    """Return whether Python prints a warning when it compiles the comparison: ``x is 1``."""
    operands = [node.value for node in (compared.left, *compared.comparators) if isinstance(node, ast.Constant)]
    is_identity = any(isinstance(operator, ast.Is | ast.IsNot) for operator in compared.ops)
    return is_identity and not all(value is None or isinstance(value, bool) for value in operands)
