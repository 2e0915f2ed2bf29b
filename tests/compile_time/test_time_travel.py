"""Goes through a trace forward, back and forward again: each position shows the same as at the first visit.

The tests visit every statement of a program: in compiles, in replays of cached calls, and in later calls, which use the
saved trace. The program notices nothing. Runs in this process, with the real engines. The suite takes a sample of
fixtures and ``programs`` that together contain every construct, and code of a library; ``make walks`` takes all.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Collection, Iterator
from typing import Any

import pytest
import torch

from dynamo_dap.debuggee.agent.stepping import StepKind
from dynamo_dap.debuggee.history import state_log
from dynamo_dap.debuggee.history.snapshots import PastFrame, Snapshot
from dynamo_dap.debuggee.history.state_log import StateLog
from tests.compile_time import programs
from tests.compile_time.observation import observe
from tests.compile_time.programs import PROGRAMS, Compiled, encoder_layer, functions
from tests.compile_time.samples import WALKS, sample
from tests.compile_time.test_cached_calls import parts
from tests.compile_time.travelling import (
    FIXTURES,
    Lines,
    Move,
    Position,
    Program,
    State,
    different,
    fixture,
    lines_of,
    position_of,
    repeated,
    state_of,
    travelled,
)
from tests.run_time.in_process import SeenStop

pytestmark = pytest.mark.timeout(600)

ELSEWHERE = {
    "all_reduced": "needs other processes",
    "compiled_before": "runs until it is ended",
    "comptime_breakpoint": "stops by itself",
    "cuda_graphs": "puts graphs for the CPU instead of torch's CUDA graphs, by options of a backend",
    "eager_breakpoint": "stops by itself",
    "generated_crash": "kills its process",
    "generated_failure": "fails",
    "generated_loop": "runs until it is stopped",
    "generated_marker": "stops by itself",
    "generated_threads": "threads, of which each run has another order",
    "inductor_programs": "starts processes of its own",
    "listening": "waits for a client",
    "on_a_device": "a device of its own, for the life of the process",
    "observed": "runs another program",
    "plain": "compiles nothing",
    "ranks_that_part": "needs other processes",
    "settings": "functions of one statement",
    "soaked": "runs until it is stopped",
    "threads": "threads, of which each run has another order",
    "uses_library": "needs a library that is installed",
    "waits_for_input": "waits for input",
}
"""Fixtures whose ``main`` cannot run here, with the reason."""
RUN = sorted(
    path.stem
    for path in FIXTURES.glob("*.py")
    if path.stem not in ELSEWHERE and re.search(r"^def main\(\)", path.read_text(), re.MULTILINE)
)
_WALKED = {each.__name__: each for each in PROGRAMS if each is not encoder_layer}
_SAMPLE = sample(
    {
        **{name: inspect.getsource(program) for name, program in _WALKED.items()},
        **{f"{name}.py": (FIXTURES / f"{name}.py").read_text() for name in RUN},
    },
    always=["encoder.py"],  # It is torch's own code.
)

_STEP_IN = Move(StepKind.IN)


class BackAndForth:
    """At the end of each trace, goes back to its beginning, stop by stop, and forward again."""

    def __init__(self, recorded: list[Position | None], forward: Move | None) -> None:
        """Take ``recorded``, all stops of a run that only goes ``forward``."""
        self._recorded = recorded
        self._forward = forward
        self._at = -1
        self._visited: dict[Position, State] = {}
        self._moves: Iterator[Move | None] | None = None
        self.compared = 0
        self.differences: list[str] = []

    def __call__(self, stop: SeenStop) -> Move | None:
        """The script."""
        if self._moves is not None:
            self._compare(stop)
            self._here = position_of(stop)
            for move in self._moves:
                return move
            self._moves = None
            return self._forward
        self._at += 1
        position = position_of(stop)
        assert position == self._recorded[self._at], "it goes forward as if it had never gone back"
        if position is None:
            return None
        if not self._visited or position.trace != next(iter(self._visited)).trace:
            self._visited.clear()
        self._visited[position] = state_of(stop)
        following = self._recorded[self._at + 1] if self._at + 1 < len(self._recorded) else None
        is_last = following is None or following.trace != position.trace or following.number <= position.number
        if not is_last or len(self._visited) == 1:
            return self._forward
        self._moves = self._there_and_back()
        return next(self._moves)

    def _there_and_back(self) -> Iterator[Move | None]:
        first, *_, last = visited = list(self._visited)
        found: set[Position | None] = {last}
        while not found >= {first}:
            yield Move(StepKind.BACK_TO_BREAKPOINT)
            found.add(self._here)
        found = {first}
        while last not in found:
            yield self._forward
            found.add(self._here)
        assert found == set(visited), "forward again, it comes to the same places"
        self._visited.clear()

    def _compare(self, stop: SeenStop) -> None:
        position = position_of(stop)
        assert position is not None
        assert position in self._visited, position
        self.compared += 1
        for name, (expected, found) in different(self._visited[position], state_of(stop)).items():
            where = f"{stop.stop.description}, line {stop.frame.position.line}"
            self.differences.append(f"{where}: {name} was {expected}, is {found}")


def recorded(program: Program, lines: Lines, forward: Move | None, **options: Any) -> list[Position | None]:
    """Return all stops of a run that only goes forward; None stands for a stop at the beginning of generated code."""
    stops: list[Position | None] = []

    def go_forward(stop: SeenStop) -> Move | None:
        position = position_of(stop)
        stops.append(position)
        return None if position is None else forward

    observe(travelled(program, go_forward, lines, **options))
    return stops


def go_back_and_forth(program: Program, lines: Lines, forward: Move | None = _STEP_IN, **options: Any) -> BackAndForth:
    """Go through every trace of the program, by steps in or between breakpoints, and check that it has no effect."""
    observe(program)
    alone = parts(observe(program))
    travel = BackAndForth(recorded(program, lines, forward, **options), forward)
    seen = parts(observe(travelled(program, travel, lines, **options)))
    assert travel.compared, "nothing was gone back to"
    for name, value in alone.items():
        assert seen[name] == value, name
    return travel


@pytest.mark.parametrize(
    "program", [program for name, program in _WALKED.items() if name in _SAMPLE], ids=lambda each: each.__name__
)
def test_every_statement_of_a_program(program: Any) -> None:
    travel = go_back_and_forth(repeated(program), {programs.__file__: lines_of(programs.__file__)})
    # Dynamo makes the inputs of a body before the body reads them, so their line is known only later.
    assert not [each for each in travel.differences if program is not functions or "created at" not in each]


@pytest.mark.parametrize("name", [name for name in RUN if f"{name}.py" in _SAMPLE])
def test_every_statement_of_a_fixture(name: str) -> None:
    path = str(FIXTURES / f"{name}.py")
    options: dict[str, Any] = {}
    lines: dict[str, list[int]] = {path: lines_of(path)}
    if name == "encoder":
        library = inspect.getsourcefile(torch.nn.TransformerEncoderLayer)
        assert library is not None
        lines, options = {library: lines_of(library)}, {"just_my_code": False}  # it is torch's own code
    assert not go_back_and_forth(fixture(name), lines, **options).differences


def _transformers() -> Any:
    if not WALKS:
        pytest.skip("a walk through each statement of Llama takes minutes: make walks")
    return pytest.importorskip("transformers", reason="Llama is transformers'")


@pytest.mark.timeout(1800)
def test_every_statement_of_llama() -> None:
    """Go from breakpoint to breakpoint, with one on each statement of the model: over a hundred stops per trace."""
    transformers = _transformers()
    code: Any = importlib.import_module("transformers.models.llama.modeling_llama")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    lines = {code.__file__: lines_of(code.__file__)}

    def llama(compiled: Any) -> list[Any]:
        torch.manual_seed(0)
        model = compiled(transformers.LlamaForCausalLM(config).eval())
        with torch.no_grad():
            return [model(input_ids=torch.arange(6).reshape(1, 6)).logits for _ in range(2)]

    travel = go_back_and_forth(llama, lines, None, just_my_code=False)  # it is a library's code
    assert travel.compared > 2 * 2 * 100, "there and back, in both calls"
    assert not travel.differences


def branches(compiled: Compiled) -> list[Any]:
    def fn(x: torch.Tensor, seen: list[Any]) -> torch.Tensor:
        y = torch.nn.functional.dropout(x + len(seen))
        seen.append(y)
        if y.sum() > 0:
            y = y * len(seen)
            seen.append(y)
        else:
            y = y - 1
        z = y + x
        if z.max() > 8:
            z = z - len(seen)
        return z * 2

    torch.manual_seed(0)
    run = compiled(fn)
    # In the third call, only the part before the first branch hits the cache; in the fourth and fifth, all parts do.
    return [run(torch.ones(4) * number, []) for number in (1, 9, -1, 9, -1)] + [run(torch.ones(5), [1])]


class AcrossBreaks:
    """At the end of each call, goes back to its beginning, over all graph breaks, and forward again."""

    def __init__(self, first: int, last: Collection[int]) -> None:
        """Take the lines of the function's first statement, and of its return statements."""
        self._first, self._last = first, last
        self._visited: dict[int, State] = {}
        self._moves: Iterator[Move] | None = None
        self._line = 0
        self._is_at_beginning = False
        self.gone_back: list[list[int]] = []
        """For each call, the lines reached by going back."""
        self.differences: list[str] = []

    def __call__(self, stop: SeenStop) -> Move | None:
        """The script."""
        if position_of(stop) is None:
            return None
        self._line = stop.frame.position.line
        if self._moves is None:
            if self._line == self._first:
                self._visited.clear()
            self._visited[self._line] = state_of(stop)
            if self._line not in self._last:
                return None
            self._moves = self._there_and_back()
        else:
            self._is_at_beginning = "beginning" in str(stop.stop.description)
            for name, (expected, found) in different(self._visited[self._line], state_of(stop)).items():
                if name.startswith(("stack", "value of ")) and name in self._visited[self._line]:
                    self.differences.append(
                        f"{stop.stop.description}, line {self._line}: {name} was {expected}, is {found}"
                    )
        for move in self._moves:
            return move
        self._moves = None
        return None

    def _there_and_back(self) -> Iterator[Move]:
        back: list[int] = []
        last = self._line
        self._is_at_beginning = False
        while not self._is_at_beginning:
            yield Move(StepKind.BACK)
            back.append(self._line)
        forward: list[int] = []
        while self._line != last:
            yield Move(StepKind.OVER)
            forward.append(self._line)
        assert [last, *back[:-1]] == [*reversed(forward), self._first]
        self.gone_back.append(back)


