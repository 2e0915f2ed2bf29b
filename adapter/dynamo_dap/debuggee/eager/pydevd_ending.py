"""Makes a debugpy session end without a delay.

Its threads end when the connection closes, and the connection closes when its reader thread ends. pydevd's functions
are wrapped once per process. They run on pydevd's own threads, and on threads that end its session.
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

    Without this, the reader and another thread wait for each other until both time out after 0.5 s.
    """
    reader = importlib.import_module("_pydevd_bundle.pydevd_comm").ReaderThread
    run = reader._on_run

    @functools.wraps(run)
    def _on_run(self: Any) -> None:
        try:
            run(self)
        finally:
            # Close the connection in any case. While it is open, the server waits for answers.
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
                # Wake the thread repeatedly: if it is just beginning to wait, it misses a wake-up.
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
    """Detach a socket whose descriptor the program has closed. Its number may now belong to another file."""
    try:
        if connected is not None:
            connected.getsockname()
    except OSError:
        connected.detach()
