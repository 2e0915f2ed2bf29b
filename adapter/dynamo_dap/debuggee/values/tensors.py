"""Shows tensors and numpy arrays: metadata, statistics on demand, elements in pages. Never imports torch.

A tensor's data is read only when the user opens a lazy child or a page of elements. A fake tensor's data is never read.
Runs on the held thread.
"""

from __future__ import annotations

import functools
import math
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import FAKE_ATTRIBUTES, TensorFacts, facts_of, is_fake
from dynamo_dap.debuggee.torch_api.isolation import data_reading, metadata_reading
from dynamo_dap.debuggee.torch_api.objects import Tensor
from dynamo_dap.debuggee.torch_api.traced.symbols import expression_of, hint_of
from dynamo_dap.debuggee.values.model import (
    DEPTH_OF_PREVIEW,
    Children,
    Deferred,
    Family,
    ShownTensor,
    Value,
    Variable,
    View,
    family_for,
    text_with_data,
)
from dynamo_dap.debuggee.values.objects import attributes_of, stored_attributes
from dynamo_dap.debuggee.values.paging import unique_names
from dynamo_dap.debuggee.values.type_facts import qualified_name_of


def tensor_text(tensor: Tensor, kind: str | None = None) -> str:
    """Return ``Tensor f32[3, 4] cpu requires_grad``; ``kind`` replaces the class's name."""
    return facts_of(tensor, kind).text


def metadata_variables(facts: TensorFacts) -> list[Variable]:
    """Return shape, stride, dtype, device, layout, requires_grad as children."""
    shown = [
        ("shape", bracketed(facts.shape), "torch.Size"),
        ("stride", bracketed(facts.stride), "tuple") if facts.stride is not None else None,
        ("dtype", facts.dtype, "torch.dtype"),
        ("device", facts.device, "torch.device"),
        ("layout", facts.layout, "torch.layout"),
        ("requires_grad", str(facts.requires_grad), "bool"),
    ]
    return [Variable(name, Value(text, type_name, kind="property")) for name, text, type_name in filter(None, shown)]


def bracketed(parts: Sequence[str] | None) -> str:
    """Return sizes as a list: ``[3, 4]``."""
    return f"[{', '.join(parts or ())}]"


@family_for("torch.Tensor")
class Tensors(Family):
    """Real and fake tensors, parameters, tensor subclasses."""

    kind = "data"

    def text(self, value: Tensor, width: int, depth: int, view: View) -> str:
        """Return dtype, shape, device, requires_grad, and the data if it is short and at hand."""
        return with_data(tensor_text(value), little_data(value), width, depth)

    def present(self, value: Tensor, expression: str | None, view: View) -> Value:
        """Return the tensor as it is shown, with the range of its data if a row shows it."""
        shown = super().present(value, expression, view)
        printed = functools.partial(printed_text, tensor_text(value), value)
        return replace(shown, data_range=lambda: data_range(value), printed_text=printed)

    def children(self, value: Tensor, expression: str | None, view: View) -> Children | None:
        """Return metadata, statistics and elements."""
        return TensorChildren(value, expression, view)


def with_data(text: str, data: str | None, width: int, depth: int) -> str:
    """Return a tensor's text with its data; in a container only if both fit into ``width`` characters."""
    if data is None:
        return text
    whole = text_with_data(text, f"= {data}")
    return whole if depth == DEPTH_OF_PREVIEW or len(whole) <= width else text


_MOST_DATA = 8
"""Elements that a tensor's text shows."""


def is_little(tensor: Tensor) -> bool:
    """Return whether a tensor, real or fake, has few enough elements to show; a symbolic size may have many."""
    with metadata_reading():
        sizes = list(tensor.size())
    return all(type(size) is int for size in sizes) and 0 < math.prod(sizes) <= _MOST_DATA


def little_data(tensor: Tensor) -> str | None:
    """Return the elements of a small tensor on the CPU; None for others: a device is never waited for unasked."""
    return _of_data(tensor, lambda data: data.numel() <= _MOST_DATA, _elements_text)


