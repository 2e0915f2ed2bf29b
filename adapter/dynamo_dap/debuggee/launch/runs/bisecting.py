"""Runs the program as one run of a bisection, and writes its result: counts, queries, and the check.

Runs on the main thread of a process that is made for this run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from dynamo_dap.debuggee.launch.runs.program import Program, run
from dynamo_dap.debuggee.torch_api.lowering.bisected_items import BisectedRun
from dynamo_dap.protocol.requests.bisection import BisectionRun


def run_bisected(program: Program, asked: BisectionRun) -> None:
    """Run the program; it ends the process as it would without a bisection."""
    bisected = BisectedRun(asked.number, asked.settings)
    bisected.begin()

    def note_end(error: BaseException | None) -> None:
        # sys.exit() is an ordinary end; after an uncaught exception there is nothing to check.
        if error is None or isinstance(error, SystemExit):
            bisected.body.check = _checked(asked.check)
        else:
            bisected.body.has_raised = True

    try:
        run(program, before=lambda filename: None, on_end=note_end)
        note_end(None)
    finally:
        Path(asked.result).write_bytes(msgspec.json.encode(bisected.body))


def _checked(expression: str | None) -> bool | None:
    """Evaluate the user's check in the program's module, at the end of the program."""
    if expression is None:
        return None
    try:
        return bool(eval(expression, vars(sys.modules["__main__"])))
    except Exception as error:  # noqa: BLE001  (the report has whatever the expression raises)
        sys.stderr.write(f"dynamo-dap: --check {expression!r} raised {type(error).__name__}: {error}\n")
        return False
