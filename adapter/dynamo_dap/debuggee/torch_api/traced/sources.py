"""Converts Dynamo's ``Source`` of a value to the user's expression, and to steps to the real object.

Guards have ``L['self']._modules['linear']._parameters['weight']`` where the user wrote ``self.linear.weight``. No code
of the program runs here. Runs on the tracing thread.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from dynamo_dap.debuggee.torch_api.traced.variable_trackers import source_name
from dynamo_dap.protocol.texts import in_user_terms


def user_expression(source: object) -> str | None:
    """Return the source in the user's terms; None if it has no expression."""
    name = source_name(source)
    return None if name is None else in_user_terms(name)


@functools.cache
def functions_of_sources() -> dict[str, object]:
    """Return the functions that expressions of sources may call (torch/_dynamo/guards.py)."""
    torch = sys.modules["torch"]
    guards = sys.modules["torch._dynamo.guards"]
    known = getattr(guards, "_get_closure_vars", None)
    return {**(known() if known is not None else getattr(guards, "CLOSURE_VARS", {})), "___as_tensor": torch.as_tensor}


Step = tuple[str, Any]
"""``("local", name)``, ``("global", name)``, ``("attribute", name)``, ``("item", key)``, ``("type", None)`` ..."""


def steps_of(source: object) -> list[Step] | None:
    """Return the steps from the frame to the object, outermost first; None if a step has no simple form."""
    steps: list[Step] = []
    while source is not None:
        kind = type(source).__name__
        if kind in _ROOTS:
            name = _ROOTS[kind]
            return [*reversed([*steps, (name, getattr(source, f"{name}_name"))])]
        if kind in _NAMED:
            step, attribute = _NAMED[kind]
            steps.append((step, getattr(source, attribute) if attribute else None))
        elif kind not in _TRANSPARENT:
            return None
        source = getattr(source, "base", None)
    return None


_ROOTS = {"LocalSource": "local", "SyntheticLocalSource": "local", "GlobalSource": "global"}
_NAMED = {
    "AttrSource": ("attribute", "member"),
    "GenericAttrSource": ("attribute", "member"),
    "ParamBufferSource": ("attribute", "member"),
    "UnspecializedParamBufferSource": ("attribute", "member"),
    "GradSource": ("attribute", "member"),
    "DictGetItemSource": ("item", "index"),
    "GetItemSource": ("item", "index"),
    "ListGetItemSource": ("item", "index"),
    "TypeSource": ("type", None),
    "TypeMROSource": ("mro", None),
    "TypeDictSource": ("type dictionary", None),
    "CodeSource": ("code", None),
    "ClosureSource": ("closure", None),
    "DefaultsSource": ("default", "idx_key"),
}
_TRANSPARENT = frozenset(
    {
        "NNModuleSource",
        "UnspecializedNNModuleSource",
        "UnspecializedBuiltinNNModuleSource",
        "FSDPNNModuleSource",
        "OptimizerSource",
        "SkipGuardSource",
    }
)
