"""Asks the editor in which this server runs to show a debug session, and accepts the editor's connection.

The editor's extension listens on a local socket that ``EDITOR_VARIABLE`` names. It receives one line of JSON and starts
a session whose debug adapter is our socket. Our socket is in a folder that only this user can enter, so the network
cannot reach it. Runs on the worker thread of the new session; both sockets are closed once the session has begun.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import tempfile
import time
from pathlib import Path

import msgspec

from dynamo_dap.protocol.requests.contract import EDITOR_VARIABLE
from dynamo_dap.protocol.wire.streams import SocketStream

_PATIENCE = 20.0
_WRITE_SECONDS = 10
_LONGEST_FOLDER = 70
_ANSWER_BYTES = 64 * 1024


class ShownSession(msgspec.Struct):
    """The request to the editor."""

    request: str
    """The server's request: ``launch`` or ``attach``."""
    name: str
    adapter: str
    """The path of the socket that is its debug adapter."""


class _Refusal(msgspec.Struct):
    """The editor's answer if it does not connect."""

    problem: str


class NotShown(Exception):
    """No editor shows the session; the message says why."""


class EditorStream(SocketStream):
    """An editor's connection, which is closed if the editor does not read for ``_WRITE_SECONDS``."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", _WRITE_SECONDS, 0))

    def write(self, data: bytes) -> None:
        """Send all of ``data``."""
        try:
            super().write(data)
        except OSError:
            self.close()
            raise


def editor_address() -> str | None:
    """Return the address at which an editor listens; None outside an editor."""
    return os.environ.get(EDITOR_VARIABLE) or None


def connected_editor(address: str, request: str, name: str) -> socket.socket:
    """Make the editor at ``address`` start a session called ``name``; return its connection.

    Raises:
        NotShown: the editor did not connect.
    """
    try:
        with (
            tempfile.TemporaryDirectory(prefix="dynamo-dap-", dir=_folder_for_sockets()) as folder,
            contextlib.closing(socket.socket(socket.AF_UNIX)) as listening,
            contextlib.closing(socket.socket(socket.AF_UNIX)) as editor,
        ):
            path = str(Path(folder, "session"))
            listening.bind(path)
            listening.listen(1)
            editor.settimeout(_PATIENCE)
            editor.connect(address)
            editor.sendall(msgspec.json.encode(ShownSession(request, name, path)) + b"\n")
            return _first_of(listening, editor)
    except OSError as problem:
        raise NotShown(f"the editor at {address} is not there ({problem})") from None


def _folder_for_sockets() -> str:
    """Return a folder for temporary folders with a short path: a socket's path has about 100 characters at most."""
    usual = tempfile.gettempdir()
    return usual if len(usual) < _LONGEST_FOLDER else "/tmp"


def _first_of(listening: socket.socket, editor: socket.socket) -> socket.socket:
    """Return the editor's connection, unless it first answers that it cannot connect."""
    end = time.monotonic() + _PATIENCE
    reported = b""
    asked = [listening, editor]
    while (left := end - time.monotonic()) > 0:
        ready, _, _ = select.select(asked, [], [], left)
        if listening in ready:
            return listening.accept()[0]
        if editor in ready:
            data = editor.recv(_ANSWER_BYTES)
            reported += data
            if not reported:
                # The editor closed this socket without a problem: it accepts.
                asked.remove(editor)
            elif not data or reported.endswith(b"\n") or len(reported) > _ANSWER_BYTES:
                raise NotShown(_problem_in(reported))
    raise NotShown(f"the editor did not start a session within {_PATIENCE:g} s")


def _problem_in(line: bytes) -> str:
    try:
        return msgspec.json.decode(line, type=_Refusal).problem
    except msgspec.DecodeError:
        return "the editor closed the connection"
