"""Launches of kernels in Triton's interpreter: their grid, the program that runs, the tensors that they were given.

A launch lives from the call of a kernel to its return, on the thread that makes it; a kernel that runs another one has
two. Nothing here imports Triton or torch.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MARK = "dynamo_dap_argument"
"""The attribute of a pointer's type that says which argument it began as. Whatever is computed of it has its type."""


@dataclass(frozen=True, eq=False)
class Argument:
    """A tensor that a kernel was given."""

    name: str
    """The parameter's."""
    tensor: Any
    address: int
    element_size: int
    extent: int
    """Elements from the first in memory to the last: more than there are, where the tensor has gaps."""

    @classmethod
    def of(cls, name: str, tensor: Any) -> Argument:
        """Return what is known of a tensor of torch's."""
        sizes, strides = tuple(tensor.size()), tuple(tensor.stride())
        extent = 0 if 0 in sizes else 1 + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
        return cls(name, tensor, int(tensor.data_ptr()), int(tensor.element_size()), extent)

    def contains(self, address: int) -> bool:
        """Whether an element of it begins before ``address`` and ends after it."""
        return self.address <= address < self.address + self.extent * self.element_size


@dataclass(eq=False)
class Launch:
    """One launch of a kernel."""

    function: types.FunctionType
    """The kernel, as the interpreter runs it."""
    grid: tuple[int, int, int] = (1, 1, 1)
    program: tuple[int, int, int] | None = None
    """The program that runs; None before the first."""
    arguments: dict[int, Argument] = field(default_factory=dict)
    """By ``id`` of the tensor that the interpreter computes on."""
    constants: dict[str, object] = field(default_factory=dict)
    """The ``constexpr`` parameters."""

    @property
    def name(self) -> str:
        """The kernel's."""
        return self.function.__name__

    def argument_at(self, address: int) -> Argument | None:
        """Return the tensor that an address lies in; None for none of the launch's."""
        return next((one for one in self.arguments.values() if one.contains(address)), None)


class Launches(threading.local):
    """Those in progress on the calling thread, the innermost last."""

    def __init__(self) -> None:
        self._running: list[Launch] = []

    @property
    def current(self) -> Launch | None:
        """The innermost; None when no kernel runs."""
        return self._running[-1] if self._running else None

    @contextlib.contextmanager
    def running(self, launch: Launch) -> Iterator[None]:
        """Have it be the innermost, inside."""
        self._running.append(launch)
        try:
            yield
        finally:
            self._running.remove(launch)


LAUNCHES = Launches()


def text_of_index(index: tuple[int, ...]) -> str:
    """Return a program's id, or the size of a grid: ``(3, 0, 0)``."""
    return f"({', '.join(map(str, index))})"


def launch_in(frame: types.FrameType | None) -> Launch | None:
    """Return the launch that ``frame`` is of, as the kernel or something that it called; None for other frames."""
    launch = LAUNCHES.current
    if launch is None:
        return None
    code = launch.function.__code__
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return None if frame is None else launch
