"""``sys.settrace`` as it was before any other debugger of this process put a warning in its place.

Imported with the agent, which is before debugpy; a program that has debugpy already is asked for what was there.
Acts on the calling thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def _original() -> Callable[[Any], None]:
    pydevd = sys.modules.get("pydevd_tracing")
    replaced: Callable[[Any], None] | None = getattr(
        getattr(pydevd, "TracingFunctionHolder", None), "_original_tracing", None
    )
    return replaced or sys.settrace


set_trace = _original()
