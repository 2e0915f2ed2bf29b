"""Manages one IDE connection: its requests, its phases, its program, and its end.

Runs on the event loop; lives as long as the connection. Several sessions may exist at once (over TCP); they share only
the table of handlers, which is filled while ``sessions.handlers`` is imported. The connection to the IDE calls the
session's ``on_...`` methods. There are three kinds of requests:

- *handled*: the server answers itself. A handler returns the body (or None), or raises ``RequestRefused``. A coroutine
  function runs as a task that ``cancel`` can end.
- *broadcast*: every backend gets the request, and the handler returns a function that merges their answers into one
  body. That function runs in the callback of the last answer: events that follow this answer come after the merged one.
- *forwarded*: one backend answers (``capabilities.FORWARDED_REQUESTS``, custom requests).
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import msgspec

from dynamo_dap.protocol.requests.contract import CUSTOM_PREFIX, SET_OPTION, ErrorId
from dynamo_dap.protocol.requests.options import CONSOLE_PREFIX, ConnectTarget, SetOptionArguments
from dynamo_dap.protocol.texts import why_refused
from dynamo_dap.protocol.wire.messages import Event, ProtocolError, Request, decode
from dynamo_dap.protocol.wire.streams import ByteStream
from dynamo_dap.protocol.wire.types import Capabilities, EvaluateArguments
from dynamo_dap.server.backends.backend import Backend
from dynamo_dap.server.backends.backend_events import StoppedThreads
from dynamo_dap.server.backends.breakpoints import BreakpointMemory
from dynamo_dap.server.backends.routing import Merge, Router, Sharing
from dynamo_dap.server.backends.suspension import Suspension
from dynamo_dap.server.client.capabilities import EAGER_ARGUMENTS, FORWARDED_REQUESTS
from dynamo_dap.server.client.errors import RequestRefused
from dynamo_dap.server.client.ide import Client
from dynamo_dap.server.launching.program import Job
from dynamo_dap.server.programs.debuggee import Debuggee, StartMethod
from dynamo_dap.server.sessions.rank_member import RankMember


@dataclass(frozen=True)
class Access:
    """The access token that a client must show; ``token`` is None for a client that started the server over pipes."""

    token: str | None = None

    def check(self, given: str | None) -> None:
        """Raise ``RequestRefused`` unless ``given`` is the token, or none is needed."""
        if self.token is None:
            return
        if given is None:
            text = 'this server needs an access token: give "accessToken" in the launch or attach configuration'
            raise RequestRefused(ErrorId.ACCESS_DENIED, text, show_user=True)
        if not hmac.compare_digest(self.token.encode(), given.encode()):
            raise RequestRefused(ErrorId.ACCESS_DENIED, "the access token is not this server's", show_user=True)


class Phase(Enum):
    """The phase of the session. Requests for the program are taken only while ``RUNNING``."""

    NEW = "before launch or attach"
    STARTING = "the program is starting, or restarting"
    RUNNING = "the program is running"
    ENDED = "the program has ended"


_REFUSALS = {
    Phase.NEW: (ErrorId.NO_PROGRAM, "no program is being debugged: send 'launch' or 'attach' first"),
    Phase.STARTING: (ErrorId.PROGRAM_STARTING, "the program is still starting: wait for the 'initialized' event"),
    Phase.ENDED: (ErrorId.PROGRAM_ENDED, "the program has ended"),
}
"""Why a request for the program is refused, by the phase."""

_ARGUMENTS = FORWARDED_REQUESTS | EAGER_ARGUMENTS
"""The arguments' type for each request that one backend answers."""

_log = logging.getLogger(__name__)


