"""Reads and writes the memory of a running frame: local variables and the value stack.

Python's API cannot write to the value stack, so this module writes to the frame's memory. It knows the layout of
CPython 3.11 to 3.13: ``PyFrameObject.f_frame`` points to a ``_PyInterpreterFrame``, whose array ``localsplus`` holds a
pointer for each local, then for each cell, then for each stack slot. The layout is verified before each write: each
local and each stack slot must point to the object that Python reports for it; cells are not compared. From 3.14 on
slots carry tag bits, and the stack is not written. Runs on the frame's own thread.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import sys
from types import CellType, FrameType, FunctionType
from typing import Any

from dynamo_dap.debuggee.torch_api.code_objects.generated_code import is_null

_WORD = ctypes.sizeof(ctypes.c_void_p)
_FRAME_POINTER = 3 * _WORD
"""Offset of ``f_frame`` in ``PyFrameObject``: behind the object's head and ``f_back``."""
_LOCALS_PLUS = 9 * _WORD
"""Offset of ``localsplus`` in ``_PyInterpreterFrame``: behind eight pointers and eight bytes of small fields."""
_CODE_WORD, _FUNCTION_WORD, _FRAME_WORD = 0, 2, 6
"""Indices of pointers in ``_PyInterpreterFrame`` from Python 3.14 on: the code, ``f_funcobj`` and ``frame_obj``."""
_SNAPSHOT_WORDS = {(3, 10): (True, 6, 4, 7), (3, 11): (False, 1, 5, 3), (3, 12): (False, 3, 6, 5)}
"""Where Python keeps the dict that ``frame.f_locals`` returned; from 3.13 on it keeps none.

By version: True if the frame object itself holds the fields, False if its ``_PyInterpreterFrame`` does. Then the
indices of three pointers: ``f_globals``, ``f_code`` (3.10) or ``frame_obj``, and ``f_locals``.
"""
_TAGS = 3
"""Bits of a reference that encode how it is counted, from Python 3.14 on."""
_IS_TAGGED = sys.implementation.name == "cpython" and sys.version_info >= (3, 14)
_SLOTS_KNOWN = (
    sys.implementation.name == "cpython" and (3, 11) <= sys.version_info < (3, 14) and hasattr(sys, "getrefcount")
)


class LayoutUnknown(Exception):
    """This interpreter's layout of frames is unknown; the message says so."""


def write_slot_in_memory(frame: FrameType, stack: list[object], index: int, value: object) -> None:
    """Put ``value`` into slot ``index`` of the value stack of ``frame``, whose content is ``stack``.

    Raises:
        LayoutUnknown: the memory has unexpected contents; nothing was changed.
    """
    slots = _slots(frame, stack)
    old = stack[index]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    slots[len(slots) - len(stack) + index] = id(value)
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(old))


def locals_snapshot(frame: FrameType) -> dict[str, object] | None:
    """Return an updated ``frame.f_locals`` if it was read before; else None, as for an unknown memory layout.

    The first read makes a dict that keeps the function's variables alive: this function must not be that read.
    """
    words = _SNAPSHOT_WORDS.get(sys.version_info[:2])
    if words is None or sys.implementation.name != "cpython" or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return None
    is_in_object, in_globals, in_identity, in_locals = words
    start, identity = id(frame), id(frame.f_code)
    if not is_in_object:
        start, identity = ctypes.c_void_p.from_address(id(frame) + _FRAME_POINTER).value or 0, id(frame)
    if not start:
        return None
    memory = (ctypes.c_size_t * (max(words) + 1)).from_address(start)
    if memory[in_globals] != id(frame.f_globals) or memory[in_identity] != identity or not memory[in_locals]:
        return None
    return frame.f_locals


def captured_cells(frame: FrameType) -> tuple[CellType, ...]:
    """Return the cells of the variables that the code of ``frame`` captures, in the order of ``co_freevars``.

    If the memory layout is unexpected, return new cells with the same contents.
    """
    names, shown = frame.f_code.co_freevars, frame.f_locals
    if (cells := program_cells(frame)) is not None:
        return cells
    return tuple(CellType(shown[name]) if name in shown else CellType() for name in names)


def program_cells(frame: FrameType) -> tuple[CellType, ...] | None:
    """Return the program's own cells of the variables that ``frame`` captures; None if they are not found."""
    names, shown = frame.f_code.co_freevars, frame.f_locals
    if not names:
        return ()
    find = _cells_of_function if _IS_TAGGED else _cells_in_slots if _SLOTS_KNOWN else _cells_by_gc
    try:
        cells = find(frame)
    except LayoutUnknown:
        return None
    held = len(cells) == len(names) and all(
        type(cell) is CellType and _holds(cell, shown, name) for cell, name in zip(cells, names, strict=True)
    )
    return tuple(cells) if held else None


def _cells_in_slots(frame: FrameType) -> list[Any]:
    slots = _slots(frame, [])
    count = len(frame.f_code.co_freevars)
    return [ctypes.cast(each, ctypes.py_object).value for each in slots[len(slots) - count :] if each]


def _cells_by_gc(frame: FrameType) -> list[Any]:
    """Return the captured cells that Python 3.10's garbage collector finds; newer ones find none in a running frame."""
    code = frame.f_code
    cells = [each for each in gc.get_referents(frame) if type(each) is CellType]
    own = len(code.co_cellvars)
    return cells[own:] if len(cells) == own + len(code.co_freevars) else []


def _cells_of_function(frame: FrameType) -> list[Any]:
    """Return the cells of the function that runs in ``frame``, to which the frame points from Python 3.14 on."""
    start = ctypes.c_void_p.from_address(id(frame) + _FRAME_POINTER).value
    if not start:
        raise LayoutUnknown("the frame has ended")
    words = (ctypes.c_size_t * (_FRAME_WORD + 1)).from_address(start)
    if words[_CODE_WORD] & ~_TAGS != id(frame.f_code) or words[_FRAME_WORD] != id(frame):
        raise LayoutUnknown("the frame's memory is not laid out as expected")
    function = ctypes.cast(words[_FUNCTION_WORD] & ~_TAGS, ctypes.py_object).value
    if type(function) is not FunctionType or function.__code__ is not frame.f_code:
        raise LayoutUnknown("the frame does not point to its function")
    return list(function.__closure__ or ())


def _holds(cell: CellType, shown: dict[str, object], name: str) -> bool:
    try:
        contents = cell.cell_contents
    except ValueError:
        return name not in shown
    return name in shown and contents is shown[name]


def _slots(frame: FrameType, stack: list[object]) -> Any:
    """Return ``localsplus`` up to the top of the stack as an array of addresses, after verifying the layout."""
    if not _SLOTS_KNOWN:
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
            raise LayoutUnknown("the frame's memory is not laid out as expected: nothing was changed")
    for position, value in enumerate(stack):
        if slots[local_count + position] != (0 if is_null(value) else id(value)):
            raise LayoutUnknown("the frame's memory is not laid out as expected: nothing was changed")
    return slots
