"""Finds the line whose backward makes the first NaN or Inf: the exception filter ``nan`` in a backward pass.

While the filter is on, this module keeps each compiled call that autograd records, with its inputs. If a backward pass
leaves NaN or Inf in gradients, it differentiates the pass's calls again, operation by operation. It holds the thread at
the line of the first operation that makes a NaN or Inf from finite gradients, before ``backward()`` returns. Runs on
the calling threads and on autograd's threads. A kept call lives as long as the program's autograd graph.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.user_code import is_torch_file
from dynamo_dap.debuggee.numerics.gradients.gradient_run import (
    GRADIENTS,
    GivenTensors,
    GradientRun,
    Gradients,
    OutputGradients,
    at_end_of_pass,
    current_pass,
    guarded_in_backward,
    is_backward_compiled,
)
from dynamo_dap.debuggee.numerics.graphs.not_finite import NAN, BadOperation, kinds_of, may_have_any, sum_of
from dynamo_dap.debuggee.numerics.stops.backward_lines import BackwardLines, Visit, visit_that_makes
from dynamo_dap.debuggee.numerics.stops.backward_passes import GRADIENT, BackwardPasses, KeptCall, result_of
from dynamo_dap.debuggee.numerics.stops.filter_conditions import holds_at, may_hold
from dynamo_dap.debuggee.numerics.stops.stop_texts import BackwardFault, not_finite_in_backward
from dynamo_dap.debuggee.recording.function_names import name_of_call
from dynamo_dap.debuggee.replay.graph_calls import GraphCall
from dynamo_dap.debuggee.replay.replayed_graph import has_transforms, module_of, place_of
from dynamo_dap.debuggee.torch_api.graphs.graph import operation_name, target_name
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue
from dynamo_dap.debuggee.torch_api.graphs.real_values import limits_of_real_values
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import gradient_node_of, is_fake_tensor
from dynamo_dap.debuggee.torch_api.graphs.transforms import is_visible
from dynamo_dap.debuggee.torch_api.isolation import preserved_global_state, switches
from dynamo_dap.debuggee.torch_api.objects import Node
from dynamo_dap.debuggee.torch_api.skipping import never_compile
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall
from dynamo_dap.debuggee.trace.runs import TracePoint
from dynamo_dap.debuggee.wrapping.patches import Patches
from dynamo_dap.protocol.requests.contract import NAN as NAN_FILTER
from dynamo_dap.protocol.texts import first_line_of


@dataclass(eq=False)
class _Noted:
    """A call whose outputs may get gradients."""

    call: CachedCall
    states: list[Any]
    given: GivenTensors
    included: Sequence[frozenset[int]] = ()


@dataclass
class _Thread(threading.local):
    arrived: dict[int, list[tuple[_Noted, Gradients]]] = field(default_factory=dict)
    """The calls that each backward pass has reached, in order, with the gradients of their outputs."""
    passed_on: dict[int, list[object]] = field(default_factory=dict)
    """The sum of each gradient that a call has passed on to its inputs, by backward pass."""


class BackwardValues:
    """Checks the gradients after each backward pass. One for each process."""

    def __init__(self, host: Host, passes: BackwardPasses) -> None:
        """Report to ``host``, the agent. ``passes`` replays calls and holds their threads."""
        self._host = host
        self._passes = passes
        self._thread = _Thread()
        self._lines: dict[tuple[int, str], BackwardLines] = {}
        """The lines of calls, by code and cache entry."""
        self._reported: set[str] = set()
        self._patches = Patches("stops at NaN in a backward pass")
        self._on_end = guarded_in_backward(self._is_over, self._patches)
        never_compile(BackwardValues._on_input_gradient)

    def returned(self, call: GraphCall) -> None:
        """Keep a call whose outputs may get gradients."""
        outputs = call.outputs if isinstance(call.outputs, list | tuple) else [call.outputs]
        if all(gradient_node_of(each) is None for each in outputs):
            return
        if GRADIENTS.problem is not None or is_backward_compiled():
            return
        cached = call.as_cached_call()
        if cached is None:
            return
        given = GivenTensors(call.inputs)
        noted = _Noted(
            self._passes.as_ended(cached),
            [*switches(), *call.kept.random],
            given,
        )
        on_gradients = guarded_in_backward(self._on_gradients, self._patches)
        on_input_gradient = guarded_in_backward(self._on_input_gradient, self._patches)
        output_gradients = OutputGradients(outputs, given.tensors(), functools.partial(on_gradients, noted))
        noted.included = output_gradients.included
        for each in call.inputs:
            node = gradient_node_of(each)
            if node is not None:
                node.register_prehook(functools.partial(on_input_gradient, each.output_nr))

    def _on_input_gradient(self, number_of_output: int, gradients: tuple[object, ...]) -> None:
        """Note the sum of the gradient of a call's input."""
        number, gradient = current_pass(), gradients[number_of_output]
        if number in self._thread.arrived and gradient is not None and not is_fake_tensor(gradient):
            total = sum_of(gradient)
            if total is not None:
                self._thread.passed_on.setdefault(number, []).append(total)

    def _on_gradients(self, noted: _Noted, gradients: Gradients) -> None:
        """Keep the gradients that have arrived at a call."""
        if self._host.is_holding or not self._is_wanted() or any(map(is_fake_tensor, gradients)):
            return
        number = current_pass()
        if number not in self._thread.arrived:
            self._thread.arrived[number] = []
            at_end_of_pass(functools.partial(self._on_end, number))
        self._thread.arrived[number].append((noted, gradients))

    def _is_wanted(self) -> bool:
        return NAN_FILTER in self._host.breakpoints.exception_filters

    def _is_over(self, number: int) -> None:
        """Check the gradients of a finished backward pass."""
        arrived, passed_on = self._thread.arrived.pop(number, []), self._thread.passed_on.pop(number, [])
        try:
            if not self._is_wanted() or self._host.is_holding:
                return
            given = {id(each): each for noted, _ in arrived for each in noted.given.tensors()}
            left = [each.grad for each in given.values() if each.is_leaf and each.grad is not None]
            if may_have_any(left, passed_on):
                self._find(arrived)
        except Exception as problem:  # noqa: BLE001  (the program's operations may fail when they run again)
            if not isinstance(problem, NoRealValue):
                log_exception("looking for what made a NaN in a backward pass")
            text = f"a backward pass left NaN or Inf; the line that made it is unknown: {first_line_of(problem)}"
            if text not in self._reported:
                self._reported.add(text)
                self._host.print(f"dynamo-dap: {text}\n", "important")

    def _find(self, arrived: list[tuple[_Noted, Gradients]]) -> None:
        for noted, gradients in arrived:
            given = [each for each in gradients if each is not None]
            if given and not kinds_of(given) and self._stops_in(noted, gradients):
                return

    def _stops_in(self, noted: _Noted, gradients: Gradients) -> bool:
        """Return whether a call's backward pass makes a NaN or Inf; if so, first stop at the line that makes it."""
        if noted.given.are_changed(noted.call.memory):
            raise NoRealValue("an input of its call was changed in place after the call")
        limit = limits_of_real_values().bytes
        with self._host.holding():
            lines = self._lines_of(noted)
            kept = self._passes.keep(noted.call, lines, noted.states)
            nan_before: set[Node] = set()

            def ran(node: Node, results: Mapping[Node, object]) -> None:
                if is_visible(results[node]) and NAN in kinds_of(results[node]):
                    nan_before.add(node)

            run = GradientRun(lines.graph, kept.inputs, noted.states, gradients, noted.included, ran)
            for node in reversed(lines.graph.nodes):
                gradient = run.gradient(node.name, node.name, limit)
                kinds = kinds_of(gradient) if gradient is not None else frozenset()
                if kinds:
                    break
            else:
                return False
            maker = _maker_of(lines.graph.nodes, run, node, limit)
            is_reported = NAN in kinds_of(run.outputs) or any(each.op == "placeholder" for each in nan_before)
            if is_reported and not nan_before.isdisjoint((maker, *maker.all_input_nodes)):
                return False  # the filter has already reported the forward pass's NaN that causes this one
            in_body = _in_body(lines, run, maker, node, limit)
            maker, gradient, visit = in_body or (maker, gradient, visit_that_makes(lines, maker))
            kinds = kinds_of(gradient)
            kind = NAN if NAN in kinds else next(iter(kinds))
            parameters = [
                lines.graph.names[each]
                for each in lines.graph.nodes
                if each.op == "placeholder" and kinds_of(run.gradient(each.name, "", limit))
            ]
        if visit is None:
            raise _unknown(lines.graph.nodes, f"{target_name(maker)} belongs to no line")
        made = BadOperation(node, kind, gradient, 0)
        module = module_of(maker, noted.call)
        function = visit.function if module is None else f"{visit.function} of {module}"
        fault = BackwardFault(operation_name(maker), made, visit.path, visit.line, function, parameters)
        names = {GRADIENT: None, "__value__": gradient, "__kind__": kind}
        result = result_of(lines, visit, run)
        if result is not None:
            with self._host.holding():
                names[GRADIENT] = run.gradient(result, visit.nodes[-1] if visit.nodes else "", limit)
        if may_hold(self._host, NAN_FILTER, names):
            self._passes.at_line(kept, run, visit, lambda point: self._stop_at(point, kept, visit, fault, names))
            self._passes.stop_at_visits(kept, run, visit)
        return True

    def _lines_of(self, noted: _Noted) -> BackwardLines:
        key = id(noted.call.code), noted.call.compile_id
        if key not in self._lines:
            with preserved_global_state():
                for restore in noted.states:  # without gradients an ``autograd.Function`` has no backward
                    restore()
                self._lines[key] = self._passes.survey(noted.call)
        return self._lines[key]

    def _stop_at(
        self, point: TracePoint, kept: KeptCall, visit: Visit, fault: BackwardFault, names: dict[str, object]
    ) -> None:
        if not holds_at(self._host, NAN_FILTER, point.frame, names):
            return
        name = name_of_call(kept.call)
        raised = not_finite_in_backward(fault, f"{name} [{kept.call.compile_id}]")
        self._passes.hold(point, kept, visit, names, raised=raised)


