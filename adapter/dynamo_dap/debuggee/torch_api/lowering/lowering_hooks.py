"""Reports each operation that AOTAutograd, a pass, or Inductor is about to work on.

A node that a pass inserts is reported once its line is known; a change in place is reported after the pass.

Torch's functions are hooked only while a listener needs them. Meanwhile torch does not use its caches, because nothing
works on a cached graph. Hooks run on the compiling thread, or on the thread that first runs a backward pass.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.features import Feature, owner_of
from dynamo_dap.debuggee.torch_api.objects import GraphModule, Node
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.patches import Outcome, Patches

_INTERPRETER = "torch.fx.experimental.symbolic_shapes:PropagateUnbackedSymInts.run_node"
_PROXIES = "torch.fx.experimental.proxy_tensor:get_proxy_mode"
_COMPILE_FX = "torch._inductor.compile_fx"
_PASSES = ("pre_grad_passes", "joint_graph_passes", "post_grad_passes")
_CREATING, _REPLACING, _ERASING = (f"_register_{each}_node_hook" for each in ("create", "replace", "erase"))
_LOWERING = "torch._inductor.graph:GraphLowering.run_node"
_SCHEDULER = "torch._inductor.scheduler:Scheduler"
_CPP = "torch._inductor.codegen.cpp:CppScheduling.codegen_node"
_ON_GPU = ("torch._inductor.codegen.cuda_combined_scheduling", "CUDACombinedScheduling")

TRACING = Feature("stopping when AOTAutograd traces a line's operations", _INTERPRETER, _PROXIES)
REWRITING = Feature(
    "stopping when a pass rewrites a line's operations",
    *(f"{_COMPILE_FX}:{each}" for each in _PASSES),
    *(f"torch.fx:GraphModule.{each}" for each in (_CREATING, _REPLACING, _ERASING)),
)
LOWERING = Feature("stopping when Inductor lowers a line's operations", _LOWERING)
FUSING = Feature("stopping when Inductor fuses a line's operations", f"{_SCHEDULER}.fuse_two_nodes")
WRITING = Feature("stopping when Inductor writes code for a line", f"{_SCHEDULER}.codegen_extern_call", _CPP)

TRACES, PUTS_IN, TAKES_OUT, CHANGED, LOWERS, FUSES, WRITES = (
    "AOTAutograd traces",
    "a pass puts in",
    "a pass takes out",
    "a pass has changed",
    "Inductor lowers",
    "Inductor fuses",
    "Inductor writes code for",
)


@dataclass(frozen=True)
class Work:
    """What torch is about to do, or a pass has just done."""

    stage: str
    """One of ``TRACES``, ``PUTS_IN`` ..., as shown to the user."""
    what: str
    """The operations: ``relu (aten.relu.default)``."""
    nodes: tuple[Any, ...]
    """The nodes that the work is on."""
    operation: object
    """A node, or an operation of the scheduler."""
    by: object
    """The torch function that is about to run."""


class LoweringHooks:
    """The wrappers. One for the process; ``install`` and ``remove`` run on any thread."""

    def __init__(self, on_work: Callable[[Work], None]) -> None:
        """Call ``on_work`` before each piece of work."""
        self._on_work = on_work
        self._patches = Patches("breakpoints of mode lowering")
        self._lock = lock("hooks of lowering", Level.HOOKS)

    @property
    def is_installed(self) -> bool:
        """Whether any function is wrapped."""
        return self._patches.is_installed

    def install(self) -> list[str]:
        """Report work from now on; the first call returns what this torch cannot report.

        Call before a backend is called: Inductor is slow to import, and Dynamo itself must not import it.
        """
        with self._lock:
            if self._patches.is_installed:
                return []
            use_no_caches(self._patches)
            if TRACING.problem is None:
                self._before(_INTERPRETER, self._traced)
            if REWRITING.problem is None:
                for name in _PASSES:
                    self._watch_pass(name)
            if LOWERING.problem is None:
                self._before(_LOWERING, self._lowered)
            if FUSING.problem is None:
                self._before(f"{_SCHEDULER}.fuse_two_nodes", self._fused)
            if WRITING.problem is None:
                self._before(f"{_SCHEDULER}.codegen_extern_call", self._written)
                self._before(_CPP, self._written)
                combined = getattr(sys.modules.get(_ON_GPU[0]), _ON_GPU[1], None)
                if combined is not None:
                    self._before(f"{_ON_GPU[0]}:{_ON_GPU[1]}.codegen_node", self._written)
            features = (TRACING, REWRITING, LOWERING, FUSING, WRITING)
            return [each.problem for each in features if each.problem is not None]

    def remove(self) -> None:
        """Report no further work."""
        with self._lock:
            self._patches.remove()

    def _before(self, name: str, work_of: Callable[..., Work | None]) -> None:
        """Wrap a method: ``work_of`` gets its arguments and returns the work that it will do."""
        owner, attribute = owner_of(name)
        original = getattr(owner, attribute)

        def report(*arguments: object, **named: object) -> None:
            work = work_of(original, *arguments, **named)
            if work is not None:
                self._on_work(work)

        self._patches.before(owner, attribute, report)

    # -- what is about to be done: the compiling thread ------------------------------------------------------------

    @staticmethod
    def _traced(original: object, _: object, node: Node) -> Work | None:
        # AOTAutograd first runs the graph to see what it changes; that run is not reported.
        if node.op != "call_function" or TRACING.resolve(_PROXIES)() is None:
            return None
        return Work(TRACES, _text(node), (node,), node, original)

    @staticmethod
    def _lowered(original: object, _: object, node: Node) -> Work | None:
        if node.op != "call_function":
            return None
        known = sys.modules["torch._inductor.lowering"].lowerings
        return Work(LOWERS, _text(node), (node,), node, known.get(node.target, original))

    @staticmethod
    def _fused(original: object, _: object, one: Any, other: Any, *__: object) -> Work:
        return Work(FUSES, f"{one.get_name()} with {other.get_name()}", _origins((one, other)), (one, other), original)

    @staticmethod
    def _written(original: object, _: object, operation: Any) -> Work:
        return Work(WRITES, str(operation.get_name()), _origins((operation,)), operation, original)

    def _watch_pass(self, name: str) -> None:
        module = sys.modules[_COMPILE_FX]
        original = getattr(module, name)

        def report(stage: str, node: Node) -> None:
            self._on_work(Work(stage, _text(node), (node,), node, original))

        def watch(graph: GraphModule, *_: object, **__: object) -> Generator[None, Outcome, None]:
            if not hasattr(graph, _ERASING):
                return
            changes = _Changes(graph, report)
            hooks = [
                (_CREATING, self._patches.guarded(changes.created, None)),
                (_REPLACING, self._patches.guarded(changes.replaced, None)),
                (_ERASING, self._patches.guarded(changes.erased, None)),
            ]
            for register, hook in hooks:
                getattr(graph, register)(hook)
            outcome = yield None
            for register, hook in hooks:
                getattr(graph, register.replace("_register", "_unregister"))(hook)
            if outcome.error is None:
                changes.ended()

        self._patches.around(module, name, watch)


class _Changes:
    """Collects the changes that one run of passes makes to a graph."""

    def __init__(self, graph: GraphModule, report: Callable[[str, Any], None]) -> None:
        """Report each changed node, with its stage, by ``report``."""
        self._report = report
        self._graph = graph
        self._before = {node: _form(node) for node in graph.graph.nodes}
        self._made: dict[Any, None] = {}
        """Inserted nodes that are not reported yet: passes set their line a little later."""

    def created(self, node: Node) -> None:
        """Note a new node of the graph."""
        self._report_made()
        if node.op == "call_function":
            self._made[node] = None

    def replaced(self, old: object, new: str, user: object) -> None:
        """Note that ``user`` is about to get another operand."""
        self._report_made()

    def erased(self, node: Node) -> None:
        """Report a node that is about to leave the graph."""
        self._report_made()
        self._made.pop(node, None)
        if node.op == "call_function":
            self._report(TAKES_OUT, node)

    def ended(self) -> None:
        """Report the nodes whose function or constants the passes changed."""
        self._report_made()
        for node in self._graph.graph.nodes:
            before = self._before.get(node)
            if before is not None and node.op == "call_function" and before != _form(node):
                self._report(CHANGED, node)

    def _report_made(self) -> None:
        for node in [each for each in self._made if "stack_trace" in each.meta]:
            del self._made[node]
            self._report(PUTS_IN, node)


def _form(value: Any) -> object:
    """Return a key that stays equal while a node does the same operation, on whichever operands."""
    if hasattr(value, "op") and hasattr(value, "all_input_nodes"):
        return value.target, _form(value.args), _form(value.kwargs)
    if isinstance(value, list | tuple):
        return tuple(None if hasattr(each, "all_input_nodes") else _form(each) for each in value)
    if isinstance(value, dict):
        return tuple(value), _form(list(value.values()))
    # Comparing symbols would make torch guard on them.
    return (type(value), repr(value)) if is_exactly(value, (bool, int, float, str, type(None))) else id(value)


_CACHES = (("torch._inductor.config", "fx_graph_cache"), ("torch._functorch.config", "enable_autograd_cache"))


def use_no_caches(patches: Patches) -> None:
    """Keep torch from using its caches of compiled graphs, by ``patches``."""
    for module, name in _CACHES:
        config = sys.modules.get(module)
        if config is not None and hasattr(config, name):
            patches.replace(config, name, False)


def _text(node: Node) -> str:
    target = getattr(node.target, "__name__", None) if callable(node.target) else None
    return f"{node.name} ({target if target is not None and '.' not in str(node.target) else node.target})"


def _origins(scheduled: Iterable[Any]) -> tuple[object, ...]:
    found: dict[object, None] = {}
    for each in scheduled:
        for one in each.get_nodes():
            found.update((origin, None) for origin in getattr(getattr(one, "node", None), "origins", ()))
    return tuple(found)


def place_of(function: object) -> tuple[str, int, str]:
    """Return file, line and name of a torch function."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    if code is None:
        return "", 0, str(function)
    return code.co_filename, code.co_firstlineno, code.co_name
