"""Keeps attempts that Dynamo abandoned to restart the analysis, so that the user can go back to them.

Torch clears the objects of an abandoned attempt. This module delays that for a logged attempt, until no thread can go
back to it. An attempt that ended at a graph break is the trace of the part before the break. The next attempt traces
that part again and compiles it. Runs on the tracing thread; an attempt is kept until ``close``.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.graphs.real_values import note_versions
from dynamo_dap.debuggee.torch_api.isolation import DYNAMO_OFF, READING, global_state, preserved_global_state
from dynamo_dap.debuggee.torch_api.traced.replays import clear, forget_tensors, replayed_call
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.translator import EARLIER_REASONS, restart_reasons

_OUTPUT = "torch._dynamo.output_graph:OutputGraph.cleanup"
_RESTART = "torch._dynamo.exc:RestartAnalysis"
_BREAK = "torch._dynamo.exc:SpeculationRestartAnalysis"
_TRACING = "torch._guards:tracing"
_COMPILING = "torch._guards:compile_context"
_CONTEXT = "torch._guards:CompileContext.try_get"
_INPUT = "grapharg"
"""The key in a placeholder's ``meta`` for its input."""

ABANDONED = Feature(
    "going back to attempts that Dynamo abandoned", _OUTPUT, _RESTART, _BREAK, _TRACING, _COMPILING, _CONTEXT
)


class AbandonedAttempt:
    """An attempt that may be abandoned."""

    def __init__(self, frame: TracedFrame) -> None:
        """Keep the attempt that traces ``frame``."""
        output: Any = frame.attempt
        self._output = output
        self._root: Any = None
        self._arguments: object = None
        self._state: Sequence[Callable[[], None]] = ()
        """Functions that restore random states and torch's switches as they were when the compile ended; else empty."""
        self._context: object = None
        """A copy of torch's object with the ids of the compile and the attempt."""
        self._taken: list[tuple[dict[str, object], object]] = []
        """Each placeholder's ``meta`` and input: torch 2.14 removes the inputs from an abandoned attempt's nodes."""
        self._guards: object = None
        """The attempt's guards, which torch removes as well."""
        self.reason = ""
        """Torch's reason for abandoning it."""
        self.is_abandoned = self.ended_at_break = False
        root = getattr(self._output, "root_tx", None)
        if ABANDONED.problem is None and replayed_call() is None and root is not None:
            self._root = root
            self._arguments = self._root.f_locals
            self._output.cleanup = self._cleanup
            self._context = _context_now()

    @property
    def frame(self) -> TracedFrame:
        """The compiled function, while the attempt is kept."""
        return TracedFrame(self._root)

    def _cleanup(self) -> None:
        """Clean up the attempt, unless Dynamo abandons it to restart. Torch calls this instead of its own cleanup."""
        problem = sys.exc_info()[1]
        if not isinstance(problem, ABANDONED.resolve(_RESTART)):
            self._output.__dict__.pop("cleanup", None)
            self._output.cleanup()
            return
        self.is_abandoned = True
        self.reason = str(getattr(problem, "restart_reason", None) or type(problem).__name__)
        self.ended_at_break = isinstance(problem, ABANDONED.resolve(_BREAK))
        for tracer in self._output.tracers:
            # Torch empties the graphs once the exception has been caught.
            tracer.graph._clear_nodes = _nothing
            nodes = [node for node in tracer.graph.nodes if _INPUT in node.meta]
            self._taken += [(node.meta, node.meta[_INPUT]) for node in nodes]
        guards = self._output.tracing_context.guards_context.dynamo_guards.inner
        self._guards = type(guards)(list(guards))

    def _restore(self) -> None:
        for meta, argument in self._taken:
            meta.setdefault(_INPUT, argument)
        guards = self._output.tracing_context.guards_context.dynamo_guards
        if self._guards is not None and not guards.inner:
            guards.inner = self._guards
        self._taken, self._guards = [], None

    @contextlib.contextmanager
    def as_current_trace(self) -> Iterator[None]:
        """Make the attempt the thread's current trace inside this context."""
        self._restore()
        self._root.f_locals = self._arguments
        tracing, compiling = ABANDONED.resolve(_TRACING), ABANDONED.resolve(_COMPILING)
        with preserved_global_state(), tracing(self._output.tracing_context), compiling(self._context):
            for restore in self._state:
                restore()
            yield

    @property
    def can_outlive_compile(self) -> bool:
        """Whether changes that the program makes after the compile can be noticed."""
        return DYNAMO_OFF.problem is None and READING.problem is None

    def outlive_compile(self) -> None:
        """Release what the program could notice, and note the versions of tensors that the program may change."""
        self._restore()
        context = self._output.tracing_context
        forget_tensors(context)
        note_versions(self._output.root_tracer.graph)
        self._state = global_state()

    def close(self) -> None:
        """Let torch clean up the attempt, or do so now if Dynamo has abandoned it."""
        if not self.is_abandoned:
            self._output.__dict__.pop("cleanup", None)
            return
        self.is_abandoned = False
        for tracer in self._output.tracers:
            tracer.graph.__dict__.pop("_clear_nodes", None)
            tracer.graph._clear_nodes()
        clear(self._output)
        self._root.f_locals = {}
        self._root = self._arguments = self._guards = None
        self._taken = []


def _context_now() -> object:
    """Return a copy of torch's compile context, in which torch counts the attempts of the running compile."""
    context = ABANDONED.resolve(_CONTEXT)()
    if context is None:
        return None
    known = type(context)(context.compile_id)
    known.attempt = context.attempt
    setattr(known, EARLIER_REASONS, tuple(restart_reasons(sys._getframe())))
    return known


def _nothing() -> None:
    """Replace ``Graph._clear_nodes``, to keep the nodes."""
