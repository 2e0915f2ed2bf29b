"""Finds functions and classes in the lines of a source file.

Any thread may call its functions; they have no side effects.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynamo_dap.protocol.texts import NOT_PYTHON

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Function:
    """A function or a class, from its first decorator to its last line."""

    name: str
    first: int
    last: int
    arguments: tuple[str, ...]


def function_around(lines: Sequence[str], line: int) -> Function | None:
    """Return the innermost function around ``line``; None outside of functions."""
    around = [
        one
        for one in _definitions(lines)
        if not isinstance(one, ast.ClassDef) and _first_line(one) <= line <= (one.end_lineno or one.lineno)
    ]
    return _described(max(around, key=_first_line)) if around else None


def function_at(lines: Sequence[str], line: int) -> Function | None:
    """Return the function or class whose definition, or first decorator, is at ``line``."""
    found = next((one for one in _definitions(lines) if line in (_first_line(one), one.lineno)), None)
    return None if found is None else _described(found)


def function_names(lines: Sequence[str]) -> list[str]:
    """Return the names of functions, and of methods without their class."""
    return [one.name for one in _definitions(lines) if not isinstance(one, ast.ClassDef)]


def statement_lines(lines: Sequence[str]) -> list[int]:
    """Return the lines at which statements begin."""
    tree = _parsed(lines)
    return sorted({node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)}) if tree is not None else []


def _parsed(lines: Sequence[str]) -> ast.Module | None:
    try:
        return ast.parse("\n".join(lines))
    except NOT_PYTHON:
        return None


def _definitions(lines: Sequence[str]) -> Iterator[_Definition]:
    tree = _parsed(lines)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, _Definition):
            yield node


def _first_line(definition: _Definition) -> int:
    return min([definition.lineno, *(decorator.lineno for decorator in definition.decorator_list)])


def _described(definition: _Definition) -> Function:
    names: tuple[str, ...] = ()
    if not isinstance(definition, ast.ClassDef):
        given = definition.args
        parts = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
        names = tuple(part.arg for part in parts if part is not None)
    return Function(definition.name, _first_line(definition), definition.end_lineno or definition.lineno, names)
