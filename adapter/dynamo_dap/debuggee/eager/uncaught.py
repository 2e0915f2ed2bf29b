"""Notices the exception that ends an untraced program, by the interpreter's audit event for it.

An audit hook costs little and cannot be removed. The interpreter calls it without tracing, on the thread whose
exception it is about to print.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from dynamo_dap.debuggee.agent.log import log_exception

_EVENT = "sys.excepthook"

_report: Callable[[BaseException], None] | None = None
_is_heard = False


def call_for_uncaught(report: Callable[[BaseException], None]) -> None:
    """Call ``report`` for the exception that ends the program, unless a later call of this function replaces it."""
    global _report
    _report = report


def is_noticed() -> bool:
    """Return whether such exceptions are noticed. The first call adds the hook, which other hooks can prevent."""
    if not _is_heard:
        try:
            sys.addaudithook(_hear)
            sys._getframe()  # an event
        except Exception:  # noqa: BLE001  (raised by a hook of the program)
            log_exception("adding an audit hook")
    return _is_heard


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    global _is_heard
    _is_heard = True
    if event != _EVENT or _report is None:
        return
    try:
        error = arguments[2]
        if isinstance(error, BaseException) and sys._getframe().f_back is None:  # no function of the program is left
            _report(error)
    except Exception:  # noqa: BLE001  (the program's exception must be printed)
        log_exception("reporting an uncaught exception")
