"""Imports all command modules, which fills ``command_table`` in the order in which ``help`` shows them."""

from dynamo_dap.terminal import (
    breakpoint_commands,
    compile_commands,
    frame_commands,
    help_command,
    running_commands,
    value_commands,
)
from dynamo_dap.terminal.typed_lines import CONTINUATION, complete_line, execute, read_block

__all__ = [
    "CONTINUATION",
    "breakpoint_commands",
    "compile_commands",
    "complete_line",
    "execute",
    "frame_commands",
    "help_command",
    "read_block",
    "running_commands",
    "value_commands",
]
