"""Checks custom operators against their declarations, by calling them.

The compiler trusts an operator's declaration: the arguments that it writes to, the separate memory of its result, and
its fake kernel. If the real kernel differs, compiled code fails elsewhere, or not at all in this call. Runs on the
program's thread that makes the call.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_api.graphs.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.graphs.operations import is_custom_operator
from dynamo_dap.debuggee.torch_api.isolation import data_reading
from dynamo_dap.debuggee.torch_api.objects import Node
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import flattened, storage_of
from dynamo_dap.debuggee.torch_api.traced.symbols import hint_of, is_symbolic

FAKE_KERNEL = "fake kernel"
OPERATOR = "custom operator"

Promised = Sequence["_Result | None"]
"""A fake kernel's declaration of each result; None for a result that is not a plain tensor."""


@dataclass(frozen=True)
class _Result:
    dtype: str
    shape: tuple[object, ...]
    """The sizes; None for a size that depends on data."""
    strides: tuple[object, ...]

    def holds_for(self, other: _Result) -> bool:
        if (self.dtype, len(self.shape)) != (other.dtype, len(other.shape)):
            return False
        if any(one not in (None, two) for one, two in zip(self.shape, other.shape, strict=True)):
            return False
        sizes = zip(other.shape, self.strides, other.strides, strict=True)
        return 0 in other.shape or all(size == 1 or one in (None, two) for size, one, two in sizes)

    def text(self, beside: _Result) -> str:
        shape = ", ".join("?" if each is None else str(each) for each in self.shape)
        text = f"{self.dtype}[{shape}]"
        if (self.dtype, self.shape) != (beside.dtype, beside.shape):
            return text
        return f"{text} with strides ({', '.join(map(str, self.strides))})"


@dataclass(frozen=True)
class OperatorFault:
    """A custom operator's broken declaration."""

    stage: str
    text: str
    """A sentence on the operator, without its name: ``It writes to its argument x, ...``."""


def promised_by(node: Node) -> Promised | None:
    """Return the result of the fake kernel of a node's operator; None if the node calls no user operator."""
    example = node.meta.get("example_value") if is_custom_operator(node.target) else None
    return None if example is None else [_result(each) for each in flattened(example)]


def _result(value: object) -> _Result | None:
    torch = sys.modules["torch"]
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return _Result(
        str(value.dtype).rpartition(".")[2],
        tuple(map(_known, value.shape)),
        tuple(map(_known, value.stride())),
    )


def _known(size: Any) -> object:
    return hint_of(size) if is_symbolic(size) else int(size)


class CheckedCalls:
    """Calls custom operators, and notes broken declarations; a ``graph_runs.CallOperator``. Lives for one run."""

    def __init__(self, promised: Mapping[Node, Promised]) -> None:
        """Compare with ``promised``, the results of fake kernels, by node."""
        self._promised = promised
        self.faults: dict[Node, OperatorFault] = {}
        """Broken declarations by node, in the order of the graph."""

    def __call__(self, node: Node, function: Any, args: Any, kwargs: Any) -> object:
        """Call ``function`` for ``node``."""
        before = [
            (name, each, each.clone())
            for name, each in _read_only_arguments(function, args, kwargs)
            if has_own_memory(each)
        ]
        result = function(*args, **kwargs)
        self.faults.pop(node, None)
        fault = self._fault(node, function, before, result)
        if fault is not None:
            self.faults[node] = fault
        return result

    def _fault(
        self, node: Node, function: object, before: Sequence[tuple[str, object, object]], result: object
    ) -> OperatorFault | None:
        with data_reading():
            for name, now, copy in before:
                if not _are_equal(now, copy):
                    return OperatorFault(OPERATOR, f"It writes to its argument {name}, which its declaration denies.")
            memory = {storage_of(now): name for name, now, _ in before}
        returned = list(flattened(result))
        for each, declared in zip(returned, _schema_of(function).returns, strict=False):
            owner = memory.get(storage_of(each)) if has_own_memory(each) else None
            if owner is not None and declared.alias_info is None:
                text = f"It returns memory of its argument {owner}, which its declaration denies."
                return OperatorFault(OPERATOR, text)
        for each, promised in zip(map(_result, returned), self._promised.get(node, ()), strict=False):
            if each is not None and promised is not None and not promised.holds_for(each):
                reported, real = promised.text(each), each.text(promised)
                return OperatorFault(FAKE_KERNEL, f"It declares {reported}, but the operator returns {real}.")
        return None


def differing_repeat(function: Any, args: object, kwargs: object, result: object) -> str | None:
    """Call an operator a few more times; return how its results differ for equal operands, or None."""
    for text, changed in (
        ("when it is called again", lambda each: each),
        ("when its operands are contiguous", lambda each: each.contiguous()),
        ("when its operands have other strides", _transposed),
    ):
        with data_reading():
            again = function(*_mapped(args, changed), **_mapped(kwargs, changed))
            if not all(
                one.shape == two.shape and sys.modules["torch"].allclose(one, two, 1e-3, 1e-3, equal_nan=True)
                for one, two in zip(flattened(result), flattened(again), strict=False)
                if has_own_memory(one) and has_own_memory(two) and one.dtype == two.dtype
            ):
                return text
    return None


def _transposed(value: Any) -> object:
    return value.transpose(0, -1).contiguous().transpose(0, -1) if value.dim() > 1 else value


def _mapped(values: object, change: Any) -> Any:
    if isinstance(values, dict):
        return {name: _mapped(each, change) for name, each in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(_mapped(each, change) for each in values)
    return change(values.clone()) if has_own_memory(values) else values


def _are_equal(one: Any, other: Any) -> bool:
    torch = sys.modules["torch"]
    return bool(torch.equal(one, other)) or bool(((one == other) | (one.isnan() & other.isnan())).all())


def _schema_of(function: Any) -> Any:
    """Return an operator's schema; of an operator with several overloads, that of the first."""
    return getattr(function, "_schema", None) or getattr(function, function.overloads()[0])._schema


def _read_only_arguments(function: object, args: Any, kwargs: Any) -> Iterator[tuple[str, object]]:
    """Yield name and value of each argument that an operator does not declare to write to."""
    for position, argument in enumerate(_schema_of(function).arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            yield from ((argument.name, each) for each in flattened(value) if each is not None)
