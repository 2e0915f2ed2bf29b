"""Reads values of a kernel in Triton's interpreter: data as torch tensors, pointers, masks.

Runs on the thread that runs the kernel, while it is held. Data is shared with the interpreter, and only read.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.debuggee.triton.interpreter import MASKED
from dynamo_dap.debuggee.triton.launches import Argument
from dynamo_dap.debuggee.triton.pointers import argument_of, offsets_of

_STORED_AS_BITS = {
    "bf16": "bfloat16",
    "fp8e5": "float8_e5m2",
    "fp8e5b16": "float8_e5m2fnuz",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e4b8": "float8_e4m3fnuz",
}
"""By Triton's name: the torch type of data that the interpreter keeps as whole numbers of the same size."""
_SHORT = {"fp": "f", "int": "i", "uint": "u"}


@dataclass(frozen=True, eq=False)
class Block:
    """A block or a scalar, of numbers or of pointers."""

    dtype: str
    """As in a listing: ``f32``, ``i1``; for pointers the type of their elements."""
    shape: tuple[int, ...]
    data: Any
    """A tensor; for pointers the elements that they point to, or None if unknown."""
    is_pointer: bool = False
    argument: Argument | None = None
    masked: int = 0
    """How many lanes were masked at the load."""

    @property
    def sized(self) -> str:
        """Return dtype and shape: ``f32[128]``, ``i32`` for a scalar."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]" if self.shape else self.dtype

    @property
    def is_mask(self) -> bool:
        """Whether it holds truth values."""
        return self.dtype == "i1" and not self.is_pointer


def block_of(value: Any) -> Block | None:
    """Return the data of a ``tl.tensor``; None if it is not an array (a pointer to a block)."""
    handle = value.handle
    data: Any = getattr(handle, "data", None)
    if not hasattr(data, "dtype") or not hasattr(handle, "dtype"):
        return None
    # A scalar's array has one element.
    shape = tuple(int(size) for size in data.shape) if _is_block(value) else ()
    # After a comparison the handle has another type.
    dtype = value.type.scalar
    pointed_to = getattr(dtype, "element_ty", None)
    if pointed_to is None:
        return Block(short_name(dtype), shape, _tensor(data, shape, str(dtype)), masked=getattr(handle, MASKED, 0))
    argument = argument_of(handle)
    offsets = None if argument is None else _tensor(offsets_of(handle, argument), shape, "int64")
    return Block(short_name(pointed_to), shape, offsets, True, argument)


def _is_block(value: Any) -> bool:
    return bool(value.type.is_block())


def short_name(dtype: object) -> str:
    """Return ``f32`` for ``fp32``, ``i64`` for ``int64``."""
    name = str(dtype)
    letters = name.rstrip("0123456789")
    return _SHORT[letters] + name[len(letters) :] if letters in _SHORT else name


def number_of(element: object, dtype: object) -> object:
    """Return an element of an interpreter array as a Python number."""
    return _tensor(element, (), str(dtype)).item()


def _tensor(data: object, shape: tuple[int, ...], dtype: str) -> Any:
    torch = sys.modules.get("torch")
    numpy = sys.modules["numpy"]
    if torch is None:
        raise FeatureMissing("it cannot be shown: the program has not imported torch")
    array = numpy.array(data).reshape(shape)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1 and dtype not in _STORED_AS_BITS:
        # Torch supports few operations on these types.
        array = array.astype(numpy.int64)
    tensor = torch.from_numpy(array)
    kept_as = getattr(torch, _STORED_AS_BITS.get(dtype, ""), None)
    return tensor if kept_as is None else tensor.view(kept_as)
