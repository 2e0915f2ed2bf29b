"""Signs data of this user's processes, so that another process of the user can recognize it.

The key is in the user's state folder, and is made at its first use. Runs on the program's threads and in commands;
stateless.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Sequence

from dynamo_dap.protocol.access.private_files import read_private, state_folder, write_private

_KEY = "record-key"
_SIZE = 32


def signature_of(parts: Sequence[object]) -> str | None:
    """Return a signature of these parts that only this user's processes can make; None if no key can be stored."""
    try:
        key = _key() or _new_key()
    except OSError:
        return None
    return None if key is None else _signed(key, parts)


def is_signed(parts: Sequence[object], signature: str | None) -> bool:
    """Return whether a process of this user has signed these parts."""
    if signature is None:
        return False
    try:
        key = _key()
    except OSError:
        return False
    return key is not None and hmac.compare_digest(_signed(key, parts).encode(), signature.encode(errors="replace"))


def _signed(key: bytes, parts: Sequence[object]) -> str:
    return hmac.new(key, json.dumps(parts).encode(), hashlib.sha256).hexdigest()


def _key() -> bytes | None:
    key = read_private(state_folder() / _KEY)
    return key if key is not None and len(key) == _SIZE else None


def _new_key() -> bytes | None:
    path = state_folder() / _KEY
    # Another process may make a key at the same time. Both then use the key in the file.
    write_private(path, os.urandom(_SIZE), replaces=False)
    return _key()
