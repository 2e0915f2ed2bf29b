"""Models a shown value: its text, and children that are made on demand.

Everything the Variables pane shows is a ``Value``. Engines make them; the agent numbers their children and sends them.
All of it runs on the held thread, and lives no longer than the pause.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeAlias

from dynamo_dap.debuggee.torch_api.objects import Tensor

ShownTensor: TypeAlias = Tensor
"""A tensor whose data can be shown."""


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

    def tensor(self) -> Tensor:
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
        tensor: Callable[[], Tensor] | None = None,
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

    def tensor(self) -> Tensor:
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
