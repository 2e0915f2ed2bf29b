"""``dynamo-dap report --ranks``: the compiles of all ranks side by side, and where a rank diverges."""

from __future__ import annotations

import json
import re
import sys
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dynamo_dap.protocol.requests.ranks import Rank
from dynamo_dap.records.events import CompileBegan, CompileEnded, GraphMade, Record, Started
from dynamo_dap.records.model import Graph, Node, Place
from dynamo_dap.records.report.rank_report import ranks_as_html
from dynamo_dap.records.report.ranks import compare_ranks
from tests.client.fixtures import Fixture
from tests.records.test_reports import command

PROGRAM = Fixture("ranks_that_part")


@pytest.mark.timeout(240)
def test_ranks_that_compile_different_graphs_are_reported_with_the_line(tmp_path: Path) -> None:
    arguments = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", str(PROGRAM.path)]
    ran = command("run", "--python", sys.executable, *arguments, folder=tmp_path, check=False)
    assert ran.returncode == 1, "the ranks that wait for the last one lose it"
    compared = json.loads(command("report", "--ranks", "--json", folder=tmp_path).stdout)
    assert compared["ranks"] == [0, 1, 2, 3]
    assert compared["missing"] == []
    by_name = {(one["function"], one["number"]): one for one in compared["compiles"]}
    assert list(by_name) == [("same", 1), ("only_first", 1), ("only_first", 2), ("forward", 1)]

    same = by_name["same", 1]
    assert "partings" not in same
    for each in same["ranks"]:
        (collective,) = each["collectives"]
        assert collective["name"] == "all_reduce"
        assert collective["value"].startswith("f32[2]")
        assert collective["place"]["line"] == PROGRAM.line("same")

    first, again = by_name["only_first", 1], by_name["only_first", 2]
    assert [one["rank"] for one in (*first["ranks"], *again["ranks"])] == [0, 0]
    assert first["partings"][0]["text"] == "has compiled it alone"
    assert "again alone" in again["partings"][0]["text"]
    assert "size 0 of x was 2 and is 3" in again["partings"][0]["text"]
    assert again["partings"][0]["place"]["line"] == PROGRAM.line("alone")

    forward = by_name["forward", 1]
    parted = {one["rank"]: one for one in forward["partings"] if not one.get("guardsOnly")}
    assert sorted(parted) == [1, 3]
    assert parted[1]["place"]["line"] == PROGRAM.line("scaled")
    assert "'y * 3 → f32[3]" in parted[1]["text"]
    assert parted[3]["place"]["line"] == PROGRAM.line("reduced")
    assert "all_reduce" in parted[3]["text"]
    assert [len(each.get("collectives", [])) for each in forward["ranks"]] == [1, 1, 1, 0]
    # The graph is the same, with a guard on the rank: only a remark.
    (remark,) = [one for one in forward["partings"] if one.get("guardsOnly")]
    assert remark["rank"] == 2
    assert "rank == 2" in remark["text"]

    printed = command("report", "--ranks", folder=tmp_path).stdout
    assert f"● Rank 3 diverges in forward (ranks_that_part.py:{forward['place']['line']}) at {PROGRAM.path}" in printed
    assert "rank 3: none" in printed
    one = command("report", folder=tmp_path).stdout
    assert "dynamo-dap report --ranks" in one

    # The HTML report on a rank, which VS Code opens, also compares all ranks.
    printed = command("report", "--html", "--no-browser", folder=tmp_path).stdout
    page = Path(urlsplit(printed.split()[-1]).path).read_text(encoding="utf-8")
    part = page.partition("<h2 id='ranks'>")[2].partition("<h2 ")[0]
    shown = unescape(re.sub(r"<[^>]*>", "", part))
    assert re.search("rank 0.*rank 1.*rank 2.*rank 3", shown)
    assert f"Rank 3 diverges in forward (ranks_that_part.py:{forward['place']['line']})" in shown
    assert "Rank 2 differs in forward" in shown
    assert "Collectives in same" in shown
    assert "<a href='#ranks'>All ranks</a>" in page


