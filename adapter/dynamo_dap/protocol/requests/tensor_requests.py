"""Defines the messages of the request ``TENSOR`` of ``contract``, which shows a tensor.

Any thread may use the structs.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

ELEMENTS, STATISTICS, PICTURE, MATCH = TENSOR_PARTS = ("elements", "statistics", "picture", "match")
"""Which part of a tensor is shown."""
HEAT_MAP, TILES, CHANNELS_FIRST, CHANNELS_LAST = TENSOR_PICTURES = ("map", "tiles", "chw", "hwc")
"""How a tensor is drawn: one heat map, one for each index of a dimension, an image."""


class TensorArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``TENSOR``. ``variablesReference`` identifies the tensor, else ``expression``."""

    show: Annotated[str, Meta(extra={"choices": TENSOR_PARTS})] = ELEMENTS
    variables_reference: int | None = None
    """The reference of the tensor's children."""
    expression: str | None = None
    frame_id: int | None = None
    """The frame in which to evaluate expressions."""
    minus: str | None = None
    """An expression for another tensor, to show the difference."""
    selection: list[int | None] | None = None
    """For each dimension an index, or null if it is shown. By default null for the last two, 0 before."""
    start_row: int = 0
    row_count: int = 100
    start_column: int = 0
    column_count: int = 100
    sort_column: int | None = None
    """The column whose values sort the rows of ``elements``."""
    is_descending: bool = False
    rows_with: str = ""
    """Which rows ``elements`` has: those with a match, written as in ``find``. Empty for all."""
    picture: Annotated[str, Meta(extra={"choices": TENSOR_PICTURES})] = HEAT_MAP
    width: int = 256
    """A picture's maximum width."""
    height: int = 256
    is_whole: bool = False
    """Whether statistics cover every element, which may take long."""
    find: str = "nan"
    """What a match is: ``nan``, ``inf``, a number, or a comparison such as ``> 0.5``."""
    after: int = -1
    """The position, among all elements, behind which the search begins. After the last match it finds the first."""


class TensorHistogram(Struct, rename="camel"):
    """Counts of elements in intervals of equal width between two numbers."""

    low: float
    high: float
    counts: list[int]


class TensorStatistics(Struct, rename="camel", omit_defaults=True):
    """Statistics of all elements, or of a sample."""

    count: int
    """How many elements were counted."""
    of: Annotated[str, Meta(extra={"choices": ("all", "sample", "beginning")})]
    nans: int
    positive_infs: int
    negative_infs: int
    zeros: int
    minimum: str | None = None
    """Of the finite elements, like ``maximum``, ``mean`` and ``deviation``."""
    maximum: str | None = None
    mean: str | None = None
    deviation: str | None = None
    histogram: TensorHistogram | None = None
    places: dict[str, list[int]] | None = None
    """The indices of ``minimum``, ``maximum``, and the first ``nan`` and ``inf``. None for a sample."""


class TensorMatch(Struct, rename="camel"):
    """The next element that was searched for."""

    index: list[int]
    position: int
    """Its position among all elements."""
    number: int
    """Its number among the matches, from 1."""
    count: int
    """How many elements match."""


class TensorPicture(Struct, rename="camel", omit_defaults=True):
    """A picture, tile after tile: one byte per point of a heat map, four (red, green, blue, alpha) of an image."""

    width: int
    height: int
    tiles: int
    data: str
    """In base64. In a heat map: 0 is ``low``, 252 is ``high``, 253 contains -inf, 254 inf, 255 NaN."""
    low: float
    high: float
    row_step: int
    """How many rows of the tensor a picture's row represents: a heat map shows their mean, an image the first."""
    column_step: int
    is_sampled: bool = False
    """Whether only a sample of the elements counted."""
    tile_count: int | None = None
    """The total number of tiles, if not all are here."""


class TensorBody(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``TENSOR``, with one of the parts."""

    text: str
    """``Tensor f32[3, 4] cpu``."""
    shape: list[int]
    """The shape of the shown part."""
    pictures: list[Annotated[str, Meta(extra={"choices": TENSOR_PICTURES})]]
    """How the tensor can be drawn, the likeliest way first."""
    note: str | None = None
    """A description of the shown elements, if they are not the tensor's own."""
    elements: list[list[str]] | None = None
    rows: list[int] | None = None
    """The indices of the rows of ``elements`` if they are sorted or filtered."""
    row_total: int | None = None
    """How many rows pass the filter."""
    statistics: TensorStatistics | None = None
    picture: TensorPicture | None = None
    match: TensorMatch | None = None
