"""Shows why the sizes of a traced tensor are static or dynamic: a row for each size, with the reasons below.

The user may set the sizes: ``x.shape[0] = symbolic``. The reasons are computed when the user opens the row, which adds
no guard and no node. Runs on the held tracing thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dynamo_dap.debuggee.agent.stepping import ChangesTrace
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_tensor
from dynamo_dap.debuggee.torch_api.isolation import metadata_reading
from dynamo_dap.debuggee.torch_api.objects import Tensor
from dynamo_dap.debuggee.torch_api.traced.data_dependence import data_symbols_of
from dynamo_dap.debuggee.torch_api.traced.size_reasons import InputSizes, SizeFacts, SizeReason, written
from dynamo_dap.debuggee.torch_api.traced.symbols import is_symbolic, size_text, symbols_of
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import NumberForm, TensorForm
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place
from dynamo_dap.debuggee.trace.expressions import assignment
from dynamo_dap.debuggee.values.model import (
    Children,
    Deferred,
    Fixed,
    Followed,
    Location,
    Value,
    Variable,
    WriteRefused,
)
from dynamo_dap.protocol.requests.sizes import SIZES_ROW

SHAPE = "shape"
"""The child of a tensor that can be set."""


class ChildrenOfTensor(Followed):
    """The children of a traced tensor; ``shape`` can be set."""

    def __init__(
        self,
        frame: TracedFrame,
        expression: str,
        children: Children | None,
        others: Callable[[], Sequence[Variable]],
        tensor: Callable[[], Any] | None,
        first: Callable[[], Sequence[Variable]],
    ) -> None:
        """Name the tensor by ``expression``, evaluated in ``frame``."""
        super().__init__(children, others, tensor, first)
        self._frame = frame
        self._expression = expression

    def can_write(self, name: str) -> bool:
        """Return whether ``name`` is ``shape``, the only child that can be set."""
        return name == SHAPE

    def write(self, name: str, expression: str) -> Value:
        """Set all sizes to one value (``symbolic``), or each to its own (``(symbolic, 4)``)."""
        if name != SHAPE:
            raise WriteRefused(f"'{name}' of a tensor cannot be set: assign another tensor")
        raise ChangesTrace(assignment(self._frame, f"{self._expression}.{name}", expression))


def sizes_of(frame: TracedFrame, form: TensorForm | NumberForm) -> list[Variable]:
    """Return one row that has a row for each size; empty for a value without sizes."""
    example = form.number if isinstance(form, NumberForm) else form.example
    if isinstance(form, NumberForm) and type(example).__name__ != "SymInt":
        return []
    if isinstance(form, TensorForm) and (not is_tensor(example) or not example.dim()):
        return []
    rows = Deferred(lambda: list(_rows(frame, example)))
    count = "1 number" if isinstance(form, NumberForm) else f"{example.dim()} dimensions"
    return [Variable(SIZES_ROW, Value(count, children=rows, kind="virtual"))]


def sizes_of_unused(frame: TracedFrame, tensor: Tensor, source: object) -> list[Variable]:
    """Return the same row for an input that the trace has not used: Dynamo decides on its sizes at the first use."""
    with metadata_reading():
        # A nested tensor has no sizes as a whole.
        dimensions = 0 if tensor.is_nested else tensor.dim()
    if source is None or not dimensions:
        return []
    rows = Deferred(lambda: list(_unused_rows(frame, tensor, source)))
    return [Variable(SIZES_ROW, Value(f"{dimensions} dimensions", children=rows, kind="virtual"))]


def _unused_rows(frame: TracedFrame, tensor: Tensor, source: object) -> Iterator[Variable]:
    for position, reasons in enumerate(InputSizes.of_trace(frame).of_unused(tensor, source)):
        with metadata_reading():
            size = size_text(tensor.size()[position])
        known = f"; {reasons[0].text}" if reasons else ""
        text = f"{size}, not decided: the trace has not used the tensor{known}"
        children = Fixed(tuple(map(_reason_row, reasons))) if len(reasons) > 1 else None
        yield Variable(f"shape[{position}]", Value(text, children=children, kind="virtual"))


def _rows(frame: TracedFrame, example: Any) -> Iterator[Variable]:
    inputs = InputSizes.of_trace(frame)
    own = inputs.of_example(example)
    if is_symbolic(example):
        yield _input_row("number", own[0]) if own else _computed_row("number", example, inputs, frame)
        return
    with metadata_reading():
        sizes = list(example.size())
    for position, size in enumerate(sizes):
        name = f"shape[{position}]"
        if position < len(own):
            yield _input_row(name, own[position])
        elif is_symbolic(size):
            yield _computed_row(name, size, inputs, frame)
        else:
            yield Variable(name, Value(f"{size}: contains no symbol", kind="virtual"))


def _input_row(name: str, facts: SizeFacts) -> Variable:
    known = ", ".join(filter(None, [facts.symbol, facts.value]))
    first = f": {facts.reasons[0].text}" if facts.reasons else ""
    # A single reason without a line is in the row itself.
    is_all = len(facts.reasons) <= 1 and all(reason.place is None for reason in facts.reasons)
    reasons = None if is_all else Fixed(tuple(map(_reason_row, facts.reasons)))
    return Variable(name, Value(f"{known} {facts.state}{first}", children=reasons, kind="virtual"))


def _computed_row(name: str, size: object, inputs: InputSizes, frame: TracedFrame) -> Variable:
    """Return the row of a computed size, with its inputs and data below it."""
    known = [facts for symbol in symbols_of(size) if (facts := inputs.of_symbol(str(symbol))) is not None]
    data = data_symbols_of(size, frame)
    if len(known) == 1 and not data:
        # Name its only input in the row itself, so that the reasons are one click away.
        source, facts = written(known[0].source), known[0]
        from_input = _input_row(source, facts).value
        text = f"{size_text(size)}: computed from {source} = {from_input.text}"
        return Variable(name, Value(text, children=Fixed(tuple(map(_reason_row, facts.reasons))), kind="virtual"))
    rows = [_input_row(written(facts.source), facts) for facts in known]
    rows += [_row_at(symbol.name, symbol.text, symbol.place) for symbol in data]
    return Variable(name, Value(f"{size_text(size)}: computed", children=Fixed(tuple(rows)), kind="virtual"))


def _reason_row(reason: SizeReason) -> Variable:
    where = "" if reason.place is None else f", at {reason.place.path.rpartition('/')[2]}:{reason.place.line}"
    return _row_at(reason.kind, reason.text + where, reason.place)


def _row_at(name: str, text: str, place: Place | None) -> Variable:
    location = None if place is None else Location(place.path, place.line)
    return Variable(name, Value(text, kind="virtual", location=location), declaration=location)
