"""Records a program that is not debugged (``dynamo-dap run``). Main thread, before the program."""

from __future__ import annotations

import sys

from dynamo_dap.debuggee.agent.log import log_exception, start_log
from dynamo_dap.debuggee.torch_internals.arrival import when_dynamo_is_imported


def record_only() -> None:
    """Record from when the program imports Dynamo."""
    start_log()
    when_dynamo_is_imported(_begin)


def _begin() -> None:
    # Imported only now: a program without Dynamo pays nothing.
    try:
        from dynamo_dap.debuggee.bootstrap.recording import make_recorder

        make_recorder(lambda: None, lambda: True, _print).arm()
    except Exception as error:  # noqa: BLE001  (this runs inside the program's own import of torch)
        log_exception("beginning the record")
        _print(f"dynamo-dap: cannot record this torch: {type(error).__name__}: {error}\n")


def _print(text: str) -> None:
    sys.stderr.write(text)
