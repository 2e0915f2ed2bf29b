"""Frames of generated code: shown values, evaluation, and changed variables."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dynamo_dap.debuggee.torch_api.code_objects.generated_code import is_null
from dynamo_dap.debuggee.values.model import EvaluationError, WriteRefused
from tests.run_time.in_process import Recorder, SeenStop, debugging
from tests.run_time.programs import FIXTURE, compiled, line, programs, replay_arguments
from tests.run_time.pythons import IS_3_10, not_on_3_10, slots_are_written


def _at(wanted: Callable[[SeenStop], bool], look: Callable[[SeenStop], Any], function: Any, *arguments: Any) -> Any:
    """Step by instruction to the first wanted stop, inspect it, and run the program to its end."""
    found: list[Any] = []

    def script(stop: SeenStop) -> str | None:
        if wanted(stop):
            found.append(look(stop))
            return None
        return "in instruction"

    with debugging(script) as host:
        host.request_pause()
        host.engine.update_hooks()
        result = function(*arguments)
    assert found, "the wanted instruction was not reached"
    return found[0], result


def _replaying(part: str) -> Callable[[SeenStop], bool]:
    return lambda stop: stop.title.startswith(f"apply: {part}") and stop.instruction != "PRECALL"


# -- scopes --------------------------------------------------------------------------------------------------------


def test_scopes_of_a_generated_frame() -> None:
    def look(stop: SeenStop) -> Any:
        return [scope.name for scope in stop.frame.scopes()], stop.texts("Locals"), stop.texts("Globals")

    (names, locals_, globals_), _ = _at(_replaying("state.last"), look, compiled(programs.replay), *replay_arguments())
    assert names == ["Locals", "Value Stack", "Instruction", "Globals", "Compiled Graph", "Guards"]
    assert locals_["x"] == "Tensor f32[3] cpu = [1.0, 1.0, 1.0]"
    assert locals_["log"] == "[1]"
    assert next(iter(globals_)).startswith(("__compiled_fn", "TOTAL", "note")), "what the code names comes first"
    assert "TOTAL" in globals_


def test_the_value_stack_is_what_python_has_there() -> None:
    """Check it from bottom to top, including empty slots, against the program's own objects."""
    x, d, log, state = replay_arguments()

    def look(stop: SeenStop) -> Any:
        return stop.stack, stop.texts("Value Stack")

    (stack, shown), _ = _at(_replaying("log[:]"), look, compiled(programs.replay), x, d, log, state)
    assert stack[-3] == [1, 3], "the list that is stored"
    assert stack[-2] is log
    assert stack[-1] == slice(None, None)
    assert list(shown) == [*(str(number) for number in range(len(stack) - 1)), f"{len(stack) - 1} (top)"]
    assert [shown[name] for name, value in zip(shown, stack, strict=True) if is_null(value)] == [
        "NULL" for value in stack if is_null(value)
    ]


@not_on_3_10
def test_null_slots_are_shown() -> None:
    function = compiled(programs.broken)
    (texts, kinds), _ = _at(
        lambda stop: stop.title == f'line {line("break")}: print("at the break", y.shape[0])',
        lambda stop: (stop.texts("Value Stack"), [one.value.type_name for one in stop.scope("Value Stack").named()]),
        function,
        torch.ones(3),
        {},
    )
    assert "NULL" in texts.values()
    assert "NULL" in kinds


def test_cells_are_a_scope_of_their_own() -> None:
    step = programs.counting()
    cells, _ = _at(
        lambda stop: stop.title.startswith("apply: count"),
        lambda stop: stop.texts("Cells"),
        compiled(step),
        torch.ones(2),
    )
    assert cells == {"count": "0"}


def test_the_compiled_graph_and_the_guards() -> None:
    def look(stop: SeenStop) -> Any:
        graph = stop.variables("Compiled Graph")
        inputs = {one.name: one.value.text for one in graph["inputs"].value.children.named()}
        outputs = [one.name for one in graph["outputs"].value.children.named()]
        code = "\n".join(one.value.text for one in graph["code"].value.children.named())
        source = next(scope.source for scope in stop.frame.scopes() if scope.name == "Compiled Graph")
        return graph["compiled by"].value.text, inputs, outputs, code, source.text(), stop.texts("Guards")

    function = compiled(programs.replay)
    (compile_id, inputs, outputs, code, document, guards), _ = _at(
        _replaying("log[:]"), look, function, *replay_arguments()
    )
    assert compile_id == "[0/0] of replay"
    assert inputs == {"x": "Tensor f32[3] cpu from L['x']"}
    assert "y" in outputs
    assert code.startswith("def replay(x):")
    assert "y = x.sin()" in code
    assert document.strip() == code.strip()
    assert any("L['x']" in guard for guard in guards.values())
    assert any("L['log']" in guard for guard in guards.values())


