"""Shows builtin containers and their subclasses, read through the builtin type's own methods.

Overrides of ``__getitem__`` or ``__iter__`` in a subclass are not called. Runs on the held thread.
"""

from __future__ import annotations

import collections
import itertools
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import is_a, is_exactly
from dynamo_dap.debuggee.values.model import PREVIEW_OF_CONTAINER, Children, Family, Variable, View, family_for
from dynamo_dap.debuggee.values.objects import attributes_of, fields_text
from dynamo_dap.debuggee.values.paging import in_pages
from dynamo_dap.debuggee.values.type_facts import class_dictionary, mro_of, qualified_name_of

_LEAST_WIDTH = 8
"""With fewer characters left, no further item is shown."""


class IndexedItems(Children):
    """Items by number, paged by the client; stored attributes of a subclass by name."""

    def __init__(
        self,
        count: int,
        item: Callable[[int], object],
        expression: str | None,
        view: View,
        named: Callable[[], Sequence[Variable]] = tuple,
    ) -> None:
        """Read the i-th item by ``item(i)``."""
        self._count = count
        self._item = item
        self._expression = expression
        self._view = view
        self._named = named

    @property
    def indexed_count(self) -> int:
        """How many items there are."""
        return self._count

    def named(self) -> Sequence[Variable]:
        """Return the attributes stored beside the items."""
        return self._named()

    def indexed(self, start: int, count: int) -> Sequence[Variable]:
        """Return one page of items, without those that another thread removed meanwhile."""
        variables: list[Variable] = []
        for index in range(max(start, 0), min(start + count, self._count)):
            path = f"{self._expression}[{index}]" if self._expression else None
            try:
                variables.append(Variable(str(index), self._view.value(self._item(index), path), path))
            except IndexError:
                break
        return variables


def items_text(opening: str, items: Iterable[str], count: int, closing: str, width: int, counted: str = "items") -> str:
    """Return the items that fit between brackets, then the total count if some are left out."""
    parts: list[str] = []
    rest = f" ({count} {counted})"
    left = width - len(opening) - len(closing) - len(rest)
    for part in items:
        if parts and left < len(part) + 2:
            break
        parts.append(part)
        left -= len(part) + 2
        if left < _LEAST_WIDTH:
            break
    if len(parts) == count:
        return f"{opening}{', '.join(parts)}{closing}"
    return f"{opening}{', '.join([*parts, '…'])}{closing}{rest}"


