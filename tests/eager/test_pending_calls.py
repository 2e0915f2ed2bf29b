"""Calls for the main thread that are requested while CPython's queue of pending calls is full."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from dynamo_dap.debuggee.agent import interruption
from dynamo_dap.debuggee.agent.interruption import call_on_main_thread
from tests.client.timeline import DEADLINE

FULL = -1


class _FullQueue:
    """CPython's queue, which the main thread does not serve while it is in a call from the queue."""

    def __init__(self) -> None:
        pending = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        self._serving, self._may_continue = threading.Event(), threading.Event()
        self._hold, self._nothing = pending(self._holds), pending(lambda _: 0)

    def _holds(self, _: object) -> int:
        self._serving.set()
        self._may_continue.wait(DEADLINE)
        return 0

    def fill(self) -> None:
        """Hold the main thread, and add calls until there is no place."""
        assert ctypes.pythonapi.Py_AddPendingCall(self._hold, None) != FULL
        assert self._serving.wait(DEADLINE)
        while ctypes.pythonapi.Py_AddPendingCall(self._nothing, None) != FULL:
            pass

    def release(self) -> None:
        """Let the main thread serve the queue."""
        self._may_continue.set()


def _run_python_until(answers: list[str], length: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while len(answers) < length:
        assert time.monotonic() < deadline, f"waited for {length} answers, have {answers}"


def _answers(ask: Callable[[list[str]], None], length: int) -> list[str]:
    """Return what a thread notes that requests calls of this one."""
    answers: list[str] = []
    thread = threading.Thread(target=ask, args=(answers,))
    thread.start()
    _run_python_until(answers, length)
    thread.join()
    return answers


def test_a_call_waits_for_a_place_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, waits = _FullQueue(), list[float]()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        queue.release()
        time.sleep(seconds)

    monkeypatch.setattr(interruption, "_QUEUE_TIMEOUT", DEADLINE)
    monkeypatch.setattr(interruption, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))

    def ask(answers: list[str]) -> None:
        queue.fill()
        call_on_main_thread(lambda: answers.append("first"))
        call_on_main_thread(lambda: answers.append("second"))

    assert _answers(ask, 2) == ["first", "second"]
    assert waits, "the queue was not full"


def test_a_call_that_finds_no_place_is_refused_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = _FullQueue()

    def ask(answers: list[str]) -> None:
        queue.fill()
        monkeypatch.setattr(interruption, "_QUEUE_TIMEOUT", 0.05)
        answers.append(f"placed: {call_on_main_thread(lambda: answers.append('refused'))}")
        monkeypatch.setattr(interruption, "_QUEUE_TIMEOUT", DEADLINE)
        queue.release()
        call_on_main_thread(lambda: answers.append("later"))

    assert _answers(ask, 2) == ["placed: False", "later"]


def test_a_garbage_collection_in_a_call_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    answers: list[str] = []

    def function() -> None:
        gc.collect()
        answers.append("called")

    thread = threading.Thread(target=lambda: answers.append(f"placed: {call_on_main_thread(function)}"))
    thread.start()
    _run_python_until(answers, 2)
    thread.join()
    gc.collect()
    assert unraisable == []
