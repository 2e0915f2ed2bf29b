"""Replays a call of a compiled function for inspection, since a cached call is not traced.

Dynamo interprets the function again with the call's own arguments, and the result is discarded: no guard is built, no
backend is called, nothing enters the cache. Other effects of tracing on the program and on torch are prevented or
reverted: new names in the function's globals, torch's counters and metrics, the numbers that torch puts in names, the
sizes that Dynamo remembers for profile-guided optimization, and this thread's log messages and structured traces.

Runs on the program's thread that makes the call, under Dynamo's compile lock. A replay lives as long as its trace.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import sys
import threading
import traceback
import types
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import is_dynamos_global
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.graphs.dynamic_marks import Mark
from dynamo_dap.debuggee.torch_api.graphs.graph import is_higher_order, target_name
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_tensor
from dynamo_dap.debuggee.torch_api.isolation import COMPILES, dynamo_off, isolated
from dynamo_dap.debuggee.torch_api.objects import GraphModule, Output
from dynamo_dap.debuggee.torch_api.swaps import Swap
from dynamo_dap.debuggee.wrapping.patches import Outcome, Patches
from dynamo_dap.debuggee.wrapping.weak_collections import with_own_callback

_COMPILE_FRAME = "torch._dynamo.convert_frame:compile_frame"
_COMPILING = "_compile_session_context"
_MODES = "torch.utils._python_dispatch:_disable_current_modes"
_FUNCTION_MODES = "torch._dynamo.variables.torch_function:torch_function_mode_stack_state_mgr"
_COMPILE_CONTEXT = "torch._guards:CompileContext"
_COMPILE_ID = "torch._guards:CompileId"
_IN_CONTEXT = "torch._guards:compile_context"
_CODE_STATE = "torch._dynamo.pgo:get_code_state"
_SIZE_ENTRY = "torch._dynamo.pgo:FrameStateSizeEntry"
_DYNAMIC_SIZE = "torch._dynamo.pgo:auto_dynamic"
_UNKNOWN_SIZE = "torch._dynamo.pgo:auto_unset"
_CLEANUPS = "torch._dynamo.utils:CleanupManager"
_COMPILE_GRAPH = "torch._dynamo.output_graph:OutputGraph.compile_subgraph"
_OUTPUT = "torch._dynamo.output_graph:OutputGraph"
_TRACING = "torch._guards:tracing"
_FAKE_MODE = "torch._subclasses.fake_tensor:FakeTensorMode"
_SHAPE_ENV = "torch.fx.experimental.symbolic_shapes:ShapeEnv"
_FLOAT_SOURCE = "torch._dynamo.source:FloatTensorSource"
_CONSTANT_SOURCE = "torch._dynamo.source:ConstantSource"

DYNAMIC_FLOATS = Feature(
    "comparing calls with numbers that vary", _FAKE_MODE, _SHAPE_ENV, _FLOAT_SOURCE, _CONSTANT_SOURCE
)
REPLAYS = Feature(
    "stopping in cached calls",
    _COMPILE_FRAME,
    _MODES,
    _FUNCTION_MODES,
    _COMPILE_CONTEXT,
    _COMPILE_ID,
    _IN_CONTEXT,
    _CODE_STATE,
    _CLEANUPS,
    *COMPILES,
)

SIZE_MEMORY = Feature("the symbols of a cached call's sizes", _SIZE_ENTRY, _DYNAMIC_SIZE, _UNKNOWN_SIZE)
SAVED_TRACES = Feature("stopping in cached calls without tracing them again", _COMPILE_GRAPH, _OUTPUT, _TRACING)

_OWN_COMPILES = itertools.count(1_000_000)
"""Numbers of our own compiles of a frame: torch uses them in names, which must differ from those of real compiles."""


class FrameOfCall(Protocol):
    """The parts of a call's frame that a replay needs; the frame ends with the call."""

    @property
    def f_globals(self) -> dict[str, object]:
        """The globals of its module."""

    @property
    def f_builtins(self) -> dict[str, object]:
        """Its builtins."""

    @property
    def f_back(self) -> types.FrameType | None:
        """The frame's caller, or the frame of the code that inspects the call."""


@dataclass(frozen=True)
class NoFrame:
    """Replaces the frame of a call that has none yet, or has returned."""

    f_globals: dict[str, object]
    f_builtins: dict[str, object]
    f_back: types.FrameType | None = None


