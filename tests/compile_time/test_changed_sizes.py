"""Sizes that a what-if changes, beside other code that wraps the same function of Dynamo."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch._dynamo.symbolic_convert import TensorifyState
from torch._dynamo.variables import builder

from dynamo_dap.debuggee.history.changed_traces import SizeChange, _containers, sizes_changed

_CHANGE = SizeChange("L['x']", 0, is_symbol=True)


def test_a_wrapper_of_other_code_stays_and_the_change_ends() -> None:
    module: Any = builder
    original = module._automatic_dynamic
    with sizes_changed([_CHANGE]):
        wrapped = module._automatic_dynamic

        def others(*arguments: object, **named: object) -> object:
            return wrapped(*arguments, **named)

        module._automatic_dynamic = others
    try:
        assert module._automatic_dynamic is others
        assert _symbols_in_graph() == 0
    finally:
        module._automatic_dynamic = original


def test_a_change_lasts_until_its_own_end() -> None:
    with contextlib.ExitStack() as first, sizes_changed([_CHANGE]):
        first.enter_context(sizes_changed([SizeChange("L['y']", 0, is_symbol=True)]))
        first.close()
        assert _symbols_in_graph() == 1
    assert _symbols_in_graph() == 0


def test_numbers_that_must_be_constants_are_kept_apart() -> None:
    """Otherwise a what-if would make numbers of the program's own trace constants."""
    kept = TensorifyState.force_specializations
    assert any(each is kept for each in _containers())


def _symbols_in_graph() -> int:
    """Compile a function of one tensor, and return the number of symbols among its graph's inputs."""
    found: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        found.append(sum(isinstance(each, torch.SymInt) for each in inputs))
        return graph.forward

    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    torch._dynamo.reset()
    torch.compile(double, backend=backend)(torch.ones(7))
    torch._dynamo.reset()
    return found[0]
