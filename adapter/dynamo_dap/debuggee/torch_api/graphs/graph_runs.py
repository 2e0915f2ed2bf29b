"""Runs the nodes of Dynamo's graph, one after another, on the real inputs of a call.

A node that would write to the program's memory writes to a copy, which other tensors of this memory share. Random
numbers are drawn from the state at the beginning of the call. Afterwards random states and torch's modes and switches
are restored. No gradient is recorded. Collectives are not run: the other processes would have to take part. A
``GraphRun`` holds the results of its nodes. Runs on the program's thread that makes the call.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.graphs.graph import is_resize, target_name, written_by
from dynamo_dap.debuggee.torch_api.graphs.operations import COLLECTIVES, LEFT_OUT, is_custom_operator, is_ordinary
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import needed_bytes
from dynamo_dap.debuggee.torch_api.isolation import isolated, random_states
from dynamo_dap.debuggee.torch_api.objects import Node, Tensor
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import (
    flattened,
    guarding_mode,
    storage_of,
    written_arguments,
)
from dynamo_dap.debuggee.torch_api.traced.symbols import hint_of
from dynamo_dap.protocol.texts import named_first_line_of

_MODES = "torch.utils._python_dispatch:_disable_current_modes"
_DISPATCH_MODE = "torch.utils._python_dispatch:TorchDispatchMode"
_TRACING = "torch._guards:tracing"
_TRANSFORMS = "torch._functorch.pyfunctorch:temporarily_clear_interpreter_stack"
_DEPTH = "torch._C._functorch:get_dynamic_layer_stack_depth"
_IS_WRAPPED = "torch._C._functorch:is_functorch_wrapped_tensor"
_UNDO = "torch._C._functorch:pop_dynamic_layer_stack_and_undo_to_depth"
_MAP = "torch.fx.node:map_arg"

REAL_VALUES = Feature(
    "real values of a paused trace", _MODES, _DISPATCH_MODE, _TRACING, _TRANSFORMS, _DEPTH, _IS_WRAPPED, _UNDO, _MAP
)


@dataclass(frozen=True)
class Limits:
    """The limits of computing real values."""

    seconds: float = 10.0
    """The time for one request. The next request continues where this one ended."""
    bytes: int = 4 * 2**30
    """The memory for the results of a call. If they need more, only the requested result is kept."""


class NoRealValue(Exception):
    """A node has no real value; the message says why."""


class _WritesProgramsMemory(Exception):
    """A node is about to write to memory of the program, which must be copied first."""

    def __init__(self, storage: object) -> None:
        super().__init__()
        self.storage = storage


@dataclass(frozen=True)
class Failed:
    """The result of an operation that has raised."""

    reason: str
    problem: str = ""
    """The exception and its first line, if the operation itself raised it."""


class _OverLimit(Exception):
    """The run would hold more bytes than allowed."""


class _Released(Exception):
    """A released result is needed."""


_FREED = object()
"""Replaces a released result."""

Wanted = Callable[[], "frozenset[object] | None"]
"""Returns the nodes whose results must be kept; None for all."""

Ran = Callable[[Node, Mapping[Node, object]], None]
"""Gets each node that has run, and the results so far by node, including its own and its operands'."""


CallOperator = Callable[[Node, Callable[..., object], Sequence[object], Mapping[str, object]], object]
"""Calls a custom operator for a run: gets the node, the operator, positional and keyword operands."""


class RunnableGraph(Protocol):
    """Provides values from outside a graph."""

    def input_of(self, node: Node) -> object:
        """Return the input of the placeholder ``node``.

        Raises:
            NoRealValue: it is unknown; the text says why.
        """

    def attribute(self, target: str) -> Any:
        """Return the module, subgraph or tensor that a node's ``target`` names.

        Raises:
            NoRealValue: it is gone.
        """


@contextlib.contextmanager
def isolated_from_program() -> Iterator[None]:
    """Compute with real tensors in isolation from the program: without its modes, transforms and gradients.

    Random states and global switches are restored after the code inside.
    """
    if getattr(_thread, "is_apart", False):
        with REAL_VALUES.resolve(_MODES)():
            yield
        return
    with isolated(modes=True, transforms=True, gradients=True, resets=True) as stack:
        stack.enter_context(REAL_VALUES.resolve(_TRACING)(None))
        stack.callback(setattr, _thread, "is_apart", False)
        _thread.is_apart = True
        yield