def branches_around_llama(compiled: Compiled) -> list[Any]:
    def fn(model: Any, tokens: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=tokens).logits
        if logits.std() > 0.01:
            logits = logits / logits.std()
        probabilities = logits.softmax(-1)
        if probabilities.max() > 0.9:
            probabilities = probabilities - 0.1
        return probabilities * 2

    torch.manual_seed(0)
    transformers = _transformers()
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    model, run = transformers.LlamaForCausalLM(config).eval(), compiled(fn)
    with torch.no_grad():
        return [run(model, torch.arange(6).reshape(1, 6) + number) for number in range(3)]


CALLS: dict[Program, int] = {branches: 6, programs.graph_break: 2, branches_around_llama: 3}


@pytest.mark.parametrize("program", CALLS, ids=lambda each: each.__name__)
def test_over_branches_on_data(program: Program) -> None:
    """Going back works in every call, whichever of its parts it compiles, and has no effect on the program."""
    source, line = inspect.getsourcelines(program)
    last = {line + number for number, text in enumerate(source) if text.startswith(" " * 8) and "return " in text}
    first = line + 2
    observe(program)
    alone = parts(observe(program))
    travel = AcrossBreaks(first, last)
    path = inspect.getsourcefile(program)
    assert path is not None
    seen = parts(
        observe(travelled(program, travel, {path: [each for each in lines_of(path) if first <= each <= max(last)]}))
    )
    for name, value in alone.items():
        assert seen[name] == value, name
    assert not travel.differences
    assert len(travel.gone_back) == CALLS[program]
    assert all(back[-2:] == [first, first] and len(back) > 5 for back in travel.gone_back)


