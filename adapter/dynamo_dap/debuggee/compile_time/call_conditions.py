"""Conditions whose truth follows from a call's arguments, untraced: ``step == 500``, ``self.training``.

Each call of one cache entry comes to the same lines, and a name means the same there: a constant, or what is reached
from the call's arguments or from globals. A condition of comparisons of such plain values is evaluated before the call
is traced once more; if it is false wherever its line is come to, the call needs no trace. Anything else (a tensor, a
call in the condition, an attribute that the traced code has stored) is left to the trace. Runs on the program's
threads; a condition lives as long as the cache entry.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from dynamo_dap.debuggee.torch_internals.retracing import CachedCall
from dynamo_dap.debuggee.torch_internals.traced_frame import MISSING, TracedFrame
from dynamo_dap.debuggee.torch_internals.trackers.forms import Known

_PLAIN = (bool, int, float, str, type(None))
_ALLOWED = (
    ast.Expression,
    ast.BoolOp,
    ast.UnaryOp,
    ast.BinOp,
    ast.Compare,
    ast.IfExp,
    ast.Name,
    ast.Constant,
    ast.expr_context,
    ast.boolop,
    ast.unaryop,
    ast.operator,
    ast.cmpop,
)


class _Unknown(Exception):
    """A value can be told by the trace alone."""


@dataclass(frozen=True)
class _Base:
    """Where the value of a name is found in a later call."""

    constant: object = MISSING
    source: str | None = None
    """As torch writes it: ``L['step']``."""
    namespace: Mapping[str, Any] | None = None
    name: str = ""

    def value(self, call: CachedCall) -> object:
        if self.constant is not MISSING:
            return self.constant
        if self.namespace is not None:
            return self.namespace.get(self.name, MISSING)
        return eval(self.source or "", {"L": call.arguments, "G": call.frame.f_globals})


@dataclass(frozen=True)
class CallCondition:
    """A condition at one visit of its line."""

    code: CodeType
    paths: Mapping[str, tuple[_Base, tuple[str, ...]]]
    """For each name in ``code``, where its value begins and the attributes that lead on."""

    @classmethod
    def at(cls, frame: TracedFrame, condition: str) -> CallCondition | None:
        """Return ``condition`` as it is where ``frame`` stands; None when the trace alone can tell it."""
        try:
            tree = ast.parse(condition.strip(), mode="eval")
            paths = _Paths()
            tree = ast.fix_missing_locations(paths.visit(tree))
            if not all(isinstance(node, _ALLOWED) for node in ast.walk(tree)):
                return None
            values = {name: (_base(frame, path), path[1:]) for name, path in paths.found.items()}
            return cls(compile(tree, "<condition>", "eval"), values)
        except (SyntaxError, ValueError, _Unknown):
            return None

    def is_false(self, call: CachedCall) -> bool:
        """Whether it is surely false in ``call``."""
        try:
            values = {name: _plain(base.value(call), attributes) for name, (base, attributes) in self.paths.items()}
            return not eval(self.code, {"__builtins__": {}}, values)
        except Exception:  # noqa: BLE001  (the trace tells what is wrong with it)
            return False


class _Paths(ast.NodeTransformer):
    """Puts a name of its own in place of each dotted name."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[str, ...]] = {}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._named((node.id,))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        names = [node.attr]
        inner: ast.expr = node.value
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
        return self._named((inner.id, *reversed(names))) if isinstance(inner, ast.Name) else node

    def _named(self, path: tuple[str, ...]) -> ast.Name:
        name = f"_{len(self.found)}"
        self.found[name] = path
        return ast.Name(name, ast.Load())


def _base(frame: TracedFrame, path: tuple[str, ...]) -> _Base:
    name = path[0]
    value = frame.lookup(name)
    if len(path) > 1 and any(True for _ in frame.attribute_changes()):
        raise _Unknown
    source = frame.source_of(value)
    if source is not None:
        return _Base(source=source)
    if name in frame.globals and value is frame.globals[name]:
        return _Base(namespace=frame.globals, name=name)
    form = frame.form_of(value) if value is not MISSING else None
    if isinstance(form, Known) and type(form.value) in _PLAIN:
        return _Base(constant=form.value)
    raise _Unknown


def _plain(value: object, attributes: tuple[str, ...]) -> object:
    """Follow attributes through the dictionaries of objects, which runs none of the program's code."""
    for attribute in attributes:
        names = object.__getattribute__(value, "__dict__")
        if attribute not in names:
            raise _Unknown
        value = names[attribute]
    if type(value) not in _PLAIN:
        raise _Unknown
    return value
