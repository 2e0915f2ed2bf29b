"""Tries a fix: runs the recorded program without it and with it, and reports the differences. ``dynamo-dap fix``.

The edit is made on a copy that only these runs see; the user's files stay as they are until the fix is applied. What is
compared is what the records count, the exit status, the output, what each call of a compiled function returned, and the
values that ``__main__`` holds at its end; numbers are equal within a tolerance. Main thread of the command, or a worker
thread of the language server.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dynamo_dap.commands.recorded_program import (
    CannotTry,
    Consents,
    RecordedProgram,
    add_consent,
    asks_for_strangers,
    check_unchanged,
    command_of,
    recorded_program,
    refuses_strangers,
)
from dynamo_dap.language_server.document import Document, real_path
from dynamo_dap.language_server.findings import findings_of
from dynamo_dap.language_server.fixes import fixes_of
from dynamo_dap.language_server.fixes.edits import Fix, Situation, edited
from dynamo_dap.language_server.source_files import encoded_source, read_source_file
from dynamo_dap.protocol.contract import RECORDS_VARIABLE, LaunchDescription
from dynamo_dap.records.advice import Item, what_to_do
from dynamo_dap.records.events import Record, Started
from dynamo_dap.records.file import UnreadableRecord, read_record
from dynamo_dap.records.folders import SUFFIX
from dynamo_dap.records.model import Counts, Place, counts_of
from dynamo_dap.records.program import launching
from dynamo_dap.records.repeated_input import RepeatedInput
from dynamo_dap.records.report import chosen_record
from dynamo_dap.records.settings import Setting
from dynamo_dap.records.texts import without_controls

_TOLERANCE = 1e-4
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_OUTPUT = 20_000
_LOOK_SECONDS = 0.2


class Cancelled(CannotTry):
    """The user does not want to wait for it any more."""


class Results(msgspec.Struct):
    """What a run computed, as ``debuggee.launch.trial`` writes it: each value in a few numbers."""

    values: dict[str, Any] = {}
    """What ``__main__`` held at its end."""
    calls: list[Any] = []
    """What each call of a compiled function returned."""
    more_calls: int = 0
    """Calls beyond those."""

    def count(self) -> int:
        """Return how many things there are to compare."""
        return len(self.values) + sum(call is not None for call in self.calls)


@dataclass(frozen=True)
class Outcome:
    """One run."""

    counts: Counts
    status: int
    output: str
    errors: str
    results: Results
    seconds: float


@dataclass(frozen=True)
class Trial:
    """A fix and what it did."""

    fix: Fix
    before: Outcome
    after: Outcome
    difference: str | None
    """What is another in the result; None when nothing is."""
    is_random: bool = False
    """Whether the result is another from run to run without an edit, too: then a difference tells nothing."""

    @property
    def changes_result(self) -> bool:
        """Whether the program computes something else."""
        return self.difference is not None and not self.is_random

    @property
    def helps(self) -> bool:
        """Whether there are fewer breaks or recompiles, and not more of the other; or as many, and fewer graphs.

        What no longer breaks may be compiled that ran eagerly before: then there are more graphs.
        """
        graphs, *others = self._before_and_after()
        if all(new == old for old, new in others):
            return graphs[1] < graphs[0]
        return all(new <= old for old, new in others)

    def _before_and_after(self) -> list[tuple[int, int]]:
        return list(zip(*(_numbers(one.counts) for one in (self.before, self.after)), strict=True))

    @property
    def is_proven(self) -> bool:
        """Whether it helps and the result is the same, of a program that has a result."""
        return self.helps and self.difference is None and self._has_result

    @property
    def _has_result(self) -> bool:
        return bool(self.before.results.count() or self.before.output.strip())

    @property
    def verdict(self) -> str:
        """What came of it, as a sentence."""
        if self.is_random:
            helps = "helps" if self.helps else "does not help"
            return f"It {helps}, but the result differs from run to run, even without the edit: {self.difference}"
        if self.difference is not None:
            return f"The result is not the same: {self.difference}"
        if not self._has_result:
            helps = "helps" if self.helps else "does not help"
            return f"It {helps}, but there is no result to compare: the program prints nothing, and keeps nothing"
        results = self.before.results
        parts = [_count(len(results.calls) + results.more_calls, "call", " of compiled functions")]
        parts += [_count(len(results.values), "value", " in __main__") if results.values else ""]
        parts += [_count(len(self.before.output.splitlines()), "line", " of output") if self.before.output else ""]
        same = f"the result is the same ({', '.join(filter(None, parts))})"
        if self.helps:
            return f"It helps, and {same}"
        is_mixed = any(new < old for old, new in self._before_and_after())
        return f"There are fewer of one kind and more of another; {same}" if is_mixed else f"It does not help; {same}"

    def summary(self) -> str:
        """Return what came of it in two sentences."""
        return f"{self.verdict}. {self._changes() or 'Graphs, breaks and recompiles are as before'}."

    def in_short(self) -> str:
        """Return what came of it in a few words."""
        if self.changes_result:
            return "another result"
        return self._changes() or "it does not help"

    def _changes(self) -> str:
        names = ("graphs", "graph breaks", "recompiles")
        pairs = zip(names, self._before_and_after(), strict=True)
        return ", ".join(f"{name} {old} → {new}" for name, (old, new) in pairs if old != new)

    def text(self) -> str:
        """Return everything, as lines for a person."""
        rows = [("graphs", *(str(one.counts.graphs) for one in (self.before, self.after)))]
        rows += [("graph breaks", *(str(one.counts.breaks) for one in (self.before, self.after)))]
        rows += [("recompiles", *(str(one.counts.recompiles) for one in (self.before, self.after)))]
        rows += [("compiling", *(f"{one.counts.seconds:.1f} s" for one in (self.before, self.after)))]
        rows += [("whole run", *(f"{one.seconds:.1f} s" for one in (self.before, self.after)))]
        rows += [("exit status", *(str(one.status) for one in (self.before, self.after)))]
        table = [f"    {name:<14}{before:>10}{after:>10}" for name, before, after in (("", "before", "after"), *rows)]
        return "\n".join([self.fix.title, *table, f"    {self.verdict}."])


def _count(number: int, word: str, rest: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}{rest}"


def _numbers(counts: Counts) -> tuple[int, int, int]:
    return counts.graphs, counts.breaks, counts.recompiles


# -- running -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Runner:
    """Runs one program, as it was recorded."""

    program: Sequence[str]
    folder: str
    python: str
    seconds: float
    """How long a run may take."""
    module: str | None = None
    """What ``python -m`` is given in place of the program's file."""
    tell: Callable[[str], None] = lambda text: None
    """Is told what is run, as it begins."""
    is_cancelled: Callable[[], bool] = lambda: False
    """Is asked all the time while the program runs; any thread."""
    given: RepeatedInput | None = None
    """What the program reads; None for nothing."""
    recorded: RecordedProgram | None = None
    """What the user agreed to, of a program that a record names."""

    @property
    def command(self) -> str:
        """What is run, as a person would write it."""
        return command_of(tuple(self.program), self.module)

    def run(self, copies: Mapping[str, str], which: str, settings: Sequence[Setting] = ()) -> Outcome:
        """Run it, with other texts in place of some files and with settings of torch; ``which`` run it is, is told.

        Raises:
            CannotTry: it did not end in time, or it cannot be run at all.
        """
        if self.recorded is not None:
            check_unchanged(self.recorded)
        self.tell(which)
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
            command, variables = launching(self.python, description)
            # Every run begins with the same seeds: see the debuggee's side.
            environment = {**os.environ, **variables, RECORDS_VARIABLE: str(records), "PYTHONHASHSEED": "0"}
            began = time.monotonic()
            status, output, errors = self._output_of(command, environment)
            seconds = time.monotonic() - began
            computed = msgspec.json.decode(results.read_bytes(), type=Results) if results.exists() else Results()
            known = [read_record(path) for path in records.rglob(f"*{SUFFIX}")]
        counts = counts_of([compiled for record in known for _, compiled in record.compiles()])
        return Outcome(counts, status, output, errors, computed, seconds)

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
                    output, errors = process.communicate(timeout=_LOOK_SECONDS)
                    return process.returncode, output, errors
                if self.is_cancelled():
                    raise Cancelled("it was cancelled")
                if time.monotonic() > end:
                    raise CannotTry(f"the program did not end in {self.seconds:.0f} s; see --timeout")
        finally:
            if process.poll() is None:
                # What it has started goes as well.
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


