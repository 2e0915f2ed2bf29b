"""Hooks do not become slower with the number of compiled graphs in the program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from dynamo_dap.debuggee.replay.graph_calls import GRAPH_CALLS, CallObserver

GRAPHS = 20


@contextmanager
def counted_calls() -> Iterator[list[str]]:
    """Collect the names of the Python functions that are called in the context."""
    called: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(before)


def compiled(number: int) -> Callable[[Any], Any]:
    """Compile a function with its own code object, for which Dynamo keeps the graphs."""
    scope: dict[str, Any] = {}
    exec(f"def function_{number}(x):\n    return x * {number}", scope)
    made: Callable[[Any], Any] = torch.compile(scope[f"function_{number}"], backend="eager")
    return made


@pytest.mark.parametrize("limit", [None, 1000])
def test_asking_again_looks_at_no_graph(limit: int | None) -> None:
    observer = CallObserver()
    kept = [compiled(number) for number in range(GRAPHS)]
    for each in kept:
        each(torch.ones(2))
    try:
        GRAPH_CALLS.want(observer, limit)
        with counted_calls() as called:
            GRAPH_CALLS.want(observer, limit)
    finally:
        GRAPH_CALLS.want(observer, None)
    assert len(called) < GRAPHS, called
