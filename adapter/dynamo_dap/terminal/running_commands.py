"""Commands that resume the program, go back in a trace, or try a change (what-if).

Importing this adds them to ``command_table``.
"""

# ruff: noqa: ARG001  (every command has an argument)

from __future__ import annotations

import shlex

from dynamo_dap.protocol.requests.contract import (
    GO_TO,
    KEEP,
    ORIGINS,
    RUN_BACK,
    TIMELINE,
    WHAT_IF,
    KeepArguments,
    TimelineBody,
    WhatIfBody,
)
from dynamo_dap.protocol.wire.messages import decode
from dynamo_dap.protocol.wire.types import (
    GotoTargetsArguments,
    GotoTargetsResponseBody,
    SetExpressionArguments,
    SetExpressionResponseBody,
    Source,
)
from dynamo_dap.terminal import returned_values
from dynamo_dap.terminal.breakpoints import Quit, UsageError
from dynamo_dap.terminal.command_table import Group, command, count, number
from dynamo_dap.terminal.debugger import Debugger, State


@command("continue c cont", Group.RUN)
def continue_(debugger: Debugger, argument: str) -> None:
    """Run to the next stop."""
    debugger.resume("continue")


@command("next n", Group.RUN, "[COUNT]", example="next 2")
def step_over(debugger: Debugger, argument: str) -> None:
    """Step to the next line of this function."""
    times = count(argument)
    if debugger.selected and not debugger.leave_inner_frames():
        return
    debugger.resume("next", count=times)


@command("step s", Group.RUN, "[COUNT]", example="step 3")
def step_in(debugger: Debugger, argument: str) -> None:
    """Step to the next line, into calls."""
    debugger.resume("stepIn", count=count(argument))


@command("return r out o finish", Group.RUN)
def step_out(debugger: Debugger, argument: str) -> None:
    """Run until this function returns, and stop in its caller."""
    returned_values.step_out(debugger)


@command("until unt", Group.RUN, "[LINE]", example="until 18")
def run_until(debugger: Debugger, argument: str) -> None:
    """Run to a later line of this function, past a loop or to LINE, or until it returns."""
    here = debugger.frame().line
    target = number(argument) if argument else here + 1
    if target <= here:
        raise UsageError(f"line {target} is not below the current line, {here}")
    if debugger.selected and not debugger.leave_inner_frames():
        return
    debugger.step_until(target)


@command("nexti ni", Group.RUN, "[COUNT]", example="nexti 5")
def step_over_instruction(debugger: Debugger, argument: str) -> None:
    """Step one bytecode instruction, over calls, and show the value stack."""
    debugger.resume("next", "instruction", count=count(argument))


@command("stepi si", Group.RUN, "[COUNT]", example="stepi 17")
def step_in_instruction(debugger: Debugger, argument: str) -> None:
    """Step one bytecode instruction, into calls, and show the value stack."""
    debugger.resume("stepIn", "instruction", count=count(argument))


@command("jump j", Group.RUN, "LINE", example="jump 16")
def jump(debugger: Debugger, argument: str) -> None:
    """Continue at another line of this function; in a trace, without affecting the program."""
    line, thread_id = number(argument), debugger.stopped_thread()
    if debugger.selected:
        raise UsageError("only the innermost frame can jump: 'frame 0' selects it")
    source = debugger.frame().source
    if source is None or not source.path:
        raise UsageError("this frame runs code that Dynamo generated: jump works only in a source file")
    arguments = GotoTargetsArguments(Source(path=source.path), line)
    targets = debugger.client.ask("gotoTargets", arguments, GotoTargetsResponseBody).targets
    if not targets:
        raise UsageError(f"cannot jump to line {line}: no reachable line begins there")
    debugger.go_to(thread_id, targets[0].id)


@command("pause", Group.RUN)
def pause(debugger: Debugger, argument: str) -> None:
    """Stop the running program (as Ctrl-C does)."""
    if debugger.state is not State.RUNNING:
        raise UsageError(f"the program {debugger.state.value}")
    debugger.pause()
    debugger.wait()


