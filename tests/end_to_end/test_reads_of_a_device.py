"""Counts how often the host waits for a device, with a torch device that is written in Python."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from tests.client import Fixture, Session
from tests.client.environments import alone, own_command
from tests.client.session import Frame, Stop
from tests.client.timeline import DEADLINE

PROGRAM = Fixture("on_a_device")
READS = "__import__('counting_device').counts['reads']"


@functools.cache
def plain() -> list[str]:
    """Return the program's output without a debugger: the counts, and the result."""
    return alone(PROGRAM.path).stdout.splitlines()


def reads(frame: Frame) -> int:
    return int(frame.evaluate(READS).text)


def check_reads(stop: Stop) -> None:
    """Look at a tensor in each way, and check how often that reads the device."""
    frame, before = stop.frame, reads(stop.frame)
    tensor = frame["Locals"]["y"]
    assert tensor.text == "Tensor f32[2, 3] counting:0"
    assert tensor["shape"].text == "[2, 3]"
    assert frame.evaluate("y").text == tensor.text
    assert frame.evaluate("y.shape[0]").text == "2"
    assert reads(frame) == before, "metadata needs no data"
    elements = "[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]"
    for expression, text in (("y.sum().item()", "12.0"), ("y[0, 1].item()", "2.0"), ("y.tolist()", elements)):
        before = reads(frame)
        assert frame.evaluate(expression).text == text
        assert reads(frame) == before + 1, expression
    before = reads(frame)
    printed = frame.evaluate("y", context="repl").text
    assert printed == f"{tensor.text} = [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]"
    assert reads(frame) == before + 1, "who prints it waits"
    before = reads(frame)
    assert tensor["value"]["value"].text == tensor.text
    assert reads(frame) == before, "a real tensor is shown without its data"


def test_each_value_that_is_asked_for_is_read_once(session: Session) -> None:
    """This holds in the trace and in cached calls."""
    session.launch(PROGRAM, "second")
    for _ in range(2):
        check_reads(session.wait_for_stop("breakpoint", at="second"))
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout").splitlines()[-1] == plain()[-1]


def test_a_stop_alone_reads_nothing_and_runs_nothing(session: Session) -> None:
    session.launch(PROGRAM, "elsewhere", "second")
    session.wait_for_stop("breakpoint", at="elsewhere")
    for _ in range(2):
        stop = session.continue_to_stop(at="second")
        stop.frame["Locals"].texts()
    session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout").splitlines() == plain()


def test_filters_on_values_end_as_without_a_debugger(session: Session) -> None:
    """The memory of this device cannot be copied, so its calls are left out; the console reports that."""
    with session.launching(PROGRAM):
        session.request("setExceptionBreakpoints", {"filters": ["nan", "mismatch"]})
    assert session.wait_for_exit() == 0
    message = [line for line in session.output("important").splitlines() if "skip calls" in line]
    assert [("steps" in line, "'counting'" in line) for line in message] == [(False, True), (True, True)]


def test_compare_and_diff_say_that_they_know_nothing_of_its_calls(tmp_path: Path) -> None:
    for status, *command in ((3, "compare", str(PROGRAM.path)), (2, "diff", "--values", str(PROGRAM.path))):
        run = subprocess.run(
            [*own_command(), *command],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
            timeout=DEADLINE,
        )
        printed = run.stdout + run.stderr
        assert run.returncode == status, printed
        assert "No difference" not in printed
        assert "The same" not in printed
