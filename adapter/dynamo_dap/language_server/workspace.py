"""Reads the user's files from the editor or from disk, and matches their lines with the recorded ones."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import Workspace

from dynamo_dap.fixes.document import Document, real_path
from dynamo_dap.protocol.user_files import read_source
from dynamo_dap.records.events import Record
from dynamo_dap.records.texts import is_readable_source


@dataclass(frozen=True)
class _Kept:
    version: object
    recorded: list[str]
    document: Document


class Documents:
    """Makes documents, and caches them until the record or a text changes."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._record: Record | None = None
        self._recorded: dict[str, list[str]] = {}
        self._recorded_count = -1

    def of_path(self, workspace: Workspace, record: Record, path: str) -> Document | None:
        """Return a file of the record; None for any other, or if it is unreadable."""
        real = real_path(path)
        recorded = self._digests(record).get(real)
        if not recorded:
            return None
        uri = next((uri for uri in workspace.text_documents if path_of(uri) == real), None)
        text = self._text(workspace, uri, real)
        if text is None:
            return None
        version, source = text
        known = self._kept.get(real)
        if known is None or known.version != version or known.recorded is not recorded:
            shown = workspace.text_documents[uri].uri if uri else uri_of(workspace, real)
            document = Document(real, shown, (source or _read(real)).split("\n"), recorded)
            known = self._kept[real] = _Kept(version, recorded, document)
        return known.document

    def _text(self, workspace: Workspace, uri: str | None, path: str) -> tuple[object, str] | None:
        """Return a file's version and text; the text of a file that is not open is empty until it is read."""
        if uri is not None:
            document = workspace.text_documents[uri]
            return (uri, document.version), document.source
        # The path comes from a record, so it may be a device.
        if not is_readable_source(path):
            return None
        try:
            return Path(path).stat().st_mtime_ns, ""
        except OSError:
            return None

    def _digests(self, record: Record) -> dict[str, list[str]]:
        if record is not self._record or len(record.sources) != self._recorded_count:
            self._record, self._recorded_count = record, len(record.sources)
            self._recorded = {real_path(path): lines for path, lines in record.sources.items()}
        return self._recorded


def _read(path: str) -> str:
    try:
        return read_source(path)
    except (OSError, SyntaxError, UnicodeDecodeError, LookupError):
        return ""


def path_of(uri: str) -> str | None:
    """Return the real path of a client's document; None if it is not a file."""
    path = to_fs_path(uri) if uri.startswith("file:") else None
    return real_path(path) if path else None


def uri_of(workspace: Workspace, path: str) -> str:
    """Return the URI of a file that is not open, as a path in the workspace's folders if it is in one."""
    for root in roots_of(workspace):
        real = os.path.realpath(root)
        if path.startswith(real + os.sep):
            return from_fs_path(str(root / os.path.relpath(path, real))) or ""
    return from_fs_path(path) or ""


def roots_of(workspace: Workspace) -> list[Path]:
    """Return the workspace's folders; without any, the open files and their folders."""
    uris = [folder.uri for folder in workspace.folders.values()] or [uri for uri in (workspace.root_uri,) if uri]
    paths = [Path(path) for path in map(to_fs_path, uris) if path]
    opened = [Path(path) for path in map(path_of, workspace.text_documents) if path]
    return paths or [*opened, *dict.fromkeys(path.parent for path in opened)]
