"""What tlparse makes of a trace log, and the same as our reader has it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynamo_dap.trace_logs.contents import contents_of, write_chromium_events
from dynamo_dap.trace_logs.logs import chosen_log, read_trace

TLPARSE = shutil.which("tlparse", path=str(Path(sys.executable).parent)) or shutil.which("tlparse")
_FILE = re.compile(r"(?P<name>.+?)_\d+\.\w+$")
_OWN = {"inductor_output_code"}
"""Names that tlparse extends by the file's."""


@dataclass
class Facts:
    """What both tell of one log."""

    contents: dict[str, Counter[str]]
    """Names of artifacts, by compile and attempt."""
    metrics: dict[str, tuple[float, str | None]]
    """Seconds and the kind of failure, by compile. Guards are left out: torch counts some of them several times."""
    breaks: int
    recompiles: int
    restarts: Counter[str]
    """Abandoned attempts, by compile."""
    events: int


def by_tlparse(folder: Path, output: Path) -> Facts:
    """Run tlparse, and read what it wrote."""
    assert TLPARSE is not None
    subprocess.run(
        [TLPARSE, str(chosen_log(folder)), "-o", str(output), "--overwrite", "--no-browser"],
        capture_output=True,
        check=True,
        timeout=120,
    )
    directory = json.loads((output / "compile_directory.json").read_text())
    contents = {
        name.strip("[]"): Counter(_name(one["url"]) for one in each["artifacts"]) for name, each in directory.items()
    }
    lines = [json.loads(line) for line in (output / "raw.jsonl").read_text().splitlines()]
    names = [name for each in contents.values() for name in each.elements()]
    started = [line for line in lines if "dynamo_start" in line]
    return Facts(
        {name: each for name, each in contents.items() if each},
        _metrics(lines),
        names.count("dynamo_graph_break_reason"),
        names.count("recompile_reasons"),
        Counter({f"{one['frame_id']}/{one['frame_compile_id']}": _attempts(lines, one) for one in started}),
        len(json.loads((output / "chromium_events.json").read_text())),
    )


def _attempts(lines: list[dict[str, Any]], started: dict[str, Any]) -> int:
    same = [line for line in lines if all(line.get(name) == started[name] for name in ("frame_id", "frame_compile_id"))]
    return max(line.get("attempt", 0) for line in same)


def _metrics(lines: list[dict[str, Any]]) -> dict[str, tuple[float, str | None]]:
    found = {}
    for line in lines:
        # Torch 2.6 writes a reached recompile limit as a backward pass.
        backward = line.get("bwd_compilation_metrics", {})
        is_limit = backward.get("fail_type") == "RecompileLimitExceeded"
        facts = backward if is_limit else line.get("compilation_metrics")
        if facts is not None:
            seconds = (
                facts.get("entire_frame_compile_time_s") or (facts["dynamo_cumulative_compile_time_us"] or 0) / 1e6
            )
            found[f"{line['frame_id']}/{line['frame_compile_id']}"] = (
                round(seconds, 5),
                facts.get("fail_type"),
            )
    return found


def _name(url: str) -> str:
    match = _FILE.match(url.rpartition("/")[2])
    assert match is not None, url
    name = match["name"]
    return next((own for own in _OWN if name.startswith(own)), name)


def by_us(folder: Path, output: Path) -> Facts:
    """Read the log."""
    log = chosen_log(folder)
    contents: dict[str, Counter[str]] = {}
    for one in contents_of(log):
        key = "-/-" if one.compile_id == "-" else one.compile_id + (f"_{one.attempt}" if one.attempt else "")
        if one.entry.content or one.entry.kind in ("compilation_metrics", "bwd_compilation_metrics"):
            contents.setdefault(key, Counter())[one.name.partition("#")[0]] += 1
    record = read_trace(folder)
    compiles = [compiled for _, compiled in record.compiles()]
    kinds = _kinds(log)
    with output.open("wb") as file:
        events = write_chromium_events(log, file)
    return Facts(
        contents,
        {one.id: (round(one.seconds or 0.0, 5), kinds.get(one.id)) for one in compiles},
        sum(1 for one in contents_of(log) if one.entry.name == "dynamo_graph_break_reason"),
        sum(bool(one.failures) for one in compiles),
        Counter({one.id: len(one.attempts) - 1 for one in compiles}),
        events,
    )


def _kinds(log: Path) -> dict[str, str | None]:
    return {
        one.compile_id: json.loads(one.entry.metadata)[one.entry.kind].get("fail_type")
        for one in contents_of(log)
        if one.entry.kind == "compilation_metrics" or b"RecompileLimitExceeded" in one.entry.metadata
    }
