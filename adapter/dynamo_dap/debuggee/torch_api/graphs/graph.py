"""Reads the FX graph so far: nodes, and the user's lines that made them.

Reading changes nothing. Runs on the tracing thread.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Iterator
from typing import Any, TypeGuard

from dynamo_dap.debuggee.torch_api.objects import Graph, GraphModule, Node, Translator
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place


def graphs_of(tx: Translator) -> list[Graph]:
    """Return the graph being built, then the graphs around it: the body of a higher-order operator is a graph."""
    tracers = list(getattr(tx.output, "tracers", ()))
    if not tracers:
        return [tx.output.graph]
    return [tracer.graph for tracer in reversed(tracers)]


def nodes_of(graph: Graph) -> list[Node]:
    """Return the nodes in order."""
    return list(graph.nodes)


def example_of(node: Node) -> object:
    """Return the FakeTensor or number of the node's result, or None."""
    return node.meta.get("example_value", node.meta.get("val"))


def source_of_input(placeholder: Node) -> object:
    """Return Dynamo's source of a graph input; None for an input that Dynamo made.

    The placeholder's facts about the call are erased at the end of the compile; the source stays.
    """
    argument = placeholder.meta.get("grapharg")
    return getattr(argument, "source", None) or getattr(placeholder, "_dynamo_source", None)


def is_higher_order(node: Node) -> bool:
    """Return whether a node calls an operator that runs another graph."""
    return isinstance(node.target, sys.modules["torch"]._ops.HigherOrderOperator)


def target_name(node: Node) -> str:
    """Return the node's callee in the user's terms: ``torch.nn.functional.relu``, ``x.add_``."""
    target = node.target
    if isinstance(target, str):
        return target
    module = str(getattr(target, "__module__", None) or "")
    if module.startswith("torch._ops"):
        return f"torch.ops.{target}"
    name = str(getattr(target, "__name__", None) or target)
    module = _SHORT_MODULES.get(module, module)
    return f"{module}.{name}" if module else name


def operation_name(node: Node) -> str:
    """Return the name of an operation as the user knows it, also for an item of a higher-order operator's result."""
    operands = node.all_input_nodes
    if node.target is operator.getitem and operands and is_higher_order(operands[0]):
        node = operands[0]
    node = number_of(node) or node
    return _USER_NAMES.get(str(getattr(node.target, "__name__", "")), target_name(node))


def number_of(node: Node) -> Node | None:
    """Return the node of the Python number that ``node`` returns as a tensor; None for the program's operations.

    A compiled graph returns tensors only. So Dynamo wraps each float that the function returns or stores.
    """
    torch = sys.modules["torch"]
    operands = node.all_input_nodes
    if node.target is not torch.scalar_tensor or node.kwargs.get("dtype") is not torch.float64 or len(operands) != 1:
        return None
    is_tensor = hasattr(example_of(operands[0]), "dtype")
    return None if is_tensor or any(user.op != "output" for user in node.users) else operands[0]


_USER_NAMES = {"tag_activation_checkpoint": "checkpoint"}
_SHORT_MODULES = {"_operator": "operator", "builtins": ""}


_FRAME = re.compile(r'^\s*File "(?P<path>.+)", line (?P<line>\d+), in (?P<function>.+)$')


def user_places(node: Node) -> Iterator[tuple[Place, str]]:
    """Return the user's frames that made the node, the innermost last: place and function."""
    return places_in(node.meta.get("stack_trace") or getattr(node, "stack_trace", None) or "")


def places_in(stack: str) -> Iterator[tuple[Place, str]]:
    """Yield the frames of a stack that torch noted as text, the innermost last: place and function."""
    for line in stack.splitlines():
        match = _FRAME.match(line)
        if match is not None:
            yield Place(match["path"], int(match["line"]), 1), match["function"]


def user_place(node: Node) -> tuple[Place, str] | None:
    """Return the innermost frame of the user's code that made the node."""
    innermost = None
    for innermost in user_places(node):  # noqa: B007 (the last one is wanted)
        pass
    return innermost


def is_erased(node: Node) -> bool:
    """Return whether a node was removed from its graph."""
    return bool(node._erased)


def operands_of(node: Node) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the node's positional and keyword operands: nodes, constants, and containers of them."""
    return tuple(node.args), dict(node.kwargs)


_IN_PLACE = ["iadd", "iand", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior", "ipow", "irshift", "isub"]
_WRITING = frozenset(["setitem", "itruediv", "ixor", *_IN_PLACE])
"""Functions of ``operator`` that change their first operand."""


def written_by(node: Node) -> list[Node]:
    """Return the operands (nodes) that the operation of a node changes in place."""
    written = [node.kwargs.get("out")]
    name = str(node.target if node.op == "call_method" else getattr(node.target, "__name__", ""))
    is_operator = getattr(node.target, "__module__", None) == "_operator" and name in _WRITING
    if is_operator or (name.endswith("_") and not name.endswith("__")) or node.kwargs.get("inplace") is True:
        written += node.args[:1]
    return [each for each in written if is_node(each)]


def is_resize(node: Node) -> bool:
    """Return whether an operation releases or resizes its operand's memory: ``x.untyped_storage().resize_(0)``."""
    return node.op == "call_function" and "resize_storage_bytes_" in target_name(node)


def node_with_result(node: Node) -> Node:
    """Return the node whose tensor an operation leaves: ``y`` for ``y[0] = x``, which returns nothing, else itself."""
    return node.args[0] if node.target is operator.setitem and is_node(node.args[0]) else node


def is_same_tensor(one: Node, other: Node) -> bool:
    """Return whether two nodes' results are the same tensor, not only equal ones."""
    example = example_of(one)
    return one is other or (example is not None and example is example_of(other))


def is_node(value: object) -> TypeGuard[Node]:
    """Return whether ``value`` is an FX node, by its class's name, without importing torch.fx."""
    return type(value).__name__ == "Node" and type(value).__module__ == "torch.fx.node"


def with_operands(node: Node) -> list[Node]:
    """Return ``node`` and all nodes from which it is computed, in the order of the graph."""
    found: set[Node] = set()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += each.all_input_nodes
    return [each for each in node.graph.nodes if each in found]


def copy_to_compile(module: GraphModule) -> Any:
    """Return a copy of a graph for a backend, which may change the metadata. The marks of its inputs are kept.

    Dynamo marks parameters and buffers as inputs whose memory stays. AOTAutograd prefers to save these for the backward
    pass; without the marks it would save other tensors, and a fault might be gone.
    """
    torch = sys.modules["torch"]
    copies: dict[Any, Any] = {}
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, copies))
    for node in graph.nodes:
        node.meta = {}
    copied = torch.fx.GraphModule(module, graph)
    sources = getattr(module, "_param_name_to_source", None)
    if sources is not None and "dynamo_compile_id" in module.meta:
        copied.meta["dynamo_compile_id"] = module.meta["dynamo_compile_id"]
        copied._param_name_to_source = dict(sources)
        for node, copied_node in copies.items():
            if node.op == "placeholder":
                copied_node._dynamo_source = getattr(node, "_dynamo_source", None)
                if "tensor_dict" in node.meta:
                    copied_node.meta["tensor_dict"] = node.meta["tensor_dict"]
    return copied
