"""Observes AOTAutograd and Inductor at work on a graph: what each stage made, and from what.

While stages are explored, torch's functions that a graph passes through are wrapped. Meanwhile torch notes the origin
of each node (``provenance_tracking_level``), and does not use its caches: a cached graph passes through no stage.
Wrappers run on the compiling thread, or on the thread that first runs a backward pass. A wrapped function always runs,
even if its wrapper fails.
"""

from __future__ import annotations

import inspect
import io
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.lowering.lowering_hooks import use_no_caches
from dynamo_dap.debuggee.torch_api.lowering.stage_costs import (
    COPIES,
    FLOPS,
    LOWERED_BY,
    MEMORY,
    NOT_FUSED,
    SIZES,
    Figures,
    Reasons,
    figures,
    is_in_memory,
    lowerings_of,
    reasons_of,
)
from dynamo_dap.debuggee.torch_api.objects import Graph, GraphModule, Node
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.patches import Outcome, Patches, calling_frame

_COMPILE_FX = "torch._inductor.compile_fx"
_AOT = "torch._functorch._aot_autograd.graph_compile"
_PRE_GRAD = f"{_COMPILE_FX}:run_pre_grad_passes"
_JOINT_PASSES = f"{_COMPILE_FX}:_recursive_joint_graph_passes"
_POST_GRAD = f"{_COMPILE_FX}:_recursive_post_grad_passes"
_CODEGEN = f"{_COMPILE_FX}:_InProcessFxCompile.codegen_and_compile"
_MODULE = "torch._inductor.graph:GraphLowering.compile_to_module"
_PRE_FUSION = "torch._inductor.debug:log_ir_pre_fusion"
_POST_FUSION = "torch._inductor.debug:log_ir_post_fusion"
_KERNEL = "torch._inductor.debug:set_kernel_post_grad_provenance_tracing"
_RUNNABLE = "torch._dynamo.repro.after_aot:save_graph_repro"
_LEVEL = "torch._inductor.config:trace.provenance_tracking_level"
_GRAPH_CACHE = "torch._inductor.config:fx_graph_cache"
_AUTOGRAD_CACHE = "torch._functorch.config:enable_autograd_cache"
_COMPILE_ID = "torch._guards:CompileContext.current_compile_id"

AOT_STAGES = Feature(
    "AOTAutograd's graphs among the stages of a compile",
    f"{_AOT}:_log_joint_graph",
    f"{_AOT}:_log_fw_bw_graphs",
    f"{_AOT}:_log_inference_graph",
    _AUTOGRAD_CACHE,
    _COMPILE_ID,
)
INDUCTOR_PASSES = Feature("Inductor's passes among the stages of a compile", _PRE_GRAD, _JOINT_PASSES, _POST_GRAD)
INDUCTOR_CODE = Feature(
    "Inductor's operations, kernels and code among the stages of a compile",
    _CODEGEN,
    _MODULE,
    _PRE_FUSION,
    _POST_FUSION,
    _KERNEL,
)
ORIGINS = Feature("which line each kernel computes", _LEVEL, _GRAPH_CACHE)
RUNNABLE = Feature("the graph as a program among the stages of a compile", _RUNNABLE)

_NAMED_ELSEWHERE = ("torch._inductor.codegen.cpp", "torch._inductor.codegen.triton")
"""Modules that import the function of ``_KERNEL`` under another name."""
FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class IrOperation:
    """An operation of Inductor's scheduler."""

    name: str
    """``op3``, or ``op0_op1`` if fused."""
    text: str
    members: tuple[str, ...]
    """The operations that were fused into it, or itself."""
    origins: tuple[str, ...]
    """Nodes of the post-grad graph that it computes."""
    lowerings: list[str] = field(default_factory=list)
    """Inductor functions that made it."""
    reasons: list[str] = field(default_factory=list)
    """Why Inductor made it this way: a fallback, a copy."""
    not_fused: list[tuple[str, str]] = field(default_factory=list)
    """Other operations, and why each was not fused with this one."""
    wanting: tuple[str, ...] = ()
    """Nodes of the post-grad graph for which it copies an input."""


@dataclass(frozen=True)
class Kernel:
    """A call of a kernel, or of a library function, in the output code."""

    name: str
    """``cpp_fused_add_0``, ``extern_kernels.mm``"""
    handle: int
    """Distinguishes calls of the same kernel."""
    operations: tuple[str, ...]
    """The scheduler's operations that it computes."""
    origins: tuple[str, ...]
    """Nodes of the post-grad graph that it computes."""


