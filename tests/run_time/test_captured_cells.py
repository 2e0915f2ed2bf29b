"""The cells of a running function's captured variables are the program's own, on every Python."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CellType, FrameType
from typing import Any

from dynamo_dap.debuggee.torch_api.code_objects.frame_memory import captured_cells, program_cells


def test_the_cells_are_those_of_the_function() -> None:
    kept = [1]
    count = 0
    later: Any

    def function(given: object, *, look: Callable[[FrameType], Any]) -> Any:
        nonlocal count
        shared = given
        count += 1
        found = look(sys._getframe())
        return found, kept, (lambda: shared), (lambda: later)

    cells = function.__closure__
    assert cells is not None
    assert len(cells) == 3
    for look in (program_cells, captured_cells):
        assert all(one is other for one, other in zip(function("a", look=look)[0], cells, strict=True))
    later = count
    assert all(one is other for one, other in zip(function(None, look=program_cells)[0], cells, strict=True))
    assert count == 3
    assert later == 2


def test_a_frame_that_captures_nothing_has_no_cells() -> None:
    assert program_cells(sys._getframe()) == ()


def test_a_frame_that_has_ended_gives_no_cells_of_another() -> None:
    kept = object()

    def function() -> Any:
        return kept and sys._getframe()

    ended = function()
    found = program_cells(ended)
    assert found is None or found == function.__closure__
    assert [type(each) for each in captured_cells(ended)] == [CellType]
