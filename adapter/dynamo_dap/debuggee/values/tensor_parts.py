"""Returns the part of a tensor that a user views: a page of elements, statistics, the next match, or a picture.

Even of a large tensor, only the shown elements are read and copied: a page, the elements behind a picture's points, or
a sample. No random number is drawn from the program's generators, and no gradient is recorded. A device's data is
copied to the CPU part by part, because the user asked for it. Runs on the held thread; nothing outlives a request.
"""

from __future__ import annotations

import base64
import ctypes
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_fake, is_tensor, unwrapped
from dynamo_dap.debuggee.torch_api.isolation import data_reading, metadata_reading
from dynamo_dap.debuggee.torch_api.objects import Tensor
from dynamo_dap.debuggee.values.model import EvaluationError
from dynamo_dap.debuggee.values.tensor_elements import elements, selected
from dynamo_dap.debuggee.values.tensor_search import search
from dynamo_dap.debuggee.values.tensors import number_text, tensor_text
from dynamo_dap.debuggee.values.type_facts import name_of
from dynamo_dap.protocol.requests.tensor_requests import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    ELEMENTS,
    HEAT_MAP,
    MATCH,
    STATISTICS,
    TENSOR_PICTURES,
    TILES,
    TensorArguments,
    TensorBody,
    TensorHistogram,
    TensorMatch,
    TensorPicture,
    TensorStatistics,
)

_MOST_AT_ONCE = 2**20
"""Elements per computation."""
_SAMPLE = 2**18
"""Size of the sample that represents a larger tensor in statistics."""
_MOST_FOR_STATISTICS = 2**22
"""Up to this size, statistics cover all elements without a request: a few hundredths of a second."""
_MOST_DENSE = 2**24
"""Up to this size, a sparse tensor is made dense."""
_MOST_SECONDS = 2.0
"""Time limit of each of the two passes over all elements. Both together take less than an evaluation may."""
_BINS = 64
_MOST_POINTS = 1024
"""The most points of a picture, in width and in height."""
_MOST_TILES = 64
_HIGHEST, _NEGATIVE_INF, _POSITIVE_INF, _NAN = 252, 253, 254, 255
"""Bytes of a heat map."""
_SMALLEST_IMAGE = 8
_LONGEST_SIDE = 8
_NAN_COLOUR = (255, 0, 255, 255)

Part = Callable[[Tensor], Tensor]


def part_of_tensor(tensor: Tensor, arguments: TensorArguments, other: Tensor | None = None) -> TensorBody:
    """Return the requested part of ``tensor``, or of its difference from ``other``.

    Raises:
        EvaluationError: it cannot be shown; the text says why.
    """
    try:
        with data_reading(transforms=True):
            reader = _TensorReader(tensor, other)
            body = TensorBody(reader.text, reader.shape, _pictures_of(reader.shape), reader.note)
            if arguments.show == ELEMENTS:
                body.elements, body.rows, body.row_total = elements(reader, arguments)
            elif arguments.show == STATISTICS:
                body.statistics = _statistics(reader, arguments.is_whole)
            elif arguments.show == MATCH:
                body.match = _match(reader, arguments)
            else:
                body.picture = _picture(reader, arguments)
            return body
    except (RuntimeError, TypeError, ValueError, NotImplementedError, FeatureMissing) as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise EvaluationError(f"{_name(tensor)} cannot be shown: {reason}") from None


def _name(tensor: Tensor) -> str:
    try:
        return tensor_text(tensor)
    except Exception:  # noqa: BLE001  (whatever its class does)
        return f"a {type(tensor).__name__}"


