"""``dynamo-dap minify``: runs torch's minifier until it has a small program that fails in the same way.

The program runs until a compile fails. Then torch's minifier makes the graph smaller in that process, which has the
program's own backends and lowerings. The result runs once, to see whether it fails without the program. If
``--accuracy`` finds no wrong graph, each call is compared as by ``dynamo-dap compare``: a difference need not be in a
graph. Runs on the command's main thread; another thread reads the process's output.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path

import msgspec

from dynamo_dap.commands.compare import read_comparisons
from dynamo_dap.protocol.requests.comparisons import ComparisonBody
from dynamo_dap.protocol.requests.contract import LaunchDescription
from dynamo_dap.protocol.requests.minifying import OUTCOME, MinifiedBody, MinifyingRun
from dynamo_dap.records.program import add_program, given_program, launching, read_options
from dynamo_dap.records.repeated_input import RepeatedInput

_FOLDER = "minified"
_RESULT = "minified.py"
_STAGES = {
    "aot": "what AOTAutograd gave to Inductor",
    "dynamo": "what Dynamo gave to the backend",
}
"""The graph to minify, by torch's name of the stage that made it."""
_FAILURE, _ACCURACY = "2", "4"
_DYNAMO = "Dynamo"
_NOT_IN_GRAPH = "It cannot be smaller: Dynamo's graph differs from the function, and a minimized program is one graph."
_PASSES = "It was not made smaller: each compiled graph, run alone, passes the check of torch's minifier."
"""Why torch's minifier cannot reduce a difference between calls."""
_NODES = re.compile(r"SUCCESS: Went from (\d+) to (\d+) nodes|Started off with (\d+) nodes")
_ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception|Interrupt)\b(: .*)?$")
"""The line of a traceback that names the exception."""
_KIND = re.compile(r"\b\w*(?:Error|Exception|Interrupt)\b")
_WRONG = "AccuracyError"
"""Torch's exception for wrong results. Its message depends on the stage."""
_CLASSES = re.compile(r"^(?:[\w.]*(?:Error|Exception|Interrupt|\w*Failed)\b(?:: |:?$))+")
"""The classes before an exception's message."""
_SIMILAR = 0.5
"""Torch's own threshold: the names and sizes in a message may differ in a smaller graph."""
_MOST = 300
"""The most characters of an error to show."""
NOT_FOUND, CANCELLED = 2, 130
"""Exit statuses: there is nothing to minify; the user interrupted."""


class _Timeout(Exception):
    """The time limit has passed."""


def main(arguments: list[str]) -> int:
    """Minify a program's failing graph; print where the result is."""
    parser = _parser()
    options = read_options(parser, arguments)
    program = given_program(parser, options)
    folder = _new_folder(Path(program.program or str(program.module)).stem)
    minifying = _Minifying(options, folder)
    status = 0
    try:
        minifying.run(program)
    except _Timeout:
        _print_status(f"the time limit has passed ({options.timeout:g} s)")
    except KeyboardInterrupt:
        _print_status("cancelled")
        status = CANCELLED
    result = minifying.result()
    if result is None:
        shutil.rmtree(folder, ignore_errors=True)
        _print_status(minifying.problem or "no result yet")
        return status or NOT_FOUND
    _print(options, result, minifying)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap minify",
        description="Run a program until its compile fails or, with --accuracy, gives wrong results. Then torch's "
        "minifier makes the graph smaller while it fails in the same way. The result is a program in a folder below "
        "'minified'. Ctrl-C ends the search and keeps the smallest graph so far.",
    )
    parser.add_argument("--accuracy", action="store_true", help="look for wrong results, not for errors")
    parser.add_argument(
        "--stage", choices=tuple(_STAGES), help="take the graph after AOTAutograd or after Dynamo; "
        "default: AOTAutograd first, then Dynamo if nothing fails"
    )  # fmt: skip
    parser.add_argument("--timeout", type=float, default=1800.0, metavar="SECONDS", help="for all of it; default: 1800")
    parser.add_argument("--json", action="store_true", help="print JSON: one object")
    add_program(parser)
    return parser


