"""Programs of ``fixtures/`` and places in them, so that tests name places instead of line numbers.

Places are markers ``#@name`` at the ends of lines. The programs that the README shows first have no markers, to be
readable: ``tests/places.json`` has the texts of their lines.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"

_MARKER = re.compile(r"# ?@(\w+)\s*$")
"""The formatter inserts the blank in the files that it formats."""
PLACES: dict[str, dict[str, str]] = json.loads((FIXTURES.parent / "tests/places.json").read_text(encoding="utf-8"))
"""The text of each place's line, by file name and place."""
_TORCH = re.compile(r"^\s*(from |import ([\w., ]+, )?)torch\b", re.MULTILINE)


class Fixture:
    """One program. Lines are 1-based."""

    def __init__(self, path: str | Path) -> None:
        """Take a file, or a name below ``fixtures/`` without its suffix."""
        path = Path(path)
        self.path = path if path.is_absolute() else (FIXTURES / path).with_suffix(".py")

    @cached_property
    def markers(self) -> dict[str, int]:
        """The line of each marker or named place."""
        found: dict[str, int] = {}
        named = {text: name for name, text in PLACES.get(self.path.name, {}).items()}
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), start=1):
            match = _MARKER.search(line)
            name = match[1] if match else named.get(line.strip())
            if name:
                assert name not in found, f"{self.path.name} has the place {name} twice"
                found[name] = number
        return found

    @cached_property
    def imports_torch(self) -> bool:
        """Whether torch is mentioned where modules are imported."""
        return self.path.is_file() and bool(_TORCH.search(self.path.read_text(encoding="utf-8", errors="replace")))

    @cached_property
    def uses_inductor(self) -> bool:
        """Whether the program compiles with Inductor, torch's default backend."""
        text = self.path.read_text(encoding="utf-8", errors="replace") if self.path.is_file() else ""
        return "torch.compile" in text and "backend=" not in text

    def line(self, place: str | int) -> int:
        """Return the line of a marker; a number is a line already."""
        if isinstance(place, int):
            return place
        assert place in self.markers, f"{self.path.name} has no marker #@{place}, only {sorted(self.markers)}"
        return self.markers[place]

    def marker_at(self, line: int) -> str | None:
        """Return the marker on a line; None if it has no marker."""
        return next((name for name, number in self.markers.items() if number == line), None)
