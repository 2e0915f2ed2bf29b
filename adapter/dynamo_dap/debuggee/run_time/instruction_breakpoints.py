"""Breakpoints on instructions: by address (``setInstructionBreakpoints``) and by line of a listing.

Set on the agent's reader thread, read on any. A breakpoint that is set again unchanged keeps its id and hit count.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from dynamo_dap.debuggee.agent.binding import Binding
from dynamo_dap.debuggee.agent.breakpoints import BreakpointTable, LineBreakpoint
from dynamo_dap.debuggee.agent.conditions import Conditions
from dynamo_dap.debuggee.run_time.generated import (
    BadAddress,
    CodeGone,
    GeneratedCode,
    GeneratedCodes,
    parsed_address,
)
from dynamo_dap.protocol.contract import LISTING_FORMS
from dynamo_dap.protocol.types import Breakpoint, InstructionBreakpoint, SourceBreakpoint

_ByIndex = Mapping[int, tuple[LineBreakpoint, ...]]


class InstructionBreakpoints:
    """Breakpoints on instructions of generated code, by the code's number."""

    def __init__(self, codes: GeneratedCodes, table: BreakpointTable) -> None:
        """``table`` gives the ids, which are one series with those of line breakpoints."""
        self._codes = codes
        self._table = table
        self._lock = threading.Lock()
        self._by_address: dict[int, _ByIndex] = {}
        self._by_listing: dict[tuple[int, str], _ByIndex] = {}
        """By the code's number and the form of its listing."""
        self._kept: dict[tuple[object, ...], LineBreakpoint] = {}
        self.version = 0
        """Changes whenever the breakpoints do."""

    def __bool__(self) -> bool:
        return bool(self._by_address or self._by_listing)

    def of(self, generated: GeneratedCode) -> dict[int, tuple[LineBreakpoint, ...]]:
        """Return the breakpoints of ``generated`` by instruction index: patched code keeps those that it had before."""
        at: dict[int, tuple[LineBreakpoint, ...]] = {}
        for number in {version.number for version in self._codes.versions(generated)}:
            of_forms = [self._by_listing.get((number, form), {}) for form in LISTING_FORMS]
            for by_index in (self._by_address.get(number, {}), *of_forms):
                for index, breakpoints in by_index.items():
                    at[index] = (*at.get(index, ()), *breakpoints)
        return at

    def clear(self) -> None:
        """Forget all: the client is gone."""
        with self._lock:
            self._by_address, self._by_listing, self._kept = {}, {}, {}
            self.version += 1

    def set_addresses(self, requested: Sequence[InstructionBreakpoint]) -> list[Breakpoint]:
        """Replace the breakpoints on addresses; return what became of each, in order."""
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
        """Replace the breakpoints on lines of a listing of ``generated``; return what became of each, in order.

        ``form`` is one of ``LISTING_FORMS``. The answers name no source: VS Code would make of one without a path
        another place than that it showed.
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
