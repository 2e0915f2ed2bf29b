"""debugpy's in-process server as a backend: its connection, and how a session with it begins.

Used on the loop. It connects to the server (``launching.debugpy_listener``), which speaks to it as debugpy's own
adapter does.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.contract import ErrorId
from dynamo_dap.protocol.options import LaunchArguments, SessionOptions
from dynamo_dap.protocol.types import InitializeRequestArguments
from dynamo_dap.server.backend import Backend
from dynamo_dap.server.errors import StartRefused
from dynamo_dap.server.waiting import until_any

DEBUGPY = "debugpy"

_OURS = frozenset({"accessToken", "connect", "eager", "host", "mode", "port", "console", "env", "envFile"})
"""Options that are no business of debugpy's; secrets and addresses among them."""


class DebugpyBackend(Backend):
    """The connection to debugpy's in-process server."""

    async def introduce(
        self,
        client: InitializeRequestArguments,
        options: SessionOptions,
        given: dict[str, Any],
        initialized: asyncio.Event,
    ) -> None:
        """Begin the session: ``given`` are the client's own ``launch`` or ``attach`` arguments.

        Raises:
            StartRefused: it refused, or did not answer in time.
        """
        timeout = options.launch_timeout
        command = "launch" if isinstance(options, LaunchArguments) else "attach"
        try:
            await self.connection.request("initialize", client, timeout=timeout)
            await self.connection.request(command, debugpy_arguments(options, given), timeout=timeout)
        except RequestFailed as failure:
            raise StartRefused(ErrorId.AGENT_REFUSED, f"debugpy in the program refused: {failure}") from None
        except TimeoutError as error:
            raise StartRefused(ErrorId.CONNECT_TIMEOUT, str(error)) from None
        await until_any(timeout, initialized.wait())
        if not initialized.is_set():
            raise StartRefused(ErrorId.CONNECT_TIMEOUT, f"debugpy in the program was not ready within {timeout:g} s")


def debugpy_arguments(options: SessionOptions, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of debugpy's ``launch`` or ``attach``."""
    arguments = {name: value for name, value in given.items() if name not in _OURS and not name.startswith("__")}
    arguments["justMyCode"] = options.just_my_code
    # As the agent does it. Where all stop at once, a thread that reaches a breakpoint beside another is never told of.
    arguments["stopAllThreadsOnSuspend"] = arguments["steppingResumesAllThreads"] = False
    if isinstance(options, LaunchArguments):
        # What the program prints is read from its pipes, or goes to a terminal.
        arguments.pop("redirectOutput", None)
        arguments["isOutputRedirected"] = options.console == "internalConsole"
    return arguments


def given_arguments(raw: msgspec.Raw) -> dict[str, Any]:
    """Return the client's arguments as plain values."""
    return msgspec.json.decode(bytes(raw), type=dict[str, Any] | None) or {}