class ValuesInBackward(Protocol):
    """The values of a call in its backward pass, by the names of its graph's nodes."""

    def input_of(self, name: str) -> object:
        """Return the input of a placeholder. Raises ``NoRealValue``."""

    def gradient_of(self, name: str, at: str) -> object:
        """Return the gradient of a node's tensor, for the contents of the tensor right after the node ``at``.

        Return None if the outputs do not depend on the node. Raises ``NoRealValue``.
        """


@dataclass(frozen=True, eq=False)
class CachedCall:
    """A call to replay: a cache hit that is about to begin, or a call that ended or is being compiled."""

    code: types.CodeType
    """The compiled code: the user's function, or a resume function as Dynamo wrote it."""
    frame: FrameOfCall
    """Runs the generated code; it has not begun its first instruction."""
    arguments: Mapping[str, object]
    """The locals of ``frame``, captured variables included."""
    closure: tuple[types.CellType, ...]
    compile_id: str
    backend: Any
    """The cache entry's backend, for its name."""
    number: int | None
    """Which call of the function it is, counted from 1; None if earlier calls were not counted."""
    in_backward: ValuesInBackward | None = None
    """Its values in the backward pass, if the call has ended and is inspected there."""
    memory: Mapping[object, Any] = field(default_factory=dict)
    """Earlier contents of tensors that were changed since the call began, by ``storage_of``."""
    marks: tuple[Mark, ...] = ()
    """The marks of dynamic sizes that the call's graph has left on its inputs."""
    forgets_sizes: bool = False
    """Whether the replay ignores the sizes that Dynamo remembers: every size is a constant, as in a first compile."""
    changes: tuple[str, ...] = ()
    """The debugger's changes in this trace, as readable text."""
    is_compiled_now: bool = False
    """Whether this call is being compiled: its compile waits during the replay."""


@dataclass(eq=False)
class MadeCode:
    """The code that Dynamo generates in a replay, if the caller keeps it."""

    is_wanted: Callable[[], bool]
    """Called before the replay's graph is compiled, and again when the code has been generated."""
    code: types.CodeType | None = None
    cleanups: list[Any] = field(default_factory=list)
    """Torch's hooks that remove the code's names from globals when the code is dropped."""


_thread = threading.local()


class Replay(Protocol):
    """A replay and its purpose: a ``TraceRun`` of ``trace.runs``."""

    call: CachedCall


def current_replay() -> Replay | None:
    """Return the calling thread's replay; None if it replays no call."""
    replay: Replay | None = getattr(_thread, "replay", None)
    return replay


def replayed_call() -> CachedCall | None:
    """Return the call that the calling thread replays."""
    replay = current_replay()
    return None if replay is None else replay.call


@contextlib.contextmanager
def replaying(replay: Replay) -> Iterator[None]:
    """Make ``replay`` the replay of this thread."""
    before, _thread.replay = current_replay(), replay
    try:
        yield
    finally:
        _thread.replay = before


def begins_replay(frame: types.FrameType) -> bool:
    """Return whether a Python frame runs ``run_replay``, in which each replay begins."""
    return frame.f_code is run_replay.__code__


class TraceIsOver(BaseException):
    """Ends a replay early."""

    def __init__(self, output: Any) -> None:
        """Take the trace's ``output`` (torch's ``OutputGraph``)."""
        super().__init__()
        self.output = output
        self.complete: CompleteTrace | None = None
        """The complete trace, if the replay reached its end."""


@dataclass(frozen=True)
class CompleteTrace:
    """A trace that has ended, before code generation."""

    output: Any
    """Torch's ``OutputGraph``."""
    globals: Mapping[str, object]
    """The objects that Dynamo added to the function's globals."""


