"""``dynamo-dap check``: runs a program, and fails if its compiles exceed the limits or the baseline.

Runs on the command's main thread; the program runs in its own process, on the same terminal.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from rich.console import Console

from dynamo_dap.checking.findings import Found, findings_in
from dynamo_dap.checking.formats import (
    ProgramOutcome,
    as_json,
    as_junit,
    as_sarif,
    print_verdict,
    processes_of,
    workflow_commands,
)
from dynamo_dap.checking.settings import (
    Limits,
    Settings,
    Verdict,
    WrongSettings,
    judge,
    read_baseline,
    settings_of_project,
    write_baseline,
)
from dynamo_dap.commands.failing import fail
from dynamo_dap.protocol.output_files import check_output, write_output
from dynamo_dap.protocol.requests.contract import CHECK_VARIABLE, RECORDS_VARIABLE, LaunchDescription
from dynamo_dap.records.events import Record
from dynamo_dap.records.file import UnreadableRecord, read_record
from dynamo_dap.records.folders import SUFFIX
from dynamo_dap.records.program import add_program, given_program, launching, read_options
from dynamo_dap.trace_logs.logs import read_any

_BASELINE = "torch-compile-baseline.json"
_INTERRUPTED_SECONDS = 10.0


def main(arguments: list[str]) -> int:
    """Run the check.

    Return the exit status: the program's own if it failed, else 1 for new findings, 2 for wrong usage.
    """
    parser = _parser()
    options = read_options(parser, arguments)
    folder = Path.cwd()
    try:
        settings = _settings(options, folder)
        _check_outputs(options, settings)
        if options.record:
            records, status = [read_any(path) for path in options.record], None
        else:
            records, status = _run(_described(parser, options), options)
        found = findings_in(records, folder)
        if not found.functions and not found.findings and not status:
            raise WrongSettings("nothing was compiled")
        if options.update:
            write_baseline(Path(str(settings.baseline)), found)
        # After --update the baseline has these findings, so that none is new.
        verdict = judge(found, settings.complete())
        _write(options, verdict, found, ProgramOutcome(status, processes_of(records)), folder)
    except (WrongSettings, UnreadableRecord) as problem:
        return fail(str(problem))
    if status:
        return status
    return 0 if verdict.is_good else 1


def _check_outputs(options: argparse.Namespace, settings: Settings) -> None:
    """Refuse to overwrite the user's own files, before the program runs for hours."""
    try:
        for path in (options.sarif, options.junit):
            if path is not None:
                check_output(path)
    except OSError as problem:
        raise WrongSettings(f"cannot write {path}: {problem.strerror or problem}") from None
    if options.update:
        read_baseline(Path(str(settings.baseline)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap check",
        description="Run a program and fail if torch.compile breaks graphs or recompiles more often than allowed. "
        "Without limits or a baseline, any break or recompile fails the check. Settings are read from "
        "[tool.dynamo-dap] in pyproject.toml.",
    )
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--max-breaks", type=int, metavar="N", help="allow N graph breaks (each line and reason counts once)"
    )
    limits.add_argument("--max-recompiles", type=int, metavar="N")
    limits.add_argument("--max-graphs", type=int, metavar="N")
    limits.add_argument("--max-compile-seconds", type=float, metavar="S")
    limits.add_argument("--no-skips", action="store_true", help="fail if a function was skipped")
    limits.add_argument(
        "--function",
        action="append",
        default=[],
        metavar="PATTERN:LIMIT=N",
        help='a limit for functions by name: "Model.*:max-breaks=0"',
    )
    limits.add_argument(
        "--baseline", metavar="FILE", help="accept the findings in this file; only new ones fail the check"
    )
    limits.add_argument(
        "--update", action="store_true", help=f"write the findings to the baseline ({_BASELINE} without --baseline)"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print JSON; the program's own output goes to stderr")
    output.add_argument("--sarif", type=Path, metavar="FILE", help="write SARIF 2.1.0")
    output.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit's XML")
    output.add_argument(
        "--annotations",
        action="store_true",
        default="GITHUB_ACTIONS" in os.environ,
        help="print annotations for GitHub; the default if GITHUB_ACTIONS is set",
    )
    parser.add_argument(
        "--record",
        type=Path,
        action="append",
        metavar="FILE",
        help="check this record, or this TORCH_TRACE folder or log, instead of running a program",
    )
    add_program(parser, "the Python file, or pytest")
    return parser


def _settings(options: argparse.Namespace, folder: Path) -> Settings:
    settings = settings_of_project(folder)
    names = ("max_breaks", "max_recompiles", "max_graphs", "max_compile_seconds", "baseline")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    functions = dict(settings.functions)
    for text in options.function:
        pattern, limits = _limit_of_functions(text)
        functions[pattern] = msgspec.structs.replace(functions.get(pattern, Limits()), **limits)
    settings = msgspec.structs.replace(
        settings, **given, no_skips=settings.no_skips or options.no_skips, functions=functions
    )
    if options.update and settings.baseline is None:
        settings = msgspec.structs.replace(settings, baseline=str(folder / _BASELINE))
    return settings


def _limit_of_functions(text: str) -> tuple[str, dict[str, float]]:
    pattern, _, limit = text.rpartition(":")
    name, _, number = limit.partition("=")
    known = {one.encode_name: one.name for one in msgspec.structs.fields(Limits)}
    try:
        if pattern and name in known:
            value = float(number) if name == "max-compile-seconds" else int(number)
            return pattern, {known[name]: value}
    except ValueError:
        pass
    raise WrongSettings(f"--function takes PATTERN:LIMIT=N, LIMIT one of {', '.join(known)}; got {text}")


def _described(parser: argparse.ArgumentParser, options: argparse.Namespace) -> LaunchDescription:
    given = given_program(parser, options)
    if given.program is None or Path(given.program).is_file():
        return given
    if given.program == "pytest":
        return LaunchDescription(module="pytest", args=given.args)
    raise WrongSettings(f"{given.program} does not exist")


def _run(description: LaunchDescription, options: argparse.Namespace) -> tuple[list[Record], int]:
    """Run the program, and return the records of all its processes and its exit status."""
    with tempfile.TemporaryDirectory(prefix="dynamo-dap-check-", ignore_cleanup_errors=True) as folder:
        command, variables = launching(options.python, msgspec.structs.replace(description, with_children=True))
        environment = {**os.environ, **variables, RECORDS_VARIABLE: folder, CHECK_VARIABLE: "1"}
        try:
            process = subprocess.Popen(command, env=environment, stdout=sys.stderr if options.json else None)
        except OSError as error:
            raise WrongSettings(f"cannot run {options.python}: {error.strerror or error}") from None
        status = _status_of(process)
        return list(_records_in(Path(folder))), status


def _records_in(folder: Path) -> Iterator[Record]:
    for path in sorted(folder.rglob(f"*{SUFFIX}")):
        try:
            yield read_record(path)
        except UnreadableRecord:
            # A process that was killed at its first write leaves an empty record.
            continue


def _status_of(process: subprocess.Popen[bytes]) -> int:
    """Wait for the program, and return its exit status. Ctrl-C also reaches the program, which then has time to end."""
    try:
        status = process.wait()
    except KeyboardInterrupt:
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(_INTERRUPTED_SECONDS)
        if process.poll() is None:
            process.kill()
        status = process.wait() or 130
    # For a program that a signal ended: 128 plus the signal's number, as in a shell.
    return 128 - status if status < 0 else status


def _write(options: argparse.Namespace, verdict: Verdict, found: Found, ran: ProgramOutcome, folder: Path) -> None:
    console = Console(highlight=False, stderr=options.json)
    print_verdict(verdict, found, console)
    for process in ran.processes:
        if not process.ended:
            reported = f"process {process.id} ({process.program}) was killed or still runs: it may have compiled more"
            console.print(f"dynamo-dap: {reported}", markup=False, soft_wrap=True)
    if ran.status:
        console.print(f"dynamo-dap: the program ended with exit status {ran.status}")
    if options.annotations:
        for line in workflow_commands(verdict):
            console.print(line, markup=False, soft_wrap=True)
    if options.json:
        sys.stdout.write(as_json(verdict, found, ran).decode() + "\n")
    for path, text in ((options.sarif, as_sarif(verdict)), (options.junit, as_junit(verdict, found, folder))):
        if path is not None:
            try:
                write_output(path, text)
            except OSError as problem:
                raise WrongSettings(f"cannot write {path}: {problem.strerror or problem}") from None
