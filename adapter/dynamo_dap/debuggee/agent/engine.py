"""Defines the interfaces between the agent and its partners: engines, other debuggers, the process.

Each of the two modes has an engine. In ``update_hooks`` it installs the hooks that the agent's breakpoints, steps and
pause requests need, and removes all others. The debugger of ordinary Python shares the program's threads with the
agent: each stops some of them, and both may have a step in progress on the same one.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from dynamo_dap.debuggee.agent.breakpoints import BreakpointTable, FunctionEntry, LineBreakpoint
from dynamo_dap.debuggee.agent.deciding import Reached
from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.debuggee.agent.stepping import Step, Steps, Stop
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall
from dynamo_dap.debuggee.values.model import VirtualSource
from dynamo_dap.protocol.cache_entries import EntriesBody
from dynamo_dap.protocol.comparisons import ComparisonBody
from dynamo_dap.protocol.contract import ErrorId, PatchArguments, PatchBody, UnpatchArguments, UnpatchBody
from dynamo_dap.protocol.options import AgentOptions
from dynamo_dap.protocol.saved_calls import RecordCallBody
from dynamo_dap.protocol.types import (
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
        """Use DAP's short form as ``message``, such as ``notStopped``."""
        super().__init__(text)
        self.error_id = error_id
        self.message = message


class Hooks(Protocol):
    """Hooks in Dynamo for a session."""

    def update_hooks(self) -> None:
        """Install or remove hooks for the present breakpoints, filters, steps and pause requests.

        Called on any thread (the agent's reader, or a held thread that resumes) after each change of these. Must be
        quick and must not touch the debugged program's state.
        """

    def close(self) -> None:
        """Remove every hook: the client has disconnected. A later client may call ``update_hooks`` again."""


class Engine(Hooks, Protocol):
    """One mode of debugging."""

    name: str

    def present_frame(self, frame: types.FrameType) -> Frame | None:
        """Return this engine's view of a running Python frame; None if the frame belongs to another engine."""

    def listing_of(self, code: types.CodeType) -> VirtualSource | None:
        """Return the listing of ``code``, if this engine shows code that Dynamo generated. Runs on any thread."""

    def disassemble(self, arguments: DisassembleArguments) -> DisassembleResponseBody | None:
        """Return instructions around an address; None if it is not of this engine's code. Runs on any thread."""

    def stop_for_breakpoint_call(self, frame: types.FrameType) -> bool:
        """Stop where ``frame`` called ``breakpoint()``, if this engine handles that call; else return False."""


@runtime_checkable
class InstructionEngine(Protocol):
    """An engine that stops at instructions of generated code. Runs on the agent's reader thread."""

    def set_instruction_breakpoints(self, requested: Sequence[InstructionBreakpoint]) -> list[Breakpoint]:
        """Replace the breakpoints on addresses; one answer for each."""

    def set_listing_breakpoints(
        self, virtual: VirtualSource, requested: Sequence[SourceBreakpoint]
    ) -> list[Breakpoint] | None:
        """Replace the breakpoints on lines of a listing; None if ``virtual`` is not a listing."""

    def show_listings_as(self, form: str) -> None:
        """Show listings in another form, one of ``LISTING_FORMS``."""


class CodePatcher(Protocol):
    """Patches generated code. Runs on the agent's reader thread."""

    def patch(self, arguments: PatchArguments) -> PatchBody:
        """Replace an instruction for later calls. Raises ``RequestError`` if nothing was changed."""

    def revert_patches(self, arguments: UnpatchArguments) -> UnpatchBody:
        """Revert patches, so that calls run what Dynamo generated. Raises ``RequestError`` if nothing was changed."""


@runtime_checkable
class ReportingEngine(Protocol):
    """An engine that may stop at a line before the line runs as ordinary Python."""

    def take_reported(self, frame: types.FrameType, *, enters: bool) -> bool:
        """Return whether this execution of the line that ``frame`` reaches has stopped already; count it only once.

        ``enters``: it reaches a function breakpoint. Runs on the frame's thread.
        """

    def functions_traced(self) -> Collection[FunctionKey] | None:
        """Return the traced functions in files with breakpoints. None if not all are known."""


