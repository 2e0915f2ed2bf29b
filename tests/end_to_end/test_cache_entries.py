"""Reported cache entries agree with torch's own table, in every client, and after entries are forgotten."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from dynamo_dap.protocol.requests.contract import ENTRIES, FORGET
from tests.client import FIXTURES, Fixture, Session
from tests.client.environments import alone, own_command
from tests.client.timeline import DEADLINE

FIXTURE = Fixture("cache_entries")
OF_TORCH = (
    "[(str(entry.compile_id), len(entry.guard_manager.code_parts)) for entry in "
    "__import__('torch')._dynamo.eval_frame._debug_get_cache_entry_list("
    "fn._torchdynamo_orig_callable if hasattr(fn, '_torchdynamo_orig_callable') else fn)]"
)


def _entries(session: Session, function: str | None = None) -> list[dict[str, Any]]:
    """Return the functions with cache entries."""
    functions: list[dict[str, Any]] = session.request(ENTRIES, {"function": function} if function else {})["functions"]
    return functions


def _guard(entry: dict[str, Any], text: str) -> dict[str, Any]:
    (found,) = [guard for guard in entry["guards"] if guard["text"] == text]
    return dict(found)


def test_entries_are_those_that_torch_has(session: Session) -> None:
    """Each entry has its guards in torch's order; torch's own list leaves out guards that only lead to others."""
    session.launch("cache_entries", "end")
    stop = session.wait_for_stop("breakpoint", at="end")
    known = eval(stop.frame.evaluate(OF_TORCH).text)  # a list of tuples
    function, resumed = _entries(session, "fn")
    assert [entry["compileId"] for entry in function["entries"]] == [compile_id for compile_id, _ in known]
    # Our list merges the guards on a tensor's marks.
    parts = [
        [part for guard in entry["guards"] for part in guard["expression"].split(" and hasattr")]
        for entry in function["entries"]
    ]
    assert [len(one) for one in parts] == [count for _, count in known]
    assert function["name"] == "fn"
    assert function["line"] == FIXTURE.line("scaled") - 2
    assert resumed["name"] == f"fn (resumed at line {FIXTURE.line('between')})"
    assert [entry["backend"] for entry in function["entries"]] == ["eager", "eager"]
    assert session.run_to_end() == 0


def test_an_entry_shows_its_guards_code_graphs_and_resume_functions(session: Session) -> None:
    session.launch("cache_entries", "end")
    session.wait_for_stop("breakpoint", at="end")
    function, resumed = _entries(session, "fn")
    by_id = {entry["compileId"]: entry for entry in function["entries"]}
    first = by_id["0/0"]
    guard = _guard(first, "factor == 2")
    assert (guard["line"], guard["failures"]) == (FIXTURE.line("scaled"), 1)
    assert _guard(by_id["0/1"], "factor == 3")["failures"] == 1
    assert first["lastMiss"] == {"text": "factor == 2", "valueThen": "2", "valueNow": "3"}
    texts = [one["text"] for one in first["guards"]]
    assert "x is f32[2, 4], on cpu, strides [4, 1], no grad" in texts  # whole text: every property of the guard
    assert "__resume_at" in first["code"]
    assert first["code"].splitlines()[1] == "def fn(x, factor):"
    (graph,) = first["graphs"]
    assert graph["operations"] == 1
    assert "x * 2" in graph["code"]
    (resume,) = first["resumes"]
    assert resume["line"] == FIXTURE.line("between")
    assert resume["text"].startswith('print("between")')
    assert resume["entries"] == len(resumed["entries"]) == 1
    assert resume["generatedName"] in resumed["generatedNames"]
    assert resume["generatedName"] in first["code"]
    assert first["memory"]["code"] > 100
    assert session.run_to_end() == 0


def test_calls_are_counted_from_when_they_are_asked_for(session: Session) -> None:
    session.launch("cache_entries", "call", "again")
    session.wait_for_stop("breakpoint", at="call")
    session.continue_to_stop(at="call")
    (function, _) = _entries(session, "fn")
    assert "calls" not in function["entries"][0]
    session.continue_to_stop(at="call")
    session.continue_to_stop(at="again")
    function, _ = _entries(session, "fn")
    assert {entry["compileId"]: entry["calls"] for entry in function["entries"]} == {"0/0": 0, "0/1": 2}
    assert session.run_to_end() == 0


def test_looking_at_entries_changes_none(session: Session) -> None:
    """It changes neither the order, nor the guards' counters, nor later compiles."""
    session.launch("cache_entries", "again", "end")
    stop = session.wait_for_stop("breakpoint", at="again")
    before = stop.frame.evaluate(OF_TORCH).text
    text = session.request(ENTRIES)["text"]
    assert session.request(ENTRIES)["text"].replace(", 0 calls since counting began", "") == text
    assert stop.frame.evaluate(OF_TORCH).text == before
    compiles = session.request("dynamoCompiles")
    session.continue_to_stop(at="end")
    assert session.request("dynamoCompiles") == compiles
    assert session.run_to_end() == 0


