"""A pause right after a continue, with a slow debugger in the program: the requests use two connections."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dynamo_dap.debuggee.agent.agent import Agent
from tests.client import Session

ROUNDS = 3
SLOW_DEBUGGER = """
import dataclasses
import time

from dynamo_dap.debuggee.agent.pause import Pause
from dynamo_dap.debuggee.agent.requests import HANDLERS


def slowed(function):
    def slow(*arguments):
        time.sleep(0.5)
        return function(*arguments)

    return slow


def slow_before_answer():
    HANDLERS["continue"] = dataclasses.replace(HANDLERS["continue"], run=slowed(HANDLERS["continue"].run))


def slow_after_answer():
    Pause.release = slowed(Pause.release)
"""
PROGRAM = """
import sys

import torch

import slow_debugger


@torch.compile(backend="eager")
def long(x):
    for i in range(1_000_000):
        x = x + i
    return x


getattr(slow_debugger, sys.argv[1])()
long(torch.ones(2))
"""
ADDS = 12


@pytest.mark.parametrize("slow", ["slow_before_answer", "slow_after_answer"])
def test_a_pause_follows_the_continue_before_it(session: Session, tmp_path: Path, slow: str) -> None:
    (tmp_path / "slow_debugger.py").write_text(SLOW_DEBUGGER)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with session.launching(program, args=[slow]):
        session.set_breakpoints(program, ADDS)
    session.wait_for_stop("breakpoint")
    session.set_breakpoints(program)
    thread = next(one for one in session.client.threads() if one.name == "MainThread")
    for _ in range(ROUNDS):
        resumed = session.client.send("continue", {"threadId": thread.id})  # its answer is not waited for
        session.client.pause(thread.id)
        resumed.result(session.client.timeout)
        assert session.wait_for_stop("pause").frame.name == "long"
    session.disconnect()


class SlowHooks:
    """Hooks that another thread overtakes once, between reading and setting them."""

    def __init__(self, agent: Agent, meanwhile: Callable[[], None]) -> None:
        self._agent = agent
        self._meanwhile = meanwhile
        self._first = True
        self.are_set = False

    def update_hooks(self) -> None:
        wanted, first = self._agent.steps.any_pause_request, self._first
        self._first = False
        if first:
            other = threading.Thread(target=self._meanwhile)
            other.start()
            other.join()
        self.are_set = wanted

    def close(self) -> None:
        self.are_set = False


def test_hooks_of_a_pause_survive_a_thread_that_resumes() -> None:
    agent = Agent()
    agent.client = cast(Any, SimpleNamespace())
    hooks = SlowHooks(agent, lambda: agent.steps.request_pauses({1}))
    agent.engines = (cast(Any, hooks),)
    agent.update_hooks()
    assert hooks.are_set


def test_hooks_are_removed_when_the_client_leaves_meanwhile() -> None:
    agent = Agent()
    agent.client = cast(Any, SimpleNamespace(close=lambda: None))
    agent.steps.request_pauses({1})
    hooks = SlowHooks(agent, agent.detach_client)
    agent.engines = (cast(Any, hooks),)
    agent.update_hooks()
    assert not hooks.are_set
