"""What the names of a traced frame stand for: locals, cells and free variables, globals. Read only; tracing thread."""

from __future__ import annotations

import types
from typing import Any

from dynamo_dap.debuggee.torch_internals.side_effects import pending_globals
from dynamo_dap.debuggee.torch_internals.trackers.forms import Unrealized
from dynamo_dap.debuggee.torch_internals.variable_trackers import class_names, unwrapped

MISSING = object()
"""What ``lookup`` returns for a name that has no value."""


def cell_names(tx: Any) -> tuple[str, ...]:
    """Return the names of cell and free variables, as the code declares them."""
    code: types.CodeType = tx.f_code
    return (*code.co_cellvars, *code.co_freevars)


def locals_of(tx: Any) -> list[tuple[str, Any]]:
    """Return name and tracker of every variable that the function binds or captures, where it has a value.

    Parameters come first, as declared, then other local variables, cells, and what is captured.
    """
    cells = dict(cells_of(tx))
    inputs = {name: Unrealized(value) for name, value in untouched_inputs(tx).items()}
    values = {**inputs, **tx.symbolic_locals, **cells}
    declared = [name for name in dict.fromkeys((*tx.f_code.co_varnames, *cell_names(tx))) if name in values]
    others = [name for name in values if name not in set(declared)]
    # A cell without a value stands in the plain locals as well.
    empty = set(cell_names(tx)) - cells.keys()
    return [(name, values[name]) for name in (*declared, *others) if name not in empty and _has_value(values[name])]


def cells_of(tx: Any) -> list[tuple[str, Any]]:
    """Return name and tracker (of the cell) of cell and free variables."""
    values = tx.symbolic_locals
    registered = getattr(tx, "symbolic_cellvars", {})  # torch 2.15: a cell may share its name with a plain local
    kept = tx.post_prune_cell_and_freevars or {}
    found = [(name, registered.get(name, values.get(name, kept.get(name)))) for name in cell_names(tx)]
    return [(name, tracker) for name, tracker in found if tracker is not None and _has_value(tracker)]


def untouched_inputs(tx: Any) -> dict[str, Any]:
    """Return the real values of inputs that the code never reads: torch 2.15 keeps no tracker for them."""
    inputs = getattr(tx, "f_locals", None)
    if getattr(tx, "parent", None) is not None or type(inputs) is not dict:
        return {}
    absent = [name for name in tx.f_code.co_varnames if name in inputs and name not in tx.symbolic_locals]
    if not absent:
        return {}
    written = {each.argval for each in tx.instructions if each.opname in ("STORE_FAST", "DELETE_FAST")}
    return {name: inputs[name] for name in absent if name not in written}


def _has_value(tracker: Any) -> bool:
    if isinstance(tracker, Unrealized):
        return True
    names = class_names(unwrapped(tracker))
    return "NullVariable" not in names and "DeletedVariable" not in names


def globals_used(tx: Any) -> list[tuple[str, Any]]:
    """Return name and value of the globals that the frame's code names, as the trace sees them."""
    names = [str(each.argval) for each in tx.instructions if each.opname in _GLOBAL_OPERATIONS]
    pending = pending_globals(tx)
    found: list[tuple[str, Any]] = []
    for name in dict.fromkeys(names):
        value = pending.get(name, tx.f_globals.get(name, MISSING))
        if value is not MISSING:
            found.append((name, value))
    return found


_GLOBAL_OPERATIONS = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME"})


def lookup(tx: Any, name: str) -> Any:
    """Return what ``name`` stands for in the frame: a tracker, or a real object; ``MISSING`` when it has no value."""
    tracker = tx.symbolic_locals.get(name)
    if tracker is not None and _has_value(tracker):
        return tracker
    for cell, contents in cells_of(tx):
        if cell == name:
            return contents
    if is_declared(tx, name):  # a local variable without a value hides the global of the same name
        return untouched_inputs(tx).get(name, MISSING)
    pending = pending_globals(tx)
    if name in pending:
        return pending[name]
    if name in tx.f_globals:
        return tx.f_globals[name]
    return tx.f_builtins.get(name, MISSING)


def is_declared(tx: Any, name: str) -> bool:
    """Whether the frame's code has a local, cell or free variable of this name, with a value or without."""
    code: types.CodeType = tx.f_code
    return name in code.co_varnames or name in code.co_cellvars or name in code.co_freevars
