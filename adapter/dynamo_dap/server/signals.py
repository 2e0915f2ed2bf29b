"""Orderly shutdown on signals: no program that the server launched may be left behind."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextlib.contextmanager
def on_end_signals(end: Callable[[], None]) -> Iterator[None]:
    """Call ``end`` on the running loop at every signal that asks the process to end."""
    loop = asyncio.get_running_loop()
    for number in _ENDING:
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number in _ENDING:
            loop.remove_signal_handler(number)