class Session:
    """The session of one IDE connection."""

    def __init__(self, stream: ByteStream, access: Access, on_access: Callable[[], None] = lambda: None) -> None:
        """Call ``on_access`` when the client has shown the token that ``access`` requires."""
        self.access = access
        self._on_access = on_access
        self.client = Client(stream, self, is_trusted=access.token is None)
        suspension = Suspension(self._process_id, lambda: self._stopped_threads().changes)
        self.router = Router(self.client, self._backends, self._stopped_threads, suspension)
        self.breakpoints = BreakpointMemory()
        self.phase = Phase.NEW
        self.debuggee: Debuggee | None = None
        """The program's present run; kept after its end."""
        self.job: Job | None = None
        """The launched job, for ``restart``."""
        self.given: dict[str, Any] = {}
        """The client's ``launch`` arguments for ``job``."""
        self.rank: RankMember | None = None
        """Coordinates the session with other ranks that stop together; None without such ranks."""
        self.filters: frozenset[str] | None = None
        """Names of the exception filters that the client is offered; None for all."""
        self.is_configured = False
        """Whether ``configurationDone`` was received."""
        self.closed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Done when the session is closed. Its result is the exit status of a server that serves only this session."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """The server's own work on requests, by their ``seq``."""
        self._ending: asyncio.Task[None] | None = None
        self._left_program = asyncio.Event()

    # -- requests --------------------------------------------------------------------------------------------------

    def on_request(self, request: Request) -> None:
        """Serve, route or refuse a request of the IDE."""
        try:
            self._serve(self.client.take(request))
        except Exception as error:  # noqa: BLE001 - turned into the response
            self.client.refuse(request, _refusal(request, error))

    def _serve(self, request: Request) -> None:
        """Serve or route a request of the IDE, or raise ``RequestRefused``."""
        if self._ending is not None:
            raise RequestRefused(ErrorId.SESSION_ENDING, "the session is ending")
        handler = handlers.get(request.command)
        if not self.client.is_introduced and not (handler is not None and handler.before_initialize):
            raise RequestRefused(ErrorId.NOT_INITIALIZED, f"send 'initialize' first, then '{request.command}'")
        if handler is not None:
            self._handle(request, handler)
        elif (expected := _ARGUMENTS.get(request.command)) is not None:
            self._require_program()
            # Malformed requests are not forwarded: debugpy crashes on some of them.
            given: object = decode(request.arguments, expected, f"{request.command} arguments")
            _refuse_unknown_granularity(given)
            if isinstance(given, EvaluateArguments) and _names_option(given):
                self._set_option(request, given)
            else:
                self._forward(request, given)
        elif request.command.startswith(CUSTOM_PREFIX):
            self._require_program()
            self.router.forward(request)
        else:
            raise RequestRefused(ErrorId.UNKNOWN_REQUEST, f"unknown or unsupported request '{request.command}'")

    def _handle(self, request: Request, handler: Handler) -> None:
        what = f"{request.command} arguments"
        raw = handler.arguments is msgspec.Raw
        arguments = request.arguments if raw else decode(request.arguments, handler.arguments, what)
        if handler.is_broadcast:
            if not (handler.after_end and self.phase is Phase.ENDED):
                self._require_program()
            given: Merge | Sharing = handler.function(self, request.arguments, arguments)
            self.router.broadcast(request, given if isinstance(given, Sharing) else Sharing(given))
            return
        result = handler.function(self, arguments)
        if inspect.isawaitable(result):
            self._answer_later(request, result)
        else:
            self.client.respond(request, result)

    def _forward(self, request: Request, given: object) -> None:
        """Let a backend answer, and make ranks that stop together follow."""
        rank, thread_id = self.rank, getattr(given, "thread_id", None)
        has_effect = request.command == "pause" or (rank is not None and rank.holds(thread_id))
        self.router.forward(request)
        if rank is not None and has_effect:
            rank.requested(request.command, getattr(given, "granularity", None))

    def _set_option(self, request: Request, given: EvaluateArguments) -> None:
        arguments = SetOptionArguments(given.expression)
        self.router.forward_to_agent(request, SET_OPTION, msgspec.Raw(msgspec.json.encode(arguments)))

    def cancel_task(self, request_id: int) -> bool:
        """Cancel the server's own work on the request ``request_id``; False when there is none."""
        task = self._tasks.get(request_id)
        if task is not None:
            _cancel(task)
        return task is not None

    def _answer_later(self, request: Request, result: Awaitable[object]) -> None:
        """Answer ``request`` when ``result`` is done. The client's request ``cancel`` can cancel it."""
        task = asyncio.get_running_loop().create_task(self._finish(request, result), name=request.command)
        self._tasks[request.seq] = task

    async def _finish(self, request: Request, result: Awaitable[object]) -> None:
        try:
            body = await result
        except asyncio.CancelledError:
            self.client.refuse(request, RequestRefused(ErrorId.CANCELLED, "cancelled", message="cancelled"))
        except Exception as error:  # noqa: BLE001 - turned into the response
            self.client.refuse(request, _refusal(request, error))
        else:
            self.client.respond(request, body)
        finally:
            self._tasks.pop(request.seq, None)

    def _require_program(self) -> None:
        """Raise ``RequestRefused`` unless the program is running."""
        if self.phase is not Phase.RUNNING:
            raise RequestRefused(*_REFUSALS[self.phase])

    # -- the program -----------------------------------------------------------------------------------------------

    def new_debuggee(self, start_method: StartMethod, name: str, *, is_local: bool = True) -> Debuggee:
        """Create the program's next run."""
        return Debuggee(self.client, self.breakpoints, start_method, name, self._on_debuggee_end, is_local=is_local)

    def start(self, debuggee: Debuggee, bring_up: Coroutine[object, object, None]) -> Coroutine[object, object, None]:
        """Make ``debuggee`` the session's program and return the coroutine that starts it.

        If the start fails, the session has no program.
        """
        self.phase = Phase.STARTING
        self.debuggee = debuggee
        return self._start(debuggee, bring_up)

    async def _start(self, debuggee: Debuggee, bring_up: Coroutine[object, object, None]) -> None:
        try:
            await bring_up
        except BaseException:
            debuggee.events.is_silent = True
            debuggee.close()
            self.debuggee = None
            if self.phase is Phase.STARTING:
                self.phase = Phase.NEW
            raise
        debuggee.slow_start.is_over()
        self.phase = Phase.RUNNING
        debuggee.announce()
        debuggee.watch()

    async def join_ranks(self, debuggee: Debuggee, meeting: ConnectTarget, name: str) -> None:
        """Stop and step together with the other ranks that join ``meeting``; ``name`` is shown to the user."""
        rank = debuggee.information.rank
        member = RankMember(self.client, self.router, self._stopped_threads, name if rank is None else str(rank))
        await member.join(meeting)
        self.rank = member
        debuggee.events.on_stopped = member.stopped

    def check_access(self, given: str | None) -> None:
        """Raise ``RequestRefused`` unless ``given`` is the token for this server."""
        self.access.check(given)
        self.client.trust()
        self._on_access()

    def refuse_second_start(self) -> None:
        """Raise ``RequestRefused`` if the session has or had a program."""
        if self.phase is not Phase.NEW:
            raise RequestRefused(ErrorId.STARTED_TWICE, "this session has a program already; start another session")

    def cancel_start(self, progress_id: str) -> bool:
        """End the session if ``progress_id`` belongs to its slow start; else return False."""
        if self.debuggee is None or not self.debuggee.slow_start.is_shown_as(progress_id):
            return False
        self.debuggee.slow_start.is_over()
        self.terminate()
        return True

    def terminate(self) -> None:
        """Ask the program to end by itself; cancel its start if it has not started yet."""
        if self.phase is Phase.STARTING:
            self._cancel_tasks()
            self.fail_start("The start was cancelled.")
        elif self.phase is Phase.RUNNING and self.debuggee is not None:
            self.debuggee.terminate()
        elif self.phase is Phase.NEW:
            self._require_program()

    def fail_start(self, text: str) -> None:
        """Report that the program cannot start, and let the IDE end the session."""
        if self.phase is not Phase.ENDED:
            self.phase = Phase.ENDED
            self.client.output(text, "important")
            self.client.event("terminated")

    def _backends(self) -> list[Backend]:
        if self.debuggee is None or self.phase is not Phase.RUNNING:
            return []
        return self.debuggee.backends

    def _process_id(self) -> int | None:
        debuggee = self.debuggee
        return debuggee.information.process_id if debuggee is not None and debuggee.is_local else None

    def _stopped_threads(self) -> StoppedThreads:
        assert self.debuggee is not None, "backends belong to a debuggee"
        return self.debuggee.events.stopped_threads

    def _on_debuggee_end(self, debuggee: Debuggee) -> None:
        if debuggee is self.debuggee:
            self.phase = Phase.ENDED
            if self.rank is not None:
                self.rank.close()

    # -- the end ---------------------------------------------------------------------------------------------------

    async def wait_until_program_left(self) -> None:
        """After ``end``, wait until the program is detached or has ended."""
        await self._left_program.wait()

    def end(self, *, kill: bool | None = None, exit_status: int = 0) -> None:
        """End the session: kill the program or let it run on (None: kill it if launched), and disconnect the IDE.

        Return at once; ``closed`` is done at the end. Only the first call counts.
        """
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end(kill, exit_status))

    async def _end(self, kill: bool | None, exit_status: int) -> None:
        try:
            await self._leave_program(kill)
        except Exception:  # noqa: BLE001 - whatever it is, the rest must be released
            _log.exception("leaving the program failed")
        finally:
            await self._answer_rest()
            if self.rank is not None:
                self.rank.close()
            if self.debuggee is not None:
                self.debuggee.close()
            self.client.close()
            if not self.closed.done():
                self.closed.set_result(exit_status)

    async def _leave_program(self, kill: bool | None) -> None:
        starting = self._cancel_tasks()
        if starting:
            await asyncio.wait(starting)
        if self.debuggee is not None:
            if kill is None:
                kill = self.debuggee.start_method is StartMethod.LAUNCH
            await self.debuggee.leave(kill=kill)

    def _cancel_tasks(self) -> list[asyncio.Task[None]]:
        """Cancel the server's own work on every request but ``disconnect``."""
        tasks = [task for task in self._tasks.values() if task.get_name() != "disconnect"]
        for task in tasks:
            _cancel(task)
        return tasks

    async def _answer_rest(self) -> None:
        self._left_program.set()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    # -- the IDE's connection --------------------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Ignore the event: DAP clients send none."""

    def on_invalid_message(self, problem: str) -> None:
        """Report the problem of an invalid message, and continue."""
        self.client.output(f"dynamo-dap received an invalid message: {problem}", "important")

    def on_closed(self, problem: str | None) -> None:
        """End the session: the IDE has disconnected, or sends something other than DAP."""
        if problem is None:
            self.end()
            return
        self.client.output(
            f"The session has ended: dynamo-dap received something other than the Debug Adapter Protocol: {problem}",
            "important",
        )
        with contextlib.suppress(OSError):
            self.client.event("terminated")
        if self.debuggee is not None:
            self.debuggee.events.is_silent = True
        self.end(exit_status=1)


