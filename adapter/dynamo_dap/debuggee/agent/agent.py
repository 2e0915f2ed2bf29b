"""Runs the debug session inside the debugged program, as the ``Host`` of the engines.

The reader thread of the client's connection attaches and detaches the client, and serves its requests (see
``serving``). Engines call the ``Host`` methods on the program's own threads. There is one agent per process; clients
come and go.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence

from dynamo_dap.debuggee.agent import tracing as _tracing  # noqa: F401 (keeps functions that debugpy replaces)
from dynamo_dap.debuggee.agent.binding import Binding
from dynamo_dap.debuggee.agent.breakpoints import BreakpointTable, FunctionEntry, LineBreakpoint
from dynamo_dap.debuggee.agent.deciding import Decider, Reached
from dynamo_dap.debuggee.agent.engine import (
    CallSaver,
    CodePatcher,
    CompileReader,
    CompilingSettings,
    EagerDebugger,
    Engine,
    EntryReader,
    Hooks,
    InstructionEngine,
    NoCompilingSettings,
    NoEagerDebugger,
    NoProcess,
    Process,
    ReportingEngine,
    RequestError,
    StageReader,
    WhatIf,
)
from dynamo_dap.debuggee.agent.frames import EagerFrame, Frame, walk
from dynamo_dap.debuggee.agent.missed_breakpoints import missed
from dynamo_dap.debuggee.agent.pause import Pause, Work
from dynamo_dap.debuggee.agent.references import ReferenceTable
from dynamo_dap.debuggee.agent.stepping import Steps, Stop
from dynamo_dap.debuggee.agent.threads import Threads
from dynamo_dap.debuggee.agent.user_code import is_debugger_file
from dynamo_dap.debuggee.agent.what_if import in_words, what_if_body
from dynamo_dap.debuggee.bytecode.constants import without_addresses
from dynamo_dap.debuggee.values.model import VirtualSource
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.protocol.connection import Connection
from dynamo_dap.protocol.requests.comparisons import ComparisonBody
from dynamo_dap.protocol.requests.contract import (
    COMPILES_CHANGED_EVENT,
    COMPILING_EVENT,
    MISSED_EVENT,
    WHAT_IF_EVENT,
    CompilingEventBody,
    ErrorId,
    MissedEventBody,
)
from dynamo_dap.protocol.requests.options import AgentOptions
from dynamo_dap.protocol.wire.types import (
    BreakpointEventBody,
    Capabilities,
    CapabilitiesEventBody,
    OutputEventBody,
    StoppedEventBody,
)


class Agent:
    """Serves one client at a time, and holds threads for it."""

    def __init__(self) -> None:
        self.client: Connection | None = None
        """The connected client."""
        self.configured = threading.Event()
        """Set by ``configurationDone``: then a launched program begins, and ``wait_for_client`` returns."""
        self.options = AgentOptions()
        self.breakpoints = BreakpointTable()
        self.references = ReferenceTable()
        self.threads = Threads(self._is_hidden)
        self.steps = Steps(self.update_hooks, self._pause_taken)
        self.engines: tuple[Engine, ...] = ()
        """The engines, each added once the torch module that it hooks into has been imported."""
        self.compiles: CompileReader | None = None
        """Recorded compiles, once Dynamo has been imported."""
        self.has_reported_compiles = True
        """Whether the client needs no event about new compiles: it got one since its last request, or never asked."""
        self.progress: Hooks | None = None
        """Reports the progress of compiles, once Dynamo has been imported."""
        self.cache_entries: EntryReader | None = None
        """Torch's cache entries, once Dynamo has been imported."""
        self.call_saver: CallSaver | None = None
        """Saves calls of compiled functions, once Dynamo has been imported."""
        self.patcher: CodePatcher | None = None
        """Patches generated code, once Dynamo has been imported."""
        self.stages: StageReader | None = None
        """Explored stages of compiles, once Dynamo has been imported."""
        self.comparison: ComparisonBody | None = None
        """The newest call in which a compiled graph's result differs from eager."""
        self.what_if: WhatIf | None = None
        """The newest trace in which the user changed something."""
        self.eager_debugger: EagerDebugger = NoEagerDebugger()
        """The debugger of ordinary Python in this process."""
        self.process: Process = NoProcess()
        self.compiling_settings: CompilingSettings = NoCompilingSettings()
        self.is_for_vs_code = False
        """Whether the client is VS Code: its extension gets facts that DAP has no field for."""
        self.shows_missed = False
        """Whether the client shows why breakpoints have not stopped the program."""
        self.shows_progress = False
        """Whether the client shows the progress of compiles."""
        self._decider = Decider(self)
        self._local = threading.local()
        self._reporting_stop = lock("stops", Level.PROCESS)
        self._steps_back = True
        """Whether the client was last notified that a stopped thread can step back."""
        self._newest_change = object()
        """A new object for each change of the required hooks; compared by identity."""

    # -- the client ------------------------------------------------------------------------------------------------

    def attach_client(self, client: Connection) -> None:
        """Begin a session with an authorised client."""
        self._steps_back = True  # as the answer to ``initialize`` says
        self.has_reported_compiles = True
        self.client = client

    def detach_client(self) -> None:
        """End the client's session: remove every hook, resume every thread.

        Runs on any thread; does no harm if there is no client.
        """
        client, self.client = self.client, None
        self.eager_debugger.close()
        self.breakpoints.clear()
        self.steps.forget()
        self.compiling_settings.close()
        pauses = self.threads.pauses()
        self._set_hooks()
        for pause in pauses:
            pause.interrupt_all()
            pause.release(None)
        if client is not None:
            client.close()

    def forget_session(self) -> None:
        """Forget the client and all breakpoints: this process was forked from the debugged one.

        The connection belongs to the parent. The parent's threads do not exist here, and may have held locks. Runs in
        the child, on the thread that forked.
        """
        client, self.client = self.client, None
        self.eager_debugger, self.threads, self.references = (
            NoEagerDebugger(),
            Threads(self._is_hidden),
            ReferenceTable(),
        )
        self.breakpoints = BreakpointTable()
        self.steps.forget()
        self.configured, self._reporting_stop = threading.Event(), lock("stops", Level.PROCESS)
        self.compiling_settings.close()
        self._set_hooks()
        if client is not None:
            client.abandon()

    def send_event(self, event: str, body: object = None) -> None:
        """Send an event to the client, if there is one."""
        if (client := self.client) is not None:
            client.send_event(event, body)

    def compiling(self, what: str | None) -> None:
        """Report what the calling thread compiles; None once it compiles nothing more."""
        self.send_event(COMPILING_EVENT, CompilingEventBody(self.threads.current(), what))

    def compiles_changed(self) -> None:
        """Report new compiles to the client, once until it requests compiles again. Runs on any thread."""
        if not self.has_reported_compiles:
            self.has_reported_compiles = True
            self.send_event(COMPILES_CHANGED_EVENT)

    def report_missed_breakpoints(self) -> None:
        """Report why breakpoints were not hit. Runs on the thread on which the program ends."""
        breakpoints = self.breakpoints.set_before_program()
        if not breakpoints or not self.shows_missed:
            return
        eager = self.eager_debugger
        noted = [engine.functions_traced() for engine in self.engines if isinstance(engine, ReportingEngine)]
        seen, traced = eager.functions_seen(), [functions for functions in noted if functions is not None]
        if seen is not None and len(traced) == len(noted):
            found = list(missed(breakpoints, {*seen, *itertools.chain(*traced)}, eager.conditions_met()))
            self.send_event(MISSED_EVENT, MissedEventBody(found))

    def print(self, text: str, category: str = "console") -> None:
        """Send ``text`` to the user as an ``output`` event."""
        self.send_event("output", OutputEventBody(output=text, category=category))

    def _is_hidden(self, thread: threading.Thread) -> bool:
        return self.process.is_hidden(thread)

    # -- hooks -----------------------------------------------------------------------------------------------------

    def add_recorder(self, recorder: CompileReader) -> None:
        """Add the recorder of compiles; Dynamo has been imported."""
        self.compiles = recorder
        recorder.update_hooks()

    def add_progress(self, progress: Hooks) -> None:
        """Add the reporter of the progress of compiles."""
        self.progress = progress
        progress.update_hooks()

    def add_explorer(self, explorer: StageReader) -> None:
        """Add the explorer of compile stages."""
        self.stages = explorer
        explorer.update_hooks()

    def add_engine(self, engine: Engine) -> None:
        """Add an engine; the module that it hooks into has been imported."""
        self.engines = (*self.engines, engine)
        engine.update_hooks()

    @property
    def instruction_engine(self) -> InstructionEngine | None:
        """The engine that stops at instructions; None until it is added."""
        return next((engine for engine in self.engines if isinstance(engine, InstructionEngine)), None)

    def take_reported(self, frame: types.FrameType, *, enters: bool) -> bool:
        """Return whether an engine has reported the breakpoint that ``frame`` reaches: see ``ReportingEngine``."""
        engines = [engine for engine in self.engines if isinstance(engine, ReportingEngine)]
        return any(engine.take_reported(frame, enters=enters) for engine in engines)

    @property
    def _hooks(self) -> tuple[Hooks, ...]:
        added = (self.compiles, self.progress, self.stages, *self.engines)
        return tuple(hooks for hooks in added if hooks is not None)

    def update_hooks(self) -> None:
        """Let engines install or remove hooks after a change of breakpoints or filters. Runs on any thread."""
        if self.client is not None:
            self._set_hooks()

    def _set_hooks(self) -> None:
        """Install the required hooks, again if another thread changes the requirements meanwhile.

        Without the repetition, a thread that resumes could remove the hooks for a pause that was just requested.
        """
        self._newest_change = change = object()
        while True:
            is_connected = self.client is not None
            for hooks in self._hooks:
                if is_connected:
                    hooks.update_hooks()
                else:
                    hooks.close()
            if self._newest_change is change:
                return
            change = self._newest_change

    def _pause_taken(self) -> None:
        self.eager_debugger.pause_taken()

    # -- pausing: the reader thread --------------------------------------------------------------------------------

    def request_pause(self, thread_id: int) -> None:
        """Ask the thread ``thread_id`` to pause as soon as it can; 0 means every thread."""
        if thread_id == 0:
            idents = {self.threads.ident_of(thread.id) for thread in self.threads.alive()}
        else:
            idents = {self.threads.ident_of(thread_id)}
            if idents == {None}:
                raise RequestError(f"unknown thread {thread_id}", error_id=ErrorId.NO_SUCH_THREAD)
        wanted = {ident for ident in idents if ident is not None and not self._is_held(ident)}
        self.steps.request_pauses(wanted)
        for ident in wanted:
            if self._is_held(ident):  # the thread has stopped for another reason meanwhile
                self.steps.end(ident)
        # debugpy pauses threads that no engine can pause.
        reached = [ident for ident in wanted if self.eager_debugger.is_active or self.process.pause_eager(ident)]
        if wanted and not reached:
            self.print("dynamo-dap: the program will pause at the next line that Dynamo traces\n")

    def _is_held(self, ident: int) -> bool:
        """Return whether a thread is held. One that is just resuming is not: it can be asked to pause again."""
        pause = self.threads.pause_on(ident)
        return pause is not None and not pause.is_leaving

    # -- Host: what engines call on the program's threads ----------------------------------------------------------

    def hold(self, stop: Stop) -> None:
        """Hold the calling thread until the user resumes it; see ``Host.hold``."""
        client = self.client
        if client is None or self.is_holding:
            return
        pause = Pause(stop, self.threads.current())
        self.threads.add_pause(pause)
        if self.steps.is_asked_to_pause(pause.ident):  # and has stopped for something else
            self._pause_taken()
        self.steps.end(pause.ident)
        if self.client is not client:
            # The client left while we registered: detach_client may not have seen this pause.
            pause.release(None)
        by_function = self.breakpoints.are_functions(stop.hit_breakpoint_ids)
        reason = "function breakpoint" if by_function else stop.reason
        self._report_stop(client, _stopped_body(stop, reason, pause.thread_id), steps_back=stop.history is not None)
        if client.has_failed:
            pause.release(None)  # the stop was not sent: the program may have closed the socket
        began = time.perf_counter()
        with self.holding():
            pause.serve(self._report_unstuck)
        self._local.held_seconds = self._held_seconds + time.perf_counter() - began
        stays = pause.step is not None and not pause.step.kind.leaves_thread
        self.eager_debugger.resume(None if stays else pause.step, stop.ordinary)
        self.references.forget(pause)
        self.threads.drop_pause(pause)
        if pause.step is not None:
            self.steps.begin(pause.ident, pause.step)
        else:
            self.update_hooks()

    def _report_stop(self, client: Connection, body: StoppedEventBody, *, steps_back: bool) -> None:
        """Report a stop. Before it, report whether the thread can step back, if that differs from the last stop."""
        with self._reporting_stop:
            if steps_back != self._steps_back:
                capabilities = Capabilities(supports_step_back=steps_back)
                client.send_event("capabilities", CapabilitiesEventBody(capabilities))
                self._steps_back = steps_back
            client.send_event("stopped", body)

    def _report_unstuck(self, work: Work) -> None:
        self.print(f"dynamo-dap: {work.name} has ended; its thread can be inspected again\n", "important")

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Return a context that marks the calling thread as held: code that runs inside does not stop again."""
        was = getattr(self._local, "is_holding", False)
        self._local.is_holding = True
        try:
            with self.eager_debugger.disabled_on_this_thread():
                yield
        finally:
            self._local.is_holding = was

    @property
    def is_holding(self) -> bool:
        """Whether the calling thread is held, by the agent or by the debugger of ordinary Python."""
        return getattr(self._local, "is_holding", False) or self.eager_debugger.holds_this_thread

    def running_clock(self) -> float:
        """Return the time in seconds on a clock that stands still while the agent holds the calling thread."""
        return time.perf_counter() - self._held_seconds

    @property
    def _held_seconds(self) -> float:
        seconds: float = getattr(self._local, "held_seconds", 0.0)
        return seconds

    def should_stop(self, breakpoints: list[LineBreakpoint], frame: Callable[[], Frame]) -> list[int]:
        """Return the ids of the reached ``breakpoints`` that stop; see ``Host.should_stop``."""
        if self.client is None or self.is_holding:
            return []
        with self.holding():
            return self._decider.should_stop(breakpoints, frame)

    def condition_holds(self, breakpoint: LineBreakpoint, frame: Callable[[], Frame]) -> bool:
        """Return whether the condition of ``breakpoint`` holds in ``frame``; see ``Host.condition_holds``."""
        with self.holding():
            return self._decider.condition_holds(breakpoint, frame)

    def passes(self, reached: Iterable[Reached]) -> bool:
        """Return whether a call stops at none of the breakpoints that it reaches; see ``Host.passes``."""
        if self.client is None or self.is_holding:
            return True
        with self.holding():
            return self._decider.passes(reached)

    def count(self, breakpoints: Sequence[LineBreakpoint]) -> bool:
        """Return whether a call stops at none of ``breakpoints``, which only count hits; see ``Host.count``."""
        return self.client is None or self._decider.count(breakpoints)

    def python_stack(self, top: types.FrameType | None) -> list[Frame]:
        """Return the frames of running Python code from ``top`` down; see ``Host.python_stack``."""
        return [
            self._presented(frame) or EagerFrame(frame, self.print)
            for frame in walk(top)
            if not is_debugger_file(frame.f_code.co_filename)
        ]

    def _presented(self, frame: types.FrameType) -> Frame | None:
        return next((shown for engine in self.engines if (shown := engine.present_frame(frame)) is not None), None)

    def listing_of(self, code: types.CodeType) -> VirtualSource | None:
        """Return the listing of generated code; see ``Host.listing_of``."""
        return next((found for engine in self.engines if (found := engine.listing_of(code)) is not None), None)

    def what_if_is_over(self) -> None:
        """Report how a changed trace differs from the program's own; see ``Host.what_if_is_over``."""
        if self.what_if is not None:
            body = what_if_body(self.what_if, self.compiles)
            self.print(in_words(body), "important")
            self.send_event(WHAT_IF_EVENT, body)

    def function_found(self, entry: FunctionEntry, path: str, line: int) -> None:
        """Bind a function breakpoint where it was reached; see ``Host.function_found``."""
        if entry.binding.problem is not None:
            entry.path, entry.binding = path, Binding(line)
            self.breakpoint_changed(entry)

    def breakpoint_changed(self, breakpoint: LineBreakpoint) -> None:
        """Send the client the present state of ``breakpoint``; see ``Host.breakpoint_changed``."""
        self.send_event("breakpoint", BreakpointEventBody(reason="changed", breakpoint=breakpoint.as_dap()))


def _stopped_body(stop: Stop, reason: str, thread_id: int) -> StoppedEventBody:
    return StoppedEventBody(
        reason=reason,
        description=stop.description,
        text=without_addresses(stop.text) if stop.text else stop.text,
        thread_id=thread_id,
        all_threads_stopped=False,
        hit_breakpoint_ids=stop.hit_breakpoint_ids or None,
    )
