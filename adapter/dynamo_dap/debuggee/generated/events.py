"""Defines the interface to the interpreter's events in generated code, for all versions of Python.

``TraceEvents`` (``sys.settrace``) is for Python 3.11 and older, ``MonitoringEvents`` (``sys.monitoring``) for 3.12 and
newer. All events come on the thread that runs the code.
"""

from __future__ import annotations

from types import CodeType, FrameType
from typing import Protocol

from dynamo_dap.debuggee.generated.known_code import GeneratedCode


class Sink(Protocol):
    """The receiver of events. No exception of its methods reaches the program, except ``KeyboardInterrupt``."""

    def on_instruction(self, generated: GeneratedCode, frame: FrameType, offset: int) -> None:
        """Handle the instruction at ``offset``, which ``frame`` is about to execute."""

    def needs_no_events(self, generated: GeneratedCode) -> bool:
        """Return whether a frame of ``generated`` needs no events after its first instruction."""

    def on_return(self, generated: GeneratedCode, frame: FrameType, value: object) -> None:
        """Handle ``frame``, which is about to return ``value``."""

    def on_raise(self, generated: GeneratedCode, frame: FrameType, offset: int, exception: BaseException) -> None:
        """Handle ``exception`` of the instruction at ``offset``: raised there, or in a callee."""

    def on_unwind(self, generated: GeneratedCode, frame: FrameType) -> None:
        """Handle ``frame``, which ends by an exception. On Python 3.12 and newer only while raises are wanted."""


class Source(Protocol):
    """A source of events."""

    problem: str | None
    """Why there are no events, for the user; None if there are."""

    def about_to_run(self, generated: GeneratedCode, code: CodeType) -> None:
        """Report the events of the frame of ``code`` that begins now on this thread."""

    def watch(self, generated: GeneratedCode, code: CodeType) -> None:
        """Report the events of all frames of ``code``, if this source can. Runs on any thread."""

    def watch_running(self, generated: GeneratedCode, frame: FrameType) -> None:
        """Report the events of ``frame``, which is on this thread's stack already."""

    def passes(self, generated: GeneratedCode, code: CodeType) -> None:
        """Report no events of a call that runs ``code`` and needs none."""

    def keep_only(self, wanted: set[int]) -> None:
        """Stop reporting generated code whose ``id(code)`` is not in ``wanted``. Runs on any thread."""

    def want_raises(self, wanted: bool) -> None:
        """Choose whether ``on_raise`` and ``on_unwind`` are called. Runs on any thread."""

    def close(self) -> None:
        """Stop all reports and release the interpreter's hooks. Runs on any thread."""
