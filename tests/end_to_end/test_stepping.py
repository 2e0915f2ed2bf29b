"""Stepping the symbolic interpreter: over, in, out, by line and by instruction, and pausing."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.client import Fixture, Session, Stop


def test_over_in_and_out_of_a_call(session: Session) -> None:
    session.launch("basic", "first")
    session.wait_for_stop("breakpoint", at="first")
    session.next(at="branch")
    session.next(at="call")
    session.step_in(at="in_helper")
    session.next(at="helper_return")
    # The step stops just after the call, before its result is stored.
    session.step_out(at="call")
    session.next(at="after_call")
    session.request("restart")
    session.wait_for_stop("breakpoint", at="first")
    session.set_breakpoints("basic")
    session.next(at="branch")
    session.next(at="call")
    stop = session.next(at="after_call")
    assert stop.frame["Locals"]["z"].text.startswith("Tensor f32[3, 4]")
    session.next(at="total")
    session.next(at="return")
    # The trace has ended: the step stops in ordinary Python, before the result of the call is stored.
    session.next(at="eager_call")
    session.next(at="print")
    assert session.finish() == 0
    assert session.output("stdout") == "result 87.0\nagain 87.0\n"


def test_by_instruction(session: Session) -> None:
    """``z = x + y`` has at least these instructions: load both, add, store. The value stack grows and shrinks."""
    session.launch("basic", "first", "call")
    stop = session.wait_for_stop("breakpoint", at="first")
    depths = []
    while stop.marker == "first":
        depths.append(_depth(stop))
        top = list(stop.frame["Value Stack"].texts().values())[-1:]
        stop = session.next("instruction")
    # Python 3.13 and newer load both with one instruction.
    assert depths in ([0, 1, 2, 1], [0, 2, 1])
    assert top == ["Tensor f32[3, 4] cpu all 3, requires_grad"], "before STORE_FAST the sum lies on the stack"
    assert stop.marker == "branch"
    stop = session.continue_to_stop(at="call")
    while stop.marker == "call":
        stop = session.step_in("instruction")
    assert stop.frame.name == "scale"
    # Python 3.11 and newer begin a function with an instruction (RESUME) on the line of its def.
    assert stop.frame.line == Fixture("basic").line("in_helper") - (sys.version_info >= (3, 11))
    assert stop.frame["Locals"].texts() == {"tensor": "Tensor f32[3, 4] cpu all 3, requires_grad", "factor": "2"}
    stop = session.step_out("instruction")
    assert (stop.frame.name, stop.marker) == ("compute", "call"), "just after the call, before its result is stored"
    assert _depth(stop) == 1
    session.set_breakpoints("basic")
    assert session.finish() == 0


def test_a_loop_line_by_line(session: Session) -> None:
    session.launch("loops", "loop")
    session.wait_for_stop("breakpoint", at="loop")
    session.set_breakpoints("loops")
    seen = [session.next().marker for _ in range(8)]
    assert seen == ["first_line", "second_line", "third_line", "loop"] * 2
    session.set_breakpoints("loops", "return")
    session.continue_to_stop(at="return")
    assert session.run_to_end() == 0


def test_comprehensions_and_generators(session: Session) -> None:
    session.launch("control_flow", "list_comprehension", "generators_first", "inner")
    session.wait_for_stop("breakpoint", at="list_comprehension")
    # Each iteration runs on the same line, and would hit a breakpoint there again.
    session.set_breakpoints("control_flow", "generators_first", "inner")
    session.next(at="dict_comprehension")
    session.next(at="generator_expression")
    session.next(at="comprehensions_return")

    session.continue_to_stop(at="generators_first")
    session.next(at="generator_loop")
    stop = session.step_in()
    assert stop.frame.name == "pieces"
    while stop.marker != "yield":
        stop = session.next()
    assert [frame.name for frame in stop.frames][:2] == ["pieces", "generators"]
    stop = session.step_out()
    assert stop.frame.name == "generators"
    assert stop.marker in ("generator_loop", "generator_body")
    if stop.marker == "generator_loop":
        session.next(at="generator_body")
    session.next(at="generator_loop")
    session.next(at="generator_body")

    stop = session.continue_to_stop(at="inner")
    assert [frame.name for frame in stop.frames][:2] in (
        ["functions.<locals>.inner", "functions"],
        ["inner", "functions"],
    )
    assert stop.frame["Locals"]["value"].text.startswith("Tensor f32[2]")
    session.step_in(at="functions_return")
    # The caller continues with its line, which calls the next function.
    stop = session.step_in(at="lambda")
    assert "<lambda>" in stop.frame.name
    session.step_out()
    session.set_breakpoints("control_flow")
    assert session.run_to_end() == 0


def test_with_and_try(session: Session) -> None:
    session.launch("control_flow", "with_no_grad")
    session.wait_for_stop("breakpoint", at="with_no_grad")
    for marker in ("in_no_grad", "with_user"):
        _next_to(session, marker)
    stop = session.step_in()
    while stop.marker != "enter":
        assert stop.marker == "with_user", "into the constructor, or into __enter__"
        stop = session.step_in()
    assert stop.frame.name == "Doubler.__enter__"
    session.step_out()
    _next_to(session, "in_user")
    for marker in (
        "try",
        "in_try",
        "raise",
        "except",
        "in_except",
        "finally",
        "suppress",
        "in_suppress",
        "blocks_return",
    ):
        _next_to(session, marker)
    assert session.run_to_end() == 0
    assert "[30.0, 30.0]" in session.output("stdout")


def test_into_a_module_without_torch_in_between(session: Session) -> None:
    session.launch("model", "model_call")
    session.wait_for_stop("breakpoint", at="model_call")
    stop = session.step_in(at="block_first")
    assert [frame.name for frame in stop.frames][:2] == ["Block.forward", "Model.forward"]
    assert stop.frame["Locals"]["hidden"].text.startswith("Tensor f32[3, 4]")
    session.next(at="block_linear")
    # Linear, LayerNorm and relu are installed code, so a step in stops at the program's next line.
    session.step_in(at="block_return")
    stop = session.step_out(at="model_call")
    assert stop.frame.name == "Model.forward"
    session.next(at="model_loop")
    session.set_breakpoints("model", "model_count")
    session.continue_to_stop(at="model_count")
    assert session.run_to_end() == 0


def test_into_the_next_function_that_is_compiled(session: Session) -> None:
    """A step over the end of a trace stops at the call of the function; a step in stops in the next trace."""
    session.launch("control_flow", "comprehensions_return")
    session.wait_for_stop("breakpoint", at="comprehensions_return")
    session.next(at="call_comprehensions")
    session.next(at="call_generators")
    stop = session.step_in(at="generators_first")
    assert stop.description.startswith("Tracing generators")
    assert session.run_to_end() == 0


def test_into_the_next_function_that_is_compiled_without_eager_debugging(session: Session) -> None:
    session.launch("control_flow", "comprehensions_return", eager=False)  # nothing can stop in between
    session.wait_for_stop("breakpoint", at="comprehensions_return")
    session.next(at="generators_first")
    assert session.run_to_end() == 0


def test_pause_and_continue(session: Session) -> None:
    session.launch("endings/runs_on")
    session.wait_for_output("running")
    thread = session.client.threads()[0]
    session.client.pause(thread.id)
    stop = session.wait_for_stop("pause")
    assert stop.thread_id == thread.id
    assert any(frame.path == Fixture("endings/runs_on").path for frame in stop.frames)
    session.resume()
    session.client.pause(thread.id)
    session.wait_for_stop("pause")
    session.request("terminate")
    session.timeline.expect_event("terminated")


def _depth(stop: Stop) -> int:
    """Return the number of values on the value stack."""
    return len([name for name in stop.frame["Value Stack"].children if name[0].isdigit()])


def _next_to(session: Session, marker: str) -> None:
    """Step over to the marker; the steps may pass a ``with`` again at its exit."""
    stop = session.next()
    for _ in range(3):
        if stop.marker == marker:
            return
        assert stop.marker in ("with_no_grad", "with_user", "suppress", "try", "enter", "exit"), stop.frame
        stop = session.next()
    raise AssertionError(f"not at {marker} but at {stop.frame}")


LAYERS = """
import torch

