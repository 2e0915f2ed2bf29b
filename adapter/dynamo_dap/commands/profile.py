"""``dynamo-dap profile``: runs a program, prints where compile time went, and writes files for trace viewers.

The program runs in its own process, without a stop, and is recorded as well. Runs on the command's main thread.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dynamo_dap.commands.failing import fail
from dynamo_dap.profile.files import (
    BEGUN,
    CPU_PROFILE,
    HTML,
    OWN,
    PSTATS,
    SPEEDSCOPE,
    check_profile,
    read_profile,
    write_profile,
)
from dynamo_dap.profile.flame_page import flame_page
from dynamo_dap.profile.model import (
    OURS,
    CacheAnswer,
    FunctionTime,
    GuardTime,
    Profile,
    Restart,
    compile_times,
    function_times,
    phase_times,
    stage_times,
)
from dynamo_dap.protocol.output_files import write_output
from dynamo_dap.protocol.texts import counted
from dynamo_dap.records.program import add_program, given_program, read_options, run_program

_WIDTH = 110
_FIRST = 66
_FUNCTIONS = 15
_LINES = 5
_PASSES = 10
_WRITING = "writing this profile"
_END = "interpreter shutdown"
_ANSWERS = {"hit": "hit", "miss": "missed", "bypass": "bypassed", "disabled": "off"}
_SHARE = 0.02
"""The smallest share of a function's time for which a line is listed."""


def main(arguments: list[str]) -> int:
    """Run a program and print its profile; return its exit status."""
    parser = _parser()
    options = read_options(parser, arguments)
    program = given_program(parser, options)
    stem = options.output or Path(program.module or Path(program.program or "").stem)
    try:
        # Check before a run that may take hours.
        check_profile(stem, html=options.html)
    except OSError as error:
        return fail(str(error), 2)
    with tempfile.TemporaryDirectory(prefix="dynamo-dap-") as folder:
        own_stem = Path(folder) / "profile"
        description = msgspec.structs.replace(program, profile=str(own_stem), began=time.time(), with_children=True)
        began = time.perf_counter()
        status = run_program(options.python, description, prints_for_others=True)
        wall = time.perf_counter() - began
        written = own_stem.with_name(own_stem.name + OWN)
        if not written.exists():
            return fail("the program wrote no profile: it was killed or crashed", status or 1)
        profile = read_profile(written)
        run = _Run(profile, wall, written.stat().st_mtime - description.began)
        others = _others(own_stem)
    if options.json:
        sys.stdout.write(msgspec.json.encode(_as_json(run, others)).decode() + "\n")
    else:
        print_profile(run, _console())
        _print_others(others, _console())
    try:
        paths = write_profile(profile, stem)
        for process, other in others.items():
            if other is not None:
                write_profile(other, stem.with_name(f"{stem.name}.{process}"))
        if options.html:
            page = stem.with_name(stem.name + HTML)
            write_output(page, flame_page(profile), is_private=True)
            paths.insert(2, page)
    except OSError as error:
        return fail(f"cannot write the profile: {error}", status or 1)
    if not options.json:
        _console().print("\n".join(f"[dim]{_opened_by(path)}[/dim] {escape(_shown(path))}" for path in paths[:-1]))
    return status


def _shown(path: Path) -> str:
    """Return the shortest path that a shell accepts: below the current folder, or below ``~``."""
    absolute = path.absolute()
    for folder, prefix in ((Path.cwd(), Path()), (Path.home(), Path("~"))):
        if absolute.is_relative_to(folder):
            return str(prefix / absolute.relative_to(folder))
    return str(path)


