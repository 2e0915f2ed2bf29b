"""Explains why a line made a varying size constant: it needs a number, or it compares with a parameter's size.

Runs on any thread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynamo_dap.records.advice.items import at
from dynamo_dap.records.advice.settings import Setting
from dynamo_dap.records.model import Compile, Place

DYNAMIC_PARAMETERS = Setting("_dynamo.force_parameter_static_shapes", False)
_PARAMETER = re.compile(r"check_tensor\([^\n]*?, Parameter, [^\n]*?\bsize=\[(?P<sizes>[\d, ]*)\]")


def about_constant(compiles: Sequence[Compile], expression: str, place: Place | None) -> tuple[str, Sequence[Setting]]:
    """Return advice on a size that became constant in these compiles, and the settings that may help."""
    where = "a line" if place is None else at(place)
    parameter = parameter_that_fixes(compiles, expression)
    if parameter is not None:
        text = (
            f"{where} needs it equal to a size of {parameter}, a parameter whose sizes change as well: "
            f"torch makes sizes of parameters constant unless {DYNAMIC_PARAMETERS.text}"
        )
        return text, [DYNAMIC_PARAMETERS]
    text = (
        f"{where} needs the number itself, as range() and comparisons do: marking it as dynamic does not help; "
        "pad to one length, or write it without the number (one operation instead of a loop)"
    )
    return text, []


def parameter_that_fixes(compiles: Sequence[Compile], expression: str) -> str | None:
    """Return the parameter whose sizes always contained the constant, and whose sizes changed between compiles.

    ``expression`` is the symbolic size: ``x.size()[0]``.
    """
    sizes = [_parameters(compiled) for compiled in compiles]
    found: set[str] | None = None
    for compiled, known in zip(compiles, sizes, strict=True):
        for one in compiled.specializations:
            subject, _, constant = one.expression.rpartition(" == ")
            if subject == expression:
                having = {name for name, shape in known.items() if constant in shape}
                found = having if found is None else found & having
    changing = [name for name in found or () if len({known.get(name) for known in sizes if name in known}) > 1]
    return min(changing, default=None)


def _parameters(compiled: Compile) -> dict[str, tuple[str, ...]]:
    """Return the sizes of each parameter that a guard checks."""
    found = {}
    for guard in compiled.guards:
        match = _PARAMETER.search(guard.expression)
        if match is not None and guard.source is not None:
            found[guard.source] = tuple(match["sizes"].split(", "))
    return found
