"""Shows the scope ``Side Effects``: the traced code's pending changes to outside objects, in the user's terms.

``d['result'] = z``, ``self.count = 4``, ``nonlocal total``, ``global counter``, hooks. Runs on the tracing thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.traced.sources import user_expression
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import InstanceForm, MappingForm, SequenceForm, tuple_form
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import (
    changed_variable,
    constant_of,
    is_deleted,
    is_unrealized,
    mutation_state,
    original_pairs,
    source_name,
    source_of,
    unwrapped,
)
from dynamo_dap.debuggee.trace.guards_view import resolved
from dynamo_dap.debuggee.trace.traced_view import TracedView
from dynamo_dap.debuggee.values.model import Children, Deferred, Location, Value, Variable
from dynamo_dap.debuggee.values.paging import unique_names
from dynamo_dap.protocol.texts import in_user_terms

_NONE = Variable("(none so far)", Value("", kind="virtual"))


def side_effect_children(view: TracedView) -> Children:
    """Return the pending changes as children, each with the assigned target as its name, and the new value."""
    return Deferred(lambda: unique_names(_changes(view)) or [_NONE])


def _changes(view: TracedView) -> Iterator[Variable]:
    yield from _attributes(view)
    yield from _containers(view)
    yield from _others(view)


def _attributes(view: TracedView) -> Iterator[Variable]:
    for tracker, name, value in view.frame.attribute_changes():
        if mutation_state(tracker) == "new":
            continue  # made by the traced code: not visible outside
        target = _target(tracker, name)
        place = _last_change(view.frame, tracker)
        if is_deleted(value):
            yield Variable(f"del {target}", Value("deleted", location=place), declaration=place)
        else:
            yield Variable(target, view.value(value), declaration=place)


def _target(tracker: object, name: str) -> str:
    source = user_expression(source_of(tracker)) or "?"
    return changed_variable(tracker, name, source) or f"{source}.{name}"


def _last_change(frame: TracedFrame, tracker: object) -> Location | None:
    place = frame.last_change(tracker)
    return None if place is None else Location(place.path, place.line, place.column)


def _containers(view: TracedView) -> Iterator[Variable]:
    for tracker in view.frame.modified_containers():
        name = user_expression(source_of(tracker)) or "?"
        form = view.frame.form_of(tracker)
        if isinstance(form, InstanceForm) and form.contents is not None:
            form = form.contents
        place = _last_change(view.frame, tracker)
        if isinstance(form, MappingForm):
            yield from _dictionary(view, tracker, name, form, place)
        elif isinstance(form, SequenceForm):
            yield from _sequence(view, tracker, name, form, place)
        else:
            yield Variable(name, view.value(tracker), declaration=place)


def _dictionary(
    view: TracedView, tracker: object, name: str, form: MappingForm, place: Location | None
) -> Iterator[Variable]:
    before = {_key(view, key): value for key, value in original_pairs(tracker)}
    after = {_key(view, key): value for key, value in form.pairs}
    changed = [key for key in after if key not in before or unwrapped(before[key]) is not unwrapped(after[key])]
    removed = [key for key in before if key not in after]
    for key in changed:
        yield Variable(f"{name}[{key}]", view.value(after[key]), declaration=place)
    for key in removed:
        yield Variable(f"del {name}[{key}]", Value("deleted", location=place), declaration=place)
    if not changed and not removed:
        yield Variable(name, view.value(form), declaration=place)


def _key(view: TracedView, key: object) -> str:
    known, constant = constant_of(key)
    return view.text(constant if known else key, 80, 2)


def _sequence(
    view: TracedView, tracker: object, name: str, form: SequenceForm, place: Location | None
) -> Iterator[Variable]:
    before = resolved(view.frame, source_of(tracker))
    items = list(form.items)
    count = len(before) if is_exactly(before, (list, tuple)) else None
    if count is not None and len(items) > count and _unchanged(before, items[:count]):
        for number, item in enumerate(items[count:], start=count):
            yield Variable(f"{name}.append → [{number}]", view.value(item), declaration=place)
        return
    was = f"{name} (was {view.text(list(before), 60, 1)})" if count is not None else name
    yield Variable(was if was == name else name, view.value(form), declaration=place)


def _unchanged(before: Sequence[object], items: Sequence[object]) -> bool:
    """Return whether every item is still at its old place, judged by its source."""
    for number, item in enumerate(items):
        known, constant = constant_of(item)
        if known and (constant is before[number] or (is_scalar(constant) and constant == before[number])):
            continue
        source = source_name(source_of(item)) or ""
        if not source.endswith(f"[{number}]"):
            return False
    return True


def is_scalar(value: object) -> bool:
    """Return whether comparing the value runs no user code."""
    return is_exactly(value, (int, float, bool, str, bytes, type(None)))


def _others(view: TracedView) -> Iterator[Variable]:
    for tensor, hook, name in view.frame.tensor_hooks():
        yield Variable(f"{_written(tensor)}.{name}", view.value(hook))
    for context, tensors in view.frame.saved_for_backward():
        yield Variable(f"{_written(context)}.save_for_backward", view.value(tuple_form(tensors)))


def _written(tracker: object) -> str:
    name = None if is_unrealized(tracker) else source_name(source_of(tracker))
    return in_user_terms(name) if name else "tensor"
