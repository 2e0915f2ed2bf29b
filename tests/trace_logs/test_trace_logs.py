"""Trace logs of torch's: read as tlparse reads them, as records, and never trusted."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynamo_dap.commands.report import main
from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from dynamo_dap.records.file import UnreadableRecord
from dynamo_dap.records.model import Compile
from dynamo_dap.trace_logs.compiles import DETAILS_BOUND
from dynamo_dap.trace_logs.entries import LogReader
from dynamo_dap.trace_logs.logs import chosen_log, is_trace, read_ranks, read_trace
from dynamo_dap.trace_logs.stages import stages_of
from tests.client.timeline import DEADLINE
from tests.structure.sources import ROOT
from tests.trace_logs.conftest import PROGRAM, PROGRAMS, write_logs
from tests.trace_logs.tlparse_output import TLPARSE, by_tlparse, by_us


def command(*arguments: str, folder: Path, status: int = 0) -> str:
    """Run ``dynamo-dap``; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "dynamo_dap", *arguments],
        cwd=folder,
        env={**os.environ, RECORDS_VARIABLE: str(folder / "records")},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done.stdout + (done.stderr if status else "")


def compiles(log: Path, **options: Any) -> dict[str, Compile]:
    """The compiles of a log, by id."""
    return {compiled.id: compiled for _, compiled in read_trace(log, **options).compiles()}


def line_of(marker: str) -> int:
    """The line of a marker in the ten programs."""
    return next(n for n, line in enumerate(PROGRAM.read_text().split("\n"), 1) if line.endswith(f"#@{marker}"))


# -- the same as tlparse ---------------------------------------------------------------------------------------------


@pytest.mark.skipif(TLPARSE is None, reason="tlparse is not installed")
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_tlparse_reads_it(logs: Path, tmp_path: Path, name: str) -> None:
    assert by_us(logs / name, tmp_path / "events.json") == by_tlparse(logs / name, tmp_path / "tlparse")


@pytest.mark.skipif(TLPARSE is None, reason="tlparse is not installed")
@pytest.mark.parametrize("name", [*PROGRAMS, "kernels"])
@pytest.mark.parametrize("torch", ["2.6", "2.7", "2.8", "2.9", "2.15"])
def test_logs_of_other_torch_versions_as_tlparse_reads_them(torch: str, name: str, tmp_path: Path) -> None:
    with tarfile.open(ROOT / "fixtures" / "traces" / f"ten-programs-{torch}.tar.xz") as archive:
        members = [member for member in archive.getmembers() if member.name.startswith(f"{name}/")]
        archive.extractall(tmp_path, members, filter="data")
    assert by_us(tmp_path / name, tmp_path / "events.json") == by_tlparse(tmp_path / name, tmp_path / "tlparse")
    expected = {"breaks": (4, 0), "recompiles": (0, 3), "restarts": (2, 0), "full_graph": (1, 0), "dynamic": (0, 1)}
    record = read_trace(tmp_path / name)
    counts = record.counts()
    if name == "kernels":
        assert record.started is not None
        assert (record.started.torch or "").startswith(f"{torch}.")
    assert (counts.breaks, counts.recompiles) == {**expected, "limit": (0, 2)}.get(name, (0, 0))


@pytest.mark.long
@pytest.mark.skipif(TLPARSE is None, reason="tlparse is not installed")
def test_kernels_as_tlparse_reads_them(tmp_path: Path) -> None:
    folder = write_logs(tmp_path, "kernels") / "kernels"
    assert by_us(folder, tmp_path / "events.json") == by_tlparse(folder, tmp_path / "tlparse")
    (compiled,) = compiles(folder).values()
    assert compiled.kernels
    assert {lookup.cache for lookup in compiled.lookups} == {"FX graph cache", "AOTAutograd cache"}
    assert next(one for one in compiled.lookups if one.cache == "FX graph cache").components
    documents = {each.id: each for each in stages_of(folder)[0][0].documents}
    assert list(documents) == [
        *("dynamo", "pre-grad", "forward", "joint-passes"),
        *(f"forward-{name}" for name in ("post-grad", "runnable", "code", "kernels")),
    ]
    assert documents["joint-passes"].before
    assert [part.name for part in documents["forward-kernels"].parts] == compiled.kernels
    assert "reduce" in documents["forward-kernels"].text


# -- a record ----------------------------------------------------------------------------------------------------------


