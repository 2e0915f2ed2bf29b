"""Keeps breakpoints in generated code, and plans where each code object stops for them.

``InstructionBreakpoints`` has the breakpoints by address (``setInstructionBreakpoints``) and by line of a listing. They
are set on the agent's reader thread and read on any thread. A breakpoint that is set again unchanged keeps its id and
hit count. ``RunTimeLines`` updates the state of breakpoints of mode ``run-time`` after each change of code or
breakpoints, on the thread that made the change. A user's line is executed by instructions of the generated code, or by
the compiled graph that they call. If Dynamo computed the line's result while tracing, nothing executes the line.
``Plans`` merges all breakpoints of one code object; a plan is replaced, never changed.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType

from dynamo_dap.debuggee.agent.binding import Binding
from dynamo_dap.debuggee.agent.breakpoints import BreakpointTable, LineBreakpoint
from dynamo_dap.debuggee.agent.conditions import Conditions
from dynamo_dap.debuggee.agent.user_code import normalized_path
from dynamo_dap.debuggee.bytecode.line_table import LineTableError, line_table
from dynamo_dap.debuggee.generated.known_code import (
    BadAddress,
    CodeGone,
    GeneratedCode,
    GeneratedCodes,
    parsed_address,
)
from dynamo_dap.debuggee.generated.listing import Group
from dynamo_dap.debuggee.generated.purpose import Kind
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.weak_collections import WeakKeyDictionary
from dynamo_dap.protocol.requests.contract import LISTING_FORMS, RUN_TIME
from dynamo_dap.protocol.wire.types import Breakpoint, InstructionBreakpoint, SourceBreakpoint

_ByIndex = Mapping[int, tuple[LineBreakpoint, ...]]


class InstructionBreakpoints:
    """Breakpoints on instructions of generated code, by the code's number."""

    def __init__(self, codes: GeneratedCodes, table: BreakpointTable) -> None:
        """Take ids from ``table``, which also numbers the line breakpoints."""
        self._codes = codes
        self._table = table
        self._lock = lock("breakpoints in generated code", Level.SETTINGS)
        self._by_address: dict[int, _ByIndex] = {}
        self._by_listing: dict[tuple[int, str], _ByIndex] = {}
        """By the code's number and the form of its listing."""
        self._kept: dict[tuple[object, ...], LineBreakpoint] = {}
        self.version = 0
        """Grows with each change of the breakpoints."""

    def __bool__(self) -> bool:
        return bool(self._by_address or self._by_listing)

    def of(self, generated: GeneratedCode) -> dict[int, tuple[LineBreakpoint, ...]]:
        """Return the breakpoints of ``generated`` and its earlier versions (patched code keeps them), by index."""
        at: dict[int, tuple[LineBreakpoint, ...]] = {}
        for number in {version.number for version in self._codes.versions(generated)}:
            of_forms = [self._by_listing.get((number, form), {}) for form in LISTING_FORMS]
            for by_index in (self._by_address.get(number, {}), *of_forms):
                for index, breakpoints in by_index.items():
                    at[index] = (*at.get(index, ()), *breakpoints)
        return at

    def clear(self) -> None:
        """Remove all breakpoints: the client is gone."""
        with self._lock:
            self._by_address, self._by_listing, self._kept = {}, {}, {}
            self.version += 1

    def set_addresses(self, requested: Sequence[InstructionBreakpoint]) -> list[Breakpoint]:
        """Replace the breakpoints on addresses; return the answer for each, in order."""
        answers: list[Breakpoint] = []
        by_number: dict[int, dict[int, tuple[LineBreakpoint, ...]]] = {}
        with self._lock:
            for request in requested:
                answer = self._set_address(request, by_number)
                answers.append(answer)
            self._by_address = dict(by_number)
            self._changed()
        return answers

    def _set_address(
        self, requested: InstructionBreakpoint, by_number: dict[int, dict[int, tuple[LineBreakpoint, ...]]]
    ) -> Breakpoint:
        try:
            address = parsed_address(requested.instruction_reference) + (requested.offset or 0)
            generated, index = self._codes.instruction_at(address)
            index = max(index, generated.entry)
        except (BadAddress, CodeGone) as problem:
            return Breakpoint(verified=False, message=str(problem), reason="failed")
        conditions = Conditions.parse(requested.condition, requested.hit_condition, None)
        identity = ("address", address, requested.condition, requested.hit_condition)
        breakpoint = self._breakpoint(identity, index + 1, conditions)
        if conditions.problem is not None:
            return Breakpoint(verified=False, id=breakpoint.id, message=conditions.problem, reason="failed")
        at = by_number.setdefault(generated.number, {})
        at[index] = (*at.get(index, ()), breakpoint)
        return Breakpoint(
            verified=True, id=breakpoint.id, instruction_reference=generated.reference(index), line=index + 1
        )

    def set_listing(
        self, generated: GeneratedCode, form: str, requested: Sequence[SourceBreakpoint]
    ) -> list[Breakpoint]:
        """Replace the breakpoints on lines of a listing of ``generated``; return the answer for each, in order.

        ``form`` is one of ``LISTING_FORMS``. The answers name no source: for a source without a path, VS Code would
        move the breakpoint to another place.
        """
        answers: list[Breakpoint] = []
        by_index: dict[int, tuple[LineBreakpoint, ...]] = {}
        document, key = generated.document(form), (generated.number, form)
        with self._lock:
            for request in requested:
                entry = document.entry_of(request.line) if request.line > 0 else None
                conditions = Conditions.parse(request.condition, request.hit_condition, request.log_message)
                if entry is None:
                    message = f"the listing of {generated.name} has {len(document.text().splitlines())} lines"
                    answers.append(Breakpoint(verified=False, message=message, line=request.line, reason="failed"))
                    continue
                index = max(entry, generated.entry)
                line = document.line_of(index)
                identity = ("listing", *key, index, request.condition, request.hit_condition, request.log_message)
                breakpoint = self._breakpoint(identity, line, conditions)
                problem = conditions.problem
                if problem is None:
                    by_index[index] = (*by_index.get(index, ()), breakpoint)
                reference = generated.reference(index)
                answers.append(
                    Breakpoint(
                        verified=problem is None,
                        id=breakpoint.id,
                        message=problem,
                        line=line,
                        instruction_reference=reference,
                        reason=None if problem is None else "failed",
                    )
                )
            self._by_listing = {**self._by_listing, key: by_index}
            if not by_index:
                del self._by_listing[key]
            self._changed()
        return answers

    def _breakpoint(self, identity: tuple[object, ...], line: int, conditions: Conditions) -> LineBreakpoint:
        kept = self._kept.get(identity)
        if kept is None:
            requested = SourceBreakpoint(line=line)
            kept = LineBreakpoint(self._table.new_id(), "", requested, conditions, Binding(line))
            self._kept[identity] = kept
        return kept

    def _changed(self) -> None:
        in_use = {
            id(breakpoint)
            for group in (*self._by_address.values(), *self._by_listing.values())
            for breakpoints in group.values()
            for breakpoint in breakpoints
        }
        self._kept = {identity: breakpoint for identity, breakpoint in self._kept.items() if id(breakpoint) in in_use}
        self.version += 1


