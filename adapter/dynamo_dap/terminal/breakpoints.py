"""Keeps a terminal session's breakpoints as typed, for example ``model.py:12 hit >= 3 if x.dim() == 2 log seen {x}``.

Each breakpoint has a number for the user, and is set again when the program restarts. Runs on the prompt's thread,
which also handles the server's events about breakpoints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dynamo_dap.protocol.requests.contract import MissedBreakpoint
from dynamo_dap.protocol.wire.types import Breakpoint as Answer
from dynamo_dap.protocol.wire.types import DataBreakpoint, FunctionBreakpoint, SourceBreakpoint
from dynamo_dap.terminal.client import Client


class UsageError(Exception):
    """A command or an argument is invalid now; the text says what is valid."""


class Quit(Exception):
    """The user quits."""


USAGE = "FILE:LINE | LINE | FUNCTION, then any of: mode MODE, hit COUNT, if CONDITION, log MESSAGE (in this order)"

_PARTS = re.compile(
    r"""(?P<place>\S+)
        (?:\s+mode\s+(?P<mode>\S+))?
        (?:\s+hit\s+(?P<hit>[\s\d<>=!%]+?))?
        (?:\s+if\s+(?P<condition>.+?))?
        (?:\s+log\s+(?P<log>.+))?""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class BreakpointRequest:
    """The place and the options that the user typed: a line, a function, or changes of a variable."""

    path: str | None = None
    """Absolute; None for a function and for changes."""
    line: int = 0
    """1-based; 0 for a function and for changes."""
    function: str | None = None
    condition: str | None = None
    hit_condition: str | None = None
    log_message: str | None = None
    mode: str | None = None
    watched: str | None = None
    """The text that names the watched variable to the user."""
    data_id: str = ""
    """DAP's id of the variable."""

    @property
    def kind(self) -> tuple[str | None, bool]:
        """The group that one request replaces: breakpoints in a file, on functions, or on changes."""
        return self.path, self.watched is not None

    def __str__(self) -> str:
        text = self.function or self.watched or f"{shown_path(self.path or '')}:{self.line}"
        parts = {"mode": self.mode, "hit": self.hit_condition, "if": self.condition, "log": self.log_message}
        for word, value in parts.items():
            if value is not None:
                text += f" {word} {value}"
        return text


def parse_place(text: str, current_path: str | None) -> BreakpointRequest:
    """Parse ``text``; a bare line number belongs to ``current_path``.

    Raises:
        UsageError: the text is not a place; the message shows the form.
    """
    # A condition in pdb's form: 18, x > 1
    match = _PARTS.fullmatch(re.sub(r"^([^\s,]+)\s*,\s*", r"\1 if ", text.strip()))
    if match is None:
        raise UsageError(f"not a place for a breakpoint: {text.strip()!r}. Give {USAGE}")
    place = match["place"]
    if place.isdigit():
        if current_path is None:
            raise UsageError("no file is current: give FILE:LINE")
        return _place(match, current_path, int(place))
    path, colon, line = place.rpartition(":")
    if not colon:
        return _place(match, None, 0, function=place)
    if not line.isdigit() or int(line) == 0:
        raise UsageError(f"{line!r} is not a line number. Give {USAGE}")
    return _place(match, _existing(path, current_path), int(line))


def shown_path(path: str) -> str:
    """Return a path relative to the current directory or to the packages, if it is below them."""
    _, installed, in_package = path.rpartition("/site-packages/")
    if installed:
        return in_package
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


def _place(match: re.Match[str], path: str | None, line: int, function: str | None = None) -> BreakpointRequest:
    if function is not None and match["mode"] is not None:
        raise UsageError("a breakpoint on a function has no mode")
    return BreakpointRequest(path, line, function, match["condition"], match["hit"], match["log"], match["mode"])


def _existing(path: str, current_path: str | None) -> str:
    found = find_file(path, current_path)
    if found is None:
        raise UsageError(f"{path} does not exist")
    return found


