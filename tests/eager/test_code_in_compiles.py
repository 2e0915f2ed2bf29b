"""Breakpoints in the program's code that torch calls inside a compile: passes, patterns, lowerings, fake kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client import Fixture, Session
from tests.client.environments import alone

PROGRAM = """
import torch
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.lowering import lowerings, register_lowering
from torch._inductor.pattern_matcher import PatternMatcherPass, fwd_only, register_replacement

runs = []

@torch.library.custom_op("mine::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@double.register_fake
def _(x):
    runs.append("fake")
    return torch.empty_like(x)  #@fake

torch.library.define("mine::triple", "(Tensor x) -> Tensor")

@torch.library.impl("mine::triple", "CPU")
def triple(x):
    return x * 3

@torch.library.register_fake("mine::triple")
def triple_like(x):
    runs.append("registered")
    return torch.empty_like(x)  #@registered

@register_lowering(torch.ops.mine.triple.default)
def lower_triple(x):
    runs.append("lowering")
    three = 3  #@lowering
    return lowerings[torch.ops.aten.mul.Tensor](x, three)

def helper(graph):
    return len(graph.nodes)  #@helper

def before(graph):
    runs.append("pre")
    found = helper(graph)  #@pre
    return found

class After(CustomGraphPass):
    def __call__(self, graph):
        runs.append("post")
        patterns.apply(graph)  #@post

    def uuid(self):
        return None

def joint(graph):
    runs.append("joint")
    return None  #@joint

def check(match):
    runs.append("check")
    return True  #@check

def search(x):
    return x.relu().sin()

def replacement(x):
    runs.append("replacement")
    return x.relu().cos()  #@replacement

patterns = PatternMatcherPass()
register_replacement(search, replacement, [torch.ones(3)], fwd_only, patterns, extra_check=check)
runs.clear()

config.pre_grad_custom_pass = before
config.joint_custom_post_pass = joint
config.post_grad_custom_post_pass = After()

def function(x):
    y = double(x).relu().sin()  #@function
    return torch.ops.mine.triple(y) + 1

compiled = torch.compile(function, dynamic=False)
for size in (3, 3, 4):
    compiled(torch.ones(size))
print(*runs)
"""

KINDS = ["fake", "registered", "lowering", "pre", "post", "joint", "check", "replacement"]


@pytest.fixture
def program(tmp_path: Path) -> Fixture:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return Fixture(path)


def test_breakpoints_stop_at_each_execution_in_each_compile(session: Session, program: Fixture) -> None:
    expected = alone(program.path).stdout.split()
    assert all(expected.count(kind) >= 2 for kind in KINDS)
    session.launch(program, *KINDS)
    stops = [session.wait_for_stop("breakpoint").marker]
    stops += [session.continue_to_stop().marker for _ in expected[1:]]
    assert stops == expected
    assert session.run_to_end() == 0
    assert session.output("stdout").split() == expected


def test_replays_of_ours_do_not_stop(session: Session, program: Fixture) -> None:
    """The second call of the program is cached, and the debugger traces it again to stop in it."""
    expected = alone(program.path).stdout.split()
    session.launch(program, *KINDS, "function")
    stops = [session.wait_for_stop("breakpoint").marker]
    stops += [session.continue_to_stop().marker for _ in range(len(expected) + 2)]
    assert [stop for stop in stops if stop != "function"] == expected
    assert session.run_to_end() == 0


def test_steps_and_values(session: Session, program: Fixture) -> None:
    session.launch(program, "pre", "lowering", "fake")
    session.wait_for_stop("breakpoint", at="fake")
    while (stop := session.continue_to_stop()).marker != "pre":
        assert stop.marker == "fake"
    session.step_in(at="helper")
    assert session.step_out().frame.name == "before"
    stop = session.next()
    assert stop.frame.evaluate("found").text.isdigit()
    while (stop := session.continue_to_stop()).marker != "lowering":
        assert stop.marker == "fake"
    stop = session.next()
    assert stop.frame.evaluate("three").text == "3"
    session.finish()
