"""Commands that let the program go on."""

from __future__ import annotations

from dynamo_dap.terminal.commands.table import command
from dynamo_dap.terminal.debugger import Debugger, State
from dynamo_dap.terminal.errors import Quit, UsageError


@command("continue c run r")
def go_on(debugger: Debugger, argument: str) -> None:
    """Run to the next stop."""
    debugger.resume("continue")


@command("next n")
def step_over(debugger: Debugger, argument: str) -> None:
    """Step to the next line of this function."""
    debugger.resume("next")


@command("step s")
def step_in(debugger: Debugger, argument: str) -> None:
    """Step to the next line, into calls."""
    debugger.resume("stepIn")


@command("out o finish")
def step_out(debugger: Debugger, argument: str) -> None:
    """Run until this function returns."""
    debugger.resume("stepOut")


@command("nexti ni")
def step_over_instruction(debugger: Debugger, argument: str) -> None:
    """Step one bytecode instruction, over calls."""
    debugger.resume("next", "instruction")


@command("stepi si")
def step_in_instruction(debugger: Debugger, argument: str) -> None:
    """Step one bytecode instruction, into calls."""
    debugger.resume("stepIn", "instruction")


@command("pause")
def pause(debugger: Debugger, argument: str) -> None:
    """Stop the running program (as Ctrl-C does)."""
    if debugger.state is not State.RUNNING:
        raise UsageError(f"the program {debugger.state.value}")
    debugger.pause()
    debugger.wait()


@command("restart")
def restart(debugger: Debugger, argument: str) -> None:
    """Run the program again from its beginning."""
    debugger.end()
    debugger.begin()
    debugger.resume("continue")


@command("quit q exit")
def leave(debugger: Debugger, argument: str) -> None:
    """End the program and leave."""
    raise Quit
