"""Commands that show values. Importing this adds them to ``command_table``."""

# ruff: noqa: ARG001  (every command has an argument)

from __future__ import annotations

import re

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.sizes import FIXES_SCOPE, SIZES_ROW
from dynamo_dap.protocol.wire.types import EvaluateResponseBody
from dynamo_dap.terminal.breakpoints import UsageError
from dynamo_dap.terminal.command_table import Group, command, number
from dynamo_dap.terminal.completion import complete_expression, complete_path
from dynamo_dap.terminal.debugger import Debugger
from dynamo_dap.terminal.python_text import continues, is_complete
from dynamo_dap.terminal.returned_values import returned_value
from dynamo_dap.terminal.scopes import find_reference, find_scope
from dynamo_dap.terminal.tensors import Shown, show

_PAGE = 100
"""Children shown of one value."""
_TENSORS = 20
_TENSOR_LEVELS = 3
"""Limits on the tensors of a printed container."""
_OUTPUT_GRACE = 0.2
"""Seconds to wait for a statement's output."""


def show_children(
    debugger: Debugger, reference: int, levels: int, depth: int = 0, *, indexed: int | None = None
) -> None:
    """Print the first children behind ``reference``, and ``levels - 1`` levels below them.

    ``indexed`` is the number of items, if known.
    """
    # Do not request a million items of a list.
    children = debugger.children(reference, at_most=_PAGE + 1)
    if not children and depth == 0:
        debugger.screen.note("  (nothing)")
    for child in children[:_PAGE]:
        debugger.screen.variable(child, depth)
        if levels > 1 and child.variables_reference:
            items = child.indexed_variables
            show_children(debugger, child.variables_reference, levels - 1, depth + 1, indexed=items)
    if len(children) > _PAGE:
        count = "" if indexed is None else f" than {_PAGE} of {indexed} items"
        debugger.screen.note(f"{'  ' * depth}... more{count}")


@command("print p", Group.VALUES, "EXPRESSION", example="p x.shape, y.mean()", complete=complete_expression)
def evaluate(debugger: Debugger, argument: str) -> None:
    """Evaluate EXPRESSION in the selected frame. 'print' is optional; '!' forces a statement."""
    if not argument:
        raise UsageError("give an expression, for instance: print x.shape")
    shown = debugger.screen.output_count
    result = debugger.change(lambda: debugger.client.evaluate(argument, debugger.frame_id(), "repl"))
    if result.result in ("", "None") and "(" in argument and debugger.screen.output_count == shown:
        # The program's output arrives separately from the answer.
        debugger.drain(_OUTPUT_GRACE)
    # A call that prints, such as ctx.print_locals(), does not need to show None.
    has_printed = debugger.screen.output_count > shown
    if result.result and not (has_printed and result.result == "None"):
        with debugger.screen.paged():
            debugger.screen.say(f"{'▸ ' if result.variables_reference else ''}{result.result}")
            if result.result.startswith(("[", "(", "{")) and "Tensor " in result.result:
                _show_tensors(debugger, result.variables_reference)


@command("pp", Group.VALUES, "EXPRESSION", example="pp config", complete=complete_expression)
def evaluate_and_open(debugger: Debugger, argument: str) -> None:
    """Evaluate, and show a container's items or an object's attributes, one per line."""
    if not argument:
        raise UsageError("give an expression, for instance: pp config")
    result = _value(debugger, argument)
    with debugger.screen.paged():
        debugger.screen.say(result.result)
        if result.variables_reference:
            show_children(debugger, result.variables_reference, 1, 1, indexed=result.indexed_variables)


@command("whatis", Group.VALUES, "EXPRESSION", example="whatis model.layers", complete=complete_expression)
def show_type(debugger: Debugger, argument: str) -> None:
    """Show the type of a value."""
    if not argument:
        raise UsageError("give an expression, for instance: whatis model.layers")
    result = _value(debugger, argument)
    debugger.screen.say(result.type or _value(debugger, f"type({argument})").result)


