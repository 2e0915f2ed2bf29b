"""Builds tools' answers: bounded text, and data where an assistant can use it. It has no side effects."""

from __future__ import annotations

import re
from io import StringIO

import msgspec
from mcp_types import CallToolResult, TextContent
from rich.console import Console

from dynamo_dap.protocol.access.consent import visible

LIMIT = 12_000
"""The most characters of an answer: a few thousand tokens."""
_DATA_LIMIT = 24_000
_WIDTH = 120
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
_UNSEEN = re.compile(
    "[\x80-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Characters that some readers take for a line end, that change the direction of text, or that are invisible."""


def answer(text: str, data: object = None, *, hint: str | None = None, keeps_end: bool = False) -> CallToolResult:
    """Return a tool's answer with the beginning of ``text``; ``hint`` says where the rest is if the end is cut off.

    With ``keeps_end`` the answer has the end of ``text``. ``data`` is an object; long data is left out, since the text
    says the same.
    """
    plain = None if data is None else msgspec.to_builtins(data)
    if plain is not None and len(msgspec.json.encode(plain)) > _DATA_LIMIT:
        plain = None
    return CallToolResult(
        content=[TextContent(type="text", text=last_of(text, LIMIT) if keeps_end else bounded(text, hint=hint))],
        structured_content=_without_nan(plain),
    )


def _without_nan(value: object) -> object:
    """Replace each infinite number and NaN by its text: JSON cannot represent them."""
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_nan(one) for one in value]
    is_number = not isinstance(value, float) or value - value == 0
    return value if is_number else str(value)


def bounded(text: str, limit: int = LIMIT, *, hint: str | None = None) -> str:
    """Return the beginning of a text in whole lines, and how much is left out."""
    clean = _clean(text)
    if len(clean) <= limit:
        return clean
    kept = clean[:limit].rpartition("\n")[0] or clean[:limit]
    rest = clean[len(kept) :]
    reported = f"... {rest.count(chr(10)) or 1} more lines, {len(rest)} characters"
    return f"{kept}\n{reported}{f': {hint}' if hint else ''}"


def _clean(text: str) -> str:
    return _UNSEEN.sub(lambda found: visible(found[0]), _ESCAPES.sub("", text)).strip("\n")


def last_of(text: str, limit: int) -> str:
    """Return the end of a text in whole lines."""
    clean = _clean(text)
    if len(clean) <= limit:
        return clean
    return f"... {len(clean) - limit} characters before\n{clean[-limit:].partition(chr(10))[2] or clean[-limit:]}"


def page_of(text: str, page: int) -> str:
    """Return one page of a text, counted from 1, with the number of pages in front."""
    pages = [""]
    for line in _clean(text).splitlines(keepends=True):
        for start in range(0, len(line), LIMIT):
            part = line[start : start + LIMIT]
            if len(pages[-1]) + len(part) > LIMIT:
                pages.append("")
            pages[-1] += part
    if not 1 <= page <= len(pages):
        return f"There are {len(pages)} pages, counted from 1."
    head = f"(page {page} of {len(pages)}; the next has ?page={page + 1})\n" if page < len(pages) else ""
    return head + pages[page - 1]


def console() -> tuple[Console, StringIO]:
    """Return a console that writes plain text, and the buffer that it writes to."""
    file = StringIO()
    return Console(file=file, width=_WIDTH, highlight=False, soft_wrap=True, color_system=None, emoji=False), file