def chosen(x):
    if x.sum() > 0:
        x = x * 2
    return x

def layer(x):
    y = x + 1  #@first
    return chosen(y) - 1  #@last

@torch.compile(backend="eager")
def model(x):
    for _ in range(2):
        x = layer(x)
    return x

print(model(torch.ones(2)).tolist())
"""


def test_a_step_before_a_breakpoint_that_was_reported_too_early(session: Session, tmp_path: Path) -> None:
    """A graph break in the loop makes Dynamo skip ``model`` and trace ``layer`` again; the step ends at its start.

    Without the step, the same execution of the breakpoint is not reported again.
    """
    path = tmp_path / "layers.py"
    path.write_text(LAYERS, encoding="utf-8")
    session.launch(path, "last")
    session.wait_for_stop("breakpoint", at="last")
    session.next(at="first")
    session.continue_to_stop(at="last")
    session.continue_to_stop(at="last")
    session.request("restart")
    session.wait_for_stop("breakpoint", at="last")
    session.continue_to_stop(at="last")
    assert session.run_to_end() == 0


def test_disassembly_of_what_is_traced(session: Session) -> None:
    session.launch("basic", "total")
    stop = session.wait_for_stop("breakpoint", at="total")
    reference = stop.frame.data.instruction_pointer_reference
    arguments = {"memoryReference": reference, "instructionOffset": -500, "instructionCount": 1000}
    rows = session.request("disassemble", arguments)["instructions"]
    assert len(rows) == 1000
    assert len({row["address"] for row in rows}) == 1000
    current = rows[500]
    assert current["address"] == reference
    assert current["line"] == stop.frame.line
    assert current["instruction"].startswith("LOAD_FAST")
    assert rows[0]["presentationHint"] == "invalid"
    after = session.next(granularity="instruction")
    assert after.frame.data.instruction_pointer_reference == rows[501]["address"]
