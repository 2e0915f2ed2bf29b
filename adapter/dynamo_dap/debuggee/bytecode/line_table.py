"""Finds which lines of a source file have code, and which function each belongs to.

The file is read and compiled, never executed: a breakpoint can be placed in a file that the program has not loaded. Any
thread may call the functions. Tables are immutable, and cached while the file's time and size stay the same. The
beginnings of statements and the ends of functions are computed from the text at first use: most breakpoints need only
the code.

A function, here, is what the user wrote with ``def``, ``async def`` or ``lambda``: comprehensions, generator
expressions and the bodies of classes inside functions count as lines of the function around them. Bodies of classes at
module level run when the module is imported and count as the module's.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import opcode
import os
import sys
import threading
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_OPTIMIZED
from types import CodeType
from typing import Any

from dynamo_dap.debuggee.wrapping.locks import Level, reentrant_lock
from dynamo_dap.protocol.user_files import read_source

_NAME_WHEN_COMPILING = "<dynamo-dap line table>"
_MODULE: dict[str, Any] = {"module": _NAME_WHEN_COMPILING} if sys.version_info >= (3, 15) else {}
"""The name that filters of warnings match; before Python 3.15 it is made from the file's name."""
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_PROLOGUE = frozenset(
    opcode.opmap[name]
    for name in ("RESUME", "MAKE_CELL", "COPY_FREE_VARS", "RETURN_GENERATOR", "GEN_START", "CACHE", "EXTENDED_ARG")
    if name in opcode.opmap
)
_AFTER_RETURN_GENERATOR = opcode.opmap["POP_TOP"]
_RETURN_GENERATOR = opcode.opmap.get("RETURN_GENERATOR")


class LineTableError(Exception):
    """The file has no line table; the message says why."""


@dataclass(frozen=True, slots=True)
class FunctionLines:
    """One function of a file. Lines are 1-based and inclusive."""

    qualified_name: str
    """Its ``co_qualname``: ``Model.forward``, ``outer.<locals>.inner``."""
    first_line: int
    """``co_firstlineno``: the line of the first decorator, else of ``def`` or ``lambda``."""
    lines: frozenset[int]
    """The lines whose code runs in a call, without those of inner functions."""
    is_coroutine: bool = False
    """Whether it was defined with ``async def``."""


