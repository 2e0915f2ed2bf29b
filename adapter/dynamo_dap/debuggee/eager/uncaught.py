"""Notices the exception that ends an untraced program, by the interpreter's audit event for it.

An audit hook costs little and cannot be removed. The interpreter calls it without tracing, on the thread whose
exception it is about to print.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from dynamo_dap.debuggee.agent.log import log_exception


class _Hook:
    """Reports the exception. It needs no global names for other events: some come after the end of all modules."""

    def __init__(self) -> None:
        self.report: Callable[[BaseException], None] | None = None
        self.is_heard = False
        self._event = "sys.excepthook"

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        self.is_heard = True
        if event == self._event and self.report is not None:
            self._report(arguments[2])

    def _report(self, error: object) -> None:
        try:
            is_at_end = sys._getframe(1).f_back is None  # no function of the program is left
            if is_at_end and self.report is not None and isinstance(error, BaseException):
                self.report(error)
        except Exception:  # noqa: BLE001  (the program's exception must be printed)
            log_exception("reporting an uncaught exception")


_HOOK = _Hook()


def call_for_uncaught(report: Callable[[BaseException], None]) -> None:
    """Call ``report`` for the exception that ends the program, unless a later call of this function replaces it."""
    _HOOK.report = report


def is_noticed() -> bool:
    """Return whether such exceptions are noticed. The first call adds the hook, which other hooks can prevent."""
    if not _HOOK.is_heard:
        try:
            sys.addaudithook(_HOOK)
            sys._getframe()  # an event
        except Exception:  # noqa: BLE001  (raised by a hook of the program)
            log_exception("adding an audit hook")
    return _HOOK.is_heard
