"""Derives the purpose of each instruction of generated code from the code and from Dynamo's record of its compile.

An instruction has the purpose of the instruction that uses its result. Such a chain ends at an instruction with a side
effect: a call of the compiled graph or of a resume function, a store into a user's object, the return. Dynamo
interleaves instructions of different purposes: it first pushes the operands of all side effects and then performs these
in reverse. So this module assumes no order. It has no side effects, except that it reads the user's source lines. Runs
on any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType

from dynamo_dap.debuggee.bytecode.data_flow import DataFlow, is_move
from dynamo_dap.debuggee.bytecode.instructions import Instruction, InstructionTable
from dynamo_dap.debuggee.generated.effects import BUILDS, SUBSCRIPTS, Effects
from dynamo_dap.debuggee.generated.purpose import DROPPING, EMPTY_FRAME, PACKING, Kind, Purpose
from dynamo_dap.debuggee.torch_api.compiles.compile_records import CompileRecord

_PREPARATION = {
    Kind.GRAPH: Kind.INPUTS,
    Kind.SIDE_EFFECT: Kind.SIDE_EFFECT_OPERANDS,
    Kind.USER: Kind.USER_OPERANDS,
    Kind.RESUME: Kind.RESUME_OPERANDS,
    Kind.RETURN: Kind.RETURNED,
}
"""By the kind of an effect: the kind of the instructions that prepare it."""


class Purposes:
    """The purpose of every instruction of one code object."""

    def __init__(
        self,
        code: CodeType,
        original: CodeType | None,
        flow: DataFlow,
        table: InstructionTable,
        record: CompileRecord | None,
    ) -> None:
        """Explain ``code``, made from ``original``; ``record`` is Dynamo's record. Both may be unknown."""
        self._flow = flow
        self._table = table
        self._effects = Effects(code, original, flow, table, record)
        self._found: dict[int, Purpose | None] = {}
        self.of: tuple[Purpose, ...] = tuple(self._all())

    # -- the whole code --------------------------------------------------------------------------------------------

    def _all(self) -> list[Purpose]:
        direct = [self._purpose(index) for index in range(len(self._table))]
        return _absorb_cleanup(list(self._without_gaps(self._fill_moves(direct))))

    def _without_gaps(self, filled: Sequence[Purpose | None]) -> Iterable[Purpose]:
        previous: Purpose | None = None
        for index, purpose in enumerate(filled):
            if purpose is None:
                following = next((other for other in filled[index:] if other is not None), None)
                purpose = previous or following or Purpose(Kind.OTHER, "", index)  # noqa: PLW2901  (a changed item replaces it)
            yield purpose
            previous = purpose

    def _fill_moves(self, purposes: Sequence[Purpose | None]) -> list[Purpose | None]:
        """Give instructions that move values on the stack the purpose of the next instruction."""
        filled = list(purposes)
        for index in reversed(range(len(filled) - 1)):
            if filled[index] is None and is_move(self._table[index]):
                filled[index] = filled[index + 1]
        return filled

    def _purpose(self, index: int) -> Purpose | None:
        if index not in self._found:
            self._found[index] = None  # an instruction inside a loop of dependencies has no separate purpose
            self._found[index] = self._effects.of(index) or self._of_consumer(index) or self._of_producer(index)
        return self._found[index]

    def _of_consumer(self, index: int) -> Purpose | None:
        """Return the purpose of the instruction that uses the results."""
        if is_move(self._table[index]):
            return None
        consumers = [
            consumer for result in self._flow.results(index) for consumer in result.consumers if consumer > index
        ]
        dropped: Purpose | None = None
        for consumer in sorted(consumers, reverse=True):
            served = self._purpose(consumer)
            if served is None:
                continue
            if consumer == served.anchor and served.kind in _PREPARATION:
                return self._preparation(served)
            if served.kind is not Kind.CLEANUP:
                return served
            dropped = served
        return self._unused(index) if dropped is not None else None

    def _unused(self, index: int) -> Purpose:
        """Return the purpose of an instruction whose value is dropped, such as a list in which Dynamo packs a frame."""
        if self._table[index].name not in BUILDS and self._table[index].name not in SUBSCRIPTS:
            return DROPPING
        return PACKING if self._effects.has_resume_call else EMPTY_FRAME

    def _preparation(self, served: Purpose) -> Purpose:
        kind = _PREPARATION[served.kind]
        if kind is Kind.RESUME_OPERANDS:
            return PACKING
        titles = {
            Kind.INPUTS: f"inputs of {served.title.removeprefix('call ')}",
            Kind.SIDE_EFFECT_OPERANDS: f"prepare: {served.title.removeprefix('apply: ')}",
            Kind.USER_OPERANDS: f"operands of: {served.title}",
            Kind.RETURNED: "build the returned value",
        }
        return Purpose(kind, titles[kind], served.anchor, served.statements)

    def _of_producer(self, index: int) -> Purpose | None:
        """Return the purpose of the instruction that made the operands: storing a call's result belongs to the call."""
        instruction = self._table[index]
        if instruction.name == "STORE_FAST":
            later = self._purpose_of_loads(instruction)
            if later is not None:
                return later
        for operand in self._flow.operands(index):
            if operand.producer is not None and operand.producer != index:
                made = self._purpose(operand.producer)
                if made is not None:
                    return made
        return None

    def _purpose_of_loads(self, store: Instruction) -> Purpose | None:
        """Return the purpose of a load of a temporary variable; None if it holds the result of an anchor."""
        producer = next((operand.producer for operand in self._flow.operands(store.index)), None)
        if producer is not None and self._effects.of(producer) is not None:
            return None
        for load in self._table.instructions[store.index + 1 :]:
            if load.name.startswith("LOAD_FAST") and load.value == store.value:
                return self._purpose(load.index)
        return None


def _absorb_cleanup(purposes: list[Purpose]) -> list[Purpose]:
    """Give instructions that drop temporaries the purpose before them, if it made these or is the one after as well."""
    index = 0
    while index < len(purposes):
        end = index
        while end < len(purposes) and purposes[end].kind is Kind.CLEANUP:
            end += 1
        if end > index:
            before = purposes[index - 1] if index else None
            after = purposes[end] if end < len(purposes) else None
            if before is not None and (before == after or before.kind in _KINDS_WITH_CLEANUP):
                purposes[index:end] = [before] * (end - index)
        index = end + 1
    return purposes


_KINDS_WITH_CLEANUP = (Kind.BOOKKEEPING, Kind.RESUME_OPERANDS, Kind.OTHER)
