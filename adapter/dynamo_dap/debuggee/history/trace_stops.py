"""Holds a thread at stops in a trace, and wherever the user steps in its history.

The trace runs, or is a cached call's saved trace, which the thread walks through. One for each process. Runs on the
tracing thread, under Dynamo's compile lock.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import replace

from dynamo_dap.debuggee.agent.breakpoints import LineBreakpoint
from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.frames import Frame, caller_frame
from dynamo_dap.debuggee.agent.stepping import RaisedException, Step, Stop
from dynamo_dap.debuggee.history.attempts import Attempt, Attempts, Standpoint, all_before
from dynamo_dap.debuggee.history.before_breaks import locals_before_break
from dynamo_dap.debuggee.history.remedies import Remedies
from dynamo_dap.debuggee.history.reverse_stops import AddressOf, ReverseStops, StopsOfCall
from dynamo_dap.debuggee.history.state_logs import StateLogs
from dynamo_dap.debuggee.history.time_travel import Destination, Place, TraceHistory
from dynamo_dap.debuggee.history.what_if import WhatIfs
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.trace.frames import frames_of
from dynamo_dap.debuggee.trace.runs import ProgressOfTraces, TracePoint, current_run
from dynamo_dap.debuggee.trace.stepping import ends_at, origin_of
from dynamo_dap.debuggee.trace.stop_texts import explain, headline, headline_in_history
from dynamo_dap.debuggee.values.model import ScopeOfFrame
from dynamo_dap.protocol.requests.contract import COMPILE_TIME


class TraceStops:
    """Stops in traces, with their history in ``logs``."""

    def __init__(
        self, host: Host, logs: StateLogs, what_ifs: WhatIfs, remedies: Remedies, address_of: AddressOf
    ) -> None:
        """Work for ``host``, the agent; ``what_ifs`` makes the user's changes at a stop."""
        self._host = host
        self._logs = logs
        self._what_ifs = what_ifs
        self._remedies = remedies
        self._address_of = address_of
        self._traces = ProgressOfTraces()

    @property
    def visits(self) -> ProgressOfTraces:
        """The progress of the traces whose visits are counted together with those of the running trace."""
        return current_run().traces or self._traces

    def unreported(self, breakpoints: Sequence[LineBreakpoint], point: TracePoint) -> list[LineBreakpoint]:
        """Return the breakpoints that this execution has not reported: see ``ProgressOfTraces``."""
        if self._host.options.pause_on_restart:
            return list(breakpoints)
        code, take = id(point.frame.code), self.visits.take_reported
        return [each for each in breakpoints if not take((each.id, code, point.index))]

    def stop(
        self,
        point: TracePoint,
        reason: str,
        hit: list[int] | None = None,
        *,
        restarted: bool = False,
        raised: RaisedException | None = None,
        names: dict[str, object] | None = None,
    ) -> None:
        """Hold the thread at ``point``, and at every earlier stop that the user steps back to."""
        if reason in ("step", "pause"):
            self.visits.expect_again()
        top = caller_frame()
        frame = point.frame
        progress = point.progress
        attempts, place = self._logs.attempts(frame), None
        if attempts is not None:
            history = attempts.present.history
            # The instruction that raised or changed something has begun already.
            place = history.present(frame, point.index)
            place = place._replace(is_after=place.is_after or raised is not None)
            history.stopped.setdefault(place.at, set()).update(hit or ())
        obstacle = None if raised is None else raised.obstacle
        scopes = [] if obstacle is None else [self._remedies.scope(frame, obstacle, progress.identity.compile_id)]
        present = None if attempts is None else attempts.present
        stop = Stop(
            engine=COMPILE_TIME,
            reason=reason,
            frames=lambda: self._frames(frame.running(top), top, present, names, scopes),
            description=headline(frame, progress.identity) if raised is None else raised.headline,
            text=explain(reason, frame, progress.identity, top, restarted=restarted) if raised is None else raised.text,
            hit_breakpoint_ids=hit or [],
            exception=raised,
            origin=origin_of(point, top),
            history=None
            if attempts is None or place is None
            else Standpoint(attempts, attempts.present, place, self._host.breakpoints.lines_in),
            changes=current_run().changes,
        )
        with self._logs.travelling():
            if not self._hold(stop, top) and attempts is not None and place is not None:
                self._travel(attempts, stop, point, place, top)

    def _hold(self, stop: Stop, top: types.FrameType, *, is_over: bool = False) -> bool:
        """Hold the thread. Return True if the user has been in a changed trace, and the held trace must continue.

        ``is_over``: the stop's trace has ended, so the user cannot continue it.
        """
        while True:
            self._host.hold(stop)
            step = self._host.steps.current()
            if step is None or step.asked is None:
                return False
            if is_over:
                self._host.steps.finish()
                step.asked.refuse("this trace has ended: it can be inspected, but not continued")
            elif self._what_ifs.follow(step.asked, stop.origin, top):
                return True

    def _travel(self, attempts: Attempts, present: Stop, point: TracePoint, now: Place, top: types.FrameType) -> None:
        """Hold the thread at every earlier stop that the user steps back to, until the trace continues."""
        destination = here = Destination(now, present.reason)
        attempt = attempts.present
        try:
            while True:
                step = self._host.steps.current()
                if step is not None and step.kind.goes_back:
                    attempt, destination = attempts.back(attempt, destination.place, step, self._stops_of)
                elif destination is here:
                    return
                elif (found := attempts.forward(attempt, destination, now, step, self._stops_of)) is not None:
                    attempt, destination = found
                elif self._has_no_cause(attempts.present.history, present.reason, now.at, point) and (
                    step is None or (attempt is attempts.present and not ends_at(step, point))
                ):
                    return
                else:
                    attempt, destination = attempts.present, here
                if attempt is attempts.present and destination.place == now:
                    again = self._present_stop(present, destination.remark)
                    destination = here
                    attempt.history.show(None)
                    if self._hold(again, top):
                        return
                    continue
                with attempt.as_current_trace():
                    attempt.show(destination)
                    stop = self._stop_at(attempts, attempt, destination, now, top)
                    was_changed = self._hold(stop, top, is_over=attempt is not attempts.present)
                    attempt.history.show(None)
                if was_changed:
                    return
        finally:
            attempts.present.history.show(None)

    def _has_no_cause(self, history: TraceHistory, reason: str, at: int, point: TracePoint) -> bool:
        """Return whether nothing would stop the thread here now, where it had stopped for ``reason``."""
        return reason not in ("exception", "data breakpoint") and not self._stops_of(history).hits(at, point)

    def _present_stop(self, stop: Stop, remark: str | None) -> Stop:
        """Return ``stop`` for when the user comes back to it, or could not step back from it (``remark`` says why).

        The user may have removed its breakpoints meanwhile.
        """
        if remark is not None:
            text = remark if stop.description is None else f"{stop.description}: {remark}"
            return replace(stop, reason="step", description=text, text=text, hit_breakpoint_ids=[])
        left = self._host.breakpoints.existing(stop.hit_breakpoint_ids)
        if stop.reason == "breakpoint" and stop.hit_breakpoint_ids and not left:
            return replace(stop, reason="step", text=stop.description, hit_breakpoint_ids=left)
        return replace(stop, hit_breakpoint_ids=left)

    def _destination_now(self, destination: Destination) -> Destination:
        """Return a stop of a saved trace as it is when the thread reaches it again.

        The user may have removed its breakpoints meanwhile.
        """
        left = self._host.breakpoints.existing(destination.hit)
        is_step = destination.reason == "breakpoint" and destination.hit and not left
        return replace(destination, reason="step" if is_step else destination.reason, hit=left)

    def _stops_of(self, history: TraceHistory) -> ReverseStops:
        return ReverseStops(self._host, history, self._address_of)

    def walk(self, present: Attempt) -> None:
        """Walk through a cached call's saved trace, and hold the thread wherever the call stops."""
        top, history, attempt = caller_frame(), present.history, present
        destination = furthest = Destination(Place(history.beginning - 1, is_after=True), "entry")
        history.stopped.clear()
        self.visits.settle()
        attempts = Attempts([*reversed(all_before(present)), present])
        while True:
            step = self._host.steps.current()
            if step is not None and step.kind.goes_back:
                attempt, destination = attempts.back(attempt, destination.place, step, self._stops_of)
            elif attempt is not present or destination.place < furthest.place:
                before_it = attempts.forward(attempt, destination, furthest.place, step, self._stops_of)
                if before_it is not None:
                    attempt, destination = before_it
                elif self._skips_furthest(history, furthest, step, destination if attempt is present else None):
                    found = self._next_stop(history, furthest, step, destination if attempt is present else furthest)
                    if found is None:
                        return
                    attempt, destination, furthest = present, found, found
                else:
                    furthest = self._destination_now(furthest)
                    attempt, destination = present, furthest
            else:
                found = self._next_stop(history, destination, step, destination)
                if found is None:
                    return
                destination = furthest = found
            with attempt.as_current_trace():
                attempt.show(destination)
                is_past = attempt is not present or destination is not furthest
                stop = self._stop_at(attempts, attempt, destination, furthest.place if is_past else None, top)
                if self._hold(stop, top, is_over=attempt is not present):
                    return

    def _next_stop(
        self, history: TraceHistory, furthest: Destination, step: Step | None, origin: Destination
    ) -> Destination | None:
        """Return the walk's next stop in a saved trace; ``origin`` is where ``step`` began."""
        stops = StopsOfCall(self._host, history, self._address_of, self.unreported)
        return history.forward(furthest, Place(history.end), step, stops, origin=origin)

    def _skips_furthest(
        self, history: TraceHistory, furthest: Destination, step: Step | None, start: Destination | None
    ) -> bool:
        """Return whether the walk passes ``furthest``, its newest stop, because nothing stops there now.

        ``step`` began at ``start``, if known.
        """
        at = furthest.place.at
        if not self._has_no_cause(history, furthest.reason, at, history.point(at)):
            return False
        if step is None or start is None:
            return step is None
        return not ends_at(replace(step, origin=history.origin(start)), history.point(at))

    def _stop_at(
        self, attempts: Attempts, attempt: Attempt, destination: Destination, now: Place | None, top: types.FrameType
    ) -> Stop:
        """Return the stop at a destination. ``now`` is the present place, or None if the destination is it."""
        history, raised = attempt.history, None if destination.event is None else destination.event.raised
        origin = history.origin(destination)
        if now is not None:
            statements = attempts.statements_between(attempt, destination.place.at, now)
            text = headline_in_history(origin.frame, origin.identity, statements=statements, remark=destination.remark)
            described = text
        elif raised is not None:
            described, text = raised.headline, raised.text
        else:
            described = headline(origin.frame, origin.identity)
            text = explain(destination.reason, origin.frame, origin.identity, top, restarted=False)
        return Stop(
            engine=COMPILE_TIME,
            reason=destination.reason,
            frames=lambda: self._frames(history.chain(destination.shown), top, attempt),
            description=described,
            text=text,
            hit_breakpoint_ids=list(destination.hit),
            exception=raised,
            origin=origin,
            history=Standpoint(attempts, attempt, destination.place, self._host.breakpoints.lines_in),
            changes=current_run().changes,
        )

    def _frames(
        self,
        chain: Sequence[TracedFrame],
        top: types.FrameType,
        attempt: Attempt | None,
        names: dict[str, object] | None = None,
        more_scopes: Sequence[ScopeOfFrame] = (),
    ) -> list[Frame]:
        earlier = None if attempt is None else lambda frame: locals_before_break(frame, attempt)
        return frames_of(chain, top, self._address_of, self._host, names or {}, earlier, more_scopes)
