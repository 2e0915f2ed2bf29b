"""Finds the names by which generated code calls compiled graphs. Runs on any thread, without state."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature

_CLEANUPS = "torch._dynamo.utils:CleanupManager.instance"
_PREFIX = "__compiled_fn"

GRAPHS = Feature("reading the results of compiled graphs", _CLEANUPS)


def installed_graphs() -> Iterator[tuple[dict[str, object], str]]:
    """Yield the dictionary and the name of each compiled graph; none if the program has not imported Dynamo."""
    if "torch._dynamo.utils" in sys.modules and GRAPHS.problem is None:
        yield from _installed(GRAPHS.resolve(_CLEANUPS).values.values())


def graphs_of(code: types.CodeType) -> Iterator[tuple[dict[str, object], str]]:
    """Yield the dictionary and the name of each graph that generated ``code`` calls."""
    if GRAPHS.problem is None:
        yield from _installed([GRAPHS.resolve(_CLEANUPS).get(code, ())])


def _installed(hooks: Iterable[Iterable[Any]]) -> Iterator[tuple[dict[str, object], str]]:
    """Yield the graphs among what torch's ``CleanupHook`` removes with generated code."""
    for each in [hook for group in list(hooks) for hook in group]:
        if str(getattr(each, "name", "")).startswith(_PREFIX):
            yield each.scope, each.name
