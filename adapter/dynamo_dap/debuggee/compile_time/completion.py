"""Completions over a paused trace: names of the frame, attributes of what a path gives. Nothing of the user's runs.

Tracing thread.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Iterable
from typing import Any

from dynamo_dap.debuggee.compile_time.names import MISSING, cell_names, locals_of, lookup
from dynamo_dap.debuggee.compile_time.paths import NOT_A_PATH, Paths
from dynamo_dap.debuggee.compile_time.trackers.traced_view import TracedView
from dynamo_dap.debuggee.torch_internals.comptime_access import comptime_context
from dynamo_dap.debuggee.torch_internals.side_effects import pending_globals
from dynamo_dap.debuggee.torch_internals.trackers import form_of
from dynamo_dap.debuggee.torch_internals.trackers.forms import (
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
from dynamo_dap.debuggee.torch_internals.variable_trackers import is_tracker
from dynamo_dap.debuggee.values.type_facts import class_dictionary, instance_dictionary, mro_of
from dynamo_dap.protocol.types import CompletionItem

_PATH = re.compile(r"(?P<owner>[A-Za-z_][\w.\[\]'\"-]*\.)?(?P<prefix>\w*)$")
_MOST = 500
"""Completions returned at most: a person types on rather than read more."""


def completions(tx: Any, text: str, column: int, scratch: dict[str, object] | None = None) -> list[CompletionItem]:
    """Return completions for ``text`` with the cursor before the 1-based ``column``."""
    match = _PATH.search(text[: max(column - 1, 0)])
    if match is None:
        return []
    prefix, owner = match["prefix"], match["owner"]
    if owner is None:
        candidates = _names(tx, scratch or {})
    else:
        candidates = [(name, "property") for name in _attributes(tx, owner[:-1], scratch or {})]
    start = column - 1 - len(prefix)
    found = [(name, kind) for name, kind in candidates if _fits(name, prefix)]
    return [
        CompletionItem(label=name, text=name, start=start, length=len(prefix), type=kind, sort_text=f"{rank:04}{name}")
        for rank, (name, kind) in enumerate(found[:_MOST])
    ]


def _fits(name: str, prefix: str) -> bool:
    return name.lower().startswith(prefix.lower()) and (prefix.startswith("_") or not name.startswith("_"))


def _names(tx: Any, scratch: dict[str, object]) -> list[tuple[str, str]]:
    """Return the names an expression can use, the frame's own first."""
    own = dict.fromkeys((*(name for name, _ in locals_of(tx)), *cell_names(tx), *scratch))
    named = [(name, "variable") for name in own]
    named += [(str(name), "variable") for name in (*pending_globals(tx), *tx.f_globals)]
    named += [("ctx", "variable"), ("tx", "variable")]
    named += [(name, "function") for name in vars(builtins)]
    named += [(name, "keyword") for name in keyword.kwlist]
    return list(dict(reversed(named)).items())[::-1]


def _attributes(tx: Any, path: str, scratch: dict[str, object]) -> list[str]:
    try:
        node = ast.parse(path, mode="eval").body
    except SyntaxError:
        return []
    if path in _INTERPRETER and lookup(tx, path) is MISSING and path not in scratch:
        return _ordered(_of_class(_INTERPRETER[path](tx)), ())
    paths = Paths(tx, TracedView(tx), scratch)
    found = paths.follow(node)
    if found is NOT_A_PATH:
        own = scratch.get(path, NOT_A_PATH)
        return [] if own is NOT_A_PATH else _ordered(_of_class(type(own)), instance_dictionary(own))
    return _ordered(_of_class(_class_of(tx, found)), paths.attribute_names(found))


def _ordered(inherited: Iterable[str], own: Iterable[str]) -> list[str]:
    first = [str(name) for name in own]
    return list(dict.fromkeys([*first, *sorted(inherited, key=lambda name: (name.startswith("_"), name))]))


def _of_class(cls: type) -> list[str]:
    return [str(name) for base in mro_of(cls) for name in class_dictionary(base)]


def _class_of(tx: Any, found: Any) -> type:
    if not is_tracker(found):
        return type(found)
    form = form_of(tx, found)
    if isinstance(form, Known | Unrealized):
        return type(form.value)
    if isinstance(form, InstanceForm):
        return form.cls
    if isinstance(form, TensorForm):
        return _torch_class("Tensor")
    if isinstance(form, NumberForm):
        return type(form.number)
    if isinstance(form, SequenceForm):
        return form.cls or {"tuple": tuple, "list": list}.get(form.type_name, list)
    by_form: dict[type, type] = {SetForm: set, MappingForm: dict, FunctionForm: type(_ordered)}
    return by_form.get(type(form), object)


_INTERPRETER = {"ctx": lambda tx: type(comptime_context(tx)), "tx": type}
"""The classes of the names that give the interpreter itself."""


def _torch_class(name: str) -> type:
    return getattr(sys.modules["torch"], name)  # type: ignore[no-any-return]
