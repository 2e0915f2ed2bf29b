"""Stepping in generated code: where each kind of step stops, at each granularity."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from dynamo_dap.debuggee.values.graph_texts import graph_text
from dynamo_dap.protocol.requests.contract import INSTRUCTIONS
from tests.run_time.in_process import Recorder, SeenStop, debugging
from tests.run_time.programs import compiled, line, programs, replay_arguments


def _titles(action: str, function: Any, *arguments: Any) -> list[tuple[str, str]]:
    """The code's name and the group's title at each stop of a run that repeats one action from the entry on."""
    record = Recorder(action, look=lambda stop: (stop.name, stop.title))
    first: list[bool] = []

    def script(stop: SeenStop) -> str | None:
        if stop.reason == "entry" and first:
            return action
        first.append(True)
        return record(stop)

    with debugging(script, stop_on_generated_code=True, listing=INSTRUCTIONS):  # the test is about its groups
        function(*arguments)
    return record.seen


def test_instructions_are_reported_one_by_one_and_all_of_them() -> None:
    function = compiled(programs.replay)
    record = Recorder("in instruction", look=lambda stop: (stop.generated.number, stop.index))
    with debugging(record, stop_on_generated_code=True) as host:
        function(*replay_arguments())
        (generated,) = host.engine.codes
        straight = not any(one.target is not None for one in generated.table)
        if straight:
            assert record.seen == [(0, index) for index in range(generated.entry, len(generated.table))]
        assert record.seen[-1] == (0, len(generated.table) - 1)
        assert generated.table[len(generated.table) - 1].is_return


def test_every_call_is_reported_again() -> None:
    """Torch's own debugger stops only once per instruction on Python 3.12 and newer."""
    function = compiled(programs.replay)
    function(*replay_arguments())
    runs = []
    for _ in range(3):
        record = Recorder("in instruction", look=lambda stop: stop.index)
        with debugging(record, stop_on_generated_code=True):
            function(*replay_arguments())
            first = list(record.seen)
            record.seen.clear()
            function(*replay_arguments())
            runs += [first, list(record.seen)]
    assert runs[0]
    assert all(run == runs[0] for run in runs)


def test_a_statement_is_one_group_of_the_listing() -> None:
    stops = _titles("over statement", compiled(programs.replay), *replay_arguments())
    titles = [title for _, title in stops]
    assert len(titles) < 30
    for expected in (
        "call compiled graph",
        "apply: log[:] = [log[0], 3]",
        "apply: TOTAL = 4",
        "apply: state.last = graph_out_0[",
        "apply: d.update({'result': graph_out_0[",
        "return (graph_out_0[",
    ):
        assert any(title.startswith(expected) for title in titles), f"{expected!r} is not among {titles}"
    calls = [title for title in titles if title.startswith("call compiled graph")]
    assert len(calls) == 1, "a step by statement calls the graph in one go"
    assert titles[-1].startswith("return ")


def test_step_in_goes_through_a_resume_function_and_back() -> None:
    function = compiled(programs.broken)
    function(torch.ones(3), {})
    stops = _titles("in statement", function, torch.ones(3), {})
    names = [name for index, (name, _) in enumerate(stops) if index == 0 or stops[index - 1][0] != name]
    assert names == [
        "broken (generated #0)",
        f"broken (resumed at line {line('break')}, generated #1)",
        "broken (generated #0)",
    ]
    resume_call = next(title for name, title in stops if name.endswith("#0)") and "resume function __" in title)
    assert resume_call.startswith("call the resume function __resume_at_")
    assert stops[-1][1].startswith("return __resume_at_")


def test_step_over_runs_a_resume_function_through() -> None:
    function = compiled(programs.broken)
    function(torch.ones(3), {})
    started = False

    def script(stop: SeenStop) -> str | None:
        nonlocal started
        if stop.reason == "entry" and started:
            return "out"
        started = True
        seen.append((stop.name, stop.title))
        return "over statement"

    seen: list[tuple[str, str]] = []
    d: dict[str, Any] = {}
    with debugging(script, listing=INSTRUCTIONS) as host:  # groups of instructions are counted
        host.request_pause()
        host.engine.update_hooks()
        function(torch.ones(3), d)
    assert {name for name, _ in seen} == {"broken (generated #0)"}
    assert seen[-1][1].startswith("return __resume_at_")
    assert set(d) == {"first", "second"}


def test_step_out_runs_to_the_return_and_shows_the_value() -> None:
    function = compiled(programs.broken)
    function(torch.ones(3), {})
    seen: list[tuple[str, str, list[Any], dict[str, str]]] = []
    with debugging(lambda stop: _out_twice(stop, seen), stop_on_generated_code=True):
        w, y = function(torch.ones(3), {})
    (inner, instruction, stack, _), (outer, _, outer_stack, shown) = seen
    assert inner == f"broken (resumed at line {line('break')}, generated #1)"
    assert instruction.startswith("RETURN")
    assert stack[-1][0] is w
    assert stack[-1][1] is y
    assert outer == "broken (generated #0)", "a step out of a frame at its return comes to the caller"
    assert outer_stack[-1] is stack[-1]
    assert any(name == f"(returned by {inner})" for name in shown)


def _out_twice(stop: SeenStop, seen: list[Any]) -> str | None:
    if stop.reason == "entry":
        return "out" if "resumed" in stop.name else None
    seen.append((stop.name, stop.instruction, stop.stack, stop.texts("Locals")))
    return "out" if len(seen) == 1 else None


