"""Commands about compiled code: cache entries, lines that differ, torch's options, saved calls.

Importing this adds them to ``command_table``.
"""

from __future__ import annotations

from dynamo_dap.calls.folder import reported
from dynamo_dap.protocol.requests.cache_entries import EntriesArguments, EntriesBody, ForgetArguments, ForgetBody
from dynamo_dap.protocol.requests.comparisons import ComparisonBody
from dynamo_dap.protocol.requests.contract import COMPARISON, ENTRIES, FORGET, RECORD_CALL, SET_OPTION
from dynamo_dap.protocol.requests.options import SetOptionArguments, SetOptionBody
from dynamo_dap.protocol.requests.saved_calls import RecordCallArguments, RecordCallBody
from dynamo_dap.protocol.wire.messages import decode
from dynamo_dap.records.report.comparison_text import print_comparison
from dynamo_dap.terminal.breakpoints import UsageError
from dynamo_dap.terminal.command_table import Group, command
from dynamo_dap.terminal.debugger import Debugger


@command("compare", Group.COMPILED)
def compare(debugger: Debugger, argument: str) -> None:  # noqa: ARG001  (every command has one)
    """Compare compiled and eager results line by line, for the newest call that differs (needs 'catch mismatch')."""
    body = decode(debugger.client.request(COMPARISON), ComparisonBody, f"body of '{COMPARISON}'")
    print_comparison(body, debugger.screen.console)


@command("entries", Group.COMPILED, "[FUNCTION]", example="entries Model.forward")
def show_entries(debugger: Debugger, argument: str) -> None:
    """Show a function's cache entries, or all: guards, generated code, graphs, resume functions."""
    with debugger.screen.paged():
        debugger.screen.code(_entries(debugger, argument or None).text.rstrip())


@command("forget", Group.COMPILED, "FUNCTION [COMPILE-ID]", example="forget fn 0/1", repeats=False)
def forget_entries(debugger: Debugger, argument: str) -> None:
    """Remove a cache entry (0/1), or all entries of a function and its resume functions."""
    name, _, compile_id = argument.partition(" ")
    if not name:
        raise UsageError("give a function, and optionally the id of an entry: forget fn 0/1")
    wanted = compile_id.strip() or None
    functions = _entries(debugger, name).functions
    found = next((one for one in functions if wanted in (None, *(each.compile_id for each in one.entries))), None)
    if found is None:
        known = ", ".join(entry.compile_id for one in functions for entry in one.entries) or "none"
        raise UsageError(f"{name!r} has no such cache entry; there are: {known}")
    answer = debugger.client.request(FORGET, ForgetArguments(found.id, wanted))
    count = decode(answer, ForgetBody, f"body of '{FORGET}'").count
    debugger.screen.note(f"{count} removed: calls that need them compile again")


def _entries(debugger: Debugger, function: str | None) -> EntriesBody:
    return decode(debugger.client.request(ENTRIES, EntriesArguments(function)), EntriesBody, f"body of '{ENTRIES}'")


@command("record-call", Group.COMPILED, "[--no-data] [FOLDER]", example="record-call saved/call-2", repeats=False)
def record_call(debugger: Debugger, argument: str) -> None:
    """Save the current thread's call to a folder, for: dynamo-dap replay FOLDER."""
    words = argument.split(maxsplit=1)
    has_data = words[:1] != ["--no-data"]
    folder = (words if has_data else words[1:]) and argument.removeprefix("--no-data").strip()
    arguments = RecordCallArguments(debugger.stopped_thread(), folder or None, has_data)
    answer = debugger.client.request(RECORD_CALL, arguments)
    debugger.screen.say(reported(decode(answer, RecordCallBody, f"body of '{RECORD_CALL}'")).rstrip())


@command("set", Group.SESSION, "[OPTION [VALUE]]", example="set stance force_eager")
def set_option(debugger: Debugger, argument: str) -> None:
    """Change a torch option from now on (stance, backend, compileOnly, torchLogs, torchConfig, cache), or show it."""
    answer = debugger.client.request(SET_OPTION, SetOptionArguments(argument))
    debugger.screen.say(decode(answer, SetOptionBody, f"body of '{SET_OPTION}'").result)