class StageObserver:
    """Takes what each stage made. ``direction`` is ``FORWARD`` or ``BACKWARD``."""

    def pre_grad(self, before: Callable[[], str], graph: Graph) -> None:
        """Take ``graph``, which pre-grad passes have changed; ``before`` returns the result of ``look`` for it."""

    def look(self, graph: Graph) -> Any:
        """Describe a graph before passes change it; the method for the changed graph gets the result."""

    def joint(self, graph: Graph) -> None:
        """Take the joint graph that AOTAutograd has made."""

    def joint_passes(self, before: Callable[[], str], graph: Graph) -> None:
        """Take the joint graph, or an inference graph, after passes changed it."""

    def split(self, direction: str, graph: Graph) -> None:
        """Take a forward, a backward, or an inference graph that AOTAutograd has made."""

    def divided(self, saved: dict[str, int], recomputed: dict[str, int]) -> None:
        """Take the forward nodes that are saved for the backward pass, and those recomputed there, with their bytes."""

    def post_grad(self, direction: str, before: Callable[[], str], graph: Graph) -> None:
        """Take ``graph``, which post-grad passes have changed."""

    def operations(self, direction: str, operations: list[IrOperation], *, fused: bool) -> None:
        """Take the scheduler's operations, before or after it fused them."""

    def code(self, direction: str, text: str, kernels: list[Kernel], costs: dict[str, Figures]) -> None:
        """Take the output code; ``costs`` are those of the scheduler's operations, by their names."""

    def runnable(self, direction: str, text: str) -> None:
        """Take the graph that Inductor was given, written as a program."""


def compile_id() -> str | None:
    """Return the id of this thread's compile, also in a backward pass: ``0/1``."""
    if AOT_STAGES.problem is not None:
        return None
    found = AOT_STAGES.resolve(_COMPILE_ID)()
    return None if found is None else str(found)


def made_from(node: Node) -> list[list[tuple[str, int]]]:
    """Return the ways from a node back to those that it was made from, each with the nearest node first.

    A step of the way is a node's name and its graph's ``id`` at that time.
    """
    return [list(_ancestors(each)) for each in node.meta.get("from_node") or ()]


def _ancestors(source: object) -> Iterator[tuple[str, int]]:
    waiting = [source]
    while waiting:
        each = waiting.pop(0)
        info = getattr(each, "node_info", None)
        if info is not None:
            yield str(info.name), int(info.graph_id)
        waiting += getattr(each, "from_node", None) or ()


def forward_of(node: Node) -> tuple[list[str], int | None]:
    """Return the operation that a node belongs to: its names in Dynamo's graph, and autograd's number.

    The innermost name is the last. A node of a backward pass belongs to an operation as well.
    """
    stack = node.meta.get("source_fn_stack") or node.meta.get("fwd_source_fn_stack") or ()
    return [str(name) for name, _ in stack], node.meta.get("seq_nr")


def copied_by(node: Node) -> Any:
    """Return the node whose value AOTAutograd writes back into an input. Such copies belong to no line."""
    is_copy = str(node.target) == "aten.copy_.default" and len(node.args) > 1
    return node.args[1] if is_copy and hasattr(node.args[1], "meta") else None


def described_input(placeholder: Node) -> tuple[str, Any] | None:
    """Describe an input of an AOTAutograd graph: ``("input", 3)``, ``("gradient", 0)`` (of an output) ..."""
    description: Any = placeholder.meta.get("desc")
    kind = type(description).__name__
    if kind == "PlainAOTInput":
        return "input", description.idx
    if kind in ("ParamAOTInput", "BufferAOTInput"):
        return "attribute", description.target
    if kind == "TangentAOTInput" and type(description.output).__name__ == "PlainAOTOutput":
        return "gradient", description.output.idx
    return None


