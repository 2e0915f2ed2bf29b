"""Checks a value's type, and reads its class, without running code of the class or its metaclass.

``type(value) in types`` compares by ``==``, which a metaclass may define. A set or dictionary needs a hash, which the
class may lack. ``isinstance`` reads ``__class__``, which may be a property that raises. Runs on any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard, TypeVar

T = TypeVar("T")

_mro = type.__dict__["__mro__"].__get__
_dictionary = type.__dict__["__dict__"].__get__


def is_exactly(value: object, types: Iterable[type]) -> bool:
    """Return whether the type of ``value`` is one of ``types``, not a subclass."""
    cls = type(value)
    for each in types:  # noqa: SIM110  (a generator would take twice as long, and this runs for each value)
        if cls is each:
            return True
    return False


def is_a(value: object, base: type[T]) -> TypeGuard[T]:
    """Return whether the type of ``value`` is ``base`` or a subclass, whatever its ``__class__`` says."""
    return has_base(type(value), base)


def is_one_of(value: object, bases: Iterable[type]) -> bool:
    """Return whether the type of ``value`` is one of ``bases`` or a subclass, whatever its ``__class__`` says."""
    cls = type(value)
    for base in bases:  # noqa: SIM110  (a generator would take twice as long, and this runs for each value)
        if has_base(cls, base):
            return True
    return False


def find_in_type(value: object, name: str) -> object:
    """Return the unbound attribute ``name`` of the class of ``value``; None if there is none."""
    for cls in _mro(type(value)):
        dictionary = _dictionary(cls)
        if name in dictionary:
            found: object = dictionary[name]
            return found
    return None


def has_base(cls: type, base: type) -> bool:
    """Return whether ``base`` is ``cls`` or one of its bases."""
    for each in _mro(cls):  # noqa: SIM110  (a generator would take twice as long here, too)
        if each is base:
            return True
    return False
