"""Calls for the main thread that are requested while CPython's queue of pending calls is full."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from dynamo_dap.debuggee.agent.interruption import call_on_main_thread

FULL = -1


def _nothing(_argument: object) -> int:
    return 0


_callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_nothing)


@pytest.fixture
def asked() -> Iterator[list[bool]]:
    """The answers to a thread that fills the queue and requests one more call, which leaves a note."""
    answers: list[bool] = []

    def ask() -> None:
        time.sleep(0.2)  # by now the main thread is in C, and runs no pending calls
        while ctypes.pythonapi.Py_AddPendingCall(_callback, None) != FULL:
            pass
        answers.append(call_on_main_thread(lambda: answers.append(True)))

    thread = threading.Thread(target=ask)
    thread.start()
    yield answers
    thread.join()


def _run_python_until(answers: list[bool], length: int) -> None:
    deadline = time.monotonic() + 20
    while len(answers) < length:
        assert time.monotonic() < deadline, f"waited for {length} answers, have {answers}"


def test_a_call_waits_for_a_place_in_the_queue(asked: list[bool]) -> None:
    time.sleep(0.6)
    assert asked == [], "the queue was not full"
    _run_python_until(asked, 2)
    assert asked == [True, True]


def test_a_call_that_finds_no_place_is_refused_after_a_while(asked: list[bool]) -> None:
    time.sleep(3)
    _run_python_until(asked, 1)
    time.sleep(0.1)
    assert asked == [False]


def test_a_garbage_collection_in_a_call_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    answers: list[bool] = []

    def function() -> None:
        gc.collect()
        answers.append(True)

    thread = threading.Thread(target=lambda: answers.append(call_on_main_thread(function)))
    thread.start()
    _run_python_until(answers, 2)
    thread.join()
    gc.collect()
    assert unraisable == []
