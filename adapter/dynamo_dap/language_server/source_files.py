"""Reads a Python file of the user's, and writes it back with edits in its own encoding and with its own line ends."""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dynamo_dap.language_server.fixes.edits import Edit, edited_text
from dynamo_dap.protocol.user_files import read_regular

_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class SourceFile:
    """A file as it is on disk."""

    path: str
    encoding: str
    """As its byte order mark or its coding line says it."""
    lines: list[str]
    """Without their ends; the last is empty if the file ends with a new line."""
    ends: list[str]
    """Of each line but the last."""

    def with_edits(self, edits: Iterable[Edit]) -> bytes:
        """Return the content of the file with edits made."""
        newline = Counter(self.ends).most_common(1)[0][0] if self.ends else "\n"
        return edited_text(self.path, self.lines, edits, self.ends, newline).encode(self.encoding)


def read_source_file(path: str) -> SourceFile:
    """Read a file as Python does.

    Raises:
        OSError: it cannot be read.
        SyntaxError, UnicodeDecodeError: it is not in the encoding that it names.
    """
    content = read_regular(path)
    encoding = tokenize.detect_encoding(io.BytesIO(content).readline)[0]
    text = content.decode(encoding)
    return SourceFile(path, encoding, _END.split(text), _END.findall(text))


def encoded_source(text: str) -> bytes:
    """Return a text in the encoding that its coding line names, as Python will read it."""
    try:
        return text.encode(tokenize.detect_encoding(io.BytesIO(text.encode()).readline)[0])
    except (SyntaxError, UnicodeEncodeError):
        # Python cannot read it either, and reports that.
        return text.encode(errors="surrogateescape")