def _added(settings: Sequence[Setting]) -> dict[str, list[str]]:
    added: dict[str, list[str]] = {}
    for one in settings:
        if one.adds is not None:
            added.setdefault(one.key, []).append(one.adds)
    return added


def try_fixes(fixes: Sequence[Fix], runner: Runner, texts: Mapping[str, str]) -> list[Trial]:
    """Try each fix by itself; ``texts`` are those of files that are not saved.

    Raises:
        CannotTry: the program cannot be run again.
    """
    before = runner.run(texts, "without the edit")
    if not before.counts.compiles:
        problem = before.errors.strip().splitlines()[-1:] or ["it compiles nothing"]
        raise CannotTry(f"the program, run again, does not compile anything: {problem[0]}")
    trials = []
    for fix in fixes:
        documents = {edit.document.path: edit.document for edit in fix.edits}
        texts_after = {path: edited(document, fix.edits) for path, document in documents.items()}
        after = runner.run(
            {**texts, **texts_after}, "with the setting" if fix.settings else "with the edit", fix.settings
        )
        difference = _difference(before, after)
        is_random = difference is not None and before.status == after.status
        is_random = is_random and _difference(before, runner.run(texts, "without the edit, once more")) is not None
        trials.append(Trial(fix, before, after, difference, is_random))
    return trials