class LineTable:
    """The lines of one file."""

    def __init__(
        self, path: str, functions: tuple[FunctionLines, ...], module_level_lines: frozenset[int], text: str
    ) -> None:
        """Take ``functions`` by their first line, an outer function before inner ones.

        ``module_level_lines`` run when the module is imported: statements outside functions, ``def`` and decorator
        lines. ``text`` is the whole file's.
        """
        self.path = path
        self.functions = functions
        self.module_level_lines = module_level_lines
        self._text = text
        self._ends: dict[int, int] = {}
        self._decorators: dict[int, list[ast.expr]] = {}
        """Both by a function's first line, filled on demand."""

    @cached_property
    def executable_lines(self) -> frozenset[int]:
        """Every line that has code."""
        return self.module_level_lines.union(*(function.lines for function in self.functions))

    @cached_property
    def sorted_lines(self) -> list[int]:
        """Every line that has code, in order."""
        return sorted(self.executable_lines)

    @cached_property
    def statement_starts(self) -> frozenset[int]:
        """Lines on which a statement, ``except`` handler, ``case`` or decorator begins."""
        return self._of_tree[0]

    @cached_property
    def _of_tree(self) -> tuple[frozenset[int], dict[tuple[str, int], int]]:
        """The beginnings of statements and the ends of functions."""
        with _own_warnings_silenced():
            tree = ast.parse(self._text, _NAME_WHEN_COMPILING, **_MODULE)
        return frozenset(_statement_starts(tree)), _function_ends(tree, self._text_lines)

    @cached_property
    def _text_lines(self) -> list[str]:
        return self._text.splitlines()

    @cached_property
    def _first_lines(self) -> list[int]:
        return [function.first_line for function in self.functions]

    @cached_property
    def _last_lines(self) -> list[int]:
        """The last line of each function."""
        return [self.last_line(function) for function in self.functions]

    @cached_property
    def _running(self) -> dict[int, list[FunctionLines]]:
        running: dict[int, list[FunctionLines]] = {}
        for function in self.functions:
            for line in function.lines:
                running.setdefault(line, []).append(function)
        return running

    def last_line(self, function: FunctionLines) -> int:
        """Return its text's last line, with following comments that are indented like its body."""
        own = function.qualified_name.rpartition(".")[2], function.first_line
        return self._of_tree[1].get(own) or max(function.lines, default=function.first_line)

    def decorators(self, function: FunctionLines) -> list[ast.expr]:
        """Return the decorators of ``function``."""
        if function.first_line not in self._decorators:
            self._decorators[function.first_line] = self._read_decorators(function)
        return self._decorators[function.first_line]

    def _read_decorators(self, function: FunctionLines) -> list[ast.expr]:
        first = self._text_lines[function.first_line - 1] if function.first_line <= len(self._text_lines) else ""
        if not first.lstrip().startswith("@"):
            return []
        rest = (self._text_lines[at] for at in range(function.first_line - 1, len(self._text_lines)))
        head = list(itertools.takewhile(lambda line: not line.lstrip().startswith(("def ", "async def ")), rest))
        indentation = first[: len(first) - len(first.lstrip())]
        outer = "if True:\n" if indentation else ""
        try:
            tree = ast.parse(outer + "\n".join([*head, f"{indentation}def decorated(): pass"]))
        except SyntaxError:
            return []
        return next((node.decorator_list for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)), [])

    def function_at(self, line: int) -> FunctionLines | None:
        """Return the innermost function whose text contains ``line``; None at module level.

        A ``def`` or decorator line belongs to the function that it defines.
        """
        innermost: FunctionLines | None = None
        innermost_end = 0
        for function, end in zip(self.functions, self._last_lines, strict=True):
            if function.first_line > line:
                break
            if line <= end and (innermost is None or end <= innermost_end):
                innermost, innermost_end = function, end
        return innermost

    def functions_running(self, line: int) -> list[FunctionLines]:
        """Return the functions with code on ``line``: several for lambdas that share it, none at module level."""
        return self._running.get(line, [])

    def next_executable_line(self, line: int) -> int | None:
        """Return ``line`` if it has code, else the next line with code, without leaving the function around it."""
        if line in self.executable_lines:
            return line
        lines = self.sorted_lines
        position = bisect_left(lines, line)
        last = lines[position - 1] if position else 0
        next_line = lines[position] if position < len(lines) else len(self._text_lines) + 1
        above, below = self.functions_running(last), self.functions_running(next_line)
        around = [one for one in below if one.first_line <= line]
        if around and all(one.first_line <= around[-1].first_line for one in above):
            return next_line  # The code below continues a function that has begun, and no inner one has begun since.
        if (body := self.body_below_head(line)) is not None:
            return body
        if self._is_behind(above, line, next_line):
            return next((one for one in lines[position:] if one in self.module_level_lines), None)
        # No function has begun since the code above, or its body would be the answer.
        function = above[-1] if _is_simple(above) else self.function_at(line)
        candidates = function.lines if function is not None else self.module_level_lines
        return min((candidate for candidate in candidates if candidate >= line), default=None)

    def line_of_breakpoint(self, line: int) -> int:
        """Return the line where a breakpoint on ``line`` stops: the next one with code, below the head of a function.

        It is ``line`` itself if no code follows.
        """
        bound = self.next_executable_line(line)
        if bound is None:
            return line
        return bound if self.functions_running(bound) else self.body_below_head(bound) or bound

    def body_below_head(self, line: int) -> int | None:
        """Return the first body line of the function whose head contains ``line``, if the whole body is below.

        Meant for a line whose code no function runs: a ``def``, or a part of one.
        """
        above = self.functions[: bisect_right(self._first_lines, line)]
        # A lambda, or a comprehension up to Python 3.11, has no head: its line is that of a statement around it.
        function = next((one for one in reversed(above) if not one.qualified_name.endswith(">")), None)
        body = 0 if function is None else min(function.lines, default=0)
        return body if body > line else None

    def _is_behind(self, above: list[FunctionLines], line: int, next_line: int) -> bool:
        """Return whether ``line`` is below the function of the code above it, and so in no function.

        Only that function, which ends before ``next_line``, is parsed, not the whole file.
        """
        if not above:
            return True
        function = above[-1]
        if not _is_simple(above):
            return False
        if function.first_line not in self._ends:
            self._ends[function.first_line] = self._end_before(function, next_line)
        return line > self._ends[function.first_line]

    def _end_before(self, function: FunctionLines, next_line: int) -> int:
        own = self._text_lines[function.first_line - 1 : next_line - 1]
        is_indented = own[:1] != [own[0].lstrip()]
        text = ["if True:"] * is_indented + own
        above = function.first_line - 1 - is_indented
        try:
            ends = _function_ends(ast.parse("\n".join(text)), text)
        except SyntaxError:  # the ``else`` of the statement around it follows
            return self.last_line(function)
        end = ends.get((function.qualified_name.rpartition(".")[2], function.first_line - above))
        return end + above if end is not None else self.last_line(function)


