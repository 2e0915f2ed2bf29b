"""What a watched attribute of a model costs in a training step: ``make bench ARGUMENTS=watched``.

The same program plain and under the debugger with the attribute watched, in turns in one run; the thread's processor
seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from dynamo_dap.debuggee.agent.breakpoints import CHANGED, WatchedVariable
from tests.benchmarks.debugged import DebuggedProgram
from tests.benchmarks.figures import Measured, ratios
from tests.benchmarks.turns import TurnTakers
from tests.client.fixtures import Fixture

PROGRAM = Path(__file__).with_name("programs") / "watched_steps.py"
STEPS = 20
"""In each turn."""


def watched(is_quick: bool) -> Iterator[Measured]:
    """What watching an attribute costs."""
    variable = WatchedVariable("self.scale", "Net.forward", str(PROGRAM), Fixture(PROGRAM).line("forward"))
    plain, ours = [], []
    with TurnTakers(PROGRAM) as takers:
        without = takers.start_plainly()
        program = DebuggedProgram(PROGRAM, [takers.port], mode="both", eager=True)
        taker = takers.start(program)
        breakpoints = [{"dataId": variable.data_id, "accessType": CHANGED}]
        program.client.request("setDataBreakpoints", {"breakpoints": breakpoints})
        taker.do(3)
        for _ in range(1 if is_quick else 15):
            plain.append(without.do(STEPS))
            ours.append(taker.do(STEPS))
        assert not program.has_stopped, "nothing changes the attribute"
    beside = {"plain ms": 1000 * statistics.median(one[1] for one in plain) / STEPS}
    yield Measured("watched.step", ratios(ours, plain), beside)
