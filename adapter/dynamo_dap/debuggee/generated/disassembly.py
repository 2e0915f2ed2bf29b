"""Serves the DAP ``disassemble`` request for generated code.

Addresses grow from one code object to the next, with a gap between. Rows beyond the ends of a code object are padding,
since VS Code's view scrolls endlessly; padding has no instruction and is marked ``invalid``. Runs on any thread.
"""

from __future__ import annotations

from dynamo_dap.debuggee.bytecode.instructions import Instruction
from dynamo_dap.debuggee.generated.known_code import (
    ADDRESS_SHIFT,
    BadAddress,
    GeneratedCode,
    GeneratedCodes,
    parsed_address,
)
from dynamo_dap.protocol.wire.types import (
    DisassembleArguments,
    DisassembledInstruction,
    DisassembleResponseBody,
    Source,
)

MAXIMUM_COUNT = 10_000
_UNIT = 2
"""Address difference of padding rows: the minimum size of an instruction."""


def disassemble(codes: GeneratedCodes, arguments: DisassembleArguments) -> DisassembleResponseBody:
    """Return exactly the requested number of rows around an address.

    Raises:
        BadAddress: the memory reference is not an address, or the count is too large.
        CodeGone: the code at the address no longer exists.
    """
    address = parsed_address(arguments.memory_reference) + (arguments.offset or 0)
    count = arguments.instruction_count
    if not 0 <= count <= MAXIMUM_COUNT:
        raise BadAddress(f"cannot disassemble {count} instructions at once: at most {MAXIMUM_COUNT}")
    generated, row = _place(codes, address)
    first = row + (arguments.instruction_offset or 0)
    return DisassembleResponseBody([_row(generated, row) for row in range(first, first + count)])


def _place(codes: GeneratedCodes, address: int) -> tuple[GeneratedCode, int]:
    """Return the code object and the row of ``address``; rows beyond both ends count in units of padding.

    Half of the gap between two code objects belongs to each of them.
    """
    space = 1 << ADDRESS_SHIFT
    offset = address % space
    is_before = offset >= space // 2
    generated = codes.at_address(address + space // 2 if is_before else address)
    if generated is None:
        raise BadAddress(f"{hex(address)} is not the address of generated code")
    if is_before:
        return generated, (offset - space) // _UNIT
    index = generated.table.index_at(offset)
    if index is not None:
        return generated, index
    return generated, len(generated.table) + (offset - generated.table.code_size) // _UNIT


def _row(generated: GeneratedCode, row: int) -> DisassembledInstruction:
    if 0 <= row < len(generated.table):
        return _instruction_row(generated, generated.table[row])
    if row < 0:
        address = generated.base_address + row * _UNIT
    else:
        address = (generated.base_address | generated.table.code_size) + (row - len(generated.table)) * _UNIT
    return DisassembledInstruction(address=hex(max(0, address)), instruction="", presentation_hint="invalid")


def _instruction_row(generated: GeneratedCode, instruction: Instruction) -> DisassembledInstruction:
    index = instruction.index
    group = generated.listing.group_of(index)
    line = generated.listing.user_line(index)
    # Inline caches (zeros) are left out: rows of equal length keep the view's columns straight.
    code = generated.code.co_code[instruction.start : instruction.offset + 2]
    return DisassembledInstruction(
        address=hex(generated.address(index)),
        instruction_bytes=code.hex(" "),
        instruction=f"{instruction}   {generated.listing.patches(range(index, index + 1))}".rstrip(),
        symbol=generated.name if index == 0 else group.purpose.title if index == group.first else None,
        location=Source(name=generated.path.rpartition("/")[2], path=generated.path) if line else None,
        line=line,
    )
