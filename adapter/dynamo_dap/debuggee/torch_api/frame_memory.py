"""Reads and writes the memory of a running frame: local variables and the value stack.

Nothing in Python's API writes a slot of the value stack, so it is written in memory. The layout is that of CPython 3.11
to 3.13: ``PyFrameObject.f_frame`` points to a ``_PyInterpreterFrame``, whose ``localsplus`` array holds locals, then
cells, then the stack, one pointer each. The layout is verified before each write: every local and every other slot must
be exactly the object in memory that Python itself reports. From 3.14 on slots carry tags, and the stack is not written.
Runs on the held thread only.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import sys
from types import CellType, FrameType, FunctionType
from typing import Any

from dynamo_dap.debuggee.torch_api.generated_code import is_null

_WORD = ctypes.sizeof(ctypes.c_void_p)
_FRAME_POINTER = 3 * _WORD
"""Offset of ``f_frame`` in ``PyFrameObject``: behind the object's head and ``f_back``."""
_LOCALS_PLUS = 9 * _WORD
"""Offset of ``localsplus`` in ``_PyInterpreterFrame``: behind eight pointers and eight bytes of small fields."""
_FUNCTION_WORD, _LAST_WORD = 2, 7
"""From Python 3.14 on: the index of ``f_funcobj`` in it, and the words up to ``frame_obj``. Its first is the code."""
_SNAPSHOT_WORDS = {(3, 10): (3, 6, 4, 7), (3, 11): (0, 1, 5, 3), (3, 12): (0, 3, 6, 5)}
"""Indices of words by version.

The place of the frame's memory (3.10: in the object itself), and in it ``f_globals``, the frame's identity (``f_code``
in 3.10, else ``frame_obj``), and ``f_locals``. Later versions keep no such dict.
"""
_TAGS = 3
"""Bits of a reference that encode how it is counted, from Python 3.14 on."""
_IS_TAGGED = sys.implementation.name == "cpython" and sys.version_info >= (3, 14)
_KNOWN = sys.implementation.name == "cpython" and (3, 11) <= sys.version_info < (3, 14) and hasattr(sys, "getrefcount")


class LayoutUnknown(Exception):
    """This interpreter's layout of frames is unknown; the message says so."""


def write_slot_in_memory(frame: FrameType, stack: list[Any], index: int, value: object) -> None:
    """Put ``value`` into slot ``index`` of the value stack of ``frame``, whose content is ``stack``.

    Raises: LayoutUnknown: the memory has unexpected contents; nothing was changed.
    """
    slots = _slots(frame, stack)
    old = stack[index]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    slots[len(slots) - len(stack) + index] = id(value)
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(old))


def locals_snapshot(frame: FrameType) -> dict[str, Any] | None:
    """Return Python's dict of a function's variables, updated, if anything has read them before.

    None if nothing has: reading them here would keep them alive. None also if the memory layout is unknown.
    """
    words = _SNAPSHOT_WORDS.get(sys.version_info[:2])
    if words is None or sys.implementation.name != "cpython" or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return None
    in_object, in_globals, in_identity, in_locals = words
    start, identity = id(frame), id(frame.f_code)
    if not in_object:
        start, identity = ctypes.c_void_p.from_address(id(frame) + _FRAME_POINTER).value or 0, id(frame)
    if not start:
        return None
    memory = (ctypes.c_size_t * (_LAST_WORD + 1)).from_address(start)
    if memory[in_globals] != id(frame.f_globals) or memory[in_identity] != identity or not memory[in_locals]:
        return None
    return frame.f_locals


def captured_cells(frame: FrameType) -> tuple[CellType, ...]:
    """Return the cells of the variables that the code of ``frame`` captures, in the order of ``co_freevars``.

    If the memory layout is unexpected, they are our own cells with the same contents.
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
    try:
        cells = _cells_of_function(frame) if _IS_TAGGED else _cells_in_slots(frame) if _KNOWN else _cells_seen(frame)
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


def _cells_seen(frame: FrameType) -> list[Any]:
    """Return a running frame's objects that Python 3.10's garbage collector sees; newer ones see none."""
    code = frame.f_code
    cells = [each for each in gc.get_referents(frame) if type(each) is CellType]
    own = len(code.co_cellvars)
    return cells[own:] if len(cells) == own + len(code.co_freevars) else []


def _cells_of_function(frame: FrameType) -> list[Any]:
    """Return the cells of the function that runs in ``frame``, to which the frame points from Python 3.14 on."""
    start = ctypes.c_void_p.from_address(id(frame) + _FRAME_POINTER).value
    if not start:
        raise LayoutUnknown("the frame has ended")
    words = (ctypes.c_size_t * _LAST_WORD).from_address(start)
    if words[0] & ~_TAGS != id(frame.f_code) or words[_LAST_WORD - 1] != id(frame):
        raise LayoutUnknown("the frame's memory is not laid out as expected")
    function = ctypes.cast(words[_FUNCTION_WORD] & ~_TAGS, ctypes.py_object).value
    if type(function) is not FunctionType or function.__code__ is not frame.f_code:
        raise LayoutUnknown("the frame does not point to its function")
    return list(function.__closure__ or ())


def _holds(cell: CellType, shown: dict[str, Any], name: str) -> bool:
    try:
        contents = cell.cell_contents
    except ValueError:
        return name not in shown
    return name in shown and contents is shown[name]


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
