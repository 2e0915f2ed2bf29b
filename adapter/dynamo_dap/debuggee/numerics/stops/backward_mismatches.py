"""Stops where a compiled call's gradients differ from eager: the exception filter ``mismatch`` in backward passes.

A call whose results match eager is kept until the program's backward pass has run through it. Then the gradients that
the call passed to its inputs are compared with those of Dynamo's graph. If one differs, the thread is held at the
forward line whose backward is wrong, before ``backward()`` returns. Runs on the calling thread and on autograd's
threads. A kept call lives as long as the program's autograd graph.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.numerics.comparing.causes import cause_in_backward, operation_text
from dynamo_dap.debuggee.numerics.comparing.compared_calls import (
    body_of_backward,
    line_at_fault,
    needs_gradients,
    outputs_of,
)
from dynamo_dap.debuggee.numerics.faults.comparisons import Comparison, Fault
from dynamo_dap.debuggee.numerics.gradients.gradient_comparisons import GradientComparison, GradientOfInput
from dynamo_dap.debuggee.numerics.gradients.gradient_run import GRADIENTS, GradientRun, is_backward_compiled
from dynamo_dap.debuggee.numerics.gradients.kept_backward import KeptBackward
from dynamo_dap.debuggee.numerics.gradients.returned_gradients import BackwardPass, ReturnedGradients
from dynamo_dap.debuggee.numerics.stops.backward_lines import BackwardLines, Visit, visit_that_makes
from dynamo_dap.debuggee.numerics.stops.backward_passes import GRADIENT, BackwardPasses, KeptCall, result_of
from dynamo_dap.debuggee.numerics.stops.filter_conditions import holds_at, may_hold
from dynamo_dap.debuggee.numerics.stops.stop_texts import mismatch_in_backward
from dynamo_dap.debuggee.recording.function_names import name_of_call
from dynamo_dap.debuggee.replay.graph_calls import GraphCall
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue
from dynamo_dap.debuggee.torch_api.graphs.real_values import limits_of_real_values
from dynamo_dap.debuggee.torch_api.isolation import preserved_global_state, switches
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall
from dynamo_dap.debuggee.trace.runs import TracePoint
from dynamo_dap.protocol.requests.contract import MISMATCH
from dynamo_dap.protocol.texts import first_line_of


@dataclass(eq=False)
class _Expected:
    """A call whose backward pass will be compared."""

    call: CachedCall
    kept: KeptBackward


class BackwardMismatches:
    """Compares the gradients of calls. One for each process."""

    def __init__(self, host: Host, passes: BackwardPasses) -> None:
        """Report to ``host``, the agent. ``passes`` replays calls and holds their threads."""
        self._host = host
        self._passes = passes
        self._reported: set[str] = set()

    def expect(self, call: GraphCall, cached_call: CachedCall, comparison: Comparison) -> None:
        """Compare the gradients of a call after the program's backward pass has run through it."""
        if GRADIENTS.problem is not None or is_backward_compiled() or not needs_gradients(outputs_of(call)):
            return
        try:
            states = [*switches(), *call.kept.random]
            kept = KeptBackward.of(call, cached_call, comparison.graph, states)
            ended_call = dataclasses.replace(self._passes.as_ended(cached_call), memory=call.kept.memory)
            expected = _Expected(ended_call, kept)
            returned = ReturnedGradients(
                outputs_of(call), call.inputs, lambda ended: self._compare_pass(expected, ended)
            )
            kept.included, kept.shares = returned.included, returned.shares
        except NoRealValue as problem:
            self._report_once(cached_call, problem)

    def _compare_pass(self, expected: _Expected, ended: BackwardPass) -> None:
        """Compare a finished backward pass. Raise nothing: autograd would pass the exception to the program."""
        if self._host.is_holding or MISMATCH not in self._host.breakpoints.exception_filters:
            return
        try:
            with self._host.holding():
                comparison = GradientComparison(expected.kept, ended)
                fault = comparison.fault() if comparison.differs else None
            if fault is not None and comparison.worst is not None:
                self._stop(expected, ended, comparison, fault, comparison.worst)
        except Exception as problem:  # noqa: BLE001  (autograd would raise it in the program)
            if not isinstance(problem, NoRealValue):
                log_exception("comparing gradients")
            self._report_once(expected.call, problem)

    def _stop(
        self,
        expected: _Expected,
        ended: BackwardPass,
        comparison: GradientComparison,
        fault: Fault,
        worst: GradientOfInput,
    ) -> None:
        """Replay the call, and stop at the line whose backward is wrong."""
        call, states = expected.call, list(expected.kept.states)
        body = self._host.comparison = body_of_backward(expected.kept, comparison, fault)
        with self._host.holding(), preserved_global_state():
            for restore in states:
                restore()
            lines = self._passes.survey(call)
            kept = self._passes.keep(call, lines, states)
            run = GradientRun(lines.graph, kept.inputs, states, ended.arrived, expected.kept.included)
            visit = next((each for each in reversed(lines.visits) if each.nodes and each.is_user_code), None)
            if fault.node is not None:
                visit = _visit_of(fault, lines)
            if visit is None:
                raise NoRealValue(f"{body.verdict} The line that caused it is unknown")
            names: dict[str, object] = {
                "__value__": worst.returned,
                "__expected__": comparison.expected(worst),
                "__difference__": worst.difference.largest,
                "__stage__": body.stage,
                GRADIENT: None,
            }
            if (result := result_of(lines, visit, run)) is not None:
                last = visit.nodes[-1] if visit.nodes else ""
                names[GRADIENT] = run.gradient(result, last, limits_of_real_values().bytes)
        if may_hold(self._host, MISMATCH, names):
            operation = None if fault.node is None else operation_text(fault.node)
            cause = cause_in_backward(fault, body.backend)
            raised = mismatch_in_backward(worst, operation, cause, (visit.path, visit.line, visit.function))

            def stop_at(point: TracePoint, kept: KeptCall = kept, visit: Visit = visit) -> None:
                if holds_at(self._host, MISMATCH, point.frame, names):
                    self._passes.hold(point, kept, visit, names, raised=raised)

            self._passes.at_line(kept, run, visit, stop_at)
            self._passes.stop_at_visits(kept, run, visit)

    def _report_once(self, call: CachedCall, problem: BaseException) -> None:
        text = f"dynamo-dap: gradients of calls of {name_of_call(call)} are not compared: {first_line_of(problem)}\n"
        if text not in self._reported:
            self._reported.add(text)
            self._host.print(text, "important")


def _visit_of(fault: Fault, lines: BackwardLines) -> Visit | None:
    """Return the visit of the fault's line; for a body whose lines were not recorded, the visit of its operator."""
    place = line_at_fault(fault)
    inside = [each for each in lines.visits if each.is_in_body and each.is_user_code and each.place == place]
    if fault.within is not None and inside:
        return inside[-1]
    return visit_that_makes(lines, fault.within or fault.node)
