"""Compares a compiled call's gradients with those of Dynamo's graph, and finds the wrong line.

``KeptBackward`` keeps a call until the program's backward pass has run through it. Then the call's graph is
differentiated from the output gradients of that pass: in its own dtypes, in float64, and in float64 with every result
disturbed. If a gradient differs, the graph is compiled again with a zero added to each operand: the zero's gradient is
the part that comes from one operation. Runs on the program's thread that runs the backward pass.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dynamo_dap.debuggee.numerics.faults.body_faults import ALONE, first_difference
from dynamo_dap.debuggee.numerics.faults.comparisons import Fault
from dynamo_dap.debuggee.numerics.faults.stage_search import ladder, part_at_fault
from dynamo_dap.debuggee.numerics.gradients.gradient_run import GradientRun, Gradients, KeptInput
from dynamo_dap.debuggee.numerics.gradients.returned_gradients import BackwardPass
from dynamo_dap.debuggee.numerics.graphs.changed_graphs import Use, expanded, with_zeros
from dynamo_dap.debuggee.numerics.graphs.differences import DISTURBED_RUNS, Difference, difference, widened
from dynamo_dap.debuggee.numerics.graphs.exact_runs import Disturbance, Noise, not_in_float64, widened_graph
from dynamo_dap.debuggee.recording.function_names import name_of_call
from dynamo_dap.debuggee.replay.graph_calls import GraphCall
from dynamo_dap.debuggee.replay.replayed_graph import ReplayedGraph, places_of
from dynamo_dap.debuggee.torch_api.graphs.graph import is_higher_order, operation_name
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue, has_own_memory, with_earlier_memory
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import version_of
from dynamo_dap.debuggee.torch_api.graphs.transforms import differentiates, transforms_around
from dynamo_dap.debuggee.torch_api.isolation import data_reading
from dynamo_dap.debuggee.torch_api.objects import GraphModule, Node
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import storage_of
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall, compile_by, compiling_in_isolation
from dynamo_dap.protocol.texts import first_line_of, named_first_line_of

_LOOSE = 0.05
"""A float64 run whose outputs differ by more than this, relative to their scale, has computed something else."""
_LIMIT = 1 << 30
"""The maximum bytes of gradients that are computed at once."""

_NO_FRAME: Any = None
"""The frame of an ended call: the call is not traced again."""

Facts = tuple[object, object, object]
"""The shape, dtype and device of a tensor."""


@dataclass(frozen=True)
class DifferentiatedGraph:
    """A replayed graph as a ``gradients.DifferentiableGraph``."""

    graph: ReplayedGraph
    nodes: Sequence[Node]
    outputs: Sequence[object]
    written: frozenset[object]

    @classmethod
    def of(cls, graph: ReplayedGraph, written: frozenset[str]) -> DifferentiatedGraph:
        """Wrap ``graph``; ``written`` has the names of the placeholders that nodes write to."""
        placeholders = frozenset(node for node in graph.nodes if node.op == "placeholder" and node.name in written)
        return cls(graph, [node for node in graph.nodes if node.op != "output"], graph.output_nodes, placeholders)

    def attribute(self, target: str) -> object:
        """Return a parameter, buffer, constant or submodule of the graph."""
        return self.graph.attribute(target)


class KeptBackward:
    """A call whose backward pass will be compared."""

    def __init__(
        self,
        graph: ReplayedGraph,
        given: Sequence[Any],
        states: Sequence[Callable[[], None]],
        backend: Callable[..., object],
        memory: Mapping[object, object],
    ) -> None:
        """Keep the inputs ``given`` of ``graph``. The call has written to ``memory``, which has the earlier contents.

        Raises:
            NoRealValue: the call's gradients cannot be compared; the text says why.
        """
        self.graph = graph
        self.states = tuple(states)
        self.backend = backend
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        changed = {*graph.written, *memory}
        of_memory: dict[object, int] = {}
        for each in given:
            if has_own_memory(each):
                of_memory[storage_of(each)] = of_memory.get(storage_of(each), 0) + 1
        self.written = frozenset(
            node.name
            for node, value in zip(placeholders, given, strict=True)
            if has_own_memory(value) and storage_of(value) in changed
        )
        inputs: dict[Node, KeptInput] = {}
        for node, value in zip(placeholders, given, strict=True):
            name = graph.names.get(node) or node.name
            is_written = node.name in self.written
            if is_written and of_memory[storage_of(value)] > 1:
                raise NoRealValue(f"the call may write to {name}, which shares its memory")
            # Refuse only real writes: operands of custom operators count as written, too, as declarations may be wrong.
            if is_written and value.requires_grad and storage_of(value) in memory:
                raise NoRealValue(f"the call writes to {name}, which needs a gradient")
            kept = KeptInput.of(name, with_earlier_memory(value, memory), is_written=is_written)
            inputs[node] = replace(kept, requires_grad=bool(getattr(value, "requires_grad", False)))
        self.inputs = inputs
        self.names = [graph.names.get(node) or node.name for node in placeholders]
        self.function, self.compile_id, self.token, self.number, self.passes = "", "", "", 0, 0
        self.included: Sequence[frozenset[int]] = ()
        """The call's ``ReturnedGradients.included``."""
        self.shares: Sequence[int | None] = ()

    @classmethod
    def of(
        cls, call: GraphCall, cached_call: CachedCall, graph: ReplayedGraph, states: Sequence[Callable[[], None]]
    ) -> KeptBackward:
        """Keep a call that has just returned, without its frame and its arguments.

        Raises:
            NoRealValue: the call's gradients cannot be compared; the text says why.
        """
        kept = cls(graph, call.inputs, states, cached_call.backend, call.kept.memory)
        kept.graph = graph.with_inputs(graph.module, {node: each.value for node, each in kept.inputs.items()})
        kept.graph.call = replace(cached_call, frame=_NO_FRAME, arguments={}, closure=(), memory={}, marks=())
        kept.function = name_of_call(cached_call)
        kept.token = call.token
        kept.compile_id, kept.number = cached_call.compile_id, call.graph.calls
        return kept

    def expanded(self, node: Node) -> tuple[KeptBackward, frozenset[Node]] | None:
        """Return the call with the operator ``node`` replaced by its body, and the operations of the body.

        Return None if the operator does more than run one body.
        """
        found = expanded(self.graph.module, node)
        if found is None:
            return None
        other = copy.copy(self)
        other.inputs = {found.copies[node]: each for node, each in self.inputs.items()}
        other.graph = self.graph.with_inputs(found.module, {node: each.value for node, each in other.inputs.items()})
        return other, found.inside

    def with_zeros(self, uses: Sequence[Use], runs: _Runs) -> KeptBackward:
        """Return the call with one more input of its graph for each use: a zero that is added to the operand.

        The zero's gradient is the part of the operand's gradient that comes from the use. If later operations write to
        the operand, it is the gradient of the contents that the user reads. ``runs`` are those of this call's graph.
        """
        torch, facts = sys.modules["torch"], runs.facts
        module, copies, zeros = with_zeros(self.graph, uses, runs.in_place)
        other = copy.copy(self)
        other.inputs = {copies[node]: each for node, each in self.inputs.items()}
        for (node, _), placeholder in zip(uses, zeros, strict=True):
            shape, dtype, device = facts[node]
            zero = torch.zeros(shape, dtype=dtype, device=device)
            other.inputs[placeholder] = KeptInput(placeholder.name, zero, requires_grad=True)
        other.graph = self.graph.with_inputs(module, {node: each.value for node, each in other.inputs.items()})
        return other

    def values(self) -> list[object]:
        """Return the inputs as they were in the call.

        Raises:
            NoRealValue: the program has changed an input since.
        """
        return [each.now() for each in self.inputs.values()]


