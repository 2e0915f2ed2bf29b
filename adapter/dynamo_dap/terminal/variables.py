"""Finds scopes and values by the path that the user types, shows what is below them, and completes such paths.

Used on the prompt's thread, for the selected frame of a stopped thread.
"""

from __future__ import annotations

import re

from dynamo_dap.protocol.types import Scope
from dynamo_dap.terminal.debugger import Debugger
from dynamo_dap.terminal.errors import UsageError

_PAGE = 100
"""Children shown of one value."""


def find_scope(debugger: Debugger, name: str) -> Scope:
    """The selected frame's scope of that name; case does not matter and ``_`` stands for a space.

    Raises:
        UsageError: it has none; says which there are.
    """
    scopes = debugger.scopes()
    wanted = name.lower().replace("_", " ")
    for scope in scopes:
        if scope.name.lower() == wanted:
            return scope
    raise UsageError(f"this frame has no scope {name!r}, only: {', '.join(scope.name for scope in scopes)}")


def find_reference(debugger: Debugger, path: list[str]) -> int:
    """The variables reference of what ``path`` leads to, 0 for none: a scope, a local or an expression, then children.

    Raises:
        UsageError: a name on the way is not there.
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
            raise UsageError(f"there is no {name!r} here, only: {', '.join(list(children)[:20]) or 'nothing'}")
        reference = children[name].variables_reference
    return reference


def show_children(debugger: Debugger, reference: int, levels: int, depth: int = 0) -> None:
    """Print the children behind ``reference``, and ``levels - 1`` further levels below them."""
    children = debugger.children(reference)
    if not children and depth == 0:
        debugger.view.note("  (nothing)")
    for child in children[:_PAGE]:
        debugger.view.variable(child, depth)
        if levels > 1 and child.variables_reference:
            show_children(debugger, child.variables_reference, levels - 1, depth + 1)
    if len(children) > _PAGE:
        debugger.view.note(f"{'  ' * depth}... {len(children) - _PAGE} more")


def complete_expression(debugger: Debugger, expression: str) -> list[tuple[str, int]]:
    """What the server offers to complete ``expression``: what to insert, and how many characters it replaces."""
    targets = debugger.client.completions(expression, len(expression) + 1, debugger.frame_id())
    word = re.search(r"\w*$", expression)
    length = len(word[0]) if word else 0
    return [(target.text or target.label, length if target.length is None else target.length) for target in targets]


def complete_path(debugger: Debugger, path: str) -> list[tuple[str, int]]:
    """Names of scopes and locals, or of children, that go on from ``path``."""
    *above, begun = path.split("/")
    if above:
        names = [child.name for child in debugger.children(find_reference(debugger, above))]
    else:
        scopes = debugger.scopes()
        names = [scope.name.lower().replace(" ", "_") for scope in scopes]
        names += [child.name for child in debugger.children(scopes[0].variables_reference)] if scopes else []
    return [(name, len(begun)) for name in names if name.startswith(begun)]