def test_guards_are_those_of_the_entry_that_runs() -> None:
    function = compiled(programs.branching)
    function(torch.ones(2))
    function(torch.ones(2, dtype=torch.float64))
    for dtype, text in ((torch.float32, "torch.float32"), (torch.float64, "torch.float64")):
        guards, _ = _at(lambda stop: True, lambda stop: stop.texts("Guards"), function, torch.ones(2, dtype=dtype))
        tensors = [guard for guard in guards.values() if guard.startswith("check_tensor(L['x']")]
        assert len(tensors) == 1
        assert text in tensors[0]


def test_a_caller_in_the_middle_of_a_call_shows_what_is_its_own() -> None:
    """Slots that a ``CALL`` has consumed are not read. Torch's own debugger reads them, and shows stale objects."""
    function = compiled(programs.broken)

    def look(stop: SeenStop) -> Any:
        names = [frame.name for frame in stop.frames]
        caller: Any = next(frame for frame in stop.frames[1:] if frame.name == "broken (generated #0)")
        stack = next(scope for scope in caller.scopes() if scope.name == "Value Stack").children
        place = caller._running
        return names, place.generated.table[place.index].name, {one.name: one.value.text for one in stack.named()}

    (names, instruction, shown), _ = _at(lambda stop: "resumed" in stop.name, look, function, torch.ones(3), {})
    assert names[:2] == [
        f"broken (resumed at line {line('break')}, generated #1)",
        f"broken (resumed at line {line('break')})",
    ]
    assert instruction == "CALL_FUNCTION_EX"
    assert list(shown) == ["(in use)"]
    assert shown["(in use)"].endswith("more are being used by CALL_FUNCTION_EX")


def test_the_second_presentation_is_the_users_line() -> None:
    (path, number, name), _ = _at(
        _replaying("log[:]"),
        lambda stop: (stop.frames[1].source, stop.frames[1].position.line, stop.frames[1].name),
        compiled(programs.replay),
        *replay_arguments(),
    )
    assert path == str(FIXTURE.path)
    assert number == line("append")
    assert name == "replay"


# -- expressions ---------------------------------------------------------------------------------------------------


def test_evaluate_over_locals_globals_and_the_stack() -> None:
    def look(stop: SeenStop) -> Any:
        frame = stop.frame
        texts = [
            frame.evaluate(expression, "watch").text
            for expression in ("x.shape[0] + 1", "TOTAL", "__stack__[-2]", "len(__stack__)", "[q for q in log if q]")
        ]
        return (
            texts,
            len(stop.stack),
            frame.is_true("log == [1] and __stack__[-2] is log"),
            frame.is_true("any(q for q in log)"),
        )

    programs.TOTAL = 7
    (texts, depth, condition, scoped), _ = _at(
        _replaying("log[:]"), look, compiled(programs.replay), *replay_arguments()
    )
    assert texts == ["4", "4", "[1]", str(depth), "[1]"]
    assert condition is True
    assert scoped is True


def test_evaluating_never_compiles() -> None:
    function, other = compiled(programs.replay), compiled(programs.branching)
    programs.other = other
    frames_before = torch._dynamo.utils.counters["frames"]["total"]

    def look(stop: SeenStop) -> str:
        before = torch._dynamo.utils.counters["frames"]["total"]
        text = stop.frame.evaluate("other(x)", "repl").text
        assert torch._dynamo.utils.counters["frames"]["total"] == before
        return text

    text, _ = _at(_replaying("log[:]"), look, function, *replay_arguments())
    assert text == "Tensor f32[3] cpu = [4.0, 4.0, 4.0]"
    assert torch._dynamo.utils.counters["frames"]["total"] == frames_before + 1


