"""The exception filter for accesses outside of tensors, in kernels that Triton's interpreter runs."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("triton", reason="Triton is an extra of the package, and is not installed")

from tests.client import Fixture, Session, zygote

PROGRAM = Fixture("triton_programs/out_of_bounds")
OPTIONS = {"triton": "interpret", "python": zygote.python(TRITON_INTERPRET="1")}
TEXT = (
    "x_ptr (Tensor f32[10] cpu) has elements 0 to 9: lane 2 at element 10, lane 3 at element 11, lane 4 at element 12, "
    "lane 5 at element 13, lane 6 at element 14, lane 7 at element 15"
)


def test_an_access_outside_its_tensor_stops_without_a_breakpoint(session: Session) -> None:
    with session.launching(PROGRAM, **OPTIONS):
        session.request("setExceptionBreakpoints", {"filters": ["out-of-bounds"]})
    for number in (1, 2):
        stop = session.wait_for_stop("exception", at="load")
        assert "load outside x_ptr: 6 of 8 lanes" in stop.description + stop.body["text"]
        assert TEXT in stop.body["text"]
        assert stop.frame.name == "double_kernel"
        assert "main" in [frame.name for frame in stop.user_frames]
        values = stop.frame["Locals"]
        assert list(stop.frame.scopes) == ["Locals", "Program", "Globals"]
        program = stop.frame["Program"].texts()
        assert (program["kernel"], program["program_id(0)"], program["grid"]) == ("double_kernel", "1", "(2, 1, 1)")
        assert program["launch"].startswith(f"{number}, at out_of_bounds.py:")
        assert values["offsets"].text == "i32[8] = [8, 9, 10, 11, 12, 13, 14, 15]"
        assert stop.frame.evaluate("x_ptr + offsets").text == "pointer f32[8] into x_ptr: 8 … 15 (6 of 8 outside)"
        information = session.request("exceptionInfo", {"threadId": stop.thread_id})
        assert information["exceptionId"].startswith("Out of bounds: load outside x_ptr")
        assert information["exceptionId"].endswith("6 of 8 lanes")
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout").splitlines() == ["sum 20.0", "compiled 20.0"]


@pytest.mark.parametrize(
    ("condition", "is_met"), [("__tensor__ == 'x_ptr' and 10 in __elements__", True), ("__elements__[0] > 10", False)]
)
def test_the_filter_has_a_condition(session: Session, condition: str, is_met: bool) -> None:
    with session.launching(PROGRAM, **OPTIONS):
        options = [{"filterId": "out-of-bounds", "condition": condition}]
        session.request("setExceptionBreakpoints", {"filters": [], "filterOptions": options})
    if is_met:
        session.wait_for_stop("exception", at="load")
        session.next(at="store")
        session.request("setExceptionBreakpoints", {"filters": []})
        session.resume()
    assert session.wait_for_exit() == 0


def test_a_program_that_is_started_interprets_its_kernels(session: Session) -> None:
    # The first import of Triton is what this is about: nothing is forked.
    session.launch(PROGRAM, "store", triton="interpret", python=[sys.executable])
    stop = session.wait_for_stop("breakpoint", at="store")
    assert stop.frame["Locals"]["x"].text == "f32[8] = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]"
    assert session.finish() == 0
    assert session.output("stdout").splitlines() == ["sum 20.0", "compiled 20.0"]


def test_a_program_that_has_imported_triton_before_is_reported(session: Session) -> None:
    session.launch(PROGRAM, triton="interpret", python=zygote.python())
    session.wait_for_output('the option "triton" has no effect: the program has imported Triton before', "important")
    session.expects_program_traceback = True
    assert session.wait_for_exit() == 1


def test_an_option_that_does_not_exist_is_refused(session: Session) -> None:
    session.initialize()
    text = session.refusal("launch", {"program": str(PROGRAM.path), "triton": "gpu"})
    assert text.startswith('"triton" is "gpu"')
    assert text.endswith('one of "interpret"')
