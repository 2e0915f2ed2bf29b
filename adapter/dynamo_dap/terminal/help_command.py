"""Commands about commands: ``help``, ``alias``. Importing this adds them to ``command_table``."""

from __future__ import annotations

import textwrap

from dynamo_dap.terminal.breakpoints import UsageError
from dynamo_dap.terminal.command_table import Command, Group, command, commands, find
from dynamo_dap.terminal.debugger import Debugger

_WIDTH = 80
_TITLE = 15


def complete_command(debugger: Debugger, argument: str) -> list[tuple[str, int]]:  # noqa: ARG001  (as every completion)
    """Complete the name of a command."""
    return [(one.names[0], len(argument)) for one in commands if one.names[0].startswith(argument)]


@command("help h ?", Group.SESSION, "[COMMAND]", example="help break", complete=complete_command)
def show_help(debugger: Debugger, argument: str) -> None:
    """List the commands in groups, or explain one."""
    if not argument:
        debugger.screen.say(overview())
        return
    found = find(argument)
    if found is None:
        raise UsageError(f"unknown command {argument!r}: 'help' lists them; anything else is Python")
    debugger.screen.say(f"{', '.join(found.names)} {found.argument}".rstrip())
    debugger.screen.say(f"  {found.meaning}")
    debugger.screen.say(f"  for example: {found.example}")


def overview() -> str:
    """Return all commands in groups, on one screen of 24 lines and 80 columns."""
    lines = ["Anything else is Python: x.shape, y = 2, for each in xs: print(each)", ""]
    for group in Group:
        names = "  ".join(_name(one) for one in commands if one.group is group)
        wrapped = textwrap.wrap(names, _WIDTH - _TITLE, break_on_hyphens=False)
        lines += [f"{group.value if not at else '':{_TITLE}}{line}" for at, line in enumerate(wrapped)]
    return "\n".join([*lines, "", "'help COMMAND' explains one with an example; Enter repeats the last."])


def _name(one: Command) -> str:
    """Join a name and its shortest form so that no line break separates them."""
    short = min(one.names, key=len)
    return one.names[0] if short == one.names[0] else f"{one.names[0]}\N{NO-BREAK SPACE}{short}"


@command("alias", Group.SESSION, "[NAME [COMMAND]]", example="alias pi p %1.shape, %1.dtype", repeats=False)
def set_alias(debugger: Debugger, argument: str) -> None:
    """Define a command name; %1, %2 are its arguments, %* all of them. Without a command, show the definitions."""
    name, _, replacement = argument.partition(" ")
    aliases = debugger.prompt.aliases
    if replacement.strip():
        aliases[name] = replacement.strip()
        return
    for one in [name] if name else sorted(aliases):
        debugger.screen.say(f"{one} = {aliases[one]}" if one in aliases else f"{one} is not an alias")


@command("unalias", Group.SESSION, "NAME", example="unalias pi")
def remove_alias(debugger: Debugger, argument: str) -> None:
    """Remove an alias."""
    if debugger.prompt.aliases.pop(argument, None) is None:
        raise UsageError(f"{argument!r} is not an alias: 'alias' lists them")