class AsFarAsItGoes(BackAndForth):
    """Goes back as far as possible, which may not be the beginning, and forward again."""

    oldest: Position | None = None

    def _there_and_back(self) -> Iterator[Move | None]:
        *_, last = self._visited
        here: Position | None = None
        self._here = last
        while here != self._here:
            here = self._here
            yield Move(StepKind.BACK_TO_BREAKPOINT)
        self.oldest = here
        while self._here != last:
            yield self._forward
        self._visited.clear()

    def _compare(self, stop: SeenStop) -> None:
        if position_of(stop) in self._visited:
            super()._compare(stop)


def test_what_is_too_old_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remaining history is unchanged."""
    monkeypatch.setattr(state_log, "MAXIMUM_SNAPSHOTS", 200)
    monkeypatch.setattr(state_log, "_FORGOTTEN_AT_ONCE", 50)
    lines = {programs.__file__: lines_of(programs.__file__)}
    first = recorded(programs.objects, lines, _STEP_IN)[0]
    travel = AsFarAsItGoes(recorded(programs.objects, lines, _STEP_IN), _STEP_IN)
    observe(travelled(programs.objects, travel, lines))
    assert travel.compared > 5
    assert not travel.differences
    assert travel.oldest is not None
    assert first is not None
    assert travel.oldest.number > first.number


class Twins:
    """Keeps two logs: one stores each snapshot completely, the other one stores differences from later snapshots."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._note, self._close = StateLog.note, StateLog.close
        self._twins: dict[int, StateLog] = {}
        self.compared = self.reported = 0
        self.differences: list[str] = []
        twins = self

        def note(log: StateLog, frame: Any, position: int, *, is_line: bool = True, as_a_whole: bool = False) -> None:
            twins._note(log, frame, position, is_line=is_line, as_a_whole=as_a_whole)
            twin = twins._twins.get(id(log))
            if twin is None:
                twin = twins._twins[id(log)] = StateLog(frame)
                twin._changes, twin._snapshots.changed = log._changes, log._snapshots.changed
            twins._note(twin, frame, position, is_line=is_line, as_a_whole=True)

        def close(log: StateLog) -> None:
            twin = twins._twins.pop(id(log), None)
            if twin is not None:
                try:
                    twins._compare(log, twin)
                except Exception as problem:  # noqa: BLE001  (the process that closes a log continues after it)
                    twins.differences.append(f"{type(problem).__name__}: {problem}")
            twins._close(log)

        monkeypatch.setattr(StateLog, "note", note)
        monkeypatch.setattr(StateLog, "close", close)

    def _compare(self, log: StateLog, twin: StateLog) -> None:
        assert len(log.snapshots) == len(twin.snapshots)
        self.reported += len(log.snapshots) - log.snapshots.noted
        for at, (one, other) in enumerate(zip(log.snapshots, twin.snapshots, strict=True)):
            self.compared += 1
            found, expected = _parts(one), _parts(other)
            where = f"snapshot {at}, {one.frames[0].path}:{one.frames[0].line}"
            self.differences += [f"{where}: {name}" for name in expected if found[name] != expected[name]]
            if _parts_of_function(log.snapshots.function(at)) != found["frames"][0]:
                self.differences.append(f"{where}: its function")


def _parts(snapshot: Snapshot) -> dict[str, Any]:
    """Return the parts of a snapshot, with objects by id."""
    parts: dict[str, Any] = snapshot._asdict()
    parts["trace"] = (*snapshot.trace[:3], snapshot.trace.sizes.version)
    for name in ("frames", "left"):
        parts[name] = [_parts_of_function(each) for each in parts[name]]
    return parts


def _parts_of_function(then: PastFrame) -> list[Any]:
    return [
        id(then.translator),
        {name: id(tracker) for name, tracker in then.locals.items()},
        [id(tracker) for tracker in then.stack],
        then.pointer,
        id(then.instruction),
        then.line,
        [id(block) for block in then.blocks],
        {name: str(value) for name, value in then.progress.items()},
    ]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_what_a_snapshot_shows_is_what_was_there(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a breakpoint at a line that few programs reach, so that in most traces only the log is active."""
    twins = Twins(monkeypatch)
    lines = {programs.__file__: lines_of(programs.__file__)[-1:]}
    observe(travelled(repeated(program), lambda stop: Move(StepKind.OUT), lines))
    assert twins.reported, "most snapshots are not noted as a whole"
    assert twins.compared > twins.reported, "but some are"
    assert not twins.differences
