"""Reads the program of a record, and asks for permission to run it again.

A record names a command, and anybody may have written the record. A command runs without a question only if a process
of this user signed it. Any other command is shown, and the user must agree once per content. Runs on the main thread of
a command or of the language server.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dynamo_dap.protocol.access.consent import agree_to, ask, has_agreed, visible
from dynamo_dap.records.events import Started
from dynamo_dap.records.signed import is_own


class CannotTry(Exception):
    """The program cannot be run again; the message is for the user."""


@dataclass(frozen=True)
class RecordedProgram:
    """A record's program, with the content at the time of reading."""

    program: tuple[str, ...]
    """``sys.argv``; for a module it begins with the module's file."""
    folder: str
    module: str | None
    is_own: bool
    """Whether a process of this user ran this program and signed the record."""
    digest: str
    """Digest of the command, the folder and the program's file."""

    @property
    def command(self) -> str:
        """The command, as a user would type it."""
        return command_of(self.program, self.module)

    def shown(self) -> str:
        """Return a text for the user about the command and its file, without control characters."""
        lines = [
            f"Command: {self.command}",
            f"Working directory: {self.folder}",
            f"File: {_file(self.folder, self.program, self.module)}",
            f"Content: {self.digest}",
        ]
        return "\n".join(map(visible, lines))


def command_of(program: tuple[str, ...], module: str | None) -> str:
    """Return a command as a user would type it."""
    return shlex.join(["python", *(["-m", module] if module else program[:1]), *program[1:]])


def recorded_program(started: Started | None) -> RecordedProgram:
    """Return the program that a record names.

    Raises:
        CannotTry: the record names no file.
    """
    if started is not None and started.log is not None:
        raise CannotTry("a trace log does not say how the program was started: make a record of it with dynamo-dap run")
    if started is None or not started.program or not _is_file(started.cwd, started.program[0]):
        raise CannotTry("the record does not say which file was run; give it: dynamo-dap fix FILE:LINE -- PROGRAM ...")
    digest = _digest(tuple(started.program), started.cwd, started.module)
    return RecordedProgram(tuple(started.program), started.cwd, started.module, is_own(started), digest)


def check_unchanged(program: RecordedProgram) -> None:
    """Refuse a program whose file has changed since the user agreed.

    Raises:
        CannotTry: it has changed.
    """
    if not program.is_own and _digest(program.program, program.folder, program.module) != program.digest:
        raise CannotTry(f"{visible(program.program[0])} has changed since you agreed to run it")


def _is_file(folder: str, name: str) -> bool:
    try:
        return Path(folder, name).is_file()
    except (OSError, ValueError):  # too long, or with a null byte
        return False


def _file(folder: str, program: tuple[str, ...], module: str | None) -> Path:
    """Return the file that will run. Python looks for a module's file in the folder, whatever file the record names."""
    parts = (module or "").split(".")
    for found in (Path(folder, *parts, "__main__.py"), Path(folder, *parts[:-1], f"{parts[-1]}.py")):
        if module and _is_file(folder, str(found)):
            return found
    return Path(folder, program[0])


def _digest(program: tuple[str, ...], folder: str, module: str | None) -> str:
    try:
        content = _file(folder, program, module).read_bytes()
    except OSError as error:
        raise CannotTry(f"cannot read {visible(program[0])}: {error.strerror or error}") from None
    parts = [program, folder, module, hashlib.sha256(content).hexdigest()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


# -- consent -----------------------------------------------------------------------------------------------------------

Consents = Callable[[RecordedProgram], None]
"""Returns if the program may run, and raises ``CannotTry`` if not."""


def refuses_untrusted(program: RecordedProgram) -> None:
    """Refuse a program of unknown origin where no user can be asked.

    Raises:
        CannotTry: the record is not the user's own.
    """
    if not program.is_own and not has_agreed(program.digest):
        raise CannotTry(
            f"this record was not written by a process of yours, and it would run: {visible(program.command)} in "
            f"{visible(program.folder)}. To see the command and agree, run: dynamo-dap fix --record FILE FILE:LINE"
        )


def asks_for_untrusted(options: argparse.Namespace) -> Consents:
    """Return a function that shows a program of unknown origin and asks whether to run it, unless ``options`` agree."""

    def check(program: RecordedProgram) -> None:
        if options.content not in (None, program.digest):
            raise CannotTry("the record, or the program that it names, has changed since it was checked")
        if program.is_own or has_agreed(program.digest):
            return
        if not options.yes:
            is_wanted = ask(
                program.shown(), "This record was not written by a process of yours. It would run this command."
            )
            if is_wanted is None:
                raise CannotTry("cannot ask for consent without a terminal: give --yes to run it")
            if not is_wanted:
                raise CannotTry("nothing was run")
        try:
            agree_to(program.digest, program.command)
        except OSError as error:
            # The program runs anyway; the next run asks again.
            sys.stderr.write(f"dynamo-dap: cannot save your consent: {error.strerror or error}\n")

    return check


def add_consent(parser: argparse.ArgumentParser, when: str = "") -> None:
    """Add the options by which a user agrees to run a record's program."""
    parser.add_argument(
        "--yes", action="store_true", help=f"{when}run the recorded command, even if another user wrote the record"
    )
    parser.add_argument("--content", metavar="DIGEST", help=argparse.SUPPRESS)
