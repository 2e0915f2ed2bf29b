"""Turns ``launch`` arguments into a ``Job``: what to start, with which Python and environment.

It reads files and changes nothing. The same ``Job`` can be started again. An environment *change* maps a name to its
new value, or to None to remove the variable.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dynamo_dap.protocol.requests.contract import ENTRY, ErrorId, Invitation, LaunchDescription
from dynamo_dap.protocol.requests.options import LaunchArguments
from dynamo_dap.protocol.user_files import read_regular, why_not_a_program
from dynamo_dap.records.folders import TRACE_VARIABLE, trace_folder
from dynamo_dap.server.client.errors import StartRefused

Changes = dict[str, "str | None"]

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*?)\s*$")
_QUOTED = re.compile(r"""(?:'([^']*)'|"((?:[^"\\]|\\.)*)")\s*(?:#.*)?$""")
_COMMENT = re.compile(r"(?:^|\s+)#.*$")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def environment_changes(env: Mapping[str, str | None], env_file: str | None, cwd: Path) -> Changes:
    """Return the user's environment changes; ``env`` wins over the file.

    Raises:
        StartRefused: the file cannot be read, or a name or value is not possible in an environment.
    """
    merged: Changes = {}
    if env_file:
        merged.update(_read_env_file(cwd / env_file))
    merged.update(env)
    for name, value in merged.items():
        if not name or "=" in name or "\0" in name or (value is not None and "\0" in value):
            raise StartRefused(ErrorId.INVALID_OPTION, f'"env": {name!r} cannot be an environment variable')
    return merged


def with_changes(base: Mapping[str, str], changed: Mapping[str, str | None]) -> dict[str, str]:
    """Return ``base`` with the changes made."""
    result = {name: value for name, value in base.items() if name not in changed}
    result.update({name: value for name, value in changed.items() if value is not None})
    return result


def _read_env_file(path: Path) -> dict[str, str]:
    try:
        lines = read_regular(path).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StartRefused(ErrorId.INVALID_OPTION, f'"envFile": cannot read {path}: {reason}') from None
    assignments = (_ASSIGNMENT.match(line) for line in lines if not line.lstrip().startswith("#"))
    return {found[1]: _value(found[2]) for found in assignments if found is not None}


def _value(written: str) -> str:
    quoted = _QUOTED.match(written)
    if quoted is None:
        return _COMMENT.sub("", written)
    if quoted[1] is not None:
        return quoted[1]
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), quoted[2])


def _find_interpreter(python: str | list[str] | None, cwd: Path, environment: Mapping[str, str]) -> list[str]:
    """Return the command that starts Python; the server's own Python when ``python`` is None.

    Raises:
        StartRefused: there is no such program, or it cannot be executed.
    """
    if python is None:
        return [sys.executable]
    command = [python] if isinstance(python, str) else python
    if not command or not command[0]:
        raise StartRefused(ErrorId.INVALID_OPTION, '"python" is empty; give the path of an interpreter')
    return [_executable(command[0], cwd, environment), *command[1:]]


def _executable(name: str, cwd: Path, environment: Mapping[str, str]) -> str:
    if os.sep not in name:
        found = shutil.which(name, path=environment.get("PATH", os.defpath))
        if found is None:
            raise StartRefused(ErrorId.INVALID_OPTION, f'"python": no {name!r} on the PATH')
        return found
    path = cwd / name
    if not path.exists():
        raise StartRefused(ErrorId.INVALID_OPTION, f'"python": {path} does not exist')
    if path.is_dir():
        raise StartRefused(ErrorId.INVALID_OPTION, f'"python": {path} is a directory, not an interpreter')
    if not os.access(path, os.X_OK):
        raise StartRefused(ErrorId.INVALID_OPTION, f'"python": {path} is not executable')
    return str(path)


