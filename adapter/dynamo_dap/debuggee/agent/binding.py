"""Finds the line that a breakpoint binds to, or the reason why it cannot be hit, from the source alone.

A breakpoint is verified only if it can be hit. Dynamo traces only functions, so module-level code, coroutines and
functions under ``torch.compiler.disable`` never stop in a trace. Runs on the agent's reader thread.
"""

from __future__ import annotations

import ast
import bisect
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dynamo_dap.debuggee.agent.user_code import is_debugger_file, is_user_file
from dynamo_dap.debuggee.bytecode.line_table import FunctionLines, LineTable, LineTableError, is_cell, line_table
from dynamo_dap.debuggee.bytecode.loaded_modules import loaded_files
from dynamo_dap.protocol.requests.contract import BACKWARD, COMPILE_TIME, EAGER, LOWERING, RUN_TIME
from dynamo_dap.protocol.requests.options import AS_PYTHON, GENERATED, REPLAY, AgentOptions

_MAXIMUM_FILES_SEARCHED = 500


@dataclass(frozen=True, slots=True)
class Binding:
    """The line that a breakpoint binds to, or the reason why it cannot be hit."""

    line: int
    """1-based; the requested line if the breakpoint cannot be hit."""
    problem: str | None = None
    pending: bool = False
    """Whether the problem may disappear when more code is loaded."""
    note: str | None = None
    """A remark on a bound breakpoint."""


def bind_lines(path: str, wanted: Sequence[tuple[int, str | None]], options: AgentOptions) -> list[Binding]:
    """Bind breakpoints in the file ``path``; ``wanted`` has each one's line and mode (None for any mode)."""
    problem, table = _file_problem(path, options), None
    if problem is None:
        try:
            table = line_table(path)
        except LineTableError as error:
            problem = str(error)

    def bind(line: int, mode: str | None) -> Binding:
        why = _mode_problem(mode, options) or problem
        if table is None or why is not None:
            return Binding(line, why)
        binding = _bind_in_table(table, line)
        return binding if binding.problem is not None else replace(binding, note=_when_it_stops(mode, options))

    return [bind(line, mode) for line, mode in wanted]


def _bind_in_table(table: LineTable, line: int) -> Binding:
    if table.next_executable_line(line) is None:
        return Binding(line, f"no code on or after line {line}")
    bound = table.line_of_breakpoint(line)
    if not table.functions_running(bound):
        return Binding(bound, f"line {bound} is module-level code; Dynamo only traces functions")
    # Of several functions on one line, the innermost comes last; Dynamo may trace it without the others.
    reason = _never_traced(table, table.functions_running(bound)[-1])
    if reason is not None:
        return Binding(line, reason)
    return Binding(bound)


def _when_it_stops(mode: str | None, options: AgentOptions) -> str | None:
    """Say when a breakpoint stops in compiled code; the server adds when it stops in ordinary Python."""
    if mode == COMPILE_TIME:
        return "stops while Dynamo traces the line"
    if mode == BACKWARD:
        return "stops in the backward pass of a compiled call, when the gradient of the line's result has arrived"
    if mode == LOWERING:
        return "stops when AOTAutograd, a pass or Inductor works on the line's operations, in compiles from now on"
    if mode == RUN_TIME or not options.compile_time:
        return "stops in the code that Dynamo generated"
    return f"stops while Dynamo traces the line, {_IN_CACHED_CALLS[options.cached_calls]}"


_IN_CACHED_CALLS = {
    REPLAY: "and in cached calls",
    AS_PYTHON: "and then as ordinary Python: a compiled function runs uncompiled while it has breakpoints",
    GENERATED: "and in the code that Dynamo generated",
}


