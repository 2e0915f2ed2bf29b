"""Classifies an operation of a graph: torch's own, a custom operator, a collective, or one with only side effects.

It has no side effects.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from dynamo_dap.debuggee.torch_api.graphs.graph import example_of, is_node, target_name
from dynamo_dap.debuggee.torch_api.objects import Node

COLLECTIVES = ("_c10d_functional", "c10d", "torch.distributed")
LEFT_OUT = (
    "_set_grad_enabled",
    "_inference_mode",
    "record_function",
    "_saved_tensors_hooks",
    "._print",
)
"""Parts of the names of operations that have no result and change more than the graph's values."""
_NOT_ORDINARY = (*COLLECTIVES, *LEFT_OUT, "register_hook", "_enter_autocast", "_exit_autocast")


def is_operation(function: object, name: str) -> bool:
    """Return whether ``function`` is torch's function ``name``, which computes a result and does nothing else."""
    torch = sys.modules["torch"]
    functions = getattr(torch._C, "_VariableFunctions", None)
    return not name.endswith("_") and function is getattr(functions, name, name)


_MAKERS_OF_UNSET_MEMORY = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)


def makes_unset_memory(node: Node) -> bool:
    """Return whether a node makes a tensor whose elements it does not set: ``torch.empty``, ``torch.Tensor(2, 3)``."""
    if node.op not in ("call_function", "call_method") or "out" in node.kwargs:
        return False
    torch, target = sys.modules["torch"], node.target
    if isinstance(target, type):
        is_class = any(target is each for each in (torch.Tensor, *torch._tensor_classes))
        return is_class and bool(node.args) and all(map(_is_size, node.args))
    operator = target.overloadpacket if isinstance(target, torch._ops.OpOverload) else target
    name = operator if isinstance(operator, str) else getattr(operator, "__name__", None)
    return type(name) is str and name in _MAKERS_OF_UNSET_MEMORY


def makes_unset_memory_inside(module: object) -> bool:
    """Return whether ``module`` is a graph with a node that ``makes_unset_memory``, or has such a graph inside."""
    graphs = sys.modules["torch"].fx.GraphModule
    return isinstance(module, graphs) and any(
        makes_unset_memory(node) for each in module.modules() if isinstance(each, graphs) for node in each.graph.nodes
    )


class Fill(NamedTuple):
    """The numbers that replace the contents of unset memory."""

    real: int
    """For floating-point numbers. All of torch's types store numbers up to 240 exactly or nearly."""
    whole: int
    """For integers. They may be indices: a large one would fail on a GPU, also for the program."""

    def into(self, made: Any) -> Any:
        """Fill a tensor, and return it."""
        with sys.modules["torch"].no_grad():
            return made.fill_(self.real if made.is_floating_point() or made.is_complex() else self.whole)


ZEROS = Fill(0, 0)


def set_memory_of(node: Node, fill: Fill) -> None:
    """Change a node that ``makes_unset_memory`` into one that fills the memory."""
    make: Any = node.target

    def filled(*args: object, **kwargs: object) -> object:
        function = getattr(type(args[0]), make) if isinstance(make, str) else make
        return fill.into(function(*args, **kwargs))

    node.op, node.target = "call_function", filled


def _is_size(operand: object) -> bool:
    value = example_of(operand) if is_node(operand) else operand
    return isinstance(value, int | sys.modules["torch"].SymInt)


_NAMESPACES = frozenset(
    {"aten", "prim", "prims", "rngprims", "inductor", "quantized", "onednn", "mkldnn", "mkl", "profiler", "debugprims"}
)
"""The namespaces of torch's own operators."""


def is_custom_operator(function: object) -> bool:
    """Return whether ``function`` is an operator outside torch: its declaration may be wrong."""
    torch = sys.modules["torch"]
    if not isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return False
    return str(function).partition(".")[0] not in _NAMESPACES


def is_ordinary(node: Node) -> bool:
    """Return whether a node only computes a result from its operands."""
    if node.op not in ("call_function", "call_method") or is_custom_operator(node.target):
        return False
    name = target_name(node)
    return not any(part in name for part in _NOT_ORDINARY)
