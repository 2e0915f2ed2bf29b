"""Ranks of a distributed job that stop, step and continue together (``"stopRanks": "together"``)."""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.connection import Connection
from dynamo_dap.protocol.requests.ranks import RANK_STOPPED
from dynamo_dap.protocol.wire.messages import Event, Request
from dynamo_dap.protocol.wire.streams import SocketStream
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Fixture, Session
from tests.client.free_program import FreeProgram
from tests.client.session import Stop
from tests.conftest import NewSession
from tests.eager.test_child_processes import DEADLINE, Family
from tests.eager.test_ranks import free_ports, name_of_next

PROGRAM = Fixture("eager/ranks_together")
RESULT = "[14.0, 14.0]"
FIRST, SECOND = "rank 0 (local 0)", "rank 1 (local 1)"


@pytest.fixture
def family(new_session: NewSession) -> Family:
    return Family(new_session)


def launch(family: Family, *arguments: str, **conditions: str) -> tuple[Session, Session]:
    """Start a job of two ranks with breakpoints at places, each with a condition; return the ranks' sessions."""
    first, second = launch_many(family, 2, *arguments, **conditions)
    return first, second


def launch_many(family: Family, count: int, *arguments: str, **conditions: str) -> list[Session]:
    """Launch this number of ranks; return their sessions."""
    args = ["--standalone", f"--nproc-per-node={count}", str(PROGRAM.path), *arguments]
    what: dict[str, Any] = {"module": "torch.distributed.run", "python": [sys.executable], "args": args}
    with family.parent.configuring("launch", {**what, "stopRanks": "together"}):
        pass
    ranks: dict[str, Session] = {}
    for _ in range(count):
        name = name_of_next(family)
        with family.child() as child:
            set_breakpoints(child, **conditions)
        ranks[name] = child
    return [ranks[f"rank {number} (local {number})"] for number in range(count)]


def set_breakpoints(session: Session, **conditions: str) -> None:
    places = [SourceBreakpoint(PROGRAM.line(place), condition=text or None) for place, text in conditions.items()]
    session.set_breakpoints(PROGRAM, *places)


def wait_for_all(ranks: Sequence[Session], at: str) -> None:
    """Wait until all ranks are held, and step those elsewhere to the place ``at``. Ranks at one place step together."""
    stops = {rank: rank.wait_for_stop() for rank in ranks}
    while behind := next((rank for rank, stop in stops.items() if stop.marker != at), None):
        start = where(stops[behind])
        together = [rank for rank, stop in stops.items() if where(stop) == start]
        behind.resume("next")
        stops.update({rank: rank.wait_for_stop() for rank in together})


def where(stop: Stop) -> tuple[Path | None, int]:
    return stop.frame.path, stop.frame.line


def step(ranks: Sequence[Session], by: Session, command: str, *places: str) -> None:
    """Step one rank, and check where all stop: at one place, or each at its own."""
    by.resume(command)
    for rank, at in zip(ranks, places if len(places) > 1 else places * len(ranks), strict=True):
        rank.wait_for_stop("step", at=at)


def place(marker: str) -> str:
    return f"ranks_together.py:{PROGRAM.line(marker)}"


def wait_for_end(family: Family) -> None:
    assert family.parent.wait_for_exit() == 0
    printed = family.parent.output("stdout")
    assert all(f"{rank}: {RESULT}\n" in printed for rank in range(2)), printed


LOOP = """import os
import time

while not os.path.exists("go"):
    time.sleep(0.05)  #@turn
"""


def test_a_rank_that_begins_while_another_is_held_pauses_in_its_program(family: Family, tmp_path: Path) -> None:
    program = Fixture(tmp_path / "loop.py")
    program.path.write_text(LOOP)
    args = ["--standalone", "--nproc-per-node=2", str(program.path)]
    what: dict[str, Any] = {"module": "torch.distributed.run", "python": [sys.executable], "args": args}
    with family.parent.configuring("launch", {**what, "stopRanks": "together", "cwd": str(tmp_path)}):
        pass
    with family.child() as first:
        first.set_breakpoints(program, "turn")
    first.wait_for_stop(at="turn")
    with family.child() as second:
        pass
    stop = second.wait_for_stop("pause")
    assert (stop.frame.path, stop.frame.line > 0) == (program.path, True)
    (tmp_path / "go").touch()
    first.set_breakpoints(program)
    first.resume()
    assert family.parent.wait_for_exit() == 0