class _TensorReader:
    """Reads the shown tensor, or the difference of two."""

    def __init__(self, tensor: Tensor, other: Tensor | None) -> None:
        self._tensor, self.note = _dense(tensor)
        _check_class(self._tensor)
        self.text = tensor_text(tensor)
        self._other = None
        # The dtype in which its numbers are written.
        self.dtype = "torch.float32" if self._tensor.is_quantized else str(self._tensor.dtype)
        self.shape = [int(size) for size in self._tensor.shape]
        if other is not None:
            second, _ = _dense(other)
            _check_class(second)
            if [int(size) for size in second.shape] != self.shape:
                raise EvaluationError(f"{tensor_text(other)} differs in shape from {self.text}")
            self.text = f"{self.text} - {tensor_text(other)}"
            self._other, self.dtype = second, _dtype_of_difference(self._tensor, second)

    @property
    def count(self) -> int:
        """How many elements there are."""
        return math.prod(self.shape)

    def part(self, take: Part) -> Tensor:
        """Apply ``take`` to the tensor; return the result on the CPU, with the tensor's own numbers."""
        part = _on_the_cpu(take(self._tensor))
        if self._other is None:
            return part
        first, second = _wide(part), _wide(_on_the_cpu(take(self._other)))
        # The difference of two equal infinities would be NaN.
        return (first - second).masked_fill(first == second, 0)

    def numbers(self, take: Part) -> Tensor:
        """Apply ``take``; return the result as float64, complex numbers as magnitudes."""
        part = self.part(take)
        return (part.abs() if part.is_complex() else part).to(sys.modules["torch"].float64)


def _dtype_of_difference(first: Tensor, second: Tensor) -> str:
    return "torch.complex128" if first.is_complex() or second.is_complex() else "torch.float64"


def _wide(part: Tensor) -> Tensor:
    torch = sys.modules["torch"]
    return part.to(torch.complex128 if part.is_complex() else torch.float64)


def _on_the_cpu(part: Tensor) -> Tensor:
    return (part.dequantize() if part.is_quantized else part).cpu()


def _check_class(data: Tensor) -> None:
    """Refuse tensors that wrap other tensors: results of their operations have no memory of their own."""
    part = data[(slice(0, 0),) * min(data.dim(), 1)]
    if type(part) is sys.modules["torch"].Tensor:
        return
    flatten = getattr(data, "__tensor_flatten__", None)
    names = flatten()[0] if flatten is not None else []
    parts = f": show its parts, {' or '.join(f'.{name}' for name in names)}" if names else ""
    raise EvaluationError(f"a {type(part).__name__} wraps other tensors{parts}")


def _dense(tensor: Tensor) -> tuple[Tensor, str | None]:
    """Return a strided tensor without autograd, and a remark on how it differs from the tensor itself."""
    torch = sys.modules["torch"]
    if not is_tensor(tensor):
        raise EvaluationError(f"this is not a tensor, but of the type {name_of(type(tensor))}")
    inner = unwrapped(tensor)
    note = None if inner is tensor else "the tensor inside the wrappers of torch.func and functionalization"
    _check_data(inner, tensor)
    data = inner.detach()
    if data.is_nested:
        return data.values(), f"the {_nested_count(data)} parts of a nested tensor, one after another"
    if data.layout != torch.strided:
        if data.numel() <= _MOST_DENSE:
            return data.to_dense(), f"made dense: {str(data.layout).removeprefix('torch.')}"
        values = data.coalesce().values() if data.layout == torch.sparse_coo else data.values()
        return values, f"only the {values.size(0)} stored values: the tensor has {data.numel()} elements"
    if data.is_quantized:
        if data.qscheme() in (torch.per_channel_affine, torch.per_channel_affine_float_qparams):
            if data.numel() > _MOST_DENSE:
                raise EvaluationError("a tensor quantized by channel is shown up to 16 million elements")
            data = data.dequantize()
        note = "the numbers that the quantized elements represent"
    elif data.is_complex():
        note = note or "complex: statistics and pictures are of the magnitudes"
    return data, note


def _check_data(tensor: Tensor, given: Tensor) -> None:
    if is_fake(tensor):
        with metadata_reading():
            device = str(tensor.device)
        why = "it is on the device meta" if device == "meta" else "it is a FakeTensor of a trace"
        raise EvaluationError(f"{_name(given)} has no data: {why}")


def _nested_count(data: Tensor) -> int:
    return int(data.size(0))


