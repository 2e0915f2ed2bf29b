"""Makes weak sets and dictionaries whose callbacks Dynamo recognizes as the debugger's.

The library's ``WeakSet`` and its two weak dictionaries drop an entry in a Python callback, which runs wherever the
object dies. If the object dies while a compiled function runs, Dynamo meets the callback and counts it as a frame of
the program. The callback's code must not be marked as skipped, since the program's collections share it. So the
collections here run copies of that code, and ``never_compile_own_functions`` finds the copies in this module. On a
version of Python that keeps the callback elsewhere, these collections are like the library's.
"""

from __future__ import annotations

import weakref
from types import FunctionType
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def _own_copy(collection: object) -> FunctionType | None:
    """Return the callback of ``collection`` with code that names this file."""
    original = getattr(collection, "_remove", None)
    if not isinstance(original, FunctionType):
        return None
    copy = FunctionType(original.__code__.replace(co_filename=__file__), original.__globals__)
    copy.__module__ = __name__
    return copy


_remove_from_set = _own_copy(weakref.WeakSet())
_remove_key = _own_copy(weakref.WeakKeyDictionary())
_remove_value = _own_copy(weakref.WeakValueDictionary())


def _use_own(collection: Any, own: FunctionType | None) -> None:
    """Let ``collection``, which is empty, call the code of ``own`` when one of its objects dies."""
    if own is None:
        return
    original = collection._remove
    collection._remove = FunctionType(
        own.__code__, original.__globals__, original.__name__, original.__defaults__, original.__closure__
    )


class WeakSet(weakref.WeakSet[K]):
    """Holds objects weakly."""

    def __init__(self) -> None:
        super().__init__()
        _use_own(self, _remove_from_set)


class WeakKeyDictionary(weakref.WeakKeyDictionary[K, V]):
    """Maps weakly held objects to values."""

    def __init__(self) -> None:
        super().__init__()
        _use_own(self, _remove_key)


class WeakValueDictionary(weakref.WeakValueDictionary[K, V]):
    """Maps keys to weakly held objects."""

    def __init__(self) -> None:
        super().__init__()
        _use_own(self, _remove_value)


def with_own_callback(memo: object) -> WeakValueDictionary[object, object] | None:
    """Return a copy of one of the library's dictionaries of weak values; None for any other object."""
    if type(memo) is not weakref.WeakValueDictionary:
        return None
    own: WeakValueDictionary[object, object] = WeakValueDictionary()
    own.update(memo)
    return own
