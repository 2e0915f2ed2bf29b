"""What can be typed at the prompt: one module per family of commands. Importing this package fills the table."""

from dynamo_dap.terminal.commands import breaking, helping, looking, moving, navigating  # noqa: F401  fills the table
from dynamo_dap.terminal.commands.helping import complete_line
from dynamo_dap.terminal.commands.table import commands, execute

__all__ = ["commands", "complete_line", "execute"]
