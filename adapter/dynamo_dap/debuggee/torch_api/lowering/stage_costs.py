"""Collects costs of Inductor's operations and why they are not cheaper: sizes, FLOPs, memory, reasons.

``Reasons`` notes Inductor's messages while it lowers and fuses one graph. ``figures`` asks the scheduler when the code
is written, as torch does for its own metrics. Both run on the compiling thread; nothing outlives a graph.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature

_SCHEDULER = "torch._inductor.scheduler"
_MEMORY = "torch._inductor.memory"
_GRAPH = "torch._inductor.virtualized:V"
_COUNT = "torch._inductor.fx_utils:count_flops_fx"
_LOWERINGS = "torch._inductor.lowering:lowerings"
_COPY = "torch._inductor.ir:ExternKernel.copy_input"

SIZES = Feature(
    "how many bytes a kernel reads and writes",
    f"{_SCHEDULER}:BaseSchedulerNode.get_read_buffer_sizes",
    f"{_SCHEDULER}:BaseSchedulerNode.get_write_buffer_sizes",
)
FLOPS = Feature("how many FLOPs a kernel has", _COUNT)
MEMORY = Feature(
    "how much memory is in use while a kernel runs",
    f"{_MEMORY}:estimate_peak_memory",
    f"{_MEMORY}:get_freeable_input_buf",
    f"{_MEMORY}:assign_memory_planning_info_for_scheduler_buffers",
    _GRAPH,
)
NOT_FUSED = Feature("why operations were not fused", f"{_SCHEDULER}:WhyNoFuse.__call__")
LOWERED_BY = Feature("which lowering made an operation", _LOWERINGS)
COPIES = Feature("why Inductor copies an operand", _COPY, _GRAPH)

_NOTHING_IN_COMMON = "no shared data"
MAXIMUM_REASONS = 12
"""The most reasons of one operation."""


@dataclass(frozen=True)
class Figures:
    """What an operation of the scheduler costs; None where unknown."""

    read: int | None = None
    """Bytes, as Inductor estimates them; each buffer counts once."""
    written: int | None = None
    flops: int | None = None
    memory: int | None = None
    """Bytes of intermediate and resulting buffers in use while it runs, as Inductor estimates them."""


def figures(lowering: Any) -> dict[str, Figures]:
    """Return the cost of each operation of a graph's schedule, by its name. Only while the graph compiles."""
    nodes = list(lowering.scheduler.nodes)
    memory = _memory(lowering, nodes) if MEMORY.problem is None else []
    found = {}
    for index, node in enumerate(nodes):
        has_sizes = SIZES.problem is None
        found[str(node.get_name())] = Figures(
            int(node.get_read_buffer_sizes()) if has_sizes else None,
            int(node.get_write_buffer_sizes()) if has_sizes else None,
            _flops(node) if FLOPS.problem is None else None,
            memory[index] if index < len(memory) else None,
        )
    return found


def _memory(lowering: Any, nodes: Sequence[object]) -> list[int]:
    module, ordered = sys.modules[_MEMORY], type(lowering.scheduler.available_buffer_names)
    inputs = module.get_freeable_input_buf(nodes, ordered(lowering.graph_inputs.keys()))
    module.assign_memory_planning_info_for_scheduler_buffers(nodes, lowering.scheduler.name_to_buf)
    _, found = module.estimate_peak_memory(nodes, inputs, ordered(lowering.get_output_names()))
    return [int(each) for each in found]


def _flops(node: Any) -> int | None:
    """Return the scheduler's ``estimate_flops``, without adding to torch's own counters."""
    found = []
    for each in node.get_nodes():
        if each.node is not None and (each.is_extern() or each.is_template()):
            # A call with several results has no single origin.
            origin = each.node.get_origin_node()
            counted = [FLOPS.resolve(_COUNT)(one) for one in ([origin] if origin is not None else each.node.origins)]
            found += [flops for flops in counted if isinstance(flops, int)]
    return sum(found) if found else None


