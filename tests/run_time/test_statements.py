"""The listing as Python statements: they do the same as the generated code, and can be stepped."""

from __future__ import annotations

import contextlib
import io
import random
import re
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import pytest
import torch
from torch._dynamo.convert_frame import register_bytecode_hook

from dynamo_dap.debuggee.bytecode import symbolic_execution
from dynamo_dap.debuggee.bytecode.stack_depth import StackDepths
from dynamo_dap.debuggee.generated.listing import Listing
from dynamo_dap.debuggee.generated.purpose import PROFILING
from dynamo_dap.debuggee.generated.statements import Line, StatementListing
from tests.compile_time import programs as many_values
from tests.records.programs import BREAKS, MORE_BREAKS, PRELUDE, Case
from tests.run_time.in_process import Recorder, SeenStop, debugging
from tests.run_time.programs import compiled, line, programs, replay_arguments
from tests.run_time.pythons import not_on_3_10


def _statements(code: CodeType, original: CodeType | None = None) -> StatementListing:
    depths = StackDepths(code)
    return StatementListing(code, original, depths, Listing(code, original, depths, None, {}))


def _of_calls(function: Callable[..., Any], *arguments: Any) -> list[StatementListing]:
    """The listings of the code that one call of a freshly compiled function runs, outermost first."""
    with debugging(Recorder(), stop_on_generated_code=True) as host:
        function(*arguments)
        return [generated.statements for generated in host.engine.codes]


def _without_remarks(listing: StatementListing) -> list[str]:
    lines = [shown.text.partition("  #")[0].rstrip() for shown in listing.lines]
    return [re.sub(r"(__compiled_fn|__resume_at|tmp)_\d+(_\d+)?", r"\1_N", text) for text in lines[1:]]


def _shown(stop: SeenStop) -> Line:
    listing: StatementListing = stop.generated.statements
    return listing.lines[stop.frame.position.line - 1]


# -- texts -------------------------------------------------------------------------------------------------------


def test_side_effects_in_the_order_in_which_they_take_effect() -> None:
    (listing,) = _of_calls(compiled(programs.replay), *replay_arguments())
    assert PROFILING.title in listing.text()
    listing.lines = [shown for shown in listing.lines if PROFILING.title not in shown.text]
    assert _without_remarks(listing) == [
        "def replay(x, d, log, state):",
        "    global TOTAL",
        "    graph_out_0 = __compiled_fn_N(x)",
        "    result = (graph_out_0[0], graph_out_0[1])",
        "    TOTAL = 4",
        "    torch._dynamo.utils.object_setattr_ignore_descriptor(state, 'last', graph_out_0[2])",
        "    log[:] = [log[0], 3]",
        "    d.update({'result': graph_out_0[1], 'noted': graph_out_0[1]})",
        "    del graph_out_0",
        "    return result",
    ]
    assert f"# line {line('append')}: log.append(3)\n" in listing.text(), "the user's line, without its comment"


def test_a_graph_break_and_the_frame_that_is_packed() -> None:
    outer, resumed = _of_calls(compiled(programs.broken), torch.ones(3), {})
    assert _without_remarks(outer)[-4:] == [
        "    d.update({'first': graph_out_0[0]})",
        "    del graph_out_0",
        "    value_2 = __builtins_dict__['print']('at the break', 3)",
        "    return __resume_at_N([], [], value_2, d, value_1)",
    ]
    assert _without_remarks(resumed)[-2:] == ["    del graph_out_0", "    return result"]


def test_a_branch_is_indented() -> None:
    outer, _ = _of_calls(compiled(programs.branching), torch.ones(2))
    assert _without_remarks(outer)[-3:] == [
        "    if value_1:",
        "        return __resume_at_N([], [], value_2)",
        "    return __resume_at_N([], [], value_2)",
    ]


@not_on_3_10
def test_what_no_statement_says_is_left_as_instructions() -> None:
    outer, _ = _of_calls(compiled(programs.guarded), torch.ones(2))
    left = [one for one in outer.statements if one.text is None]
    assert left, "what handles exceptions"
    text = outer.text()
    assert "__context_manager" in text
    assert re.search(r"^    # +\d+ +\d+  RERAISE", text, re.MULTILINE)
    assert "    return __resume_at_" in text, "what comes behind is said again"


def test_each_instruction_is_on_one_line() -> None:
    for function, arguments in ((programs.replay, replay_arguments()), (programs.guarded, (torch.ones(2),))):
        for listing in _of_calls(compiled(function), *arguments):
            count = len(listing._table)
            covered = [index for one in listing.statements for index in range(one.first, one.last + 1)]
            assert covered == list(range(count))
            lines = [listing.line_of(index) for index in range(count)]
            assert lines == sorted(lines)
            for shown in set(lines):
                entry = listing.entry_of(shown)
                assert entry is not None
                assert listing.line_of(entry) == shown
            assert listing.entry_of(1) == 0, "a heading stands for what follows"
            assert listing.entry_of(len(listing.lines) + 1) is None


# -- correctness: programs with the statements instead of the generated code give equal results ------------------------


