"""Connections that have not authenticated yet: how many there may be, for how long, and how they are accepted.

Any program on this machine can connect to our ports. One that connects and sends nothing must not block the port or
use up the process's file descriptors. Used on the loop; a ``Strangers`` lives as long as its port.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable

_log = logging.getLogger(__name__)

PATIENCE = 20.0
"""Seconds for a stranger to show its token; editors send theirs with the second message."""
MAXIMUM = 16
"""Strangers at a time; the oldest one is closed when another comes."""
_RETRY_INTERVAL = 0.1


async def connections_to(listening: socket.socket) -> AsyncIterator[socket.socket]:
    """Yield connections until the task is cancelled, also after the process was out of file descriptors."""
    loop = asyncio.get_running_loop()
    listening.setblocking(False)
    while True:
        try:
            connected, _ = await loop.sock_accept(listening)
        except OSError as error:
            _log.warning("cannot accept a connection: %s", error)
            await asyncio.sleep(_RETRY_INTERVAL)
            continue
        yield connected


class Strangers:
    """The connections of one port that have not authenticated yet."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._waiting: dict[Callable[[], None], asyncio.TimerHandle] = {}

    def admit(self, cut_off: Callable[[], None]) -> None:
        """Another one is here, to be ``cut_off`` unless it is recognised in time, or has to make room."""
        if len(self._waiting) >= MAXIMUM:
            self._cut_off(next(iter(self._waiting)))
        timer = asyncio.get_running_loop().call_later(self._patience, self._cut_off, cut_off)
        self._waiting[cut_off] = timer

    def forget(self, cut_off: Callable[[], None]) -> None:
        """The one with that ``cut_off`` has been recognised, or is gone. Harmless when it was forgotten already."""
        timer = self._waiting.pop(cut_off, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Cut all of them off."""
        for cut_off in list(self._waiting):
            self._cut_off(cut_off)

    def _cut_off(self, cut_off: Callable[[], None]) -> None:
        _log.info("a connection that did not show its token is cut off")
        self.forget(cut_off)
        cut_off()