@command("why", Group.VALUES, "EXPRESSION", example="why x.shape[0]", complete=complete_expression)
def explain_size(debugger: Debugger, argument: str) -> None:
    """Show why a tensor's sizes are static or dynamic in a trace: marks, settings, earlier calls, conditions."""
    expression, dimension = _size_in(argument)
    shown = _value(debugger, expression)
    children = debugger.children(shown.variables_reference) if shown.variables_reference else []
    sizes = next((child for child in children if child.name == SIZES_ROW and child.variables_reference), None)
    if sizes is None:
        raise UsageError(f"{expression} is neither a tensor nor a symbolic number, or the trace has not used it yet")
    rows = debugger.children(sizes.variables_reference)
    chosen = [row for row in rows if dimension is None or row.name == f"shape[{dimension}]"]
    if not chosen:
        raise UsageError(f"{expression} has no size {dimension}")
    with debugger.screen.paged():
        for row in chosen:
            debugger.screen.variable(row, 0)
            if row.variables_reference:
                show_children(debugger, row.variables_reference, 2, 1)


def _size_in(text: str) -> tuple[str, int | None]:
    """Split ``x.shape[0]``, ``x.size(0)`` or ``x.shape`` into tensor and size number; else return the text."""
    if not text:
        raise UsageError("give a size, a tensor or a number, for instance: why x.shape[0]")
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return text, None
    dimension = found["index"] or found["argument"] or found["item"]
    return found["tensor"], None if dimension is None else int(dimension)


_SIZE = re.compile(
    r"(?P<tensor>.+?)\.(?:shape(?:\[(?P<index>\d+)\])?|size\((?P<argument>\d+)?\)(?:\[(?P<item>\d+)\])?)"
)


@command("display", Group.VALUES, "[EXPRESSION]", example="display x.shape", complete=complete_expression)
def display(debugger: Debugger, argument: str) -> None:
    """Show an expression now and at each stop in this function where it changed, or list all such expressions."""
    debugger.stopped_thread()
    values = debugger.displays().values
    if argument:
        value = values[argument] = debugger.value_to_display(argument)
        debugger.screen.say(f"display {argument}: {value}")
        return
    for expression, value in values.items():
        debugger.screen.say(f"{expression}: {value}")
    if not values:
        debugger.screen.note("nothing is displayed in this function")


@command("undisplay", Group.VALUES, "[EXPRESSION]", example="undisplay x.shape")
def undisplay(debugger: Debugger, argument: str) -> None:
    """Stop showing an expression, or by default all expressions of this function."""
    debugger.stopped_thread()
    if not argument:
        debugger.displays().values.clear()
    elif debugger.displays().values.pop(argument, None) is None:
        raise UsageError(f"{argument} is not displayed: 'display' lists the expressions that are")


@command("retval rv", Group.VALUES)
def show_returned(debugger: Debugger, argument: str) -> None:
    """Show the return value of the last step."""
    returned = returned_value(debugger)
    if returned is None:
        raise UsageError("no returned value is known here; in a trace, 'stack' shows the value stack")
    debugger.screen.variable(returned)


@command("exceptions", Group.VALUES)
def show_exception(debugger: Debugger, argument: str) -> None:
    """Show the exception at this stop and its causes."""
    detail = debugger.client.exception_info(debugger.stopped_thread()).details
    depth = 0
    while detail is not None:
        name = detail.full_type_name or detail.type_name or "exception"
        debugger.screen.say(f"{'  ' * depth}{name}: {detail.message or ''}")
        detail = detail.inner_exception[0] if detail.inner_exception else None
        depth += 1


@command("interact", Group.VALUES, repeats=False)
def interact(debugger: Debugger, argument: str) -> None:
    """Run each line as Python in the selected frame, until Ctrl-D or exit()."""
    read = debugger.prompt.read
    if read is None:
        raise UsageError("this command works only at an interactive prompt")
    debugger.stopped_thread()
    debugger.screen.note("each line now runs as Python; Ctrl-D or exit() returns to the debugger")
    while (line := read(">>> ")) is not None and line.strip() not in ("exit()", "quit()", "exit", "quit"):
        if line.strip():
            block = [line]
            while not is_complete(block):
                further = read("... ")
                if further is None or not continues(block, further):
                    break
                block.append(further)
            try:
                evaluate(debugger, "\n".join(block))
            except RequestFailed as failed:
                debugger.screen.problem(str(failed))


