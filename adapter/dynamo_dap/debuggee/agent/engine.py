"""Defines the interfaces between the agent and its partners: engines, debugpy, readers of compiles, the process.

Compile-time and run-time mode have one engine each. An engine's ``update_hooks`` installs the hooks that breakpoints,
steps and pause requests need, and removes all its other hooks. debugpy, the debugger of ordinary Python, shares the
program's threads with the agent. Each of the two stops some threads, and both may have a step in progress on the same
thread.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import msgspec

from dynamo_dap.debuggee.agent.breakpoints import BreakpointTable, FunctionEntry, LineBreakpoint
from dynamo_dap.debuggee.agent.deciding import Reached
from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.debuggee.agent.stepping import Step, Steps, Stop
from dynamo_dap.debuggee.values.model import VirtualSource
from dynamo_dap.protocol.requests.cache_entries import EntriesBody
from dynamo_dap.protocol.requests.comparisons import ComparisonBody
from dynamo_dap.protocol.requests.contract import ErrorId, PatchArguments, PatchBody, UnpatchArguments, UnpatchBody
from dynamo_dap.protocol.requests.options import AgentOptions, CompilingOptions
from dynamo_dap.protocol.requests.saved_calls import RecordCallBody
from dynamo_dap.protocol.wire.types import (
    Breakpoint,
    DisassembleArguments,
    DisassembleResponseBody,
    InstructionBreakpoint,
    Source,
    SourceBreakpoint,
)


class RequestError(Exception):
    """A request cannot be served; the message is for the user."""

    def __init__(self, text: str, *, error_id: ErrorId, message: str = "") -> None:
        """Show ``text`` to the user; ``message`` is DAP's short form for the client, such as ``notStopped``."""
        super().__init__(text)
        self.error_id = error_id
        self.message = message


class Hooks(Protocol):
    """The hooks in torch that one part of the debugger needs during a session."""

    def update_hooks(self) -> None:
        """Install the hooks that the present breakpoints, filters, steps and pause requests need; remove the others.

        The agent calls this after each change of these settings, on any thread: its reader thread, or a held thread
        that resumes. Must be quick and must not touch the debugged program's state.
        """

    def close(self) -> None:
        """Remove every hook: the client has disconnected. ``update_hooks`` may be called again for a later client."""


class Engine(Hooks, Protocol):
    """Debugs one mode: compile-time or run-time."""

    name: str

    def present_frame(self, frame: types.FrameType) -> Frame | None:
        """Return this engine's view of a running Python frame; None if the frame belongs to another engine."""

    def listing_of(self, code: types.CodeType) -> VirtualSource | None:
        """Return the listing of ``code``, if this engine shows code that Dynamo generated. Runs on any thread."""

    def disassemble(self, arguments: DisassembleArguments) -> DisassembleResponseBody | None:
        """Return instructions around an address; None if this engine has no code there. Runs on any thread."""

    def stop_for_breakpoint_call(self, frame: types.FrameType) -> bool:
        """Stop where ``frame`` called ``breakpoint()``, if this engine handles that call; else return False."""


@runtime_checkable
class InstructionEngine(Protocol):
    """An engine that stops at instructions of generated code. Runs on the agent's reader thread."""

    def set_instruction_breakpoints(self, requested: Sequence[InstructionBreakpoint]) -> list[Breakpoint]:
        """Replace all instruction breakpoints; return one answer for each of ``requested``."""

    def set_listing_breakpoints(
        self, virtual: VirtualSource, requested: Sequence[SourceBreakpoint]
    ) -> list[Breakpoint] | None:
        """Replace the breakpoints of the listing ``virtual``; return None if ``virtual`` is not a listing."""

    def show_listings_as(self, form: str) -> None:
        """Show listings in another form, one of ``LISTING_FORMS``."""


class CodePatcher(Protocol):
    """Patches generated code. Runs on the agent's reader thread."""

    def patch(self, arguments: PatchArguments) -> PatchBody:
        """Replace an instruction for later calls. Raises ``RequestError`` if that is impossible."""

    def revert_patches(self, arguments: UnpatchArguments) -> UnpatchBody:
        """Revert patches: later calls run the code as Dynamo generated it.

        Raises ``RequestError`` if nothing was changed.
        """


@runtime_checkable
class ReportingEngine(Protocol):
    """An engine that may report a breakpoint in a trace before ordinary Python reaches its line."""

    def take_reported(self, frame: types.FrameType, *, enters: bool) -> bool:
        """Return whether a trace has reported the breakpoint that ``frame`` now reaches as ordinary Python.

        Each report is returned once, so that the next execution of the line stops again. ``enters``: the breakpoint is
        one on entry of the function. Runs on the frame's thread.
        """

    def functions_traced(self) -> Collection[FunctionKey] | None:
        """Return the functions traced so far in files with breakpoints. None if some may have been missed."""


