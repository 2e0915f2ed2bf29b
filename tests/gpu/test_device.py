"""Compiled functions on a device: stops, values on demand, counted waits, and filters of asynchronous results."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.requests.cuda_graphs import OVERWRITTEN, RECORDED
from tests.client import Fixture, Session
from tests.client.session import Stop
from tests.client.timeline import DEADLINE
from tests.gpu.needs import CARDS, DEVICE, needs_device, needs_generated_code
from tests.records.test_cuda_graphs import record_in
from tests.records.test_graph_break_stops import info_of

PROGRAM = Fixture("on_a_gpu")
pytestmark = needs_device
Output = tuple[list[str], dict[str, int]]
"""The printed lines, and what was counted."""


def read(text: str) -> Output:
    *lines, counts = text.splitlines()
    return lines, json.loads(counts)


@functools.cache
def plain(scenario: str) -> Output:
    """Run a scenario without a debugger."""
    command = [sys.executable, str(PROGRAM.path), scenario, DEVICE]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE, env=environment)
    return read(run.stdout)


def launch(session: Session, scenario: str, *places: str, filters: tuple[str, ...] = (), **options: Any) -> None:
    """Launch a scenario with default options: a process that was forked has no CUDA."""
    with session.launching(PROGRAM, args=[scenario, DEVICE], **{"python": [sys.executable], **options}):
        session.request("setExceptionBreakpoints", {"filters": list(filters)})
        if places:
            session.set_breakpoints(PROGRAM, *places)


def finish(session: Session) -> Output:
    assert session.wait_for_exit() == 0
    return read(session.output("stdout"))


def look_at_nothing(_: Stop) -> None:
    """Open no scope."""


def look_at_metadata(stop: Stop) -> None:
    assert stop.frame["Locals"]["y"].text.startswith("Tensor f32[64, 64]")
    assert stop.frame.evaluate("y.shape[0]").text == "64"


def look_at_data(stop: Stop) -> None:
    assert stop.frame.evaluate("y.sum().item()").text == "8192.0"


@needs_generated_code
@pytest.mark.parametrize(
    ("look", "waits"), [(look_at_nothing, 0), (look_at_metadata, 0), (look_at_data, 1)], ids=["stop", "shape", "data"]
)
def test_a_value_is_waited_for_only_when_asked(session: Session, look: Any, waits: int, tmp_path: Path) -> None:
    """At a stop in the trace, and in the cached calls: one wait for each look at data.

    Inductor waits itself when it compiles (26 times on an H200), and once with a filled cache: no run finds one.
    """
    launch(session, "traced", "second", env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    for _ in range(2):
        look(session.wait_for_stop("breakpoint", at="second"))
        session.resume()
    lines, counts = finish(session)
    expected_lines, expected = plain("traced")
    assert lines == expected_lines
    more = counts["waits"] - expected["waits"]
    # On the CPU a fake tensor's operations are counted, too.
    assert more == 2 * waits if CARDS else (more > 0) == (waits > 0)


def test_a_breakpoint_elsewhere_costs_no_wait_and_no_kernel(session: Session) -> None:
    launch(session, "idle", "elsewhere")
    session.wait_for_stop("breakpoint", at="elsewhere")
    session.resume()
    assert finish(session) == plain("idle")


@needs_generated_code
def test_generated_code_is_stepped_by_line(session: Session) -> None:
    with session.launching(PROGRAM, args=["traced", DEVICE], python=[sys.executable]):
        session.set_breakpoints(PROGRAM, "first", mode="run-time")
    stop = session.wait_for_stop("breakpoint")
    assert "x" in stop.frame["Locals"]
    session.next(granularity="instruction")
    session.request("setBreakpoints", {"source": {"path": str(PROGRAM.path)}, "breakpoints": []})
    session.resume()
    assert finish(session)[0] == plain("traced")[0]


@needs_generated_code
def test_calls_of_cuda_graphs_stop_and_are_replayed_as_without_a_debugger(session: Session) -> None:
    launch(session, "reduced", "second", filters=("nan", "mismatch"))
    for number in range(4):
        stop = session.wait_for_stop("breakpoint", at="second")
        assert stop.frame.evaluate("x[0].item()").text == f"{float(number)}"
        session.resume()
    session.wait_for_stop("breakpoint", at="second")
    session.set_breakpoints(PROGRAM)
    session.request("setExceptionBreakpoints", {"filters": []})
    session.resume()
    lines, counts = finish(session)
    expected_lines, expected = plain("reduced")
    assert lines == expected_lines
    # What was captured while filters and breakpoints were on has no kernel of ours in it.
    assert counts["graphs"] == expected["graphs"]


def test_recordings_and_kept_outputs_are_recorded(session: Session, tmp_path: Path) -> None:
    launch(session, "kept", filters=("cudagraph",))
    stop = session.wait_for_stop("exception", at="kept")
    assert info_of(session, stop)["exceptionId"].startswith("CUDA graph: overwrites an output")
    session.request("setExceptionBreakpoints", {"filters": []})
    session.resume()
    finish(session)
    outcomes = {one.outcome for _, compiled in record_in(tmp_path).compiles() for one in compiled.cuda_graphs}
    assert {RECORDED, OVERWRITTEN} <= outcomes


@needs_generated_code
@pytest.mark.parametrize(("scenario", "place"), [("tuned", "product"), ("streams", "second"), ("pinned", "second")])
def test_results_are_those_of_the_plain_program(session: Session, scenario: str, place: str) -> None:
    """``max-autotune``, two streams, pinned memory: every call stops, and one value is read at each stop."""
    launch(session, scenario, place)
    calls = {"tuned": 2, "streams": 4, "pinned": 3}[scenario]
    for _ in range(calls):
        stop = session.wait_for_stop("breakpoint", at=place)
        assert stop.frame.evaluate("bool(x.isfinite().all())").text == "True"
        session.resume()
    assert finish(session)[0] == plain(scenario)[0]


@needs_generated_code
def test_training_with_a_grad_scaler_is_not_changed(session: Session) -> None:
    launch(session, "amp", "loss", filters=("nan",))
    for _ in range(3):
        stop = session.wait_for_stop("breakpoint", at="loss")
        assert stop.frame.evaluate("y.dtype").text in ("torch.float16", "torch.bfloat16")
        session.resume()
    assert finish(session)[0] == plain("amp")[0]


@needs_generated_code
def test_a_nan_is_found_at_the_line_that_made_it(session: Session) -> None:
    launch(session, "nan", filters=("nan",))
    for _ in range(2):
        stop = session.wait_for_stop("exception", at="root")
        assert info_of(session, stop)["exceptionId"].startswith("NaN")
        session.resume()
    finish(session)


@needs_generated_code
def test_a_mismatch_is_found_at_the_first_line_that_differs(session: Session) -> None:
    launch(session, "mismatch", filters=("mismatch",))
    stop = session.wait_for_stop("exception", at="silu")
    assert info_of(session, stop)["exceptionId"].startswith("Mismatch")
    session.resume()
    finish(session)


def test_calls_that_draw_no_random_numbers_are_compared(tmp_path: Path) -> None:
    """Inductor draws other numbers than eager: what draws none is compared all the same."""
    command = [sys.executable, "-m", "dynamo_dap", "compare", str(PROGRAM.path), "traced", DEVICE]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Not compared" not in run.stdout


def test_memory_and_costs_are_given_by_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dynamo_dap", "explore", "--json", str(PROGRAM.path), "tuned", DEVICE]
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "DYNAMO_DAP_RECORDS": str(tmp_path / "records")},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    assert '"memory": ' in run.stdout
    assert '"isPeak": true' in run.stdout
    assert str(PROGRAM.path) in run.stdout
