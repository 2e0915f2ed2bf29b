"""Compares what stages of compiling compute of one call: Dynamo's graph run as it is, AOTAutograd, the backend.

What two results may differ by is judged in ``result_differences``. Graphs are compiled for this apart from the program.
Thread of the program that makes the call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_internals.custom_operators import (
    OPERATOR,
    CheckedCalls,
    OperatorFault,
    changes_its_mind,
)
from dynamo_dap.debuggee.torch_internals.exact_runs import ExactRun, ExactRuns, TakenResult
from dynamo_dap.debuggee.torch_internals.fake_evaluation import random_state, storage_of
from dynamo_dap.debuggee.torch_internals.features import Feature
from dynamo_dap.debuggee.torch_internals.graph_runs import (
    NoRealValue,
    has_own_memory,
    in_transform,
    is_custom_operator,
)
from dynamo_dap.debuggee.torch_internals.isolation import data_reading
from dynamo_dap.debuggee.torch_internals.replays import ReplayedGraph, places_of
from dynamo_dap.debuggee.torch_internals.result_differences import OTHERWISE, Difference, NoReferee, Referee, difference
from dynamo_dap.debuggee.torch_internals.retracing import compiling_apart_from_the_program
from dynamo_dap.debuggee.torch_internals.stored_state import LeftOtherwise
from dynamo_dap.debuggee.torch_internals.tensor_facts import version_of

_AOT_EAGER = "torch._dynamo.backends.debugging:aot_eager"
_DECOMPOSED = "torch._dynamo.backends.debugging:aot_eager_decomp_partition"

STAGES = Feature("telling AOTAutograd's faults from the backend's", _AOT_EAGER, _DECOMPOSED)

AOT_AUTOGRAD = "AOTAutograd"
DECOMPOSITION = "decomposition"
DYNAMO = "Dynamo"
"""Stages before the backend itself. Inductor asks AOTAutograd for decompositions of its own."""

_FILLS = (3, 5)
"""What two runs find in memory that nobody has written to."""
_LEAVE_UNDEFINED = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")


def _leaves_undefined(node: Any) -> bool:
    name = str(getattr(node.target, "__name__", node.target))
    return node.op.startswith("call_") and name.partition(".")[0] in _LEAVE_UNDEFINED


def _equal(one: Any, two: Any) -> Any:
    """Return which elements are equal in two runs; None where all are, or there are not two tensors."""
    if not has_own_memory(one) or not has_own_memory(two) or one.shape != two.shape:
        return None
    equal = (one == two) | (one.isnan() & two.isnan())
    return None if bool(equal.all()) else equal


class Reference:
    """What each operation of a graph gives in one call, run as it is."""

    def __init__(self, graph: ReplayedGraph) -> None:
        """Run it.

        Raises:
            NoRealValue: some operation cannot be run again.
        """
        self.graph = graph
        self.values: dict[Any, Any] = {}
        """Of the operations that give a tensor which no later one writes to."""
        self.defined_values: dict[str, Any] = {}
        """By node's name, which elements are defined, where not all are: the others come from ``torch.empty``."""
        self.defined_outputs: dict[int, Any] = {}
        self._seen: dict[Any, tuple[object, int, Any]] = {}
        self.left: dict[Any, Any] = {}
        """By placeholder, what the graph leaves in an input that it writes to."""
        self.writers: dict[Any, Any] = {}
        """By placeholder, the last node that writes to it."""
        self._versions: dict[Any, int] = {}
        self._fill = _FILLS[0]
        self.drawn: dict[str, TakenResult] = {}
        """By node's name, results that another run does not give again."""
        self._random: Any = None
        self._calls = CheckedCalls(graph.promised)
        try:
            self.outputs = graph.run(self._note, self._calls)
        except NoRealValue:
            if not self._calls.faults:
                raise
            self.outputs = []  # what comes after an operator that lies may fail
        self.values = self._unchanged()
        dtypes = {node.name: value.dtype for node, value in self.values.items()}
        self.runs = ExactRuns(graph, dtypes, self.drawn)
        if any(_leaves_undefined(node) for node in graph.nodes):
            self._find_undefined()
        self._seen.clear()

    def _unchanged(self) -> dict[Any, Any]:
        return {node: kept for node, (value, version, kept) in self._seen.items() if version_of(value) == version}

    def _find_undefined(self) -> None:
        """Run it again with other contents in the memory that nobody has written to."""
        self._fill = _FILLS[1]
        try:
            outputs = self.graph.run(self._note, self._calls)
        except NoRealValue:
            return
        values = self._unchanged()
        with data_reading():
            for node, value in self.values.items():
                if (defined := _equal(value, values.get(node))) is not None:
                    self.defined_values[node.name] = defined
            for position, (one, two) in enumerate(zip(self.outputs, outputs, strict=True)):
                if (defined := _equal(one, two)) is not None:
                    self.defined_outputs[position] = defined

    @property
    def operator_faults(self) -> Mapping[Any, OperatorFault]:
        """By node, what custom operators do otherwise than they declare."""
        return self._calls.faults

    def _note(self, node: Any, results: Mapping[Any, Any]) -> None:
        if node.prev.op == "root":
            self._seen.clear()
            self.drawn.clear()
            self._versions.clear()
        self._note_writes(node, results)
        value = results[node]
        before, self._random = self._random, random_state()
        draws = before is not None and node.prev.op != "root" and not before.equal(self._random)
        if draws or is_custom_operator(node.target):
            self.drawn[node.name] = TakenResult.of(node, results, is_random=draws)
        if _leaves_undefined(node) and has_own_memory(value):
            with data_reading():
                value.detach().fill_(self._fill)
        if in_transform():  # a tensor stands for many there
            return
        if node.op in ("call_function", "call_method", "call_module") and has_own_memory(value):
            with data_reading():
                self._seen[node] = (value, version_of(value), value.detach().clone())

    def _note_writes(self, node: Any, results: Mapping[Any, Any]) -> None:
        """Note which copies of inputs the node has written to."""
        if node.op == "placeholder":
            value, given = results[node], self.graph.inputs.get(node)
            if has_own_memory(value) and has_own_memory(given) and storage_of(value) != storage_of(given):
                self._versions[node] = version_of(value)
            return
        for placeholder, version in self._versions.items():
            if (now := version_of(results[placeholder])) != version:
                self._versions[placeholder] = now
                self.writers[placeholder] = node
        if node.op == "output":
            with data_reading():
                self.left = {each: results[each].detach().clone() for each in self._versions}

    def referee(self, node: Any) -> Referee:
        """Return what says of ``node`` how far a result of it may be off."""
        return _OfNode(self, getattr(node, "name", ""))

    def referee_of_output(self, position: int) -> Referee:
        """Return the same for an output of the graph, which may have been written to after it was made."""
        return _OfOutput(self, position)


