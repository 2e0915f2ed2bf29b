"""Shows values inside a trace: a tracker as its value, a real object with its pending changes applied.

After a value's own children come Dynamo's facts about it (FX node, source, mutation, where it was made) and the real
value of this call, computed when it is opened. Made for one pause; runs on the tracing thread. Nothing here realizes a
lazy tracker, adds a guard or a node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from dynamo_dap.debuggee.agent.breakpoints import WatchedVariable
from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.debuggee.torch_api.graphs.graph import user_place
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import facts_of, is_fake_tensor, is_tensor, kind_of
from dynamo_dap.debuggee.torch_api.objects import Node
from dynamo_dap.debuggee.torch_api.traced.symbols import is_symbolic
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import Form, Known, NumberForm, TensorForm, Unrealized, is_form
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import (
    Place,
    Tracker,
    created_at,
    is_unrealized,
    mutation_state,
    source_name,
    source_of,
)
from dynamo_dap.debuggee.trace.forms import form_family
from dynamo_dap.debuggee.trace.graph_view import node_text, place_variable, user_location
from dynamo_dap.debuggee.trace.placeholders import form_behind, is_placeholder
from dynamo_dap.debuggee.trace.runs import current_run
from dynamo_dap.debuggee.trace.sizes_view import ChildrenOfTensor, sizes_of, sizes_of_unused
from dynamo_dap.debuggee.trace.watched_parts import watched_part
from dynamo_dap.debuggee.values.model import (
    NOT_PROVEN,
    Children,
    EvaluationError,
    Fixed,
    Followed,
    ShownTensor,
    Value,
    Variable,
    bounded_text,
)
from dynamo_dap.debuggee.values.python_values import View
from dynamo_dap.debuggee.values.tensors import data_range, is_little, lazy_variable, little_data, printed_text
from dynamo_dap.protocol.texts import in_user_terms

_SUMMARY = 160
"""Characters of the summary: a source deep inside a library is long."""


class _Parts(Followed):
    """Parts of a traced value that data breakpoints can watch."""

    def __init__(
        self, frame: TracedFrame, tracker: Tracker, expression: str | None, children: Children | None, *more: Any
    ) -> None:
        super().__init__(children, *more)
        self._frame = frame
        self._tracker = tracker
        self._expression = expression

    def watched(self, name: str) -> WatchedVariable | None:
        part = next((each.evaluate_name for each in self.named() if each.name == name), None)
        if part is None or self._expression is None:
            return None
        return watched_part(self._frame, self._tracker, self._expression, part)


class TracedView(View):
    """Shows values as a traced function sees them."""

    def __init__(self, frame: TracedFrame) -> None:
        """View the function ``frame``."""
        self.frame = frame

    def shown(self, value: object, expression: str | None) -> Value:
        """Return a tracker, a form, or a real object in displayed form."""
        tracker = self.frame.tracker_of(value)
        if tracker is None:
            return super().shown(value, expression)
        form = self._form_of(tracker)
        shown = form_family(form).present(form, expression, self)
        if isinstance(form, Known) and is_exactly(form.value, _SCALARS) and source_of(tracker) is None:
            return shown
        node = form.node if isinstance(form, TensorForm) and is_tensor(form.example) else None
        tensor = None if node is None else lambda: self._tensor(node)
        others = partial(self._facts, tracker, form)
        first = partial(self._values_of, form.node if isinstance(form, TensorForm | NumberForm) else None)
        if tensor is not None and expression is not None:
            children = ChildrenOfTensor(self.frame, expression, shown.children, others, tensor, first)
            return replace(shown, children=children)
        return replace(shown, children=_Parts(self.frame, tracker, expression, shown.children, others, tensor, first))

    def seen(self, value: object) -> object:
        """Return the form of a tracker, of a computed SymInt or FakeTensor, or of a placeholder."""
        if is_form(value):
            return value
        tracker = self.frame.tracker_of(value)
        if tracker is not None:
            return self._form_of(tracker)
        if is_symbolic(value):
            return NumberForm(value, None)
        if is_placeholder(value):
            return form_behind(value)
        if is_fake_tensor(value) or (is_tensor(value) and self.frame.shares_written_memory(value)):
            # Leave out the node: its data is missing, or older than a write by the graph.
            return TensorForm(value, None, kind_of(value))
        return value

    def _form_of(self, tracker: Tracker) -> Form:
        form = self.frame.form_of(tracker)
        if isinstance(form, Unrealized) and is_tensor(form.value) and self.frame.shares_written_memory(form.value):
            return TensorForm(form.value, None, kind_of(form.value))
        return form

    def _facts(self, tracker: Tracker, form: Form) -> list[Variable]:
        """Return Dynamo's facts: directly for tensors and symbols, else in one group called ``Dynamo``."""
        node = form.node if isinstance(form, TensorForm | NumberForm) else None
        at = None if node is None else user_place(node)
        # For a value of the graph, take the user's line, not a called library's.
        place = created_at(tracker) if at is None else at[0]
        facts = _facts(tracker, None if place is None or place.path.startswith("<") else place)
        if isinstance(form, TensorForm | NumberForm):
            known = [*sizes_of(self.frame, form), *facts]
            return known if node is None else [_node(node), *known]
        source, summary = source_name(source_of(tracker)), type(tracker).__name__
        if source is not None:
            summary = bounded_text(f"{summary} of {in_user_terms(source)}", _SUMMARY)
        group = Variable("Dynamo", Value(summary, children=Fixed(tuple(facts)), kind="virtual"))
        if not isinstance(form, Unrealized) or not is_tensor(form.value) or is_fake_tensor(form.value):
            return [group]
        return [*sizes_of_unused(self.frame, form.value, source_of(tracker)), group]

    def little_data(self, value: object) -> str | None:
        """Return the elements of a small tensor of the graph if computing them takes about a millisecond."""
        if not isinstance(value, TensorForm) or value.node is None or not is_little(value.example):
            return None
        return self._of_cheap_value(value.node, little_data)

    def data_range(self, value: Any) -> str | None:
        """Return the value range of a larger tensor, if computing it takes only a few milliseconds."""
        is_of_graph = isinstance(value, TensorForm) and value.node is not None and is_tensor(value.example)
        return self._of_cheap_value(value.node, data_range) if is_of_graph else None

    def printed_text(self, value: object) -> str | None:
        """Return the text of a tensor of the graph with its data, which a run of the graph on real inputs computes."""
        if not isinstance(value, TensorForm) or value.node is None or not is_tensor(value.example):
            return None
        try:
            text = printed_text(facts_of(value.example, value.kind).text, self.frame.real_value(value.node))
            return None if text is None else proven(text, self.frame.why_not_proven(value.node))
        except (NoRealValue, FeatureMissing):
            return None

    def _of_cheap_value(self, node: Node, text_of: Callable[[Any], str | None]) -> str | None:
        try:
            real = self.frame.cheap_value(node)
            text = None if real is None else text_of(real)
            return None if text is None else proven(text, self.frame.why_not_proven(node))
        except (NoRealValue, FeatureMissing):
            return None

    def _tensor(self, node: Node) -> ShownTensor:
        try:
            return ShownTensor(self.frame.real_value(node), self.frame.why_not_proven(node))
        except (NoRealValue, FeatureMissing) as problem:
            raise EvaluationError(f"not available: {problem}") from None

    def _values_of(self, node: Node | None) -> list[Variable]:
        """Return the node's value in this call, and in a backward pass its gradient, each computed when opened."""
        if node is None:
            return []
        call = current_run().call
        values = [lazy_variable("value", lambda: self._proven_value(node))]
        reason = None
        with contextlib.suppress(NoRealValue, FeatureMissing):
            reason = self.frame.why_not_proven(node, only_if_cheap=True)
        if reason is not None:
            values.append(Variable("not proven", Value(reason, kind="virtual")))
        if call is not None and call.in_backward is not None:
            values.append(lazy_variable("grad", lambda: _real(lambda: self.frame.gradient(node))))
        return values

    def _proven_value(self, node: Node) -> Value:
        """Return a node's value in this call as ordinary Python shows it, marked if it is not proven."""
        try:
            value = View().value(self.frame.real_value(node))
            reason = self.frame.why_not_proven(node)
        except (NoRealValue, FeatureMissing) as problem:
            return Value(f"not available: {problem}")
        if reason is None:
            return value
        children = value.children
        if children is not None and children.is_of_tensor:
            children = Followed(children, tuple, lambda: self._tensor(node))
        return replace(value, text=proven(value.text, reason), children=children)


