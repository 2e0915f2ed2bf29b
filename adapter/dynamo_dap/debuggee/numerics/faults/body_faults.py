"""Finds the wrong operation in a higher-order operator's body, if the operator's result differs.

The bodies of ``checkpoint`` and the forward of an ``autograd.Function`` are changed to return the result of each
operation, too. These results are compared between Dynamo's graph and the compiled graph. ``torch.cond`` is replaced by
the branch that the call takes. The bodies of ``while_loop`` and the backward of an ``autograd.Function`` are compiled
alone, and run on the operands that they have in eager. Runs on the calling thread.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.numerics.graphs.bodies import run_observed, with_bodies_run_by
from dynamo_dap.debuggee.numerics.graphs.changed_graphs import flattened
from dynamo_dap.debuggee.numerics.graphs.differences import Difference, difference
from dynamo_dap.debuggee.numerics.graphs.exact_runs import (
    ExactBody,
    ExactPass,
    ExactRuns,
    overwritten_key,
    version_after,
)
from dynamo_dap.debuggee.replay.replayed_graph import ReplayedGraph
from dynamo_dap.debuggee.torch_api.graphs.graph import example_of, is_higher_order, node_with_result
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue, has_own_memory
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import version_of
from dynamo_dap.debuggee.torch_api.isolation import data_reading, random_state
from dynamo_dap.debuggee.torch_api.objects import GraphModule, Node, Tensor
from dynamo_dap.debuggee.torch_api.swaps import Swap
from dynamo_dap.debuggee.torch_api.traced.replays import compile_by, compiling_in_isolation

_PASSES_ON = ("tag_activation_checkpoint", "wrap", "autograd_function_apply", "invoke_subgraph")
"""Operators that return the results of their only body."""
_CHOOSES = "cond"
"""The operator that returns the results of one of its two bodies."""
_REPEATS = "while_loop"
"""The operator that runs its two bodies repeatedly."""
ALONE = "the operator's body, compiled alone"
"""The name of a run of such a body in the evidence of a verdict."""
_MAXIMUM_PASSES = 16
"""The maximum number of runs of the bodies of ``while_loop`` that are compared."""


Pass = tuple[GraphModule, tuple[object, ...]]
"""A body, and its operands in one run."""
Differences = dict[Node, tuple[Difference, object]]
"""For each operation of a body, the difference between its compiled and its eager result, and the compiled result."""


class ComparedBody:
    """One operator's body, in Dynamo's graph and in a compiled one."""

    def __init__(
        self, graph: ReplayedGraph, node: Node, random: Iterable[Callable[[], None]], exact: ExactRuns
    ) -> None:
        """Prepare to compare the body of ``node``, which is the operator or an item of its result.

        ``random`` restores the call's random states; ``exact`` are the graph's runs in float64.
        """
        self.operator = node.args[0] if node.target is operator.getitem else node
        self._graph = graph
        self._random = tuple(random)
        self._exact = exact
        self._draws = False
        """Whether an operation of the body draws random numbers. A run in float64 would draw other numbers."""
        self._chooses = False
        """Whether the operator runs one of two bodies."""
        self.is_alone = False
        """Whether the operator's bodies are compiled alone, as those of ``while_loop``."""
        self._names = self._names_of_bodies()

    def _names_of_bodies(self) -> list[str]:
        torch = sys.modules["torch"]
        if not hasattr(self.operator, "all_input_nodes") or not is_higher_order(self.operator):
            return []
        name = str(getattr(self.operator.target, "__name__", ""))
        self._chooses, self.is_alone = name == _CHOOSES, name == _REPEATS
        names = [each.target for each in self.operator.all_input_nodes if each.op == "get_attr"]
        bodies = [each for each in names if isinstance(getattr(self._graph.module, each, None), torch.fx.GraphModule)]
        has_two = self._chooses or self.is_alone
        is_known = len(bodies) == 2 if has_two else name in _PASSES_ON and len(bodies) == 1
        return bodies if is_known else []

    def differences(self, backend: Callable[..., object]) -> Differences:
        """Compare the body's operations; return no differences for an operator whose bodies are not compared.

        Raises:
            Exception: whatever the backend raises.
        """
        if not self._names:
            return {}
        if self.is_alone:
            return first_difference(self._passes(), backend, self._exact.problems)
        found = self._compared(backend)
        wrong = next((node for node, (how, _) in found.items() if not how.is_same), None)
        return (self._inside_nested(backend, wrong) if wrong is not None else {}) or found

    def _inside_nested(self, backend: Callable[..., object], wrong: Node) -> Differences:
        """Compare the operations of the body's own bodies if ``wrong`` is the result of such a body; else return none.

        The result is empty as well if no operation differs in a graph with these bodies inlined.
        """
        name = next((each for each in self._names if wrong.graph is getattr(self._graph.module, each).graph), None)
        nested = wrong.args[0] if wrong.target is operator.getitem else wrong
        if name is None or not isinstance(nested, type(wrong)) or not is_higher_order(nested):
            return {}
        body = getattr(self._graph.module, name)
        longer = flattened(body)
        if longer is body:
            return {}
        with Swap() as swap:
            swap.set(self._graph.module, name, longer)
            found = self._compared(backend)
        return found if not all(how.is_same for how, _ in found.values()) else {}

    def _compared(self, backend: Callable[..., object]) -> Differences:
        name, expected = self._expected()
        values = self._values_by(backend, name, expected) if expected.tensors else []
        exact = None
        if not self._draws:
            exact = self._exact.in_body(getattr(self._graph.module, name), expected.dtypes)
        return expected.compare(values, exact)

    def _expected(self) -> tuple[str, _Expected]:
        """Return the name of the body that runs, and the eager results of its operations."""
        results = _Results()
        bodies = {id(getattr(self._graph.module, name)): name for name in self._names}
        ran: list[str] = []

        def run(each: Any, operands: tuple[object, ...]) -> object:
            if id(each) not in bodies:
                return each(*operands)
            ran.append(bodies[id(each)])
            before = random_state()
            outputs = run_observed(each, operands, results.note)
            self._draws = self._draws or not before.equal(random_state())
            return outputs

        with with_bodies_run_by(self._graph.module, run):
            for restore in self._random:
                restore()
            self._graph.run()
        if len({*ran}) != 1:
            return self._names[0], _Expected({}, frozenset())
        return ran[0], results.expected()

    def _passes(self) -> list[Pass]:
        """Run the graph eagerly, and return the first runs of the operator's bodies."""
        bodies = [getattr(self._graph.module, name) for name in self._names]
        found: list[Pass] = []

        def run(each: Any, operands: tuple[object, ...]) -> object:
            if each in bodies and len(found) < _MAXIMUM_PASSES:
                found.append((each, _copies(operands)))
            return each(*operands)

        with with_bodies_run_by(self._graph.module, run):
            for restore in self._random:
                restore()
            self._graph.run()
        return found

    def _values_by(self, backend: Callable[..., object], name: str, wanted: _Expected) -> list[object]:
        torch = sys.modules["torch"]
        shorter = torch.fx.Graph()
        copies: dict[object, Any] = {}
        nodes = self._graph.nodes
        last = nodes.index(self.operator)
        for position, node in enumerate(nodes):
            if self._chooses and (
                node is self.operator or ({*node.users} == {self.operator} and node.op == "get_attr")
            ):
                continue  # a backend may change the branches in place
            if node.op == "placeholder" or position <= last:
                copies[node] = shorter.node_copy(node, copies.__getitem__)
                copies[node].meta = {}
        module = torch.fx.GraphModule(self._graph.module, shorter)
        body = getattr(self._graph.module, name)
        if self._chooses:
            operands = [copies.get(each, each) for each in self.operator.args[3]]
            copied = _copied(body, shorter, operands, wanted.overwritten)
            shorter.output(tuple(copied[each] for each in wanted.tensors))
        else:
            longer, count = _longer(body, wanted)
            setattr(module, name, longer)
            of_operator = copies[self.operator]
            positions = range(count, count + len(wanted.tensors))
            shorter.output(tuple(shorter.call_function(operator.getitem, (of_operator, at)) for at in positions))
        module.recompile()
        with compiling_in_isolation():
            compiled = compile_by(backend, module, self._graph.fresh_inputs())
            for restore in self._random:
                restore()
            return list(compiled(*self._graph.fresh_inputs()))


