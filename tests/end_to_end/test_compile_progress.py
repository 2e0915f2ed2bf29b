"""The client gets progress of a long compile, while Call Stack only shows that the program runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dynamo_dap.protocol.requests.contract import CompilingEventBody
from dynamo_dap.server.backends.backend_events import StoppedThreads
from dynamo_dap.server.programs import progress
from tests.client import Fixture, Session

WAITING = """
import os
import time

import torch
from torch._dynamo.backends.common import aot_autograd


def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.05)


"""
FORWARD = """
def patient(graph, inputs):
    wait_for("forward")
    return graph.forward


@torch.compile(backend=patient)
def scale(x):
    return x * 2


print(scale(torch.ones(3)).sum().item())
"""
BACKWARD = """
def plain(graph, inputs):
    return graph.forward


def patient(graph, inputs):
    wait_for("backward")
    return graph.forward


@torch.compile(backend=aot_autograd(fw_compiler=plain, bw_compiler=patient))
def scale(x):
    return (x * x).sum()


x = torch.ones(3, requires_grad=True)
loss = scale(x)
loss.backward()
print(x.grad.sum().item())
"""


def _program(folder: Path, text: str) -> Fixture:
    path = folder / "program.py"
    path.write_text(WAITING + text, encoding="utf-8")
    return Fixture(path)


@pytest.mark.parametrize(
    ("text", "go", "what", "printed"),
    [
        (FORWARD, "forward", "patient compiles scale", "6.0\n"),
        (BACKWARD, "backward", "Compiling the backward pass of scale", "6.0\n"),
    ],
    ids=["forward", "backward"],
)
def test_a_long_compile_is_reported_until_it_ends(
    session: Session, tmp_path: Path, text: str, go: str, what: str, printed: str
) -> None:
    with session.launching(_program(tmp_path, text), cwd=str(tmp_path)):
        pass
    begun = session.timeline.expect_event("progressStart", lambda body: body["title"] == "torch.compile")
    assert begun["message"].startswith(f"{what} (")
    assert begun["cancellable"] is False
    later = session.timeline.expect_event("progressUpdate", lambda body: body["progressId"] == begun["progressId"])
    assert later["message"].startswith(f"{what} (")
    (tmp_path / go).touch()
    session.timeline.expect_event("progressEnd", lambda body: body["progressId"] == begun["progressId"])
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == printed


class _Clock:
    """An event loop whose time the test advances."""

    def __init__(self) -> None:
        self.now = 0.0
        self._tick: Callable[[], None] = lambda: None

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> SimpleNamespace:
        self._tick = callback
        return SimpleNamespace(cancel=lambda: None)

    def pass_(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self._tick()


def test_a_stopped_thread_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a compile starts again after each stop, as in Call Stack."""
    clock, stopped, sent = _Clock(), StoppedThreads(), list[tuple[str, str | None]]()
    client: Any = SimpleNamespace(event=lambda name, body: sent.append((name, getattr(body, "message", None))))
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    compiles = progress.CompileProgress(client, stopped)
    stopped.stopped(1, "agent")
    compiles.take(CompilingEventBody(1, "Dynamo traces scale"))
    clock.pass_(60)
    assert sent == []
    stopped.resumed(1)
    clock.pass_(4)
    assert sent == []
    clock.pass_(1)
    assert sent == [("progressStart", "Dynamo traces scale (5 s)")]
    stopped.stopped(1, "agent")
    clock.pass_(1)
    assert sent[1:] == [("progressEnd", None)]
