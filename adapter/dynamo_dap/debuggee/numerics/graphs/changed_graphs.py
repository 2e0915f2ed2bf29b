"""Makes changed copies of a graph, in which single parts of a gradient can be compared.

``with_zeros`` adds an input of zeros to an operand. The gradient of that input is the part of the operand's gradient
that comes from one operation. ``expanded`` replaces an operator that only runs its body (``checkpoint``) by the
operations of that body. Runs on the program's thread that runs the backward pass.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from dynamo_dap.debuggee.replay.replayed_graph import ReplayedGraph
from dynamo_dap.debuggee.torch_api.graphs.graph import is_higher_order
from dynamo_dap.debuggee.torch_api.graphs.transforms import transforms_around
from dynamo_dap.debuggee.torch_api.objects import GraphModule, Node

Use = tuple[Node, Node]
"""A node of a graph, and one of its users."""
_ONLY_RUN_THEIR_BODY = ("tag_activation_checkpoint", "wrap", "invoke_subgraph")


class ExpandedGraph(NamedTuple):
    """A graph in which one operator is replaced by its body."""

    module: GraphModule
    copies: Mapping[Node, Node]
    """The copies of the graph's other nodes."""
    inside: frozenset[Node]
    """The operations of the body."""


def expanded(module: GraphModule, caller: Node) -> ExpandedGraph | None:
    """Replace the operator ``caller`` by the operations of its body.

    Such operators inside the body are replaced, too. Return None if the operator does more than run one body, or if
    that body contains further bodies or tensors.
    """
    bodies = [each for each in caller.all_input_nodes if each.op == "get_attr"]
    if not is_higher_order(caller) or getattr(caller.target, "__name__", "") not in _ONLY_RUN_THEIR_BODY:
        return None
    body: GraphModule | None = getattr(module, bodies[0].target, None) if len(bodies) == 1 else None
    nodes = list(flattened(body).graph.nodes) if body is not None and hasattr(body, "graph") else []
    if not nodes or any(each.op == "get_attr" for each in nodes):
        return None
    torch = sys.modules["torch"]
    inputs = [each for each in nodes if each.op == "placeholder"]
    operations, (results,) = nodes[len(inputs) : -1], nodes[-1].args
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    of_body: dict[Node, Node] = {}
    for node in module.graph.nodes:
        if node is caller:
            given = caller.args[len(caller.args) - len(inputs) :]
            of_body = {each: copies.get(value, value) for each, value in zip(inputs, given, strict=True)}
            for each in operations:
                of_body[each] = graph.node_copy(each, of_body.__getitem__)
        elif node.target is operator.getitem and node.args[0] is caller:
            result = results[node.args[1]]
            copies[node] = of_body.get(result, result)
        elif caller in node.all_input_nodes:
            return None
        elif node is not bodies[0]:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    inside = frozenset(of_body[each] for each in operations)
    return ExpandedGraph(torch.fx.GraphModule(module, graph), copies, inside)


def flattened(body: GraphModule) -> GraphModule:
    """Return a body in which operators that only run their own body are replaced by its operations."""
    for node in body.graph.nodes:
        found = expanded(body, node)
        if found is not None:
            found.module.meta.update(body.meta)
            return flattened(found.module)
    return body


def with_zeros(
    graph: ReplayedGraph, uses: Sequence[Use], in_place: Container[Use]
) -> tuple[GraphModule, Mapping[Node, Node], Sequence[Node]]:
    """Add an input of zeros to each operand in ``uses``.

    For uses in ``in_place``, add the input in place, right before the user: operations still write to the same memory.

    Returns:
        The new graph, the copies of the original nodes, and the new inputs.
    """
    torch = sys.modules["torch"]
    longer = torch.fx.Graph()
    copies: dict[Node, Node] = {node: longer.node_copy(node) for node in graph.nodes if node.op == "placeholder"}
    zeros = {use: longer.placeholder(f"zero_{at}") for at, use in enumerate(uses)}
    around = transforms_around(graph.nodes)
    sums: dict[Use, Node] = {}

    def add(node: Node, user: Node) -> None:
        if (node, user) in zeros and (node, user) in in_place:
            longer.call_method("add_", (copies[node], zeros[node, user]))
        elif (node, user) in zeros and (node, user) not in sums:
            sums[node, user] = longer.call_function(operator.add, (copies[node], zeros[node, user]))

    for node in graph.nodes:
        if node.op == "output":
            continue
        if node.op != "placeholder":
            for each in node.all_input_nodes:
                add(each, node)
            added = {each: sums[each, node] for each in node.all_input_nodes if (each, node) in sums}
            copies[node] = longer.node_copy(node, lambda each, added=added: added.get(each, copies[each]))
        for user in node.users:
            if len(around.get(user, ())) > len(around.get(node, ())):  # the transform would wrap the sum
                add(node, user)
    longer.output(tuple(copies.get(each, each) for each in graph.output_nodes))
    return torch.fx.GraphModule(graph.module, longer), copies, list(zeros.values())
