"""Finds NaN and Inf: whether values have any, and which operation of a graph made the first.

An operation made a NaN or Inf if its result has it and none of its operands does. If a NaN comes from an Inf, the
operation that made the Inf is reported. A NaN in an input of the call is attributed to the input. Ignored are an Inf in
an input, a NaN or Inf that the program writes as a constant (``masked_fill(mask, -inf)``), and uninitialized memory.
Runs on the program's thread that makes the call.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dynamo_dap.debuggee.numerics.graphs.bad_operands import BadOperand, bad_operands, expression_text
from dynamo_dap.debuggee.numerics.graphs.bodies import run_observed, with_bodies_run_by
from dynamo_dap.debuggee.replay.replayed_graph import ReplayedGraph
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import has_own_memory, in_transform
from dynamo_dap.debuggee.torch_api.graphs.operations import makes_unset_memory
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_tensor, version_of
from dynamo_dap.debuggee.torch_api.isolation import data_reading, uncompiled_data_reading
from dynamo_dap.debuggee.torch_api.objects import GraphModule, Node, Tensor
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import flattened, storage_of

NAN, INF = "nan", "inf"
Kinds = frozenset[str]
_NONE: Kinds = frozenset()


def _floats(values: object) -> Iterator[Tensor]:
    """Yield the floating-point tensors in ``values``, complex ones as real. Call it while autograd records nothing."""
    torch = sys.modules["torch"]
    for each in flattened(values):
        if has_own_memory(each) and each.numel() and each.untyped_storage().nbytes():  # it may have been released
            if each.is_complex():
                yield torch.view_as_real(each.resolve_conj())
            elif each.is_floating_point():
                yield each


def may_have_any(values: object, sums: Sequence[object] = ()) -> bool:
    """Return whether ``values`` may have a NaN or an Inf: False is certain, True needs a closer look.

    ``sums`` are results of ``sum_of`` for other values. The function waits for each device once. Call it where nothing
    is compiled.
    """
    with uncompiled_data_reading():
        found = [*sums, *map(_summed, _floats(values))]
        if len(found) == 1:
            return not math.isfinite(found[0].item())
        by_device: dict[object, list[Tensor]] = {}
        for each in found:
            by_device.setdefault(each.device, []).append(each)
        return any(not math.isfinite(_total(each).item()) for each in by_device.values())


def sum_of(value: object) -> object:
    """Return a sum of a tensor's elements, which is finite only if all elements are; None for other values.

    The result is a 0-d tensor on the same device. For some types it is a sum of squares, which is as fast as reading
    the memory.
    """
    with uncompiled_data_reading():
        return next(map(_summed, _floats(value)), None)


def _summed(values: Any) -> Any:
    torch = sys.modules["torch"]
    if values.dtype in (torch.float32, torch.float64) and values.is_contiguous():
        flat = values.view(-1)
        return torch.dot(flat, flat)
    wide = values if values.itemsize > 1 else values.float()
    return wide.sum(dtype=torch.float32) if wide.itemsize < 4 else wide.sum()


def _total(sums: list[Tensor]) -> Any:
    if len(sums) == 1:
        return sums[0]
    return sys.modules["torch"].stack([each.double() for each in sums]).sum()


class SeenTensors:
    """A set of tensors that does not keep them alive."""

    def __init__(self) -> None:
        self._seen: dict[int, weakref.ref[object]] = {}

    def add(self, tensors: Iterable[object]) -> None:
        """Add the tensors among some values."""
        self._seen = {key: reference for key, reference in self._seen.items() if reference() is not None}
        self._seen.update((id(each), weakref.ref(each)) for each in tensors if is_tensor(each))

    def __contains__(self, tensor: object) -> bool:
        return id(tensor) in self._seen and self._seen[id(tensor)]() is tensor


def kinds_of(value: object) -> Kinds:
    """Return which of NaN and Inf are in the tensors of ``value``."""
    found: set[str] = set()
    with data_reading():
        for each in _floats(value):
            if bool(each.isnan().any()):
                found.add(NAN)
            if bool(each.isinf().any()):
                found.add(INF)
    return frozenset(found)


@dataclass(frozen=True, eq=False)
class BadOperation:
    """An operation that made a NaN or an Inf."""

    node: Node
    kind: str
    value: object
    """A copy of the operation's result, or of the tensor that it wrote to."""
    position: int
    """The operation's position among the nodes of the graph."""
    operator: Any = None
    """The higher-order operator whose body contains the operation, if any."""
    operands: tuple[BadOperand, ...] = ()
    """The operands that caused the first NaN or Inf, if known."""

    def because(self, names: Mapping[Node, str]) -> str | None:
        """Return the operands that caused the first NaN or Inf as text: ``mask.sum(-1)[2] is 0``.

        ``names`` has the user's names of the graph's inputs. None if the operands are unknown.
        """
        found = _first_of(self.value, self.kind)
        if found is None or not self.operands:
            return None
        return " and ".join(
            f"{expression_text(each.node, names)}{each.index or ''} is {each.text}" for each in self.operands
        )

    @property
    def text(self) -> str:
        """The number of bad elements, and the first one: ``2 of 8 elements are NaN, first [0, 3]``."""
        found = _first_of(self.value, self.kind)
        if found is None:
            return f"has {self.kind}"
        shown, count, size, index = found
        if size == 1:
            return f"is {shown}"
        return f"{count} of {size} elements {'is' if count == 1 else 'are'} {shown}, first {index}"