class ExploredStages:
    """The wrappers. One for the process; ``install`` and ``remove`` run on any thread."""

    def __init__(self, observer: StageObserver) -> None:
        """Install nothing yet."""
        self._observer = observer
        self._patches = Patches("exploring compiles")
        # Some inputs and kernels of a program can make these wrappers fail; the other wrappers still work.
        self._costs, self._programs = Patches("costs of kernels"), Patches("programs that run a graph")
        self._lock = lock("hooks of stages", Level.HOOKS)
        self._thread = threading.local()

    def install(self) -> list[str]:
        """Report stages from now on; the first call returns what this torch cannot report.

        Call before a backend is called: Inductor is slow to import, and Dynamo itself must not import it.
        """
        with self._lock:
            if self._patches.is_installed:
                return []
            self._set_options()
            self._wrap_aot()
            self._wrap_passes()
            self._wrap_code()
            self._wrap_reasons()
            costs = (SIZES, FLOPS, MEMORY, NOT_FUSED, LOWERED_BY, COPIES)
            features = (AOT_STAGES, INDUCTOR_PASSES, INDUCTOR_CODE, ORIGINS, RUNNABLE, *costs)
            return [each.problem for each in features if each.problem is not None]

    def remove(self) -> None:
        """Report no further stages."""
        with self._lock:
            self._patches.remove()

    # -- installing the wrappers ---------------------------------------------------------------------------------

    def _set_options(self) -> None:
        if ORIGINS.problem is None:
            self._patches.replace(sys.modules["torch._inductor.config"].trace, "provenance_tracking_level", 1)
        use_no_caches(self._patches)

    def _wrap_aot(self) -> None:
        if AOT_STAGES.problem is not None:
            return
        module = sys.modules[_AOT]
        self._patches.after(
            module, "_log_joint_graph", lambda _, made, *rest, **named: self._observer.joint(made.graph)
        )
        self._patches.after(
            module, "_log_inference_graph", lambda _, made, *rest, **named: self._observer.split(FORWARD, made.graph)
        )
        self._patches.after(module, "_log_fw_bw_graphs", self._splits)

    def _splits(self, _: object, forward: Any, backward: Any, *rest: object, **named: object) -> None:
        self._observer.split(FORWARD, forward.graph)
        self._observer.split(BACKWARD, backward.graph)
        self._observer.divided(*_divided(forward.graph, backward.graph))

    def _wrap_passes(self) -> None:
        if INDUCTOR_PASSES.problem is not None:
            return
        module = sys.modules[_COMPILE_FX]
        observer = self._observer
        self._around(module, "run_pre_grad_passes", observer.pre_grad)
        self._around(module, "_recursive_joint_graph_passes", observer.joint_passes)
        self._around(
            module,
            "_recursive_post_grad_passes",
            lambda before, graph: observer.post_grad(self._direction(), before, graph),
        )

    def _wrap_code(self) -> None:
        if INDUCTOR_CODE.problem is not None:
            return
        compiling = sys.modules[_COMPILE_FX]._InProcessFxCompile
        self._patches.around(compiling, "codegen_and_compile", self._compiles)
        debug = sys.modules["torch._inductor.debug"]
        self._patches.after(debug, "log_ir_pre_fusion", lambda _, nodes: self._scheduled(nodes, fused=False))
        self._patches.after(debug, "log_ir_post_fusion", lambda _, nodes: self._scheduled(nodes, fused=True))
        original = getattr(debug, "set_kernel_post_grad_provenance_tracing")  # noqa: B009  (of a module unknown to mypy)
        for name in (debug.__name__, *_NAMED_ELSEWHERE):
            module = sys.modules.get(name)
            if getattr(module, "set_kernel_post_grad_provenance_tracing", None) is original:
                self._patches.after(module, "set_kernel_post_grad_provenance_tracing", self._kernel)
        lowering = sys.modules["torch._inductor.graph"].GraphLowering
        self._patches.after(lowering, "compile_to_module", self._written)

    def _wrap_reasons(self) -> None:
        if NOT_FUSED.problem is None:
            why = sys.modules["torch._inductor.scheduler"].WhyNoFuse
            self._patches.after(why, "__call__", lambda _, reported, *rest: self._reasons().not_fused(reported))
        if COPIES.problem is None:
            kernel = sys.modules["torch._inductor.ir"].ExternKernel
            self._patches.around(kernel, "copy_input", self._copies)

    def _copies(self, operand: object) -> Generator[None, Outcome, None]:
        is_copy = is_in_memory(operand)
        outcome = yield None
        if is_copy and outcome.error is None:
            self._reasons().copied(outcome.result, calling_frame().f_code.co_name)

    def _around(self, owner: object, name: str, report: Callable[[Callable[[], str], Graph], None]) -> None:
        """Watch passes over a graph module, but not over the bodies of operators."""

        def watch(module: GraphModule, *_: object, **__: object) -> Generator[None, Outcome, None]:
            running = self._running()
            if name in running:
                return
            before = self._observer.look(module.graph)
            running.add(name)
            try:
                outcome = yield None
            finally:
                running.discard(name)
            after = module if outcome.result is None else outcome.result
            if outcome.error is None and hasattr(after, "graph"):
                report(lambda: before, after.graph)

        self._patches.around(owner, name, watch)

    # -- reported on the compiling thread --------------------------------------------------------------------------

    def _running(self) -> set[str]:
        if not hasattr(self._thread, "running"):
            self._thread.running = set()
        found: set[str] = self._thread.running
        return found

    def _reasons(self) -> Reasons:
        if not hasattr(self._thread, "reasons"):
            self._thread.reasons = Reasons()
        found: Reasons = self._thread.reasons
        return found

    def _kernels(self) -> list[Kernel]:
        if not hasattr(self._thread, "kernels"):
            self._thread.kernels = []
        found: list[Kernel] = self._thread.kernels
        return found

    def _direction(self) -> str:
        return getattr(self._thread, "direction", FORWARD)

    def _compiles(
        self, _: object, module: object, inputs: object, _to_check: object, options: Any
    ) -> Generator[None, Outcome, None]:
        self._thread.direction = BACKWARD if options.get("is_backward") else FORWARD
        self._thread.kernels, self._thread.reasons = [], Reasons()
        self._programs.guarded(self._write_program, None)(module, inputs, options)
        yield None
        self._thread.direction = FORWARD

    def _write_program(self, module: object, inputs: object, options: Any) -> None:
        """Report Inductor's input graph as a program, as Inductor writes it for torch's own trace."""
        if RUNNABLE.problem is not None:
            return
        save, file = RUNNABLE.resolve(_RUNNABLE), io.StringIO()
        known = inspect.signature(save).parameters
        named = {"is_inference": bool(options.get("is_inference"))} if "is_inference" in known else {}
        save(file, module, inputs, "inductor", save_dir=None, **named)
        self._observer.runnable(self._direction(), file.getvalue())

    def _scheduled(self, nodes: Any, *, fused: bool) -> None:
        members = {str(node.get_name()): _members(node) for node in nodes}
        holder = {str(each.get_name()): name for name, found in members.items() for each in found}
        operations = [_operation(node, members[str(node.get_name())], holder, self._reasons(), fused) for node in nodes]
        self._observer.operations(self._direction(), operations, fused=fused)

    def _kernel(self, handle: int | None, scheduled: Any, name: str, is_extern: bool = False) -> None:
        if handle is None:
            return
        if is_extern:
            kernel = Kernel(name, handle, (str(scheduled.get_operation_name()),), _origins([scheduled]))
        else:
            found = [each for each in scheduled if getattr(each, "node", None) is not None]
            operations = tuple(dict.fromkeys(str(each.get_name()) for each in found))
            kernel = Kernel(name, handle, operations, _origins(each.node for each in found))
        self._kernels().append(kernel)

    def _written(self, module: Any, lowering: object) -> None:
        with open(module.__file__, encoding="utf-8", errors="replace") as file:
            text = file.read()
        costs = self._costs.guarded(figures, {})(lowering)
        self._observer.code(self._direction(), text, list(self._kernels()), costs)


