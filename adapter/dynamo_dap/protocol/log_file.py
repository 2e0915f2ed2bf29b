"""Writes the log file that ``DYNAMO_DAP_LOG`` names, readable only by its owner and without secrets.

The server and the debugged program each write to it. Runs on any thread; a handler lives as long as its process.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from io import TextIOWrapper
from pathlib import Path

import msgspec

from dynamo_dap.protocol.output_files import check_output

_SHOWN_CHARACTERS = 2000
_HIDDEN = "..."
_TOKENS = frozenset({"accessToken", "clientAccessToken", "debugServerAccessToken", "eagerToken", "token"})
_ENVIRONMENT = "env"
_MAY_HOLD_SECRETS = re.compile(rb'"(?:%s)"' % b"|".join(name.encode() for name in sorted({*_TOKENS, _ENVIRONMENT})))


class LogFileHandler(logging.FileHandler):
    """Appends to a file that only its owner can read; restricts an existing file first."""

    def _open(self) -> TextIOWrapper:
        check_output(Path(self.baseFilename))
        # With O_NONBLOCK, opening a pipe without a reader fails at once instead of waiting.
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600)
        os.set_blocking(descriptor, True)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and status.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
        return os.fdopen(descriptor, "a", encoding=self.encoding, errors="backslashreplace")


def loggable(body: object) -> str:
    """Return a message's body as text for the log: shortened, without tokens and values of ``env``."""
    if body is None:
        return ""
    raw = bytes(body) if isinstance(body, msgspec.Raw) else msgspec.json.encode(body)
    if _MAY_HOLD_SECRETS.search(raw) is not None:
        try:
            raw = msgspec.json.encode(_without_secrets(msgspec.json.decode(raw)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return "(not logged: it may hold secrets, and cannot be read)"
    return raw[:_SHOWN_CHARACTERS].decode(errors="replace")


def _without_secrets(value: object) -> object:
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_secret(name, item) for name, item in value.items()}
    return value


def _without_secret(name: str, value: object) -> object:
    if name in _TOKENS and value is not None:
        return _HIDDEN
    if name == _ENVIRONMENT:
        return dict.fromkeys(value, _HIDDEN) if isinstance(value, dict) else _HIDDEN
    return _without_secrets(value)
