"""``dynamo-dap fix``: tries the known fixes for a line, prints each result, and applies a proven one.

Runs on the command's main thread.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dynamo_dap.fixes.document import Document, real_path
from dynamo_dap.fixes.edits import Fix, Situation, edited
from dynamo_dap.fixes.findings import findings_of
from dynamo_dap.fixes.makers import fixes_of
from dynamo_dap.fixes.recorded_program import (
    CannotTry,
    add_consent,
    asks_for_untrusted,
    command_of,
)
from dynamo_dap.fixes.source_files import read_source_file
from dynamo_dap.fixes.trial import Trial, as_json, runner_of, try_fixes
from dynamo_dap.protocol.access.consent import visible
from dynamo_dap.records.advice.gathering import what_to_do
from dynamo_dap.records.advice.items import Item, at
from dynamo_dap.records.advice.settings import Setting
from dynamo_dap.records.events import Record
from dynamo_dap.records.file import UnreadableRecord, read_record
from dynamo_dap.records.model import Place
from dynamo_dap.records.repeated_input import RepeatedInput
from dynamo_dap.records.report.output import chosen_record
from dynamo_dap.records.texts import without_controls


def main(arguments: list[str]) -> int:
    """Try the known fixes for a line; return 0 if one is proven to help, 1 if not, 2 if none can be tried."""
    options = _parser().parse_args(arguments)
    try:
        return _try(options)
    except (CannotTry, UnreadableRecord) as problem:
        _report(f"dynamo-dap: {problem}", sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap fix",
        description="Try the known fixes for a graph break or a recompile. Runs the recorded program without and "
        "with each edit. Edits are made on copies, but the program overwrites its own output files.",
    )
    parser.add_argument("place", metavar="FILE:LINE", help="the place of a finding; see: dynamo-dap report")
    parser.add_argument("--apply", action="store_true", help="apply the first fix that is proven to help")
    parser.add_argument("--record", type=Path, help="a record file; default: the newest of this directory")
    parser.add_argument("--python", default=sys.executable, help="the interpreter; default: this one")
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="of each run; default: 600")
    parser.add_argument("--json", action="store_true", help="print JSON: one list of objects")
    add_consent(parser)
    parser.add_argument("program", nargs="*", help="after --: another program to run, with its arguments")
    return parser


def _try(options: argparse.Namespace) -> int:
    record = read_record(chosen_record(options.record))
    path, line = _place(options.place)
    fixes = known_fixes(record, path, line)
    if not fixes:
        raise CannotTry(_why_no_fix(record, path, line))
    consents = asks_for_untrusted(options)
    runner = runner_of(record.started, options.program, options.python, options.timeout, consents)
    runner = dataclasses.replace(
        runner, given=RepeatedInput(), report=lambda which: _report(f"running {runner.command} {which}", sys.stderr)
    )
    trials = try_fixes(fixes, runner, {})
    if options.json:
        sys.stdout.write(without_controls(as_json(trials)).decode() + "\n")
    else:
        print_trials(trials)
    proven = next((one for one in trials if one.is_proven), None)
    edit = next((one for one in trials if one.is_proven and one.fix.edits), None)
    messages = sys.stderr if options.json else sys.stdout
    if options.apply and edit is not None:
        for file in apply_fix(edit.fix):
            _report(f"Edited {file}", messages)
    elif options.apply and proven is not None:
        lines = "; ".join(setting.text for setting in proven.fix.settings)
        _report(f"No file was edited: add this to the program, before its first compiled call: {lines}", messages)
    elif options.apply:
        _report("No file was edited: no fix is proven to help.", messages)
    return 0 if proven is not None else 1


def print_trials(trials: Sequence[Trial]) -> None:
    """Print each fix's result, and its edit."""
    for trial in trials:
        _report(trial.text())
        if trial.fix.edits:
            _report("\n".join(f"    {line}" for line in diff_of(trial.fix)))


def known_fixes(record: Record, path: str, line: int) -> list[Fix]:
    """Return the fixes for the findings at a line of a file on disk."""
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
    """Return the settings that may fix findings at a line, or in a function that the line calls."""
    real = real_path(path)
    items = [
        item
        for item in what_to_do(record)
        if any(real_path(one.path) == real and one.line == line for one in (item.place, *item.callers) if one)
    ]
    return settings_of(items)


def settings_of(items: Iterable[Item]) -> list[Fix]:
    """Return the distinct settings that items suggest, as fixes without an edit."""
    found = dict.fromkeys(setting for item in items for setting in item.settings)
    return [Fix(_title(one), (), (one,)) for one in found]


def _title(setting: Setting) -> str:
    """Return the title of a setting's fix; an edit that makes the same setting has the same title."""
    return f"Set {setting.text}" if setting.adds is None else f"{setting.text}: compiled code no longer logs"


def _why_no_fix(record: Record, path: str, line: int) -> str:
    real, begin = real_path(path), f"no fix is known for {path}:{line}"
    inside = _in_library(record, real, line)
    if inside is not None:
        library, call = inside
        why = f"{begin}: {library} is a library's file, so it is not edited, and torch names no setting."
        return f"{why} It is called at {at(call)}. {INSTEAD}"
    if record.started is not None and record.started.program and real not in map(real_path, record.sources):
        command = visible(command_of(tuple(record.started.program), record.started.module))
        return f"{begin}: the newest record is of {command}, which compiled nothing in that file; see: dynamo-dap run"
    places = [one for item in what_to_do(record) for one in (item.place, *item.callers) if one is not None]
    lines = sorted({one.line for one in places if real_path(one.path) == real} - {line})
    word = "line" if len(lines) == 1 else "lines"
    known = f" (the report names {word} {', '.join(map(str, lines[:_LINES]))})" if lines else ""
    return f"{begin}{known}; see: dynamo-dap report"


_LINES = 8
INSTEAD = (
    "Make this call outside of the compiled function. Or make it in a custom operator (torch.library.custom_op), if it "
    "takes and returns tensors."
)
"""The advice for a finding in a library for which no fix is known."""


def _in_library(record: Record, path: str, line: int) -> tuple[str, Place] | None:
    """Return the library's file with a finding, and the program's innermost call that leads to it.

    The finding is at the line, or in a function that the line calls. None if a library has no such finding.
    """
    libraries = {real_path(one) for one in record.libraries}
    for item in what_to_do(record):
        if item.place is None or real_path(item.place.path) not in libraries:
            continue
        calls = [one for one in (*reversed(item.way), *item.callers) if real_path(one.path) not in libraries]
        if calls and any(real_path(one.path) == path and one.line == line for one in (item.place, *calls)):
            return Path(item.place.path).name, calls[0]
    return None


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
        raise CannotTry(f"{path} does not exist")
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


def diff_of(fix: Fix) -> list[str]:
    """Return the edits of a fix as a unified diff."""
    lines: list[str] = []
    for document in {edit.document.path: edit.document for edit in fix.edits}.values():
        after = edited(document, fix.edits).split("\n")
        lines += difflib.unified_diff(document.lines, after, document.path, document.path, lineterm="", n=1)
    return lines


def _report(text: str, file: Any = None) -> None:
    # The text may contain the program's output, with control characters.
    harmless = json.loads(without_controls(json.dumps(text).encode()))
    print(harmless, file=file or sys.stdout)