@dataclass(frozen=True)
class _Run:
    """A profile, and its process's times as this command measured them, in seconds."""

    profile: Profile
    wall: float
    """How long the process lived."""
    written: float
    """When it had written the profile."""

    @property
    def writing(self) -> float:
        """How long the profiler worked after the program's end: it times itself, ends the record and writes files."""
        return max(0.0, self.written - self.profile.main.ended / 1e9)

    def stages(self) -> dict[str, int]:
        """Return the nanoseconds of each stage on the main thread; their sum is the process's lifetime."""
        found = stage_times(self.profile, self.profile.main)
        found[_WRITING] = int(self.writing * 1e9)
        found[_END] = max(0, int(self.wall * 1e9) - sum(found.values()))
        return found


def _others(stem: Path) -> dict[int, Profile | None]:
    """Return the child processes' profiles by process id; None for a process that wrote no profile."""
    others: dict[int, Profile | None] = {}
    for begun in sorted(stem.parent.glob(f"{stem.name}.*{BEGUN}")):
        written = begun.with_name(begun.name.removesuffix(BEGUN) + OWN)
        process = int(begun.name.removesuffix(BEGUN).rpartition(".")[2])
        others[process] = read_profile(written) if written.exists() else None
    return others


def _print_others(others: dict[int, Profile | None], console: Console) -> None:
    if not others:
        return
    table = _table(
        "Child processes (each has its own files, named with its id)", "program", "process", "compiles", "time"
    )
    for process, other in others.items():
        if other is None:
            table.add_row("[yellow]killed, or still running: it wrote no profile[/yellow]", str(process))
            continue
        compiles = compile_times(other)
        spent = sum(spent for _, spent in compiles)
        program = " ".join([_short(other.program[0]), *other.program[1:]])
        table.add_row(escape(program), str(process), str(len(compiles)), _seconds(spent))
    console.print(table)
    console.print()


def _opened_by(path: Path) -> str:
    openers = {
        CPU_PROFILE: "for VS Code and Chrome: ",
        SPEEDSCOPE: "for speedscope:         ",
        PSTATS: "for snakeviz and pstats:",
        HTML: "a flame chart:          ",
    }
    return next(text for suffix, text in openers.items() if path.name.endswith(suffix))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap profile",
        description="Run a program and show where its compile time goes: by stage, function, line and pass. "
        "PROGRAM.cpuprofile is for VS Code and Chrome, PROGRAM.speedscope.json for speedscope, PROGRAM.prof for "
        "snakeviz and pstats; PROGRAM.profile.json has everything. The exit status is the program's.",
    )
    parser.add_argument("--output", type=Path, metavar="STEM", help="write STEM.cpuprofile and the others")
    parser.add_argument("--html", action="store_true", help="also write STEM.profile.html, a page with a flame chart")
    parser.add_argument("--json", action="store_true", help="print the sums as one object")
    add_program(parser)
    return parser


def _console() -> Console:
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _WIDTH
    return console


def print_profile(run: _Run, console: Console) -> None:
    """Print the sums of a profile."""
    profile = run.profile
    _print_stages(run, console)
    _print_compiles(profile, console)
    _print_functions(function_times(profile), console)
    _print_passes(profile, console)
    _print_caches(profile, console)
    _print_guards(profile, console)
    for problem in profile.problems:
        console.print(f"[yellow]{escape(problem)}[/yellow]")
    if profile.is_cut:
        console.print(
            "[yellow]There were too many events: sums are complete, but the files show the order of the first ones "
            "only.[/yellow]"
        )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column(columns[0], max_width=_FIRST, overflow="ellipsis", no_wrap=True)
    for name in columns[1:]:
        table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    return table


def _seconds(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e9:.3f} s"


