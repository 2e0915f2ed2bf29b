"""The arguments of ``launch`` and ``attach``: typed, validated, and what is unknown among them.

Pure functions and structs, used on the loop. A new option is added here, in the VS Code extension's
``package.json`` and, when the agent needs it, in ``debuggee.agent.options``.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from dynamo_dap.protocol.contract import ErrorId, Invitation
from dynamo_dap.protocol.messages import ProtocolError, decode
from dynamo_dap.server.errors import StartRefused

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]

MODES = ("compile-time", "run-time", "both")
CONSOLES = ("internalConsole", "integratedTerminal", "externalTerminal")


class AgentOptions(msgspec.Struct, rename="camel", kw_only=True):
    """The options that the agent gets in its ``attach`` request."""

    mode: str = "both"
    just_my_code: bool = True
    stop_on_entry: bool = False
    pause_on_restart: bool = False
    stop_on_generated_code: bool = False
    trace_instructions: bool = False
    record: bool = True
    """Write what is compiled to a record file, for ``dynamo-dap report``."""
    evaluation_timeout: Seconds = 5.0


class SessionOptions(AgentOptions, rename="camel", kw_only=True):
    """The options that ``launch`` and ``attach`` share."""

    eager: bool = True
    """Debug ordinary Python too, by debugpy."""
    access_token: str | None = None
    launch_timeout: Seconds = 60.0
    """Seconds for the program to connect to the server, or to answer it."""
    sub_process: bool | None = None
    """Debug child processes in sessions of their own, where ordinary Python is debugged; None as far as possible."""


class LaunchArguments(SessionOptions, rename="camel", kw_only=True):
    """Arguments of ``launch``."""

    program: str | None = None
    module: str | None = None
    code: str | list[str] | None = None
    args: list[str] | str = []
    cwd: str | None = None
    env: dict[str, str | None] = {}
    env_file: str | None = None
    python: str | list[str] | None = None
    console: str = "internalConsole"
    no_debug: bool = False
    trace: bool = False
    """Have torch take its own trace, for ``dynamo-dap report --html``."""


class ConnectTarget(msgspec.Struct, rename="camel", kw_only=True):
    """Where a program listens."""

    port: Port
    host: str = "127.0.0.1"
    access_token: str | None = None


class ListenTarget(msgspec.Struct, rename="camel", kw_only=True):
    """Where a program is waited for. Port 0 is any free one."""

    port: Annotated[int, msgspec.Meta(ge=0, le=65535)]
    host: str = "127.0.0.1"
    access_token: str | None = None
    """What the program has to show; None for a random one that programs of the same user find by themselves."""


class AttachArguments(SessionOptions, rename="camel", kw_only=True):
    """Arguments of ``attach``: a program's address as ``connect`` (or ``host`` and ``port``), or ours: ``listen``."""

    listen: ListenTarget | None = None
    connect: ConnectTarget | None = None
    host: str | None = None
    port: Port | None = None

    @property
    def target(self) -> ConnectTarget | ListenTarget:
        """Where to connect, or to be connected to. Raises ``StartRefused`` when the arguments do not say."""
        if self.listen is not None:
            if self.connect is not None or self.port is not None:
                raise StartRefused(ErrorId.INVALID_OPTION, 'attach takes either "listen" or "connect", not both')
            return self.listen
        if self.connect is not None:
            return self.connect
        if self.port is None:
            text = 'attach needs the address of the program: "connect": {"host": ..., "port": ...}'
            raise StartRefused(ErrorId.INVALID_OPTION, text)
        return ConnectTarget(port=self.port, host=self.host or "127.0.0.1")


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
    if isinstance(options, LaunchArguments):
        _check_choice("console", options.console, CONSOLES)
    return options


def agent_arguments(
    options: SessionOptions,
    *,
    eager: bool = False,
    invitation: Invitation | None = None,
    children_file: Path | None = None,
    adopts_debugpy: bool = False,
) -> dict[str, object]:
    """Return the arguments of the agent's ``attach`` request.

    ``eager``: whether ordinary Python is debugged, which the user may wish for in vain; ``invitation``: where the agent
    is to have debugpy connect to; ``children_file``: where child processes find out how to offer themselves;
    ``adopts_debugpy``: it debugs the program already.
    """
    arguments = {
        wire_name: getattr(options, name)
        for name, wire_name in zip(AgentOptions.__struct_fields__, AgentOptions.__struct_encode_fields__, strict=True)
    }
    return {
        **arguments,
        "eager": eager,
        "eagerAddress": invitation.address if invitation is not None else None,
        "eagerToken": invitation.token if invitation is not None else None,
        "eagerAdopts": adopts_debugpy,
        "childrenFile": str(children_file) if children_file is not None else None,
    }


def unknown_attributes(raw: msgspec.Raw, known: type[SessionOptions]) -> list[str]:
    """Return a sentence for every attribute that no option has, with a suggestion where one is close."""
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


def _check_choice(attribute: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
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
"""What IDEs put into configurations for themselves."""

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
"""What a configuration for debugpy may hold; not a mistake here."""
