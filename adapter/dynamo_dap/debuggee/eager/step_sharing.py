"""Coordinates the agent and debugpy when the user steps or pauses a thread.

Both the agent and debugpy get such a request. The one that stops the thread first has served the request, and the other
one drops it. Observes pydevd's messages, before they take effect, on pydevd's reader and writer threads.
"""

from __future__ import annotations

import threading
from typing import Any

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.agent.frames import frame_of_globals
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.stepping import Step, StepKind
from dynamo_dap.debuggee.eager import pydevd_internals, pydevd_pauses
from dynamo_dap.debuggee.eager.idle_tracing import IdleTracing
from dynamo_dap.protocol.own_threads import own_thread

EAGER = "eager"
_ALL = 0
"""pydevd's thread id for all threads."""
_PATIENCE_SECONDS = 0.5
"""Seconds to wait until the requested thread pauses, before other threads are asked to pause as well."""
_NEXT_SECONDS = 0.1
"""Seconds between the requests to further threads."""


_ABOUT_FRAMES = frozenset({"evaluate", "setExpression", "completions"})


def _set_frame(arguments: dict[str, object]) -> None:
    """Add the frame of the program's globals to a request without a frame, if a thread is stopped."""
    frame = pydevd_internals.frame_of_globals_at_stop(frame_of_globals)
    if frame is not None:
        arguments["frameId"] = frame


class StepSharing:
    """Passes debugpy's requests and events on to the agent."""

    def __init__(self, agent: Agent, tracing: IdleTracing) -> None:
        self._agent = agent
        self._tracing = tracing
        self.exception_filters: frozenset[str] | None = None
        """The last requested filters; None if none were requested since this object was made."""
        self._pause_taken = threading.Event()
        """Set when a thread that was asked to pause, by the user's last request, has stopped."""

    def after_receive(self, message: Any) -> None:
        """Handle a message that debugpy has received, before it reads the message."""
        try:
            if message.get("type") == "request":
                command, arguments = message.get("command"), message.get("arguments") or {}
                if command in _ABOUT_FRAMES and arguments.get("frameId") is None:
                    _set_frame(arguments)
                self._tracing.on_request(command, arguments)
                self._on_request(command, arguments)
        except Exception:  # noqa: BLE001  (debugpy must not notice our failure)
            log_exception("reading a request to debugpy")

    def before_send(self, message: Any) -> None:
        """Handle a message that debugpy is about to send."""
        try:
            if message.get("type") == "event":
                self._on_event(message.get("event"), message.get("body") or {})
        except Exception:  # noqa: BLE001  (debugpy must not notice our failure)
            log_exception("reading an event of debugpy")

    def _on_request(self, command: str, arguments: dict[str, Any]) -> None:
        thread_id = arguments.get("threadId")
        if command == "stepIn" and isinstance(thread_id, int):
            step = Step(StepKind.IN, arguments.get("granularity") or "statement", EAGER)
            self._begin_step(thread_id, step)
        elif command == "continue" and isinstance(thread_id, int):
            self._drop_steps(thread_id)
        elif command == "setExceptionBreakpoints":
            self.exception_filters = frozenset(str(name) for name in arguments.get("filters") or ())
            self._agent.update_hooks()
        elif command == "pause":
            self._request_pause(thread_id)

    def _begin_step(self, thread_id: int, step: Step) -> None:
        """Begin a step in the agent, too: it may end in a trace or in generated code."""
        ident = self._agent.threads.ident_of(thread_id)
        if ident is not None and self._agent.threads.pause_on(ident) is None:
            self._agent.steps.begin(ident, step)

    def _drop_steps(self, thread_id: int) -> None:
        """Drop the agent's step and pause request of a thread, which debugpy has stopped or continued."""
        ident = self._agent.threads.ident_of(thread_id)
        if ident is not None:
            self._agent.steps.drop(ident)

    def _request_pause(self, thread_id: object) -> None:
        pydevd_pauses.let_threads_leave()
        number = thread_id if isinstance(thread_id, int) else _ALL
        ident = None if number == _ALL else self._agent.threads.ident_of(number)
        if ident is not None and pydevd_pauses.is_stopping(ident):
            return  # the thread has stopped for something else meanwhile
        before, self._pause_taken = self._pause_taken, threading.Event()
        try:
            self._agent.request_pause(number)
        except RequestError:
            self._pause_taken = before
            return  # debugpy reports that the thread does not exist
        if ident is not None and self._agent.steps.is_asked_to_pause(ident):
            own_thread("pause", self._widen_pause, number, self._pause_taken).start()

    def _widen_pause(self, asked: int, taken: threading.Event) -> None:
        """Ask the other threads to pause, one by one, if the thread ``asked`` does not pause in time.

        It may wait in C code for one of the others. Runs on a thread of its own, until a thread has paused.
        """
        if taken.wait(_PATIENCE_SECONDS):
            return
        self._tracing.want()
        for thread in self._agent.threads.alive():
            ident = self._agent.threads.ident_of(thread.id)
            if thread.id == asked or ident is None or self._agent.threads.pause_on(ident) is not None:
                continue
            self._agent.request_pause(thread.id)
            pydevd_pauses.request_pause(ident)
            if taken.wait(_NEXT_SECONDS):
                break
        # Threads that have not paused would stop later, unexpectedly. Keep the requests if the user has asked again.
        if taken.is_set() and self._pause_taken is taken:
            pydevd_pauses.withdraw_pauses()
            self._agent.steps.withdraw_pauses()

    def _is_asked_to_pause(self, thread_id: object) -> bool:
        ident = self._agent.threads.ident_of(thread_id) if isinstance(thread_id, int) else None
        return ident is not None and self._agent.steps.is_asked_to_pause(ident)

    def pause_taken(self) -> None:
        """Note that a thread has paused, as the user asked."""
        self._pause_taken.set()

    def _on_event(self, event: str, body: dict[str, object]) -> None:
        thread_id = body.get("threadId")
        if event == "stopped" and (body.get("reason") == "pause" or self._is_asked_to_pause(thread_id)):
            self.pause_taken()
        has_ended = event == "thread" and body.get("reason") == "exited"
        if (event == "stopped" or has_ended) and isinstance(thread_id, int):
            self._drop_steps(thread_id)
