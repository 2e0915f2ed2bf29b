"""Represents the present text of a user's file, and maps its lines to the recorded ones.

There is one ``Document`` for each version of a text and state of the record. Lines are counted from 1, columns from 0
in characters.
"""

from __future__ import annotations

import ast
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cached_property, lru_cache

from lsprotocol.types import Position, Range
from pygls.workspace import PositionCodec

from dynamo_dap.protocol.texts import NOT_PYTHON
from dynamo_dap.records.model import Place
from dynamo_dap.records.texts import digest_of_line


class LineMap:
    """Maps lines of a file as recorded, counted from 1, to lines of a text, and back."""

    def __init__(self, recorded: Sequence[str], text: Sequence[str]) -> None:
        """Match the ``recorded`` digests of lines with the lines of ``text``."""
        self._now: dict[int, int] = {}
        now = [digest_of_line(line) for line in text]
        first = _common(recorded, now)
        last = min(_common(recorded[::-1], now[::-1]), min(len(recorded), len(now)) - first)
        self._match(0, 0, first)
        self._match(len(recorded) - last, len(now) - last, last)
        middle = SequenceMatcher(
            None, recorded[first : len(recorded) - last], now[first : len(now) - last], autojunk=False
        )
        for block in middle.get_matching_blocks():
            self._match(first + block.a, first + block.b, block.size)
        self._recorded = {here: there for there, here in self._now.items()}

    def _match(self, recorded: int, now: int, count: int) -> None:
        for offset in range(count):
            self._now[recorded + offset + 1] = now + offset + 1

    def now(self, line: int) -> int | None:
        """Return a recorded line's present number; None if it was changed or removed."""
        return self._now.get(line)

    def recorded(self, line: int) -> int | None:
        """Return a present line's recorded number; None if it is new or changed."""
        return self._recorded.get(line)


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the length of the common beginning."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


Function = ast.FunctionDef | ast.AsyncFunctionDef

_NAME = re.compile(r"[^\W\d]\w*")
_PATH = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


