"""Names the reasons why an input size is static or dynamic.

The debugged program finds the reasons, records keep them, reports and stops print them. Constants only.
"""

from __future__ import annotations

DYNAMIC = "dynamic"
STATIC = "static"
SPECIALIZED = "specialized"
SIZE_STATES = (DYNAMIC, STATIC, SPECIALIZED)
"""``SPECIALIZED``: the trace began with a symbol for the size, and an operation made it a constant."""

MARKED = "mark"
AUTOMATIC = "automatic dynamic"
SETTING = "setting"
ZERO_ONE = "0/1 specialization"
PARAMETER = "parameter"
MODULE = "module"
FIRST = "first call"
SPECIALIZATION = "specialization"
CONDITION = "condition"
EQUAL = "equal size"
OTHER = "other"
SIZE_REASONS = (
    MARKED,
    AUTOMATIC,
    SETTING,
    ZERO_ONE,
    PARAMETER,
    MODULE,
    FIRST,
    SPECIALIZATION,
    CONDITION,
    EQUAL,
    OTHER,
)
"""``FIRST``: Dynamo treats a size as a constant until a call has another size. ``EQUAL``: two inputs share a symbol."""

SIZES_ROW = "why these sizes"
"""The variable below a tensor or symbolic number whose children are the sizes."""

FIXES_SCOPE = "Fixes"
"""The scope at a data-dependent condition. Opening it tries a fix for each of its rows."""
