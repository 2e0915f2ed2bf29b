"""How far each attempt of a trace has come, so that a restarted analysis can be followed.

Dynamo restarts the analysis of a frame from the top (a graph break, a size that has to be specialized): the same
instructions are traced again, in the same order, up to where the attempts part. Positions are counted from the start of
an attempt, so that an attempt can be fast-forwarded to where the one before it was, and breakpoints that were reached
before are recognised. Tracing thread only, under Dynamo's compile lock.
"""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dynamo_dap.debuggee.torch_internals.translator import (
    CompileIdentity,
    Translator,
    compile_identity,
    instruction_at,
)

Visit = tuple[int, int, int]
"""A breakpoint reached at an instruction: breakpoint id, ``id`` of the code object, instruction index."""


@dataclass
class TraceProgress:
    """One attempt of one frame's trace."""

    identity: CompileIdentity
    began_at_start: bool
    """Whether counting began with the attempt; not when the hook was installed in the middle of it."""
    last: tuple[int, int] = (0, -1)
    """The instruction looked at last: ``id`` of its translator, index."""
    position: int = 0
    """How many instructions with a line were traced, inlined functions included."""
    visits: Counter[Visit] = field(default_factory=Counter)
    earlier_visits: Counter[Visit] = field(default_factory=Counter)
    entered: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    """Translators that were seen on the first line of their function, by identity."""

    def is_first_visit(self, visit: Visit) -> bool:
        """Count a visit; False when an earlier attempt of this frame made the same one."""
        self.visits[visit] += 1
        return self.visits[visit] > self.earlier_visits[visit]

    def comes_from(self, translator: Translator, index: int) -> int:
        """Note that ``index`` is looked at; return the index looked at before it in the same translator, else -1."""
        (before, came_from), self.last = self.last, (id(translator), index)
        return came_from if before == id(translator) else -1

    def enters(self, translator: Translator) -> bool:
        """Whether the translator is on its function's first line for the first time."""
        known = self.entered.get(id(translator))
        if known is not None and known() is translator:
            return False
        self.entered[id(translator)] = weakref.ref(translator)
        return True


class ProgressOfTraces:
    """The progress of the trace that is running, and of those it may return to."""

    def __init__(self) -> None:
        # By identity: Dynamo's output graphs compare by value and cannot be hashed.
        self._by_output: dict[int, tuple[weakref.ref[Any], TraceProgress]] = {}
        self._latest_of_compile: dict[str, TraceProgress] = {}

    def of(self, translator: Translator) -> TraceProgress:
        """Return the progress of the attempt that the translator belongs to."""
        output = translator.output
        known = self._by_output.get(id(output))
        if known is not None and known[0]() is output:
            return known[1]
        progress = self._begin(translator)
        self._by_output = {key: entry for key, entry in self._by_output.items() if entry[0]() is not None}
        self._by_output[id(output)] = (weakref.ref(output), progress)
        return progress

    def _begin(self, translator: Translator) -> TraceProgress:
        identity = compile_identity()
        progress = TraceProgress(identity, _is_first_instruction(translator))
        before = self._latest_of_compile.get(identity.compile_id)
        if before is not None and identity.attempt > before.identity.attempt:
            progress.earlier_visits = before.earlier_visits | before.visits
        if identity.attempt == 0:
            self._latest_of_compile.clear()
        self._latest_of_compile[identity.compile_id] = progress
        return progress


def _is_first_instruction(translator: Translator) -> bool:
    if getattr(translator, "parent", None) is not None:
        return False
    instructions = translator.instructions[: instruction_at(translator)]
    return all(instruction.starts_line is None for instruction in instructions)
