"""The requests of an IDE's views: compiles, graphs and guards, while a program is paused and while it runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from dynamo_dap.protocol.wire.types import InitializeRequestArguments
from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import SUFFIX
from tests.client import Session
from tests.client.fixtures import Fixture


def _line_of(fixture: str, place: dict[str, Any] | None) -> str | None:
    assert place is not None
    assert place["path"] == str(Fixture(fixture).path)
    return Fixture(fixture).marker_at(place["line"])


def _compiles(session: Session) -> list[dict[str, Any]]:
    """Return the functions in the answer to ``dynamoCompiles``."""
    return session.request("dynamoCompiles", {})["functions"]


def test_nothing_is_compiled_yet(session: Session) -> None:
    session.launch("graph_break", stopOnEntry=True, python=[sys.executable])  # torch is not imported yet
    session.wait_for_stop("entry")
    assert _compiles(session) == []
    assert "torch" in session.refusal("dynamoGraph", {"compileId": "0/0", "index": 0})
    assert "compileId" in session.refusal("dynamoGraph", {"index": 0})
    session.run_to_end()


def test_the_time_of_a_compile_leaves_out_what_it_was_held(session: Session) -> None:
    session.launch("recompiles", "mode")
    session.wait_for_stop("breakpoint", at="mode")
    began = time.monotonic()
    session.continue_to_stop(at="mode")
    held = time.monotonic()
    time.sleep(4)  # not for something to happen: this is the hold
    let_go = time.monotonic()
    session.continue_to_stop(at="mode")
    ended = time.monotonic()
    (function,) = _compiles(session)
    assert [one["state"] for one in function["compiles"]] == ["compiled", "compiled", "tracing"]
    assert 0 < function["compiles"][1]["seconds"] <= (held - began) + (ended - let_go)
    session.set_breakpoints("recompiles")
    session.run_to_end()


def test_a_compile_in_progress(session: Session) -> None:
    session.launch("graph_break", "in_loop")
    session.wait_for_stop("breakpoint", at="in_loop")
    (function,) = _compiles(session)
    assert function["name"] == "train_step"
    (compiled,) = function["compiles"]
    assert compiled["id"] == "0/0"
    assert compiled["state"] == "tracing"
    assert compiled["attempts"] == [{"number": 1}]
    assert compiled["graphs"] == []
    assert compiled["breaks"] == []
    graph = session.request("dynamoGraph", {"compileId": "0/0", "index": 0})
    assert (graph["name"], graph["isFinal"]) == ("graph so far", False)
    # Editors show the text after the last slash as the name.
    assert graph["source"]["name"] == "graph so far of train_step [0\N{DIVISION SLASH}0].py"
    assert [node["name"] for node in graph["nodes"]] == ["l_x_", "total"], "what stands before the loop"
    code = session.request("source", {"source": graph["source"], "sourceReference": 0})["content"]
    assert "total = x * 0" in code
    assert "unknown graph 1" in session.refusal("dynamoGraph", {"compileId": "0/0", "index": 1})
    guards = session.request("dynamoGuards", {"compileId": "0/0"})
    assert guards["isFinal"] is False
    assert guards["count"] == len(guards["guards"])
    tensor = next(guard for guard in guards["guards"] if guard["type"] == "TENSOR_MATCH")
    assert (tensor["source"], _line_of("graph_break", tensor["place"])) == ("x", "before_loop")
    assert "0/0" in session.refusal("dynamoGuards", {"compileId": "7/7"})
    session.set_breakpoints("graph_break")
    session.run_to_end()


def test_a_graph_break_and_its_rest(session: Session) -> None:
    session.launch("graph_break", "after_break")
    session.wait_for_stop("breakpoint", at="after_break")
    (function,) = _compiles(session)
    assert function["name"] == "train_step"
    first, rest = function["compiles"]
    assert (first["state"], rest["state"]) == ("compiled", "tracing")
    assert first["backend"] == "eager"
    assert first["seconds"] > 0
    assert first["attempts"] == [{"number": 1, "restarted": first["attempts"][0]["restarted"]}, {"number": 2}]
    assert "graph_break()" in first["attempts"][0]["restarted"]
    (broken,) = first["breaks"]
    assert broken["reason"] == "Call to `torch._dynamo.graph_break()`"
    assert _line_of("graph_break", broken["place"]) == "break"
    assert broken["id"].startswith("GB")
    assert broken["link"].startswith("https://")
    assert broken["hints"]
    assert rest["name"] == f"train_step (resumed at line {Fixture('graph_break').line('break')})"
    session.set_breakpoints("graph_break")
    session.run_to_end()


def test_the_graph_and_the_guards(session: Session) -> None:
    session.launch("graph_break", "after_break")
    session.wait_for_stop("breakpoint", at="after_break")
    first = _compiles(session)[0]["compiles"][0]
    (summary,) = first["graphs"]
    graph = session.request("dynamoGraph", {"compileId": first["id"], "index": 0})
    nodes = {node["name"]: node for node in graph["nodes"]}
    assert len(graph["nodes"]) == summary["nodeCount"]
    assert summary["operationCount"] == 8
    assert graph["isFinal"] is True
    total = nodes["total"]
    assert (total["operation"], total["target"]) == ("call_function", "operator.mul")
    assert total["value"].startswith("f32[2, 3]")
    assert _line_of("graph_break", total["place"]) == "before_loop"
    code = session.request("source", {"source": graph["source"], "sourceReference": 0})["content"]
    assert "total = x * 0" in code
    assert f"# graph_break.py:{Fixture('graph_break').line('before_break')}: scaled = total * 2" in code
    guards = session.request("dynamoGuards", {"compileId": first["id"]})["guards"]
    tensor = next(guard for guard in guards if guard["type"] == "TENSOR_MATCH")
    assert "L['x']" in tensor["expression"]
    assert tensor["source"] == "x"
    assert _line_of("graph_break", tensor["place"]) == "before_loop"
    session.set_breakpoints("graph_break")
    session.run_to_end()


def test_recompiles_name_the_guard_that_failed(session: Session) -> None:
    session.launch("recompiles", "integer")
    session.wait_for_stop("breakpoint", at="integer")
    (function,) = _compiles(session)
    first, second = function["compiles"]
    assert "recompiled" not in first
    (reason,) = second["recompiled"]
    assert "0/0" in reason
    assert "mode" in reason
    (failure,) = second["failures"]
    assert failure["compileId"] == "0/0"
    assert "L['mode']" in failure["expression"] or "mode" in failure["expression"]
    assert _line_of("recompiles", failure["place"]) == "mode"
    session.set_breakpoints("recompiles")
    session.run_to_end()


def test_changes_are_reported_once_compiles_were_asked_for(session: Session) -> None:
    with session.launching("graph_break"):
        session.set_breakpoints("graph_break", "loop", "after_break")
    session.wait_for_stop("breakpoint", at="loop")
    # A client that does not know the event may end the session.
    assert "dynamoCompilesChanged" not in [event["event"] for event in session.timeline.events]
    _compiles(session)
    session.set_breakpoints("graph_break", "after_break")
    session.continue_to_stop(at="after_break")
    assert "dynamoCompilesChanged" in [event["event"] for event in session.timeline.events]
    session.set_breakpoints("graph_break")
    session.run_to_end()


MANY = """
import torch

