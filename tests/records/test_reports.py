"""``dynamo-dap run`` and ``report``: the record agrees with what torch logs in the same run, and with ``explain``."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynamo_dap.fixes.findings import findings_of
from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from dynamo_dap.protocol.requests.options import LaunchArguments
from dynamo_dap.records.advice.gathering import what_to_do
from dynamo_dap.records.advice.items import Kind
from dynamo_dap.records.events import BreakFound, CompileBegan, CompileEnded, GraphMade, GuardsMade, Record, Started
from dynamo_dap.records.file import RecordWriter, UnreadableRecord, read_record
from dynamo_dap.records.folders import SUFFIX
from dynamo_dap.records.model import (
    Graph,
    GraphBreak,
    Guard,
    Node,
    Place,
    Size,
    SizeReason,
    SkippedFrame,
    StackLine,
    counts_of,
)
from dynamo_dap.records.report.html_report import html_report
from dynamo_dap.records.report.output import write_page
from dynamo_dap.records.report.text_report import print_report
from dynamo_dap.records.texts import digest_of_line
from dynamo_dap.server.launching.program import prepare
from tests.client import Session
from tests.client.environments import python_option
from tests.client.fixtures import Fixture
from tests.client.pages import data_elements, own_scripts
from tests.client.timeline import DEADLINE
from tests.records.programs import (
    AT_ONCE,
    BREAKS,
    GROWS,
    IS_REFERENCE,
    MORE_BREAKS,
    RECOMPILES,
    Case,
    write,
    write_explained,
)

_BREAK = re.compile(r"^Graph break (?:\(.*\) )?in user code at (?P<path>.+):(?P<line>\d+)$")


def command(*arguments: str, folder: Path, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``dynamo-dap`` with records in ``folder``; programs that import torch are forked, see ``zygote``."""
    name, *rest = arguments
    if name == "run" and "--python" not in rest:
        program = next(one for one in rest if one.endswith(".py"))
        rest = [*python_option(folder / program), *rest]
    return subprocess.run(
        [sys.executable, "-m", "dynamo_dap", name, *rest],
        env={**os.environ, RECORDS_VARIABLE: str(folder / "records"), "PYTHONUNBUFFERED": "1", **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=check,
    )


def record_of(folder: Path) -> dict[str, Any]:
    """Return the newest record, as ``--json`` prints it."""
    return json.loads(command("report", "--json", folder=folder).stdout)


def logged_texts(output: str, kind: str) -> list[list[str]]:
    """Return the messages that torch logged under ``kind``, as lines without their prefix."""
    prefix = re.compile(rf"^[A-Z]\d{{4}} \S+ \d+ (?P<where>\S+) .*?\[__{kind}\] ?(?P<text>.*)$")
    messages: list[list[str]] = []
    for line in output.splitlines():
        match = prefix.match(line)
        if match is None:
            continue
        if _BREAK.match(match["text"]) or match["text"].startswith("Recompiling function "):
            messages.append([])
        if messages:
            messages[-1].append(match["text"])
    return messages


@pytest.mark.timeout(240)
def test_every_break_agrees_with_torchs_own_log(tmp_path: Path) -> None:
    cases = [*BREAKS, *MORE_BREAKS]
    program = write(tmp_path, cases)
    ran = command("run", str(program), folder=tmp_path, TORCH_LOGS="graph_breaks")
    assert "done" in ran.stdout
    record = record_of(tmp_path)
    assert record["ended"]
    recorded = {
        function["name"]: [b for c in function["compiles"] for b in c.get("breaks", [])]
        for function in record["functions"]
    }
    logged = logged_texts(ran.stderr, "graph_breaks")
    assert len(logged) == sum(len(breaks) for breaks in recorded.values())
    lines = Fixture(program)
    for case in cases if IS_REFERENCE else ():
        found = recorded.get(case.name)
        assert found, case.name
        assert lines.marker_at(found[0]["place"]["line"]) == case.name
    in_order = [one for breaks in recorded.values() for one in breaks]
    # Each recompile is one of a kind as well.
    assert len({one.get("id") for one in in_order}) + len(RECOMPILES) >= 45
    for message, one in zip(logged, in_order, strict=True):
        match = _BREAK.match(message[0])
        assert match is not None, message
        assert (match["path"], int(match["line"])) == (one["place"]["path"], one["place"]["line"])
        text = "\n".join(line.strip() for line in message)
        text = re.sub(r" at 0x[0-9a-f]+", "", text)  # which the record leaves out
        assert one["reason"] in text
        assert all(hint in text for hint in one.get("hints", [])), one
        assert one.get("explanation", "") in text
        assert one.get("link", "") in text
        assert one.get("id", "").removeprefix("GB") in one.get("link", "")


@pytest.mark.timeout(240)
def test_every_recompile_agrees_with_torchs_own_log(tmp_path: Path) -> None:
    program = write(tmp_path, RECOMPILES)
    ran = command("run", str(program), folder=tmp_path, TORCH_LOGS="recompiles")
    record = record_of(tmp_path)
    logged = ["\n".join(message) for message in logged_texts(ran.stderr, "recompiles")]
    names = {case.name for case in RECOMPILES}
    for function in [one for one in record["functions"] if one["name"] in names]:
        recompiled = [one for one in function["compiles"] if one.get("failures")]
        mine = [text for text in logged if text.startswith(f"Recompiling function {function['name']} in")]
        assert len(recompiled) == len(mine) >= 1, function["name"]
        for one, text in zip(recompiled, mine, strict=True):
            for failure in one["failures"]:
                assert failure["expression"] in text
                assert f"{failure['compileId']}: " in text
                # Grad mode and similar state belong to the whole process: no line caused that guard.
                if not failure["expression"].startswith("GLOBAL_STATE"):
                    assert Fixture(program).marker_at(failure["place"]["line"]) == function["name"], failure
    assert {function["name"] for function in record["functions"]} >= {case.name for case in RECOMPILES}


@pytest.mark.timeout(240)
def test_counts_agree_with_explain(tmp_path: Path) -> None:
    cases = [case for case in (*BREAKS, *MORE_BREAKS) if case.call == "torch.ones(3)"]
    assert len(cases) >= 40
    program = write_explained(tmp_path, cases)
    ran = command("run", str(program), folder=tmp_path)
    explained = json.loads(ran.stdout.splitlines()[-1])
    session = read_record(next(tmp_path.rglob(f"*{SUFFIX}")))
    functions = {function.name: function for function in session.functions}
    for case in cases:
        counts = counts_of(functions[case.name].compiles)
        assert [counts.graphs, counts.operations, counts.breaks_with_graph] == explained[case.name], case.name
        # Explain does not count breaks before the first operation of a graph.
        assert counts.breaks >= 1 or not IS_REFERENCE, case.name


def test_the_printed_report_says_what_matters(tmp_path: Path) -> None:
    program = write(tmp_path, [*BREAKS[:2], RECOMPILES[0]])
    command("run", str(program), folder=tmp_path)
    report = command("report", folder=tmp_path).stdout
    assert "Graph break count: 2" in report
    assert "(2 after operations of a graph)" in report
    assert f"{program}:{Fixture(program).line('branch')}: Data-dependent branching" in report
    assert "Do: Use `torch.cond`" in report
    assert "None of this was tried" in report
    assert "`dynamo-dap report --try`" in report
    assert "Recompiles: 1" in report
    assert "Recompile: " in report


def test_a_program_that_is_killed_leaves_a_record(tmp_path: Path) -> None:
    program = write(tmp_path, [BREAKS[0]])
    program.write_text(program.read_text().replace('print("done")', "import os; os.kill(os.getpid(), 9)"))
    assert command("run", str(program), folder=tmp_path, check=False).returncode == -9
    record = record_of(tmp_path)
    assert record["ended"] is None
    assert record["functions"][0]["compiles"][0]["state"] == "compiled"
    assert "crashed" in command("report", folder=tmp_path).stdout


def test_exit_status_and_arguments_are_the_programs(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys\nprint(sys.argv[1:])\nsys.exit(7)\n")
    ran = command("run", str(program), "--flag", "-x", folder=tmp_path, check=False)
    assert ran.returncode == 7
    assert "['--flag', '-x']" in ran.stdout
    assert command("report", folder=tmp_path, check=False).returncode == 1


def test_records_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"hello": 1}\n')
    with pytest.raises(UnreadableRecord, match="is not a record"):
        read_record(path)
    program = tmp_path / "my model.py"
    program.write_text("import torch\n")
    with pytest.raises(UnreadableRecord, match=r"dynamo-dap run '.*/my model\.py'"):
        read_record(program)
    started = {"event": "started", "time": 0, "process": 1, "program": [], "cwd": "", "python": ""}
    path.write_text(json.dumps({**started, "version": 99}) + "\n")
    with pytest.raises(UnreadableRecord, match="upgrade"):
        read_record(path)
    path.write_text(json.dumps({**started, "version": 1}) + '\n{"event": "compileBeg')
    assert read_record(path).functions == []


def test_a_debug_session_leaves_a_record_too(session: Session, tmp_path: Path) -> None:
    session.launch("graph_break", cwd=str(tmp_path))
    assert session.wait_for_exit() == 0
    (path,) = tmp_path.rglob(f"*{SUFFIX}")
    (function,) = read_record(path).functions
    assert function.name == "train_step"
    assert [one.state for one in function.compiles] == ["compiled", "compiled"]


def test_no_record_is_written_unasked(session: Session, tmp_path: Path) -> None:
    session.launch("graph_break", cwd=str(tmp_path), record=False)  # it is about this
    assert session.wait_for_exit() == 0
    assert not list(tmp_path.rglob(f"*{SUFFIX}"))


def test_values_lines_and_callers_are_recorded(tmp_path: Path) -> None:
    case = Case(
        "fn",
        "y = x + 1  #@assigned\nif mode == 'a':\n    y = y * 2  #@taken\nelse:\n    y = y - 1  #@never\n"
        "w, n = y[0], x.shape[0] + 1  #@both\ny = outside(y)\nreturn [y * n, w]",
        "T3, 'a'@torch.ones(5), 'a'",
        "x, mode",
    )
    program = write(tmp_path, [case])
    command("run", str(program), folder=tmp_path)
    record = record_of(tmp_path)
    lines = Fixture(program)
    first, second = record["functions"][0]["compiles"]
    values = {(value["name"], value["place"]["line"]): value["text"] for value in second["values"]}
    assert values["y", lines.line("assigned")].startswith("f32[s")
    assert values["n", lines.line("both")].endswith(" + 1")
    assert values["w", lines.line("both")] == "f32[]"
    assert {value["text"] for value in first["values"] if value["name"] == "n"} == {"4"}
    (function,) = [one for one in first["traced"] if one["name"] == "fn"]
    assert lines.line("taken") in function["traced"]
    assert set(function["lines"]) - set(function["traced"]) == {lines.line("never")}
    assert "fn(torch.ones(5), 'a')" in program.read_text().splitlines()[second["caller"]["line"] - 1]
    digests = read_record(next(tmp_path.rglob(f"*{SUFFIX}"))).sources[str(program)]
    assert digests == [digest_of_line(line) for line in program.read_text().split("\n")]


def test_a_record_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    writer = RecordWriter(path, details_bound=1000, bound=4000)
    writer.write(Started(1, 0.0, 1, [], "", ""))
    writer.write(CompileBegan("0/0", "fn", "fn", Place("a.py", 1), Place("a.py", 1), 0.0))
    graph = Graph(0, "graph", 3, 1, [Node(f"add_{number}", "call_function", "add") for number in range(40)])
    for _ in range(100):
        writer.write(GraphMade("0/0", graph))
    assert path.stat().st_size < 6000
    session = read_record(path)
    assert session.is_truncated
    graphs = session.functions[0].compiles[0].graphs
    assert graphs[0].nodes
    assert graphs[-1].nodes == []
    assert graphs[-1].node_count == 3


@pytest.mark.skipif(shutil.which("tlparse", path=str(Path(sys.executable).parent)) is None, reason="no tlparse")
def test_tlparse_makes_a_report_of_the_trace(tmp_path: Path) -> None:
    program = write(tmp_path, BREAKS[:1])
    command("run", "--trace", str(program), folder=tmp_path)
    reported = command("report", "--tlparse", "--no-browser", folder=tmp_path)
    page = Path(reported.stdout.strip())
    assert page.name == "index.html"
    assert "asked" in page.read_text(encoding="utf-8")
    ours = Path(command("report", "--html", "--no-browser", folder=tmp_path).stdout.strip()).read_text(encoding="utf-8")
    (compiled,) = page.parent.glob("-_0_0_*/compilation_metrics_*.html")
    assert f"<a href='{compiled.as_uri()}'>This compile in torch's own trace</a>" in ours
    assert "dynamo-dap run --trace" not in ours


def test_generated_code_and_what_the_backend_wrote_are_recorded(tmp_path: Path) -> None:
    program = write(
        tmp_path, [Case("fn", "y = x + 1\nprint('broken')\ntorch._dynamo.graph_break()\nreturn y * 2", options="")]
    )
    command("run", str(program), folder=tmp_path)
    first, *others = record_of(tmp_path)["functions"][0]["compiles"]
    assert "CALL" in first["generated"]
    assert "resume" in first["generated"]
    # Python 3.13 writes the empty slot below a function behind its name.
    name = re.compile(r"\b__compiled_fn_\d+( \+ NULL)?$", re.MULTILINE)
    assert name.search(first["generated"]), "nothing random stands behind it"
    assert first["resumes"][0]["line"] == others[0]["place"]["line"]
    (output,) = first["artifacts"]
    assert "async_compile" in Path(output).read_text(encoding="utf-8")


def test_a_trace_is_taken_when_asked_for(tmp_path: Path) -> None:
    program = write(tmp_path, BREAKS[:1])
    command("run", "--trace", str(program), folder=tmp_path)
    trace = record_of(tmp_path)["started"]["trace"]
    assert any(Path(trace).glob("*.log"))
    reported = command("report", "--tlparse", "--no-browser", folder=tmp_path, check=False, PATH="")
    assert "tlparse" in reported.stderr + reported.stdout
    launched = LaunchArguments(program=str(program), trace=True, python=[sys.executable])
    assert prepare(launched).environment_changes["TORCH_TRACE"]


@pytest.mark.parametrize("eager", [False, True])
def test_a_debug_session_takes_a_trace_when_asked_for(session: Session, tmp_path: Path, eager: bool) -> None:
    session.launch("graph_break", cwd=str(tmp_path), trace=True, eager=eager)
    assert session.wait_for_exit() == 0
    (path,) = tmp_path.rglob(f"*{SUFFIX}")
    trace = read_record(path).started.trace
    assert trace is not None
    (log,) = Path(trace).glob("*.log")
    assert "graph_break.py" in log.read_text(encoding="utf-8")


CHANGING = """\
import torch
import torch._dynamo.config

torch._dynamo.config.recompile_limit = 3


@torch.compile(backend="eager")
def attend(x, key_cache):
    print("<script>")
    return x + key_cache.sum()


@torch.compile(backend="eager")
def limited(x, word):
    return x * len(word)


for length in (15, 16, 17):
    attend(torch.ones(2), torch.ones(length))  #@called
for word in ("a", "bb", "ccc", "dddd"):
    limited(torch.ones(2), word)
"""


def test_what_changed_from_call_to_call_is_reported_with_advice(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(CHANGING, encoding="utf-8")
    command("run", "program.py", folder=tmp_path)
    reported = command("report", folder=tmp_path).stdout
    lines = reported.splitlines()
    line = Fixture(program).line("called")
    assert "of attend: size 0 of key_cache: 15, 16 (1 compile, " in reported
    assert f"    called {program}:{line}  attend(torch.ones(2), torch.ones(length))  #@called" in reported
    assert "use a static one" in reported
    assert "word: 'a', 'bb', 'ccc', 'dddd' (3 compiles, " in reported
    # The most important item comes first. Like torch's counter of graph breaks, ours does not count the limit.
    assert lines[lines.index("What to do") + 1].startswith(" 1. limited was compiled too often (recompile_limit")
    assert "because: Changed from call to call" in reported
    assert [one for one in lines if "Graph break" in one and "limit" in one] == []
    assert re.search(r"^ attend \[0/0\] \d+\.\d\d s.*, \d+ guards$", reported, re.MULTILINE)
    assert "size 0 of key_cache was 15 and is 16" in reported


def test_the_page_holds_everything_and_runs_nothing_but_its_own(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(CHANGING, encoding="utf-8")
    command("run", "program.py", folder=tmp_path)
    page = Path(command("report", "--html", "--no-browser", folder=tmp_path).stdout.strip())
    html = page.read_text(encoding="utf-8")
    assert "size 0 of key_cache: 15, 16" in html
    assert html.count("def attend(x, key_cache):") == 1
    assert "key_cache.sum()" in html
    assert "dynamo-dap run --trace" in html
    # Texts of the record stay texts: the program prints "<script>".
    own_scripts(html)
    (data,) = data_elements(html)
    chart = json.loads(data)
    assert [one.partition(" ")[0] for one in chart["functions"]] == ["attend", "limited"]
    assert chart["seconds"] >= max(bar["to"] for bar in chart["bars"]) - 0.01


def test_a_large_page_is_written_in_parts(tmp_path: Path) -> None:
    record, place = Record(), Place("/a.py", 1)
    for number in range(2000):
        stack = [StackLine(Place("/a.py", number), "f")]
        record.apply(CompileBegan(f"{number}/0", "f", "f", place, place, 1.0 + number, stack=stack))
        record.apply(CompileEnded(f"{number}/0", "compiled", 0.5, generated="LOAD_FAST\n" * 500))
    tracemalloc.start()
    page = write_page(record, tmp_path / "record.jsonl")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < page.stat().st_size / 2


def test_the_page_counts_sizes_and_conditions_only_where_it_has_some() -> None:
    place = Place("program.py", 1)
    record = Record()
    for number, guards in enumerate([[], [Guard("s0 < 9", "SHAPE_ENV")]]):
        record.apply(CompileBegan(f"{number}/0", "f", "f", place, place, 1.0))
        reasons = [Size("L['x'].size()[0]", "static", reasons=[SizeReason("constant", "torch specializes it")])]
        record.apply(GuardsMade(f"{number}/0", len(guards), guards, sizes=reasons))
        record.apply(CompileEnded(f"{number}/0", "compiled", 1.0))
    page = "".join(html_report(record, {}, lambda compiled: None))
    assert "<summary>sizes</summary>" in page
    assert "<summary>1 condition on sizes</summary>" in page


def test_a_hostile_name_is_text_in_the_page() -> None:
    session = Record()
    name = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    session.apply(Started(1, 0.0, 1, [name], name, name))
    session.apply(
        CompileBegan("0/0", name, name, Place(name, 1), Place(name, 1), 1.0, stack=[StackLine(Place(name, 1), name)])
    )
    session.apply(BreakFound("0/0", GraphBreak(name, Place(name, 1), name, [name], link="javascript:alert(1)")))
    session.apply(CompileEnded("0/0", "failed", 1.0, name, artifacts=[name], kernels=[name]))
    page = "".join(html_report(session, {}, lambda compiled: None))
    assert "alert(1)" in page
    assert "<img" not in page
    assert "<script>alert" not in page
    assert "javascript:" not in page


@pytest.mark.parametrize(
    ("link", "is_torchs"),
    [
        ("https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0059.html", True),
        ("https://docs.pytorch.org/docs/main/index.html", True),
        ("https://example.org/gb/gb0059.html", False),
        ("https://pytorch.org.example.org/gb0059.html", False),
        ("https://pytorch.org@example.org/gb0059.html", False),
        ("command:workbench.action.quit", False),
    ],
)
def test_only_a_page_of_torchs_is_linked_as_such(link: str, *, is_torchs: bool) -> None:
    record = Record()
    place = Place("/a.py", 1)
    record.apply(CompileBegan("0/0", "f", "f", place, place, 1.0))
    record.apply(BreakFound("0/0", GraphBreak("a reason", place, link=link)))
    record.apply(CompileEnded("0/0", "compiled", 1.0))
    assert (f"href='{link}'" in "".join(html_report(record, {}, lambda compiled: None))) == is_torchs


def test_the_same_break_and_the_same_size_are_reported_once(tmp_path: Path) -> None:
    """The helper's break cuts first its caller, at the call, and then the helper. The size changes for both."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n\n\n"
        "def helper(y):\n    y = y + 1\n    torch._dynamo.graph_break()  #@broken\n    return y * 2\n\n\n"
        "@torch.compile(backend='eager')\ndef fn(x):\n    z = helper(x.sin())  #@inner\n    return z + 1\n\n\n"
        "for n in (3, 5):\n    fn(torch.ones(n, 2))  #@called\n",
        encoding="utf-8",
    )
    command("run", "program.py", folder=tmp_path)
    items = what_to_do(read_record(next(tmp_path.rglob(f"*{SUFFIX}"))))
    lines = Fixture(program)
    broken, sized = items
    assert broken.kind is Kind.BREAK
    assert broken.place == Place(str(program), lines.line("broken"), 5)
    assert {"cuts fn, helper", "cuts helper, fn"} & set(broken.facts), broken.facts
    assert {one.line for one in broken.callers} == {lines.line("inner"), lines.line("called")}
    assert sized.title.endswith("changed from call to call: 3, 5")
    guarded = "if isinstance(x, torch.Tensor): torch._dynamo.maybe_mark_dynamic(x, 0)"
    assert sized.advice == [f"{guarded} before the first call, or torch.compile(..., dynamic=True)"]
    assert any(one == "size 0 of x in fn" for one in sized.facts)


def test_a_size_that_was_to_vary_and_does_not_is_reported(tmp_path: Path) -> None:
    """The report has the facts of tlparse's table of specializations, and advice."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n\n\n"
        "@torch.compile(backend='eager', dynamic=True)\ndef fn(x, y):\n"
        "    if x.shape[0] == 5:  #@asked\n        x = x + 1\n"
        "    return x.sum() + (y * 2 if y.shape[0] > 3 else y).sum()\n\n\n"
        "fn(torch.ones(5), torch.ones(7))  #@called\n",
        encoding="utf-8",
    )
    command("run", "program.py", folder=tmp_path)
    (item,) = what_to_do(read_record(next(tmp_path.rglob(f"*{SUFFIX}"))))
    lines = Fixture(program)
    assert item.title.startswith("In fn size 0 of x was")
    assert item.title.endswith("this line requires 5")
    assert item.place is not None
    assert item.place.line == lines.line("asked")
    assert [place.line for place in item.callers] == [lines.line("called")]
    printed = command("report", folder=tmp_path).stdout
    assert "size 0 of x was dynamic" in printed


def test_a_run_in_which_nothing_was_finished_is_passed_over(tmp_path: Path) -> None:
    good = write(tmp_path, [BREAKS[0]])
    command("run", str(good), folder=tmp_path)
    killed = tmp_path / "killed.py"
    killed.write_text(
        "import os, torch\n\n\n"
        "def backend(graph, inputs):\n    os._exit(1)\n\n\n"
        "@torch.compile(backend=backend)\ndef fn(x):\n    return x + 1\n\n\nfn(torch.ones(2))\n",
        encoding="utf-8",
    )
    assert command("run", str(killed), folder=tmp_path, check=False).returncode == 1
    assert len(list(tmp_path.rglob(f"*{SUFFIX}"))) == 2
    report = command("report", folder=tmp_path)
    assert good.name in report.stdout
    assert "this is the run before" in report.stderr


def test_the_reason_of_a_skipped_function_is_one_line() -> None:
    reason = "Unsupported: Call to `graph_break()`\n  Explanation: User-inserted.\n\nfrom user code:\n   File 'x.py'"
    record = Record()
    record.skipped.append(SkippedFrame("h", reason, Place("/x.py", 8)))
    console = Console(record=True, width=200, file=io.StringIO())
    print_report(record, console)
    text = console.export_text()
    assert "Skipped h at /x.py:8: Unsupported: Call to `graph_break()`" in text
    assert "from user code" not in text


CAUSES = """
import torch


@torch.compile(backend="eager", dynamic=False)
def sized(x):
    return x.sin().sum()


@torch.compile(backend="eager")
def looped(x, n):
    for _ in range(n):
        x = x + 1
    return x


for size in (3, 4, 5, 6):
    sized(torch.ones(size))
    looped(torch.ones(2), size)
"""


def test_only_sizes_of_the_same_cause_are_one_row(tmp_path: Path) -> None:
    """A loop counter has the values of a size, but is not a size."""
    program = tmp_path / "program.py"
    program.write_text(CAUSES, encoding="utf-8")
    command("run", str(program), folder=tmp_path)
    items = what_to_do(read_record(next(tmp_path.rglob(f"*{SUFFIX}"))))
    changed = [item for item in items if item.kind is Kind.CHANGE]
    of_loop = [item for item in changed if item.function == "looped"]
    assert of_loop
    assert not any("maybe_mark_dynamic" in advice for item in of_loop for advice in item.advice)
    assert not any(item.function == "sized" and "looped" in fact for item in changed for fact in item.facts)


def test_a_record_that_fails_is_reported(tmp_path: Path) -> None:
    """An incomplete record must not look complete."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, torch._dynamo\n"
        "from dynamo_dap.debuggee.recording.recorder import Recorder\n\n\n"
        "def fails(*given):\n    raise ValueError('made to fail')\n\n\n"
        "Recorder._take_trace = fails\n"
        "print(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2)).tolist())\n",
        encoding="utf-8",
    )
    ran = command("run", str(program), folder=tmp_path)
    assert ran.stdout == "[2.0, 2.0]\n"
    assert "dynamo-dap: switched off the record" in ran.stderr
    assert "which failed (ValueError)" in ran.stderr


def test_a_recompile_is_not_due_to_a_size_that_became_dynamic(tmp_path: Path) -> None:
    """The guard of the first, static compile always fails, but the length of the list causes the recompiles."""
    (tmp_path / "program.py").write_text(GROWS, encoding="utf-8")
    command("run", "program.py", folder=tmp_path)
    record = read_record(next(tmp_path.rglob(f"*{SUFFIX}")))
    (function,) = record.functions
    assert len(function.compiles) == 5
    length, size = sorted(what_to_do(record), key=lambda item: item.subject)
    assert (length.subject, len(length.compiles)) == ("len(self.seen)", 3)
    assert (size.subject, size.values, len(size.compiles)) == ("size 0 of x", ["3", "4"], 1)
    found = [one for all_of in findings_of(record).values() for one in all_of]
    sizes = [one.text for one in found if one.failure is not None and "size mismatch" in one.failure.expression]
    assert sorted("maybe_mark_dynamic" in text for text in sizes) == [False, False, False, True]


CHANGED_ONCE = """\
import torch


class Mode:
    pass


class OtherMode:
    pass


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mode = "first"
        self.seen = []

    def forward(self, x):
        self.seen.append(1)
        return x + 1 if self.mode == "first" else x - 1


model = Model()
compiled = torch.compile(model, backend="eager")
for call in range(4):
    compiled(torch.ones(2))
    model.mode = "later"
"""


@pytest.mark.parametrize(
    ("first", "later"),
    [('"first"', '"later"'), ("torch.sin", "torch.cos"), ("int", "str"), ("Mode()", "OtherMode()")],
)
def test_an_attribute_that_changed_once_causes_one_compile(tmp_path: Path, first: str, later: str) -> None:
    """The later value fails a guard of the first compile in each call, but all other compiles accept it."""
    text = CHANGED_ONCE.replace('"first"', first).replace('"later"', later)
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    command("run", "program.py", folder=tmp_path)
    items = what_to_do(read_record(next(tmp_path.rglob(f"*{SUFFIX}"))))
    assert {item.subject: len(item.compiles) for item in items} == {"len(self.seen)": 2, "self.mode": 1}


EVALUATED = """\
import torch

seen = []


@torch.compile(backend="eager")
def fn(x):
    seen.append(1)
    return x + len(seen)


x = torch.ones(2, requires_grad=True)
fn(x)
with torch.no_grad():
    for call in range(3):
        fn(x)
"""


def test_a_grad_mode_that_changed_once_causes_one_compile(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(EVALUATED, encoding="utf-8")
    command("run", "program.py", folder=tmp_path)
    items = what_to_do(read_record(next(tmp_path.rglob(f"*{SUFFIX}"))))
    assert {item.subject: len(item.compiles) for item in items} == {"grad mode": 1, "len(G['seen'])": 2}
    assert any(item.title.endswith(": len(seen): 1, 2, 3") for item in items), [item.title for item in items]


SHRINKS = """\
import torch


@torch.compile(backend="eager")
def fn(x):
    return x * 2


for size in (3, 5, 1):
    fn(torch.ones(size))
"""


BROKEN_AND_EVALUATED = """\
import torch

seen = [1]


@torch.compile(backend="eager")
def fn(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * len(seen)


x = torch.ones(2)
fn(x)
seen.append(1)
fn(x)
with torch.no_grad():
    fn(x)
"""


def test_only_a_local_variable_is_computed_before_a_graph_break(tmp_path: Path) -> None:
    """The resume function also depends on torch's state and on globals, which are not computed before the break."""
    (tmp_path / "program.py").write_text(BROKEN_AND_EVALUATED, encoding="utf-8")
    command("run", "program.py", folder=tmp_path)
    changed = [item for item in what_to_do(read_record(next(tmp_path.rglob(f"*{SUFFIX}")))) if item.kind is Kind.CHANGE]
    assert {item.subject: len(item.compiles) for item in changed} == {"grad mode": 2, "len(G['seen'])": 1}
    assert not any("before a graph break" in advice for item in changed for advice in item.advice)


def test_a_size_of_one_is_a_value_as_others(tmp_path: Path) -> None:
    """Torch's guard on such a size is a range, which the user did not write."""
    (tmp_path / "program.py").write_text(SHRINKS, encoding="utf-8")
    command("run", "program.py", folder=tmp_path)
    (item,) = what_to_do(read_record(next(tmp_path.rglob(f"*{SUFFIX}"))))
    assert (item.subject, item.values) == ("size 0 of x", ["3", "5", "1"])
    (advice,) = item.advice
    assert "0 and 1 are always compiled separately" in advice
    assert advice.endswith("torch.compile(..., dynamic=True)")


def test_threads_that_compile_the_same_call_at_once_are_named(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(AT_ONCE, encoding="utf-8")
    command("run", "program.py", folder=tmp_path)
    found = read_record(next(tmp_path.rglob(f"*{SUFFIX}")))
    items = {item.subject: item for item in what_to_do(found)}
    assert {subject: len(item.compiles) for subject, item in items.items()} == {
        "size 0 of x": 1,
        "calls that an earlier compile accepts": 3,
    }
    assert "before they start" in items["calls that an earlier compile accepts"].advice[0]
    shown = command("report", folder=tmp_path).stdout
    assert "Unexpected recompilation" not in shown
    assert shown.count("accepts the call now") == 1 + 2 + 3
    # The advice helps.
    (tmp_path / "again").mkdir()
    shutil.copy(tmp_path / "program.py", tmp_path / "again")
    command("run", "program.py", "before", folder=tmp_path / "again")
    (function,) = read_record(next((tmp_path / "again").rglob(f"*{SUFFIX}"))).functions
    assert len(function.compiles) == 2


MODULES = """\
import torch

experts = [torch.compile(torch.nn.Linear(4, 4), backend="eager") for _ in range(4)]
for length in (3, 5, 7):
    for expert in experts:
        expert(torch.ones(length, 4))
"""


def test_a_size_that_changed_is_not_due_to_the_number_of_modules(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(MODULES, encoding="utf-8")
    command("run", "program.py", folder=tmp_path)
    items = what_to_do(read_record(next(tmp_path.rglob(f"*{SUFFIX}"))))
    assert any(item.subject.startswith("size 0 of") for item in items)
    assert not any("modules share this code" in text for item in items for text in item.advice)
