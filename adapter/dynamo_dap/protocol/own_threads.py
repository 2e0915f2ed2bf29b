"""Makes the debugger's own threads: daemon threads that other Python debuggers in the process leave alone.

Runs on any thread; a thread lives as long as its target runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

OWN_THREAD_PREFIX = "dynamo-dap "

_made: set[threading.Thread] = set()
"""Threads that may still run.

If the last reference to a thread disappeared at its own end, a callback in ``threading`` would run Python code on it.
pydevd would then mistake it for a thread of the program, because ``threading`` has already removed it.
"""


def own_thread(name: str, target: Callable[..., object], *arguments: object) -> threading.Thread:
    """Return a daemon thread, not yet started, called ``dynamo-dap NAME``.

    pydevd neither traces a thread with these two attributes nor shows it to the user.
    """
    thread = threading.Thread(target=target, args=arguments, name=OWN_THREAD_PREFIX + name, daemon=True)
    vars(thread).update(pydev_do_not_trace=True, is_pydev_daemon_thread=True)
    for one in list(_made):
        if one.ident is not None and not one.is_alive():
            _made.discard(one)
    _made.add(thread)
    return thread