class NoSuchCompile(Exception):
    """A requested compile or graph does not exist; the message says which."""


class NoSuchEntry(Exception):
    """A function or cache entry does not exist, or cannot be removed now; the message says why."""


class CannotSaveCall(Exception):
    """The call in which a thread is stopped cannot be saved; the message says why."""


class CallSaver(Protocol):
    """Saves calls of compiled functions."""

    def save(self, top: types.FrameType, folder: str | None, *, has_data: bool) -> RecordCallBody:
        """Save the call in which this thread is held, above ``top``. Raises ``CannotSaveCall``."""


class EntryReader(Protocol):
    """Reads torch's cache entries. Runs on the reader thread, or a thread of the program that requests them."""

    def of_function(self, code: types.CodeType) -> EntriesBody:
        """Return the cache entries of one function and of its resume functions."""

    def body(self, function: str | None = None) -> EntriesBody:
        """Return the cache entries of the functions called ``function``, or of all functions."""

    def forget(self, function_id: int, compile_id: str | None) -> int:
        """Forget an entry, or (None) all of a function; return how many. Raises ``NoSuchEntry``."""


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
        """Return Python's identifier of the thread that traces a compile; None if it has ended or does not exist."""

    def graph_so_far(self, compile_id: str, index: int) -> tuple[GraphBody, VirtualSource] | None:
        """Return the body of ``graph`` for the trace held on this thread; None if another thread holds it."""

    def guards_so_far(self, compile_id: str) -> object:
        """Return the body of ``guards`` for the trace held on this thread; None if another thread holds it."""

    def code_of_graph(self, compile_id: str, function: str) -> str | None:
        """Return the readable code of a compile's graph: empty if it has no graph, None while the graph is unknown."""

    def readable_code(self, name: str, graph: object) -> str:
        """Return the readable code of a graph (``torch.fx.Graph``), in the same form. Runs on the tracing thread."""


@dataclass(eq=False)
class WhatIf:
    """A trace in which the user changed something."""

    function: str
    compile_id: str
    changes: tuple[str, ...]
    code: str = ""
    """The code of its graph."""
    is_over: bool = False
    kept: bool = False
    """Whether the program's call runs the changed graph."""
    problem: str | None = None


class StageReader(Hooks, Protocol):
    """Reads the stages of explored compiles. Runs on the reader thread."""

    def stages(self, compile_id: str | None, source_of: Callable[[VirtualSource], Source | None]) -> object:
        """Return the body of ``dynamoStages``; ``source_of`` makes a document readable. Raises ``NoSuchCompile``."""


FunctionKey = tuple[str, int, str]
"""Normalized path, first line and name of a function."""

RAISED, USER_UNHANDLED, UNCAUGHT = "raised", "userUnhandled", "uncaught"
"""debugpy's exception filters."""


class EagerDebugger(Protocol):
    """The debugger of ordinary Python in this process. Runs on the thread concerned, unless a method says otherwise."""

    @property
    def is_active(self) -> bool:
        """Whether it debugs now. Runs on any thread."""

    def wait_until_configured(self) -> None:
        """Block until its client has set its breakpoints or disconnected."""

    def report_uncaught(self, error: BaseException) -> None:
        """Report that ``error`` is about to end the program."""

    @property
    def exception_filters(self) -> frozenset[str]:
        """The exception filters that are on, by DAP's names. Runs on any thread."""

    def stopped_for(self, error: BaseException, filters: frozenset[str]) -> None:
        """Do not stop again for ``error`` by ``filters``: the agent has stopped where it was raised.

        The filter ``raised`` still stops in each function that the error passes.
        """

    def close(self) -> None:
        """Detach from the program at the end of the session. Runs on any thread; may be called again."""

    def disabled_on_this_thread(self) -> AbstractContextManager[None]:
        """Disable it for the calling thread inside this context: the agent holds the thread."""

    @property
    def holds_this_thread(self) -> bool:
        """Return whether it has stopped the calling thread: its evaluations there must not stop again."""

    def resume(self, step: Step | None, stopped: types.FrameType | None = None) -> None:
        """Resume the calling thread after a stop of the agent.

        A ``step`` ends in the debugger that reaches its end first. In this one, that is in the eager code that called
        the agent's frames, or in ``stopped``, a frame of ordinary Python.
        Without a ``step`` the user chose to continue: cancel a step in progress here.
        """

    def step_into_next_call(self) -> None:
        """Make the step in progress end in the next user function that the calling thread runs as ordinary Python."""

    def stop_at(self, frame: types.FrameType | None) -> None:
        """Stop the calling thread once it is back in ``frame``, which called ``breakpoint()``.

        None: at the next line at which it may stop, as for a pause.
        """

    def functions_seen(self) -> Collection[FunctionKey] | None:
        """Return the functions that have begun. None if some may have begun unseen."""

    def conditions_met(self) -> Mapping[tuple[str, int], bool]:
        """Return whether a breakpoint's condition ever held, for each path and line with one that was reached."""

    def pause_taken(self) -> None:
        """Withdraw the user's pause request: the agent is about to pause the calling thread."""

    def withdraw_pauses(self) -> None:
        """Withdraw every pause request that no thread has answered yet. Runs on the reader thread."""


