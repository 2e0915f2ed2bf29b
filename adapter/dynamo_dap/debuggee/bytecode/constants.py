"""Writes a code object's constants as bounded text, equal in every run, without running code of their classes.

Generated code can hold any object as a constant; its ``repr`` may be slow, huge, or the user's own. Any thread may call
these functions; they have no side effects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import CodeType, EllipsisType, NoneType

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly

_PLAIN = (int, float, complex, bool, NoneType, EllipsisType)
MAXIMUM_LENGTH = 60
_MAXIMUM_ITEMS = 6
_MAXIMUM_DEPTH = 3


def constant_text(value: object, depth: int = 0) -> str:
    """Return ``value`` as Python text if it is plain data, else its type's name in angle brackets."""
    # Compare the type first: ``isinstance`` may call the object, and accepts the user's subclasses.
    kind = type(value)
    if kind is CodeType:
        assert isinstance(value, CodeType)
        return f"<code {value.co_name} at line {value.co_firstlineno}>"
    if kind is int:
        assert isinstance(value, int)
        return _bounded(repr(value)) if value.bit_length() < 1000 else "<a huge int>"
    if is_exactly(value, _PLAIN):
        return repr(value)
    if kind is str or kind is bytes:
        assert isinstance(value, (str, bytes))
        return _bounded(repr(value[: MAXIMUM_LENGTH + 1]))
    if is_exactly(value, (tuple, list, frozenset, set)):
        assert isinstance(value, (tuple, list, frozenset, set))
        return _bounded(_items_text(kind, value, depth))
    if kind is slice:
        assert isinstance(value, slice)
        return _bounded(f"slice{_items_text(tuple, (value.start, value.stop, value.step), depth)}")
    return f"<{kind.__module__}.{kind.__qualname__}>" if kind.__module__ != "builtins" else f"<{kind.__qualname__}>"


_ADDRESS = re.compile(r"(?: at)? 0x[0-9a-fA-F]{6,}")


def without_addresses(text: str) -> str:
    """Return text of Python or torch without the addresses of objects: ``<function f>``."""
    return _ADDRESS.sub("", text) if "0x" in text else text


def _items_text(kind: type, values: Iterable[object], depth: int) -> str:
    opening, closing = ("(", ")") if kind is tuple else ("[", "]") if kind is list else ("{", "}")
    items = list(values)
    if depth >= _MAXIMUM_DEPTH and items:
        return f"{opening}…{closing}"
    shown = [constant_text(item, depth + 1) for item in items[:_MAXIMUM_ITEMS]]
    if len(items) > _MAXIMUM_ITEMS:
        shown.append("…")
    comma = "," if kind is tuple and len(items) == 1 else ""
    text = f"{opening}{', '.join(shown)}{comma}{closing}"
    return f"frozenset({text})" if kind is frozenset else text


def _bounded(text: str) -> str:
    return text if len(text) <= MAXIMUM_LENGTH else text[: MAXIMUM_LENGTH - 1] + "…"
