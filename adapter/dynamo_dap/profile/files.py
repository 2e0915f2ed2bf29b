"""Writes a profile's files: for VS Code and Chrome (``.cpuprofile``), speedscope, pstats, and our own.

Runs on any thread.

``.cpuprofile`` is a format of the V8 engine, and speedscope publishes the schema of its format. A ``.cpuprofile`` has
one timeline, so it contains only the main thread. Speedscope's file contains all threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from dynamo_dap.profile.model import VERSION, Frame, Profile, Track, walk
from dynamo_dap.profile.pstats_file import pstats_file
from dynamo_dap.protocol.output_files import GENERATOR, check_output, write_output
from dynamo_dap.protocol.user_files import read_regular

CPU_PROFILE = ".cpuprofile"
SPEEDSCOPE = ".speedscope.json"
PSTATS = ".prof"
OWN = ".profile.json"
HTML = ".profile.html"
BEGUN = ".profile.begun"
"""Suffix of an empty file that marks a profiled process, until the process ends and writes its profile."""
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


class UnreadableProfile(Exception):
    """A file is not a profile that this version reads."""


def write_profile(profile: Profile, stem: Path) -> list[Path]:
    """Write the files, named after ``stem``, and return their paths."""
    contents = {
        CPU_PROFILE: msgspec.json.encode(cpu_profile(profile)),
        SPEEDSCOPE: msgspec.json.encode(speedscope(profile)),
        PSTATS: pstats_file(profile),
        OWN: msgspec.json.encode(profile),
    }
    paths = []
    for suffix, content in contents.items():
        path = stem.with_name(stem.name + suffix)
        write_output(path, content, is_private=True)
        paths.append(path)
    return paths


def check_profile(stem: Path, *, html: bool) -> None:
    """Refuse a name if a file of the profile would overwrite a user's file.

    Raises:
        OSError: there is such a file.
    """
    for suffix in (CPU_PROFILE, SPEEDSCOPE, PSTATS, OWN, *([HTML] if html else [])):
        check_output(stem.with_name(stem.name + suffix))


def read_profile(path: Path) -> Profile:
    """Read a profile that ``write_profile`` wrote.

    Raises:
        UnreadableProfile: the file is not a profile, or is one of a newer version.
        OSError: the file cannot be read.
    """
    try:
        profile = msgspec.json.decode(read_regular(path), type=Profile)
    except msgspec.DecodeError as error:
        raise UnreadableProfile(f"{path} is not a profile of dynamo-dap: {error}") from None
    if profile.version > VERSION:
        raise UnreadableProfile(f"{path} was written by a newer version of dynamo-dap")
    return profile


def cpu_profile(profile: Profile) -> dict[str, Any]:
    """Return the main thread in V8's profile format, as VS Code and Chrome show it."""
    track = profile.main
    samples, deltas, last = [], [], 0
    for node, begin, _ in walk(track):
        samples.append(node + 1)
        deltas.append(begin // 1000 - last)
        last = begin // 1000
    children: dict[int, list[int]] = {}
    for number, each in enumerate(track.nodes):
        children.setdefault(each.parent, []).append(number + 1)
    return {
        "generator": GENERATOR,
        "nodes": [
            {
                "id": number + 1,
                "callFrame": _call_frame(profile.frames[node.frame]),
                "hitCount": node.calls,
                "children": children.get(number, []),
                "positionTicks": [{"line": line, "ticks": spent // 1000} for line, spent in sorted(node.lines.items())],
            }
            for number, node in enumerate(track.nodes)
        ],
        "startTime": 0,
        "endTime": track.ended // 1000,
        "samples": samples,
        "timeDeltas": deltas,
    }


def _call_frame(frame: Frame) -> dict[str, object]:
    # In this format, lines count from 0.
    is_file = bool(frame.path) and not frame.path.startswith("<")
    url = Path(frame.path).as_uri() if is_file and Path(frame.path).is_absolute() else frame.path
    return {
        "functionName": frame.name,
        "scriptId": frame.path or "0",
        "url": url,
        "lineNumber": frame.line - 1,
        "columnNumber": 0 if frame.line else -1,
    }


def speedscope(profile: Profile) -> dict[str, object]:
    """Return all threads in speedscope's format."""
    return {
        "$schema": _SCHEMA,
        "exporter": GENERATOR,
        "name": " ".join(profile.program),
        "activeProfileIndex": next(number for number, track in enumerate(profile.tracks) if track.is_main),
        "shared": {
            "frames": [
                {"name": frame.name, **({"file": frame.path, "line": frame.line} if frame.path else {})}
                for frame in profile.frames
            ]
        },
        "profiles": [
            {
                "type": "evented",
                "name": track.name,
                "unit": "microseconds",
                "startValue": track.began / 1000,
                "endValue": track.ended / 1000,
                "events": [
                    {"type": "O" if is_opened else "C", "frame": track.nodes[node].frame, "at": at / 1000}
                    for is_opened, node, at in changes(track)
                ],
            }
            for track in profile.tracks
        ],
    }


def changes(track: Track) -> Iterator[tuple[bool, int, int]]:
    """Yield each beginning (True) and end (False) of a call in order: its node and time."""
    stack: list[int] = []
    for node, begin, _ in walk(track):
        path = _path_to(track, node)
        shared = next(
            (at for at, (old, new) in enumerate(zip(stack, path, strict=False)) if old != new),
            min(len(stack), len(path)),
        )
        yield from ((False, closed, begin) for closed in reversed(stack[shared:]))
        yield from ((True, opened, begin) for opened in path[shared:])
        stack = path
    yield from ((False, closed, track.ended) for closed in reversed(stack))


def _path_to(track: Track, node: int) -> list[int]:
    path = []
    while node >= 0:
        path.append(node)
        node = track.nodes[node].parent
    return path[::-1]
