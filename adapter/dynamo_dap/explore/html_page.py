"""Shows explored compiles as one page: panes side by side, with counterparts highlighted together.

A file of stages may come from anywhere: the page's script inserts the file's texts as text, and the page's policy
allows only this script, and no connection. The module reads the user's files, and has no side effects.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

import msgspec

from dynamo_dap.explore.model import Document, Explored
from dynamo_dap.protocol.texts import short_paths
from dynamo_dap.records.report.html_shell import data_element, html_shell, page_file
from dynamo_dap.records.texts import source_lines


def html_page(compiles: Sequence[Explored]) -> Iterator[str]:
    """Return the page in parts."""
    data = msgspec.json.encode({"compiles": compiles, "sources": _sources(compiles), "changes": _changes(compiles)})
    body = (
        "<header><select id='compile' title='Compile'></select>",
        "<button id='more' title='One more pane'>+ pane</button>",
        "<span id='peaks'></span><span id='counterparts'></span></header>",
        "<main id='panes'></main>",
        data_element(data),
    )
    style, script = page_file("explore", "stages.css"), page_file("explore", "stages.js")
    return html_shell("Stages of compiles", style, body, [script])


def _sources(compiles: Sequence[Explored]) -> dict[str, dict[str, object]]:
    """Return the user's files by path: name and lines."""
    paths = {
        place.place.path: None
        for compiled in compiles
        for document in compiled.documents
        for part in document.parts
        for place in (document.places[each] for each in part.lines)
    }
    names = short_paths(paths)
    return {path: {"name": names[path], "lines": source_lines(path)} for path in paths}


def _changes(compiles: Sequence[Explored]) -> dict[str, str]:
    """Return the diff of each document that passes changed, by compile and document."""
    return {
        f"{compiled.id}:{document.id}": "\n".join(_difference(document))
        for compiled in compiles
        for document in compiled.documents
        if document.before is not None
    }


def _difference(document: Document) -> list[str]:
    before = (document.before or "").splitlines()
    return list(difflib.unified_diff(before, document.text.splitlines(), "before", "after", lineterm="", n=3))
