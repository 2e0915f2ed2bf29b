"""Finds cached calls of compiled functions that may stop, when their generated code begins.

``agent.engine.CachedCalls`` decides before the code runs whether such a call stops. A newly compiled call could already
stop in its trace, so it is only noted, for features that ask for it. One ``CallEntries`` for each engine; its decisions
run on the program's threads.
"""

from __future__ import annotations

import threading
import types
from dataclasses import replace

from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.generated.call_interfaces import BackwardCalls, CachedCalls, CallFacts
from dynamo_dap.debuggee.generated.known_code import GeneratedCode
from dynamo_dap.debuggee.torch_api.code_objects.frame_memory import captured_cells
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import cache_entry_of, value_stack
from dynamo_dap.debuggee.torch_api.compiles.compile_records import CompileRecorder, lines_of
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_gradient_recorded
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall


class CallEntries:
    """Stops cached calls before their generated code runs."""

    def __init__(self, host: Host, cached_calls: CachedCalls | None, recorder: CompileRecorder) -> None:
        """Let ``cached_calls`` decide and stop; ``recorder`` knows which calls were compiled."""
        self._host = host
        self._cached_calls = cached_calls
        self._recorder = recorder
        self._counts: dict[int, int] = {}
        """Calls by ``id`` of the code that was compiled, for functions whose first call was seen."""
        self._thread = threading.local()
        """``number``: the number of the call that is about to run on this thread; see ``_count``."""
        self._are_wanted = False

    def update_hooks(self) -> bool:
        """Apply a change of breakpoints; return whether any cached call may have to stop. Runs on any thread."""
        wanted = self._cached_calls is not None and self._cached_calls.are_wanted()
        if self._are_wanted and not wanted and self._cached_calls is not None:
            self._cached_calls.release()
        self._are_wanted = wanted
        return wanted

    def may_replay_compiled(self) -> bool:
        """Return whether newly compiled calls may need a replay. Runs on any thread."""
        return self._cached_calls is not None and self._cached_calls.may_replay_compiled()

    def forget(self) -> None:
        """Forget earlier compiles: calls are reported and counted only from now on."""
        self._recorder.forget_compiled()
        self._counts.clear()

    def close(self) -> None:
        """Restore every function: the client has disconnected. Runs on any thread."""
        self._are_wanted = False
        if self._cached_calls is not None:
            self._cached_calls.release()

    def may_stop(self, generated: GeneratedCode) -> bool:
        """Return whether calls that run ``generated`` may have to stop: a breakpoint is on a line that they reach.

        A breakpoint after their graph break counts as well, because steps back lead from it into these calls.
        """
        if self._cached_calls is None:
            return False
        code = generated.code_if_alive
        if self._are_wanted and (
            self._stops_in(generated) or (self._cached_calls.are_traced() and self._leads_to_stop(generated))
        ):
            return True
        return code is not None and self._cached_calls.has_begun(code)

    def _leads_to_stop(self, generated: GeneratedCode) -> bool:
        decided_at = self._host.breakpoints.version, generated.codes.count
        if generated.leading_decided_at != decided_at:
            generated.leading_decided_at = decided_at
            generated.leads_to_stop = any(self._stops_in(each) for each in generated.after_break)
        return generated.leads_to_stop

    def _stops_in(self, generated: GeneratedCode) -> bool:
        assert self._cached_calls is not None, "calls are wanted"
        version = self._host.breakpoints.version
        if generated.decided_at != version:
            generated.decided_at = version
            record = generated.record
            original = generated.original
            known = generated.facts.lines if generated.facts is not None else None
            lines = known or (record.lines if record is not None else lines_of([original] if original else []))
            functions = record.functions if record is not None else {generated.qualified_name}
            # A function compiled before the session may have inlined anything: its first call shows the lines.
            is_unknown = record is None and known is None
            generated.may_stop = is_unknown or self._cached_calls.may_stop(lines, functions)
            if original is not None:
                self._cached_calls.prepare(original, may_stop=generated.may_stop)
        return generated.may_stop

    def about_to_run(self, generated: GeneratedCode) -> bool:
        """Count the call for which ``generated`` is about to run on this thread; return whether it needs a replay."""
        original = generated.original
        self._thread.is_first_replay = self._thread.is_counted = False
        self._thread.number = None if original is None else self._count(generated, original)
        cached_calls, code = self._cached_calls, generated.code_if_alive
        wanted = cached_calls is not None and code is not None and cached_calls.must_replay_compiled(code)
        self._thread.must_replay_compiled = wanted and self._thread.number == 0
        return bool(self._thread.must_replay_compiled)

    def only_counts(self, generated: GeneratedCode) -> bool:
        """Return whether breakpoints only count the calls that run ``generated``; see ``CachedCalls``."""
        cached_calls, code = self._cached_calls, generated.code_if_alive
        if cached_calls is None or code is None or generated.facts is None or generated.cannot_be_stopped:
            return False
        return cached_calls.are_traced() and cached_calls.only_counts(code, generated.facts)

    def are_followed(self, generated: GeneratedCode) -> bool:
        """Return whether to report the end of a call that runs ``generated``: its start was noted."""
        code = generated.code_if_alive
        return self._cached_calls is not None and code is not None and self._cached_calls.has_begun(code)

    def passes(self, generated: GeneratedCode) -> bool:
        """Count a cached call, and its breakpoints' hits; return False if a hit count makes it stop."""
        if generated.only_counts:
            cached_calls, facts = self._cached_calls, generated.facts
            if cached_calls is None or facts is None or not cached_calls.count(facts):
                return False
            self._thread.is_counted = True
        key = generated.original_id
        if key in self._counts:
            self._counts[key] += 1
        return True

    @property
    def number(self) -> int | None:
        """The number of the call that is about to begin on this thread; 0 for a newly compiled one."""
        number: int | None = getattr(self._thread, "number", None)
        return number

    @property
    def was_traced_to_break(self) -> bool:
        """Whether a compile or a replay has traced this thread's call up to its graph break; not a saved trace."""
        return self.number == 0 or bool(getattr(self._thread, "is_first_replay", False))

    def begins(self, generated: GeneratedCode, frame: types.FrameType) -> None:
        """Stop a cached call that begins to run ``generated`` in ``frame``, or replay a newly compiled one."""
        cached_calls = self._cached_calls
        original = generated.original
        number = self.number
        if cached_calls is None or not cached_calls.are_traced() or original is None:
            return
        if number == 0 and self._thread.must_replay_compiled:
            call = replace(_call(generated, original, frame, self._counts.get(id(original))), is_compiled_now=True)
            self._learn(generated, cached_calls.replay_compiled(call))
        if number == 0 or generated.cannot_be_stopped or getattr(self._thread, "is_counted", False):
            return
        step = self._host.steps.current()
        if not (self.may_stop(generated) or (step is not None and cached_calls.wants_step(step))):
            return
        is_first = generated.facts is None
        facts = cached_calls.stop_in(_call(generated, original, frame, number), generated.facts)
        self._thread.is_first_replay = is_first and facts is not None
        generated.cannot_be_stopped = facts is None
        self._learn(generated, facts)

    def _learn(self, generated: GeneratedCode, facts: CallFacts | None) -> None:
        if facts is not None and facts is not generated.facts:
            generated.facts = facts
            generated.decided_at = -1

    def ended(self, frame: types.FrameType) -> None:
        """Note that a call of generated code has returned or raised."""
        if self._cached_calls is not None:
            self._cached_calls.ended(frame)

    def _count(self, generated: GeneratedCode, original: types.CodeType) -> int | None:
        """Return the number of this call of the function; None if unknown; 0 for a newly compiled one."""
        compiled = self._recorder.take_compiled() == generated.compile_id
        key = id(original)
        if compiled and (generated.compile_id or "").endswith("/0"):
            self._counts[key] = 1
        elif key in self._counts:
            self._counts[key] += 1
        return 0 if compiled else self._counts.get(key)


