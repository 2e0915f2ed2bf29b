"""``dynamo-dap compare``: runs a program, and prints line by line how compiled results differ from Dynamo's graph.

The program's process compares calls 1, 2, 4, 8, ... of each compiled graph, or each N-th call, without a stop. The
debugger's command ``compare`` prints the same table. Runs on the command's main thread.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from dynamo_dap.protocol.own_threads import own_thread
from dynamo_dap.protocol.requests.comparisons import (
    CALLS,
    GRADIENTS,
    NEVER_COMPARED,
    RUNNING,
    ComparisonBody,
)
from dynamo_dap.records.program import add_program, given_program, read_options, run_program
from dynamo_dap.records.report.comparison_text import print_comparison, print_problems

_WIDTH = 120
_POLL_SECONDS = 0.25
_FIRST_SECONDS = 5.0
"""After this time, a difference is printed before the program ends.

A terminal also shows which call is compared, and again each time the duration has doubled.
"""
DIFFERS = 1
"""Exit status if the program ended well and something differs."""
NOT_COMPARED = 3
"""Exit status if the program ended well, nothing differs, and some call could not be compared."""


def main(arguments: list[str]) -> int:
    """Run a program and print the comparison; return its exit status, else ``DIFFERS``, ``NOT_COMPARED`` or 0."""
    parser = _parser()
    options = read_options(parser, arguments)
    program = given_program(parser, options)
    with tempfile.TemporaryDirectory(prefix="dynamo-dap-") as folder:
        file = Path(folder) / "comparisons.jsonl"
        description = msgspec.structs.replace(
            program, comparisons=str(file), compare_every=options.every, with_children=True
        )
        with _showing_progress(file):
            status = run_program(options.python, description, prints_for_others=options.json)
        found = read_comparisons(file)
        calls = _calls_made(file, found)
    _print(found, calls, as_json=options.json, with_lines=options.lines)
    return status or _status(found)


@contextlib.contextmanager
def _showing_progress(file: Path) -> Iterator[None]:
    """Print each difference when the program writes it to ``file``: the run may last hours, or be killed.

    If a comparison takes long, print on a terminal which call it is for.
    """
    is_over = threading.Event()
    thread = own_thread("progress of comparisons", _show_progress, file, is_over)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _show_progress(file: Path, is_over: threading.Event) -> None:
    differences = _Differences(file)
    running = _Running(Path(f"{file}{RUNNING}"))
    is_terminal = sys.stderr.isatty()
    while not is_over.wait(_POLL_SECONDS):
        differences.show()
        if is_terminal:
            running.show()


class _Differences:
    """Prints differences that have been in a file for some seconds: a short run prints each once, in its table."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0
        self._left: list[tuple[float, str]] = []
        """The texts to print, each with its time."""

    def show(self) -> None:
        self._read_new()
        while self._left and time.monotonic() >= self._left[0][0]:
            sys.stderr.write(self._left.pop(0)[1])
            sys.stderr.flush()

    def _read_new(self) -> None:
        try:
            with self._file.open("rb") as file:
                file.seek(self._read)
                # The last line may not be complete yet.
                added = file.read().rpartition(b"\n")
        except OSError:
            return
        self._read += len(added[0]) + len(added[1])
        for line in added[0].splitlines():
            body = msgspec.json.decode(line, type=ComparisonBody)
            if body.compared and not body.same:
                what = f"{'the backward pass of ' if body.is_backward else ''}call {body.call} of {body.function}"
                place = "" if body.path is None else f" at {os.path.relpath(body.path)}:{body.line}"
                self._left.append((time.monotonic() + _FIRST_SECONDS, f"dynamo-dap: {what} differs{place}\n"))


