"""Kernels on a GPU: what the interpreter wrote equals what the kernel wrote, and stops are hit.

In a rehearsal Triton compiles the kernels as for a GPU, and launches are functions of torch's (``stand_in_device``).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton is an extra of the package, and is not installed")

from tests.client import Fixture, Session
from tests.gpu.needs import CARDS, needs_device
from tests.kernels.test_generated_kernels import kernel_of
from tests.kernels.test_kernels import program_of

pytestmark = needs_device

LAUNCHED = Fixture("triton_programs/launched")
GENERATED = Fixture("triton_programs/generated")
TUTORIALS = Fixture("triton_programs/tutorials")
AUTOTUNED = Fixture("triton_programs/autotuned")
ON_DEVICE = ["cuda"] if CARDS else []
# A process that was forked has no CUDA.
PYTHON: dict[str, Any] = {"python": [sys.executable]}


def test_what_the_interpreter_wrote_equals_what_the_kernels_wrote(session: Session) -> None:
    with session.launching(TUTORIALS, args=["--cuda" if CARDS else "--stand-in"], **PYTHON):
        session.request("setExceptionBreakpoints", {"filters": ["kernel-mismatch"]})
    assert session.wait_for_exit() == 0
    assert "cannot be interpreted" not in session.output("important")
    assert "cannot be compared" not in session.output("important")


def test_kernels_that_inductor_generated_are_compared_and_stopped_in(session: Session, tmp_path: Path) -> None:
    args = [str(tmp_path), *ON_DEVICE]
    with session.launching(GENERATED, args=args, **PYTHON):
        session.request("setExceptionBreakpoints", {"filters": ["kernel-mismatch"]})
        session.set_breakpoints(GENERATED, "call")
    session.wait_for_stop("breakpoint", at="call")
    session.continue_to_stop(at="call")
    # Compiled in another process, read in this one.
    path, lines = kernel_of(tmp_path)
    store = next(number for number, line in enumerate(lines, start=1) if "tl.store(" in line)
    session.set_breakpoints(GENERATED, "load")
    session.set_breakpoints(path, store)
    for _ in range(2):
        session.resume()
        stop = session.wait_for_stop("breakpoint")
        assert (stop.frame.path, stop.frame.line) == (path, store)
    for _ in range(4):
        session.continue_to_stop(at="load")
    session.resume()
    assert session.wait_for_exit() == 0
    assert "cannot be" not in session.output("important")


def test_the_first_element_that_differs_is_shown(session: Session) -> None:
    with session.launching(LAUNCHED, args=["wrong", *ON_DEVICE], **PYTHON):
        session.request("setExceptionBreakpoints", {"filters": ["kernel-mismatch"]})
    for _ in range(3):
        stop = session.wait_for_stop("exception", at="launch")
        headline = "out_ptr[3] is 9.0 in the interpreter, 10.0 in the launch"
        assert headline in stop.description + stop.body["text"]
        device = "cuda:0" if CARDS else "cpu"
        assert f"1 of 10 elements of out_ptr (Tensor f32[10] {device}) differs" in stop.body["text"]
        session.resume()
    session.wait_for_stop("exception", at="shared")
    session.request("setExceptionBreakpoints", {"filters": []})
    session.resume()
    assert session.wait_for_exit() == 0


def test_a_breakpoint_stops_on_copies_and_the_launch_continues(session: Session) -> None:
    session.launch(LAUNCHED, "store", args=ON_DEVICE, **PYTHON)
    for _ in range(3):
        stop = session.wait_for_stop("breakpoint", at="store")
        assert program_of(stop) == "(0, 0, 0) of (3, 1, 1)"
        assert stop.frame["Locals"]["x"].text == "f32[4] = [0.0, 1.0, 2.0, 3.0]"
        session.resume()
    session.wait_for_stop("breakpoint", at="store")
    session.set_breakpoints(LAUNCHED)
    session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout").splitlines()[:3] == ["sum 105.0"] * 3


def test_an_autotuned_kernel_stops_in_launches_that_are_not_measured(session: Session) -> None:
    with session.launching(AUTOTUNED, args=ON_DEVICE, **PYTHON):
        session.request("setExceptionBreakpoints", {"filters": ["kernel-mismatch"]})
        session.set_breakpoints(AUTOTUNED, "store")
    stop = session.wait_for_stop("breakpoint", at="store")
    assert program_of(stop).startswith("(0, 0, 0) of ")
    session.set_breakpoints(AUTOTUNED)
    session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout").split() == ["True"]
