"""The breakpoints of a terminal session: numbered for the user, and set again when the program is restarted.

Used on the prompt's thread, which also handles the server's events about them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dynamo_dap.protocol.types import Breakpoint as Answer
from dynamo_dap.protocol.types import FunctionBreakpoint, SourceBreakpoint
from dynamo_dap.terminal.client import Client
from dynamo_dap.terminal.errors import UsageError
from dynamo_dap.terminal.places import Place


@dataclass
class Breakpoint:
    """One breakpoint."""

    number: int
    place: Place
    is_temporary: bool = False
    answer: Answer = field(default_factory=lambda: Answer(verified=False))
    """What the server made of it."""

    @property
    def line(self) -> int:
        """The line it is on, which may be further down than the line that was asked for."""
        return self.answer.line or self.place.line


class BreakpointList:
    """All breakpoints of a session."""

    def __init__(self) -> None:
        self._next_number = 1
        self.all: list[Breakpoint] = []

    def add(self, place: Place, *, is_temporary: bool = False) -> Breakpoint:
        """Add a breakpoint; ``send_for`` then tells the server."""
        added = Breakpoint(self._next_number, place, is_temporary)
        self._next_number += 1
        self.all.append(added)
        return added

    def remove(self, number: int) -> Breakpoint:
        """Take the breakpoint ``number`` out.

        Raises:
            UsageError: there is none.
        """
        for breakpoint in self.all:
            if breakpoint.number == number:
                self.all.remove(breakpoint)
                return breakpoint
        raise UsageError(f"there is no breakpoint {number}")

    def send_all(self, client: Client) -> None:
        """Tell the server about all of them: a session begins."""
        for place in {breakpoint.place.path: breakpoint.place for breakpoint in self.all}.values():
            self.send_for(client, place)

    def send_for(self, client: Client, place: Place) -> None:
        """Tell the server about the breakpoints in the file of ``place``, or about all function breakpoints."""
        concerned = [breakpoint for breakpoint in self.all if breakpoint.place.path == place.path]
        places = [breakpoint.place for breakpoint in concerned]
        if place.path is None:
            answers = client.set_function_breakpoints(
                [FunctionBreakpoint(one.function or "", one.condition, one.hit_condition) for one in places]
            )
        else:
            answers = client.set_breakpoints(
                place.path,
                [
                    SourceBreakpoint(
                        line=one.line,
                        condition=one.condition,
                        hit_condition=one.hit_condition,
                        log_message=one.log_message,
                    )
                    for one in places
                ],
            )
        for breakpoint, answer in zip(concerned, answers, strict=False):
            breakpoint.answer = answer

    def take_change(self, answer: Answer) -> Breakpoint | None:
        """Take in a ``breakpoint`` event; return the breakpoint that newly became verified, or newly says why not."""
        for breakpoint in self.all:
            if answer.id is not None and breakpoint.answer.id == answer.id:
                before, breakpoint.answer = breakpoint.answer, answer
                changed = (before.verified, before.message, before.line) != (
                    answer.verified,
                    answer.message,
                    answer.line,
                )
                return breakpoint if changed else None
        return None

    def hit(self, ids: list[int]) -> list[Breakpoint]:
        """The breakpoints that a stop names."""
        return [breakpoint for breakpoint in self.all if breakpoint.answer.id in ids]

    def lines_in(self, path: str) -> set[int]:
        """The lines of a file that have a breakpoint."""
        return {breakpoint.line for breakpoint in self.all if breakpoint.place.path == path}
