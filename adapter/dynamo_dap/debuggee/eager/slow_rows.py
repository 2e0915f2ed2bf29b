"""Limits how long the ``__repr__`` of one variable may run, so that the other variables are still shown.

debugpy calls the ``__repr__`` of the program's classes while it answers ``variables``. The ``__repr__`` of a class that
was interrupted once is not called again, or each step would wait for it. Runs on the threads that debugpy has stopped.
Lives as long as the process.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from dynamo_dap.debuggee.agent.interruption import Interruptible
from dynamo_dap.debuggee.values.model import Interrupted

_limits = threading.local()
"""``seconds``: the time limit of each row of the request. ``left``: how many rows may still exceed the limit."""
_slow: dict[int, weakref.ref[type]] = {}
"""Classes whose ``__repr__`` was interrupted, by ``id``, since a class may not be hashable."""


@contextlib.contextmanager
def limit(seconds: float, at_most: int) -> Iterator[None]:
    """Limit each row to ``seconds`` inside this context; after ``at_most`` slow rows, call no further ``__repr__``."""
    _limits.seconds, _limits.left = seconds, at_most
    try:
        yield
    finally:
        del _limits.seconds, _limits.left


def show(value: object, make: Callable[[], dict[str, object]]) -> dict[str, object] | str:
    """Call ``make``, which calls the ``__repr__`` of ``value``. Return its result, or why ``make`` was not called."""
    seconds = getattr(_limits, "seconds", None)
    if seconds is None:
        return make()
    cls = type(value)
    known = _slow.get(id(cls))
    if known is not None and known() is cls:
        return "__repr__ took too long before"
    if not _limits.left:
        return "__repr__ was not called: others took too long"
    work = _limits.work = Interruptible(seconds)
    try:
        with work.running():
            shown = make()
        if not work.timed_out:  # otherwise debugpy has caught the interruption, and shows it as the value
            return shown
    except Interrupted:
        if not work.timed_out:
            raise  # the request was cancelled
    finally:
        del _limits.work
    key = id(cls)
    _slow[key] = weakref.ref(cls, lambda _: _slow.pop(key, None))
    _limits.left -= 1
    return f"__repr__ took longer than {seconds:g} s"


def install() -> None:
    """Keep debugpy from calling an interrupted ``__repr__`` again, as it does after any other exception."""
    shown: Any = importlib.import_module("_pydevd_bundle.pydevd_xml")

    def repr_in_time(value: object) -> str:
        work: Interruptible | None = getattr(_limits, "work", None)
        if work is not None and work.timed_out:
            raise TimeoutError
        return repr(value)

    shown.repr = repr_in_time
