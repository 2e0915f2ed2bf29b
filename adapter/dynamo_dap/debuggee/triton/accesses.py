"""Describes what a program of a kernel does to memory. Arrays are NumPy's."""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass
from typing import Any


class Order(enum.Flag):
    """The order that an atomic operation establishes."""

    NOTHING = 0
    ACQUIRE = enum.auto()
    RELEASE = enum.auto()


@dataclass(frozen=True, eq=False)
class Access:
    """A load, a store or an atomic operation that a program is about to do."""

    what: str
    """``load``, ``store`` or the like."""
    pointers: Any
    """The interpreter's handle."""
    lanes: object
    """The array of active lanes, None for all."""
    values: object = None
    """The array that is stored."""
    order: Order | None = None
    """For atomic operations."""
    is_volatile: bool = False

    def addresses(self) -> Any:
        """Return the addresses of the active lanes."""
        return self._taking_part(self.pointers.data)

    def stored(self) -> Any:
        """Return the values of the active lanes."""
        return self._taking_part(self.values)

    @property
    def size(self) -> int:
        """The bytes of an element."""
        return max(1, int(self.pointers.get_element_ty().primitive_bitwidth) // 8)

    def _taking_part(self, array: Any) -> object:
        numpy = sys.modules["numpy"]
        array = numpy.broadcast_to(array, self.pointers.data.shape)
        return array.reshape(-1) if self.lanes is None else array[numpy.broadcast_to(self.lanes, array.shape)]
