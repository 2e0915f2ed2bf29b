"""Ranks of a distributed job: named sessions, ranks that are not debugged, and ``rank`` in conditions."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.wire.types import SourceBreakpoint
from dynamo_dap.records.folders import SUFFIX
from dynamo_dap.records.report.ranks import compare_ranks, records_of_ranks
from tests.client import Fixture, Session
from tests.client.free_program import FreeProgram
from tests.client.session import free_port
from tests.conftest import NewSession
from tests.eager.test_child_processes import DEADLINE, Family

PROGRAM = Fixture("eager/ranks")
SUMS = {2: "[20.0, 36.0, 52.0]", 3: "[28.0, 52.0, 76.0]"}
"""The output of each rank, by the number of ranks."""


@pytest.fixture
def family(new_session: NewSession) -> Family:
    return Family(new_session)


def launch(session: Session, way: str = "torchrun", *, count: int = 2, seconds: float = 60, **options: Any) -> None:
    """Start the job, under torchrun or by spawning."""
    what: dict[str, Any] = {"program": str(PROGRAM.path), "args": ["spawn", str(seconds)]}
    if way == "torchrun":
        args = ["--standalone", f"--nproc-per-node={count}", str(PROGRAM.path), way, str(seconds)]
        what = {"module": "torch.distributed.run", "args": args}
    with session.configuring("launch", {"python": [sys.executable], **what, **options}):
        pass


def wait_for_end(family: Family, count: int = 2) -> None:
    assert family.parent.wait_for_exit() == 0
    printed = family.parent.output("stdout")
    assert all(f"{rank}: {SUMS[count]}\n" in printed for rank in range(count)), printed
    assert not family.has_asked_for_more


def name_of_next(family: Family) -> str:
    return str(family.wait_until_asked()["configuration"]["name"])


def set_breakpoints(session: Session, **conditions: str) -> None:
    """Set breakpoints by place, each with a condition."""
    session.set_breakpoints(
        PROGRAM, *[SourceBreakpoint(PROGRAM.line(place), condition=text) for place, text in conditions.items()]
    )


def test_each_rank_is_a_session_and_conditions_know_it(family: Family, tmp_path: Path) -> None:
    launch(family.parent)
    ranks: dict[str, Session] = {}
    for _ in range(2):
        name = name_of_next(family)
        with family.child() as child:
            set_breakpoints(child, hides="rank == 7", eager="rank == 1 and n > 0", traced="rank == 1 and len(x) == 4")
        ranks[name] = child
    assert sorted(ranks) == ["rank 0 (local 0)", "rank 1 (local 1)"]
    for child in ranks.values():
        # The program's own variable ``rank`` takes precedence.
        child.wait_for_stop("breakpoint", at="hides")
        child.resume()
    child = ranks["rank 1 (local 1)"]
    # Stops in the trace, and in the cached calls.
    stop = child.wait_for_stop("breakpoint", at="traced")
    assert stop.frame["Locals"]["x"].text.startswith("Tensor f32[4]")
    for _ in range(2):
        child.continue_to_stop(at="eager")
        child.continue_to_stop(at="traced")
    child.resume()
    wait_for_end(family)
    assert "condition" not in ranks["rank 0 (local 0)"].output()
    # A stop in only one rank does not change its compiles.
    records = sorted((tmp_path / "session-1" / "records").rglob(f"*{SUFFIX}"))
    compared = compare_ranks(records_of_ranks(records[-1]))
    assert compared.ranks == [0, 1]
    (compute,) = [one for one in compared.compiles if one.function == "compute"]
    assert [(one.rank, [each.name for each in one.collectives]) for one in compute.ranks] == [
        (0, ["all_reduce"]),
        (1, ["all_reduce"]),
    ]
    assert compute.partings == []


def test_only_the_ranks_that_are_wanted_are_debugged(family: Family) -> None:
    launch(family.parent, "spawn", ranks=[1, 9])
    assert name_of_next(family) == "rank 1 (local 1)"
    with family.child() as child:
        child.set_breakpoints(PROGRAM, "traced", condition="rank == 1")
    child.wait_for_stop("breakpoint", at="traced")
    child.set_breakpoints(PROGRAM)
    child.resume()
    wait_for_end(family)
    assert "these are debugged: 1, 9;" in family.parent.output("console")
    assert "has no rank 9" in family.parent.output("important")


def test_a_rank_that_is_held_does_not_end_the_job(family: Family) -> None:
    """It is held longer than its process group's timeout: before the group exists, and while others wait for it."""
    seconds = 3.0
    launch(family.parent, count=3, seconds=seconds, ranks=[0, 1])
    ranks: dict[str, Session] = {}
    for _ in range(2):
        name = name_of_next(family)
        with family.child() as child:
            set_breakpoints(child, begins="rank == 0", eager="rank == 0 and n == 1")
        ranks[name] = child
    held, waiting = ranks["rank 0 (local 0)"], ranks["rank 1 (local 1)"]
    held.wait_for_stop("breakpoint", at="begins")
    family.parent.timeline.wait_until(lambda: family.parent.output("stdout").count("begins") == 2, "the others begin")
    time.sleep(2 * seconds)  # not for something to happen: this is the hold
    held.continue_to_stop(at="eager")
    waiting.timeline.wait_until(lambda: "would have ended after" in waiting.output("console"), "it says so")
    held.resume()
    wait_for_end(family, 3)
    assert "would have ended after" not in held.output("console"), "it was over"
    for child in ranks.values():
        assert "up to 1 day for each other" in child.output("console")
        assert "not 0:00:03" in child.output("console")
    message = waiting.output("console")
    line = PROGRAM.line("waits")
    text = rf"rank 1 \(local 1\) has waited \d+ s for other ranks in gloo:barrier .*ranks.py:{line}:"
    assert re.search(text, message), message