@dataclass(frozen=True)
class _Expected:
    """The eager results of a body's operations, before later operations wrote to them."""

    tensors: Mapping[Node, Tensor]
    overwritten: frozenset[Node]
    """The operations whose results later operations overwrite."""

    @property
    def dtypes(self) -> dict[str, object]:
        """The dtypes of the results, by node name."""
        return {node.name: kept.dtype for node, kept in self.tensors.items()}

    def compare(self, values: Sequence[object], exact: ExactRuns | ExactPass | None) -> Differences:
        """Compare the results with the compiled ``values``, in the same order; ``exact`` has the runs in float64."""
        found: Differences = {}
        for (node, kept), value in zip(self.tensors.items(), values, strict=True):
            key = overwritten_key(node.name) if node in self.overwritten else node.name
            found[node] = difference(kept, value, None if exact is None else exact.referee(key)), value
        return found


class _Results:
    """Collects the results of a body's operations while it runs."""

    def __init__(self) -> None:
        self._seen: dict[Node, tuple[Tensor, int, Tensor]] = {}

    def note(self, node: Node, results: Mapping[Node, object]) -> None:
        """Keep a copy of the result of a node that has run; an ``Observer``."""
        tensor = node_with_result(node)
        value = results[tensor]
        if node.op.startswith("call_") and has_own_memory(value) and hasattr(example_of(tensor), "dtype"):
            with data_reading():
                self._seen[node] = value, version_after(node, value), value.detach().clone()

    def expected(self) -> _Expected:
        """Return the collected results."""
        seen = self._seen.items()
        overwritten = frozenset(node for node, (value, version, _) in seen if version_of(value) != version)
        return _Expected({node: kept for node, (_, _, kept) in seen}, overwritten)