def _print_stages(run: _Run, console: Console) -> None:
    profile, wall, main = run.profile, run.wall, run.stages()
    others: dict[str, int] = {}
    for track in profile.tracks:
        for stage, spent in stage_times(profile, track).items() if not track.is_main else ():
            others[stage] = others.get(stage, 0) + spent
    names = ["stage", "main thread", "share", *(["other threads"] if others else [])]
    table = _table("Where the time goes", *names)
    for stage, spent in sorted(main.items(), key=lambda item: -item[1]):
        beside = [_seconds(others.pop(stage)) if stage in others else ""] if len(names) > 3 else []
        table.add_row(stage, _seconds(spent), f"{spent / 1e9 / wall:.1%}", *beside)
    for stage, spent in others.items():
        table.add_row(stage, "", "", _seconds(spent))
    console.print(table)
    cost, record = profile.cost / 1e9 + run.writing, main.get(OURS, 0) / 1e9
    console.print(
        f"[dim]The process took {wall:.3f} s. The profiler took {cost:.3f} s of it ({cost / wall:.1%}): "
        f"{record:.3f} s to record and to time guards, {run.writing:.3f} s to write the files, and the rest "
        f"to time {counted(profile.notices, 'event')}.[/dim]\n"
    )


def _print_compiles(profile: Profile, console: Console) -> None:
    found = compile_times(profile)
    if not found:
        console.print("Nothing was compiled.\n")
        return
    restarts: dict[str, list[str]] = {}
    for one in profile.restarts:
        restarts.setdefault(one.compile_name, []).append(one.reason)
    table = _table("Compiles", "", "time", "restarts")
    for name, spent in found:
        again = restarts.get(name, [])
        table.add_row(escape(name), _seconds(spent), str(len(again)) if again else "")
        for reason in again:
            table.add_row(f"[dim]  restarted: {escape(reason.splitlines()[0])}[/dim]")
    console.print(table)
    console.print()


def _print_functions(functions: Sequence[FunctionTime], console: Console) -> None:
    if not functions:
        return
    table = _table("Traced by Dynamo", "function and line", "traced", "instructions", "itself", "with calls")
    for function in functions[:_FUNCTIONS]:
        frame = function.frame
        place = escape(f"{frame.name}  {_short(frame.path)}:{frame.line}")
        table.add_row(
            f"[bold]{place}[/bold]",
            f"{function.calls} x",
            str(function.instructions),
            _seconds(function.own),
            _seconds(function.total),
        )
        expensive = sorted(function.lines.items(), key=lambda item: -item[1][1])[:_LINES]
        for line, (own, total) in sorted(expensive):
            if total >= _SHARE * function.total:
                table.add_row(f"[dim]  line {line}[/dim]", "", "", _seconds(own), _seconds(total))
    console.print(table)
    if len(functions) > _FUNCTIONS:
        console.print(f"[dim]and {len(functions) - _FUNCTIONS} more: --json lists all[/dim]")
    console.print()


def _short(path: str) -> str:
    """Return a path relative to the current folder; for a file elsewhere, its folder and name."""
    relative = os.path.relpath(path) if Path(path).is_absolute() else path
    return "/".join(Path(path).parts[-2:]) if relative.startswith("..") else relative


def _print_passes(profile: Profile, console: Console) -> None:
    phases = phase_times(profile)
    passes = sorted(
        ((name, *known) for name, known in phases.items() if name.startswith("pass.")), key=lambda one: -one[2]
    )
    others = sorted(
        ((name, *known) for name, known in phases.items() if not name.startswith("pass.")), key=lambda one: -one[2]
    )
    for title, rows in (("torch's phases, each including inner phases", others), ("Passes over graphs", passes)):
        if rows:
            table = _table(title, "", "calls", "time")
            for name, calls, spent in rows if title.startswith("torch") else rows[:_PASSES]:
                table.add_row(escape(name), str(calls), _seconds(spent))
            console.print(table)
            if rows is passes and len(rows) > _PASSES:
                console.print(f"[dim]and {len(rows) - _PASSES} more: --json lists all[/dim]")
            console.print()


def _print_caches(profile: Profile, console: Console) -> None:
    for name in dict.fromkeys(one.cache for one in profile.caches):
        answers = [one for one in profile.caches if one.cache == name]
        states = [one.state for one in answers]
        counts = ", ".join(f"{states.count(state)} {_ANSWERS[state]}" for state in dict.fromkeys(states))
        console.print(f"[bold]{name}[/bold]: {counts}")
        for reason in dict.fromkeys(one.reason for one in answers if one.state == "bypass" and one.reason):
            console.print(f"  bypassed: {escape(reason.splitlines()[0])}")