def test_timeouts_can_be_left_as_the_program_says(family: Family) -> None:
    launch(family.parent, seconds=3.0, ranks=[0], stretchTimeouts=False)
    family.parent.expects_program_traceback = True
    with family.child() as child:
        child.set_breakpoints(PROGRAM, "begins")
    # The other rank stops waiting, and torchrun ends the held rank.
    assert family.parent.wait_for_exit() == 1
    assert "imed out" in family.parent.output("stderr")
    child.timeline.expect_event("terminated")


ACCELERATED = """
import sys
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)

@torch.compile(backend="eager")
def compute(x):
    return x + accelerator.process_index  #@traced

# In one write: another rank prints, too.
sys.stdout.write(f"{accelerator.reduce(compute(torch.ones(2))).tolist()}\\n")  #@eager
"""


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed")
def test_ranks_that_accelerate_launches(family: Family, tmp_path: Path) -> None:
    program = Fixture(tmp_path / "program.py")
    program.path.write_text(ACCELERATED)
    args = ["--multi_gpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no"]
    what = {"module": "accelerate.commands.launch", "args": [*args, str(program.path)], "python": [sys.executable]}
    with family.parent.configuring("launch", what):
        pass
    ranks: dict[str, Session] = {}
    for _ in range(2):
        name = name_of_next(family)
        with family.child() as child:
            child.set_breakpoints(program, "traced", "eager", condition="rank == 1")
        ranks[name] = child
    assert sorted(ranks) == ["rank 0 (local 0)", "rank 1 (local 1)"]
    child = ranks["rank 1 (local 1)"]
    child.wait_for_stop("breakpoint", at="eager")
    child.continue_to_stop(at="traced")
    child.resume()
    assert family.parent.wait_for_exit() == 0
    assert family.parent.output("stdout").count("[3.0, 3.0]\n") == 2


FAULTY = """
import os, signal, sys, time
import torch.distributed as dist

is_last = os.environ["RANK"] == "1"
# In one write: another rank prints, too.
sys.stdout.write(f"begins with pydevd {'pydevd' in sys.modules}, traced {sys.gettrace() is not None}\\n")
if is_last and "late" in sys.argv:
    time.sleep(3600)
dist.init_process_group("gloo")
if is_last and "raises" in sys.argv:
    raise ValueError("only here")  #@raises
if is_last:
    os.kill(os.getpid(), signal.SIGKILL)  #@killed
dist.barrier()
"""


def launch_faulty(session: Session, tmp_path: Path, *arguments: str, **options: Any) -> Fixture:
    program = Fixture(tmp_path / "program.py")
    program.path.write_text(FAULTY)
    args = ["--standalone", "--nproc-per-node=2", str(program.path), *arguments]
    what = {"module": "torch.distributed.run", "python": [sys.executable], "args": args}
    with session.configuring("launch", {**what, **options}):
        pass
    return program


def test_a_rank_that_is_killed_ends_the_job(family: Family, tmp_path: Path) -> None:
    program = launch_faulty(family.parent, tmp_path)
    family.parent.expects_program_traceback = True
    ranks: dict[str, Session] = {}
    for _ in range(2):
        name = name_of_next(family)
        with family.child() as child:
            child.set_breakpoints(program, "killed")
        ranks[name] = child
    last = ranks["rank 1 (local 1)"]
    last.wait_for_stop("breakpoint", at="killed")
    last.resume()
    # The other rank would wait for a day, but not for a rank that has ended.
    assert family.parent.wait_for_exit() == 1
    for child in ranks.values():
        child.timeline.expect_event("terminated")
    assert "SIGKILL" in family.parent.output("stderr")


