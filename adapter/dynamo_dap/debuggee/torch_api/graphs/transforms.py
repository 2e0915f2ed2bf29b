"""Takes results of a graph's operations out of the transforms of ``torch.func``.

Inside ``vmap`` a value stands for a batch; inside ``grad`` and ``jvp`` it belongs to one level of differentiation. A
copy of each such result is taken out before its transform ends, by nodes added to a copy of the graph. Runs on the
thread that compares values.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeGuard

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.graphs.graph import example_of, node_with_result
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_tensor, unwrapped
from dynamo_dap.debuggee.torch_api.isolation import isolated
from dynamo_dap.debuggee.torch_api.objects import GraphModule, Node, Tensor

_OUT_OF_VMAP = "torch._C._functorch:_remove_batch_dim"
_OUT_OF_GRADIENT = "torch._C._functorch:_unwrap_for_grad"

TRANSFORMS = Feature("comparing results inside transforms of torch.func", _OUT_OF_VMAP, _OUT_OF_GRADIENT)

_OPENS, _CLOSES = "_increment_nesting", "_decrement_nesting"
_DISABLES, _ENABLES = "_saved_tensors_hooks_disable", "_saved_tensors_hooks_enable"
"""Functions that torch calls around a transform. A graph must not end between them: the hooks would stay disabled."""


@dataclass
class _Open:
    """A transform that is open at a node."""

    level: int
    size: object
    """How many elements ``vmap`` maps over; None for other transforms."""
    inside: list[tuple[Node, Node]] = field(default_factory=list)
    """Nodes of Dynamo's graph, and the copies of their results that are still inside."""

    def taken_out(self, graph: Any, node: Node, value: Node) -> Any:
        """Add a node to ``graph`` that takes ``value``, the copy of a result of ``node``, out of this transform."""
        name = f"{node.name}_out_of_{self.level}"
        is_batch = self.size is not None
        args: tuple[object, ...] = (value, self.level, self.size, 0) if is_batch else (value, self.level)
        target = TRANSFORMS.resolve(_OUT_OF_VMAP if is_batch else _OUT_OF_GRADIENT)
        return graph.create_node("call_function", target, args, {}, name=name)


class TakenOut:
    """A copy of a graph in which each result inside a transform is taken out."""

    def __init__(self, module: GraphModule, nodes: Sequence[Node]) -> None:
        """Copy ``nodes``, those of ``module``, torch's ``GraphModule``."""
        self.visible: dict[Node, Node] = {}
        """By node: its copy, or the node that has its result outside."""
        self.originals: dict[Node, Node] = {}
        self.inside: set[object] = set()
        """The nodes that run inside a transform."""
        self.copies: dict[Node, Node] = {}
        with isolated():
            torch = sys.modules["torch"]
            self.module = torch.fx.GraphModule(module, self._copied(torch, nodes))
        self.names: Mapping[str, str] = {
            taken.name: node.name for node, taken in self.visible.items() if taken is not self.copies[node]
        }
        known = {each.name for each in self.copies.values()}
        self.added = frozenset(each.name for each in self.module.graph.nodes if each.name not in known)

    def _copied(self, torch: ModuleType, nodes: Sequence[Node]) -> object:
        made = torch.fx.Graph()
        opened: list[_Open] = []
        for node in nodes:
            name = _name(node)
            if name.endswith(_CLOSES) and opened:
                ended = opened.pop()
                for each, value in ended.inside:
                    taken = ended.taken_out(made, each, value)
                    if opened:
                        opened[-1].inside.append((each, taken))
                    else:
                        self.visible[each] = taken
            copy = self.copies[node] = made.node_copy(node, self.copies.__getitem__)
            if name.endswith(_OPENS):
                opened.append(_Open(len(opened) + 1, copy.args[0] if "vmap" in name else None))
            elif opened:
                self.inside.add(node)
                if node.op.startswith("call_") and not name.startswith("_") and is_tensor(example_of(node)):
                    kept = made.create_node("call_function", torch.clone, (copy,), {}, name=f"{node.name}_copied")
                    opened[-1].inside.append((node, kept))
        self.originals = {taken: node for node, taken in self.visible.items()}
        self.originals.update((copy, node) for node, copy in self.copies.items() if node not in self.visible)
        self.visible = {**self.copies, **self.visible}
        return made


def transforms_around(nodes: Sequence[Node]) -> Mapping[Node, tuple[Node, ...]]:
    """Return for each node inside transforms the nodes that open these, outermost first."""
    found: dict[Node, tuple[Node, ...]] = {}
    opened: list[Node] = []
    for node in nodes:
        name = _name(node)
        if name.endswith(_CLOSES) and opened:
            opened.pop()
        elif name.endswith(_OPENS):
            opened.append(node)
        elif opened:
            found[node] = tuple(opened)
    return found


def differentiates(opening: Node) -> bool:
    """Return whether the node ``opening`` opens a transform other than ``vmap``."""
    return "vmap" not in _name(opening)


def prefix_of(
    module: GraphModule, nodes: Sequence[Node], wanted: Sequence[Node], overwritten: Container[object] = ()
) -> object:
    """Return a graph that computes and returns the nodes ``wanted``, cut after them with all transforms closed.

    Of the nodes in ``overwritten`` it returns copies, which are made before a later node writes to their results.
    """
    torch = sys.modules["torch"]
    shorter = torch.fx.Graph()
    copies: dict[object, Any] = {}
    kept: dict[object, object] = {}
    end = _closed_after(nodes, max(nodes.index(node) for node in wanted))
    for position, node in enumerate(nodes):
        if node.op == "placeholder" or position <= end:
            copies[node] = shorter.node_copy(node, copies.__getitem__)
            copies[node].meta = {}
            if node in overwritten and node in wanted:
                kept[node] = shorter.call_method("clone", (copies[node_with_result(node)],))
    shorter.output(tuple(kept.get(node, copies[node]) for node in wanted))
    return torch.fx.GraphModule(module, shorter)


def _closed_after(nodes: Sequence[Node], end: int) -> int:
    """Return the first position from ``end`` on after which no transform is open."""
    depth = 0
    for position, node in enumerate(nodes):
        name = _name(node)
        depth += name.endswith((_OPENS, _DISABLES)) - name.endswith((_CLOSES, _ENABLES))
        if position >= end and depth <= 0:
            return position
    return end


def is_visible(value: object) -> TypeGuard[Tensor]:
    """Return whether a value is a plain tensor outside the transforms of ``torch.func``."""
    return has_own_memory(value) and unwrapped(value) is value


def _name(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target))
