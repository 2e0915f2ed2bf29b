"""Takes results out of the transforms of ``torch.func``, so that they can be compared.

Inside ``vmap`` a value stands for a batch; inside ``grad`` and ``jvp`` it belongs to one level of differentiation. A
copy of each such result is taken out before its transform ends, by nodes added to a copy of Dynamo's graph. A
``VisibleGraph`` lives as long as the comparison of a call. The program's thread that makes the call.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynamo_dap.debuggee.replay.replays import ReplayedGraph, has_transforms
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.graph import example_of
from dynamo_dap.debuggee.torch_api.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.isolation import isolated
from dynamo_dap.debuggee.torch_api.tensor_facts import is_tensor, unwrapped

_OUT_OF_VMAP = "torch._C._functorch:_remove_batch_dim"
_OUT_OF_GRADIENT = "torch._C._functorch:_unwrap_for_grad"

TRANSFORMS = Feature("comparing results inside transforms of torch.func", _OUT_OF_VMAP, _OUT_OF_GRADIENT)

_OPENS, _CLOSES = "_increment_nesting", "_decrement_nesting"
_DISABLES, _ENABLES = "_saved_tensors_hooks_disable", "_saved_tensors_hooks_enable"
"""They enclose a transform; the process must not be left without hooks."""


@dataclass
class _Open:
    """A transform that is open at a node."""

    level: int
    size: Any
    """How many elements ``vmap`` maps over; None for other transforms."""
    inside: list[tuple[Any, Any]] = field(default_factory=list)
    """Nodes of Dynamo's graph, and the copies of their results that are still inside."""

    def taken_out(self, graph: Any, node: Any, value: Any) -> Any:
        """Add a node to ``graph`` that takes ``value``, the copy of a result of ``node``, out of this transform."""
        name = f"{node.name}_out_of_{self.level}"
        is_batch = self.size is not None
        args: tuple[Any, ...] = (value, self.level, self.size, 0) if is_batch else (value, self.level)
        target = TRANSFORMS.resolve(_OUT_OF_VMAP if is_batch else _OUT_OF_GRADIENT)
        return graph.create_node("call_function", target, args, {}, name=name)


class VisibleGraph:
    """A graph whose every result can be read outside its transforms; without transforms, the graph itself."""

    def __init__(self, graph: ReplayedGraph) -> None:
        self.graph = graph
        self._visible: dict[Any, Any] = {}
        self._originals: dict[Any, Any] = {}
        self.names: Mapping[str, str] = {}
        """By name of a node that takes a result out, the name of the node with that result."""
        self.added: frozenset[str] = frozenset()
        """The names of the nodes that Dynamo's graph lacks."""
        self.inside: frozenset[Any] = frozenset()
        """The nodes of Dynamo's graph that run inside a transform."""
        if has_transforms(graph) and TRANSFORMS.problem is None:
            with isolated():
                self._add(graph)

    def _add(self, graph: ReplayedGraph) -> None:
        torch: Any = sys.modules["torch"]
        made = torch.fx.Graph()
        copies: dict[Any, Any] = {}
        opened: list[_Open] = []
        inside: set[Any] = set()
        for node in graph.nodes:
            name = _name(node)
            if name.endswith(_CLOSES) and opened:
                ended = opened.pop()
                for each, value in ended.inside:
                    taken = ended.taken_out(made, each, value)
                    if opened:
                        opened[-1].inside.append((each, taken))
                    else:
                        self._visible[each] = taken
            copies[node] = made.node_copy(node, copies.__getitem__)
            if name.endswith(_OPENS):
                opened.append(_Open(len(opened) + 1, copies[node].args[0] if "vmap" in name else None))
            elif opened:
                inside.add(node)
                if node.op.startswith("call_") and not name.startswith("_") and is_tensor(example_of(node)):
                    named = f"{node.name}_copied"
                    copy = made.create_node("call_function", torch.clone, (copies[node],), {}, name=named)
                    opened[-1].inside.append((node, copy))
        self.names = {taken.name: node.name for node, taken in self._visible.items()}
        self._originals = {taken: node for node, taken in self._visible.items()}
        self._originals.update((copy, node) for node, copy in copies.items() if node not in self._visible)
        known = {each.name for each in copies.values()}
        self.added = frozenset(each.name for each in made.nodes if each.name not in known)
        self.inside = frozenset(inside)
        self._visible = {**copies, **self._visible}
        inputs = {copies[node]: value for node, value in graph.inputs.items()}
        self.graph = graph.with_inputs(torch.fx.GraphModule(graph.module, made), inputs)
        self.graph.promised = {copies[node]: each for node, each in graph.promised.items()}

    def original(self, node: Any) -> Any:
        """Return the node of Dynamo's graph whose result ``node`` has outside all transforms; None if it is inside."""
        return self._originals.get(node) if self._visible else node

    def prefix(self, nodes: Sequence[Any]) -> Any:
        """Return the graph (torch's ``GraphModule``) up to the last of ``nodes``, which it returns."""
        torch: Any = sys.modules["torch"]
        shorter = torch.fx.Graph()
        copies: dict[Any, Any] = {}
        wanted = [self._visible.get(node, node) for node in nodes]
        end = self._closed_after(max(self.graph.nodes.index(node) for node in wanted))
        for position, node in enumerate(self.graph.nodes):
            if node.op == "placeholder" or position <= end:
                copies[node] = shorter.node_copy(node, copies.__getitem__)
                copies[node].meta = {}
        shorter.output(tuple(copies[node] for node in wanted))
        return torch.fx.GraphModule(self.graph.module, shorter)

    def _closed_after(self, end: int) -> int:
        """Return the first position from ``end`` on after which no transform is open."""
        depth = 0
        for position, node in enumerate(self.graph.nodes):
            name = _name(node)
            depth += name.endswith((_OPENS, _DISABLES)) - name.endswith((_CLOSES, _ENABLES))
            if position >= end and depth <= 0:
                return position
        return end


def is_visible(value: Any) -> bool:
    """Return whether a value is a plain tensor outside the transforms of ``torch.func``."""
    return has_own_memory(value) and unwrapped(value) is value


def _name(node: Any) -> str:
    return str(getattr(node.target, "__name__", node.target))
