"""``dynamo-dap diff``: finds the first place where two runs of torch.compile differ.

Runs on the command's main thread.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from dynamo_dap.calls.folder import BadFolder, read_snapshot
from dynamo_dap.commands.cache_edits import edits_to_try
from dynamo_dap.commands.saved_calls import may_run
from dynamo_dap.diff.cache_trials import trials_of, with_answers
from dynamo_dap.diff.caches import what_is_not_cached
from dynamo_dap.diff.comparing import compare_runs
from dynamo_dap.diff.html_page import html_page
from dynamo_dap.diff.revisions import files_of_revision
from dynamo_dap.diff.sides import CannotCompare, RunCommand, command_of, read_side, side_of
from dynamo_dap.diff.text import print_caches, print_diff
from dynamo_dap.protocol.access.consent import visible
from dynamo_dap.protocol.output_files import check_output, write_output
from dynamo_dap.records.file import UnreadableRecord
from dynamo_dap.records.repeated_input import RepeatedInput
from dynamo_dap.records.report.output import chosen_record, report_console
from dynamo_dap.records.report.ranks import files_of_ranks
from dynamo_dap.trace_logs.logs import is_trace, logs_of_ranks


def main(arguments: list[str]) -> int:
    """Compare; return 0 if nothing differs, 1 if something does, 2 if the runs cannot be compared."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if (options.revisions or options.ranks) and options.b is not None:
        parser.error("give one command with --revisions, and one job with --ranks")
    if options.a is None and not options.ranks:
        parser.error("give a record, a trace log or a command")
    if options.html is not None and (options.json or options.caches):
        parser.error("--html cannot be combined with --json or --caches")
    try:
        with contextlib.ExitStack() as kept:
            return _compare(options, kept)
    except (CannotCompare, UnreadableRecord) as problem:
        print(f"dynamo-dap: {problem}", file=sys.stderr)  # noqa: T201 - the user of a terminal reads it
        return 2


def _compare(options: argparse.Namespace, kept: contextlib.ExitStack) -> int:
    # Check everything before the first run, which may take hours.
    if options.html is not None:
        _check_page(options.html)
    sides: list[tuple[str, Path | RunCommand]] = []
    if options.revisions:
        for revision in options.revisions:
            folder = kept.enter_context(files_of_revision(revision))
            sides.append((f"{revision}: {options.a}", command_of(options.a, options.python, folder)))
    elif options.ranks:
        sides += _ranks(options.ranks, options.a)
    else:
        second = options.b if options.b is not None else options.a
        sides += [(given, side_of(given, options.python)) for given in (options.a, second)]
    _ask_for_calls([side for _, side in sides], yes=options.yes)
    if options.tries and not (options.caches and isinstance(sides[1][1], RunCommand)):
        raise CannotCompare("--try needs --caches, and a command as B")
    if options.values and not all(isinstance(side, RunCommand) for _, side in sides):
        raise CannotCompare("--values is for commands: a record has no values")
    if options.caches:
        return report_caches(sides[0], sides[1], as_json=options.json, tries=options.tries)
    read = partial(read_side, standard_input=RepeatedInput(), with_values=options.values)
    one, other = (read(given, side) for given, side in sides)
    if options.values and not (one.has_values or other.has_values):
        raise CannotCompare("neither run has called a compiled graph whose values could be hashed; omit --values")
    diff = compare_runs(one, other)
    if options.html is not None:
        write_output(options.html, html_page(diff, (one, other)), is_private=True)
        print(options.html)  # noqa: T201 - the user of a terminal reads it
    elif options.json:
        sys.stdout.write(msgspec.json.encode(diff).decode() + "\n")
    else:
        print_diff(diff, (one, other), report_console())
    return 1 if diff.differs else 0


def _ask_for_calls(sides: Sequence[Path | RunCommand], *, yes: bool) -> None:
    for folder in [side.saved_call for side in sides if isinstance(side, RunCommand) and side.saved_call is not None]:
        try:
            is_wanted = may_run(read_snapshot(folder), yes=yes)
        except BadFolder as problem:
            raise CannotCompare(visible(str(problem))) from None
        if not is_wanted:
            command = shlex.join(["dynamo-dap", "replay", "--show", str(folder)])
            raise CannotCompare(f"not running the saved call: {command}")


def _check_page(path: Path) -> None:
    try:
        check_output(path)
    except OSError as error:
        raise CannotCompare(f"cannot write {path}: {error.strerror or error}") from None