def test_lines_are_those_of_the_users_statements() -> None:
    function = compiled(programs.broken)
    lines: list[int] = []

    def script(stop: SeenStop) -> str | None:
        if stop.reason != "entry":
            lines.append(stop.user_line)
        return "in line"

    with debugging(script, stop_on_generated_code=True, listing=INSTRUCTIONS):  # lines of this listing are the user's
        function(torch.ones(3), {})
    assert lines[0] == line("before_break")
    assert line("break") in lines
    assert line("after_break") in lines
    assert lines == sorted(lines) or lines[-1] == line("break")


def test_a_step_in_that_began_elsewhere_lands_at_the_first_instruction() -> None:
    """The step comes from the last traced line, or from an eager call that hits the cache."""
    from dynamo_dap.debuggee.agent.stepping import Step, StepKind

    function = compiled(programs.replay)
    record = Recorder(look=lambda stop: (stop.reason, stop.index, stop.generated.entry))
    with debugging(record) as host:
        host.step = Step(StepKind.IN, "statement", "compile-time", object())
        host.engine.update_hooks()
        function(*replay_arguments())
        assert record.seen == [("step", record.seen[0][2], record.seen[0][2])]
        for kind in (StepKind.OVER, StepKind.OUT):
            host.step = Step(kind, "statement", "compile-time", object())
            host.engine.update_hooks()
            function(*replay_arguments())
        host.step = None
        host.engine.update_hooks()
    assert len(record.seen) == 1, "steps over and out that began elsewhere do not end here"


def test_a_step_continues_to_the_code_that_runs_next() -> None:
    """This also works past the outermost frame, and does not keep the step's frame alive."""
    first, second = compiled(programs.replay), compiled(programs.branching)
    names: list[str] = []

    def script(stop: SeenStop) -> str | None:
        names.append(stop.name)
        return "out" if len(names) < 3 else None

    with debugging(script) as host:
        host.request_pause()
        host.engine.update_hooks()
        first(*replay_arguments())
        second(torch.ones(2))
    assert [name.partition(" ")[0] for name in names] == ["replay", "replay", "branching"]


def test_a_step_over_a_call_that_raises_stops_in_the_code_that_runs_next() -> None:
    function, other = compiled(programs.failing), compiled(programs.branching)
    with pytest.raises(KeyError):
        function(torch.ones(2), {})
    stops: list[tuple[str, str]] = []

    def script(stop: SeenStop) -> str | None:
        stops.append((stop.name, stop.instruction))
        return "over instruction" if stop.name.startswith("failing") else None

    with debugging(script) as host:
        host.request_pause()
        host.engine.update_hooks()
        with pytest.raises(KeyError):
            function(torch.ones(2), {})
        before = len(stops)
        assert stops[-1][1].startswith("CALL"), "nothing follows the instruction that raised"
        other(torch.ones(2))
    assert [name for name, _ in stops[before:]] == ["branching (generated #1)"]


def test_branches_are_followed() -> None:
    function = compiled(programs.branching)
    jumps: list[list[int]] = []
    for value, factor in ((torch.ones(2), 2), (-3 * torch.ones(2), 3)):
        record = Recorder("in instruction", look=lambda stop: (stop.generated.number, stop.index))
        with debugging(record, stop_on_generated_code=True) as host:
            function(value)
            (resumed,) = (one for one in host.engine.codes if one.is_resume_function)
            assert f" * {factor}" in graph_text(resumed.record.graph, "resumed")
        jumps.append([index for number, index in record.seen if number == 0])
    assert jumps[0] != jumps[1], "the two calls go different ways through the same code"


def test_hooks_do_not_make_dynamo_compile_the_debugger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo may see functions that a hook calls, but must not compile ours like the program's."""
    from torch._dynamo import convert_frame

    converted: list[str] = []
    before = convert_frame.ConvertFrame.__call__

    def spy(self: Any, frame: Any, *rest: Any, **options: Any) -> Any:
        converted.append(frame.f_code.co_filename)
        return before(self, frame, *rest, **options)

    monkeypatch.setattr(convert_frame.ConvertFrame, "__call__", spy)
    function = compiled(programs.broken)
    with debugging(Recorder("in"), stop_on_generated_code=True):
        function(torch.ones(3), {})
        function(torch.ones(3), {})
    assert converted
    assert [path for path in converted if "dynamo_dap" in path or "in_process" in path] == []


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="newer Pythons are not traced by sys.settrace")
def test_stepping_leaves_the_trace_function_that_was_there() -> None:
    def mine(frame: Any, event: str, _argument: Any) -> Any:
        calls.append((frame.f_code.co_name, event))
        return mine

    calls: list[tuple[str, str]] = []
    function = compiled(programs.broken)
    function(torch.ones(3), {})
    sys.settrace(mine)
    try:
        function(torch.ones(3), {})
        plain = list(calls)
        calls.clear()
        record = Recorder("in instruction")
        with debugging(record, stop_on_generated_code=True):
            calls.clear()
            function(torch.ones(3), {})
            seen = list(calls)
        assert sys.gettrace() is mine
    finally:
        sys.settrace(None)
    assert len(record.seen) > 100
    own = {"broken", "torch_dynamo_resume_in_broken_at_" + str(line("break")), "inner", "_fn", "forward"}
    assert [one for one in seen if one[0] in own] == [one for one in plain if one[0] in own]
