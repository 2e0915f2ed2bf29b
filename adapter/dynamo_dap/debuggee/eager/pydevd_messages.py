"""Sends log messages before the program continues, so that none is lost if the program ends or crashes.

pydevd queues messages for its writer thread. Queued messages are lost if the process dies. At an ordinary end, pydevd
gives that thread half a second to send them. pydevd's functions are wrapped once per process, and run on the program's
threads.
"""

from __future__ import annotations

import functools
import importlib
import threading
from _thread import allocate_lock  # gevent replaces the one in ``threading``
from typing import Any

_LOOKS_SECONDS = 0.5
"""Seconds between two checks of a waiting thread that the writer thread still runs."""

_this_thread = threading.local()


def has_evaluated_message() -> None:
    """Note that the next output of the calling thread is a log message."""
    _this_thread.logs = True


def install() -> None:
    """Make a thread wait until its log message has been sent."""
    writer = importlib.import_module("_pydevd_bundle.pydevd_comm").WriterThread
    output = importlib.import_module("_pydevd_bundle.pydevd_comm_constants").CMD_WRITE_TO_CONSOLE
    add = writer.add_command

    @functools.wraps(add)
    def add_command(self: Any, command: Any) -> None:
        if command.id != output or not getattr(_this_thread, "logs", False):
            add(self, command)
            return
        _this_thread.logs = False
        is_sent = allocate_lock()
        is_sent.acquire()
        command.call_after_send(lambda _socket: is_sent.release())
        add(self, command)
        while not is_sent.acquire(timeout=_LOOKS_SECONDS) and self.is_alive() and not self._kill_received:
            pass

    writer.add_command = add_command
