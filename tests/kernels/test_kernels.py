"""Stops and values in kernels that Triton's interpreter runs, launched from ordinary Python and compiled functions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton is an extra of the package, and is not installed")

from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Fixture, Session, zygote
from tests.client.session import Frame, Stop
from tests.client.timeline import DEADLINE

ADD = Fixture("triton_programs/vector_add")


def options(**more: Any) -> dict[str, Any]:
    """Launch options; the process that programs are forked from has imported Triton with its interpreter."""
    return {"triton": "interpret", "python": zygote.python(TRITON_INTERPRET="1"), **more}


def program_of(stop: Stop) -> str:
    """Which program of the grid a stop is in."""
    facts = stop.frame["Program"].texts()
    return f"({facts['program_id(0)']}, {facts['program_id(1)']}, {facts['program_id(2)']}) of {facts['grid']}"


def test_a_kernel_is_stepped_in_its_first_program(session: Session) -> None:
    session.launch(ADD, "first", **options())
    stop = session.wait_for_stop("breakpoint", at="first")
    assert program_of(stop) == "(0, 0, 0) of (3, 1, 1)"
    assert [frame.name for frame in stop.user_frames] == ["add_kernel", "add", "main", "<module>"]
    session.next()
    session.next()
    session.next(at="pointers")
    session.next(at="load")
    values = session.next().frame["Locals"]
    assert values["x"].text == "f32[4] = [0.0, 1.0, 2.0, 3.0]"
    assert values["pointers"].text == "pointer f32[4] into x_ptr: 0 … 3"
    assert values["mask"].text == "i1[4]: 4 of 4 are true"
    assert values["BLOCK"].text == "4"
    session.next(at="call")
    stop = session.step_in(at="helper")
    assert stop.frame["Locals"]["value"].text == "f32[4] = [1.0, 1.0, 1.0, 1.0]"
    session.step_out()
    session.next(at="store")
    session.next(at="launch")
    session.next(at="after")
    assert session.finish() == 0


def test_the_program_has_a_scope_of_its_own(session: Session) -> None:
    session.launch(ADD, "first", "helper", "compiled_call", **options())
    launch = f"{Path(ADD.path).name}:{ADD.line('launch')}"
    stop = session.wait_for_stop("breakpoint", at="first")
    assert scopes(stop.frame) == ["Locals", "Program", "Globals"]
    facts = stop.frame["Program"].texts()
    output = facts.pop("out_ptr")
    assert output.startswith("Tensor f32[10] cpu")
    assert facts == {
        "kernel": "add_kernel",
        "launch": f"1, at {launch}",
        "grid": "(3, 1, 1)",
        "program_id(0)": "0",
        "program_id(1)": "0",
        "program_id(2)": "0",
        "num_programs(0)": "3",
        "num_programs(1)": "1",
        "num_programs(2)": "1",
        "x_ptr": "Tensor f32[10] cpu 0…9",
        "y_ptr": "Tensor f32[10] cpu all 1",
        "BLOCK": "4",
    }
    assert "Program" not in stop.frame["Locals"].texts()

    # Pages, expressions, and the tensors' own children are as elsewhere.
    reference = stop.frame["Program"].variable.variables_reference
    page = session.client.variables(reference, start=3, count=2)
    assert [(one.name, one.evaluate_name) for one in page] == [
        ("program_id(0)", "tl.program_id(0)"),
        ("program_id(1)", "tl.program_id(1)"),
    ]
    assert stop.frame.evaluate("tl.program_id(0)").text == "i32 = 0"
    assert stop.frame.evaluate("tl.num_programs(0)").text == "i32 = 3"
    assert stop.frame["Program"]["x_ptr"]["shape"].text == "[10]"
    for name in ("kernel", "program_id(0)"):
        assert name in session.refusal("setVariable", {"variablesReference": reference, "name": name, "value": "7"})

    # Below the kernel there is ordinary Python; a helper is of the kernel's program.
    for caller in stop.user_frames[1:]:
        assert scopes(caller) == ["Locals", "Globals"]
    stop = session.continue_to_stop(at="helper")
    assert scopes(stop.frame) == ["Locals", "Program", "Globals"]
    assert stop.frame["Program"].texts() == facts | {"out_ptr": output}

    session.set_breakpoints(ADD, "store", "compiled_call")
    session.continue_to_stop(at="store")
    for number, size in ((2, 10), (3, 10), (4, 6)):
        stop = session.continue_to_stop(at="compiled_call")
        assert "Program" not in scopes(stop.frame)
        stop = session.continue_to_stop(at="store")
        facts = stop.frame["Program"].texts()
        assert facts["launch"].startswith(f"{number}, at {Path(ADD.path).name}:")
        assert facts["grid"] == f"({-(-size // 4)}, 1, 1)"
        assert facts["x_ptr"].startswith(f"Tensor f32[{size}] cpu")
    assert session.finish() == 0


def scopes(frame: Frame) -> list[str]:
    """The names of a frame's scopes, in order."""
    return list(frame.scopes)


