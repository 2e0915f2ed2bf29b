"""Commands that choose what to look at: threads, frames, source lines."""

from __future__ import annotations

from dynamo_dap.protocol.contract import LISTING_FORMS
from dynamo_dap.terminal.commands.arguments import number
from dynamo_dap.terminal.commands.table import command
from dynamo_dap.terminal.debugger import Debugger
from dynamo_dap.terminal.errors import UsageError


@command("where w bt")
def show_call_stack(debugger: Debugger, argument: str) -> None:
    """Show the call stack."""
    debugger.view.stack(debugger.frames(), debugger.selected, total=debugger.total_frames)


@command("up u", "[N]")
def go_up(debugger: Debugger, argument: str) -> None:
    """Select the frame that called this one."""
    debugger.select_frame(debugger.selected + number(argument or "1"))


@command("down", "[N]")
def go_down(debugger: Debugger, argument: str) -> None:
    """Select the frame that this one called."""
    debugger.select_frame(debugger.selected - number(argument or "1"))


@command("frame f", "[N]")
def select_frame(debugger: Debugger, argument: str) -> None:
    """Show the selected frame, or select another by its number."""
    debugger.select_frame(number(argument) if argument else debugger.selected)


@command("threads")
def show_threads(debugger: Debugger, argument: str) -> None:
    """List the program's threads."""
    debugger.view.threads(debugger.client.threads(), debugger.stops, debugger.thread_id)


@command("thread", "N")
def select_thread(debugger: Debugger, argument: str) -> None:
    """Go to another stopped thread."""
    debugger.select_thread(number(argument))


@command("listing", "statements | instructions")
def show_listings_as(debugger: Debugger, argument: str) -> None:
    """Show generated code as Python, or its bytecode."""
    if argument not in LISTING_FORMS:
        raise UsageError(f"give {' or '.join(LISTING_FORMS)}")
    debugger.show_listings_as(argument)


@command("list l", "[LINE]")
def show_source(debugger: Debugger, argument: str) -> None:
    """Show the source around the current line, or another."""
    debugger.show_frame(with_name=False, around=number(argument) if argument else None)
