"""Writes the outer part of each of our HTML pages: one document with one content security policy.

The page loads nothing. Whatever its texts contain, only our own scripts run. It has no side effects.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import resources

from dynamo_dap.protocol.output_files import HTML_MARK

_RELOAD = "<meta http-equiv='refresh' content='5'>"


def html_shell(
    title: str, style: str, body: Iterable[str], scripts: Sequence[str], *, reloads: bool = False
) -> Iterator[str]:
    """Yield the page in parts. ``title`` is a text; ``body`` is markup with texts already escaped.

    A page that ``reloads`` does so every few seconds, until another page replaces its file.
    """
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}"
    yield (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'>{HTML_MARK}\n"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<meta name='viewport' content='width=device-width'>{_RELOAD if reloads else ''}\n"
        f"<title>{escape(title)}</title><style>{style}</style></head><body>\n"
    )
    yield from (f"{part}\n" for part in body)
    yield from (f"<script>{script}</script>\n" for script in scripts)
    yield "</body></html>\n"


def data_element(content: bytes | object) -> str:
    """Return the element ``data`` with JSON for a page's script. ``content`` is encoded JSON, or a value to encode."""
    text = content.decode() if isinstance(content, bytes) else json.dumps(content, ensure_ascii=False)
    # Escape "<", which JSON allows, so that no text in it can end the element.
    escaped = text.replace("<", "\\u003c")
    return f"<script type='application/json' id='data'>{escaped}</script>"


def page_file(package: str, name: str) -> str:
    """Return the text of a file in the folder ``page`` of one of our packages."""
    return (resources.files(f"dynamo_dap.{package}") / "page" / name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