@dataclass(frozen=True)
class _OfNode:
    """See ``Referee``."""

    _reference: Reference
    _name: str

    def exact(self) -> Any:
        return self._reference.runs.exact().values.get(self._name)

    def disturbed(self) -> Sequence[Any]:
        return [run.values.get(self._name) for run in self._reference.runs.disturbed()]

    def is_defined(self) -> Any:
        return self._reference.defined_values.get(self._name)


@dataclass(frozen=True)
class _Defined(NoReferee):
    """Says which elements are defined, and nothing else."""

    _elements: Any

    def is_defined(self) -> Any:
        return self._elements


@dataclass(frozen=True)
class _OfOutput:
    """See ``Referee``."""

    _reference: Reference
    _position: int

    def exact(self) -> Any:
        return self._of(self._reference.runs.exact())

    def disturbed(self) -> Sequence[Any]:
        return [self._of(run) for run in self._reference.runs.disturbed()]

    def is_defined(self) -> Any:
        return self._reference.defined_outputs.get(self._position)

    def _of(self, run: ExactRun) -> Any:
        return run.outputs[self._position] if self._position < len(run.outputs) else None


def prefix(graph: ReplayedGraph, nodes: Sequence[Any], *, whole: bool = False) -> Any:
    """Return the graph (a ``GraphModule``) up to the last of ``nodes``, or the ``whole``; it returns ``nodes``."""
    torch: Any = sys.modules["torch"]
    shorter = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    last = len(graph.nodes) - 2 if whole else max(graph.nodes.index(node) for node in nodes)
    for position, node in enumerate(graph.nodes):
        if node.op == "placeholder" or position <= last:
            copies[node] = shorter.node_copy(node, copies.__getitem__)
            copies[node].meta = {}
    shorter.output(tuple(copies[node] for node in nodes))
    return torch.fx.GraphModule(graph.module, shorter)


