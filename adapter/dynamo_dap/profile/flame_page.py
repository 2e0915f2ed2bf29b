"""Shows a profile as one page with a flame chart, for a browser and for VS Code.

The page loads nothing, and names from the program cannot inject a script. The module reads the files in ``page/``, and
has no side effects.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import PurePath

from dynamo_dap.profile.files import changes
from dynamo_dap.profile.model import OTHERS, Profile, Track, frame_times, stage_times, stages_of
from dynamo_dap.protocol.texts import counted
from dynamo_dap.records.report.html_shell import data_element, html_shell, page_file

_CALLS = 40_000
"""The most calls drawn for each thread; the longest are kept."""
_COLORS = ("#7cb7ff", "#c297ff", "#4ac26b", "#ffb77c", "#ff9bce", "#d4a72c", "#6cd2d6", "#ff8182", "#9fd8a0", "#b4a8d8")
_PALE = "#afb8c1"
_HOW = (
    "Click a box to see its name and times, double-click it to zoom into it. Ctrl or Alt with the wheel zooms, Shift "
    "with the "
    "wheel moves."
)


def flame_page(profile: Profile) -> Iterator[str]:
    """Return the page in parts."""
    data, left_out = _data(profile)
    path, *arguments = profile.program
    named, title = " ".join([PurePath(path).name, *arguments]), escape(" ".join(profile.program))
    note = f"<p class=note>Not drawn: {counted(left_out, 'call')}, the shortest.</p>" if left_out else ""
    body = (
        f"<h1>Where the time of <code title='{title}'>{escape(named)}</code> went</h1>",
        "<div id=stages></div><ul id=legend></ul>",
        "<div id=bar><select id=threads aria-label='Thread'></select><button id=whole>Show All</button>",
        "<button id=in>Zoom in</button></div><div id=ruler></div><div id=chart></div>",
        f"<div id=details><span class=note>{_HOW}</span></div>{note}",
        data_element(data),
    )
    style, script = page_file("profile", "flame.css"), page_file("profile", "flame.js")
    return html_shell(f"{named}: compile time", style, body, [script])


def _data(profile: Profile) -> tuple[dict[str, object], int]:
    """Return the page's data, with times in microseconds, and the number of calls left out."""
    stages = stage_times(profile, profile.main)
    calls, own, total = frame_times(profile)
    stage_of: dict[int, str] = {}
    for track in profile.tracks:
        for node, stage in zip(track.nodes, stages_of(profile, track), strict=True):
            stage_of.setdefault(node.frame, stage)
    names = [stage for stage in dict.fromkeys([*stages, *stage_of.values()]) if stage != OTHERS]
    colors = {OTHERS: _PALE, **{stage: _COLORS[at % len(_COLORS)] for at, stage in enumerate(names)}}
    left_out = 0
    tracks = []
    for track in sorted(profile.tracks, key=lambda one: not one.is_main):
        drawn = _calls(track)
        longest = sorted(drawn, key=lambda call: -call[2])[:_CALLS]
        left_out += len(drawn) - len(longest)
        times = {"begin": track.began // 1000, "end": max(track.ended // 1000, track.began // 1000 + 1)}
        tracks.append({"name": track.name, **times, "calls": sorted(longest, key=lambda call: (call[1], call[3]))})
    frames = [
        {
            "name": frame.name,
            "stage": stage_of.get(number, OTHERS),
            "calls": calls[number],
            "own": own[number] // 1000,
            "total": total[number] // 1000,
            **({"path": frame.path, "line": frame.line} if frame.path else {}),
        }
        for number, frame in enumerate(profile.frames)
    ]
    ordered = sorted(((stage, spent // 1000) for stage, spent in stages.items()), key=lambda one: -one[1])
    return {"frames": frames, "tracks": tracks, "stages": ordered, "colors": colors}, left_out


def _calls(track: Track) -> list[tuple[int, int, int, int]]:
    """Return frame, beginning, duration and depth of every call."""
    stack: list[tuple[int, int]] = []
    found = []
    for is_opened, node, at in changes(track):
        if is_opened:
            stack.append((node, at))
        else:
            _, begun = stack.pop()
            found.append((track.nodes[node].frame, begun // 1000, (at - begun) // 1000, len(stack)))
    return found
