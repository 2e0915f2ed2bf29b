"""Compiles a graph without some decompositions, passes or lowerings, to find the wrong one.

Torch asks its ``CompilerBisector`` before each of them. This module answers, while a graph is compiled in isolation
from the program. Runs on the thread that compiles, which holds the compile lock.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.swaps import Swap
from dynamo_dap.protocol.requests.bisection import KINDS, PARTS, SETTING, SETTINGS, first_bad

_OVERLOAD = re.compile(r"<OpOverload\(op='([\w.:]+)', overload='(\w+)'\)>")
_BISECTOR = "torch._inductor.compiler_bisector:CompilerBisector"

_CONFIGS = {"inductor": "torch._inductor.config"}
"""The modules of each stage's settings."""

LEAVING_OUT = Feature("naming the pass or the lowering at fault", _BISECTOR)


def wrong_part(stage: str, is_right: Callable[[], bool]) -> str | None:
    """Return the part that makes a compile by ``stage`` wrong, as readable text, or the setting that makes it right.

    None if no single part is at fault. ``is_right`` compiles the graph again and returns whether it is right. If it
    raises, the compile is not judged: a part without which the graph does not compile is not called wrong.
    """
    if LEAVING_OUT.problem is not None:
        return None
    for part in PARTS.get(stage, ()):
        with _leaving_out(part, -1):
            if not _is_known_right(is_right):
                continue
        with _leaving_out(part, sys.maxsize) as asked:
            if _is_known_right(is_right):
                return None  # equal compiles give different results
        names = list(asked)

        def is_good(last: int, part: str = part) -> bool:
            with _leaving_out(part, last):
                return is_right()

        try:
            return f"{KINDS[part]} {names[first_bad(len(names), is_good)]}" if names else None
        except Exception:  # noqa: BLE001  (whatever a compile raises: some number of parts cannot be judged)
            return None
    config = sys.modules[_CONFIGS.get(stage, "torch._functorch.config")]
    for name, value in SETTINGS.get(stage, {}).items():
        if hasattr(config, name) and getattr(config, name) is not value:
            with _leaving_out(SETTING, sys.maxsize), config.patch({name: value}):
                if _is_known_right(is_right):
                    return f"{SETTING} {name} = {value}"
    return None


def _is_known_right(is_right: Callable[[], bool]) -> bool:
    try:
        return is_right()
    except Exception:  # noqa: BLE001  (whatever a compile raises)
        return False


@contextlib.contextmanager
def _leaving_out(part: str, last: int) -> Iterator[list[str]]:
    """Leave out all parts after number ``last``; yield the names of torch's parts, in order."""
    bisector = LEAVING_OUT.resolve(_BISECTOR)
    config = sys.modules["torch._functorch.config"]
    names: list[str] = []

    def disable_subsystem(_: str, subsystem: str, debug_info: Callable[[], str] | None = None) -> bool:
        if subsystem != part:
            return False
        names.append(_OVERLOAD.sub(r"\1.\2", subsystem if debug_info is None else str(debug_info())))
        return len(names) - 1 > last

    with Swap() as swap, config.patch(enable_autograd_cache=False):
        swap.set(bisector, "disable_subsystem", staticmethod(disable_subsystem))
        swap.set(bisector, "bisection_enabled", True)  # then torch takes nothing from its cache of graphs
        yield names
