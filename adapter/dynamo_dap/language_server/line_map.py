"""Maps the lines of a recorded file to where they are after the user's later edits. Pure; one map per text."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from dynamo_dap.record.texts import digest_of_line


class LineMap:
    """Maps lines, counted from 1, of a file as it was recorded to lines of a text, and back."""

    def __init__(self, recorded: Sequence[str], text: Sequence[str]) -> None:
        """``recorded`` are digests of lines; ``text`` are lines."""
        self._now: dict[int, int] = {}
        now = [digest_of_line(line) for line in text]
        first = _common(recorded, now)
        last = min(_common(recorded[::-1], now[::-1]), min(len(recorded), len(now)) - first)
        self._match(0, 0, first)
        self._match(len(recorded) - last, len(now) - last, last)
        middle = SequenceMatcher(
            None, recorded[first : len(recorded) - last], now[first : len(now) - last], autojunk=False
        )
        for block in middle.get_matching_blocks():
            self._match(first + block.a, first + block.b, block.size)
        self._recorded = {here: there for there, here in self._now.items()}

    def _match(self, recorded: int, now: int, count: int) -> None:
        for offset in range(count):
            self._now[recorded + offset + 1] = now + offset + 1

    def now(self, line: int) -> int | None:
        """Return where a recorded line is; None when it was changed or removed."""
        return self._now.get(line)

    def recorded(self, line: int) -> int | None:
        """Return which recorded line a line of the text is; None when it is a new or changed one."""
        return self._recorded.get(line)


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    """Return how many items both begin with."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count
