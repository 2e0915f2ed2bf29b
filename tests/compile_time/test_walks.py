"""Compares random walks through traces, by every kind of move, with a run that only goes forward.

After each move, the walk must be at the right place, and must show what the forward run has shown there. At the end,
the program must have the same results as without a debugger. The suite makes a few walks, always the same, through a
sample of the programs; ``make walks`` makes 510 new ones.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.agent.stepping import StepKind
from dynamo_dap.protocol.requests.contract import ORIGINS
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.compile_time import programs
from tests.compile_time.observation import observe
from tests.compile_time.samples import WALKS, sample
from tests.compile_time.test_cached_calls import parts
from tests.compile_time.travelling import (
    FIXTURES,
    Move,
    Position,
    Program,
    State,
    Traveller,
    different,
    fixture,
    lines_of,
    position_of,
    repeated,
    state_of,
    traced_frames,
    travelled,
    travelling,
)
from tests.run_time.in_process import SeenStop

hypothesis: Any = pytest.importorskip("hypothesis", reason="walks are drawn by hypothesis: pip install hypothesis")
given: Any = pytest.importorskip("hypothesis.strategies", reason="as above")

pytestmark = pytest.mark.timeout(1800)

IN_THE_SUITE = 2


@dataclass(frozen=True)
class Seen:
    """A stop of the run that only goes forward."""

    position: Position
    depth: int
    """How many functions are being traced at the stop."""
    function: str
    line: int
    path: str
    returns: bool
    """Whether the stop is a return into the middle of a line, from a function that it called."""
    state: State


@dataclass
class Recording:
    """All stops of a run that only goes forward, by their traces."""

    traces: dict[tuple[str, int, int], list[Seen]] = field(default_factory=dict)

    def __call__(self, stop: SeenStop) -> Move | None:
        """The script."""
        position = position_of(stop)
        if position is None:
            return None
        trace = self.traces.setdefault(position.trace, [])
        depth, function, line = len(traced_frames(stop)), stop.frame.name, stop.frame.position.line
        before = next((each for each in reversed(trace) if each.depth <= depth), None)
        returns = bool(trace) and trace[-1].depth > depth and before is not None and before.line == line
        path = str(traced_frames(stop)[0].source)
        trace.append(Seen(position, depth, function, line, path, returns, state_of(stop)))
        return Move(StepKind.IN)

    def at(self, position: Position) -> tuple[list[Seen], int] | None:
        """Return the trace of a position, and the index of its stop there; None if it did not stop there."""
        trace = self.traces.get(position.trace, [])
        return next(((trace, number) for number, each in enumerate(trace) if each.position == position), None)


@dataclass(frozen=True)
class Action:
    """A random action at a stop. Its numbers are drawn before the stop is known, and wrap around there."""

    name: str
    number: int
    granularity: str


FORWARD = {"in": StepKind.IN, "over": StepKind.OVER, "out": StepKind.OUT}
BACK = {"back": StepKind.BACK, "reverse": StepKind.BACK_TO_BREAKPOINT, "restart": StepKind.RESTART_FRAME}
OTHERS = ("go to", "origin", "toggle", "continue")


class Walk:
    """Performs actions one after the other, and compares each result."""

    def __init__(self, path: str, lines: Sequence[int], set_lines: Collection[int], actions: Sequence[Action]) -> None:
        """``lines`` may have breakpoints; ``set_lines`` have one at first."""
        self._path = path
        self._lines = lines
        self.set_lines = set(set_lines)
        self._actions = list(reversed(actions))
        self._recording: Recording
        self._before: tuple[Position, Move] | None = None
        self._furthest: Position | None = None
        """Where the trace stands. Steps in its history go no further, even if the breakpoint there was removed."""
        self._running = ""
        """The running compile at its last stop in the present."""
        self._host: Traveller
        self.moves: Counter[str] = Counter()

    def program(self, program: Program, recording: Recording) -> Program:
        """Return the program, walked through when it runs."""
        self._recording = recording

        def walk(compiled: Any) -> list[Any]:
            with travelling(self, {self._path: sorted(self.set_lines)}) as self._host:
                return program(compiled)

        return walk

    def __call__(self, stop: SeenStop) -> Move | None:
        """The script."""
        position = position_of(stop)
        if position is None:
            self._before = None
            return None
        self._compare(position, stop)
        move = self._move(stop)
        self._before = None if move is None else (position, move)
        return move

    # -- actions -----------------------------------------------------------------------------------------------

    def _move(self, stop: SeenStop) -> Move | None:
        while self._actions:
            action = self._actions.pop()
            self.moves[action.name] += 1
            if action.name == "continue":
                return None
            if action.name == "toggle":
                self._set(self.set_lines ^ {self._lines[action.number % len(self._lines)]})
            elif move := self._as_move(action, stop):
                return move
        self._set(set())
        return None

    def _set(self, set_lines: set[int]) -> None:
        self.set_lines = set_lines
        breakpoints = [SourceBreakpoint(line=line) for line in sorted(set_lines)]
        self._host.breakpoints.set_lines(self._path, breakpoints, self._host.options)

    def _as_move(self, action: Action, stop: SeenStop) -> Move | None:
        if action.name in FORWARD:
            return Move(FORWARD[action.name], action.granularity)
        history, depth = stop.stop.history, len(traced_frames(stop))
        if history is None:
            return None
        if action.name in BACK:
            return Move(BACK[action.name], action.granularity, action.number % depth)
        if action.name == "go to":
            entries = history.timeline(0, 10_000).entries
            if not entries:
                return None
            return Move(StepKind.TO_SNAPSHOT, target=entries[action.number % len(entries)].snapshot)
        names = [name for name, _ in traced_frames(stop)[action.number % depth]._frame.locals()]
        if not names:
            return None
        try:
            name, what = names[action.number % len(names)], ORIGINS[action.number % len(ORIGINS)]
            return Move(StepKind.TO_SNAPSHOT, target=history.origin(action.number % depth, name, what))
        except RequestError:
            return None

    # -- the result ------------------------------------------------------------------------------------------

    def _compare(self, position: Position, stop: SeenStop) -> None:
        here = self._recording.at(position)
        if here is None:
            return
        trace, at = here
        assert (stop.frame.name, stop.frame.position.line) == (trace[at].function, trace[at].line)
        expected, found = trace[at].state, state_of(stop)
        if " back" not in str(stop.stop.description):
            self._running = position.compile_id
        elif position.compile_id != self._running:
            expected, found = _traced_so_far(expected, found)
        assert not different(expected, found), (position, stop.stop.description)
        if self._before is not None:
            before, move = self._before
            origin = self._recording.at(before)
            if origin is not None and origin[0] is trace and move.granularity == "statement":
                self._check_destination(trace, origin[1], at, move, stop.reason)
        if self._furthest is None or self._furthest.trace != position.trace or self._furthest.number < position.number:
            self._furthest = position

    def _check_destination(self, trace: list[Seen], start: int, end: int, move: Move, reason: str) -> None:
        what = f"{move.kind.value} from {trace[start].position} to {trace[end].position}, {reason}"
        if reason == "breakpoint":
            assert self._is_enabled(trace[end]), what
        if move.kind in FORWARD.values():
            assert end > start, what
            passed = trace[start + 1 : end]
            assert all(self._is_passed(each, trace[start], move.kind) for each in passed), what
            stands_there = trace[end].position == self._furthest
            is_passed = self._is_passed(trace[end], trace[start], move.kind)
            assert reason == "breakpoint" or stands_there or not is_passed, what
        elif move.kind is StepKind.BACK_TO_BREAKPOINT:
            assert end <= start, what
            assert not [each for each in trace[end + 1 : start] if self._is_enabled(each) and not each.returns], what
        elif move.kind is StepKind.BACK:
            assert end < start or end == 0, what
            assert all(self._is_passed(each, trace[start], StepKind.OVER) for each in trace[end + 1 : start]), what

    def _is_enabled(self, each: Seen) -> bool:
        # Functions that a library generates, such as those of named tuples, have another file.
        return each.line in self.set_lines and each.path == self._path

    def _is_passed(self, each: Seen, start: Seen, kind: StepKind) -> bool:
        """Return whether a step passes a stop."""
        if kind is StepKind.IN:
            return False
        if kind is StepKind.OUT:
            return each.depth >= start.depth
        return each.depth > start.depth or (each.depth == start.depth and each.returns)


def _path(name: str) -> Path:
    return FIXTURES / f"{name.removeprefix('fixture ')}.py"


def _source(name: str) -> str:
    return inspect.getsource(getattr(programs, name)) if hasattr(programs, name) else _path(name).read_text()


@dataclass(frozen=True)
class Walked:
    """A program to walk through, with its results without a debugger, and its forward run."""

    program: Program
    path: str
    lines: Sequence[int]
    alone: dict[str, Any]
    recording: Recording


@cache
def walked(name: str) -> Walked:
    """Run a program of ``programs``, or a fixture, as the reference for walks."""
    if hasattr(programs, name):
        program, path = repeated(getattr(programs, name)), programs.__file__
    else:
        program, path = fixture(name.removeprefix("fixture ")), str(_path(name))
    observe(program)
    alone, recording = parts(observe(program)), Recording()
    lines = lines_of(path)
    observe(travelled(program, recording, {path: lines}))
    visited = {each.line for trace in recording.traces.values() for each in trace if each.path == path}
    return Walked(program, path, sorted(visited), alone, recording)


NAMES = (
    "graph_break",
    "dynamic_shapes",
    "iterators",
    "contexts",
    "closures",
    "objects",
    "fixture recompiles",
    "fixture containers",
    "fixture control_flow",
    "fixture model",
)

ACTIONS = given.lists(
    given.builds(
        Action,
        given.sampled_from([*FORWARD, *BACK, *OTHERS]),
        given.integers(0, 1000),
        given.sampled_from(["statement", "statement", "line", "instruction"]),
    ),
    max_size=25,
)


def _traced_so_far(expected: State, found: State) -> tuple[State, State]:
    """Leave out objects that the trace had not read yet: the program may have changed them since."""
    lazy = [name.removesuffix(".Dynamo") for name, text in expected.items() if text.startswith("Lazy")]
    lazy += [f"value of {name.rpartition('.')[2]}" for name in lazy]

    def rest(state: State) -> State:
        return {name: text for name, text in state.items() if not name.startswith(tuple(lazy))}

    return rest(expected), rest(found)


FOUND = {
    "graph_break": [
        # Forward again to where the trace stands, although the breakpoint there was removed meanwhile.
        ({751}, [Action("restart", 0, "statement"), Action("toggle", 233, "statement"), Action("out", 0, "statement")]),
        # Back over the break, into another compile, in which a dictionary had other keys.
        ({3}, [Action("back", 0, "statement")]),
    ],
    # In a loop on one line, which stops in each iteration.
    "fixture control_flow": [({97}, [Action("go to", 1, "statement"), Action("in", 0, "statement")])],
    # Back from the middle of a line, after a call in it, to where the line begins.
    "contexts": [({0}, [Action("in", 0, "statement"), Action("back", 0, "statement")])],
}
"""Walks that have failed before."""


@pytest.mark.parametrize("name", sample({name: _source(name) for name in NAMES}, always=FOUND))
def test_walks(name: str) -> None:
    plain = walked(name)

    def walk(set_lines: set[int], actions: list[Action]) -> None:
        path = Walk(plain.path, plain.lines, {plain.lines[each % len(plain.lines)] for each in set_lines}, actions)
        seen = parts(observe(path.program(plain.program, plain.recording)))
        for part, value in plain.alone.items():
            assert seen[part] == value, part

    check: Callable[[], None] = hypothesis.settings(
        max_examples=WALKS or IN_THE_SUITE,
        derandomize=not WALKS,
        # Finding the shortest failing walk takes minutes.
        phases=[hypothesis.Phase.generate, *([hypothesis.Phase.shrink] if WALKS else [])],
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )(hypothesis.given(given.sets(given.integers(0, 1000), min_size=1, max_size=6), ACTIONS)(walk))
    for found in FOUND.get(name, ()):
        walk(*found)
    check()