@command("restart run", Group.RUN, "[ARGUMENT ...]", example="run --epochs 3", repeats=False)
def restart(debugger: Debugger, argument: str) -> None:
    """Run the program from its beginning, optionally with other arguments; breakpoints stay."""
    if argument:
        try:
            debugger.set_program_arguments(shlex.split(argument))
        except ValueError as error:
            raise UsageError(f"{argument!r} cannot be split into arguments: {error}") from None
    elif debugger.state is State.CONFIGURING:
        debugger.resume("continue")
        return
    debugger.end()
    debugger.begin()
    debugger.resume("continue")


@command("quit q exit", Group.SESSION, repeats=False)
def leave(debugger: Debugger, argument: str) -> None:
    """End the program and quit; detach from an attached program."""
    raise Quit


# -- back in a trace, and what if ------------------------------------------------------------------------------------


@command("back rnext rn", Group.PAST, "[COUNT]", example="back 2")
def step_back(debugger: Debugger, argument: str) -> None:
    """Step back to the previous line, in a trace, over calls."""
    debugger.resume("stepBack", count=count(argument))


@command("rcontinue rc", Group.PAST)
def reverse(debugger: Debugger, argument: str) -> None:
    """Go back to the previous breakpoint, in a trace."""
    debugger.resume("reverseContinue")


@command("origin", Group.PAST, "NAME [bound|mutated|guarded|nan|made]", example="origin x nan")
def origin(debugger: Debugger, argument: str) -> None:
    """Go back in a trace to where a variable was bound, changed in place, guarded, or became NaN."""
    name, _, what = argument.partition(" ")
    what = what.strip() or ORIGINS[0]
    if not name or what not in ORIGINS:
        raise UsageError(f"origin NAME [{'|'.join(ORIGINS)}]")
    debugger.travel(RUN_BACK, {"frameId": debugger.frame().id, "name": name, "to": what})


@command("timeline", Group.PAST, "[NUMBER]", example="timeline 12")
def timeline(debugger: Debugger, argument: str) -> None:
    """Show the statements that the trace visited around this one, or go to one of them."""
    thread_id = debugger.stopped_thread()
    if argument:
        if not argument.isdigit():
            raise UsageError("timeline [NUMBER]: a number, as 'timeline' shows them")
        debugger.travel(GO_TO, {"threadId": thread_id, "snapshot": int(argument)})
        return
    answer = debugger.client.request(TIMELINE, {"threadId": thread_id})
    debugger.screen.timeline(decode(answer, TimelineBody, f"body of '{TIMELINE}'"))


@command("assign", Group.PAST, "NAME = EXPRESSION", example="assign n = 5")
def assign(debugger: Debugger, argument: str) -> None:
    """Give a variable another value; in a trace, continue with it without affecting the program."""
    name, equals, value = argument.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise UsageError("assign NAME = EXPRESSION, for instance: assign n = 5")
    debugger.stopped_thread()
    arguments = SetExpressionArguments(name.strip(), value.strip(), debugger.frame_id())
    body = debugger.change(lambda: debugger.client.ask("setExpression", arguments, SetExpressionResponseBody))
    debugger.screen.say(f"{name.strip()} = {body.value}")


@command("whatif diff", Group.PAST)
def what_if(debugger: Debugger, argument: str) -> None:
    """Show how the last changed trace's graph differs from the program's own."""
    body = decode(debugger.client.request(WHAT_IF), WhatIfBody, f"body of '{WHAT_IF}'")
    for change in body.changes:
        debugger.screen.note(f"changed: {change}")
    if body.problem is not None:
        debugger.screen.note(f"the changed trace ended: {body.problem}")
    if body.program_graph is None:
        debugger.screen.note("the program's own graph is not complete yet: this is the changed one")
        debugger.screen.code(body.graph)
    else:
        debugger.screen.say(body.difference.rstrip() or "the graphs are the same")


@command("keep", Group.PAST)
def keep(debugger: Debugger, argument: str) -> None:
    """Use the changed graph for this call."""
    debugger.client.request(KEEP, KeepArguments(debugger.stopped_thread()))
    debugger.drain()
