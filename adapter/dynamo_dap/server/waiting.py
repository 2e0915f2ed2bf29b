"""Waiting with a timeout. Used on the loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any


async def until_any(timeout: float, *waits: asyncio.Future[Any] | Coroutine[Any, Any, Any]) -> bool:
    """Wait until one of ``waits`` is done, at most ``timeout`` seconds; return whether one is.

    Futures are left as they are, coroutines that are not done are cancelled.
    """
    own = {asyncio.ensure_future(wait): asyncio.iscoroutine(wait) for wait in waits}
    try:
        done, _ = await asyncio.wait(own, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for future, is_ours in own.items():
            if is_ours and not future.done():
                future.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await future
