"""Parses a breakpoint as the user types it: ``model.py:12 hit >= 3 if x.dim() == 2 log seen {x}``.

Pure functions; used on the prompt's thread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dynamo_dap.terminal.errors import UsageError

USAGE = "FILE:LINE | LINE | FUNCTION, then any of: hit COUNT, if CONDITION, log MESSAGE (in this order)"

_PARTS = re.compile(
    r"""(?P<place>\S+)
        (?:\s+hit\s+(?P<hit>[\s\d<>=!%]+?))?
        (?:\s+if\s+(?P<condition>.+?))?
        (?:\s+log\s+(?P<log>.+))?""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Place:
    """What was asked for: a line of a file, or a function."""

    path: str | None = None
    """Absolute; None for a function."""
    line: int = 0
    """1-based; 0 for a function."""
    function: str | None = None
    condition: str | None = None
    hit_condition: str | None = None
    log_message: str | None = None

    def __str__(self) -> str:
        text = self.function or f"{shown_path(self.path or '')}:{self.line}"
        for word, value in (("hit", self.hit_condition), ("if", self.condition), ("log", self.log_message)):
            if value is not None:
                text += f" {word} {value}"
        return text


def parse_place(text: str, current_path: str | None) -> Place:
    """Read ``text``; a bare line number is one of ``current_path``.

    Raises:
        UsageError: the text is no place; says what one looks like.
    """
    match = _PARTS.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"no place for a breakpoint: {text.strip()!r}. Give {USAGE}")
    place = match["place"]
    if place.isdigit():
        if current_path is None:
            raise UsageError("there is no current file: give FILE:LINE")
        return _place(match, current_path, int(place))
    path, colon, line = place.rpartition(":")
    if not colon:
        return _place(match, None, 0, function=place)
    if not line.isdigit() or int(line) == 0:
        raise UsageError(f"{line!r} is not a line number. Give {USAGE}")
    return _place(match, _existing(path), int(line))


def shown_path(path: str) -> str:
    """A path as a person wants to read it: from the current directory, or from the packages, when it is below them."""
    _, installed, in_package = path.rpartition("/site-packages/")
    if installed:
        return in_package
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


def _place(match: re.Match[str], path: str | None, line: int, function: str | None = None) -> Place:
    return Place(path, line, function, match["condition"], match["hit"], match["log"])


def _existing(path: str) -> str:
    found = Path(path).expanduser()
    if not found.is_file():
        raise UsageError(f"there is no file {path}")
    return str(found.resolve())
