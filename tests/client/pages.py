"""Checks the HTML pages that commands write."""

from __future__ import annotations

import base64
import hashlib
import re

_SCRIPT = re.compile(r"<script(?P<type>[^>]*)>(?P<text>.*?)</script>", re.DOTALL)
_LOADS = re.compile(r"""<[^>]*\b(?:src|href)=['"](?!https://docs\.pytorch|https://meta-pytorch|#)""")


def own_scripts(html: str) -> list[str]:
    """Return the page's scripts. The page loads nothing, and its policy allows these scripts alone."""
    own = [script["text"] for script in _SCRIPT.finditer(html) if not script["type"]]
    digests = {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in own}
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert policy[1].startswith("default-src 'none';")
    assert set(policy[1].partition("script-src ")[2].split()) == digests
    assert _LOADS.search(html) is None
    return own


def data_elements(html: str) -> list[str]:
    """Return the texts of the page's elements with data."""
    return [script["text"] for script in _SCRIPT.finditer(html) if script["type"]]
