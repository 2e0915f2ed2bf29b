"""Defines the three DAP envelopes (request, response, event) and their JSON codec.

Bodies stay raw JSON until code that knows their type decodes them: a router passes them on unread, a handler decodes
them into the structs of ``types``. Used by every thread that sends or receives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

EMPTY = msgspec.Raw(b"{}")
_ABSENT = msgspec.Raw(b"")
MAXIMUM_NESTING = 200
"""Maximum nesting of a message's values: far deeper than DAP needs, and no danger to the stack."""
_TOO_DEEP = f"message is nested more than {MAXIMUM_NESTING} deep"


class ProtocolError(Exception):
    """A message that is not DAP, or arguments of the wrong type; the text says where."""

    request: Request | None = None
    """The request without its arguments, if it can be recognized and so answered."""


class Envelope(msgspec.Struct, omit_defaults=True):
    """Any DAP message as it is on the wire; ``type`` decides which fields exist.

    A ``seq`` may be 0, and clients omit it in messages without an answer: None means a missing number.
    """

    type: str
    seq: int | None = None
    command: str = ""
    event: str = ""
    request_seq: int | None = None
    success: bool | None = None
    message: str | None = None
    arguments: msgspec.Raw = _ABSENT
    body: msgspec.Raw = _ABSENT


class Request(msgspec.Struct, frozen=True):
    """A request as received. ``seq`` is the sender's."""

    seq: int
    command: str
    arguments: msgspec.Raw


class Response(msgspec.Struct, frozen=True):
    """The answer to a request. ``message`` is set if ``success`` is false."""

    request_seq: int
    command: str
    success: bool
    body: msgspec.Raw
    message: str | None = None

    @property
    def error_text(self) -> str:
        """The failure as text for the user: the error's ``format`` with its variables filled in."""
        error = decode(self.body, ErrorBody, "error response").error
        return error.text if error is not None else (self.message or "request failed")


class Event(msgspec.Struct, frozen=True):
    """An event as received."""

    event: str
    body: msgspec.Raw


class ErrorMessage(msgspec.Struct, rename="camel", omit_defaults=True):
    """DAP ``Message``: an error with a stable id, shown to the user if ``show_user``."""

    id: int
    format: str
    show_user: bool = False
    variables: dict[str, str] | None = None
    url: str | None = None
    url_label: str | None = None

    @property
    def text(self) -> str:
        """Return ``format`` with ``{name}`` replaced from ``variables``."""
        text = self.format
        for name, value in (self.variables or {}).items():
            text = text.replace("{" + name + "}", value)
        return text


class ErrorBody(msgspec.Struct, omit_defaults=True):
    """Body of a failed response (DAP ``ErrorResponse``)."""

    error: ErrorMessage | None = None


_envelope_decoder = msgspec.json.Decoder(Envelope)
_encoder = msgspec.json.Encoder()


def encode(envelope: Envelope) -> bytes:
    """Return the JSON of ``envelope``."""
    return _encoded(envelope)


def _encoded(value: object) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        # A program's texts may contain lone surrogates, which UTF-8 cannot encode: escape them.
        return _encoder.encode(_encodable(msgspec.to_builtins(value)))


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(name): _encodable(item) for name, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list | tuple) else value


def encode_body(body: object) -> msgspec.Raw:
    """Return ``body`` (a struct, a mapping, raw JSON, or None for no body) as raw JSON."""
    if body is None:
        return _ABSENT
    if isinstance(body, msgspec.Raw):
        return body
    return msgspec.Raw(_encoded(body))


def parse(data: bytes) -> Request | Response | Event:
    """Parse one message body.

    Raises:
        ProtocolError: not JSON, or JSON that is not a DAP message.
    """
    try:
        return _parse(data)
    except ProtocolError as error:
        error.request = _request_in(data)
        raise


def _parse(data: bytes) -> Request | Response | Event:
    try:
        # The decoder does not check the encoding of arguments, and a backend might close its connection at a wrong one.
        if not data.isascii():
            data.decode()
        envelope = _envelope_decoder.decode(data)
    except RecursionError:
        raise ProtocolError(_TOO_DEEP) from None
    except msgspec.ValidationError as error:
        raise ProtocolError(f"not a DAP message: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"message is not valid JSON: {error}") from None
    if envelope.type == "request":
        if not envelope.command or envelope.seq is None:
            raise ProtocolError("request without a 'command' or a 'seq'")
        if data.count(b"[") + data.count(b"{") > MAXIMUM_NESTING and _nesting_of(data) > MAXIMUM_NESTING:
            raise ProtocolError(_TOO_DEEP)
        return Request(envelope.seq, envelope.command, _or_empty(envelope.arguments))
    if envelope.type == "response":
        if envelope.success is None or envelope.request_seq is None:
            raise ProtocolError("response without 'success' or 'request_seq'")
        body = _or_empty(envelope.body)
        return Response(
            envelope.request_seq,
            envelope.command,
            envelope.success,
            body,
            envelope.message,
        )
    if envelope.type == "event":
        if not envelope.event:
            raise ProtocolError("event without a name")
        return Event(envelope.event, _or_empty(envelope.body))
    raise ProtocolError(f"message of unknown type {envelope.type!r}")


_STRUCTURE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{\]}]', re.DOTALL)
_MEMBER = re.compile(rb'\s*:\s*(?:(\d{1,18})\b|"([^"\\]*)")')


def _structure_of(data: bytes) -> Iterator[tuple[int, re.Match[bytes]]]:
    """Yield the strings and brackets of possibly broken JSON, each with its depth."""
    depth = 0
    for found in _STRUCTURE.finditer(data):
        token = found[0]
        if token in b"]}":
            depth -= 1
        yield depth, found
        if token in b"[{":
            depth += 1


def _nesting_of(data: bytes) -> int:
    return max((depth for depth, _ in _structure_of(data)), default=0) + 1


def _request_in(data: bytes) -> Request | None:
    """Return the request of an unreadable message, if it can be recognized; else None."""
    members: dict[bytes, re.Match[bytes]] = {}
    for depth, found in _structure_of(data):
        if depth == 1 and (member := _MEMBER.match(data, found.end())) is not None:
            members[found[0].strip(b'"')] = member
    seq, kind, command = (members.get(name) for name in (b"seq", b"type", b"command"))
    if seq is None or seq[1] is None or kind is None or kind[2] != b"request":
        return None
    name = (command[2] or b"").decode(errors="replace") if command is not None else ""
    return Request(int(seq[1]), name or "unknown", EMPTY)


def _or_empty(raw: msgspec.Raw) -> msgspec.Raw:
    return EMPTY if raw is _ABSENT or bytes(raw) == b"null" else raw


def decode(raw: msgspec.Raw, into: type[T], what: str) -> T:
    """Decode arguments or a body into ``into``.

    Raises:
        ProtocolError: a field is missing or of the wrong type; the text names ``what`` and the JSON path.
    """
    try:
        return msgspec.json.decode(bytes(raw), type=into)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # ``parse`` does not find all broken JSON
        raise ProtocolError(f"{what}: {error}") from None
    except RecursionError:
        raise ProtocolError(f"{what}: nested too deep") from None


def to_builtins(raw: msgspec.Raw) -> Any:
    """Return raw JSON as plain Python values. Raises ``ProtocolError`` for invalid JSON."""
    return decode(raw, Any, "message")