class _Replacing:
    """Makes torch run the compiled statements instead of a generated function, if they express all of it."""

    def __init__(self, global_names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self.global_names = global_names
        self.replaced = 0
        self.texts: list[str] = []
        made = symbolic_execution._constant

        def constant(value: object, text: str, producer: int) -> Any:
            # Objects of the program cannot be written as text, so pass them as globals.
            if type(value) is not slice and ("<" in text or "…" in text):
                text = f"constant_{len(global_names)}"
                global_names[text] = value
            return made(value, text, producer)

        monkeypatch.setattr(symbolic_execution, "_constant", constant)

    def hook(self, original: CodeType, generated: CodeType) -> CodeType | None:
        listing = _statements(generated, original)
        if any(one.text is None for one in listing.statements):
            return None
        heading = [shown.text for shown in listing.lines if shown.first is None]
        text = "\n".join([*heading, *(f"{'    ' * (one.depth + 1)}{one.text}" for one in listing.statements)])
        if generated.co_freevars or generated.co_cellvars or generated.co_flags & 0x20:
            return None
        for shown, name in sorted(listing.names_of_globals().items(), key=lambda pair: -len(pair[0])):
            text = re.sub(rf"(?<![\w.]){re.escape(shown)}\b", name, text)
        namespace: dict[str, Any] = {}
        exec(compile(text, original.co_filename, "exec"), namespace)
        self.replaced += 1
        self.texts.append(text)
        (function,) = (value for name, value in namespace.items() if name != "__builtins__")
        code: CodeType = function.__code__
        return code

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        handle = register_bytecode_hook(self.hook)
        try:
            yield
        finally:
            handle.remove()


def _outcome(run: Callable[[], object]) -> tuple[str, str]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    random.seed(0)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = run()
    return re.sub(r" at 0x[0-9a-f]+", "", repr(result)), printed.getvalue()


SAID_WHOLLY = {
    "graph_break",
    "dynamic_shapes",
    "containers",
    "objects",
    "modules",
    "tensors",
    "functions",
    "rare_values",
}
"""Programs with many values, in which some generated functions have neither cells nor exception handlers."""


@pytest.mark.parametrize("program", many_values.PROGRAMS, ids=lambda program: program.__name__)
def test_programs_of_many_values_run_the_same(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> object:
        return program(lambda function: torch.compile(function, backend="eager"))

    replacing = _Replacing(vars(many_values), monkeypatch)
    expected = _outcome(run)
    with replacing.active():
        assert _outcome(run) == expected, "\n".join(replacing.texts)
    assert (replacing.replaced > 0) == (program.__name__ in SAID_WHOLLY | {"transforms"})


@pytest.mark.parametrize("case", [*BREAKS, *MORE_BREAKS], ids=lambda case: case.name)
def test_programs_with_graph_breaks_run_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(compile(PRELUDE + case.source(), "program.py", "exec"), namespace)

    def run() -> object:
        return [eval(f"{case.name}({case.call})", namespace) for _ in range(2)]

    replacing = _Replacing(namespace, monkeypatch)
    expected = _outcome(run)
    with replacing.active():
        assert _outcome(run) == expected, "\n".join(replacing.texts)


def test_values_that_an_effect_would_change_are_named_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """``first`` is read before the list is emptied, and used afterwards."""

    def function(x: torch.Tensor, items: list[int], d: dict[str, int]) -> Any:
        first, second = items[0], d["n"]
        items.clear()
        d["n"] = first
        items.append(second)
        return x + 1, first

    def run() -> object:
        items, d = [7, 8], {"n": 9}
        return compiled(function)(torch.ones(1), items, d), items, d

    replacing = _Replacing({}, monkeypatch)
    expected = _outcome(run)
    with replacing.active():
        assert _outcome(run) == expected
    assert replacing.replaced == 1


# -- stepping ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("granularity", ["statement", "line"])
def test_a_step_is_a_statement(granularity: str) -> None:
    record = Recorder(f"over {granularity}", look=lambda stop: (stop.frame.position.line, stop.generated.statements))
    with debugging(record, stop_on_generated_code=True):
        compiled(programs.replay)(*replay_arguments())
    listing: StatementListing = record.seen[0][1]
    seen = [number for number, _ in record.seen]
    assert seen == sorted(set(seen)), "each once"
    assert {listing.line_of(one.first) for one in listing.statements if not one.depth} <= set(seen)


def test_a_step_in_goes_into_what_a_statement_calls_and_comes_back_to_it() -> None:
    function = compiled(programs.broken)
    function(torch.ones(3), {})
    seen: list[tuple[str, str]] = []

    def script(stop: SeenStop) -> str:
        seen.append((stop.name, _shown(stop).text.strip()))
        return "in"

    with debugging(script, stop_on_generated_code=True):
        function(torch.ones(3), {})
    names = [name for index, (name, _) in enumerate(seen) if index == 0 or seen[index - 1][0] != name]
    resumed = f"broken (resumed at line {line('break')}, generated #1)"
    assert names == ["broken (generated #0)", resumed, "broken (generated #0)"]
    calls = [text for name, text in seen if name == "broken (generated #0)" and "__resume_at_" in text]
    assert len(calls) == 2, "where it is called, and where it has returned"


def test_names_of_statements_are_known_to_expressions() -> None:
    found: dict[str, str] = {}

    def script(stop: SeenStop) -> str | None:
        text = _shown(stop).text
        if text.strip() == "return result":
            found["result"] = stop.frame.evaluate("result[0].shape", "watch").text
        if text.strip().startswith("graph_out_0 = "):
            found["graph"] = stop.frame.evaluate(text.partition("= ")[2].partition("(")[0], "hover").text
        return "over"

    with debugging(script, stop_on_generated_code=True):
        compiled(programs.replay)(*replay_arguments())
    assert found["result"] == "torch.Size([3])"
    assert "function" in found["graph"]
