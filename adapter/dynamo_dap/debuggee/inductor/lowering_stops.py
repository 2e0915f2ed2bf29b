"""Stops at breakpoints of mode ``lowering``: while AOTAutograd, a pass or Inductor works on a line's operations.

The thread is held inside torch. The stack shows what torch is about to do, then the user's line, then the torch
functions that are running. A step ends at the next work on the same line; a step in enters torch's Python if the user
debugs torch as well (``justMyCode`` is off). Part of the compile-time engine; runs on the compiling thread, or on the
thread that first runs a backward pass.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from dynamo_dap.debuggee.agent.breakpoints import LineBreakpoint
from dynamo_dap.debuggee.agent.eager_expressions import complete_python, evaluate_python, is_true_python
from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.frames import Frame, Position
from dynamo_dap.debuggee.agent.stepping import Step, StepKind, Stop
from dynamo_dap.debuggee.agent.user_code import is_torch_file, is_user_file
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import HOOKS, CompileObserver, FrameCompile
from dynamo_dap.debuggee.torch_api.graphs.graph import user_places
from dynamo_dap.debuggee.torch_api.isolation import data_reading
from dynamo_dap.debuggee.torch_api.lowering.lowering_hooks import LoweringHooks, Work, place_of
from dynamo_dap.debuggee.torch_api.objects import Graph
from dynamo_dap.debuggee.values.model import Fixed, ScopeOfFrame, Value, Variable, present
from dynamo_dap.protocol.requests.contract import COMPILE_TIME, LOWERING
from dynamo_dap.protocol.wire.types import CompletionItem

_Line = tuple[str, int, str]
"""File, line and function."""


class LoweringStops(CompileObserver):
    """Stops where torch works on a line's operations."""

    feature = "breakpoints of mode lowering"

    def __init__(self, host: Host) -> None:
        """Work for ``host``, the agent."""
        self._host = host
        self._hooks = LoweringHooks(self._about_to)
        self._reported: set[str] = set()

    # -- hooks: any thread -----------------------------------------------------------------------------------------

    def update_hooks(self) -> None:
        """Install the hooks that breakpoints and steps need now, and remove others."""
        wanted = self._host.options.compile_time and bool(self._host.breakpoints.lines_of_mode(LOWERING))
        HOOKS.want(self, (CompileObserver.graph_made,) if wanted else ())
        if not wanted:
            self._hooks.remove()

    def close(self) -> None:
        """Remove the hooks."""
        HOOKS.want(self, ())
        self._hooks.remove()

    # -- the compiling thread --------------------------------------------------------------------------------------

    def graph_made(self, compiling: FrameCompile | None, graph: Graph) -> None:
        """Install Inductor's hooks just before it is called."""
        for problem in self._hooks.install():
            if problem not in self._reported:
                self._reported.add(problem)
                self._host.print(f"dynamo-dap: {problem}\n", "important")

    def _about_to(self, work: Work) -> None:
        if self._host.is_holding:
            return
        for lines in _lines_of(work):
            hit = self._reached(lines, work)
            step = self._host.steps.current()
            if hit or (step is not None and _ends_at(step, lines)):
                self._hold(work, lines, hit)
                return

    def _reached(self, lines: Sequence[_Line], work: Work) -> list[int]:
        reached: dict[int, LineBreakpoint] = {}
        for path, line, _ in lines:
            for each in (self._host.breakpoints.lines_in(path) or {}).get(line, ()):
                if each.mode == LOWERING:
                    reached[each.id] = each
        with data_reading():
            frame = _WorkFrame(work, self._host)
            return self._host.should_stop(list(reached.values()), lambda: frame) if reached else []

    def _hold(self, work: Work, lines: Sequence[_Line], hit: list[int]) -> None:
        top = sys._getframe()

        def frames() -> list[Frame]:
            torch_frames = [each for each in self._host.python_stack(top) if each.source is not None]
            return [_WorkFrame(work, self._host), *(_LineFrame(*line) for line in reversed(lines)), *torch_frames]

        path, line, _ = lines[-1]
        text = f"{work.stage} {work.what}, from line {line}"
        # The program's modes would trace the expressions of the stop.
        with data_reading():
            self._host.hold(
                Stop(
                    engine=COMPILE_TIME,
                    reason="breakpoint" if hit else "step",
                    frames=frames,
                    description=f"{work.stage[0].upper()}{work.stage[1:]}",
                    text=text,
                    hit_breakpoint_ids=hit,
                    origin=_Origin(path, line),
                    no_history="lowering has no history: set the breakpoint, and compile again",
                )
            )
        self._step_in()

    def _step_in(self) -> None:
        """Continue in torch's Python, if the user steps into it."""
        step = self._host.steps.current()
        is_wanted = step is not None and step.kind is StepKind.IN and not self._host.options.just_my_code
        if is_wanted and self._host.eager_debugger.is_active:
            self._host.steps.finish()
            self._host.eager_debugger.stop_at(None)


