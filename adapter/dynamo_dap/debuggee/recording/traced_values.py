"""Converts a trace's values and lines to data of the record, each value in a few characters.

Runs on the compiling thread. Nothing is realized, guarded or added to the graph, and no ``repr`` of the program's
objects is called.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.recording.function_names import own_function, place_of_code
from dynamo_dap.debuggee.recording.guard_texts import plain_name
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import user_function_of
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import abbreviated, facts_of, is_tensor
from dynamo_dap.debuggee.torch_api.objects import Tensor
from dynamo_dap.debuggee.torch_api.traced.sources import user_expression
from dynamo_dap.debuggee.torch_api.traced.symbols import size_text
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.traced_lines import Trace, TracedCode
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import (
    CellForm,
    Composite,
    FunctionForm,
    InstanceForm,
    Known,
    MappingForm,
    NumberForm,
    SequenceForm,
    SetForm,
    TensorForm,
    Unrealized,
)
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import is_tracker, source_of
from dynamo_dap.debuggee.values.type_facts import name_of
from dynamo_dap.records.model import Place, TracedFunction, TracedValue

MAXIMUM_VALUES = 2000
_MAXIMUM_LENGTH = 80
_ITEMS = 4
_DEPTH = 2
_PLAIN = (int, float, complex, bool, str, bytes, type(None))


def traced_functions(trace: Trace) -> list[TracedFunction]:
    """Return the user's functions in a trace; a function and its resume functions are one."""
    found: dict[tuple[str, Place], TracedFunction] = {}
    for traced in trace.codes:
        key = name, place = own_function(traced.code)
        lines = {line for *_, line in user_function_of(traced.code).co_lines() if line}
        known = found.get(key)
        all_lines = lines | set(known.lines if known else ())
        all_traced = traced.lines | set(known.traced if known else ())
        found[key] = TracedFunction(name, place, sorted(all_lines), sorted(all_traced))
    return list(found.values())


def values_of(trace: Trace) -> list[TracedValue]:
    """Return the values that names were assigned, as far as they are known."""
    if trace.frame is None:
        return []
    found: dict[TracedValue, None] = {}
    for traced in trace.codes:
        for value in _values_of_code(trace.frame, traced):
            if len(found) >= MAXIMUM_VALUES:
                break
            found[value] = None
    return list(found)


def _values_of_code(frame: TracedFrame, traced: TracedCode) -> Iterable[TracedValue]:
    begin = place_of_code(traced.code)
    for name, tracker in traced.parameters.items():
        # Leave out Dynamo's names for arguments of functions that it makes.
        if name.isidentifier() and not name.startswith("__"):
            yield _value(frame, name, tracker, begin, is_parameter=True)
    for (name, place), trackers in traced.stored.items():
        for tracker in trackers:
            yield _value(frame, name, tracker, Place(place.path, place.line, place.column), is_parameter=False)


def _value(frame: TracedFrame, name: str, tracker: object, place: Place, *, is_parameter: bool) -> TracedValue:
    writer = _Writer(frame)
    text = writer.text(tracker, _DEPTH)
    written = user_expression(source_of(tracker))
    source = None if written is None else plain_name(written)
    return TracedValue(name, text[:_MAXIMUM_LENGTH], place, source, writer.has_tensor, is_parameter)


class _Writer:
    """Writes one value."""

    def __init__(self, frame: TracedFrame) -> None:
        self._frame = frame
        self.has_tensor = False

    def text(self, value: object, depth: int) -> str:
        if not is_tracker(value):
            return self._object(value)
        form = self._frame.form_of(value)
        match form:
            case TensorForm():
                return self._tensor(form.example)
            case NumberForm():
                self.has_tensor = True
                return size_text(form.number)
            case Known() | Unrealized():
                return self._object(form.value)
            case SequenceForm() | SetForm() | MappingForm() | CellForm():
                return self._container(form, depth)
            case _:
                return _name(form)

    def _container(self, form: SequenceForm | SetForm | MappingForm | CellForm, depth: int) -> str:
        match form:
            case SequenceForm():
                return form.opening + self._items(form.items, depth) + form.closing
            case SetForm():
                return "{" + self._items(form.items, depth) + "}"
            case MappingForm():
                return self._mapping(form, depth)
            case CellForm():
                return self.text(form.contents, depth)

    def _tensor(self, tensor: Tensor) -> str:
        self.has_tensor = True
        if not is_tensor(tensor):
            return "Tensor"
        found = facts_of(tensor)
        return f"{abbreviated(found.dtype)}[{', '.join(found.shape)}]"

    def _object(self, value: object) -> str:
        if is_exactly(value, _PLAIN):
            return repr(value) if len(str(value)) <= _MAXIMUM_LENGTH else type(value).__name__
        return self._tensor(value) if is_tensor(value) else name_of(type(value))

    def _items(self, items: Collection[object], depth: int) -> str:
        if depth == 0:
            return "…" if len(items) else ""
        texts = [self.text(item, depth - 1) for item in list(items)[:_ITEMS]]
        return ", ".join([*texts, *(["…"] if len(items) > _ITEMS else [])])

    def _mapping(self, form: MappingForm, depth: int) -> str:
        if depth == 0:
            return "{…}" if form.pairs else "{}"
        pairs = list(form.pairs)[:_ITEMS]
        texts = [f"{self.text(key, 0)}: {self.text(value, depth - 1)}" for key, value in pairs]
        return "{" + ", ".join([*texts, *(["…"] if len(form.pairs) > _ITEMS else [])]) + "}"


def _name(form: FunctionForm | InstanceForm | Composite) -> str:
    match form:
        case FunctionForm():
            return f"function {form.name}"
        case InstanceForm():
            return str(type.__dict__["__name__"].__get__(form.cls))
        case Composite():
            return form.title
