"""Looking changes nothing: a program watched at every line compiles to the same graphs, guards and bytecode.

Each program runs twice, untouched and watched, with torch's own logs of graphs, guards, bytecode, recompiles and graph
breaks. Watched, it stops at every line that Dynamo traces, every scope of the top frame is opened to depth 3, and
expressions are evaluated. What both print must be the same, but for what differs from run to run anyway.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys

import pytest

from dynamo_dap.protocol.connection import RequestFailed
from tests.client import Session, Stop
from tests.client.fixtures import FIXTURES

LOGS = {"TORCH_LOGS": "graph_code,guards,bytecode,recompiles,graph_breaks,aot_graphs", "TORCH_LOGS_FORMAT": "short"}
WATCHES = (
    "x",
    "len([1, 2])",
    "x.shape",
    "self",
    "[name for name in dir()][:2]",
    "no_such_name + 1",
    "ctx",
    "tx.lineno",
)
DEPTH = 3
MAXIMUM_STOPS = 400

PROGRAMS = [
    "basic",
    "graph_break",
    "dynamic_shapes",
    "containers",
    "control_flow",
    "closures",
    "recompiles",
    "side_effects",
    "model",
    "randomness",
    "encoder",
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_watched_compile_is_the_same(session: Session, program: str) -> None:
    untouched = _run_untouched(program)
    stops = _run_watched(session, program)
    assert stops > 1
    watched = _comparable(session.output("stdout") + session.output("stderr"))
    assert "GUARDS" in untouched
    assert "counter frames total" in untouched
    assert watched == untouched


def _run_untouched(program: str) -> str:
    finished = subprocess.run(
        [sys.executable, str(FIXTURES / "observed.py"), f"{program}.py"],
        env=os.environ | LOGS,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return _comparable(finished.stdout + finished.stderr)


def _run_watched(session: Session, program: str) -> int:
    """Step through everything that is traced, looking at each stop; return how many there were."""
    just_my_code = program != "encoder"
    options = {"args": [f"{program}.py"], "env": LOGS, "justMyCode": just_my_code, "stopOnEntry": True}
    # In ordinary Python the walk would open all globals at each line, for minutes.
    session.launch("observed", eager=False, mode="compile-time", **options)  # the walk is over what is traced
    session.wait_for_stop("entry")
    for stops in range(MAXIMUM_STOPS):
        session.resume("stepIn")
        stop = _stop_or_end(session, stops + 2)
        if stop is None:
            return stops
        _look(stop)
    session.run_to_end()
    return MAXIMUM_STOPS


def _stop_or_end(session: Session, stops: int) -> Stop | None:
    """Wait for the stop numbered ``stops`` and return it; None when the program ended instead."""

    def events(name: str) -> int:
        return sum(event["event"] == name for event in session.timeline.events)

    what = f"stop {stops} or the end"
    session.timeline.wait_until(lambda: events("stopped") >= stops or events("terminated") > 0, what, deadline=60)
    return None if events("terminated") else session.wait_for_stop()


def _look(stop: Stop) -> None:
    frame = stop.frame
    for scope in frame.scopes.values():
        scope.open(DEPTH)
    for expression in WATCHES:
        with contextlib.suppress(RequestFailed):
            frame.evaluate(expression)


def _comparable(output: str) -> str:
    """Take out what differs between two runs: times, addresses, unique names, and the order of the two streams."""
    lines = []
    # The stack that torch logs with a graph break starts with whoever runs the program.
    output = re.sub(r'  File ".*/(dynamo_dap|<frozen runpy>)[^\n]*\n( {4,}[^\n]*\n)*', "", output)
    for line in output.splitlines():
        text = re.sub(r"^[A-Z]\d{4} [\d:.]+ \d+ ", "", line)
        text = re.sub(r"_[0-9a-f]{8}(_[0-9a-f]{4}){3}_[0-9a-f]{12}", "<unique>", text)
        text = re.sub(r"0x[0-9a-f]+|(?<!\d)\d{9,}(?!\d)", "<address>", text)
        text = re.sub(r"\d+(\.\d+)? ?(us|ms|s)\b", "<time>", text)
        lines.append(text)
    return "\n".join(sorted(lines))


def test_the_comparison_sees_a_difference() -> None:
    assert _comparable("a 0x12 b") == _comparable("a 0x99 b")
    assert _comparable("guard x.size(0) == 3") != _comparable("guard x.size(0) == 4")