def first_difference(passes: Sequence[Pass], backend: Callable[..., object], problems: dict[str, None]) -> Differences:
    """Compile each body alone, run it on the operands of its passes, and return the results of the first wrong pass.

    If no pass is wrong, return the results of the last one. ``problems`` receives the reasons why an operation is not
    compared.

    Raises:
        Exception: whatever the backend raises.
    """
    compiled: dict[int, Callable[..., Any]] = {}
    found: Differences = {}
    for body, operands in passes:
        results = _Results()
        before = random_state()
        run_observed(body, _copies(operands), results.note)
        expected = results.expected()
        if not expected.tensors or not before.equal(random_state()):
            continue  # the compiled body would draw other random numbers
        longer, count = _longer(body, expected)
        with compiling_in_isolation():
            if id(body) not in compiled:
                for node in longer.graph.nodes:
                    node.meta = {}
                compiled[id(body)] = compile_by(backend, longer, list(_copies(operands)))
            values = list(compiled[id(body)](*_copies(operands)))[count:]
        found = expected.compare(values, ExactPass(ExactBody(body, expected.dtypes), operands, problems))
        if not all(how.is_same for how, _ in found.values()):
            break
    return found


def _copies(operands: tuple[object, ...]) -> tuple[object, ...]:
    with data_reading():
        return tuple(each.detach().clone() if has_own_memory(each) else each for each in operands)


def _copied(
    body: GraphModule, graph: Any, operands: list[object], overwritten: Container[object]
) -> dict[object, object]:
    """Copy the operations of a body to the end of ``graph``; return the copy that has each operation's result.

    For ``overwritten`` operations that is a clone, made before later operations write to the result.

    Raises:
        NoRealValue: the body contains further bodies or tensors.
    """
    inputs = [node for node in body.graph.nodes if node.op == "placeholder"]
    copies: dict[object, Any] = dict(zip(inputs, operands, strict=True))
    kept: dict[object, object] = {}
    for node in body.graph.nodes:
        if node.op == "get_attr":
            raise NoRealValue("the operator's body contains further bodies or tensors")
        if node.op not in ("placeholder", "output"):
            copies[node] = graph.node_copy(node, copies.__getitem__)
            copies[node].meta = {}
            if node in overwritten:
                kept[node] = graph.call_method("clone", (copies[node_with_result(node)],))
    return {**copies, **kept}


def _longer(body: GraphModule, wanted: _Expected) -> tuple[Any, int]:
    """Return a body that also returns the results of ``wanted``, and the index at which they begin."""
    torch = sys.modules["torch"]
    copies: dict[object, Any] = {}
    graph = torch.fx.Graph()
    results = graph.graph_copy(body.graph, copies)
    returned = {node: copies[node] for node in wanted.tensors}
    for node in wanted.overwritten:
        with graph.inserting_after(copies[node]):
            returned[node] = graph.call_method("clone", (copies[node_with_result(node)],))
    results = results if isinstance(results, tuple) else tuple(results) if isinstance(results, list) else (results,)
    graph.output((*results, *returned.values()))
    longer = torch.fx.GraphModule(body, graph)
    longer.meta.update(body.meta)
    return longer, len(results)
