"""Finds the cache entry whose guards accept a call, and copies inputs with other sizes to check these as well.

Guards are evaluated as at a call: in the order of the entries, on a frame's locals. No code of the program runs except
what the guards call. Runs on a thread that has entered the call's modes (gradients, autocast and others).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import is_a, is_exactly
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import live_entries
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.objects import Tensor

_CHECK = "torch._dynamo.guards:GuardManagerWrapper.check"
LOOKUP = Feature("forecasts of recompiles", _CHECK)

_DEPTH = 5
_MOST_TENSORS = 1000

_mro, _names, _flags = (type.__dict__[name].__get__ for name in ("__mro__", "__dict__", "__flags__"))
_PYTHON_CLASS = 1 << 9
"""CPython's ``Py_TPFLAGS_HEAPTYPE``."""


def compile_ids_of(code: CodeType) -> list[str]:
    """Return the compile id of each cache entry of a function, in the order in which torch tries them."""
    return [str(getattr(entry, "compile_id", None) or number) for number, entry in enumerate(live_entries(code))]


def is_shared(code: CodeType) -> bool:
    """Return whether several ``torch.compile`` calls compiled a function; each uses only its own entries."""
    entries = live_entries(code)
    return any(
        entry.backend != entries[0].backend or getattr(entry, _ISOLATION, None) != getattr(entries[0], _ISOLATION, None)
        for entry in entries[1:]
    )


_ISOLATION = "isolate_recompiles_id"


def serving_entry(code: CodeType, names: Mapping[str, object]) -> int | None:
    """Return the number of the first cache entry that accepts these locals and captured variables; None if none does.

    Raises:
        FeatureMissing: this torch lacks a name that the lookup needs.
    """
    LOOKUP.require()
    frame_locals = dict(names)
    for number, entry in enumerate(live_entries(code)):
        if entry.guard_manager.check(frame_locals):
            return number
    return None


def tensors_in(names: Mapping[str, object]) -> Iterator[tuple[str, Tensor]]:
    """Yield the plain tensors in ``names``, also those in containers and plain objects, each with its expression.

    Expressions are ``batch['x']`` or ``cache.layers[0].keys``. Modules are skipped.
    """
    found = (each for name, value in names.items() for each in _tensors_below(name, value, _DEPTH, set()))
    yield from itertools.islice(found, _MOST_TENSORS)


def _tensors_below(path: str, value: Any, depth: int, above: set[int]) -> Iterator[tuple[str, Tensor]]:
    torch = sys.modules["torch"]
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


def _attributes(value: object) -> dict[str, object] | None:
    """Return an object's attributes if it can be copied without running code of its class; None for other objects."""
    torch = sys.modules["torch"]
    # Each class is written in Python, and has neither slots nor a ``__new__``, which could make another object.
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


def with_containers_copied(value: object) -> Any:
    """Copy the containers and objects around tensors, which the call may change later. The tensors are shared."""
    return replaced(value, {id(tensor): tensor for _, tensor in tensors_in({"": value})})


def with_size(tensor: Tensor, sizes: Mapping[int, int]) -> object:
    """Return a new tensor like ``tensor`` with other sizes and the same order of dimensions in memory."""
    torch = sys.modules["torch"]
    shape = [sizes.get(dimension, size) for dimension, size in enumerate(tensor.shape)]
    order = sorted(range(len(shape)), key=lambda dimension: (tensor.stride(dimension), -dimension))
    strides, step = [0] * len(shape), 1
    for dimension in order:
        strides[dimension] = step
        step *= max(shape[dimension], 1)
    is_integral = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    made = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
    # Integers may be indices or counts: all elements get the call's first number, which is a valid one.
    made.copy_(tensor.reshape(-1)[:1].expand(shape) if is_integral and tensor.numel() else torch.ones_like(made))
    made.requires_grad_(tensor.requires_grad)
    # mark_dynamic keeps its marks on the tensor, in sets.
    made.__dict__.update({key: set(one) if type(one) is set else one for key, one in tensor.__dict__.items()})
    return made


def replaced(value: Any, others: Mapping[int, object], depth: int = _DEPTH) -> object:
    """Copy ``value`` with some tensors replaced; ``others`` has the new tensors by ``id`` of the old ones."""
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
