"""Coordinates steps, pauses and stops on a thread between the agent and debugpy, before they take effect.

Observes pydevd's messages on its reader and writer threads. Both the agent and debugpy get a request to step or pause.
The first to stop the thread has served the request, and the other drops it.
"""

from __future__ import annotations

import threading
from typing import Any

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.agent.frames import frame_of_globals
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.stepping import Step, StepKind
from dynamo_dap.debuggee.eager import pydevd_guards, pydevd_internals
from dynamo_dap.debuggee.eager.idle_tracing import IdleTracing
from dynamo_dap.protocol.own_threads import own_thread

EAGER = "eager"
_ALL = 0
"""pydevd's thread id for all threads."""
_PATIENCE_SECONDS = 0.5
"""Seconds until another thread is asked to pause as well."""
_NEXT_SECONDS = 0.1
"""Seconds between such requests to further threads."""


_ABOUT_FRAMES = frozenset({"evaluate", "setExpression", "completions"})


def _set_frame(arguments: dict[str, object]) -> None:
    """Give a request without a frame the frame of the program's globals, on a stopped thread."""
    frame = pydevd_internals.frame_of_globals_at_stop(frame_of_globals)
    if frame is not None:
        arguments["frameId"] = frame


class StepSharing:
    """Reports debugpy's requests and messages to the agent."""

    def __init__(self, agent: Agent, tracing: IdleTracing) -> None:
        self._agent = agent
        self._tracing = tracing
        self.exception_filters: frozenset[str] | None = None
        """The last requested filters; None if the request came before this object existed."""
        self._pause_taken = threading.Event()
        """Set when a thread has paused after the user's last request to pause."""

    def after_receive(self, message: Any) -> None:
        """Handle a message that debugpy has received and not read yet."""
        try:
            if message.get("type") == "request":
                command, arguments = message.get("command"), message.get("arguments") or {}
                if command in _ABOUT_FRAMES and arguments.get("frameId") is None:
                    _set_frame(arguments)
                self._tracing.on_request(command, arguments)
                self._on_request(command, arguments)
        except Exception:  # noqa: BLE001  (debugpy must not suffer from us)
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
        """Begin a step of the thread that may end in traces and generated code."""
        ident = self._agent.threads.ident_of(thread_id)
        if ident is not None and self._agent.threads.pause_on(ident) is None:
            self._agent.steps.begin(ident, step)

    def _drop_steps(self, thread_id: int) -> None:
        """Drop the agent's step and pause request of a thread that debugpy has stopped."""
        ident = self._agent.threads.ident_of(thread_id)
        if ident is not None:
            self._agent.steps.drop(ident)

    def _request_pause(self, thread_id: object) -> None:
        pydevd_guards.let_threads_leave()
        number = thread_id if isinstance(thread_id, int) else _ALL
        try:
            self._agent.request_pause(number)
        except RequestError:
            return  # debugpy reports that the thread does not exist
        if number != _ALL:
            self._pause_taken = taken = threading.Event()
            own_thread("pause", self._widen_pause, number, taken).start()

    def _widen_pause(self, asked: int, taken: threading.Event) -> None:
        """Pause the other threads one by one if the first one waits in C code, perhaps for one of them.

        Runs on its own thread, until a thread has paused.
        """
        if taken.wait(_PATIENCE_SECONDS):
            return
        self._tracing.want()
        for thread in self._agent.threads.alive():
            ident = self._agent.threads.ident_of(thread.id)
            if thread.id == asked or ident is None or self._agent.threads.pause_on(ident) is not None:
                continue
            self._agent.request_pause(thread.id)
            pydevd_internals.request_pause(ident)
            if taken.wait(_NEXT_SECONDS):
                break
        # Threads that have not paused yet would stop later, unexpectedly. Keep requests if the user has asked again.
        if taken.is_set() and self._pause_taken is taken:
            pydevd_internals.withdraw_pauses()
            self._agent.steps.withdraw_pauses()

    def pause_taken(self) -> None:
        """Note that a thread has paused, as the user asked."""
        self._pause_taken.set()

    def _on_event(self, event: str, body: dict[str, object]) -> None:
        thread_id = body.get("threadId")
        if event == "stopped" and body.get("reason") == "pause":
            self.pause_taken()
        has_ended = event == "thread" and body.get("reason") == "exited"
        if (event == "stopped" or has_ended) and isinstance(thread_id, int):
            self._drop_steps(thread_id)
