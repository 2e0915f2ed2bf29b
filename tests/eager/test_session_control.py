"""Pauses, restarts and ends sessions whose threads are held by the agent and by debugpy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.client import Fixture, Session
from tests.client.session import Stop
from tests.client.timeline import DEADLINE

PROGRAM = Fixture("eager/runs_long")
WITHOUT_TORCH = Fixture("eager/runs_on")


class Running:
    """The running program, and the file whose removal ends it."""

    def __init__(self, session: Session, folder: Path, way: str, *places: str, **options: Any) -> None:
        self.session = session
        self.flag = folder / "going"
        self.flag.touch()
        self.file = WITHOUT_TORCH if way == "eager" else PROGRAM
        with session.launching(self.file, args=[way, str(self.flag)], **options):
            session.set_breakpoints(self.file, *places)

    def let_end(self) -> None:
        """Let the program end by itself."""
        self.flag.unlink()

    def pause(self) -> Stop:
        thread = next(one for one in self.session.client.threads() if one.name == "MainThread")
        self.session.client.pause(thread.id)
        return self.session.wait_for_stop("pause")


def names(stop: Stop) -> list[str]:
    return [frame.name for frame in stop.frames]


def test_pause_in_eager_code(session: Session, tmp_path: Path) -> None:
    program = Running(session, tmp_path, "eager")
    session.wait_for_output("running")
    for _ in range(3):
        stop = program.pause()
        assert {"eager", "<module>"} <= set(names(stop))
        session.resume()  # the next pause is requested at once, perhaps before the thread continues
    assert [thread.name for thread in session.client.threads()] == ["MainThread"]
    program.let_end()
    assert session.wait_for_exit() == 0


def test_pause_while_dynamo_traces(session: Session, tmp_path: Path) -> None:
    program = Running(session, tmp_path, "trace_on", "traced")
    session.wait_for_stop("breakpoint", at="traced")
    session.set_breakpoints(PROGRAM)
    session.resume()
    stop = program.pause()
    assert names(stop) == ["long", "trace_on", "<module>"]
    assert stop.frame["Locals"]["x"].text.startswith("Tensor f32[2]")
    stop = session.next()
    assert names(stop)[0] == "long"
    session.disconnect()


def test_pause_in_generated_code(session: Session, tmp_path: Path) -> None:
    """The pause is requested while a function that generated code calls is in C. The thread stops when it returns."""
    program = Running(session, tmp_path, "generated", "waits")
    session.wait_for_stop("breakpoint", at="waits")
    session.continue_to_stop(at="waits")
    session.set_breakpoints(PROGRAM)
    session.resume()
    time.sleep(0.3)  # into the middle of the sleep
    stop = program.pause()
    assert "generated" in stop.frame.name
    assert names(stop)[-2:] == ["generated", "<module>"]
    session.resume()
    program.let_end()
    assert session.wait_for_exit() == 0


@pytest.mark.parametrize(("way", "place"), [("eager", "eager"), ("trace", "traced")])
def test_restart_while_held(session: Session, tmp_path: Path, way: str, place: str) -> None:
    Running(session, tmp_path, way, place)
    session.wait_for_stop("breakpoint", at=place)
    session.request("restart")
    stop = session.wait_for_stop("breakpoint", at=place)
    assert names(stop)[-1] == "<module>"
    assert [event["event"] for event in session.timeline.events].count("process") == 2
    session.disconnect()


@pytest.mark.parametrize(("way", "place"), [("eager", "eager"), ("trace", "traced")])
def test_terminate_while_held(session: Session, tmp_path: Path, way: str, place: str) -> None:
    Running(session, tmp_path, way, place)
    session.wait_for_stop("breakpoint", at=place)
    session.request("terminate")
    session.timeline.expect_event("terminated")
    assert "ended" not in session.output("stdout")
    assert "killed" not in session.output(), "it ended when it was asked to"


@pytest.mark.parametrize("kill", [True, False])
@pytest.mark.parametrize(("way", "place"), [("eager", "eager"), ("trace", "traced")])
def test_disconnect_while_held(session: Session, tmp_path: Path, way: str, place: str, kill: bool) -> None:
    program = Running(session, tmp_path, way, place)
    session.wait_for_stop("breakpoint", at=place)
    process = next(event["body"]["systemProcessId"] for event in session.timeline.events if event["event"] == "process")
    running = psutil.Process(process)
    session.disconnect(terminateDebuggee=kill)
    if not kill:
        assert running.is_running()
        program.let_end()
    psutil.wait_procs([running], timeout=DEADLINE)
    assert not running.is_running() or running.status() == psutil.STATUS_ZOMBIE


def hold_both(session: Session, folder: Path) -> tuple[Running, Stop, Stop]:
    """Hold one thread in a trace by the agent, then the other in eager code by debugpy."""
    program = Running(session, folder, "both", "held")
    traced = session.wait_for_stop("breakpoint", at="held")
    session.set_breakpoints(PROGRAM, "eager")
    eager = session.wait_for_stop("breakpoint", at="eager")
    session.set_breakpoints(PROGRAM)
    return program, traced, eager


def test_each_thread_continues_by_itself_under_either_debugger(session: Session, tmp_path: Path) -> None:
    program, traced, eager = hold_both(session, tmp_path)
    answer = session.request("continue", {"threadId": eager.thread_id})
    assert answer["allThreadsContinued"] is False
    continued = session.timeline.expect_event("continued")
    assert continued["threadId"] == eager.thread_id
    assert continued["allThreadsContinued"] is False
    # The other thread is still at its place, with its values.
    assert traced.frame["Locals"]["x"].text.startswith("Tensor f32[2]")
    session.resume(thread_id=traced.thread_id)
    program.let_end()
    assert session.wait_for_exit() == 0


def test_an_eager_stop_outlasts_the_other_threads(session: Session, tmp_path: Path) -> None:
    """The traced thread finishes its first call and ends while the eager thread is inspected."""
    program, traced, eager = hold_both(session, tmp_path)
    session.resume(thread_id=traced.thread_id)
    session.timeline.expect_event("thread", lambda body: body == {"reason": "exited", "threadId": traced.thread_id})
    assert eager.frame.name == "eager"
    assert "count" in eager.frame["Locals"]
    session.resume(thread_id=eager.thread_id)
    program.let_end()
    assert session.wait_for_exit() == 0


def test_what_initialize_offers_is_true_for_every_frame(session: Session, tmp_path: Path) -> None:
    offered = session.initialize()
    assert offered.supports_single_thread_execution_requests
    assert offered.supports_value_formatting_options
    program = Running(session, tmp_path, "eager", "eager")
    stop = session.wait_for_stop("breakpoint", at="eager")
    asked = {"source": {"path": str(program.file.path)}, "line": 1, "endLine": 200}
    lines = {one["line"] for one in session.request("breakpointLocations", asked)["breakpoints"]}
    text = program.file.path.read_text(encoding="utf-8").splitlines()
    assert program.file.line("eager") in lines
    assert text.index("import sys") + 1 in lines, "ordinary Python can be stopped at module level, too"
    for expression, hexadecimal in (("count + 254", "0xfe"), ("-255", "-0xff"), ("'10'", "'10'")):
        asked = {"expression": expression, "frameId": stop.frame.data.id, "format": {"hex": True}, "context": "watch"}
        assert session.request("evaluate", asked)["result"] == hexadecimal
    session.disconnect()


def test_values_of_a_trace_are_written_in_hexadecimal(session: Session, tmp_path: Path) -> None:
    Running(session, tmp_path, "trace", "traced")
    stop = session.wait_for_stop("breakpoint", at="traced")
    arguments = {"expression": "i + 254", "frameId": stop.frame.data.id, "format": {"hex": True}, "context": "watch"}
    assert session.request("evaluate", arguments)["result"] == "0xfe"
    scope = next(
        one for one in session.request("scopes", {"frameId": stop.frame.data.id})["scopes"] if one["name"] == "Locals"
    )
    asked = {"variablesReference": scope["variablesReference"], "format": {"hex": True}}
    found = {one["name"]: one["value"] for one in session.request("variables", asked)["variables"]}
    assert found["i"] == "0x0"
    session.disconnect()


def test_a_program_that_takes_its_time_to_end_is_not_taken_for_a_broken_connection(
    session: Session, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import time\n"
        "class Slow:\n"
        "    def __del__(self, sleep=time.sleep):\n"
        "        sleep(6)\n"
        "slow = Slow()  # torn down when the debugger has taken its leave\n"
    )
    with session.launching(program):
        pass
    assert session.wait_for_exit() == 0
    assert session.output("important") == ""


def test_at_its_end_the_program_does_not_wait_for_debugpy(session: Session, tmp_path: Path) -> None:
    """The reader of debugpy ends before debugpy lets the program end. If both waited for each other, neither ended."""
    program = tmp_path / "ending.py"
    program.write_text(
        "import os, threading\n"
        "class Last:\n"
        "    def __del__(self, threads=threading._active, write=os.write):\n"
        "        write(1, repr([one.name for one in threads.values()]).encode())\n"
        "last = Last()  # torn down after all that Python runs at its end\n",
        encoding="utf-8",
    )
    session.launch(program)
    assert session.wait_for_exit() == 0
    assert "MainThread" in session.output("stdout")
    assert "pydevd.Reader" not in session.output("stdout")


COUNTS = """import pydevd
debugger = pydevd.get_global_debugger()
made, clear = [], debugger._clear_caches
debugger._clear_caches = lambda: (made.append(1), clear())
value = 0  #@here
"""


def test_many_breakpoints_in_one_file_are_put_in_its_table_at_once(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "counts.py"
    path.write_text(COUNTS + "value += 1\n" * 400 + "print(value)  #@last\n", encoding="utf-8")
    program = Fixture(path)
    session.launch(program, "here")
    stop = session.wait_for_stop("breakpoint", at="here")
    first = program.line("here") + 1
    set_ = session.set_breakpoints(program, *range(first, first + 400), "last")
    assert [one.line for one in set_] == [*range(first, first + 401)]
    assert int(stop.frame.evaluate("len(made)").text) < 20
    assert session.continue_to_stop().frame.line == first