def _ranks(ranks: Sequence[int], given: str | None) -> Iterator[tuple[str, Path]]:
    """Yield two ranks of one job: from a folder of trace logs, or from the job of a record."""
    file = chosen_record(None if given is None else Path(given))
    files = logs_of_ranks(file) if is_trace(file) else files_of_ranks(file)
    for rank in ranks:
        if rank not in files:
            raise CannotCompare(f"{file} has no rank {rank}; there are: {', '.join(map(str, sorted(files)))}")
        yield f"rank {rank}", files[rank]


def report_caches(
    one: tuple[str, Path | RunCommand],
    other: tuple[str, Path | RunCommand],
    *,
    as_json: bool = False,
    names: tuple[str, str] = ("A", "B"),
    tries: bool = False,
) -> int:
    """Run both sides with a shared cache, empty at first, and report what the second side compiles again.

    A side that is a record is only read. With ``tries``, the second side also runs with each setting of the first side
    that differs and changes its cache keys, and both sides run with each known edit.

    Raises:
        CannotCompare: there is nothing to report.
    """
    (given_one, side_one), (given, side) = one, other
    with tempfile.TemporaryDirectory(prefix="dynamo-dap-caches-", ignore_cleanup_errors=True) as folder:
        caches, filled = Path(folder, "caches"), Path(folder, "filled")
        caches.mkdir()
        read = partial(read_side, standard_input=RepeatedInput(), cache_folder=str(caches))
        first = read(*one)
        if tries:
            shutil.copytree(caches, filled, symlinks=True)
        second = read(given, side)
        found = what_is_not_cached(first, second)
        trials = trials_of(found) if tries else []
        if tries and isinstance(side_one, RunCommand):
            trials += edits_to_try(found, trials, second, Path(folder))
        for trial in trials:
            assert isinstance(side, RunCommand)
            which = " and ".join(names) if trial.is_of_both else names[1]
            sys.stderr.write(f"dynamo-dap: running {which} again with {trial}\n")
            # The previous run has added its own entries.
            shutil.rmtree(caches)
            before = first
            if trial.is_of_both:
                assert isinstance(side_one, RunCommand)
                caches.mkdir()
                before = read(given_one, trial.applied(side_one))
            else:
                shutil.copytree(filled, caches, symlinks=True)
            again = read(given, trial.applied(side))
            found = with_answers(found, trial, what_is_not_cached(before, again), again, second)
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    else:
        print_caches(found, second, report_console(), names)
    return 1 if found.not_cached else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap diff",
        description="Find the first place where two runs differ: functions, guards, graphs, kernels, breaks, "
        "recompiles, and what the programs print. A side is a record, a torch trace log, a saved call, or a "
        "command to run. The exit status is 0 if nothing differs, 1 if something does, 2 if the runs cannot be "
        "compared.",
        epilog="A command may begin with variables and an interpreter: "
        + shlex.quote("OMP_NUM_THREADS=1 old/bin/python train.py --epochs 1"),
    )
    parser.add_argument(
        "a", metavar="A", nargs="?", help="a record, a TORCH_TRACE folder or log, a saved call, or a command"
    )
    parser.add_argument(
        "b", metavar="B", nargs="?", help="the other side, given like A; without it, the command A runs twice"
    )
    parser.add_argument(
        "--revisions", nargs=2, metavar=("OLD", "NEW"), help="run the command A with the files of two git revisions"
    )
    parser.add_argument(
        "--values",
        action="store_true",
        help="compare inputs and outputs of compiled graphs bit by bit, and name the first operation that differs; "
        "several times slower",
    )
    parser.add_argument(
        "--caches",
        action="store_true",
        help="run A with empty caches and B with the caches that A filled; report what B compiles again, and why",
    )
    parser.add_argument(
        "--try",
        dest="tries",
        action="store_true",
        help="with --caches: run B again with each setting of A that differs, then both with known edits of copies; "
        "report whether B then hits the cache",
    )
    parser.add_argument(
        "--ranks",
        nargs=2,
        type=int,
        metavar=("RANK", "OTHER"),
        help="compare two ranks of a job: A is a folder of trace logs or a rank's record; default: the newest record",
    )
    parser.add_argument("--yes", action="store_true", help="agree to run the code of saved calls")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a self-contained HTML page")
    parser.add_argument(
        "--python", default=sys.executable, help="the interpreter for commands without one; default: this one"
    )
    return parser
