"""Offers ``listen``, ``connect``, ``wait_for_client`` and ``breakpoint`` to programs started without the debugger.

Runs on any thread of the program. The program outlives the debugger.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from dynamo_dap.debuggee.launch.children.listening import is_listening, listen_for
from dynamo_dap.debuggee.launch.starting.connecting import connect_from_environment, connect_to
from dynamo_dap.debuggee.launch.starting.process_agent import known_agent, process_agent, session_entries
from dynamo_dap.debuggee.launch.starting.stops import stop_at
from dynamo_dap.protocol.access.access_tokens import read_token_file, searched_places
from dynamo_dap.protocol.access.authorization import NamedServer


def listen(address: tuple[str, int] | int, *, access_token: str | None = None) -> tuple[str, int]:
    """Let a debugger attach at ``address`` (host and port, or a port on 127.0.0.1; port 0 takes a free one).

    A client must show a token: ``access_token``, else a random one in a file that only this user can read. A debugger
    of the same user finds the token there by itself.

    Returns:
        The host and port that clients attach to.

    Raises:
        ValueError: other machines can reach the address, and there is no ``access_token``.
        RuntimeError: this process is listening already.
        OSError: the address cannot be bound, or the token cannot be written.
    """
    return listen_for(process_agent, address, access_token)


def connect(address: tuple[str, int] | int | None = None, *, access_token: str | None = None) -> None:
    """Connect to a debug server that waits at ``address``: its ``attach`` configuration has ``"listen": {...}``.

    Does nothing if this process already has a debugger.

    ``access_token`` is the server's token. Without it, the token is read from the file that the server writes for
    programs of the same user. Without an address, connect to the server in the environment variable
    ``DYNAMO_DAP_CONNECT``, and return when the breakpoints are set. If the variable is not set, do nothing. If no
    debugger is there, report that on stderr, and let the program run on.

    Raises:
        PermissionError: no token is known for that address, or the server refuses the token.
        OSError: nobody listens there.
    """
    if address is None:
        connect_from_environment()
        return
    host, port = ("127.0.0.1", address) if isinstance(address, int) else address
    agent = known_agent()
    if agent is not None and agent.client is not None:
        return
    token = access_token or read_token_file(host, port)
    if token is None:
        raise PermissionError(
            f"no access token for the debug server at {host}:{port}: {searched_places(port)}. If the server waits "
            "with another HOME, TMPDIR or user, or with a token of its own, give connect() that access_token."
        )
    connect_to(NamedServer(host, port, token))


def wait_for_client() -> None:
    """Block until a client has attached and set its breakpoints."""
    agent = process_agent()
    if not is_listening() and agent.client is None:
        raise RuntimeError("dynamo_dap.wait_for_client() needs dynamo_dap.listen() or connect() first")
    agent.configured.wait()
    agent.eager_debugger.wait_until_configured()


def is_client_connected() -> bool:
    """Return whether a client is attached."""
    return process_agent().client is not None


def breakpoint() -> None:
    """Stop here in the attached client; do nothing if no client is attached."""
    stop_at(process_agent(), sys._getframe(1))


def describe(function: Callable[..., object] | None = None) -> str:
    """Describe a function's cache entries as text: guards, code, graphs, resume functions.

    ``function`` is a function, a method or a module, compiled or not; without it, all functions are described. The
    call changes nothing. Without a debug session, graphs and counts of calls are known only from the first call of
    ``describe`` on.

    Raises:
        TypeError: ``function`` is something else.
    """
    # Imported only now: other programs pay nothing.
    from dynamo_dap.debuggee.launch.runs.cache_report import describe as described

    return described(function, session_entries())
