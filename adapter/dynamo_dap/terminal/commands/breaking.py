"""Commands about breakpoints and exception filters."""

from __future__ import annotations

from dynamo_dap.terminal.commands.arguments import number
from dynamo_dap.terminal.commands.table import command
from dynamo_dap.terminal.debugger import Debugger, State
from dynamo_dap.terminal.errors import UsageError
from dynamo_dap.terminal.places import parse_place


@command("break b", "PLACE [hit N] [if EXPR] [log TEXT]")
def add_breakpoint(debugger: Debugger, argument: str) -> None:
    """Set a breakpoint at FILE:LINE, LINE or FUNCTION; without a place list them."""
    _add(debugger, argument, is_temporary=False)


@command("tbreak", "PLACE ...")
def add_temporary_breakpoint(debugger: Debugger, argument: str) -> None:
    """Set a breakpoint that goes away when it is hit."""
    _add(debugger, argument, is_temporary=True)


@command("breakpoints")
def list_breakpoints(debugger: Debugger, argument: str) -> None:
    """List the breakpoints and what became of them."""
    debugger.view.breakpoints(debugger.breakpoints.all)


@command("delete d", "[N ...]")
def delete_breakpoints(debugger: Debugger, argument: str) -> None:
    """Remove breakpoints by number, or all of them."""
    given = [number(word) for word in argument.split()]
    for one in given or [breakpoint.number for breakpoint in debugger.breakpoints.all]:
        removed = debugger.breakpoints.remove(one)
        if debugger.state is not State.ENDED:
            debugger.breakpoints.send_for(debugger.client, removed.place)


@command("catch", "[FILTER ...]")
def set_exception_filters(debugger: Debugger, argument: str) -> None:
    """Stop at the given kinds of exceptions and compile events only; without one list what there is."""
    offered = debugger.client.capabilities.exception_breakpoint_filters or []
    names = argument.split()
    for name in names:
        if name not in [one.filter for one in offered]:
            raise UsageError(f"there is no filter {name!r}, only: {', '.join(one.filter for one in offered) or 'none'}")
    if not names and not debugger.exception_filters:
        debugger.view.help([(one.filter, one.description or one.label) for one in offered])
        return
    debugger.exception_filters = names
    debugger.client.set_exception_filters(names)


def _add(debugger: Debugger, argument: str, *, is_temporary: bool) -> None:
    if not argument:
        list_breakpoints(debugger, argument)
        return
    place = parse_place(argument, debugger.current_path())
    added = debugger.breakpoints.add(place, is_temporary=is_temporary)
    if debugger.state is not State.ENDED:
        debugger.breakpoints.send_for(debugger.client, place)
    debugger.view.breakpoint(added)