# -- statistics --------------------------------------------------------------------------------------------------------


def _statistics(reader: _TensorReader, is_whole: bool) -> TensorStatistics:
    if reader.count <= _MOST_FOR_STATISTICS or is_whole:
        deadline = time.monotonic() + _MOST_SECONDS
        total = _Total()
        for take in _chunks(reader.shape):
            total.add(reader.numbers(take))
            if time.monotonic() > deadline and total.count < reader.count:
                break
        of = "all" if total.count == reader.count else "beginning"
        counted = total.count
        histogram = _histogram_in_chunks(reader, total, counted, deadline + _MOST_SECONDS)
        statistics = total.reported(reader.dtype, of, histogram)
        statistics.places = total.places(reader.shape) or None
        return statistics
    sample = reader.numbers(_at_random(reader.shape))
    total = _Total()
    total.add(sample)
    histogram = total.empty_histogram(reader.dtype)
    if histogram is not None:
        _count(histogram, sample)
    return total.reported(reader.dtype, "sample", histogram)


def _histogram_in_chunks(reader: _TensorReader, total: _Total, counted: int, deadline: float) -> TensorHistogram | None:
    """Count in intervals the elements that the statistics cover; fewer if that takes too long."""
    histogram, done = total.empty_histogram(reader.dtype), 0
    if histogram is None:
        return None
    for take in _chunks(reader.shape):
        if done >= counted or time.monotonic() > deadline:
            break
        numbers = reader.numbers(take)
        _count(histogram, numbers)
        done += numbers.numel()
    return histogram


def _chunks(shape: list[int], index: tuple[object, ...] = ()) -> Iterator[Part]:
    """Yield functions that each take one small piece of the tensor. At most one piece is copied at a time."""
    left = shape[len(index) :]
    if math.prod(left) <= _MOST_AT_ONCE:
        yield lambda tensor: tensor[index]
        return
    below = math.prod(left[1:])
    if below > _MOST_AT_ONCE:
        for number in range(left[0]):
            yield from _chunks(shape, (*index, number))
        return
    rows = _MOST_AT_ONCE // max(1, below)
    for start in range(0, left[0], rows):
        place = (*index, slice(start, start + rows))
        yield lambda tensor, place=place: tensor[place]  # type: ignore[misc]  # a lambda in a loop


def _match(reader: _TensorReader, arguments: TensorArguments) -> TensorMatch:
    chunks = map(reader.numbers, _chunks(reader.shape))
    count, position, number = search(chunks, arguments.find, arguments.after, reader.dtype)
    return TensorMatch(_index(position, reader.shape), position, number, count)


def _at_random(shape: list[int]) -> Part:
    """Return a function that takes a sample, always the same, by its own random generator."""
    torch = sys.modules["torch"]
    generator = torch.Generator(device="cpu")
    generator.manual_seed(0)
    places = [torch.randint(0, size, (_SAMPLE,), generator=generator, device="cpu") for size in shape]
    return lambda tensor: tensor[tuple(each.to(tensor.device) for each in places)]


def _index(number: int, shape: Sequence[int]) -> list[int]:
    index: list[int] = []
    for size in reversed(shape):
        number, place = divmod(number, size)
        index.insert(0, place)
    return index