def test_one_entry_is_forgotten_and_compiled_again(session: Session) -> None:
    session.launch("cache_entries", "again", "end")
    session.wait_for_stop("breakpoint", at="again")
    function, _ = _entries(session, "fn")
    assert session.request(FORGET, {"functionId": function["id"], "compileId": "0/0"}) == {"count": 1}
    assert [entry["compileId"] for entry in _entries(session, "fn")[0]["entries"]] == ["0/1"]
    message = session.refusal(FORGET, {"functionId": function["id"], "compileId": "0/0"})
    assert "fn has no cache entry 0/0" in message
    session.continue_to_stop(at="end")
    assert [entry["compileId"] for entry in _entries(session, "fn")[0]["entries"]] == ["0/2", "0/1"]
    assert session.run_to_end() == 0
    assert "again 3.0" in session.output("stdout")


def test_all_of_a_function_is_forgotten(session: Session) -> None:
    """Its resume functions lose their entries as well; another function keeps its own."""
    session.launch("cache_entries", "again", "end")
    session.wait_for_stop("breakpoint", at="again")
    function, _ = _entries(session, "fn")
    assert session.request(FORGET, {"functionId": function["id"]}) == {"count": 3}
    assert [one["name"] for one in _entries(session)] == ["Model.forward"]
    session.continue_to_stop(at="end")
    function, resumed = _entries(session, "fn")
    assert (len(function["entries"]), len(resumed["entries"])) == (1, 1)
    assert session.run_to_end() == 0
    assert "again 3.0" in session.output("stdout")


def test_a_function_that_is_being_compiled_is_not_forgotten(session: Session) -> None:
    """Torch uses its entries when the compile ends. A single entry can be forgotten."""
    session.launch("cache_entries", "scaled")
    session.wait_for_stop("breakpoint", at="scaled")
    session.continue_to_stop(at="scaled")
    function = _entries(session, "fn")[0]
    assert "being compiled" in session.refusal(FORGET, {"functionId": function["id"]})
    assert session.request(FORGET, {"functionId": function["id"], "compileId": "0/0"}) == {"count": 1}
    session.set_breakpoints("cache_entries")
    assert session.run_to_end() == 0
    assert "again 3.0" in session.output("stdout")


