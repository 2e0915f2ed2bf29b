"""Breakpoints in backends that the program defines, which torch calls during a compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client import Fixture, Session

PROGRAM = """
import functools
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.compile_fx import compile_fx

def count(graph):
    return len(graph.graph.nodes)  #@helper

def plain(graph, inputs):
    found = count(graph)  #@plain
    return graph.forward

def scaled(graph, inputs, *, scale):
    return plain(graph, inputs)  #@scaled

class Backend:
    def __call__(self, graph, inputs):
        return graph.forward  #@object

def forward_compiler(graph, inputs):
    return graph  #@forward

def backward_compiler(graph, inputs):
    return graph  #@backward

def inductor(graph, inputs):
    print("through Inductor", count(graph))
    return compile_fx(graph, inputs)  #@inductor

BACKENDS = {
    "plain": plain,
    "partial": functools.partial(scaled, scale=2),
    "object": Backend(),
    "aot": aot_autograd(fw_compiler=forward_compiler, bw_compiler=backward_compiler),
    "inductor": inductor,
}

def function(x):
    return x.sin() * 2  #@function

for name, backend in BACKENDS.items():
    compiled = torch.compile(function, backend=backend)
    for size in (3, 4):
        x = torch.ones(size, requires_grad=True)
        compiled(x).sum().backward()
    torch._dynamo.reset()
print("done")
"""


@pytest.fixture
def program(tmp_path: Path) -> Fixture:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return Fixture(path)


def test_a_breakpoint_in_a_backend_stops_in_each_compile(session: Session, program: Fixture) -> None:
    session.launch(program, "plain", "scaled", "object", "forward", "inductor")
    expected = [*["plain"] * 2, *["scaled", "plain"] * 2, *["object"] * 2, *["forward"] * 2, *["inductor"] * 2]
    stop = session.wait_for_stop("breakpoint")
    stops = [stop.marker]
    for _ in expected[1:]:
        stop = session.continue_to_stop()
        stops.append(stop.marker)
    assert stops == expected
    assert [frame.name for frame in stop.user_frames] == ["inductor", "<module>"]
    assert session.run_to_end() == 0
    assert session.output("stdout").endswith("done\n")


def test_steps_and_values_in_a_backend(session: Session, program: Fixture) -> None:
    session.launch(program, "plain", "function")
    session.wait_for_stop("breakpoint", at="function")
    session.continue_to_stop(at="plain")
    stop = session.step_in(at="helper")
    assert stop.frame.evaluate("graph.graph.nodes").text
    stop = session.step_out()
    assert stop.frame.name == "plain"
    stop = session.next()
    assert stop.frame.evaluate("found").text == "4"
    session.continue_to_stop(at="function")
    session.finish()
