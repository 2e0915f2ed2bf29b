"""Finds the results of a graph's run that differ from run to run: of random numbers, and of unset memory.

``ByChance`` belongs to the runs of one graph, and is called on the thread that runs it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.graphs.graph import written_by
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.graphs.operations import Fill, makes_unset_memory
from dynamo_dap.debuggee.torch_api.isolation import uncompiled_data_reading
from dynamo_dap.debuggee.torch_api.objects import Node
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import flattened, storage_of


class ByChance:
    """Fills unset memory in the runs of a graph, and notes which results are computed from random numbers."""

    def __init__(self, fill: Fill, *, finds_drawn: bool, outer: ByChance | None = None) -> None:
        """Begin before the first run; ``outer`` belongs to the graph around this one, if it is a body."""
        self._fill = fill
        self._outer = outer
        self._before = _states() if finds_drawn else None
        self._state = self._before
        self._nodes: set[Node] = set()
        self._storages: set[object] = set()

    @property
    def has_drawn(self) -> bool:
        """Whether an operation has drawn random numbers."""
        return bool(self._nodes)

    def ran(self, node: Node, results: Mapping[Node, object]) -> None:
        """Take the result of ``node``, which has just run; see ``graph_runs.Ran``."""
        if makes_unset_memory(node) and is_exactly(results[node], (sys.modules["torch"].Tensor,)):
            self._fill.into(results[node])
        if self._before is None:
            return
        if node.prev.op == "root":
            self._state = self._before
            self._nodes.clear()
            self._storages.clear()
        before, self._state = self._state, _states()
        is_drawn = not _are_same(before, self._state)
        if node.op == "placeholder":  # all inputs of a body may be computed from random numbers
            is_drawn = self._outer is not None and self._outer.has_drawn
        if is_drawn or any(self.is_drawn(each, results.get(each)) for each in node.all_input_nodes):
            self._nodes.add(node)
            for each in written_by(node):
                self._storages.update(_storages_of(results.get(each)))

    def is_drawn(self, node: Node, value: object) -> bool:
        """Return whether ``value``, the result of ``node``, is computed from random numbers."""
        if node in self._nodes or not self._storages:
            return node in self._nodes
        return not self._storages.isdisjoint(_storages_of(value))


def _storages_of(value: object) -> Iterator[object]:
    return (storage_of(each) for each in flattened(value) if has_own_memory(each))


def _states() -> list[Any]:
    """Return the states of torch's random number generators. Reading those of a GPU does not wait for it."""
    torch = sys.modules["torch"]
    generators = [torch.default_generator]
    if getattr(torch, "cuda", None) is not None and torch.cuda.is_initialized():
        generators += torch.cuda.default_generators
    with uncompiled_data_reading():
        return [each.get_state() for each in generators]


def _are_same(ones: Any, others: Any) -> bool:
    return len(ones) == len(others) and all(map(sys.modules["torch"].equal, ones, others))