def lowerings_of(operation: Any) -> list[str]:
    """Return which Inductor functions made an operation: ``aten.relu.default by relu (lowering.py:7)``."""
    if LOWERED_BY.problem is not None:
        return []
    known = LOWERED_BY.resolve(_LOWERINGS)
    found = []
    for node in operation.origins:
        lowering = known.get(node.target) if node.op == "call_function" else None
        code = getattr(_unwrapped(lowering), "__code__", None)
        if code is not None:
            function = code.co_qualname if hasattr(code, "co_qualname") else code.co_name
            file = code.co_filename.rpartition("/site-packages/")[2]
            found.append(f"{node.target} by {function.partition('.<locals>')[0]} ({file}:{code.co_firstlineno})")
    return sorted(set(found))


def _unwrapped(function: object) -> object:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def reasons_of(operation: Any) -> list[str]:
    """Return why an IR operation calls ATen's own kernel, if it does."""
    if type(operation).__name__ != "FallbackKernel":
        return []
    target = getattr(operation, "op_overload", None) or getattr(operation.get_origin_node(), "target", None)
    lowering = LOWERED_BY.resolve(_LOWERINGS).get(target) if LOWERED_BY.problem is None else None
    if lowering is None or "fallback_handler" in getattr(_unwrapped(lowering), "__qualname__", ""):
        return [f"a fallback: Inductor has no lowering of {target}, and calls ATen's kernel"]
    return [f"a fallback: Inductor's lowering of {target} calls ATen's kernel for these arguments"]


class Reasons:
    """Inductor's reasons for the operations of one graph."""

    def __init__(self) -> None:
        """Begin without reasons."""
        self._not_fused: dict[tuple[str, str], str] = {}
        self._copies: dict[str, str] = {}
        self._wanting: dict[str, tuple[str, ...]] = {}

    def not_fused(self, why: Any) -> None:
        """Note the reason of a new ``WhyNoFuse``."""
        reason = str(why.reason % why.args) if why.args else str(why.reason)
        if _NOTHING_IN_COMMON not in reason:
            named = reason.replace("node1", why.name1).replace("node2", why.name2)
            self._not_fused[why.name1, why.name2] = " ".join(named.split())

    def copied(self, made: Any, caller: str) -> None:
        """Note a copy that an operation asked for; ``caller`` is the Inductor function."""
        node = getattr(COPIES.resolve(_GRAPH).graph, "current_node", None)
        operation = str(made.data.data.get_operation_name())
        wanted = "in other strides" if caller.startswith("require") else "in memory of its own"
        if node is not None and node.op == "placeholder":
            # Inductor first gives an input the strides that its users want, then lowers them.
            users = [str(each.name) for each in node.users if each.op == "call_function"]
            self._wanting[operation] = tuple(users)
            who = ", ".join(users[:MAXIMUM_REASONS]) or "an operation"
        else:
            who = str(node or "an operation")
        self._copies[operation] = f"a copy: {who} wants its operand {wanted} ({caller})"

    def of_operation(self, name: str) -> list[str]:
        """Return why an operation exists, as it was before fusion."""
        return [self._copies[name]] if name in self._copies else []

    def wanting(self, name: str) -> tuple[str, ...]:
        """Return the nodes for which an operation copies an input."""
        return self._wanting.get(name, ())

    def of_fused(self, members: Sequence[str], holder: dict[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the operations that one was not fused with, and why.

        ``holder`` maps each operation to the fused operation that contains it.
        """
        own = set(members)
        seen: set[tuple[str, str]] = set()
        for (one, other), reason in self._not_fused.items():
            for mine, theirs in ((_members(one), _members(other)), (_members(other), _members(one))):
                fused = {holder.get(each, each) for each in theirs}
                if own.issuperset(mine) and own.isdisjoint(theirs) and len(fused) == 1:
                    found = (fused.pop(), reason)
                    if found not in seen and len(seen) < MAXIMUM_REASONS:
                        seen.add(found)
                        yield found


def is_in_memory(operand: object) -> bool:
    """Return whether an operand is a buffer or a view of one. Anything else is computed, not copied."""
    buffer = sys.modules["torch._inductor.ir"].Buffer
    while operand is not None and not isinstance(operand, buffer):
        operand = getattr(operand, "data", None)
    return operand is not None


def _members(name: str) -> set[str]:
    """Return the parts of a fused operation, which its name lists."""
    return set(name.split("_"))