def run_replay(
    replay: Replay,
    on_graph: Callable[[Any], None] = lambda graph: None,
    *,
    keep: bool = False,
    made_code: MadeCode | None = None,
    one_graph: bool = False,
) -> CompleteTrace | None:
    """Trace the call of ``replay`` from its arguments. Hooks of Dynamo's interpreter see the trace like any other.

    The trace may end early: see ``TraceIsOver``. ``on_graph`` gets the finished ``torch.fx.Graph``. With ``keep`` the
    trace ends where Dynamo would generate code, and is returned; the caller must ``clear`` it. Without ``keep``, or if
    the trace ends earlier, return None. ``made_code`` receives the generated code. With ``one_graph`` a graph break is
    an error.

    Raises:
        FeatureMissing: this torch lacks a name that replays need.
        Exception: Dynamo cannot trace the call.
    """
    compile_frame, call = REPLAYS.resolve(_COMPILE_FRAME), replay.call
    names = {*call.code.co_varnames, *call.code.co_freevars, *call.code.co_cellvars}
    with _isolated_compile(replay, made_code), _ending_complete(replay) if keep else contextlib.nullcontext():
        try:
            made = compile_frame(
                call.code,
                call.frame.f_globals,
                {name: value for name, value in call.arguments.items() if name in names},
                call.frame.f_builtins,
                call.closure,
                _ReplayBackend(call.backend, on_graph, made_code),
                one_graph=one_graph,
                restart_reasons=set(),
                frame_state={},
            )
        except TraceIsOver as end:
            output, end.output = end.output, None
            # An exception and its frames form reference cycles, which would keep the program's objects alive.
            traceback.clear_frames(end.__traceback__)
            if end.complete is not None:
                return end.complete
            drop_references(output)
        except Exception as problem:
            drop_references(_output_of(getattr(problem, "_torch_dynamo_tracer_output", None)))
            raise
        else:
            output = _output_of(getattr(made, "tracer_output", None))
            if made_code is not None and made_code.is_wanted():
                made_code.code, made_code.cleanups = made.bytecode, list(output.cleanups)
            drop_references(output)
    return None


@contextlib.contextmanager
def _ending_complete(replay: Replay) -> Iterator[None]:
    """End this thread's trace where the graph would be compiled. Other threads wait for the compile lock."""
    if SAVED_TRACES.problem is not None:
        yield
        return

    def end_here(output: Output, *_: object, **__: object) -> Generator[None, Outcome, None]:
        if current_replay() is not replay:  # a trace with changes, inside this one
            yield None
            return
        # Dynamo would clear the trace when the exception leaves its interpreter.
        output.cleanup = _nothing
        end, names = TraceIsOver(output), output.global_scope
        end.complete = CompleteTrace(output, {name: names[name] for name in output.installed_globals if name in names})
        _use_own_memos(getattr(output.tracing_context, "fake_mode", None))
        raise end

    with _keeping.meanwhile(SAVED_TRACES.resolve(_OUTPUT), "compile_subgraph", end_here):
        yield


_keeping = Patches(SAVED_TRACES.name)


def _nothing() -> None:
    """Do nothing."""


def clear(output: Any) -> None:
    """Drop everything that a saved trace holds (``run_replay``)."""
    drop_references(output)
    output.__dict__.pop("cleanup", None)
    output.cleanup()


@contextlib.contextmanager
def finding_objects() -> Iterator[None]:
    """Let the caller evaluate sources: calls in them are not compiled, and the program's modes are off."""
    with dynamo_off(), REPLAYS.resolve(_MODES)():
        yield


@contextlib.contextmanager
def inspecting(replay: Replay, output: Output) -> Iterator[None]:
    """Make ``output``, the ended trace of ``replay``, the current trace of this thread."""
    with isolated(modes=True) as stack:
        stack.enter_context(replaying(replay))
        identity = REPLAYS.resolve(_COMPILE_ID)(frame_id=_frame_id(replay.call), frame_compile_id=0)
        stack.enter_context(REPLAYS.resolve(_IN_CONTEXT)(REPLAYS.resolve(_COMPILE_CONTEXT)(identity)))
        stack.enter_context(SAVED_TRACES.resolve(_TRACING)(output.tracing_context))
        yield


def _frame_id(call: CachedCall) -> int:
    """Return torch's number of the function; 0 if its compile's id is unknown."""
    number = call.compile_id.rpartition("!")[2].partition("/")[0]
    return int(number) if number.isdecimal() else 0


def _output_of(traced: object) -> Any:
    return getattr(traced, "output_graph_for_cleanup", None) or getattr(traced, "output_graph", None)