class NoSuchCompile(Exception):
    """A requested compile or graph does not exist; the message says which."""


class NoSuchEntry(Exception):
    """A function or cache entry does not exist, or cannot be removed now; the message says why."""


class CannotSaveCall(Exception):
    """The call in which a thread is stopped cannot be saved; the message says why."""


class BadOption(Exception):
    """An option has an impossible value; the message says why."""


class CompilingSettings(Protocol):
    """Applies the session's options for compiles, and reverts them at its end."""

    def begin(self, options: CompilingOptions) -> None:
        """Begin with a session's options. Runs on the reader thread."""

    def close(self) -> None:
        """Revert all options at the end of the session. Runs on any thread."""

    def report_unused(self) -> None:
        """Report options that had no effect, just before the program ends."""

    def change(self, name: str, value: msgspec.Raw | None) -> str:
        """Set an option to ``value``, as in launch.json, and return its present value as text.

        If ``value`` is None, only return the present value; if ``name`` is empty, those of all options. Runs on the
        reader thread.

        Raises:
            BadOption: the option does not exist, or the value is invalid; nothing was changed.
        """


class NoCompilingSettings:
    """Stands for the options for compiles in an agent that only serves requests."""

    def begin(self, options: CompilingOptions) -> None:
        """Do nothing: nothing is compiled."""

    def close(self) -> None:
        """Do nothing: nothing was changed."""

    def report_unused(self) -> None:
        """Do nothing: no option was set."""

    def change(self, name: str, value: msgspec.Raw | None) -> str:
        """Raise ``BadOption``: nothing is compiled."""
        raise BadOption("this process compiles nothing")


class CallSaver(Protocol):
    """Saves calls of compiled functions."""

    def save(self, top: types.FrameType, folder: str | None, *, has_data: bool) -> RecordCallBody:
        """Save the call in which this thread is held, found from ``top`` outwards. Raises ``CannotSaveCall``."""


class EntryReader(Protocol):
    """Reads torch's cache entries. Runs on the reader thread, or on a program thread that asks for them."""

    def of_function(self, code: types.CodeType) -> EntriesBody:
        """Return the cache entries of one function and of its resume functions."""

    def body(self, function: str | None = None) -> EntriesBody:
        """Return the cache entries of the functions called ``function``, or of all functions."""

    def forget(self, function_id: int, compile_id: str | None) -> int:
        """Remove the entry of ``compile_id``, or (None) all entries of the function. Return how many were removed.

        Raises:
            NoSuchEntry: the function or entry does not exist, or cannot be removed now.
        """


class GraphBody(Protocol):
    """The body of ``dynamoGraph``, to which the agent adds the source of the code."""

    source: Source | None


class CompileReader(Hooks, Protocol):
    """Reads recorded compiles as bodies of responses. Runs on the reader thread, unless a method says otherwise."""

    def compiles(self) -> dict[str, object]:
        """Return the body of ``dynamoCompiles``."""

    def graph(self, compile_id: str, index: int) -> tuple[GraphBody, VirtualSource]:
        """Return the body of ``dynamoGraph``, and the readable code. Raises ``NoSuchCompile``."""

    def guards(self, compile_id: str) -> object:
        """Return the body of ``dynamoGuards``. Raises ``NoSuchCompile``."""

    def thread_of(self, compile_id: str) -> int | None:
        """Return Python's identifier of the thread that traces a compile.

        None if the compile has ended or does not exist.
        """

    def graph_so_far(self, compile_id: str, index: int) -> tuple[GraphBody, VirtualSource] | None:
        """Return the result of ``graph`` for the trace held on this thread; None if it is not this compile's."""

    def guards_so_far(self, compile_id: str) -> object:
        """Return the result of ``guards`` for the trace held on this thread; None if it is not this compile's."""

    def code_of_graph(self, compile_id: str, function: str) -> str | None:
        """Return the readable code of a compile's graph: empty if it has no graph, None while the graph is unknown."""

    def readable_code(self, name: str, graph: object) -> str:
        """Return the code of a ``torch.fx.Graph``, in the form of ``code_of_graph``. Runs on the tracing thread."""


