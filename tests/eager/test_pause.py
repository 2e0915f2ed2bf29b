"""Pauses a program that runs ordinary Python."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Fixture, Session


def test_a_pause_is_shown_where_it_is(session: Session) -> None:
    session.launch("endings/runs_on")
    session.wait_for_output("running")
    session.client.pause(session.client.threads()[0].id)
    stop = session.wait_for_stop("pause")
    assert "preserveFocusHint" not in stop.body, "an IDE selects the frame, which the user has asked for"
    assert stop.frame.name == "<module>"
    session.resume()
    session.request("terminate")
    session.timeline.expect_event("terminated")


BELOW_LIBRARY = """
import os, sys
from torch.distributed.c10d_logger import _exception_logger

read = _exception_logger(os.read)
pipe = os.open(sys.argv[1], os.O_RDWR)
print("waits", flush=True)
read(pipe, 1)  #@waits
x = 1  #@paused
y = 2
z = 3
"""


def test_a_pause_below_a_library_is_stepped_on_from(session: Session, tmp_path: Path) -> None:
    """The library returns first. By itself, debugpy stops there, shows the caller and loses the next step."""
    program, pipe = Fixture(tmp_path / "program.py"), tmp_path / "pipe"
    program.path.write_text(BELOW_LIBRARY)
    os.mkfifo(pipe)
    session.launch(program, args=[str(pipe)])
    session.wait_for_output("waits")
    session.client.pause(session.client.threads()[0].id)
    pipe.write_bytes(b".")
    assert session.wait_for_stop("pause").marker in ("waits", "paused")
    session.next()
    session.next()
    assert session.run_to_end() == 0


@pytest.mark.parametrize("just_my_code", [True, False])
def test_a_pause_before_the_program_begins_stops_in_the_program(session: Session, just_my_code: bool) -> None:
    """The debugger's own code runs first, and starts the program."""
    with session.launching("endings/runs_on", justMyCode=just_my_code):
        session.client.pause(session.client.threads()[0].id)
    stop = session.wait_for_stop("pause")
    assert (stop.frame.name, stop.frame.line) == ("<module>", 1)
    assert len(stop.frames) == 1


WITH_WORKER = """
import os, sys, threading, time

def work():
    while True:
        time.sleep(0.05)
        print("works", flush=True)

threading.Thread(target=work, daemon=True).start()
pipe = os.open(sys.argv[1], os.O_RDWR)
"""
ORDINARY = """
x = 1  #@breakpoint
y = 2  #@after
"""
TRACED = """
import torch

@torch.compiler.assume_constant_result
def wait():
    return len(os.read(pipe, os.write(1, b"waits\\n")))

@torch.compile(backend="eager")
def compiled(x):
    x = x * wait()
    return x + 1  #@breakpoint

compiled(torch.ones(2))
y = 2  #@after
"""


def wait_for_worker(session: Session) -> None:
    """Wait until a second has passed in the other thread: the debugger would ask it to pause after half of that."""
    before = session.output().count("works")
    session.timeline.wait_until(lambda: session.output().count("works") > before + 20, "the other thread works on")


@pytest.mark.parametrize("is_held", [False, True])
def test_a_pause_of_a_thread_that_hits_a_breakpoint_pauses_no_other(
    session: Session, tmp_path: Path, is_held: bool
) -> None:
    """It is asked while the breakpoint's condition runs, or when it is held."""
    program, pipe = Fixture(tmp_path / "program.py"), tmp_path / "pipe"
    program.path.write_text(WITH_WORKER + ORDINARY)
    os.mkfifo(pipe)
    condition = None if is_held else "print('decides', flush=True) or os.read(pipe, 1)"
    with session.launching(program, args=[str(pipe)]):
        session.set_breakpoints(program, SourceBreakpoint(program.line("breakpoint"), condition=condition))
    if is_held:
        session.wait_for_stop("breakpoint")
    else:
        session.wait_for_output("decides")
    session.client.pause(session.client.threads()[0].id)
    if not is_held:
        pipe.write_bytes(b".")
        session.wait_for_stop("breakpoint")
    wait_for_worker(session)
    session.next(at="after")
    assert session.run_to_end() == 0


@pytest.mark.parametrize("is_held", [False, True])
def test_a_pause_of_a_thread_that_hits_a_breakpoint_in_a_trace_pauses_no_other(
    session: Session, tmp_path: Path, is_held: bool
) -> None:
    """It is asked while it waits in C, or when it is held."""
    program, pipe = Fixture(tmp_path / "program.py"), tmp_path / "pipe"
    program.path.write_text(WITH_WORKER + TRACED)
    os.mkfifo(pipe)
    with session.launching(program, args=[str(pipe)]):
        session.set_breakpoints(program, "breakpoint")
    session.wait_for_output("waits")
    main = session.client.threads()[0].id
    if not is_held:
        session.client.pause(main)
    pipe.write_bytes(b".")
    session.wait_for_stop("breakpoint")
    if is_held:
        session.client.pause(main)
    wait_for_worker(session)
    session.set_breakpoints(program, "after")
    assert session.continue_to_stop(at="after").reason == "breakpoint"
    assert session.run_to_end() == 0
