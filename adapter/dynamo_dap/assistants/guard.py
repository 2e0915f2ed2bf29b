"""Runs one of our commands, and ends it with all its children when this process's stdin is closed.

This process runs between the server for assistants and the command, so that nothing survives when the server or its
client is killed. The main thread waits for the command; another thread reads stdin.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from dynamo_dap.protocol.access.own_code import own_code

# An interrupt must end the command, even if a shell started the client so that it ignores interrupts.
_COMMAND = own_code(
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from dynamo_dap.command_line import main; sys.exit(main())"
)
_GRACE_SECONDS = 3.0
"""Seconds that an interrupted command has to end its programs, which have their own process sessions."""


def guarded(arguments: list[str], given: Path | None = None) -> list[str]:
    """Return the command line that runs ``dynamo-dap`` with these arguments under a guard.

    The command's standard input is the file ``given``, or empty.
    """
    here = own_code("from dynamo_dap.assistants.guard import main; sys.exit(main())")
    return [sys.executable, "-c", here, os.devnull if given is None else str(given), *arguments]


def main() -> int:
    """Run the given command, and return its exit status."""
    _, given, *arguments = sys.argv
    with Path(given).open("rb") as file:
        command = subprocess.Popen([sys.executable, "-c", _COMMAND, *arguments], stdin=file, start_new_session=True)
    threading.Thread(target=_end_with_parent, args=(command,), daemon=True).start()
    status = command.wait()
    _signal(command, signal.SIGKILL)
    return status if status >= 0 else 128 - status


def _end_with_parent(command: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1024):
        pass
    _signal(command, signal.SIGINT)
    timer = threading.Timer(_GRACE_SECONDS, _signal, (command, signal.SIGKILL))
    timer.daemon = True
    timer.start()


def _signal(command: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(command.pid, number)
