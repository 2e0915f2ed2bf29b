"""Finds which cache entry would serve a call, and makes inputs of other sizes for such questions.

Guards are evaluated as at a call: in the order of the entries, on the names of a frame. Nothing of the program runs,
except what guards themselves call. The thread that has the modes of the call.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import is_a, is_exactly
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.generated_code import live_entries

_CHECK = "torch._dynamo.guards:GuardManagerWrapper.check"
LOOKUP = Feature("forecasts of recompiles", _CHECK)

_DEPTH = 5
_MOST_TENSORS = 1000

_mro, _names, _flags = (type.__dict__[name].__get__ for name in ("__mro__", "__dict__", "__flags__"))
_PYTHON_CLASS = 1 << 9
"""CPython's ``Py_TPFLAGS_HEAPTYPE``."""


def compile_ids_of(code: Any) -> list[str]:
    """Return the compile id of each cache entry of a function, in the order in which torch tries them."""
    return [str(getattr(entry, "compile_id", None) or number) for number, entry in enumerate(live_entries(code))]


def is_shared(code: Any) -> bool:
    """Return whether a function's entries belong to several ``torch.compile`` calls, each with its own."""
    entries = live_entries(code)
    return any(
        entry.backend != entries[0].backend or getattr(entry, _ISOLATION, None) != getattr(entries[0], _ISOLATION, None)
        for entry in entries[1:]
    )


_ISOLATION = "isolate_recompiles_id"


def serving_entry(code: Any, names: Mapping[str, object]) -> int | None:
    """Return the number of the cache entry that serves a call with these locals and captured variables; None: none.

    Raises:
        FeatureMissing: this torch lacks something.
    """
    LOOKUP.require()
    frame_locals = dict(names)
    for number, entry in enumerate(live_entries(code)):
        if entry.guard_manager.check(frame_locals):
            return number
    return None


def tensors_in(names: Mapping[str, object]) -> Iterator[tuple[str, Any]]:
    """Yield plain tensors that are values or lie in containers or plain objects, with their expressions.

    ``batch['x']``, ``cache.layers[0].keys``. Modules are left out.
    """
    found = (each for name, value in names.items() for each in _tensors_below(name, value, _DEPTH, set()))
    yield from itertools.islice(found, _MOST_TENSORS)


def _tensors_below(path: str, value: Any, depth: int, above: set[int]) -> Iterator[tuple[str, Any]]:
    torch: Any = sys.modules["torch"]
    if type(value) is torch.Tensor:
        if value.layout == torch.strided and not value.is_sparse:
            yield path, value
        return
    if not depth or id(value) in above:
        return
    if type(value) is dict:
        parts = [(f"[{key!r}]", item) for key, item in value.items()]
    elif is_exactly(value, (tuple, list)):
        parts = [(f"[{number}]", item) for number, item in enumerate(value)]
    else:
        parts = [(f".{name}", item) for name, item in (_attributes(value) or {}).items()]
    for name, item in parts:
        yield from _tensors_below(f"{path}{name}", item, depth - 1, above | {id(value)})


def _attributes(value: object) -> dict[str, Any] | None:
    """Return the attributes of an object that can be copied without code of its class; None for every other one."""
    torch: Any = sys.modules["torch"]
    # Written in Python, without slots and without a constructor that makes another object.
    if not all(_flags(each) & _PYTHON_CLASS and _is_usual(_names(each)) for each in _mro(type(value))[:-1]):
        return None
    if is_a(value, torch.nn.Module) or is_a(value, torch.Tensor) or is_a(value, type):
        return None
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return attributes if type(attributes) is dict else None


def _is_usual(names: Mapping[str, object]) -> bool:
    slots = names.get("__slots__", ())
    return "__new__" not in names and type(slots) is tuple and not slots


def as_given(value: object) -> Any:
    """Return what a call was given, with containers and objects copied: the call may change them, but not tensors."""
    return replaced(value, {id(tensor): tensor for _, tensor in tensors_in({"": value})})


def with_size(tensor: Any, sizes: Mapping[int, int]) -> Any:
    """Return a new tensor like ``tensor`` with other sizes and the same order of dimensions in memory."""
    torch: Any = sys.modules["torch"]
    shape = [sizes.get(dimension, size) for dimension, size in enumerate(tensor.shape)]
    order = sorted(range(len(shape)), key=lambda dimension: (tensor.stride(dimension), -dimension))
    strides, step = [0] * len(shape), 1
    for dimension in order:
        strides[dimension] = step
        step *= max(shape[dimension], 1)
    is_integral = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    made = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
    # Indices and counts keep the call's numbers, as far as they fit.
    made.copy_(tensor.reshape(-1)[:1].expand(shape) if is_integral and tensor.numel() else torch.ones_like(made))
    made.requires_grad_(tensor.requires_grad)
    # mark_dynamic keeps its marks on the tensor, in sets.
    made.__dict__.update({key: set(one) if type(one) is set else one for key, one in tensor.__dict__.items()})
    return made


def replaced(value: Any, others: Mapping[int, Any], depth: int = _DEPTH) -> Any:
    """Return a value in which tensors are replaced, by their identity; containers and objects around are copied."""
    if id(value) in others:
        return others[id(value)]
    if depth and type(value) is dict:
        return {key: replaced(item, others, depth - 1) for key, item in value.items()}
    if depth and is_exactly(value, (tuple, list)):
        return type(value)(replaced(item, others, depth - 1) for item in value)
    attributes = _attributes(value) if depth else None
    if attributes and any(id(tensor) in others for _, tensor in _tensors_below("", value, depth, set())):
        made = object.__new__(type(value))
        vars(made).update({name: replaced(item, others, depth - 1) for name, item in attributes.items()})
        return made
    return value
