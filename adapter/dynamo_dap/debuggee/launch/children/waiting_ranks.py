"""Keeps a distributed job alive while one of its ranks is held: the other ranks wait longer than their timeout.

Runs in every rank of a debugged job, also in ranks without a debugger. A thread of the debugger reports waits that
exceed the program's timeout. The thread ends with the session; process groups then get the program's timeout again.
"""

from __future__ import annotations

import atexit
import datetime as dt
import os
import sys
import time
from collections.abc import Callable

from dynamo_dap.debuggee.agent.frames import walk
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.own_rank import own_rank
from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.torch_api.devices import group_timeouts
from dynamo_dap.debuggee.torch_api.devices.group_timeouts import STRETCHED, Waiting
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.protocol.own_threads import own_thread

_DOING = "making ranks wait for held ranks"
_SHORTEST, _LONGEST = 0.25, 30.0
"""Seconds between two checks."""
_END = 5.0
"""Seconds that the program's end waits for a check in progress, which takes milliseconds."""


def wait_for_held_ranks(is_in_force: Callable[[], bool], report: Callable[[str], None]) -> None:
    """Make this process wait much longer for other ranks while ``is_in_force()``. ``report`` shows the user a text."""
    watch = Watch(is_in_force, report)
    group_timeouts.stretch(is_in_force, watch.take, lambda: log_exception(_DOING))


class Watch:
    """Watches for long waits in one session. ``take`` runs on the thread that makes a process group."""

    def __init__(self, is_in_force: Callable[[], bool], report: Callable[[str], None]) -> None:
        self._is_in_force = is_in_force
        self._report = report
        self._shortest: dt.timedelta | None = None
        self._reported: set[int] = set()
        self._lock = lock("shortest timeout", Level.PROCESS)
        self._in_torch = lock("watch of groups", Level.PROCESS)
        """Held by the thread while it is in torch's C++ code, and forever once the program ends."""
        self._is_ending = False
        self._process = os.getpid()

    def take(self, timeout: dt.timedelta) -> None:
        """Watch a process group whose ``timeout``, the program's own, was made longer."""
        with self._lock:
            is_first = self._shortest is None
            self._shortest = timeout if self._shortest is None else min(timeout, self._shortest)
        if is_first:
            self._report(
                f"Ranks now wait up to {STRETCHED.days} day for each other, not {timeout}: a stopped rank does not end "
                'the job. "stretchTimeouts": false keeps the program\'s timeouts.\n'
            )
            atexit.register(self.keep_out_of_torch)
            try:
                own_thread("watch of waiting ranks", self._run).start()
            except RuntimeError:  # the program is ending
                log_exception(_DOING)

    @property
    def is_out_of_torch(self) -> bool:
        """Return whether the program is ending, so that the thread must stay out of torch."""
        return self._is_ending

    def keep_out_of_torch(self) -> None:
        """Keep the thread out of torch from now on, and wait until it has left: the program is ending.

        Python ends a daemon thread that returns from C++ code, and C++ then aborts the process.
        """
        if os.getpid() == self._process:  # A forked process has no such thread.
            self._is_ending = self._in_torch.acquire(timeout=_END)

    def _run(self) -> None:
        try:
            self._watch()
        except Exception:  # noqa: BLE001  (the program must not notice our failure)
            log_exception(_DOING)

    def _watch(self) -> None:
        while self._is_in_force():
            shortest = _LONGEST if self._shortest is None else self._shortest.total_seconds()
            time.sleep(min(max(shortest / 4, _SHORTEST), _LONGEST))
            with self._in_torch:
                found = group_timeouts.waiting(time.time())
            for each in found:
                if each.number not in self._reported:
                    self._reported.add(each.number)
                    self._report(_in_words(each))
        with self._in_torch:
            group_timeouts.restore_timeouts(self._is_in_force)


def _in_words(waiting: Waiting) -> str:
    sizes = ", ".join(str(size) for size in waiting.sizes)
    where = _place_of(waiting.thread)
    return (
        f"{own_rank() or 'This process'} has waited {waiting.seconds:.0f} s for other ranks in {waiting.name}"
        f"{f' of {sizes}' if sizes else ''} ({waiting.group}){where}: without a debugger, the wait "
        f"would have ended after the timeout, {waiting.timeout}.\n"
    )


def _place_of(thread: int) -> str:
    frame = sys._current_frames().get(thread)
    place = next((one for one in walk(frame) if is_user_file(one.f_code.co_filename)), None)
    return "" if place is None else f"; its thread is at {place.f_code.co_filename}:{place.f_lineno}"