def _cancel(task: asyncio.Task[None]) -> None:
    """Cancel ``task`` once it has begun: a task that never begins would leave its request unanswered."""
    asyncio.get_running_loop().call_soon(task.cancel)


def _refusal(request: Request, error: Exception) -> RequestRefused:
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, ProtocolError):
        return RequestRefused(ErrorId.INVALID_ARGUMENTS, str(error))
    if isinstance(error, OSError):
        return RequestRefused(ErrorId.SYSTEM_REFUSED, f"'{request.command}' failed: {why_refused(error)}")
    _log.error("request '%s' failed", request.command, exc_info=error)
    return RequestRefused(ErrorId.INTERNAL, f"internal error in '{request.command}'; see log")


_GRANULARITIES = ("statement", "line", "instruction")


def _refuse_unknown_granularity(given: object) -> None:
    """Check the granularity of a step: debugpy reports an unknown one as its own defect."""
    granularity = getattr(given, "granularity", None)
    if granularity is not None and granularity not in _GRANULARITIES:
        text = f"unknown stepping granularity '{granularity}'; known are {', '.join(_GRANULARITIES)}"
        raise RequestRefused(ErrorId.UNKNOWN_GRANULARITY, text)


def _names_option(given: EvaluateArguments) -> bool:
    """Return whether a line of the debug console shows or changes an option, and is not Python."""
    return given.context == "repl" and given.expression.lstrip().startswith(CONSOLE_PREFIX)