@dataclass(frozen=True, eq=False)
class BadInput:
    """An input of a call that already had a NaN."""

    node: Node
    value: object
    """The input's value when the call began."""

    @property
    def text(self) -> str:
        """The position of the first NaN: ``NaN at [3, 2]``."""
        found = _first_of(self.value, NAN)
        return "NaN" if found is None or not found[3] else f"NaN at {found[3]}"


def _first_of(values: object, kind: str) -> tuple[str, int, int, list[int]] | None:
    """Find the first NaN or Inf (``kind``).

    Returns:
        Its text, the number of such elements in the tensor, the number of all elements, and its index.
    """
    torch = sys.modules["torch"]
    with data_reading():
        for tensor in flattened(values):
            for each in _floats(tensor):
                parts = each if tensor.is_complex() else each.unsqueeze(-1)
                bad = parts.isnan() if kind == NAN else parts.isinf()
                elements = bad.any(-1)
                count = int(elements.sum())
                if count:
                    index = torch.nonzero(elements)[0].tolist()
                    return _shown(parts[bad][0].item()), count, tensor.numel(), index
    return None


def _shown(number: float) -> str:
    return "NaN" if math.isnan(number) else "Inf" if number > 0 else "-Inf"


@dataclass(frozen=True)
class Origin:
    """The operation or input that made the first NaN or Inf of a call's results."""

    made: BadOperation | BadInput | None
    """The source; None if no operation made a NaN or Inf, and no input had one."""
    kind: str
    """The kind in the results. It may be NaN though the source made an Inf."""
    outputs: list[Kinds]
    """The kinds in the replay's outputs."""


def find_origin(graph: ReplayedGraph, returned: Sequence[Kinds], written: Mapping[object, Kinds]) -> Origin:
    """Run ``graph``, and find the source of the first NaN or Inf in its outputs and in the inputs that it writes to.

    ``returned`` and ``written`` have the kinds in the outputs and in these inputs.

    Raises:
        NoRealValue: the graph cannot be run again.
    """
    watch = _Watch()
    with with_bodies_run_by(graph.module, watch.run_body):
        outputs = graph.run(watch)
    wanted = [*zip(graph.output_nodes, returned, strict=False), *written.items()]
    found = [
        (made, kind)
        for node, kinds in wanted
        for kind in kinds
        if (made := watch.made.get(node, {}).get(kind)) is not None
    ]
    # If one operation made both kinds, choose the NaN: a set of kinds has no order.
    first, kind = min(found, key=lambda one: (*_order(one[0]), one[1] != NAN), default=(None, INF))
    return Origin(first, kind, [kinds_of(each) for each in outputs])


def _order(made: BadOperation | BadInput | None) -> tuple[int, int]:
    """Return a sort key: operations in the graph's order, then inputs, then unknown sources."""
    return (0, made.position) if isinstance(made, BadOperation) else (1 if made is not None else 2, 0)


_Origins = Mapping[str, "BadOperation | BadInput | None"]
"""The source of each kind; None for a constant of the program, and for an Inf in an input."""


def made_in_body(body: GraphModule, operands: tuple[object, ...]) -> tuple[object, Mapping[str, BadOperation]]:
    """Run a higher-order operator's body; return its outputs, and the operation that made the first of each kind."""
    watch = _Watch()
    outputs = watch.run_body(body, operands)
    (made,) = watch.inside
    return outputs, made


