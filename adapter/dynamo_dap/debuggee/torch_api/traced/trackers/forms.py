"""Defines the forms of VariableTrackers' values, independent of Dynamo's two hundred classes.

``form_of`` reads a tracker into a form. The parts of a form are not read: they are trackers still, or real objects
where Dynamo keeps those. Runs on the tracing thread; forms live as long as the pause.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, get_args

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly


@dataclass(frozen=True, slots=True)
class Known:
    """The tracker represents exactly this object: a constant, a module, a class, an existing function."""

    value: Any


@dataclass(frozen=True, slots=True)
class Unrealized:
    """The traced code has not touched the object yet."""

    value: Any


@dataclass(frozen=True, slots=True)
class TensorForm:
    """A tensor, known by its metadata."""

    example: Any
    """Its FakeTensor, or None."""
    node: Any
    """The FX node that computes it."""
    kind: str = "Tensor"
    number: object = None
    """The program's number that the graph takes as a tensor."""


@dataclass(frozen=True, slots=True)
class NumberForm:
    """A symbolic number: ``SymInt``, ``SymFloat``, ``SymBool``."""

    number: Any
    node: Any


@dataclass(frozen=True, slots=True)
class SequenceForm:
    """Items in order: a list, a tuple."""

    items: Sequence[object]
    type_name: str = "list"
    opening: str = "["
    closing: str = "]"
    names: tuple[str, ...] = ()
    """Fields of a named tuple."""
    cls: type | None = None
    """The class of a named tuple or another subclass of ``tuple``."""


def tuple_form(items: Sequence[object]) -> SequenceForm:
    """Return the form of a tuple."""
    return SequenceForm(items, "tuple", "(", ",)" if len(items) == 1 else ")")


@dataclass(frozen=True, slots=True)
class SetForm:
    """Items without order: a set."""

    items: Sequence[object]
    type_name: str = "set"


@dataclass(frozen=True, slots=True)
class MappingForm:
    """Keys and values."""

    pairs: Sequence[tuple[object, object]]
    type_name: str = "dict"


@dataclass(frozen=True, slots=True)
class InstanceForm:
    """An object of a class, with the traced code's changes applied."""

    value: object
    """The real object; for one made by the traced code, an empty placeholder that only has the class."""
    cls: type
    contents: Any = None
    """The form of what it contains, for a subclass of a builtin container."""
    stored: dict[str, object] = field(default_factory=dict)
    """The attributes that the traced code stored on it, as trackers."""


@dataclass(frozen=True, slots=True)
class FunctionForm:
    """A function that the traced code made, or a method."""

    name: str
    code: types.CodeType
    bound_to: object = None
    defaults: object = None
    keyword_defaults: object = None
    closure: tuple[tuple[str, object], ...] = ()
    function: types.FunctionType | None = None
    """The real function, if there is one."""


@dataclass(frozen=True, slots=True)
class CellForm:
    """A cell of a closure, shown as its contents."""

    contents: object
    """A tracker; None for an empty cell."""


@dataclass(frozen=True, slots=True)
class Composite:
    """Anything else: a title, and its parts by name."""

    title: str
    parts: tuple[tuple[str, object], ...] = ()
    type_name: str | None = None
    code: types.CodeType | None = None
    after: tuple[object, ...] = ()
    """Parts whose text follows the title, in parentheses."""
    is_call: bool = False
    """Whether parentheses follow the title even without parts: ``ValueError()``."""
    rebuild: Callable[[Callable[[object], Any]], object] | None = None
    """Makes the Python value, given a function that converts a part; None if nothing can compute with it."""
    cls: type | None = None
    """The value's class in ordinary Python, if Dynamo's placeholder has another."""


Form = (
    Known
    | Unrealized
    | TensorForm
    | NumberForm
    | SequenceForm
    | SetForm
    | MappingForm
    | InstanceForm
    | FunctionForm
    | CellForm
    | Composite
)


_FORMS: tuple[type, ...] = get_args(Form)


def is_form(value: object) -> TypeGuard[Form]:
    """Return whether ``value`` is a form, without running code of the program's objects."""
    return is_exactly(value, _FORMS)
