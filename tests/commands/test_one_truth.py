"""One function has one name, and one compile one number of guards, in all commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from dynamo_dap.trace_logs.logs import read_any
from tests.client import Session
from tests.client.environments import own_command
from tests.client.fixtures import Fixture
from tests.client.timeline import DEADLINE

FIXTURE = Fixture("decorated.py")
MODEL, STEP = "Model.forward", "train_step_of.<locals>.train_step"
RESUMED = f"{STEP} (resumed at line {FIXTURE.line('break')})"
COMMANDS = {
    "check": ["--json"],
    "explore": ["--json"],
    "profile": ["--json"],
    "compare": ["--json"],
    "entries": ["--json"],
    "record-call": ["--function", MODEL, "--folder", "call", "--json"],
}


class Outputs:
    """What each command says of one program."""

    def __init__(self, folder: Path, fixture: Fixture = FIXTURE, commands: Mapping[str, list[str]] = COMMANDS) -> None:
        self._folder, self._fixture = folder, fixture
        self.by_command = {name: self._ask(name, *options, str(fixture.path)) for name, options in commands.items()}
        self._run("run", str(fixture.path))
        self.report = json.loads(self._run("report", "--json"))

    def _run(self, command: str, *arguments: str) -> str:
        ran = subprocess.run(
            [*own_command(), command, *arguments],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert ran.returncode in (0, 1), ran.stderr
        return ran.stdout

    def entries_as_text(self) -> dict[str, str]:
        """What `entries` prints of each compile without --json, by id."""
        parts = re.split(
            r"^  \[(.+?)\] compiled by ", self._run("entries", str(self._fixture.path)), flags=re.MULTILINE
        )
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    def report_as_text(self) -> str:
        """What `report` prints."""
        return self._run("report")

    def _ask(self, command: str, *arguments: str) -> list[Any]:
        """Return the objects of its output, which may be a list, one document or one a line."""
        text, found = self._run(command, *arguments).strip(), []
        while text:
            document, end = json.JSONDecoder().raw_decode(text)
            found += document if isinstance(document, list) else [document]
            text = text[end:].lstrip()
        return found

    def compiles(self) -> dict[str, Any]:
        """The report's compiles with guards, by id."""
        found = (one for function in self.report["functions"] for one in function["compiles"])
        return {one["id"]: one for one in found if one.get("guardCount")}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    return Outputs(tmp_path_factory.mktemp("commands"))


def test_one_function_has_one_name(outputs: Outputs) -> None:
    compiled = {one["name"] for one in outputs.compiles().values()}
    with_graph = {MODEL, RESUMED}
    assert compiled == {*with_graph, STEP}
    (check,) = outputs.by_command["check"]
    assert {one["function"] for one in check["new"]} == {MODEL, STEP}
    assert {one["name"] for one in outputs.by_command["explore"]} == with_graph
    (profile,) = outputs.by_command["profile"]
    assert {one["compileName"].split(" [")[0] for one in profile["guards"]["times"]} == {
        f"compile {name}" for name in compiled
    }
    assert {one["function"] for one in outputs.by_command["compare"]} == with_graph
    assert {one["name"] for one in outputs.by_command["entries"]} == compiled
    assert [one["function"] for one in outputs.by_command["record-call"]] == [MODEL]


def test_one_compile_has_one_number_of_guards(outputs: Outputs) -> None:
    compare_guards(outputs)


def test_a_trace_log_has_the_records_number_of_guards(tmp_path: Path) -> None:
    subprocess.run(
        [*own_command(), "run", "--trace", str(FIXTURE.path)],
        env={**os.environ, RECORDS_VARIABLE: str(tmp_path)},
        timeout=DEADLINE,
        check=True,
    )
    (trace,) = tmp_path.rglob("*.trace")
    (record,) = tmp_path.rglob("*.jsonl")
    from_log, recorded = (
        {one.id: (one.guard_count, len(one.guards)) for _, one in read_any(path).compiles()} for path in (trace, record)
    )
    assert from_log == recorded
    assert all(count == shown > 0 for count, shown in recorded.values())


def test_a_stop_in_generated_code_has_that_number_of_guards(session: Session, outputs: Outputs) -> None:
    with session.launching(FIXTURE.path):
        lines = FIXTURE.path.read_text(encoding="utf-8").splitlines()
        line = next(number for number, text in enumerate(lines, 1) if "y = self.linear(x)" in text)
        session.set_breakpoints(FIXTURE, SourceBreakpoint(line, mode="run-time"))
    for compile_id in ("0/0", "0/1"):
        stop = session.wait_for_stop("breakpoint")
        assert len(stop.frame["Guards"].children) == outputs.compiles()[compile_id]["guardCount"] > 10
        session.resume()