class Document:
    """The present text of a file, with the recorded digests of its lines."""

    def __init__(self, path: str, uri: str, lines: Sequence[str], recorded: Sequence[str]) -> None:
        """Take the present ``lines`` and the ``recorded`` digests."""
        self.path = path
        self.uri = uri
        self.lines = [line.rstrip("\r\n") for line in lines]
        self._map = LineMap(recorded, self.lines)

    def is_at(self, place: Place | None) -> bool:
        """Return whether a place is in this file."""
        return place is not None and real_path(place.path) == self.path

    def now(self, line: int) -> int | None:
        """Return a recorded line's present number; None if it was changed or removed."""
        return self._map.now(line)

    def recorded(self, line: int) -> int | None:
        """Return a present line's recorded number; None if it is new or changed."""
        return self._map.recorded(line)

    def recorded_in(self, lines: Iterable[int]) -> dict[int, int]:
        """Return the present ``lines`` by their recorded numbers, without new and changed ones."""
        return {recorded: line for line in lines if (recorded := self._map.recorded(line)) is not None}

    def line_of(self, place: Place | None) -> int | None:
        """Return the present line of a place in this file."""
        return self.now(place.line) if place is not None and self.is_at(place) else None

    def text(self, line: int) -> str:
        """Return a line."""
        return self.lines[line - 1] if 0 < line <= len(self.lines) else ""

    def indentation(self, line: int) -> str:
        """Return a line's leading white space."""
        text = self.text(line)
        return text[: len(text) - len(text.lstrip())]

    # -- names -----------------------------------------------------------------------------------------------------

    def name_at(self, line: int, column: int) -> tuple[str, int, int] | None:
        """Return the dotted expression up to the name at a position, ``self.fc.weight``, and its columns."""
        for path in _PATH.finditer(self.text(line)):
            if path.start() <= column <= path.end():
                for name in _NAME.finditer(path[0]):
                    if column <= path.start() + name.end():
                        return path[0][: name.end()], path.start(), path.start() + name.end()
        return None

    def column_after(self, line: int, name: str, column_in_bytes: int | None) -> int | None:
        """Return the column after a name in a line: the name at the recorded column, else its first occurrence."""
        text = self.text(line)
        if column_in_bytes is not None:
            start = len(text.encode()[: column_in_bytes - 1].decode(errors="ignore"))
            written = _NAME.match(text, start)
            if written is not None and unicodedata.normalize("NFKC", written[0]) == name:
                return written.end()
        # Python normalizes names (NFKC), and so does the record.
        found = (one.end() for one in _NAME.finditer(text) if unicodedata.normalize("NFKC", one[0]) == name)
        return next(found, None)

    # -- syntax ----------------------------------------------------------------------------------------------------

    @cached_property
    def tree(self) -> ast.Module | None:
        """The syntax tree; None while the text has errors."""
        try:
            return ast.parse("\n".join(self.lines))
        except NOT_PYTHON:
            return None

    @cached_property
    def meaning(self) -> str:
        """A text that is equal for files that differ only in comments and layout."""
        return ast.dump(self.tree) if self.tree is not None else "\n".join(self.lines)

    @cached_property
    def functions(self) -> list[Function]:
        """Every function that a ``def`` defines."""
        found: list[Function] = []
        left: list[ast.AST] = [self.tree] if self.tree else []
        while left:
            for statement in _statements_in(left.pop()):
                left.append(statement)
                if isinstance(statement, Function):
                    found.append(statement)
        return found

    def function_at(self, place: Place | None) -> Function | None:
        """Return the function that begins at a recorded place: at its first decorator, or its ``def``."""
        line = self.line_of(place)
        return next((function for function in self.functions if line in (function.lineno, first_line(function))), None)

    def function_around(self, line: int) -> Function | None:
        """Return the innermost function that contains a line."""
        around = [
            function
            for function in self.functions
            if first_line(function) <= line <= (function.end_lineno or function.lineno)
        ]
        return max(around, key=lambda one: one.lineno, default=None)

    def statement_at(self, line: int) -> ast.stmt | None:
        """Return the innermost statement that contains a line."""
        found: ast.stmt | None = None
        for node in ast.walk(self.tree) if self.tree else ():
            if isinstance(node, ast.stmt) and first_line(node) <= line <= (node.end_lineno or node.lineno):
                # ``walk`` goes from the outside in.
                found = node
        return found

    def source(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node."""
        return ast.get_source_segment("\n".join(self.lines), node) or ""

    def column(self, line: int, column_in_bytes: int) -> int:
        """Convert a column of the syntax tree, which counts bytes, to characters."""
        return len(self.text(line).encode()[:column_in_bytes].decode(errors="ignore"))


def _statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node's direct children, without expressions, which contain no ``def``."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        below = getattr(node, name, None)
        if isinstance(below, list):
            yield from below


@lru_cache(maxsize=4096)
def real_path(path: str) -> str:
    """Return the path without symbolic links; cached for the thousands of places in a record."""
    try:
        return os.path.realpath(path)
    except ValueError:  # a null byte, which no file's name contains
        return path


def first_line(node: ast.stmt) -> int:
    """Return the first line of a statement, decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


class Positions:
    """Converts between our columns and the units of one client."""

    def __init__(self, codec: PositionCodec) -> None:
        self._codec = codec

    def position(self, document: Document, line: int, column: int) -> Position:
        """Return a position in the client's units."""
        return Position(line - 1, self._codec.client_num_units(document.text(line)[:column]))

    def place(self, document: Document, position: Position) -> tuple[int, int]:
        """Return line and column of the client's position."""
        line = position.line + 1
        text = document.text(line)
        units = 0
        for column, character in enumerate(text):
            if units >= position.character:
                return line, column
            units += self._codec.client_num_units(character)
        return line, len(text)

    def span(self, document: Document, line: int, start: int, end: int) -> Range:
        """Return the range between two columns of a line."""
        return Range(self.position(document, line, start), self.position(document, line, end))

    def code(self, document: Document, first: int, last: int) -> Range:
        """Return the range of lines, without surrounding white space."""
        start = len(document.indentation(first))
        end = len(document.text(last).rstrip())
        return Range(self.position(document, first, start), self.position(document, last, max(end, 0)))
