"""Explains, when a program ends, why a breakpoint was not hit, if the reason is certain.

Reads facts that debugpy and the engines have noted for other purposes. Runs on the thread on which the program ends.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Iterator, Mapping

from dynamo_dap.debuggee.agent.breakpoints import LineBreakpoint
from dynamo_dap.debuggee.agent.engine import FunctionKey
from dynamo_dap.debuggee.agent.user_code import normalized_path
from dynamo_dap.debuggee.bytecode.loaded_modules import loaded_files
from dynamo_dap.protocol.requests.contract import MissedBreakpoint
from dynamo_dap.protocol.wire.types import SourceBreakpoint


def missed(
    breakpoints: list[LineBreakpoint],
    begun: Collection[FunctionKey],
    met: Mapping[tuple[str, int], bool],
) -> Iterator[MissedBreakpoint]:
    """Yield those of ``breakpoints`` that were not hit for a known reason. All were set before the program began.

    ``begun`` has the functions that ran as ordinary Python or were traced. ``met`` says for each breakpoint that
    ordinary Python reached, by path and line, whether its condition ever held.
    """
    files = {path for path, *_ in begun}
    imported = functools.cache(_imported_files)
    for breakpoint in breakpoints:
        requested = breakpoint.requested
        assert isinstance(requested, SourceBreakpoint), "only line breakpoints know their functions"
        reason = _reason(breakpoint, requested.line, begun, files, imported, met)
        if reason is not None:
            yield MissedBreakpoint(breakpoint.path, requested.line, reason)


def _reason(
    breakpoint: LineBreakpoint,
    requested_line: int,
    begun: Collection[FunctionKey],
    files: Collection[str],
    imported: Callable[[], Collection[str]],
    met: Mapping[tuple[str, int], bool],
) -> str | None:
    path, conditions = normalized_path(breakpoint.path), breakpoint.conditions
    lines = {breakpoint.line, requested_line}
    holds = [held for line in lines if (held := met.get((path, line))) is not None]
    if breakpoint.seen or breakpoint.hits or holds:
        is_only_condition = conditions.condition is not None and conditions.hit_condition is None
        is_never_met = is_only_condition and not (breakpoint.hits or breakpoint.unjudged or any(holds))
        return "its line was reached, but its condition was never true" if is_never_met else None
    if path not in files:
        return None if path in imported() else f"{os.path.basename(path)} was not imported"
    functions = breakpoint.functions or ()
    if len(functions) != 1 or breakpoint.mode is not None or not breakpoint.verified:
        return None
    name = functions[0].qualified_name
    if (path, functions[0].first_line, name.rpartition(".")[2]) in begun:
        return f"{name} ran, but was not seen at line {breakpoint.line}"
    return f"{name} was neither traced by Dynamo nor seen to run as ordinary Python"


def _imported_files() -> set[str]:
    return {normalized_path(path) for _, path, _ in loaded_files()}