def groups_for_line(generated: GeneratedCode, path: str, line: int) -> list[Group]:
    """Return the groups of ``generated`` at which a line without instructions of its own stops.

    They are the calls of the graph that computes the line, or the return if the line only returns. ``path`` is
    normalized.
    """
    if (path, line) in _lines_of_instructions(generated):
        return []
    if (path, line) in generated.computed_lines:
        return generated.listing.groups_of(Kind.GRAPH)
    is_own = path == normalized_path(generated.path) and _return_lines(generated.original) == {line}
    # The return of a resume function's result has no line of its own.
    return generated.listing.groups_of(Kind.RETURN) if is_own and not generated.listing.groups_of(Kind.RESUME) else []


def _lines_of_instructions(generated: GeneratedCode) -> set[tuple[str, int]]:
    return {(normalized_path(path), line) for path, line in generated.listing.entries_of_lines()}


def _return_lines(original: CodeType | None) -> set[int]:
    if original is None:
        return set()
    line, lines = original.co_firstlineno, set()
    for instruction in dis.get_instructions(original):
        line = instruction.starts_line if type(instruction.starts_line) is int else _line_of(instruction, line)
        if instruction.opname.startswith("RETURN_") and instruction.opname != "RETURN_GENERATOR":
            lines.add(line)
    return lines


def _line_of(instruction: dis.Instruction, before: int) -> int:
    """Return the line: ``starts_line`` is a flag on Python 3.13 and newer, and the number is in another attribute."""
    return getattr(instruction, "line_number", None) or before


