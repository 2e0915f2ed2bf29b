"""``help``, and the completion of command lines."""

from __future__ import annotations

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.terminal.commands.table import command, commands, find
from dynamo_dap.terminal.debugger import Debugger
from dynamo_dap.terminal.errors import UsageError


def complete_line(debugger: Debugger, text: str) -> list[tuple[str, int]]:
    """Completions for the text before the cursor: what to insert, and how many characters it replaces."""
    name, space, argument = text.lstrip().partition(" ")
    if not space:
        return [(one.names[0] + " ", len(name)) for one in commands if one.names[0].startswith(name)]
    try:
        complete = find(name).complete
        return list(complete(debugger, argument)) if complete is not None else []
    except (UsageError, RequestFailed, TimeoutError):
        return []


@command("help h ?", "[COMMAND]")
def show_help(debugger: Debugger, argument: str) -> None:
    """List the commands, or tell of one."""
    chosen = [find(argument)] if argument else commands
    debugger.view.help([(f"{', '.join(one.names)} {one.argument}".rstrip(), one.meaning) for one in chosen])
