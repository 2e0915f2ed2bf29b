"""Models a shown value, and makes it of an object: its text, and children that are made on demand.

Everything the Variables pane shows is a ``Value``. Engines make them; the agent numbers their children and sends them.
A ``Family`` says how objects of its types are shown. Families register for types, or for names of types whose module
may not be imported yet (torch, numpy). A ``View`` picks the family along the type's method resolution order.

All of it runs on the held thread. Values live no longer than the pause; families are stateless, and live as long as the
process.
"""

from __future__ import annotations

import enum
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from dynamo_dap.debuggee.bytecode.exact_types import has_base
from dynamo_dap.debuggee.torch_api.objects import Tensor
from dynamo_dap.debuggee.values.type_facts import full_name_of, mro_of, qualified_name_of


@dataclass(frozen=True, slots=True)
class ShownTensor:
    """A tensor whose data can be shown."""

    data: Tensor
    why_not_proven: str | None = None
    """Why the program's call may have other data; None if it has these."""


class EvaluationError(Exception):
    """An expression has no value to show; the message says why."""


class Interrupted(BaseException):
    """Raised inside work that was cancelled or took too long.

    A ``BaseException``, so that user code rarely catches it.
    """


def text_of_raised(error: BaseException) -> str:
    """Return an exception of the user's code as ``Type: text``, even if its own ``__str__`` raises."""
    if isinstance(error, KeyboardInterrupt):
        forget_interrupt()
    try:
        text = str(error)
    except Interrupted:
        raise
    except BaseException:  # noqa: BLE001  (the program's own __str__)
        text = ""
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def forget_interrupt() -> None:
    """Clear the interrupt that Python notes if a ``KeyboardInterrupt`` leaves an ``exec`` and is caught outside.

    Python keeps the note in C until the next ``exec``. With the note, the program would end by SIGINT after its last
    line.
    """
    exec("pass")


class WriteRefused(Exception):
    """A value cannot be set; the text says why, and nothing was changed."""


WHAT_CAN_BE_SET = "only variables of traced functions, of generated code, and of running ordinary Python can be set"


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a source file or a virtual source (1-based line and column), shown as a link."""

    path: str | VirtualSource
    line: int
    column: int = 1


_REQUIRES_GRAD = " requires_grad"
NOT_PROVEN = " (not proven)"
"""The end of the text of a value that the program's call may not have."""


def text_with_data(text: str, data: str) -> str:
    """Return a tensor's text with its data, which comes first: a narrow pane cuts the end off."""
    start = text.removesuffix(_REQUIRES_GRAD)
    return f"{start} {data}" if start == text else f"{start} {data},{_REQUIRES_GRAD}"


@dataclass(frozen=True, slots=True)
class Value:
    """One value as it is shown; ``text`` is bounded (see ``bounded_text``)."""

    text: str
    type_name: str | None = None
    children: Children | None = None
    kind: str | None = None
    """DAP ``VariablePresentationHint.kind``: ``property``, ``method``, ``class``, ``data``, ``virtual`` ..."""
    attributes: tuple[str, ...] = ()
    """DAP ``VariablePresentationHint.attributes``: ``readOnly``, ``constant``, ``rawString`` ..."""
    lazy: bool = False
    """Whether it is not computed yet: the text is a placeholder, and the only child is the real value."""
    location: Location | None = None
    """Where the value itself is defined: a function's code, a class."""
    memory_reference: str | None = None
    data_range: Callable[[], str | None] | None = None
    """Reads the least and the largest element of a tensor that is too large to show, if the user sees its row.

    Log messages, histories and comparisons use ``text`` alone, which reads no data of large tensors."""
    printed_text: Callable[[], str | None] | None = None
    """Returns the text that a user prints: it may wait for a device, or run the graph of a trace."""

    @property
    def printed(self) -> str:
        """The text that a user prints: ``Tensor f16[4] cuda:0 = [0.5, 1, 2, 3]``."""
        return (self.printed_text() if self.printed_text else None) or self.row

    @property
    def row(self) -> str:
        """The text of a row: ``Tensor f32[4, 15] cpu 0…1``."""
        found = None if self.data_range is None else self.data_range()
        return self.text if found is None else text_with_data(self.text, found)


@dataclass(frozen=True, slots=True)
class Variable:
    """A named value."""

    name: str
    value: Value
    evaluate_name: str | None = None
    """An expression that gives this value in a watch; None if there is none."""
    declaration: Location | None = None
    """The line that created it."""


class Watchable(Protocol):
    """A variable, or a part of an object, that a data breakpoint can watch."""

    @property
    def name(self) -> str:
        """The variable's name."""

    @property
    def function(self) -> str:
        """The function that it belongs to."""

    @property
    def is_path(self) -> bool:
        """Whether it is a part of an object."""

    @property
    def data_id(self) -> str:
        """DAP's ``dataId``."""


_EVERYTHING = 1_000_000