@dataclass(eq=False)
class WhatIf:
    """A trace in which the user changed something."""

    function: str
    compile_id: str
    changes: tuple[str, ...]
    code: str = ""
    """The readable code of the changed graph."""
    is_over: bool = False
    """Whether the changed trace has ended."""
    kept: bool = False
    """Whether the program's call runs the changed graph."""
    problem: str | None = None


class StageReader(Hooks, Protocol):
    """Reads the stages of explored compiles. Runs on the reader thread."""

    def stages(self, compile_id: str | None, source_of: Callable[[VirtualSource], Source | None]) -> object:
        """Return the body of ``dynamoStages``. Raises ``NoSuchCompile``.

        ``source_of`` returns the DAP source by which the client reads a stage's document.
        """


FunctionKey = tuple[str, int, str]
"""Normalized path, first line and name of a function."""

RAISED, USER_UNHANDLED, UNCAUGHT = "raised", "userUnhandled", "uncaught"
"""debugpy's exception filters."""


class EagerDebugger(Protocol):
    """The debugger of ordinary Python in this process. Runs on the thread concerned, unless a method says otherwise."""

    @property
    def is_active(self) -> bool:
        """Whether this debugger has a session now. Runs on any thread."""

    def wait_until_configured(self) -> None:
        """Block until its client has set its breakpoints or disconnected."""

    def report_uncaught(self, error: BaseException) -> None:
        """Report that ``error`` is about to end the program."""

    @property
    def exception_filters(self) -> frozenset[str]:
        """The exception filters that are on, by DAP's names. Runs on any thread."""

    def stopped_for(self, error: BaseException, filters: frozenset[str]) -> None:
        """Ignore ``filters`` for ``error``: the agent has already stopped where it was raised.

        The filter ``raised`` still stops in each function that the error passes.
        """

    def close(self) -> None:
        """Detach from the program at the end of the session. Runs on any thread; may be called again."""

    def disabled_on_this_thread(self) -> AbstractContextManager[None]:
        """Return a context in which this debugger ignores the calling thread: the agent holds the thread."""

    @property
    def holds_this_thread(self) -> bool:
        """Whether this debugger has stopped the calling thread: what the user evaluates there must not stop again."""

    def resume(self, step: Step | None, stopped: types.FrameType | None = None) -> None:
        """Resume the calling thread, which the agent has held.

        Both debuggers follow a ``step``; the one that reaches the step's end first stops. This debugger follows the
        step in ``stopped``, the frame of ordinary Python that has stopped. If that is None, it follows the step in the
        eager code that called the agent's frames. Without a ``step`` the user chose to continue: cancel the step of
        this debugger.
        """

    def step_into_next_call(self) -> None:
        """Make the step in progress end in the next user function that the calling thread runs as ordinary Python."""

    def stop_at(self, frame: types.FrameType | None) -> None:
        """Stop the calling thread once it is back in ``frame``, which called ``breakpoint()``.

        If ``frame`` is None, stop at the next line where this debugger may stop, as for a pause.
        """

    def functions_seen(self) -> Collection[FunctionKey] | None:
        """Return the functions that ordinary Python has entered. None if some may have been missed."""

    def conditions_met(self) -> Mapping[tuple[str, int], bool]:
        """Return, by path and line of each breakpoint that was reached, whether its condition ever held."""

    def pause_taken(self) -> None:
        """Withdraw the user's pause request: the agent is about to pause the calling thread."""

    def withdraw_pauses(self) -> None:
        """Withdraw every pause request that no thread has answered yet. Runs on the reader thread."""


class NoEagerDebugger:
    """Stands for the debugger of ordinary Python until a session with debugpy begins."""

    is_active = False
    holds_this_thread = False
    exception_filters: frozenset[str] = frozenset()

    def wait_until_configured(self) -> None:
        """Return at once."""

    def report_uncaught(self, error: BaseException) -> None:
        """Do nothing: no debugger is here to report to."""

    def stopped_for(self, error: BaseException, filters: frozenset[str]) -> None:
        """Do nothing: no other debugger stops for the error."""

    def close(self) -> None:
        """Do nothing: there is nothing to end."""

    @contextlib.contextmanager
    def disabled_on_this_thread(self) -> Iterator[None]:
        """Return a context that does nothing."""
        yield

    def resume(self, step: Step | None, stopped: types.FrameType | None = None) -> None:
        """Do nothing: no debugger has a step in progress."""

    def step_into_next_call(self) -> None:
        """Do nothing: no debugger has a step in progress."""

    def stop_at(self, frame: types.FrameType | None) -> None:
        """Do nothing: no debugger stops here."""

    def functions_seen(self) -> None:
        """Return None: nothing is seen."""

    def conditions_met(self) -> Mapping[tuple[str, int], bool]:
        """Return no entries: without a debugger no breakpoint is reached."""
        return {}

    def pause_taken(self) -> None:
        """Do nothing: only the agent was asked to pause."""

    def withdraw_pauses(self) -> None:
        """Do nothing: only the agent was asked to pause."""