_thread = threading.local()
"""``is_apart``: whether code on this thread is isolated from the program already."""


@contextlib.contextmanager
def evaluating_on_real_values() -> Iterator[None]:
    """Evaluate an expression on real values; the expression may write only to tensors that it made."""
    with isolated_from_program(), guarding_mode():
        yield


def has_own_memory(value: Any) -> TypeGuard[Tensor]:
    """Return whether ``value`` is a plain tensor, whose memory can be copied and read."""
    torch = sys.modules["torch"]
    return is_exactly(value, (torch.Tensor, torch.nn.Parameter)) and value.layout == torch.strided


def with_earlier_memory(value: object, memory: Mapping[object, object]) -> Any:
    """Return a tensor with its contents at the beginning of the call; any other value unchanged.

    If its memory had been released by then, the elements are zeros.
    """
    if not memory or not has_own_memory(value) or storage_of(value) not in memory:
        return value
    torch = sys.modules["torch"]
    kept: Any = memory[storage_of(value)]
    with torch.no_grad():
        if kept.nbytes() < needed_bytes(value):  # ``set_`` would grow the kept memory itself
            return torch.zeros_like(value)
        copy = torch.empty(0, dtype=value.dtype, device=value.device)
        return copy.set_(kept, value.storage_offset(), value.size(), value.stride())


def in_transform() -> bool:
    """Return whether a transform of torch.func is open on this thread: one tensor then represents a batch."""
    return bool(REAL_VALUES.resolve(_DEPTH)() > 0)


class GraphRunner:
    """Computes values of a graph for one call.

    If a node is about to write to memory of the program, copies the memory and runs all nodes again.
    """

    def __init__(
        self,
        graph: RunnableGraph,
        watched: dict[object, bool] | None = None,
        before: Callable[[], GraphRun] | None = None,
        ran: Ran | None = None,
        call_operator: CallOperator | None = None,
    ) -> None:
        """Take a ``graph`` to run.

        ``watched`` has the nodes that are known to write only to copies, and whether each is an ordinary operation. The
        run adds nodes to it. ``before`` returns the run of the graph around this one. ``ran`` gets each node that ran,
        also in repeated runs. ``call_operator`` calls custom operators.
        """
        self._graph = graph
        self._before = before
        self._ran = ran
        self._call_operator = call_operator
        self.copied: set[object] = set()
        """Storages of the program (by identity) that nodes write to."""
        self._watched = {} if watched is None else watched
        self._run: GraphRun | None = None

    def value_of(self, nodes: Sequence[Node], node: Node, limits: Limits, wanted: Wanted) -> object:
        """Run ``nodes`` as far as they have not run yet, and return the result of ``node``.

        ``nodes`` begins with the nodes of the previous request.

        Results that are not ``wanted`` are released after their last use in the graph.

        Raises:
            NoRealValue: there is none; the text says why.
        """
        try:
            self._run_to(nodes, limits, lambda: _with(node, wanted()))
            result = self._result_of(nodes, node, limits)
        except _OverLimit:
            self._run = None
            try:
                self._run_to(nodes, limits, lambda: frozenset([node]))
                result = self._result_of(nodes, node, limits)
            except _OverLimit:
                limit = limits.bytes / 2**20
                raise NoRealValue(f"computing it takes more than {limit:.0f} MiB (realValues.memoryLimit)") from None
            finally:
                self._run = None
        if isinstance(result, Failed):
            raise NoRealValue(result.reason)
        return result

    def close(self) -> None:
        """Release every value."""
        if self._run is not None:
            self._run.close()
        self._run = None

    def run_of(self, nodes: Sequence[Node], limits: Limits, wanted: Wanted) -> GraphRun:
        """Run ``nodes`` as far as they have not run yet, and return their run."""
        self._run_to(nodes, limits, wanted)
        assert self._run is not None, "``_run_to`` sets it"
        return self._run

    def _result_of(self, nodes: Sequence[Node], node: Node, limits: Limits) -> object:
        assert self._run is not None, "``_run_to`` sets it"
        try:
            return self._run.result_of(node)
        except _Released:  # the result was released when the nodes ran
            self._run = None
            self._run_to(nodes, limits, lambda: None)
            return self._result_of(nodes, node, limits)

    def _run_to(self, nodes: Sequence[Node], limits: Limits, wanted: Wanted) -> None:
        deadline = time.monotonic() + limits.seconds
        while True:
            if self._run is None or not self._run.can_continue():
                self._run = GraphRun(
                    self._graph, self.copied, self._watched, limits.bytes, self._ran, self._call_operator
                )
                if self._before is not None:
                    self._run.continue_from(self._before())
            try:
                return self._run.run_missing(nodes, deadline, wanted)
            except _WritesProgramsMemory as problem:
                self.copied.add(problem.storage)
            except _Released:
                wanted = _all
            self._run = None


