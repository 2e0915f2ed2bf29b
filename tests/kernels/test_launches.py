"""Kernels that are compiled for a device: a launch is looked into on copies, and then made as it would have been."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton is an extra of the package, and is not installed")

from tests.client import Fixture, Session, zygote
from tests.client.environments import alone
from tests.kernels.test_kernels import program_of

PROGRAM = Fixture("triton_programs/launched")
TUTORIALS = Fixture("triton_programs/tutorials")
PYTHON: dict[str, Any] = {"python": zygote.python()}


@pytest.fixture(scope="module")
def output() -> list[str]:
    """What the program prints when nobody looks."""
    return alone(PROGRAM.path).stdout.splitlines()


def test_a_breakpoint_stops_on_copies_and_the_launch_continues(session: Session, output: list[str]) -> None:
    session.launch(PROGRAM, "first", **PYTHON)
    stop = session.wait_for_stop("breakpoint", at="first")
    assert program_of(stop) == "(0, 0, 0) of (3, 1, 1)"
    assert [frame.name for frame in stop.user_frames] == ["add_kernel", "add", "main", "<module>"]
    launch = stop.frame["Program"]["launch"].text
    assert launch == f"on copies of its arguments, at launched.py:{PROGRAM.line('launch')}"
    session.next()
    session.next()
    session.next(at="load")
    values = session.next().frame["Locals"]
    assert values["x"].text == "f32[4] = [0.0, 1.0, 2.0, 3.0]"
    session.next(at="call")
    stop = session.step_in(at="helper")
    assert stop.frame["Locals"]["value"].text == "f32[4] = [1.0, 1.0, 1.0, 1.0]"
    session.step_out()
    stop = session.next(at="store")
    # What is changed at a stop is the copy's; another kernel is compiled and launched there, in the midst of this one.
    stop.frame.evaluate("tl.store(x_ptr + offsets, total * 0)")
    stop.frame.evaluate("sum_kernel[(1,)](torch.ones(32), torch.zeros(1), BLOCK=32)")
    stop.frame.evaluate("stand_in_device.launches.pop()[0] == 'sum_kernel' or 1/0")
    session.next(at="launch")
    session.next(at="after")
    # The next launches, and those with shared memory.
    for _ in range(2):
        session.continue_to_stop(at="first")
    session.continue_to_stop(at="first")
    session.set_breakpoints(PROGRAM)
    session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout").splitlines() == output


def test_a_step_in_goes_from_the_launch_to_the_kernel(session: Session, output: list[str]) -> None:
    session.launch(PROGRAM, "launch", "tuned", **PYTHON)
    session.wait_for_stop("breakpoint", at="launch")
    session.next(at="after")
    session.continue_to_stop(at="launch")
    session.step_in(at="first")
    session.step_out(at="launch")
    session.next(at="after")
    session.continue_to_stop(at="launch")
    session.continue_to_stop(at="tuned")
    # The first launch of a tuned kernel measures its configurations.
    session.continue_to_stop(at="tuned")
    session.step_in(at="double")
    session.set_breakpoints(PROGRAM)
    session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout").splitlines() == output


@pytest.mark.parametrize("how", ["option", "condition", "helper"])
def test_the_program_is_chosen(session: Session, output: list[str], how: str) -> None:
    if how == "condition":
        with session.launching(PROGRAM, **PYTHON):
            session.set_breakpoints(PROGRAM, "store", condition="tl.program_id(0) == 2")
    else:
        session.launch(PROGRAM, "store" if how == "option" else "helper", tritonProgram=[2], **PYTHON)
    for _ in range(3):
        stop = session.wait_for_stop("breakpoint", at="helper" if how == "helper" else "store")
        assert program_of(stop) == "(2, 0, 0) of (3, 1, 1)"
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout").splitlines() == output


def test_out_of_bounds_is_found_in_every_launch_and_left_out(session: Session, output: list[str]) -> None:
    with session.launching(PROGRAM, **PYTHON):
        session.request("setExceptionBreakpoints", {"filters": ["out-of-bounds"]})
    stop = session.wait_for_stop("exception", at="beyond")
    assert "load outside x_ptr: 6 of 16 lanes" in stop.description + stop.body["text"]
    session.next(at="sum")
    session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout").splitlines() == output
    reported = "sum_kernel: load outside x_ptr and all other arguments: 6 of 16 lanes are skipped"
    assert reported in session.output("important")


def test_a_process_that_imports_triton_by_itself_stops_in_kernels(session: Session) -> None:
    """Other tests here run in a process that was forked when Triton had been imported."""
    session.launch(PROGRAM, "store", python=[sys.executable])
    stop = session.wait_for_stop("breakpoint", at="store")
    assert program_of(stop) == "(0, 0, 0) of (3, 1, 1)"


@pytest.mark.parametrize("is_wrong", [True, False])
def test_a_launch_that_differs_from_its_interpretation_stops(session: Session, is_wrong: bool) -> None:
    with session.launching(PROGRAM, args=["wrong"] if is_wrong else [], **PYTHON):
        session.request("setExceptionBreakpoints", {"filters": ["kernel-mismatch"]})
    if is_wrong:
        for _ in range(3):
            stop = session.wait_for_stop("exception", at="launch")
            headline = "out_ptr[3] is 9.0 in the interpreter, 10.0 in the launch"
            assert headline in stop.description + stop.body["text"]
            text = "1 of 10 elements of out_ptr (Tensor f32[10] cpu) differs; largest difference 1"
            assert text in stop.body["text"]
            assert stop.frame.name == "add"
            assert stop.frame["Locals"]["out"]["shape"].text == "[10]"
            session.resume()
        stop = session.wait_for_stop("exception", at="shared")
        assert "both" not in stop.body["text"]
        session.resume()
    assert session.wait_for_exit() == 0


def test_triton_of_a_checkout_is_a_library(session: Session, tmp_path: Path) -> None:
    """Its files are in no ``site-packages``; a launch passes through a function of ours that passes for Triton's."""
    installed = importlib.util.find_spec("triton")
    assert installed is not None
    shutil.copytree(Path(str(installed.origin)).parent, tmp_path / "triton", copy_function=_copied)
    with session.launching(PROGRAM, args=["wrong"], python=[sys.executable], env={"PYTHONPATH": str(tmp_path)}):
        session.request("setExceptionBreakpoints", {"filters": ["kernel-mismatch"]})
    stop = session.wait_for_stop("exception", at="launch")
    assert str(tmp_path) in stop.frame.evaluate("triton.__file__").text