class _Runs:
    """The gradients of a graph for given output gradients: in its own dtypes, in float64, and disturbed."""

    def __init__(
        self,
        kept: KeptBackward,
        arrived: Gradients,
        included: Sequence[frozenset[int]],
        problems: dict[str, None] | None = None,
    ) -> None:
        """Differentiate the graph in its own dtypes. ``problems`` may be shared with other runs.

        Raises:
            NoRealValue: the graph cannot be differentiated.
        """
        self.problems: dict[str, None] = {} if problems is None else problems
        """The reasons why gradients were judged without a float64 run, in order."""
        self._kept, self._arrived, self._included = kept, arrived, included
        self.dtypes: dict[str, Any] = {}
        self.facts: dict[object, Facts] = {}
        self._memory: dict[Node, tuple[object, int]] = {}
        self._latest: dict[object, int] = {}
        self._writers: dict[object, Node] = {}
        """The last operation that has written to each memory."""
        self.in_place: set[Use] = set()
        """Uses of memory that the user or a later operation overwrites. ``uses`` fills this set."""
        graph = DifferentiatedGraph.of(kept.graph, kept.written)
        self.own = GradientRun(graph, kept.inputs, kept.states, arrived, included, self._note, self._note_in_body)
        self._around = transforms_around(kept.graph.nodes)
        self._exact: GradientRun | None = None
        self._is_exact_known = False
        self._disturbed: list[GradientRun] | None = None

    def _note(self, node: Node, results: Mapping[Node, object]) -> None:
        for operand in (*node.all_input_nodes, node):
            value: object = results.get(operand)
            if has_own_memory(value):
                storage, version = storage_of(value), version_of(value)
                if version > self._latest.get(storage, version):
                    self._writers[storage] = node
                self._latest[storage] = max(version, self._latest.get(storage, 0))
                if operand is node:
                    self.dtypes[node.name] = value.dtype
                    self.facts[node] = value.shape, value.dtype, value.device
                    self._memory[node] = storage, version

    def _note_in_body(self, name: str, node: Node, results: Mapping[Node, object]) -> None:
        value: object = results[node]
        if has_own_memory(value):
            self.dtypes[name] = value.dtype

    def uses(self) -> Iterator[Use]:
        """Yield each use of a tensor with a gradient, except uses of an input that the graph overwrites.

        Inside a transform that differentiates, yield only uses of tensors from outside the transform, which might
        differentiate an added zero as well.
        """
        changed = {storage for storage, version in self._memory.values() if self._latest[storage] != version}
        of_inputs = {known[0] for node, known in self._memory.items() if node.op == "placeholder"}
        order = {node: at for at, node in enumerate(self._kept.graph.nodes)}
        names = self.own.names
        for user in self._kept.graph.nodes:
            if user.op in ("call_function", "call_method"):
                for node in user.all_input_nodes:
                    known, around = self._memory.get(node), self._around.get(node, ())
                    is_batch = bool(around) and self.dtypes[node.name].is_floating_point if known else False
                    has_gradient = node.name in names or (is_batch and not any(map(differentiates, around)))
                    if not has_gradient or known is None or (known[0] in changed and (around or known[0] in of_inputs)):
                        continue
                    # No writer is known if the memory belonged to an earlier tensor that is gone.
                    writer = self._writers.get(known[0]) if known[0] in changed else None
                    if writer is not None and order[user] <= order[writer]:
                        self.in_place.add((node, user))
                    yield node, user

    def to_blame(self, use: Use) -> Node:
        """Return the operation to blame for a wrong gradient in a use.

        That is the use's own operation. If it is inside transforms that differentiate, it is the operation that enters
        the outermost of these transforms.
        """
        opening = next((each for each in self._around.get(use[1], ()) if differentiates(each)), None)
        within = [node for node, around in self._around.items() if opening in around]
        return next((each for each in within if places_of(each)), use[1]) if opening is not None else use[1]

    def exact(self) -> GradientRun | None:
        """Return the float64 run; None if the graph cannot run in float64."""
        if not self._is_exact_known:
            self._is_exact_known = True
            found = self._in_float64(None)
            if found is not None and not self._is_alike(found):
                self.problems[not_in_float64("it computes something else")] = None
                found = None
            self._exact = found
        return self._exact

    def disturbed(self) -> list[GradientRun]:
        """Return float64 runs in which each result and each gradient is disturbed."""
        if self._disturbed is None:
            runs = [self._in_float64(Noise(self.dtypes, Disturbance(seed))) for seed in range(DISTURBED_RUNS)]
            self._disturbed = [each for each in runs if each is not None]
        return self._disturbed

    def _in_float64(self, noise: Noise | None) -> GradientRun | None:
        kept = self._kept
        try:
            wide = widened_graph(
                kept.graph.with_inputs(kept.graph.module, dict(zip(kept.inputs, kept.values(), strict=True)))
            )
            inputs = {
                node: KeptInput(each.name, value, each.requires_grad)
                for each, (node, value) in zip(kept.inputs.values(), wide.inputs.items(), strict=True)
            }
            arrived = [None if each is None else widened(each) for each in self._arrived]
            ran = None if noise is None else noise.disturb_gradient
            in_body = None if noise is None else noise.disturb_gradient_in_body
            return GradientRun(
                DifferentiatedGraph.of(wide, kept.written), inputs, kept.states, arrived, self._included, ran, in_body
            )
        except Exception as problem:  # noqa: BLE001  (whatever an operation that has no float64 raises)
            self.problems[not_in_float64(named_first_line_of(problem))] = None
            return None

    def _is_alike(self, exact: GradientRun) -> bool:
        """Return whether a float64 run gives about the same outputs. If not, it may have drawn other random numbers."""
        with data_reading():
            for one, two in zip(self.own.outputs, exact.outputs, strict=True):
                if has_own_memory(one) and has_own_memory(two) and one.is_floating_point() and one.numel():
                    apart = (widened(one) - widened(two)).abs()
                    scale = float(widened(two).pow(2).mean().sqrt())
                    if math.isfinite(scale) and float(apart.nan_to_num(0.0, 0.0).median()) > _LOOSE * scale:
                        return False
        return True

    def compare(self, ask: Callable[[GradientRun], object], compiled: object) -> Difference:
        """Compare the gradient ``compiled`` with eager's; ``ask`` returns the same gradient in a run."""
        reference = ask(self.own)
        if reference is None or compiled is None:
            return _one_is_missing(reference, compiled)
        return difference(_dense(reference), _dense(compiled), _OfRuns(self, ask))


