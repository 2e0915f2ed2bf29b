"""Converts places between the client's form and the backends': lines and columns from 0 or 1, paths or URIs.

Backends always get paths, and lines and columns from 1. Pure functions on raw JSON, used on the loop. Most clients use
the backends' form; their messages are not even decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

import msgspec

from dynamo_dap.protocol.wire.messages import encode_body
from dynamo_dap.protocol.wire.types import InitializeRequestArguments

_LINES = frozenset({"line", "endLine"})
_COLUMNS = frozenset({"column", "endColumn"})
_FILES = frozenset({"source", "location", "module"})
"""Where DAP has a ``path``: in a ``Source`` or a ``Module``. In our own requests it accompanies a ``line``."""
_LISTS_OF_FILES = frozenset({"sources", "modules"})
_OPAQUE = frozenset({"adapterData", "data", "variables", "env"})
"""Objects in which these names have other meanings."""


@dataclass(frozen=True)
class Dialect:
    """How one client writes places."""

    first_line: int = 1
    first_column: int = 1
    has_uris: bool = False

    @classmethod
    def of(cls, client: InitializeRequestArguments) -> Dialect:
        """Return the dialect that ``client`` announced in ``initialize``."""
        return cls(
            first_line=0 if client.lines_start_at1 is False else 1,
            first_column=0 if client.columns_start_at1 is False else 1,
            has_uris=client.path_format == "uri",
        )

    @property
    def is_common(self) -> bool:
        """Return whether no translation is needed."""
        return self == _COMMON

    def to_backend(self, raw: msgspec.Raw) -> msgspec.Raw:
        """Convert the client's arguments to the backends' form."""
        if self.is_common:
            return raw
        translation = _Translation(1 - self.first_line, 1 - self.first_column, _path_of_uri if self.has_uris else None)
        return translation.of(raw)

    def to_client(self, body: object) -> object:
        """Convert a body from a backend or the server to the client's form."""
        if self.is_common or body is None:
            return body
        translation = _Translation(self.first_line - 1, self.first_column - 1, _uri_of_path if self.has_uris else None)
        return translation.of(encode_body(body))


_COMMON = Dialect()


@dataclass(frozen=True)
class _Translation:
    """One direction: the offset of lines and columns, and the conversion of paths."""

    lines: int
    columns: int
    path: Callable[[str], str] | None

    def of(self, raw: msgspec.Raw) -> msgspec.Raw:
        decoded = msgspec.json.decode(bytes(raw))
        return encode_body(self._value(decoded)) if decoded is not None else raw

    def _value(self, value: object) -> object:
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, dict):
            members = {name: self._member(name, item) for name, item in value.items()}
            return self._with_path(members) if "line" in members else members
        return value

    def _member(self, name: str, value: object) -> object:
        if name in _OPAQUE:
            return value
        if name in _LINES:
            return _counted(value, self.lines)
        if name in _COLUMNS:
            return _counted(value, self.columns)
        if name == "lines" and isinstance(value, list):
            return [_counted(line, self.lines) for line in value]
        if name in _FILES and isinstance(value, dict):
            return self._with_path(self._value(value))
        if name in _LISTS_OF_FILES and isinstance(value, list):
            return [self._with_path(self._value(one)) for one in value]
        return self._value(value)

    def _with_path(self, value: object) -> object:
        if self.path is None or not isinstance(value, dict) or not isinstance(value.get("path"), str):
            return value
        return {**value, "path": self.path(value["path"])}


def _counted(number: object, difference: int) -> object:
    """Shift a line or column. 0 means "no place" in DAP, whatever the base."""
    return max(number + difference, 0) if isinstance(number, int) else number


def _path_of_uri(uri: str) -> str:
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else uri


def _uri_of_path(path: str) -> str:
    return PurePosixPath(path).as_uri() if PurePosixPath(path).is_absolute() else path