class _Total:
    """The totals over chunks; means and squares are combined without loss."""

    def __init__(self) -> None:
        self.count = self.nans = self.positive_infs = self.negative_infs = self.zeros = self.finite = 0
        self.low, self.high = math.inf, -math.inf
        self._mean = self._squares = 0.0
        self._places: dict[str, int] = {}

    def add(self, numbers: Tensor) -> None:
        """Count a chunk (float64 on the CPU)."""
        start = self.count
        self.count += numbers.numel()
        finite = numbers[numbers.isfinite()] if not bool(numbers.isfinite().all()) else numbers.reshape(-1)
        if finite.numel() < numbers.numel():
            self.nans += int(numbers.isnan().sum())
            self.positive_infs += int((numbers == math.inf).sum())
            self.negative_infs += int((numbers == -math.inf).sum())
            self._note("nan", start, numbers.isnan())
            self._note("inf", start, numbers.isinf())
        count = finite.numel()
        if not count:
            return
        self.zeros += int((finite == 0).sum())
        low, high = float(finite.min()), float(finite.max())
        if low < self.low:
            self._places.pop("minimum", None)
            self._note("minimum", start, numbers == low)
        if high > self.high:
            self._places.pop("maximum", None)
            self._note("maximum", start, numbers == high)
        self.low, self.high = min(self.low, low), max(self.high, high)
        mean = float(finite.mean())
        squares = float((finite - mean).square().sum())
        total, apart = self.finite + count, mean - self._mean
        self._squares += squares + apart * apart * self.finite * count / total
        self._mean += apart * count / total
        self.finite = total

    def _note(self, name: str, start: int, found: Tensor) -> None:
        """Note where ``found`` is first true; chunks arrive in the order of the elements."""
        if name not in self._places and bool(found.any()):
            self._places[name] = start + int(found.reshape(-1).to(sys.modules["torch"].uint8).argmax())

    def places(self, shape: Sequence[int]) -> dict[str, list[int]]:
        """Return the indices of the extremes, and of the first NaN and Inf."""
        return {name: _index(number, shape) for name, number in self._places.items()}

    def empty_histogram(self, dtype: str) -> TensorHistogram | None:
        """Return the intervals; in a small range of whole numbers, one for each number."""
        if not self.finite or not math.isfinite(self.high - self.low):
            return None
        if _is_whole_number(dtype) and self.high - self.low < _BINS and self._is_exact:
            return TensorHistogram(self.low - 0.5, self.high + 0.5, [0] * (int(self.high - self.low) + 1))
        if self.high == self.low:
            apart = max(abs(self.low) * 1e-6, 0.5)
            return TensorHistogram(self.low - apart, self.high + apart, [0])
        return TensorHistogram(self.low, self.high, [0] * _BINS)

    def reported(self, dtype: str, of: str, histogram: TensorHistogram | None) -> TensorStatistics:
        """Return the totals as reported to clients."""
        statistics = TensorStatistics(
            self.count, of, self.nans, self.positive_infs, self.negative_infs, self.zeros, histogram=histogram
        )
        if self.finite:
            statistics.minimum, statistics.maximum = self._text(self.low, dtype), self._text(self.high, dtype)
            statistics.mean = f"{self._mean:.6g}"
            statistics.deviation = f"{math.sqrt(self._squares / (self.finite - 1)):.6g}" if self.finite > 1 else None
        return statistics

    @property
    def _is_exact(self) -> bool:
        """Whether float64 could represent all whole numbers exactly."""
        return max(abs(self.low), abs(self.high)) <= _LARGEST_EXACT

    def _text(self, number: float, dtype: str) -> str:
        if not _is_whole_number(dtype):
            return number_text(number, "torch.float32" if dtype in _OF_NARROW else dtype)
        return f"{'' if self._is_exact else '≈'}{int(number)}"


_LARGEST_EXACT = 2**53
_OF_NARROW = ("torch.complex64", "torch.complex32")


def _is_whole_number(dtype: str) -> bool:
    return dtype == "torch.bool" or "int" in dtype


def _count(histogram: TensorHistogram, numbers: Tensor) -> None:
    torch = sys.modules["torch"]
    finite = numbers[numbers.isfinite()]
    if finite.numel():
        found = torch.histc(finite, len(histogram.counts), histogram.low, histogram.high).tolist()
        histogram.counts = [before + int(more) for before, more in zip(histogram.counts, found, strict=True)]


# -- pictures ----------------------------------------------------------------------------------------------------------