def values_by(
    backend: Callable[..., Any],
    graph: ReplayedGraph,
    nodes: Sequence[Any],
    random: Iterable[Callable[[], None]],
    inputs: list[Any] | None = None,
    *,
    whole: bool = False,
) -> list[Any]:
    """Compile the graph by ``backend`` so that it returns what ``nodes`` give, and run it on the call's inputs.

    ``inputs`` are what it runs on, if that is to be looked at afterwards; ``whole``: what comes after ``nodes``, too.

    Raises:
        Exception: whatever the backend raises.
    """
    with compiling_apart_from_the_program():
        given = graph.fresh_inputs()
        compiled = backend(prefix(graph, nodes, whole=whole), given)
        for put_back in random:
            put_back()
        returned = compiled(*(graph.fresh_inputs() if inputs is None else inputs))
        return list(returned)


def stages_before(backend: Any) -> list[tuple[str, Callable[..., Any]]]:
    """Return what compiles a graph as far as a stage before the backend itself, in order, with the stage's name."""
    if STAGES.problem is not None:
        return []
    stages = [(AOT_AUTOGRAD, STAGES.resolve(_AOT_EAGER))]
    if is_inductor(backend):
        stages.append((DECOMPOSITION, STAGES.resolve(_DECOMPOSED)))
    return stages


def name_of(backend: Any) -> str:
    """Return the backend's name as a user gives it to ``torch.compile``."""
    name = getattr(backend, "compiler_name", None)
    if isinstance(name, str):
        return name
    inner = getattr(backend, "compiler_fn", backend)
    return str(getattr(inner, "__name__", type(inner).__name__))


def is_inductor(backend: Any) -> bool:
    """Whether a cache entry's backend is Inductor."""
    return name_of(backend) == "inductor"


def draws_its_own_numbers(backend: Any) -> bool:
    """Whether random numbers of the compiled graph are others than those of its operations."""
    config: Any = sys.modules.get("torch._inductor.config")
    return is_inductor(backend) and not getattr(config, "fallback_random", False)


@dataclass(frozen=True)
class Fault:
    """Where the compiled graph begins to differ, and in which stage."""

    node: Any
    """None if it does not differ when it is compiled again."""
    difference: Difference
    stage: str | None
    """None if it is the backend itself."""
    value: Any
    """What the compiled graph gives for ``node``."""
    line: tuple[str, int] | None = None
    """File and line, if that is not where ``node`` was made but where the function was called that made it."""
    operator: str | None = None
    """What a custom operator does wrong, if that is at fault."""
    stored: LeftOtherwise | None = None
    """What the call leaves otherwise, if that is at fault and no value."""
    visit: int = 1
    """Which time the line is come to, if something is stored there."""
    written: str | None = None
    """The input, as the user writes it, that is left otherwise, if that is at fault and no result."""


