"""Checks the arguments of ``launch`` and ``attach``: reports wrong values and unknown names.

Pure functions, used on the loop. The options themselves are in ``protocol.requests.options``.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection
from pathlib import Path
from typing import TypeVar

import msgspec

from dynamo_dap.protocol.access.access_tokens import is_loopback
from dynamo_dap.protocol.requests.contract import ErrorId, Invitation
from dynamo_dap.protocol.requests.options import (
    CACHES,
    CONSOLES,
    LISTINGS,
    MODES,
    RANK_OUTPUT,
    STANCES,
    STOP_RANKS,
    TRITON,
    AgentOptions,
    AttachArguments,
    ConnectTarget,
    DebuggingOptions,
    HandedOverTarget,
    LaunchArguments,
    ListenTarget,
    SessionOptions,
)
from dynamo_dap.protocol.wire.messages import ProtocolError, decode
from dynamo_dap.server.client.errors import StartRefused

O = TypeVar("O", bound=SessionOptions)  # noqa: E741 - a type variable


def read_options(raw: msgspec.Raw, into: type[O], command: str) -> O:
    """Decode and check the arguments of ``launch`` or ``attach``.

    Raises:
        StartRefused: something has the wrong type or value; the text names the attribute.
    """
    try:
        options = decode(raw, into, f"{command} arguments")
    except ProtocolError as error:
        raise StartRefused(ErrorId.INVALID_ARGUMENTS, str(error)) from None
    _check_choice("mode", options.mode, MODES)
    _check_choice("listing", options.listing, LISTINGS)
    _check_choice("stance", options.stance, STANCES)
    _check_choice("cache", options.cache, CACHES)
    _check_choice("triton", options.triton, TRITON)
    _check_choice("rankOutput", options.rank_output, RANK_OUTPUT)
    _check_choice("stopRanks", options.stop_ranks, STOP_RANKS)
    if isinstance(options, LaunchArguments):
        _check_choice("console", options.console, CONSOLES)
        if options.input_file is not None and options.console != "internalConsole":
            text = '"inputFile" needs "console": "internalConsole"; in a terminal the program reads what is typed'
            raise StartRefused(ErrorId.INVALID_OPTION, text)
    return options


def target_of(options: AttachArguments) -> ConnectTarget | ListenTarget | HandedOverTarget:
    """Return the address to connect to, or to listen on. Raises ``StartRefused`` if the arguments have none."""
    if options.handed_over is not None:
        return options.handed_over
    if options.listen is not None:
        if options.connect is not None or options.port is not None:
            raise StartRefused(ErrorId.INVALID_OPTION, 'attach takes either "listen" or "connect", not both')
        return options.listen
    if options.connect is not None:
        return options.connect
    if options.port is None:
        text = 'attach needs the address of the program: "connect": {"host": ..., "port": ...}'
        raise StartRefused(ErrorId.INVALID_OPTION, text)
    return ConnectTarget(port=options.port, host=options.host or "127.0.0.1")


def token_wanted(target: ListenTarget) -> str | None:
    """Return the token that connections to ``target`` must show; None to create one.

    Raises:
        StartRefused: other machines can connect without a token, or the token is not where the options say.
    """
    token, name = target.access_token, target.access_token_variable
    if token is not None and name is not None:
        raise StartRefused(ErrorId.INVALID_OPTION, '"listen" takes "accessToken" or "accessTokenVariable", not both')
    if name is not None:
        token = os.environ.get(name)
        if not token:
            text = f'"listen": the environment variable {name} is not set; it must hold the access token'
            raise StartRefused(ErrorId.INVALID_OPTION, text)
    if token is None and not is_loopback(target.host):
        text = (
            f"listening on {target.host}:{target.port} lets other machines send programs here: "
            'give "listen" an "accessToken", or listen on 127.0.0.1'
        )
        raise StartRefused(ErrorId.INVALID_OPTION, text)
    return token


def target_of_rank(target: ConnectTarget, rank: int) -> ConnectTarget:
    """Return the address of a rank, given that of rank 0. Raises ``StartRefused`` if its port is too high."""
    if target.port + rank > _LAST_PORT:
        text = f'"ranks": rank {rank} would listen at port {target.port} + {rank}, and the last one is {_LAST_PORT}'
        raise StartRefused(ErrorId.INVALID_OPTION, text)
    return msgspec.structs.replace(target, port=target.port + rank)


_LAST_PORT = 65535


def agent_arguments(
    options: SessionOptions,
    *,
    eager: bool = False,
    invitation: Invitation | None = None,
    children_file: Path | None = None,
    adopts_debugpy: bool = False,
) -> AgentOptions:
    """Return the arguments of the agent's ``attach`` request.

    ``eager``: whether ordinary Python is debugged, which may be impossible although the user asked for it.
    ``invitation``: the address for debugpy to connect to. ``children_file``: the file that invites child processes.
    ``adopts_debugpy``: whether debugpy debugs the program already.
    """
    return AgentOptions(
        **{name: getattr(options, name) for name in DebuggingOptions.__struct_fields__},
        eager=eager,
        eager_address=invitation.address if invitation is not None else None,
        eager_token=invitation.token if invitation is not None else None,
        eager_adopts=adopts_debugpy,
        children_file=str(children_file) if children_file is not None else None,
    )


def unknown_attributes(raw: msgspec.Raw, known: type[SessionOptions]) -> list[str]:
    """Return a sentence for every unknown attribute, with a similar option's name if there is one."""
    given = msgspec.json.decode(bytes(raw), type=dict[str, msgspec.Raw] | None) or {}
    names = [*known.__struct_encode_fields__]
    return [_warning(name, names) for name in given if name not in names and not _is_foreign(name)]


def _warning(name: str, names: list[str]) -> str:
    by_lower_case = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.7)
    suggestion = f' Did you mean "{by_lower_case[close[0]]}"?' if close else ""
    return f'Unknown attribute "{name}" is ignored.{suggestion}'


def _is_foreign(name: str) -> bool:
    return name.startswith(("__", "$")) or name in _IDE_ATTRIBUTES or name in _DEBUGPY_ATTRIBUTES


def _check_choice(attribute: str, value: str | None, choices: Collection[str]) -> None:
    if value is not None and value not in choices:
        allowed = ", ".join(f'"{choice}"' for choice in choices)
        raise StartRefused(ErrorId.INVALID_OPTION, f'"{attribute}" is "{value}"; it must be one of {allowed}')


_IDE_ATTRIBUTES = frozenset(
    {
        "adapter",
        "autoReload",
        "consoleName",
        "consoleTitle",
        "debugServer",
        "filetypes",
        "id",
        "internalConsoleOptions",
        "linux",
        "name",
        "osx",
        "postDebugTask",
        "preLaunchTask",
        "presentation",
        "python",
        "request",
        "restart",
        "serverReadyAction",
        "suppressMultipleSessionWarning",
        "type",
        "windows",
    }
)
"""Attributes that IDEs add for themselves."""

_DEBUGPY_ATTRIBUTES = frozenset(
    {
        "clientOS",
        "debugOptions",
        "django",
        "gevent",
        "jinja",
        "logToFile",
        "pathMappings",
        "purpose",
        "pyramid",
        "pythonArgs",
        "redirectOutput",
        "rules",
        "showReturnValue",
        "stopAllThreads",
        "sudo",
        "workspaceFolder",
    }
)
"""Attributes of a configuration for debugpy; not mistakes here."""