def test_an_expression_that_fails_says_so() -> None:
    def look(stop: SeenStop) -> Any:
        with pytest.raises(NameError, match="no_such_name"):
            stop.frame.evaluate("no_such_name", "watch")
        with pytest.raises(EvaluationError, match="not a Python expression"):
            stop.frame.evaluate("1 +", "watch")
        asked = {
            text: stop.frame.completions(text, len(text) + 1) for text in ("sta", "rep", "Sta", "state.", "State.")
        }
        return {text: {one.label: one.type for one in found} for text, found in asked.items()}

    completions, _ = _at(_replaying("log[:]"), look, compiled(programs.replay), *replay_arguments())
    assert completions["sta"]["state"] == "variable"
    assert completions["rep"] == {"replay": "function", "repr": "function"}
    assert completions["Sta"]["State"] == "class"
    assert completions["state."]["last"] == "field"
    assert "mro" in completions["State."]


# -- writing -------------------------------------------------------------------------------------------------------


def test_a_local_is_written_and_the_program_continues_with_it() -> None:
    def look(stop: SeenStop) -> Any:
        value = stop.scope("Locals").write("y" if "y" in stop.texts("Locals") else "x", "x * 100")
        return value.text

    text, (w, y) = _at(
        lambda stop: stop.title.startswith("inputs of compiled graph") and stop.instruction.startswith("LOAD_FAST"),
        look,
        compiled(programs.broken),
        torch.ones(3),
        {},
    )
    assert text == "Tensor f32[3] cpu = [100.0, 100.0, 100.0]"
    assert torch.equal(y, (torch.ones(3) * 100).sin())
    assert torch.equal(w, y.cos())


def test_a_cell_is_written() -> None:
    step = programs.counting()

    def look(stop: SeenStop) -> Any:
        return stop.scope("Cells").write("count", "41").text

    text, result = _at(
        lambda stop: stop.title.startswith(f"line {line('break_in_closure')}") and stop.instruction.startswith("CALL"),
        look,
        compiled(step),
        torch.ones(2),
    )
    assert text == "41"
    assert result.tolist() == [42.0, 42.0]


def test_the_console_assigns_locals() -> None:
    def look(stop: SeenStop) -> Any:
        stop.frame.evaluate("log = log + [9]; helper = 5", "repl")
        return stop.frame.evaluate("(log, helper)", "repl").text, stop.texts("Locals")["log"]

    (text, shown), _ = _at(_replaying("d.update"), look, compiled(programs.replay), *replay_arguments())
    assert text == "([1, 3, 9], 5)"
    assert shown == "[1, 3, 9]"


def test_attributes_and_items_are_assigned() -> None:
    x, d, log, state = replay_arguments()

    def look(stop: SeenStop) -> Any:
        return stop.frame.write("state.steps", "17").text, stop.frame.write("d['new']", "'value'").text

    texts, _ = _at(_replaying("log[:]"), look, compiled(programs.replay), x, d, log, state)
    assert texts == ("17", "'value'")
    assert state.steps == 17
    assert d["new"] == "value"


@pytest.mark.parametrize(
    ("target", "value", "problem"),
    [
        ("nothing_of_this_name", "1", "is not a local variable"),
        ("x +", "1", "cannot be assigned to"),
        ("x + 1", "1", "cannot be assigned to"),
        ("__stack__[999]", "1", "has no slot 999: its depth is"),
        ("__stack__[0:2]", "1", "assign one slot at a time"),
        ("TOTAL", "1", "is not a local variable"),
    ],
)
def test_what_cannot_be_assigned_is_refused(target: str, value: str, problem: str) -> None:
    def look(stop: SeenStop) -> Any:
        before = stop.stack
        with pytest.raises(WriteRefused, match=problem):
            stop.frame.write(target, value)
        return before, stop.stack

    (before, after), _ = _at(_replaying("log[:]"), look, compiled(programs.replay), *replay_arguments())
    assert [id(one) for one in before] == [id(one) for one in after]


@slots_are_written
def test_a_slot_is_written_and_the_program_continues_with_it() -> None:
    x, d, log, state = replay_arguments()

    def look(stop: SeenStop) -> Any:
        value = stop.scope("Value Stack").write(str(len(stop.stack) - 3), "[10, 20, 30]")
        assert stop.stack[-3] == [10, 20, 30]
        return value.text

    text, _ = _at(_replaying("log[:]"), look, compiled(programs.replay), x, d, log, state)
    assert text == "[10, 20, 30]"
    assert log == [10, 20, 30]


