"""Finds tests that assert prose: tests assert ids, structured fields or one short phrase.

If a test is about a whole text, its line ends with ``# whole text: REASON``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

MOST_WORDS = 6
_WORD = re.compile(r"[\"'(]*[A-Za-z][a-z']*(?:-[a-z]+)*[\"').,:;?!]*")
_WHOLE_TEXT = re.compile(r"# whole text: \w+ \w+")
_METHODS = frozenset({"startswith", "endswith", "count"})


def long_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comparison with a line of more than ``MOST_WORDS`` words of prose."""
    lines = source.splitlines()
    seen = set()
    for node in ast.walk(ast.parse(source)):
        for part in _asserted(node):
            text = _text_of(part)
            place = (part.lineno, part.col_offset)
            if place not in seen and _is_long(text) and not _WHOLE_TEXT.search(lines[part.lineno - 1]):
                seen.add(place)
                yield part.lineno, text


def _asserted(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
        parts = node.args
    else:
        parts = [keyword.value for keyword in getattr(node, "keywords", []) if keyword.arg == "match"]
    for part in parts:
        yield from _strings(part)


def _strings(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        for element in node.elts:
            yield from _strings(element)
    elif isinstance(node, ast.Dict):
        for value in node.values:
            yield from _strings(value)
    elif isinstance(node, ast.BinOp):
        yield from _strings(node.left)
        yield from _strings(node.right)
    else:
        yield node


def _text_of(node: ast.expr) -> str:
    """Return the text of a string, with ``{}`` for each value in it; nothing for any other expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return ""


def _is_long(text: str) -> bool:
    """Return whether a line of ``text`` has too many plain words; names, numbers and code do not count."""
    return any(sum(bool(_WORD.fullmatch(word)) for word in line.split()) > MOST_WORDS for line in text.splitlines())
