"""Lists the subcommands of ``dynamo-dap``, and writes its help from them.

A subcommand's module is imported only when the subcommand runs. A server that an IDE starts imports none of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

Main = Callable[[list[str]], int]
"""Runs a command with its arguments and returns the exit status."""


@dataclass(frozen=True)
class Command:
    """A subcommand. ``module`` is ``MODULE`` or ``MODULE:FUNCTION``; the function is ``main`` by default."""

    name: str
    summary: str
    module: str

    def load(self) -> Main:
        """Import the module and return the function that runs the command."""
        module, _, function = self.module.partition(":")
        return getattr(importlib.import_module(f"dynamo_dap.{module}"), function or "main")  # type: ignore[no-any-return]  # looked up by name


GROUPS: dict[str, tuple[Command, ...]] = {
    "debug": (
        Command("debug", "debug a program in this terminal", "commands.debug"),
        Command("connect", "run a program, and connect it to a waiting debugger", "commands.connect"),
    ),
    "see what torch.compile does": (
        Command("run", "run a program without stops and record its compiles", "commands.run"),
        Command("report", "print the newest record of this directory", "commands.report"),
        Command("explore", "show each line's graphs, operations and kernels", "commands.explore"),
        Command("entries", "run a program and print torch's cache for each function", "commands.entries"),
        Command("forecast", "run a program and report which sizes compile next", "commands.forecast"),
        Command("diff", "find the first place where two runs differ", "commands.diff"),
        Command("profile", "run a program and report where compile time goes", "commands.profile"),
    ),
    "find and fix what is wrong": (
        Command("check", "fail if a program has more graph breaks or recompiles than allowed", "commands.check"),
        Command("fix", "try the known fixes for a line, on a copy", "commands.fix"),
        Command("compare", "report which lines differ from eager when compiled", "commands.compare"),
        Command("bisect", "find the wrong compiler stage", "commands.bisect"),
        Command("minify", "minimize a failing graph", "commands.minify"),
        Command("record-call", "save a call of a compiled function to a folder", "commands.saved_calls:record_call"),
        Command("replay", "replay a saved call, alone or in the debugger", "commands.saved_calls:replay"),
    ),
    "check the installation": (Command("doctor", "report what works in this environment", "commands.doctor"),),
    "serve editors and assistants": (
        Command("lsp", "start the language server, which shows the record in an editor", "commands.lsp"),
        Command("mcp", "start the server for assistants (Model Context Protocol)", "commands.mcp"),
        Command("schema", "print the JSON Schema of what a command prints with --json", "commands.schema"),
    ),
}
"""The commands, grouped by what a user wants to do."""

COMMANDS: dict[str, Command] = {command.name: command for group in GROUPS.values() for command in group}


def help_text() -> str:
    """Return the list of commands as ``dynamo-dap --help`` prints it."""
    width = max(map(len, COMMANDS))
    lines = ["commands (dynamo-dap COMMAND --help explains one):"]
    for title, group in GROUPS.items():
        lines += ["", f"  {title}"]
        lines += [f"    {command.name.ljust(width)}  {command.summary}" for command in group]
    return "\n".join(lines)