class _Running:
    """Prints which call is compared, from time to time; the program names it in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._begun = 0, ""
        self._shown_at = _FIRST_SECONDS

    def show(self) -> None:
        try:
            now = self._file.stat().st_mtime_ns, self._file.read_text(encoding="utf-8")
        except OSError:
            return
        if now != self._begun:
            self._begun, self._shown_at = now, _FIRST_SECONDS
        seconds = time.time() - now[0] / 1e9
        if now[1] and seconds >= self._shown_at:
            self._shown_at *= 2
            sys.stderr.write(f"dynamo-dap: comparing {now[1]} ({seconds:.0f} s)\n")
            sys.stderr.flush()


def _calls_made(file: Path, found: Sequence[ComparisonBody]) -> int | None:
    """Return how many calls of compiled graphs the program made; None if a process has ended without its count."""
    file = Path(f"{file}{CALLS}")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    counts = [line.partition(" ") for line in lines]
    processes = {each.token.partition(".")[0] for each in found if each.token}
    return sum(int(count) for _, _, count in counts) if processes <= {process for process, _, _ in counts} else None


def read_comparisons(file: Path) -> list[ComparisonBody]:
    """Return the comparisons that the program wrote to ``file``, with backward passes merged into their calls."""
    lines = file.read_bytes().splitlines() if file.exists() else []
    return with_backward_passes([msgspec.json.decode(line, type=ComparisonBody) for line in lines])


def with_backward_passes(found: Sequence[ComparisonBody]) -> list[ComparisonBody]:
    """Merge the results of backward passes into their calls' comparisons."""
    passes: dict[str, list[ComparisonBody]] = {}
    for each in found:
        if each.is_backward:
            passes.setdefault(each.token, []).append(each)
    calls = [each for each in found if not each.is_backward]
    for call in calls:
        of_call = passes.get(call.token, [])
        if GRADIENTS in call.not_compared:
            call.not_compared.remove(GRADIENTS)
            reasons = [each.verdict for each in of_call if not each.compared]
            if reasons or not of_call:
                call.not_compared.append(f"{GRADIENTS}: {reasons[0] if reasons else 'no backward pass was run'}")
        for each in of_call:
            call.evidence += [one for one in each.evidence if one not in call.evidence]
            call.not_compared += [one for one in each.not_compared if one not in call.not_compared]
        wrong = next((each for each in of_call if each.compared and not each.same), None)
        if wrong is not None and call.stage is None:
            call.verdict, call.same, call.stage, call.part = wrong.verdict, False, wrong.stage, wrong.part
            call.stages, call.operation, call.of_operation = wrong.stages, wrong.operation, wrong.of_operation
            call.path, call.line, call.lines, call.outputs = wrong.path, wrong.line, wrong.lines, wrong.outputs
            call.is_backward = True
        raised = next((each for each in of_call if each.compared and each.same and each.path is not None), None)
        if raised is not None and call.same:
            call.verdict, call.operation, call.path, call.line = (
                raised.verdict,
                raised.operation,
                raised.path,
                raised.line,
            )
    return calls


def _status(found: Sequence[ComparisonBody]) -> int:
    if any(each.compared and not each.same for each in found):
        return DIFFERS
    return 0 if found and all(each.compared for each in found) else NOT_COMPARED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap compare",
        description="Run a program and compare the results of compiled graphs with those of Dynamo's graphs, line by "
        "line. The exit status is the program's. If the program succeeds, the status is 1 if something differs, and 3 "
        "if some call could not be compared.",
    )
    parser.add_argument(
        "--every",
        type=_count,
        default=0,
        metavar="N",
        help="compare each N-th call; default: calls 1, 2, 4, 8, ... of each graph",
    )
    parser.add_argument("--lines", action="store_true", help="also print the lines of calls without a difference")
    parser.add_argument("--json", action="store_true", help="print JSON: one object for each compared call")
    add_program(parser)
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give a number of at least 1")
    return number


def _print(found: Sequence[ComparisonBody], calls: int | None, *, as_json: bool, with_lines: bool) -> None:
    if as_json:
        for each in found:
            each.not_compared += NEVER_COMPARED
        sys.stdout.write("".join(msgspec.json.encode(each).decode() + "\n" for each in found))
        return
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _WIDTH
    if not found:
        console.print("No call of a compiled graph was compared.")
        console.print("[dim]To see the reason: dynamo-dap run PROGRAM, then dynamo-dap report[/dim]")
        return
    for each in found:
        shows_lines = with_lines or not (each.compared and each.same)
        print_comparison(each, console, with_lines=shows_lines, with_problem=False)
    print_problems(found, console)
    console.print(f"[dim]never compared: {', '.join(NEVER_COMPARED)}[/dim]")
    console.print(_summary(found, calls))


def _summary(found: Sequence[ComparisonBody], made: int | None) -> str:
    """Return how many calls differ, are the same, and were not compared; ``made`` is the number of all calls."""
    differ = sum(each.compared and not each.same for each in found)
    same = sum(each.compared and each.same for each in found)
    left_out = len(found) - differ - same
    rounded = sum(each.compared and each.same and each.outputs.rounding is not None for each in found)
    below = sum(each.below_dynamo and each.outputs.rounding is None for each in found)
    counts = [(differ, "red", "differ" if differ != 1 else "differs"), (same - rounded - below, "green", "same")]
    counts += [(below, "green", "same below Dynamo"), (rounded, "green", "within rounding")]
    counts.append((left_out, "yellow", "not compared"))
    calls = "call" if len(found) == 1 and made in (None, 1) else "calls"
    number = f"{len(found)} of {made}" if made is not None and made > len(found) else str(len(found))
    return f"{number} {calls}: " + ", ".join(
        f"[{style}]{count} {what}[/{style}]" for count, style, what in counts if count
    )
