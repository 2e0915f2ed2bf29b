"""The interfaces between the agent and its engines: what each may call on the other.

Each of the two modes has an engine. In ``arm`` it looks at the agent's breakpoints, steps and pause requests, and
installs the hooks that these need; it removes every hook that nothing needs any more.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from dynamo_dap.debuggee.agent.breakpoints import BreakpointTable, FunctionEntry, LineBreakpoint
from dynamo_dap.debuggee.agent.eager_debugger import EagerDebugger
from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.debuggee.agent.stepping import Step, Stop
from dynamo_dap.debuggee.values.model import VirtualSource
from dynamo_dap.protocol.options import AgentOptions
from dynamo_dap.protocol.types import DisassembleArguments, DisassembleResponseBody


class Engine(Protocol):
    """One mode of debugging."""

    name: str

    def arm(self) -> None:
        """Install or remove hooks, according to what is armed now.

        Called on any thread (the agent's reader, or a held thread that resumes) whenever breakpoints, exception
        filters, steps or pause requests changed. Must be quick and must not touch the debugged program's state.
        """

    def close(self) -> None:
        """Take every hook out: the client is gone. ``arm`` may be called again by a later client."""

    def present_frame(self, frame: types.FrameType) -> Frame | None:
        """Return how this engine shows a running Python frame that is its own; None for any other frame."""

    def listing_of(self, code: types.CodeType) -> VirtualSource | None:
        """Return the listing of ``code``, if this engine shows code that Dynamo generated. Any thread."""

    def disassemble(self, arguments: DisassembleArguments) -> DisassembleResponseBody | None:
        """Return instructions around an address; None when the address is not of this engine's code. Any thread."""

    def stop_for_breakpoint_call(self, frame: types.FrameType) -> bool:
        """Stop where ``frame`` called ``breakpoint()``, if that call is of this engine's kind; else return False."""


class Host(Protocol):
    """The agent, as engines see it."""

    options: AgentOptions
    breakpoints: BreakpointTable
    eager_debugger: EagerDebugger

    def hold(self, stop: Stop) -> None:
        """Hold the calling thread until the user goes on, serving requests on it.

        Ends the step in progress on this thread. Returns at once when no client is connected. A step that the user
        began is then in ``current_step``.
        """

    @property
    def is_holding(self) -> bool:
        """Whether the calling thread is held already: code that an evaluation runs must not stop again."""

    def holding(self) -> AbstractContextManager[None]:
        """Mark the calling thread as held: code that runs inside does not stop."""

    def current_step(self) -> Step | None:
        """The step in progress on the calling thread."""

    @property
    def has_steps(self) -> bool:
        """Whether any thread has a step in progress: an engine then keeps the hooks that steps need."""

    def finish_step(self) -> None:
        """Drop the step in progress on the calling thread (it ran off the end of everything)."""

    def take_pause_request(self) -> bool:
        """Whether the user asked to pause the calling thread; asking takes the request."""

    @property
    def has_pause_requests(self) -> bool:
        """Whether some thread is asked to pause."""

    def should_stop(self, breakpoints: list[LineBreakpoint], frame: Callable[[], Frame]) -> list[int]:
        """Decide on breakpoints that were reached: conditions, hit counts, log messages.

        ``frame`` makes the frame in which conditions and log messages are evaluated; called only when there are any.
        Returns the ids of those that stop, empty for none.
        """

    def python_stack(self, top: types.FrameType | None) -> list[Frame]:
        """Return the frames of running Python code from ``top`` down: ordinary ones, and those an engine presents."""

    def listing_of(self, code: types.CodeType) -> VirtualSource | None:
        """Return the listing of ``code``, which Dynamo generated; None when no engine has one. Any thread."""

    def breakpoint_changed(self, breakpoint: LineBreakpoint) -> None:
        """Tell the client what is known of ``breakpoint`` now."""

    def function_found(self, entry: FunctionEntry, path: str, line: int) -> None:
        """A function breakpoint was reached at ``line`` of ``path``: bind it there, if it was not bound yet."""

    def print(self, text: str, category: str = "console") -> None:
        """Send ``text`` to the user as an ``output`` event."""
