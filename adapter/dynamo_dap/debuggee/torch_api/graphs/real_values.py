"""Computes real values of a paused trace: runs the nodes of its graph on the call's own inputs.

A ``RealValues`` lives as long as its trace, and holds the results of its nodes. Runs on the tracing thread, while the
program is held.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import ref

from dynamo_dap.debuggee.torch_api.compiles.backends import draws_its_own_numbers
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.graphs.chance import ByChance
from dynamo_dap.debuggee.torch_api.graphs.graph import example_of, with_operands, written_by
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import (
    REAL_VALUES,
    GraphRun,
    GraphRunner,
    Limits,
    NoRealValue,
    Wanted,
    has_own_memory,
    isolated_from_program,
    with_earlier_memory,
)
from dynamo_dap.debuggee.torch_api.graphs.operations import (
    ZEROS,
    Fill,
    is_ordinary,
    makes_unset_memory,
    makes_unset_memory_inside,
)
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_tensor, needed_bytes, version_of
from dynamo_dap.debuggee.torch_api.graphs.unproven_values import UNPROVEN
from dynamo_dap.debuggee.torch_api.isolation import metadata_reading
from dynamo_dap.debuggee.torch_api.objects import Graph, Node, Output, Tracer, Translator
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import flattened, storage_of
from dynamo_dap.debuggee.torch_api.traced.replays import replayed_call
from dynamo_dap.debuggee.torch_api.traced.symbols import hint_of
from dynamo_dap.debuggee.torch_api.traced.traced_paths import PATHS
from dynamo_dap.debuggee.torch_api.traced.translator import with_callers
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import mutation_state
from dynamo_dap.debuggee.wrapping.weak_collections import WeakKeyDictionary

_VISIT = "torch._dynamo.variables.base:VariableTracker.visit"

VISITING = Feature("releasing real values that nothing refers to", _VISIT)


def limit_real_values(limits: Limits | None) -> None:
    """Limit the cost of computing real values in this process; None turns the computation off."""
    global _limits
    _limits = limits


_limits: Limits | None = Limits()


def limits_of_real_values() -> Limits:
    """Return the limits of computing real values.

    Raises:
        NoRealValue: real values are turned off.
        FeatureMissing: this torch lacks a name that real values need.
    """
    REAL_VALUES.require()
    if _limits is None:
        raise NoRealValue('real values are turned off ("realValues": "off")')
    return _limits


def real_values_of(output: Output) -> RealValues:
    """Return the real values of the trace that writes the graph of ``output`` (torch's ``OutputGraph``).

    Raises:
        NoRealValue: real values are turned off.
        FeatureMissing: this torch lacks a name that real values need.
    """
    limits = limits_of_real_values()
    values = _of_traces.get(output.root_tracer)
    if values is None:
        values = _of_traces[output.root_tracer] = RealValues(output)
    values.limits = limits
    return values


_of_traces: WeakKeyDictionary[object, RealValues] = WeakKeyDictionary()


def set_values_aside(output: Output) -> RealValues | None:
    """Set the real values of a trace aside; return them for ``restore_values``."""
    return _of_traces.pop(output.root_tracer, None)


def restore_values(output: Output, values: RealValues | None) -> None:
    """Restore real values that were set aside."""
    others = set_values_aside(output)
    if others is not None:
        others.close()
    if values is not None:
        _of_traces[output.root_tracer] = values


class RealValues:
    """The real values of one trace."""

    def __init__(self, output: Output, *, is_of_other_memory: bool = False) -> None:
        """Begin without values; with ``is_of_other_memory``, memory that no operation has set has other contents."""
        self._trace = ref(output)  # a weak reference: the values must not keep it alive
        self.limits = Limits()
        self.reachable: Wanted = lambda: None
        self._runners: WeakKeyDictionary[object, GraphRunner] = WeakKeyDictionary()
        self._fill = _OTHER_CONTENTS if is_of_other_memory else ZEROS
        self._by_chance: WeakKeyDictionary[object, ByChance] = WeakKeyDictionary()
        """By tracer, which results of its graph differ from run to run."""
        call = replayed_call()
        self._finds_drawn = draws_its_own_numbers(output.compiler_fn if call is None else call.backend)
        self._cheap, self._reading = _Checked(_is_cheap), _Checked(_only_reads)
        self._setting = _Checked(functools.partial(_sets_its_memory, self._trace))
        self._with_other_memory: RealValues | None = None
        """The same values with other contents of memory that no operation has set."""

    def value_of(self, node: Node, reachable: Wanted) -> object:
        """Return the value of ``node`` (``torch.fx.Node``) in this call: a tensor, a number, a tuple of them.

        Results of nodes that are ``reachable`` are kept.

        Raises:
            NoRealValue: there is none; the text says why.
        """
        UNPROVEN.note_shown(node.graph)
        output: Any = self._trace()
        tracer = next((each for each in output.tracers if each.graph is node.graph), None)
        if tracer is None:
            raise NoRealValue("it was computed in the body of a higher-order operator, whose trace is over")
        nodes = list(tracer.graph.nodes)
        _check_path(output, node)
        outer, self.reachable = self.reachable, reachable
        if node.op == "placeholder" and node not in nodes:
            # At this snapshot the trace had not used this input yet, but the call already has it.
            nodes.insert(0, node)
        try:
            return self._runner_of(output, tracer).value_of(nodes, node, self.limits, reachable)
        finally:
            self.reachable = outer  # ``reachable`` refers to the trace and would keep it alive

    def cheap_value_of(self, node: Node, reachable: Wanted) -> object:
        """Return the value of ``node`` in this call; None if computing it may take more than about a millisecond.

        Raises:
            NoRealValue: there is none; the text says why.
        """
        return self.value_of(node, reachable) if self._is_cheap(node.graph) else self._unwritten_input(node)

    def _is_cheap(self, graph: Graph) -> bool:
        return len(graph.nodes) <= _CHEAP_NODES and self._cheap.passes(graph)

    def why_not_proven(self, node: Node, reachable: Wanted, *, only_if_cheap: bool = False) -> str | None:
        """Return why the program's call may compute another value of ``node`` than ``value_of``; None if it cannot.

        If a node makes memory without setting it (``torch.empty``), the graph runs again with other contents there;
        with ``only_if_cheap``, only if that takes about a millisecond.
        """
        reason = UNPROVEN.reason()
        if reason is not None or (only_if_cheap and not self._is_cheap(node.graph)):
            return reason
        if self._is_drawn(node, reachable):
            return "it is computed from random numbers, and Inductor draws other ones than eager"
        output: Any = self._trace()
        if all(self._setting.passes(tracer.graph) for tracer in output.tracers):
            return None
        try:
            is_set = self._is_set(node, reachable)
        except NoRealValue as problem:
            return f"it may depend on {_UNSET_MEMORY}; not checked: {problem}"
        return None if is_set else f"it depends on {_UNSET_MEMORY}: its contents differ from run to run"

    def _is_drawn(self, node: Node, reachable: Wanted) -> bool:
        """Return whether a value that is computed already comes from other random numbers than the program's."""
        output: Any = self._trace()
        found = [
            self._by_chance[each] for each in output.tracers if each.graph is node.graph and each in self._by_chance
        ]
        return any(each.has_drawn and each.is_drawn(node, self.value_of(node, reachable)) for each in found)

    def _is_set(self, node: Node, reachable: Wanted) -> bool:
        """Return whether other contents of unset memory leave the value of ``node`` unchanged."""
        output: Any = self._trace()
        if any(_is_body_with_unset_memory(output, each) for each in with_operands(node)):
            raise NoRealValue("the operator around that memory runs its body itself")
        other = self._with_other_memory
        if other is None:
            other = self._with_other_memory = RealValues(output, is_of_other_memory=True)
        other.limits = replace(self.limits, bytes=self.limits.bytes // 4)
        values = self.value_of(node, reachable), other.value_of(node, reachable)
        with isolated_from_program():
            return _are_equal(*(list(flattened(each)) for each in values))

    def _unwritten_input(self, node: Node) -> object:
        """Return an input of the call; None if the graph so far may have written to an input."""
        output: Any = self._trace()
        if node.op != "placeholder" or node.graph is not output.root_tracer.graph:
            return None
        if not self._reading.passes(node.graph):
            return None
        UNPROVEN.note_shown(node.graph)
        _check_path(output, node)
        return input_of_traced_call(node)

    def as_written(self, value: object, reachable: Wanted) -> object:
        """Return a tensor of the program, updated with what the graph so far wrote to its memory.

        Raises:
            NoRealValue: it is unknown; the text says why.
        """
        output: Any = self._trace()
        runner = self._runner_of(output, output.root_tracer)
        run = runner.run_of(list(output.root_tracer.graph.nodes), self.limits, reachable)
        with isolated_from_program():
            return run.as_written(value)

    def close(self) -> None:
        """Release every value."""
        if self._with_other_memory is not None:
            self._with_other_memory.close()
        for runner in list(self._runners.values()):
            runner.close()

    def _runner_of(self, output: object, tracer: Tracer) -> GraphRunner:
        runner = self._runners.get(tracer)
        if runner is None:
            graph = _TracedGraph(output, tracer, self)
            around = getattr(tracer, "parent", None)
            before = None if around is None else functools.partial(self._run_of, ref(output), ref(around))
            outer = None if around is None else self._by_chance_in(output, around)
            by_chance = ByChance(self._fill, finds_drawn=self._finds_drawn, outer=outer)
            self._by_chance[tracer] = by_chance
            runner = self._runners[tracer] = GraphRunner(graph, before=before, ran=by_chance.ran)
        return runner

    def _by_chance_in(self, output: object, tracer: Tracer) -> ByChance:
        self._runner_of(output, tracer)
        return self._by_chance[tracer]

    def _run_of(self, output: ref[object], tracer: ref[object]) -> GraphRun:
        around: Any = tracer()
        return self._runner_of(output(), around).run_of(list(around.graph.nodes), self.limits, self.reachable)


_UNSET_MEMORY = "memory that no operation has set (torch.empty)"


def _sets_its_memory(trace: ref[Output], node: Node) -> bool:
    """Return whether a node sets the memory that it makes; so do all nodes of a body."""
    return not makes_unset_memory(node) and not _is_body_with_unset_memory(trace(), node)


def _is_body_with_unset_memory(output: object, node: Node) -> bool:
    """Return whether ``node`` is the body of a higher-order operator that makes memory without setting it."""
    return node.op == "get_attr" and makes_unset_memory_inside(attribute_of_graph(output, str(node.target)))


_OTHER_CONTENTS = Fill(200, 1)


def _are_equal(ones: list[Any], others: list[Any]) -> bool:
    """Return whether the tensors and numbers of two results are equal. NaN equals NaN; a subclass only itself."""
    return len(ones) == len(others) and all(map(_is_equal, ones, others))


def _is_equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if not has_own_memory(one) or not has_own_memory(other):
        return not is_tensor(one) and bool(one == other)
    if one.shape != other.shape:
        return False
    both_nan = (one != one) & (other != other)  # noqa: PLR0124  (only NaN differs from itself)
    return bool(((one == other) | both_nan).all())


class _Checked:
    """Whether the nodes of graphs pass a check. A graph grows at each line, so each node is checked only once."""

    def __init__(self, check: Callable[[Node], bool]) -> None:
        self._check = check
        self._passed: dict[int, ref[Node]] = {}
        """The nodes that have passed, by identity. A reference to a node would keep its trace alive."""
        self._last: tuple[tuple[int, ...], bool] = (), False
        """The state of the last checked graph, and whether it passed."""

    def passes(self, graph: Graph) -> bool:
        """Return whether all nodes of a graph pass."""
        newest = next(iter(reversed(graph.nodes)), None)
        state = id(graph), len(graph.nodes), id(newest)
        known, passes = self._last
        if known != state:
            passes = all(self._node_passes(node, newest) for node in graph.nodes)
            self._last = state, passes
        return passes

    def _node_passes(self, node: Node, newest: Node | None) -> bool:
        known = self._passed.get(id(node))
        if known is not None and known() is node:
            return True
        passes = self._check(node)
        # The newest node gets its example later.
        if passes and node is not newest:
            self._passed[id(node)] = ref(node)
        return passes


_CHEAP_NODES = 256
_CHEAP_ELEMENTS = 16384
"""Maximum elements of a cheap result: its operation takes microseconds, and starts no threads."""


def _only_reads(node: Node) -> bool:
    """Return whether a node is an input, or an operation of torch's whose name and options say that it only reads."""
    if node.op in ("placeholder", "get_attr"):
        return True
    has_flag = any(each is True for each in (*node.args, *node.kwargs.values()))  # ``inplace`` in F.relu(x, True)
    return _is_operation_of_torch(node) and not written_by(node) and not has_flag


def _is_cheap(node: Node) -> bool:
    """Return whether a node is an input, or an operation of torch's on small tensors of the CPU."""
    if node.op == "output" or not (node.op in ("placeholder", "get_attr") or _is_operation_of_torch(node)):
        return False
    example = example_of(node)
    if not is_tensor(example):
        return True
    with metadata_reading():
        sizes = [size if type(size) is int else hint_of(size) for size in example.size()]
        is_on_cpu = str(example.device) == "cpu"
    known = [size for size in sizes if isinstance(size, int)]
    return is_on_cpu and len(known) == len(sizes) and math.prod(known) <= _CHEAP_ELEMENTS


def _is_operation_of_torch(node: Node) -> bool:
    """Return whether a node calls one of torch's functions or methods, and no code of the program's."""
    if not is_ordinary(node):
        return False
    if node.op == "call_method":
        return True
    torch = sys.modules["torch"]
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return False
    owner = getattr(node.target, "__module__", None) or type(getattr(node.target, "__self__", None)).__module__
    return owner == "_operator" or owner.partition(".")[0] == "torch"


def _check_path(output: Output, node: Node) -> None:
    """Check that the replay of a cached call agrees with its cache entry up to ``node``.

    Raises:
        NoRealValue: they differ, so the program computes another value.
    """
    call = replayed_call()
    problem = None if call is None else PATHS.why_not_valid(call, output.root_tracer.graph)
    if problem is not None and problem.position is not None and node in problem.unproven:
        raise NoRealValue(problem.text)


class _TracedGraph:
    """The graph of a trace, or of the body of a higher-order operator: see ``RunnableGraph``."""

    def __init__(self, output: object, tracer: Tracer, values: RealValues) -> None:
        self._trace = ref(output)
        self._tracer = ref(tracer)
        self._values = ref(values)

    def input_of(self, node: Node) -> object:
        tracer, values = self._tracer(), self._values()
        if tracer is not None and values is not None and getattr(tracer, "parent", None) is not None:
            return values.value_of(_operand(tracer, node), values.reachable)
        return input_of_traced_call(node)

    def attribute(self, target: str) -> object:
        return attribute_of_graph(self._trace(), target)


def shares_written_memory(output: Output, value: object) -> bool:
    """Return whether a tensor of the program shares memory with an input of a graph that writes to something."""
    nodes = output.root_tracer.graph.nodes
    if not has_own_memory(value) or not any(written_by(each) for each in nodes):
        return False
    storage = storage_of(value)
    for each in nodes:
        with contextlib.suppress(NoRealValue):
            given = input_of_traced_call(each) if each.op == "placeholder" else None
            if has_own_memory(given) and storage_of(given) == storage:
                return True
    return False


def input_of_traced_call(placeholder: Node) -> object:
    """Return the input of a placeholder in the traced call, with its contents at the beginning.

    Raises:
        NoRealValue: it no longer exists.
    """
    call = replayed_call()
    if call is not None and call.in_backward is not None:
        return call.in_backward.input_of(placeholder.name)
    try:
        example = placeholder.meta["grapharg"].example
    except (AttributeError, AssertionError, KeyError):
        raise NoRealValue(f"the input '{placeholder.name}' of the graph no longer exists") from None
    if placeholder.meta.get(_VERSION, version_of(example)) != version_of(example):
        raise NoRealValue(f"the input '{placeholder.name}' of the graph was changed in place since")
    memory = {} if call is None else call.memory
    if has_own_memory(example):
        kept: Any = memory.get(storage_of(example), example.untyped_storage())
        if kept.nbytes() < needed_bytes(example):
            raise NoRealValue(f"the memory of the input '{placeholder.name}' was released")
    return with_earlier_memory(example, memory)


_VERSION = "dynamo_dap_version"


def note_versions(graph: Graph) -> None:
    """Note the versions of the inputs of ``graph`` at the end of its trace, before the program changes them."""
    for node in graph.nodes:
        example = getattr(node.meta.get("grapharg"), "example", None) if node.op == "placeholder" else None
        if example is not None:
            set_version(node, version_of(example))


def set_version(placeholder: Node, version: int | None) -> None:
    """Note the version that an input tensor has in the call; None treats the tensor as unchanged."""
    placeholder.meta.pop(_VERSION, None)
    if version is not None:
        placeholder.meta[_VERSION] = version


def _operand(tracer: Tracer, placeholder: Node) -> Any:
    """Return the node outside of a higher-order operator's body that the body captured as ``placeholder``.

    A value that the operator itself makes for its body has no such node: a slice, a carried value, a gradient. Do not
    look for a node with the same FakeTensor: torch uses the FakeTensor of an output for its gradient, too.
    """
    lifted = getattr(tracer, "lifted_freevars", {})
    outer = next((outer.node for outer, inner in lifted.items() if inner.node is placeholder), None)
    if outer is None:
        raise NoRealValue(
            f"'{placeholder.name}' is made by a higher-order operator, which runs its body when the graph runs"
        )
    return outer


def attribute_of_graph(output: Any, target: str) -> object:
    """Return the module, subgraph or tensor that a node's ``target`` names."""
    if target in output.nn_modules:
        return output.nn_modules[target]
    first, *rest = target.split(".")
    found = output.nn_modules[first]
    for name in rest:
        found = getattr(found, name)
    return found


def reachable_nodes(tx: Translator) -> frozenset[object] | None:
    """Return the graph nodes reachable from names, the value stack or a side effect; None if unknown.

    The contents of a suspended generator are not included.
    """
    if VISITING.problem is not None:
        return None
    nodes: set[object] = set()

    def note(tracker: object) -> None:
        node = getattr(tracker.__dict__.get("proxy"), "node", None)
        if node is not None:
            nodes.add(node)

    effects = tx.output.side_effects
    # Objects that the traced code made are reachable only by names.
    before = [each for each in effects.id_to_variable.values() if mutation_state(each) != "new"]
    roots: list[object] = [before, list(effects.store_attr_mutations.values()), effects.tensor_hooks]
    for each in with_callers(tx):
        roots += [each.stack, each.symbolic_locals, each.post_prune_cell_and_freevars or {}]
    VISITING.resolve(_VISIT)(note, roots, {})
    return frozenset(nodes)