def _previews(items: Iterator[object], width: int, depth: int, view: View) -> Iterator[str]:
    share = max(width // 2, _LEAST_WIDTH)
    return (view.text(item, share, depth - 1) for item in items)


class Sequences(Family):
    """Lists, tuples, deques: items by number."""

    width = PREVIEW_OF_CONTAINER

    base: Any
    opening, closing = "[", "]"

    def text(self, value: Any, width: int, depth: int, view: View) -> str:
        """Return the first items."""
        count = self.base.__len__(value)
        opening, closing = self.opening, self.closing
        if type(value) is not self.base:
            opening, closing = f"{qualified_name_of(type(value))}({opening}", f"{closing})"
        if depth <= 0 and count:
            return f"{opening}…{closing}"
        return items_text(opening, _previews(self.base.__iter__(value), width, depth, view), count, closing, width)

    def children(self, value: Any, expression: str | None, view: View) -> Children | None:
        """Return the items by index, and the attributes that a subclass stores."""
        count = self.base.__len__(value)
        plain = type(value) is self.base
        if plain and not count:
            return None
        return IndexedItems(
            count,
            lambda index: self.base.__getitem__(value, index),
            expression,
            view,
            tuple if plain else lambda: attributes_of(value, expression, view),
        )


@family_for(list)
class Lists(Sequences):
    """Lists."""

    base = list


@family_for(collections.deque)
class Deques(Sequences):
    """Double-ended queues."""

    base = collections.deque
    opening, closing = "deque([", "])"


@family_for(tuple)
class Tuples(Sequences):
    """Tuples, and named tuples by their fields."""

    base = tuple
    opening, closing = "(", ")"

    def text(self, value: tuple[Any, ...], width: int, depth: int, view: View) -> str:
        """Return the first items, a named tuple with its fields' names."""
        fields = named_tuple_fields(value)
        if fields is not None:
            return fields_text(qualified_name_of(type(value)), fields, width, depth, view)
        text = super().text(value, width, depth, view)
        one = tuple.__len__(value) == 1 and type(value) is tuple
        return f"{text[:-1]},)" if one and text.endswith(")") and not text.endswith("items)") else text

    def children(self, value: tuple[object, ...], expression: str | None, view: View) -> Children | None:
        """Return the items by index, or by field."""
        fields = named_tuple_fields(value)
        if fields is None:
            return super().children(value, expression, view)

        def page(start: int, stop: int) -> list[Variable]:
            return [_field(name, item, expression, view) for name, item in fields[start:stop]]

        return in_pages(len(fields), page)


def _field(name: str, item: object, expression: str | None, view: View) -> Variable:
    path = f"{expression}.{name}" if expression else None
    return Variable(name, view.value(item, path), path)


def named_tuple_fields(value: tuple[object, ...]) -> list[tuple[str, object]] | None:
    """Return names and items of a named tuple or struct sequence; None for other tuples."""
    cls = type(value)
    if cls is tuple:
        return None
    for base in mro_of(cls):
        names = class_dictionary(base).get("_fields")
        if type(names) is tuple and len(names) == tuple.__len__(value):
            return [(str(name), tuple.__getitem__(value, index)) for index, name in enumerate(names)]
    return None


@family_for(set, frozenset)
class Sets(Family):
    """Sets: items in their order of iteration, numbered."""

    width = PREVIEW_OF_CONTAINER

    def text(self, value: object, width: int, depth: int, view: View) -> str:
        """Return the first items."""
        base: Any = set if is_a(value, set) else frozenset
        count = base.__len__(value)
        plain = type(value) is set
        opening, closing = ("{", "}") if plain else (f"{qualified_name_of(type(value))}({{", "})")
        if not count:
            return f"{qualified_name_of(type(value))}()"
        if depth <= 0:
            return f"{opening}…{closing}"
        return items_text(opening, _previews(base.__iter__(value), width, depth, view), count, closing, width)

    def children(self, value: Any, expression: str | None, view: View) -> Children | None:
        """Return the items numbered; they have no expression of their own."""
        base = set if is_a(value, set) else frozenset
        count = base.__len__(value)
        if not count:
            return None

        def page(start: int, stop: int) -> list[Variable]:
            items = itertools.islice(base.__iter__(value), start, stop)
            return [Variable(str(start + offset), view.value(item)) for offset, item in enumerate(items)]

        return in_pages(count, page)


@family_for(dict, types.MappingProxyType, collections.OrderedDict)
class Dictionaries(Family):
    """Dictionaries: ``[key]`` children in their order."""

    width = PREVIEW_OF_CONTAINER

    def text(self, value: object, width: int, depth: int, view: View) -> str:
        """Return the first items."""
        count = _length(value)
        plain = type(value) is dict
        opening, closing = ("{", "}") if plain else (f"{qualified_name_of(type(value))}({{", "})")
        if not count:
            return f"{opening}{closing}"
        if depth <= 0:
            return f"{opening}…{closing}"
        share = max(width // 2, _LEAST_WIDTH)
        parts = (
            f"{view.text(key, share, depth - 1)}: {view.text(item, share, depth - 1)}" for key, item in _items(value)
        )
        return items_text(opening, parts, count, closing, width)

    def children(self, value: object, expression: str | None, view: View) -> Children | None:
        """Return the items by key, in pages, and the attributes that a subclass stores."""
        count = _length(value)
        if not count and type(value) is dict:
            return None

        def page(start: int, stop: int) -> list[Variable]:
            return [
                item_variable(key, item, expression, view) for key, item in itertools.islice(_items(value), start, stop)
            ]

        own = type(value) is not dict
        return in_pages(count, page, before=lambda: _beside(value, expression, view) if own else ())


def _beside(value: object, expression: str | None, view: View) -> Sequence[Variable]:
    attributes = attributes_of(value, expression, view) if is_a(value, dict) else []
    if is_a(value, collections.defaultdict):
        path = f"{expression}.default_factory" if expression else None
        factory = collections.defaultdict.__dict__["default_factory"].__get__(value)
        attributes.insert(0, Variable("default_factory", view.value(factory, path), path))
    return attributes


def _length(value: Any) -> int:
    return dict.__len__(value) if is_a(value, dict) else len(value)


def _items(value: Any) -> Iterator[tuple[object, object]]:
    if is_a(value, collections.OrderedDict):
        return iter(collections.OrderedDict.items(value))
    return iter(dict.items(value)) if is_a(value, dict) else iter(value.items())


def item_variable(key: object, item: object, expression: str | None, view: View) -> Variable:
    """Return the child for one item of a dictionary: ``['key']``."""
    path = f"{expression}[{key!r}]" if expression and is_exactly(key, _LITERALS) else None
    return Variable(f"[{view.text(key, 80, 2)}]", view.value(item, path), path)


_LITERALS: frozenset[type] = frozenset({str, int, bool, bytes, type(None)})
"""Types of keys whose ``repr`` is an expression for the key."""


@family_for(type({}.keys()), type({}.values()), type({}.items()))
class DictionaryViews(Family):
    """``keys()``, ``values()``, ``items()`` of a dictionary."""

    width = PREVIEW_OF_CONTAINER

    def text(self, value: Any, width: int, depth: int, view: View) -> str:
        """Return the first items."""
        name = qualified_name_of(type(value))
        return items_text(f"{name}([", _previews(iter(value), width, depth, view), len(value), "])", width)

    def children(self, value: Any, expression: str | None, view: View) -> Children | None:
        """Return the items numbered."""

        def page(start: int, stop: int) -> list[Variable]:
            items = itertools.islice(iter(value), start, stop)
            return [Variable(str(start + offset), view.value(item)) for offset, item in enumerate(items)]

        return in_pages(len(value), page) if len(value) else None
