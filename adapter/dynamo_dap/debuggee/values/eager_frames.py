"""Locals and globals of ordinary Python frames, as children. Runs on the thread whose frame it is, while it is held."""

from __future__ import annotations

import types
from collections.abc import Sequence

from dynamo_dap.debuggee.values.families import present
from dynamo_dap.debuggee.values.model import Children, Deferred, Variable
from dynamo_dap.debuggee.values.paging import in_pages


def locals_of(frame: types.FrameType, with_expressions: bool = True) -> Children:
    """Return the frame's local, cell and free variables: parameters first, as the code declares them.

    ``with_expressions=False`` for a frame in which nothing can be evaluated: a generator that waits.
    """

    def make() -> Sequence[Variable]:
        values = dict(frame.f_locals)
        code = frame.f_code
        declared = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
        ordered = [name for name in dict.fromkeys(declared) if name in values]
        others = [name for name in values if name not in set(ordered)]
        return [_variable(name, values[name], with_expressions) for name in (*ordered, *others)]

    return Deferred(make)


def globals_of(frame: types.FrameType) -> Children:
    """Return the module's globals: the names that the frame's code uses first, then the others in pages."""
    names = [name for name in frame.f_globals if type(name) is str and name != "__builtins__"]
    used = [name for name in dict.fromkeys(frame.f_code.co_names) if name in frame.f_globals]
    plain = sorted((name for name in names if name not in set(used)), key=lambda name: name.startswith("__"))
    ordered = [*used, *plain]

    def page(start: int, stop: int) -> list[Variable]:
        return [_variable(name, frame.f_globals[name]) for name in ordered[start:stop] if name in frame.f_globals]

    return in_pages(len(ordered), page)


def _variable(name: str, value: object, with_expressions: bool = True) -> Variable:
    path = name if with_expressions and name.isidentifier() else None
    return Variable(name, present(value, path), path)