@dataclass(frozen=True)
class _OfRuns:
    """The ``differences.Referee`` for a gradient."""

    _runs: _Runs
    _ask: Callable[[GradientRun], object]

    def exact(self) -> object:
        run = self._runs.exact()
        return None if run is None else _dense(self._ask(run))

    def disturbed(self, count: int = DISTURBED_RUNS, times: float = 1.0) -> Sequence[object]:
        return [_dense(self._ask(run)) for run in self._runs.disturbed()]


def _dense(gradient: object) -> Any:
    torch = sys.modules["torch"]
    if isinstance(gradient, torch.Tensor) and gradient.layout != torch.strided:
        with data_reading():
            return gradient.detach().to_dense()
    return gradient


def _one_is_missing(reference: object, compiled: object) -> Difference:
    known = reference if compiled is None else compiled
    if known is None:
        return Difference(0.0, 0.0, True)
    with data_reading():
        size = widened(_dense(known).detach()).abs()
        if not size.numel() or float(size.max()) == 0.0:
            return Difference(0.0, 0.0, True)
        who = "the compiled graph" if compiled is None else "eager"
        largest, rmse = float(size.max()), float(size.pow(2).mean().sqrt())
        return Difference(largest, rmse, False, reason=f"{who} gives no gradient")


def _of_node(name: str) -> Callable[[GradientRun], object]:
    return lambda run: run.gradient(name, name, _LIMIT)


