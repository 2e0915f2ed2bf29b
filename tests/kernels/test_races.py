"""The exception filter for races between programs, in kernels that Triton's interpreter runs."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton is an extra of the package, and is not installed")

from tests.client import Fixture, Session, zygote
from tests.client.session import Stop

PROGRAM = Fixture("triton_programs/races")
OPTIONS: dict[str, Any] = {"triton": "interpret", "python": zygote.python(TRITON_INTERPRET="1")}


def launch(session: Session, *names: str, condition: str | None = None, program: Fixture = PROGRAM) -> None:
    """Run some of the program's functions, three times each, with the filter."""
    with session.launching(program, **OPTIONS, args=list(names)):
        chosen = {"filters": ["race"]}
        if condition is not None:
            chosen = {"filters": [], "filterOptions": [{"filterId": "race", "condition": condition}]}  # type: ignore[list-item]
        session.request("setExceptionBreakpoints", chosen)


def text_of(stop: Stop) -> str:
    return str(stop.body["text"])


@pytest.mark.parametrize("name", ["overlap", "compiled_overlap", "tuned", "compiled_tuned"])
def test_two_programs_that_store_to_one_element(session: Session, name: str) -> None:
    launch(session, name)
    for _ in range(3):
        stop = session.wait_for_stop("exception", at="overlap")
        assert stop.frame.name == "overlap_kernel"
        program = stop.frame["Program"].texts()
        assert (program["kernel"], program["program_id(0)"], program["grid"]) == ("overlap_kernel", "1", "(3, 1, 1)")
        text = text_of(stop)
        assert "store to the same elements of out_ptr" in text
        assert "elements 6, 7 of out_ptr (Tensor f32[24] cpu): program (0, 0, 0)" in text
        assert f"(1, 0, 0) is about to store it at races.py:{PROGRAM.line('overlap')}" in text
        assert "2 of 2 values differ" in text
        assert "6.0 is there, 7.0 is stored." in text
        # Nothing was stored yet.
        assert stop.frame.evaluate("tl.load(out_ptr + offsets)").text.startswith("f32[8] = [6.0, 7.0, 0.0")
        information = session.request("exceptionInfo", {"threadId": stop.thread_id})
        assert information["exceptionId"].startswith("Race: programs (0, 0, 0) and (1, 0, 0) store")
        # Programs 1 and 2 race at the same line, and are not reported.
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout").splitlines() == [f"{name} 212.0"] * 3


def test_a_program_that_stores_what_another_has_loaded(session: Session) -> None:
    launch(session, "shift")
    for _ in range(3):
        stop = session.wait_for_stop("exception", at="shift_store")
        text = text_of(stop)
        assert "load and store the same element" in text
        line = PROGRAM.line("shift_load")
        assert "element 8 of x_ptr (Tensor f32[24] cpu)" in text
        assert f"program (0, 0, 0) has loaded it at races.py:{line}" in text
        assert "values" not in text
        session.resume()
    assert session.wait_for_exit() == 0


def test_a_program_that_loads_what_another_has_stored(session: Session) -> None:
    launch(session, "smooth")
    for _ in range(3):
        stop = session.wait_for_stop("exception", at="smooth_load")
        assert "store and load the same element" in text_of(stop)
        assert "element 7 of x_ptr" in text_of(stop)
        session.resume()
    assert session.wait_for_exit() == 0


def test_two_programs_that_store_the_same_value(session: Session) -> None:
    launch(session, "mean")
    stop = session.wait_for_stop("exception", at="mean")
    text = text_of(stop)
    assert "mean_ptr: equal values" in text
    assert "element 0 [0, 0] of mean_ptr (Tensor f32[2, 1] cpu)" in text
    assert "Both are 3.5: harmless" in text
    session.request("setExceptionBreakpoints", {"filters": []})
    session.resume()
    assert session.wait_for_exit() == 0


@pytest.mark.parametrize(
    ("name", "condition", "is_met"),
    [
        ("mean", "__differ__", False),
        ("overlap", "__differ__", True),
        ("overlap", "__programs__ == ((1, 0, 0), (2, 0, 0)) and __elements__ == [12, 13]", True),
        ("shift", "__differ__ and __tensor__ == 'x_ptr' and count == 24", True),
        ("shift", "__tensor__ == 'out_ptr'", False),
    ],
)
def test_the_filter_has_a_condition(session: Session, name: str, condition: str, is_met: bool) -> None:
    launch(session, name, condition=condition)
    for _ in range(3 if is_met else 0):
        session.wait_for_stop("exception")
        session.resume()
    assert session.wait_for_exit() == 0


def test_programs_that_wait_for_each_other_do_not_race(session: Session) -> None:
    launch(session, "locked", "last", "compiled_locked", "bytes_of_words")
    assert session.wait_for_exit() == 0
    assert len(session.output("stdout").splitlines()) == 12


def test_relaxed_atomic_operations_order_nothing(session: Session) -> None:
    launch(session, "relaxed")
    for _ in range(3):
        stop = session.wait_for_stop("exception", at="relaxed")
        assert "8 of 8 values differ" in text_of(stop)
        session.resume()
    assert session.wait_for_exit() == 0


def test_what_there_is_no_room_for_is_reported(session: Session) -> None:
    launch(session, "large")
    stop = session.wait_for_stop("exception", at="large")
    assert "element 0 of out_ptr" in text_of(stop)
    session.resume()
    assert session.wait_for_exit() == 0
    (reported,) = re.findall(r"large_kernel accesses more memory .*: ([\d,]+) accesses", session.output("important"))
    # Of 17 times as many; notes are taken in pages.
    assert 2**20 <= int(reported.replace(",", "")) <= 2**20 + 2**13


def test_a_filter_that_is_set_within_a_launch_says_from_where_it_looks(session: Session) -> None:
    with session.launching(PROGRAM, **OPTIONS, args=["overlap"]):
        session.set_breakpoints(PROGRAM, "overlap", condition="tl.program_id(0) == 1")
    session.wait_for_stop("breakpoint", at="overlap")
    session.request("setExceptionBreakpoints", {"filters": ["race"]})
    session.set_breakpoints(PROGRAM)
    stop = session.continue_to_stop(at="overlap")
    assert "elements 12, 13 of out_ptr" in text_of(stop)
    reported = "overlap_kernel is checked for races only from its program (1, 0, 0) on"
    assert reported in session.output("important")
    session.request("setExceptionBreakpoints", {"filters": []})
    session.resume()
    assert session.wait_for_exit() == 0


@pytest.mark.parametrize("arguments", [[], ["--compiled"]])
def test_kernels_of_the_tutorials_have_no_race(session: Session, arguments: list[str]) -> None:
    launch(session, *arguments, program=Fixture("triton_programs/tutorials"))
    assert session.wait_for_exit() == 0
    assert set(session.output("stdout").split()[1::2]) == {"True"}


@pytest.mark.parametrize("name", ["vector_add", "out_of_bounds"])
def test_other_kernels_have_no_race(session: Session, name: str) -> None:
    launch(session, program=Fixture(f"triton_programs/{name}"))
    assert session.wait_for_exit() == 0


def test_a_step_continues_after_the_race(session: Session) -> None:
    launch(session, "overlap")
    session.wait_for_stop("exception", at="overlap")
    session.request("setExceptionBreakpoints", {"filters": []})
    stop = session.next()
    assert stop.frame.name == "overlap"
    session.resume()
    assert session.wait_for_exit() == 0