def test_one_run_has_one_number_of_lines_that_break(outputs: Outputs) -> None:
    (check,) = outputs.by_command["check"]
    printed = outputs.report_as_text()
    (count, lines) = re.findall(r"Graph break count: (\d+) at (\d+) line", printed)[0]
    assert int(lines) == check["breaks"] > 0
    assert int(count) == sum(
        len(one.get("breaks", ())) for each in outputs.report["functions"] for one in each["compiles"]
    )
    assert int(re.findall(r"Recompiles: (\d+)", printed)[0]) == check["recompiles"] > 0


def test_a_language_model_has_one_number_of_guards(tmp_path: Path) -> None:
    """Hundreds of guards: of parameters, of a configuration, of a cache."""
    outputs = Outputs(tmp_path, Fixture("small_llama.py"), {"profile": ["--json"], "entries": ["--json"]})
    compare_guards(outputs)
    compiles = outputs.compiles()
    assert {one["name"] for one in compiles.values()} == {"LlamaForCausalLM.forward"}
    assert len(compiles) == 3
    assert min(one["guardCount"] for one in compiles.values()) > 200
    printed = {
        compile_id: int(text.split(" guards:")[0].split()[-1]) for compile_id, text in outputs.entries_as_text().items()
    }
    assert printed == {compile_id: one["guardCount"] for compile_id, one in compiles.items()}


def compare_guards(outputs: Outputs) -> None:
    by_id = {compile_id: one["guardCount"] for compile_id, one in outputs.compiles().items()}
    (profile,) = outputs.by_command["profile"]
    timed = {one["compileName"].rpartition("[")[2].rstrip("]"): one["count"] for one in profile["guards"]["times"]}
    kept = {entry["compileId"]: entry for one in outputs.by_command["entries"] for entry in one["entries"]}
    assert timed == by_id
    assert {compile_id: len(entry["guards"]) for compile_id, entry in kept.items() if compile_id in by_id} == by_id
    texts = {
        compile_id: sorted(guard["text"] for guard in entry["guards"])
        for compile_id, entry in kept.items()
        if compile_id in by_id
    }
    for compile_id, one in outputs.compiles().items():
        assert sorted(guard.get("text") or guard["expression"] for guard in one["guards"]) == texts[compile_id]
        assert len({guard["expression"] for guard in one["guards"]}) == by_id[compile_id]


def test_a_miss_stands_at_the_guard_that_failed(outputs: Outputs) -> None:
    (forward,) = [one for one in outputs.by_command["entries"] if one["name"] == MODEL]
    first = next(entry for entry in forward["entries"] if entry["compileId"] == "0/0")
    missed = {guard["text"]: guard["failures"] for guard in first["guards"] if guard.get("failures")}
    assert len(missed) == 1
    assert next(iter(missed)).startswith("args[0] is f32[3, 4]")
    marks = [guard["text"] for guard in first["guards"] if "is marked" in guard["text"]]
    assert len(marks) == len(set(marks)) == 5, "x, weight, bias and two items"


def test_stops_and_what_if_have_that_name(session: Session) -> None:
    """While Dynamo traces a call, in a cached call, in one that is changed, and at a recompile."""
    with session.launching(FIXTURE.path):
        session.request("setExceptionBreakpoints", {"filters": ["recompile"]})
        session.set_breakpoints(FIXTURE.path, "size")
    stop = session.wait_for_stop("breakpoint", at="size")
    assert stop.description == f"Tracing {MODEL} [0/0]"
    session.resume()
    stop = session.wait_for_stop("exception")
    assert f"Recompile: {MODEL} [0/1]" in session.request("exceptionInfo", {"threadId": stop.thread_id})["exceptionId"]
    session.continue_to_stop(at="size")
    stop = session.continue_to_stop(at="size")
    assert stop.description == f"Call 3 of {MODEL} [0/1]"
    session.request("setExpression", {"expression": "scale", "value": "7", "frameId": stop.frame.data.id})
    stop = session.wait_for_stop("changed", at="size")
    assert stop.description == f"Call 3 of {MODEL} [0/1], changed by the debugger"
    assert f"trace of {MODEL} that was changed" in stop.body["text"]
    assert session.request("dynamoWhatIf")["function"] == MODEL
    session.set_breakpoints(FIXTURE.path)
    session.run_to_end()
