"""The agent: the debugged program's end of a DAP session.

The reader thread of the client's connection calls ``on_request``; engines call the ``Host`` methods on the program's
own threads. There is one agent per process; clients come and go.
"""

from __future__ import annotations

import contextlib
import threading
import time
import types
from collections.abc import Callable, Iterator

from dynamo_dap.debuggee.agent import handlers as _handlers  # noqa: F401  (registers the requests)
from dynamo_dap.debuggee.agent import tracing as _tracing  # noqa: F401  (takes what debugpy is about to replace)
from dynamo_dap.debuggee.agent.binding import Binding
from dynamo_dap.debuggee.agent.breakpoints import BreakpointTable, FunctionEntry, LineBreakpoint
from dynamo_dap.debuggee.agent.deciding import Decider
from dynamo_dap.debuggee.agent.eager_debugger import EagerDebugger, NoEagerDebugger
from dynamo_dap.debuggee.agent.eager_frames import EagerFrame, walk
from dynamo_dap.debuggee.agent.engine import Engine
from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.debuggee.agent.interruption import Interruptible
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.pause import Pause, Reply, Work, busy_text
from dynamo_dap.debuggee.agent.references import ReferenceTable
from dynamo_dap.debuggee.agent.requests import HANDLERS, Backlog, Handler, RequestError
from dynamo_dap.debuggee.agent.stepping import Step, Stop
from dynamo_dap.debuggee.agent.threads import ThreadIds
from dynamo_dap.debuggee.agent.user_code import is_debugger_file
from dynamo_dap.debuggee.code_analysis.constants import without_addresses
from dynamo_dap.debuggee.values.model import EvaluationError, Interrupted, VirtualSource, WriteRefused, text_of_raised
from dynamo_dap.protocol.connection import Connection
from dynamo_dap.protocol.contract import ErrorId
from dynamo_dap.protocol.messages import Event, ProtocolError, Request, decode
from dynamo_dap.protocol.options import AgentOptions
from dynamo_dap.protocol.types import BreakpointEventBody, OutputEventBody, StoppedEventBody