# -- comparing -----------------------------------------------------------------------------------------------------


def _difference(before: Outcome, after: Outcome) -> str | None:
    if before.status != after.status:
        last = after.errors.strip().splitlines()[-1:] or [""]
        if before.status == 0:
            return f"it crashes with {last[0] or f'exit status {after.status}'}"
        return f"exit status {after.status} instead of {before.status}: {last[0]}"
    then, now = before.results, after.results
    if not _are_equal(then.values, now.values):
        names = sorted({*then.values, *now.values})
        changed = [name for name in names if not _are_equal(then.values.get(name), now.values.get(name))]
        return f"different values in __main__: {', '.join(changed)}"
    if (len(then.calls), then.more_calls) != (len(now.calls), now.more_calls):
        counts = [len(one.calls) + one.more_calls for one in (now, then)]
        return f"it calls compiled functions {counts[0]} times instead of {counts[1]}"
    for number, (one, other) in enumerate(zip(then.calls, now.calls, strict=True), 1):
        if not _are_equal(one, other):
            return f"call {number} of a compiled function returns something else"
    # What is printed later than before is printed all the same.
    lines, others = (sorted(one.output[:_OUTPUT].splitlines()) for one in (before, after))
    for line, other in zip(lines, others, strict=False):
        if not _are_equal_texts(line, other):
            return f"it prints {other!r} instead of {line!r}"
    return None if len(lines) == len(others) else f"it prints {len(others)} lines instead of {len(lines)}"


def _are_equal(one: Any, other: Any) -> bool:
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


# -- the command ---------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Try the known fixes for a line; return 0 when something helps, 1 when nothing does."""
    options = _parser().parse_args(arguments)
    try:
        return _try(options)
    except (CannotTry, UnreadableRecord) as problem:
        _tell(f"dynamo-dap: {problem}", sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap fix",
        description="Try the known fixes for a graph break or a recompile: the recorded program is run without "
        "and with the edit, which is made on a copy. What it writes to disk it writes again.",
    )
    parser.add_argument("place", metavar="FILE:LINE", help="where something was found; see: dynamo-dap report")
    parser.add_argument("--apply", action="store_true", help="edit the file by the first fix that is proven to help")
    parser.add_argument("--record", type=Path, help="a record file; default: the newest of this directory")
    parser.add_argument("--python", default=sys.executable, help="the interpreter; default: this one")
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="of each run; default: 600")
    add_consent(parser)
    parser.add_argument("program", nargs="*", help="after --: a program and its arguments to run, not the recorded one")
    return parser


def _try(options: argparse.Namespace) -> int:
    record = read_record(chosen_record(options.record))
    path, line = _place(options.place)
    fixes = known_fixes(record, path, line)
    if not fixes:
        raise CannotTry(_why_no_fix(record, path, line))
    consents = asks_for_strangers(options)
    runner = runner_of(record.started, options.program, options.python, options.timeout, consents)
    runner = dataclasses.replace(
        runner, given=RepeatedInput(), tell=lambda which: _tell(f"running {runner.command} {which}", sys.stderr)
    )
    trials = try_fixes(fixes, runner, {})
    print_trials(trials)
    proven = next((one for one in trials if one.is_proven), None)
    edit = next((one for one in trials if one.is_proven and one.fix.edits), None)
    if options.apply and edit is not None:
        for file in apply_fix(edit.fix):
            _tell(f"Edited {file}")
    elif options.apply and proven is not None:
        lines = "; ".join(setting.text for setting in proven.fix.settings)
        _tell(f"Nothing was edited: put this into the program, before its first compiled call: {lines}")
    elif options.apply:
        _tell("Nothing was edited: no fix is proven to help.")
    return 0 if proven is not None else 1


def print_trials(trials: Sequence[Trial]) -> None:
    """Print what came of each fix, and its edit."""
    for trial in trials:
        _tell(trial.text())
        if trial.fix.edits:
            _tell(_as_diff(trial.fix))


