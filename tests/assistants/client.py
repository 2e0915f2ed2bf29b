"""An assistant for tests: the SDK's own client, with a real server process over stdio."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import ListRootsResult, Root, TextContent
from pydantic import FileUrl

from dynamo_dap.protocol.requests.contract import EDITOR_VARIABLE, RECORDS_VARIABLE
from tests.client import processes, zygote

PATIENCE = 120
COMMAND = [sys.executable, "-m", "dynamo_dap", "mcp"]


class Assistant:
    """One client."""

    def __init__(self, client: Client, mark: str, waiting: set[str]) -> None:
        self.client = client
        self.mark = mark
        """Of every process that its server starts."""
        self.waiting = waiting
        """The tools that take how long to wait."""

    async def ask(self, tool: str, **arguments: Any) -> tuple[str, Any]:
        """The answer, as text and as data."""
        text, data, is_error = await self.try_to(tool, **arguments)
        assert not is_error, text
        return text, data

    async def refused(self, tool: str, **arguments: Any) -> str:
        """What is said of a call that makes no sense."""
        text, _, is_error = await self.try_to(tool, **arguments)
        assert is_error, text
        return text

    async def try_to(self, tool: str, **arguments: Any) -> tuple[str, Any, bool]:
        """The answer, and whether it is a refusal. It is bounded, always."""
        if tool in self.waiting:
            arguments = {"seconds": PATIENCE, **arguments}
        reported = await self.client.call_tool(tool, arguments)
        (content,) = reported.content
        assert isinstance(content, TextContent)
        assert len(content.text) < 13_000
        return content.text, reported.structured_content, bool(reported.is_error)

    async def read(self, uri: str) -> str:
        """A resource."""
        (content,) = (await self.client.read_resource(uri)).contents
        return str(getattr(content, "text", None))

    async def not_there(self, uri: str) -> str:
        """What is said of a resource that does not exist."""
        with pytest.raises(MCPError) as refused:
            await self.client.read_resource(uri)
        return str(refused.value)


def environment(folder: Path, mark: str) -> dict[str, str]:
    """That of a server whose programs are forked from a process that has imported torch."""
    return {**os.environ, RECORDS_VARIABLE: str(folder / "records"), "PYTHONUNBUFFERED": "1", processes.MARK: mark}


@contextlib.asynccontextmanager
async def assistant(
    folder: Path, *, roots: list[Path] | None = None, mode: Any = "auto", editor: str | None = None
) -> AsyncIterator[Assistant]:
    """A client whose server runs in ``folder``, perhaps in an editor; without ``roots`` it has no such thing."""

    async def list_roots(*_: Any, **__: Any) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl(path.as_uri())) for path in roots or []])

    mark = uuid.uuid4().hex
    server = StdioServerParameters(
        command=COMMAND[0],
        args=[*COMMAND[1:], "--python", *zygote.python()],
        cwd=folder,
        env=environment(folder, mark) | ({} if editor is None else {EDITOR_VARIABLE: editor}),
    )
    try:
        async with Client(server, mode=mode, list_roots_callback=None if roots is None else list_roots) as client:
            offered = (await client.list_tools()).tools
            yield Assistant(
                client, mark, {tool.name for tool in offered if "seconds" in tool.input_schema["properties"]}
            )
        left = processes.wait_until_gone(mark)
        assert not left, left
    finally:
        processes.kill_all(mark)
