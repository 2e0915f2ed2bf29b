"""Holds the state of a terminal session: program, stopped threads, selected frame; waits for stops.

Runs on the prompt's thread; the client's reader thread only puts events into a queue. A ``Debugger`` lives as long as
the command; each run of the program has its own server and client.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.contract import LISTING, MISSED_EVENT, ListingArguments, MissedEventBody
from dynamo_dap.protocol.wire.messages import Event, decode
from dynamo_dap.protocol.wire.types import (
    BreakpointEventBody,
    ContinuedEventBody,
    ExitedEventBody,
    GotoArguments,
    OutputEventBody,
    Scope,
    StackFrame,
    StoppedEventBody,
    ThreadEventBody,
    Variable,
)
from dynamo_dap.terminal.breakpoints import BreakpointList, UsageError
from dynamo_dap.terminal.client import Client, PendingResponse, Server, ServerProcess, SourceText, introduction
from dynamo_dap.terminal.exception_filters import ExceptionFilters, headline_of, is_exit, is_uncaught
from dynamo_dap.terminal.own_terminal import OwnTerminal
from dynamo_dap.terminal.progress import Progress
from dynamo_dap.terminal.prompt_state import Displays, PromptState
from dynamo_dap.terminal.screen import CONTEXT_LINES, Screen

T = TypeVar("T")
_STACK_LEVELS = 100
_END_TIMEOUT = 10.0


class State(Enum):
    """The state of the program."""

    CONFIGURING = "has not started yet: 'continue' starts it"
    RUNNING = "is running"
    STOPPED = "is stopped"
    ENDED = "has ended: 'restart' runs it again, 'quit' leaves"


class StillRunning(Exception):
    """No thread has stopped within the time limit, or the wait was cancelled."""


class _WaitCancelled:
    """Replaces an event if the wait was cancelled."""


class _Closed(NamedTuple):
    """Replaces an event if the connection has ended."""

    problem: str | None


class Debugger:
    """One terminal session."""

    def __init__(
        self,
        screen: Screen,
        request: str,
        configuration: Mapping[str, Any],
        *,
        start_server: Callable[[], Server] = ServerProcess,
        terminal: OwnTerminal | None = None,
    ) -> None:
        """Prepare for ``request`` (``launch`` or ``attach``); a program that reads typed input runs in ``terminal``."""
        self.screen = screen
        self.breakpoints = BreakpointList()
        self.filters = ExceptionFilters()
        self.sources = SourceText()
        self.prompt = PromptState()
        self.state = State.ENDED
        self.exit_code: int | None = None
        self.stops: dict[int, StoppedEventBody] = {}
        """The stopped threads, in the order in which they stopped."""
        self.thread_id: int | None = None
        self.selected = 0
        """Number of the selected frame, 0 for the innermost."""
        self.patience: float | None = None
        """Seconds to wait for a stop; None waits until Ctrl-C."""
        self._request = request
        self._configuration = dict(configuration)
        self._events: queue.SimpleQueue[Event | _Closed | _WaitCancelled] = queue.SimpleQueue()
        self._frames: list[StackFrame] | None = None
        self._total_frames = 0
        self._last_shown: tuple[str, str | None] | None = None
        self._steps_by_instruction = False
        self._progress = Progress(screen)
        self._pauses_next_thread = False
        """Whether to pause the program once it has a thread."""
        self._client: Client | None = None
        self._start_server = start_server
        self._terminal = terminal
        self._server: Server | None = None
        self._beginning: PendingResponse | None = None

    # -- the run of a program --------------------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        """The client of this run.

        Raises:
            UsageError: the program has ended.
        """
        if self._client is None:
            raise UsageError(f"the program {State.ENDED.value}")
        return self._client

    def begin(self) -> None:
        """Start a server and the program; return when breakpoints can be set.

        Raises:
            RequestFailed: the program cannot be started; the text says why.
        """
        events = self._events = queue.SimpleQueue()
        self.exit_code = None
        self._server = self._start_server()
        self._client = Client(
            self._server.stream,
            on_event=events.put,
            on_closed=lambda problem: events.put(_Closed(problem)),
            reverse_requests={} if self._terminal is None else {"runInTerminal": self._terminal.run},
        )
        try:
            has_user = self.screen.console.is_terminal
            self._client.initialize(introduction(runs_in_terminal=self._terminal is not None, shows_progress=has_user))
            self._beginning = self._client.begin(self._request, self._configuration)
            self.state = State.CONFIGURING
            self.breakpoints.send_all(self._client)
            self.filters.send(self._client)
        except BaseException:
            self.end()
            raise

    def set_program_arguments(self, arguments: list[str]) -> None:
        """Give the next run of the program other arguments.

        Raises:
            UsageError: an attached program cannot be run again.
        """
        if self._request != "launch":
            raise UsageError("an attached program keeps its arguments")
        self._configuration["args"] = arguments

    def start(self) -> None:
        """Let the program run for the first time."""
        self.client.configuration_done()
        self.state = State.RUNNING
        if self._beginning is not None:
            self._beginning.result(self.client.timeout)
            self._beginning = None

    def end(self) -> None:
        """End a launched program, or detach from an attached one; then end the server."""
        client, server = self._client, self._server
        self._client = self._server = None
        self.state = State.ENDED
        self._forget_stops()
        if client is not None and not client.connection.is_closed:
            with contextlib.suppress(RequestFailed, TimeoutError):
                client.request("disconnect", {"terminateDebuggee": self._request == "launch"}, timeout=_END_TIMEOUT)
            client.close()
        if server is not None:
            server.end(_END_TIMEOUT)
        if self._terminal is not None:
            self._terminal.end(_END_TIMEOUT)

    # -- resuming --------------------------------------------------------------------------------------------------

    def resume(self, command: str, granularity: str | None = None, *, count: int = 1) -> None:
        """Resume the current thread (or start the program) and wait for the next stop, or the end.

        Repeat a step ``count`` times, unless something else stops the thread.
        """
        self._steps_by_instruction = granularity == "instruction"
        for _ in range(count - 1):
            thread_id = self.stopped_thread()
            self._send_resume(command, granularity)
            self._wait()
            if not self._has_stepped(thread_id):
                self.show_stop()
                return
        self._send_resume(command, granularity)
        self.wait()

    def _send_resume(self, command: str, granularity: str | None) -> None:
        if self.state is State.CONFIGURING:
            if command != "continue":
                raise UsageError(f"the program {self.state.value}")
            self.start()
        else:
            thread_id = self.stopped_thread()
            everything = self.client.resume(command, thread_id, granularity)
            self._take_continued(None if everything else thread_id)

    def leave_inner_frames(self) -> bool:
        """Step out to the selected frame; return whether the thread is still at the line of the call.

        If the line has ended, or the thread stops elsewhere, show that stop.
        """
        line = self.frame().line
        for _ in range(self.selected):
            thread_id = self.stopped_thread()
            self._send_resume("stepOut", None)
            self._wait()
            if not self._has_stepped(thread_id):
                self.show_stop()
                return False
        if self.frame().line != line:
            self.show_stop()
            return False
        return True

    def step_until(self, line: int) -> None:
        """Step over lines of this function until it reaches ``line`` or below, or returns."""
        self._steps_by_instruction = False
        function, depth = self._function(), self.total_frames
        thread_id = self.stopped_thread()
        while True:
            self._send_resume("next", None)
            self._wait()
            if not self._has_stepped(thread_id):
                break
            if self.total_frames < depth or self._function() != function or self.frame().line >= line:
                break
        self.show_stop()

    def _has_stepped(self, thread_id: int) -> bool:
        """Return whether the thread stopped at the end of a step."""
        stop = self.stops.get(thread_id)
        return stop is not None and stop.reason == "step" and self.thread_id == thread_id

    def _function(self) -> tuple[str, str]:
        """Return the name and the file of the selected frame's function."""
        frame = self.frame()
        return frame.name, (frame.source.path or frame.source.name or "") if frame.source is not None else ""

    def travel(self, command: str, arguments: object) -> None:
        """Move the current thread to another snapshot of its trace, and wait for the stop there."""
        self._steps_by_instruction = False
        thread_id = self.stopped_thread()
        self.client.request(command, arguments)
        self._take_continued(thread_id)
        self.wait()

    def go_to(self, thread_id: int, target: int) -> None:
        """Jump to a target of ``gotoTargets`` and wait for the stop there, which may follow the answer."""
        self.client.request("goto", GotoArguments(thread_id, target))
        self._take_continued(thread_id)
        self.wait()

    def change(self, ask: Callable[[], T]) -> T:
        """Send a request that may cause a stop in a changed trace, then wait for that stop."""
        thread_id = self.thread_id
        before = None if thread_id is None else self.stops.get(thread_id)
        try:
            return ask()
        finally:
            self.drain()
            if self.state is State.RUNNING:
                self.wait()
            elif thread_id is not None and self.stops.get(thread_id) is not before:
                self.show_stop()

    def wait(self) -> None:
        """Wait until a thread stops or the program ends, and show where; Ctrl-C pauses the program.

        Raises:
            StillRunning: the time limit is over, or the wait was cancelled.
        """
        self._wait()
        self.show_stop()

    def _wait(self) -> None:
        """Wait until a thread stops or the program ends; show only output."""
        is_over = False
        end = None if self.patience is None else time.monotonic() + self.patience
        while not is_over:
            try:
                self.drain()
                is_over = self.state is not State.RUNNING and not self._ignores_stop()
                if not is_over:
                    self._take(self._next_event(end))
            except KeyboardInterrupt:  # Ctrl-C may arrive at any time, also while events are shown
                if self.state is State.RUNNING:
                    self.pause()

    @property
    def stop(self) -> StoppedEventBody | None:
        """The current thread's stop."""
        return None if self.thread_id is None else self.stops.get(self.thread_id)

    def is_at_uncaught(self) -> bool:
        """Return whether the program is stopped at an exception that is about to end it."""
        return self.stop is not None and is_uncaught(self.client, self.stop)

    def _ignores_stop(self) -> bool:
        """Resume after ignored hits of breakpoints and, as pdb does, after ``sys.exit``; return whether it resumed."""
        if (stop := self.stop) is None:
            return False
        hit = self.breakpoints.hit(stop.hit_breakpoint_ids or [])
        if not (hit and all(one.ignored_hits for one in hit)) and not is_exit(self.client, stop):
            return False
        for one in hit:
            one.ignored_hits -= 1
        self._send_resume("continue", None)
        return self.state is State.RUNNING

    def _next_event(self, end: float | None) -> Event | _Closed | _WaitCancelled:
        try:
            event = self._events.get(timeout=None if end is None else max(end - time.monotonic(), 0.0))
        except queue.Empty:
            raise StillRunning from None
        if isinstance(event, _WaitCancelled):
            raise StillRunning
        return event

    def cancel_wait(self) -> None:
        """Cancel a wait that runs on another thread. Any thread may call it."""
        self._events.put(_WaitCancelled())

    def pause(self) -> None:
        """Ask the program's main thread to stop; ``wait`` then shows where."""
        try:
            threads = self.client.threads()
            self.screen.note("pausing ...")
            self._pauses_next_thread = not threads
            if threads:
                self.client.pause(threads[0].id)
        except RequestFailed as failed:
            self.screen.problem(str(failed))

    def drain(self, grace: float = 0.0) -> None:
        """Handle the waiting events; with ``grace``, also each that follows within that many seconds."""
        with contextlib.suppress(queue.Empty):
            while grace or not self._events.empty():
                self._take(self._events.get(timeout=grace or None))

    # -- stopped threads -------------------------------------------------------------------------------------------

    def stopped_thread(self) -> int:
        """Return the current thread, which is stopped.

        Raises:
            UsageError: nothing is stopped.
        """
        if self.thread_id is None:
            raise UsageError(f"the program {self.state.value}")
        return self.thread_id

    def select_thread(self, thread_id: int) -> None:
        """Make a stopped thread the current one."""
        if thread_id not in self.stops:
            raise UsageError(f"thread {thread_id} is not stopped")
        self.thread_id = thread_id
        self._forget_frames()
        self.show_stop()

    def frames(self) -> list[StackFrame]:
        """Return the current thread's call stack."""
        if self._frames is None:
            body = self.client.stack_trace(self.stopped_thread(), levels=_STACK_LEVELS)
            self._frames = body.stack_frames
            self._total_frames = body.total_frames or len(body.stack_frames)
        return self._frames

    @property
    def total_frames(self) -> int:
        """How many frames the call stack has."""
        return max(self._total_frames, len(self.frames()))

    def frame(self) -> StackFrame:
        """Return the selected frame."""
        frames = self.frames()
        if not frames:
            raise UsageError("the thread has no frames to show")
        return frames[min(self.selected, len(frames) - 1)]

    def frame_id(self) -> int | None:
        """Return the selected frame's id; None if nothing is stopped."""
        return self.frame().id if self.thread_id is not None else None

    def scopes(self) -> list[Scope]:
        """Return the groups of variables of the selected frame."""
        self.stopped_thread()
        return self.client.scopes(self.frame().id)

    def children(self, reference: int, *, at_most: int | None = None) -> list[Variable]:
        """Return the variables of a reference, none for 0. The server may send more than ``at_most``."""
        return self.client.variables(reference, count=at_most) if reference else []

    def select_frame(self, number: int) -> None:
        """Select a frame, or the nearest one that exists, and show it."""
        if number < 0:
            self.screen.note("this is the innermost frame")
        elif number >= len(self.frames()):
            self.screen.note("this is the outermost frame")
        self.selected = min(max(number, 0), len(self.frames()) - 1)
        self.prompt.next_listed = None
        self.show_frame()

    def show_listings_as(self, form: str) -> None:
        """Show generated code as statements or as instructions, and show the selected frame."""
        # A restarted program uses the same form.
        self._configuration["listing"] = form
        if self._client is not None:
            self._client.request(LISTING, ListingArguments(form=form))
        if self.thread_id is None:
            self.screen.note(f"generated code will be shown as {form}")
        self.show_frame_again()

    def show_frame_again(self) -> None:
        """Request the frames again, and show the selected one."""
        if self.thread_id is not None:
            self._frames = None
            self.show_frame()

    def current_path(self) -> str | None:
        """Return the file that a line number without a file refers to: the selected frame's, or the program's."""
        if self.thread_id is not None and self.frames():
            source = self.frame().source
            if source is not None and source.path:
                return source.path
        program = self._configuration.get("program")
        return str(Path(program).resolve()) if program else None

    def show_stop(self) -> None:
        """Show why and where the current thread stopped."""
        if (body := self.stop) is None:
            return
        why = headline_of(body)
        frame = self.frames()[0] if self.frames() else None
        hit = self.breakpoints.hit(body.hit_breakpoint_ids or [])
        self.prompt.next_listed = None
        self.prompt.pending_commands[:] = [line for one in hit for line in one.commands if line != "silent"]
        if any(one.commands[:1] == ["silent"] for one in hit):
            self._remove_temporary(body)
            return
        if hit:
            why += f" (breakpoint {', '.join(str(one.number) for one in hit)})"
        self.screen.stop(why, frame, self._thread_name() if len(self.stops) > 1 else None)
        if frame is not None:
            self.show_frame(with_name=False, context=self._context_of_stop(frame))
        if self.filters.has_uncaught and is_uncaught(self.client, body):
            self.screen.note("uncaught exception: 'continue' ends the program, 'restart' runs it again")
        if self._steps_by_instruction:
            self._show_value_stack()
        if frame is not None and self.prompt.displays:
            for change in self.displays().changes(self.value_to_display):
                self.screen.say(change)
        self._remove_temporary(body)

    def displays(self) -> Displays:
        """Return the expressions to show at each stop in the selected frame's function."""
        return self.prompt.displays.setdefault(self._function(), Displays())

    def value_to_display(self, expression: str) -> str:
        """Evaluate without side effects; return the text of the error if that fails."""
        try:
            return self.client.evaluate(expression, self.frame_id(), "watch").result
        except RequestFailed as failed:
            return f"** {failed} **"

    def frame_lines(self) -> list[str]:
        """Return the lines of the selected frame's source."""
        return self.sources.lines(self.client, self.frame().source)

    def show_frame(
        self,
        *,
        with_name: bool = True,
        around: int | None = None,
        context: int = CONTEXT_LINES,
        only: tuple[int, int] | None = None,
    ) -> None:
        """Show the selected frame's source: ``context`` lines on each side, or ``only`` some lines."""
        frame = self.frame()
        if with_name:
            self.screen.stack([frame], self.selected, first=self.selected)
        source = frame.source
        marks = self.breakpoints.lines_in(source.path) if source is not None and source.path else set()
        self.screen.excerpt(self.frame_lines(), frame, marks, around=around, context=context, only=only)

    def _context_of_stop(self, frame: StackFrame) -> int:
        """Return the number of lines to show: few after a step in a function that is still on the screen."""
        before, self._last_shown = self._last_shown, (frame.name, frame.source.path if frame.source else None)
        if self._steps_by_instruction:
            return 0
        return 1 if self._last_shown == before else CONTEXT_LINES

    def _show_value_stack(self) -> None:
        for scope in self.scopes():
            if scope.name == "Value Stack":
                self.screen.value_stack(self.children(scope.variables_reference))

    def _take(self, event: Event | _Closed | _WaitCancelled) -> None:
        if isinstance(event, _WaitCancelled):
            return
        if isinstance(event, _Closed):
            self._take_closed(event.problem)
        elif event.event == "output":
            output = decode(event.body, OutputEventBody, "output event")
            self.screen.program_output(output.output, output.category or "console")
        elif event.event == "stopped":
            self._take_stopped(decode(event.body, StoppedEventBody, "stopped event"))
        elif event.event == "continued":
            continued = decode(event.body, ContinuedEventBody, "continued event")
            self._take_continued(None if continued.all_threads_continued else continued.thread_id)
        elif event.event == "breakpoint":
            self._take_breakpoint(decode(event.body, BreakpointEventBody, "breakpoint event"))
        elif event.event == "thread":
            self._take_thread(decode(event.body, ThreadEventBody, "thread event"))
        elif event.event in ("progressStart", "progressUpdate"):
            self._progress.take(event)
        elif event.event == MISSED_EVENT:
            body = decode(event.body, MissedEventBody, "event about breakpoints")
            self.screen.notes(self.breakpoints.reasons(body.breakpoints))
        elif event.event == "exited":
            self.exit_code = decode(event.body, ExitedEventBody, "exited event").exit_code
        elif event.event == "terminated":
            self._take_terminated()

    def _take_breakpoint(self, body: BreakpointEventBody) -> None:
        changed = self.breakpoints.take_change(body.breakpoint)
        if changed is not None and changed.answer.message:
            self.screen.breakpoint(changed)

    def _take_thread(self, thread: ThreadEventBody) -> None:
        if thread.reason == "started" and self._pauses_next_thread:
            self._pauses_next_thread = False
            self.client.pause(thread.thread_id)
        if thread.reason == "exited" and thread.thread_id in self.stops:
            self._take_continued(thread.thread_id)

    def _take_stopped(self, body: StoppedEventBody) -> None:
        thread_id = body.thread_id if body.thread_id is not None else 0
        self.stops[thread_id] = body
        if self.thread_id is None or self.state is State.RUNNING:
            self.thread_id = thread_id
            self._forget_frames()
            self.sources.forget()
        else:
            self.screen.note(f"thread {thread_id} also stopped; type 'thread {thread_id}' to select it")
        self.state = State.STOPPED

    def _take_continued(self, thread_id: int | None) -> None:
        """Note that ``thread_id`` has resumed, or every thread if it is None."""
        if thread_id is None:
            self._forget_stops()
        else:
            self.stops.pop(thread_id, None)
            if self.thread_id == thread_id:
                self.thread_id = next(iter(self.stops), None)
                self._forget_frames()
        if self.state is State.STOPPED and not self.stops:
            self.state = State.RUNNING

    def _take_terminated(self) -> None:
        code = self.exit_code
        self.screen.note("the program has ended" if code is None else f"the program has ended with exit code {code}")
        self.end()

    def _take_closed(self, problem: str | None) -> None:
        if self.state is not State.ENDED:
            self.screen.problem(problem or "the debug server ended; type 'restart' to run the program again")
            self.end()

    def _forget_stops(self) -> None:
        self.stops.clear()
        self.thread_id = None
        self._forget_frames()

    def _forget_frames(self) -> None:
        self._frames = None
        self.selected = 0

    def _thread_name(self) -> str:
        names = {thread.id: thread.name for thread in self.client.threads()}
        return names.get(self.stopped_thread(), str(self.thread_id))

    def _remove_temporary(self, body: StoppedEventBody) -> None:
        for breakpoint in self.breakpoints.hit(body.hit_breakpoint_ids or []):
            if breakpoint.is_temporary:
                self.breakpoints.remove(breakpoint.number)
                self.breakpoints.send_for(self.client, breakpoint.place)
