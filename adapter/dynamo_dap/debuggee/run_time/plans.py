"""Where one piece of generated code stops: its breakpoints by instruction.

Computed once per state of the breakpoint tables. Read on any thread; a plan is replaced, never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dynamo_dap.debuggee.agent.breakpoints import BreakpointTable, LineBreakpoint
from dynamo_dap.debuggee.agent.user_code import normalized_path
from dynamo_dap.debuggee.run_time.generated import GeneratedCode
from dynamo_dap.debuggee.run_time.instruction_breakpoints import InstructionBreakpoints
from dynamo_dap.debuggee.run_time.run_time_lines import groups_for_line
from dynamo_dap.protocol.contract import RUN_TIME


@dataclass(frozen=True, slots=True)
class Plan:
    """Breakpoints of one code object for one state of the tables."""

    state: tuple[int, int, bool]
    """Version of the breakpoints on lines, of those on instructions, and whether those of no mode stop here."""
    stops: Mapping[int, tuple[LineBreakpoint, ...]]
    """By the offset at which the instruction begins that they stop before; empty for a marker of torch's."""


class Plans:
    """The current plan of each code object."""

    def __init__(self, lines: BreakpointTable, instructions: InstructionBreakpoints) -> None:
        """``lines`` are breakpoints on the user's lines, ``instructions`` those on addresses and in listings."""
        self._lines = lines
        self._instructions = instructions
        self._plans: dict[int, Plan] = {}

    def of(self, generated: GeneratedCode, *, any_mode: bool) -> Plan:
        """Return the plan of ``generated``; ``any_mode`` to have breakpoints stop that were set for no mode."""
        state = (self._lines.version, self._instructions.version, any_mode)
        plan = self._plans.get(generated.number)
        if plan is None or plan.state != state:
            by_index = {**dict.fromkeys(generated.markers, ()), **self._stops(generated, any_mode)}
            stops = {generated.table[index].start: breakpoints for index, breakpoints in by_index.items()}
            plan = self._plans[generated.number] = Plan(state, stops)
        return plan

    def without_breakpoints(self, generated: GeneratedCode) -> Plan:
        """Return a plan of ``generated`` that has torch's markers alone."""
        return Plan((-1, -1, False), {generated.table[index].start: () for index in generated.markers})

    def forget(self) -> None:
        """Drop every plan: the client is gone."""
        self._plans.clear()

    def _stops(self, generated: GeneratedCode, any_mode: bool) -> dict[int, tuple[LineBreakpoint, ...]]:
        stops: dict[int, tuple[LineBreakpoint, ...]] = {}
        if self._lines.any_line(RUN_TIME):
            for (path, line), indices in generated.listing.entries_of_lines().items():
                on_line = (self._lines.lines_in(path) or {}).get(line, ())
                reached = [
                    breakpoint
                    for breakpoint in on_line
                    if breakpoint.mode == RUN_TIME or (any_mode and breakpoint.mode is None)
                ]
                for index in indices if reached else ():
                    stops[index] = (*stops.get(index, ()), *reached)
            for breakpoint in self._lines.lines_of_mode(RUN_TIME):
                for group in groups_for_line(generated, normalized_path(breakpoint.path), breakpoint.line):
                    stops[group.first] = (*stops.get(group.first, ()), breakpoint)
            entered = self._functions_entered(generated)
            if entered and any_mode:
                stops[generated.entry] = (*stops.get(generated.entry, ()), *entered)
        for index, breakpoints in self._instructions.of(generated).items():
            stops[index] = (*stops.get(index, ()), *breakpoints)
        return stops

    def _functions_entered(self, generated: GeneratedCode) -> list[LineBreakpoint]:
        if generated.is_resume_function or not self._lines.functions:
            return []
        return [
            breakpoint for breakpoint in self._lines.functions if breakpoint.matches(generated.qualified_name, None)
        ]