def proven(text: str, reason: str | None) -> str:
    """Mark the text of a value if there is a ``reason`` why it is not proven; see ``TracedFrame.why_not_proven``."""
    return text if reason is None else f"{text}{NOT_PROVEN}"


def _real(value: Callable[[], object]) -> Value:
    """Return a real value as ordinary Python shows it."""
    try:
        return View().value(value())
    except (NoRealValue, FeatureMissing) as problem:
        return Value(f"not available: {problem}")


_SCALARS = (int, float, bool, str, complex, bytes, type(None))


def _facts(tracker: Tracker, place: Place | None) -> list[Variable]:
    facts = [Variable("tracker", Value(type(tracker).__name__, kind="virtual"))]
    source = source_name(source_of(tracker))
    if source is not None:
        readable = in_user_terms(source)
        text = source if readable == source else f"{readable}, for guards {source}"
        facts.append(Variable("source", Value(bounded_text(text), kind="virtual")))
    if place is not None:
        facts.append(place_variable("created at", place))
    if is_unrealized(tracker):
        facts.append(Variable("state", Value("unrealized: the traced code has not used it yet", kind="virtual")))
    else:
        facts.append(Variable("mutation", Value(mutation_state(tracker), kind="virtual")))
    return facts


def _node(node: Node) -> Variable:
    location = user_location(node)
    return Variable("FX node", Value(node_text(node), kind="virtual", location=location), declaration=location)
