"""Reads a user's Python file, and writes it with edits in its own encoding and line ends."""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dynamo_dap.fixes.edits import Edit, edited_text
from dynamo_dap.protocol.user_files import read_regular

_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class SourceFile:
    """A file on disk."""

    path: str
    encoding: str
    """The encoding from its byte order mark or coding line."""
    lines: list[str]
    """The lines without their ends; the last is empty if the file ends with a line end."""
    ends: list[str]
    """The ends of all lines but the last."""

    def with_edits(self, edits: Iterable[Edit]) -> bytes:
        """Return the file's content with edits."""
        newline = Counter(self.ends).most_common(1)[0][0] if self.ends else "\n"
        return edited_text(self.path, self.lines, edits, self.ends, newline).encode(self.encoding)


def read_source_file(path: str) -> SourceFile:
    """Read a file as Python does.

    Raises:
        OSError: the file cannot be read.
        SyntaxError, UnicodeDecodeError: the file is not in the encoding that it declares.
    """
    content = read_regular(path)
    encoding = tokenize.detect_encoding(io.BytesIO(content).readline)[0]
    text = content.decode(encoding)
    return SourceFile(path, encoding, _END.split(text), _END.findall(text))


def encoded_source(text: str) -> bytes:
    """Encode a text as its coding line says, so that Python can read it."""
    try:
        return text.encode(tokenize.detect_encoding(io.BytesIO(text.encode()).readline)[0])
    except (SyntaxError, UnicodeEncodeError):
        # Python cannot read it either, and reports that.
        return text.encode(errors="surrogateescape")
