"""Sessions that begin, continue and end in any order, drawn by hypothesis; and kill -9 of each part in each state.

``make soak LIVES=2000`` makes that many, new ones each time; the suite makes few, and the same.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.soak.counts import count, is_soaking
from tests.soak.lives import KILLED, MOVES, PLACES, PROGRAM, QUESTIONS, STARTS, Life

hypothesis: Any = pytest.importorskip("hypothesis", reason="lives are drawn by hypothesis: pip install hypothesis")
stateful: Any = pytest.importorskip("hypothesis.stateful", reason="as above")
given: Any = pytest.importorskip("hypothesis.strategies", reason="as above")

LIVES = count("LIVES", 8)
ACTIONS = 20
"""At most, in one example; what is over by then is followed by another life."""

pytestmark = pytest.mark.timeout(120 + 30 * LIVES)


class Lives(stateful.RuleBasedStateMachine):
    """The rules by which lives are drawn."""

    life: Life

    @stateful.initialize(start=given.sampled_from(STARTS))
    def connect(self, start: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.life = Life(Path(self._folder.name), start)

    def _is(self, *states: str) -> bool:
        return self.life.state in states

    @stateful.rule(command=given.sampled_from(sorted(QUESTIONS)))
    @stateful.precondition(lambda self: not self._is("over"))
    def ask(self, command: str) -> None:
        self.life.ask(command)

    @stateful.rule()
    @stateful.precondition(lambda self: self._is("connected"))
    def initialize(self) -> None:
        self.life.initialize()

    @stateful.rule()
    @stateful.precondition(lambda self: self._is("initialized"))
    def begin(self) -> None:
        self.life.begin()

    @stateful.rule(mode=given.sampled_from([*PLACES, None]))
    @stateful.precondition(lambda self: self._is("configuring", "stopped"))
    def set_breakpoint(self, mode: str | None) -> None:
        self.life.set_breakpoint(mode)

    @stateful.rule()
    @stateful.precondition(lambda self: self._is("configuring"))
    def configure(self) -> None:
        self.life.configure()

    @stateful.rule()
    @stateful.precondition(lambda self: self._is("running"))
    def wait(self) -> None:
        self.life.wait()

    @stateful.rule()
    @stateful.precondition(lambda self: self._is("stopped"))
    def look(self) -> None:
        self.life.look()

    @stateful.rule(command=given.sampled_from(MOVES))
    @stateful.precondition(lambda self: self._is("stopped"))
    def move(self, command: str) -> None:
        self.life.move(command)

    @stateful.rule()
    @stateful.precondition(lambda self: self._is("running", "stopped"))
    def restart(self) -> None:
        self.life.restart()

    @stateful.rule(terminate=given.booleans())
    @stateful.precondition(lambda self: self._is("running", "stopped", "configuring", "alone"))
    def disconnect(self, terminate: bool) -> None:
        self.life.disconnect(terminate=terminate)

    @stateful.rule()
    @stateful.precondition(lambda self: self._is("running", "stopped", "alone"))
    def terminate(self) -> None:
        self.life.terminate()

    @stateful.rule()
    @stateful.precondition(lambda self: self._is("running", "stopped"))
    def end_reader_of_debugpy(self) -> None:
        self.life.end_reader_of_debugpy()
        self.life.state = "alone"

    @stateful.rule(who=given.sampled_from(KILLED))
    @stateful.precondition(lambda self: self.life.can_be_killed)
    def kill(self, who: str) -> None:
        self.life.kill(who)

    @stateful.rule(start=given.sampled_from(STARTS))
    @stateful.precondition(lambda self: self._is("over"))
    def live_again(self, start: str) -> None:
        self.teardown()
        self.connect(start)

    def teardown(self) -> None:
        if not hasattr(self, "life"):
            return
        problems = self.life.end()
        transcript = self.life.session.timeline.transcript()
        self._folder.cleanup()
        assert not problems, "\n".join([*problems, transcript])


def test_lives_in_any_order_end_properly() -> None:
    settings = hypothesis.settings(
        max_examples=LIVES,
        stateful_step_count=ACTIONS,
        deadline=None,
        derandomize=not is_soaking("LIVES"),
        database=None,
        # A life takes a second: what failed is reported as it was.
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
    )
    stateful.run_state_machine_as_test(Lives, settings=settings)


@pytest.mark.parametrize("who", KILLED)
@pytest.mark.parametrize("state", ["configuring", "running", *PLACES])
@pytest.mark.parametrize("start", ["stdio", "attach"])
def test_every_process_ends_after_any_kill(tmp_path: Path, start: str, state: str, who: str) -> None:
    life = Life(tmp_path, start)
    life.initialize()
    life.begin()
    if state in PLACES:
        life.set_breakpoint(state)
    if state != "configuring":
        life.configure()
    if state in PLACES:
        life.wait()
    life.kill(who)
    problems = life.end()
    # The figures of a soak, by ``-s``.
    print(f"kill -9 of {who}, {start}, {state}: all is over after {life.seconds_to_end:.2f} s")  # noqa: T201
    assert not problems, "\n".join([*problems, life.session.timeline.transcript()])


@pytest.mark.parametrize("state", ["running", *PLACES])
@pytest.mark.parametrize("start", ["stdio", "attach"])
def test_when_debugpys_thread_ends_the_session_continues(tmp_path: Path, start: str, state: str) -> None:
    """Nobody waits for its answers; what Dynamo does is debugged."""
    life = Life(tmp_path, start)
    life.initialize()
    life.begin()
    life.set_breakpoint(state if state in PLACES else "eager")
    life.configure()
    life.wait()
    if state not in PLACES:
        life.set_breakpoint(None)
        life.move("continue")
    life.end_reader_of_debugpy()
    life.session.set_breakpoints(PROGRAM, "trace", mode="compile-time")
    life.continue_if_stopped()
    assert life.session.wait_for_stop("breakpoint", at="trace").frame.evaluate("1 + 1").text == "2"
    life.disconnect(terminate=start != "attach")
    problems = life.end()
    assert not problems, "\n".join([*problems, life.session.timeline.transcript()])