def _maker_of(nodes: Sequence[Node], run: GradientRun, node: Node, limit: int, prefix: str = "") -> Node:
    """Return the operation that causes the NaN or Inf in the gradient of ``node``.

    Each user of ``node`` contributes a part to its gradient. Return the first user in the graph whose part is not
    finite: a later user's part may include an earlier one's. If no user has a gradient, the gradient of ``node`` comes
    from the graph's outputs; then return ``node`` itself. ``prefix`` precedes the names of nodes in a higher-order
    operator's body.

    Raises:
        NoRealValue: each user's part is finite, so that the cause is unknown.
    """
    users = [(each, results) for each in nodes if each in node.users and (results := _results_of(each, run, prefix))]
    if not users or (len(users) == 1 and len(node.users) == 1):
        return users[0][0] if users else node
    for user, results in users:
        part = run.contribution(results, prefix + node.name, limit)
        if part is not None and kinds_of(part):
            return user
    raise _unknown(nodes, f"each part of the gradient of {target_name(node)} is finite, but their sum is not")


def _unknown(nodes: Iterable[Node], reason: str) -> NoRealValue:
    in_transforms = "its call has transforms of torch.func, in which gradients are not inspected"
    return NoRealValue(in_transforms if has_transforms(nodes) else reason)


def _results_of(node: Node, run: GradientRun, prefix: str) -> list[str]:
    """Return the names of an operation's results with gradients: the node itself, or the items of its tuple."""
    of_tuple = [item for item in node.users if item.target is operator.getitem]
    names = [prefix + one.name for one in (node, *of_tuple) if prefix + one.name in run.names]
    return names[:1] if prefix + node.name in run.names else names


def _in_body(
    lines: BackwardLines, run: GradientRun, maker: Node, node: Node, limit: int
) -> tuple[Node, object, Visit | None] | None:
    """Return the operation in a body of ``maker`` that causes the NaN or Inf, with the gradient and the visit.

    None if that operation is unknown.
    """
    for target in [each.target for each in maker.all_input_nodes if each.op == "get_attr"]:
        prefix = f"{target}."
        nodes = list(run.bodies[target].graph.nodes) if target in run.bodies else []
        for inner in reversed(nodes):
            gradient = run.gradient(prefix + inner.name, "", limit)
            if gradient is not None and kinds_of(gradient):
                found = _maker_of(nodes, run, inner, limit, prefix)
                return found, gradient, _visit_at(lines, found)
    run.contribution(_results_of(maker, run, ""), node.name, limit)
    made = next(iter(run.made_in_bodies), None)
    return None if made is None else (made.node, made.value, _visit_at(lines, made.node))


def _visit_at(lines: BackwardLines, node: Node) -> Visit | None:
    """Return a visit of the line that made a node of a body, if any."""
    found = place_of(node, is_torch_file)
    place = None if found is None else (found[0].path, found[0].line)
    return next((each for each in lines.visits if each.place == place), None)
