"""Takes few of many programs, which have every construct together, and what is new of many looks; or all of them.

A construct is a kind of syntax or an instruction. All are taken by ``make walks``: it sets ``WALKS``, the number of
random walks through each program, which the suite is without.
"""

from __future__ import annotations

import ast
import dis
import os
import types
from collections.abc import Collection, Iterator, Mapping

WALKS = int(os.environ.get("WALKS", "0"))


def sample(sources: Mapping[str, str], always: Collection[str] = ()) -> list[str]:
    """Return the names of programs that together have every construct of all; all names in ``make walks``.

    ``always`` are those that are taken in any case, such as what a fixed bug was seen in.
    """
    if WALKS:
        return list(sources)
    constructs = {name: constructs_of(source) for name, source in sources.items()}
    chosen = set(always)
    missing = set[str]().union(*constructs.values()).difference(*(constructs[name] for name in chosen))
    while missing:
        best = max(sorted(constructs), key=lambda name: len(constructs[name] & missing))
        chosen.add(best)
        missing -= constructs[best]
    return [name for name in sources if name in chosen]


def constructs_of(source: str) -> set[str]:
    """Return the kinds of syntax, and the instructions, that a program has."""
    tree = ast.parse(source)
    kinds = {type(node).__name__ for node in ast.walk(tree)}
    code = compile(tree, "<sample>", "exec", dont_inherit=True)
    return kinds | {each.opname for inner in _with_inner(code) for each in dis.get_instructions(inner)}


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)


class Once:
    """Says whether a kind of thing comes for the first time; in ``make walks`` each does."""

    def __init__(self) -> None:
        """Nothing was looked at yet."""
        self._seen: set[object] = set()

    def is_new(self, kind: object) -> bool:
        """Whether it is the first of its kind."""
        if kind in self._seen:
            return bool(WALKS)
        self._seen.add(kind)
        return True