@dataclass(frozen=True)
class GradientOfInput:
    """The comparison of one input's gradient."""

    name: str
    """The input as the user wrote it."""
    placeholder: Node
    difference: Difference
    returned: object
    """The gradient that the compiled call passed to the input."""


class GradientComparison:
    """Compares one backward pass through a compiled call with that of Dynamo's graph."""

    def __init__(self, kept: KeptBackward, ended: BackwardPass) -> None:
        """Differentiate the graph, and compare the gradients of the inputs.

        Raises:
            NoRealValue: the graph cannot be differentiated; the text says why.
        """
        self._kept = kept
        self.not_compared: dict[str, None] = {}
        self._runs = _Runs(kept, ended.arrived, kept.included, self.not_compared)
        self.evidence = ["the program's backward pass", "Dynamo's graph, differentiated"]
        self.by_use: dict[Use, Difference] = {}
        """How the part of a gradient that comes from each use differs in the compiled graph, once compared."""
        placeholders, shares = list(kept.inputs), kept.shares
        self.of_inputs = [
            GradientOfInput(
                kept.names[at], node, self._runs.compare(self._asked(placeholders, shares, at), returned), returned
            )
            for at, (node, returned) in enumerate(zip(placeholders, ended.returned, strict=True))
            if shares[at] == at
        ]
        self._arrived = ended.arrived

    @staticmethod
    def _asked(placeholders: Sequence[Node], shares: Sequence[int | None], at: int) -> Callable[[GradientRun], object]:
        names = [node.name for node, first in zip(placeholders, shares, strict=True) if first == at]

        def ask(run: GradientRun) -> object:
            found = [each for name in names if (each := run.gradient(name, name, _LIMIT)) is not None]
            return sum(found[1:], found[0]) if found else None

        return ask

    @property
    def worst(self) -> GradientOfInput | None:
        """The input whose gradient differs most."""
        differ = [each for each in self.of_inputs if not each.difference.is_same] or self.of_inputs
        return max(differ, key=lambda each: each.difference.largest, default=None)

    @property
    def differs(self) -> bool:
        """Whether an input's gradient differs."""
        return any(not each.difference.is_same for each in self.of_inputs)

    def expected(self, of_input: GradientOfInput) -> object:
        """Return the gradient of an input in Dynamo's graph."""
        placeholders = list(self._kept.inputs)
        at = placeholders.index(of_input.placeholder)
        return self._asked(placeholders, self._kept.shares, at)(self._runs.own)

    def fault(self) -> Fault:
        """Find the first operation whose backward differs, and the wrong stage.

        Raises:
            Exception: whatever the backend raises.
        """
        uses = list(self._runs.uses())
        try:
            found = self._first(self._kept.backend, uses)
        except Exception:
            unwritten = [use for use in uses if use not in self._runs.in_place]
            if unwritten == uses:
                raise
            found = self._first(self._kept.backend, unwritten)  # adding a zero in place may be impossible
        self.evidence.append("the backend, with the gradient of each operand returned")
        if found is None:
            worst = self.worst
            none = Difference(math.inf, math.inf, False)
            return Fault(None, none if worst is None else worst.difference, None, None)
        use, how = found

        def is_right(backend: Callable[..., object]) -> bool:
            return self._first(backend, [use]) is None

        found_in = ladder(self._kept.backend, is_right)
        self.evidence += found_in.runs
        part = part_at_fault(self._kept.backend, found_in.stage, is_right)
        fault = Fault(self._runs.to_blame(use), how, found_in.stage, None, part=part, judged=found_in.judged)
        return self._in_body(fault, use[1]) or self._inside(fault, use) or fault

    def _in_body(self, fault: Fault, node: Node) -> Fault | None:
        """Return the fault in the body of ``checkpoint``, if an operation is wrong in a graph that inlines the body."""
        try:
            found = self._kept.expanded(node)
            if found is None:
                return None
            kept, inside = found
            runs = _Runs(kept, self._arrived, kept.included, self.not_compared)
            compared = self._compared(self._kept.backend, [use for use in runs.uses() if use[1] in inside], kept, runs)
        except Exception as problem:  # noqa: BLE001  (whatever the backend raises: the line of the operator remains)
            self.not_compared[f"operations in the body of {operation_name(node)}: {first_line_of(problem)}"] = None
            return None
        self.by_use.update(compared)
        wrong = _first_wrong(kept, compared)
        return None if wrong is None else replace(fault, node=wrong[1], difference=compared[wrong], within=node)

    def _inside(self, fault: Fault, use: Use) -> Fault | None:
        """Return the fault in the backward of an ``autograd.Function``; its body is compiled alone for this."""
        operand, user = use
        own = self._runs.own
        results = [node.name for node in (user, *user.users) if node.name in own.names]
        if not is_higher_order(user) or not results:
            return None
        try:
            own.contribution(results, operand.name, _LIMIT)
            found = first_difference(own.ran_in_backward, self._kept.backend, self.not_compared)
        except Exception as problem:  # noqa: BLE001  (whatever the backend raises: the line of the operator remains)
            self.not_compared[f"operations in the backward of {operation_name(user)}: {first_line_of(problem)}"] = None
            return None
        self.evidence += [ALONE] if found else []
        self.by_use.update({(user, node): how for node, (how, _) in found.items()})
        differing = ((node, how) for node, (how, _) in found.items() if not how.is_same)
        return next((replace(fault, node=node, difference=how, within=user) for node, how in differing), None)

    def _first(self, backend: Callable[..., object], uses: Sequence[Use]) -> tuple[Use, Difference] | None:
        """Return the first use, in the order of the backward pass, whose gradient differs."""
        found = self._compared(backend, uses, self._kept, self._runs)
        self.by_use = self.by_use or found
        first = _first_wrong(self._kept, found)
        return None if first is None else (first, found[first])

    def _compared(
        self, backend: Callable[..., object], uses: Sequence[Use], graph: KeptBackward, runs: _Runs
    ) -> dict[Use, Difference]:
        if not uses:
            return {}
        kept = graph.with_zeros(uses, runs)
        with_zeros = _Runs(kept, self._arrived, [frozenset()] * len(self._arrived), self.not_compared)
        returned = gradients_by(backend, kept, self._arrived)[-len(uses) :]
        zeros = list(kept.inputs)[-len(uses) :]
        return {
            use: with_zeros.compare(_of_node(zero.name), gradient)
            for use, zero, gradient in zip(uses, zeros, returned, strict=True)
        }