class NoEagerDebugger:
    """Replaces the debugger of ordinary Python until a session with debugpy begins."""

    is_active = False
    holds_this_thread = False
    exception_filters: frozenset[str] = frozenset()

    def wait_until_configured(self) -> None:
        """Return at once."""

    def report_uncaught(self, error: BaseException) -> None:
        """Do nothing: no debugger is here to report to."""

    def stopped_for(self, error: BaseException, filters: frozenset[str]) -> None:
        """Do nothing: no debugger reports it a second time."""

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
        """Return nothing: no breakpoint is reached."""
        return {}

    def pause_taken(self) -> None:
        """Do nothing: only the agent was asked."""

    def withdraw_pauses(self) -> None:
        """Do nothing: only the agent was asked to pause."""


class Process(Protocol):
    """The agent's interface to its process. Runs on the reader thread."""

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
    """Replaces the process of an agent that only serves requests."""

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


class CallFacts(Protocol):
    """Facts that hold for every call of one cache entry."""

    @property
    def lines(self) -> Mapping[str, frozenset[int]]:
        """The lines that a call reaches, by file."""


class CachedCalls(Protocol):
    """Stops in cached calls of compiled functions."""

    def are_wanted(self) -> bool:
        """Return whether any such call may have to stop. Called after each change of breakpoints, on any thread."""

    def may_stop(self, lines: Mapping[str, frozenset[int]], functions: Collection[str]) -> bool:
        """Return whether a breakpoint is on these lines, by file, or on these functions (qualified names)."""

    def prepare(self, code: types.CodeType, *, may_stop: bool) -> None:
        """Prepare for calls of the compiled ``code``: whether they may have to stop has changed. Runs on any thread."""

    def release(self) -> None:
        """Let all of them run without a stop. Runs on any thread."""

    def are_traced(self) -> bool:
        """Return whether such calls stop in a replay (``stop_in``). If not, only ``prepare`` acts on them."""

    def wants_step(self, step: Step) -> bool:
        """Return whether a step in progress may end in such a call."""

    def only_counts(self, code: types.CodeType, known: CallFacts | None) -> bool:
        """Return whether the breakpoints that calls of generated ``code`` reach only count, for any input.

        The answer holds until breakpoints change. ``known`` is as for ``stop_in``.
        """

    def count(self, known: CallFacts) -> bool:
        """Count the call that is about to run; if it has to stop, do nothing and return False.

        Runs on the call's thread, which is not held.
        """

    def stop_in(self, call: CachedCall, known: CallFacts | None) -> CallFacts | None:
        """Stop at the call's breakpoints before it begins; return the facts about the cache entry's calls.

        Return None if the call cannot stop. ``known`` is the result for an earlier call of the same cache entry. Runs
        on the thread that makes the call.
        """

    def are_compiled_wanted(self) -> bool:
        """Return whether newly compiled calls may have to be noted. Runs on any thread."""

    def wants_compiled(self, code: types.CodeType) -> bool:
        """Return whether to note the call that is about to run the generated ``code``. Runs on the call's thread."""

    def note_compiled(self, call: CachedCall) -> CallFacts | None:
        """Note the part of the call before its graph break, without a stop. Returns what ``stop_in`` returns."""

    def has_begun(self, code: types.CodeType) -> bool:
        """Return whether a call of generated ``code`` has begun whose end must be noted. Runs on any thread."""

    def ended(self, frame: types.FrameType) -> None:
        """Note that the call that ``frame`` ran has ended. Runs on the thread that made the call."""


