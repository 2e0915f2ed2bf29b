"""Compares a compiled call's gradients with those of Dynamo's graph, and finds the wrong line.

``KeptBackward`` keeps a call until the program's backward pass has run through it. Then the call's graph is
differentiated from the output gradients of that pass: in its own dtypes, in float64, and in float64 with every result
disturbed. If a gradient differs, the graph is compiled again with a zero added to each operand: the zero's gradient is
the part that comes from one operation. Runs on the program's thread that runs the backward pass.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dynamo_dap.debuggee.numerics.faults.body_faults import ALONE, first_difference
from dynamo_dap.debuggee.numerics.faults.comparisons import Fault
from dynamo_dap.debuggee.numerics.faults.stage_search import ladder, part_at_fault
from dynamo_dap.debuggee.numerics.gradients.gradient_run import GradientRun, Gradients, KeptInput
from dynamo_dap.debuggee.numerics.gradients.kept_backward import DifferentiatedGraph, Facts, KeptBackward, gradients_by
from dynamo_dap.debuggee.numerics.gradients.returned_gradients import BackwardPass
from dynamo_dap.debuggee.numerics.graphs.changed_graphs import Use
from dynamo_dap.debuggee.numerics.graphs.differences import DISTURBED_RUNS, Difference, difference, widened
from dynamo_dap.debuggee.numerics.graphs.exact_runs import Disturbance, Noise, not_in_float64, widened_graph
from dynamo_dap.debuggee.replay.replayed_graph import places_of
from dynamo_dap.debuggee.torch_api.graphs.graph import is_higher_order, operation_name
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue, has_own_memory
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import version_of
from dynamo_dap.debuggee.torch_api.graphs.transforms import differentiates, transforms_around
from dynamo_dap.debuggee.torch_api.isolation import data_reading
from dynamo_dap.debuggee.torch_api.objects import Node
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import storage_of
from dynamo_dap.protocol.texts import first_line_of, named_first_line_of

_LOOSE = 0.05
"""A float64 run whose outputs differ by more than this, relative to their scale, has computed something else."""
_LIMIT = 1 << 30
"""The maximum bytes of gradients that are computed at once."""


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
        self.of_inputs = self._of_inputs(ended.returned)
        self._arrived = ended.arrived

    def _of_inputs(self, gradients: Sequence[object]) -> list[GradientOfInput]:
        """Compare the gradient of each input, in the graph's order, with that of Dynamo's graph."""
        kept, placeholders, shares = self._kept, list(self._kept.inputs), self._kept.shares
        return [
            GradientOfInput(
                kept.names[at], node, self._runs.compare(self._asked(placeholders, shares, at), gradient), gradient
            )
            for at, (node, gradient) in enumerate(zip(placeholders, gradients, strict=True))
            if shares[at] == at
        ]

    @staticmethod
    def _asked(placeholders: Sequence[Node], shares: Sequence[int | None], at: int) -> Callable[[GradientRun], object]:
        names = [node.name for node, first in zip(placeholders, shares, strict=True) if first == at]

        return lambda run: _sum(run.gradient(name, name, _LIMIT) for name in names)

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
            return self._fault_in_inputs()
        use, how = found

        def is_right(backend: Callable[..., object]) -> bool:
            return self._first(backend, [use]) is None

        found_in = ladder(self._kept.backend, is_right)
        self.evidence += found_in.runs
        part = part_at_fault(self._kept.backend, found_in.stage, is_right)
        fault = Fault(self._runs.to_blame(use), how, found_in.stage, None, part=part, judged=found_in.judged)
        return self._in_body(fault, use[1]) or self._inside(fault, use) or fault

    def _fault_in_inputs(self) -> Fault:
        """Find the wrong stage by the inputs' gradients: those of all operands are right once they are returned.

        The graph that returns them saves other tensors for the backward pass, and may thus hide the fault.
        """
        worst = self.worst
        fault = Fault(None, Difference(math.inf, math.inf, False) if worst is None else worst.difference, None, None)
        shares = self._kept.shares

        def is_right(backend: Callable[..., object]) -> bool:
            returned = gradients_by(backend, self._kept, self._arrived)
            summed = [
                _sum(returned[each] for each, first in enumerate(shares) if first == at) for at in range(len(shares))
            ]
            return all(each.difference.is_same for each in self._of_inputs(summed))

        if is_right(self._kept.backend):
            return fault
        self.evidence.append("the backend, compiled again")
        found_in = ladder(self._kept.backend, is_right)
        self.evidence += found_in.runs
        part = part_at_fault(self._kept.backend, found_in.stage, is_right)
        return replace(fault, stage=found_in.stage, part=part, judged=found_in.judged)

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
        kept = graph.with_zeros(uses, runs.facts, runs.in_place)
        with_zeros = _Runs(kept, self._arrived, [frozenset()] * len(self._arrived), self.not_compared)
        returned = gradients_by(backend, kept, self._arrived)[-len(uses) :]
        zeros = list(kept.inputs)[-len(uses) :]
        return {
            use: with_zeros.compare(_of_node(zero.name), gradient)
            for use, zero, gradient in zip(uses, zeros, returned, strict=True)
        }


def _sum(gradients: Iterable[Any]) -> Any:
    """Return the sum of those gradients that are not None; None if all are."""
    found = [each for each in gradients if each is not None]
    return sum(found[1:], found[0]) if found else None


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