def _first_wrong(kept: KeptBackward, found: Mapping[Use, Difference]) -> Use | None:
    """Return the first use, in the order of the backward pass, whose gradient differs."""
    order = {node: at for at, node in enumerate(kept.graph.nodes)}
    differing = [use for use, how in found.items() if not how.is_same]
    return max(differing, key=lambda use: order[use[1]], default=None)


def problem_in_eager(kept: KeptBackward, arrived: Gradients) -> BaseException | None:
    """Differentiate Dynamo's graph, and return the exception that an operation raises; None if none does.

    Raises:
        NoRealValue: the graph cannot be differentiated for another reason.
    """
    try:
        run = _Runs(kept, arrived, kept.included).own
        for node, each in kept.inputs.items():
            if each.requires_grad:
                run.gradient(node.name, node.name, _LIMIT)
    except NoRealValue as problem:
        if problem.__cause__ is None:
            raise
        return problem.__cause__
    return None


def outputs_by(backend: Callable[..., object], kept: KeptBackward) -> tuple[list[object], list[object]]:
    """Compile the graph by ``backend``, and run it under autograd; return its inputs and outputs.

    Raises:
        Exception: whatever the backend raises.
    """
    torch = sys.modules["torch"]
    with compiling_in_isolation(), torch.enable_grad():
        for restore in kept.states:
            restore()
        torch.set_grad_enabled(True)
        compiled = compile_by(backend, _copied(kept.graph.module), _leaves(kept))
        leaves = _leaves(kept)
        for restore in kept.states:
            restore()
        with torch.enable_grad():
            return leaves, list(compiled(*leaves))


