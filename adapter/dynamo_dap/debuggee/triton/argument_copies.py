"""Copies the arguments of a kernel launch to CPU memory, so that Triton's interpreter does not write to the originals.

Each storage is copied once and whole: arguments that share memory share it in the copies. Afterwards the interpreter's
results are compared with the launch's. Runs on the thread that launches the kernel.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import facts_of
from dynamo_dap.debuggee.torch_api.isolation import data_reading
from dynamo_dap.debuggee.torch_api.objects import Tensor
from dynamo_dap.debuggee.triton.pointers import argument_of

_TOLERANCES = {"torch.float16": 1e-2, "torch.bfloat16": 4e-2, "torch.float32": 1e-3, "torch.float64": 1e-6}
"""Relative differences up to which floats count as equal."""
_EIGHT_BIT_TOLERANCE = 1e-1
_TF32_TOLERANCE = 1e-2
"""The tolerance if the launch multiplies float32 in TF32, which has as many bits as float16."""
_ATOMIC_WITHOUT_MASK = "atomic compare-and-swap"


class CannotCopy(Exception):
    """An argument cannot be copied; the message says which and why."""


class OutsideOfCopies(Exception):
    """The kernel accesses memory outside of its arguments, without a mask; the message is for the user."""


@dataclass(frozen=True)
class KernelDifference:
    """The first element for which interpreter and launch wrote different values."""

    name: str
    """The parameter's name."""
    facts: str
    """The tensor: ``Tensor f32[10] cuda:0``."""
    index: tuple[int, ...]
    interpreted: object
    launched: object
    count: int
    """How many elements of the tensor differ."""
    elements: int
    """How many elements the tensor has."""
    largest: float

    @property
    def headline(self) -> str:
        """Describes the first difference: ``out_ptr[3] is 4.0 in the interpreter, 5.0 in the launch``."""
        at = ", ".join(map(str, self.index))
        return f"{self.name}[{at}] is {self.interpreted} in the interpreter, {self.launched} in the launch"

    @property
    def text(self) -> str:
        """Says how much differs."""
        of = f"{self.count} of {self.elements} elements of {self.name} ({self.facts})"
        return f"{of} {'differs' if self.count == 1 else 'differ'}; largest difference {self.largest:.3g}"


