"""NaN and Inf: whether values have any, and which operation of a graph made the first.

An operation made one if its result has it and none of its operands does. A NaN that comes of an Inf was made where the
Inf was. An Inf or NaN that the program wrote (``masked_fill(mask, -inf)``) was given, not made, and so were those of
the call's inputs; what is in memory that nobody has written to yet counts for nothing. Thread of the program that makes
the call.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.replay.replays import ReplayedGraph
from dynamo_dap.debuggee.torch_api.fake_evaluation import flattened, storage_of
from dynamo_dap.debuggee.torch_api.graph import target_name
from dynamo_dap.debuggee.torch_api.graph_runs import has_own_memory, in_transform
from dynamo_dap.debuggee.torch_api.isolation import data_reading, uncompiled_data_reading
from dynamo_dap.debuggee.torch_api.tensor_facts import version_of

NAN, INF = "nan", "inf"
Kinds = frozenset[str]
_NONE: Kinds = frozenset()
_UNWRITTEN = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})


def _floats(values: Any) -> Iterator[Any]:
    torch: Any = sys.modules["torch"]
    for each in flattened(values):
        if has_own_memory(each) and each.numel():
            if each.is_complex():
                yield torch.view_as_real(each.detach().resolve_conj())
            elif each.is_floating_point():
                yield each.detach()


def may_have_any(values: Any) -> bool:
    """Whether ``values`` may have a NaN or an Inf: no for certain, or have a closer look.

    One pass over the data and one answer for each device: a sum is finite only if all that it sums up is, and so is a
    sum of squares, which is read at the speed of the memory. To be called where nothing is compiled.
    """
    torch: Any = sys.modules["torch"]
    with uncompiled_data_reading():
        sums: dict[Any, list[Any]] = {}
        for each in _floats(values):
            sums.setdefault(each.device, []).append(_summed(torch, each))
        return any(not math.isfinite(_total(each).item()) for each in sums.values())


def _summed(torch: Any, values: Any) -> Any:
    if values.dtype in (torch.float32, torch.float64) and values.is_contiguous():
        flat = values.view(-1)
        return torch.dot(flat, flat)
    wide = values if values.itemsize > 1 else values.float()
    return wide.sum(dtype=torch.float32) if wide.itemsize < 4 else wide.sum()


def _total(sums: list[Any]) -> Any:
    if len(sums) == 1:
        return sums[0]
    return sys.modules["torch"].stack([each.double() for each in sums]).sum()


def kinds_of(value: Any) -> Kinds:
    """Return what of NaN and Inf is in a tensor, or in tensors."""
    found: set[str] = set()
    with data_reading():
        for each in _floats(value):
            if bool(each.isnan().any()):
                found.add(NAN)
            if bool(each.isinf().any()):
                found.add(INF)
    return frozenset(found)


@dataclass(frozen=True, eq=False)
class Made:
    """An operation that made a NaN or an Inf."""

    node: Any
    kind: str
    value: Any
    """Its result as it was then, or what it wrote to."""
    position: int
    """Among the nodes of the graph."""

    @property
    def text(self) -> str:
        """What is in the result: ``2 of 8 elements are NaN``."""
        torch: Any = sys.modules["torch"]
        with data_reading():
            for tensor in flattened(self.value):
                for each in _floats(tensor):
                    parts = each if tensor.is_complex() else each.unsqueeze(-1)
                    bad = parts.isnan() if self.kind == NAN else parts.isinf()
                    elements = bad.any(-1)
                    count = int(elements.sum())
                    if not count:
                        continue
                    shown = _shown(parts[bad][0].item())
                    if tensor.numel() == 1:
                        return f"is {shown}"
                    index = ", ".join(map(str, torch.nonzero(elements)[0].tolist()))
                    verb = "is" if count == 1 else "are"
                    return f"{count} of {tensor.numel()} elements {verb} {shown}, first [{index}]"
        return f"has {self.kind}"


def _shown(number: float) -> str:
    return "NaN" if math.isnan(number) else "Inf" if number > 0 else "-Inf"


def first_made(graph: ReplayedGraph, wanted: Sequence[Kinds]) -> tuple[Made | None, str, list[Kinds]]:
    """Run ``graph``; return what made the first of what is ``wanted`` of its outputs, as which kind, and all kinds.

    The kind is that in the output: an Inf may have become a NaN. None when no operation made any: what is there was
    given, or is not there at all.

    Raises:
        NoRealValue: it cannot be run again.
    """
    watch = _Watch()
    outputs = graph.run(watch)
    found = [
        (made, kind)
        for node, kinds in zip(graph.output_nodes, wanted, strict=False)
        for kind in kinds
        if (made := watch.made.get(node, {}).get(kind)) is not None
    ]
    # One operation may make both: the NaN is reported, whatever the order of the set of kinds.
    first, kind = min(found, key=lambda one: (one[0].position, one[1] != NAN), default=(None, INF))
    return first, kind, [kinds_of(each) for each in outputs]


_Origins = Mapping[str, "Made | None"]
"""By kind, who made it; None for what was given."""


class _Watch:
    """Told of each node that has run: see ``graph_runs.Ran``."""

    def __init__(self) -> None:
        self.made: dict[Any, _Origins] = {}
        """By node: what its result has, and who made that."""
        self._in_memory: dict[object, dict[str, Made | None]] = {}
        """The same by memory that was written to."""
        self._versions: dict[object, int] = {}
        self._count = 0

    def __call__(self, node: Any, results: Mapping[Any, Any]) -> None:
        if node.prev.op == "root":  # the run begins, perhaps again
            self.made, self._in_memory, self._versions, self._count = {}, {}, {}, 0
        self._count += 1
        if node.op == "output" or in_transform():  # a tensor stands for many in a transform
            return
        result = results[node]
        self._forget_memory_before(node, results)
        if node.op in ("placeholder", "get_attr"):
            self.made[node] = dict.fromkeys(kinds_of(result))
            self._note_versions(result)
            return
        written = [each for each in node.all_input_nodes if self._was_written(results[each])]
        changed = [result, *(results[each] for each in written)]
        kinds = _NONE if _is_unwritten(node) else kinds_of(changed)
        origins = self._origins(node, kinds, changed, results) if kinds else {}
        for each in (node, *written):
            of_this = kinds_of(results[each]) if written else kinds
            self.made[each] = {kind: made for kind, made in origins.items() if kind in of_this}
        for each in flattened([results[other] for other in written]):
            if has_own_memory(each):
                self._in_memory.setdefault(storage_of(each), {}).update(origins)
        self._note_versions(changed)

    def _origins(self, node: Any, kinds: Kinds, changed: Any, results: Mapping[Any, Any]) -> _Origins:
        operands = self._of_operands(node, results)
        origins: dict[str, Made | None] = {}
        for kind in kinds:
            if kind in operands:
                origins[kind] = operands[kind]
            elif kind == NAN and operands.get(INF) is not None:
                origins[kind] = operands[INF]
            elif _is_written_by_program(node, kind):
                origins[kind] = None
            else:
                value = next(each.clone() for each in flattened(changed) if kind in kinds_of(each))
                origins[kind] = Made(node, kind, value, self._count)
        return origins

    def _of_operands(self, node: Any, results: Mapping[Any, Any]) -> dict[str, Made | None]:
        """Return what the operands had, with what was written to their memory under another name."""
        found: dict[str, Made | None] = {}
        for operand in node.all_input_nodes:
            known = self.made.get(operand, {})
            for each in flattened(results[operand]):
                written = self._in_memory.get(storage_of(each)) if has_own_memory(each) else None
                if written and any(kind not in known for kind in written):
                    present = kinds_of(each)
                    known = {**known, **{kind: made for kind, made in written.items() if kind in present}}
            for kind, made in known.items():
                before = found.get(kind)
                if before is None or (made is not None and made.position < before.position):
                    found[kind] = made
        return found

    def _forget_memory_before(self, node: Any, results: Mapping[Any, Any]) -> None:
        """Memory that a node has allocated may have been that of a result that was let go."""
        if not self._in_memory:
            return
        of_operands = {storage_of(each) for other in node.all_input_nodes for each in flattened(results[other])}
        for each in flattened(results[node]):
            if has_own_memory(each) and storage_of(each) not in of_operands:
                self._in_memory.pop(storage_of(each), None)

    def _was_written(self, value: Any) -> bool:
        return any(
            self._versions.get(storage_of(each), version_of(each)) != version_of(each)
            for each in flattened(value)
            if has_own_memory(each)
        )

    def _note_versions(self, value: Any) -> None:
        for each in flattened(value):
            if has_own_memory(each):
                self._versions[storage_of(each)] = version_of(each)


def _is_unwritten(node: Any) -> bool:
    return target_name(node).rpartition(".")[2] in _UNWRITTEN


def _is_written_by_program(node: Any, kind: str) -> bool:
    """Whether the program's text gives a NaN or an Inf to the operation."""
    has_kind = math.isnan if kind == NAN else math.isinf
    return any(isinstance(each, float) and has_kind(each) for each in _constants([node.args, node.kwargs]))


def _constants(operands: Any) -> Iterator[Any]:
    if isinstance(operands, list | tuple):
        for each in operands:
            yield from _constants(each)
    elif isinstance(operands, Mapping):
        yield from _constants(list(operands.values()))
    else:
        yield operands
