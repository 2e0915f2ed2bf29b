"""Reports how the graph of a trace that the user changed differs from the program's graph. Runs on any thread."""

from __future__ import annotations

import difflib

from dynamo_dap.debuggee.agent.engine import CompileReader, WhatIf
from dynamo_dap.protocol.requests.contract import WHAT_IF, WhatIfBody

_MOST_LINES = 40
"""The most lines of a difference to print; an editor shows all lines."""


def what_if_body(what_if: WhatIf, compiles: CompileReader | None) -> WhatIfBody:
    """Return the body of ``dynamoWhatIf``."""
    programs = None if compiles is None else compiles.code_of_graph(what_if.compile_id, what_if.function)
    return WhatIfBody(
        function=what_if.function,
        compile_id=what_if.compile_id,
        changes=list(what_if.changes),
        graph=what_if.code,
        is_over=what_if.is_over,
        kept=what_if.kept,
        program_graph=programs,
        difference="" if programs is None else _difference(programs, what_if.code),
        problem=what_if.problem,
    )


def _difference(programs: str, changed: str) -> str:
    lines = difflib.unified_diff(
        programs.splitlines(), changed.splitlines(), "the program's graph", "changed by the debugger", lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)


def in_words(body: WhatIfBody) -> str:
    """Return the report for the user, once the changed trace has ended."""
    how = "has ended" if body.problem is None else f"ended: {body.problem}"
    runs = "the changed graph" if body.kept else "the program's own graph"
    text = f"dynamo-dap: the changed trace of {body.function} [{body.compile_id}] {how}. The call runs {runs}.\n"
    if body.program_graph is None:
        return text
    if not body.difference:
        return f"{text}Its graph is the same.\n"
    lines = body.difference.splitlines()
    left = len(lines) - _MOST_LINES
    more = [] if left <= 0 else [f"... {left} more lines: the request '{WHAT_IF}' returns all"]
    return text + "".join(f"{line}\n" for line in [*lines[:_MOST_LINES], *more])
