"""Describes a tensor by its metadata alone: real tensors, fake ones, subclasses.

Nothing here reads data, creates a symbol or a guard. Runs on the held thread, inside or outside a trace.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

from dynamo_dap.debuggee.bytecode.exact_types import is_a
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.isolation import metadata_reading
from dynamo_dap.debuggee.torch_api.objects import GradientNode, Tensor
from dynamo_dap.debuggee.torch_api.traced.symbols import size_texts

_STORAGE_REFERENCE = "torch.multiprocessing.reductions:StorageWeakRef"
_IS_TRANSFORMED = "torch._C._functorch:is_functorch_wrapped_tensor"
_UNTRANSFORMED = "torch._C._functorch:get_unwrapped"
_IS_FUNCTIONAL = "torch:_is_functional_tensor"
_UNFUNCTIONAL = "torch:_from_functional_tensor"

UNWRAPPING = Feature(
    "data of tensors inside torch.func", _IS_TRANSFORMED, _UNTRANSFORMED, _IS_FUNCTIONAL, _UNFUNCTIONAL
)

WITH_BYTES = ("cpu", "cuda", "xpu", "mps")
"""Devices whose memory torch can copy. A device written in Python has its data elsewhere, and a copy crashes."""

MEMORY = Feature("memory that earlier calls have returned", _STORAGE_REFERENCE)


class TensorFacts(NamedTuple):
    """Metadata, as text where it may be symbolic."""

    kind: str
    dtype: str
    shape: tuple[str, ...]
    stride: tuple[str, ...] | None
    device: str
    layout: str
    requires_grad: bool

    @property
    def text(self) -> str:
        """The tensor in words: ``Tensor f32[3, 4] cpu requires_grad``."""
        parts = [f"{self.kind} {abbreviated(self.dtype)}[{', '.join(self.shape)}]", self.device]
        if self.layout != "torch.strided":
            parts.append(self.layout.removeprefix("torch."))
        if self.requires_grad:
            parts.append("requires_grad")
        return " ".join(parts)


def facts_of(tensor: Tensor, kind: str | None = None) -> TensorFacts:
    """Read the metadata of a real or fake tensor; ``kind`` replaces the class's name."""
    with metadata_reading():
        strided = str(tensor.layout) == "torch.strided"
        return TensorFacts(
            kind=kind_of(tensor) if kind is None else kind,
            dtype=str(tensor.dtype),
            shape=_nested_sizes(tensor) if strided and tensor.is_nested else size_texts(tensor.size()),
            stride=size_texts(tensor.stride()) if strided and not tensor.is_nested else None,
            device=str(tensor.device),
            layout=str(tensor.layout),
            requires_grad=bool(tensor.requires_grad),
        )


def _nested_sizes(tensor: Tensor) -> tuple[str, ...]:
    """Return the sizes that all parts of a nested tensor share, ``?`` for the others."""

    def size(dimension: int) -> str:
        try:
            return str(tensor.size(dimension))
        except RuntimeError:
            return "?"

    return tuple(size(dimension) for dimension in range(tensor.dim()))


def version_of(tensor: Any) -> int:
    """Return a tensor's count of in-place changes; 0 if it has none."""
    try:
        with metadata_reading():
            return int(tensor._version)
    except (AttributeError, RuntimeError, TypeError):
        return 0


