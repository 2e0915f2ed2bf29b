"""Names graph breaks that data causes, and finds the branches that ``torch.cond`` can replace: each side is one value.

Constants, and pure functions over syntax trees.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

BRANCH_ON_TENSOR = "Data-dependent branching"
"""Torch's reason for a graph break at a branch on a tensor."""
CAPTURING_SETTINGS = ("capture_scalar_outputs", "capture_dynamic_output_shape_ops")
"""Settings of Dynamo that only widen what it traces. Others change results, or the whole compile."""


@dataclass(frozen=True)
class Branch:
    """A choice between two values."""

    target: str | None
    """The name that gets the value; None if it is returned."""
    test: ast.expr
    one: ast.expr
    """The value if ``test`` is true."""
    other: ast.expr
    last: int
    """The last line."""


def branch_of(statement: ast.stmt, following: ast.stmt | None) -> Branch | None:
    """Return the choice that ``statement`` makes; a ``return`` in ``following`` can be its other side."""
    target: Any = None
    end = statement.end_lineno or statement.lineno
    match statement:
        case ast.Assign([ast.Name(target)], ast.IfExp(test, one, other)):
            pass
        case ast.Return(ast.IfExp(test, one, other)):
            pass
        case ast.If(test, [ast.Return(ast.expr() as one)], []):
            if not isinstance(following, ast.Return) or following.value is None:
                return None
            other, end = following.value, following.end_lineno or following.lineno
        case ast.If(test, [ast.Return(ast.expr() as one)], [ast.Return(ast.expr() as other)]):
            pass
        case ast.If(test, [ast.Assign([ast.Name(target)], one)], [ast.Assign([ast.Name(same)], other)]):
            if target != same:
                return None
        case ast.If(test, [ast.Assign([ast.Name(target)], one)], []):
            other = ast.Name(target, ast.Load())
        case _:
            return None
    return Branch(target, test, one, other, end)