def _is_simple(running: list[FunctionLines]) -> bool:
    """Return whether a line runs in only one function, which has a name and is not an inner one."""
    return len(running) == 1 and "<" not in running[0].qualified_name


def line_table(path: str) -> LineTable:
    """Return the line table of the Python file at ``path``.

    Raises:
        LineTableError: the file cannot be read, or is not Python that this interpreter can parse.
    """
    seen: dict[str, LineTable | LineTableError] | None = getattr(_checked, "seen", None)
    if seen is None:
        return _current_table(path)
    if path not in seen:
        try:
            seen[path] = _current_table(path)
        except LineTableError as error:
            seen[path] = error
    found = seen[path]
    if isinstance(found, LineTableError):
        raise LineTableError(str(found))  # a new one: each raise makes the traceback of an error longer
    return found


@contextmanager
def checking_files_once() -> Iterator[None]:
    """Check only once inside the context whether a file has changed, and keep other threads out.

    Use it for many questions about one file. Two debuggers place its breakpoints at the same time: to alternate between
    them for each question would take longer.
    """
    with _making:
        _checked.seen = {}
        try:
            yield
        finally:
            del _checked.seen


def is_cell(path: str) -> bool:
    """Return whether ``path`` exists only in this process, like a notebook's cells."""
    return path in linecache.cache and not os.path.exists(path)


def _current_table(path: str) -> LineTable:
    try:
        status = os.stat(path)
    except ValueError as error:  # no file has such a name
        raise LineTableError(f"cannot read {path!r}: {error}") from None
    except OSError as error:
        if is_cell(path):
            return line_table_of_text("".join(linecache.getlines(path)), path)
        raise LineTableError(f"cannot read {path}: {error.strerror or error}") from None
    version = (status.st_mtime_ns, status.st_size)
    cached = _cache.get(path)
    if cached is None or cached[0] != version:
        # Two debuggers need the same file at the same time: the second waits for the first one's table.
        with _making:
            cached = _cache.get(path)
            if cached is None or cached[0] != version:
                cached = _cache[path] = (version, _table_or_error(path))
    if isinstance(cached[1], LineTableError):
        raise LineTableError(str(cached[1]))
    return cached[1]


def _table_or_error(path: str) -> LineTable | LineTableError:
    text = _read(path)
    try:
        return _compiled_table(path, text)
    except LineTableError as error:
        if not isinstance(error.__context__, SyntaxError):
            raise  # raised for lack of memory or stack: the next try may succeed
        return LineTableError(str(error))


def line_table_of_text(text: str, path: str = "<string>") -> LineTable:
    """Return the line table of source text that is in no file.

    Raises:
        LineTableError: it is not Python that this interpreter can parse.
    """
    return _compiled_table(path, text)


_cache: dict[str, tuple[tuple[int, int], LineTable | LineTableError]] = {}
"""A file that does not parse is parsed only once, too: Python takes seconds for an error at the end of a long one."""
_making = reentrant_lock("line tables", Level.SOURCES, is_new_in_forks=True)
_checked = threading.local()


def _read(path: str) -> str:
    try:
        return read_source(path)
    except OSError as error:
        raise LineTableError(f"cannot read {path}: {error.strerror or error}") from None
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise LineTableError(f"{path} is not text in the encoding it declares: {error}") from None


def _compiled_table(path: str, text: str) -> LineTable:
    try:
        with _own_warnings_silenced():
            code = compile(text, _NAME_WHEN_COMPILING, "exec", dont_inherit=True, **_MODULE)
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        raise LineTableError(f"{path}{where}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise LineTableError(f"{path} cannot be compiled: {error or type(error).__name__}") from None
    collector = _Collector()
    collector.module(code)
    functions = sorted(collector.functions, key=lambda one: (one.first_line, one.qualified_name.count(".")))
    return LineTable(path, tuple(functions), frozenset(collector.module_lines), text)


@contextmanager
def _own_warnings_silenced() -> Iterator[None]:
    """Keep our compile of the file from printing its warnings again.

    ``warnings.catch_warnings`` would replace the program's filters and make it forget which warnings it has shown. This
    entry matches only the name under which we compile.
    """
    entry = ("ignore", None, Warning, _NAME_WHEN_COMPILING, 0)
    filters = warnings.filters
    assert isinstance(filters, list)
    filters.insert(0, entry)
    try:
        yield
    finally:
        if entry in filters:
            filters.remove(entry)


class _Collector:
    """Visits a module's code objects, outermost first."""

    def __init__(self) -> None:
        self.functions: list[FunctionLines] = []
        self.module_lines: set[int] = set()

    def module(self, code: CodeType) -> None:
        self.module_lines.update(code_lines(code))
        for inner in _inner_codes(code):
            self._visit(inner, "", self.module_lines)

    def _visit(self, code: CodeType, prefix: str, around: set[int]) -> None:
        """Collect ``code``, whose lines count for ``around`` unless it is a function."""
        if _is_annotations(code):
            return
        if code.co_name.startswith("<generic parameters of "):
            around.update(code_lines(code))
            for inner in _inner_codes(code):
                self._visit(inner, prefix, around)
            return
        name = getattr(code, "co_qualname", prefix + code.co_name)
        is_class = not code.co_flags & CO_OPTIMIZED
        lines = around if is_class or code.co_name in _COMPREHENSIONS else set()
        lines.update(code_lines(code))
        for inner in _inner_codes(code):
            self._visit(inner, f"{name}." if is_class else f"{name}.<locals>.", lines)
        if lines is not around:
            self._add_function(code, name, lines)

    def _add_function(self, code: CodeType, name: str, lines: set[int]) -> None:
        is_coroutine = bool(code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR))
        self.functions.append(FunctionLines(name, code.co_firstlineno, frozenset(lines), is_coroutine))


