"""Finds the operation with which a graph begins to fail, as a start for torch's minifier.

Torch's minifier removes parts of a graph and compiles the rest, hundreds of times for a large graph. Here bisection
finds the first failing operation, which is then tried alone, on its operands in the graph. Runs on the thread that
minifies.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dynamo_dap.debuggee.torch_api.objects import GraphModule, Node

_MOST_BEFORE = 6
"""Maximum levels of operands to add to an operation that does not fail alone."""

Fails = Callable[[GraphModule, Sequence[object]], bool]
"""Returns whether a graph (torch's ``GraphModule``) with such inputs fails for the wanted reason."""


def smaller_graph(graph: GraphModule, inputs: Sequence[object], fails: Fails) -> tuple[object, Sequence[object]] | None:
    """Return the failing operation of a graph as a minimal graph; None if none is found."""
    values = _values_of(graph, inputs)
    ends = [node for node in graph.graph.nodes if node.op.startswith("call_") and _is_tensor(values.get(node))]
    if len(ends) < 2 or not fails(_upto(graph, ends[-1]), inputs):
        return None
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if fails(_upto(graph, ends[middle]), inputs):
            high = middle
        else:
            low = middle + 1
    wanted = {ends[low]}
    for _ in range(_MOST_BEFORE):
        wanted |= _with_tuples(wanted, values)
        part, given = _only(graph, ends[low], wanted, values)
        if len(part.graph.nodes) >= len(graph.graph.nodes):
            break
        if fails(part, given):
            return part, given
        wanted |= {each for node in wanted for each in node.all_input_nodes if each.op.startswith("call_")}
    upto = _upto(graph, ends[low])
    return (upto, inputs) if len(upto.graph.nodes) < len(graph.graph.nodes) else None


def _is_tensor(value: object) -> bool:
    return isinstance(value, sys.modules["torch"].Tensor)


def _values_of(graph: object, inputs: Sequence[Any]) -> dict[object, object]:
    """Run a graph, and return each node's result before a later one writes to it."""
    torch: Any = sys.modules["torch"]
    found: dict[object, object] = {}

    class Noting(torch.fx.Interpreter):  # type: ignore[misc]  # the base is known at run time
        def run_node(self, node: Node) -> object:
            result = super().run_node(node)
            if _is_tensor(result):
                kept = result.detach().clone(memory_format=torch.preserve_format)
                found[node] = kept.requires_grad_(result.requires_grad)
            else:
                found[node] = result
            return result

    copies = [each.detach().clone().requires_grad_(each.requires_grad) if _is_tensor(each) else each for each in inputs]
    with torch.enable_grad() if any(getattr(each, "requires_grad", False) for each in inputs) else torch.no_grad():
        Noting(graph).run(*copies)
    return found


def _upto(graph: GraphModule, end: Node) -> Any:
    """Return the graph as far as ``end``, which it returns."""
    torch = sys.modules["torch"]
    part, copies = torch.fx.Graph(), dict[Node, Node]()
    for node in graph.graph.nodes:
        copies[node] = part.node_copy(node, copies.__getitem__)
        if node is end:
            break
    return _returning(graph, part, copies, end)


def _only(
    graph: GraphModule, end: Node, wanted: set[Node], values: Mapping[object, object]
) -> tuple[GraphModule, list[object]]:
    """Return a graph of the ``wanted`` nodes, which returns ``end``, and its inputs: their other operands."""
    torch = sys.modules["torch"]
    part, copies, given = torch.fx.Graph(), dict[Node, Node](), []
    operands = {each for node in wanted for each in node.all_input_nodes}
    for node in graph.graph.nodes:
        if node in operands and node not in wanted and node.op != "get_attr":
            copies[node] = part.placeholder(node.name)
            copies[node].meta = dict(node.meta)
            given.append(values[node])
    for node in graph.graph.nodes:
        if node in wanted or (node in operands and node.op == "get_attr"):
            copies[node] = part.node_copy(node, copies.__getitem__)
    return _returning(graph, part, copies, end), given


def _returning(graph: object, part: Any, copies: Mapping[Node, Node], end: Node) -> Any:
    torch = sys.modules["torch"]
    part.output((copies[end],))
    module = torch.fx.GraphModule(graph, part)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _with_tuples(nodes: set[Node], values: Mapping[object, object]) -> set[Node]:
    """Return the nodes that give tuples to ``nodes``, and those before them: a graph takes no tuple as an input."""
    found: set[Node] = set()
    left = list(nodes)
    while left:
        for operand in left.pop().all_input_nodes:
            if operand.op.startswith("call_") and isinstance(values.get(operand), list | tuple):
                found.add(operand)
                left.append(operand)
    return found
