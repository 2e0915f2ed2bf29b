"""What Dynamo knows about a value besides its contents: FX node, source, mutation, where it was made.

Tracing thread.
"""

from __future__ import annotations

from typing import Any

from dynamo_dap.debuggee.compile_time.graph_texts import node_text, user_location
from dynamo_dap.debuggee.torch_internals.graph import user_place
from dynamo_dap.debuggee.torch_internals.sources import as_the_user_wrote
from dynamo_dap.debuggee.torch_internals.trackers.forms import Form, Known, NumberForm, TensorForm
from dynamo_dap.debuggee.torch_internals.variable_trackers import (
    Place,
    created_at,
    is_unrealized,
    mutation_state,
    source_name,
    source_of,
)
from dynamo_dap.debuggee.values.model import Fixed, Location, Value, Variable, bounded_text


def tracker_facts(tracker: Any, form: Form) -> list[Variable]:
    """Return the facts as children: on their own level for tensors and symbols, else in one group called ``Dynamo``."""
    source = source_name(source_of(tracker))
    if isinstance(form, Known) and source is None and _is_scalar(form.value):
        return []
    place = _place(tracker, form)
    facts = _facts(tracker, source, place)
    if isinstance(form, TensorForm | NumberForm):
        return [*_node(form), *facts]
    summary = type(tracker).__name__
    if source is not None:
        summary = bounded_text(f"{summary} of {as_the_user_wrote(source)}", _SUMMARY)
    return [Variable("Dynamo", Value(summary, children=Fixed(tuple(facts)), kind="virtual"))]


_SUMMARY = 160
"""Characters of the summary: a source deep inside a library runs long."""


def _is_scalar(value: object) -> bool:
    return value is None or type(value) in (int, float, bool, str, complex, bytes)


def _place(tracker: Any, form: Form) -> Place | None:
    """Return the line that made the value; of a graph's value the user's, not that of a library the user called."""
    node = form.node if isinstance(form, TensorForm | NumberForm) else None
    found = None if node is None else user_place(node)
    place = created_at(tracker) if found is None else found[0]
    return None if place is None or place.path.startswith("<") else place


def _facts(tracker: Any, source: str | None, place: Place | None) -> list[Variable]:
    facts = [Variable("tracker", Value(type(tracker).__name__, kind="virtual"))]
    if source is not None:
        readable = as_the_user_wrote(source)
        text = source if readable == source else f"{readable}, for guards {source}"
        facts.append(Variable("source", Value(bounded_text(text), kind="virtual")))
    if place is not None:
        facts.append(place_variable("created at", place))
    state = "unrealized: the traced code has not used it yet" if is_unrealized(tracker) else mutation_state(tracker)
    facts.append(Variable("mutation" if not is_unrealized(tracker) else "state", Value(state, kind="virtual")))
    return facts


def place_variable(name: str, place: Place) -> Variable:
    """Return a place of the user's code as a child with a link."""
    location = Location(place.path, place.line, place.column)
    text = f"{place.path.rpartition('/')[2]}:{place.line}"
    return Variable(name, Value(text, kind="virtual", location=location), declaration=location)


def _node(form: TensorForm | NumberForm) -> list[Variable]:
    if form.node is None:
        return []
    location = user_location(form.node)
    return [Variable("FX node", Value(node_text(form.node), kind="virtual", location=location), declaration=location)]