def drop_references(output: Output) -> None:
    """Drop references to the program's objects, as torch does at the end of a compile.

    Otherwise the objects would live until a later garbage collection. While weak references to a tensor exist, the
    program cannot exchange it (``torch.utils.swap_tensors``).
    """
    context = getattr(output, "tracing_context", None)
    if context is None:
        return
    guards = context.guards_context.dynamo_guards
    # In torch 2.11 only the inner set has ``clear``.
    getattr(guards, "clear", guards.inner.clear)()
    forget_tensors(context)
    # Torch makes a second fake mode for the backend, and keeps that of the trace as ``_old_fake_mode``.
    for fake_mode in (context.fake_mode, getattr(output, "_old_fake_mode", None)):
        _use_own_memos(fake_mode)


def forget_tensors(context: Any) -> None:
    """Drop the weak references of a ``TracingContext`` to the program's tensors."""
    context.tensor_to_context.clear()
    clear = getattr(sys.modules["torch._dynamo.convert_frame"], "_clear_fake_mode_weakrefs", None)
    if clear is not None:
        clear(context.fake_mode)


def _use_own_memos(fake_mode: object) -> None:
    """Replace the weak dictionaries of fake tensors by ours, whose callbacks Dynamo does not count as frames.

    A fake tensor is part of a reference cycle, so the garbage collector may find it while a compiled function runs. The
    callback of Python's own dictionary then runs, and Dynamo counts it as a frame of the program.
    """
    converter = getattr(getattr(fake_mode, "fake_tensor_converter", None), "meta_converter", None)
    for name in ("storage_memo", "tensor_memo"):
        own = with_own_callback(getattr(converter, name, None))
        if own is not None:
            setattr(converter, name, own)


class _ReplayBackend:
    """The backend of a replay. It does not compile the graph, unless ``made_code`` is wanted."""

    def __init__(self, backend: Any, on_graph: Callable[[object], None], made_code: MadeCode | None) -> None:
        self._torchdynamo_orig_backend = backend
        self._on_graph = on_graph
        self._made_code = made_code

    def __call__(self, graph: Any, inputs: object) -> object:
        self._on_graph(graph.graph)
        if self._made_code is not None and self._made_code.is_wanted():
            return self._torchdynamo_orig_backend(graph, inputs)
        return graph.forward


@contextlib.contextmanager
def _isolated_compile(replay: Replay, made_code: MadeCode | None = None) -> Iterator[None]:
    call = replay.call
    identity = REPLAYS.resolve(_COMPILE_ID)(frame_id=_frame_id(call), frame_compile_id=next(_OWN_COMPILES))
    with isolated(
        modes=True, compiles=True, keeps_numbers=lambda: made_code is not None and made_code.code is not None
    ) as stack:
        stack.enter_context(replaying(replay))
        stack.enter_context(_own_memory_of_sizes(call))
        stack.enter_context(_without_own_marks(call))
        stack.enter_context(_restored_globals(call.frame.f_globals, made_code))
        stack.enter_context(REPLAYS.resolve(_IN_CONTEXT)(REPLAYS.resolve(_COMPILE_CONTEXT)(identity)))
        stack.enter_context(REPLAYS.resolve(_FUNCTION_MODES))
        yield


@contextlib.contextmanager
def compiling_in_isolation() -> Iterator[None]:
    """Compile a graph only for inspection: its effects on statistics, random numbers and logs are reverted."""
    with isolated(modes=True, gradients=True, compiles=True):
        yield


_NEEDS_SYMBOLS = "DynamicOutputShapeException"
"""The name of torch's exception for a result whose size depends on data."""


def compile_by(backend: Callable[..., Any], graph: GraphModule, inputs: Sequence[object]) -> Callable[..., Any]:
    """Compile a graph with ``backend``, while ``torch.compiler.is_compiling()`` is true, as in Dynamo.

    Raises:
        Exception: whatever the backend raises.
    """
    has_floats = _has_dynamic_floats(graph)
    if (has_floats or _has_loop(graph)) and DYNAMIC_FLOATS.problem is None:
        inputs = _with_symbols(inputs, has_floats=has_floats)
    compiling = getattr(sys.modules["torch"].compiler, _COMPILING, contextlib.nullcontext)
    again = _copied(graph)
    _copy_bodies(graph)
    compiled: Callable[..., object]
    with compiling():
        try:
            compiled = backend(graph, inputs)
        except Exception as problem:
            if type(problem).__name__ != _NEEDS_SYMBOLS or DYNAMIC_FLOATS.problem is not None:
                raise
            compiled = backend(again, _with_symbols(inputs, has_floats=False))
        return compiled