def _all() -> None:
    """Keep all results."""


def _with(node: object, nodes: frozenset[object] | None) -> frozenset[object] | None:
    return None if nodes is None else nodes | {node}


class GraphRun:
    """Runs nodes in order, and continues with further nodes at the next request."""

    def __init__(
        self,
        graph: RunnableGraph,
        copied: set[object],
        watched: dict[object, bool],
        limit: int,
        ran: Ran | None = None,
        call_operator: CallOperator | None = None,
    ) -> None:
        self._graph = graph
        self._ran_observer = ran
        self._call_operator = call_operator
        self._copied = copied
        self._watched = watched
        self._keep: frozenset[object] | None = None
        self._limit = limit
        self._results: dict[Node, object] = {}
        self._copies: dict[object, object] = {}
        self._of_program: dict[object, object] = {}
        self._holders: dict[object, int] = {}
        """How many results hold each storage; the program's storages are not counted."""
        self._bytes = 0
        self._random: list[Callable[[], None]] = []
        self._entered: list[object] = []
        self._transformed: set[object] = set()
        self._ends_open = False
        self._records = True
        """Whether gradients are recorded inside transforms, as the graph has set it."""

    def close(self) -> None:
        """Release every value, since exceptions may keep this run alive for a while."""
        for values in (self._results, self._copies, self._of_program, self._holders):
            values.clear()
        self._random = []

    def can_continue(self) -> bool:
        """Return whether all nodes that ran are still in the graph, and no mode or transform is open."""
        return not self._ends_open and not any(node._erased for node in self._results)

    def continue_from(self, before: GraphRun) -> None:
        """Begin with the random states that ``before`` has reached.

        Raises:
            NoRealValue: modes or transforms are open there, which cannot be entered again.
        """
        if before._ends_open:
            raise NoRealValue("it is computed in a higher-order operator inside a mode or a transform")
        self._random = before._random

    def run_missing(self, nodes: Sequence[Node], deadline: float, wanted: Wanted) -> None:
        """Run those ``nodes`` that have not run yet."""
        left = [each for each in nodes if each not in self._results]
        if not left:
            return
        self._keep = wanted()
        for each in () if self._keep is None else self._results.keys() - self._keep - self._transformed:
            if all(user in self._results for user in each.users):
                self._release(each)
        with self._state_of_graph():
            for each in left:
                if time.monotonic() > deadline:
                    raise NoRealValue(
                        f"{len(self._results)} of {len(nodes)} operations ran within the time limit; ask again to "
                        f"continue (realValues.timeLimit)"
                    )
                result = self._results[each] = self._result(each)
                if isinstance(result, Failed):
                    self._refuse_memory_of(each, result)
                elif each not in self._watched:
                    self._watched[each] = is_ordinary(each)
                if self._ran_observer is not None:
                    self._ran_observer(each, self._results)
                if self._is_of_transform(result):
                    self._transformed.add(each)
                else:
                    self._hold(each)

    def _refuse_memory_of(self, node: Node, failed: Failed) -> None:
        """Replace by ``failed`` all results in memory that the failed ``node`` should have written: they are stale."""
        operands = [self._results.get(each) for each in written_by(node)]
        stale = {storage_of(each) for each in operands if has_own_memory(each)}
        for other, result in self._results.items() if stale else ():
            if any(has_own_memory(each) and storage_of(each) in stale for each in flattened(result)):
                if other.op in _OPERATIONS:
                    self._count(result, -1)
                self._results[other] = failed

    def result_of(self, node: Node) -> object:
        """Return the present result of a node that has run."""
        if node in self._transformed:
            raise NoRealValue(
                "it is computed inside a transform (torch.func), where a tensor stands for a batch or a derivative"
            )
        if node not in self._results:
            raise NoRealValue("it is computed later in this trace")
        if self._results[node] is _FREED:
            raise _Released
        return self._results[node]

    def as_written(self, value: object) -> object:
        """Return a tensor of the program, with the writes of the nodes to its memory."""
        return with_earlier_memory(value, self._copies)

    @contextlib.contextmanager
    def _state_of_graph(self) -> Iterator[None]:
        torch = sys.modules["torch"]
        depth = REAL_VALUES.resolve(_DEPTH)
        # The graph already contains the operations of an ``__torch_function__`` override.
        with isolated_from_program(), torch._C.DisableTorchFunctionSubclass():
            for restore in self._random:
                restore()
            try:
                yield
            finally:
                self._random = random_states()
                self._ends_open = bool(self._entered) or depth() > 0
                REAL_VALUES.resolve(_UNDO)(0)
                for entered in reversed(self._entered):
                    torch.amp.autocast_mode._exit_autocast(entered)

    def _is_of_transform(self, result: object) -> bool:
        """Return whether a transform, open or closed by now, has wrapped a tensor of this result."""
        torch = sys.modules["torch"]
        is_wrapped = REAL_VALUES.resolve(_IS_WRAPPED)
        return any(isinstance(each, torch.Tensor) and is_wrapped(each) for each in flattened(result))

    def _result(self, node: Node) -> object:
        if not (in_transform() or "_increment_nesting" in target_name(node)):
            return self._result_without_gradients(node)
        # The transform may differentiate the operations inside it.
        with sys.modules["torch"].set_grad_enabled(self._records):
            return self._result_without_gradients(node)

    def _result_without_gradients(self, node: Node) -> object:
        try:
            if node.op == "placeholder":
                return self._input(node)
            if self._watched.get(node):
                args, kwargs = self._operands(node)
                if node.op == "call_function":
                    return node.target(*args, **kwargs)
                return getattr(args[0], node.target)(*args[1:], **kwargs)
            return self._called(node)
        except (_WritesProgramsMemory, _Released):
            raise
        except NoRealValue as problem:
            return Failed(str(problem))
        except Exception as problem:  # noqa: BLE001  (the node's value shows whatever it raises)
            text = named_first_line_of(problem)
            return Failed(f"{target_name(node)} fails with these values: {text}", text)

    def _input(self, node: Node) -> object:
        return self._given(self._graph.input_of(node))

    def _given(self, example: object) -> object:
        """Return an input of the graph, or a copy if nodes write to it."""
        torch = sys.modules["torch"]
        if isinstance(example, torch.SymInt | torch.SymFloat | torch.SymBool):
            return hint_of(example)
        if not isinstance(example, torch.Tensor):
            return example
        storage = storage_of(example)
        if storage not in self._copied:
            self._of_program[storage] = example
            return example
        if storage not in self._copies:
            self._copies[storage] = example.untyped_storage().clone()
        memory = self._copies[storage]
        copy = torch.empty(0, dtype=example.dtype, device=example.device)
        return copy.set_(memory, example.storage_offset(), example.size(), example.stride())

    def _called(self, node: Node) -> object:
        if node.op == "output":
            return self._operands(node)[0][0]
        name = target_name(node)
        _refuse_outside_effects(node, name)
        if name.endswith("_set_grad_enabled"):
            self._records = bool(node.args[0])
        if any(part in name for part in LEFT_OUT):
            return None
        if node.op == "get_attr":
            return self._given(self._graph.attribute(node.target))
        args, kwargs = self._operands(node)
        if name.endswith("register_hook"):  # the hook acts in the backward pass, which is not run
            return args[0]
        if node.op == "call_module":
            module = self._graph.attribute(node.target)
            self._of_program.update((storage_of(each), each) for each in (*module.parameters(), *module.buffers()))
            result = self._ran(node, module, args, kwargs)
        elif node.op == "call_method":
            result = self._ran(node, getattr(args[0], node.target), args[1:], kwargs)
        else:
            result = self._ran(node, node.target, args, kwargs)
        if name.endswith("._enter_autocast"):
            self._entered.append(result)
        elif name.endswith("._exit_autocast"):
            self._entered.remove(args[0])
        return result

    def _operands(self, node: Node) -> tuple[tuple[object, ...], dict[str, object]]:
        def real(operand: Node) -> object:
            result = self._results[operand]
            if isinstance(result, Failed):
                raise NoRealValue(result.reason)
            if result is _FREED:
                raise _Released
            return result

        map_arg = REAL_VALUES.resolve(_MAP)
        return map_arg(node.args, real), map_arg(node.kwargs, real) if node.kwargs else {}

    def _ran(self, node: Node, function: Any, args: Any, kwargs: Any) -> object:
        """Call ``function``, unless it would write to memory of the program."""
        if is_custom_operator(function):
            for each in flattened([args, list(kwargs.values())]):
                if has_own_memory(each):  # whatever the operator declares
                    self._check_written(each)
            if self._call_operator is not None:
                return self._call_operator(node, function, args, kwargs)
        if node in self._watched:
            return function(*args, **kwargs)
        torch = sys.modules["torch"]
        if not isinstance(function, torch._ops.HigherOrderOperator):
            with _watching()(self._check_written):
                return function(*args, **kwargs)
        if "triton_kernel_wrapper" in str(function):  # a kernel may write to all its arguments
            for each in kwargs.get("kwargs", {}).values():
                self._check_written(each)
        return function(*args, **kwargs)  # modes do not see the inside of such an operator

    def _check_written(self, value: object) -> None:
        storage = storage_of(value)
        if storage not in self._of_program:
            return
        if storage in self._copied:
            raise NoRealValue("it writes to memory of the program that cannot be replaced by a copy")
        raise _WritesProgramsMemory(storage)

    def _hold(self, node: Node) -> None:
        """Count the memory of results, and release those without later users, unless all results are kept."""
        self._count(self._results[node], 1)
        if self._keep is not None:
            for operand in node.all_input_nodes:
                if operand not in self._keep and all(user in self._results for user in operand.users):
                    self._release(operand)
        if self._bytes > self._limit:
            raise _OverLimit

    def _release(self, node: Node) -> None:
        """Drop the tensor that an operation returned. Numbers and the program's own tensors cost nothing, and stay."""
        result = self._results[node]
        if node.op in _OPERATIONS and isinstance(result, sys.modules["torch"].Tensor):
            self._count(result, -1)
            self._results[node] = _FREED

    def _count(self, result: object, change: int) -> None:
        """Add ``change`` to the number of results that hold each storage, except the program's storages."""
        torch = sys.modules["torch"]
        for each in flattened(result):
            if not is_exactly(each, (torch.Tensor, torch.nn.Parameter)) or each.layout != torch.strided:
                continue
            storage = storage_of(each)
            if storage in self._of_program:
                continue
            holders = self._holders[storage] = self._holders.get(storage, 0) + change
            if holders == 0 or holders == change == 1:
                self._bytes += change * each.untyped_storage().nbytes()
            if holders == 0:
                del self._holders[storage]


