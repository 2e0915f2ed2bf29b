"""Tries fixes: runs a program with and without an edit, and compares the results.

The edit is made on a copy that only these runs see; the user's files stay unchanged. The trial compares the counts of
the records, the exit status, the output, the results of compiled calls, and the final values of ``__main__``. Numbers
are equal within a tolerance. A program that fails without the edit is compared with an eager run. Runs on a command's
main thread, or a worker thread of the language server.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dynamo_dap.fixes.edits import Fix, edited
from dynamo_dap.fixes.further_checks import further_condition
from dynamo_dap.fixes.recorded_program import (
    CannotTry,
    Consents,
    RecordedProgram,
    check_unchanged,
    command_of,
    recorded_program,
    refuses_untrusted,
)
from dynamo_dap.fixes.source_files import encoded_source
from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE, LaunchDescription
from dynamo_dap.protocol.texts import counted
from dynamo_dap.records.advice.settings import Setting
from dynamo_dap.records.events import Record, Started
from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import SUFFIX
from dynamo_dap.records.model import Counts, counts_of
from dynamo_dap.records.program import UNCOMPILED, launching
from dynamo_dap.records.repeated_input import RepeatedInput

_TOLERANCE = 1e-4
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_ASSIGNED = re.compile(r"^\s*(\w+) = ", re.MULTILINE)
_OUTPUT = 20_000
_POLL_SECONDS = 0.2
_FURTHER = 4
"""How many fixes with further checks are tried."""


class Cancelled(CannotTry):
    """The user cancelled the trial."""


class Results(msgspec.Struct):
    """What a run computed, as ``debuggee.launch.runs.trial`` writes it: a few numbers for each value."""

    values: dict[str, object] = {}
    """The final values of ``__main__``."""
    calls: list[object] = []
    """The results of calls of compiled functions."""
    more_calls: int = 0
    """How many calls are not in ``calls``."""

    def count(self) -> int:
        """Return how many results there are to compare."""
        return len(self.values) + sum(call is not None for call in self.calls)


@dataclass(frozen=True)
class Outcome:
    """The result of one run."""

    counts: Counts
    status: int
    output: str
    errors: str
    results: Results
    seconds: float
    records: Sequence[Record] = ()
    """The records of the run's processes."""