class BackwardCalls(Protocol):
    """Stops in the backward passes of compiled calls."""

    def are_wanted(self) -> bool:
        """Return whether any may have to stop. Called after each change of settings, on any thread."""

    def may_stop(self, lines: Mapping[str, frozenset[int]]) -> bool:
        """Return whether anything is set in the backward pass of a call that runs these lines, by file."""

    def release(self) -> None:
        """Let all of them run without a stop. Runs on any thread."""

    def begins(self, call: CachedCall, known: CallFacts | None) -> CallFacts | None:
        """Note the inputs of a call, before it begins. Runs on the thread that makes the call.

        ``known`` is the result for an earlier call of the same cache entry. Return None if the call cannot stop.
        """

    def computed(self, frame: types.FrameType, outputs: object) -> None:
        """Keep the compiled graph's ``outputs`` in the call that began in ``frame``."""

    def ended(self, frame: types.FrameType) -> None:
        """Note that the call has returned or raised."""


class Host(Protocol):
    """The agent, as engines see it."""

    options: AgentOptions
    breakpoints: BreakpointTable
    eager_debugger: EagerDebugger
    steps: Steps
    comparison: ComparisonBody | None
    """The newest call in which a compiled graph was found to differ."""
    compiles: CompileReader | None
    """Recorded compiles."""
    what_if: WhatIf | None
    """The newest trace in which the user changed something."""

    def what_if_is_over(self) -> None:
        """Report how ``what_if`` and the program's own trace, which have both ended, differ."""

    def hold(self, stop: Stop) -> None:
        """Hold the calling thread until the user resumes it, and serve requests on it.

        Ends the step in progress on this thread. Returns at once if no client is connected. A step that the user began
        is then in ``steps``.
        """

    @property
    def is_holding(self) -> bool:
        """Return whether the calling thread is held already: code that an evaluation runs must not stop again."""

    def holding(self) -> AbstractContextManager[None]:
        """Mark the calling thread as held: code that runs inside does not stop."""

    def should_stop(self, breakpoints: list[LineBreakpoint], frame: Callable[[], Frame]) -> list[int]:
        """Decide on reached breakpoints: conditions, hit counts, log messages.

        ``frame`` makes the frame for evaluating conditions and log messages; called only if there are any. Returns the
        ids of breakpoints that stop, empty for none.
        """

    def condition_holds(self, breakpoint: LineBreakpoint, frame: Callable[[], Frame]) -> bool:
        """Return whether the condition of ``breakpoint`` holds in ``frame``; count and log nothing."""

    def passes(self, reached: Iterable[Reached]) -> bool:
        """Return whether a call that reaches these breakpoints stops at none; then count hits and log messages."""

    def count(self, breakpoints: Sequence[LineBreakpoint]) -> bool:
        """Return whether a call stops at none of ``breakpoints``, which evaluate nothing; then count hits."""

    def python_stack(self, top: types.FrameType | None) -> list[Frame]:
        """Return the frames of running Python code from ``top`` down: ordinary ones, and those of engines."""

    def listing_of(self, code: types.CodeType) -> VirtualSource | None:
        """Return the listing of ``code``, which Dynamo generated; None if no engine has one. Runs on any thread."""

    def breakpoint_changed(self, breakpoint: LineBreakpoint) -> None:
        """Send the client the present state of ``breakpoint``."""

    def function_found(self, entry: FunctionEntry, path: str, line: int) -> None:
        """Bind a function breakpoint that was reached at ``line`` of ``path``, unless it is bound."""

    def print(self, text: str, category: str = "console") -> None:
        """Send ``text`` to the user as an ``output`` event."""
