"""Commands that set, change and list breakpoints. Importing this adds them to ``command_table``."""

# ruff: noqa: ARG001  (every command has an argument)

from __future__ import annotations

from collections.abc import Callable

from dynamo_dap.terminal.breakpoints import Breakpoint, BreakpointRequest, UsageError, parse_place
from dynamo_dap.terminal.command_table import Group, command, number
from dynamo_dap.terminal.completion import complete_breakpoints, complete_expression, complete_filters, complete_place
from dynamo_dap.terminal.debugger import Debugger, State


@command(
    "break b",
    Group.BREAK,
    "PLACE[, EXPR] [hit N] [if EXPR] [log TEXT]",
    example="b 18, x.dim() == 2",
    complete=complete_place,
    repeats=False,
)
def add_breakpoint(debugger: Debugger, argument: str) -> None:
    """Set a breakpoint at LINE, FILE:LINE or FUNCTION, which stops only if EXPR is true; without a place, list all."""
    _add(debugger, argument, is_temporary=False)


@command("tbreak", Group.BREAK, "PLACE ...", example="tbreak model.py:18", complete=complete_place, repeats=False)
def add_temporary_breakpoint(debugger: Debugger, argument: str) -> None:
    """Set a breakpoint that is removed at its first hit."""
    _add(debugger, argument, is_temporary=True)


@command(
    "watch",
    Group.BREAK,
    "EXPR [if EXPR]",
    example="watch self.layer.scale",
    complete=complete_expression,
    repeats=False,
)
def watch(debugger: Debugger, argument: str) -> None:
    """Stop after the line that changes a variable of a traced function, or an attribute of its objects."""
    name, _, condition = (part.strip() for part in argument.partition(" if "))
    if not name:
        raise UsageError("give a variable or an attribute, as in: watch self.layer.scale")
    found = debugger.client.data_breakpoint_info(name, debugger.frame_id())
    if found.data_id is None:
        raise UsageError(found.description)
    what = f"changes of {found.description.partition(':')[0]}"
    added = debugger.breakpoints.add(
        BreakpointRequest(watched=what, data_id=found.data_id, condition=condition or None)
    )
    _send(debugger, [added])
    debugger.screen.breakpoint(added)


@command("breakpoints", Group.BREAK)
def list_breakpoints(debugger: Debugger, argument: str) -> None:
    """List the breakpoints and their state."""
    debugger.screen.breakpoints(debugger.breakpoints.all)


@command(
    "clear cl delete",
    Group.BREAK,
    "[N ... | FILE:LINE]",
    example="clear 1 2",
    complete=complete_breakpoints,
    repeats=False,
)
def clear_breakpoints(debugger: Debugger, argument: str) -> None:
    """Remove breakpoints by number or line; without either, ask whether to remove all."""
    chosen = _chosen(debugger, argument) if argument else list(debugger.breakpoints.all)
    if not argument and chosen and not debugger.prompt.confirms("Clear all breakpoints?"):
        return
    for breakpoint in chosen:
        debugger.breakpoints.remove(breakpoint.number)
        debugger.screen.note(f"removed breakpoint {breakpoint.number}")
    _send(debugger, chosen)


@command("enable", Group.BREAK, "N ...", example="enable 1", complete=complete_breakpoints)
def enable_breakpoints(debugger: Debugger, argument: str) -> None:
    """Enable breakpoints."""
    _change(debugger, argument, lambda one: setattr(one, "is_enabled", True))


@command("disable", Group.BREAK, "N ...", example="disable 1 2", complete=complete_breakpoints)
def disable_breakpoints(debugger: Debugger, argument: str) -> None:
    """Disable breakpoints without removing them."""
    _change(debugger, argument, lambda one: setattr(one, "is_enabled", False))


@command("condition", Group.BREAK, "N [EXPR]", example="condition 1 i == 3", complete=complete_breakpoints)
def set_condition(debugger: Debugger, argument: str) -> None:
    """Stop at a breakpoint only if EXPR is true; without EXPR, always."""
    word, _, condition = argument.partition(" ")
    _change(debugger, word, lambda one: one.set_condition(condition.strip() or None))