class JsonMinified(msgspec.Struct):
    """What ``--json`` prints."""

    path: str
    """The minimized program."""
    stage: str
    nodes: int
    """Nodes of its graph."""
    before: int
    """Nodes of the original graph."""
    error: str
    """The error with which it fails."""
    fails_alone: bool = True
    """Whether it fails with that error without the program; otherwise it may lack what the program registers."""


class _Minifying:
    """Minifies the graph of one program."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._end = time.monotonic() + options.timeout
        self._input = RepeatedInput()
        self.problem: str | None = None
        """Why there is nothing to minify."""
        self.stage = ""
        self.nodes: tuple[int, int] = (0, 0)
        """How many nodes the graph had, and has now."""
        self.error = ""
        """The result's error."""
        self.fails_alone = False
        self.other_error = ""
        """Another error, with which the result ends without the program."""
        self.is_complete = True
        """Whether torch's minifier ended its search by itself."""

    def run(self, program: LaunchDescription) -> None:
        """Run the program with the minifier, then the result."""
        asked = msgspec.structs.replace(program, minifying=MinifyingRun(str(self._folder)))
        command, variables = launching(self._options.python, asked)
        for stage in [self._options.stage] if self._options.stage else _STAGES:
            self.stage = stage
            _print_status(f"running the program, to take {_STAGES[stage]} when it fails")
            error = self._process(command, Path.cwd(), variables)[1]
            outcome = self._outcome()
            if outcome is not None:
                break
        else:
            if self._options.accuracy:
                self.problem = _why_no_graph(self._comparisons(program))
            else:
                self.problem = f"no compile of the program fails{', but it raises ' + error if error else ''}"
            return
        self.error = outcome.error.partition("\n")[0][:_MOST]
        result = self.result()
        if result is None:
            self.problem = f"torch's minifier has written nothing: {outcome.problem or 'no error is known'}"
            return
        self.is_complete = outcome.problem is None
        if not self.is_complete:
            _print_status(f"torch's minifier did not reach its end: {outcome.problem}")
        _print_status("running the result without the program")
        status, error = self._process([self._options.python, str(result)], self._folder)
        if status < 0:
            error = f"signal {-status}"
        self.fails_alone = _is_same_failure(error, self.error)
        if self.fails_alone:
            self.error = error
        elif status != 0:
            self.other_error = error or f"exit status {status}"

    def _comparisons(self, program: LaunchDescription) -> list[ComparisonBody]:
        _print_status("running the program, to compare its calls")
        file = self._folder / "comparisons.jsonl"
        asked = msgspec.structs.replace(program, comparisons=str(file), with_children=True)
        command, variables = launching(self._options.python, asked)
        with self._input.for_a_run() as given:
            _watched(command, {**os.environ, **variables}, Path.cwd(), lambda line: None, self._end, given)
        return read_comparisons(file)

    def _outcome(self) -> MinifiedBody | None:
        file = self._folder / OUTCOME
        return msgspec.json.decode(file.read_bytes(), type=MinifiedBody) if file.exists() else None

    def result(self) -> Path | None:
        """Return the smallest program so far, or None."""
        written, result = self._folder / "repro.py", self._folder / _RESULT
        if written.is_file():
            written.replace(result)
        return result if result.is_file() else None

    def _note(self, line: str) -> None:
        found = _NODES.search(line)
        if found is None:
            return
        # Keep the first count: torch's minifier may start again from a part of the graph.
        first = self.nodes[0] or int(found[3] or found[1])
        now = int(found[3] or found[2])
        if (first, now) == self.nodes:
            return
        self.nodes = first, now
        _print_status(f"{self.nodes[1]} of {first} nodes")

    def _process(self, command: list[str], directory: Path, more: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Run a process; return its status, and the last error that it printed."""
        variables = {
            **(more or {}),
            "TORCHDYNAMO_REPRO_AFTER": self.stage,
            "TORCHDYNAMO_REPRO_LEVEL": _ACCURACY if self._options.accuracy else _FAILURE,
            "TORCH_COMPILE_DEBUG_DIR": str(self._folder),
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
            # A forked process cannot use its parent's thread pool.
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        errors = [""]

        def note(line: str) -> None:
            self._note(line)
            if _ERROR.match(line):
                errors.append(line.rstrip()[:_MOST])

        with self._input.for_a_run() as given:
            status = _watched(command, {**os.environ, **variables}, directory, note, self._end, given)
        return status, errors[-1]


def _why_no_graph(calls: Sequence[ComparisonBody]) -> str:
    """Return why no graph with wrong results was found, judged by a comparison of the program's calls."""
    wrong = next((each for each in calls if each.compared and not each.same), None)
    if wrong is not None:
        place = "" if wrong.path is None else f" at {os.path.relpath(wrong.path)}:{wrong.line}"
        why = _NOT_IN_GRAPH if wrong.stage == _DYNAMO else _PASSES
        return f"call {wrong.call} of {wrong.function} differs{place}. Cause: {wrong.verdict} {why}"
    reason = next((f"{each.function}: {each.verdict}" for each in calls if not each.compared), None)
    if reason is not None:
        return f"torch's minifier found no difference, and some calls could not be compared: {reason}"
    if not calls:
        return "the program made no compiled call that could be compared"
    return f"no result differs: {len(calls)} {'call' if len(calls) == 1 else 'calls'} compared"


def _is_same_failure(error: str, other: str) -> bool:
    """Return whether two errors have a class in common and similar messages, as torch's minifier compares them."""
    common = set(_KIND.findall(error)) & set(_KIND.findall(other))
    if not common or _WRONG in common:
        return bool(common)
    one, two = (_CLASSES.sub("", each, count=1) for each in (error, other))
    return SequenceMatcher(None, one, two, autojunk=False).ratio() > _SIMILAR


def _watched(
    command: list[str],
    environment: Mapping[str, str],
    directory: Path,
    note: Callable[[str], None],
    end: float,
    given: int,
) -> int:
    """Run a command and return its status; give each printed line to ``note`` at once.

    At the time ``end``, or if the user interrupts, kill the command and its children.

    Raises:
        _Timeout: the time ``end`` has passed.
    """
    lines: queue.Queue[str | None] = queue.Queue()
    with subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdin=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
        reader.start()
        try:
            while (line := lines.get(timeout=max(end - time.monotonic(), 0))) is not None:
                note(line)
            return process.wait(timeout=max(end - time.monotonic(), 0))
        except (queue.Empty, subprocess.TimeoutExpired):
            raise _Timeout from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            reader.join(timeout=5)


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None, "it is a pipe"
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def _new_folder(name: str) -> Path:
    number = 1
    while (folder := Path.cwd() / _FOLDER / f"{name}-{number}").exists():
        number += 1
    folder.mkdir(parents=True)
    return folder


def _print_status(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _print(options: argparse.Namespace, result: Path, minifying: _Minifying) -> None:
    before, after = minifying.nodes
    if options.json:
        reported = JsonMinified(str(result), minifying.stage, after, before, minifying.error, minifying.fails_alone)
        sys.stdout.write(msgspec.json.encode(reported).decode() + "\n")
        return
    smaller = "" if after < before or not minifying.is_complete else ": nothing smaller fails"
    sys.stdout.write(
        f"{result}: {after} of {before} nodes of {_STAGES[minifying.stage]}{smaller}\n"
        f"  it fails with: {minifying.error or 'not run'}\n"
        + (
            f"Debug it with: {shlex.join(['dynamo-dap', 'debug', str(result)])}\n"
            if minifying.fails_alone
            else f"  alone, {_alone(minifying.other_error)}: it may lack what the program registers\n"
        )
    )


def _alone(other_error: str) -> str:
    return f"the file fails with another error, {other_error}" if other_error else "the file does not fail"