_MOST_BYTES = 2**20
"""The most bytes of a tensor whose range is shown: reading them takes about a millisecond."""
_PART = 16384
"""Elements that are read at once: for so few, torch starts no threads in the program."""


def data_range(tensor: Tensor) -> str | None:
    """Return least and largest element of a tensor on the CPU that is too large to show; None for others.

    ``0…1``, ``all 0``, ``12 of 60 True``, ``-0.5…2, 3 NaN``.
    """

    def is_wanted(data: Tensor) -> bool:
        return data.numel() > _MOST_DATA and data.numel() * data.element_size() <= _MOST_BYTES

    return _of_data(tensor, is_wanted, _range_text)


def printed_text(text: str, tensor: Tensor) -> str | None:
    """Return a tensor's text with its elements, or with its range; None if it is too large or has no data.

    Unlike the text of a row, it waits for a device.
    """
    here = _copied_to_cpu(tensor)
    if here is None:
        return None
    little = little_data(here)
    found = data_range(here) if little is None else f"= {little}"
    return None if found is None else text_with_data(text, found)


def _copied_to_cpu(tensor: Tensor) -> Tensor | None:
    torch = sys.modules["torch"]
    if not is_exactly(tensor, (torch.Tensor, torch.nn.Parameter)) or is_fake(tensor):
        return None
    try:
        with data_reading():
            is_here = str(tensor.device) == "cpu"
            if not is_here and (tensor.is_meta or tensor.numel() * tensor.element_size() > _MOST_BYTES):
                return None
            return tensor if is_here else tensor.detach().to("cpu")
    except (RuntimeError, TypeError, NotImplementedError, FeatureMissing):
        return None


def _of_data(
    tensor: Tensor, is_wanted: Callable[[Tensor], bool], text_of: Callable[[Tensor], str | None]
) -> str | None:
    torch = sys.modules["torch"]
    if not is_exactly(tensor, (torch.Tensor, torch.nn.Parameter)) or is_fake(tensor):
        return None
    try:
        with data_reading():
            at_hand = str(tensor.device) == "cpu" and tensor.layout == torch.strided and tensor.numel() > 0
            return text_of(tensor.detach()) if at_hand and is_wanted(tensor) else None
    except (RuntimeError, TypeError, NotImplementedError, FeatureMissing):
        return None  # a tensor that only represents others, as inside torch.func


def _range_text(data: Tensor) -> str | None:
    torch = sys.modules["torch"]
    if data.is_complex():
        return None
    if data.dtype == torch.bool:
        count = sum(int(part.sum()) for part in _parts(data))
        return f"all {bool(count)}" if count in (0, data.numel()) else f"{count} of {data.numel()} True"
    ends: list[float] = []
    nans = 0
    for part in _parts(data):
        least, largest = (end.item() for end in torch.aminmax(part))
        if math.isnan(least):
            is_nan = torch.isnan(part)
            nans += int(is_nan.sum())
            numbers = part[~is_nan]
            least, largest = (end.item() for end in torch.aminmax(numbers)) if numbers.numel() else (None, None)
        ends += [] if least is None else [least, largest]
    if not ends:
        return "all NaN"
    least, largest = (_short_number(end, str(data.dtype)) for end in (min(ends), max(ends)))
    text = f"{least}…{largest}" if min(ends) != max(ends) or nans else f"all {least}"
    return f"{text}, {nans} NaN" if nans else text


def _parts(data: Tensor) -> Iterator[Tensor]:
    """Split a tensor into views of at most ``_PART`` elements."""
    if data.numel() <= _PART:
        yield data
        return
    longest = max(range(data.dim()), key=data.size)
    half = data.size(longest) // 2
    yield from _parts(data.narrow(longest, 0, half))
    yield from _parts(data.narrow(longest, half, data.size(longest) - half))


def _short_number(number: float, dtype: str) -> str:
    """Return a number with four digits, or a whole number with all of its digits."""
    if type(number) is not float:
        return str(number)
    short = f"{number:.4g}"
    return short if "." in short or "e" in short or float(short) == number else number_text(number, dtype)


def _elements_text(data: Tensor) -> str:
    return _data_text(data.tolist(), str(data.dtype))