@command("ignore", Group.BREAK, "N [COUNT]", example="ignore 1 10", complete=complete_breakpoints)
def ignore_hits(debugger: Debugger, argument: str) -> None:
    """Ignore the next COUNT hits of a breakpoint."""
    word, _, times = argument.partition(" ")
    (breakpoint,) = _chosen(debugger, word)[:1]
    breakpoint.ignored_hits = number(times.strip() or "0")
    debugger.screen.breakpoint(breakpoint)


@command(
    "commands",
    Group.BREAK,
    "[N]",
    example="commands 1, then: p x.shape, then: continue, then: end",
    complete=complete_breakpoints,
    repeats=False,
)
def set_commands(debugger: Debugger, argument: str) -> None:
    """Run the following commands, up to 'end', at each hit of breakpoint N, by default the newest.

    'silent' as the first command hides the stop; a command that resumes the program must be the last one.
    """
    if debugger.prompt.read is None:
        raise UsageError("this command works only at an interactive prompt")
    if not debugger.breakpoints.all:
        raise UsageError("no breakpoint is set: 'break PLACE' sets one")
    breakpoint = _chosen(debugger, argument)[0] if argument else debugger.breakpoints.all[-1]
    lines: list[str] = []
    while (line := debugger.prompt.read("(com) ")) is not None and line.strip() != "end":
        if line.strip():
            lines.append(line.strip())
    breakpoint.commands = lines


@command(
    "catch",
    Group.BREAK,
    "[FILTER ...]",
    example="catch graph-break recompile",
    complete=complete_filters,
    repeats=False,
)
def set_exception_filters(debugger: Debugger, argument: str) -> None:
    """Stop at these compile events and exceptions, and at uncaught exceptions; without a name, clear them.

    If none is set, list all names.
    """
    offered = debugger.client.capabilities.exception_breakpoint_filters or []
    names = argument.split()
    for name in names:
        if name not in [one.filter for one in offered]:
            raise UsageError(
                f"unknown filter {name!r}; the filters are: {', '.join(one.filter for one in offered) or 'none'}"
            )
    if not names and not debugger.filters.names:
        debugger.screen.help([(one.filter, one.description or one.label) for one in offered])
        return
    debugger.filters.names = names
    debugger.filters.send(debugger.client)


def _add(debugger: Debugger, argument: str, *, is_temporary: bool) -> None:
    if not argument:
        list_breakpoints(debugger, argument)
        return
    place = parse_place(argument, debugger.current_path())
    added = debugger.breakpoints.add(place, is_temporary=is_temporary)
    _send(debugger, [added])
    debugger.screen.breakpoint(added)


def _change(debugger: Debugger, numbers: str, change: Callable[[Breakpoint], None]) -> None:
    chosen = _chosen(debugger, numbers)
    for breakpoint in chosen:
        change(breakpoint)
    _send(debugger, chosen)
    for breakpoint in chosen:
        debugger.screen.breakpoint(breakpoint)


def _chosen(debugger: Debugger, argument: str) -> list[Breakpoint]:
    """Return the breakpoints with these numbers, or in this FILE:LINE.

    Raises:
        UsageError: there is none.
    """
    if not argument:
        raise UsageError("give the number of a breakpoint: 'break' lists them")
    if ":" not in argument:
        return [debugger.breakpoints.find(number(word)) for word in argument.split()]
    place = parse_place(argument, debugger.current_path())
    found = [one for one in debugger.breakpoints.all if one.place.path == place.path and one.line == place.line]
    if not found:
        raise UsageError(f"no breakpoint at {argument}: 'break' lists them")
    return found


def _send(debugger: Debugger, changed: list[Breakpoint]) -> None:
    if debugger.state is not State.ENDED:
        for place in {breakpoint.place.kind: breakpoint.place for breakpoint in changed}.values():
            debugger.breakpoints.send_for(debugger.client, place)
