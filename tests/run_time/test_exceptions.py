"""The filter ``generated-code``, which stops where generated code raises an exception."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch

from tests.run_time.in_process import Recorder, SeenStop, debugging
from tests.run_time.programs import compiled, line, programs
from tests.run_time.pythons import CALL, IS_3_10


def _debugging_exceptions(record: Any, condition: str | None = None, **options: Any) -> Any:
    manager = debugging(record, **options)
    host = manager.__enter__()
    host.breakpoints.set_exception_filters({"generated-code": condition})
    host.engine.update_hooks()
    return manager


def _run(record: Any, function: Any, *arguments: Any, condition: str | None = None) -> None:
    manager = _debugging_exceptions(record, condition)
    try:
        with pytest.raises(KeyError, match="absent"):
            function(*arguments)
    finally:
        manager.__exit__(None, None, None)


def _look(stop: SeenStop) -> dict[str, Any]:
    return {
        "reason": stop.reason,
        "name": stop.name,
        "instruction": stop.instruction,
        "line": stop.user_line,
        "stack": stop.stack,
        "exception": stop.stop.exception,
        "description": stop.stop.description,
    }


@pytest.mark.parametrize("is_cached", [False, True])
def test_the_failing_instruction_with_the_stack_as_it_was(is_cached: bool) -> None:
    function = compiled(programs.failing)
    items: dict[str, int] = {}
    if is_cached:
        with pytest.raises(KeyError):
            function(torch.ones(2), items)
    record = Recorder(look=_look)
    _run(record, function, torch.ones(2), items)
    assert len(record.seen) == 1, "told once, not again for each frame that it passes"
    (seen,) = record.seen
    assert seen["reason"] == "exception"
    assert seen["name"] == "failing (generated #0)"
    assert seen["instruction"] == CALL
    assert seen["line"] == line("fails")
    assert seen["stack"][-2] is items, "the operands of the call, as they were before it"
    assert torch.is_tensor(seen["stack"][-1])
    assert any(one is programs.missing for one in seen["stack"])
    assert seen["exception"].exception_id == "KeyError"
    assert "absent" in seen["exception"].description


def test_without_the_filter_nothing_stops() -> None:
    record = Recorder(look=_look)
    with debugging(record), pytest.raises(KeyError):
        compiled(programs.failing)(torch.ones(2), {})
    assert record.seen == []


@pytest.mark.parametrize(("condition", "stops"), [("items == {}", 1), ("items", 0), ("len(__stack__) > 100", 0)])
def test_a_condition_of_the_filter(condition: str, stops: int) -> None:
    record = Recorder(look=_look)
    _run(record, compiled(programs.failing), torch.ones(2), {}, condition=condition)
    assert len(record.seen) == stops


def test_the_same_exception_is_reported_again_at_the_next_call() -> None:
    function = compiled(programs.failing)
    record = Recorder(look=lambda stop: stop.reason)
    manager = _debugging_exceptions(record)
    try:
        for _ in range(3):
            with pytest.raises(KeyError):
                function(torch.ones(2), {})
    finally:
        manager.__exit__(None, None, None)
    assert record.seen == ["exception"] * 3


def test_after_an_exception_the_depth_is_right_again() -> None:
    """It is right in a handler of generated code. Torch's debugger counts on from the instruction that raised."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        with torch.no_grad():
            y = y * 2
            programs.missing({}, y)
        return y

    seen: list[tuple[str, int, int]] = []

    def script(stop: SeenStop) -> str | None:
        depth = stop.generated.depths.before(stop.index)
        seen.append((stop.instruction, len(stop.stack), depth))
        return "over instruction"

    compiled_function = compiled(function)
    with debugging(script, stop_on_generated_code=True), pytest.raises(KeyError):
        compiled_function(torch.ones(2))
    names = [name for name, _, _ in seen]
    # Python 3.10 marks no handler by an instruction. Here, the handler follows the call that raised.
    handler = names.index(CALL) + 1 if IS_3_10 else names.index("PUSH_EXC_INFO")
    assert all(length == depth for _, length, depth in seen)
    assert seen[handler][1] >= 1
    assert "RERAISE" in names[handler:]


def test_nothing_is_kept_alive_by_the_filter() -> None:
    """Operands live no longer than the instruction itself keeps them alive."""
    references: list[weakref.ref[torch.Tensor]] = []
    alive: list[bool] = []

    @torch.compiler.disable
    def take(value: torch.Tensor) -> None:
        references.append(weakref.ref(value))

    @torch.compiler.disable
    def ask() -> None:
        alive.append(references[-1]() is not None)

    def function(x: torch.Tensor) -> torch.Tensor:
        take(x + 1)
        ask()
        return x * 2

    compiled_function = compiled(function)
    compiled_function(torch.ones(2))
    plain = list(alive)
    alive.clear()
    manager = _debugging_exceptions(Recorder())
    try:
        compiled_function(torch.ones(2))
    finally:
        manager.__exit__(None, None, None)
    assert alive == plain[-1:]
