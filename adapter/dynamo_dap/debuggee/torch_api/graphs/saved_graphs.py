"""Keeps a trace's graph beyond the trace: later calls of the same cache entry run it.

The entry's guards hold for each of its calls, so the graph also computes the values of these calls. The inputs are
found by their sources, as the compiled code finds them. Nothing of the traced call is kept alive, except the functions
that the graph calls. Written on the tracing thread, run on whichever thread makes a later call; lives as long as the
facts about the cache entry.
"""

from __future__ import annotations

import sys
import types
from typing import Any
from weakref import ref

from dynamo_dap.debuggee.torch_api.graphs.graph_runs import GraphRunner, NoRealValue
from dynamo_dap.debuggee.torch_api.graphs.real_values import attribute_of_graph, limits_of_real_values
from dynamo_dap.debuggee.torch_api.objects import Graph, Node, Output
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import storage_of
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall
from dynamo_dap.debuggee.torch_api.traced.sources import functions_of_sources, user_expression
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import source_name


class SavedGraph:
    """The nodes of a trace's outermost graph, copied as the trace adds them."""

    def __init__(self) -> None:
        """Begin empty; see ``take``."""
        torch = sys.modules["torch"]
        self._graph = torch.fx.Graph()
        self._copies: dict[Node, Node] = {}
        """The copy of each node of the trace; empty after the trace."""
        self.nodes: list[Node] = []
        self.outputs: list[object] = []
        """The finished graph's outputs: nodes, or constants; see ``finish``."""
        self.wanted: set[object] = set()
        """Nodes whose values later calls need."""
        self.sources: dict[object, types.CodeType | None] = {}
        """By placeholder, the expression of its source; None if it has none."""
        self.names: dict[object, str] = {}
        """By placeholder, the input as the user writes it."""
        self.attributes: dict[str, object] = {}
        """By target: subgraphs, and weak references to the program's objects."""
        self.written: set[Node] = set()
        """Placeholders that nodes write to."""
        self.watched: dict[object, bool] = {}
        """As in ``GraphRunner``."""

    def take(self, output: Output) -> int:
        """Copy what the trace of ``output`` (torch's ``OutputGraph``) has added; return how many nodes there are."""
        for each in output.root_tracer.graph.nodes:
            if each in self._copies or each.op == "output":
                continue
            copy = self._graph.node_copy(each, self._copies.__getitem__)
            modules = each.meta.get("nn_module_stack") or {}
            copy.meta = {"nn_module_stack": {key: (str(path), None) for key, (path, *_) in modules.items()}}
            self._copies[each] = copy
            self.nodes.append(copy)
            if each.op == "placeholder":
                self.sources[copy] = source_of_placeholder(each)
                self.names[copy] = user_expression(getattr(each.meta.get("grapharg"), "source", None)) or each.name
            elif each.op in ("get_attr", "call_module"):
                self.attributes[each.target] = _kept(attribute_of_graph(output, each.target))
        return len(self.nodes)

    def finish(self, output: Output, finished: Graph) -> None:
        """Copy all of ``output``'s graph, which the backend got as ``finished`` (``torch.fx.Graph``)."""
        self.take(output)
        (returned,) = next(node for node in finished.nodes if node.op == "output").args
        self.outputs = [self._copies.get(each, each) for each in returned]

    def attribute(self, target: str) -> object:
        """Return a subgraph, or an object of the program.

        Raises:
            NoRealValue: it is gone.
        """
        found = self.attributes[target]
        found = found() if isinstance(found, ref) else found
        if found is None:
            raise NoRealValue(f"'{target}' of the graph is gone")
        return found

    def wanted_copy(self, node: Node) -> Node:
        """Return the copy of the trace's ``node``, whose value later calls need.

        Raises:
            NoRealValue: it belongs to another graph: to the body of a higher-order operator.
        """
        if node not in self._copies:
            raise NoRealValue("it is computed in the body of a higher-order operator")
        self.wanted.add(self._copies[node])
        return self._copies[node]

    def close(self) -> None:
        """Forget the nodes of a trace that has ended: they refer to the program's objects."""
        self._copies.clear()


def source_of_placeholder(placeholder: Node) -> types.CodeType | None:
    """Return the expression that finds a call's value for an input of the graph, or None."""
    argument = placeholder.meta.get("grapharg")
    name = source_name(getattr(argument, "source", None))
    if name is None:
        return None
    if getattr(argument, "pass_arg_as_tensor", False) and not name.startswith("___as_tensor"):
        name = f"___as_tensor({name})"
    try:
        return compile(name, "<source>", "eval")
    except SyntaxError:
        return None


def _kept(attribute: object) -> object:
    torch = sys.modules["torch"]
    return attribute if isinstance(attribute, torch.fx.GraphModule) else ref(attribute)


class SavedGraphInCall:
    """A saved graph in one later call: see ``graph_runs.RunnableGraph``."""

    def __init__(self, graph: SavedGraph, call: CachedCall) -> None:
        """Begin without a run."""
        self._graph = graph
        self._scope = {**functions_of_sources(), "L": call.arguments, "G": call.frame.f_globals}
        self._inputs: dict[Node, object] = {}
        self._runner = GraphRunner(self, graph.watched)
        self._runner.copied.update(storage_of(self.input_of(each)) for each in graph.written)

    def value_of(self, node: Node, count: int) -> object:
        """Return the value of ``node`` after the first ``count`` nodes have run; counts never get smaller.

        Raises:
            NoRealValue: there is none.
        """
        graph = self._graph
        try:
            return self._runner.value_of(
                graph.nodes[:count], node, limits_of_real_values(), lambda: frozenset(graph.wanted)
            )
        finally:
            copied = self._runner.copied
            graph.written.update(each for each, value in self._inputs.items() if storage_of(value) in copied)

    def memory_of(self, value: object, count: int) -> Any:
        """Return ``value``, an input tensor of the call, if the first ``count`` nodes do not write to it.

        Raises:
            NoRealValue: they do.
        """
        if count:
            self.value_of(self._graph.nodes[count - 1], count)
        if storage_of(value) in self._runner.copied:
            raise NoRealValue("the graph writes to its memory")
        return value

    def input_of(self, node: Node) -> object:
        """Return the call's value for a placeholder."""
        if node not in self._inputs:
            source = self._graph.sources.get(node)
            if source is None:
                raise NoRealValue(f"the input '{node.name}' of the graph cannot be found again")
            self._inputs[node] = eval(source, self._scope)
        return self._inputs[node]

    def attribute(self, target: str) -> object:
        """Return a subgraph, or an object of the program."""
        return self._graph.attribute(target)