def _mode_problem(mode: str | None, options: AgentOptions) -> str | None:
    if mode == BACKWARD and options.real_values == "off":
        return "a backward breakpoint needs real values, which are off (realValues)"
    allowed = {
        BACKWARD: options.compile_time,
        LOWERING: options.compile_time,
        COMPILE_TIME: options.compile_time,
        RUN_TIME: options.run_time,
        EAGER: options.eager,
    }
    if mode in allowed and not allowed[mode]:
        if mode == "eager":
            return "this session does not debug ordinary Python (eager is false)"
        return f"this session does not stop at {mode} breakpoints: its mode is {options.mode}"
    return None


def _file_problem(path: str, options: AgentOptions) -> str | None:
    if not os.path.isfile(path) and not is_cell(path):
        return f"{path} does not exist"
    if not _is_named_python(path):
        return f"{os.path.basename(path)} is not a Python file"
    if is_debugger_file(path):
        return "the debugger cannot stop in its own code"
    if options.just_my_code and not is_user_file(path):
        return (
            "the file belongs to an installed package or the standard library; to stop in it, set justMyCode to false"
        )
    return None


def bind_function(name: str) -> tuple[str, Binding]:
    """Find the function called ``name`` in the user's modules.

    Returns:
        The path of the function's file (empty if unknown) and the binding of a breakpoint on the function.
    """
    for path, module_name in _user_files():
        try:
            table = line_table(path)
        except LineTableError:
            continue
        for function in table.functions:
            if name in _names_of(function, module_name) and function.lines:
                line = min(function.lines)
                return path, Binding(line, _never_traced(table, function))
    return "", Binding(0, f"no module loaded so far has a function '{name}'", pending=True)


def _names_of(function: FunctionLines, module_name: str) -> set[str]:
    plain = function.qualified_name.replace("<locals>.", "")
    return {function.qualified_name, plain, plain.rpartition(".")[2], f"{module_name}.{function.qualified_name}"}


_program_files: list[str] = []


def add_program_file(path: str) -> None:
    """Search ``path`` for functions, too: a file of the program that Python may not have loaded yet."""
    _program_files.append(path)


_PYTHON_SUFFIXES = ("", ".py", ".pyw")
"""A script may have no suffix."""


def why_not_executed(path: str) -> str | None:
    """Return why ordinary Python will never execute the file, judged by its name and text; None if it may.

    The text proves nothing once the file is loaded: the user may have edited it since.
    """
    if not _is_named_python(path):
        return f"{os.path.basename(path)} is not a Python file"
    try:
        problem = None if line_table(path).sorted_lines else f"{os.path.basename(path)} has no code"
    except LineTableError as error:
        problem = str(error)
    return None if problem is None or _is_loaded(path) else problem


def line_with_code(path: str, line: int) -> int:
    """Return the last line with code at or before ``line``, else the file's first line with code."""
    try:
        lines = line_table(path).sorted_lines
    except LineTableError:
        return line
    return lines[max(0, bisect.bisect_right(lines, line) - 1)] if lines else line


def _is_named_python(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in _PYTHON_SUFFIXES or path in _program_files or _is_loaded(path)


def _is_loaded(path: str) -> bool:
    return any(loaded == path for _, loaded, _ in loaded_files())


def _user_files() -> Iterator[tuple[str, str]]:
    yield from ((path, "__main__") for path in _program_files)
    seen = 0
    for module_name, path, _ in loaded_files():
        if path.endswith(".py") and is_user_file(path):
            seen += 1
            if seen > _MAXIMUM_FILES_SEARCHED:
                return
            yield path, module_name


# -- functions that Dynamo never traces ----------------------------------------------------------------------------

_DISABLING = frozenset({"torch.compiler.disable", "torch._dynamo.disable", "torch._disable_dynamo"})


def _never_traced(table: LineTable, function: FunctionLines) -> str | None:
    """Return why Dynamo never traces ``function``, judged by its text; None if it may."""
    if function.is_coroutine:
        return f"'{function.qualified_name}' is a coroutine: Dynamo does not trace coroutines"
    for decorator in table.decorators(function):
        called = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if called in _DISABLING:
            return f"'{function.qualified_name}' is under @{called}: Dynamo does not trace it"
    return None
