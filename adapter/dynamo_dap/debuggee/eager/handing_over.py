"""What one debugger does on a thread is made known to the other, before it takes effect.

pydevd shows its messages on its reader and writer threads. A step or a request to pause is both's: whoever stops the
thread first ends it, and the other forgets about it.
"""

from __future__ import annotations

from typing import Any

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.requests import RequestError
from dynamo_dap.debuggee.agent.stepping import Step, StepKind
from dynamo_dap.debuggee.eager.idle_tracing import IdleTracing

EAGER = "eager"
_EVERY_THREAD = "*"


class HandingOver:
    """Tells the agent what debugpy is asked and what it says."""

    def __init__(self, agent: Agent, tracing: IdleTracing) -> None:
        self._agent = agent
        self._tracing = tracing

    def after_receive(self, message: Any) -> None:
        """Debugpy has received a message, and has not read it yet."""
        try:
            if message.get("type") == "request":
                command, arguments = message.get("command"), message.get("arguments") or {}
                self._tracing.on_request(command, arguments)
                self._on_request(command, arguments)
        except Exception:  # noqa: BLE001  (debugpy must not suffer from us)
            log_exception("looking at a request to debugpy")

    def before_send(self, message: Any) -> None:
        """Debugpy is about to send a message."""
        try:
            if message.get("type") == "event":
                self._on_event(message.get("event"), message.get("body") or {})
        except Exception:  # noqa: BLE001  (as above)
            log_exception("looking at an event of debugpy")

    def _on_request(self, command: str, arguments: dict[str, Any]) -> None:
        thread_id = arguments.get("threadId")
        if command == "stepIn" and isinstance(thread_id, int):
            step = Step(StepKind.IN, arguments.get("granularity") or "statement", EAGER)
            self._agent.begin_foreign_step(thread_id, step)
        elif command == "continue":
            self._agent.give_up_steps()
        elif command == "pause":
            self._request_pause(thread_id)

    def _request_pause(self, thread_id: object) -> None:
        number = thread_id if isinstance(thread_id, int) else 0
        try:
            self._agent.request_pause(number)
        except RequestError:
            return  # debugpy says itself that there is no such thread

    def _on_event(self, event: str, body: dict[str, Any]) -> None:
        thread_id = body.get("threadId")
        if event == "stopped":
            # Where others are to stop along with that thread, the main thread is among them.
            self._tracing.want()
        has_ended = event == "thread" and body.get("reason") == "exited"
        if (event == "stopped" or has_ended) and isinstance(thread_id, int):
            self._agent.give_up_steps(thread_id)
