"""The value of a VariableTracker as one of a few forms, independent of Dynamo's two hundred classes.

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
    """The tracker stands for this very object: a constant, a module, a class, a function that exists."""

    value: Any


@dataclass(frozen=True, slots=True)
class Unrealized:
    """The traced code has not touched the object yet."""

    value: Any


@dataclass(frozen=True, slots=True)
class TensorForm:
    """A tensor, known by its metadata."""

    example: Any
    """The FakeTensor that stands for it; None while it has none."""
    node: Any
    """The FX node that computes it."""
    kind: str = "Tensor"
    number: Any = None
    """The number, where the graph takes one of the program's as a tensor."""


@dataclass(frozen=True, slots=True)
class NumberForm:
    """A symbolic number: ``SymInt``, ``SymFloat``, ``SymBool``."""

    number: Any
    node: Any


@dataclass(frozen=True, slots=True)
class SequenceForm:
    """Items by number."""

    items: Sequence[Any]
    type_name: str = "list"
    opening: str = "["
    closing: str = "]"
    names: tuple[str, ...] = ()
    """Fields of a named tuple."""
    cls: type | None = None
    """The class of a named tuple or another subclass of ``tuple``."""


def tuple_form(items: Sequence[Any]) -> SequenceForm:
    """Return the form of a tuple."""
    return SequenceForm(items, "tuple", "(", ",)" if len(items) == 1 else ")")


@dataclass(frozen=True, slots=True)
class SetForm:
    """Items without number."""

    items: Sequence[Any]
    type_name: str = "set"


@dataclass(frozen=True, slots=True)
class MappingForm:
    """Keys and values."""

    pairs: Sequence[tuple[Any, Any]]
    type_name: str = "dict"


@dataclass(frozen=True, slots=True)
class InstanceForm:
    """An object of a class: what it stores, with the changes of the traced code applied."""

    value: Any
    """The real object; for one made by the traced code, an empty placeholder that only has the class."""
    cls: type
    contents: Any = None
    """The form of what it contains, for a subclass of a builtin container."""
    stored: dict[str, Any] = field(default_factory=dict)
    """What the traced code stored on it, as trackers."""


@dataclass(frozen=True, slots=True)
class FunctionForm:
    """A function that the traced code made, or a method."""

    name: str
    code: types.CodeType
    bound_to: Any = None
    defaults: Any = None
    keyword_defaults: Any = None
    closure: tuple[tuple[str, Any], ...] = ()
    function: types.FunctionType | None = None
    """The real function, where there is one."""


@dataclass(frozen=True, slots=True)
class CellForm:
    """A cell of a closure, shown as its contents."""

    contents: Any
    """A tracker; None for an empty cell."""


@dataclass(frozen=True, slots=True)
class Composite:
    """Anything else: a title, and its parts by name."""

    title: str
    parts: tuple[tuple[str, Any], ...] = ()
    type_name: str | None = None
    code: types.CodeType | None = None
    after: tuple[Any, ...] = ()
    """Parts whose text belongs in the title, in parentheses behind it."""
    is_call: bool = False
    """Whether the title is followed by parentheses even when nothing is in them: ``ValueError()``."""
    rebuild: Callable[[Callable[[Any], Any]], Any] | None = None
    """Makes the Python value, given a function that converts a part; None for what cannot be computed with."""
    cls: type | None = None
    """The class that the value has in ordinary Python, where Dynamo's placeholder for it has another."""


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
    """Whether ``value`` is a form, and not an object of the program, which is asked nothing."""
    return is_exactly(value, _FORMS)
