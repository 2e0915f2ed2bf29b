"""``dynamo-dap bisect``: finds the wrong stage of a compile, down to the pass, decomposition or lowering.

The program runs several times, each time in a new process with a time limit: first uncompiled, then with one more stage
per run. The command bisects the first wrong stage: torch's ``CompilerBisector`` disables its parts. Runs on the
command's main thread.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dynamo_dap.protocol.requests.bisection import (
    PARTS,
    SETTINGS,
    STAGES,
    BisectedBody,
    BisectedItem,
    BisectionRun,
    first_bad,
)
from dynamo_dap.protocol.requests.contract import LaunchDescription
from dynamo_dap.records.program import UNCOMPILED, add_program, given_program, launching, read_options
from dynamo_dap.records.repeated_input import RepeatedInput
from dynamo_dap.records.report.bisection_text import (
    BY_EXIT,
    BY_OUTPUT,
    PROGRAM_MEANING,
    Verdict,
    text_without_fault,
    verdict_text,
)

_PROGRAM = "program"
_FRESH = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
"""Turns off torch's caches, whose hits skip stages. The C++ compiler's cache stays on: it depends on the code alone."""
WRONG, NO_ANSWER, CANCELLED = 1, 2, 130
"""Exit statuses: a stage is wrong; there is nothing to bisect; the user interrupted."""


@dataclass
class _Ended:
    """A finished run."""

    problem: str | None
    status: int
    output: bytes
    reported: BisectedBody

    @property
    def is_good(self) -> bool:
        return self.problem is None


def main(arguments: list[str]) -> int:
    """Bisect a program and print the result; return 1 if a stage is wrong, 2 if there is nothing to bisect."""
    parser = _parser()
    options = read_options(parser, arguments)
    program = given_program(parser, options)
    with tempfile.TemporaryDirectory(prefix="dynamo-dap-") as folder:
        bisection = _Bisection(options, program, Path(folder), report=lambda text: _print_status(text + "\n"))
        try:
            found = bisection.verdict()
        except _NothingToFind as reason:
            _print_status(f"dynamo-dap: {reason}\n")
            return NO_ANSWER
        except KeyboardInterrupt:
            _print_status("cancelled\n")
            return CANCELLED
    if found is not None:
        found.text = verdict_text(found)
    if options.json:
        sys.stdout.write(msgspec.json.encode(_as_json(found)).decode() + "\n")
    else:
        sys.stdout.write(text_without_fault(options.check) if found is None else found.text)
    return 0 if found is None else WRONG


def _as_json(found: Verdict | None) -> dict[str, object] | None:
    """Return the object to print. Version 0.2.0 called ``item`` ``thing``, so this undocumented key repeats it."""
    if found is None:
        return None
    values: dict[str, object] = msgspec.to_builtins(found)
    return {**values, "thing": values["item"]}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap bisect",
        description="Run a program uncompiled, then with one more compiler stage each time. Print the wrong stage, the "
        "pass, decomposition or lowering in it, and your line. The program's backend is replaced. If all stages are "
        "right, the program also runs with its own backend. Each run gets the standard "
        "input of this command, unless that is a terminal. The exit status is 1 if a stage is wrong, 2 if the "
        "program also fails uncompiled.",
    )
    parser.add_argument(
        "--check",
        default=BY_EXIT,
        metavar="CHECK",
        help='how to recognize a correct run: "exit" (status 0; default), "output" (prints the same as uncompiled), or '
        "a Python expression that is true in the program's module at its end. The last two also compare the exit "
        "status with that of the uncompiled run.",
    )
    parser.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS", help="for one run; default: 300")
    parser.add_argument("--json", action="store_true", help="print JSON: one object, or null if every stage is right")
    add_program(parser)
    return parser


class _NothingToFind(Exception):
    """Nothing can be bisected; the text says why."""


class _Bisection:
    """The runs of one program."""

    def __init__(
        self, options: argparse.Namespace, program: LaunchDescription, folder: Path, report: Callable[[str], None]
    ) -> None:
        self._options = options
        self._program = program
        self._result = folder / "result.json"
        self._report = report
        self._expected: _Ended | None = None
        self._input = RepeatedInput()

    def verdict(self) -> Verdict | None:
        """Find the wrong stage; None if there is none."""
        plain = self._run("uncompiled", UNCOMPILED)
        if plain.problem is not None:
            raise _NothingToFind(f"the program is wrong without torch.compile, too: {plain.problem}")
        self._expected = plain
        for stage, meaning in STAGES.items():
            ended = self._run(f"{stage} ({meaning})", self._stage(stage))
            if ended.problem is not None:
                self._prove_repeatable()
                return self._part_at_fault(stage, ended.problem)
        # The runs so far replaced the program's own backend.
        ended = self._run(PROGRAM_MEANING, _FRESH)
        if ended.problem is None:
            return None
        self._prove_repeatable()
        return Verdict(_PROGRAM, ended.problem)

    def _prove_repeatable(self) -> None:
        """Run the program uncompiled again. If its check fails now, failed checks prove nothing about the stages."""
        if self._options.check != BY_EXIT and not self._run("uncompiled, again", UNCOMPILED).is_good:
            raise _NothingToFind(
                "the check's result differs between uncompiled runs: seed the program's random numbers "
                "(torch.manual_seed(0)), or give a --check that does not depend on them"
            )

    @staticmethod
    def _stage(stage: str, part: str | None = None, last: int | None = None) -> dict[str, str]:
        """Return the environment variables for a stage; items of ``part`` after number ``last`` are disabled."""
        variables = {**_FRESH, "TORCH_BISECT_BACKEND": stage}
        if part is not None:
            variables |= {"TORCH_BISECT_SUBSYSTEM": part, "TORCH_BISECT_MAX": str(last)}
        return variables

    def _part_at_fault(self, stage: str, problem: str) -> Verdict:
        for part in PARTS.get(stage, ()):
            if self._run(f"{stage} without {part.replace('_', ' ')}", self._stage(stage, part, -1)).is_good:
                return self._halved(stage, part, problem)
        for name, value in SETTINGS.get(stage, {}).items():
            # No part is called "settings", but torch reads settings only while it bisects a part.
            variables = {**self._stage(stage), "TORCH_BISECT_SUBSYSTEM": "settings"}
            if self._run(f"{stage} with {name} = {value}", variables, {name: value}).is_good:
                return Verdict(stage, problem, settings={name: value})
        return Verdict(stage, problem)

    def _halved(self, stage: str, part: str, problem: str) -> Verdict:
        whole = self._run(f"{stage} with all {part.replace('_', ' ')}", self._stage(stage, part, sys.maxsize))
        items: dict[int, BisectedItem | None] = {}

        def is_good(last: int) -> bool:
            text = f"{stage} with {last + 1} of {whole.reported.count} {part.replace('_', ' ')}"
            ended = self._run(text, self._stage(stage, part, last), number=last)
            items[last] = ended.reported.item
            return ended.is_good

        bad = first_bad(whole.reported.count, is_good)
        item = items.get(bad)
        if item is None:
            item = self._run(f"{stage}: which one", self._stage(stage, part, bad), number=bad).reported.item
        return Verdict(stage, problem, part, bad + 1, item)

    def _run(
        self,
        what: str,
        variables: Mapping[str, str],
        settings: Mapping[str, bool] | None = None,
        number: int | None = None,
    ) -> _Ended:
        options = self._options
        check = None if options.check in (BY_EXIT, BY_OUTPUT) else options.check
        self._result.unlink(missing_ok=True)
        run = BisectionRun(str(self._result), check, number, dict(settings or {}))
        command, described = launching(options.python, msgspec.structs.replace(self._program, bisection=run))
        with self._input.for_a_run() as given:
            done = _run_limited(command, {**os.environ, **variables, **described}, options.timeout, given)
        if done is None:
            ended = _Ended(f"not done after {options.timeout:g} s", 0, b"", BisectedBody())
        else:
            body = self._result.read_bytes() if self._result.exists() else b"{}"
            reported = msgspec.json.decode(body, type=BisectedBody)
            if reported.problem is not None:
                raise _NothingToFind(reported.problem)
            ended = _Ended(self._problem(done, reported), done.returncode, done.stdout, reported)
        self._report(f"{what}: {'right' if ended.problem is None else ended.problem}")
        return ended

    def _problem(self, done: subprocess.CompletedProcess[bytes], reported: BisectedBody) -> str | None:
        if done.returncode != self._expected_status(done.returncode, has_raised=reported.has_raised):
            last = done.stderr.decode(errors="replace").strip().splitlines()
            errors = [line for line in last if "Error" in line or "Exception" in line] or last
            return f"exit status {done.returncode}{': ' + errors[-1] if errors else ''}"
        if self._options.check not in (BY_EXIT, BY_OUTPUT) and reported.check is not True:
            if reported.check is None:
                return "the check was not evaluated: the program did not reach its end"
            return f"not {self._options.check}"
        if self._options.check == BY_OUTPUT and self._expected is not None and self._expected.output != done.stdout:
            return "it prints something else"
        return None

    def _expected_status(self, status: int, *, has_raised: bool) -> int:
        """Return the exit status of a good run: 0, or with ``--check`` that of the uncompiled run."""
        if self._options.check == BY_EXIT:
            return 0
        if self._expected is not None:
            return self._expected.status
        # The uncompiled run may have any status, unless a signal or an exception ended it.
        return 0 if status < 0 or has_raised else status


def _print_status(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _run_limited(
    command: list[str], environment: Mapping[str, str], seconds: float, given: int
) -> subprocess.CompletedProcess[bytes] | None:
    """Run a command and return its result; at the time limit, kill it and its children and return None."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=environment, stdin=given, stdout=pipe, stderr=pipe, start_new_session=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except BaseException as problem:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(problem, subprocess.TimeoutExpired):
                return None
            raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)