class Process(Protocol):
    """The agent's interface to its process. Runs on the reader thread, unless a method says otherwise."""

    def is_hidden(self, thread: threading.Thread) -> bool:
        """Return whether a library started ``thread`` for its own work: users see it only while it is held.

        Runs on any thread.
        """

    def terminate(self) -> None:
        """End the program: the client asks for it."""

    def pause_eager(self, ident: int) -> bool:
        """Pause a thread (Python's identifier) that runs ordinary Python; return False if it cannot be reached."""

    def start_eager(self, options: AgentOptions) -> None:
        """Start the debugger of ordinary Python, as a client requests in its ``attach``."""

    def invite_children(self, options: AgentOptions) -> None:
        """Make child processes request their own sessions, if the client wants that."""

    def interpret_kernels(self, options: AgentOptions) -> None:
        """Run Triton's kernels in its interpreter, if the client wants that."""


class NoProcess:
    """Stands for the process in an agent that only serves requests."""

    def is_hidden(self, thread: threading.Thread) -> bool:
        """Return False: every thread is shown."""
        return False

    def terminate(self) -> None:
        """Do nothing: there is nothing to end."""

    def pause_eager(self, ident: int) -> bool:
        """Return False: nothing runs."""
        return False

    def start_eager(self, options: AgentOptions) -> None:
        """Do nothing: there is nothing to debug."""

    def invite_children(self, options: AgentOptions) -> None:
        """Do nothing: there are no child processes."""

    def interpret_kernels(self, options: AgentOptions) -> None:
        """Do nothing: there are no kernels."""


class Host(Protocol):
    """The agent, as engines see it."""

    options: AgentOptions
    breakpoints: BreakpointTable
    eager_debugger: EagerDebugger
    steps: Steps
    comparison: ComparisonBody | None
    """The newest call in which a compiled graph's result differs from eager."""
    compiles: CompileReader | None
    """Recorded compiles."""
    what_if: WhatIf | None
    """The newest trace in which the user changed something."""

    def what_if_is_over(self) -> None:
        """Report how ``what_if`` and the program's own trace differ. Both have ended."""

    def hold(self, stop: Stop) -> None:
        """Hold the calling thread until the user resumes it, and serve requests on it.

        Ends the step in progress on this thread. If the user resumes the thread by a step, that step is in ``steps`` on
        return. Returns at once if no client is connected or the thread is held already.
        """

    @property
    def is_holding(self) -> bool:
        """Whether the calling thread is held already: code that an evaluation runs must not stop again."""

    def holding(self) -> AbstractContextManager[None]:
        """Return a context that marks the calling thread as held: code that runs inside does not stop."""

    def should_stop(self, breakpoints: list[LineBreakpoint], frame: Callable[[], Frame]) -> list[int]:
        """Return the ids of the reached ``breakpoints`` that stop; count their hits and print their log messages.

        ``frame`` makes the frame in which conditions and log messages are evaluated. It is called only if there are
        any.
        """

    def condition_holds(self, breakpoint: LineBreakpoint, frame: Callable[[], Frame]) -> bool:
        """Return whether the condition of ``breakpoint`` holds in ``frame``; count and log nothing."""

    def passes(self, reached: Iterable[Reached]) -> bool:
        """Return whether a call stops at none of the breakpoints that it reaches; if so, count and log its hits."""

    def count(self, breakpoints: Sequence[LineBreakpoint]) -> bool:
        """Return whether a call stops at none of ``breakpoints``; if so, count its hits.

        For breakpoints without a condition or log message only.
        """

    def python_stack(self, top: types.FrameType | None) -> list[Frame]:
        """Return the frames of running Python code from ``top`` down: ordinary ones, and those of engines."""

    def listing_of(self, code: types.CodeType) -> VirtualSource | None:
        """Return the listing of ``code``, which Dynamo generated; None if no engine has one. Runs on any thread."""

    def breakpoint_changed(self, breakpoint: LineBreakpoint) -> None:
        """Send the client the present state of ``breakpoint``."""

    def function_found(self, entry: FunctionEntry, path: str, line: int) -> None:
        """Bind a function breakpoint to ``line`` of ``path``, where it was reached, unless it is bound already."""

    def print(self, text: str, category: str = "console") -> None:
        """Send ``text`` to the user as an ``output`` event."""