class Children(ABC):
    """The variables below a value or a scope, computed page by page when requested."""

    are_traced_locals: ClassVar[bool] = False
    """Whether they are locals of a traced function, which may have a history."""
    takes_long: ClassVar[bool] = False
    """Whether the user knows that computing them may take long: no time limit interrupts it."""

    def can_write(self, name: str) -> bool:
        """Return whether ``write`` can set the child ``name``. Clients offer to set no other child."""
        return False

    @property
    def is_of_tensor(self) -> bool:
        """Whether the value above them is a tensor, which ``tensor`` returns."""
        return False

    def tensor(self) -> ShownTensor:
        """Return the tensor above them, with its data.

        Raises:
            EvaluationError: it is not a tensor, or has no data; the text says why.
        """
        raise EvaluationError("this is not a tensor")

    @property
    def named_count(self) -> int:
        """The number of named children. Must be cheap."""
        return len(self.named())

    @property
    def indexed_count(self) -> int:
        """The number of indexed children. Must be cheap."""
        return 0

    @abstractmethod
    def named(self) -> Sequence[Variable]:
        """Return the named children."""

    def indexed(self, start: int, count: int) -> Sequence[Variable]:
        """Return indexed children ``start`` to ``start + count - 1``, fewer at the end."""
        return ()

    def page(self, only: str | None, start: int, count: int) -> Sequence[Variable]:
        """Return the page of children that DAP's ``filter``, ``start`` and ``count`` (0: all) ask for."""
        count = count or _EVERYTHING
        if only == "indexed":
            return self.indexed(start, count)
        if only == "named":
            return self.named()[start : start + count]
        named = self.named()
        page = list(named[start : start + count])
        if len(page) < count and self.indexed_count:
            page += self.indexed(max(0, start - len(named)), count - len(page))
        return page

    def watched(self, name: str) -> Watchable | None:
        """Return what a data breakpoint on the child ``name`` watches; None if the child cannot have one."""
        return None

    def write(self, name: str, expression: str) -> Value:
        """Set the child ``name`` to the value of ``expression``, and return the new value.

        Raises:
            WriteRefused: this child cannot be set; nothing was changed.
            EvaluationError: the expression has no value; nothing was changed.
        """
        raise WriteRefused(f"'{name}' is read-only: {WHAT_CAN_BE_SET}")


@dataclass(frozen=True)
class Fixed(Children):
    """Children that are known already."""

    variables: tuple[Variable, ...]

    def named(self) -> Sequence[Variable]:
        """Return the variables."""
        return self.variables


class Deferred(Children):
    """Named children that are computed when first asked for."""

    def __init__(self, make: Callable[[], Sequence[Variable]], count: int | None = None) -> None:
        """Take the number of children as ``count``, if it is known without computing them."""
        self._make = make
        self._count = count
        self._made: Sequence[Variable] | None = None

    @property
    def named_count(self) -> int:
        """The count that was given, else the number of computed children."""
        return self._count if self._count is not None else len(self.named())

    def named(self) -> Sequence[Variable]:
        """Return the children, computing them the first time."""
        if self._made is None:
            self._made = self._make()
        return self._made


class Followed(Children):
    """Children, followed by named ones that are computed on demand."""

    def __init__(
        self,
        children: Children | None,
        others: Callable[[], Sequence[Variable]],
        tensor: Callable[[], ShownTensor] | None = None,
        first: Callable[[], Sequence[Variable]] = tuple,
    ) -> None:
        """Show ``first``, ``children`` and ``others``, in this order. ``tensor`` is None if ``children`` returns it."""
        self._first = Deferred(first)
        self._children = children
        self._others = Deferred(others)
        self._tensor = tensor

    @property
    def is_of_tensor(self) -> bool:
        """Whether they belong to a tensor."""
        return self._tensor is not None or (self._children is not None and self._children.is_of_tensor)

    def tensor(self) -> ShownTensor:
        """Return the tensor."""
        if self._tensor is not None:
            return self._tensor()
        return super().tensor() if self._children is None else self._children.tensor()

    @property
    def indexed_count(self) -> int:
        """How many indexed children there are."""
        return self._children.indexed_count if self._children else 0

    def named(self) -> Sequence[Variable]:
        """Return the first children, the named ones, then the others."""
        return [*self._first.named(), *(self._children.named() if self._children else ()), *self._others.named()]

    def indexed(self, start: int, count: int) -> Sequence[Variable]:
        """Return one page of indexed children."""
        return self._children.indexed(start, count) if self._children else ()


@dataclass(frozen=True, slots=True)
class ScopeOfFrame:
    """A named group of variables of a frame, as DAP ``Scope``."""

    name: str
    children: Children
    presentation_hint: str | None = None
    expensive: bool = False
    """Whether the IDE waits until the user opens it."""
    source: VirtualSource | None = None
    """The scope as a document: the whole graph, all guards."""


@dataclass(frozen=True, slots=True)
class VirtualSource:
    """A read-only document that exists only in the debugger: a graph, a listing of generated code."""

    name: str
    text: Callable[[], str]
    mime_type: str = "text/x-python"
    key: object = field(default=None, compare=True)
    """Sources with the same key (not None) are one document with one ``sourceReference``.

    The ``text`` of such a source may be called on any thread at any time. A document without a key lives as long as its
    pause.
    """


MAXIMUM_TEXT = 400


def bounded_text(text: str, maximum: int = MAXIMUM_TEXT) -> str:
    """Return ``text`` cut to ``maximum`` characters, with an ellipsis where it was cut."""
    return text if len(text) <= maximum else text[: maximum - 1] + "…"


# -- how objects are shown ---------------------------------------------------------------------------------------------

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
        except BaseException as problem:  # noqa: BLE001 - an object may be broken in any way
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