def made(number):
    def function(x):
        y = x * number
        torch._dynamo.graph_break()
        return y + 1
    return torch.compile(function, backend="eager")

for turn in range(3):
    turn += 0  #@turn
    for number in range(5):
        made(number)(torch.ones(turn + 2))
"""


def test_many_changes_are_reported_once_until_they_are_asked_for_again(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "many.py"
    program.write_text(MANY, encoding="utf-8")
    line = 1 + next(number for number, text in enumerate(MANY.splitlines()) if "#@turn" in text)
    with session.launching(program, eager=True, mode="both"):
        wanted = [{"line": line}]
        session.request("setBreakpoints", {"source": {"path": str(program)}, "breakpoints": wanted})
    reported, compiles = [], []
    for _ in range(3):
        session.wait_for_stop("breakpoint")
        reported.append([event["event"] for event in session.timeline.events].count("dynamoCompilesChanged"))
        compiles.append(sum(len(function["compiles"]) for function in _compiles(session)))
        session.resume()
    assert session.wait_for_exit() == 0
    assert reported == [0, 1, 2], "a client that has not asked again knows that there is something to ask for"
    assert 0 == compiles[0] < compiles[1] - 1 < compiles[2] - 1, compiles


def test_places_are_written_as_the_client_writes_them(session: Session) -> None:
    session.initialize(
        InitializeRequestArguments("dynamo", lines_start_at1=False, columns_start_at1=False, path_format="uri")
    )
    fixture = Fixture("graph_break")
    source = {"path": fixture.path.as_uri()}

    def line_of(place: dict[str, Any]) -> str | None:
        assert place["path"] == fixture.path.as_uri()
        return fixture.marker_at(place["line"] + 1)

    with session.launching(fixture):
        breakpoints = [{"line": fixture.line("after_break") - 1}]
        answer = session.request("setBreakpoints", {"source": source, "breakpoints": breakpoints})
        assert answer["breakpoints"][0]["verified"]
    stop = session.wait_for_stop("breakpoint")
    frame = session.request("stackTrace", {"threadId": stop.thread_id})["stackFrames"][0]
    assert line_of({"path": frame["source"]["path"], "line": frame["line"]}) == "after_break"
    compiled = _compiles(session)[0]["compiles"][0]
    assert line_of(compiled["breaks"][0]["place"]) == "break"
    graph = session.request("dynamoGraph", {"compileId": compiled["id"], "index": 0})
    assert "before_break" in {line_of(node["place"]) for node in graph["nodes"] if "place" in node}
    guards = session.request("dynamoGuards", {"compileId": compiled["id"]})["guards"]
    assert "before_loop" in {line_of(guard["place"]) for guard in guards if "place" in guard}
    session.request("setBreakpoints", {"source": source, "breakpoints": []})
    session.run_to_end()


ON_AND_ON = """
import torch

