"""``dynamo-dap report``: prints a report on a record or on torch's trace logs, and tries its suggestions.

To try a suggestion, the recorded program runs once: with an edited copy of a file, or with a setting of torch. Runs on
the command's main thread.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from dynamo_dap.commands.fix import known_fixes, print_trials, settings_of
from dynamo_dap.fixes.edits import Fix
from dynamo_dap.fixes.recorded_program import CannotTry, add_consent, asks_for_untrusted
from dynamo_dap.fixes.trial import runner_of, try_fixes
from dynamo_dap.protocol.output_files import check_output, write_output
from dynamo_dap.records.advice.gathering import what_to_do
from dynamo_dap.records.artifacts.compiled_functions import is_compiled_function, read_compiled_function
from dynamo_dap.records.artifacts.exported_programs import is_exported_program, read_exported_programs
from dynamo_dap.records.artifacts.precompiled_programs import (
    is_precompiled_cache,
    is_precompiled_program,
    read_precompiled_cache,
    read_precompiled_program,
)
from dynamo_dap.records.artifacts.saved_caches import is_saved_cache, read_saved_cache
from dynamo_dap.records.events import Record
from dynamo_dap.records.file import UnreadableRecord, read_record
from dynamo_dap.records.model import Place
from dynamo_dap.records.repeated_input import RepeatedInput
from dynamo_dap.records.report import output as report
from dynamo_dap.records.report.artifact_report import (
    print_compiled,
    print_exported,
    print_precompiled,
    print_precompiled_cache,
    print_saved_cache,
)
from dynamo_dap.trace_logs.contents import contents_of, text_of, write_chromium_events
from dynamo_dap.trace_logs.logs import (
    Mappings,
    TraceReader,
    WrongMapping,
    chosen_log,
    is_trace,
    logs_in,
    mappings_of,
    read_ranks,
)

_FIRST_PAGE_SECONDS = 1.0
_PROGRESS_SECONDS = 1.0


def main(arguments: list[str]) -> int:
    """Print a report, with ``--try`` also the results of its suggestions; return 1 if there is nothing to report."""
    reader = _parser()
    add_consent(reader, "with --try: ")
    options = reader.parse_args(arguments)
    if options.record is None and options.contents and is_trace(Path(options.contents)):
        # For "report --contents LOG", argparse takes the log as the option's argument.
        options.record, options.contents = Path(options.contents), ""
    try:
        if options.record is not None and _printed_artifact(reader, options):
            return 0
        if options.record is not None and is_trace(options.record):
            return _of_trace(reader, options)
    except (UnreadableRecord, WrongMapping) as problem:
        print(f"dynamo-dap: {problem}", file=sys.stderr)  # noqa: T201 - the user of a terminal reads it
        return 1
    if options.contents is not None or options.chromium_events or options.map:
        reader.error("--contents, --chromium-events and --map are for the trace logs that TORCH_TRACE makes: give one")
    status = report.main(reader, options)
    if status != 0 or not options.try_all:
        return status
    try:
        return _try(options)
    except (CannotTry, UnreadableRecord) as problem:
        print(f"dynamo-dap: {problem}", file=sys.stderr)  # noqa: T201 - the user of a terminal reads it
        return 2


def _printed_artifact(reader: argparse.ArgumentParser, options: argparse.Namespace) -> bool:
    """Print what a saved cache, a compiled function or an exported program holds; return False for any other file."""
    path, console = options.record, report.report_console()
    kinds: dict[Callable[[Path], bool], Callable[[], None]] = {
        is_saved_cache: lambda: print_saved_cache(path, read_saved_cache(path), console),
        is_compiled_function: lambda: print_compiled(path, read_compiled_function(path), console),
        is_precompiled_program: lambda: print_precompiled(path, read_precompiled_program(path), console),
        is_precompiled_cache: lambda: print_precompiled_cache(path, read_precompiled_cache(path), console),
        is_exported_program: lambda: print_exported(path, read_exported_programs(path), console),
    }
    show = next((show for is_this, show in kinds.items() if is_this(path)), None)
    if show is None:
        return False
    if options.json or options.html or options.tlparse or options.ranks or options.try_all or options.stacks:
        reader.error("what a saved cache or an exported program holds is printed as text only")
    show()
    return True


def _of_trace(reader: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.try_all:
        reader.error("--try runs the recorded program: a trace log does not say how the program was started")
    if options.tlparse:
        command = shlex.join(["tlparse", str(chosen_log(options.record))])
        reader.error(f"--tlparse is for runs of dynamo-dap run --trace; run: {command}")
    mappings = mappings_of(options.map)
    if options.chromium_events is not None:
        return _write_events(chosen_log(options.record), options.chromium_events)
    if options.contents is not None:
        return _print_contents(chosen_log(options.record), options.contents)
    source = report.Source(
        read=lambda path, show_beginning: _read(path, mappings, show_beginning),
        ranks=lambda path: read_ranks(path, mappings),
        others=lambda path: [log for log in logs_in(path) if log != chosen_log(path)] if path.is_dir() else [],
    )
    return report.main(reader, options, source)


def _read(path: Path, mappings: Mappings, show_beginning: Callable[[report.Reading], None]) -> Record:
    """Read a log; if that takes long, show a report on its beginning, and the progress in a terminal."""
    reader = TraceReader(path, mappings)
    if reader.read(_FIRST_PAGE_SECONDS):
        return reader.record
    show_beginning(reader)
    console = Console(stderr=True)
    with console.status(f"Reading {reader.log.name}") as status:
        while not reader.read(_PROGRESS_SECONDS):
            status.update(escape(f"Reading {reader.log.name}: {reader.progress()}"))
    return reader.record


def _write_events(log: Path, path: Path) -> int:
    try:
        check_output(path)
        events = io.BytesIO()
        number = write_chromium_events(log, events)
        write_output(path, events.getvalue(), is_private=True)
    except OSError as error:
        raise UnreadableRecord(f"cannot write {path}: {error.strerror or error}") from None
    print(f"{path}: {number} events, for ui.perfetto.dev")  # noqa: T201 - the user of a terminal reads it
    return 0


def _print_contents(log: Path, wanted: str) -> int:
    if wanted:
        identifier, _, name = wanted.partition(":")
        sys.stdout.write(text_of(log, identifier, name) + "\n")
        return 0
    for content in contents_of(log):
        torn = "" if content.is_whole else "  (torn)"
        line = f"{content.compile_id}:{content.name}  {content.size} bytes, attempt {content.attempt + 1}{torn}"
        print(line)  # noqa: T201 - the user of a terminal reads it
    return 0


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = argparse.ArgumentParser(
        prog="dynamo-dap report", description="Report what torch.compile did in a program's run."
    )
    parser.add_argument(
        "record",
        nargs="?",
        type=Path,
        help="a record file, a TORCH_TRACE folder or log, a file of torch.compiler.save_cache_artifacts, "
        "torch.compiler.precompile, save_compiled_function or torch.export.save; "
        "default: the newest record of this directory",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--json", action="store_true", help="print the whole record as JSON")
    kind.add_argument("--html", action="store_true", help="open the report as one self-contained page")
    kind.add_argument("--tlparse", action="store_true", help="open tlparse's report of torch's trace")
    parser.add_argument(
        "--ranks",
        action="store_true",
        help="compare the compiles of a distributed job's ranks, and show where one diverges; also with --json",
    )
    parser.add_argument(
        "--try",
        dest="try_all",
        action="store_true",
        help="run the recorded program once for each suggestion, and compare graphs, breaks and recompiles",
    )
    parser.add_argument("--stacks", action="store_true", help="also print the callers of compiled functions, as a tree")
    logs = parser.add_argument_group("torch's trace logs")
    logs.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="REMOTE=LOCAL",
        help="a folder of the machine that wrote the log, and the folder here with the same files; repeatable",
    )
    logs.add_argument(
        "--contents",
        nargs="?",
        const="",
        metavar="COMPILE:NAME",
        help="list what the log has for each compile, or print one of these: 0/0:inductor_output_code",
    )
    logs.add_argument("--chromium-events", type=Path, metavar="FILE", help="write torch's timeline for ui.perfetto.dev")
    parser.add_argument("--python", default=sys.executable, help="with --try: the interpreter; default: this one")
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="with --try: of each run")
    parser.add_argument(
        "--no-browser",
        action="store_true",
        help="with --html or --tlparse: print the report's path instead of opening it",
    )
    return parser


def _try(options: argparse.Namespace) -> int:
    record = read_record(report.chosen_record(options.record))
    fixes = all_fixes(record)
    if not fixes:
        raise CannotTry("nothing can be tried: no setting and no edit is known for these findings")
    runner = runner_of(record.started, (), options.python, options.timeout, asks_for_untrusted(options))
    runner = dataclasses.replace(
        runner,
        given=RepeatedInput(),
        report=lambda which: print(f"running {runner.command} {which}", file=sys.stderr),  # noqa: T201  (the terminal is the only place for it)
    )
    print_trials(try_fixes(fixes, runner, {}))
    return 0


def all_fixes(record: Record) -> list[Fix]:
    """Return all known fixes for a record's findings: settings first, then edits."""
    items = what_to_do(record)
    fixes = {fix.title: fix for fix in settings_of(items)}
    places: dict[Place, None] = {}
    for item in items:
        places.update(dict.fromkeys(one for one in (item.place, *item.callers) if one is not None))
    for place in places:
        for fix in known_fixes(record, place.path, place.line):
            fixes.setdefault(fix.title, fix)
    return list(fixes.values())
