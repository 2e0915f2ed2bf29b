"""Reads the entries and their inputs in files of ``torch.compiler.save_cache_artifacts``, without torch.

An entry is a pickle, which may come from anybody: its opcodes are read, and none is executed. Runs on one thread.
"""

from __future__ import annotations

import base64
import binascii
import pickletools
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynamo_dap.protocol.access.consent import visible
from dynamo_dap.protocol.user_files import open_regular
from dynamo_dap.records.file import UnreadableRecord
from dynamo_dap.records.model import Place

_VERSION = (1).to_bytes(8, "big")
_LONGEST = 1024 * 1024 * 1024
_FRAME = re.compile(r'^ *File "(?P<path>[^"\n]+)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)
_FORWARD = re.compile(r"def forward\(self, (?P<inputs>.*)\):")
_LINES = 20
_REMEMBERING = frozenset({"MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "FRAME"})
"""Opcodes between the parts of an object that do not change the object."""


@dataclass(frozen=True)
class SavedEntry:
    """One entry of a cache."""

    cache: str
    """As torch names it: ``inductor``, ``aot_autograd``, ``autotune``, ``pgo``, ``precompile``."""
    key: str
    size: int
    inputs: str | None = None
    """The inputs of the graph, with types and sizes."""
    guards: str | None = None
    """The conditions on sizes: empty if there are none, None if they are unknown."""
    lines: Sequence[tuple[Place, str]] = ()
    """The user's lines that the entry computes, each with its function."""


def is_saved_cache(path: Path) -> bool:
    """Return whether a file begins like one of ``save_cache_artifacts``."""
    try:
        with open_regular(path) as file:
            return file.read(12)[4:] == _VERSION
    except OSError:
        return False


def read_saved_cache(path: Path) -> list[SavedEntry]:
    """Return the entries of a file.

    Raises:
        UnreadableRecord: the file cannot be read, or is damaged.
    """
    try:
        with open_regular(path) as file:
            data = file.read(_LONGEST)
    except OSError as error:
        raise UnreadableRecord(f"cannot read {path}: {error.strerror or error}") from None
    return entries_of_cache(data, path)


def entries_of_cache(data: bytes, path: Path) -> list[SavedEntry]:
    """Return the entries in the bytes that torch saved; ``path`` names the file in messages.

    Raises:
        UnreadableRecord: the bytes are damaged, or not in torch's format.
    """
    if zlib.crc32(data[4:]).to_bytes(4, "big") != data[:4]:
        raise UnreadableRecord(f"{path} is damaged: its checksum does not match, and torch refuses it as well")
    try:
        return list(_entries(_Reader(data, 4 + len(_VERSION))))
    except (ValueError, IndexError, binascii.Error) as error:
        raise UnreadableRecord(f"{path} is not a cache that torch saved: {error}") from None


class _Reader:
    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self._offset = offset

    @property
    def is_at_end(self) -> bool:
        return self._offset >= len(self._data)

    def number(self) -> int:
        self._offset += 8
        return int.from_bytes(self._data[self._offset - 8 : self._offset], "big")

    def content(self) -> bytes:
        size = self.number()
        if size > len(self._data) - self._offset:
            raise ValueError("an entry is longer than the file")
        self._offset += size
        return self._data[self._offset - size : self._offset]

    def text(self) -> str:
        return base64.b64decode(self.content()).decode()


def _entries(reader: _Reader) -> Iterator[SavedEntry]:
    while not reader.is_at_end:
        cache = visible(reader.text())
        for _ in range(reader.number()):
            if reader.is_at_end:
                raise ValueError("entries are missing")
            key, content = visible(reader.text()), reader.content()
            yield _entry(cache, key, content)


def _entry(cache: str, key: str, content: bytes) -> SavedEntry:
    strings, values = _strings(content)
    guards = values.get("guards_expr")
    graph = _FORWARD.search(values.get("inductor_post_grad_graph_str", ""))
    lines = {
        (Place(visible(match["path"]), int(match["line"])), visible(match["function"])): None
        for text in strings
        if text.lstrip().startswith('File "')
        for match in [*_FRAME.finditer(text)][-1:]
    }
    return SavedEntry(
        cache,
        key,
        len(content),
        None if graph is None else visible(graph["inputs"]),
        None if guards is None else visible(guards),
        list(lines)[:_LINES],
    )


def _strings(content: bytes) -> tuple[list[str], dict[str, str]]:
    """Return all texts of a pickle, and the text fields of its objects: a field's value directly follows its name."""
    found: list[str] = []
    values: dict[str, str] = {}
    before: str | None = None
    try:
        for opcode, argument, _ in pickletools.genops(content):
            if opcode.name in _REMEMBERING:
                continue
            if isinstance(argument, str):
                found.append(argument)
                if before is not None:
                    values.setdefault(before, argument)
            before = argument if isinstance(argument, str) else None
    except Exception:  # noqa: BLE001  (an entry may not be a pickle, and a hostile one may break the reader)
        pass
    return found, values
