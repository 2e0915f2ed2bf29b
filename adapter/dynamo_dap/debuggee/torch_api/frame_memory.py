"""Where CPython keeps the local variables and the value stack of a running frame.

Nothing in Python's API writes a slot of the value stack, so it is written in memory. The layout is that of CPython 3.11
to 3.13: ``PyFrameObject.f_frame`` points to a ``_PyInterpreterFrame``, whose ``localsplus`` array holds locals, then
cells, then the stack, one pointer each. The layout is verified before each write: every local and every other slot must
be exactly the object in memory that Python itself reports. Runs on the held thread only.
"""

from __future__ import annotations

import ctypes
import sys
from types import CellType, FrameType
from typing import Any

from dynamo_dap.debuggee.torch_api.generated_code import is_null

_WORD = ctypes.sizeof(ctypes.c_void_p)
_FRAME_POINTER = 3 * _WORD
"""Offset of ``f_frame`` in ``PyFrameObject``: behind the object's head and ``f_back``."""
_LOCALS_PLUS = 9 * _WORD
"""Offset of ``localsplus`` in ``_PyInterpreterFrame``: behind eight pointers and eight bytes of small fields."""
_KNOWN = sys.implementation.name == "cpython" and (3, 11) <= sys.version_info < (3, 14) and hasattr(sys, "getrefcount")


class LayoutUnknown(Exception):
    """This interpreter keeps frames in another way than expected; the text says so, for a person."""


def write_slot_in_memory(frame: FrameType, stack: list[Any], index: int, value: Any) -> None:
    """Put ``value`` into slot ``index`` of the value stack of ``frame``, whose content is ``stack``.

    Raises:
        LayoutUnknown: memory does not hold what was expected; nothing was changed.
    """
    slots = _slots(frame, stack)
    old = stack[index]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    slots[len(slots) - len(stack) + index] = id(value)
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(old))


def captured_cells(frame: FrameType) -> tuple[CellType, ...]:
    """Return the cells of the variables that the code of ``frame`` captures, in the order of its ``co_freevars``.

    Where memory is not laid out as expected they are cells of our own with the same contents.
    """
    names, shown = frame.f_code.co_freevars, frame.f_locals
    if names and _KNOWN:
        try:
            slots = _slots(frame, [])
        except LayoutUnknown:
            pass
        else:
            cells = [ctypes.cast(each, ctypes.py_object).value for each in slots[len(slots) - len(names) :] if each]
            if len(cells) == len(names) and all(
                type(cell) is CellType and _holds(cell, shown, name) for cell, name in zip(cells, names, strict=True)
            ):
                return tuple(cells)
    return tuple(CellType(shown[name]) if name in shown else CellType() for name in names)


def _holds(cell: CellType, shown: dict[str, Any], name: str) -> bool:
    try:
        return name in shown and cell.cell_contents is shown[name]
    except ValueError:
        return name not in shown


def _slots(frame: FrameType, stack: list[Any]) -> Any:
    """Return ``localsplus`` up to the top of the stack as an array of addresses, proven to be that."""
    if not _KNOWN:
        raise LayoutUnknown(f"this debugger does not know how Python {sys.version.split()[0]} keeps its value stack")
    code = frame.f_code
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    local_count = len(code.co_varnames) + len(cells) + len(code.co_freevars)
    interpreter_frame = ctypes.c_void_p.from_address(id(frame) + _FRAME_POINTER).value
    if not interpreter_frame:
        raise LayoutUnknown("the frame has ended")
    slots = (ctypes.c_size_t * (local_count + len(stack))).from_address(interpreter_frame + _LOCALS_PLUS)
    cell_names = {*code.co_cellvars, *code.co_freevars}
    shown = frame.f_locals
    for position, name in enumerate(code.co_varnames):
        if name not in cell_names and slots[position] != (id(shown[name]) if name in shown else 0):
            raise LayoutUnknown("the frame's memory is not laid out as expected: it was not touched")
    for position, value in enumerate(stack):
        if slots[local_count + position] != (0 if is_null(value) else id(value)):
            raise LayoutUnknown("the frame's memory is not laid out as expected: it was not touched")
    return slots
