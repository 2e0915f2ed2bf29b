"""Replaces a branch in a function's code by ``torch.cond``, for a replay. The functions have no side effects."""

from __future__ import annotations

import ast
import linecache
import sys
import types
from collections.abc import Mapping

from dynamo_dap.debuggee.history.changed_traces import CannotChange
from dynamo_dap.protocol.requests.branches import Branch, branch_of
from dynamo_dap.protocol.texts import NOT_PYTHON

_UNKNOWN = "the source of the function is not known"


def code_with_cond(code: types.CodeType, line: int, names: Mapping[str, object]) -> types.CodeType:
    """Return ``code`` with ``torch.cond`` for the branch that begins at ``line``; ``names`` are its globals.

    Raises:
        CannotChange: a side has more than one value, or the present source does not give ``code``.
    """
    if names.get("torch") is not sys.modules.get("torch"):
        raise CannotChange("the function's module does not import torch by this name")
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
        original = _code_in(tree, code)
    except NOT_PYTHON:
        raise CannotChange(_UNKNOWN) from None
    if original is None or original.co_code != code.co_code:
        raise CannotChange(_UNKNOWN)
    if not _replace(tree, line):
        raise CannotChange("a side of the branch has more than one value")
    changed = _code_in(tree, code)
    if changed is None or set(changed.co_freevars) != set(code.co_freevars):
        raise CannotChange("with torch.cond the function would capture other variables")
    return changed


def _code_in(tree: ast.Module, code: types.CodeType) -> types.CodeType | None:
    found = [compile(tree, code.co_filename, "exec", dont_inherit=True)]
    for each in found:
        if each.co_name == code.co_name and each.co_firstlineno == code.co_firstlineno:
            return each
        found += [one for one in each.co_consts if isinstance(one, types.CodeType)]
    return None


def _replace(tree: ast.Module, line: int) -> bool:
    for node in ast.walk(tree):
        for _, body in ast.iter_fields(node):
            if not isinstance(body, list):
                continue
            for at, statement in enumerate(body):
                if not isinstance(statement, ast.stmt) or statement.lineno != line:
                    continue
                branch = branch_of(statement, body[at + 1] if at + 1 < len(body) else None)
                if branch is not None:
                    body[at : at + 1] = [_as_cond(branch, statement)]
                    return True
    return False


def _as_cond(branch: Branch, statement: ast.stmt) -> ast.stmt:
    nothing = ast.arguments([], [], None, [], [], None, [])
    sides = [ast.Lambda(nothing, _copied(side)) for side in (branch.one, branch.other)]
    call = ast.Call(ast.Attribute(ast.Name("torch", ast.Load()), "cond", ast.Load()), [branch.test, *sides], [])
    target = branch.target
    made: ast.stmt = ast.Return(call) if target is None else ast.Assign([ast.Name(target, ast.Store())], call)
    return ast.fix_missing_locations(ast.copy_location(made, statement))


def _copied(side: ast.expr) -> ast.expr:
    """Return one side, cloned if it may be an input: ``torch.cond`` must not return its inputs."""
    return ast.Call(ast.Attribute(side, "clone", ast.Load()), [], []) if isinstance(side, ast.Name) else side