def _refuse_outside_effects(node: Node, name: str) -> None:
    """Refuse an operation whose effect is not on the contents of memory: no copy would protect the program from it.

    Raises:
        NoRealValue: it is such an operation.
    """
    if any(part in name for part in COLLECTIVES):
        raise NoRealValue(f"{name} is a collective: it is not run again, since other processes would have to take part")
    if _ACCUMULATING in name:
        raise NoRealValue(f"{name} is not run again: it would add to a gradient of the program again")
    if is_resize(node):
        raise NoRealValue(f"{name} is not run again: it would change the size of the program's memory again")


_OPERATIONS = ("call_function", "call_method", "call_module")
_ACCUMULATING = "accumulate_grad"
_UNDECLARED_WRITES = {"native_batch_norm": (3, 4), "cudnn_batch_norm": (3, 4), "miopen_batch_norm": (3, 4)}
"""By operator: the positions of arguments to which it writes without declaring it."""


@functools.cache
def _watching() -> Any:
    """Return the class of a dispatch mode that reports each tensor before a write to it."""
    base: Any = REAL_VALUES.resolve(_DISPATCH_MODE)

    class Watching(base):  # type: ignore[misc]  # the base is known at run time
        def __init__(self, check: Callable[[object], None]) -> None:
            super().__init__()
            self._check = check

        def __torch_dispatch__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
            for _, value in written_arguments(function, args, kwargs or {}):
                self._check(value)
            for position in _UNDECLARED_WRITES.get(function.__name__.partition(".")[0], ()):
                if args[position] is not None:
                    self._check(args[position])
            return function(*args, **(kwargs or {}))

    return Watching
