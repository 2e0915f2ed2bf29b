"""Paths (``x``, ``d["k"].weight``, ``xs[0]``) followed over trackers and real objects, nothing realized, nothing run.

What a path cannot be followed through (a property, a method's result, a slice) is left to real evaluation. Tracing
thread.
"""

from __future__ import annotations

import ast
from typing import Any

from dynamo_dap.debuggee.compile_time.names import MISSING, lookup
from dynamo_dap.debuggee.compile_time.trackers.form_children import instance_attributes
from dynamo_dap.debuggee.compile_time.trackers.real_objects import UNKNOWN, stored_attribute
from dynamo_dap.debuggee.compile_time.trackers.traced_view import TracedView
from dynamo_dap.debuggee.torch_internals.side_effects import is_deleted, pending_attributes
from dynamo_dap.debuggee.torch_internals.trackers import form_of
from dynamo_dap.debuggee.torch_internals.trackers.containers import constant_of
from dynamo_dap.debuggee.torch_internals.trackers.forms import (
    CellForm,
    Composite,
    Form,
    InstanceForm,
    Known,
    MappingForm,
    SequenceForm,
    TensorForm,
    Unrealized,
)
from dynamo_dap.debuggee.torch_internals.variable_trackers import is_tracker, unwrapped

NOT_A_PATH = object()
"""What following returns when only evaluating can tell."""


class Paths:
    """Follows paths in one paused frame."""

    def __init__(self, tx: Any, view: TracedView, scratch: dict[str, object]) -> None:
        """``scratch`` holds the debugger's own names."""
        self._tx = tx
        self._view = view
        self._scratch = scratch

    def follow(self, node: ast.AST) -> Any:
        """Return the tracker or object that an expression names; ``NOT_A_PATH`` when it is more than a path."""
        if isinstance(node, ast.Name):
            return self.name(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.follow(node.value)
            return NOT_A_PATH if owner is NOT_A_PATH else self.attribute(owner, node.attr)
        if isinstance(node, ast.Subscript):
            key = _constant_key(node.slice)
            owner = NOT_A_PATH if key is NOT_A_PATH else self.follow(node.value)
            return NOT_A_PATH if owner is NOT_A_PATH else self.item(owner, key)
        return NOT_A_PATH

    def name(self, name: str) -> Any:
        """Return what a name stands for; ``NOT_A_PATH`` for one that the frame does not have."""
        if name in self._scratch:
            return NOT_A_PATH
        found = lookup(self._tx, name)
        return NOT_A_PATH if found is MISSING else self._entered(found)

    def attribute(self, owner: Any, name: str) -> Any:
        """Return an attribute that is stored, on the object or by the traced code."""
        tracker = self._tracker(owner)
        if tracker is None:
            return self._stored(owner, name)
        pending = pending_attributes(self._tx, tracker)
        if name in pending:
            return NOT_A_PATH if is_deleted(pending[name]) else self._entered(pending[name])
        form = owner if isinstance(owner, Form) else form_of(self._tx, tracker)
        return self._attribute_of_form(form, name)

    def _attribute_of_form(self, form: Form, name: str) -> Any:
        if isinstance(form, Known | Unrealized):
            return self._stored(form.value, name)
        if isinstance(form, InstanceForm):
            attributes = dict(instance_attributes(form, self._view))
            return self._entered(attributes[name]) if name in attributes else self._stored(form.value, name)
        if isinstance(form, SequenceForm) and name in form.names:
            return self._entered(form.items[form.names.index(name)])
        if isinstance(form, Composite) and name in dict(form.parts):
            return self._entered(dict(form.parts)[name])
        return NOT_A_PATH

    def item(self, owner: Any, key: Any) -> Any:
        """Return an item of a list, tuple or dictionary by its constant key."""
        if isinstance(owner, Form):
            form: Form = owner
        else:
            tracker = self._tracker(owner)
            form = Known(owner) if tracker is None else form_of(self._tx, tracker)
        if isinstance(form, InstanceForm) and form.contents is not None:
            form = form.contents
        if isinstance(form, SequenceForm) and type(key) is int:
            return self._entered(form.items[key]) if -len(form.items) <= key < len(form.items) else NOT_A_PATH
        if isinstance(form, MappingForm):
            return self._in_mapping(form, key)
        if isinstance(form, Known | Unrealized) and type(form.value) in (list, tuple, dict):
            try:
                return self._entered(form.value[key])
            except (LookupError, TypeError):
                return NOT_A_PATH
        return NOT_A_PATH

    def _in_mapping(self, form: MappingForm, key: Any) -> Any:
        for each, value in form.pairs:
            known, constant = constant_of(each)
            if known and type(constant) is type(key) and constant == key:
                return self._entered(value)
        return NOT_A_PATH

    def _stored(self, value: Any, name: str) -> Any:
        if _is_tensor_like(value):
            return NOT_A_PATH
        found = stored_attribute(value, name)
        return NOT_A_PATH if found is UNKNOWN else self._entered(found)

    def _tracker(self, value: Any) -> Any:
        return unwrapped(value) if is_tracker(value) else self._view.tracker_for(value)

    def _entered(self, value: Any) -> Any:
        """Return what a cell holds in place of the cell."""
        for _ in range(_CELLS):
            if not is_tracker(value):
                return value
            form = form_of(self._tx, value)
            if not isinstance(form, CellForm):
                return value
            if form.contents is None:
                return NOT_A_PATH
            value = form.contents
        return NOT_A_PATH

    def attribute_names(self, owner: Any) -> list[str]:
        """Return the names of stored attributes of what a path gives, those of its class not included."""
        tracker = self._tracker(owner)
        form = Known(owner) if tracker is None else form_of(self._tx, tracker)
        if isinstance(form, SequenceForm):
            return list(form.names)
        if isinstance(form, Composite):
            return [name for name, _ in form.parts if name.isidentifier()]
        if isinstance(form, TensorForm):
            return []
        if isinstance(form, Known | Unrealized):
            form = InstanceForm(form.value, type(form.value))
        return [name for name, _ in instance_attributes(form, self._view)] if isinstance(form, InstanceForm) else []


_CELLS = 4


def _constant_key(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and not isinstance(node.value, type(...)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if type(node.operand.value) is int else NOT_A_PATH
    return NOT_A_PATH


def _is_tensor_like(value: Any) -> bool:
    return any(base.__name__ == "Tensor" and base.__module__ == "torch" for base in type(value).__mro__)
