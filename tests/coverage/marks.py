"""Compiles a package so that each statement sets a mark, in whichever process it runs.

The marks are bytes of one file that every process maps: those of forked and killed processes count, and no trace
function disturbs the debugger. The compiled code is put where Python keeps bytecode, so that each interpreter of this
version runs it. Python compiles a module again once its source changes.
"""

from __future__ import annotations

import ast
import importlib.util
import marshal
import types
from collections.abc import Iterator, Sequence
from pathlib import Path

from _pytest.assertion.rewrite import PYC_TAIL

_NAME = "_line_marks"
_LEFT_OUT = (
    "debuggee/triton/opaque_launches.py",  # Dynamo traces it, and cannot trace a mark
    "debuggee/launch/starting/entry.py",  # scripts, of which Python keeps no bytecode
    "server/launching/discard_output.py",
    "server/sessions/supervisor.py",
)
_WITH_HASH = b"\x03\0\0\0"
"""The kind of bytecode that pytest reads, too: valid as long as the source has the same hash."""
_OPENED = """
def _opened_line_marks():
    import mmap, os
    try:
        file = os.open({file!r}, os.O_RDWR)
    except OSError:  # after the measurement
        return bytearray({size})
    try:
        return mmap.mmap(file, 0)
    finally:
        os.close(file)
_line_marks = _opened_line_marks()
"""


class MarkedPackage:
    """A package whose statements set marks in ``file``."""

    def __init__(self, folder: Path, file: Path) -> None:
        self._folder = folder
        self._file = file
        self._first: dict[Path, int] = {}
        self._size = 0
        for source in sorted(folder.rglob("*.py")):
            if source.relative_to(folder).as_posix() not in _LEFT_OUT:
                self._first[source] = self._size
            self._size += source.read_bytes().count(b"\n") + 2

    def begin(self) -> None:
        """Write the compiled modules; keep the marks of a measurement of the same sources."""
        if not self._file.exists() or self._file.stat().st_size != self._size:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_bytes(bytes(self._size))
        for source in self._first:
            header = importlib.util.MAGIC_NUMBER + _WITH_HASH + importlib.util.source_hash(source.read_bytes())
            content = header + marshal.dumps(self._compiled(source))
            for cached in _cached(source):
                cached.parent.mkdir(exist_ok=True)
                cached.write_bytes(content)

    def end(self) -> None:
        """Remove the compiled modules."""
        for source in self._first:
            for cached in _cached(source):
                cached.unlink(missing_ok=True)

    def executed(self) -> dict[Path, list[int]]:
        """Return the lines of each module whose marks are set."""
        marks = self._file.read_bytes()
        sources = list(self._first)
        ends = [*list(self._first.values())[1:], self._size]
        return {
            source: [line for line in range(1, end - self._first[source]) if marks[self._first[source] + line]]
            for source, end in zip(sources, ends, strict=True)
        }

    def _compiled(self, source: Path) -> types.CodeType:
        tree = ast.parse(source.read_bytes())
        _set_marks(tree, self._first[source])
        if source == self._folder / "__init__.py":
            needed = ast.parse(_OPENED.format(file=str(self._file), size=self._size)).body
        else:
            needed = ast.parse(f"from {self._folder.name} import {_NAME}").body
        at = _begin(tree, tree.body)
        tree.body[at:at] = needed
        made: types.CodeType = compile(tree, str(source), "exec", dont_inherit=True)
        return made


def _set_marks(tree: ast.Module, first: int) -> None:
    """Put a statement that sets a mark before each statement."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                setattr(node, name, list(_marked(node, body, first)))


def _marked(node: ast.AST, body: list[ast.stmt], first: int) -> Iterator[ast.stmt]:
    begin = _begin(node, body)
    yield from body[:begin]
    for each in body[begin:]:
        lines = {each.lineno, *(one.lineno for one in getattr(each, "decorator_list", ()))}
        if each is body[begin]:
            lines |= _lines_before(node, body[:begin])
        yield from (_mark(first + line, each) for line in sorted(lines))
        yield each


def _lines_before(node: ast.AST, left: list[ast.stmt]) -> set[int]:
    """Return the lines that run before a body, and cannot be marked themselves."""
    if isinstance(node, ast.ExceptHandler):
        return {node.lineno}
    if isinstance(node, ast.match_case):
        return {node.pattern.lineno}
    return {each.lineno for each in left} if isinstance(node, ast.Module) else set()


def _mark(at: int, place: ast.stmt) -> ast.stmt:
    (made,) = ast.parse(f"{_NAME}[{at}] = 1").body
    for each in ast.walk(made):
        if isinstance(each, (ast.expr, ast.stmt)):
            ast.copy_location(each, place)
    return made


def _cached(source: Path) -> tuple[Path, Path]:
    """Return where Python looks for the module's bytecode, and where pytest does if it is a plugin."""
    plain = Path(importlib.util.cache_from_source(str(source)))
    return plain, plain.with_name(source.stem + PYC_TAIL)


def _begin(node: ast.AST, body: Sequence[ast.stmt]) -> int:
    """Return where marks may begin: after a docstring, and after imports from ``__future__``."""
    documented = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module))
    at = int(documented and body[:1] != [] and _is_text(body[0]))
    while at < len(body) and isinstance(each := body[at], ast.ImportFrom) and each.module == "__future__":
        at += 1
    return at


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