def _inner_codes(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _is_annotations(code: CodeType) -> bool:
    """Return whether this is the function with which Python 3.14 computes annotations."""
    return code.co_name == "__annotate__" and code.co_varnames[:1] in ((".format",), ("format",))


def code_lines(code: CodeType) -> set[int]:
    """Return the lines of ``code`` that do more than a function's prologue."""
    body_start = prologue_end(code)
    instructions = code.co_code
    lines: set[int] = set()
    for start, end, line in code.co_lines():
        if not line or line in lines or end <= body_start:
            continue
        first = max(start, body_start)
        # The first instruction nearly always decides.
        if instructions[first] not in _PROLOGUE or any(
            instructions[at] not in _PROLOGUE for at in range(first, end, 2)
        ):
            lines.add(line)
    return lines


def prologue_end(code: CodeType) -> int:
    """Return the offset of the first instruction after the prologue (``RESUME``, making cells)."""
    instructions = code.co_code
    offset = 0
    previous: int | None = None
    while offset < len(instructions):
        operation = instructions[offset]
        in_prologue = operation in _PROLOGUE
        if not in_prologue and not (operation == _AFTER_RETURN_GENERATOR and previous == _RETURN_GENERATOR):
            break
        previous = operation
        offset += 2
    return offset


def _statements(tree: ast.Module) -> Iterator[ast.stmt | ast.ExceptHandler | ast.match_case]:
    """Yield every statement, handler and case, but no expressions, the bulk of a tree."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for name in ("body", "handlers", "orelse", "finalbody", "cases"):
            for inner in getattr(node, name, ()):
                yield inner
                waiting.append(inner)


def _statement_starts(tree: ast.Module) -> Iterator[int]:
    for node in _statements(tree):
        yield node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from (decorator.lineno for decorator in node.decorator_list)


def _function_ends(tree: ast.Module, source_lines: list[str]) -> dict[tuple[str, int], int]:
    """Return (name, ``co_firstlineno``) -> last line, for every function of the tree that has statements."""
    ends: dict[tuple[str, int], int] = {}
    for node in _statements(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            end = _with_comments_below(source_lines, node.end_lineno or node.lineno, node.col_offset)
            ends[node.name, first] = max(end, ends.get((node.name, first), 0))
    return ends


def _with_comments_below(source_lines: list[str], last_line: int, indentation: int) -> int:
    """Return ``last_line``, or the last comment line below it that is indented deeper than ``indentation``."""
    end = last_line
    for number in range(last_line + 1, len(source_lines) + 1):
        text = source_lines[number - 1]
        stripped = text.lstrip()
        if not stripped:
            continue
        if not stripped.startswith("#") or len(text) - len(stripped) <= indentation:
            break
        end = number
    return end


def qualified_name(code: CodeType) -> str:
    """Return the qualified name of ``code``; on Python 3.10 the bare one unless the file says more."""
    known: str | None = getattr(code, "co_qualname", None)
    return known if known is not None else name_in_file(code)


def name_in_file(code: CodeType) -> str:
    """Return the file's qualified name; the bare one if it is unreadable or has no such function."""
    try:
        functions = line_table(code.co_filename).functions
    except LineTableError:
        return code.co_name
    for function in functions:
        name = function.qualified_name
        if function.first_line == code.co_firstlineno and name.rpartition(".")[2] == code.co_name:
            return name
    return code.co_name
