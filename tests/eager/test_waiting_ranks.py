"""The thread that watches waiting ranks must not be in torch's C++ when the program ends: that aborts the process."""

from __future__ import annotations

import atexit
import datetime as dt
import threading

import pytest

from dynamo_dap.debuggee.launch.children.waiting_ranks import Watch
from dynamo_dap.debuggee.torch_api.devices import group_timeouts
from tests.client.timeline import DEADLINE


def test_the_end_of_the_program_waits_for_a_look_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses a function of its own, because no real C++ call can be made to return exactly when the program ends."""
    looking, may_continue = threading.Event(), threading.Event()

    def look(now: float) -> list[group_timeouts.Waiting]:  # noqa: ARG001  (as the real one)
        looking.set()
        may_continue.wait(DEADLINE)
        return []

    monkeypatch.setattr(group_timeouts, "waiting", look)
    watch = Watch(lambda: True, lambda text: None)
    watch.take(dt.timedelta(seconds=1))
    atexit.unregister(watch.keep_out_of_torch)
    assert looking.wait(DEADLINE)
    end = threading.Thread(target=watch.keep_out_of_torch)
    end.start()
    end.join(0.1)
    assert end.is_alive(), "the look is not over"
    assert not watch.is_out_of_torch
    may_continue.set()
    end.join(DEADLINE)
    assert watch.is_out_of_torch