class RunTimeLines:
    """Reports each change of the state of breakpoints."""

    def __init__(self, breakpoints: BreakpointTable, codes: GeneratedCodes) -> None:
        self._breakpoints = breakpoints
        self._codes = codes
        self._state: tuple[int, int] | None = None

    def update(self) -> list[LineBreakpoint]:
        """Check each breakpoint again after a change; return those with a new state."""
        state = (self._codes.count, self._breakpoints.version)
        if state == self._state:
            return []
        self._state = state
        return [breakpoint for breakpoint in self._breakpoints.lines_of_mode(RUN_TIME) if self._has_changed(breakpoint)]

    def _has_changed(self, breakpoint: LineBreakpoint) -> bool:
        before = breakpoint.note, breakpoint.never_run
        path, line = normalized_path(breakpoint.path), breakpoint.line
        relevant = self._codes_of_function(path, line)
        notes = [place for generated in relevant for place in _places(generated, path, line)]
        breakpoint.note = None if not notes or "" in notes else notes[0]
        is_known = bool(relevant) and not self._may_be_elsewhere(relevant)
        breakpoint.never_run = (
            f"no graph and no instruction of the generated code computes line {line}: Dynamo evaluated it while tracing"
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
        """Return whether the line may be in code that is not compiled yet, or was compiled before the session."""
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
    """Yield a note for each place where ``generated`` reaches the line, empty for a place on the line."""
    if (path, line) in _lines_of_instructions(generated):
        yield ""
    for group in groups_for_line(generated, path, line):
        if group.purpose.kind is Kind.GRAPH:
            graph = group.purpose.title.removeprefix("call ")
            yield f"stops where {generated.name} calls {graph}, which computes line {line}"
        else:
            yield ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Breakpoints of one code object for one state of the tables."""

    state: tuple[int, int, bool]
    """Versions of the line and the instruction breakpoints, and whether breakpoints without a mode stop here."""
    stops: Mapping[int, tuple[LineBreakpoint, ...]]
    """Breakpoints by the offset of the instruction before which they stop; none at torch's markers."""


class Plans:
    """The current plan of each code object."""

    def __init__(self, lines: BreakpointTable, instructions: InstructionBreakpoints) -> None:
        """Take ``lines``, breakpoints on the user's lines, and ``instructions``, those on addresses and in listings."""
        self._lines = lines
        self._instructions = instructions
        self._plans: WeakKeyDictionary[GeneratedCode, Plan] = WeakKeyDictionary()

    def of(self, generated: GeneratedCode, *, any_mode: bool) -> Plan:
        """Return the plan of ``generated``; with ``any_mode``, breakpoints without a mode stop, too."""
        state = (self._lines.version, self._instructions.version, any_mode)
        plan = self._plans.get(generated)
        if plan is None or plan.state != state:
            by_index = {**dict.fromkeys(generated.markers, ()), **self._stops(generated, any_mode)}
            stops = {generated.table[index].start: breakpoints for index, breakpoints in by_index.items()}
            plan = self._plans[generated] = Plan(state, stops)
        return plan

    def without_breakpoints(self, generated: GeneratedCode) -> Plan:
        """Return a plan of ``generated`` with only torch's markers."""
        return Plan((-1, -1, False), {generated.table[index].start: () for index in generated.markers})

    def forget(self) -> None:
        """Drop every plan: the client is gone."""
        self._plans.clear()

    def _stops(self, generated: GeneratedCode, any_mode: bool) -> dict[int, tuple[LineBreakpoint, ...]]:
        stops: dict[int, tuple[LineBreakpoint, ...]] = {}
        if not any_mode:
            stops.update(self._stops_in_continuation(generated))
        # A listing needs an analysis of the code: make none if no breakpoint is on a line.
        of_mode = self._lines.lines_of_mode(RUN_TIME)
        if of_mode or (any_mode and self._lines.any_line(RUN_TIME)):
            for (path, line), indices in generated.listing.entries_of_lines().items():
                on_line = (self._lines.lines_in(path) or {}).get(line, ())
                reached = [
                    breakpoint
                    for breakpoint in on_line
                    if breakpoint.mode == RUN_TIME or (any_mode and breakpoint.mode is None)
                ]
                for index in indices if reached else ():
                    stops[index] = (*stops.get(index, ()), *reached)
            for breakpoint in of_mode:
                for group in groups_for_line(generated, normalized_path(breakpoint.path), breakpoint.line):
                    stops[group.first] = (*stops.get(group.first, ()), breakpoint)
            entered = self._functions_entered(generated)
            if entered and any_mode:
                stops[generated.entry] = (*stops.get(generated.entry, ()), *entered)
        if stops and generated.continuation is not None:
            # At the jump, the engine notes which lines of the continuation this call's trace has reached.
            stops.setdefault(generated.continuation.jump, ())
        for index, breakpoints in self._instructions.of(generated).items():
            stops[index] = (*stops.get(index, ()), *breakpoints)
        return stops

    def _stops_in_continuation(self, generated: GeneratedCode) -> dict[int, tuple[LineBreakpoint, ...]]:
        """Return where breakpoints without a mode stop in the continuation, whose lines no replay reaches."""
        lines, code = self._lines.lines_in(generated.path), generated.code_if_alive
        # The line table shows cheaply which code needs no analysis.
        if not lines or code is None or lines.keys().isdisjoint(line for _, _, line in code.co_lines()):
            return {}
        if generated.continuation is None:
            return {}
        return {
            index: found
            for index, line in generated.continuation.lines.items()
            if (found := tuple(breakpoint for breakpoint in lines.get(line, ()) if breakpoint.mode is None))
        }

    def _functions_entered(self, generated: GeneratedCode) -> list[LineBreakpoint]:
        if generated.is_resume_function or not self._lines.functions:
            return []
        return [
            breakpoint for breakpoint in self._lines.functions if breakpoint.matches(generated.qualified_name, None)
        ]