@pytest.mark.skipif(not IS_3_10, reason="newer Pythons' slots are written")
def test_slots_are_not_written_where_their_layout_is_unknown() -> None:
    def look(stop: SeenStop) -> Any:
        with pytest.raises(WriteRefused, match=r"does not know how Python 3\.10"):
            stop.scope("Value Stack").write(str(len(stop.stack) - 1), "1")

    _at(_replaying("log[:]"), look, compiled(programs.replay), *replay_arguments())


@slots_are_written
def test_reference_counts_are_right_after_a_slot_was_written() -> None:
    marker = object()
    wanted = lambda stop: stop.instruction == "RETURN_VALUE"  # noqa: E731  (the shape that _at takes)

    def look(stop: SeenStop) -> Any:
        names = stop.frame._running.frame.f_globals
        old = stop.stack[-1]
        names["marker"] = marker
        before, before_old = sys.getrefcount(marker), sys.getrefcount(old)
        stop.frame.write("__stack__[-1]", "marker")
        held, lost = sys.getrefcount(marker) - before, sys.getrefcount(old) - before_old
        names["marker"] = old
        stop.frame.write("__stack__[-1]", "marker")
        del names["marker"]
        return held, lost, sys.getrefcount(marker) - before

    (held, lost, after), result = _at(wanted, look, compiled(_adds_one), torch.ones(2))
    assert (held, lost) == (1, -1)
    assert after == -1, "the global variable is gone, and nothing else changed"
    assert result.tolist() == [2.0, 2.0]


def _adds_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@slots_are_written
@pytest.mark.parametrize("what", ["null", "type", "names"])
def test_slots_that_the_interpreter_trusts_are_refused(what: str) -> None:
    refusals = {
        "null": (r"is empty \(NULL\)", lambda stop: any(is_null(one) for one in stop.stack)),
        "type": ("which relies on it being of type list", _extends_a_list),
        "names": ("is empty|trusts|cannot be", lambda stop: any(is_null(one) for one in stop.stack)),
    }
    problem, wanted = refusals[what]

    def look(stop: SeenStop) -> Any:
        stack = stop.stack
        slot = (
            next(number for number, one in enumerate(stack) if is_null(one))
            if what != "type"
            else len(stack) - 1 - int(stop.generated.table[stop.index].argument)
        )
        with pytest.raises(WriteRefused, match=problem):
            stop.frame.write(f"__stack__[{slot}]", "'no list'")
        return [id(one) for one in stack] == [id(one) for one in stop.stack]

    unchanged, _ = _at(wanted, look, compiled(programs.broken), torch.ones(3), {})
    assert unchanged


def _extends_a_list(stop: SeenStop) -> bool:
    return stop.instruction == "LIST_EXTEND"


def test_a_caller_cannot_be_written_in_the_middle_of_its_call() -> None:
    function = compiled(programs.counting())

    def look(stop: SeenStop) -> Any:
        caller: Any = next(frame for frame in stop.frames[1:] if "generated #0" in frame.name)
        stack = caller._values.stack()
        if not stack:
            return "empty"
        with pytest.raises(WriteRefused, match="in the middle of an instruction"):
            caller.write("__stack__[0]", "1")
        return "refused"

    outcome, _ = _at(lambda stop: "resumed" in stop.name, look, function, torch.ones(2))
    assert outcome in ("refused", "empty")


def test_looking_at_everything_changes_nothing() -> None:
    """Opening everything at every instruction does not change the results of a run."""
    x, d, log, state = replay_arguments()
    plain = compiled(programs.replay)(x, d, log, state)

    def look(stop: SeenStop) -> int:
        count = 0
        for scope in stop.frame.scopes():
            for variable in scope.children.named():
                count += 1
                if variable.value.children is not None and not variable.value.lazy:
                    count += len(variable.value.children.named())
        return count

    torch._dynamo.reset()
    other_d, other_log, other_state = {"before": 1}, [1], programs.State()
    record = Recorder("in instruction", look=look)
    state_of_random = torch.random.get_rng_state()
    with debugging(record, stop_on_generated_code=True):
        watched = compiled(programs.replay)(x, other_d, other_log, other_state)
    assert sum(record.seen) > 1000
    assert torch.equal(torch.random.get_rng_state(), state_of_random)
    assert all(torch.equal(one, other) for one, other in zip(plain, watched, strict=True))
    assert log == other_log
    assert list(d) == list(other_d)
    assert torch.equal(state.last, other_state.last)
