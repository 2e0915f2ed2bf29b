"""Stops a trace once at a marked line, and inspects it: ``at(marker, program, look)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from dynamo_dap.debuggee.trace.frames import scopes_of
from dynamo_dap.debuggee.values.model import Value, Variable
from tests.compile_time.observation import observe

Result = TypeVar("Result")
Program = Callable[..., list[Any]]


def line_of(marker: str, function: Any) -> int:
    """Return the number of the source line that ends with ``#@marker``."""
    lines, first = inspect.getsourcelines(inspect.unwrap(function))
    endings = (f"#@{marker}", f"# @{marker}")
    found = [max(first, 1) + number for number, line in enumerate(lines) if line.rstrip().endswith(endings)]
    assert len(found) == 1, f"{len(found)} lines end with #@{marker}"
    return found[0]


def at(marker: str, program: Program, look: Callable[[Any], Result], **options: Any) -> Result:
    """Run ``program`` and return the result of ``look(frame)`` when the trace first reaches the marked line."""
    line = line_of(marker, program)
    path = inspect.getsourcefile(program)
    results: list[Result] = []

    def watch(frame: Any) -> None:
        if not results and frame.line == line and frame.path == path:
            results.append(look(frame))

    observe(program, watch=watch, **options)
    assert results, f"the trace never came to #@{marker}"
    return results[0]


def scope(frame: Any, name: str) -> dict[str, Variable]:
    """Return the variables of one scope by name."""
    found = [each for each in scopes_of(frame) if each.name == name]
    assert len(found) == 1, f"no scope called {name}"
    return {variable.name: variable for variable in found[0].children.named()}


def texts(frame: Any, name: str) -> dict[str, str]:
    """Return the texts of one scope's variables by name."""
    return {variable: each.value.text for variable, each in scope(frame, name).items()}


def below(value: Value) -> dict[str, Variable]:
    """Return the named children of a value by name."""
    assert value.children is not None, f"{value.text} has no children"
    return {variable.name: variable for variable in value.children.named()}
