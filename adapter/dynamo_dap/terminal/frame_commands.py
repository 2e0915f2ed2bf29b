"""Commands for threads, frames and source lines. Importing this adds them to ``command_table``."""

# ruff: noqa: ARG001  (every command has an argument)

from __future__ import annotations

import ast

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.contract import (
    LISTING_FORMS,
    PATCH,
    UNPATCH,
    PatchArguments,
    PatchBody,
    UnpatchArguments,
    UnpatchBody,
)
from dynamo_dap.protocol.texts import NOT_PYTHON
from dynamo_dap.protocol.wire.types import Source
from dynamo_dap.terminal.breakpoints import UsageError
from dynamo_dap.terminal.command_table import Group, command, number
from dynamo_dap.terminal.completion import complete_expression, complete_listing_form
from dynamo_dap.terminal.debugger import Debugger
from dynamo_dap.terminal.functions_in_source import Function, function_around, function_at
from dynamo_dap.terminal.scopes import local_variables

_LISTED = 11
"""Lines that ``list`` shows, as in pdb."""


@command("where w bt", Group.LOOK, "[COUNT]", example="where 5")
def show_call_stack(debugger: Debugger, argument: str) -> None:
    """Show the call stack, innermost frame first, or its COUNT innermost frames."""
    frames = debugger.frames()
    shown = frames[: number(argument)] if argument else frames
    with debugger.screen.paged():
        debugger.screen.stack(shown, debugger.selected, total=debugger.total_frames)


@command("up u", Group.LOOK, "[COUNT]", example="up 2")
def go_up(debugger: Debugger, argument: str) -> None:
    """Select the frame that called this one."""
    debugger.select_frame(debugger.selected + number(argument or "1"))


@command("down d", Group.LOOK, "[COUNT]", example="down 2")
def go_down(debugger: Debugger, argument: str) -> None:
    """Select the frame that this one called."""
    debugger.select_frame(debugger.selected - number(argument or "1"))


@command("frame f", Group.LOOK, "[N]", example="frame 0")
def select_frame(debugger: Debugger, argument: str) -> None:
    """Show the selected frame, or select another by its number."""
    debugger.select_frame(number(argument) if argument else debugger.selected)


@command("threads", Group.LOOK)
def show_threads(debugger: Debugger, argument: str) -> None:
    """List the program's threads."""
    debugger.screen.threads(debugger.client.threads(), debugger.stops, debugger.thread_id)


@command("thread", Group.LOOK, "N", example="thread 2")
def select_thread(debugger: Debugger, argument: str) -> None:
    """Select another stopped thread."""
    debugger.select_thread(number(argument))


@command("list l", Group.LOOK, "[. | LINE | FIRST, LAST]", example="l 16, 30")
def show_source(debugger: Debugger, argument: str) -> None:
    """Show source lines: the next ones, those around the current line ('.') or another, or a range."""
    first, comma, last = (part.strip() for part in argument.partition(","))
    next_listed = debugger.prompt.next_listed
    if comma:
        begin, end = number(first), number(last)
        # As pdb reads it: a second number below the first one is a count.
        lines = (begin, end if end >= begin else begin + end)
    elif argument not in ("", "."):
        lines = _around(number(argument))
    elif argument == "." or next_listed is None:
        lines = _around(debugger.frame().line)
    else:
        lines = (next_listed, next_listed + _LISTED - 1)
    with debugger.screen.paged():
        debugger.show_frame(with_name=False, only=lines)
    debugger.prompt.next_listed = lines[1] + 1


@command("longlist ll", Group.LOOK)
def show_function_source(debugger: Debugger, argument: str) -> None:
    """Show the source of the whole function."""
    function = _function(debugger)
    last = len(debugger.frame_lines())
    lines = (1, last) if function is None else (function.first, function.last)
    with debugger.screen.paged():
        debugger.show_frame(with_name=False, only=lines)


@command("args a", Group.LOOK)
def show_arguments(debugger: Debugger, argument: str) -> None:
    """Show the arguments of this function and their values."""
    function = _function(debugger)
    if function is None:
        raise UsageError("this frame is not a function of a file: 'locals' shows its variables")
    values = {child.name: child for child in local_variables(debugger)}
    for name in function.arguments:
        if name in values:
            debugger.screen.variable(values[name])
        else:
            debugger.screen.note(f"  {name} is not assigned here")
    if not function.arguments:
        debugger.screen.note("no arguments")


@command("source", Group.LOOK, "EXPRESSION", example="source Model.forward", complete=complete_expression)
def show_source_of_object(debugger: Debugger, argument: str) -> None:
    """Show the source of a function, a class or a module."""
    if not argument:
        raise UsageError("give a function or a class, for instance: source Model.forward")
    asked = f"(__import__('inspect').getsourcefile({argument}), __import__('inspect').getsourcelines({argument})[1])"
    # The context "clipboard" returns a long path in full; "watch" would cut it off.
    answer = debugger.client.evaluate(asked, debugger.frame_id(), "clipboard").result
    try:
        path, line = ast.literal_eval(answer)
    except NOT_PYTHON:
        raise UsageError(f"the source of {argument} is not known") from None
    lines = debugger.sources.lines(debugger.client, Source(path=path))
    function = function_at(lines, line)
    first, last = (function.first, function.last) if function is not None else (1, len(lines))
    with debugger.screen.paged():
        debugger.screen.say(f"{path}:{first}")
        debugger.screen.lines(lines, first, last)


@command(
    "listing",
    Group.COMPILED,
    "statements | instructions",
    example="listing instructions",
    complete=complete_listing_form,
)
def show_listings_as(debugger: Debugger, argument: str) -> None:
    """Show generated code as Python or as bytecode; also before the program starts."""
    if argument not in LISTING_FORMS:
        raise UsageError(f"give {' or '.join(LISTING_FORMS)}")
    debugger.show_listings_as(argument)


@command("patch", Group.COMPILED, "[N:] INSTRUCTION", example="patch 12: LOAD_CONST 30", repeats=False)
def patch_instruction(debugger: Debugger, argument: str) -> None:
    """Replace this instruction, or number N of the listing, from the next call on: NOP, LOAD_FAST x, swap."""
    if not argument:
        raise UsageError("give an instruction, for instance: patch LOAD_FAST x")
    debugger.stopped_thread()
    reference = debugger.frame().instruction_pointer_reference
    if reference is None:
        raise UsageError("this frame runs no code that Dynamo generated")
    body = debugger.client.ask(PATCH, PatchArguments(reference, argument), PatchBody)
    debugger.screen.say(f"from the next call on: {body.instruction} (Dynamo generated {body.was})")
    debugger.show_frame_again()


@command("unpatch", Group.COMPILED)
def revert_patches(debugger: Debugger, argument: str) -> None:
    """Revert all bytecode patches."""
    reverted = debugger.client.ask(UNPATCH, UnpatchArguments(), UnpatchBody).count
    debugger.screen.say(f"{reverted} patched instruction{'' if reverted == 1 else 's'} reverted")
    debugger.show_frame_again()


def _around(line: int) -> tuple[int, int]:
    first = max(line - _LISTED // 2, 1)
    return first, first + _LISTED - 1


def _function(debugger: Debugger) -> Function | None:
    """Return the selected frame's function; None for module-level lines and for generated code."""
    frame = debugger.frame()
    if frame.source is None or not frame.source.path:
        return None
    try:
        return function_around(debugger.frame_lines(), frame.line)
    except RequestFailed:
        return None
