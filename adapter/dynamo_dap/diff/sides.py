"""Reads one side of a comparison: a record, a trace log, a saved call, or a command to run.

Runs on the command's main thread.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dynamo_dap.calls.folder import REPLAYING, is_saved_call
from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE, LaunchDescription
from dynamo_dap.protocol.requests.hashed_calls import SUFFIX as HASHED_SUFFIX
from dynamo_dap.protocol.requests.hashed_calls import HashedCall
from dynamo_dap.protocol.user_files import why_not_a_program
from dynamo_dap.records.events import Record
from dynamo_dap.records.file import UnreadableRecord, read_record
from dynamo_dap.records.folders import SUFFIX
from dynamo_dap.records.program import launching
from dynamo_dap.records.repeated_input import RepeatedInput
from dynamo_dap.trace_logs.logs import is_trace, read_any

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_CACHE_FOLDERS = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""The variables that name the cache folders of torch and Triton."""
_MOST_OUTPUT = 64 * 1024 * 1024


class CannotCompare(Exception):
    """A side cannot be read or run; the message is for the user."""


@dataclass(frozen=True)
class RunCommand:
    """A program with its interpreter and its environment variables."""

    python: str
    description: LaunchDescription
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    """The folder in which the program runs; None for the working directory."""
    saved_call: Path | None = None
    """The folder of the saved call that it replays. The user must agree first."""


@dataclass(frozen=True)
class Run:
    """The facts about one side."""

    given: str
    records: list[Record]
    """The records of the processes, that of the program first."""
    status: int | None = None
    output: list[str] | None = None
    """What the program printed; None for a record."""
    calls: Mapping[str, list[HashedCall]] | None = None
    """With ``--values``: the calls of each process, by the name of the file with their hashes."""

    @property
    def has_values(self) -> bool:
        """Whether a value of some call was hashed."""
        return any(call.inputs or call.outputs for calls in (self.calls or {}).values() for call in calls)

    @property
    def is_own(self) -> bool:
        """Whether this command ran the program, and therefore may read files that the records name."""
        return self.status is not None


def side_of(given: str, python: str) -> Path | RunCommand:
    """Return the path of a record or trace log, or a command. A saved call becomes the command that replays it.

    Raises:
        CannotCompare: ``given`` is none of these.
    """
    path = Path(given)
    if path.is_file() and path.suffix != ".py":
        return path
    if path.is_dir():
        if is_trace(path):
            return path
        if is_saved_call(path):
            return _replaying(path, python, {})
        raise CannotCompare(f"{given} has neither a trace log of torch nor a saved call")
    return command_of(given, python)


def command_of(given: str, python: str, folder: Path | None = None) -> RunCommand:
    """Parse ``NAME=value python -m module argument``, or a saved call; interpreter and variables may be missing.

    The command will run in ``folder``, or in the working directory.

    Raises:
        CannotCompare: the command names no program.
    """
    try:
        words = shlex.split(given)
    except ValueError as error:
        raise CannotCompare(f"cannot read the command {given}: {error}") from None
    variables = {}
    while words and _ASSIGNMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    if words and not words[0].endswith(".py") and words[0] != "-m" and not is_saved_call(Path(words[0])):
        python = words.pop(0)
    if len(words) == 1 and folder is None and is_saved_call(Path(words[0])):
        return _replaying(Path(words[0]), python, variables)
    if folder is not None and os.sep in python:
        python = str(Path.cwd() / python)
    if words[:1] == ["-m"] and len(words) > 1:
        description = LaunchDescription(module=words[1], args=words[2:], with_children=True)
        return RunCommand(python, description, variables, folder)
    if not words:
        raise CannotCompare(
            f"{given} is not a record, a trace log, a saved call or a command that runs a Python program"
        )
    if folder is not None and Path(words[0]).is_absolute():
        raise CannotCompare(f"{words[0]} is the same file in both revisions: give its path below this folder")
    path = words[0] if folder is None else str(folder / words[0])
    problem = why_not_a_program(path) if Path(path).exists() else "the file does not exist"
    if problem is not None:
        raise CannotCompare(f"cannot run {words[0]}: {problem}")
    description = LaunchDescription(program=words[0], args=words[1:], with_children=True)
    return RunCommand(python, description, variables, folder)


def _replaying(folder: Path, python: str, variables: Mapping[str, str]) -> RunCommand:
    folder = folder.resolve()
    return RunCommand(python, LaunchDescription(module=REPLAYING, args=[str(folder)]), variables, saved_call=folder)


def read_side(
    given: str,
    side: Path | RunCommand,
    *,
    standard_input: RepeatedInput | None = None,
    with_values: bool = False,
    cache_folder: str | None = None,
) -> Run:
    """Read a record or run a command; ``with_values`` hashes the command's values.

    Commands with the same ``standard_input`` read the same text from their standard input.

    With ``cache_folder``, torch's caches are in that folder, and the record contains the parts of their keys.

    Raises:
        CannotCompare: the record cannot be read, or the command cannot be run.
    """
    if isinstance(side, RunCommand):
        with (standard_input or RepeatedInput()).for_a_run(is_shown=True) as stdin:
            return _ran(given, side, stdin, with_values=with_values, cache_folder=cache_folder)
    try:
        return Run(given, [read_any(side)])
    except UnreadableRecord as problem:
        raise CannotCompare(str(problem)) from None


def _ran(given: str, side: RunCommand, stdin: int, *, with_values: bool, cache_folder: str | None) -> Run:
    with tempfile.TemporaryDirectory(prefix="dynamo-dap-diff-", ignore_cleanup_errors=True) as folder:
        values = Path(folder, "values")
        values.mkdir()
        description = msgspec.structs.replace(
            side.description, cache_keys=cache_folder is not None, torch_settings=True
        )
        if with_values:
            description = msgspec.structs.replace(description, hashed_calls=str(values / f"program{HASHED_SUFFIX}"))
        command, variables = launching(side.python, description)
        environment = {**os.environ, **side.variables, **variables, RECORDS_VARIABLE: folder}
        if cache_folder is not None:
            environment |= dict.fromkeys(_CACHE_FOLDERS, cache_folder)
        printed: list[str] = []
        size = 0
        try:
            with subprocess.Popen(
                command, cwd=side.folder, env=environment, stdin=stdin, stdout=subprocess.PIPE
            ) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    sys.stderr.buffer.write(line)
                    sys.stderr.buffer.flush()
                    size += len(line)
                    if size <= _MOST_OUTPUT:
                        printed.append(line.decode(errors="replace").rstrip("\r\n"))
                status = process.wait()
        except OSError as error:
            raise CannotCompare(f"cannot run {side.python}: {error.strerror or error}") from None
        records = []
        for path in sorted(Path(folder).rglob(f"*{SUFFIX}"), key=lambda each: (len(each.parts), each.name)):
            try:
                record = read_record(path)
            except UnreadableRecord:
                # The process was killed when it began to write.
                continue
            if side.saved_call is not None and record.started is not None:
                # The code of a saved call is in its folder.
                record.started = msgspec.structs.replace(record.started, cwd=str(side.saved_call))
            records.append(record)
        calls = {path.name: _calls_in(path) for path in sorted(values.iterdir())} if with_values else None
    return Run(given, records, 128 - status if status < 0 else status, printed, calls)


def _calls_in(path: Path) -> list[HashedCall]:
    calls = []
    for line in path.read_bytes().splitlines():
        try:
            calls.append(msgspec.json.decode(line, type=HashedCall))
        except msgspec.MsgspecError:
            # The process was killed while it wrote its last line.
            break
    return calls
