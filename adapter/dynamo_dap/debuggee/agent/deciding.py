"""Decides whether reached breakpoints stop the program: conditions, hit counts, log messages.

Runs on the thread that reached the breakpoints. The agent marks that thread as held meanwhile, so that functions
called by a condition do not stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from dynamo_dap.debuggee.agent.breakpoints import LineBreakpoint
from dynamo_dap.debuggee.agent.conditions import LogMessage
from dynamo_dap.debuggee.agent.frames import LOG_CONTEXT, Frame
from dynamo_dap.debuggee.agent.interruption import Interruptible
from dynamo_dap.debuggee.values.model import Interrupted, text_of_raised
from dynamo_dap.protocol.requests.contract import LOGGED_EVENT, LoggedEventBody
from dynamo_dap.protocol.requests.options import AgentOptions
from dynamo_dap.protocol.wire.types import OutputEventBody, Source


class ClientOutput(Protocol):
    """The decider's interface to the client."""

    options: AgentOptions
    is_for_vs_code: bool
    """Whether the client is VS Code, whose extension plots numbers in log messages."""

    def send_event(self, event: str, body: object = None) -> None:
        """Send an event."""

    def print(self, text: str, category: str = "console") -> None:
        """Send ``text`` to the user as an ``output`` event."""


class Reached(Protocol):
    """A breakpoint that a call will reach, known before the call runs."""

    breakpoint: LineBreakpoint

    def holds(self) -> bool:
        """Return whether the breakpoint's condition holds."""

    def text_of(self, expression: str) -> str:
        """Return the value, as text, of an expression in the breakpoint's log message."""


class Decider:
    """Decides whether reached breakpoints stop. One per agent."""

    def __init__(self, output: ClientOutput) -> None:
        """Send log messages and errors of conditions to ``output``."""
        self._output = output

    def should_stop(self, breakpoints: list[LineBreakpoint], frame: Callable[[], Frame]) -> list[int]:
        """Return the ids of the reached ``breakpoints`` that stop; count hits and print log messages."""
        made: list[Frame] = []

        def frame_once() -> Frame:
            if not made:
                made.append(frame())
            return made[0]

        return [breakpoint.id for breakpoint in breakpoints if self._stops(breakpoint, frame_once)]

    def _stops(self, breakpoint: LineBreakpoint, frame: Callable[[], Frame]) -> bool:
        breakpoint.seen = True
        conditions = breakpoint.conditions
        if not self.condition_holds(breakpoint, frame):
            return False
        if not breakpoint.hit():
            return False
        if conditions.log_message is None:
            return True
        self._log(breakpoint, conditions.log_message, lambda expression: self._text_of(expression, breakpoint, frame))
        return False

    def condition_holds(self, breakpoint: LineBreakpoint, frame: Callable[[], Frame]) -> bool:
        """Return whether the condition of ``breakpoint``, if any, holds in ``frame``. If it raises, report the error.

        A condition that raises counts as true.
        """
        condition = breakpoint.conditions.condition
        return condition is None or self._holds(breakpoint, condition, frame)

    def passes(self, reached: Iterable[Reached]) -> bool:
        """Return whether a call stops at none of ``reached``, which are in the order of execution.

        If so, count hits and print log messages as if the call had reached the breakpoints. If the call stops, do
        neither. Exceptions of the methods of ``Reached`` reach the caller.
        """
        hits: dict[LineBreakpoint, int] = {}
        messages: list[tuple[LineBreakpoint, LogMessage, dict[str, str]]] = []
        for each in reached:
            breakpoint, conditions = each.breakpoint, each.breakpoint.conditions
            if not each.holds():
                continue
            hits[breakpoint] = hits.get(breakpoint, breakpoint.hits) + 1
            if conditions.hit_condition is not None and not conditions.hit_condition.is_met(hits[breakpoint]):
                continue
            if conditions.log_message is None:
                return False
            message = conditions.log_message
            messages.append((breakpoint, message, {text: each.text_of(text) for text in message.expressions}))
        for breakpoint, number in hits.items():
            breakpoint.hits = number
        for breakpoint, message, texts in messages:
            self._log(breakpoint, message, texts.__getitem__)
        return True

    def count(self, breakpoints: Iterable[LineBreakpoint]) -> bool:
        """Return whether a call stops at none of ``breakpoints``; if so, count its hits.

        For breakpoints without a condition or log message only.
        """
        hits: dict[LineBreakpoint, int] = {}
        for each in breakpoints:
            number = hits[each] = hits.get(each, each.hits) + 1
            hit_condition = each.conditions.hit_condition
            if hit_condition is None or hit_condition.is_met(number):
                return False
        for each, number in hits.items():
            each.hits = number
        return True

    def _log(self, breakpoint: LineBreakpoint, message: LogMessage, text_of: Callable[[str], str]) -> None:
        texts = {expression: text_of(expression) for expression in message.expressions}
        source = Source(path=breakpoint.path) if breakpoint.path else None
        text = message.format(texts.__getitem__) + "\n"
        self._output.send_event(
            "output", OutputEventBody(output=text, category="console", source=source, line=breakpoint.line)
        )
        if texts and breakpoint.path and self._output.is_for_vs_code:
            self._output.send_event(LOGGED_EVENT, LoggedEventBody(breakpoint.path, breakpoint.line, texts))

    def _holds(self, breakpoint: LineBreakpoint, condition: str, frame: Callable[[], Frame]) -> bool:
        try:
            with self._bounded(f"its condition {condition!r}", breakpoint):
                return frame().is_true(condition)
        except Interrupted:
            problem = f"took longer than {self._output.options.evaluation_timeout:g} s"
        except BaseException as error:  # noqa: BLE001  (the user's expression may raise anything)
            problem = text_of_raised(error)
        # Stop: an extra stop is better than a missed one.
        self._output.print(
            f"Breakpoint at line {breakpoint.line}: its condition {condition!r} failed: {problem}\n", "important"
        )
        return True

    def _text_of(self, expression: str, breakpoint: LineBreakpoint, frame: Callable[[], Frame]) -> str:
        try:
            with self._bounded(f"{expression!r} in its log message", breakpoint):
                return frame().evaluate(expression, LOG_CONTEXT).text
        except Interrupted:
            return f"<{expression}: took longer than {self._output.options.evaluation_timeout:g} s>"
        except BaseException as error:  # noqa: BLE001  (the user's expression may raise anything)
            return f"<{expression}: {text_of_raised(error)}>"

    def _bounded(self, what: str, breakpoint: LineBreakpoint) -> AbstractContextManager[None]:
        seconds = self._output.options.evaluation_timeout

        def report_stuck() -> None:
            text = f"{what} takes longer than {seconds:g} s, in a call that cannot be interrupted; the program waits"
            self._output.print(f"Breakpoint at line {breakpoint.line}: {text}\n", "important")

        return Interruptible(seconds, report_stuck).running()
