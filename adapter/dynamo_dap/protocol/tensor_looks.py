"""The messages of the request ``TENSOR`` of ``contract``, which shows a tensor.

Structs; any thread.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

ELEMENTS, STATISTICS, PICTURE = TENSOR_PARTS = ("elements", "statistics", "picture")
"""What of a tensor is looked at."""
HEAT_MAP, TILES, CHANNELS_FIRST, CHANNELS_LAST = TENSOR_PICTURES = ("map", "tiles", "chw", "hwc")
"""As what a tensor is drawn: one heat map, one for each index of a dimension, an image."""


class TensorArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of ``TENSOR``. The tensor is named by ``variablesReference``, else by ``expression``."""

    show: Annotated[str, Meta(extra={"choices": TENSOR_PARTS})] = ELEMENTS
    variables_reference: int | None = None
    """Where the children of the tensor are."""
    expression: str | None = None
    frame_id: int | None = None
    """Where expressions are evaluated."""
    minus: str | None = None
    """An expression for another tensor: what is shown is the difference."""
    selection: list[int | None] | None = None
    """For each dimension an index, or null where it is shown; missing: null for the last two, 0 before."""
    start_row: int = 0
    row_count: int = 100
    start_column: int = 0
    column_count: int = 100
    picture: Annotated[str, Meta(extra={"choices": TENSOR_PICTURES})] = HEAT_MAP
    width: int = 256
    """Of a picture, at most."""
    height: int = 256
    is_whole: bool = False
    """Whether statistics cover every element, however many there are; this may take long."""


class TensorHistogram(Struct, rename="camel"):
    """How many elements lie in each of the intervals of equal width between two numbers."""

    low: float
    high: float
    counts: list[int]


class TensorStatistics(Struct, rename="camel", omit_defaults=True):
    """Statistics of all elements, or of a sample."""

    count: int
    """Of the elements that were looked at."""
    of: Annotated[str, Meta(extra={"choices": ("all", "sample", "beginning")})]
    nans: int
    positive_infs: int
    negative_infs: int
    zeros: int
    minimum: str | None = None
    """Of those that are finite, as are the others below."""
    maximum: str | None = None
    mean: str | None = None
    deviation: str | None = None
    histogram: TensorHistogram | None = None
    places: dict[str, list[int]] | None = None
    """The indices of ``minimum``, ``maximum``, and of the first ``nan`` and ``inf``. None for a sample."""


class TensorPicture(Struct, rename="camel", omit_defaults=True):
    """A picture: one byte a point of a heat map, four (red, green, blue, alpha) of an image; tile after tile."""

    width: int
    height: int
    tiles: int
    data: str
    """In base64. A byte of a heat map: 0 is ``low``, 252 is ``high``, 253 holds -inf, 254 inf, 255 NaN."""
    low: float
    high: float
    row_step: int
    """How many rows of the tensor one of the picture stands for: their mean, or in an image the first."""
    column_step: int
    is_sampled: bool = False
    """Whether not every element counted."""
    tile_count: int | None = None
    """How many tiles there would be, if not all are here."""


class TensorBody(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``TENSOR``: one of the three parts."""

    text: str
    """``Tensor f32[3, 4] cpu``."""
    shape: list[int]
    """Of what is shown."""
    pictures: list[Annotated[str, Meta(extra={"choices": TENSOR_PICTURES})]]
    """As what the tensor can be drawn, the likeliest first."""
    note: str | None = None
    """What is shown in place of the tensor's own elements, if it is not these."""
    elements: list[list[str]] | None = None
    statistics: TensorStatistics | None = None
    picture: TensorPicture | None = None