def test_breaks_are_at_the_users_lines(logs: Path) -> None:
    found = [one for _, compiled in sorted(compiles(logs / "breaks").items()) for one in compiled.breaks]
    places = [(one.place.path, one.place.line) for one in found if one.place]
    # Dynamo meets the print in the caller, and again in the function.
    assert places == [(str(PROGRAM), line_of(name)) for name in ("printed", "printed", "branch", "asked")]
    assert all(one.id and one.hints for one in found)


def test_graphs_have_lines_and_readable_names(logs: Path) -> None:
    graph = compiles(logs / "restarts")["0/0"].graphs[0]
    assert next((node.operation, node.user_name) for node in graph.nodes) == ("placeholder", "x")
    (computed,) = [node for node in graph.nodes if node.operation == "call_method"]
    assert computed.target == "sin"
    assert computed.value == "f32[4]"
    assert computed.place is not None
    assert computed.place.path == str(PROGRAM)


def test_recompiles_limit_and_failures(logs: Path) -> None:
    failures = compiles(logs / "recompiles")["0/1"].failures
    assert failures[0].compile_id == "0/0"
    assert "size mismatch" in failures[0].expression
    assert compiles(logs / "limit")["0/2"].limit
    assert compiles(logs / "backend_fails")["0/0"].state == "failed"
    refused = compiles(logs / "full_graph")["0/0"].breaks[0]
    assert refused.place is not None
    assert refused.place.line == line_of("refused")


def test_symbolic_shapes(logs: Path) -> None:
    dynamic = compiles(logs / "dynamic")["0/0"]
    assert {symbol.source for symbol in dynamic.symbols} == {"x.size()[0]", "y.size()[0]"} or len(dynamic.symbols) == 1
    added = [one for one in dynamic.shapes if one.kind.startswith("guard_added")]
    assert any(one.place and one.place.line == line_of("compared") for one in added)
    assert any(one.kind == "create_unbacked_symbol" for one in compiles(logs / "unbacked")["0/0"].shapes)


def test_answers_of_remote_caches_are_counted(logs: Path, tmp_path: Path) -> None:
    log = tmp_path / "remote.log"
    text = chosen_log(logs / "training").read_text()
    assert '"inductor_fx_remote_cache_hit_count": 0' in text
    log.write_text(text.replace('"inductor_fx_remote_cache_hit_count": 0', '"inductor_fx_remote_cache_hit_count": 2'))
    assert compiles(log)["0/0"].caches["remote FX graph cache hit"] == 2
    assert not any("remote" in name for name in compiles(logs / "training")["0/0"].caches)
    assert "remote FX graph cache hit" in command("report", str(log), folder=tmp_path)


def test_as_our_own_record_of_the_same_run(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n\n@torch.compile(backend='eager')\ndef f(x):\n    y = x.sin()\n    print('here')\n"
        "    return y.cos()\n\nf(torch.ones(3))\nf(torch.ones(4))\n"
    )
    command("run", "--trace", str(program), folder=tmp_path)
    (trace,) = (tmp_path / "records").glob("*/*.trace")
    own = json.loads(command("report", "--json", folder=tmp_path))
    logged = json.loads(command("report", "--json", str(trace), folder=tmp_path))
    assert own["counts"].pop("seconds") > 0
    assert logged["counts"].pop("seconds") > 0
    assert _reported(own) == _reported(logged)
    assert own["counts"] == logged["counts"]


def _reported(report: dict[str, Any]) -> list[object]:
    return [
        (
            one["id"],
            one["name"],
            one["state"],
            [found["place"]["line"] for found in one.get("breaks", [])],
            [failure["reason"] for failure in one.get("failures", [])],
            [
                (node["operation"], node.get("place") if node["operation"].startswith("call_") else None)
                for graph in one["graphs"]
                for node in graph["nodes"]
            ],
            len(one.get("attempts", [0])),
        )
        for function in report["functions"]
        for one in function["compiles"]
    ]


def test_ranks_of_a_job(logs: Path, tmp_path: Path) -> None:
    for rank, name in enumerate(("dynamic", "dynamic", "recompiles")):
        (log,) = (logs / name).iterdir()
        text = log.read_text().replace('"frame_id":', f'"rank": {rank}, "frame_id":')
        (tmp_path / f"dedicated_log_torch_trace_rank_{rank}_abc.log").write_text(text)
    assert list(read_ranks(tmp_path)) == [0, 1, 2]
    compared = json.loads(command("report", "--ranks", "--json", str(tmp_path), folder=tmp_path))
    assert {parting["rank"] for one in compared["compiles"] for parting in one["partings"]} == {2}


