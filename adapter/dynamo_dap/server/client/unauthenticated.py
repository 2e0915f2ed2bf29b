"""Limits connections that have not shown a token yet: their number and their time.

Each program on the machine can connect to our ports. A silent connection must block neither the port nor the process,
whose file descriptors all ports share. Runs on the event loop; lives as long as its port.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from weakref import WeakKeyDictionary

_log = logging.getLogger(__name__)

PATIENCE = 20.0
"""Seconds for a connection to show its token; editors send theirs with the second message."""
MAXIMUM = 32
"""Unauthenticated connections at all ports together; a further one closes the oldest."""
_RETRY_INTERVAL = 0.02

_CutOff = Callable[[], None]

_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_CutOff, UnauthenticatedConnections]] = WeakKeyDictionary()
"""The waiting connections of each port, in order of arrival."""


async def connections_to(listening: socket.socket) -> AsyncIterator[socket.socket]:
    """Yield connections until the task is cancelled, even if the process runs out of file descriptors."""
    loop = asyncio.get_running_loop()
    listening.setblocking(False)
    while True:
        try:
            connected, _ = await loop.sock_accept(listening)
        except OSError as error:
            _log.warning("cannot accept a connection: %s", error)
            # Drop the oldest silent connection: the new one may be the client.
            _make_room()
            await asyncio.sleep(_RETRY_INTERVAL)
            continue
        yield connected
        # Let the loop read accepted connections. ``sock_accept`` does not yield to it while more connections wait.
        await asyncio.sleep(0)


def _all() -> dict[_CutOff, UnauthenticatedConnections]:
    return _of_loops.setdefault(asyncio.get_running_loop(), {})


def _make_room() -> None:
    """Close the oldest connection."""
    for cut_off, unauthenticated in _all().items():
        unauthenticated._cut_off(cut_off)
        return


class UnauthenticatedConnections:
    """The unauthenticated connections of one port."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._waiting: dict[_CutOff, asyncio.TimerHandle] = {}

    def admit(self, cut_off: _CutOff) -> None:
        """Add a connection; ``cut_off`` closes it if it shows no token in time, or is the oldest of too many."""
        if len(_all()) >= MAXIMUM:
            _make_room()
        timer = asyncio.get_running_loop().call_later(self._patience, self._cut_off, cut_off)
        self._waiting[cut_off] = timer
        _all()[cut_off] = self

    def forget(self, cut_off: _CutOff) -> None:
        """Remove the connection of ``cut_off``, unless it is removed already."""
        timer = self._waiting.pop(cut_off, None)
        if timer is not None:
            timer.cancel()
            _all().pop(cut_off, None)

    def close(self) -> None:
        """Close all unauthenticated connections of this port."""
        for cut_off in list(self._waiting):
            self._cut_off(cut_off)

    def _cut_off(self, cut_off: _CutOff) -> None:
        _log.info("a connection that did not show its token is cut off")
        self.forget(cut_off)
        cut_off()