def _data_text(data: object, dtype: str) -> str:
    if isinstance(data, list):
        return f"[{', '.join(_data_text(each, dtype) for each in data)}]"
    return number_text(data, dtype)


class TensorChildren(Children):
    """Metadata and lazy statistics by name, elements (rows) by index."""

    def __init__(self, tensor: Tensor, expression: str | None, view: View) -> None:
        """Show the children of ``tensor``, which ``expression`` gives in a watch, by ``view``."""
        self._tensor = tensor
        self._view = view
        self._expression = expression
        self._fake = is_fake(tensor)
        with metadata_reading():
            self._dimensions = tensor.dim()
            readable = not self._fake and self._dimensions > 0 and str(tensor.layout) == "torch.strided"
            self._rows = int(tensor.size(0)) if readable else 0

    @property
    def is_of_tensor(self) -> bool:
        """Return True."""
        return True

    def tensor(self) -> ShownTensor:
        """Return the tensor."""
        return ShownTensor(self._tensor)

    @property
    def indexed_count(self) -> int:
        """How many rows the first dimension has; 0 when there is no data to read."""
        return self._rows

    @property
    def named_count(self) -> int:
        """Return the number of ``named`` children, which the client gets with each shown tensor."""
        count = 5 + (facts_of(self._tensor).stride is not None) + sum(1 for _ in self._own())
        if self._fake:
            return count
        with metadata_reading():
            has_gradient = self._tensor.is_leaf and self._tensor.grad is not None
        return count + 2 + has_gradient + (len(STATISTICS) if self._dimensions else 1)

    def named(self) -> Sequence[Variable]:
        """Return metadata, autograd's facts, lazy statistics, and attributes that the program added.

        The value of a tensor without dimensions comes first.
        """
        facts = [*self._named_with_path(metadata_variables(facts_of(self._tensor))), *self._autograd()]
        data = [] if self._fake else self.statistics()
        variables = [*facts, *data] if self._dimensions else [*data, *facts]
        return unique_names([*variables, *self._own_attributes()])

    def statistics(self) -> list[Variable]:
        """Return the statistics, not yet computed."""
        names = STATISTICS if self._dimensions else ("value",)
        return [lazy_variable(name, self._statistic(name)) for name in names]

    def _own_attributes(self) -> list[Variable]:
        shown = set(self._own())
        return [each for each in attributes_of(self._tensor, self._expression, self._view) if each.name in shown]

    def _own(self) -> Iterator[str]:
        """Yield the names of the attributes that the program added."""
        for name, _ in stored_attributes(self._tensor):
            if not self._fake or (name not in FAKE_ATTRIBUTES and "_memo" not in name):
                yield name

    def indexed(self, start: int, count: int) -> Sequence[Variable]:
        """Return one page of rows: numbers for a vector, else smaller tensors."""
        stop = min(start + count, self._rows)
        if stop <= start:
            return ()
        try:
            with data_reading():
                page = self._tensor.detach()[start:stop]
                rows = (
                    _numbers(page)
                    if page.dim() == 1
                    else [self._view.value(row, self._row(start + at)) for at, row in enumerate(page.unbind(0))]
                )
        except (RuntimeError, NotImplementedError, FeatureMissing) as problem:
            return [Variable(f"{start} … {stop - 1}", Value(_reason(problem)))]
        return [Variable(str(start + at), row, self._row(start + at)) for at, row in enumerate(rows)]

    def _row(self, index: int) -> str | None:
        return f"{self._expression}[{index}]" if self._expression else None

    def _named_with_path(self, variables: list[Variable]) -> list[Variable]:
        if self._expression is None:
            return variables
        paths = [f"{self._expression}.{each.name}" + ("()" if each.name == "stride" else "") for each in variables]
        return [Variable(each.name, each.value, path) for each, path in zip(variables, paths, strict=True)]

    def _autograd(self) -> list[Variable]:
        if self._fake:
            return []
        with metadata_reading():
            is_leaf, grad_fn = self._tensor.is_leaf, self._tensor.grad_fn
            grad = self._tensor.grad if is_leaf else None
        parts = [
            ("is_leaf", self._view.value(is_leaf)),
            ("grad_fn", Value("None" if grad_fn is None else grad_fn.name())),
        ]
        if grad is not None:
            parts.append(("grad", self._view.value(grad, f"{self._expression}.grad" if self._expression else None)))
        return [
            Variable(name, value, f"{self._expression}.{name}" if self._expression else None) for name, value in parts
        ]

    def _statistic(self, name: str) -> Callable[[], Value]:
        return lambda: statistic(self._tensor, name)