def test_ranks_stop_step_and_continue_together(family: Family) -> None:
    ranks = first, second = launch(family, first="")
    wait_for_all(ranks, "first")
    # Both step, whichever rank gets the request.
    step(ranks, first, "next", "second")
    step(ranks, second, "next", "reduce")
    step(ranks, second, "next", "branch")
    step(ranks, first, "next", "only", "after")
    parted = f"{SECOND} has diverged: it is at {place('after')}, and {FIRST} at {place('only')}."
    for rank in ranks:
        rank.wait_for_output(parted, "console")
    # This rank waits until the other arrives, too.
    first.next(at="after")
    first.wait_for_output(f"{SECOND} did not step with {FIRST}: it is stopped at {place('after')}.", "console")
    # Steps into a trace, and out of it.
    step(ranks, second, "stepIn", "traced")
    step(ranks, first, "next", "computed")
    step(ranks, first, "stepOut", "after")
    step(ranks, second, "next", "again")
    # One continues all.
    second.resume()
    first.timeline.expect_event("continued")
    wait_for_all(ranks, "first")
    step(ranks, first, "next", "second")
    for rank in ranks:
        rank.set_breakpoints(PROGRAM)
    first.resume()
    wait_for_end(family)


def test_four_ranks_stop_step_and_continue_together(family: Family) -> None:
    ranks = launch_many(family, 4, first="")
    names = [f"rank {number} (local {number})" for number in range(4)]
    wait_for_all(ranks, "first")
    for by, at in ((2, "second"), (0, "reduce"), (3, "branch")):
        step(ranks, ranks[by], "next", at)
    step(ranks, ranks[1], "next", "only", "after", "after", "after")
    # One rank has diverged from three.
    parted = f"{names[0]} has diverged: it is at {place('only')}, and {names[1]} at {place('after')}."
    for rank in ranks[:2]:
        rank.wait_for_output(parted, "console")
    assert "has diverged" not in ranks[2].output() + ranks[3].output()
    # The three step together into a trace, and the diverged rank stays.
    step(ranks[1:], ranks[3], "stepIn", "traced")
    ranks[3].wait_for_output(f"{names[0]} did not step with {names[3]}: it is stopped at {place('only')}.", "console")
    ranks[0].next(at="after")
    step(ranks[1:], ranks[1], "stepOut", "after")
    step(ranks, ranks[2], "next", "again")
    ranks[3].resume()
    wait_for_all(ranks, "first")
    for rank in ranks:
        rank.set_breakpoints(PROGRAM)
    ranks[1].resume()
    assert family.parent.wait_for_exit() == 0
    printed = family.parent.output("stdout")
    assert all(f"{number}: [84.0, 84.0]\n" in printed for number in range(4)), printed


def begin_turn(family: Family, ranks: tuple[Session, Session], begin: Path, turn: int) -> None:
    """Stop rank 0 at the start of its turn while rank 1 waits for it in C. Check that rank 1 gets a pause request."""
    first, second = ranks
    waits = "rank 1 waits in C"
    family.parent.timeline.wait_until(lambda: family.parent.output("stdout").count("waits") == turn, waits)
    begin.with_name(f"{begin.name}{turn}").touch()
    first.wait_for_stop("breakpoint", at="turn")
    until = time.monotonic() + DEADLINE
    while second.log().count("to debugpy: request pause") != turn:
        assert time.monotonic() < until, "rank 1 is asked to pause"
        time.sleep(0.05)


def stops_of(session: Session) -> list[str]:
    """The reasons of all stops so far."""
    return [event["body"]["reason"] for event in session.timeline.events if event["event"] == "stopped"]


def test_a_rank_that_waits_in_a_collective_stops_behind_it_or_not_at_all(family: Family, tmp_path: Path) -> None:
    begin = tmp_path / "begin"
    ranks = first, second = launch(family, str(begin), turn="rank == 0 and turn > 0")
    begin_turn(family, ranks, begin, 1)
    # The pause request is withdrawn: rank 1 does not stop when it is back in Python.
    first.resume()
    begin_turn(family, ranks, begin, 2)
    # If it reached a line before the withdrawal arrived, it stops and continues by itself. By now it waits again.
    withdrawn = stops_of(second)
    assert withdrawn in ([], ["pause"])
    for _ in withdrawn:
        second.timeline.expect_event("stopped")
        second.timeline.expect_event("continued")
    first.step_in(at="first")
    first.wait_for_output(f"{SECOND} has not reached a line since the pause; it may be waiting for other ranks.")
    first.next(at="second")
    first.next(at="reduce")
    assert stops_of(second) == withdrawn, "it waits in C"
    # After the collective it stops once, perhaps in the same line.
    first.next(at="branch")
    stop = second.wait_for_stop("pause")
    assert PROGRAM.line("reduce") <= stop.user_frames[0].line <= PROGRAM.line("after"), stop.user_frames
    assert stops_of(second) == [*withdrawn, "pause"]
    while stop.marker != "branch":
        stop = second.next()
    step(ranks, second, "next", "only", "after")
    second.resume()
    wait_for_end(family)


