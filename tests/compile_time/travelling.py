"""Goes back and forth in traces, with the real engines in the test's own process.

``travelled`` runs a program with breakpoints on its lines; a script says at every stop what the user does next. A
``State`` contains all that a stop shows, to depth 2 and with values: equal states look the same to a user.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import io
import runpy
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dynamo_dap.debuggee.agent.engine import NoEagerDebugger
from dynamo_dap.debuggee.agent.stepping import Step, StepKind
from dynamo_dap.debuggee.composition.compile_time_engine import CompileTimeEngine
from dynamo_dap.debuggee.generated.engine import RunTimeEngine
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue
from dynamo_dap.debuggee.trace.frames import TracedFunction
from dynamo_dap.debuggee.values.model import Children
from dynamo_dap.protocol.requests.contract import COMPILE_TIME
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.compile_time.observation import normalised
from tests.compile_time.test_real_values import tensors_of
from tests.run_time.in_process import ScriptedHost, SeenStop

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
Program = Callable[[Any], list[Any]]
State = dict[str, str]
Lines = Mapping[str, Collection[int]]
"""Breakpoints by file."""


@dataclass(frozen=True)
class Move:
    """A user's action at a stop."""

    kind: StepKind
    granularity: str = "statement"
    target: int = 0


Script = Callable[[SeenStop], Move | None]


class Traveller(ScriptedHost):
    """Plays the agent for both engines; see ``ScriptedHost``."""

    def __init__(self, script: Script, **options: Any) -> None:
        super().__init__(self._act, mode="both", **options)
        self.eager_debugger = NoEagerDebugger()
        self._travel = script
        self._move: Move | None = None
        self.tracing = CompileTimeEngine(self)  # type: ignore[arg-type]
        self.engine = RunTimeEngine(self, None, self.tracing.cached_calls)  # type: ignore[arg-type]

    def _act(self, stop: SeenStop) -> None:
        self._move = self._travel(stop)

    def hold(self, stop: Any) -> None:
        self._move = None
        super().hold(stop)
        if (move := self._move) is not None:
            self.step = Step(move.kind, move.granularity, stop.engine, stop.origin, move.target)

    def condition_holds(self, breakpoint: Any, frame: Any) -> bool:
        """Evaluate a condition while the thread is held."""
        with self.holding():
            return self._decider.condition_holds(breakpoint, frame)

    def _update_hooks(self) -> None:
        self.tracing.update_hooks()
        self.engine.update_hooks()


@contextlib.contextmanager
def travelling(script: Script, lines: Lines, **options: Any) -> Iterator[Traveller]:
    """Debug the code in the context, with breakpoints. Errors of ``script`` are raised at the end."""
    host = Traveller(script, **options)
    for path, numbers in lines.items():
        host.breakpoints.set_lines(path, [SourceBreakpoint(line=each) for each in numbers], host.options)
    host._update_hooks()
    try:
        yield host
    finally:
        host.engine.close()
        host.tracing.close()
        host.tracing.cached_calls.release()
    if host.failure is not None:
        raise host.failure
    assert not [text for text in host.printed if "internal error" in text or "won't be hit in cached calls" in text]


def fixture(name: str, calls: int = 3) -> Program:
    """Return a program for ``observation.observe`` that calls ``main`` of a fixture several times."""

    def program(compiled: Any) -> list[Any]:
        plain = torch.compile

        def compile_observed(function: Any = None, **options: Any) -> Any:
            if function is None:
                return functools.partial(compile_observed, **options)
            options.pop("backend", None)
            with _set(torch, "compile", plain):
                return compiled(function, **options)

        written = io.StringIO()
        with _set(torch, "compile", compile_observed), contextlib.redirect_stdout(written):
            names = runpy.run_path(str(FIXTURES / f"{name}.py"), run_name=name)
            for _ in range(calls):
                names["main"]()
        return [written.getvalue()]

    return _named(program, name)