def runner_of(
    started: Started | None,
    program: Sequence[str],
    python: str,
    seconds: float,
    consents: Consents = refuses_strangers,
) -> Runner:
    """Return what runs a recorded program, or another one in its place.

    Raises:
        CannotTry: there is no file to run, or ``consents`` refuses what the record names.
    """
    if program:
        # The user's own words: nothing of the record is believed.
        if not Path(program[0]).is_file():
            raise CannotTry(f"there is no file {program[0]}")
        return Runner(program, str(Path.cwd()), python, seconds)
    recorded = recorded_program(started)
    consents(recorded)
    return Runner(recorded.program, recorded.folder, python, seconds, recorded.module, recorded=recorded)


def known_fixes(record: Record, path: str, line: int) -> list[Fix]:
    """Return the fixes for what was found at a line of a file, as the file is on disk."""
    documents: dict[str, Document | None] = {}
    recorded = {real_path(one): digests for one, digests in record.sources.items()}

    def document_of(place: Place) -> Document | None:
        real = real_path(place.path)
        if real not in documents:
            digests = recorded.get(real)
            documents[real] = _document(real, digests) if digests else None
        return documents[real]

    document = document_of(Place(path, line))
    found = findings_of(record).get(real_path(path), [])
    fixes: dict[str, Fix] = {}
    for finding in found if document is not None else ():
        now = document.now(finding.place.line) if document is not None else None
        if document is not None and now == line:
            situation = Situation(finding, document, line, found, document_of, record)
            fixes.update({fix.title: fix for fix in fixes_of(situation)})
    for fix in settings_at(record, path, line):
        fixes.setdefault(fix.title, fix)
    return list(fixes.values())


def settings_at(record: Record, path: str, line: int) -> list[Fix]:
    """Return the settings that may help against what was found at a line, or below a call there."""
    real = real_path(path)
    items = [
        item
        for item in what_to_do(record)
        if any(real_path(one.path) == real and one.line == line for one in (item.place, *item.callers) if one)
    ]
    return settings_of(items)


def settings_of(items: Iterable[Item]) -> list[Fix]:
    """Return the settings that items suggest, each once, as fixes that edit nothing."""
    found = dict.fromkeys(setting for item in items for setting in item.settings)
    return [Fix(_title(one), (), (one,)) for one in found]


def _title(setting: Setting) -> str:
    """Return what a fix is called; a setting that an edit makes as well has the same title."""
    return f"Set {setting.text}" if setting.adds is None else f"{setting.text}: compiled code no longer logs"


def _why_no_fix(record: Record, path: str, line: int) -> str:
    if real_path(path) in {real_path(one) for one in record.libraries}:
        return (
            f"no fix is known for {path}:{line}: the file is a library's, so it is not edited, and torch names no "
            "setting. Change the line of yours that calls it, see: dynamo-dap report"
        )
    return f"no fix is known for {path}:{line}; see: dynamo-dap report"


def _document(path: str, digests: Sequence[str]) -> Document | None:
    try:
        lines = read_source_file(path).lines
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
    return Document(path, Path(path).as_uri(), lines, digests)


def _place(text: str) -> tuple[str, int]:
    path, _, line = text.rpartition(":")
    if not path or not line.isdigit():
        raise CannotTry(f"give a place as FILE:LINE, not {text}")
    if not Path(path).is_file():
        raise CannotTry(f"there is no file {path}")
    return str(Path(path).absolute()), int(line)


def apply_fix(fix: Fix) -> list[str]:
    """Edit the files of a fix on disk; return their names.

    Raises:
        CannotTry: a file was changed after the fix was made, or cannot be written.
    """
    contents = {}
    documents = {edit.document.path: edit.document for edit in fix.edits}
    try:
        for path, document in documents.items():
            source = read_source_file(path)
            if source.lines != document.lines:
                raise CannotTry(f"{path} was changed meanwhile, so it was not edited: try again")
            contents[path] = source.with_edits(fix.edits)
        for path, content in contents.items():
            Path(path).write_bytes(content)
    except (OSError, SyntaxError, UnicodeError) as problem:
        raise CannotTry(f"cannot edit {path}: {problem}") from None
    return list(documents)


def _as_diff(fix: Fix) -> str:
    lines: list[str] = []
    for document in {edit.document.path: edit.document for edit in fix.edits}.values():
        after = edited(document, fix.edits).split("\n")
        lines += difflib.unified_diff(document.lines, after, document.path, document.path, lineterm="", n=1)
    return "\n".join(f"    {line}" for line in lines)


def _tell(text: str, file: Any = None) -> None:
    # What a program printed may be in it.
    harmless = json.loads(without_controls(json.dumps(text).encode()))
    print(harmless, file=file or sys.stdout)
