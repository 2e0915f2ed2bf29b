"""Each stop for a NaN names the module whose line made it, as its path from the compiled model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.client import Fixture, Session, Stop
from tests.client.environments import need_inductor

MODELS = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Log(nn.Module):
    def forward(self, x):
        return x.log()

class Root(nn.Module):
    def forward(self, x):
        return (x - x.detach()).abs().sqrt()

class Clamped(nn.Module):
    def forward(self, x):
        return x.clamp(min=1.0)

class Block(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.part = part

    def forward(self, x):
        return self.part(-self.linear(x).abs() - 1)

class Listed(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.layers = nn.ModuleList([Block(Clamped()), Block(part)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

class Sequenced(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), Block(part), nn.ReLU())

    def forward(self, x):
        return self.body(x)

class Shared(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.first = self.last = part
        self.between = Block(Clamped())

    def forward(self, x):
        return self.last(-self.between(self.first(x * 0 + 2)))

class Container(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.blocks = nn.ModuleList([Block(part)] * 7)

    def forward(self, x):
        return self.blocks[1](x)

class Checkpointed(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.blocks = nn.ModuleList([Block(Clamped()), Block(part)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x

class Resumed(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.first = Block(Clamped())
        self.last = Block(part)

    def forward(self, x):
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.last(x)
"""

FORWARD = (
    MODELS
    + """
for kind in (Listed, Sequenced, Shared, Container, Checkpointed, Resumed):
    model = torch.compile(kind(Log()), backend="BACKEND")
    for call in range(3):
        model(torch.rand(2, 4))
"""
)

TRAINED = (
    MODELS
    + """
for kind in (Listed, Sequenced, Container, Checkpointed, Resumed):
    model = torch.compile(kind(Root()), backend="BACKEND")
    for call in range(2):
        model(torch.rand(2, 4)).sum().backward()
"""
)

SEVEN_NAMES = "self.blocks.1.part (also self.blocks.0.part, self.blocks.2.part, self.blocks.3.part, 3 more)"
_MODULE = re.compile(r"^Where: .* in forward of (self[^:]*): ", re.MULTILINE)


def modules_in(session: Session, folder: Path, text: str) -> list[tuple[str, str | None]]:
    """Run a program with the filter ``nan``; return the text and the module of each stop."""
    program = Fixture(folder / "models.py")
    program.path.write_text(text, encoding="utf-8")
    with session.launching(program):
        session.request("setExceptionBreakpoints", {"filters": ["nan"]})
    found: list[tuple[str, str | None]] = []
    while True:
        event, body = session.timeline.expect_first("stopped", "terminated", deadline=280)
        if event == "terminated":
            return found
        stop = Stop(session, body)
        information = session.request("exceptionInfo", {"threadId": stop.thread_id})
        module = _MODULE.search(information["description"])
        found.append((information["exceptionId"].partition(":")[0], module and module[1]))
        session.resume(thread_id=stop.thread_id)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_the_module_of_each_call(session: Session, tmp_path: Path, backend: str) -> None:
    """The modules are in containers, in a checkpoint, after a graph break, and in cached calls.

    If a module has several names, Dynamo uses the one that the call used first.
    """
    need_inductor("modules that Inductor compiles")
    modules = [
        "self.layers.1.part",
        "self.body.1.part",
        "self.first (also self.last)",
        SEVEN_NAMES,
        "self.blocks.1.part",
        "self.last.part",
    ]
    found = modules_in(session, tmp_path, FORWARD.replace("BACKEND", backend))
    assert found == [("NaN", module) for module in modules for _ in range(3)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_module_in_a_backward_pass(session: Session, tmp_path: Path, backend: str) -> None:
    """The gradient of a root at zero is Inf, and the gradient of its operand's computation is NaN."""
    need_inductor("modules that Inductor compiles")
    modules = ["self.layers.1.part", "self.body.1.part", SEVEN_NAMES, "self.blocks.1.part", "self.last.part"]
    found = modules_in(session, tmp_path, TRAINED.replace("BACKEND", backend))
    assert [module for _, module in found] == [module for module in modules for _ in range(2)]
    assert {what for what, _ in found} <= {"Inf in the backward pass", "NaN in the backward pass"}
