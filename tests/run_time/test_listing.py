"""The annotated listing: the purpose of each instruction, and the user's statements behind it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dynamo_dap.debuggee.generated.listing import Listing
from dynamo_dap.debuggee.generated.purpose import Kind
from tests.run_time.in_process import Recorder, debugging
from tests.run_time.programs import FIXTURE, compiled, line, programs, replay_arguments
from tests.run_time.pythons import not_on_3_10


def _listings(function: Callable[..., Any], *arguments: Any) -> list[Listing]:
    """The listings of the code that one call of a freshly compiled function runs, outermost first."""
    with debugging(Recorder(), stop_on_generated_code=True) as host:
        function(*arguments)
        return [generated.listing for generated in host.engine.codes]


def _statements(listing: Listing, kind: Kind) -> dict[str, list[tuple[str, int]]]:
    return {
        group.purpose.title: [(one.text.partition("  #@")[0], one.line) for one in group.purpose.statements]
        for group in listing.groups
        if group.purpose.kind is kind
    }


def test_one_line_per_instruction() -> None:
    (listing,) = _listings(compiled(programs.replay), *replay_arguments())
    lines = listing.text().splitlines()
    table = listing._table
    assert len(lines) == len(table)
    for instruction, text in zip(table, lines, strict=True):
        index, offset, name = text.split()[:3]
        assert (int(index), int(offset), name) == (instruction.index, instruction.offset, instruction.name)
        assert len(text) <= 126, "the purpose is seen in a window of 1600 pixels"


def test_groups_cover_the_code_without_gaps() -> None:
    for listing in _listings(compiled(programs.broken), torch.ones(3), {}):
        ends = [-1, *(group.last for group in listing.groups)]
        assert [group.first for group in listing.groups] == [end + 1 for end in ends[:-1]]
        assert ends[-1] == len(listing._table) - 1
        assert all(group.purpose.title for group in listing.groups)


def test_side_effects_name_the_users_statements() -> None:
    (listing,) = _listings(compiled(programs.replay), *replay_arguments())
    replayed = _statements(listing, Kind.SIDE_EFFECT)
    assert len(replayed) == 4
    by_start = {title.partition(" = ")[0].partition("(")[0]: reported for title, reported in replayed.items()}
    assert by_start["apply: d.update"] == [
        ('d["result"] = y', line("store_item")),
        ('d["noted"] = value', line("note")),
    ]
    assert by_start["apply: log[:]"] == [("log.append(3)", line("append"))]
    assert by_start["apply: state.last"] == [("state.last = y + 1", line("store_attribute"))]
    assert by_start["apply: TOTAL"] == [("TOTAL = 4", line("store_global"))]
    text = listing.text()
    assert re.search(rf"╶ apply line {line('append')}: log\[:\] = \[log\[0\], 3\]$", text, re.MULTILINE)
    number = next(number for number, shown in enumerate(text.splitlines(), 1) if "apply line" in shown)
    reported = listing.explanation(number)
    assert reported is not None
    assert reported.purpose.title == "apply: TOTAL = 4"


def test_the_graph_its_inputs_and_outputs() -> None:
    (listing,) = _listings(compiled(programs.replay), *replay_arguments())
    kinds = [group.purpose.kind for group in listing.groups]
    assert kinds.count(Kind.GRAPH) == 1
    assert kinds.index(Kind.INPUTS) < kinds.index(Kind.GRAPH) < kinds.index(Kind.SIDE_EFFECT)
    graph = next(group for group in listing.groups if group.purpose.kind is Kind.GRAPH)
    names = [listing._table[index].name for index in range(graph.first, graph.last + 1)]
    assert any(name.startswith("CALL") for name in names)
    assert names[-1] == "STORE_FAST"
    text = listing.text()
    assert re.search(r"call compiled graph \d+", text)
    assert re.search(r"graph_out_\w+\[\d+\]: output 'y'", text)


def test_a_graph_break_runs_the_users_statement_and_resumes() -> None:
    outer, resumed = _listings(compiled(programs.broken), torch.ones(3), {})
    users = _statements(outer, Kind.USER)
    text = 'print("at the break", y.shape[0])'
    assert list(users.values()) == [[(text, line("break"))]]
    kinds = [group.purpose.kind for group in outer.groups]
    assert kinds[-2:] == [Kind.RESUME, Kind.RETURN]
    assert Kind.RESUME_OPERANDS in kinds
    assert Kind.RESUME not in [group.purpose.kind for group in resumed.groups]
    assert resumed.groups[-1].purpose.kind is Kind.RETURN
    assert "an empty frame: nothing is resumed" in resumed.text()


def test_a_branch_has_two_resume_calls() -> None:
    outer, _ = _listings(compiled(programs.branching), torch.ones(2))
    resumes = [group.purpose.title for group in outer.groups if group.purpose.kind is Kind.RESUME]
    assert len(resumes) == 2
    assert len(set(resumes)) == 2
    (users,) = _statements(outer, Kind.USER).values()
    assert users == [("if y.sum() > 0:", line("branch"))]


@not_on_3_10
def test_cells() -> None:
    outer, resumed = _listings(compiled(programs.counting()), torch.ones(2))
    kinds = {group.purpose.kind for group in outer.groups}
    assert Kind.CELLS in kinds
    assert _statements(outer, Kind.SIDE_EFFECT).popitem()[1] == [("count += 1", line("count"))]
    resume = [group.purpose.title for group in outer.groups if group.purpose.kind is Kind.RESUME]
    assert len(resume) == 1, "making the resume function with its cells is not a second call of it"
    assert Kind.CELLS in {group.purpose.kind for group in resumed.groups}


def test_a_context_that_is_entered_again_is_no_side_effect_of_the_users() -> None:
    outer, _ = _listings(compiled(programs.guarded), torch.ones(2))
    titles = [group.purpose.title for group in outer.groups]
    assert any("__enter__" in title for title in titles)
    assert not any(title.startswith("apply") for title in titles)


def test_the_marker_has_a_group_of_its_own() -> None:
    with debugging(Recorder(), mode="run-time") as host:
        compiled(programs.marked)(torch.ones(2))
        (generated,) = host.engine.codes
        kinds = [group.purpose.kind for group in generated.listing.groups]
    assert Kind.MARKER in kinds


def test_lines_of_statements_are_entries_for_breakpoints() -> None:
    (listing,) = _listings(compiled(programs.replay), *replay_arguments())
    entries = listing.entries_of_lines()
    path = str(FIXTURE.path)
    for marker in ("store_item", "append", "store_attribute", "store_global"):
        (index,) = entries[path, line(marker)]
        assert listing.user_line(index) == line(marker) or marker == "store_item"
    assert (path, line("compute")) not in entries, "the line is inside the graph"


def test_code_compiled_before_the_session_is_annotated_without_statements() -> None:
    function = compiled(programs.replay)
    function(*replay_arguments())
    (listing,) = _listings(function, *replay_arguments())
    replayed = _statements(listing, Kind.SIDE_EFFECT)
    assert len(replayed) == 4
    assert all(reported == [] for reported in replayed.values())


@pytest.mark.parametrize("value", [{"k": 1}, [1, 2]])
def test_code_with_unhashable_constants(value: object) -> None:
    """Code with a dict or list among its constants cannot be hashed. Torch's own debugger fails with such code."""
    from dynamo_dap.debuggee.bytecode.stack_depth import StackDepths

    def function() -> str:
        return "replaced"

    constants = tuple(value if constant == "replaced" else constant for constant in function.__code__.co_consts)
    code = function.__code__.replace(co_consts=constants)
    with pytest.raises(TypeError):
        hash(code)
    listing = Listing(code, None, StackDepths(code), None, {})
    assert "return" in listing.text()
