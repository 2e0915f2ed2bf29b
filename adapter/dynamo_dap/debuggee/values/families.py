"""Maps types to families, which decide how values are shown: text, children, place of definition.

Families register for types, or for names of types whose module may not be imported yet (torch, numpy). ``present``
picks the family along the method resolution order. Runs on the held thread; families are stateless and live as long as
the process.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import has_base
from dynamo_dap.debuggee.values.model import (
    MAXIMUM_TEXT,
    Children,
    Interrupted,
    Location,
    Value,
    bounded_text,
    text_of_raised,
)
from dynamo_dap.debuggee.values.type_facts import full_name_of, mro_of, qualified_name_of

DEPTH_OF_PREVIEW = 3
"""How many levels of containers a text shows; deeper containers are written as ``[…]``."""

PREVIEW_OF_CONTAINER = 120
"""Most characters shown of a container's elements: one line of a pane. The text says how many elements are left out."""


class Family:
    """How values of some types are shown. The defaults suit any object."""

    kind: str | None = None
    """DAP ``VariablePresentationHint.kind`` of the values."""
    width: int = MAXIMUM_TEXT
    """Width of the text in a pane; the clipboard gets more."""

    def text(self, value: Any, width: int, depth: int, view: View) -> str:
        """Return the value as text of about ``width`` characters, opening ``depth`` more levels of containers."""
        return f"<{qualified_name_of(type(value))} object>"

    def children(self, value: Any, expression: str | None, view: View) -> Children | None:
        """Return the value's children; ``expression`` evaluates to the value in a watch, or is None."""
        return None

    def location(self, value: Any) -> Location | None:
        """Return where the value itself is defined."""
        return None

    def type_name(self, value: Any) -> str | None:
        """Return the name of the value's type, for the type column."""
        return qualified_name_of(type(value))

    def present(self, value: Any, expression: str | None, view: View) -> Value:
        """Return the value as it is shown."""
        return Value(
            text=bounded_text(self.text(value, self.width, DEPTH_OF_PREVIEW, view)),
            type_name=self.type_name(value),
            children=self.children(value, expression, view),
            kind=self.kind,
            location=self.location(value),
        )


_families: dict[type | str, Family] = {}
_families_by_id: dict[int, Family] = {}
"""By ``id`` of the type: classes of the program may not be hashable."""
_found: dict[int, tuple[weakref.ref[type], Family]] = {}
"""By ``id`` of the type. Types are held weakly, because Dynamo drops guards on a class that is freed."""


def family_for(*types: type | str) -> Callable[[type[Family]], type[Family]]:
    """Register a family for ``types`` and their subclasses; a string is ``module.qualified_name``."""

    def register(family: type[Family]) -> type[Family]:
        for each in types:
            _families[each] = made = family()
            if not isinstance(each, str):
                _families_by_id[id(each)] = made
        _found.clear()
        return family

    return register


def family_of(value: object) -> Family:
    """Return the family of the value's type, chosen along its method resolution order."""
    cls = type(value)
    key = id(cls)
    known = _found.get(key)
    if known is not None and known[0]() is cls:
        return known[1]
    family = _find(cls)
    _found[key] = (weakref.ref(cls, lambda _: _found.pop(key, None)), family)
    return family


def _find(cls: type) -> Family:
    if has_base(cls, enum.Enum):  # an IntEnum is an int before it is an Enum
        return _families[enum.Enum]
    for base in mro_of(cls):
        family = _families_by_id.get(id(base)) or _families.get(full_name_of(base))
        if family is not None:
            return family
    return _families[object]


class View:
    """Decides how values and their children are shown.

    This class shows objects as they are. While Dynamo traces, objects have pending changes, which the subclass for
    traces shows as applied.
    """

    def value(self, value: object, expression: str | None = None) -> Value:
        """Return any Python object as it is shown; ``expression`` evaluates to it in a watch."""
        try:
            return self.shown(value, expression)
        except Interrupted:
            raise
        except BaseException as problem:  # noqa: BLE001 - an object may be broken in any way; its neighbours still show
            return Value(f"<{qualified_name_of(type(value))}: cannot be shown ({text_of_raised(problem)})>")

    def text(self, value: object, width: int = MAXIMUM_TEXT, depth: int = DEPTH_OF_PREVIEW) -> str:
        """Return the object's text alone, bounded to ``width`` characters."""
        try:
            seen = self.seen(value)
            return bounded_text(family_of(seen).text(seen, width, depth, self), max(width, 1))
        except Interrupted:
            raise
        except BaseException as problem:  # noqa: BLE001 - as in value
            return f"<{qualified_name_of(type(value))}: {type(problem).__name__}>"

    def shown(self, value: object, expression: str | None) -> Value:
        """Return the object as it is shown; ``value`` calls this, and handles objects that raise."""
        seen = self.seen(value)
        return family_of(seen).present(seen, expression, self)

    def little_data(self, value: object) -> str | None:
        """Return the elements of an object that represents a small tensor; None if they are not at hand."""
        return None

    def data_range(self, value: object) -> str | None:
        """Return least and largest element of an object that represents a tensor; None if they are not at hand."""
        return None

    def printed_text(self, value: object) -> str | None:
        """Return the text, with data, of an object that represents a tensor; this may take time. None without data."""
        return None

    def seen(self, value: object) -> object:
        """Return the object to show instead of ``value``."""
        return value


PLAIN = View()
"""Shows objects as they are."""


def present(value: object, expression: str | None = None) -> Value:
    """Return any Python object as it is shown.

    No code of the object's class runs: builtin containers and scalars are read through their builtin type, other
    objects through their storage. ``expression`` evaluates to the value in a watch.
    """
    return PLAIN.value(value, expression)


def preview(value: object, width: int = MAXIMUM_TEXT, depth: int = DEPTH_OF_PREVIEW) -> str:
    """Return the value's text alone, bounded to ``width`` characters."""
    return PLAIN.text(value, width, depth)