def _copied(graph: GraphModule) -> object:
    torch = sys.modules["torch"]
    own = torch.fx.Graph()
    own.output(own.graph_copy(graph.graph, {}))
    copy = torch.fx.GraphModule(graph, own)
    copy.meta.update(graph.meta)
    _copy_bodies(copy)
    return copy


def _copy_bodies(graph: GraphModule) -> None:
    """Replace the bodies of a graph's higher-order operators by copies, which a backend may change."""
    torch = sys.modules["torch"]
    for name in {node.target for node in graph.graph.nodes if node.op == "get_attr"}:
        body = getattr(graph, name, None)
        if isinstance(body, torch.fx.GraphModule):
            setattr(graph, name, _copied(body))


def _has_dynamic_floats(graph: GraphModule) -> bool:
    """Return whether the graph reads a number from a tensor without dimensions, Dynamo's input for a varying float."""
    return any(
        node.op == "call_method" and node.target == "item" and getattr(node.args[0], "op", None) == "placeholder"
        for node in graph.graph.nodes
    )


def _has_loop(graph: GraphModule) -> bool:
    """Return whether a graph has a ``torch.while_loop``, which AOTAutograd traces only with symbols."""
    return any(is_higher_order(node) and target_name(node).endswith("while_loop") for node in graph.graph.nodes)


def _with_symbols(inputs: Sequence[object], *, has_floats: bool) -> list[object]:
    """Return fake inputs in a mode that can make symbols.

    With ``has_floats``, each tensor without dimensions gets a symbol: without one, AOTAutograd cannot trace ``item()``.
    """
    mode = DYNAMIC_FLOATS.resolve(_FAKE_MODE)(
        shape_env=DYNAMIC_FLOATS.resolve(_SHAPE_ENV)(), allow_non_fake_inputs=True
    )
    floats, constants = DYNAMIC_FLOATS.resolve(_FLOAT_SOURCE), DYNAMIC_FLOATS.resolve(_CONSTANT_SOURCE)
    return [
        mode.from_tensor(
            each,
            static_shapes=True,
            source=floats(constants(f"input_{at}")) if has_floats and each.dim() == 0 else None,
        )
        if is_tensor(each)
        else each
        for at, each in enumerate(inputs)
    ]


@contextlib.contextmanager
def _restored_globals(names: dict[str, object], made_code: MadeCode | None) -> Iterator[None]:
    """Remove what Dynamo adds to the function's globals, but nothing that other threads add."""
    before = set(names)
    cleanups = REPLAYS.resolve(_CLEANUPS)
    count = cleanups.count
    try:
        yield
    finally:
        if made_code is None or made_code.code is None:
            cleanups.count = count
            for name in [name for name in list(names) if name not in before and is_dynamos_global(name)]:
                names.pop(name, None)


@contextlib.contextmanager
def _without_own_marks(call: CachedCall) -> Iterator[None]:
    with Swap() as swap:
        for tensor, name, before in call.marks:
            swap.set(tensor, name, set(before))
        yield


@contextlib.contextmanager
def _own_memory_of_sizes(call: CachedCall) -> Iterator[None]:
    pgo = sys.modules["torch._dynamo.pgo"]
    own = copy.deepcopy(pgo._CODE_STATE)
    if call.forgets_sizes and own is not None:
        own.clear()
    elif own is not None and not call.is_compiled_now and SIZE_MEMORY.problem is None:
        for state in own.values():
            for entry in state.automatic_dynamic.values():
                _forget_constants(entry)
    with Swap() as swap:
        swap.set(pgo, "_CODE_STATE", own)
        yield


def _forget_constants(entry: Any) -> None:
    """Forget the sizes that a compile has noted, but not that a size is dynamic.

    Otherwise the replay of a call with other sizes would make them dynamic for another reason than the compile did:
    with ``dynamic=True``, equal sizes would get symbols of their own.
    """
    dynamic, unset = SIZE_MEMORY.resolve(_DYNAMIC_SIZE), SIZE_MEMORY.resolve(_UNKNOWN_SIZE)
    if entry.scalar is not dynamic:
        entry.scalar = unset
    for name in ("size", "stride"):
        sizes = getattr(entry, name)
        if isinstance(sizes, tuple):
            kept = tuple(each if each is dynamic else unset for each in sizes)
            setattr(entry, name, kept if dynamic in kept else unset)