def gradients_by(backend: Callable[..., object], kept: KeptBackward, arrived: Gradients) -> list[object]:
    """Compile the graph by ``backend``, and return its inputs' gradients; ``arrived`` has the outputs' gradients.

    Raises:
        Exception: whatever the backend raises.
    """
    torch = sys.modules["torch"]
    leaves, outputs = outputs_by(backend, kept)
    pairs = [
        (output, gradient)
        for output, gradient in zip(outputs, arrived, strict=True)
        if gradient is not None and getattr(output, "requires_grad", False)
    ]
    known = [at for at, each in enumerate(leaves) if getattr(each, "requires_grad", False)]
    found: list[object] = [None] * len(leaves)
    if pairs and known:
        roots, gradients = zip(*pairs, strict=True)
        with compiling_in_isolation():
            given = torch.autograd.grad(roots, [leaves[at] for at in known], gradients, allow_unused=True)
        for at, gradient in zip(known, given, strict=True):
            found[at] = gradient
    return found


def _leaves(kept: KeptBackward) -> list[object]:
    torch = sys.modules["torch"]
    given: list[object] = []
    for node, each in kept.inputs.items():
        value = each.now()
        if isinstance(value, torch.Tensor):
            value = value.clone() if node.name in kept.written else value.detach()
            value.requires_grad_(each.requires_grad)
        given.append(value)
    return given


def _copied(module: GraphModule) -> Any:
    """Return a copy of a graph, without Dynamo's metadata, which a backend may change."""
    torch = sys.modules["torch"]
    other = torch.fx.Graph()
    copies: dict[object, object] = {}
    other.output(other.graph_copy(module.graph, copies))
    for node in other.nodes:
        node.meta = {}
    return torch.fx.GraphModule(module, other)
