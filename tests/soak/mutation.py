"""Messages as clients send them, changed at random: bytes flipped, cut, doubled; values replaced by others.

Pure functions of a random generator, so that a seed determines all.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from dynamo_dap.protocol.wire.framing import frame

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, 2**31, 2**63, 2**70, 1e308, "", "\0", "\ud83d", "🦊" * 20, "x" * 5000, [], {}, [[]]),
    *({"": None}, [None] * 50, {"threadId": {}}),
)
_TOKENS = (b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\\u", b"\x00", b"\xff", b"null", b"1e999", b"-")


def mutated_body(dice: random.Random, body: bytes) -> bytes:
    """The body of a message, changed in one to three places, in its values or in its bytes."""
    for _ in range(dice.randint(1, 3)):
        body = _with_odd_value(dice, body) if dice.random() < 0.5 else _with_odd_bytes(dice, body)
    return body


def mutated_stream(dice: random.Random, bodies: Sequence[bytes]) -> bytes:
    """Some messages as they go over the wire, changed anywhere, in their headers and lengths too."""
    data = b"".join(frame(mutated_body(dice, dice.choice(bodies))) for _ in range(dice.randint(1, 3)))
    kind = dice.randrange(4)
    if kind == 0:
        return data
    if kind == 1:
        return data[: dice.randrange(len(data))]
    if kind == 2:
        length = dice.choice((b"-1", b"0", b"99999999999", b"12x", b"", b"\xb2", b"1" * 400))
        return data.replace(data.split(b"\r\n")[0], b"Content-Length: " + length, 1)
    return _with_odd_bytes(dice, data)


def _with_odd_bytes(dice: random.Random, data: bytes) -> bytes:
    if not data:
        return dice.choice(_TOKENS)
    begin = dice.randrange(len(data))
    end = min(len(data), begin + dice.randint(1, 12))
    kind = dice.randrange(4)
    if kind == 0:
        return data[:begin] + bytes([data[begin] ^ (1 << dice.randrange(8))]) + data[begin + 1 :]
    if kind == 1:
        return data[:begin] + data[end:]
    if kind == 2:
        return data[:end] + data[begin:end] * dice.randint(1, 50) + data[end:]
    return data[:begin] + dice.choice(_TOKENS) + data[begin:]


def _with_odd_value(dice: random.Random, body: bytes) -> bytes:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return _with_odd_bytes(dice, body)
    places: list[tuple[Any, Any]] = []
    _collect(message, places)
    if not places:
        return _with_odd_bytes(dice, body)
    container, key = dice.choice(places)
    kind = dice.randrange(4)
    if kind == 0:
        del container[key]
    elif kind == 1 and isinstance(container, dict):
        container[f"{key}X"] = container.pop(key)
    elif kind == 2:
        other, other_key = dice.choice(places)
        container[key] = json.loads(json.dumps(other[other_key]))
    else:
        container[key] = dice.choice(ODD_VALUES)
    return json.dumps(message).encode("utf-8", "surrogatepass")


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    if isinstance(value, dict):
        for key in value:
            places.append((value, key))
            _collect(value[key], places)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            places.append((value, index))
            _collect(each, places)


def request_in(body: bytes) -> dict[str, Any] | None:
    """The request in a body, as a lenient reader would read it; None if there is none."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return None
    is_request = isinstance(message, dict) and isinstance(message.get("command"), str)
    return message if is_request else None
