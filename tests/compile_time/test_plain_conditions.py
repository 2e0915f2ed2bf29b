"""Conditions that need no protected evaluation: their results equal those of a protected evaluation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dynamo_dap.debuggee.trace.evaluation import evaluate_to_python
from dynamo_dap.debuggee.trace.plain_conditions import truth
from tests.compile_time.stopping import at

LIMIT = 3


def program(compiled: Any) -> Any:
    """Call a compiled function."""

    def function(x: Any, n: int, mask: Any, mode: str, items: Any) -> Any:
        count = 2
        y = x + count
        return y + (n if mode == "add" else 0) + len(items) + (0 if mask is None else 1)  # @stop

    return [compiled(function)(torch.ones(3), 4, None, "add", [1, 2])]


PLAIN = {
    "1 > 2": False,
    "2 > 1 and not None": True,
    "n == 4": True,
    "n % 2 == 1": False,
    "mask is None": True,
    "mask is not None or count == 3": False,
    "mode == 'add'": True,
    "mode in ('add', 'sub') and n - count >= 2": True,
    "count": True,
    "LIMIT < count": False,
    "-n < own": True,
}
LEFT = [
    "x is None",
    "x.shape[0] > 2",
    "len(items) == 2",
    "items == [1, 2]",
    "no_such_name",
    "1 // 0",
    "n < mode",
    "'%9d' % 3",
    "mode % 3",
    "n * 10",
    "n ** n",
    "(n := 3)",
    "n is 4",
    "not python",
    "ctx",
    "",
]


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_decided_is_what_an_evaluation_gives(dynamic: bool) -> None:
    def look(frame: Any) -> tuple[dict[str, object], dict[str, bool], list[str]]:
        before = frame.state()
        found: dict[str, object] = {each: truth(frame, each, {"own": 0}) for each in PLAIN}
        for large, holds in ((2**64 - 1, True), (2**64, None), (2**65, None)):
            assert truth(frame, "own > 0", {"own": large}) is holds
            assert truth(frame, f"own < {large}", {"own": 0}) is holds
        left = [each for each in LEFT if truth(frame, each, {}) is not None]
        assert before.changes() == []
        return found, {each: bool(evaluate_to_python(frame, each, {"own": 0})) for each in PLAIN}, left

    found, evaluated, left = at("stop", program, look, dynamic=dynamic)
    assert evaluated == PLAIN
    assert left == []
    assert found == PLAIN