class Agent:
    """Serves one client at a time, and is the ``Host`` of the engines."""

    def __init__(self) -> None:
        self.options = AgentOptions()
        self.breakpoints = BreakpointTable()
        self.references = ReferenceTable()
        self.threads = ThreadIds()
        self.configured = threading.Event()
        """Set by ``configurationDone``: a launched program may run, ``wait_for_client`` returns."""
        self.on_terminate: Callable[[], None] = lambda: None
        """Ends the program; called on the reader thread when the client asks for it."""
        self.pause_eager: Callable[[int], bool] = lambda ident: False
        """Pauses a thread (Python's identifier) that runs ordinary Python; False when it cannot be reached there.
        Called on the reader thread."""
        self.on_pause_taken: Callable[[], None] = lambda: None
        """Called when a thread that was asked to pause is about to; on that thread."""
        self.eager_debugger: EagerDebugger = NoEagerDebugger()
        """Who debugs ordinary Python in this process."""
        self.start_eager: Callable[[AgentOptions], None] = lambda options: None
        """Starts that debugger, as a client asks in its ``attach``. Reader thread."""
        self.invite_children: Callable[[AgentOptions], None] = lambda options: None
        """Has child processes offer themselves for sessions of their own, if the client wants that. Reader thread."""
        self._client: Connection | None = None
        self._engines: list[Engine] = []
        self._lock = threading.Lock()
        self._pauses: dict[int, Pause] = {}
        self._steps: dict[int, Step] = {}
        self._pause_requests: set[int] = set()
        self._backlog = Backlog()
        self._local = threading.local()
        self._decider = Decider(self)

    # -- the client ------------------------------------------------------------------------------------------------

    def attach_client(self, client: Connection) -> None:
        """Take up a session with an authorised client."""
        self._client = client

    @property
    def client(self) -> Connection | None:
        """The connected client."""
        return self._client

    def detach_client(self) -> None:
        """Forget the client: every hook comes out, every thread runs on. Any thread; harmless when there is none."""
        client, self._client = self._client, None
        self.eager_debugger.close()
        self.breakpoints.clear()
        with self._lock:
            self._steps.clear()
            self._pause_requests.clear()
            pauses = list(self._pauses.values())
        for engine in self._engines:
            engine.close()
        for pause in pauses:
            pause.interrupt_all()
            pause.release(None)
        if client is not None:
            client.close()

    def send_event(self, event: str, body: object = None) -> None:
        """Send an event to the client, if there is one."""
        if (client := self._client) is not None:
            client.send_event(event, body)

    def forget_session(self) -> None:
        """Forget the client and all that was armed: this process was forked from the debugged one.

        The connection stays the other process's; its threads are not here, and may have held our lock. In the child, on
        the thread that forked.
        """
        client, self._client = self._client, None
        self._lock = threading.Lock()
        self.eager_debugger, self.threads, self.references = NoEagerDebugger(), ThreadIds(), ReferenceTable()
        self.breakpoints = BreakpointTable()
        self._backlog = Backlog()
        self._steps, self._pause_requests, self._pauses = {}, set(), {}
        self.configured = threading.Event()
        for engine in self._engines:
            engine.close()
        if client is not None:
            client.abandon()

    # -- requests --------------------------------------------------------------------------------------------------

    def on_request(self, request: Request) -> None:
        """Serve a request, or hand it to the thread that is to serve it. Reader thread."""
        if not self._backlog.takes(request.command, lambda: self._serve(request)):
            self._serve(request)

    def _serve(self, request: Request) -> None:
        client = self._client
        if client is None:
            return
        reply = Reply(client, request)
        with self._answering_failures(reply, request):
            handler = HANDLERS.get(request.command)
            if handler is None:
                raise RequestError(f"unknown request '{request.command}'", error_id=ErrorId.UNKNOWN_TO_AGENT)
            arguments = decode(request.arguments, handler.arguments_type, f"arguments of '{request.command}'")
            pause = handler.owner(self, arguments) if handler.owner is not None else None
            if pause is None:
                # Handlers of held threads take the pause as well; there is none to give to these.
                body = handler.run(self, arguments) if handler.owner is None else handler.run(self, None, arguments)
                reply.respond(body)
                self._local_after_response()
                return
            self._submit(client, request, handler, pause, arguments)

    def after_response(self, action: Callable[[], None]) -> None:
        """Do ``action`` once the request being served has been answered: events follow their response.

        The thread that serves it.
        """
        self._local.after_response = action

    def _local_after_response(self) -> None:
        action = getattr(self._local, "after_response", None)
        if action is not None:
            self._local.after_response = None
            action()

    def _submit(self, client: Connection, request: Request, handler: Handler, pause: Pause, arguments: object) -> None:
        seconds = self.options.evaluation_timeout if handler.is_bounded else None
        reply = Reply(client, request)
        work = Work(request.seq, _name_of(request.command, arguments), reply, seconds)

        def run() -> None:
            with self._answering_failures(reply, request, work.interruptible):
                with work.interruptible.running():
                    body = handler.run(self, pause, arguments)
                reply.respond(body)

        def tell_stuck() -> None:
            if pause.get_stuck(work):
                reply.refuse(f"no answer within {seconds:g} s: {busy_text(work)}", error_id=ErrorId.THREAD_STUCK)

        work.run, work.on_stuck = run, tell_stuck
        pause.submit(work)

    def _tell_unstuck(self, work: Work) -> None:
        self.print(f"dynamo-dap: {work.name} has ended; its thread can be inspected again\n", "important")

    @contextlib.contextmanager
    def _answering_failures(
        self, reply: Reply, request: Request, interruptible: Interruptible | None = None
    ) -> Iterator[None]:
        try:
            yield
        except RequestError as error:
            reply.refuse(str(error), error_id=error.error_id, message=error.message)
        except ProtocolError as error:
            reply.refuse(str(error), error_id=ErrorId.INVALID_ARGUMENTS)
        except (EvaluationError, WriteRefused) as error:
            reply.refuse(str(error), error_id=ErrorId.EVALUATION_FAILED)
        except Interrupted:
            if interruptible is not None and interruptible.timed_out:
                seconds = self.options.evaluation_timeout
                text = f"'{request.command}' took longer than {seconds:g} s and was interrupted"
                reply.refuse(text, error_id=ErrorId.TIMED_OUT)
            else:
                reply.refuse("cancelled", error_id=ErrorId.CANCELLED, message="cancelled")
        except Exception as error:  # noqa: BLE001  (whatever it is, the client gets an answer)
            log_exception(f"serving {request.command}")
            text = f"internal error in '{request.command}': {type(error).__name__}: {error}"
            reply.refuse(text, error_id=ErrorId.AGENT_INTERNAL)
        except BaseException as error:
            if interruptible is None:
                raise
            reply.refuse(text_of_raised(error), error_id=ErrorId.EVALUATION_FAILED)

    def cancel(self, seq: int) -> None:
        """Cancel the request ``seq`` if a held thread has it. Reader thread."""
        for pause in list(self._pauses.values()):
            if pause.cancel(seq):
                return

    def on_event(self, event: Event) -> None:
        """Clients send no events."""

    def on_invalid_message(self, problem: str) -> None:
        """Tell the client about a message that could not be read. Reader thread."""
        self.print(f"dynamo-dap: {problem}\n", "stderr")

    # -- threads ---------------------------------------------------------------------------------------------------

    def pause_of(self, thread_id: int) -> Pause:
        """Return the pause of a thread by its DAP id.

        Raises:
            RequestError: no such thread, or it is running.
        """
        ident = self.threads.ident_of(thread_id)
        if ident is None:
            raise RequestError(f"there is no thread {thread_id}", error_id=ErrorId.NO_SUCH_THREAD)
        pause = self._pauses.get(ident)
        if pause is None:
            raise RequestError(f"thread {thread_id} is running", error_id=ErrorId.NOT_STOPPED, message="notStopped")
        return pause

    def pause_on(self, ident: int) -> Pause | None:
        """Return the pause of a thread by Python's identifier; None when it is not held."""
        return self._pauses.get(ident)

    @property
    def newest_pause(self) -> Pause | None:
        """The pause of the thread that stopped last; None when none is held."""
        return next(reversed(list(self._pauses.values())), None)

    @property
    def held_idents(self) -> set[int]:
        """Python's identifiers of the held threads."""
        return set(self._pauses)

    def request_pause(self, thread_id: int) -> None:
        """Ask the thread ``thread_id`` to pause where it next can; 0 asks every thread."""
        if thread_id == 0:
            idents = {self.threads.ident_of(thread.id) for thread in self.threads.alive(self.held_idents)}
        else:
            idents = {self.threads.ident_of(thread_id)}
            if idents == {None}:
                raise RequestError(f"there is no thread {thread_id}", error_id=ErrorId.NO_SUCH_THREAD)
        with self._lock:
            wanted = {ident for ident in idents if ident is not None and ident not in self._pauses}
            self._pause_requests |= wanted
        self.arm_engines()
        reached = [ident for ident in wanted if self.pause_eager(ident)]
        if wanted and not reached:
            self.print("dynamo-dap: will pause at the next line that Dynamo traces\n")

    # -- engines ---------------------------------------------------------------------------------------------------

    def add_engine(self, engine: Engine) -> None:
        """Take up an engine, when what it hooks into has been imported."""
        self._engines.append(engine)
        engine.arm()

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The engines whose module of torch has been imported."""
        return tuple(self._engines)

    def arm_engines(self) -> None:
        """Let engines install or remove hooks: something armed changed. Any thread."""
        if self._client is None:
            return
        for engine in self._engines:
            engine.arm()

    # -- Host: what engines call on the program's threads ----------------------------------------------------------

    def hold(self, stop: Stop) -> None:
        """Hold the calling thread until the user goes on; see ``Host.hold``."""
        client = self._client
        if client is None or self.is_holding:
            return
        pause = Pause(stop, self.threads.current())
        with self._lock:
            self._pauses[pause.ident] = pause
            self._steps.pop(pause.ident, None)
            self._pause_requests.discard(pause.ident)
        if self._client is not client:
            # The client went away while we registered: detach_client may not have seen this pause.
            pause.release(None)
        by_function = self.breakpoints.are_functions(stop.hit_breakpoint_ids)
        reason = "function breakpoint" if by_function else stop.reason
        client.send_event("stopped", _stopped_body(stop, reason, pause.thread_id))
        began = time.perf_counter()
        with self.holding():
            pause.serve(self._tell_unstuck)
        self._local.held_seconds = self._held_seconds + time.perf_counter() - began
        self.eager_debugger.resume(pause.step)
        self._go_on(pause)

    def _go_on(self, pause: Pause) -> None:
        self.references.forget(pause)
        with self._lock:
            del self._pauses[pause.ident]
            if pause.step is not None:
                self._steps[pause.ident] = pause.step
        self.arm_engines()

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Mark the calling thread as held: code that runs inside does not stop again."""
        was = getattr(self._local, "is_holding", False)
        self._local.is_holding = True
        try:
            with self.eager_debugger.kept_out():
                yield
        finally:
            self._local.is_holding = was

    @property
    def is_holding(self) -> bool:
        """Whether the calling thread is held, by the agent or by the debugger of ordinary Python."""
        return getattr(self._local, "is_holding", False) or self.eager_debugger.holds_this_thread

    def running_clock(self) -> float:
        """Return the seconds of a clock that stands still while the agent holds the calling thread."""
        return time.perf_counter() - self._held_seconds

    @property
    def _held_seconds(self) -> float:
        seconds: float = getattr(self._local, "held_seconds", 0.0)
        return seconds

    def current_step(self) -> Step | None:
        """The step in progress on the calling thread."""
        return self._steps.get(threading.get_ident()) if self._steps else None

    @property
    def has_steps(self) -> bool:
        """Whether any thread has a step in progress."""
        return bool(self._steps)

    def finish_step(self) -> None:
        """Drop the step in progress on the calling thread."""
        with self._lock:
            dropped = self._steps.pop(threading.get_ident(), None)
        if dropped is not None:
            self.arm_engines()

    def begin_foreign_step(self, thread_id: int, step: Step) -> None:
        """Another debugger begins a step on the thread: traces and generated code on its way may end it. Any thread."""
        ident = self.threads.ident_of(thread_id)
        if ident is None or ident in self._pauses:
            return
        with self._lock:
            self._steps[ident] = step
        self.arm_engines()

    def give_up_steps(self, thread_id: int | None = None) -> None:
        """Give up what the user asked of a thread (None: of all that are not held): another debugger has seen to it.

        Steps and requests to pause, that is. Any thread.
        """
        wanted = self.threads.ident_of(thread_id) if thread_id is not None else None
        with self._lock:
            given_up = [ident for ident in self._steps if thread_id is None or ident == wanted]
            for ident in given_up:
                del self._steps[ident]
            requests = {ident for ident in self._pause_requests if thread_id is None or ident == wanted}
            self._pause_requests -= requests
        if given_up or requests:
            self.arm_engines()

    def take_pause_request(self) -> bool:
        """Whether the user asked to pause the calling thread; asking takes the request."""
        ident = threading.get_ident()
        if ident not in self._pause_requests:
            return False
        with self._lock:
            self._pause_requests.discard(ident)
        self.on_pause_taken()
        return True

    def give_up_pauses(self) -> None:
        """Give up every request to pause. Any thread."""
        with self._lock:
            self._pause_requests.clear()
        self.arm_engines()

    @property
    def has_pause_requests(self) -> bool:
        """Whether some thread is asked to pause."""
        return bool(self._pause_requests)

    def should_stop(self, breakpoints: list[LineBreakpoint], frame: Callable[[], Frame]) -> list[int]:
        """Decide on breakpoints that were reached; see ``Host.should_stop``."""
        if self._client is None or self.is_holding:
            return []
        with self.holding():
            return self._decider.should_stop(breakpoints, frame)

    def python_stack(self, top: types.FrameType | None) -> list[Frame]:
        """Return the frames of running Python code from ``top`` down; see ``Host.python_stack``."""
        return [
            self._presented(frame) or EagerFrame(frame, self.print)
            for frame in walk(top)
            if not is_debugger_file(frame.f_code.co_filename)
        ]

    def _presented(self, frame: types.FrameType) -> Frame | None:
        return next((shown for engine in self._engines if (shown := engine.present_frame(frame)) is not None), None)

    def listing_of(self, code: types.CodeType) -> VirtualSource | None:
        """Return the listing of generated code; see ``Host.listing_of``."""
        return next((found for engine in self._engines if (found := engine.listing_of(code)) is not None), None)

    def function_found(self, entry: FunctionEntry, path: str, line: int) -> None:
        """Bind a function breakpoint where it was reached; see ``Host.function_found``."""
        if entry.binding.problem is not None:
            entry.path, entry.binding = path, Binding(line)
            self.breakpoint_changed(entry)

    def breakpoint_changed(self, breakpoint: LineBreakpoint) -> None:
        """Tell the client what is known of ``breakpoint`` now; see ``Host.breakpoint_changed``."""
        self.send_event("breakpoint", BreakpointEventBody(reason="changed", breakpoint=breakpoint.as_dap()))

    def print(self, text: str, category: str = "console") -> None:
        """Send ``text`` to the user as an ``output`` event."""
        self.send_event("output", OutputEventBody(output=text, category=category))


_SHOWN_CHARACTERS = 60


def _name_of(command: str, arguments: object) -> str:
    """Return what a person calls a request: by its expression, if it has one."""
    expression: object = getattr(arguments, "expression", None)
    text = expression.strip() if isinstance(expression, str) else command
    return f"'{text}'" if len(text) <= _SHOWN_CHARACTERS else f"'{text[:_SHOWN_CHARACTERS]}...'"


def _stopped_body(stop: Stop, reason: str, thread_id: int) -> StoppedEventBody:
    return StoppedEventBody(
        reason=reason,
        description=stop.description,
        text=without_addresses(stop.text) if stop.text else stop.text,
        thread_id=thread_id,
        all_threads_stopped=False,
        hit_breakpoint_ids=stop.hit_breakpoint_ids or None,
    )
