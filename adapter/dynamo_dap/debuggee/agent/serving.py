"""Serves a client's requests: finds the handler and the thread for each, and always answers.

Each connection has one ``AgentReceiver``, which runs on the connection's reader thread. Slow requests, and requests
that must not overtake them, run on a separate thread.
"""

from __future__ import annotations

import queue
from collections.abc import Callable

from dynamo_dap.debuggee.agent import handlers as _handlers  # noqa: F401  (registers the requests)
from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.agent.interruption import Interruptible
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.pause import Pause, Reply, Work, busy_text
from dynamo_dap.debuggee.agent.requests import HANDLERS, AfterResponse, AnsweredLater, Handler
from dynamo_dap.debuggee.values.model import EvaluationError, Interrupted, WriteRefused, text_of_raised
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.protocol.connection import Connection
from dynamo_dap.protocol.own_threads import own_thread
from dynamo_dap.protocol.requests.contract import ErrorId
from dynamo_dap.protocol.wire.messages import Event, ProtocolError, Request, decode

_SLOW = frozenset({"setBreakpoints", "setFunctionBreakpoints", "breakpointLocations"})
"""Requests that read and parse files. Other requests are served meanwhile."""
_IN_ORDER = _SLOW | {
    "attach",
    "configurationDone",
    "continue",
    "goto",
    "next",
    "restartFrame",
    "reverseContinue",
    "stepBack",
    "stepIn",
    "stepOut",
    "setDataBreakpoints",
    "setExceptionBreakpoints",
    "setInstructionBreakpoints",
}
"""Requests that must not overtake slow ones: the program must not continue before its breakpoints are set."""


class AgentReceiver:
    """Receives one connection's messages for the agent, once the connection is its client."""

    def __init__(self, connection: Connection, agent: Agent) -> None:
        self._connection = connection
        self._agent = agent
        self._backlog = _Backlog()

    def on_request(self, request: Request) -> None:
        """Serve a request here, or pass it to the thread that serves it."""
        if not self._backlog.takes(request.command, lambda: self._serve(request)):
            self._serve(request)

    def on_event(self, event: Event) -> None:
        """Ignore the event: clients send none."""

    def on_invalid_message(self, problem: str) -> None:
        """Report an unreadable message to the client."""
        self._agent.print(f"dynamo-dap: {problem}\n", "stderr")

    def on_closed(self, problem: str | None) -> None:
        """Detach the client, which has disconnected; the program continues."""
        self._backlog.close()
        if self._agent.client is self._connection:
            self._agent.detach_client()

    def _serve(self, request: Request) -> None:
        if self._agent.client is not self._connection:
            return
        reply = Reply(self._connection, request)

        def serve() -> None:
            handler = HANDLERS.get(request.command)
            if handler is None:
                raise RequestError(f"unknown request '{request.command}'", error_id=ErrorId.UNKNOWN_TO_AGENT)
            arguments = decode(request.arguments, handler.arguments_type, f"arguments of '{request.command}'")
            pause = handler.owner(self._agent, arguments) if handler.owner is not None else None
            if pause is not None:
                self._submit(request, handler, pause, arguments)
                return
            # A handler for held threads takes a pause, too; here no thread is held.
            found = (
                handler.run(self._agent, arguments)
                if handler.owner is None
                else handler.run(self._agent, None, arguments)
            )
            reply.respond(found.body if isinstance(found, AfterResponse) else found)
            if isinstance(found, AfterResponse):
                found.action()

        self._answering_failures(serve, reply, request)

    def _submit(self, request: Request, handler: Handler, pause: Pause, arguments: object) -> None:
        seconds = self._agent.options.evaluation_timeout if handler.is_bounded(self._agent, arguments) else None
        reply = Reply(self._connection, request)
        work = Work(request.seq, _name_of(request.command, arguments), reply, seconds)

        def serve() -> None:
            with work.interruptible.running():
                body = handler.run(self._agent, pause, arguments)
            if isinstance(body, AnsweredLater):
                body.begin(reply)
            else:
                reply.respond(body)

        def run() -> None:
            self._answering_failures(serve, reply, request, work.interruptible)

        def report_stuck() -> None:
            if pause.refuse_others(work):
                reply.refuse(f"no answer within {seconds:g} s: {busy_text(work)}", error_id=ErrorId.THREAD_STUCK)

        work.run, work.on_stuck = run, report_stuck
        pause.submit(work)

    def _answering_failures(
        self, serve: Callable[[], None], reply: Reply, request: Request, interruptible: Interruptible | None = None
    ) -> None:
        # Do not make this a context manager: from Python 3.12 on, an exception that passes through one forms a
        # reference cycle with the held frames.
        try:
            serve()
        except RequestError as error:
            reply.refuse(str(error), error_id=error.error_id, message=error.message)
        except ProtocolError as error:
            reply.refuse(str(error), error_id=ErrorId.INVALID_ARGUMENTS)
        except (EvaluationError, WriteRefused) as error:
            reply.refuse(str(error), error_id=ErrorId.EVALUATION_FAILED)
        except Interrupted:
            if interruptible is not None and interruptible.timed_out:
                seconds = self._agent.options.evaluation_timeout
                text = f"'{request.command}' took longer than {seconds:g} s and was interrupted"
                reply.refuse(text, error_id=ErrorId.TIMED_OUT)
            else:
                reply.refuse("cancelled", error_id=ErrorId.CANCELLED, message="cancelled")
        except RecursionError:
            text = f"'{request.command}' exceeded Python's recursion limit: something is nested too deep"
            reply.refuse(text, error_id=ErrorId.EVALUATION_FAILED)
        except Exception as error:  # noqa: BLE001  (whatever it is, the client gets an answer)
            log_exception(f"serving {request.command}")
            text = f"internal error in '{request.command}': {type(error).__name__}: {error}"
            reply.refuse(text, error_id=ErrorId.AGENT_INTERNAL)
        except BaseException as error:
            if interruptible is None:
                raise
            reply.refuse(text_of_raised(error), error_id=ErrorId.EVALUATION_FAILED)


class _Backlog:
    """Serves slow requests, and those that must not overtake them, in order on a separate thread.

    ``takes`` is called on the reader thread. The first slow request starts the thread.
    """

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._unfinished = 0
        self._lock = lock("waiting requests", Level.DATA)
        self._has_thread = False

    def takes(self, command: str, serve: Callable[[], None]) -> bool:
        """Queue ``serve`` for the separate thread; return False if the caller must serve the request at once."""
        with self._lock:
            if command not in _SLOW and not (self._unfinished and command in _IN_ORDER):
                return False
            self._unfinished += 1
        self._waiting.put(serve)
        if not self._has_thread:
            self._has_thread = True
            own_thread("backlog", self._run).start()
        return True

    def close(self) -> None:
        """End the thread once it has served all waiting requests."""
        self._waiting.put(None)

    def _run(self) -> None:
        while (serve := self._waiting.get()) is not None:
            try:
                serve()
            finally:
                with self._lock:
                    self._unfinished -= 1


_SHOWN_CHARACTERS = 60


def _name_of(command: str, arguments: object) -> str:
    """Return the name of a request for the user: its expression, if it has one."""
    expression: object = getattr(arguments, "expression", None)
    text = expression.strip() if isinstance(expression, str) else command
    return f"'{text}'" if len(text) <= _SHOWN_CHARACTERS else f"'{text[:_SHOWN_CHARACTERS]}...'"
