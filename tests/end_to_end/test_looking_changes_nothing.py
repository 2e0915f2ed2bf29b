"""Looking changes nothing: a program watched at every line compiles to the same graphs, guards and bytecode.

Each program runs twice, untouched and watched, with torch's own logs of graphs, guards, bytecode, recompiles and graph
breaks. The watched run has the default options. It steps through traces, the instructions of generated code, and the
ordinary Python around them. At each stop the test opens the scopes of the top frame, and evaluates expressions; in
ordinary Python it opens only the locals, since the globals contain all of torch. Both outputs must be the same, except
for differences between any two runs, and for the name of generated code under a debugger. The suite runs programs that
together have every construct, and code of a library; ``make walks`` runs all programs.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections import Counter

import pytest

from dynamo_dap.protocol.connection import RequestFailed
from tests.client import Session, Stop, zygote
from tests.client.environments import need_inductor
from tests.client.fixtures import Fixture
from tests.compile_time.samples import sample

OBSERVED = Fixture("observed")
ENVIRONMENT = {
    "TORCH_LOGS": "graph_code,guards,bytecode,recompiles,graph_breaks,aot_graphs",
    "TORCH_LOGS_FORMAT": "short",
    # The log of a graph differs if the graph comes from the cache.
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
}
WATCHES = (
    "x",
    "square(x)",
    "len([1, 2])",
    "x.shape",
    "self",
    "[name for name in dir()][:2]",
    "no_such_name + 1",
    "ctx",
    "tx.lineno",
)
DEPTHS = {"eager": 2, "compile-time": 3, "run-time": 2}
"""The depth to which scopes are opened at each kind of stop."""
MAXIMUM_STOPS = 250

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
    "skipped_frame",
    "encoder",
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "program", sample({name: Fixture(name).path.read_text() for name in PROGRAMS}, always=["encoder"])
)
def test_a_watched_compile_is_the_same(session: Session, program: str) -> None:
    if Fixture(program).uses_inductor:
        need_inductor(program)
    untouched = _run_untouched(program)
    looks = _run_watched(session, program)
    assert all(looks[kind] for kind in DEPTHS) or program == "encoder", looks
    assert looks["compile-time"] > 1
    watched = _comparable(session.output("stdout") + session.output("stderr"))
    assert "GUARDS" in untouched
    assert "counter frames total" in untouched
    assert watched == untouched


def _run_untouched(program: str) -> str:
    finished = subprocess.run(
        [*zygote.python(**ENVIRONMENT), "-u", "-X", "frozen_modules=off", str(OBSERVED.path), f"{program}.py"],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return _comparable(finished.stdout + finished.stderr)


def _run_watched(session: Session, program: str) -> Counter[str]:
    """Step through the program, inspect each stop, and count the stops of each kind."""
    options = {"args": [f"{program}.py"], "env": ENVIRONMENT, "python": zygote.python(**ENVIRONMENT)}
    is_torchs_own = program == "encoder"
    if is_torchs_own:
        with session.launching(OBSERVED, **options, justMyCode=False):
            names = [{"name": "TransformerEncoderLayer.forward"}]
            session.request("setFunctionBreakpoints", {"breakpoints": names})
    else:
        session.launch(OBSERVED, "run", **options)
    session.wait_for_stop()
    looks: Counter[str] = Counter()
    while looks.total() < MAXIMUM_STOPS:
        session.resume("stepIn")
        stop = session.wait_for_stop()
        if stop.frame.path == OBSERVED.path:
            break  # the program has ended
        looks[_look(stop)] += 1
        if is_torchs_own and looks["eager"]:
            break  # from here on the steps would be in Dynamo itself
    assert session.run_to_end() == 0
    return looks


def _look(stop: Stop) -> str:
    """Open everything that a user may open, and return the kind of the stop."""
    frame = stop.frame
    kind = "compile-time" if "Graph" in frame.scopes else "run-time" if "Compiled Graph" in frame.scopes else "eager"
    for name, scope in frame.scopes.items():
        if kind != "eager" or name == "Locals":
            scope.open(DEPTHS[kind])
    for expression in WATCHES:
        with contextlib.suppress(RequestFailed):
            frame.evaluate(expression)
    return kind


def _comparable(output: str) -> str:
    """Remove differences between any two runs: times, addresses, unique names, and the order of the two streams."""
    lines = []
    # The stack in torch's log of a graph break starts with the code that runs the program.
    output = re.sub(r'  File ".*/(dynamo_dap|<frozen runpy>)[^\n]*\n( {4,}[^\n]*\n)*', "", output)
    output = re.sub(r'File "(?:/[^"\n]*/)?(?:<generated \d+: )?([^"/\n]*\.py)>?"', r'File "\1"', output)
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
