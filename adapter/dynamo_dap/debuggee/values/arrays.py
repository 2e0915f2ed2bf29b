"""NumPy arrays, by metadata and pages of elements. NumPy is never imported from here. Runs on the held thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynamo_dap.debuggee.values.families import Family, View, family_for
from dynamo_dap.debuggee.values.model import Children, Value, Variable
from dynamo_dap.debuggee.values.tensors import lazy_variable
from dynamo_dap.debuggee.values.type_facts import qualified_name_of


@family_for("numpy.ndarray")
class Arrays(Family):
    """Arrays: ``ndarray float32[3, 4]``."""

    kind = "data"

    def text(self, value: Any, width: int, depth: int, view: View) -> str:
        """Return dtype and shape."""
        return f"{qualified_name_of(type(value))} {value.dtype}[{', '.join(map(str, value.shape))}]"

    def children(self, value: Any, expression: str | None, view: View) -> Children | None:
        """Return metadata, statistics and elements."""
        return ArrayChildren(value, expression, view)


class ArrayChildren(Children):
    """Metadata and lazy statistics by name, elements (rows) by index."""

    def __init__(self, array: Any, expression: str | None, view: View) -> None:
        """``expression`` gives the array again in a watch; ``view`` shows what is below it."""
        self._view = view
        self._array = array
        self._expression = expression

    @property
    def indexed_count(self) -> int:
        """How many rows the first dimension has."""
        return int(self._array.shape[0]) if self._array.ndim else 0

    def named(self) -> Sequence[Variable]:
        """Return shape, strides, dtype, and statistics not yet computed."""
        facts = [
            Variable(name, self._view.value(getattr(self._array, name)), self._path(f".{name}")) for name in _METADATA
        ]
        statistics = [lazy_variable(name, lambda name=name: self._statistic(name)) for name in ("min", "max", "mean")]  # type: ignore[misc]
        value = [] if self._array.ndim else [lazy_variable("value", lambda: Value(str(self._array.item())))]
        return [*facts, *value, *(statistics if self._array.dtype.kind in "biufc" and self._array.size else ())]

    def indexed(self, start: int, count: int) -> Sequence[Variable]:
        """Return one page of rows."""
        stop = min(start + count, self.indexed_count)
        return [
            Variable(
                str(index), self._view.value(self._array[index], self._path(f"[{index}]")), self._path(f"[{index}]")
            )
            for index in range(start, stop)
        ]

    def _path(self, suffix: str) -> str | None:
        return f"{self._expression}{suffix}" if self._expression else None

    def _statistic(self, name: str) -> Value:
        return Value(str(getattr(self._array, name)()))


_METADATA = ("shape", "strides", "dtype")
