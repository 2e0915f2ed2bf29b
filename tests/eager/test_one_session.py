"""Ordinary Python, traces and generated code in one session: where breakpoints and steps stop, and in which backend."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.client import Fixture, Session
from tests.client.session import Stop

LOOP = Fixture("eager/compiled_in_loop")
DISABLED = Fixture("eager/disabled_inside")


@contextmanager
def launching(session: Session, fixture: Fixture, **options: Any) -> Iterator[None]:
    with session.launching(fixture, **options):
        yield


def names(stop: Stop) -> list[str]:
    return [frame.name for frame in stop.frames]


def test_every_breakpoint_is_hit_in_tracing_or_in_eager_code(session: Session) -> None:
    """Without the agent, debugpy verifies five of these breakpoints, but never hits them."""
    places = ("helper", "fn1", "fn2", "fn4", "fn5", "loop1", "module")
    with launching(session, LOOP):
        assert all(one.verified for one in session.set_breakpoints(LOOP, *places))
    hit = []
    for _ in range(19):
        stop = session.wait_for_stop("breakpoint")
        hit.append(stop.marker)
        assert stop.frames[-1].name == "<module>"
        if stop.marker == "fn2":
            assert {"x", "y"} <= set(stop.frame["Locals"].children)
            assert stop.frame["Locals"]["y"].text.startswith("Tensor f32[2]")
        if stop.marker == "loop1":
            assert stop.frame["Locals"]["i"].text == str(hit.count("loop1") - 1)
        session.resume()
    assert hit == ["module", *["loop1", "fn1", "helper", "fn2", "fn4", "fn5"] * 3], "in every call"
    assert session.wait_for_exit() == 0


def test_debugpy_copes_with_generated_code_that_cannot_be_hashed(session: Session) -> None:
    """When debugpy traces a code object, it hashes it. If that fails, the program's output has debugpy's traceback."""
    fixture = Fixture("eager/sliced")
    with launching(session, fixture):
        session.set_breakpoints(fixture, "call", "end")
    session.wait_for_stop("breakpoint", at="call")
    session.resume()
    session.wait_for_stop("breakpoint", at="call")
    session.next()
    session.resume()
    session.wait_for_stop("breakpoint", at="end")
    assert session.run_to_end() == 0
    assert "Traceback" not in session.output()
    assert session.output("stdout") == "[[2.0], [4.0]]\n[[2.0], [4.0]]\nend\n"


def test_step_in_lands_in_the_trace_and_steps_come_back_to_the_caller(session: Session) -> None:
    with launching(session, LOOP):
        session.set_breakpoints(LOOP, "call")
    session.wait_for_stop("breakpoint", at="call")
    stop = session.step_in(at="fn1")
    assert names(stop) == ["fn", "loop", "<module>"]
    assert stop.frames[1].marker == "call"
    assert stop.frames[1]["Locals"]["a"].text == "0"
    session.step_in(at="helper")
    session.step_out(at="fn1")
    session.next(at="fn2")
    session.next(at="fn3")
    session.next(at="fn3")  # Dynamo restarted its analysis
    session.next(at="fn4")
    session.next(at="fn5")
    session.next(at="call")
    stop = session.next(at="after")
    assert names(stop) == ["loop", "<module>"]
    session.set_breakpoints(LOOP)
    assert session.run_to_end() == 0


def test_step_out_of_the_outermost_traced_function_lands_on_the_eager_line(session: Session) -> None:
    with launching(session, DISABLED):
        session.set_breakpoints(DISABLED, "fn_last")
    session.wait_for_stop("breakpoint", at="fn_last")
    stop = session.step_out(at="first")
    assert names(stop) == ["main", "<module>"]
    session.next(at="second")
    assert session.finish() == 0


def test_continue_from_a_trace_gives_up_the_eager_step(session: Session) -> None:
    with launching(session, LOOP):
        session.set_breakpoints(LOOP, "call")
    session.wait_for_stop("breakpoint", at="call")
    session.step_in(at="fn1")
    session.continue_to_stop(at="call")
    session.set_breakpoints(LOOP)
    assert session.run_to_end() == 0


def test_a_step_in_that_finds_nothing_to_trace_steps_over(session: Session) -> None:
    """The second call hits the cache, and run-time stepping is off."""
    with launching(session, LOOP, mode="compile-time"):  # else the step would end in generated code
        session.set_breakpoints(LOOP, "call")
    session.wait_for_stop("breakpoint", at="call")
    session.continue_to_stop(at="call")
    session.step_in(at="after")
    session.set_breakpoints(LOOP)
    assert session.run_to_end() == 0


@pytest.mark.parametrize(("option", "expected"), [("replay", "fn"), ("generated", "fn (generated #0)")])
def test_a_step_into_a_cached_call_and_back(session: Session, option: str, expected: str) -> None:
    """``replay`` is the default: the step ends in the function as the user wrote it."""
    with launching(session, LOOP, cachedCalls=option):
        session.set_breakpoints(LOOP, "call")
    session.wait_for_stop("breakpoint", at="call")
    session.continue_to_stop(at="call")
    session.resume("stepIn")
    stop = session.wait_for_stop("step")
    assert stop.frame.name == expected
    assert [name for name in names(stop) if name in ("loop", "<module>")] == ["loop", "<module>"]
    session.set_breakpoints(LOOP)
    assert session.run_to_end() == 0


def test_an_eager_function_called_from_generated_code_is_debugpys(session: Session) -> None:
    with launching(session, DISABLED):
        session.set_breakpoints(DISABLED, "by_hand")
    for caller in ("first", "second"):
        stop = session.wait_for_stop("breakpoint", at="by_hand")
        assert stop.frame["Locals"]["x"].text.startswith("Tensor f32[")
        assert names(stop)[0] == "by_hand"
        assert names(stop)[1] == "fn (generated)", "the generated code that called it is shown as such"
        assert stop.frame_called("main").marker == caller
        session.next(at="by_hand_return")
        session.resume()
    assert session.wait_for_exit() == 0


def test_debugpy_never_stops_in_generated_code(session: Session) -> None:
    """Stepping out of a function that generated code calls skips that code. Stepping over a compiled call does, too."""
    with launching(session, DISABLED):
        session.set_breakpoints(DISABLED, "by_hand", "second")
    session.wait_for_stop("breakpoint", at="by_hand")
    session.continue_to_stop(at="second")
    session.set_breakpoints(DISABLED)
    session.next(at="after")
    assert session.run_to_end() == 0


@pytest.mark.parametrize("mode", ["compile-time", "eager"])
def test_a_mode_binds_a_breakpoint_to_one_debugger(session: Session, mode: str) -> None:
    with launching(session, LOOP):
        answered = session.set_breakpoints(LOOP, "fn1", "loop1", mode=mode)
    assert all(one.verified for one in answered)
    stops = []
    for _ in range(1 if mode == "compile-time" else 3):
        stops.append(session.wait_for_stop("breakpoint").marker)
        session.resume()
    assert stops == (["fn1"] if mode == "compile-time" else ["loop1"] * 3)
    assert session.wait_for_exit() == 0


def test_a_breakpoint_call_in_eager_code_stops(session: Session) -> None:
    with session.configuring("launch", {"code": "x = 1\nbreakpoint()\ny = 2\n", "python": [sys.executable]}):
        pass
    stop = session.wait_for_stop()
    assert stop.frame["Locals"]["x"].text == "1"
    assert session.run_to_end() == 0


def test_without_debugpy_the_session_says_so_and_continues(session: Session, tmp_path: Any) -> None:
    (tmp_path / "debugpy.py").write_text("raise ImportError('broken on purpose')\n")
    with launching(session, LOOP, env={"PYTHONPATH": str(tmp_path)}):
        answered = session.set_breakpoints(LOOP, "fn1", "loop1")
    assert "broken on purpose" in session.output("important")
    assert [one.verified for one in answered] == [True, True]
    session.wait_for_stop("breakpoint", at="fn1")
    assert session.finish() == 0


def test_a_debugpy_that_dies_leaves_the_session_to_the_agent(session: Session, tmp_path: Any) -> None:
    program = tmp_path / "program.py"
    text = LOOP.path.read_text(encoding="utf-8")
    program.write_text(
        text.replace(
            "loop()  #@module",
            "import pydevd, socket, time\n"
            "pydevd.get_global_debugger()._client_socket.shutdown(socket.SHUT_RDWR)\n"
            "while pydevd.get_global_debugger() is not None: time.sleep(0.01)\n"
            "time.sleep(3)\n"
            "loop()  #@module",
        )
    )
    with session.launching(program):
        session.set_breakpoints(program, "fn1")
    session.wait_for_stop("breakpoint", at="fn1")
    assert "no longer debugged" in session.output("important")
    assert session.finish() == 0