def _print_guards(profile: Profile, console: Console) -> None:
    if not profile.guards and not profile.hits:
        return
    lookups = f"{counted(profile.hits, 'call')} found compiled code, {profile.misses} did not"
    console.print(f"[bold]Guards[/bold]: {lookups}")
    for one in profile.guards:
        each = f"{one.microseconds:.1f} µs a call for {counted(one.count, 'guard')}"
        console.print(f"  {escape(one.compile_name)}: {each}")
    console.print()


class JsonCompile(msgspec.Struct):
    """A compile."""

    name: str
    seconds: float


class JsonLine(msgspec.Struct):
    """Seconds in a line itself, and including its calls."""

    itself: float
    total: float


class JsonFunction(msgspec.Struct):
    """Time of tracing a function, over all compiles."""

    name: str
    path: str
    line: int
    traced: int
    """How often it was traced."""
    instructions: int
    itself: float
    """Seconds, without the functions that it calls."""
    total: float
    lines: dict[str, JsonLine]
    """The lines' times, by line number."""


class JsonPhase(msgspec.Struct):
    """One of torch's phases, including its inner phases."""

    calls: int
    seconds: float


class JsonGuards(msgspec.Struct):
    """The cost of guards."""

    hits: int
    """Calls that hit the cache."""
    misses: int
    times: list[GuardTime]


class JsonProfiler(msgspec.Struct):
    """The profiler's own time."""

    seconds: float
    notices: int


class JsonProcess(msgspec.Struct):
    """A child process. Its own profile is in files with its id in their names."""

    id: int
    program: str | None
    """None if it wrote no profile: it was killed, or still runs."""
    compiles: list[JsonCompile]


class JsonProfile(msgspec.Struct):
    """What ``--json`` prints. Times are in seconds."""

    seconds: float
    """Duration of the whole run."""
    stages: dict[str, float]
    """Stages on the main thread, whose sum is the whole run."""
    profiler: JsonProfiler
    compiles: list[JsonCompile]
    restarts: list[Restart]
    """Restarted analyses, and why."""
    functions: list[JsonFunction]
    """Functions that Dynamo traced, the most expensive first."""
    phases: dict[str, JsonPhase]
    caches: list[CacheAnswer]
    guards: JsonGuards
    problems: list[str]
    """What this torch does not report."""
    processes: list[JsonProcess]
    """Child processes."""


def _as_json(run: _Run, others: dict[int, Profile | None]) -> JsonProfile:
    profile = run.profile
    return JsonProfile(
        seconds=run.wall,
        stages={stage: spent / 1e9 for stage, spent in run.stages().items()},
        profiler=JsonProfiler(profile.cost / 1e9 + run.writing, profile.notices),
        compiles=_compiles(profile),
        restarts=profile.restarts,
        functions=[
            JsonFunction(
                one.frame.name,
                one.frame.path,
                one.frame.line,
                one.calls,
                one.instructions,
                one.own / 1e9,
                one.total / 1e9,
                {str(line): JsonLine(own / 1e9, total / 1e9) for line, (own, total) in sorted(one.lines.items())},
            )
            for one in function_times(profile)
        ],
        phases={name: JsonPhase(calls, spent / 1e9) for name, (calls, spent) in phase_times(profile).items()},
        caches=profile.caches,
        guards=JsonGuards(profile.hits, profile.misses, profile.guards),
        problems=profile.problems,
        processes=[
            JsonProcess(process, None, [])
            if one is None
            else JsonProcess(process, " ".join(one.program), _compiles(one))
            for process, one in others.items()
        ],
    )


def _compiles(profile: Profile) -> list[JsonCompile]:
    return [JsonCompile(name, spent / 1e9) for name, spent in compile_times(profile)]
