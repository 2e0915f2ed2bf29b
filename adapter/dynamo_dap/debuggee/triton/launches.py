"""Launches of kernels in Triton's interpreter: their grid, the program that runs, the tensors that they were given.

A launch lives from the call of a kernel to its return, on the thread that makes it; a kernel that runs another one has
two. Which launch a frame is of is also asked on other threads, while the one of the frame is held. Nothing here imports
Triton or torch.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from dynamo_dap.debuggee.wrapping.weak_collections import WeakKeyDictionary

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


class Memory(Protocol):
    """The memory of the copies that a launch runs on."""

    def within(self, what: str, pointers: Any, lanes: Any) -> Any:
        """Return which of the ``lanes`` (None: all) of an access point into it: ``lanes`` itself where all do.

        Raises:
            OutsideOfCopies: some do not, and the operation ``what`` has no mask.
        """


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
    number: int = 0
    """Of the program's launches of this kernel, counted from 1; 0 for one that is not the program's."""
    memory: Memory | None = None
    """What a launch on copies may access; None for one on the tensors themselves."""
    rounds_products: bool = False
    """Whether it multiplies float32 by ``tl.dot`` in TF32, Triton's default: a device rounds to ten bits there."""

    @property
    def name(self) -> str:
        """The kernel's."""
        return self.function.__name__

    def argument_at(self, address: int) -> Argument | None:
        """Return the tensor that an address lies in; None for none of the launch's."""
        return next((one for one in self.arguments.values() if one.contains(address)), None)


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.running: list[Launch] = []


class Launches:
    """Those in progress."""

    def __init__(self) -> None:
        self._of_thread = _OfThread()
        self._by_frame: dict[int, Launch] = {}
        """By ``id`` of the frame that makes the launch, which lives as long."""
        self._counts: WeakKeyDictionary[types.FunctionType, int] = WeakKeyDictionary()

    @property
    def current(self) -> Launch | None:
        """The innermost on the calling thread; None if no kernel runs there."""
        running = self._of_thread.running
        return running[-1] if running else None

    @contextlib.contextmanager
    def running(self, launch: Launch, frame: int, is_programs: bool) -> Iterator[None]:
        """Have it be the innermost inside.

        ``frame`` is the ``id`` of the frame that makes it; ``is_programs`` is false where an expression of a stop does.
        """
        if is_programs:
            launch.number = self._counts[launch.function] = self._counts.get(launch.function, 0) + 1
        of_thread = self._of_thread.running
        of_thread.append(launch)
        self._by_frame[frame] = launch
        try:
            yield
        finally:
            del self._by_frame[frame]
            of_thread.remove(launch)

    def made_by(self, frame: types.FrameType) -> Launch | None:
        """Return the launch that a frame makes."""
        return self._by_frame.get(id(frame))

    @property
    def are_any(self) -> bool:
        """Whether a kernel runs on some thread."""
        return bool(self._by_frame)


LAUNCHES = Launches()


def text_of_index(index: tuple[int, ...]) -> str:
    """Return a program's id, or the size of a grid: ``(3, 0, 0)``."""
    return f"({', '.join(map(str, index))})"


def launch_in(frame: types.FrameType | None) -> tuple[Launch, types.FrameType | None] | None:
    """Return the launch that ``frame`` is of, as the kernel or something that it called, and the frame that called it.

    None for other frames. On any thread, while that of the frame is held.
    """
    if not LAUNCHES.are_any:
        return None
    codes = set()
    while frame is not None:
        launch = LAUNCHES.made_by(frame)
        if launch is not None:
            return (launch, frame.f_back) if launch.function.__code__ in codes else None
        codes.add(frame.f_code)
        frame = frame.f_back
    return None
