"""What the traced code changed, and Dynamo has not carried out yet: read from ``SideEffects``, which stays as it is.

Runs on the tracing thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dynamo_dap.debuggee.torch_internals.variable_trackers import Place, fields_of, unwrapped, users_frame


def pending_attributes(tx: Any, tracker: Any) -> dict[str, Any]:
    """Return what the traced code stored on ``tracker``: name to tracker, a ``DeletedVariable`` for ``del``."""
    found: dict[str, Any] = tx.output.side_effects.store_attr_mutations.get(unwrapped(tracker), {})
    return found


def is_deleted(tracker: Any) -> bool:
    """Whether a pending attribute is a deletion."""
    return type(tracker).__name__ == "DeletedVariable"


def tracker_of_object(tx: Any, value: object) -> Any:
    """Return the tracker that Dynamo keeps for a real object; None when it tracks none."""
    return tx.output.side_effects.id_to_variable.get(id(value))


def cell_contents(tx: Any, cell: Any) -> Any:
    """Return the tracker of what a cell holds now; None for an empty one."""
    pending = pending_attributes(tx, cell)
    if "cell_contents" in pending:
        return pending["cell_contents"]
    return fields_of(cell).get("pre_existing_contents")


def pending_globals(tx: Any) -> dict[str, Any]:
    """Return the globals that the traced code stored: name to tracker."""
    stored: dict[str, Any] = {}
    for tracker, attributes in tx.output.side_effects.store_attr_mutations.items():
        if type(tracker).__name__ == "NewGlobalVariable":
            stored.update(attributes)
    return stored


def attribute_changes(tx: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield object, attribute and new value of every pending store, cells and globals included."""
    for tracker, attributes in list(tx.output.side_effects.store_attr_mutations.items()):
        for name, value in list(attributes.items()):
            yield tracker, name, value


def changed_variable(tracker: Any, name: str, source: str) -> str | None:
    """Return which variable a pending store changes: ``nonlocal total``, ``global counter``; None for an attribute."""
    kind = type(tracker).__name__
    if kind == "CellVariable":
        return f"nonlocal {fields_of(tracker).get('local_name') or source}"
    return f"global {name}" if kind == "NewGlobalVariable" else None


def modified_containers(tx: Any) -> Iterator[Any]:
    """Yield the trackers of containers that existed before and were modified."""
    for tracker in list(tx.output.side_effects.id_to_variable.values()):
        mutation = fields_of(tracker).get("mutation_type")
        base = fields_of(tracker).get("_base_vt")
        changed = getattr(mutation, "is_modified", False) or (
            base is not None and getattr(fields_of(base).get("mutation_type"), "is_modified", False)
        )
        if changed:
            yield tracker


def tensor_hooks(tx: Any) -> Iterator[tuple[Any, Any, str]]:
    """Yield tensor, hook and the registering method's name of every hook to be registered."""
    for tensor, hook, _, name in list(tx.output.side_effects.tensor_hooks.values()):
        yield tensor, hook, name


def saved_for_backward(tx: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the context and tensors of every pending ``ctx.save_for_backward``."""
    yield from list(tx.output.side_effects.save_for_backward)


def last_change(tx: Any, tracker: Any) -> Place | None:
    """Return the user's line that changed ``tracker`` last, where this version of torch notes it."""
    stacks = getattr(tx.output.side_effects, "mutation_user_stacks", {}).get(unwrapped(tracker))
    return users_frame(stacks[-1])[0] if stacks and stacks[-1] else None


def changed_objects(tx: Any) -> frozenset[int]:
    """Return the ids of the real objects that the traced code changed, or made and stored somewhere."""
    effects = tx.output.side_effects
    stored = {id(tracker) for tracker in effects.store_attr_mutations}
    modified = {id(tracker) for tracker in modified_containers(tx)}
    changed = stored | modified
    return frozenset(
        identifier for identifier, tracker in effects.id_to_variable.items() if id(unwrapped(tracker)) in changed
    )
