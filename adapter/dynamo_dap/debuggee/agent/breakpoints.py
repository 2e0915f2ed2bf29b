"""Keeps a session's breakpoints: requested places, bound places, and hit counts.

The agent's reader thread sets breakpoints; engines read them on any thread. Readers see a consistent table without
locks, since every change replaces whole tuples and dictionaries. Editors send all breakpoints of a file again at every
change: an unchanged breakpoint keeps its id and its hit count. Ids are never reused. The table lives as long as the
agent.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dynamo_dap.debuggee.agent.binding import Binding, bind_lines
from dynamo_dap.debuggee.agent.conditions import Conditions
from dynamo_dap.debuggee.agent.user_code import normalized_path
from dynamo_dap.debuggee.bytecode.line_table import (
    FunctionLines,
    LineTableError,
    checking_files_once,
    line_table,
    qualified_name,
)
from dynamo_dap.debuggee.values.model import Watchable
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.protocol.requests.contract import BREAKPOINT_MODES
from dynamo_dap.protocol.requests.options import AgentOptions
from dynamo_dap.protocol.wire.types import (
    Breakpoint,
    DataBreakpoint,
    DataBreakpointInfoResponseBody,
    FunctionBreakpoint,
    Source,
    SourceBreakpoint,
)

GUARDED = "read"
"""DAP's access type for stops when Dynamo installs a guard on the variable."""
CHANGED = "write"
"""DAP's access type for stops when the variable is rebound or mutated."""
ANY_ACCESS = "readWrite"


PathStep = tuple[bool, Any]
"""A step from an object to a part of it: True and an attribute's name, or False and a key."""


@dataclass(frozen=True, slots=True)
class WatchedVariable:
    """A local variable of a function, or a part of its value, such as ``self.scale``."""

    name: str
    function: str
    path: str
    line: int
    """The function's first line, 1-based."""

    @classmethod
    def of(cls, name: str, code: types.CodeType) -> WatchedVariable:
        """Return the variable ``name`` of the function with ``code``."""
        return cls(name, qualified_name(code), code.co_filename, code.co_firstlineno)

    @classmethod
    def parse(cls, data_id: str) -> WatchedVariable | None:
        """Return the variable of a ``dataId``; None if the id is not from this debugger."""
        try:
            name, function, path, line = msgspec.json.decode(data_id, type=tuple[str, str, str, int])
        except msgspec.DecodeError:
            return None
        return cls(name, function, path, line)

    @property
    def is_path(self) -> bool:
        """Whether this is a part of a variable's value."""
        return not self.name.isidentifier()

    @property
    def parts(self) -> tuple[str, tuple[PathStep, ...]]:
        """The local variable, and the steps from its value to the part.

        There are no steps if ``name`` is a plain variable, or an expression other than attributes and constant keys.
        """
        try:
            node: ast.expr = ast.parse(self.name, mode="eval").body
        except (SyntaxError, ValueError):
            return self.name, ()
        steps: list[PathStep] = []
        while not isinstance(node, ast.Name):
            if isinstance(node, ast.Attribute):
                steps.append((True, node.attr))
            elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                steps.append((False, node.slice.value))
            else:
                return self.name, ()
            node = node.value
        return node.id, tuple(reversed(steps))

    @property
    def data_id(self) -> str:
        """DAP's ``dataId``."""
        return msgspec.json.encode((self.name, self.function, self.path, self.line)).decode()

    def belongs_to(self, code: types.CodeType) -> bool:
        """Return whether ``code`` belongs to the variable's function."""
        return code.co_firstlineno == self.line and code.co_filename == self.path

    def is_source(self, source: str) -> bool:
        """Return whether a guard on ``source``, as the user would write it, concerns the variable or a part of it."""
        return source == self.name or source.startswith((f"{self.name}.", f"{self.name}[", f"len({self.name})"))


def can_be_watched(watched: Watchable, accesses: str, access_types: list[str]) -> DataBreakpointInfoResponseBody:
    """Return DAP's answer that a variable can be watched."""
    description = f"{watched.name} in {watched.function}: {accesses}"
    return DataBreakpointInfoResponseBody(watched.data_id, description, access_types=access_types, can_persist=True)


FunctionBinder = Callable[[str], tuple[str, Binding]]
"""Finds a function by name; see ``binding.bind_function``."""

