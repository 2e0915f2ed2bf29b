"""Reads one generated frame's values: locals, cells, the value stack. Runs on the held thread only."""

from __future__ import annotations

import types

from dynamo_dap.debuggee.generated.known_code import GeneratedCode
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import VALUE_STACK, value_stack


class BareNumber:
    """Represents stack slots that torch cannot read: a slot with a bare number, and the slots above it."""

    def __repr__(self) -> str:
        return "(not readable: Python keeps a bare number on the stack here)"


BARE_NUMBER = BareNumber()


class FrameValues:
    """Reads a frame. Nothing is cached between reads, so the values are always the present ones."""

    def __init__(self, generated: GeneratedCode, frame: types.FrameType, index: int, *, is_whole: bool) -> None:
        """Read at instruction ``index``. ``is_whole``: it has not begun, so its operands are still on the stack."""
        self.generated = generated
        self.frame = frame
        self.index = index
        self.is_whole = is_whole
        self.operands: tuple[object, ...] | None = None
        """Operands of the current instruction, kept from before it began, if they are no longer on the stack."""

    def locals(self) -> dict[str, object]:
        """Return local variables and the contents of cells by name."""
        return dict(self.frame.f_locals)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all variables: parameters first, then other locals, then cells that are neither."""
        return tuple(dict.fromkeys((*self.frame.f_code.co_varnames, *self.cell_names)))

    @property
    def cell_names(self) -> tuple[str, ...]:
        """Names of cells: the frame's own, then those of enclosing functions."""
        code = self.frame.f_code
        return (*code.co_cellvars, *code.co_freevars)

    @property
    def stack_problem(self) -> str | None:
        """Why the value stack cannot be shown; None if it can."""
        if VALUE_STACK.problem is not None:
            return VALUE_STACK.problem
        return None if self._depth() is not None else "no path of the code leads to this instruction"

    def stack(self) -> list[object]:
        """Return the value stack, bottom first, empty slots as torch's sentinel. Empty when it cannot be shown."""
        depth = self._depth()
        if depth is None or VALUE_STACK.problem is not None:
            return []
        objects = min(depth, self.generated.depths.objects(self.index))
        slots = value_stack(self.frame, objects) + [BARE_NUMBER] * (depth - objects)
        return slots if self.operands is None else [*slots, *self.operands]

    def written_names(self) -> dict[str, object]:
        """Return the values whose names in the listing differ from the frame's: stack slots and globals."""
        statements, held = self.generated.statements, self.frame.f_globals
        named = {
            shown: held[name]
            for shown, name in statements.names_of_globals().items()
            if name in held and "." not in shown
        }
        stack = self.stack()
        names = statements.names_on_stack(self.index).items()
        readable = {slot for slot, value in enumerate(stack) if value is not BARE_NUMBER}
        return {**named, **{name: stack[slot] for slot, name in names if slot in readable}}

    @property
    def operands_in_use(self) -> int:
        """How many operands the current instruction has taken from the stack already."""
        if self.is_whole or self.operands is not None:
            return 0
        before, below = self.generated.depths.before(self.index), self.generated.depths.below_operands(self.index)
        return 0 if before is None or below is None else before - below

    def _depth(self) -> int | None:
        depths = self.generated.depths
        return depths.before(self.index) if self.is_whole else depths.below_operands(self.index)
