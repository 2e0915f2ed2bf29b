"""Tracks launches of kernels in Triton's interpreter: their grid, the running program, the tensors.

A launch lives from the call of a kernel to its return, on the thread that makes it; each nested kernel has its own.
Other threads may ask for a frame's launch while the frame's thread is held. Nothing here imports Triton or torch.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from dynamo_dap.debuggee.torch_api.objects import Tensor
from dynamo_dap.debuggee.wrapping.weak_collections import WeakKeyDictionary

MARK = "dynamo_dap_argument"
"""The attribute of a pointer's type with the argument it began as. Pointers computed from it keep the type."""


@dataclass(frozen=True, eq=False)
class Argument:
    """A tensor that a kernel was given."""

    name: str
    """The parameter's name."""
    tensor: Tensor
    address: int
    element_size: int
    extent: int
    """Elements from the first to the last in memory, including gaps between them."""

    @classmethod
    def of(cls, name: str, tensor: Any) -> Argument:
        """Describe a torch tensor."""
        sizes, strides = tuple(tensor.size()), tuple(tensor.stride())
        extent = 0 if 0 in sizes else 1 + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
        return cls(name, tensor, int(tensor.data_ptr()), int(tensor.element_size()), extent)

    def contains(self, address: int) -> bool:
        """Return whether ``address`` is in the tensor's memory, including gaps between elements."""
        return self.address <= address < self.address + self.extent * self.element_size


class Memory(Protocol):
    """The memory of the copies that a launch runs on."""

    def within(self, what: str, pointers: object, lanes: object) -> object:
        """Return which of an access's ``lanes`` (None: all) point into this memory; ``lanes`` itself if all do.

        Raises:
            OutsideOfCopies: some lanes do not, and the operation ``what`` has no mask.
        """


@dataclass(eq=False)
class Launch:
    """One launch of a kernel."""

    function: types.FunctionType
    """The kernel, as the interpreter runs it."""
    grid: tuple[int, int, int] = (1, 1, 1)
    program: tuple[int, int, int] | None = None
    """The running program; None before the first."""
    arguments: dict[int, Argument] = field(default_factory=dict)
    """By ``id`` of the tensor that the interpreter computes on."""
    constants: dict[str, object] = field(default_factory=dict)
    """The ``constexpr`` parameters."""
    number: int = 0
    """Number of this kernel's launch in the program, from 1; 0 if the program did not make it."""
    memory: Memory | None = None
    """What a launch on copies may access; None for a launch on the tensors themselves."""
    rounds_products: bool = False
    """Whether ``tl.dot`` multiplies float32 in TF32, as by default: a device then rounds factors to ten bits."""

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.function.__name__

    def argument_at(self, address: int) -> Argument | None:
        """Return the tensor that contains an address; None if it is not one of the launch's."""
        return next((one for one in self.arguments.values() if one.contains(address)), None)


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.running: list[Launch] = []


class Launches:
    """The launches in progress."""

    def __init__(self) -> None:
        self._of_thread = _OfThread()
        self._by_frame: dict[int, Launch] = {}
        """By ``id`` of the frame that makes the launch, which lives as long as the launch."""
        self._counts: WeakKeyDictionary[types.FunctionType, int] = WeakKeyDictionary()

    @property
    def current(self) -> Launch | None:
        """The innermost launch on the calling thread; None if no kernel runs there."""
        running = self._of_thread.running
        return running[-1] if running else None

    @contextlib.contextmanager
    def running(self, launch: Launch, frame: int, is_programs: bool) -> Iterator[None]:
        """Make ``launch`` the innermost launch inside the context.

        ``frame`` is the ``id`` of the frame that launches; ``is_programs`` is false for an expression at a stop.
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
        """Whether a kernel runs on any thread."""
        return bool(self._by_frame)


LAUNCHES = Launches()


def text_of_index(index: tuple[int, ...]) -> str:
    """Return a program's id, or the size of a grid: ``(3, 0, 0)``."""
    return f"({', '.join(map(str, index))})"


def launch_in(frame: types.FrameType | None) -> tuple[Launch, types.FrameType | None] | None:
    """Return the launch that ``frame`` belongs to, in the kernel or a function it called, and the launching frame.

    Return None for other frames. Runs on any thread, while the frame's thread is held.
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
