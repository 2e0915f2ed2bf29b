"""What Dynamo traces of a model after ``fully_shard``, and where it breaks: two ranks on the CPU."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.client import Fixture, Session, zygote
from tests.records.test_reports import command

PROGRAM = Fixture("fsdp_blocks")
SIZE = 4 * (8 * 16 + 16 + 16 * 8 + 8)


def recorded(folder: Path, how: str, *, status: int = 0) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Run both ranks; return the comparison of their compiles, the record of one rank, and the table's text."""
    (folder / "torchrun.py").write_text("from torch.distributed.run import main\nmain()\n", encoding="utf-8")
    arguments = ["torchrun.py", "--standalone", "--nproc-per-node=2", str(PROGRAM.path), how]
    variables = {"OMP_NUM_THREADS": "1"}  # torchrun sets this for its ranks
    (python,) = zygote.python(**variables)  # torchrun's ranks are forked as well
    variables["PYTHON_EXEC"] = python
    ran = command("run", "--python", python, *arguments, folder=folder, check=False, **variables)
    assert (ran.returncode != 0) == bool(status), ran.stderr
    compared = json.loads(command("report", "--ranks", "--json", folder=folder).stdout)
    assert compared["ranks"] == [0, 1]
    one = json.loads(command("report", "--json", folder=folder).stdout)
    table = command("report", "--ranks", folder=folder).stdout
    return compared, one, re.sub(r"[\s│┃]+", " ", table)


def compiles_of(record: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [each for function in record["functions"] if function["name"] == name for each in function["compiles"]]


@pytest.mark.timeout(240)
def test_each_block_is_compiled_whole(tmp_path: Path) -> None:
    compared, one, table = recorded(tmp_path, "blocks")
    assert {each["function"] for each in compared["compiles"]} == {"Block.forward"}
    assert all("partings" not in each for each in compared["compiles"])
    for each in compared["compiles"]:
        for rank in each["ranks"]:
            assert (rank["graphs"], rank["breaks"]) == (1, 0)
            sharding = rank["sharding"]
            assert (sharding["parameters"], sharding["size"], sharding["ranks"]) == (4, SIZE, 2)
            assert (sharding["isGathered"], sharding["isShardedAgain"]) == (True, True)
    names = [each["ranks"][0]["sharding"]["name"] for each in compared["compiles"]]
    assert names[0] == "first"
    assert "FSDP: first gathered, 1/2 here" in table
    graphs = [graph for compiled in compiles_of(one, "Block.forward") for graph in compiled["graphs"]]
    assert graphs
    assert not any("c10d" in node["target"] for graph in graphs for node in graph["nodes"])
    printed = " ".join(command("report", folder=tmp_path).stdout.split())
    assert f"FSDP: first: 4 parameters ({SIZE} bytes) of 2 ranks, gathered" in printed
    assert "by a hook before the call" in printed
    assert "part of a graph), resharded" in printed


@pytest.mark.timeout(240)
def test_a_model_that_calls_its_blocks_breaks_at_each_call(tmp_path: Path) -> None:
    compared, one, table = recorded(tmp_path, "model")
    breaks = [found for compiled in compiles_of(one, "Model.forward") for found in compiled.get("breaks", [])]
    assert [found["place"]["line"] for found in breaks] == [PROGRAM.line("first"), PROGRAM.line("second")]
    for found in breaks:
        assert found["atFsdpHook"]
        assert "was given to fully_shard" in found["explanation"]
        assert "block.compile(); fully_shard(block)" in found["hints"][0]
    assert compiles_of(one, "Block.forward")
    for compiled in compiles_of(one, "Model.forward"):
        whole = compiled["sharding"]
        assert (whole["name"], whole["parameters"], whole["isShardedAgain"]) == ("", 2, False)
    assert "1 break, 1 at FSDP's hooks" in table
    assert "FSDP: the model gathered, 1/2 here" in table
    assert all("partings" not in each for each in compared["compiles"])
    printed = " ".join(command("report", folder=tmp_path).stdout.split())
    assert "FSDP keeps Dynamo out of these hooks" in printed
    assert "compile the blocks that fully_shard gets" in printed
    page = Path(command("report", "--html", "--no-browser", folder=tmp_path).stdout.strip())
    assert "FSDP: the model: 2 parameters" in page.read_text(encoding="utf-8")


@pytest.mark.timeout(240)
def test_a_model_that_calls_its_blocks_in_a_loop_runs_eagerly(tmp_path: Path) -> None:
    _, one, table = recorded(tmp_path, "loop")
    (whole,) = compiles_of(one, "Loop.forward")
    assert whole["state"] == "skipped"
    (found,) = whole["breaks"]
    assert found["place"]["line"] == PROGRAM.line("in_loop")
    assert found["atFsdpHook"]
    assert all(compiled["state"] == "compiled" for compiled in compiles_of(one, "Block.forward"))
    assert "1 break, 1 at FSDP's hooks skipped" in table


def test_the_stop_at_such_a_break_says_what_it_is(session: Session) -> None:
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    with session.launching(PROGRAM, args=["fullgraph"], env=environment):
        session.request("setExceptionBreakpoints", {"filters": ["unsupported"]})
    stop = session.wait_for_stop("exception")
    assert "was given to fully_shard" in stop.body["text"]
    information = session.request("exceptionInfo", {"threadId": stop.thread_id})
    assert "FSDP keeps Dynamo out of these hooks" in information["description"]
    session.expects_program_traceback = True
    session.resume()
    assert session.wait_for_exit() == 1
