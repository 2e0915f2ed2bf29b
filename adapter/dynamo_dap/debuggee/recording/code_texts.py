"""Writes generated code as text, and reads the kernels in Inductor's output code. Runs on the compiling thread."""

from __future__ import annotations

import dis
import re
import types

from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import shown_names


def kernels_in(path: str) -> list[str]:
    """Return the kernels of an output code file: its own fused ones, then those of libraries."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_OUTPUT_CODE)
    except (OSError, UnicodeDecodeError):
        return []
    return list(dict.fromkeys([*_KERNEL.findall(text), *_EXTERN.findall(text)]))


_OUTPUT_CODE = 4 * 1024 * 1024
_KERNEL = re.compile(r"^(\w+) = async_compile\.\w+\(", re.MULTILINE)
_EXTERN = re.compile(r"\b(extern_kernels\.\w+|torch\.ops\.\w+\.\w+(?:\.\w+)?)\(")


def disassembled(code: types.CodeType, maximum: int) -> str:
    """Return the instructions of generated code, a line each, of ``maximum`` characters at most.

    Dynamo's global names are as in ``shown_names``.
    """
    lines: list[str] = []
    left = maximum
    for instruction in dis.get_instructions(code):
        argument = instruction.argrepr or ("" if instruction.arg is None else str(instruction.arg))
        line = f"{instruction.offset:5} {instruction.opname} {shown_names(argument)}".rstrip()
        left -= len(line) + 1
        if left < 0:
            lines.append("…")
            break
        lines.append(line)
    return "\n".join(lines)
