"""Runs a call's graph again, operation by operation, on the call's inputs.

A ``ReplayedGraph`` is the complete graph from a replay of the call. It lives as long as the object that compares
values. Runs on the thread that makes the call.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import sys
import types
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dynamo_dap.debuggee.replay.module_paths import module_path, with_other_paths
from dynamo_dap.debuggee.torch_api.graphs.custom_operators import promised_by
from dynamo_dap.debuggee.torch_api.graphs.graph import (
    is_resize,
    number_of,
    user_places,
)
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import (
    CallOperator,
    GraphRunner,
    Limits,
    NoRealValue,
    Ran,
    has_own_memory,
    with_earlier_memory,
)
from dynamo_dap.debuggee.torch_api.graphs.real_values import input_of_traced_call, limits_of_real_values
from dynamo_dap.debuggee.torch_api.objects import GraphModule, Node, Tensor
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import storage_of
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall, run_replay
from dynamo_dap.debuggee.torch_api.traced.sources import user_expression
from dynamo_dap.debuggee.torch_api.traced.symbols import hint_of, is_symbolic
from dynamo_dap.debuggee.torch_api.traced.traced_paths import ORIGINALS
from dynamo_dap.debuggee.torch_api.traced.tracing_hooks import NODE_HOOK
from dynamo_dap.debuggee.torch_api.traced.translator import traced_codes
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place, source_name
from dynamo_dap.debuggee.trace.runs import SilentRun


class ReplayedGraph:
    """The graph of a replay, which runs on the call's own inputs."""

    def __init__(self, graph: GraphModule, numbers: Mapping[Node, int], call: CachedCall) -> None:
        """Take torch's ``graph`` from the running replay of ``call``; ``numbers`` are ``NodeHook``'s, by node."""
        self.call = call
        self.module = graph
        self.numbers = {node: number for node, number in numbers.items() if number > 0}
        self._numbers_in_bodies = {node: number for node, number in numbers.items() if number < 0}
        self.codes: Sequence[types.CodeType] = [call.code]
        """The traced function, and those that it calls."""
        self.nodes: list[Node] = list(graph.graph.nodes)
        self.inputs: dict[Node, Any] = {}
        """By placeholder: the contents when the call began."""
        self.names: dict[Node, str] = {}
        """By placeholder: the name as the user wrote it."""
        self._buffers: set[object] = set()
        self.has_drawn_in_python = False
        """Whether an input is a random number that Python drew before the call of the graph."""
        self.written: frozenset[object] = frozenset()
        """The memory of the inputs to which the graph writes; known after a run."""
        self.promised = {node: each for node in self.nodes if (each := promised_by(node)) is not None}
        """The properties of results that fake kernels of custom operators declared."""
        self.call_inputs: dict[Node, object] = {}
        """By placeholder: the compiled graph's input, as the call left it."""
        self._originals: dict[str, object] = {}
        """By name: the program's tensors that belong to the graph."""
        self._attributes: dict[object, tuple[Any, Any]] = {}
        """By memory that belongs to the graph: a copy, and the contents when the call began."""
        self.resizes: Mapping[Node, Node] = {}
        """By operation of ``with_resizes`` that releases or resizes memory: the operation left out of ``module``."""
        self.with_resizes: GraphModule | None = None
        """The graph with ``resizes``, if it has any."""
        for node in self.nodes:
            if node.op == "placeholder":
                self._take_input(node)

    def leave_out_resizes(self) -> None:
        """Leave out of ``module`` the operations that release or resize memory: they change no element that is read.

        Raises:
            NoRealValue: elements may depend on them, or they may resize memory that belongs to the graph.
        """
        found = [node for node in self.nodes if is_resize(node)]
        module: Any = self.module
        bodies = [each for each in module.modules() if each is not module and hasattr(each, "graph")]
        if (found and self._attributes) or any(is_resize(node) for body in bodies for node in body.graph.nodes):
            raise NoRealValue("it changes the size of a tensor's memory")
        sizes: dict[object, list[object]] = {}
        for node in found:
            sizes.setdefault(node.args[0], []).append(node.args[1])
        if not all(map(_only_shrinks, sizes.values())):
            raise NoRealValue("it releases a tensor's memory and uses it again")
        if not found:
            return
        torch = sys.modules["torch"]
        whole = torch.fx.Graph()
        copies: dict[Node, Node] = {}
        for node in self.nodes:
            copies[node] = whole.node_copy(node, copies.__getitem__)
        self.with_resizes = torch.fx.GraphModule(self.module, whole)
        self.resizes = {copies[node]: node for node in found}
        for node in found:
            self.module.graph.erase_node(node)
        self.module.recompile()
        self.nodes = list(self.module.graph.nodes)

    def take_attributes(self) -> None:
        """Replace the program's tensors that belong to the graph, such as an optimizer's parameters, by copies."""
        torch = sys.modules["torch"]
        vars(self.module)[ORIGINALS] = self._originals
        for name in {node.target for node in self.nodes if node.op == "get_attr"}:
            tensor: object = getattr(self.module, name, None)
            if not has_own_memory(tensor):
                continue
            self._originals[name] = tensor
            memory = storage_of(tensor)
            before = self.call.memory.get(memory, tensor.untyped_storage())
            if memory not in self._attributes:
                self._attributes[memory] = before.clone(), before
            own = with_earlier_memory(tensor, {memory: self._attributes[memory][0]})
            delattr(self.module, name)
            if isinstance(tensor, torch.nn.Parameter):
                own = torch.nn.Parameter(own, tensor.requires_grad)
            setattr(self.module, name, own)

    def own_attributes(self) -> Iterator[tuple[Node, Any, object]]:
        """Yield the first node, the graph's copy and the original of each program tensor that belongs to the graph."""
        nodes = {node.target: node for node in reversed(self.nodes) if node.op == "get_attr"}
        for name, original in self._originals.items():
            if name in nodes:
                yield nodes[name], getattr(self.module, name), original

    def _restore_attributes(self) -> None:
        for own, before in self._attributes.values():
            own.copy_(before)

    def with_inputs(self, graph: GraphModule, inputs: Mapping[Node, object]) -> ReplayedGraph:
        """Return another form of the same graph, with its inputs by placeholder."""
        other = copy.copy(self)
        other.module, other.nodes, other.inputs = graph, list(graph.graph.nodes), dict(inputs)
        return other

    def take_inputs(self, given: Sequence[object]) -> None:
        """Use the compiled graph's own inputs, since the replay draws other random numbers in Python.

        Raises:
            NoRealValue: the replay's graph has another number of inputs.
        """
        placeholders = [node for node in self.nodes if node.op == "placeholder"]
        if len(placeholders) != len(given):
            raise NoRealValue(
                f"the compiled graph takes {len(given)} inputs, and the graph of a replay {len(placeholders)}"
            )
        self.call_inputs = dict(zip(placeholders, given, strict=True))
        self.inputs = {node: with_earlier_memory(value, self.call.memory) for node, value in self.call_inputs.items()}

    def _take_input(self, node: Node) -> None:
        source = getattr(node.meta.get("grapharg"), "source", None)
        self.names[node] = user_expression(source) or node.name
        if "_buffers" in (source_name(source) or ""):
            self._buffers.add(node)
        self.has_drawn_in_python |= "RandomValueSource" in f"{type(source).__name__} {source!r}"
        try:
            self.inputs[node] = input_of_traced_call(node)
        except NoRealValue:
            return

    def input_of(self, node: Node) -> object:
        """Return the input of a placeholder."""
        if node not in self.inputs:
            raise NoRealValue(f"the input '{node.name}' of the graph no longer exists")
        return self.inputs[node]

    def node_of(self, tensor: Tensor) -> object:
        """Return the node for a tensor that the call got, or None."""
        memory = storage_of(tensor)
        for node in self.nodes:
            if node.op == "placeholder":
                given = self.call_inputs.get(node)
            else:
                given = self._originals.get(node.target) if node.op == "get_attr" else None
            if given is tensor or (has_own_memory(given) and storage_of(given) == memory):
                return node
        return None

    def is_state(self, node: Node) -> bool:
        """Return whether a placeholder is a module's parameter or buffer, or a single parameter."""
        torch = sys.modules["torch"]
        return isinstance(self.inputs.get(node), torch.nn.Parameter) or node in self._buffers

    def number_of(self, node: Node, operator: Node | None) -> int:
        """Return ``NodeHook``'s number of a node, or of the ``operator`` whose body contains it if the body is shared.

        Dynamo traces a body once, though several operators may run it. The node may be a copy of the body's.
        """
        if node in self.numbers or operator is None:
            return self.numbers[node]
        value = node.meta.get("example_value", node)
        same = (each for each in self._numbers_in_bodies if each.target == node.target)
        found = [each for each in same if each is node or each.meta.get("example_value") is value]
        if len(found) != 1 or id(found[0].graph) in _shared_bodies(self.module):
            return self.numbers[operator]
        return self._numbers_in_bodies[found[0]]

    def attribute(self, target: str) -> object:
        """Return a parameter, buffer, constant or submodule of the graph."""
        found = self.module
        for name in target.split("."):
            found = getattr(found, name)
        return found

    @property
    def output(self) -> Node:
        """The last node."""
        return self.nodes[-1]

    @property
    def output_nodes(self) -> Sequence[Any]:
        """The graph's outputs: nodes and constants."""
        returned: object = self.nodes[-1].args[0]
        return list(returned) if isinstance(returned, list | tuple) else [returned]

    def fresh_inputs(self, *, copies_all: bool = False, require_gradients: bool = False) -> list[object]:
        """Return the placeholders' inputs, in order; inputs that the call writes to are copies.

        ``copies_all``: copy all inputs, for a run that may write to any. ``require_gradients``: the same inputs require
        gradients as in the call.
        """
        self._restore_attributes()
        of_call = {each._cdata for each in self.call.memory.values()}
        copies = {
            storage_of(each): each.untyped_storage().clone()
            for each in self.inputs.values()
            if has_own_memory(each) and (copies_all or storage_of(each) in self.written or storage_of(each) in of_call)
        }
        nodes = [node for node in self.nodes if node.op == "placeholder"]
        given: list[Any] = [self.input_of(node) for node in nodes]
        given = [hint_of(each) if is_symbolic(each) else with_earlier_memory(each, copies) for each in given]
        given = [each.detach() if has_own_memory(each) else each for each in given]
        if require_gradients:
            for node, each in zip(nodes, given, strict=True):
                if getattr(self.call_inputs.get(node), "requires_grad", False):
                    each.requires_grad_()
        return given

    def run(self, ran: Ran | None = None, call_operator: CallOperator | None = None) -> list[Any]:
        """Run the graph and return its outputs; ``ran`` gets each node, ``call_operator`` calls custom operators.

        No time limit applies, since the program's call waits until this run ends.

        Raises:
            NoRealValue: some operation cannot be run again; the text says why.
        """
        limits: Limits = dataclasses.replace(limits_of_real_values(), seconds=math.inf)
        self._restore_attributes()
        runner = GraphRunner(self, ran=ran, call_operator=call_operator)
        outputs: object = runner.value_of(self.nodes, self.output, limits, frozenset)
        self.written = frozenset(runner.copied)
        return list(outputs) if isinstance(outputs, list | tuple) else [outputs]