class _Watch:
    """Notes the NaN and Inf in each node's result while a graph runs. Implements ``graph_runs.Ran``."""

    def __init__(self) -> None:
        self.made: dict[object, _Origins] = {}
        """The kinds in each node's result, with their sources."""
        self._in_memory: dict[object, dict[str, BadOperation | BadInput | None]] = {}
        """The kinds in each memory that a node has written to, with their sources."""
        self._versions: dict[object, int] = {}
        self._count = 0
        self.inside: list[dict[str, BadOperation]] = []
        """For each run of a body by the present operation, the sources of the kinds that the body returned."""

    def run_body(self, body: GraphModule, operands: tuple[object, ...]) -> object:
        """Run a higher-order operator's body, and note which of its operations made the NaN and Inf in its outputs."""
        watch = _Watch()
        with with_bodies_run_by(body, watch.run_body):
            outputs = run_observed(body, operands, watch)
        (returned,) = (node.all_input_nodes for node in body.graph.nodes if node.op == "output")
        origins: dict[str, BadOperation] = {}
        for node in returned:
            for kind, made in watch.made.get(node, {}).items():
                if isinstance(made, BadOperation):
                    origins[kind] = min(origins.get(kind) or made, made, key=_order)
        self.inside.append(origins)
        return outputs

    def __call__(self, node: Node, results: Mapping[Node, object]) -> None:
        if node.prev.op == "root":  # the run begins, perhaps again
            self.made, self._in_memory, self._versions, self._count = {}, {}, {}, 0
        inside, self.inside = self.inside, []
        self._count += 1
        if node.op == "output" or in_transform():
            return
        result = results[node]
        self._forget_memory_before(node, results)
        if node.op in ("placeholder", "get_attr"):
            self.made[node] = {kind: BadInput(node, result) if kind == NAN else None for kind in kinds_of(result)}
            self._note_versions(result)
            return
        written = [each for each in node.all_input_nodes if self._was_written(results[each])]
        changed = [result, *(results[each] for each in written)]
        kinds = _NONE if makes_unset_memory(node) else kinds_of(changed)
        origins = self._origins(node, kinds, changed, results, inside) if kinds else {}
        for each in (node, *written):
            of_this = kinds_of(results[each]) if written else kinds
            self.made[each] = {kind: made for kind, made in origins.items() if kind in of_this}
        for each in flattened([results[other] for other in written]):
            if has_own_memory(each):
                self._in_memory.setdefault(storage_of(each), {}).update(origins)
        self._note_versions(changed)

    def _origins(
        self,
        node: Node,
        kinds: Kinds,
        changed: object,
        results: Mapping[Node, object],
        inside: Sequence[dict[str, BadOperation]],
    ) -> _Origins:
        had = self._of_operands(node, results)
        origins: dict[str, BadOperation | BadInput | None] = {}
        for kind in kinds:
            if kind in had:
                origins[kind] = had[kind]
            elif kind == NAN and had.get(INF) is not None:
                origins[kind] = had[INF]
            elif (of_body := next((one[kind] for one in inside if kind in one), None)) is not None:
                origins[kind] = replace(of_body, position=self._count, operator=node)
            elif _is_written_by_program(node, kind):
                origins[kind] = None
            else:
                value = next(each.clone() for each in flattened(changed) if kind in kinds_of(each))
                first = _first_of(value, kind)
                operands = () if first is None else bad_operands(node, value, first[3], results)
                origins[kind] = BadOperation(node, kind, value, self._count, operands=operands)
        return origins

    def _of_operands(self, node: Node, results: Mapping[Node, object]) -> dict[str, BadOperation | BadInput | None]:
        """Return the kinds in the operands, with their sources, also if they were written through another tensor."""
        found: dict[str, BadOperation | BadInput | None] = {}
        for operand in node.all_input_nodes:
            known = self.made.get(operand, {})
            for each in flattened(results[operand]):
                written = self._in_memory.get(storage_of(each)) if has_own_memory(each) else None
                if written and any(kind not in known for kind in written):
                    present = kinds_of(each)
                    known = {**known, **{kind: made for kind, made in written.items() if kind in present}}
            for kind, made in known.items():
                if kind not in found or _order(made) < _order(found[kind]):
                    found[kind] = made
        return found

    def _forget_memory_before(self, node: Node, results: Mapping[Node, object]) -> None:
        """Forget the kinds in memory that a node has allocated: they belong to an earlier result there."""
        if not self._in_memory:
            return
        of_operands = {storage_of(each) for other in node.all_input_nodes for each in flattened(results[other])}
        for each in flattened(results[node]):
            if has_own_memory(each) and storage_of(each) not in of_operands:
                self._in_memory.pop(storage_of(each), None)

    def _was_written(self, value: object) -> bool:
        return any(
            self._versions.get(storage_of(each), version_of(each)) != version_of(each)
            for each in flattened(value)
            if has_own_memory(each)
        )

    def _note_versions(self, value: object) -> None:
        for each in flattened(value):
            if has_own_memory(each):
                self._versions[storage_of(each)] = version_of(each)


def _is_written_by_program(node: Node, kind: str) -> bool:
    """Return whether an operand of ``node`` is a constant NaN or Inf in the program."""
    has_kind = math.isnan if kind == NAN else math.isinf
    return any(isinstance(each, float) and has_kind(each) for each in _constants([node.args, node.kwargs]))


def _constants(operands: object) -> Iterator[object]:
    if isinstance(operands, list | tuple):
        for each in operands:
            yield from _constants(each)
    elif isinstance(operands, Mapping):
        yield from _constants(list(operands.values()))
    else:
        yield operands