class ArgumentCopies:
    """A kernel's arguments and their copies, by parameter name."""

    def __init__(self, given: Mapping[str, object], on_left_out: Callable[[str], None]) -> None:
        """Copy the arguments; ``on_left_out`` is called at the first access to memory that was not copied.

        Raises:
            CannotCopy: an argument has unreadable data.
        """
        self._storages: dict[int, Any] = {}
        """The copies, by the address of the original."""
        self._ranges: list[tuple[int, int]] = []
        self._on_left_out = on_left_out
        self.is_complete = True
        """Whether the interpreter could access everything that the kernel accesses."""
        self._tensors: list[tuple[str, Tensor, Tensor]] = []
        with data_reading():
            self.values = {name: self._copied(name, value) for name, value in given.items()}
        for storage in self._storages.values():
            begin = int(storage.data_ptr())
            self._ranges.append((begin, begin + int(storage.nbytes())))

    def _copied(self, name: str, value: object) -> Any:
        if isinstance(value, tuple):
            parts = [self._copied(f"{name}[{index}]", each) for index, each in enumerate(value)]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        if hasattr(value, "untyped_storage"):
            return self._copy_of_tensor(name, value)
        base = getattr(value, "base", None)
        if hasattr(base, "untyped_storage"):
            return self._rewrapped(name, value, self._copy_of_tensor(name, base))
        if hasattr(value, "data_ptr"):
            raise CannotCopy(f"{name} is a {type(value).__name__}, which has an address and no tensor")
        return value

    def _rewrapped(self, name: str, value: Any, base: object) -> object:
        if hasattr(value, "block_shape"):
            names = value.__dataclass_fields__
            return type(value)(**{one: base if one == "base" else getattr(value, one) for one in names})
        if hasattr(value, "dtype"):
            return type(value)(base, value.dtype)
        raise CannotCopy(f"{name} is a {type(value).__name__}")

    def _copy_of_tensor(self, name: str, tensor: Any) -> Any:
        torch = sys.modules["torch"]
        try:
            storage = tensor.untyped_storage()
            address = int(storage.data_ptr())
            if address not in self._storages:
                self._storages[address] = storage.clone() if tensor.device.type == "cpu" else storage.cpu()
            copy = torch.empty(0, dtype=tensor.dtype, device="cpu")
            copy.set_(self._storages[address], tensor.storage_offset(), tensor.size(), tensor.stride())
        except (RuntimeError, NotImplementedError, TypeError) as error:
            reason = str(error).partition("\n")[0]
            raise CannotCopy(f"{name} ({facts_of(tensor).text}) cannot be copied: {reason}") from None
        self._tensors.append((name, tensor, copy))
        return copy

    # -- what the interpreter may access ---------------------------------------------------------------------------

    def within(self, what: str, pointers: Any, lanes: object) -> object:
        """Return the mask of an access without the elements outside of the copies; see ``launches.Memory``."""
        numpy = sys.modules["numpy"]
        addresses = pointers.data
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        is_within = numpy.zeros(addresses.shape, dtype=bool)
        for begin, end in self._ranges:
            is_within |= (addresses >= begin) & (addresses + numpy.uint64(size) <= end)
        takes_part = is_within if lanes is None else numpy.broadcast_to(lanes, addresses.shape)
        left_out = int((takes_part & ~is_within).sum()) if lanes is not None else int((~is_within).sum())
        if not left_out:
            return lanes
        argument = argument_of(pointers)
        where = "all arguments" if argument is None else f"{argument.name} and all other arguments"
        text = f"{what} outside {where}: {left_out} of {addresses.size} lanes"
        if lanes is None or what == _ATOMIC_WITHOUT_MASK:
            raise OutsideOfCopies(text)
        if self.is_complete:
            self._on_left_out(f"{text} are skipped in the interpreter")
            self.is_complete = False
        return takes_part & is_within

    # -- what was written ------------------------------------------------------------------------------------------

    def first_difference(self, *, rounds_products: bool = False) -> KernelDifference | None:
        """Return the first difference between the copies and the launch's tensors; None if all are within tolerance.

        A float may differ by a fraction of its own size or of the tensor's mean size, whichever is larger: sums run in
        another order. ``rounds_products`` says that the launch multiplies in TF32, which the interpreter does not.
        """
        least = _TF32_TOLERANCE if rounds_products else 0.0
        with data_reading():
            return next((found for found in self._differences(least) if found is not None), None)

    def _differences(self, least: float) -> Iterator[KernelDifference | None]:
        for name, tensor, copy in self._tensors:
            launched = tensor.detach().cpu()
            if launched.numel():
                yield _difference(name, facts_of(tensor).text, copy, launched, least)


def _difference(name: str, facts: str, copy: Tensor, launched: Tensor, least: float) -> KernelDifference | None:
    torch = sys.modules["torch"]
    if copy.is_floating_point() or copy.is_complex():
        wide = torch.complex128 if copy.is_complex() else torch.float64
        one, two = copy.to(wide), launched.to(wide)
        are_same = (one == two) | (one.isnan() & two.isnan())
        apart = (one - two).abs()
        finite = one.abs().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        relative = max(
            least, _TOLERANCES.get(str(copy.dtype), _EIGHT_BIT_TOLERANCE if copy.element_size() == 1 else 1e-3)
        )
        differs = ~are_same & ~(apart <= relative * torch.maximum(finite, finite.mean()))
    else:
        one, two = copy, launched
        differs = one != two
        apart = (one.double() - two.double()).abs()
    count = int(differs.sum())
    if not count:
        return None
    index = tuple(int(part) for part in differs.nonzero()[0])
    largest = float(apart[differs].nan_to_num(nan=math.inf).max())
    at = copy[index].item(), launched[index].item()
    return KernelDifference(name, facts, index, *at, count, copy.numel(), largest)