def graph_of(call: CachedCall, output_count: int | None, *, with_transforms: bool = False) -> ReplayedGraph:
    """Replay ``call`` and return its graph, which must have ``output_count`` outputs, unless that is None.

    Dynamo may have learned since the compile that a size varies: the call is then traced without that knowledge.
    ``with_transforms``: accept a graph with transforms of ``torch.func``.

    Raises:
        NoRealValue: the trace differs from the compile.
        FeatureMissing: this torch lacks a name that replays need.
        Exception: Dynamo cannot trace the call.
    """
    for each in (call, dataclasses.replace(call, forgets_sizes=True)):
        graph = _traced(each)
        if graph is not None and output_count in (None, len(graph.output_nodes)):
            if not with_transforms:
                refuse_transforms(graph)
            graph.take_attributes()
            graph.leave_out_resizes()
            return graph
    raise NoRealValue("the graph of a replay differs from the compiled graph")


def has_transforms(nodes: Iterable[Node]) -> bool:
    """Return whether a graph with these nodes has transforms of ``torch.func``."""
    return any("_functorch" in str(getattr(node.target, "__module__", "")) for node in nodes)


def refuse_transforms(graph: ReplayedGraph) -> None:
    """Refuse a graph with transforms of ``torch.func``, for features that cannot read values inside them.

    Raises:
        NoRealValue: the graph has one.
    """
    if has_transforms(graph.nodes):
        raise NoRealValue("it has transforms of torch.func, inside which a tensor represents a batch or a derivative")


