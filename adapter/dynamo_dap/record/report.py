"""``dynamo-dap report``: the newest record of the working directory: as a summary, as JSON, as a page, or as tlparse's.

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

from dynamo_dap.record.advice import changes_of
from dynamo_dap.record.file import RecordScan, UnreadableRecord, read_record
from dynamo_dap.record.folders import records_folder, records_in
from dynamo_dap.record.html_report import html_report
from dynamo_dap.record.model import Compile, CompiledFunction, GraphBreak, Place
from dynamo_dap.record.session import Session
from dynamo_dap.record.summary import counts_of_function, counts_of_session

_TLPARSE_SECONDS = 120
_VALUES = 8
_COMPILES = 10


def main(arguments: list[str]) -> int:
    """Print a report; return the exit status: 1 when there is nothing to report."""
    options = _parser().parse_args(arguments)
    try:
        record = chosen_record(options.record)
        session = read_record(record)
        if options.html:
            return _open_html(session, record, show=not options.no_browser)
        if options.tlparse:
            return _shown(_tlparse(session, record), show=not options.no_browser)
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
    kind.add_argument(
        "--html", action="store_true", help="open the report as a page, which is one file with everything in it"
    )
    kind.add_argument("--tlparse", action="store_true", help="open tlparse's report of the trace that was taken")
    parser.add_argument(
        "--no-browser", action="store_true", help="with --html or --tlparse: print where the report is, only"
    )
    return parser


def chosen_record(given: Path | None) -> Path:
    """Return the record that was given, or the newest of the working directory in which a compile was finished.

    Raises:
        UnreadableRecord: there is none.
    """
    if given is not None:
        return given
    found = records_in(records_folder(Path.cwd()))
    if not found:
        folder = records_folder(Path.cwd())
        raise UnreadableRecord(f"no program has been recorded in this directory (looked in {folder})")
    finished = next((path for path in reversed(found) if RecordScan(path).has_finished()), None)
    if finished is not None and finished != found[-1]:
        print(f"dynamo-dap: no compile was finished in {found[-1].name}; this is the run before", file=sys.stderr)  # noqa: T201 - the user of a terminal reads it
    return finished or found[-1]


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
    if session.is_truncated:
        console.print("The record reached its bound: details of later compiles are left out")
    for function in functions:
        _print_changes(function, console)
        for compiled in function.compiles:
            _print_compile(compiled, console)
    _print_times(functions, console)
    _print_files(functions, console)
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
        console.print(
            f"[cyan]Recompile[/cyan] {name}: {escape(failure.text or failure.expression)}{_at(failure.place)}"
        )
    if compiled.limit:
        console.print(f"[red]Limit[/red] {name}: {escape(compiled.limit)} is exceeded, the function runs eagerly")
    for found in compiled.breaks:
        _print_break(found, name, console)
    for size in compiled.specializations:
        console.print(f"[magenta]Specialized[/magenta] {name}{_at(size.place)}: {escape(size.expression)}")
    if compiled.state in ("skipped", "failed") and not compiled.breaks:
        at = compiled.problem_place
        where = "" if at is None else f" at {at.path}:{at.line}"
        console.print(
            f"[red]{compiled.state.capitalize()}[/red] {name}{escape(where)}: {escape(compiled.problem or '?')}"
        )


def _print_changes(function: CompiledFunction, console: Console) -> None:
    """Print what was another from call to call, and what to do about it: that first, the failed guards follow."""
    for change in changes_of(function):
        values = f": {', '.join(change.values[:_VALUES])}" if change.values else ""
        more = ", …" if len(change.values) > _VALUES else ""
        title = f"[cyan]Changed from call to call[/cyan] {escape(function.name)}: "
        console.print(f"{title}{escape(change.subject + values + more)} ({len(change.compiles)} recompiles)")
        console.print(f"    Called{_at(change.caller)}")
        console.print(f"    Do: {escape(change.advice)}")
        console.print(f"    See: {change.link}")


def _print_times(functions: list[CompiledFunction], console: Console) -> None:
    """Print the compiles that took longest, with the phases that torch measured and the user's line that called."""
    timed = [(one.seconds or 0.0, function, one) for function in functions for one in function.compiles]
    timed = sorted((one for one in timed if one[0]), key=lambda one: -one[0])
    if timed:
        console.print("Where the time of the compiles went, the longest first:")
    for seconds, function, one in timed[:_COMPILES]:
        caller = one.caller or next((other.caller for other in function.compiles if other.caller is not None), None)
        phases = ", ".join(f"{name} {spent:.2f}" for name, spent in one.phases.items())
        called = f", called{_at(caller)}" if caller is not None else ""
        console.print(
            f"    {seconds:.2f} s {escape(f'{one.name} [{one.id}]')}{called}" + (f" ({phases})" if phases else "")
        )
    if len(timed) > _COMPILES:
        rest = sum(one[0] for one in timed[_COMPILES:])
        console.print(f"    {rest:.2f} s in {len(timed) - _COMPILES} more")


def _print_files(functions: list[CompiledFunction], console: Console) -> None:
    files = [(one, path) for function in functions for one in function.compiles for path in one.artifacts]
    if files:
        console.print("Files that the backend wrote:")
    for one, path in files:
        console.print(f"    {escape(f'{one.name} [{one.id}]: {path}')}")


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
    page = record.with_suffix(".html")
    try:
        trace = _tlparse(session, record)
    except UnreadableRecord:
        # There is none, or no tlparse: our own page does not need it.
        trace = None
    try:
        page.write_text(html_report(session, trace.as_uri() if trace else None), encoding="utf-8", errors="replace")
    except OSError as error:
        raise UnreadableRecord(f"cannot write {page}: {error.strerror or error}") from None
    return _shown(page, show=show)


def _shown(page: Path, *, show: bool) -> int:
    print(page)  # noqa: T201 - the user of a terminal reads it
    if show:
        webbrowser.open(page.absolute().as_uri())
    return 0


def _tlparse(session: Session, record: Path) -> Path:
    """Return the page that tlparse makes of torch's own trace.

    Raises:
        UnreadableRecord: no trace was taken, or tlparse is not there, or failed.
    """
    trace = _trace_of(session, record)
    if trace is None or not trace.is_dir() or not any(trace.iterdir()):
        raise UnreadableRecord('no trace was taken: launch with "trace": true, or use dynamo-dap run --trace')
    tlparse = shutil.which("tlparse", path=str(Path(sys.executable).parent)) or shutil.which("tlparse")
    if tlparse is None:
        raise UnreadableRecord("tlparse is not installed; run: pip install tlparse")
    logs = sorted(trace.glob("*.log"), key=lambda path: path.stat().st_size)
    if not logs:
        raise UnreadableRecord(f"there is no log in {trace}")
    output = trace / "tlparse"
    command = [tlparse, str(logs[-1]), "-o", str(output), "--overwrite", "--no-browser"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TLPARSE_SECONDS, check=False)
    page = output / "index.html"
    if done.returncode != 0 or not page.exists():
        raise UnreadableRecord(f"tlparse failed: {(done.stderr or done.stdout).strip()[-1000:]}")
    return page
