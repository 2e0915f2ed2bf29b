"""kill -9 of the server at every phase: a launched program ends with it, an attached one runs on.

The sessions have the default options. A launched program belongs to its session, as with debugpy and lldb-dap.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.client import FIXTURES, Fixture, Session
from tests.client.free_program import FreeProgram
from tests.client.processes import marked_with
from tests.client.session import launch_configuration
from tests.client.timeline import DEADLINE
from tests.conftest import NewSession

DEFAULTS = {"eager": True, "mode": "both"}
"""The default values of these launch options."""
PLACES = {"eager": "eager", "compile-time": "trace", "run-time": "generated"}


def kill_server(session: Session) -> None:
    """Kill the server without a chance to clean up."""
    os.kill(session.server_process_id, signal.SIGKILL)
    session.timeline.wait_for_end()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the server has started something."""
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until, "the server started nothing"
        time.sleep(0.002)


@pytest.mark.parametrize("console", ["internalConsole", "integratedTerminal"])
@pytest.mark.parametrize("phase", ["starting", "initialized", "breakpoints set", *PLACES])
def test_a_launched_program_ends_with_its_server(session: Session, phase: str, console: str) -> None:
    program = Fixture("faults")
    session.initialize()
    session.begin("launch", launch_configuration(program, **DEFAULTS, console=console))
    if phase == "starting":
        wait_until(lambda: len(marked_with(session.mark)) > 1)
    else:
        session.timeline.expect_event("initialized")
    if phase == "breakpoints set" or phase in PLACES:
        mode = phase if phase in PLACES else "eager"
        session.set_breakpoints(program, PLACES[mode], mode=mode)
        if phase in PLACES:
            session.client.configuration_done()
            session.wait_for_stop("breakpoint", at=None if phase == "run-time" else PLACES[phase])
    kill_server(session)
    session.close()
    assert session.processes_left == []


@pytest.mark.parametrize("phase", ["initialized", "stopped"])
def test_an_attached_program_runs_on(new_session: NewSession, phase: str) -> None:
    session = new_session()
    program = FreeProgram(FIXTURES / "listening.py")
    host, port = program.address()
    session.initialize()
    session.begin("attach", {"connect": {"host": host, "port": port}, **DEFAULTS})
    session.timeline.expect_event("initialized")
    if phase == "stopped":
        session.set_breakpoints("listening", "again", mode="eager")
        session.client.configuration_done()
        session.wait_for_stop("breakpoint", at="again")
    kill_server(session)
    assert program.process.poll() is None
    # The next debugger can attach as the first one did.
    second = new_session()
    second.attach(host, port, "listening", "compute", **DEFAULTS)
    assert second.wait_for_stop("breakpoint", at="compute").frame.evaluate("1 + 1").text == "2"
    second.disconnect()
    program.end()
