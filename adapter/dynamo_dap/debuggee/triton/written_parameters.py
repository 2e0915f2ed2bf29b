"""Finds the parameters that a kernel may write to, from its text.

An operator must declare which operands it writes to: those from which the pointers of stores and atomic operations are
computed. If the kernel passes a pointer to another function, that function is read as well; if it has no readable text,
the operand counts as written. The module has no side effects, and runs on the thread that traces a launch.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Callable, Mapping

_STORES = frozenset({"store"})
_ATOMIC = "atomic_"
_DEEPEST = 8


def written_parameters(function: types.FunctionType, names: tuple[str, ...]) -> frozenset[str]:
    """Return the parameters among ``names`` that may be written to; all of them if the kernel has no source text."""
    try:
        return frozenset(names) & _Reader(function, _DEEPEST).written()
    except (OSError, TypeError, SyntaxError, StopIteration):
        return frozenset(names)


class _Reader(ast.NodeVisitor):
    """Reads the text of one function."""

    def __init__(self, function: types.FunctionType, depth: int) -> None:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        self._tree = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
        self._names: Mapping[str, object] = function.__globals__
        self._depth = depth
        self._sources = {argument.arg: {argument.arg} for argument in _parameters(self._tree.args)}
        """For each variable, the parameters from which it was computed."""
        self._written: set[str] = set()

    def written(self) -> set[str]:
        """Return the parameters that are written to."""
        before = -1
        while before != (before := sum(map(len, self._sources.values())) + len(self._written)):
            for statement in self._tree.body:
                self.visit(statement)
        return self._written

    def parameters(self) -> list[str]:
        """Return the names of the function's parameters."""
        return [argument.arg for argument in _parameters(self._tree.args)]

    # -- what variables come from ----------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> None:
        """Note what the targets come from."""
        for target in node.targets:
            self._assign(target, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Handle ``a += b`` as an assignment."""
        self._assign(node.target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Handle an annotated assignment like a plain one."""
        if node.value is not None:
            self._assign(node.target, node.value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        """Handle a loop's target as assigned from the iterated value."""
        self._assign(node.target, node.iter)
        self.generic_visit(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        sources = self._sources_of(value)
        for name in ast.walk(target):
            if isinstance(name, ast.Name):
                self._sources.setdefault(name.id, set()).update(sources)

    def _sources_of(self, value: ast.expr) -> set[str]:
        """Return the parameters that a value is computed from; a value loaded from memory does not point into it."""
        if isinstance(value, ast.Call) and _called(value) == "load":
            return set()
        found = set(self._sources.get(value.id, ())) if isinstance(value, ast.Name) else set()
        for part in ast.iter_child_nodes(value):
            if isinstance(part, ast.keyword):
                part = part.value  # noqa: PLW2901  (a changed item replaces it)
            if isinstance(part, ast.expr):
                found |= self._sources_of(part)
        return found

    # -- what is written to ----------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        """Note what a call writes to."""
        name = _called(node)
        if name in _STORES or name.startswith(_ATOMIC):
            pointer = (
                node.args[0] if node.args else next((one.value for one in node.keywords if one.arg == "pointer"), None)
            )
            receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
            for written in (pointer, receiver):
                self._written |= set() if written is None else self._sources_of(written)
        elif isinstance(node.func, ast.Name):
            self._hand_over(node, self._names.get(node.func.id))
        self.generic_visit(node)

    def _hand_over(self, node: ast.Call, called: object) -> None:
        handed = [(str(index), value) for index, value in enumerate(node.args)]
        handed += [(one.arg or "", one.value) for one in node.keywords]
        if not any(self._sources_of(value) for _, value in handed) or called in _HARMLESS:
            return
        written = self._written_by(called)
        for name, value in handed:
            if written is None or name in written:
                self._written |= self._sources_of(value)

    def _written_by(self, called: object) -> set[str] | None:
        """Return the parameters that a function writes to, by name and by position; None if it cannot be read."""
        function = getattr(called, "fn", None)
        if self._depth == 0 or not isinstance(function, types.FunctionType):
            return None
        try:
            reader = _Reader(function, self._depth - 1)
            written = reader.written()
        except (OSError, TypeError, SyntaxError, StopIteration):
            return None
        return written | {str(index) for index, name in enumerate(reader.parameters()) if name in written}


_HARMLESS: frozenset[Callable[..., object]] = frozenset({range, min, max, len, print, abs, int, float})


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
