"""Shows values of kernels in Triton's interpreter: blocks, pointers, masks, constants, the running program.

Triton is never imported here. Runs on the held thread.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from dynamo_dap.debuggee.triton.blocks import Block, block_of, short_name
from dynamo_dap.debuggee.triton.launches import Launch, launch_in, text_of_index
from dynamo_dap.debuggee.values.model import (
    DEPTH_OF_PREVIEW,
    Children,
    Deferred,
    Family,
    ScopeOfFrame,
    Value,
    Variable,
    View,
    family_for,
    present,
)
from dynamo_dap.debuggee.values.tensors import TensorChildren, little_data

PROGRAM = "Program"
"""The name of the scope that describes the program."""


@family_for("triton.language.core.tensor")
class Blocks(Family):
    """``tl.tensor``: ``f32[128]``, ``pointer f32[128] into x: 0 … 127``."""

    kind = "data"

    def text(self, value: Any, width: int, depth: int, view: View) -> str:
        """Return type and shape, and the data if it is short."""
        block = block_of(value)
        if block is None:
            return _block_pointer_text(value)
        text = _pointer_text(block) if block.is_pointer else block.sized
        if block.is_mask and block.shape:
            return f"{text}: {int(block.data.sum())} of {block.data.numel()} are true"
        data = little_data(block.data) if depth == DEPTH_OF_PREVIEW and not block.is_pointer else None
        text = text if data is None else f"{text} = {data}"
        return f"{text} ({block.masked} of {block.data.numel()} masked)" if block.masked else text

    def type_name(self, value: object) -> str | None:
        """Return the name that programs use for it."""
        return "tl.tensor"

    def children(self, value: Any, expression: str | None, view: View) -> Children | None:
        """Return the elements in pages, and for a pointer its tensor."""
        block = block_of(value)
        if block is None:
            return Deferred(lambda: _block_pointer_variables(value.handle))
        if block.data is None:
            return None
        return BlockChildren(block, expression, view)


def _pointer_text(block: Block) -> str:
    if block.argument is None:
        return f"pointer {block.sized} into memory outside the kernel's tensors"
    text = f"pointer {block.sized} into {block.argument.name}"
    if not block.data.numel():
        return text
    first, last = int(block.data.min()), int(block.data.max())
    wrong = int(((block.data < 0) | (block.data >= block.argument.extent)).sum())
    where = f"{text}: {first}" if first == last else f"{text}: {first} … {last}"
    return f"{where} ({wrong} of {block.data.numel()} outside)" if wrong else where


class BlockChildren(TensorChildren):
    """The children of a tensor with the block's data; for pointers, their elements and the tensor."""

    def __init__(self, block: Block, expression: str | None, view: View) -> None:
        super().__init__(block.data, None, view)
        self._block = block
        self._of_block = expression

    def named(self) -> Sequence[Variable]:
        """Return type and shape, statistics, and for pointers the tensor."""
        block = self._block
        facts = [("dtype", block.dtype), ("shape", f"[{', '.join(map(str, block.shape))}]")]
        variables = [Variable(name, Value(text, kind="property")) for name, text in facts]
        if block.argument is not None:
            below = self._view.value(block.argument.tensor)
            variables.append(Variable("tensor", below))
        if block.masked:
            variables.append(Variable("masked", Value(str(block.masked), "int", kind="property")))
        return [*variables, *(self.statistics() if not block.is_pointer else ())]

    def _row(self, index: int) -> str | None:
        return None if self._of_block is None else f"{self._of_block}.handle.data[{index}]"


def _block_pointer_text(value: Any) -> str:
    handle = value.handle
    if not hasattr(handle, "offsets"):
        return f"<{type(handle).__name__}>"
    base = block_of(_Scalar(handle.base))
    into = base.argument.name if base is not None and base.argument is not None else "?"
    shape, at = (", ".join(_numbers(part)) for part in (handle.block_shape, handle.offsets))
    return f"pointer to a block {short_name(handle.base.get_element_ty())}[{shape}] of {into} at ({at})"


def _block_pointer_variables(handle: object) -> list[Variable]:
    names = ("shape", "strides", "offsets", "block_shape", "order")
    found = [(name, getattr(handle, name, None)) for name in names]
    return [Variable(name, Value(f"({', '.join(_numbers(part))})")) for name, part in found if part is not None]


def _numbers(parts: Sequence[object]) -> list[str]:
    return [str(part.data.item()) if hasattr(part, "data") else str(part) for part in parts]


class _Scalar:
    """Wraps a scalar handle as ``tl.tensor`` does."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.type = self
        self.scalar = handle.dtype.scalar

    @staticmethod
    def is_block() -> bool:
        """Return False: it is a scalar."""
        return False


@family_for("triton.language.core.constexpr")
class Constants(Family):
    """``tl.constexpr``."""

    def text(self, value: Any, width: int, depth: int, view: View) -> str:
        """Return the constant."""
        return view.text(value.value, width, depth)


def program_scope(frame: types.FrameType, is_user_file: Callable[[str], bool]) -> ScopeOfFrame | None:
    """Return the scope that describes the program of ``frame``; None if it runs no kernel.

    ``is_user_file`` decides which line is the launch. Runs on any thread, while the frame's thread is held.
    The held thread computes the children.
    """
    found = launch_in(frame)
    if found is None or found[0].program is None:
        return None
    launch, caller = found

    def facts() -> list[Variable]:
        line = caller
        while line is not None and not is_user_file(line.f_code.co_filename):
            line = line.f_back
        return _facts(launch, line, _language_name(frame))

    return ScopeOfFrame(PROGRAM, Deferred(facts))


def _facts(launch: Launch, caller: types.FrameType | None, language: str | None) -> list[Variable]:
    assert launch.program is not None
    variables = [
        _fact("kernel", launch.name),
        _fact("launch", _launch_text(launch, caller)),
        _fact("grid", text_of_index(launch.grid)),
    ]
    for name, numbers in (("program_id", launch.program), ("num_programs", launch.grid)):
        for axis, number in enumerate(numbers):
            expression = None if language is None else f"{language}.{name}({axis})"
            variables.append(Variable(f"{name}({axis})", _read_only(str(number), "int"), expression))
    for argument in dict.fromkeys(launch.arguments.values()):
        variables.append(Variable(argument.name, present(argument.tensor)))
    for name, value in launch.constants.items():
        shown = present(value)
        variables.append(Variable(name, Value(shown.text, shown.type_name, attributes=("constant", "readOnly"))))
    return variables


def _fact(name: str, text: str) -> Variable:
    return Variable(name, _read_only(text))


def _read_only(text: str, type_name: str | None = None) -> Value:
    return Value(text, type_name, kind="property", attributes=("readOnly",))


def _launch_text(launch: Launch, caller: types.FrameType | None) -> str:
    """Return which launch of the kernel this is, and the user's line that made it."""
    number = f"{launch.number}" if launch.number else "made by an expression"
    if launch.memory is not None:
        number = "on copies of its arguments"
    if caller is None:
        return number
    return f"{number}, at {os.path.basename(caller.f_code.co_filename)}:{caller.f_lineno}"


def _language_name(frame: types.FrameType) -> str | None:
    """Return the frame's name for ``triton.language``: ``tl``."""
    language = sys.modules.get("triton.language")
    names = (name for name, value in frame.f_globals.items() if value is language and type(name) is str)
    return None if language is None else next(names, None)
