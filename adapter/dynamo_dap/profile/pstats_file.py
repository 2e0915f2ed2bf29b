"""Writes a profile for Python's ``pstats`` and snakeviz: sums by function and by caller. It has no side effects."""

from __future__ import annotations

import marshal
from dataclasses import dataclass, field

from dynamo_dap.profile.model import Profile, Track
from dynamo_dap.protocol.output_files import BINARY_MARK

Function = tuple[str, int, str]
"""File, first line and name, as ``pstats`` has them."""
_NO_FILE = "~"


@dataclass
class _Sums:
    """Sums of one function, or of its calls by one caller; seconds."""

    calls: int = 0
    primitive_calls: int = 0
    """Calls that are not inside another call of the same function."""
    own: float = 0.0
    total: float = 0.0
    callers: dict[Function, _Sums] = field(default_factory=dict)

    def add(self, calls: int, own: float, total: float, *, is_recursive: bool) -> None:
        self.calls += calls
        self.own += own
        if not is_recursive:
            self.primitive_calls += calls
            self.total += total


def pstats_file(profile: Profile) -> bytes:
    """Return the content of a ``.prof`` file, of all threads."""
    sums: dict[Function, _Sums] = {}
    for track in profile.tracks:
        _add_track(profile, track, sums)
    stats = {
        function: (
            one.primitive_calls,
            one.calls,
            one.own,
            one.total,
            {caller: (by.calls, by.primitive_calls, by.own, by.total) for caller, by in one.callers.items()},
        )
        for function, one in sums.items()
    }
    # ``pstats`` does not read the mark behind the object.
    return marshal.dumps(stats) + BINARY_MARK


def _add_track(profile: Profile, track: Track, sums: dict[Function, _Sums]) -> None:
    totals = [node.own for node in track.nodes]
    for number in range(len(track.nodes) - 1, 0, -1):
        # Parents come before their children.
        totals[track.nodes[number].parent] += totals[number]
    around: list[frozenset[Function]] = []
    for number, node in enumerate(track.nodes):
        frame = profile.frames[node.frame]
        function = (frame.path or _NO_FILE, frame.line, frame.name)
        above = around[node.parent] if node.parent >= 0 else frozenset()
        around.append(above if function in above else above | {function})
        given = max(node.calls, 1), node.own / 1e9, totals[number] / 1e9
        own = sums.setdefault(function, _Sums())
        own.add(*given, is_recursive=function in above)
        if node.parent >= 0:
            caller = profile.frames[track.nodes[node.parent].frame]
            key = (caller.path or _NO_FILE, caller.line, caller.name)
            own.callers.setdefault(key, _Sums()).add(*given, is_recursive=function in above)