def _pictures_of(shape: list[int]) -> list[str]:
    """Return the ways to draw a tensor, the likeliest first."""
    kinds: list[str] = []
    if len(shape) >= 3:
        *_, first, middle, last = shape
        images = [(CHANNELS_FIRST, first)] * _is_image(middle, last) + [(CHANNELS_LAST, last)] * _is_image(
            first, middle
        )
        kinds = [kind for kind, channels in images if channels in (1, 3)]
        kinds += [TILES, HEAT_MAP] if middle == last and first > 1 else [HEAT_MAP, TILES]
        # A dimension of size 4 is as often a number of heads or a batch as red, green, blue and alpha.
        kinds += [kind for kind, channels in images if channels == 4]
    else:
        kinds = [HEAT_MAP]
    return kinds


def _is_image(height: int, width: int) -> bool:
    """Return whether the sizes look like a picture, not like a sequence of long vectors."""
    return min(height, width) >= _SMALLEST_IMAGE and max(height, width) <= _LONGEST_SIDE * min(height, width)


def _picture(reader: _TensorReader, arguments: TensorArguments) -> TensorPicture:
    if arguments.picture not in TENSOR_PICTURES:
        raise EvaluationError(f"unknown picture {arguments.picture!r}; known: {', '.join(TENSOR_PICTURES)}")
    if not reader.count:
        raise EvaluationError("the tensor has no elements to draw")
    shown = 2 if arguments.picture == HEAT_MAP else 3
    index, sizes = selected(reader.shape, arguments.selection, shown)
    if shown == 3 and len(sizes) != 3:
        raise EvaluationError("this picture needs three dimensions")
    width = max(1, min(arguments.width, _MOST_POINTS))
    height = max(1, min(arguments.height, _MOST_POINTS))
    if arguments.picture in (CHANNELS_FIRST, CHANNELS_LAST):
        return _image(reader, index, sizes, arguments.picture, width, height)
    count = min(sizes[0], _MOST_TILES) if arguments.picture == TILES else 1
    rows = sizes[-2] if len(sizes) >= 2 else 1
    columns = sizes[-1] if sizes else 1
    tiles = [
        _Map.of(reader, _tile(index, number if arguments.picture == TILES else None), rows, columns, width, height)
        for number in range(count)
    ]
    low = min((tile.low for tile in tiles if tile.low is not None), default=0.0)
    high = max((tile.high for tile in tiles if tile.high is not None), default=0.0)
    return TensorPicture(
        width=tiles[0].width,
        height=tiles[0].height,
        tiles=count,
        data=base64.b64encode(b"".join(tile.coded(low, high) for tile in tiles)).decode(),
        low=low,
        high=high,
        row_step=tiles[0].row_step,
        column_step=tiles[0].column_step,
        is_sampled=tiles[0].is_sampled,
        tile_count=sizes[0] if arguments.picture == TILES and sizes[0] > count else None,
    )


def _tile(index: tuple[object, ...], number: int | None) -> Part:
    """Return a function that takes the rows and columns of one tile."""

    def take(tensor: Tensor) -> Tensor:
        shown = tensor[index] if number is None else tensor[index][number]
        return shown.reshape(1, 1) if shown.dim() == 0 else shown.unsqueeze(0) if shown.dim() == 1 else shown

    return take


