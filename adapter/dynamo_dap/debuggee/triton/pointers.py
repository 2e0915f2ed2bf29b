"""Resolves blocks of pointers: the argument of the launch, the elements, and which are outside.

Arrays are NumPy's, which Triton's interpreter computes with. Runs on the thread that runs the kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import facts_of
from dynamo_dap.debuggee.triton.launches import LAUNCHES, MARK, Argument

_MOST_LANES = 8
"""Maximum number of lanes that a message lists."""


def argument_of(handle: Any) -> Argument | None:
    """Return the argument that a block of pointers was computed from.

    For a pointer made from an integer, return the argument whose memory contains the pointer's first lane.
    """
    marked = getattr(handle.dtype, MARK, None)
    if isinstance(marked, Argument):
        return marked
    launch, addresses = LAUNCHES.current, handle.data
    return None if launch is None or not addresses.size else launch.argument_at(int(addresses.flat[0]))


def offsets_of(handle: Any, argument: Argument) -> Any:
    """Return the elements that a block of pointers points to, counted from the start of its argument."""
    numpy = sys.modules["numpy"]
    distances = handle.data.astype(numpy.int64) - argument.address
    return numpy.floor_divide(distances, argument.element_size)


@dataclass(frozen=True)
class Outside:
    """An access with lanes outside the tensor."""

    what: str
    """``load``, ``store`` or the like."""
    argument: Argument
    lanes: int
    """How many lanes there are, without masked ones."""
    shape: tuple[int, ...]
    wrong: tuple[tuple[tuple[int, ...], int], ...]
    """The first lanes outside: index in the block, element."""
    count: int
    """How many lanes are outside."""

    @property
    def headline(self) -> str:
        """Describes the access: ``load outside x: 24 of 128 lanes``."""
        return f"{self.what} outside {self.argument.name}: {self.count} of {self.lanes} lanes"

    @property
    def text(self) -> str:
        """Names the lanes outside, their elements, and the elements that the tensor has."""
        lanes = [f"lane {_lane(index)} at element {element}" for index, element in self.wrong]
        more = [f"and {self.count - len(self.wrong)} more"] if self.count > len(self.wrong) else []
        extent = self.argument.extent
        has = f"has elements 0 to {extent - 1}" if extent else "has no elements"
        return f"{self.argument.name} ({facts_of(self.argument.tensor).text}) {has}: {', '.join([*lanes, *more])}"

    @property
    def elements(self) -> list[int]:
        """The elements of ``wrong``."""
        return [element for _, element in self.wrong]


def _lane(index: Sequence[int]) -> str:
    return str(index[0]) if len(index) == 1 else f"({', '.join(map(str, index))})"


def outside(what: str, handle: object, mask: object) -> Outside | None:
    """Return the part of an access outside its tensor; None if there is none, or the tensor is unknown.

    ``mask`` is the array of active lanes, None for all.
    """
    numpy = sys.modules["numpy"]
    argument = argument_of(handle)
    if argument is None:
        return None
    offsets = offsets_of(handle, argument)
    takes_part = numpy.ones(offsets.shape, dtype=bool) if mask is None else numpy.broadcast_to(mask, offsets.shape)
    is_wrong = takes_part & ((offsets < 0) | (offsets >= argument.extent))
    count = int(is_wrong.sum())
    if count == 0:
        return None
    first = numpy.argwhere(is_wrong)[:_MOST_LANES]
    wrong = tuple((tuple(int(part) for part in index), int(offsets[tuple(index)])) for index in first)
    return Outside(what, argument, int(takes_part.sum()), tuple(offsets.shape), wrong, count)