class Comparison:
    """The compiled graph of one call beside Dynamo's graph."""

    def __init__(
        self,
        graph: ReplayedGraph,
        outputs: Sequence[Any],
        backend: Any,
        random: Iterable[Callable[[], None]],
        *,
        given: Sequence[Any] = (),
    ) -> None:
        """Run the graph; ``outputs`` are those of the compiled one.

        ``given`` are the inputs as the compiled call left them.

        Raises:
            NoRealValue: some operation cannot be run again.
        """
        self.reference = Reference(graph)
        self.outputs = outputs
        self.graph = graph
        self._backend = backend
        self._random = tuple(random)
        self._values: list[Any] = []
        self.by_line: dict[tuple[str, int], Difference] = {}
        """How Dynamo's graph differs from ordinary Python, by file and line, where that was looked at."""
        self.by_node: dict[Any, Difference] = {}
        """How each operation's result differs in the compiled graph, once that was looked at."""
        self.of_outputs = [
            difference(reference, other, self.reference.referee_of_output(position))
            for position, (reference, other) in enumerate(zip(self.reference.outputs, outputs, strict=False))
        ]

        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        self._given = dict(zip(placeholders, given, strict=True)) if len(placeholders) == len(given) else {}
        self.of_inputs = {
            node: difference(left, self._given[node])
            for node, left in self.reference.left.items()
            if node in self._given
        }
        """How inputs that the graph writes to are left otherwise."""
        self.clobbered = [
            node
            for node, value in self._given.items()
            if node not in self.reference.left
            and graph.inputs.get(node) is not value
            and difference(graph.inputs.get(node), value).largest != 0.0
        ]
        """Inputs that the compiled graph has written to, and Dynamo's graph does not."""

    def is_stored_right(self, expected: Any, stored: Any) -> bool:
        """Whether a tensor that the compiled call has stored is ``expected``, or an output in the place of that."""
        if difference(expected, stored).is_same:
            return True
        return any(
            has_own_memory(other)
            and difference(other, stored).largest == 0.0
            and difference(expected, reference, _Defined(self.reference.defined_outputs.get(position))).is_same
            for position, (other, reference) in enumerate(zip(self.outputs, self.reference.outputs, strict=False))
        )

    def _difference(self, node: Any, reference: Any, other: Any) -> Difference:
        return difference(reference, other, self.reference.referee(node))

    @property
    def differs(self) -> bool:
        """Whether some output does."""
        return not all(each.is_same for each in self.of_outputs)

    def of_nodes(self, backend: Any, nodes: Sequence[Any]) -> list[tuple[Difference, Any]]:
        """Compile by ``backend`` so that ``nodes`` are returned; return for each how it differs, and its value.

        Raises:
            Exception: whatever the backend raises.
        """
        if not nodes:
            return []
        values = values_by(backend, self.graph, nodes, self._random)
        return [
            (self._difference(node, self.reference.values[node], value), value)
            for node, value in zip(nodes, values, strict=True)
        ]

    @property
    def worst(self) -> Difference:
        """That of the output which differs most."""
        none = Difference(0.0, 0.0, True)
        return max(self.of_outputs, key=lambda each: (not each.is_same, each.largest), default=none)

    def look_at_nodes(self) -> None:
        """Compile the graph again so that it returns what each operation gives, and fill ``by_node``.

        Raises:
            Exception: whatever the backend raises.
        """
        nodes = list(self.reference.values)
        found = self.of_nodes(self._backend, nodes)
        self._values = [value for _, value in found]
        self.by_node = {node: each for node, (each, _) in zip(nodes, found, strict=True)}

    def fault_of_dynamo(self, is_passed_over: Callable[[str], bool]) -> Fault | None:
        """Return the first line that differs from ordinary Python, if that reaches what the graph returns."""
        if all(each.is_same for each in self.by_line.values()):
            return None
        lines = {
            node: [(place.path, place.line) for place, _ in places_of(node) if not is_passed_over(place.path)]
            for node in self.reference.values
        }
        differing = {line for line, each in self.by_line.items() if not each.is_same}
        returned = [node for node in self.graph.output_nodes if node in lines]
        if not any(differing.intersection(lines[node]) for node in returned):
            return None
        for its_lines in lines.values():
            line = next((each for each in its_lines if each in differing), None)
            if line is not None:
                last = [other for other, others in lines.items() if line in others][-1]
                value = self.reference.values[last]
                if (told := self._changes_its_mind(last)) is not None:
                    return Fault(last, self.by_line[line], OPERATOR, value, operator=told)
                return Fault(last, self.by_line[line], DYNAMO, value, None if line == its_lines[0] else line)
        return None

    def fault_of_operator(self) -> Fault | None:
        """Return the first custom operator that does otherwise than it declares."""
        for node, found in self.reference.operator_faults.items():
            return Fault(node, self.worst, found.stage, self.reference.values.get(node), operator=found.text)
        return None

    def fault_in_inputs(self) -> Fault | None:
        """Return the first input that the compiled graph leaves otherwise than Dynamo's, and which stage does so."""
        for node, how in self.of_inputs.items():
            if not how.is_same:
                stage = self._stage_that_writes(node)
                writer = self.reference.writers.get(node)
                return Fault(writer, how, stage, self._given[node], written=self._name_of(node))
        for node in self.clobbered:
            return Fault(None, OTHERWISE, None, self._given[node], written=self._name_of(node))
        return None

    def _name_of(self, placeholder: Any) -> str:
        return self.graph.names.get(placeholder, str(placeholder.name))

    def _stage_that_writes(self, placeholder: Any) -> str | None:
        position = list(self._given).index(placeholder)
        nodes = [node for node in self.graph.output_nodes if hasattr(node, "op")]
        for name, backend in stages_before(self._backend):
            given = self.graph.fresh_inputs()
            try:
                values_by(backend, self.graph, nodes, self._random, given, whole=True)
            except Exception:  # noqa: BLE001  (a stage that cannot be had alone is not told from the next)
                continue
            if not difference(self.reference.left[placeholder], given[position]).is_same:
                return name
        return None

    def fault(self) -> Fault:
        """Find the first operation whose result differs, and whose fault that is.

        Raises:
            Exception: whatever the backend raises.
        """
        if not self.by_node:
            self.look_at_nodes()
        known = zip(self.by_node.items(), self._values, strict=True)
        found = next(((node, how, value) for (node, how), value in known if not how.is_same), None)
        found = found or self._first_of_prefixes(list(self.by_node))
        if found is None:
            return Fault(None, self.worst, None, None)
        node, how, value = found
        if (told := self._changes_its_mind(node)) is not None:
            return Fault(node, how, OPERATOR, value, operator=told)
        return Fault(node, how, self._stage(node), value)

    def _changes_its_mind(self, node: Any) -> str | None:
        """Return what is wrong with a custom operator that gives another result for equal operands."""
        torch: Any = sys.modules["torch"]
        known = {**self.graph.inputs, **self.reference.values}
        if not is_custom_operator(node.target) or any(each not in known for each in node.all_input_nodes):
            return None
        args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), known.__getitem__)
        try:
            told = changes_its_mind(node.target, args, kwargs, self.reference.values[node])
        except Exception:  # noqa: BLE001  (an operator that cannot be called otherwise tells nothing)
            return None
        return None if told is None else f"It gives another result for equal operands {told}."

    def _first(self, nodes: Sequence[Any]) -> tuple[Any, Difference, Any] | None:
        found = zip(nodes, self.of_nodes(self._backend, nodes), strict=True)
        return next(((node, how, value) for node, (how, value) in found if not how.is_same), None)

    def _first_of_prefixes(self, nodes: Sequence[Any]) -> tuple[Any, Difference, Any] | None:
        """Do the same with one output at a time: where everything is returned, other things are fused."""
        low, high, found = 0, len(nodes) - 1, None
        while low <= high:
            middle = (low + high) // 2 if found is not None else high
            first = self._first([nodes[middle]])
            if first is not None:
                found, high = first, middle - 1
            elif found is None:
                return None
            else:
                low = middle + 1
        return found

    def _stage(self, node: Any) -> str | None:
        for name, backend in stages_before(self._backend):
            if self._first_by(backend, node) is not None:
                return name
        return None

    def _first_by(self, backend: Any, node: Any) -> Difference | None:
        try:
            ((how, _),) = self.of_nodes(backend, [node])
        except Exception:  # noqa: BLE001  (a stage that cannot be had alone is not told from the next)
            return None
        return None if how.is_same else how