@contextlib.contextmanager
def _set(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def repeated(program: Program, calls: int = 3) -> Program:
    """Return a program of ``programs`` that runs several times, so that most of its calls hit the cache."""

    def repeat(compiled: Any) -> list[Any]:
        return [result for _ in range(calls) for result in program(compiled)]

    return _named(repeat, program.__name__)


def _named(program: Program, name: str) -> Program:
    def run(compiled: Any) -> list[Any]:
        results = program(compiled)
        # Torch counts objects that die with compiled code. The count must not depend on when Python collects.
        gc.collect()
        return results

    run.__name__ = name
    return run


def travelled(program: Program, script: Script, lines: Lines, **options: Any) -> Program:
    """Return the program, which runs under the debugger with breakpoints on ``lines`` and ``script`` at each stop."""

    def travel(compiled: Any) -> list[Any]:
        with travelling(script, lines, **options):
            return program(compiled)

    return travel


def lines_of(path: str) -> list[int]:
    """Return the first lines of all statements in functions, except in ``main``."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name != "main"]
    found = [node for function in functions for node in ast.walk(function) if isinstance(node, ast.stmt)]
    return sorted({node.lineno for node in found if not isinstance(node, ast.FunctionDef)})


# -- states ------------------------------------------------------------------------------------------------------


class Position(NamedTuple):
    """An instruction of a trace."""

    compile_id: str
    attempt: int
    """The attempt of a compile; 0 for a replay, because a saved trace has no restarts."""
    call: int
    """The number of the function's call; 0 for a compile."""
    number: int
    """How many instructions with a line the attempt has reached."""

    @property
    def trace(self) -> tuple[str, int, int]:
        """The trace of the position."""
        return self[:3]


def position_of(stop: SeenStop) -> Position | None:
    """Return the position at which a trace is held; None in generated code."""
    if stop.stop.engine != COMPILE_TIME:
        return None
    origin: Any = stop.stop.origin
    if origin.call is not None:
        return Position(origin.identity.compile_id, 0, origin.call.number or -1, origin.position)
    return Position(origin.identity.compile_id, origin.identity.attempt, 0, origin.position)


def traced_frames(stop: SeenStop) -> list[TracedFunction]:
    """Return the functions that are traced, innermost first."""
    return [each for each in stop.frames if isinstance(each, TracedFunction)]


def state_of(stop: SeenStop) -> State:
    """Return the functions, every scope to depth 2, the scopes of callers to depth 1, and values of tensors."""
    state = {"stack": " ".join(f"{each.name}:{each.position.line}" for each in traced_frames(stop))}
    for depth, shown in enumerate(traced_frames(stop)):
        for scope in shown.scopes()[: None if depth == 0 else _OF_CALLERS]:
            _add(state, f"{depth}.{scope.name}", scope.children, 2 if depth == 0 else 1)
    frame = traced_frames(stop)[0]._frame
    for name, node in tensors_of(frame):
        try:
            value: Any = frame.real_value(node)
            state[f"value of {name}"] = str(value.tolist() if value.numel() < _FEW else value.sum().item())
        except NoRealValue as problem:
            state[f"value of {name}"] = str(problem)
    del state["0.Compile.elapsed"]
    if frame_is_of_cached_call(stop):
        for name in [name for name in state if name.startswith(("0.Compile.attempt", "0.Compile.restarted because"))]:
            del state[name]
    return state


def frame_is_of_cached_call(stop: SeenStop) -> bool:
    """Whether the held call hits the cache."""
    origin: Any = stop.stop.origin
    return origin.call is not None


_OF_CALLERS = 3
"""How many scopes each function has: local variables, the value stack, cells. The others belong to the compile."""
_FEW = 100
_ITEMS = 12


def _add(state: State, path: str, children: Children, depth: int) -> None:
    for variable in [*children.named(), *children.indexed(0, min(children.indexed_count, _ITEMS))]:
        name, value = f"{path}.{variable.name}", variable.value
        state[name] = value.text
        if depth > 1 and value.children is not None and not value.lazy and value.kind != "class":
            _add(state, name, value.children, depth - 1)


def different(expected: State, found: State) -> dict[str, tuple[str | None, str | None]]:
    """Return the differing texts by name, expected and found. Ignores names that torch makes unique."""
    pairs = ((name, expected.get(name), found.get(name)) for name in sorted(expected.keys() | found.keys()))
    return {
        name: (before, now)
        for name, before, now in pairs
        if before != now and (before is None or now is None or normalised(before) != normalised(now))
    }