def test_a_rank_that_raises_stops_there_and_ends_the_job(family: Family, tmp_path: Path) -> None:
    launch_faulty(family.parent, tmp_path, "raises")
    family.parent.expects_program_traceback = True
    ranks: dict[str, Session] = {}
    for _ in range(2):
        name = name_of_next(family)
        with family.child() as child:
            child.request("setExceptionBreakpoints", {"filters": ["uncaught"]})
            child.expects_program_traceback = True
        ranks[name] = child
    last = ranks["rank 1 (local 1)"]
    stop = last.wait_for_stop("exception", at="raises")
    assert "ValueError" in str(stop.body)
    information = last.request("exceptionInfo", {"threadId": stop.thread_id})
    assert (information["exceptionId"], information["description"]) == ("ValueError", "only here")
    # While this rank is held, nothing ends: the other rank waits for it.
    assert all(event["event"] != "terminated" for child in ranks.values() for event in child.timeline.events)
    last.resume()
    assert family.parent.wait_for_exit() == 1
    for child in ranks.values():
        child.timeline.expect_event("terminated")
    assert "ValueError: only here" in family.parent.output("stderr")


def test_nothing_is_left_of_a_job_that_is_ended_while_a_rank_has_not_arrived(family: Family, tmp_path: Path) -> None:
    launch_faulty(family.parent, tmp_path, "late", ranks=[0])
    with family.child() as child:
        pass
    begins = "both run, one of them without debugging"
    family.parent.timeline.wait_until(lambda: family.parent.output("stdout").count("begins") == 2, begins)
    # The rank that is not debugged runs as without a debugger.
    assert "begins with pydevd False, traced False\n" in family.parent.output("stdout")
    assert "begins with pydevd True" in family.parent.output("stdout")
    family.parent.disconnect(terminateDebuggee=True)
    child.timeline.expect_event("terminated")
    family.parent.close()
    assert not family.parent.processes_left


RUNNING = """
import datetime as dt, os, sys, time
import torch, torch.distributed as dist
import dynamo_dap

dynamo_dap.listen(int(sys.argv[1]) + int(os.environ["RANK"]))
dist.init_process_group("gloo", timeout=dt.timedelta(seconds=3))
print("runs", flush=True)
is_over = torch.zeros(1)
while not is_over:
    print(end="")  #@step
    dist.all_reduce(is_over)  #@waits
options = dist.group.WORLD._get_backend(torch.device("cpu")).options
print("waits for", options._timeout, flush=True)
while options._timeout != dt.timedelta(seconds=3):
    time.sleep(0.05)
print("over", flush=True)
dist.destroy_process_group()
"""


def test_ranks_that_run_already_are_attached_to_by_one_configuration(family: Family, tmp_path: Path) -> None:
    program = Fixture(tmp_path / "program.py")
    program.path.write_text(RUNNING)
    port = free_ports(2)
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    running = [
        FreeProgram(program.path, str(port), environment={**os.environ, **job, "RANK": str(rank)}) for rank in range(2)
    ]
    try:
        for each in running:
            each.wait_for_line("runs")
        with family.parent.configuring("attach", {"connect": {"port": port}, "ranks": [0, 1]}):
            pass
        assert name_of_next(family) == "rank 1"
        with family.child() as waiting:
            pass
        held = family.parent
        held.set_breakpoints(program, "step", condition="rank == 0")
        stop = held.wait_for_stop("breakpoint", at="step")
        # Its process group existed before a debugger attached.
        waiting.timeline.wait_until(lambda: "would have ended after" in waiting.output("console"), "it says so")
        held.set_breakpoints(program)
        stop.frame.evaluate("is_over.fill_(1)", "repl")
        held.resume()
        for each in running:
            each.wait_for_line("waits for 1 day")
        for session in (held, waiting):
            session.disconnect(terminateDebuggee=False)
        # Without a debugger, the program's own timeouts count again.
        for each in running:
            each.wait_for_line("over")
            assert each.process.wait(DEADLINE) == 0
    finally:
        for each in running:
            each.end()


def test_a_client_without_child_sessions_learns_that_no_rank_is_debugged(session: Session) -> None:
    """An editor without child sessions would otherwise show breakpoints that no rank can hit."""
    args = ["--help"]
    with session.configuring("launch", {"module": "torch.distributed.run", "args": args, "python": [sys.executable]}):
        pass
    assert session.wait_for_exit() == 0
    assert "they run without debugging" in session.output("important")


def test_a_rank_beyond_the_last_port_is_refused(session: Session) -> None:
    session.initialize()
    refused = session.refusal("attach", {"connect": {"port": 65000}, "ranks": [0, 1000]})
    assert "port 65000 + 1000" in refused


def free_ports(count: int) -> int:
    """The first of several consecutive free ports."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as probes:
            try:
                for port in range(first, first + count):
                    probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
        return first


def test_a_rank_is_a_number(session: Session) -> None:
    session.initialize()
    assert "ranks" in session.refusal("launch", {"program": str(PROGRAM.path), "ranks": [-1]})