def _call(generated: GeneratedCode, original: types.CodeType, frame: types.FrameType, number: int | None) -> CachedCall:
    return CachedCall(
        code=original,
        frame=frame,
        arguments=dict(frame.f_locals),
        closure=captured_cells(frame),
        compile_id=generated.compile_id or "?",
        backend=getattr(cache_entry_of(generated.code), "backend", None),
        number=number,
    )


class GradientEntries:
    """Reports calls whose backward pass may stop, newly compiled or not, and the outputs of their graphs."""

    def __init__(self, host: Host, backward: BackwardCalls | None) -> None:
        """Let ``backward`` decide and stop."""
        self._host = host
        self._backward = backward
        self._are_wanted = False

    def update_hooks(self) -> bool:
        """Apply a change of breakpoints; return whether any backward pass may have to stop. Runs on any thread."""
        wanted = self._backward is not None and self._backward.are_wanted()
        if self._are_wanted and not wanted and self._backward is not None:
            self._backward.release()
        self._are_wanted = wanted
        return wanted

    def close(self) -> None:
        """Forget all calls: the client is gone. Runs on any thread."""
        self._are_wanted = False
        if self._backward is not None:
            self._backward.release()

    def may_stop(self, generated: GeneratedCode) -> bool:
        """Return whether backward passes of calls that run ``generated`` may have to stop."""
        if not self._are_wanted or self._backward is None or generated.cannot_be_kept:
            return False
        version = self._host.breakpoints.version
        if generated.keeping_decided_at != version:
            generated.keeping_decided_at = version
            known, record = generated.backward_facts, generated.record
            lines = known.lines if known is not None else None if record is None else record.lines
            # A function compiled before the session may have inlined anything: its first call shows the lines.
            generated.keeps_inputs = lines is None or self._backward.may_stop(lines)
        return generated.keeps_inputs

    def begins(self, generated: GeneratedCode, frame: types.FrameType, number: int | None) -> None:
        """Decide whether to keep the inputs of a call of ``generated``, which begins in ``frame``."""
        original = generated.original
        if self._backward is None or original is None or not self.may_stop(generated) or not is_gradient_recorded():
            return
        known = generated.backward_facts
        facts = self._backward.begins(_call(generated, original, frame, number), known)
        generated.cannot_be_kept = facts is None
        if facts is not known:
            generated.backward_facts = facts
            generated.keeping_decided_at = -1

    def on_reached(self, generated: GeneratedCode, frame: types.FrameType, offset: int) -> None:
        """Take the graph's outputs when the instruction after its call is next."""
        if self._backward is not None and self.may_stop(generated) and offset in generated.after_graph:
            index = generated.table.index_of_start[offset]
            slots = value_stack(frame, generated.depths.before(index) or 0)
            self._backward.computed(frame, slots[-1] if slots else None)

    def ended(self, frame: types.FrameType) -> None:
        """Forget a call of generated code that has returned or raised."""
        if self._are_wanted and self._backward is not None:
            self._backward.ended(frame)
