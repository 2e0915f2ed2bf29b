"""Explored compiles as one page with everything in it: panes side by side, in which counterparts light up together.

Pure, except for reading the user's files. A file of stages may come from anywhere: all of its texts are data of the
page, which puts them in place as text, and its policy allows no script but its own and no connection.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources

import msgspec

from dynamo_dap.explore.model import Document, Explored
from dynamo_dap.protocol.output_files import HTML_MARK
from dynamo_dap.protocol.texts import short_paths
from dynamo_dap.records.texts import source_lines


def html_page(compiles: Sequence[Explored]) -> str:
    """Return the page."""
    data = msgspec.json.encode({"compiles": compiles, "sources": _sources(compiles), "changes": _changes(compiles)})
    embedded = data.decode().replace("<", "\\u003c")
    script = _file("stages.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'>{HTML_MARK}\n"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>Stages of compiles</title><style>{_file('stages.css')}</style></head>\n"
        "<body><header><select id='compile' title='Compile'></select>"
        "<button id='more' title='One more pane'>+ pane</button>"
        "<span id='peaks'></span><span id='said'></span></header>\n"
        "<main id='panes'></main>\n"
        f"<script type='application/json' id='data'>{embedded}</script>\n"
        f"<script>{script}</script></body></html>\n"
    )


def _sources(compiles: Sequence[Explored]) -> dict[str, dict[str, object]]:
    """Return the user's files: by path, how it is called and its lines."""
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
    """Return what passes changed, by compile and document."""
    return {
        f"{compiled.id}:{document.id}": "\n".join(_difference(document))
        for compiled in compiles
        for document in compiled.documents
        if document.before is not None
    }


def _difference(document: Document) -> list[str]:
    before = (document.before or "").splitlines()
    return list(difflib.unified_diff(before, document.text.splitlines(), "before", "after", lineterm="", n=3))


@cache
def _file(name: str) -> str:
    return (resources.files("dynamo_dap.explore") / "page" / name).read_text(encoding="utf-8")
