"""Finds scopes and values by the names that a user types. Runs on the prompt's thread."""

from __future__ import annotations

from dynamo_dap.protocol.wire.types import Scope, Variable
from dynamo_dap.terminal.breakpoints import UsageError
from dynamo_dap.terminal.debugger import Debugger


def find_scope(debugger: Debugger, name: str) -> Scope:
    """Find a scope of the selected frame by its name; case does not matter, ``_`` means a space.

    Raises:
        UsageError: no scope has this name; the text lists the scopes.
    """
    scopes = debugger.scopes()
    wanted = name.lower().replace("_", " ")
    for scope in scopes:
        if scope.name.lower() == wanted:
            return scope
    raise UsageError(f"this frame has no scope {name!r}; its scopes are: {', '.join(scope.name for scope in scopes)}")


def find_reference(debugger: Debugger, path: list[str]) -> int:
    """Return the variables reference of the value at ``path``; 0 if the value has no children.

    ``path`` begins with a scope, a local variable or an expression; names of children follow.

    Raises:
        UsageError: a name in the path does not exist.
    """
    try:
        reference = find_scope(debugger, path[0]).variables_reference
        names = path[1:]
    except UsageError:
        reference = find_scope(debugger, "Locals").variables_reference
        names = path
    for position, name in enumerate(names):
        children = {child.name: child for child in debugger.children(reference)}
        if position == 0 and names is path and name not in children:
            reference = debugger.client.evaluate(name, debugger.frame_id(), "watch").variables_reference
            continue
        if name not in children:
            raise UsageError(f"unknown name {name!r}; known here: {', '.join(list(children)[:20]) or 'nothing'}")
        reference = children[name].variables_reference
    return reference


def local_variables(debugger: Debugger) -> list[Variable]:
    """Return the selected frame's local variables; none if it has no such scope."""
    found = next((scope for scope in debugger.scopes() if scope.name == "Locals"), None)
    return [] if found is None else debugger.children(found.variables_reference)
