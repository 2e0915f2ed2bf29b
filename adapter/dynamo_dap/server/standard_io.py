"""One session over stdin and stdout, as IDEs start debug adapters.

Runs the loop on the main thread until the session ends.
"""

from __future__ import annotations

import asyncio

from dynamo_dap.protocol.streams import PipeStream
from dynamo_dap.server.access import Access
from dynamo_dap.server.session import Session
from dynamo_dap.server.signals import on_end_signals


def serve(stream: PipeStream) -> int:
    """Serve one session and return the exit status of the process."""
    return asyncio.run(_serve(stream))


async def _serve(stream: PipeStream) -> int:
    session = Session(stream, Access())
    with on_end_signals(session.end):
        return await session.closed
