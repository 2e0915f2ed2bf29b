"""Prints a report, and tries what it suggests. ``dynamo-dap report``, ``dynamo-dap report --try``.

Each candidate is one run of the recorded program: an edit on a copy, or a setting of torch without any edit. Main
thread of the command.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from dynamo_dap.commands.fix import known_fixes, print_trials, settings_of
from dynamo_dap.commands.recorded_program import CannotTry, add_consent, asks_for_strangers
from dynamo_dap.commands.trial import runner_of, try_fixes
from dynamo_dap.language_server.fixes.edits import Fix
from dynamo_dap.records import report
from dynamo_dap.records.advice import what_to_do
from dynamo_dap.records.events import Record
from dynamo_dap.records.file import UnreadableRecord, read_record
from dynamo_dap.records.model import Place
from dynamo_dap.records.repeated_input import RepeatedInput


def main(arguments: list[str]) -> int:
    """Print a report, with ``--try`` also what its suggestions did; return 1 if there is nothing to report."""
    reader = _parser()
    add_consent(reader, "with --try: ")
    options = reader.parse_args(arguments)
    status = report.main(reader, options)
    if status != 0 or not options.try_all:
        return status
    try:
        return _try(options)
    except (CannotTry, UnreadableRecord) as problem:
        print(f"dynamo-dap: {problem}", file=sys.stderr)  # noqa: T201 - the user of a terminal reads it
        return 2


def _parser() -> argparse.ArgumentParser:
    """Return what reads the arguments of the command."""
    parser = argparse.ArgumentParser(prog="dynamo-dap report", description="What torch.compile did in a program's run.")
    parser.add_argument("record", nargs="?", type=Path, help="a record file; default: the newest of this directory")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--json", action="store_true", help="print everything that is recorded as JSON")
    kind.add_argument(
        "--html", action="store_true", help="open the report as a page, which is one file with everything in it"
    )
    kind.add_argument("--tlparse", action="store_true", help="open tlparse's report of the trace that was taken")
    parser.add_argument(
        "--ranks",
        action="store_true",
        help="what the ranks of a distributed job compiled, beside each other, and where one parted; --json as well",
    )
    parser.add_argument(
        "--try",
        dest="try_all",
        action="store_true",
        help="run the recorded program once for each suggestion, and print graphs, breaks and recompiles of both",
    )
    parser.add_argument("--python", default=sys.executable, help="with --try: the interpreter; default: this one")
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="with --try: of each run")
    parser.add_argument(
        "--no-browser", action="store_true", help="with --html or --tlparse: only print where the report is"
    )
    return parser


def _try(options: argparse.Namespace) -> int:
    record = read_record(report.chosen_record(options.record))
    fixes = all_fixes(record)
    if not fixes:
        raise CannotTry("there is nothing to try: no setting and no edit is known for what was found")
    runner = runner_of(record.started, (), options.python, options.timeout, asks_for_strangers(options))
    runner = dataclasses.replace(
        runner,
        given=RepeatedInput(),
        tell=lambda which: print(f"running {runner.command} {which}", file=sys.stderr),  # noqa: T201  (the terminal is the only place for it)
    )
    print_trials(try_fixes(fixes, runner, {}))
    return 0


def all_fixes(record: Record) -> list[Fix]:
    """Return everything that can be tried against what a record reports: settings first, then edits."""
    items = what_to_do(record)
    fixes = {fix.title: fix for fix in settings_of(items)}
    places: dict[Place, None] = {}
    for item in items:
        places.update(dict.fromkeys(one for one in (item.place, *item.callers) if one is not None))
    for place in places:
        for fix in known_fixes(record, place.path, place.line):
            fixes.setdefault(fix.title, fix)
    return list(fixes.values())