def address_of(tensor: Tensor) -> int:
    """Return the address of a tensor's memory; 0 if it has no memory of its own."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (AttributeError, NotImplementedError, RuntimeError):
        return 0


def needed_bytes(tensor: Tensor) -> int:
    """Return how many bytes of its storage the elements of a plain tensor need, from the beginning of the storage.

    It is 0 on a device whose storages have no bytes.
    """
    if not tensor.numel() or tensor.device.type not in WITH_BYTES:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((tensor.storage_offset() + last + 1) * tensor.itemsize)


def has_all_memory(tensor: Tensor) -> bool:
    """Return whether a plain tensor's memory has all its elements: a program may release memory, as FSDP does.

    Reading a tensor without all its memory raises or crashes.
    """
    return bool(tensor.untyped_storage().nbytes() >= needed_bytes(tensor))


def is_memory_alive(tensor: Tensor) -> Callable[[], bool]:
    """Return a weak check whether the memory of ``tensor`` is still in use."""
    if MEMORY.problem is not None:
        return lambda: False
    reference = MEMORY.resolve(_STORAGE_REFERENCE)(tensor.untyped_storage())
    return lambda: not reference.expired()


def kind_of(tensor: object) -> str:
    """Return the class's name; a FakeTensor is called ``Tensor`` or ``Parameter``."""
    name = type(tensor).__name__
    fake = is_fake_tensor(tensor)
    if fake or name == "Tensor":
        is_parameter = getattr(tensor, "_is_param", False) is True
        return "Parameter" if is_parameter else "Tensor"
    return name


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Return whether ``value`` is a tensor, fake or real, judged by its class."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor is not None and is_a(value, tensor)


def gradient_node_of(value: object) -> GradientNode | None:
    """Return the node of autograd's graph that made ``value``; None if it is not a tensor or has none."""
    return value.grad_fn if is_tensor(value) else None


def is_gradient_recorded() -> bool:
    """Return whether autograd records what is computed now."""
    return bool(sys.modules["torch"].is_grad_enabled())


def is_fake_tensor(value: object) -> TypeGuard[Tensor]:
    """Return whether ``value`` is a FakeTensor, by its class: a subclass of Tensor may redefine ``isinstance``."""
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    return fake is not None and issubclass(type(value), fake.FakeTensor)


FAKE_ATTRIBUTES = frozenset(
    {"fake_mode", "fake_device", "constant", "real_tensor", "pytype", "dispatch_keys", "_is_param"}
)
"""Attributes that a FakeTensor stores for torch's own use."""


def is_fake(tensor: Tensor) -> bool:
    """Return whether the tensor has no data: a FakeTensor, or one on the meta device."""
    if is_fake_tensor(tensor):
        return True
    with metadata_reading():
        return str(tensor.device) == "meta"


def inner_tensors(value: object) -> dict[str, object]:
    """Return the tensors with data inside a tensor subclass that wraps some, by attribute."""
    if not is_tensor(value) or is_fake_tensor(value) or not hasattr(type(value), "__tensor_flatten__"):
        return {}
    with metadata_reading():
        return {name: getattr(value, name) for name in value.__tensor_flatten__()[0]}


_DEEPEST_WRAPPING = 32


def unwrapped(tensor: Any) -> Any:
    """Return the tensor with data inside a wrapper of ``torch.func`` or of functionalization, else ``tensor``.

    The inner tensor of ``vmap`` also has the mapped dimension. That of functionalization lacks the pending writes.
    """
    if UNWRAPPING.problem is not None:
        return tensor
    is_transformed, is_functional = UNWRAPPING.resolve(_IS_TRANSFORMED), UNWRAPPING.resolve(_IS_FUNCTIONAL)
    for _ in range(_DEEPEST_WRAPPING):
        if type(tensor).__name__ == "FunctionalTensor" and type(tensor).__module__.startswith("torch."):
            tensor = tensor.elem
        elif is_transformed(tensor):
            tensor = UNWRAPPING.resolve(_UNTRANSFORMED)(tensor)
        elif is_functional(tensor):
            tensor = UNWRAPPING.resolve(_UNFUNCTIONAL)(tensor)
        else:
            break
    return tensor


_FAMILIES = {"float": "f", "bfloat": "bf", "complex": "c", "int": "i", "uint": "u", "bool": "b8"}


def abbreviated(dtype: str) -> str:
    """Return the short form that torch's own graph listings use: ``f32``, ``bf16``, ``i64``, ``b8``."""
    name = dtype.removeprefix("torch.")
    family = name.rstrip("0123456789")
    bits = name[len(family) :]
    if family in _FAMILIES:
        return f"{_FAMILIES[family]}{bits}"
    if name.startswith(("float8", "float4")):
        return name.replace("float", "f", 1).replace("_", "")
    return name
