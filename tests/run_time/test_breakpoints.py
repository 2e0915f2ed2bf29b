"""Breakpoints in generated code: on the user's lines, on instructions, in listings, on functions, on the marker."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import pytest
import torch

from dynamo_dap.debuggee.agent.binding import Binding
from dynamo_dap.debuggee.generated.breakpoints import InstructionBreakpoints, Plans
from dynamo_dap.debuggee.generated.engine import RunTimeEngine
from dynamo_dap.debuggee.generated.frames import listing_source
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import has_marker
from dynamo_dap.debuggee.wrapping import patches
from dynamo_dap.protocol.requests.contract import LISTING_FORMS
from dynamo_dap.protocol.wire.types import FunctionBreakpoint, InstructionBreakpoint, SourceBreakpoint
from tests.client.timeline import DEADLINE
from tests.run_time.in_process import Recorder, ScriptedHost, SeenStop, debugging
from tests.run_time.programs import FIXTURE, compiled, line, programs, replay_arguments


def _set_lines(host: ScriptedHost, *markers: str, **options: Any) -> list[int]:
    wanted = [SourceBreakpoint(line=line(marker), **{"mode": "run-time", **options}) for marker in markers]
    made = host.breakpoints.set_lines(str(FIXTURE.path), wanted, host.options)
    host.engine.update_hooks()
    assert all(one.verified for one in made)
    return [one.id for one in made]


def _look(stop: SeenStop) -> Any:
    return stop.reason, stop.user_line, stop.title, stop.stop.hit_breakpoint_ids


# -- lines ---------------------------------------------------------------------------------------------------------


def test_a_line_stops_where_its_side_effect_is_replayed_at_every_call() -> None:
    function = compiled(programs.replay)
    record = Recorder(look=_look)
    with debugging(record) as host:
        (identity,) = _set_lines(host, "append")
        for _ in range(3):
            function(*replay_arguments())
    assert record.seen == [("breakpoint", line("append"), "apply: log[:] = [log[0], 3]", [identity])] * 3


@pytest.mark.parametrize("marker", ["store_item", "note"])
def test_of_several_statements_in_one_replay_the_breakpoints_own_is_shown(marker: str) -> None:
    function = compiled(programs.replay)
    record = Recorder(look=lambda stop: (stop.user_line, stop.title))
    with debugging(record) as host:
        _set_lines(host, marker)
        function(*replay_arguments())
    assert [number for number, _ in record.seen] == [line(marker)]
    assert all(title.startswith("apply: d.update(") for _, title in record.seen)


def test_a_line_in_an_inlined_function() -> None:
    function = compiled(programs.replay)
    record = Recorder(look=_look)
    noted = line("note")
    with debugging(record) as host:
        host.breakpoints.set_lines(str(FIXTURE.path), [SourceBreakpoint(line=noted)], host.options)
        host.engine.update_hooks()
        function(*replay_arguments())
    assert [(reason, number) for reason, number, _, _ in record.seen] == [("breakpoint", noted)]


def test_the_broken_statement_is_a_line() -> None:
    function = compiled(programs.broken)
    record = Recorder(look=_look)
    with debugging(record) as host:
        _set_lines(host, "break", "after_break")
        function(torch.ones(3), {})
    assert [number for _, number, _, _ in record.seen] == [line("break"), line("after_break")]


def test_a_line_inside_the_graph_is_not_stopped_at() -> None:
    function = compiled(programs.replay)
    record = Recorder(look=_look)
    with debugging(record) as host:
        _set_lines(host, "compute")
        function(*replay_arguments())
    assert record.seen == []


def test_other_modes_are_left_alone() -> None:
    function = compiled(programs.replay)
    record = Recorder(look=_look)
    with debugging(record, mode="both") as host:
        _set_lines(host, "append", mode="compile-time")
        function(*replay_arguments())
        assert record.seen == []
        _set_lines(host, "append", mode=None)
        function(*replay_arguments())
    assert len(record.seen) == 1


def test_code_in_which_nothing_can_stop_is_not_taken_apart() -> None:
    function = compiled(programs.replay)
    with debugging(Recorder(), mode="both") as host:
        host.engine.counts_calls = True
        host.engine.update_hooks()
        function(*replay_arguments())
        (generated,) = host.engine.codes
        _set_lines(host, "append", mode="compile-time")
        plans = Plans(host.breakpoints, InstructionBreakpoints(host.engine.codes, host.breakpoints))
        assert not plans.of(generated, any_mode=False).stops
        assert "table" not in vars(generated), "it was taken apart to look for torch's marker"


def test_breakpoints_of_a_compile_time_session_stop_no_generated_code() -> None:
    function = compiled(programs.replay)
    record = Recorder(look=_look)
    with debugging(record, mode="compile-time") as host:
        _set_lines(host, "append", mode=None)
        function(*replay_arguments())
    assert record.seen == []


def test_conditions_hit_counts_and_log_messages() -> None:
    function = compiled(programs.replay)
    record = Recorder(look=lambda stop: stop.locals["log"])
    with debugging(record) as host:
        _set_lines(host, "append", condition="log == [2] and __stack__[-2] is log")
        for first in (1, 2, 3):
            function(torch.ones(3), {}, [first], programs.State())
        assert record.seen == [[2, 3]]
        record.seen.clear()
        _set_lines(host, "append", hit_condition=">= 2")
        for first in (1, 2, 3):
            function(torch.ones(3), {}, [first], programs.State())
        assert len(record.seen) == 2
        record.seen.clear()
        _set_lines(host, "append", log_message="log is {log}, {len(__stack__)} deep")
        function(torch.ones(3), {}, [5], programs.State())
        outputs = [body.output for event, body in host.events if event == "output"]
    assert record.seen == []
    assert len(outputs) == 1
    assert outputs[0].startswith("log is [5], ")


def test_a_condition_that_fails_stops_and_says_why() -> None:
    function = compiled(programs.replay)
    record = Recorder()
    with debugging(record) as host:
        _set_lines(host, "append", condition="no_such_name > 1")
        function(*replay_arguments())
        assert len(record.seen) == 1
        assert any("no_such_name" in text for text in host.printed)


class _Slow:
    """A value with an attribute that never returns, for a condition that looks harmless."""

    is_over = False

    @property
    def attribute(self) -> bool:
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            pass
        self.is_over = True
        return False


def test_a_condition_without_a_call_is_bounded_in_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    function = compiled(programs.replay)
    slow = _Slow()
    monkeypatch.setattr(programs, "SLOW", slow, raising=False)
    record = Recorder()
    with debugging(record, evaluation_timeout=0.3) as host:
        _set_lines(host, "append", condition="SLOW.attribute")
        function(*replay_arguments())
        assert len(record.seen) == 1, "as any condition that fails, it stops and says why"
        assert any("SLOW.attribute" in text for text in host.printed), host.printed
    assert not slow.is_over
    # The interruption of the condition does not arrive later in the program, and a traced thread continues.
    stepping = Recorder("over instruction")
    with debugging(stepping, stop_on_generated_code=True):
        assert function(*replay_arguments()) is not None
    assert len(stepping.seen) > 3


def test_a_condition_at_every_instruction_sees_the_program_as_it_is_there() -> None:
    function = compiled(programs.replay)
    record = Recorder(look=lambda stop: stop.index)
    with debugging(record) as host:
        (generated,) = _met(host, function, *replay_arguments())
        record.seen.clear()
        host.engine.set_instruction_breakpoints(
            [
                InstructionBreakpoint(
                    instruction_reference=generated.reference(one.index), condition="__stack__[-1:] == [log]"
                )
                for one in generated.table
                if one.index >= generated.entry
            ]
        )
        host.engine.update_hooks()
        function(*replay_arguments())
        behind_loads = {
            one.index + 1 for one in generated.table if one.name.startswith("LOAD_FAST") and one.text == "log"
        }
    assert behind_loads
    assert set(record.seen) >= behind_loads
    assert len(record.seen) < len(generated.table) / 2


# -- functions -----------------------------------------------------------------------------------------------------


def test_entry_of_a_function() -> None:
    function = compiled(programs.broken)
    record = Recorder(look=lambda stop: (stop.reason, stop.name, stop.index))
    with debugging(record) as host:
        host.breakpoints.set_functions(
            [FunctionBreakpoint(name="broken")], lambda name: (str(FIXTURE.path), Binding(line("before_break")))
        )
        host.engine.update_hooks()
        function(torch.ones(3), {})
        entry = next(iter(host.engine.codes)).entry
    assert record.seen == [("breakpoint", "broken (generated #0)", entry)], "not the resume function"


# -- instructions --------------------------------------------------------------------------------------------------


def _met(host: ScriptedHost, function: Any, *arguments: Any) -> list[Any]:
    """Run the function once, so that the debugger knows its generated code."""
    host.request_pause()
    host.engine.update_hooks()
    function(*arguments)
    return list(host.engine.codes)


def test_instruction_breakpoints() -> None:
    function = compiled(programs.replay)
    record = Recorder(look=lambda stop: (stop.reason, stop.index, stop.stop.hit_breakpoint_ids))
    with debugging(record) as host:
        (generated,) = _met(host, function, *replay_arguments())
        record.seen.clear()
        store = next(one.index for one in generated.table if one.name == "STORE_SUBSCR")
        first, other = host.engine.set_instruction_breakpoints(
            [
                InstructionBreakpoint(instruction_reference=generated.reference(store)),
                InstructionBreakpoint(
                    instruction_reference=generated.reference(0),
                    offset=generated.table[store + 1].start,
                    condition="x is None",
                ),
            ]
        )
        host.engine.update_hooks()
        assert (first.verified, first.instruction_reference) == (True, generated.reference(store))
        assert other.verified
        function(*replay_arguments())
        assert record.seen == [("breakpoint", store, [first.id])]
        again, _ = host.engine.set_instruction_breakpoints(
            [InstructionBreakpoint(instruction_reference=generated.reference(store))] * 2
        )
        assert again.id == first.id, "set again unchanged, it is the same breakpoint"
        host.engine.set_instruction_breakpoints([])
        host.engine.update_hooks()
        function(*replay_arguments())
    assert len(record.seen) == 1


def test_an_instruction_that_no_event_reports_moves_behind_the_prologue() -> None:
    function = compiled(programs.replay)
    record = Recorder(look=lambda stop: stop.index)
    with debugging(record) as host:
        (generated,) = _met(host, function, *replay_arguments())
        record.seen.clear()
        (made,) = host.engine.set_instruction_breakpoints(
            [InstructionBreakpoint(instruction_reference=hex(generated.base_address))]
        )
        host.engine.update_hooks()
        assert made.instruction_reference == generated.reference(generated.entry)
        function(*replay_arguments())
    assert record.seen == [generated.entry]


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("nonsense", "'nonsense' is not the address of an instruction"),
        ("0x7fff00000000", "is not the address of generated code"),
        ("inside", "is in the middle of"),
        ("behind", "is past the end of replay (generated #0)"),
    ],
)
def test_addresses_that_are_no_instruction(reference: str, problem: str) -> None:
    function = compiled(programs.replay)
    with debugging(Recorder()) as host:
        (generated,) = _met(host, function, *replay_arguments())
        widest = max(generated.table, key=lambda one: one.end - one.start)
        references = {
            "inside": hex(generated.address(widest.index) + (widest.end - widest.start) - 1),
            "behind": hex(generated.base_address + generated.table.code_size + 2),
        }
        wanted = InstructionBreakpoint(instruction_reference=references.get(reference, reference))
        (made,) = host.engine.set_instruction_breakpoints([wanted])
    assert not made.verified
    assert problem in (made.message or "")


@pytest.mark.parametrize("form", LISTING_FORMS)
def test_lines_of_a_listing(form: str) -> None:
    function = compiled(programs.replay)
    record = Recorder(look=lambda stop: (stop.reason, stop.index))
    with debugging(record) as host:
        (generated,) = _met(host, function, *replay_arguments())
        record.seen.clear()
        store = next(one.index for one in generated.table if one.name == "STORE_SUBSCR")
        virtual, document = listing_source(generated, form), generated.document(form)
        wanted = document.line_of(store)
        answers = host.engine.set_listing_breakpoints(
            virtual, [SourceBreakpoint(line=wanted), SourceBreakpoint(line=9999)]
        )
        host.engine.update_hooks()
        assert answers is not None
        bound, beyond = answers
        assert (bound.verified, bound.line, bound.source) == (True, wanted, None)
        assert not beyond.verified
        assert f"has {len(virtual.text().splitlines())} lines" in (beyond.message or "")
        function(*replay_arguments())
        host.engine.set_listing_breakpoints(virtual, [])
        host.engine.update_hooks()
        function(*replay_arguments())
    assert record.seen == [("breakpoint", store)]


# -- entry, pause, marker --------------------------------------------------------------------------------------------


def test_stop_on_entry_of_every_generated_code() -> None:
    function = compiled(programs.broken)
    record = Recorder(look=lambda stop: (stop.reason, stop.name, stop.index == stop.generated.entry))
    with debugging(record, stop_on_generated_code=True):
        for _ in range(2):
            function(torch.ones(3), {})
    assert (
        record.seen
        == [
            ("entry", "broken (generated #0)", True),
            ("entry", f"broken (resumed at line {line('break')}, generated #1)", True),
        ]
        * 2
    )


def test_pause() -> None:
    function = compiled(programs.replay)
    record = Recorder(look=lambda stop: stop.reason)
    with debugging(record) as host:
        function(*replay_arguments())
        assert record.seen == []
        host.request_pause()
        host.engine.update_hooks()
        function(*replay_arguments())
        function(*replay_arguments())
    assert record.seen == ["pause"]


@pytest.mark.parametrize("mode", ["run-time", "both", "compile-time"])
def test_the_marker_stops_here_and_not_in_torchs_terminal_debugger(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_terminal(prompt: object = "") -> str:
        raise AssertionError(f"torch asked on the terminal: {prompt}")

    monkeypatch.setattr("builtins.input", no_terminal)
    function = compiled(programs.marked)
    record = Recorder(look=lambda stop: (stop.reason, stop.title, stop.stop.text))
    with debugging(record, mode=mode):
        for _ in range(2):
            assert function(torch.ones(2)).tolist() == [4.0, 4.0]
    title = "torch._dynamo.bytecode_debugger.breakpoint()"
    assert record.seen == [("breakpoint", title, f"Paused on {title}")] * 2


def test_marked_code_is_kept_because_torch_knows_it_by_its_address() -> None:
    function = compiled(programs.marked)
    with debugging(Recorder()) as host:
        function(torch.ones(2))
        marked = [weakref.ref(generated.code) for generated in host.engine.codes if has_marker(generated.code)]
    assert marked
    del function, host
    torch._dynamo.reset()
    gc.collect()
    assert all(code() is not None for code in marked)


def test_without_a_client_the_marker_is_torchs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr("builtins.input", lambda prompt="": asked.append(prompt) or "c")
    monkeypatch.setattr("builtins.print", lambda *_, **__: None)
    function = compiled(programs.marked)
    with debugging(Recorder()):
        function(torch.ones(2))
    function(torch.ones(2))
    assert asked == ["(bdb) "]


def test_the_programs_own_use_of_torchs_debugger_continues_working(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr("builtins.input", lambda prompt="": asked.append(prompt) or "c")
    monkeypatch.setattr("builtins.print", lambda *_, **__: None)
    function = compiled(programs.replay)
    record = Recorder()
    with debugging(record, stop_on_generated_code=True):
        with torch._dynamo.bytecode_debugger.debug():
            function(*replay_arguments())
        assert asked
        assert record.seen == [], "torch's debugger asked to be told instead of us"
        function(*replay_arguments())
    assert len(record.seen) == 1


def test_a_failing_handler_switches_stops_in_generated_code_off(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[int] = []
    lines: list[str] = []

    def fails(*_: object) -> None:
        handled.append(1)
        raise RuntimeError("of a handler")

    monkeypatch.setattr(RunTimeEngine, "on_instruction", fails)
    monkeypatch.setattr(patches, "reporters", [lines.append])
    function = compiled(programs.replay)
    results = []
    with debugging(Recorder()) as host:
        _set_lines(host, "append")
        for _ in range(3):
            results.append(str(function(*replay_arguments())))
    assert len(set(results)) == 1
    assert (len(handled), len(lines)) == (1, 1)
    assert "switched off stops in generated code" in lines[0]
