"""Chooses a sample of programs that together contain every construct, and inspects only what is new.

A construct is a kind of syntax or an instruction. ``make walks`` takes all programs and inspects everything: it sets
``WALKS``, the number of random walks through each program.
"""

from __future__ import annotations

import ast
import dis
import os
import types
from collections.abc import Collection, Iterator, Mapping

WALKS = int(os.environ.get("WALKS", "0"))


def sample(sources: Mapping[str, str], always: Collection[str] = ()) -> list[str]:
    """Return the names of programs that together contain every construct; in ``make walks``, all names.

    ``always`` has programs that are always chosen, such as those in which a bug was found.
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
    """Return the kinds of syntax and the instructions in a program."""
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
    """Recognizes the first object of each kind. In ``make walks``, every object counts as the first."""

    def __init__(self) -> None:
        self._seen: set[object] = set()

    def is_new(self, kind: object) -> bool:
        """Return whether this is the first object of its kind."""
        if kind in self._seen:
            return bool(WALKS)
        self._seen.add(kind)
        return True
