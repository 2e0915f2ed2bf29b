"""Runs the run-time engine in the test's own process: with a scripted host and the agent's real breakpoint table.

The engine, torch, CPython's events, the frames and their values are real. Only end-to-end tests have the protocol and
the threads of requests.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dynamo_dap.debuggee.agent.breakpoints import BreakpointTable, LineBreakpoint
from dynamo_dap.debuggee.agent.deciding import Decider, Reached
from dynamo_dap.debuggee.agent.frames import EagerFrame, Frame, walk
from dynamo_dap.debuggee.agent.stepping import Step, StepKind, Steps, Stop
from dynamo_dap.debuggee.agent.user_code import is_debugger_file
from dynamo_dap.debuggee.generated.engine import RunTimeEngine
from dynamo_dap.debuggee.patching.requests import Patcher
from dynamo_dap.debuggee.values.model import Children, Variable
from dynamo_dap.protocol.requests.options import AgentOptions

Action = str | None
"""The user's action at a stop: ``in``, ``over`` or ``out``, optionally with a granularity; None continues."""

_KINDS = {"in": StepKind.IN, "over": StepKind.OVER, "out": StepKind.OUT}


class SeenStop:
    """A stop that a test inspects while the thread is held."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        self.reason = stop.reason
        self.frames: Sequence[Frame] = stop.frames()
        self.frame: Any = self.frames[0]
        self.name = self.frame.name

    @property
    def generated(self) -> Any:
        """The known facts about the top frame's generated code."""
        return self.frame._running.generated

    @property
    def index(self) -> int:
        """Index of the current instruction."""
        index: int = self.frame._running.index
        return index

    @property
    def instruction(self) -> str:
        """Name of the current instruction."""
        return str(self.generated.table[self.index].name)

    @property
    def title(self) -> str:
        """The purpose of the listing's current group."""
        return str(self.generated.listing.group_of(self.index).purpose.title)

    @property
    def user_line(self) -> int:
        """The line of the second presentation of the frame."""
        return self.frames[1].position.line

    def scope(self, name: str) -> Children:
        """A scope's children."""
        found = {scope.name: scope.children for scope in self.frame.scopes()}
        return found[name]

    def variables(self, scope: str) -> dict[str, Variable]:
        """A scope's variables by name."""
        return {variable.name: variable for variable in self.scope(scope).named()}

    def texts(self, scope: str) -> dict[str, str]:
        """A scope's variables as text."""
        return {name: variable.value.text for name, variable in self.variables(scope).items()}

    @property
    def stack(self) -> list[Any]:
        """The objects on the value stack."""
        found: list[Any] = self.frame._values.stack()
        return found

    @property
    def locals(self) -> dict[str, Any]:
        """The frame's local variables."""
        found: dict[str, Any] = self.frame._values.locals()
        return found


class ScriptedHost:
    """Plays the agent: calls ``script`` at every stop, which says what to do next."""

    def __init__(self, script: Callable[[SeenStop], Action], **options: Any) -> None:
        self.options = AgentOptions(**{"mode": "run-time", **options})
        self.breakpoints = BreakpointTable()
        self.is_holding = False
        self.is_for_vs_code = False
        self.printed: list[str] = []
        self.events: list[tuple[str, Any]] = []
        self.steps = Steps(self._update_hooks, lambda: None)
        self.failure: BaseException | None = None
        self.engine: RunTimeEngine
        self._script = script
        self._decider = Decider(self)

    def hold(self, stop: Stop) -> None:
        if self.is_holding or self.failure is not None:
            return
        self.steps.end(threading.get_ident())
        self.is_holding = True
        try:
            action = self._script(SeenStop(stop))
        except BaseException as failure:  # noqa: BLE001  (see below)
            # Engines swallow exceptions to protect the program, so keep the script's exception for the test.
            self.failure = failure
            action = None
        finally:
            self.is_holding = False
        if action is not None:
            kind, _, granularity = action.partition(" ")
            self.step = Step(_KINDS[kind], granularity or "statement", stop.engine, stop.origin)
        else:
            self.engine.update_hooks()

    def _update_hooks(self) -> None:
        self.engine.update_hooks()

    @property
    def step(self) -> Step | None:
        """The step in progress on this thread."""
        return self.steps.current()

    @step.setter
    def step(self, step: Step | None) -> None:
        ident = threading.get_ident()
        if step is None:
            self.steps.drop(ident)
        else:
            self.steps.begin(ident, step)

    def request_pause(self) -> None:
        """Pause this thread, as a user would."""
        self.steps.request_pauses([threading.get_ident()])

    def listing_of(self, code: types.CodeType) -> None:
        return None

    def should_stop(self, breakpoints: list[LineBreakpoint], frame: Callable[[], Frame]) -> list[int]:
        if self.is_holding:
            return []
        with self.holding():
            return self._decider.should_stop(breakpoints, frame)

    @contextmanager
    def holding(self) -> Iterator[None]:
        was, self.is_holding = self.is_holding, True
        try:
            yield
        finally:
            self.is_holding = was

    def passes(self, reached: Iterable[Reached]) -> bool:
        with self.holding():
            return self._decider.passes(reached)

    def count(self, breakpoints: Sequence[LineBreakpoint]) -> bool:
        return self._decider.count(breakpoints)

    def python_stack(self, top: types.FrameType | None) -> list[Frame]:
        return [
            self.engine.present_frame(frame) or EagerFrame(frame, self.print)
            for frame in walk(top)
            if not is_debugger_file(frame.f_code.co_filename)
        ]

    def function_found(self, entry: object, path: str, line: int) -> None:
        self.events.append(("function_found", (entry, path, line)))

    def send_event(self, event: str, body: Any = None) -> None:
        self.events.append((event, body))

    def print(self, text: str, category: str = "console") -> None:
        self.printed.append(text)


@contextmanager
def debugging(script: Callable[[SeenStop], Action], **options: Any) -> Iterator[ScriptedHost]:
    """Debug the code in the context. Errors of ``script`` are raised at the end."""
    host = ScriptedHost(script, **options)
    engine = RunTimeEngine(host)  # type: ignore[arg-type]  # it plays the agent's part
    Patcher(engine.codes)
    host.engine = engine
    engine.update_hooks()
    try:
        yield host
    finally:
        engine.close()
    if host.failure is not None:
        raise host.failure


@dataclass
class Recorder:
    """A script that repeats one action at each stop and notes the place."""

    action: Action = None
    limit: int = 2000
    look: Callable[[SeenStop], Any] = field(default=lambda stop: (stop.name, stop.index, stop.instruction))
    seen: list[Any] = field(default_factory=list)

    def __call__(self, stop: SeenStop) -> Action:
        self.seen.append(self.look(stop))
        return self.action if len(self.seen) < self.limit else None
