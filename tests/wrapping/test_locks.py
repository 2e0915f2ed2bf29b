"""The locks of the debugged program's side are taken in one order."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dynamo_dap.debuggee.wrapping.locks import Level, lock, reentrant_lock
from tests.client import Session
from tests.client.zygote import python


def test_a_lock_of_a_lower_level_is_refused() -> None:
    outer, inner = lock("breakpoints", Level.SETTINGS), lock("threads", Level.DATA)
    with outer, inner:
        pass
    with inner, pytest.raises(AssertionError, match=r"'breakpoints' \(SETTINGS\) is taken under 'threads' \(DATA\)"):
        outer.acquire()
    with outer:  # it is free, and so is the thread
        pass


def test_a_second_lock_of_the_same_level_is_refused() -> None:
    first, second = reentrant_lock("first", Level.HOOKS), reentrant_lock("second", Level.HOOKS)
    with first, pytest.raises(AssertionError, match="'second'"):
        second.acquire()
    with second:
        pass


def test_a_reentrant_lock_is_taken_again_whatever_is_held() -> None:
    outer, inner, taken = reentrant_lock("outer", Level.FEATURES), lock("inner", Level.DATA), list[bool]()
    with outer, inner, outer:
        pass
    thread = threading.Thread(target=lambda: taken.append(outer.acquire(blocking=False)))
    thread.start()
    thread.join()
    assert taken == [True], "it is released as often as it was taken"


def test_a_lock_excludes_other_threads() -> None:
    held, taken = lock("held", Level.DATA), list[bool]()
    with held:
        thread = threading.Thread(target=lambda: taken.append(held.acquire(blocking=False)))
        thread.start()
        thread.join()
    assert taken == [False]


def test_programs_under_test_check_the_order(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from dynamo_dap.debuggee.wrapping.patches import _lock\nprint(type(_lock).__name__, flush=True)\n",
        encoding="utf-8",
    )
    session.launch(program, python=python())
    assert session.wait_for_exit() == 0
    assert "_Checked" in session.output("stdout")
