"""Returns a page of a tensor's elements: all rows, rows sorted by a column, or rows that match a filter.

Sorting reads one column, filtering all elements of the shown part, piece by piece. Runs on the held thread; nothing
outlives a request.
"""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dynamo_dap.debuggee.torch_api.objects import Tensor
from dynamo_dap.debuggee.values.model import EvaluationError
from dynamo_dap.debuggee.values.tensor_search import condition
from dynamo_dap.debuggee.values.tensors import number_text
from dynamo_dap.protocol.requests.tensor_requests import TensorArguments

_MOST_ELEMENTS = 10_000
"""The most elements of one page."""
_MOST_ROWS = 2**22
"""Rows that are sorted or filtered at most: a few tenths of a second."""
_MOST_AT_ONCE = 2**20
"""Elements per computation."""
_MOST_SECONDS = 2.0

Part = Callable[[Tensor], Tensor]


class TensorReader(Protocol):
    """Reads the shown tensor."""

    shape: list[int]
    dtype: str

    def part(self, take: Part) -> Tensor:
        """Apply ``take``; return the result on the CPU."""

    def numbers(self, take: Part) -> Tensor:
        """Apply ``take``; return the result as float64 on the CPU."""


def selected(
    shape: Sequence[int], given: Sequence[int | None] | None, shown: int
) -> tuple[tuple[object, ...], list[int]]:
    """Return an index that keeps at most ``shown`` dimensions, and their sizes."""
    selection = list(given) if given is not None else _default_selection(len(shape), shown)
    if len(selection) != len(shape):
        raise EvaluationError(f"the selection has {len(selection)} parts, and the tensor {len(shape)} dimensions")
    left = [size for size, index in zip(shape, selection, strict=True) if index is None]
    if len(left) > shown:
        raise EvaluationError(f"the selection leaves {len(left)} dimensions, and only {shown} can be shown")
    for number, (size, index) in enumerate(zip(shape, selection, strict=True)):
        # An empty dimension has no index 0, so there is nothing to show.
        if index is not None and not -size <= index < max(size, 1):
            raise EvaluationError(f"dimension {number} has {size} elements: index {index} is out of range")
    return tuple(slice(None) if index is None else index for index in selection), left


def _default_selection(dimensions: int, shown: int) -> list[int | None]:
    return [None if number >= dimensions - shown else 0 for number in range(dimensions)]


def elements(reader: TensorReader, arguments: TensorArguments) -> tuple[list[list[str]], list[int] | None, int | None]:
    """Return the texts of a page. If rows are sorted or filtered, also return their indices, and how many there are."""
    index, sizes = selected(reader.shape, arguments.selection, 2)
    if not math.prod(reader.shape):
        return [], None, None
    width = sizes[1] if len(sizes) == 2 else 1
    order = _order(reader, index, sizes, arguments)
    total = (sizes[0] if sizes else 1) if order is None else int(order.numel())
    start_row, start_column = max(0, arguments.start_row), max(0, arguments.start_column)
    stop_column = min(start_column + max(0, arguments.column_count), width, start_column + _MOST_ELEMENTS)
    most_rows = max(1, _MOST_ELEMENTS // max(1, stop_column - start_column))
    stop_row = min(start_row + min(max(0, arguments.row_count), most_rows), total)
    if stop_row <= start_row or stop_column <= start_column:
        return [], None if order is None else [], None if order is None else total
    wanted = slice(start_row, stop_row)
    rows = None if order is None else order[wanted].tolist()
    page = (wanted, slice(start_column, stop_column))[: len(sizes)]

    def take(tensor: Tensor) -> Any:
        part = tensor[index]
        if rows is None:
            return part[page]
        # Indexing by a list of rows lacks some dtypes.
        columns = (slice(None), *page[1:])
        return sys.modules["torch"].cat([part[row : row + 1] for row in rows])[columns]

    part = reader.part(take)
    shaped = part.reshape(1, 1) if not sizes else part.unsqueeze(1) if len(sizes) == 1 else part
    texts = [[number_text(number, reader.dtype) for number in row] for row in shaped.tolist()]
    return texts, rows, None if order is None else total


def _order(reader: TensorReader, index: tuple[object, ...], sizes: list[int], arguments: TensorArguments) -> Any:
    """Return the indices of the rows to show, in this order; None for all rows, unsorted."""
    column, text = arguments.sort_column, arguments.rows_with
    if not sizes or (column is None and not text):
        return None
    if sizes[0] > _MOST_ROWS:
        raise EvaluationError(f"up to {_MOST_ROWS:,} rows can be sorted or filtered, and this part has {sizes[0]:,}")
    torch = sys.modules["torch"]
    rows = _matching(reader, index, sizes, text) if text else torch.arange(sizes[0], device="cpu")
    if column is None:
        return rows
    if not 0 <= column < (sizes[1] if len(sizes) == 2 else 1):
        raise EvaluationError(f"this part has no column {column}")
    place = (slice(None), column)[: len(sizes)]
    values = reader.numbers(lambda tensor: tensor[index][place])[rows]
    # NaN sorts as the largest number.
    return rows[values.argsort(descending=arguments.is_descending, stable=True)]


def _matching(reader: TensorReader, index: tuple[object, ...], sizes: list[int], text: str) -> Any:
    """Return the indices of the rows that have an element for which the condition ``text`` holds."""
    matches = condition(text, reader.dtype)
    torch = sys.modules["torch"]
    deadline = time.monotonic() + _MOST_SECONDS
    step = max(1, _MOST_AT_ONCE // math.prod(sizes[1:]))
    found = []
    for start in range(0, sizes[0], step):
        numbers = reader.numbers(functools.partial(_some_rows, index, start, start + step))
        found.append(matches(numbers).reshape(numbers.shape[0], -1).any(1))
        if time.monotonic() > deadline:
            raise EvaluationError(f"filtering takes longer than {_MOST_SECONDS:g} s: show a part of the tensor")
    return torch.cat(found).nonzero().flatten()


def _some_rows(index: tuple[object, ...], start: int, stop: int, tensor: Tensor) -> Tensor:
    return tensor[index][start:stop]