def lazy_variable(name: str, compute: Callable[[], Value]) -> Variable:
    """Return a child whose value is computed when the user asks for it."""
    below = Deferred(lambda: [Variable(name, compute())], count=1)
    return Variable(name, Value("…", children=below, lazy=True, kind="virtual"))


STATISTICS = ("min", "max", "mean", "std", "NaNs", "Infs", "zeros")
"""The statistics that ``statistic`` computes; a tensor without dimensions has only ``value``."""


def statistic(tensor: Tensor, name: str) -> Value:
    """Compute one of ``STATISTICS``, or ``value``, over the tensor's data; the text says why if that fails."""
    torch = sys.modules["torch"]
    try:
        with data_reading():
            data = tensor.detach()
            if data.layout != torch.strided:
                data = data.coalesce().values() if data.layout == torch.sparse_coo else data.values()
            if data.numel() == 0:
                return Value("no elements")
            return Value(number_text(_COMPUTE[name](torch, data), str(data.dtype)))
    except (RuntimeError, TypeError, NotImplementedError, FeatureMissing) as problem:
        return Value(_reason(problem))


def _reason(problem: Exception) -> str:
    return f"not available: {str(problem).splitlines()[0] if str(problem) else type(problem).__name__}"


def _numbers(vector: Tensor) -> list[Value]:
    dtype = str(vector.dtype)
    return [Value(number_text(number, dtype), type(number).__name__) for number in vector.tolist()]


_PACKED = {"torch.float32": ("f", range(6, 10)), "torch.float16": ("e", range(3, 6)), "torch.bfloat16": (None, (4,))}
"""``struct`` formats of the floats narrower than Python's, and how many digits each needs at least and at most."""


def number_text(number: object, dtype: str) -> str:
    """Return an element as text, with no more digits than its dtype holds: ``0.1``, not ``0.10000000149011612``."""
    if type(number) is not float or dtype not in _PACKED or not math.isfinite(number):
        return str(number)
    packed, digits = _PACKED[dtype]
    text = ""
    for count in digits:
        text = repr(float(f"{number:.{count}g}"))
        if packed is None or struct.unpack(packed, struct.pack(packed, float(text)))[0] == number:
            break
    return text


def _magnitude(data: Tensor) -> Tensor:
    return data.abs() if data.is_complex() else data


def _reducible(torch: ModuleType, data: Tensor) -> Tensor:
    """Convert small floats, which not every device can reduce."""
    small = data.is_floating_point() and data.element_size() < 2
    return data.to(torch.float32) if small else _magnitude(data)


def _exact(torch: ModuleType, data: Tensor) -> Tensor:
    """Convert whole numbers, which have no mean."""
    is_exact = data.is_floating_point() or data.is_complex()
    return _reducible(torch, data) if is_exact else data.to(torch.float64)


_COMPUTE: dict[str, Callable[[ModuleType, Tensor], object]] = {
    "value": lambda torch, data: data.item(),
    "min": lambda torch, data: _reducible(torch, data).min().item(),
    "max": lambda torch, data: _reducible(torch, data).max().item(),
    "mean": lambda torch, data: _exact(torch, data).mean().item(),
    "std": lambda torch, data: _exact(torch, data).std().item() if data.numel() > 1 else math.nan,
    "NaNs": lambda torch, data: int(torch.isnan(_reducible(torch, data)).sum().item()),
    "Infs": lambda torch, data: int(torch.isinf(_reducible(torch, data)).sum().item()),
    "zeros": lambda torch, data: int((_reducible(torch, data) == 0).sum().item()),
}