ACCESSES = (GUARDED, CHANGED, ANY_ACCESS)


@dataclass(eq=False)
class LineBreakpoint:
    """A breakpoint on a line, or on entry of a function; ``line`` is the bound one, 1-based."""

    id: int
    path: str
    """The file's path as the client sent it."""
    requested: SourceBreakpoint | FunctionBreakpoint | DataBreakpoint
    conditions: Conditions
    binding: Binding
    mode: str | None = None
    hits: int = 0
    seen: bool = False
    """Whether a trace or generated code has ever reached the breakpoint."""
    unjudged: bool = False
    """Whether a compiled call may have reached the breakpoint without evaluating its condition."""
    functions: tuple[FunctionLines, ...] | None = None
    """The functions that run the line; None if the breakpoint was set after the program had begun."""
    never_run: str | None = None
    """Why no code compiled so far reaches the breakpoint."""
    note: str | None = None
    """A text that says where the breakpoint stops, if not at its line."""

    @property
    def line(self) -> int:
        """The line that the breakpoint is bound to."""
        return self.binding.line

    @property
    def verified(self) -> bool:
        """Whether the breakpoint can be hit."""
        return self.binding.problem is None and self.conditions.problem is None

    def hit(self) -> bool:
        """Count a hit, and return whether the hit condition, if any, is met."""
        self.hits += 1
        return self.conditions.hit_condition is None or self.conditions.hit_condition.is_met(self.hits)

    def applies_to(self, mode: str) -> bool:
        """Return whether the breakpoint is set for ``mode``; one without a mode is set for every mode."""
        return self.mode is None or self.mode == mode

    def as_dap(self) -> Breakpoint:
        """Return the breakpoint as DAP describes it."""
        problem = self.conditions.problem or self.binding.problem or self.never_run
        reason = None if problem is None else ("pending" if self.binding.pending else "failed")
        source = Source(path=self.path) if self.path else None
        line = self.binding.line if self.path else None
        return Breakpoint(
            verified=problem is None,
            id=self.id,
            message=problem or self.note or self.binding.note,
            source=source,
            line=line,
            reason=reason,
        )


@dataclass(eq=False)
class FunctionEntry(LineBreakpoint):
    """A breakpoint on entry of every function with a name."""

    name: str = ""

    def matches(self, qualified_name: str, module_name: str | None) -> bool:
        """Return whether the breakpoint's name is this function's: qualified, with or without its module, or bare."""
        if self.name in (qualified_name, f"{module_name}.{qualified_name}"):
            return True
        plain = qualified_name.replace("<locals>.", "")
        return self.name == plain or ("." not in self.name and plain.rpartition(".")[2] == self.name)


@dataclass(eq=False)
class DataEntry(LineBreakpoint):
    """A breakpoint on changes of a variable, or on guards that Dynamo installs on it."""

    variable: WatchedVariable = field(kw_only=True)
    access: str = ANY_ACCESS


@dataclass(frozen=True)
class _Tables:
    """One state of all breakpoints, which a change replaces as a whole."""

    by_path: Mapping[str, tuple[LineBreakpoint, ...]] = field(default_factory=dict)
    functions: tuple[FunctionEntry, ...] = ()
    data: tuple[DataEntry, ...] = ()
    exception_filters: Mapping[str, str | None] = field(default_factory=dict)


