"""Reads and writes files of explored stages: a line with the format's version, then one line of JSON per document.

The files are beside the working directory's records; those of the newest ``KEPT`` programs are kept. A file may come
from anywhere: control characters are replaced, and unreadable lines skipped. The debugged program writes the files, and
the command reads them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import msgspec

from dynamo_dap.explore.model import VERSION, Document, Explored, in_order
from dynamo_dap.protocol.user_files import open_regular
from dynamo_dap.records.texts import without_controls

SUFFIX = ".stages"
KEPT = 20
BOUND = 128 * 1024 * 1024
"""The most bytes that are written to a file or read from it."""


class UnreadableStages(Exception):
    """A file of stages cannot be read; the message is for the user."""


class _Header(msgspec.Struct, rename="camel"):
    stages: int
    """The version of the format."""
    program: list[str]
    cwd: str


class _Made(msgspec.Struct, rename="camel"):
    compiled: Explored
    """The compile, without its documents."""
    document: Document


class StagesWriter:
    """Writes one file, on any compiling thread."""

    def __init__(self, path: Path, program: list[str]) -> None:
        """Create the file. Raises ``OSError`` if it cannot be created."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # Only the owner may read facts about the program.
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        self._lock = threading.Lock()
        self._size = 0
        self._append(_Header(VERSION, program, str(Path.cwd())))

    def write(self, compiled: Explored, documents: list[Document]) -> None:
        """Append documents."""
        with self._lock:
            for document in documents:
                self._append(_Made(compiled, document))

    def _append(self, made: msgspec.Struct) -> None:
        line = msgspec.json.encode(made) + b"\n"
        if self._size + len(line) <= BOUND:
            self._size += len(line)
            os.write(self._descriptor, line)


def stages_in(folder: Path) -> list[Path]:
    """Return the file of the first process of each explored program, oldest first; it may not exist."""
    files = folder.glob(f"*{SUFFIX}") if folder.is_dir() else ()
    return sorted({file.with_name(file.name.partition(".")[0] + SUFFIX) for file in files})


def files_of_run(first: Path) -> list[Path]:
    """Return the files of a program's processes; child processes have their ids in the names."""
    others = sorted(first.parent.glob(f"{first.name.removesuffix(SUFFIX)}.*{SUFFIX}"))
    return [*([first] if first.exists() else []), *others]


def remove_old_stages(folder: Path) -> None:
    """Remove the files of all programs but the newest ``KEPT``; ignore files that cannot be removed."""
    for file in [file for first in stages_in(folder)[:-KEPT] for file in files_of_run(first)]:
        with contextlib.suppress(OSError):
            file.unlink()


def read_run(first: Path) -> list[Explored]:
    """Return the compiles of a program's processes; ids of child processes include the process.

    Raises:
        UnreadableStages: a file cannot be read, or is not in a known format.
    """
    compiles: list[Explored] = []
    for file in files_of_run(first):
        process = "" if file == first else f" of process {file.name.removesuffix(SUFFIX).rpartition('.')[2]}"
        compiles += [msgspec.structs.replace(one, id=one.id + process) for one in read_stages(file)]
    return compiles


def read_stages(path: Path) -> list[Explored]:
    """Return the compiles that were explored.

    Raises:
        UnreadableStages: the file cannot be read, or is not in a known format.
    """
    try:
        with open_regular(path) as file:
            lines = file.read(BOUND).split(b"\n")
        begun = msgspec.json.decode(without_controls(lines[0]), type=_Header)
    except OSError as error:
        raise UnreadableStages(f"cannot read {path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UnreadableStages(f"{path} is not a file of explored stages") from None
    if begun.stages > VERSION:
        raise UnreadableStages(f"{path} has version {begun.stages} of the format, this dynamo-dap knows {VERSION}")
    compiles: dict[str, tuple[Explored, dict[str, Document]]] = {}
    for line in filter(None, lines[1:]):
        try:
            made = msgspec.json.decode(without_controls(line), type=_Made)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        _, documents = compiles.setdefault(made.compiled.id, (made.compiled, {}))
        documents[made.document.id] = made.document
    return [Explored(one.id, one.name, one.place, in_order(documents.values())) for one, documents in compiles.values()]
