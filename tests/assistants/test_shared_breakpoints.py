"""Breakpoints of two clients whose requests cross: which comes first depends on the machine's load."""

from __future__ import annotations

from typing import Any

from dynamo_dap.assistants.shared_breakpoints import SharedBreakpoints


def _lines(*lines: int) -> dict[str, Any]:
    return {"source": {"path": "program.py"}, "breakpoints": [{"line": line} for line in lines]}


def _answer(ids: dict[int, int]) -> dict[str, Any]:
    """What the server answers: the id of each line."""
    return {"breakpoints": [{"verified": False, "id": known, "line": line} for line, known in ids.items()]}


def test_an_answer_belongs_to_the_list_of_its_request() -> None:
    """The second client sends its entries before the first one has its answer."""
    shared = SharedBreakpoints()
    of_editor, given = shared.given("editor", "setBreakpoints", _lines(13))
    assert [one["line"] for one in given["breakpoints"]] == [13]
    of_assistant, given = shared.given("assistant", "setBreakpoints", _lines(12))
    assert [one["line"] for one in given["breakpoints"]] == [13, 12]
    # A program that has not begun gives a breakpoint another id with each request.
    body = shared.answered("editor", of_editor, _answer({13: 1}))
    assert [one["id"] for one in body["breakpoints"]] == [1]
    body = shared.answered("assistant", of_assistant, _answer({13: 2, 12: 3}))
    assert [one["id"] for one in body["breakpoints"]] == [3]
    hit = {"reason": "breakpoint", "hitBreakpointIds": [2]}
    assert shared.with_known_ids("editor", "stopped", hit)["hitBreakpointIds"] == [1]
    assert shared.with_known_ids("assistant", "stopped", {**hit, "hitBreakpointIds": [3]})["hitBreakpointIds"] == [3]