# -- the table of handlers ---------------------------------------------------------------------------------------------

A = TypeVar("A")

Handle = Callable[[Session, A], object]
Broadcast = Callable[[Session, msgspec.Raw, A], Merge | Sharing]


@dataclass(frozen=True)
class Handler:
    """The way to serve one request."""

    command: str
    arguments: type
    function: Callable[..., Any]
    capabilities: Capabilities
    is_broadcast: bool = False
    before_initialize: bool = False
    after_end: bool = False


class NoArguments(msgspec.Struct):
    """For requests whose arguments do not matter."""


handlers: dict[str, Handler] = {}


def handles(
    command: str, arguments: type[A], *, brings: Capabilities | None = None, before_initialize: bool = False
) -> Callable[[Handle[A]], Handle[A]]:
    """Register the decorated function for ``command``; ``brings`` are the capabilities that it adds."""

    def register(function: Handle[A]) -> Handle[A]:
        _add(Handler(command, arguments, function, brings or Capabilities(), before_initialize=before_initialize))
        return function

    return register


def broadcasts(
    command: str, arguments: type[A], *, brings: Capabilities | None = None, after_end: bool = False
) -> Callable[[Broadcast[A]], Broadcast[A]]:
    """Register the decorated function, which returns a broadcast's ``Sharing`` or only its ``Merge``.

    The function also gets the arguments as received. With ``after_end``, it serves requests even after the program has
    ended and its backends are gone.
    """

    def register(function: Broadcast[A]) -> Broadcast[A]:
        capabilities = brings or Capabilities()
        _add(Handler(command, arguments, function, capabilities, is_broadcast=True, after_end=after_end))
        return function

    return register


def _add(handler: Handler) -> None:
    assert handler.command not in handlers, f"two handlers of '{handler.command}'"
    handlers[handler.command] = handler
