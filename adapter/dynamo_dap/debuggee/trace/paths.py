"""Follows and completes paths (``x``, ``d["k"].weight``, ``xs[0]``) over trackers and real objects.

Nothing is realized and no user code runs. If a path cannot be followed (through a property, a method's result, a
slice), the expression is evaluated instead. Runs on the tracing thread.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Callable, Mapping

from dynamo_dap.debuggee.torch_api.traced.traced_frame import MISSING, TracedFrame
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import CellForm, Form, FunctionForm, Known, is_form
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import is_deleted, is_tracker
from dynamo_dap.debuggee.trace.forms import UNKNOWN, form_family
from dynamo_dap.debuggee.values.type_facts import (
    FUNCTION,
    VARIABLE,
    instance_dictionary,
    kind_of,
    kinds_in,
    kinds_of_members,
)
from dynamo_dap.protocol.wire.types import CompletionItem

_PATH = re.compile(r"(?P<owner>[A-Za-z_][\w.\[\]'\"-]*\.)?(?P<prefix>\w*)$")
_MOST = 500
"""Maximum number of completions: nobody reads more."""
_CELLS = 4
"""Maximum number of nested cells to enter."""


class Paths:
    """Follows paths in one paused frame."""

    def __init__(self, frame: TracedFrame, scratch: dict[str, object]) -> None:
        """Leave out the names in ``scratch``, which the user assigned in the debug console."""
        self._frame = frame
        self._scratch = scratch

    def follow(self, node: ast.AST) -> object:
        """Return the tracker or object that an expression names; ``UNKNOWN`` if it is more than a path."""
        if isinstance(node, ast.Name):
            value = MISSING if node.id in self._scratch else self._frame.lookup(node.id)
            return UNKNOWN if value is MISSING else self._entered(value)
        if isinstance(node, ast.Attribute):
            owner = self.follow(node.value)
            return UNKNOWN if owner is UNKNOWN else self._entered(self._attribute(owner, node.attr))
        if isinstance(node, ast.Subscript):
            key = _constant_key(node.slice)
            owner = UNKNOWN if key is UNKNOWN else self.follow(node.value)
            if owner is not UNKNOWN:
                form = self.form_of(owner)
                return self._entered(form_family(form).item(form, key))
        return UNKNOWN

    def _attribute(self, owner: object, name: str) -> object:
        stored = self._stored(owner)
        if name in stored:
            return UNKNOWN if is_deleted(stored[name]) else stored[name]
        form = self.form_of(owner)
        return form_family(form).attribute(form, name)

    def _stored(self, owner: object) -> dict[str, object]:
        """Return the attributes that the traced code stored on any object, such as a class or a function."""
        tracker = self._frame.tracker_of(owner)
        return {} if tracker is None else self._frame.stored_attributes(tracker)

    def attribute_names(self, owner: object) -> list[str]:
        """Return the attributes stored on the value of a path, without those of its class."""
        form, stored = self.form_of(owner), self._stored(owner)
        names = dict.fromkeys((*form_family(form).attribute_names(form), *stored))
        return [name for name in names if name not in stored or not is_deleted(stored[name])]

    def form_of(self, value: object) -> Form:
        """Return the form of a path's value."""
        if is_form(value):
            return value
        tracker = self._frame.tracker_of(value)
        return Known(value) if tracker is None else self._frame.form_of(tracker)

    def _entered(self, value: object) -> object:
        """Return a cell's contents; any other value unchanged."""
        for _ in range(_CELLS):
            form = self._frame.form_of(value) if is_tracker(value) else None
            if not isinstance(form, CellForm):
                return value
            if form.contents is None:
                return UNKNOWN
            value = form.contents
        return UNKNOWN


def _constant_key(node: ast.expr) -> object:
    if isinstance(node, ast.Constant) and not isinstance(node.value, type(...)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if type(node.operand.value) is int else UNKNOWN
    return UNKNOWN


def completions(
    frame: TracedFrame, text: str, column: int, scratch: dict[str, object] | None = None
) -> list[CompletionItem]:
    """Return completions for ``text`` with the cursor before the 1-based ``column``."""
    match = _PATH.search(text[: max(column - 1, 0)])
    if match is None:
        return []
    prefix = match["prefix"]
    names, owner = scratch or {}, match["owner"]
    candidates = _names(frame, names) if owner is None else _attributes(frame, owner[:-1], names)
    start = column - 1 - len(prefix)
    fitting = [(name, kind) for name, kind in candidates.items() if _fits(name, prefix)]
    return [
        CompletionItem(label=name, text=name, start=start, length=len(prefix), type=kind, sort_text=f"{rank:04}{name}")
        for rank, (name, kind) in enumerate(fitting[:_MOST])
    ]


def _fits(name: str, prefix: str) -> bool:
    return name.lower().startswith(prefix.lower()) and (prefix.startswith("_") or not name.startswith("_"))


def _names(frame: TracedFrame, scratch: dict[str, object]) -> dict[str, str]:
    """Return the names that an expression can use, with their kinds in completions, the frame's own first."""
    paths = Paths(frame, scratch)
    own = {name: _kind_of_form(paths.form_of(value)) for name, value in frame.locals()}
    kinds = {**own, **dict.fromkeys((*frame.cell_names, *scratch, *map(str, frame.stored_globals())), VARIABLE), **own}
    everywhere = {**dict.fromkeys(INTERPRETER_NAMES, VARIABLE), **_kinds(vars(builtins)), **_kinds(frame.globals)}
    for name in (*map(str, frame.globals), *INTERPRETER_NAMES, *vars(builtins)):
        kinds.setdefault(name, everywhere[name])
    return {**kinds, **{name: kinds.get(name, "keyword") for name in keyword.kwlist}}


def _kinds(names: Mapping[str, object]) -> dict[str, str]:
    return {str(name): kind_of(value) for name, value in names.items()}


def _kind_of_form(form: Form) -> str:
    if isinstance(form, FunctionForm):
        return FUNCTION
    return kind_of(form.value) if isinstance(form, Known) else VARIABLE


def _attributes(frame: TracedFrame, path: str, scratch: dict[str, object]) -> dict[str, str]:
    try:
        node = ast.parse(path, mode="eval").body
    except SyntaxError:
        return {}
    if path in INTERPRETER_NAMES and frame.lookup(path) is MISSING and path not in scratch:
        return kinds_of_members(type(INTERPRETER_NAMES[path](frame)), {})
    paths = Paths(frame, scratch)
    value = paths.follow(node)
    if value is UNKNOWN:
        return kinds_in(scratch[path]) if path in scratch else {}
    form = paths.form_of(value)
    known = instance_dictionary(form.value) if isinstance(form, Known) else {}
    # Take no kind from a traced value: it may be a tracker.
    own = {name: known.get(name) for name in paths.attribute_names(value)}
    return kinds_of_members(form_family(form).python_class(form), own)


INTERPRETER_NAMES: dict[str, Callable[[TracedFrame], object]] = {
    "ctx": lambda frame: frame.comptime_context(),
    "tx": lambda frame: frame.interpreter,
}
"""Names of the interpreter itself, unless the program has them. ``ctx`` may raise ``FeatureMissing``."""
