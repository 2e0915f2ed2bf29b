"""``dynamo-dap report``: the newest record of the working directory, as a summary or as JSON, or tlparse's report.

Main thread of the command.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import webbrowser
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dynamo_dap.record.file import RecordScan, UnreadableRecord, read_record
from dynamo_dap.record.folders import records_folder, records_in
from dynamo_dap.record.model import Compile, CompiledFunction, GraphBreak, Place
from dynamo_dap.record.session import Session
from dynamo_dap.record.summary import counts_of_function, counts_of_session

_TLPARSE_SECONDS = 120


def main(arguments: list[str]) -> int:
    """Print a report; return the exit status: 1 when there is nothing to report."""
    options = _parser().parse_args(arguments)
    try:
        record = _chosen(options.record)
        session = read_record(record)
        if options.html or options.tlparse:
            return _open_html(session, record, show=not options.no_browser)
    except UnreadableRecord as problem:
        print(f"dynamo-dap: {problem}", file=sys.stderr)  # noqa: T201 - the user of a terminal reads it
        return 1
    if options.json:
        sys.stdout.write(as_json(session).decode() + "\n")
    else:
        print_report(session, Console(highlight=False, soft_wrap=True))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dynamo-dap report", description="What torch.compile did in a program's run.")
    parser.add_argument("record", nargs="?", type=Path, help="a record file; default: the newest of this directory")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--json", action="store_true", help="print everything that is recorded as JSON")
    kind.add_argument("--html", action="store_true", help="open tlparse's report of the trace that was taken")
    kind.add_argument("--tlparse", action="store_true", help="the same")
    parser.add_argument("--no-browser", action="store_true", help="with --html: print where the report is instead")
    return parser


def _chosen(given: Path | None) -> Path:
    if given is not None:
        return given
    found = records_in(records_folder(Path.cwd()))
    if not found:
        folder = records_folder(Path.cwd())
        raise UnreadableRecord(f"no program has been recorded in this directory (looked in {folder})")
    finished = next((path for path in reversed(found) if _has_finished(path)), None)
    if finished is not None and finished != found[-1]:
        print(f"dynamo-dap: no compile was finished in {found[-1].name}; this is the run before", file=sys.stderr)  # noqa: T201 - the user of a terminal reads it
    return finished or found[-1]


def _has_finished(path: Path) -> bool:
    scan = RecordScan(path)
    scan.go_on()
    return scan.has_finished


def as_json(session: Session) -> bytes:
    """Return everything that is recorded."""
    body = {
        "started": session.started,
        "ended": session.ended,
        "truncated": session.is_truncated,
        "counts": counts_of_session(session),
        "functions": session.functions,
        "skipped": session.skipped,
    }
    return msgspec.json.format(msgspec.json.encode(body), indent=2)


def print_report(session: Session, console: Console, only: CompiledFunction | None = None) -> None:
    """Print the summary of a program, or what is known of one of its functions."""
    counts = counts_of_session(session) if only is None else counts_of_function(only)
    functions = session.functions if only is None else [only]
    program = " ".join(session.started.program) if session.started else "?"
    console.print(f"[bold]{escape(program)}[/bold]" + ("" if session.ended else "  (still running, or it crashed)"))
    if session.unreadable_lines:
        console.print(f"[red]{session.unreadable_lines} lines of the record cannot be read and are left out[/red]")
    console.print(f"Graph count: {counts.graphs}")
    console.print(f"Graph break count: {counts.breaks} ({counts.breaks_with_graph} after operations of a graph)")
    console.print(f"Op count: {counts.operations}")
    console.print(f"Recompiles: {counts.recompiles}")
    console.print(f"Guards: {counts.guards}")
    console.print(f"Compile time: {counts.seconds:.2f} s in {counts.compiles} compiles")
    if functions:
        console.print(_table_of_functions(functions))
    for function in functions:
        for compiled in function.compiles:
            _print_compile(compiled, console)
    for skipped in session.skipped if only is None else ():
        console.print(f"[yellow]Skipped[/yellow] {escape(skipped.name)}{_at(skipped.place)}: {escape(skipped.reason)}")


def _table_of_functions(functions: list[CompiledFunction]) -> Table:
    table = Table("function", "compiles", "graphs", "ops", "breaks", "recompiles", "guards", "time")
    for function in functions:
        one = counts_of_function(function)
        numbers = (one.compiles, one.graphs, one.operations, one.breaks, one.recompiles, one.guards)
        table.add_row(escape(f"{function.name} ({_short(function.place)})"), *map(str, numbers), f"{one.seconds:.2f} s")
    return table


def _short(place: Place | None) -> str:
    return "?" if place is None else f"{Path(place.path).name}:{place.line}"


def _print_compile(compiled: Compile, console: Console) -> None:
    name = escape(f"{compiled.name} [{compiled.id}]")
    for failure in compiled.failures:
        console.print(f"[cyan]Recompile[/cyan] {name}: {escape(failure.expression)}{_at(failure.place)}")
    if compiled.limit:
        console.print(f"[red]Limit[/red] {name}: {escape(compiled.limit)} is exceeded, the function runs eagerly")
    for found in compiled.breaks:
        _print_break(found, name, console)
    for size in compiled.specializations:
        console.print(f"[magenta]Specialized[/magenta] {name}{_at(size.place)}: {escape(size.expression)}")
    if compiled.state in ("skipped", "failed") and not compiled.breaks:
        console.print(f"[red]{compiled.state.capitalize()}[/red] {name}: {escape(compiled.problem or '?')}")


def _print_break(found: GraphBreak, name: str, console: Console) -> None:
    identifier = f" \\[{found.id}]" if found.id else ""
    console.print(f"[yellow]Graph break[/yellow] {name}{_at(found.place)}: {escape(found.reason)}{identifier}")
    for line in [
        found.explanation,
        *(f"Hint: {hint}" for hint in found.hints),
        found.effect and f"Then: {found.effect}",
    ]:
        if line:
            console.print("    " + escape(line).replace("\n", "\n    "))


def _at(place: Place | None) -> str:
    return "" if place is None else escape(f" at {place.path}:{place.line}")


def _trace_of(session: Session, record: Path) -> Path | None:
    """Return the folder of torch's own trace.

    Raises:
        UnreadableRecord: it is not beside the record: a record that came from elsewhere may name any folder.
    """
    if session.started is None or session.started.trace is None:
        return None
    trace = Path(session.started.trace)
    if not Path(os.path.realpath(trace)).is_relative_to(os.path.realpath(record.parent)):
        raise UnreadableRecord(f"the record's trace is outside of its folder: look at it with: tlparse {trace}")
    return trace


def _open_html(session: Session, record: Path, *, show: bool) -> int:
    trace = _trace_of(session, record)
    if trace is None or not trace.is_dir() or not any(trace.iterdir()):
        raise UnreadableRecord('no trace was taken: launch with "trace": true, or use dynamo-dap run --trace')
    tlparse = shutil.which("tlparse", path=str(Path(sys.executable).parent)) or shutil.which("tlparse")
    if tlparse is None:
        raise UnreadableRecord("tlparse is not installed; run: pip install tlparse")
    output = trace / "tlparse"
    logs = sorted(trace.glob("*.log"), key=lambda path: path.stat().st_size)
    command = [tlparse, str(logs[-1]), "-o", str(output), "--overwrite", "--no-browser"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TLPARSE_SECONDS, check=False)
    page = output / "index.html"
    if done.returncode != 0 or not page.exists():
        raise UnreadableRecord(f"tlparse failed: {(done.stderr or done.stdout).strip()[-1000:]}")
    print(page)  # noqa: T201 - the user of a terminal reads it
    if show:
        webbrowser.open(page.as_uri())
    return 0