def test_a_step_in_goes_from_the_launch_to_the_kernel(session: Session) -> None:
    session.launch(ADD, "launch", **options())
    session.wait_for_stop("breakpoint", at="launch")
    session.step_in(at="first")
    session.step_out(at="launch")
    session.next(at="after")
    assert session.finish() == 0


def test_a_program_outside_the_grid_is_reported(session: Session) -> None:
    session.launch(ADD, "store", **options(tritonProgram=[0, 7]))
    assert session.wait_for_exit() == 0
    reported = 'the kernel add_kernel has no program (0, 7, 0), which "tritonProgram" asks for: its grid is (3, 1, 1)'
    assert reported in session.output("important")


def test_a_block_can_be_shown_as_a_tensor(session: Session) -> None:
    session.launch(ADD, "call", **options())
    stop = session.wait_for_stop("breakpoint", at="call")
    reference = stop.frame["Locals"]["x"].variable.variables_reference
    part = session.request("dynamoTensor", {"variablesReference": reference, "startRow": 1, "rowCount": 2})
    assert (part["shape"], part["elements"]) == ([4], [["1.0"], ["2.0"]])
    first = session.client.variables(reference, only="indexed", start=1, count=2)
    assert [(one.name, one.value) for one in first] == [("1", "1.0"), ("2", "2.0")]
    assert session.finish() == 0


def test_steps_pass_over_what_the_interpreter_calls(session: Session) -> None:
    """Where libraries are debugged as well."""
    session.launch(ADD, "launch", **options(justMyCode=False))
    session.wait_for_stop("breakpoint", at="launch")
    stop = session.step_in(at="first")
    assert [frame.name for frame in stop.user_frames] == ["add_kernel", "add", "main", "<module>"]
    session.set_breakpoints(ADD, "load")
    session.continue_to_stop(at="load")
    session.step_in()
    session.step_in(at="call")
    session.step_in(at="helper")
    session.step_out()
    session.step_in(at="store")
    session.step_out(at="launch")
    session.next(at="after")
    assert session.finish() == 0


@pytest.mark.parametrize("how", ["option", "condition"])
def test_the_program_is_chosen(session: Session, how: str) -> None:
    if how == "option":
        session.launch(ADD, "store", **options(tritonProgram=[2]))
    else:
        with session.launching(ADD, **options()):
            session.set_breakpoints(ADD, "store", condition="tl.program_id(0) == 2")
    stop = session.wait_for_stop("breakpoint", at="store")
    assert program_of(stop) == "(2, 0, 0) of (3, 1, 1)"
    values = stop.frame["Locals"]
    assert values["mask"].text == "i1[4]: 2 of 4 are true"
    assert values["x"].text == "f32[4] = [8.0, 9.0, 0.0, 0.0] (2 of 4 masked)"
    session.next(at="launch")
    session.next(at="after")
    assert session.finish() == 0


