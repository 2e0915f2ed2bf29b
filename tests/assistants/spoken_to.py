"""An assistant that a test controls: the SDK's own client, for tests in another language.

The first line of stdin is an assistant's configuration, each further line a call: ``{"tool": ..., "arguments": ...}``.
Each answer is a line of stdout: ``{"text": ..., "data": ..., "isError": ...}``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mcp import Client, StdioServerParameters
from mcp_types import TextContent


async def main() -> None:
    """Serve until stdin ends."""
    (server,) = (await _next_line())["mcpServers"].values()
    parameters = StdioServerParameters(
        command=server["command"], args=server["args"], env={**os.environ, **server["env"]}
    )
    async with Client(parameters) as client:
        while (call := await _next_line()) is not None:
            reported = await client.call_tool(call["tool"], call["arguments"])
            text = "".join(one.text for one in reported.content if isinstance(one, TextContent))
            answer = {"text": text, "data": reported.structured_content, "isError": bool(reported.is_error)}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


async def _next_line() -> Any:
    line = await asyncio.to_thread(sys.stdin.readline)
    return json.loads(line) if line else None


asyncio.run(main())
