"""Shows names, locals and globals of ordinary Python frames. Runs on the held thread that the frame belongs to."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence

from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import (
    GROUP,
    dynamos_locals,
    is_dynamos_global,
    split_by_owner,
    user_function_name,
)
from dynamo_dap.debuggee.values.model import Children, Deferred, Fixed, Value, Variable, present
from dynamo_dap.debuggee.values.paging import in_pages


def shown_name(code: types.CodeType) -> str:
    """Return the name of a frame that runs ``code``, as the call stack shows it."""
    return user_function_name(code)


def locals_of(frame: types.FrameType, with_expressions: bool = True) -> Children:
    """Return the frame's local, cell and free variables: parameters first, as the code declares them.

    ``with_expressions=False`` for a frame in which nothing can be evaluated: a suspended generator.
    """

    def make() -> Sequence[Variable]:
        values = dict(frame.f_locals)
        code = frame.f_code
        declared = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
        ordered = [name for name in dict.fromkeys(declared) if name in values]
        others = [name for name in values if name not in set(ordered)]
        shown = [_variable(name, values[name], with_expressions) for name in (*ordered, *others)]
        return with_group(shown, dynamos_locals(code))

    return Deferred(make)


def globals_of(frame: types.FrameType) -> Children:
    """Return the module's globals: those that the frame's code uses first, the others in pages, Dynamo's last."""
    names = [name for name in frame.f_globals if type(name) is str and name != "__builtins__"]
    names, dynamos = split_by_owner(names, is_dynamos_global)
    used = [name for name in dict.fromkeys(frame.f_code.co_names) if name in set(names)]
    plain = sorted((name for name in names if name not in set(used)), key=lambda name: name.startswith("__"))
    ordered = [*used, *plain]

    def pages_of(names: Sequence[str]) -> Children:
        def page(start: int, stop: int) -> list[Variable]:
            return [_variable(name, frame.f_globals[name]) for name in names[start:stop] if name in frame.f_globals]

        return in_pages(len(names), page)

    if not dynamos:
        return pages_of(ordered)
    return Deferred(lambda: [*pages_of(ordered).named(), _group(len(dynamos), pages_of(dynamos))])


def with_group(variables: Sequence[Variable], is_dynamos: Callable[[str], bool]) -> list[Variable]:
    """Return ``variables``, with Dynamo's own (by name) grouped at the end."""
    users, dynamos = split_by_owner(variables, lambda variable: is_dynamos(variable.name))
    return [*users, _group(len(dynamos), Fixed(tuple(dynamos)))] if dynamos else users


def _group(count: int, children: Children) -> Variable:
    return Variable(GROUP, Value(f"{count} variables", children=children, kind="virtual"))


def _variable(name: str, value: object, with_expressions: bool = True) -> Variable:
    path = name if with_expressions and name.isidentifier() else None
    return Variable(name, present(value, path), path)
