"""Numbers objects in the order in which they are first seen, so that a record can compare them without keeping them.

Runs on compiling threads, under Dynamo's compile lock.
"""

from __future__ import annotations

import weakref


class ObjectNumbers:
    """The numbers of objects, which are held weakly."""

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[object]] = {}
        self._newest = 0

    def of(self, value: object) -> int | None:
        """Return the number of an object; None if it does not support weak references."""
        for number, reference in self._known.items():
            if (known := reference()) is not None and known is value:
                return number
        try:
            made = weakref.ref(value)
        except TypeError:
            return None
        self._known = {number: one for number, one in self._known.items() if one() is not None}
        self._newest += 1
        self._known[self._newest] = made
        return self._newest
