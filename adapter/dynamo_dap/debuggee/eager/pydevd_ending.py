"""Makes debugpy end at once: its threads end with the connection, and the connection ends with its threads.

pydevd's functions are wrapped once per process. Runs on pydevd's own threads, and on those that end its session.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import time
from typing import Any

_WAKING_SECONDS = 0.01


def install() -> None:
    """Make debugpy's threads end with the session, and the session with the reader thread.

    Otherwise its reader waits for a thread that waits for the reader, until both time out after 0.5 s.
    """
    reader = importlib.import_module("_pydevd_bundle.pydevd_comm").ReaderThread
    run = reader._on_run

    @functools.wraps(run)
    def _on_run(self: Any) -> None:
        try:
            run(self)
        finally:
            # Close it in any case: with an open connection, the server would wait for answers.
            self._terminate_on_socket_close()

    reader._on_run = _on_run
    terminate = reader._terminate_on_socket_close

    @functools.wraps(terminate)
    def _terminate_on_socket_close(self: Any) -> None:
        py_db = self.py_db
        if py_db is not None and not py_db.pydb_disposed:
            terminate(self)

    reader._terminate_on_socket_close = _terminate_on_socket_close
    debugger = sys.modules["pydevd"].PyDB
    wait = debugger._PyDB__wait_for_threads_to_finish

    @functools.wraps(wait)
    def wait_for_threads_to_finish(self: Any, timeout: float) -> None:
        until = time.monotonic() + timeout
        for thread in set(self.created_pydb_daemon_threads) - {self.check_alive_thread, threading.current_thread()}:
            while thread.is_alive() and time.monotonic() < until:
                # A thread that was just beginning to wait has missed the wake-up.
                thread.do_kill_pydev_thread()
                thread.join(_WAKING_SECONDS)
        wait(self, max(0.0, until - time.monotonic()))

    debugger._PyDB__wait_for_threads_to_finish = wait_for_threads_to_finish
    dispose = debugger.dispose_and_kill_all_pydevd_threads

    @functools.wraps(dispose)
    def dispose_and_kill_all_pydevd_threads(self: Any, *arguments: object, **named: object) -> None:
        _detach_closed_socket(self._client_socket)
        dispose(self, *arguments, **named)

    debugger.dispose_and_kill_all_pydevd_threads = dispose_and_kill_all_pydevd_threads


def _detach_closed_socket(connected: Any) -> None:
    """Detach a socket whose descriptor the program has closed: its number may now belong to another file."""
    try:
        if connected is not None:
            connected.getsockname()
    except OSError:
        connected.detach()