class BreakpointTable:
    """All breakpoints of a session."""

    def __init__(self) -> None:
        self._write_lock = lock("breakpoints", Level.SETTINGS)
        self._ids = itertools.count(1)
        self._tables = _Tables()
        self._lines_of_file: dict[str, dict[int, tuple[LineBreakpoint, ...]] | None] = {}
        self.version = 0
        """Changes whenever the table does."""
        self.precedes_program = False
        """Whether the program has not begun yet: it waits for its breakpoints."""

    # -- setting ---------------------------------------------------------------------------------------------------

    def set_lines(
        self, path: str, requested: Iterable[SourceBreakpoint], options: AgentOptions
    ) -> list[LineBreakpoint]:
        """Replace the breakpoints of the file ``path``; bind and return them in the requested order."""
        key, wanted = normalized_path(path), list(requested)
        with self._write_lock, checking_files_once():
            kept = {_identity(old.requested): old for old in self._tables.by_path.get(key, ())}
            bindings = bind_lines(path, [(one.line, one.mode) for one in wanted], options)
            made = [
                self._line_breakpoint(path, one, binding, kept.pop(_identity(one), None))
                for one, binding in zip(wanted, bindings, strict=True)
            ]
            by_path = {**self._tables.by_path, key: tuple(made)}
            if not made:
                del by_path[key]
            self._replace(by_path=by_path)
        return made

    def _line_breakpoint(
        self, path: str, requested: SourceBreakpoint, binding: Binding, old: LineBreakpoint | None
    ) -> LineBreakpoint:
        if old is not None:
            old.binding = binding
            return old
        conditions = Conditions.parse(requested.condition, requested.hit_condition, requested.log_message)
        if requested.mode is not None and requested.mode not in BREAKPOINT_MODES:
            conditions.problem = (
                f"unknown breakpoint mode '{requested.mode}'; known modes: {', '.join(BREAKPOINT_MODES)}"
            )
        made = LineBreakpoint(next(self._ids), path, requested, conditions, binding, requested.mode)
        if self.precedes_program:
            with contextlib.suppress(LineTableError):
                made.functions = tuple(line_table(path).functions_running(binding.line))
        return made

    def set_functions(self, requested: Iterable[FunctionBreakpoint], bind: FunctionBinder) -> list[FunctionEntry]:
        """Replace the function breakpoints and return them. ``bind`` finds a function by name."""
        with self._write_lock:
            kept: dict[object, FunctionEntry | None] = {_identity(old.requested): old for old in self._tables.functions}
            made = [kept.pop(_identity(one), None) or self._function_entry(one, bind) for one in requested]
            self._replace(functions=tuple(made))
        return made

    def _function_entry(self, requested: FunctionBreakpoint, bind: FunctionBinder) -> FunctionEntry:
        path, binding = bind(requested.name)
        conditions = Conditions.parse(requested.condition, requested.hit_condition, None)
        return FunctionEntry(next(self._ids), path, requested, conditions, binding, name=requested.name)

    def set_data(self, requested: Iterable[DataBreakpoint]) -> list[DataEntry]:
        """Replace the data breakpoints and return them, in the requested order."""
        with self._write_lock:
            kept: dict[object, DataEntry | None] = {_identity(old.requested): old for old in self._tables.data}
            made = [kept.pop(_identity(one), None) or self._data_entry(one) for one in requested]
            self._replace(data=tuple(made))
        return made

    def _data_entry(self, requested: DataBreakpoint) -> DataEntry:
        variable = WatchedVariable.parse(requested.data_id)
        access = requested.access_type or ANY_ACCESS
        conditions = Conditions.parse(requested.condition, requested.hit_condition, None)
        if variable is None:
            conditions.problem = "this is not a variable that can be watched"
        elif access not in ACCESSES:
            conditions.problem = f"unknown access type '{access}'; known types: {', '.join(ACCESSES)}"
        known = variable or WatchedVariable(requested.data_id, "", "", 0)
        return DataEntry(next(self._ids), "", requested, conditions, Binding(known.line), variable=known, access=access)

    def set_exception_filters(self, filters: Mapping[str, str | None]) -> None:
        """Replace the exception filters, a map from filter id to condition."""
        with self._write_lock:
            self._replace(exception_filters=dict(filters))

    def bind_again(self, options: AgentOptions) -> None:
        """Bind every line breakpoint anew: the options have changed."""
        with self._write_lock, checking_files_once():
            for one in itertools.chain.from_iterable(self._tables.by_path.values()):
                assert isinstance(one.requested, SourceBreakpoint), "only line breakpoints are stored by file"
                (one.binding,) = bind_lines(one.path, [(one.requested.line, one.mode)], options)
            self._replace()

    def clear(self) -> None:
        """Forget everything: the client has disconnected."""
        with self._write_lock:
            self._replace(by_path={}, functions=(), data=(), exception_filters={})

    def new_id(self) -> int:
        """Return an id for a breakpoint that an engine keeps itself (instruction breakpoints)."""
        return next(self._ids)

    def _replace(self, **changes: object) -> None:
        self._tables = _Tables(**{**self._tables.__dict__, **changes})
        self._lines_of_file = {}
        self.version += 1

    # -- asking ----------------------------------------------------------------------------------------------------

    def lines_in(self, filename: str) -> dict[int, tuple[LineBreakpoint, ...]] | None:
        """Return the verified breakpoints of a code object's ``co_filename`` by line; None if there are none.

        Cheap enough to call at every line.
        """
        lines = self._lines_of_file
        try:
            return lines[filename]
        except KeyError:
            found = self._collect_lines(filename)
            lines[filename] = found
            return found

    def _collect_lines(self, filename: str) -> dict[int, tuple[LineBreakpoint, ...]] | None:
        found: dict[int, list[LineBreakpoint]] = {}
        for breakpoint in self._tables.by_path.get(normalized_path(filename), ()):
            if breakpoint.verified:
                found.setdefault(breakpoint.line, []).append(breakpoint)
        return {line: tuple(each) for line, each in found.items()} or None

    def counting_at(self, frame: types.FrameType, *, enters: bool) -> LineBreakpoint | None:
        """Return a breakpoint with a hit condition at the line of ``frame``, or (``enters``) on its function."""
        reached: Iterable[LineBreakpoint] = (self.lines_in(frame.f_code.co_filename) or {}).get(frame.f_lineno, ())
        if enters:
            name, module = qualified_name(frame.f_code), frame.f_globals.get("__name__")
            reached = (one for one in self.functions if one.matches(name, module))
        return next((one for one in reached if one.conditions.hit_condition is not None), None)

    def lines_of_mode(self, mode: str) -> list[LineBreakpoint]:
        """Return the line breakpoints that can be hit and have exactly the mode ``mode``."""
        groups = self._tables.by_path.values()
        return [one for group in groups for one in group if one.verified and one.mode == mode]

    def set_before_program(self) -> list[LineBreakpoint]:
        """Return the line breakpoints that were set before the program began."""
        groups = self._tables.by_path.values()
        return [one for group in groups for one in group if one.functions is not None]

    def any_line_without_mode(self) -> bool:
        """Return whether a line breakpoint that can be hit has no mode."""
        return any(one.verified and one.mode is None for group in self._tables.by_path.values() for one in group)

    @property
    def functions(self) -> tuple[FunctionEntry, ...]:
        """The function breakpoints with valid conditions."""
        return tuple(entry for entry in self._tables.functions if entry.conditions.problem is None)

    @property
    def data(self) -> tuple[DataEntry, ...]:
        """The data breakpoints that can be hit."""
        return tuple(entry for entry in self._tables.data if entry.conditions.problem is None)

    @property
    def data_in_traces(self) -> tuple[DataEntry, ...]:
        """The data breakpoints that a trace can hit. Changes of an object's part are hit in ordinary Python only."""
        return tuple(one for one in self.data if not (one.variable.is_path and one.access == CHANGED))

    def existing(self, ids: Sequence[int]) -> list[int]:
        """Return the ``ids`` whose breakpoints still exist."""
        tables = self._tables
        groups = (*tables.by_path.values(), tables.functions, tables.data)
        known = {one.id for one in itertools.chain.from_iterable(groups)}
        return [each for each in ids if each in known]

    def are_functions(self, ids: Sequence[int]) -> bool:
        """Return whether all of ``ids``, at least one, belong to function breakpoints."""
        functions = {entry.id for entry in self._tables.functions}
        return bool(ids) and functions.issuperset(ids)

    @property
    def exception_filters(self) -> Mapping[str, str | None]:
        """The exception filters that are on, with their conditions."""
        return self._tables.exception_filters

    def any_line(self, mode: str) -> bool:
        """Return whether a verified line or function breakpoint applies to ``mode``."""
        tables = self._tables
        lines = (one for group in tables.by_path.values() for one in group)
        return any(breakpoint.verified and breakpoint.applies_to(mode) for breakpoint in lines) or bool(
            tables.functions
        )


def _identity(requested: SourceBreakpoint | FunctionBreakpoint | DataBreakpoint) -> tuple[object, ...]:
    if isinstance(requested, DataBreakpoint):
        return (requested.data_id, requested.access_type, requested.condition, requested.hit_condition)
    if isinstance(requested, FunctionBreakpoint):
        return (requested.name, requested.condition, requested.hit_condition)
    return (
        requested.line,
        requested.column,
        requested.condition,
        requested.hit_condition,
        requested.log_message,
        requested.mode,
    )
