"""Commands that show values: expressions, scopes and what is below them."""

from __future__ import annotations

from dynamo_dap.terminal.commands.arguments import number
from dynamo_dap.terminal.commands.table import command
from dynamo_dap.terminal.debugger import Debugger
from dynamo_dap.terminal.errors import UsageError
from dynamo_dap.terminal.variables import complete_expression, complete_path, find_reference, find_scope, show_children


@command("print p", "EXPRESSION", complete_expression)
def evaluate(debugger: Debugger, argument: str) -> None:
    """Evaluate in the selected frame; '! STATEMENT' runs a statement."""
    if not argument:
        raise UsageError("give an expression, for instance: print x.shape")
    result = debugger.client.evaluate(argument, debugger.frame_id(), "repl")
    if result.result:
        debugger.view.say(f"{'▸ ' if result.variables_reference else ''}{result.result}")


@command("expand x", "PATH [DEPTH]", complete_path)
def expand(debugger: Debugger, argument: str) -> None:
    """Show what is below a value, given by an expression or by names of scopes and children with '/' between."""
    path, _, depth = argument.partition(" ")
    if not path:
        raise UsageError("give a path, for instance: expand config/weights/0 or expand graph")
    reference = find_reference(debugger, path.split("/"))
    show_children(debugger, reference, number(depth or "1"))


@command("scopes")
def show_scopes(debugger: Debugger, argument: str) -> None:
    """List the groups of variables that this frame has."""
    debugger.view.scopes(debugger.scopes())


@command("scope", "NAME", complete_path)
def show_scope(debugger: Debugger, argument: str) -> None:
    """Show one group of variables."""
    scope = find_scope(debugger, argument)
    show_children(debugger, scope.variables_reference, 1)


@command("locals")
def show_locals(debugger: Debugger, argument: str) -> None:
    """Show the local variables."""
    show_scope(debugger, "Locals")


@command("stack")
def show_value_stack(debugger: Debugger, argument: str) -> None:
    """Show the value stack, bottom first."""
    show_scope(debugger, "Value Stack")


@command("guards")
def show_guards(debugger: Debugger, argument: str) -> None:
    """Show the guards so far."""
    show_scope(debugger, "Guards")


@command("graph")
def show_graph(debugger: Debugger, argument: str) -> None:
    """Show the graph so far."""
    scope = find_scope(debugger, "Graph")
    if scope.source is not None:
        debugger.view.code("\n".join(debugger.sources.lines(debugger.client, scope.source)))
    else:
        show_children(debugger, scope.variables_reference, 1)