def find_file(path: str, current_path: str | None) -> str | None:
    """Find a file in the current directory or beside the current file, also without its ``.py``, as pdb does."""
    given = Path(path).expanduser()
    folders = [Path.cwd(), *([Path(current_path).parent] if current_path is not None else [])]
    for folder in folders:
        for candidate in (folder / given, folder / given.with_name(f"{given.name}.py")):
            if candidate.is_file():
                return str(candidate.resolve())
    return None


@dataclass
class Breakpoint:
    """One breakpoint."""

    number: int
    place: BreakpointRequest
    is_temporary: bool = False
    answer: Answer = field(default_factory=lambda: Answer(verified=False))
    """The server's answer."""
    is_enabled: bool = True
    ignored_hits: int = 0
    """How many of the next hits to ignore."""
    commands: list[str] = field(default_factory=list)
    """Commands to run at each hit."""

    @property
    def line(self) -> int:
        """Its line, which may be below the requested one."""
        return self.answer.line or self.place.line

    def set_condition(self, condition: str | None) -> None:
        """Stop only if ``condition`` is true, or always."""
        self.place = replace(self.place, condition=condition)


class BreakpointList:
    """All breakpoints of a session."""

    def __init__(self) -> None:
        self.next_number = 1
        self.all: list[Breakpoint] = []

    def add(self, place: BreakpointRequest, *, is_temporary: bool = False) -> Breakpoint:
        """Add a breakpoint; ``send_for`` then sends it to the server."""
        added = Breakpoint(self.next_number, place, is_temporary)
        self.next_number += 1
        self.all.append(added)
        return added

    def remove(self, number: int) -> Breakpoint:
        """Remove the breakpoint ``number``.

        Raises:
            UsageError: there is none.
        """
        found = self.find(number)
        self.all.remove(found)
        return found

    def find(self, number: int) -> Breakpoint:
        """Return the breakpoint ``number``.

        Raises:
            UsageError: there is none.
        """
        for breakpoint in self.all:
            if breakpoint.number == number:
                return breakpoint
        raise UsageError(f"unknown breakpoint {number}: 'break' lists them")

    def send_all(self, client: Client) -> None:
        """Send all of them to the server when a session begins."""
        for place in {breakpoint.place.kind: breakpoint.place for breakpoint in self.all}.values():
            self.send_for(client, place)

    def send_for(self, client: Client, place: BreakpointRequest) -> None:
        """Send the server the breakpoints in the file of ``place``, or all on functions, or all on changes."""
        concerned = [one for one in self.all if one.place.kind == place.kind and one.is_enabled]
        places = [breakpoint.place for breakpoint in concerned]
        if place.watched is not None:
            answers = client.set_data_breakpoints(
                [DataBreakpoint(one.data_id, "write", one.condition, one.hit_condition) for one in places]
            )
        elif place.path is None:
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
                        mode=one.mode,
                    )
                    for one in places
                ],
            )
        for breakpoint, answer in zip(concerned, answers, strict=False):
            breakpoint.answer = answer

    def take_change(self, answer: Answer) -> Breakpoint | None:
        """Handle a ``breakpoint`` event; return the breakpoint if its verification, message or line changed."""
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

    def reasons(self, missed: Sequence[MissedBreakpoint]) -> Iterator[str]:
        """Yield, for each breakpoint that never stopped the program for a known reason, a line for the user."""
        reasons = {(each.path, each.line): each.reason for each in missed}
        for breakpoint in self.all:
            reason = reasons.get((breakpoint.place.path or "", breakpoint.place.line))
            if reason is not None:
                yield f"breakpoint {breakpoint.number} never stopped the program: {reason}"

    def hit(self, ids: list[int]) -> list[Breakpoint]:
        """Return the breakpoints with these DAP ids, which a stop names."""
        return [breakpoint for breakpoint in self.all if breakpoint.answer.id in ids]

    def lines_in(self, path: str) -> set[int]:
        """Return the lines of a file that have a breakpoint."""
        return {breakpoint.line for breakpoint in self.all if breakpoint.place.path == path}
