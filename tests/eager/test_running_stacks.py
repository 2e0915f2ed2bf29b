"""A breakpoint that is set while the program runs also stops in running functions, anywhere in the stack."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from dynamo_dap.debuggee.agent.tracing import stack_of_thread
from tests.client import Fixture, Session

PROGRAM = """
import sys, time

def deep(depth):
    return deep(depth - 1) if depth else 1

def main():
    sys.setswitchinterval(1e-6)
    print("runs", flush=True)
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        for _ in range(500):
            sum(deep(300) for _ in range(1))
        turns = 1  #@turn

main()
"""


def test_a_breakpoint_that_is_set_meanwhile_is_hit_below_a_generator(session: Session, tmp_path: Path) -> None:
    program = Fixture(tmp_path / "program.py")
    program.path.write_text(PROGRAM, encoding="utf-8")
    with session.launching(program):
        pass
    session.wait_for_output("runs")
    for _ in range(15):
        session.set_breakpoints(program, "turn")
        session.wait_for_stop("breakpoint", at="turn")
        session.set_breakpoints(program)
        session.resume()
    session.disconnect(terminateDebuggee=True)


def test_the_stack_of_a_running_thread_is_whole() -> None:
    ends = threading.Event()

    def deep(depth: int) -> int:
        return deep(depth - 1) if depth else 1

    def outermost() -> None:
        while not ends.is_set():
            sum(deep(60) for _ in range(1))

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=outermost)
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        assert thread.ident is not None
        for _ in range(2000):
            names = [frame.f_code.co_name for frame in stack_of_thread(thread.ident)]
            assert names[-1] == "_bootstrap", names
            assert "run" in names
    finally:
        sys.setswitchinterval(interval)
        ends.set()
        thread.join()
    assert stack_of_thread(thread.ident) == []