def _only_shrinks(sizes: Sequence[object]) -> bool:
    """Return whether no item is larger than the one before, as far as the graph says."""
    return all(
        after == 0 or (isinstance(before, int) and isinstance(after, int) and after <= before)
        for before, after in itertools.pairwise(sizes)
    )


def _traced(call: CachedCall) -> ReplayedGraph | None:
    found: list[ReplayedGraph] = []
    numbers: dict[Node, int] = {}
    NODE_HOOK.want(numbers.__setitem__)
    try:
        run_replay(
            SilentRun(call),
            lambda graph: found.append(_with_codes(ReplayedGraph(graph.owning_module, numbers, call))),
        )
    finally:
        NODE_HOOK.want(None)
    return found[-1] if found else None


def _shared_bodies(module: Any) -> set[int]:
    """Return the ids of the graphs that several operators of ``module`` run as bodies, and of the bodies in these."""
    users: Counter[int] = Counter()
    bodies: dict[int, Any] = {}
    for each in module.modules():
        for node in getattr(getattr(each, "graph", None), "nodes", ()):
            body: Any = getattr(each, node.target, None) if node.op == "get_attr" and "." not in node.target else None
            if hasattr(body, "graph"):
                bodies[id(body)] = body
                users[id(body)] += len(node.users)
    shared = [bodies[key] for key, count in users.items() if count > 1]
    return {id(inner.graph) for body in shared for inner in body.modules() if hasattr(inner, "graph")}


def _with_codes(graph: ReplayedGraph) -> ReplayedGraph:
    """Add the inlined functions, which Dynamo knows during the trace."""
    graph.codes = [graph.call.code, *traced_codes()]
    return graph


def place_of(node: Node, is_passed_over: Callable[[str], bool]) -> tuple[Place, str] | None:
    """Return the innermost frame that made a node, without skipped files; if all are skipped, the innermost of all."""
    places = places_of(node)
    wanted = [each for each in places if not is_passed_over(each[0].path)] or places
    return wanted[0] if wanted else None


def places_of(node: Node) -> list[tuple[Place, str]]:
    """Return the user's frames that made a node, innermost first: place and function.

    For a returned number, these are the frames that computed it.
    """
    return list(user_places(number_of(node) or node))[::-1]


def module_of(node: Node, call: CachedCall) -> str | None:
    """Return the innermost module whose forward made a node of ``call``, with all its paths."""
    path = module_path(node)
    return None if path is None else with_other_paths(path, ChainMap(dict(call.arguments), call.frame.f_globals))