def _value(debugger: Debugger, expression: str) -> EvaluateResponseBody:
    debugger.stopped_thread()
    return debugger.client.evaluate(expression, debugger.frame_id(), "watch")


def _show_tensors(debugger: Debugger, reference: int, depth: int = 1) -> None:
    """Print the tensors in a container with their data, which the container's text omits."""
    children = debugger.children(reference, at_most=_TENSORS + 1)
    for child in children[:_TENSORS]:
        is_virtual = child.presentation_hint is not None and child.presentation_hint.kind == "virtual"
        if is_virtual or "Tensor " not in child.value:
            continue
        debugger.screen.variable(child, depth)
        if child.value.startswith(("[", "(", "{")) and depth < _TENSOR_LEVELS:
            _show_tensors(debugger, child.variables_reference, depth + 1)
    if len(children) > _TENSORS:
        debugger.screen.note(f"{'  ' * depth}... more: 'expand' shows them")


@command("show", Group.VALUES, "[EXPRESSION]", example="show x[0, 5:9]", complete=complete_expression)
def show_tensor(debugger: Debugger, argument: str) -> None:
    """Show a tensor: rows, statistics, a histogram; x[0, 5:9] for a part; without an expression, the next rows."""
    debugger.stopped_thread()
    if argument:
        debugger.prompt.shown_tensor = Shown(argument)
    if debugger.prompt.shown_tensor is None:
        raise UsageError("give an expression, for instance: show x or show x[0, 5:9]")
    show(debugger.client, debugger.screen, debugger.frame_id(), debugger.prompt.shown_tensor)


@command("expand", Group.VALUES, "PATH [DEPTH]", example="expand config/weights/0", complete=complete_path)
def expand(debugger: Debugger, argument: str) -> None:
    """Show the children of a value: an expression, or names of scopes and children separated by '/'."""
    path, _, depth = argument.partition(" ")
    if not path:
        raise UsageError("give a path, for instance: expand config/weights/0 or expand graph")
    reference = find_reference(debugger, path.split("/"))
    with debugger.screen.paged():
        show_children(debugger, reference, number(depth or "1"))


@command("scopes", Group.VALUES)
def show_scopes(debugger: Debugger, argument: str) -> None:
    """List this frame's groups of variables."""
    debugger.screen.scopes(debugger.scopes())


@command("scope", Group.VALUES, "NAME", example="scope side_effects", complete=complete_path)
def show_scope(debugger: Debugger, argument: str) -> None:
    """Show one group of variables."""
    scope = find_scope(debugger, argument)
    with debugger.screen.paged():
        show_children(debugger, scope.variables_reference, 1)


@command("locals", Group.VALUES)
def show_locals(debugger: Debugger, argument: str) -> None:
    """Show the local variables."""
    show_scope(debugger, "Locals")


@command("stack", Group.COMPILED)
def show_value_stack(debugger: Debugger, argument: str) -> None:
    """Show the value stack, bottom first."""
    show_scope(debugger, "Value Stack")


@command("guards", Group.COMPILED)
def show_guards(debugger: Debugger, argument: str) -> None:
    """Show the guards so far."""
    show_scope(debugger, "Guards")


@command("try", Group.COMPILED)
def try_fixes(debugger: Debugger, argument: str) -> None:
    """Try fixes for the data-dependent graph break of this stop: for each fix, Dynamo traces the call again."""
    if not any(scope.name == FIXES_SCOPE for scope in debugger.scopes()):
        raise UsageError("this stop is not at a graph break that depends on data")
    show_scope(debugger, FIXES_SCOPE)


@command("graph", Group.COMPILED)
def show_graph(debugger: Debugger, argument: str) -> None:
    """Show the graph so far."""
    scope = find_scope(debugger, "Graph")
    if scope.source is not None:
        with debugger.screen.paged():
            debugger.screen.code("\n".join(debugger.sources.lines(debugger.client, scope.source)))
    else:
        show_children(debugger, scope.variables_reference, 1)