def test_the_buckets_that_ddp_cuts_a_graph_into(tmp_path: Path) -> None:
    program = Fixture("ddp_buckets")
    command("run", str(program.path), folder=tmp_path)
    record = json.loads(command("report", "--json", folder=tmp_path).stdout)
    graphs = [
        graph
        for function in record["functions"]
        for compiled in function["compiles"]
        for graph in compiled.get("graphs", [])
        if function["name"] == "Model.forward"
    ]
    # The model without DDP is not cut.
    assert ["buckets" in graph for graph in graphs] == [True, False]
    layers = {"first": 64 * 600, "second": 600 * 600, "third": 600 * 600}
    for bucket, (layer, weights) in zip(graphs[0]["buckets"], layers.items(), strict=True):
        assert bucket["size"] == 4 * (weights + 600)
        assert sorted(bucket["parameters"]) == [f"self.{layer}.bias", f"self.{layer}.weight"]
        assert bucket["places"] == [{"path": str(program.path), "line": program.line(layer)}]
    printed = command("report", folder=tmp_path).stdout
    assert "DDP: graph is cut into 3 buckets" in printed
    line = program.line("second")
    assert f"2. 1.4 MiB: self.second.weight, self.second.bias  ddp_buckets.py:{line}" in printed


def made(rank: int, *targets: str, of: int = 3) -> Record:
    """Return the record of a rank that compiled a function with these operations, one per line from line 1."""
    record, at = Record(), Place("train.py", 1)
    record.apply(Started(1, 0.0, rank, ["train.py"], "/", "3.11", rank=Rank(rank, rank, of), job="1/0"))
    record.apply(CompileBegan("0/0", "step", "step", at, at, 1.0))
    nodes = [Node(text, "call_function", text, place=Place("train.py", n)) for n, text in enumerate(targets, 1)]
    record.apply(GraphMade("0/0", Graph(0, "graph", len(nodes), len(nodes), nodes)))
    record.apply(CompileEnded("0/0", "compiled", 0.1))
    return record


def test_what_most_ranks_do_is_what_the_others_are_measured_by() -> None:
    compared = compare_ranks({0: made(0, "a", "x"), 1: made(1, "a", "b"), 2: made(2, "a", "b")})
    (one,) = compared.compiles
    assert [(each.rank, each.place, each.text) for each in one.partings] == [
        (0, Place("train.py", 2), "'x', where rank 1 has 'b'")
    ]


def test_what_only_the_process_makes_different_is_the_same() -> None:
    device = "a[device(type='cuda', index=0)] 0x7f00 cuda:0"
    compared = compare_ranks({0: made(0, device), 1: made(1, device.replace("cuda:0", "cuda:1").replace("7f", "6e"))})
    assert compared.compiles[0].partings == []


def test_texts_of_records_are_no_markup_of_the_page() -> None:
    records = {0: made(0, "<script>alert(0)</script>", "[red]b[/red]"), 1: made(1, "<img src=x>")}
    shown = ranks_as_html(compare_ranks(records), records)
    assert set(re.findall(r"<\w+", shown)) <= {"<pre", "<span"}
    assert "&lt;script&gt;alert(0)" in shown


def test_a_rank_without_a_record_is_reported() -> None:
    compared = compare_ranks({0: made(0, "a"), 2: made(2, "a", "b")})
    assert compared.missing == [1]
    text = compared.compiles[0].partings[0].text
    assert text.startswith("'b', where rank 0 has")
    assert text.endswith("'a graph of 1 operations'")


def test_a_record_of_no_rank_is_refused(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\ntorch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"
    )
    command("run", "program.py", folder=tmp_path)
    refused = command("report", "--ranks", folder=tmp_path, check=False)
    assert refused.returncode == 1
    assert "not the record of a rank" in refused.stderr
    assert "--ranks cannot be combined" in command("report", "--ranks", "--html", folder=tmp_path, check=False).stderr