def test_a_breakpoint_beside_one_with_a_condition_stops_in_the_first_program(session: Session) -> None:
    with session.launching(ADD, **options()):
        places = [
            SourceBreakpoint(line=ADD.line("load")),
            SourceBreakpoint(line=ADD.line("store"), condition="tl.program_id(0) == 1"),
        ]
        session.set_breakpoints(ADD, *places)
    assert program_of(session.wait_for_stop("breakpoint", at="load")).startswith("(0, 0, 0)")
    assert program_of(session.continue_to_stop(at="store")).startswith("(1, 0, 0)")
    session.set_breakpoints(ADD, "after")
    session.continue_to_stop(at="after")
    assert session.finish() == 0


def test_each_call_of_a_compiled_function_stops_in_its_kernel(session: Session) -> None:
    session.launch(ADD, "compiled_call", **options())
    session.wait_for_stop("breakpoint", at="compiled_call")
    session.set_breakpoints(ADD, "store")
    for size in (10, 10, 6):
        stop = session.continue_to_stop(at="store")
        assert program_of(stop) == f"(0, 0, 0) of ({-(-size // 4)}, 1, 1)"
        assert stop.frame["Locals"]["total"].text == "f32[4] = [6.0, 7.0, 8.0, 9.0]"
    assert session.finish() == 0
    assert session.output("stdout").splitlines() == ["sum 105.0", "compiled 115.0", "compiled 115.0", "compiled 57.0"]


def test_a_kernel_beside_the_trace_of_its_function(session: Session) -> None:
    """Values at a stop come from launches apart from the program's, which nothing stops in."""
    session.launch(ADD, "compiled_call", **options())
    session.wait_for_stop("breakpoint", at="compiled_call")
    session.set_breakpoints(ADD, "compiled_return", "store")
    for call in range(2):
        # The first call is traced, the second is replayed: the kernel runs after that.
        stop = session.continue_to_stop(at="compiled_return")
        assert stop.frame["Locals"]["out"].text.startswith("Tensor f32[10] cpu"), call
        assert stop.frame.evaluate("out.sum().item()").text == "105.0"
        assert stop.frame.evaluate("out.sum().item()").text == "105.0"
        stop = session.continue_to_stop(at="store")
        assert stop.frame["Locals"]["total"].text == "f32[4] = [6.0, 7.0, 8.0, 9.0]"
    assert session.finish() == 0
    assert session.output("stdout").splitlines() == ["sum 105.0", "compiled 115.0", "compiled 115.0", "compiled 57.0"]


def test_the_terminal_shows_the_program_of_a_kernel(tmp_path: Path) -> None:
    typed = ["scopes", "expand program", "print tl.program_id(0)", "where", "up", "scopes", "continue"]
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "dynamo_dap", "debug", ADD.path, "--triton=interpret"),
            f"--break={ADD.path}:{ADD.line('helper')} if tl.program_id(0) == 1",
            *(part for line in typed for part in ("--command", line)),
        ],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm", "COLUMNS": "150"},
        input="",
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    rest = ran.stdout
    for text in (
        *("(dynamo) scopes", "Locals", "Program", "Globals", "(dynamo) expand program", "kernel = add_kernel"),
        f"launch = 1, at vector_add.py:{ADD.line('launch')}",
        *("grid = (3, 1, 1)", "program_id(0) = 1", "num_programs(0) = 3", "▸ x_ptr = Tensor f32[10] cpu", "BLOCK = 4"),
        *("print tl.program_id(0)", "i32 = 1", "#0  scaled", "#1  add_kernel", "(dynamo) up", "Program"),
    ):
        assert text in rest, (text, ran.stdout, ran.stderr)
        rest = rest.partition(text)[2]