@dataclass(frozen=True)
class Job:
    """A program to start. ``kind`` distinguishes ``program``, ``module`` and ``code``."""

    kind: str
    target: str
    arguments: list[str]
    python: list[str]
    cwd: Path
    environment_changes: Changes
    options: LaunchArguments

    @property
    def name(self) -> str:
        """The program's name in the IDE."""
        return {"program": self.target, "module": f"-m {self.target}", "code": "<code>"}[self.kind]

    def plain_command(self) -> list[str]:
        """Return the command that runs the program without a debugger."""
        option = {"program": [], "module": ["-m"], "code": ["-c"]}[self.kind]
        return [*self.python, *option, self.target, *self.arguments]

    def debugged_command(self) -> list[str]:
        """Return the command that starts ``debuggee.launch``, which runs the program and reads ``LAUNCH_VARIABLE``."""
        thawed = ["-X", "frozen_modules=off"] if self._is_thawed else []
        return [*self.python, *thawed, ENTRY]

    @property
    def _is_thawed(self) -> bool:
        """Whether the standard library is not frozen: frozen modules have no files for breakpoints and steps."""
        return self.options.eager and self._is_python_itself

    @property
    def own_variables(self) -> dict[str, str]:
        """Environment variables for debugging the program; its children must not inherit them."""
        # An IDE needs output at once, not from a buffer.
        given = {**os.environ, **self.environment_changes}
        is_captured = self.options.console == "internalConsole"
        return {"PYTHONUNBUFFERED": "1"} if is_captured and "PYTHONUNBUFFERED" not in given else {}

    @property
    def _is_python_itself(self) -> bool:
        """Whether ``python`` is an interpreter, not a command that runs one and has its own options."""
        return len(self.python) == 1 and Path(self.python[0]).name.startswith("python")

    def launch_variable(self, address: str, token: str, debugpy: Invitation | None) -> str:
        """Return the value of ``LAUNCH_VARIABLE``: the addresses for the agent and, if wanted, for debugpy."""
        description = LaunchDescription(
            address=address,
            token=token,
            args=self.arguments,
            own_variables=list(self.own_variables),
            is_thawed=self._is_thawed,
        )
        setattr(description, self.kind, self.target)
        if self.options.profile:
            stem = "code" if self.kind == "code" else Path(self.target).stem
            description.profile, description.began = str(self.cwd / stem), time.time()
        if debugpy is not None:
            description.debugpy_address, description.debugpy_token = debugpy.address, debugpy.token
        return msgspec.json.encode(description).decode()


def prepare(options: LaunchArguments) -> Job:
    """Check the arguments and make a job from them.

    Raises:
        StartRefused: with a text that names the attribute and its problem.
    """
    try:
        return _prepared(options)
    except (OSError, ValueError) as error:  # an overlong path, or one with a null byte
        reason = error.strerror if isinstance(error, OSError) else error
        raise StartRefused(ErrorId.INVALID_OPTION, f"launch names a path that no file can have: {reason}") from None


def _prepared(options: LaunchArguments) -> Job:
    cwd = _working_directory(options.cwd)
    changes = environment_changes(options.env, options.env_file, cwd)
    if options.trace:
        changes.setdefault(TRACE_VARIABLE, str(trace_folder(cwd)))
    kind, target = _target(options, cwd)
    return Job(
        kind=kind,
        target=target,
        arguments=_arguments(options.args),
        python=_find_interpreter(options.python, cwd, with_changes(os.environ, changes)),
        cwd=cwd,
        environment_changes=changes,
        options=options,
    )


def _working_directory(given: str | None) -> Path:
    if given is None:
        return Path.cwd()
    path = Path.cwd() / given
    if not path.is_dir():
        problem = "is not a directory" if path.exists() else "does not exist"
        raise StartRefused(ErrorId.INVALID_OPTION, f'"cwd": {path} {problem}')
    return path


def _target(options: LaunchArguments, cwd: Path) -> tuple[str, str]:
    code = "\n".join(options.code) if isinstance(options.code, list) else options.code
    given = {"program": options.program, "module": options.module, "code": code}
    chosen = [(kind, target) for kind, target in given.items() if target is not None]
    if len(chosen) != 1:
        named = " and ".join(f'"{kind}"' for kind, _ in chosen) or "none of them"
        raise StartRefused(ErrorId.INVALID_OPTION, f'launch needs one of "program", "module" and "code"; got {named}')
    kind, target = chosen[0]
    if kind == "program":
        _check_program(target, cwd)
    elif kind == "module" and not all(part.isidentifier() for part in target.split(".")):
        raise StartRefused(ErrorId.INVALID_OPTION, f'"module": {target!r} is not the name of a module')
    return kind, target


def _check_program(program: str, cwd: Path) -> None:
    if not program:
        raise StartRefused(ErrorId.INVALID_OPTION, '"program" is empty; give the path of a Python file')
    path = cwd / program
    if not path.exists():
        raise StartRefused(ErrorId.INVALID_OPTION, f'"program": {path} does not exist')
    if problem := why_not_a_program(path):
        raise StartRefused(ErrorId.INVALID_OPTION, f'"program": cannot run {path}: {problem}')
    if path.is_dir() and not any((path / f"__main__{suffix}").exists() for suffix in (".py", ".pyc")):
        raise StartRefused(ErrorId.INVALID_OPTION, f'"program": {path} is a directory without a __main__.py')
    if not os.access(path, os.R_OK):
        raise StartRefused(ErrorId.INVALID_OPTION, f'"program": {path} cannot be read')


def _arguments(given: list[str] | str) -> list[str]:
    if isinstance(given, list):
        return given
    try:
        return shlex.split(given)
    except ValueError as error:
        raise StartRefused(
            ErrorId.INVALID_OPTION, f'"args": {given!r} cannot be split into arguments: {error}'
        ) from None
