"""Makes every result of a call's graph readable, also inside transforms of ``torch.func``, so that it can be compared.

A ``VisibleGraph`` lives as long as the comparison of a call. Runs on the program's thread that makes the call.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from dynamo_dap.debuggee.replay.replayed_graph import ReplayedGraph, has_transforms
from dynamo_dap.debuggee.torch_api.graphs.transforms import TRANSFORMS, TakenOut, prefix_of
from dynamo_dap.debuggee.torch_api.objects import Node


class VisibleGraph:
    """A graph, changed so that each result inside a transform is also available outside of it.

    If the graph has no transforms, it stays as it is.
    """

    def __init__(self, graph: ReplayedGraph) -> None:
        self.graph = graph
        self._visible: Mapping[Node, Node] = {}
        self._originals: Mapping[Node, Node] = {}
        self.names: Mapping[str, str] = {}
        """For each node that takes a result out of its transforms, the name of the node with that result."""
        self.added: frozenset[str] = frozenset()
        """The names of the nodes that are not in Dynamo's graph."""
        self.inside: frozenset[object] = frozenset()
        """The nodes of Dynamo's graph that run inside a transform."""
        if has_transforms(graph.nodes) and TRANSFORMS.problem is None:
            made = TakenOut(graph.module, graph.nodes)
            self._visible, self._originals = made.visible, made.originals
            self.names, self.added, self.inside = made.names, made.added, frozenset(made.inside)
            self.graph = graph.with_inputs(
                made.module, {made.copies[node]: value for node, value in graph.inputs.items()}
            )
            self.graph.promised = {made.copies[node]: each for node, each in graph.promised.items()}

    def original(self, node: Node) -> Node | None:
        """Return the node of Dynamo's graph whose result ``node`` has; None if ``node`` is inside a transform."""
        return self._originals.get(node) if self._visible else node

    def prefix(self, nodes: Sequence[Node], overwritten: Container[object] = ()) -> Any:
        """Return the graph (torch's ``GraphModule``) up to the last of ``nodes``, with the results of these as outputs.

        For nodes in ``overwritten``, the outputs are copies made before later operations write to the results.
        """
        visible = [self._visible.get(node, node) for node in nodes]
        return prefix_of(self.graph.module, self.graph.nodes, visible, overwritten)