class _Map:
    """A heat map. A point is the mean of the finite elements of its block, marked if an element is not finite."""

    def __init__(self, numbers: Tensor, row_block: int, column_block: int) -> None:
        torch = sys.modules["torch"]
        rows, columns = numbers.shape
        self.height, self.width = -(-rows // row_block), -(-columns // column_block)
        blocks = torch.nn.functional.pad(
            numbers, (0, self.width * column_block - columns, 0, self.height * row_block - rows), value=0.0
        ).reshape(self.height, row_block, self.width, column_block)
        inside = torch.zeros(self.height * row_block, self.width * column_block, dtype=torch.bool)
        inside[:rows, :columns] = True
        inside = inside.reshape(blocks.shape)
        finite = blocks.isfinite() & inside
        counts = finite.sum((1, 3))
        self._means = blocks.masked_fill(~finite, 0.0).sum((1, 3)) / counts.clamp(min=1)
        self._marks = [
            ((blocks == -math.inf).any(3).any(1), _NEGATIVE_INF),
            ((blocks == math.inf).any(3).any(1), _POSITIVE_INF),
            (blocks.isnan().any(3).any(1), _NAN),
        ]
        shown = self._means[counts > 0]
        self.low: float | None = float(shown.min()) if shown.numel() else None
        self.high: float | None = float(shown.max()) if shown.numel() else None
        self.row_step = self.column_step = 1
        self.is_sampled = False

    @classmethod
    def of(cls, reader: _TensorReader, take: Part, rows: int, columns: int, width: int, height: int) -> _Map:
        row_block, column_block = -(-rows // height), -(-columns // width)
        row_skip = column_skip = 1
        if rows * columns > _MOST_AT_ONCE:
            for_each_point = max(1, _MOST_AT_ONCE // 4 // (-(-rows // row_block) * -(-columns // column_block)))
            row_part = min(row_block, math.isqrt(for_each_point))
            row_skip, column_skip = row_block // row_part, max(1, column_block // (for_each_point // row_part))
        numbers = reader.numbers(lambda tensor: take(tensor)[::row_skip, ::column_skip])
        made = cls(numbers, -(-row_block // row_skip), -(-column_block // column_skip))
        made.row_step = -(-row_block // row_skip) * row_skip
        made.column_step = -(-column_block // column_skip) * column_skip
        made.is_sampled = row_skip * column_skip > 1
        return made

    def coded(self, low: float, high: float) -> bytes:
        """Return a byte for each point, row by row."""
        torch = sys.modules["torch"]
        apart = high - low
        scaled = (self._means - low) / apart * _HIGHEST if apart > 0 else torch.full_like(self._means, _HIGHEST // 2)
        found = scaled.round().clamp(0, _HIGHEST).to(torch.uint8)
        for mark, byte in self._marks:
            found[mark] = byte
        return _bytes_of(found)


def _image(
    reader: _TensorReader, index: tuple[object, ...], sizes: list[int], kind: str, width: int, height: int
) -> TensorPicture:
    torch = sys.modules["torch"]
    channels, rows, columns = sizes if kind == CHANNELS_FIRST else (sizes[2], *sizes[:2])
    if channels not in (1, 3, 4):
        raise EvaluationError(f"an image has 1, 3 or 4 channels, and this has {channels}")
    # Points of an image are square.
    step = max(-(-rows // height), -(-columns // width))

    def take(tensor: Tensor) -> Tensor:
        shown = tensor[index]
        return (shown.permute(1, 2, 0) if kind == CHANNELS_FIRST else shown)[::step, ::step]

    numbers = reader.numbers(take)
    nans = numbers.isnan().any(2)
    low, high = _range_of_colours(numbers, reader.dtype)
    scaled = ((numbers.nan_to_num(0.0, high, low) - low) / (high - low) * 255).round().clamp(0, 255).to(torch.uint8)
    colours = scaled.expand(-1, -1, 3) if channels == 1 else scaled[:, :, :3]
    alpha = scaled[:, :, 3:] if channels == 4 else torch.full_like(scaled[:, :, :1], 255)
    image = torch.cat([colours, alpha], 2)
    image[nans] = torch.tensor(_NAN_COLOUR, dtype=torch.uint8)
    return TensorPicture(
        width=image.shape[1],
        height=image.shape[0],
        tiles=1,
        data=base64.b64encode(_bytes_of(image)).decode(),
        low=low,
        high=high,
        row_step=step,
        column_step=step,
        is_sampled=step > 1,
    )


def _bytes_of(numbers: Tensor) -> bytes:
    """Return the bytes of a byte tensor: numpy may not be installed."""
    whole = numbers.contiguous()
    return ctypes.string_at(whole.data_ptr(), whole.numel())


def _range_of_colours(numbers: Tensor, dtype: str) -> tuple[float, float]:
    """Return the values of black and full colour: 0 and 255, 0 and 1, else the least and the greatest value."""
    finite = numbers[numbers.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 1.0)
    if low >= 0 and high <= 255 and _is_whole_number(dtype) and dtype != "torch.bool":
        return 0.0, 255.0
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return (low, high) if high > low else (low, low + 1.0)