@dataclass(frozen=True)
class _Origin:
    """Where a step began."""

    path: str
    line: int


def _ends_at(step: Step, lines: Sequence[_Line]) -> bool:
    return step.origin in [_Origin(path, line) for path, line, _ in lines]


def _lines_of(work: Work) -> list[list[_Line]]:
    """Return the distinct stacks of lines that operations came from, the innermost line last."""
    found: dict[tuple[_Line, ...], None] = {}
    for node in work.nodes:
        stack = [(at.path, at.line, function) for at, function in user_places(node) if not is_torch_file(at.path)]
        if stack:
            found[tuple(stack)] = None
    return [list(each) for each in found]


class _WorkFrame(Frame):
    """What torch is about to do."""

    def __init__(self, work: Work, host: Host) -> None:
        self._work = work
        self._host = host
        self._path, self._line, self._function = place_of(work.by)
        self._names: dict[str, object] = {"operation": work.operation, "nodes": list(work.nodes)}
        if work.nodes:
            self._names["node"] = work.nodes[0]
        self._names["stage"] = work.stage

    @property
    def name(self) -> str:
        """Stage and operation."""
        return f"{self._work.stage} {self._work.what}"

    @property
    def source(self) -> str | None:
        """The file of the function that is about to run."""
        return self._path or None

    @property
    def position(self) -> Position:
        """Where that function begins."""
        return Position(max(1, self._line))

    def scopes(self) -> Sequence[ScopeOfFrame]:
        """Return the scope with the names that expressions can use."""
        shown = [Variable(name, present(value, name), name) for name, value in self._names.items()]
        return (ScopeOfFrame("Locals", Fixed(tuple(shown)), "locals"),)

    def evaluate(self, expression: str, context: str) -> Value:
        """Evaluate over the names of the scope."""
        return evaluate_python(expression, context, self._globals(), self._names, self._host.print)

    def is_true(self, expression: str) -> bool:
        """Evaluate a condition."""
        return is_true_python(expression, self._globals(), self._names)

    def completions(self, text: str, column: int) -> Sequence[CompletionItem]:
        """Complete names and attributes."""
        return complete_python(text, column, {**self._globals(), **self._names})

    @staticmethod
    def _globals() -> dict[str, object]:
        return {"torch": sys.modules["torch"]}


class _LineFrame(Frame):
    """The user's line that an operation came from. None of its code runs at the stop."""

    def __init__(self, path: str, line: int, function: str) -> None:
        self._path, self._line, self._function = path, line, function
        self.is_user_code = is_user_file(path)

    @property
    def name(self) -> str:
        """The name of the function."""
        return self._function

    @property
    def source(self) -> str:
        """The user's file."""
        return self._path

    @property
    def position(self) -> Position:
        """The line."""
        return Position(self._line)

    def scopes(self) -> Sequence[ScopeOfFrame]:
        """Return no scopes: the line was traced, and its values are gone."""
        return ()