@dataclass(frozen=True)
class Trial:
    """A fix and the result of trying it."""

    fix: Fix
    before: Outcome
    after: Outcome
    difference: str | None
    """How the result differs; None if it does not."""
    is_random: bool = False
    """Whether the result also varies without an edit: then a difference proves nothing."""
    reference: Outcome | None = None
    """The eager run to compare with, if the program fails without the fix."""
    needs: str | None = None
    """The data condition that the trace reaches only with the fix, and that needs another check."""

    @property
    def changes_result(self) -> bool:
        """Whether the program computes a different result."""
        return self.difference is not None and not self.is_random

    @property
    def helps(self) -> bool:
        """Whether breaks or recompiles decrease and neither increases, or only the number of graphs decreases.

        Without a break, code that ran eagerly may be compiled, which adds graphs.
        """
        graphs, *others = self._before_and_after()
        if all(new == old for old, new in others):
            return graphs[1] < graphs[0]
        return all(new <= old for old, new in others)

    def _before_and_after(self) -> list[tuple[int, int]]:
        return list(zip(*(_numbers(one.counts) for one in (self.before, self.after)), strict=True))

    @property
    def is_proven(self) -> bool:
        """Whether it helps, and the program has a result that stays the same."""
        return self.helps and self.difference is None and self._has_result

    @property
    def _has_result(self) -> bool:
        return bool(self._expected.results.count() or self._expected.output.strip())

    @property
    def _expected(self) -> Outcome:
        return self.before if self.reference is None else self.reference

    @property
    def verdict(self) -> str:
        """The result, as a sentence."""
        if self.is_random:
            helps = "helps" if self.helps else "does not help"
            return f"It {helps}, but the result differs from run to run, even without the edit: {self.difference}"
        if self.needs is not None and not self.is_proven:
            return f"The trace gets further, and needs a further check: {self.needs}"
        if self.difference is not None:
            return f"The result is not the same: {self.difference}"
        if not self._has_result:
            helps = "helps" if self.helps else "does not help"
            return f"It {helps}, but no result can be compared: the program prints nothing and leaves no values"
        results, output = self._expected.results, self._expected.output
        calls = len(results.calls) + results.more_calls
        parts = [_count(calls, "call", " of compiled functions") if self.reference is None else ""]
        parts += [_count(len(results.values), "value", " in __main__") if results.values else ""]
        parts += [_count(len(output.splitlines()), "line", " of output") if output else ""]
        same_as = "the same" if self.reference is None else "that of ordinary Python"
        same = f"the result is {same_as} ({', '.join(filter(None, parts))})"
        if self.helps:
            return f"It helps, and {same}"
        is_mixed = any(new < old for old, new in self._before_and_after())
        return f"Some counts fall and others rise; {same}" if is_mixed else f"It does not help; {same}"

    def summary(self) -> str:
        """Return the result as two sentences."""
        return f"{self.verdict}. {self._changes() or 'Graphs, breaks and recompiles are as before'}."

    def short_summary(self) -> str:
        """Return the result in a few words."""
        if self.changes_result:
            return "different result" if self.needs is None else "needs a further check"
        return self._changes() or "it does not help"

    def line(self) -> str:
        """Return the fix and its result in one line."""
        return f"Tried: {self.fix.title} ({self.short_summary()})"

    def _changes(self) -> str:
        names = ("graphs", "graph breaks", "recompiles")
        pairs = zip(names, self._before_and_after(), strict=True)
        return ", ".join(f"{name} {old} → {new}" for name, (old, new) in pairs if old != new)

    def text(self) -> str:
        """Return the whole result as readable lines."""
        rows = [("graphs", *(str(one.counts.graphs) for one in (self.before, self.after)))]
        rows += [("graph breaks", *(str(one.counts.breaks) for one in (self.before, self.after)))]
        rows += [("recompiles", *(str(one.counts.recompiles) for one in (self.before, self.after)))]
        rows += [("compiling", *(f"{one.counts.seconds:.1f} s" for one in (self.before, self.after)))]
        rows += [("whole run", *(f"{one.seconds:.1f} s" for one in (self.before, self.after)))]
        rows += [("exit status", *(str(one.status) for one in (self.before, self.after)))]
        table = [f"    {name:<14}{before:>10}{after:>10}" for name, before, after in (("", "before", "after"), *rows)]
        return "\n".join([self.fix.title, *table, f"    {self.verdict}."])


class JsonOutcome(msgspec.Struct, rename="camel"):
    """One run of the program."""

    graphs: int
    breaks: int
    recompiles: int
    exit_status: int
    compile_seconds: float
    seconds: float


class JsonTrial(msgspec.Struct, rename="camel"):
    """A fix and the result of its trial, as ``dynamo-dap fix --json`` prints it."""

    title: str
    is_proven: bool
    """Whether it helps and the result is the same."""
    verdict: str
    reference: str
    """What the result is compared with: the run without the fix, or an eager run if the run without the fix fails."""
    needs_trial: bool
    """Whether it assumes something about the data."""
    before: JsonOutcome
    after: JsonOutcome


def as_json(trials: Sequence[Trial]) -> bytes:
    """Return the result of each fix as a JSON list."""
    return msgspec.json.encode([_json_of(one) for one in trials])


def _json_of(trial: Trial) -> JsonTrial:
    return JsonTrial(
        title=trial.fix.title,
        is_proven=trial.is_proven,
        verdict=trial.verdict,
        reference="the run without the fix" if trial.reference is None else "ordinary Python",
        needs_trial=trial.fix.needs_trial,
        before=_numbers_of(trial.before),
        after=_numbers_of(trial.after),
    )


def _numbers_of(outcome: Outcome) -> JsonOutcome:
    return JsonOutcome(*_numbers(outcome.counts), outcome.status, outcome.counts.seconds, outcome.seconds)


def _count(number: int, word: str, rest: str) -> str:
    return f"{counted(number, word)}{rest}"


def _numbers(counts: Counts) -> tuple[int, int, int]:
    return counts.graphs, counts.breaks, counts.recompiles


