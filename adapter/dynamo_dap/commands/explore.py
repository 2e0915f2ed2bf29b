"""``dynamo-dap explore``: runs a program or reads a trace log, and shows compiles from the user's lines to kernels.

The stages are saved beside the working directory's records; without a program, the newest are shown. Runs on the
command's main thread.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from dynamo_dap.explore.file import SUFFIX, UnreadableStages, files_of_run, read_run, stages_in
from dynamo_dap.explore.html_page import html_page
from dynamo_dap.explore.model import STAGES, Document, Explored, in_order
from dynamo_dap.explore.text import print_counterparts, print_overview, print_stage
from dynamo_dap.protocol.output_files import NotOurs, check_output, write_output
from dynamo_dap.records.file import UnreadableRecord
from dynamo_dap.records.folders import new_name, records_folder
from dynamo_dap.records.program import add_program, given_program, read_options, run_program
from dynamo_dap.trace_logs.logs import WrongMapping, is_trace, mappings_of
from dynamo_dap.trace_logs.stages import stages_of

_WIDTH = 120


class _NothingToShow(Exception):
    """The requested part does not exist; the text lists the existing ones."""


def main(arguments: list[str]) -> int:
    """Run a program and show its stages; return its exit status, 1 where there is nothing to show."""
    parser = _parser()
    options = read_options(parser, arguments)
    trace = _given_trace(parser, options)
    status = 0
    try:
        if options.html is not None:
            # Check before a run that may take hours.
            check_output(options.html)
        if trace is not None:
            _show(options, _chosen(options, _in_log(trace, options)))
            return 0
        file = _newest() if options.program is None and options.module is None else None
        if file is None:
            file = records_folder(Path.cwd()) / f"{new_name()}{SUFFIX}"
            status = _run(options, file)
        _show(options, _chosen(options, _of_run(file)))
    except (_NothingToShow, UnreadableStages, UnreadableRecord, WrongMapping, NotOurs) as problem:
        print(f"dynamo-dap: {problem}", file=sys.stderr)  # noqa: T201 - the user of a terminal reads it
        return status or 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap explore",
        description="Run a program and show its lines at each stage: Dynamo's graph, AOTAutograd's, Inductor's "
        "operations, output code and kernels. Without a program, show the last explored stages of this directory. "
        "The program compiles without caches of compiled graphs. Give a TORCH_TRACE folder or log instead of a program "
        "to show its content.",
        epilog="Stages: " + ", ".join(STAGES) + ". The last part of a stage's name is enough: kernels.",
    )
    parser.add_argument("--function", metavar="NAME", help="only compiles of functions whose name contains this")
    parser.add_argument("--stage", metavar="NAME", help="print this stage, and the changes by its passes")
    parser.add_argument("--line", metavar="[FILE:]LINE", help="print one of your lines, stage by stage")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a self-contained HTML page with linked panes")
    parser.add_argument(
        "--map", action="append", default=[], metavar="REMOTE=LOCAL", help="for a trace log, as in dynamo-dap report"
    )
    add_program(parser)
    return parser


def _given_trace(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Path | None:
    """Return the trace log that was given instead of a program; parse the words after it as this command's options."""
    words = options.program or []
    if not words or not is_trace(Path(words[0])):
        return None
    options.program = None
    parser.parse_args(words[1:], namespace=options)
    if options.program is not None or options.module is not None:
        parser.error("give one trace log or one program")
    return Path(words[0])


def _in_log(trace: Path, options: argparse.Namespace) -> list[Explored]:
    compiles, is_truncated = stages_of(trace, mappings_of(options.map), options.function)
    if is_truncated:
        print(  # noqa: T201 - the user of a terminal reads it
            "dynamo-dap: the log is too large to show all of its graphs and code: choose compiles by --function",
            file=sys.stderr,
        )
    if not compiles and options.function is None:
        raise _NothingToShow(f"{trace} has no graph and no code")
    return compiles


def _newest() -> Path:
    found = stages_in(records_folder(Path.cwd()))
    if not found:
        raise _NothingToShow("no program has been explored in this directory: give one")
    return found[-1]


def _run(options: argparse.Namespace, file: Path) -> int:
    description = msgspec.structs.replace(given_program(_parser(), options), explore=str(file), with_children=True)
    return run_program(options.python, description, prints_for_others=True)


def _of_run(file: Path) -> list[Explored]:
    if not files_of_run(file):
        raise _NothingToShow("the program compiled nothing")
    return read_run(file)


def _chosen(options: argparse.Namespace, compiles: Sequence[Explored]) -> list[Explored]:
    found = [each for each in compiles if options.function is None or options.function in each.name]
    if not found:
        names = ", ".join(dict.fromkeys(each.name for each in compiles))
        raise _NothingToShow(f"no compile of '{options.function}'; there are: {names or 'none'}")
    if options.stage is None:
        return found
    chosen = [msgspec.structs.replace(each, documents=_stages(each, options.stage)) for each in found]
    if not any(each.documents for each in chosen):
        names = ", ".join(dict.fromkeys(document.id for each in found for document in in_order(each.documents)))
        raise _NothingToShow(f"no stage '{options.stage}'; there are: {names}")
    return chosen


def _stages(compiled: Explored, name: str) -> list[Document]:
    exact = [each for each in compiled.documents if each.id == name]
    return exact or [each for each in compiled.documents if each.id.endswith(f"-{name}")]


def _show(options: argparse.Namespace, compiles: Sequence[Explored]) -> None:
    if options.html is not None:
        write_output(options.html, html_page(compiles), is_private=True)
        print(options.html)  # noqa: T201 - the user of a terminal reads it
        return
    if options.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(list(compiles)), indent=2).decode() + "\n")
        return
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _WIDTH
    for each in compiles:
        if options.line is not None:
            print_counterparts(each, options.line, console)
        elif options.stage is not None:
            print_stage(each, console)
        else:
            print_overview(each, console)
