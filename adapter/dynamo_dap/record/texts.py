"""Texts of the user's files and of records. Pure functions, but for reading a file.

Lines are told by digests, so that a record does not hold the user's code. A record may come from anywhere, with a
repository: what it holds is made harmless here before anything shows it.
"""

from __future__ import annotations

import linecache
import re
import stat
import zlib
from pathlib import Path

MAXIMUM_SOURCE = 4 * 1024 * 1024
"""Bytes of a source file that is read."""
_CONTROLS = re.compile(
    rb"(?<!\\)((?:\\\\)*)"
    rb"\\(?:[bfr]|u00(?:0[0-8b-fB-F]|1[0-9a-fA-F]|7[fF]|[89][0-9a-fA-F])|u20(?:2[a-eA-E]|6[6-9]))"
    rb"|\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]"
)
"""In a line of JSON: C0 without tab and line feed, DEL, C1, and what turns the direction of writing around."""
_SUSPICIOUS = (b"\\u", b"\\r", b"\\b", b"\\f", b"\x7f", b"\xc2", b"\xe2\x80", b"\xe2\x81")
_REPLACEMENT = b"\xef\xbf\xbd"


def digest_of_line(line: str) -> str:
    """Return 8 hexadecimal digits that tell a line, but for white space at its end."""
    return f"{zlib.crc32(line.rstrip().encode(errors='surrogateescape')):08x}"


def without_controls(line: bytes) -> bytes:
    """Return a line of JSON with U+FFFD for each character that a terminal or an editor would obey."""
    if not any(one in line for one in _SUSPICIOUS):
        return line
    return _CONTROLS.sub(lambda match: (match[1] or b"") + _REPLACEMENT, line)


def is_readable_source(path: str) -> bool:
    """Whether a path is of an ordinary file, of a size that source code has: no device, no pipe."""
    try:
        facts = Path(path).stat()
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(facts.st_mode) and facts.st_size <= MAXIMUM_SOURCE


def source_lines(path: str) -> list[str]:
    """Return the lines of a source file, or of a cell of a notebook; none when it cannot be read."""
    if path not in linecache.cache and not is_readable_source(path):
        return []
    return [line.rstrip("\r\n") for line in linecache.getlines(path)]


def source_line(path: str, line: int) -> str:
    """Return a line of a source file, or of a cell of a notebook; empty when there is none."""
    if path not in linecache.cache and not is_readable_source(path):
        return ""
    return linecache.getline(path, line).strip()