# -- running -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Runner:
    """Runs one program in new processes."""

    program: Sequence[str]
    folder: str
    python: str
    seconds: float
    """Time limit of a run."""
    module: str | None = None
    """The argument of ``python -m``, if the program is a module."""
    report: Callable[[str], None] = lambda text: None
    """Called with each run's name when it begins."""
    is_cancelled: Callable[[], bool] = lambda: False
    """Polled while the program runs. May be called on any thread."""
    given: RepeatedInput | None = None
    """The program's input; None if it reads none."""
    recorded: RecordedProgram | None = None
    """The recorded program that the user agreed to run."""

    @property
    def command(self) -> str:
        """The command, as a user would type it."""
        return command_of(tuple(self.program), self.module)

    def run(
        self,
        copies: Mapping[str, str],
        which: str,
        settings: Sequence[Setting] = (),
        variables: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Run the program with torch settings and environment variables; ``copies`` has new contents of files by path.

        ``which`` names the run to ``report``.

        Raises:
            CannotTry: it did not end in time, or it cannot be run at all.
        """
        if self.recorded is not None:
            check_unchanged(self.recorded)
        self.report(which)
        with tempfile.TemporaryDirectory(prefix="dynamo-dap-try-") as folder:
            results, records = Path(folder, "results.json"), Path(folder, "records")
            places = {}
            for number, (path, text) in enumerate(copies.items()):
                copy = Path(folder, f"{number}.py")
                copy.write_bytes(encoded_source(text))
                places[path] = str(copy)
            description = LaunchDescription(
                program=None if self.module else self.program[0],
                module=self.module,
                args=list(self.program[1:]),
                copies=places,
                results=str(results),
                settings={one.key: one.value for one in settings if one.value is not None},
                added=_added(settings),
            )
            command, launch_variables = launching(self.python, description)
            # Every run begins with the same seeds, which the debugged process sets.
            environment = {**os.environ, **(variables or {}), **launch_variables, "PYTHONHASHSEED": "0"}
            environment[RECORDS_VARIABLE] = str(records)
            began = time.monotonic()
            status, output, errors = self._output_of(command, environment)
            seconds = time.monotonic() - began
            computed = msgspec.json.decode(results.read_bytes(), type=Results) if results.exists() else Results()
            known = [read_record(path) for path in records.rglob(f"*{SUFFIX}")]
        counts = counts_of([compiled for record in known for _, compiled in record.compiles()])
        return Outcome(counts, status, output, errors, computed, seconds, known)

    def _output_of(self, command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str, str]:
        if self.given is None:
            return self._output_with(command, environment, subprocess.DEVNULL)
        with self.given.for_a_run() as given:
            return self._output_with(command, environment, given)

    def _output_with(self, command: Sequence[str], environment: Mapping[str, str], given: int) -> tuple[int, str, str]:
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=self.folder,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise CannotTry(f"cannot run {self.python} in {self.folder}: {error.strerror or error}") from None
        end = time.monotonic() + self.seconds
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    output, errors = process.communicate(timeout=_POLL_SECONDS)
                    return process.returncode, output, errors
                if self.is_cancelled():
                    raise Cancelled("it was cancelled")
                if time.monotonic() > end:
                    raise CannotTry(f"the program did not end in {self.seconds:.0f} s; see --timeout")
        finally:
            if process.poll() is None:
                # Kill its child processes too.
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


def _added(settings: Sequence[Setting]) -> dict[str, list[str]]:
    added: dict[str, list[str]] = {}
    for one in settings:
        if one.adds is not None:
            added.setdefault(one.key, []).append(one.adds)
    return added


def runner_of(
    started: Started | None,
    program: Sequence[str],
    python: str,
    seconds: float,
    consents: Consents = refuses_untrusted,
) -> Runner:
    """Return a runner of ``program``, by default of the recorded program.

    Raises:
        CannotTry: the file to run does not exist, or ``consents`` refuses the recorded program.
    """
    if program:
        # The user typed this command line; it takes nothing from the record.
        if not Path(program[0]).is_file():
            raise CannotTry(f"{program[0]} does not exist")
        return Runner(program, str(Path.cwd()), python, seconds)
    recorded = recorded_program(started)
    consents(recorded)
    return Runner(recorded.program, recorded.folder, python, seconds, recorded.module, recorded=recorded)


def try_fixes(fixes: Sequence[Fix], runner: Runner, texts: Mapping[str, str]) -> list[Trial]:
    """Try each fix by itself; ``texts`` has the contents of unsaved files by path.

    Raises:
        CannotTry: the program cannot be run again.
    """
    before = runner.run(texts, "without the edit")
    if not before.counts.compiles:
        problem = before.errors.strip().splitlines()[-1:] or ["it compiles nothing"]
        raise CannotTry(f"the program compiled nothing when it ran again: {problem[0]}")
    reference = None
    if before.status != 0:
        # The program fails without the fix, so that only an eager run has results to compare with.
        eager = runner.run(texts, "as ordinary Python", variables=UNCOMPILED)
        reference = eager if eager.status == 0 else None
    trials: list[Trial] = []
    waiting = deque(fixes)
    more = _FURTHER
    while waiting:
        fix = waiting.popleft()
        documents = {edit.document.path: edit.document for edit in fix.edits}
        texts_after = {path: edited(document, fix.edits) for path, document in documents.items()}
        after = runner.run(
            {**texts, **texts_after}, "with the setting" if fix.settings else "with the edit", fix.settings
        )
        own = {name for edit in fix.edits for name in _ASSIGNED.findall(edit.text)}
        difference = _difference(reference or before, after, own, with_calls=reference is None)
        is_random = difference is not None and reference is None and before.status == after.status
        is_random = is_random and _difference(before, runner.run(texts, "without the edit, again"), ()) is not None
        further = further_condition(fix, before.records, after.records)
        trial = Trial(fix, before, after, difference, is_random, reference, None if further is None else further.text)
        trials.append(trial)
        if further is not None and not trial.is_proven:
            waiting.extend(further.fixes[:more])
            more -= len(further.fixes[:more])
    return trials


# -- comparing -----------------------------------------------------------------------------------------------------


def _difference(before: Outcome, after: Outcome, own_names: Collection[str], *, with_calls: bool = True) -> str | None:
    """Return how the result with an edit differs; ``own_names`` are variables that only the edit makes."""
    if before.status != after.status:
        last = _last_line(after.errors)
        if before.status == 0:
            return f"it crashes with {last or f'exit status {after.status}'}"
        return f"exit status {after.status} instead of {before.status}: {last}"
    endings = [_last_line(one.errors) for one in (after, before)] if after.status != 0 else ["", ""]
    if endings[0] != endings[1]:
        return f"it ends with {endings[0]!r} instead of {endings[1]!r}"
    then, now = before.results, after.results
    names = sorted({*then.values, *now.values}.difference(name for name in own_names if name not in then.values))
    missing = {*then.values} ^ {*now.values}
    changed = [name for name in names if name in missing or not _are_equal(then.values[name], now.values[name])]
    if changed:
        return f"different values in __main__: {', '.join(changed)}"
    if with_calls and (len(then.calls), then.more_calls) != (len(now.calls), now.more_calls):
        counts = [len(one.calls) + one.more_calls for one in (now, then)]
        return f"it calls compiled functions {counts[0]} times instead of {counts[1]}"
    for number, (one, other) in enumerate(zip(then.calls, now.calls, strict=False) if with_calls else (), 1):
        if not _are_equal(one, other):
            return f"call {number} of a compiled function returns something else"
    # The order of printed lines does not count.
    lines, others = (sorted(one.output[:_OUTPUT].splitlines()) for one in (before, after))
    for line, other in zip(lines, others, strict=False):
        if not _are_equal_texts(line, other):
            return f"it prints {other!r} instead of {line!r}"
    return None if len(lines) == len(others) else f"it prints {len(others)} lines instead of {len(lines)}"


def _last_line(errors: str) -> str:
    return (errors.strip().splitlines() or [""])[-1]


def _are_equal(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=1e-6) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_are_equal(one[key], other[key]) for key in one)
    return bool(one == other)


def _are_equal_texts(one: str, other: str) -> bool:
    if one == other:
        return True
    numbers, others = ([float(text) for text in _NUMBER.findall(line)] for line in (one, other))
    return _NUMBER.sub("0", one) == _NUMBER.sub("0", other) and _are_equal(numbers, others)