@family_for("torch.Size")
class Sizes(Family):
    """``torch.Size``."""

    def text(self, value: tuple[object, ...], width: int, depth: int, view: View) -> str:
        """Return ``torch.Size([3, s0])``."""
        from dynamo_dap.debuggee.torch_api.traced.symbols import size_text

        return f"torch.Size({bracketed([size_text(size) for size in tuple.__iter__(value)])})"

    def children(self, value: tuple[object, ...], expression: str | None, view: View) -> Children | None:
        """Return the sizes by index."""
        from dynamo_dap.debuggee.values.containers import IndexedItems

        return IndexedItems(tuple.__len__(value), lambda index: tuple.__getitem__(value, index), expression, view)


@family_for("torch.SymInt", "torch.SymFloat", "torch.SymBool")
class SymbolicNumbers(Family):
    """Symbolic numbers: the expression, and the value in this call."""

    kind = "data"

    def text(self, value: object, width: int, depth: int, view: View) -> str:
        """Return the expression."""
        return str(expression_of(value))

    def children(self, value: object, expression: str | None, view: View) -> Children | None:
        """Return expression and hint."""
        parts = [("expression", str(expression_of(value))), ("hint", str(hint_of(value)))]
        return Deferred(lambda: [Variable(name, Value(text)) for name, text in parts], count=2)


@family_for("torch.nn.modules.module.Module")
class Modules(Family):
    """``nn.Module``: parameters, buffers, submodules, then other attributes."""

    def text(self, value: object, width: int, depth: int, view: View) -> str:
        """Return ``Linear module``. ``extra_repr`` is the user's code and is not called."""
        return f"<{self.type_name(value)} module>"

    def children(self, value: object, expression: str | None, view: View) -> Children | None:
        """Return parameters, buffers, submodules, attributes, class."""
        return Deferred(lambda: module_variables(value, expression, view))


_REGISTRIES = ("_parameters", "_buffers", "_modules")


def module_variables(module: object, expression: str | None, view: View) -> list[Variable]:
    """Return the children of an ``nn.Module``, read from its registries."""
    from dynamo_dap.debuggee.values.objects import attribute_variable, class_variable
    from dynamo_dap.debuggee.values.type_facts import instance_dictionary

    stored = instance_dictionary(module)
    variables: list[Variable] = []
    for registry in _REGISTRIES:
        for name, item in dict(stored.get(registry) or {}).items():
            variables.append(attribute_variable(str(name), item, expression, view))
    plain = {name: item for name, item in stored.items() if type(name) is str and not name.startswith("_")}
    plain = {**{name: item for name, item in plain.items() if name != "training"}, **plain}
    hooks = {name: item for name, item in stored.items() if "_hooks" in str(name) and item}
    variables += [attribute_variable(name, item, expression, view) for name, item in {**plain, **hooks}.items()]
    return unique_names([*variables, class_variable(module, expression, view)])


@family_for("numpy.ndarray")
class Arrays(Family):
    """Arrays: ``ndarray float32[3, 4]``."""

    kind = "data"

    def text(self, value: Any, width: int, depth: int, view: View) -> str:
        """Return dtype and shape."""
        return f"{qualified_name_of(type(value))} {value.dtype}[{', '.join(map(str, value.shape))}]"

    def children(self, value: object, expression: str | None, view: View) -> Children | None:
        """Return metadata, statistics and elements."""
        return ArrayChildren(value, expression, view)


class ArrayChildren(Children):
    """Metadata and lazy statistics by name, elements (rows) by index."""

    def __init__(self, array: Any, expression: str | None, view: View) -> None:
        """Show the children of ``array``, which ``expression`` gives in a watch, by ``view``."""
        self._view = view
        self._array = array
        self._expression = expression

    @property
    def indexed_count(self) -> int:
        """How many rows the first dimension has."""
        return int(self._array.shape[0]) if self._array.ndim else 0

    def named(self) -> Sequence[Variable]:
        """Return shape, strides, dtype, and lazy statistics."""
        facts = [
            Variable(name, self._view.value(getattr(self._array, name)), self._path(f".{name}")) for name in _METADATA
        ]
        statistics = [lazy_variable(name, lambda name=name: self._statistic(name)) for name in ("min", "max", "mean")]  # type: ignore[misc]  # a lambda in a loop
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