def _members(node: Any) -> list[Any]:
    return [each for each in node.get_nodes() if getattr(each, "node", None) is not None]


def _operation(node: Any, members: list[Any], holder: dict[str, str], reasons: Reasons, fused: bool) -> IrOperation:
    names = tuple(str(each.get_name()) for each in members)
    made = [each.node for each in members]
    return IrOperation(
        str(node.get_name()),
        str(node.debug_str()),
        names,
        _origins(made),
        list(dict.fromkeys(one for each in made for one in lowerings_of(each))),
        [
            *(one for each in made for one in reasons_of(each)),
            *(one for name in names for one in reasons.of_operation(name)),
        ],
        list(reasons.of_fused(names, holder)) if fused else [],
        tuple(dict.fromkeys(one for name in names for one in reasons.wanting(name))),
    )


def _origins(operations: Any) -> tuple[str, ...]:
    """Return the nodes of the graph that operations of Inductor's IR compute.

    A call of a library function computes one node; its other origins belong to its operands.
    """
    found: dict[str, None] = {}
    for each in operations:
        origin = getattr(each, "origin_node", None)
        is_call = origin is not None and type(each).__name__ != "ComputedBuffer"
        origins: list[Any] = [origin] if is_call else list(each.origins)
        found.update((str(one.name), None) for one in origins)
    return tuple(found)


def _divided(forward: Any, backward: Any) -> tuple[dict[str, int], dict[str, int]]:
    """Return the nodes saved for the backward pass, and the forward nodes that it recomputes."""
    known = {str(node.name): node for node in forward.nodes if node.op in ("placeholder", "call_function")}
    inputs = {str(node.name) for node in backward.nodes if node.op == "placeholder"}
    again = {
        str(node.name): _bytes(node)
        for node in backward.nodes
        if node.op == "call_function" and str(node.name) in known and not getattr(node.target, "is_view", False)
    }
    return {name: _bytes(node) for name, node in known.items() if name in inputs}, again


def _bytes(node: Any) -> int:
    value = node.meta.get("val")
    sizes = [each.numel() * each.element_size() for each in [value] if hasattr(each, "element_size")]
    return sum(each for each in sizes if isinstance(each, int))
