"""Parses the conditions, hit conditions and log messages of breakpoints.

Parsing takes place on the agent's reader thread, when a breakpoint is set. The thread that hits the breakpoint uses the
results.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from dynamo_dap.protocol.texts import shortened


class InvalidCondition(Exception):
    """An invalid hit condition or log message; the message shows a valid one."""


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "": operator.eq,
    "=": operator.eq,
    "==": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_HIT_CONDITION = re.compile(r"\s*(==|>=|<=|=|>|<|%|)\s*(\d{1,18})\s*")


@dataclass(frozen=True, slots=True)
class HitCondition:
    """The hits at which to stop: ``5``, ``== 5``, ``>= 3``, ``> 3``, ``< 3``, ``<= 3``, ``% 2`` (every second hit)."""

    comparison: str
    number: int

    def is_met(self, hits: int) -> bool:
        """Return whether to stop at the hit numbered ``hits`` (the first is 1)."""
        if self.comparison == "%":
            return hits % self.number == 0
        return _COMPARISONS[self.comparison](hits, self.number)


def parse_hit_condition(text: str) -> HitCondition:
    """Parse a hit condition.

    Raises:
        InvalidCondition: ``text`` is not a hit condition.
    """
    match = _HIT_CONDITION.fullmatch(text)
    if match is None or (match[1] == "%" and int(match[2]) == 0):
        raise InvalidCondition(
            f"hit condition {shortened(text)!r} is not understood; use 5, >= 3, > 3, <= 3, < 3, == 3 or % 2"
        )
    return HitCondition(match[1], int(match[2]))


@dataclass(frozen=True, slots=True)
class LogMessage:
    """A log message, divided into literal texts and expressions."""

    parts: tuple[tuple[str, bool], ...]
    """Each part's text, and whether it is an expression."""

    @property
    def expressions(self) -> list[str]:
        """The distinct expressions, in the order of their evaluation."""
        return list(dict.fromkeys(text for text, is_expression in self.parts if is_expression))

    def format(self, evaluate: Callable[[str], str]) -> str:
        """Return the message with every expression replaced by ``evaluate(expression)``."""
        return "".join(evaluate(text) if is_expression else text for text, is_expression in self.parts)


def parse_log_message(text: str) -> LogMessage:
    """Parse a log message: ``{expression}`` is evaluated, ``{{`` and ``}}`` are literal braces.

    Raises:
        InvalidCondition: a brace is not closed, or an expression is empty.
    """
    parts: list[tuple[str, bool]] = []
    literal = ""
    index = 0
    while index < len(text):
        character = text[index]
        if text[index : index + 2] in ("{{", "}}"):
            literal += character
            index += 2
        elif character == "{":
            end = _end_of_expression(text, index)
            expression = text[index + 1 : end].strip()
            if not expression:
                raise InvalidCondition(f"empty braces in the log message {text!r}")
            parts += [(literal, False), (expression, True)]
            literal = ""
            index = end + 1
        else:
            literal += character
            index += 1
    return LogMessage(tuple(part for part in [*parts, (literal, False)] if part[0]))


def _end_of_expression(text: str, start: int) -> int:
    depth = 0
    quote = ""
    is_escaped = False
    for index in range(start, len(text)):
        character = text[index]
        if quote:
            if character == quote and not is_escaped:
                quote = ""
            is_escaped = character == "\\" and not is_escaped
        elif character in "'\"":
            quote = character
        elif character in "{[(":
            depth += 1
        elif character in "}])":
            depth -= 1
            if depth == 0:
                return index
    raise InvalidCondition(f"a brace is not closed in the log message {text!r}")


@dataclass(eq=False)
class Conditions:
    """The parsed conditions of one breakpoint. ``problem`` says what is invalid; the breakpoint then never stops."""

    condition: str | None = None
    hit_condition: HitCondition | None = None
    log_message: LogMessage | None = None
    problem: str | None = None

    @classmethod
    def parse(cls, condition: str | None, hit_condition: str | None, log_message: str | None) -> Conditions:
        """Parse a breakpoint's three texts; the result's ``problem`` says what is invalid."""
        conditions = cls(condition=(condition or "").strip() or None)
        try:
            if conditions.condition is not None:
                compile(conditions.condition, "<condition>", "eval")
            if hit_condition and hit_condition.strip():
                conditions.hit_condition = parse_hit_condition(hit_condition)
            if log_message:
                conditions.log_message = parse_log_message(log_message)
        except SyntaxError as error:
            conditions.problem = f"the condition is not a Python expression: {error.msg}"
        except (RecursionError, MemoryError):  # the message of Python's parser
            conditions.problem = "the condition is nested too deep for Python"
        except (InvalidCondition, ValueError) as error:
            conditions.problem = str(error)
        return conditions