def test_entries_are_printed_for_a_program() -> None:
    """``dynamo-dap entries`` prints text, or JSON separate from the program's output."""
    command = [*own_command(), "entries", "--function", "fn"]
    ran = subprocess.run(
        [*command, str(FIXTURES / "cache_entries.py")], capture_output=True, text=True, timeout=100, check=True
    )
    for part in (
        "fn  ",
        "[0/1] compiled by eager, 2 calls since",
        "[0/0] compiled by eager, 2 calls since",
        "last miss: factor == 2 (was 2, is 3)",
        f"line {FIXTURE.line('scaled')}, missed 1 time",
        "__compiled_fn_",
        f'resumes at line {FIXTURE.line("between")}: print("between")',
    ):
        assert part in ran.stdout, part
    assert "Model.forward" not in ran.stdout
    ran = subprocess.run(
        [*command, "--json", str(FIXTURES / "cache_entries.py")],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    assert [len(function["entries"]) for function in json.loads(ran.stdout)] == [2, 1]
    assert "between" in ran.stderr


def test_what_a_decorator_wraps_is_found_by_its_own_name(tmp_path: Path) -> None:
    """Dynamo compiles the wrapper, as in transformers' models, but a user knows the wrapped function."""
    program = tmp_path / "program.py"
    program.write_text(
        "import functools, torch\n"
        "def decorator(function):\n"
        "    @functools.wraps(function)\n"
        "    def wrapper(*arguments):\n"
        "        return function(*arguments)\n"
        "    return wrapper\n"
        "@torch.compile(backend='eager')\n"
        "@decorator\n"
        "def scale(x, k):\n"
        "    return x * k\n"
        "scale(torch.ones(2), 2), scale(torch.ones(2), 3)\n"
    )
    command = [*own_command(), "entries", "--function", "scale", str(program)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
    assert ran.stdout.startswith("scale in decorator.<locals>.wrapper  ")
    assert "last miss: " in ran.stdout
    assert "graph __compiled_fn_1 (1 operation):" in ran.stdout


def test_a_program_describes_its_functions(tmp_path: Path) -> None:
    """``describe`` works from its first call on, for a function, a compiled function, a method and a module."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, dynamo_dap\n"
        "print('before', dynamo_dap.describe(), end='')\n"
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x, k):\n"
        "        return x * k\n"
        "model = Model()\n"
        "compiled = torch.compile(model, backend='eager')\n"
        "compiled(torch.ones(2), 2)\n"
        "compiled(torch.ones(2), 3)\n"
        "texts = {dynamo_dap.describe(one) for one in (model, compiled, model.forward, Model.forward)}\n"
        "print(len(texts), *texts)\n"
        "try:\n"
        "    dynamo_dap.describe(3)\n"
        "except TypeError as error:\n"
        "    print(error)\n"
    )
    ran = alone(program)
    assert ran.stdout.startswith("before No function has cache entries.\n1 Model.forward  ")
    assert "k == 2 (was 2, is 3)" in ran.stdout
    assert "graph __compiled_fn_1 (1 operation):\n" in ran.stdout
    assert "a function, a method or a" in ran.stdout
    assert "Traceback" not in ran.stderr


def test_the_two_resume_functions_of_a_branch_are_distinguished(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "@torch.compile(backend='eager')\n"
        "def fn(x):\n"
        "    if not x.sum() > 0:\n"
        "        return x.cos()\n"
        "    return x.sin()\n"
        "fn(torch.ones(2)), fn(-torch.ones(2))\n"
    )
    command = [*own_command(), "entries", "--json", str(program)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
    function, *resumed = json.loads(ran.stdout)
    command.remove("--json")
    printed = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True).stdout
    for when, line in (("false", "line 5: return x.cos()"), ("true", "line 6: return x.sin()")):
        (name,) = (one["generatedName"] for one in function["entries"][0]["resumes"] if one["when"] == when)
        described = [each for each in printed.splitlines() if f"value is {when}" in each]
        assert len(described) == 2, "where the branch is, and at the resume function"
        assert all(name in each and line in each for each in described)
    sides = {one["generatedName"]: (one["when"], one["nextLine"]) for one in function["entries"][0]["resumes"]}
    assert sorted(sides.values()) == [("false", 5), ("true", 6)]
    for one in resumed:
        (name,) = one["generatedNames"]
        assert sides[name] == (one["when"], one["nextLine"])
        operation = "cos" if one["when"] == "false" else "sin"
        assert operation in one["entries"][0]["graphs"][0]["code"]
