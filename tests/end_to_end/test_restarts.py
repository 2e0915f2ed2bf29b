"""Graph breaks: Dynamo starts its analysis again, and what follows is a resume function."""

from __future__ import annotations

from pathlib import Path

from dynamo_dap.protocol.types import SourceBreakpoint
from tests.client import Fixture, Session


def test_a_breakpoint_is_hit_once_and_the_rest_is_a_frame_of_its_own(session: Session) -> None:
    session.launch("graph_break", "in_loop", "after_break")
    seen = []
    for _ in range(3):
        stop = session.wait_for_stop("breakpoint", at="in_loop")
        seen.append(stop.frame["Locals"]["index"].text)
        session.resume()
    assert seen == ["0", "1", "2"]
    stop = session.wait_for_stop("breakpoint", at="after_break")
    assert stop.frame.name.startswith("train_step (resumed at line ")
    assert stop.frame["Locals"]["scaled"].text.startswith("Tensor f32[2, 3]")
    assert not [name for name in stop.frame["Locals"].children if name.startswith("___")]
    assert [frame.name for frame in stop.frames][-2:] == ["main", "<module>"]
    assert "torch_dynamo_resume" not in " ".join(frame.name for frame in stop.frames)
    assert session.run_to_end() == 0
    assert session.output("stdout") == "sum 42.0\n"


LOOPING = """
import torch

def helper(x, n):
    y = x + n
    z = y * 2  #@helped
    torch._dynamo.graph_break()
    return z

class Block(torch.nn.Module):
    def forward(self, x):
        x = x + 1
        return helper(x, 1)  #@block

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

model = torch.compile(Model(), backend="eager")
for call in range(3):
    model(torch.full((2,), call + 1.0))
"""


def looping(folder: Path) -> Fixture:
    program = Fixture(folder / "looping.py")
    program.path.write_text(LOOPING, encoding="utf-8")
    return program


def test_a_line_stops_once_per_execution_if_dynamo_skips_the_outer_function(session: Session, tmp_path: Path) -> None:
    """Dynamo skips ``Model.forward`` for a break in its loop, after it has traced the helper as a part of it."""
    session.launch(looping(tmp_path), "helped")
    values = []
    for number in range(6):
        stop = session.wait_for_stop("breakpoint", at="helped") if number == 0 else session.go_on(at="helped")
        values.append(stop.frame.evaluate("y[0].item()").text)
    assert values == ["3.0", "8.0", "4.0", "10.0", "5.0", "12.0"]
    assert session.run_to_end() == 0


def test_log_messages_and_hit_counts_count_each_execution_once(session: Session, tmp_path: Path) -> None:
    """As for stops."""
    program = looping(tmp_path)
    with session.launching(program):
        session.set_breakpoints(
            program,
            SourceBreakpoint(line=program.line("block"), log_message="x is {x[0].item()}"),
            SourceBreakpoint(line=program.line("helped"), hit_condition="3"),
        )
    stop = session.wait_for_stop("breakpoint", at="helped")
    assert stop.frame.evaluate("y[0].item()").text == "4.0"
    assert session.run_to_end() == 0
    said = [line for line in session.output("console").splitlines() if line.startswith("x is")]
    assert said == [f"x is {value}.0" for value in (2, 7, 3, 9, 4, 11)]


def test_a_step_over_a_graph_break_says_which_attempt_it_is(session: Session) -> None:
    session.launch("graph_break", "before_break")
    stop = session.wait_for_stop("breakpoint", at="before_break")
    assert "attempt" not in stop.description
    session.next(at="break")
    stop = session.next()
    if stop.marker == "break":
        assert "attempt 2" in stop.description
        stop = session.next()
    assert stop.marker == "after_break"
    assert stop.frame.name.startswith("train_step (resumed at line ")
    session.next(at="return")
    assert session.run_to_end() == 0


def test_pause_on_restart_hits_again(session: Session) -> None:
    session.launch("graph_break", "in_loop", pauseOnRestart=True)
    attempts = []
    for _ in range(6):
        stop = session.wait_for_stop("breakpoint", at="in_loop")
        attempts.append("attempt 2" in stop.description)
        session.resume()
    assert attempts == [False] * 3 + [True] * 3
    assert session.wait_for_exit() == 0


def test_recompiles_are_new_compiles(session: Session) -> None:
    """Each recompile traces again: the breakpoint is hit with another compile id; in a cached call with that one's."""
    session.launch("recompiles", "mode")
    identities = []
    modes = []
    for _ in range(5):
        stop = session.wait_for_stop("breakpoint", at="mode")
        identities.append(stop.frame["Compile"].texts())
        modes.append(stop.frame["Locals"]["mode"].text)
        session.resume()
    assert session.wait_for_stop("breakpoint", at="mode").description == "Call 6 of select [0/0]"
    assert session.run_to_end() == 0
    assert [mode.split()[0] for mode in modes] == ["'double'", "5", "'other'", "'other'", "'double'"]
    ids = [next(text for name, text in one.items() if "id" in name.lower()) for one in identities]
    assert len(set(ids)) == 5, ids
