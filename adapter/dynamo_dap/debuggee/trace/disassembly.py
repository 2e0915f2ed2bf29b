"""Serves the DAP ``disassemble`` request for traced code: the instructions as Dynamo interprets them.

Dynamo rewrites instructions before it traces them, so they come from its interpreter and not from ``dis``. A row's
address encodes the instruction's index. Rows beyond either end are padding, since VS Code's view scrolls endlessly.
Code objects are numbered on the tracing thread and listed on the agent's reader thread. They are kept for the life of
the process.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass

from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import user_function_name
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame, TracedInstruction
from dynamo_dap.debuggee.values.model import bounded_text
from dynamo_dap.debuggee.values.python_values import preview
from dynamo_dap.protocol.wire.types import (
    DisassembleArguments,
    DisassembledInstruction,
    DisassembleResponseBody,
    Source,
)

_BASE = 1 << 48
"""Far above the addresses of generated code, so that an address identifies its kind."""
_CODE_SHIFT = 24
_MIDDLE = 1 << (_CODE_SHIFT - 1)
"""The place of a code's first instruction in its range of addresses, between padding."""
_UNIT = 2
_MAXIMUM_COUNT = 10_000
_MAXIMUM_ARGUMENT = 60
_CONSTANTS = frozenset({"LOAD_CONST", "RETURN_CONST", "LOAD_SMALL_INT", "KW_NAMES"})


@dataclass(frozen=True)
class _TracedCode:
    """The instructions of one code object, and the address of the first."""

    code: types.CodeType
    instructions: Sequence[TracedInstruction]
    first_address: int


class TracedCodes:
    """Addresses of all traced code in which a thread was stopped."""

    def __init__(self) -> None:
        self._codes: list[_TracedCode] = []
        self._numbers: dict[int, int] = {}

    def address_of(self, frame: TracedFrame, index: int) -> int:
        """Return the address of the instruction at ``index`` of the frame's code."""
        code = frame.code
        if id(code) not in self._numbers:
            self._numbers[id(code)] = number = len(self._codes)
            first = _BASE + (number << _CODE_SHIFT) + _MIDDLE
            self._codes.append(_TracedCode(code, frame.instructions, first))
        return self._codes[self._numbers[id(code)]].first_address + index * _UNIT

    def disassemble(self, arguments: DisassembleArguments) -> DisassembleResponseBody | None:
        """Return exactly the requested rows; None if the address is not of traced code."""
        try:
            address = int(arguments.memory_reference, 0) + (arguments.offset or 0)
        except ValueError:
            return None
        number = (address - _BASE) >> _CODE_SHIFT
        if address < _BASE or number >= len(self._codes):
            return None
        traced = self._codes[number]
        first = (address - traced.first_address) // _UNIT + (arguments.instruction_offset or 0)
        count = max(0, min(arguments.instruction_count, _MAXIMUM_COUNT))
        return DisassembleResponseBody([_row(traced, index) for index in range(first, first + count)])


def _row(traced: _TracedCode, index: int) -> DisassembledInstruction:
    address = hex(traced.first_address + index * _UNIT)
    if not 0 <= index < len(traced.instructions):
        return DisassembledInstruction(address=address, instruction="", presentation_hint="invalid")
    instruction = traced.instructions[index]
    path = traced.code.co_filename
    hint = None if is_user_file(path) else "deemphasize"
    return DisassembledInstruction(
        address=address,
        instruction=f"{instruction.name} {_argument(instruction)}".rstrip(),
        symbol=user_function_name(traced.code) if index == 0 else None,
        location=Source(name=path.rpartition("/")[2], path=path, presentation_hint=hint),
        line=instruction.line,
    )


def _argument(instruction: TracedInstruction) -> str:
    if instruction.target >= 0:
        return f"to {instruction.target}"
    if instruction.argument is None:
        return ""
    if instruction.name in _CONSTANTS:
        return preview(instruction.value, _MAXIMUM_ARGUMENT)
    return bounded_text(str(instruction.value), _MAXIMUM_ARGUMENT)