# -- commands ----------------------------------------------------------------------------------------------------------


def test_commands_read_a_folder(logs: Path, tmp_path: Path) -> None:
    assert "Graph break count: 4" in command("report", str(logs / "breaks"), "--stacks", folder=tmp_path)
    command("check", "--record", str(logs / "breaks"), folder=tmp_path, status=1)
    listed = command("report", str(logs / "breaks"), "--contents", folder=tmp_path)
    assert "0/0:dynamo_cpp_guards_str" in listed
    text = command("report", str(logs / "breaks"), "--contents", "0/0:dynamo_cpp_guards_str", folder=tmp_path)
    assert "TREE_GUARD_MANAGER" in text
    events = tmp_path / "events.json"
    command("report", str(logs / "breaks"), "--chromium-events", str(events), folder=tmp_path)
    assert len(json.loads(events.read_text())["traceEvents"]) > 20
    assert command("report", str(logs / "breaks"), "--try", folder=tmp_path, status=2)
    here = tmp_path / "here"
    shutil.copytree(logs / "breaks", here)
    assert command("report", "--html", "--no-browser", ".", folder=here).strip() == str(tmp_path / "here.html")


def test_stages_of_a_log_are_explored(logs: Path, tmp_path: Path) -> None:
    line = line_of("compared") + 1
    shown = command("explore", str(logs / "dynamic"), "--line", f"{PROGRAM}:{line}", folder=tmp_path)
    assert ".sum()" in shown
    assert " * " not in shown, "the other compile has not traced this line"
    listed = command("explore", str(logs / "training"), folder=tmp_path)
    assert re.findall("^  ([a-z]+) ", listed, re.MULTILINE) == ["dynamo", "joint", "forward", "backward"]
    (trained,) = stages_of(logs / "training")[0]
    lines = {each.id: each.text.splitlines() for each in trained.documents}
    for document in trained.documents:
        assert document.operations > 2
        for part in document.parts:
            assert part.name in lines[document.id][part.first - 1]
    backward = next(each for each in trained.documents if each.id == "backward")
    assert any(part.parents == [f"joint:{part.name}"] for part in backward.parts)
    page = tmp_path / "stages.html"
    command("explore", str(logs / "training"), "--html", str(page), folder=tmp_path)
    assert "threshold_backward" in page.read_text()
    assert "no compile of 'nobody'" in command(
        "explore", str(logs / "training"), "--function", "nobody", folder=tmp_path, status=1
    )


def test_lines_of_a_checkout_elsewhere(logs: Path, tmp_path: Path) -> None:
    mappings = [(str(PROGRAM.parent), str(tmp_path))]
    copy = tmp_path / PROGRAM.name
    copy.write_text(PROGRAM.read_text())
    record = read_trace(logs / "breaks", mappings)
    assert {function.place.path for function in record.functions if function.place} == {str(copy)}
    assert str(copy) in record.sources
    # A file with another text at a line that the log quotes is not the same source.
    copy.write_text(PROGRAM.read_text().replace("y.sum() > 0", "y.sum() > 1"))
    assert str(copy) not in read_trace(logs / "breaks", mappings).sources


# -- torn, cut off, hostile ------------------------------------------------------------------------------------------