def _copied(source: str, copy: str) -> None:
    """Copy a source file; link a library, which is large."""
    if source.endswith(".py"):
        shutil.copyfile(source, copy)
    else:
        Path(copy).symlink_to(source)


def test_products_that_a_device_rounds_are_no_mismatch(session: Session) -> None:
    """``tl.dot`` multiplies in TF32 on a device, as Triton's default is."""
    with session.launching(TUTORIALS, args=["--stand-in"], **PYTHON):
        session.request("setExceptionBreakpoints", {"filters": ["kernel-mismatch"]})
    assert session.wait_for_exit() == 0
    assert "matmul False" in session.output("stdout"), "it is rounded"
    assert "cannot be" not in session.output("important")


def test_what_other_threads_compile_waits_for_the_interpreter(session: Session, tmp_path: Path) -> None:
    """The language that kernels are written in is the interpreter's meanwhile."""
    program = Fixture("triton_programs/two_threads")
    # Nothing is taken from Triton's cache: what is there already is not compiled.
    session.launch(program, "held", env={"TRITON_CACHE_DIR": str(tmp_path)}, **PYTHON)
    session.wait_for_stop("breakpoint", at="held")
    reported = "compiling second_kernel waits until first_kernel, which another thread interprets, has run"
    session.wait_for_output(reported, "important")
    session.set_breakpoints(program)
    session.resume()
    assert session.wait_for_exit() == 0
    printed = session.output("stdout").splitlines()
    assert sorted(printed) == ["first [1.0, 1.0, 1.0, 1.0]", "second [3.0, 3.0, 3.0, 3.0]"]
    assert "cannot be" not in session.output("important")
