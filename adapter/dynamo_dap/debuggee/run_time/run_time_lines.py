"""Breakpoints of mode ``run-time``: which instructions of generated code they stop before, or why they never stop.

A line of the user's code is executed by instructions of the generated code or by the compiled graph that it calls; a
line whose result Dynamo computed while tracing is not executed at all. Computed again whenever code was generated or
breakpoints changed; on the thread that runs the code, or that sets breakpoints.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator
from types import CodeType

from dynamo_dap.debuggee.agent.breakpoints import BreakpointTable, LineBreakpoint
from dynamo_dap.debuggee.agent.user_code import normalized_path
from dynamo_dap.debuggee.code_analysis.line_table import LineTableError, line_table
from dynamo_dap.debuggee.run_time.generated import GeneratedCode, GeneratedCodes
from dynamo_dap.debuggee.run_time.listing import Group
from dynamo_dap.debuggee.run_time.purpose import Kind
from dynamo_dap.protocol.contract import RUN_TIME


def groups_for_line(generated: GeneratedCode, path: str, line: int) -> list[Group]:
    """Return where ``generated`` comes to a line that has no instructions of its own there.

    That is where it calls the graph that computes the line, or returns, if the line does nothing else. ``path`` is
    normalized.
    """
    if (path, line) in _lines_of_instructions(generated):
        return []
    if (path, line) in generated.computed_lines:
        return generated.listing.groups_of(Kind.GRAPH)
    is_own = path == normalized_path(generated.path) and _lines_that_return(generated.original) == {line}
    # What a resume function returned is only passed on.
    return generated.listing.groups_of(Kind.RETURN) if is_own and not generated.listing.groups_of(Kind.RESUME) else []


def _lines_of_instructions(generated: GeneratedCode) -> set[tuple[str, int]]:
    return {(normalized_path(path), line) for path, line in generated.listing.entries_of_lines()}


def _lines_that_return(original: CodeType | None) -> set[int]:
    if original is None:
        return set()
    line, lines = original.co_firstlineno, set()
    for instruction in dis.get_instructions(original):
        line = instruction.starts_line if type(instruction.starts_line) is int else _line_of(instruction, line)
        if instruction.opname.startswith("RETURN_") and instruction.opname != "RETURN_GENERATOR":
            lines.add(line)
    return lines


def _line_of(instruction: dis.Instruction, before: int) -> int:
    """``starts_line`` is a flag on Python 3.13 and newer, and the number is beside it."""
    return getattr(instruction, "line_number", None) or before


class RunTimeLines:
    """Keeps what is said of the breakpoints true."""

    def __init__(self, breakpoints: BreakpointTable, codes: GeneratedCodes) -> None:
        self._breakpoints = breakpoints
        self._codes = codes
        self._state: tuple[int, int] | None = None

    def update(self) -> list[LineBreakpoint]:
        """Look at each breakpoint again if anything changed; return those of which something else holds now."""
        state = (self._codes.count, self._breakpoints.version)
        if state == self._state:
            return []
        self._state = state
        return [breakpoint for breakpoint in self._breakpoints.lines_of_mode(RUN_TIME) if self._has_changed(breakpoint)]

    def _has_changed(self, breakpoint: LineBreakpoint) -> bool:
        before = breakpoint.note, breakpoint.never_run
        path, line = normalized_path(breakpoint.path), breakpoint.line
        relevant = self._codes_of_function(path, line)
        notes = [said for generated in relevant for said in _places(generated, path, line)]
        breakpoint.note = None if not notes or "" in notes else notes[0]
        is_known = bool(relevant) and not self._may_be_elsewhere(relevant)
        breakpoint.never_run = (
            f"no graph and no instruction of the generated code computes line {line}: "
            "Dynamo worked it out while it traced"
            if is_known and not notes
            else None
        )
        return before != (breakpoint.note, breakpoint.never_run)

    def _codes_of_function(self, path: str, line: int) -> list[GeneratedCode]:
        try:
            running = line_table(path).functions_running(line)
        except LineTableError:
            return []
        functions = {(path, function.first_line) for function in running}
        return [
            generated
            for generated in self._codes
            if generated.code_if_alive is not None and functions & generated.functions
        ]

    def _may_be_elsewhere(self, relevant: Iterable[GeneratedCode]) -> bool:
        """Whether the line may lie in what has yet to be compiled, or was compiled before anybody looked."""
        owners = {(generated.path, generated.first_line) for generated in relevant}
        family = [
            generated
            for generated in self._codes
            if generated.code_if_alive is not None and (generated.path, generated.first_line) in owners
        ]
        called = {group.purpose.title for generated in family for group in generated.listing.groups_of(Kind.RESUME)}
        resumed = {id(generated.original) for generated in family if generated.is_resume_function}
        return len(called) > len(resumed) or any(generated.record is None for generated in family)


def _places(generated: GeneratedCode, path: str, line: int) -> Iterator[str]:
    """Yield what is to be said of each place where ``generated`` comes to the line, nothing for one on the line."""
    if (path, line) in _lines_of_instructions(generated):
        yield ""
    for group in groups_for_line(generated, path, line):
        if group.purpose.kind is Kind.GRAPH:
            graph = group.purpose.title.removeprefix("call ")
            yield f"stops where {generated.name} calls {graph}, which computes line {line}"
        else:
            yield ""
