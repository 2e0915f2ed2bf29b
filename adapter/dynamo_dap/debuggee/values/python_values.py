"""How any real Python object is shown: the entry point of this package.

``present(value, expression)`` gives text, type, location and children; ``preview(value, width)`` the text alone.
Importing this module registers every family. Runs on the held thread; the values made live as long as the pause.
"""

from __future__ import annotations

from dynamo_dap.debuggee.values import callables, containers, objects, scalars, tensors
from dynamo_dap.debuggee.values.eager_frames import globals_of, locals_of
from dynamo_dap.debuggee.values.families import PLAIN, Family, View, family_for, family_of, present, preview

FAMILIES = (callables, containers, objects, scalars, tensors)
"""The modules whose import registers the families."""

__all__ = [
    "FAMILIES",
    "PLAIN",
    "Family",
    "View",
    "family_for",
    "family_of",
    "globals_of",
    "locals_of",
    "present",
    "preview",
]
