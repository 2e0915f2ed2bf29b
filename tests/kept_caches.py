"""Keeps what Inductor compiled from run to run, without what a killed program left.

A linker that is killed leaves an empty or a torn library, and Inductor loads what lies at its path: each later program
that needs it would fail.
"""

from __future__ import annotations

from pathlib import Path

_ELF = b"\x7fELF"
_HEADER = 64


def forget_torn_libraries(folder: Path) -> None:
    """Remove the libraries in a cache of Inductor that were not written to their end."""
    for library in folder.rglob("*.so"):
        if not _is_whole(library):
            library.unlink()


def _is_whole(library: Path) -> bool:
    """Return whether the table of sections, which lies at the end of a library of Linux, is there."""
    with library.open("rb") as file:
        header = file.read(_HEADER)
    if len(header) < _HEADER or not header.startswith(_ELF):
        return len(header) == _HEADER
    start = int.from_bytes(header[40:48], "little")
    size, count = (int.from_bytes(header[at : at + 2], "little") for at in (58, 60))
    return start > 0 and start + size * count <= library.stat().st_size
