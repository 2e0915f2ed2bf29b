"""Shows numbers, texts, and small standard types whose ``repr`` runs no user code. Runs on the held thread."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import pathlib
import re
import types
import uuid

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.values.model import Children, Deferred, Family, Value, Variable, View, family_for
from dynamo_dap.debuggee.values.objects import ObjectFamily, attributes_of
from dynamo_dap.debuggee.values.type_facts import instance_dictionary, qualified_name_of

_LONG_INTEGER = 1_000
"""Maximum bits of a number that is written: longer ones take quadratic time, and Python may refuse to write them."""


@family_for(type(None), type(Ellipsis), type(NotImplemented), bool)
class Singletons(Family):
    """``None``, ``...``, ``NotImplemented``, booleans."""

    def text(self, value: object, width: int, depth: int, view: View) -> str:
        """Return its name."""
        return repr(value)


@family_for(int)
class Integers(Family):
    """Integers, and subclasses of ``int`` by their integer value."""

    def text(self, value: int, width: int, depth: int, view: View) -> str:
        """Return the digits; for a huge number, how many bits it has."""
        bits = int.bit_length(value)
        text = int.__repr__(value) if bits <= _LONG_INTEGER else f"<int of {bits} bits>"
        return text if type(value) is int else f"{qualified_name_of(type(value))}({text})"


@family_for(float)
class Floats(Family):
    """Floats, and subclasses by their float value."""

    def text(self, value: float, width: int, depth: int, view: View) -> str:
        """Return the shortest digits that give the number."""
        text = float.__repr__(value)
        return text if type(value) is float else f"{qualified_name_of(type(value))}({text})"


@family_for(complex)
class Complexes(Family):
    """Complex numbers."""

    def text(self, value: complex, width: int, depth: int, view: View) -> str:
        """Return the number as Python writes it."""
        text = complex.__repr__(value)
        return text if type(value) is complex else f"{qualified_name_of(type(value))}({text})"


@family_for(str)
class Texts(Family):
    """Strings: quoted, cut at the end."""

    def text(self, value: str, width: int, depth: int, view: View) -> str:
        """Return the quoted string, or its beginning and how long it is."""
        length = str.__len__(value)
        if length <= width - 2:
            text = str.__repr__(value)
        else:
            text = f"{str.__repr__(str.__getitem__(value, slice(0, max(width - 24, 8))))}… ({length} characters)"
        return text if type(value) is str else f"{qualified_name_of(type(value))}({text})"


@family_for(bytes, bytearray)
class Bytes(Family):
    """Byte strings: quoted, cut at the end."""

    def text(self, value: bytes | bytearray, width: int, depth: int, view: View) -> str:
        """Return the quoted bytes, or their beginning and how many there are."""
        base: type[bytes] | type[bytearray] = bytes if isinstance(value, bytes) else bytearray
        length = len(memoryview(value))
        shown = max(width // 4, 8)
        text = repr(base(memoryview(value)[:shown]))
        if length > shown:
            text = f"{text}… ({length} bytes)"
        return text if type(value) is base else f"{qualified_name_of(type(value))}({text})"


@family_for(enum.Enum)
class EnumMembers(ObjectFamily):
    """Members of an enumeration: ``Colour.RED``."""

    kind = "property"

    def text(self, value: enum.Enum, width: int, depth: int, view: View) -> str:
        """Return class and member; for a combination of flags that has no name, the number."""
        stored = instance_dictionary(value)
        name = stored.get("_name_")
        if name is None:
            return f"{qualified_name_of(type(value))}({stored.get('_value_')!r:.40})"
        return f"{qualified_name_of(type(value))}.{name}"

    def children(self, value: enum.Enum, expression: str | None, view: View) -> Children | None:
        """Return the member's value, and its other stored attributes."""

        def make() -> list[Variable]:
            stored = instance_dictionary(value).get("_value_")
            first = Variable("value", view.value(stored), f"{expression}.value" if expression else None)
            others = attributes_of(value, expression, view)
            return [first, *(each for each in others if not each.name.startswith("_"))]

        return Deferred(make)


_EXACT_REPRESENTATION: tuple[type, ...] = (
    range,
    slice,
    memoryview,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    re.Pattern,
    re.Match,
    dt.date,
    dt.datetime,
    dt.time,
    dt.timedelta,
    dt.timezone,
    pathlib.PurePosixPath,
    pathlib.PureWindowsPath,
    pathlib.PosixPath,
    types.GenericAlias,
    types.UnionType,
)


class ExactlyRepresented(ObjectFamily):
    """Standard types with a short, cheap ``repr`` that is not the user's. A subclass is shown like any other object."""

    def text(self, value: object, width: int, depth: int, view: View) -> str:
        """Return the ``repr`` if the type is exactly one of these."""
        return repr(value) if is_exactly(value, _EXACT_REPRESENTATION) else super().text(value, width, depth, view)

    def children(self, value: object, expression: str | None, view: View) -> Children | None:
        """Return what a subclass stores; standard types have no children."""
        return None if is_exactly(value, _EXACT_REPRESENTATION) else super().children(value, expression, view)


family_for(*_EXACT_REPRESENTATION)(ExactlyRepresented)

_BY_NAME = (
    "torch.dtype",
    "torch.device",
    "torch.layout",
    "torch.memory_format",
    "torch.Generator",
    "numpy.dtype",
)


@family_for(*_BY_NAME)
class RepresentedByName(Family):
    """Small values of libraries that may not be imported."""

    def text(self, value: object, width: int, depth: int, view: View) -> str:
        """Return the library's own ``repr``."""
        return repr(value)


@family_for("numpy.generic")
class ArrayScalars(Family):
    """NumPy's numbers."""

    def text(self, value: object, width: int, depth: int, view: View) -> str:
        """Return the digits; the type is shown beside them."""
        return str(value)


@family_for(range)
class Ranges(Family):
    """Ranges, by start, stop and step."""

    def text(self, value: range, width: int, depth: int, view: View) -> str:
        """Return ``range(start, stop)``."""
        return range.__repr__(value)

    def children(self, value: range, expression: str | None, view: View) -> Children | None:
        """Return start, stop, step."""

        def part(name: str) -> Variable:
            return Variable(
                name, Value(repr(getattr(value, name)), "int"), f"{expression}.{name}" if expression else None
            )

        return Deferred(lambda: [part("start"), part("stop"), part("step")], count=3)
