"""Many threads in one compiled function, breakpoints in its eager caller and in its body, with the default options.

Every hit is reported once, at its own place, with its values, and every request is answered. The ordinary suite
runs a few rounds; ``DYNAMO_DAP_STRESS_ROUNDS=200`` runs more.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from tests.client import Fixture, Session
from tests.client.session import launch_configuration

PROGRAM = Fixture("eager/many_threads")
THREADS = 8
ROUNDS = int(os.environ.get("DYNAMO_DAP_STRESS_ROUNDS", "5"))
COMPILES = 3


class _Hits:
    """Stops in any order, each inspected and continued, by one client."""

    def __init__(self, session: Session, numbers: dict[int, str]) -> None:
        self.session = session
        self.places = numbers
        """The places of breakpoints, by their numbers."""
        self.counted: Counter[str] = Counter()

    def take(self, stop: dict[str, Any]) -> None:
        """Inspect a stop like an IDE, and continue its thread."""
        thread = stop["threadId"]
        frames = self.session.request("stackTrace", {"threadId": thread})["stackFrames"]
        where = next(frame for frame in frames if frame["source"].get("path") == str(PROGRAM.path))
        place = PROGRAM.marker_at(where["line"])
        assert place in [self.places[number] for number in stop["hitBreakpointIds"]], (stop, frames)
        scope = self.session.request("scopes", {"frameId": frames[0]["id"]})["scopes"][0]
        variables = self.session.request("variables", {"variablesReference": scope["variablesReference"]})["variables"]
        names = {one["name"] for one in variables}
        assert "x" in names, (place, stop, names)
        self.counted[place if where is frames[0] else f"{place} generated"] += 1
        self.session.request("continue", {"threadId": thread})


def test_every_hit_of_many_threads_is_reported(session: Session) -> None:
    places = ("eager", "traced", "broken")
    launch = launch_configuration(PROGRAM, args=[str(THREADS), str(ROUNDS), str(COMPILES)])
    with session.configuring("launch", launch):
        breakpoints = session.set_breakpoints(PROGRAM, *places)
    assert all(one.verified for one in breakpoints)
    numbers = {one.id: place for one, place in zip(breakpoints, places, strict=True) if one.id is not None}
    hits = _Hits(session, numbers)
    while (reported := session.timeline.expect_first("stopped", "terminated"))[0] == "stopped":
        hits.take(reported[1])
    executed = json.loads(session.output("stdout"))
    assert executed["eager"] == THREADS * ROUNDS == executed["broken"] - 1
    # Every call stops in its trace, or, if it is a cached call, in its replay.
    assert hits.counted == {
        "eager": executed["eager"],
        "traced": executed["eager"],
        "broken": executed["broken"],
    }
    assert session.output("stderr") == ""


def test_a_thread_that_is_being_started_is_left_alone_and_then_debugged(session: Session) -> None:
    program = Fixture("eager/starting_thread")
    with session.configuring("launch", {"program": str(program.path)}):
        session.set_breakpoints(program, "starting", "worker")
    session.wait_for_stop("breakpoint", at="starting")
    session.continue_to_stop(at="worker")
    session.next()
    assert session.run_to_end() == 0
    assert session.output("stderr") == "", "pydevd complains of threads without identifiers"


def test_a_pause_of_a_thread_that_waits_in_c_is_taken_by_one_that_runs(session: Session, tmp_path: Path) -> None:
    """The main thread waits for another thread. The pause stops a thread that runs Python, and no other."""
    program = tmp_path / "program.py"
    program.write_text(
        "import threading\n"
        "going = True\n"
        "def run():\n"
        "    while going:\n"
        "        pass\n"
        "threads = [threading.Thread(target=run) for _ in range(2)]\n"
        "for one in threads: one.start()\n"
        "print('running', flush=True)\n"
        "threads[0].join()\n"
    )
    with session.configuring("launch", {"program": str(program)}):
        pass
    session.wait_for_output("running")
    main = next(one for one in session.client.threads() if one.name == "MainThread")
    session.client.pause(main.id)
    stop = session.wait_for_stop("pause")
    assert stop.thread_id != main.id
    assert stop.frame.name == "run"
    stop.frame.evaluate("globals().update(going=False)", "repl")
    session.resume()
    assert session.wait_for_exit() == 0
