"""The code objects of the whole standard library, compiled and never run: what analyses are tried on."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

DIRECTORY = Path(textwrap.__file__).parent
_PACKAGES = (".", "asyncio", "concurrent/futures", "email", "importlib", "json", "logging", "unittest", "xml/etree")

ODD_SHAPES = """
async def main(source):
    async with source as opened:
        async for item in opened:
            yield item
        else:
            pass
    try:
        await source
    except* ValueError as group:
        raise group
def match(value):
    match value:
        case {"a": a, **rest}: return a, rest
        case [first, *others] if others: return first
        case complex(real=r, imag=i): return r + i
        case str() | bytes(): return [*value], {**value}, {*value}
        case _: pass
def closures(a, *b, c=1, **d):
    def inner(x: int = a, *, y: "str" = c) -> None:
        nonlocal a
        a = lambda: (yield from b)
        del a
    return inner(*b, **d, k=1), f"{a!r:>{c}}", a[1:2], b[c:], not a, a is not c, c in d
class Derived(dict):
    field: int = 1
    def method(self):
        with self, open("x") as f:
            for q in f:
                try:
                    continue
                finally:
                    super().pop(q)
            while q:
                if f and q or self: break
        a = b = c = 1
        a, (b, *c) = q
        assert a, b
        import os.path as p, sys
        from os import *  if False else 1
"""


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield ``code`` and those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def standard_library_codes() -> Iterator[CodeType]:
    """Yield every code object of the modules of the standard library, and of a text with odd shapes."""
    for package in _PACKAGES:
        for path in sorted((DIRECTORY / package).glob("*.py")):
            if path.exists():  # a distribution may link to a file that it has left out
                yield from _codes_of(path.read_bytes(), str(path))
    yield from _codes_of(odd_shapes().encode(), "odd_shapes")


def odd_shapes() -> str:
    """Return the text with odd shapes as this Python can compile it."""
    import sys

    lines = ODD_SHAPES.splitlines()[:-1]
    text = "\n".join(lines) + "\n"
    return text.replace("except*", "except") if sys.version_info < (3, 11) else text


def _codes_of(text: bytes, name: str) -> Iterator[CodeType]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from codes_in(compile(text, name, "exec", dont_inherit=True))
