"""Kernels in compiled functions, of a device: those that Inductor generated, and those of the program's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton is an extra of the package, and is not installed")

from tests.client import Fixture, Session, zygote

PROGRAM = Fixture("triton_programs/generated")


def options(folder: Path, *args: str) -> dict[str, Any]:
    """Launch options; what Inductor generates is written to ``folder``."""
    return {"python": zygote.python(), "args": [str(folder), *args]}


def kernel_of(folder: Path) -> tuple[Path, list[str]]:
    """The file of the kernel that Inductor generated, and its lines."""
    # The output code has it as a text.
    texts = {path: path.read_text() for path in folder.rglob("*.py")}
    kernels = {path: text for path, text in texts.items() if "async_compile" not in text}
    ((path, text),) = ((path, text) for path, text in kernels.items() if "def triton_per_fused" in text)
    return path, text.splitlines()


def test_a_breakpoint_in_a_kernel_that_inductor_generated_is_hit(session: Session, tmp_path: Path) -> None:
    session.launch(PROGRAM, "call", **options(tmp_path))
    session.wait_for_stop("breakpoint", at="call")
    session.continue_to_stop(at="call")
    path, lines = kernel_of(tmp_path)
    line = next(number for number, text in enumerate(lines, start=1) if "libdevice.tanh" in text)
    session.set_breakpoints(PROGRAM)
    session.set_breakpoints(path, line)
    for _ in range(2):
        session.resume()
        stop = session.wait_for_stop("breakpoint")
        assert (stop.frame.path, stop.frame.line) == (path, line)
        assert stop.frame.name.startswith("triton_per_fused_")
        facts = stop.frame["Program"].texts()
        assert facts["in_ptr0"].startswith("Tensor f32[3, 64] cpu ")
        session.next()
        stop = session.next()
        assert "f32[" in stop.frame["Locals"]["tmp1"].text
    session.set_breakpoints(path)
    session.resume()
    assert session.wait_for_exit() == 0


def test_the_explorer_leads_to_the_file_in_which_breakpoints_are_hit(session: Session, tmp_path: Path) -> None:
    session.launch(PROGRAM, "call", explore=True, **options(tmp_path))
    session.wait_for_stop("breakpoint", at="call")
    session.continue_to_stop(at="call")
    (compiled,) = session.request("dynamoStages", {"compileId": "0/0"})["compiles"]
    stage = next(each for each in compiled["stages"] if each["id"] == "forward-kernels")
    text = session.request("source", {"source": stage["source"], "sourceReference": 0})["content"].splitlines()
    for marker in ("tanh", "sum"):
        place = f"# generated.py:{PROGRAM.line(marker)} in row_sums: "
        assert any(line.startswith(place) for line in text), text
    path, lines = kernel_of(tmp_path)
    assert f"# kernel path: {path}" in text
    store = next(number for number, line in enumerate(lines, start=1) if "tl.store(" in line)
    session.set_breakpoints(PROGRAM)
    session.set_breakpoints(path, store)
    for _ in range(2):
        session.resume()
        stop = session.wait_for_stop("breakpoint")
        assert (stop.frame.path, stop.frame.line) == (path, store)
        session.next()
    session.set_breakpoints(path)
    session.resume()
    assert session.wait_for_exit() == 0


@pytest.mark.parametrize("is_wrong", [True, False])
def test_what_a_generated_kernel_wrote_is_compared(session: Session, tmp_path: Path, is_wrong: bool) -> None:
    with session.launching(PROGRAM, **options(tmp_path, *(["wrong"] if is_wrong else []))):
        session.request("setExceptionBreakpoints", {"filters": ["kernel-mismatch"]})
    if is_wrong:
        for _ in range(3):
            stop = session.wait_for_stop("exception")
            assert stop.frame.name == "Runner.call"
            assert [frame.marker for frame in stop.user_frames if frame.name == "main"] == ["call"]
            assert "out_ptr0[1] is" in stop.description + stop.body["text"]
            assert "1 of 3 elements of out_ptr0 (Tensor f32[3] cpu) differs" in stop.body["text"]
            session.resume()
    assert session.wait_for_exit() == 0
    assert "cannot be" not in session.output("important")


def test_the_programs_own_kernel_stops_in_compiled_functions(session: Session, tmp_path: Path) -> None:
    session.launch(PROGRAM, "load", **options(tmp_path))
    for _ in range(4):
        stop = session.wait_for_stop("breakpoint", at="load")
        assert stop.frame.name == "double_kernel"
        assert stop.frame["Program"]["grid"].text == "(3, 1, 1)"
        session.next(at="store")
        session.resume()
    assert session.wait_for_exit() == 0
