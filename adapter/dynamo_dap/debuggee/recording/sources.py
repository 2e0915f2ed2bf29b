"""Digests of the lines of the user's files, so that readers of a record can tell which lines have changed since."""

from __future__ import annotations

import os
import tokenize

from dynamo_dap.record.texts import digest_of_line

_MAXIMUM_BYTES = 4 * 1024 * 1024


def digests_of(path: str, not_after: float) -> str:
    """Return the digests of all lines, one after the other; empty for what is no file, or is changed.

    ``not_after`` is in seconds since the epoch: a file changed later is not what the program was made from.
    """
    try:
        facts = os.stat(path)
        if facts.st_mtime > not_after or facts.st_size > _MAXIMUM_BYTES:
            return ""
        with tokenize.open(path) as file:
            return "".join(map(digest_of_line, file.read().split("\n")))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ""