def test_a_log_cut_off_anywhere_gives_what_is_there(logs: Path, tmp_path: Path) -> None:
    text = chosen_log(logs / "breaks").read_bytes()
    whole = len(compiles(logs / "breaks"))
    log = tmp_path / "cut.log"
    for length in range(200, len(text), len(text) // 60):
        log.write_bytes(text[:length])
        assert len(compiles(log)) <= whole
        log.write_bytes(text[length:])
        if is_trace(log):
            assert len(compiles(log)) <= whole


def test_lines_of_another_writer_in_between(logs: Path, tmp_path: Path) -> None:
    lines = chosen_log(logs / "breaks").read_bytes().split(b"\n")
    torn = [each for line in lines for each in (line, b"\xff\x00 not of the log")]
    log = tmp_path / "torn.log"
    log.write_bytes(b"\n".join(torn))
    record = read_trace(log)
    assert sum(1 for _ in record.compiles()) == len(compiles(logs / "breaks"))
    # The payloads are cut off at their first line; what is left is there.
    assert record.counts().graphs == read_trace(logs / "breaks").counts().graphs
    assert record.counts().guards > 0, "torch's own number, which is larger"


def test_details_beyond_a_bound_are_left_out(logs: Path) -> None:
    record = read_trace(logs / "training", details_bound=100)
    assert record.is_truncated
    assert record.counts().graphs == 1
    assert not any(graph.nodes for _, one in record.compiles() for graph in one.graphs)
    assert not read_trace(logs / "training", details_bound=DETAILS_BOUND).is_truncated


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the size is read from procfs")
def test_memory_does_not_grow_with_a_log(logs: Path, tmp_path: Path) -> None:
    text = chosen_log(logs / "breaks").read_text()
    # The largest size since the interpreter began: getrusage also counts the process that forked it.
    script = (
        "import sys\nfrom pathlib import Path\nfrom dynamo_dap.trace_logs.logs import read_trace\n"
        "record = read_trace(Path(sys.argv[1]), details_bound=2**20)\n"
        "size = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(record.counts().compiles, size.split()[1])"
    )
    log, found = tmp_path / "large.log", []
    for size in (10_000_000, 60_000_000):
        copies = write_large(log, text, size)
        done = subprocess.run([sys.executable, "-c", script, str(log)], capture_output=True, check=True, text=True)
        compiled, kilobytes = map(int, done.stdout.split())
        assert compiled == copies * len(compiles(logs / "breaks"))
        found.append(kilobytes * 1024)
    # It is 0.24: 14 compiles in each MB. A reader that keeps the texts has 0.56.
    assert (found[1] - found[0]) / 50_000_000 < 0.4, found


def write_large(log: Path, text: str, size: int) -> int:
    """Write copies of a log, each with other compiles; return how many."""
    copies = size // len(text)
    with log.open("w") as file:
        file.writelines(text.replace('"frame_id": ', f'"frame_id": {number + 1}') for number in range(copies))
    return copies


def test_the_beginning_of_a_log_that_takes_long_is_reported_at_once(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr("dynamo_dap.commands.report._FIRST_PAGE_SECONDS", 0.0)
    monkeypatch.setattr(
        "dynamo_dap.records.report.output.report_console",
        lambda: Console(file=shown, force_terminal=True, highlight=False),
    )
    assert main([str(logs / "recompiles")]) == 0
    first, mark, whole = shown.getvalue().partition("Below is the report on all of it")
    assert mark
    assert "0 compiles" in first
    assert "4 compiles" in whole


def compiles_on(page: str) -> int:
    return int(re.findall(r"<b>(\d+)</b><span>compiles", page)[0])


RELOADS = "http-equiv='refresh'"


def test_a_page_of_the_beginning_is_opened_and_then_replaced(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, opened = tmp_path / "large.log", list[str]()
    copies = write_large(log, chosen_log(logs / "breaks").read_text(), 12_000_000)
    page = log.with_suffix(".html")
    monkeypatch.setattr("dynamo_dap.commands.report._FIRST_PAGE_SECONDS", 0.0)
    monkeypatch.setattr("webbrowser.open", lambda _: opened.append(page.read_text()))
    assert main(["--html", str(log)]) == 0
    (first,) = opened
    assert RELOADS in first
    assert "MB so far" in first
    assert compiles_on(first) < copies
    whole = page.read_text()
    assert RELOADS not in whole
    assert "so far" not in whole
    assert compiles_on(whole) == copies * len(compiles(logs / "breaks"))
    assert capsys.readouterr().out.split() == [str(page)]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["large.html", "large.log"]


def test_a_page_of_the_beginning_does_not_wait_for_a_reading_that_was_stopped(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    log = tmp_path / "dedicated_log_torch_trace_x.log"
    shutil.copy(chosen_log(logs / "breaks"), log)
    monkeypatch.setattr("dynamo_dap.commands.report._FIRST_PAGE_SECONDS", 0.0)
    monkeypatch.setattr("webbrowser.open", interrupt)
    with pytest.raises(KeyboardInterrupt):
        main(["--html", str(log)])
    page = log.with_suffix(".html").read_text()
    assert "the reading was stopped" in page
    assert RELOADS not in page


def test_a_terminal_shows_how_much_of_a_log_was_read(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr("dynamo_dap.commands.report._FIRST_PAGE_SECONDS", 0.0)
    monkeypatch.setattr("dynamo_dap.commands.report._PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(
        "dynamo_dap.commands.report.Console", lambda stderr: Console(file=shown, force_terminal=True, width=200)
    )
    assert main(["--json", str(logs / "recompiles")]) == 0
    assert "% of 0." in shown.getvalue()


def test_hostile_contents(logs: Path, tmp_path: Path) -> None:
    hostile = "\x1b]0;taken\x07<script>alert(1)</script>\u202e"
    (real,) = (logs / "breaks").iterdir()
    escaped = json.dumps(hostile)[1:-1]
    lines = [
        line.replace("Failed to trace", hostile if line.startswith("\t") else escaped)
        for line in real.read_text().replace('"name": "helper"', f'"name": "{escaped}"').split("\n")
    ]
    huge = "V1124 19:00:00.000000 1 torch/x.py:1] " + '{"dynamo_start": ' + "[" * 100_000 + "\n"
    wrong = 'V1124 19:00:00.000000 1 torch/x.py:1] {"str": ["../../../../etc/passwd", "x"]}\n'
    log = tmp_path / "dedicated_log_torch_trace_x.log"
    log.write_text("\n".join(lines) + "\n" + huge + wrong)
    printed = command("report", str(tmp_path), "--stacks", folder=tmp_path)
    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert "\u202e" not in printed
    assert "2 lines of the log cannot" in printed
    command("report", "--html", "--no-browser", str(log), folder=tmp_path)
    page = log.with_suffix(".html").read_text()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "\x1b" not in command(
        "report", str(tmp_path), "--contents", "0/0:dynamo_graph_break_reason", folder=tmp_path
    )


def test_a_mapping_does_not_lead_out_of_its_folder(tmp_path: Path) -> None:
    log = tmp_path / "dedicated_log_torch_trace_x.log"
    prefix = "V1124 19:00:00.000000 1 torch/x.py:1] "
    log.write_text(
        prefix
        + '{"str": ["/job/../../etc/passwd", 0]}\n'
        + prefix
        + '{"dynamo_start": {"stack": [{"line": 1, "name": "f", "filename": 0}]}, '
        '"frame_id": 0, "frame_compile_id": 0, "attempt": 0}\n'
    )
    record = read_trace(log, [("/job", str(tmp_path))])
    (place,) = [function.place for function in record.functions]
    assert place is not None
    assert not place.path.startswith(str(tmp_path))
    assert not record.sources


def test_commands_that_a_report_prints_can_be_pasted(logs: Path, tmp_path: Path) -> None:
    """Where the folder's name has a space, and brackets, which Rich reads as markup."""
    folder = tmp_path / "trace logs [red]"
    folder.mkdir()
    for name in ("rank_0_a", "rank_1_b"):
        shutil.copy(chosen_log(logs / "breaks"), folder / f"dedicated_log_torch_trace_{name}.log")
    printed = command("report", str(folder), folder=tmp_path)
    pasted = [shlex.split(line)[1:] for line in re.findall(r"(?m)dynamo-dap report .*$", printed)]
    assert pasted[0] == ["report", "--ranks", str(folder)]
    assert [Path(words[-1]).parent for words in pasted] == [tmp_path, folder]
    for words in pasted:
        command(*words, folder=tmp_path)
    refused = command("report", "--tlparse", str(folder), folder=tmp_path, status=2)
    assert is_trace(Path(shlex.split(refused.partition("run: ")[2])[1]))


def test_advice_on_a_log_says_that_it_was_not_tried(logs: Path, tmp_path: Path) -> None:
    """A log does not say how its program is started, so no command can try it."""
    log = tmp_path / "dedicated_log_torch_trace_x.log"
    shutil.copy(chosen_log(logs / "breaks"), log)
    printed = command("report", str(log), folder=tmp_path)
    command("report", "--html", "--no-browser", str(log), folder=tmp_path)
    for text in (printed, log.with_suffix(".html").read_text()):
        assert "None of this was tried" in text
        assert "--try" not in text


def test_what_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert not is_trace(tmp_path / "empty")
    (tmp_path / "some.log").write_text("nothing\n")
    assert not is_trace(tmp_path / "some.log")
    with pytest.raises(UnreadableRecord):
        read_trace(tmp_path / "some.log")
    assert "cannot read" in command("report", str(tmp_path / "absent"), folder=tmp_path, status=1)
    assert "REMOTE=LOCAL" in command("report", str(tmp_path), "--map", "x", folder=tmp_path, status=2)


def test_entries_over_block_boundaries(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = chosen_log(logs / "breaks")
    whole = [(one.kind, one.name, one.payload) for one in LogReader(log)]
    for size in (7, 64, 1000):
        monkeypatch.setattr("dynamo_dap.trace_logs.entries._BLOCK", size)
        assert [(one.kind, one.name, one.payload) for one in LogReader(log)] == whole
