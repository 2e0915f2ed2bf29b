"""Finds functions and classes in a source file's text, and the names that code reads. Runs none of it.

Any thread and process may call its functions; they have no side effects.
"""

from __future__ import annotations
import __future__

import ast
import dis
import inspect
import types
from collections.abc import Iterator

_ANNOTATIONS = __future__.annotations.compiler_flag
_IN_FUNCTION = inspect.CO_NEWLOCALS
"""A flag that is set on functions' code, not on classes' code."""


def codes_in(text: str, path: str) -> list[types.CodeType]:
    """Return the code of every function in a file, in order; its file name is ``path``.

    Raises:
        SyntaxError: it is not Python.
    """
    return [code for _, code in named_codes_in(text, path)]


def named_codes_in(text: str, path: str) -> list[tuple[str, types.CodeType]]:
    """Return every function's qualified name and code: in Python 3.10 code has no qualified name.

    Raises:
        SyntaxError: it is not Python.
    """
    return list(_named_below(compile(text, path, "exec", dont_inherit=True), ""))


def _named_below(code: types.CodeType, prefix: str) -> Iterator[tuple[str, types.CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            name = prefix + constant.co_name
            yield name, constant
            yield from _named_below(constant, f"{name}.<locals>." if constant.co_flags & _IN_FUNCTION else f"{name}.")


def _below(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _below(constant)


def codes_at(codes: list[types.CodeType], name: str, line: int) -> list[types.CodeType]:
    """Return the functions called ``name`` that begin at ``line``: lambdas can share both."""
    return [each for each in codes if each.co_name == name and each.co_firstlineno == line]


def read_names(code: types.CodeType) -> set[str]:
    """Return the globals that code and its inner functions read."""
    names = {
        str(each.argval) for each in dis.get_instructions(code) if each.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME"))
    }
    for inner in _below(code):
        names |= read_names(inner)
    return names


def imported_names(code: types.CodeType) -> set[str]:
    """Return the modules that code and its inner functions import, as the statements name them."""
    found = {str(each.argval) for each in dis.get_instructions(code) if each.opname == "IMPORT_NAME"}
    return found.union(*(imported_names(inner) for inner in _below(code)))


def all_names(code: types.CodeType) -> set[str]:
    """Return every name that code and its inner functions use: globals, attributes, methods."""
    return set(code.co_names).union(*(all_names(inner) for inner in _below(code)))


def class_statement(text: str, qualified_name: str, lines: set[int]) -> ast.ClassDef | None:
    """Return the ``class`` statement of a name; of several, the last, preferably around one of ``lines``."""
    parts = [part for part in qualified_name.split(".") if part != "<locals>"]
    found = list(_statements(ast.parse(text), parts))
    inside = [each for each in found if any(each.lineno <= line <= (each.end_lineno or 0) for line in lines)]
    candidates = inside or found
    return candidates[-1] if candidates else None


def _statements(tree: ast.AST, parts: list[str]) -> Iterator[ast.ClassDef]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == parts[0]:
            if len(parts) > 1:
                yield from _statements(node, parts[1:])
            elif isinstance(node, ast.ClassDef):
                yield node
        elif not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _statements(node, parts)


def compiled_class(statement: ast.ClassDef, path: str) -> types.CodeType:
    """Return code that defines the class, with annotations kept as strings, so that their names are not needed."""
    module = ast.Module([statement], [])
    code: types.CodeType = compile(module, path, "exec", flags=_ANNOTATIONS, dont_inherit=True)
    return code


def names_of_statement(code: types.CodeType) -> set[str]:
    """Return the globals that a class statement reads itself, without its methods."""
    names = {
        str(each.argval) for each in dis.get_instructions(code) if each.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME"))
    }
    for constant in code.co_consts:
        # The body of a class is not a function.
        if isinstance(constant, types.CodeType) and not constant.co_flags & 0x2:
            names |= names_of_statement(constant)
    return names