def test_a_rank_that_ends_leaves_the_others_held(family: Family) -> None:
    ranks = first, second = launch(family, ends="")
    wait_for_all(ranks, "ends")
    step(ranks, first, "next", "longer", "last")
    second.resume("next")
    while second.timeline.expect_first("stopped", "terminated")[0] == "stopped":
        second.resume("next")
    first.wait_for_output(f"{SECOND} has ended, or is no longer debugged.", "console")
    first.next(at="last")
    first.resume()
    wait_for_end(family)


class SlowMeeting:
    """A meeting that answers a rank's stops when the test says so."""

    def __init__(self) -> None:
        self.stops: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = {"host": "127.0.0.1", "port": self._listener.getsockname()[1], "accessToken": "token"}
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        self._connection = Connection(SocketStream(self._listener.accept()[0]), "a rank")
        self._connection.start(self)

    def answer(self, request: Request) -> None:
        self._connection.respond(request)

    def close(self) -> None:
        self._connection.close()
        self._listener.close()

    def on_request(self, request: Request) -> None:
        if request.command == RANK_STOPPED:
            self.stops.put(request)
        else:
            self.answer(request)

    def on_event(self, event: Event) -> None:
        pass

    def on_invalid_message(self, problem: str) -> None:
        pass

    def on_closed(self, problem: str | None) -> None:
        pass


STEPPED = """import sys
import dynamo_dap

dynamo_dap.listen(int(sys.argv[1]))
print("listens", flush=True)
dynamo_dap.wait_for_client()
first = 1  #@first
second = 2  #@second
third = 3  #@third
"""


def test_a_stop_is_shown_when_the_other_ranks_know_it(session: Session, tmp_path: Path) -> None:
    program = Fixture(tmp_path / "program.py")
    program.path.write_text(STEPPED)
    meeting, port = SlowMeeting(), free_ports(1)
    running = FreeProgram(program.path, str(port))
    try:
        running.wait_for_line("listens")
        with session.configuring("attach", {"connect": {"port": port}, "meeting": meeting.address}):
            session.set_breakpoints(program, "first")
        known = meeting.stops.get(timeout=DEADLINE)
        session.client.threads()
        assert stops_of(session) == []
        meeting.answer(known)
        session.wait_for_stop("breakpoint", at="first")
        # Without an answer it is shown when the meeting ends.
        session.resume("next")
        meeting.stops.get(timeout=DEADLINE)
        meeting.close()
        session.wait_for_stop("step", at="second")
        session.next(at="third")
        session.resume()
        assert running.process.wait(DEADLINE) == 0
    finally:
        running.end()


RUNNING = """
import os, sys, time
import dynamo_dap

dynamo_dap.listen(int(sys.argv[1]) + int(os.environ["RANK"]))
print("runs", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
print("over", flush=True)
"""


def test_ranks_that_were_attached_to_stop_together(family: Family, tmp_path: Path) -> None:
    program, end = tmp_path / "program.py", tmp_path / "end"
    program.write_text(RUNNING)
    port = free_ports(2)
    running = [
        FreeProgram(program, str(port), str(end), environment={**os.environ, "RANK": str(rank)}) for rank in range(2)
    ]
    try:
        for each in running:
            each.wait_for_line("runs")
        how = {"connect": {"port": port}, "ranks": [0, 1], "stopRanks": "together"}
        with family.parent.configuring("attach", how):
            pass
        with family.child() as second:
            pass
        first = family.parent
        for paused, resumed in ((first, second), (second, first), (first, first)):
            paused.request("pause", {"threadId": paused.client.threads()[0].id})
            for rank in (first, second):
                rank.wait_for_stop("pause")
            if paused is resumed:
                end.touch()
            resumed.resume()
            (second if resumed is first else first).timeline.expect_event("continued")
        for each in running:
            each.wait_for_line("over")
            assert each.process.wait(DEADLINE) == 0
    finally:
        for each in running:
            each.end()


def test_what_ranks_do_when_one_stops_is_one_of_two(session: Session) -> None:
    session.initialize()
    refused = session.refusal("launch", {"program": str(PROGRAM.path), "stopRanks": "all"})
    assert '"stopRanks" is "all"' in refused
    assert 'one of "alone", "together"' in refused
