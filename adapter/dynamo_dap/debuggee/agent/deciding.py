"""Decides whether breakpoints that were reached stop the program: conditions, hit counts, log messages.

Runs on the thread that reached them. It counts as held meanwhile, so that functions called by a condition do not stop.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from dynamo_dap.debuggee.agent.breakpoints import LineBreakpoint
from dynamo_dap.debuggee.agent.frames import LOG_CONTEXT, Frame
from dynamo_dap.debuggee.agent.interruption import Interruptible
from dynamo_dap.debuggee.values.model import Interrupted, text_of_raised
from dynamo_dap.protocol.options import AgentOptions
from dynamo_dap.protocol.types import OutputEventBody, Source


class Told(Protocol):
    """The client's part in it."""

    options: AgentOptions

    def send_event(self, event: str, body: object = None) -> None:
        """Send an event."""

    def print(self, text: str, category: str = "console") -> None:
        """Send ``text`` to the user as an ``output`` event."""


class Decider:
    """Asks breakpoints that were reached whether they stop. One per agent."""

    def __init__(self, told: Told) -> None:
        """``told`` hears what log messages and failing conditions say."""
        self._told = told

    def should_stop(self, breakpoints: list[LineBreakpoint], frame: Callable[[], Frame]) -> list[int]:
        """Return the ids of those of ``breakpoints`` that stop here."""
        made: list[Frame] = []

        def frame_once() -> Frame:
            if not made:
                made.append(frame())
            return made[0]

        return [breakpoint.id for breakpoint in breakpoints if self._stops(breakpoint, frame_once)]

    def _stops(self, breakpoint: LineBreakpoint, frame: Callable[[], Frame]) -> bool:
        breakpoint.seen = True
        conditions = breakpoint.conditions
        if conditions.condition is not None and not self._holds(breakpoint, conditions.condition, frame):
            return False
        breakpoint.hits += 1
        if conditions.hit_condition is not None and not conditions.hit_condition.is_met(breakpoint.hits):
            return False
        if conditions.log_message is None:
            return True
        text = conditions.log_message.format(lambda expression: self._text_of(expression, breakpoint, frame))
        source = Source(path=breakpoint.path) if breakpoint.path else None
        body = OutputEventBody(output=text + "\n", category="console", source=source, line=breakpoint.line)
        self._told.send_event("output", body)
        return False

    def _holds(self, breakpoint: LineBreakpoint, condition: str, frame: Callable[[], Frame]) -> bool:
        try:
            with self._bounded(f"its condition {condition!r}", breakpoint):
                return frame().is_true(condition)
        except Interrupted:
            problem = f"took longer than {self._told.options.evaluation_timeout:g} s"
        except BaseException as error:  # noqa: BLE001  (the user's expression may raise anything)
            problem = text_of_raised(error)
        # Better to stop once too often than to miss what the user waits for without a word.
        self._told.print(
            f"Breakpoint at line {breakpoint.line}: its condition {condition!r} failed: {problem}\n", "important"
        )
        return True

    def _text_of(self, expression: str, breakpoint: LineBreakpoint, frame: Callable[[], Frame]) -> str:
        try:
            with self._bounded(f"{expression!r} in its log message", breakpoint):
                return frame().evaluate(expression, LOG_CONTEXT).text
        except Interrupted:
            return f"<{expression}: took longer than {self._told.options.evaluation_timeout:g} s>"
        except BaseException as error:  # noqa: BLE001  (the user's expression may raise anything)
            return f"<{expression}: {text_of_raised(error)}>"

    def _bounded(self, what: str, breakpoint: LineBreakpoint) -> AbstractContextManager[None]:
        seconds = self._told.options.evaluation_timeout

        def tell_stuck() -> None:
            text = f"{what} takes longer than {seconds:g} s, in a call that cannot be interrupted; the program waits"
            self._told.print(f"Breakpoint at line {breakpoint.line}: {text}\n", "important")

        return Interruptible(seconds, tell_stuck).running()
