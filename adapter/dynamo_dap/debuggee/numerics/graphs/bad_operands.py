"""Names the operands that caused a NaN or Inf: ``mask.sum(-1)[2] is 0``.

This works for elementwise operations only, where each element of the result comes from one element of each operand.
Runs on the thread that makes the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.graphs.graph import target_name
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_tensor
from dynamo_dap.debuggee.torch_api.isolation import data_reading
from dynamo_dap.debuggee.torch_api.objects import Node
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import storage_of
from dynamo_dap.debuggee.values.tensors import number_text

_DIVISIONS = frozenset(
    {"truediv", "div", "divide", "true_divide", "floordiv", "floor_divide", "remainder", "fmod", "mod"}
)
_ELEMENTWISE = _DIVISIONS | {
    *("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "acos", "asin", "acosh", "atanh", "logit", "tan"),
    *("exp", "exp2", "expm1", "sinh", "cosh", "square", "pow", "float_power", "mul", "multiply", "add", "sub", "xlogy"),
}
_INFIX = {"truediv": "/", "mul": "*", "add": "+", "sub": "-", "pow": "**", "floordiv": "//", "mod": "%", "matmul": "@"}
_LONGEST = 80
_DEPTH = 5


@dataclass(frozen=True, eq=False)
class BadOperand:
    """An operand, and the element of it that caused a NaN or Inf in the result."""

    node: Node
    index: Sequence[int]
    """The element's index."""
    text: str
    """The element's value."""


def bad_operands(
    node: Node, value: object, index: Sequence[int], results: Mapping[Node, object]
) -> tuple[BadOperand, ...]:
    """Return the operands of ``node``, each with the element from which the result's element at ``index`` was computed.

    For a division by 0, return only the divisor. Return nothing if the elements are unknown, as those of an operand
    that was overwritten.
    """
    short = _short_name(node)
    given = list(node.args)
    is_known = short in _ELEMENTWISE and not node.kwargs
    nodes = dict.fromkeys(each for each in given if hasattr(each, "op")) if is_known else {}
    found = []
    with data_reading():
        for each in nodes:
            element = _element(results[each], value, index, results[node])
            if element is None:
                return ()
            found.append((each, *element))
    if short in _DIVISIONS and len(given) > 1:
        zeros = [one for one in found if one[0] is given[1] and one[2] == 0]
        found = zeros or found
    return tuple(BadOperand(each, at, "0" if number == 0 else text) for each, at, number, text in found)


def _element(operand: object, value: Any, index: Sequence[int], result: object) -> tuple[list[int], object, str] | None:
    if not is_tensor(operand) or not has_own_memory(operand) or operand.is_complex() or value.is_complex():
        return None
    if not has_own_memory(result) or storage_of(operand) == storage_of(result):
        return None
    try:
        operand.detach().expand(value.shape)
    except RuntimeError:  # it does not broadcast to the result
        return None
    own = list(index)[len(index) - operand.dim() :]
    at = [0 if size == 1 else place for size, place in zip(operand.shape, own, strict=True)]
    number = operand.detach()[tuple(at)].item()
    return at, number, number_text(number, str(operand.dtype))


def _short_name(node: Node) -> str:
    return target_name(node).rpartition(".")[2].rstrip("_")


def expression_text(node: Node, names: Mapping[Node, str]) -> str:
    """Return a node as a Python expression, such as ``mask.sum(-1)``; if that is too long, return the node's name."""
    text = _expression(node, names, _DEPTH)
    return str(node.name) if text is None or len(text) > _LONGEST else text


def _expression(node: Node, names: Mapping[Node, str], depth: int) -> str | None:
    if node in names:
        return names[node]
    if depth == 0 or node.op not in ("call_method", "call_function"):
        return None
    parts = [_part(each, names, depth - 1) for each in node.args]
    named = [(name, _part(each, names, depth - 1)) for name, each in node.kwargs.items()]
    if any(part is None for part in (*parts, *(part for _, part in named))):
        return None
    texts = [*map(str, parts), *(f"{name}={part}" for name, part in named)]
    short = _short_name(node)
    if node.op == "call_method" and texts:
        return f"{texts[0]}.{node.target}({', '.join(texts[1:])})"
    if short == "getitem" and len(texts) == 2:
        return f"{texts[0]}[{texts[1]}]"
    if short == "neg" and len(texts) == 1:
        return f"(-{texts[0]})"
    if short in _INFIX and len(texts) == 2:
        return f"({texts[0]} {_INFIX[short]} {texts[1]})"
    return f"{target_name(node)}({', '.join(texts)})"


def _part(each: Any, names: Mapping[Node, str], depth: int) -> str | None:
    if is_exactly(each, (int, float, bool, str, type(None))):
        return repr(each)
    if type(each) is slice and each.step is None:
        ends = [end for end in (each.start, each.stop) if end is not None and type(end) is not int]
        return None if ends else ":".join("" if end is None else str(end) for end in (each.start, each.stop))
    return _expression(each, names, depth) if hasattr(each, "op") else None