def double(x):
    return x * 2

for number in range(1002):
    torch.compiler.reset()
    torch.compile(double, backend="eager")(torch.ones(2))
    if number % 100 == 0:
        print("compiled", number, flush=True)
print("over")  #@over
"""


def test_of_a_program_that_compiles_on_and_on_the_last_compiles_are_kept_whole(
    session: Session, tmp_path: Path
) -> None:
    program = tmp_path / "many.py"
    program.write_text(ON_AND_ON, encoding="utf-8")
    with session.launching(Fixture(program), cwd=str(tmp_path)):
        session.set_breakpoints(Fixture(program), "over", mode="eager")
    for number in range(0, 1002, 100):
        session.wait_for_output(f"compiled {number}\n")
    session.wait_for_stop("breakpoint", at="over")
    (function,) = _compiles(session)
    ids = [each["id"] for each in function["compiles"]]
    assert len(ids) == 1002
    assert all(each["graphs"][0]["nodeCount"] == 3 for each in function["compiles"])
    for command in ("dynamoGuards", "dynamoGraph"):
        assert "were dropped after" in session.refusal(command, {"compileId": ids[1], "index": 0})
    assert session.request("dynamoGuards", {"compileId": ids[2]})["guards"]
    assert len(session.request("dynamoGraph", {"compileId": ids[2], "index": 0})["nodes"]) == 3
    assert session.run_to_end() == 0
    (recorded,) = read_record(next(tmp_path.rglob(f"*{SUFFIX}"))).functions
    assert all(each.guards and each.generated and len(each.graphs[0].nodes) == 3 for each in recorded.compiles)
