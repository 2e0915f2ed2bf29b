"""The text of a DAP ``Source``: from the file, or from the server when there is no file.

Used on the prompt's thread; texts are kept until the next stop.
"""

from __future__ import annotations

from pathlib import Path

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.types import Source
from dynamo_dap.terminal.client import Client


class SourceText:
    """Lines of source files and of virtual sources."""

    def __init__(self) -> None:
        self._texts: dict[str | int, list[str]] = {}

    def forget(self) -> None:
        """Read again what is asked for next: a file may have been edited, a virtual source has grown."""
        self._texts.clear()

    def lines(self, client: Client, source: Source | None) -> list[str]:
        """The source's lines; empty when there is no text to be had."""
        if source is None:
            return []
        key = source.source_reference or source.path
        if not key:
            return []
        if key not in self._texts:
            self._texts[key] = _read(client, key)
        return self._texts[key]


def _read(client: Client, key: str | int) -> list[str]:
    try:
        if isinstance(key, int):
            return client.source(key).content.splitlines()
        return Path(key).read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, RequestFailed):
        return []
