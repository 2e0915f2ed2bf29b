"""Implements data breakpoints on attributes in ordinary Python: finds the line that changes what a guard checks.

A watched attribute is named as in a function: ``self.layer.scale``. While that function runs, and from its next call
on, its object is known, and the attribute is compared after each line of the user's code. Library code is not followed:
a change by it belongs to the user's line that called it. The thread's trace function is replaced only while such a
breakpoint is set; each event is passed on to the previous one.

Runs on the main thread only, on which training loops run. ``arm`` and ``close`` are called on any thread. Objects are
held weakly.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath
from types import CodeType, FrameType
from typing import Any

from dynamo_dap.debuggee.agent.breakpoints import GUARDED, DataEntry, PathStep
from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.frames import EagerFrame, Frame, walk
from dynamo_dap.debuggee.agent.interruption import call_on_main_thread
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.stepping import Stop
from dynamo_dap.debuggee.agent.tracing import ChainingTracer, TraceFunction, chained, set_trace
from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.generated_code import original_of, user_function_of
from dynamo_dap.debuggee.trace.stop_texts import data_changed
from dynamo_dap.debuggee.values.families import preview
from dynamo_dap.debuggee.values.model import VirtualSource
from dynamo_dap.debuggee.values.objects import stored_attribute
from dynamo_dap.debuggee.values.type_facts import instance_dictionary
from dynamo_dap.protocol.types import DisassembleArguments, DisassembleResponseBody

EAGER = "eager"
_MISSING = object()
_SCALARS = (type(None), bool, int, float, str)
_WIDTH = 60


@dataclass
class _Target:
    """A watched attribute of one object."""

    entry: DataEntry
    root: weakref.ref[Any]
    steps: tuple[PathStep, ...]
    state: object
    text: str

    def look(self) -> str | None:
        """Return how the attribute has changed since the last look; None if it has not."""
        root = self.root()
        if root is None:
            return None
        value = _followed(root, self.steps)
        state = _state(value)
        if state == self.state:
            return None
        before, self.state, self.text = self.text, state, _text(value)
        return f"{self.entry.variable.name} was changed: {before} before, {self.text} now"


class _TracedFrame:
    """A user frame, its present line, and its previous trace function."""

    __slots__ = ("before", "function", "is_generated", "line")

    def __init__(self, line: int, before: TraceFunction | None, *, is_generated: bool) -> None:
        self.line = line
        self.before = before
        self.is_generated = is_generated
        self.function: TraceFunction


class AttributeWatch(ChainingTracer):
    """Stops after the line that changes a watched attribute. One for each agent, as an engine."""

    name = EAGER

    def __init__(self, host: Host) -> None:
        """Stop threads by ``host``."""
        self._host = host
        self._entries: tuple[DataEntry, ...] = ()
        self._lines: frozenset[int] = frozenset()
        """First lines of the functions that name a watched attribute."""
        self._targets: list[_Target] = []
        # One object forever, so that it can be recognized.
        self._function: TraceFunction = self._on_call

    # -- Engine ----------------------------------------------------------------------------------------------------

    def arm(self) -> None:
        """Trace the main thread if an attribute is watched."""
        entries = tuple(one for one in self._host.breakpoints.data if one.access != GUARDED and one.variable.is_path)
        self._entries = entries
        self._lines = frozenset(one.variable.line for one in entries)
        self._targets = [one for one in self._targets if one.entry in entries]
        if not entries:
            return
        if threading.get_ident() == threading.main_thread().ident:
            self._put_in()
        else:
            call_on_main_thread(self._put_in)

    def close(self) -> None:
        """Watch nothing; the trace function leaves at the next event."""
        self._entries, self._lines, self._targets = (), frozenset(), []

    def present_frame(self, frame: FrameType) -> Frame | None:
        """Leave all frames to others."""
        return None

    def listing_of(self, code: CodeType) -> VirtualSource | None:
        """Return None: ordinary Python has a file."""
        return None

    def disassemble(self, arguments: DisassembleArguments) -> DisassembleResponseBody | None:
        """Return None: see ``listing_of``."""
        return None

    def stop_for_breakpoint_call(self, frame: FrameType) -> bool:
        """Leave all calls to others."""
        return False

    # -- tracing ---------------------------------------------------------------------------------------------------

    def _put_in(self) -> None:
        for frame in walk(sys._getframe()):
            if frame.f_code.co_firstlineno in self._lines:
                self._meet(frame)
        current: Any = sys.gettrace()
        others = chained(current)
        if not self._entries or self in others:
            return
        if others:
            self.before, others[0].before = others[0].before, self._function
        else:
            self.before = current
            set_trace(self._function)
        self._follow(sys._getframe())

    def _follow(self, top: FrameType | None, at_most: int | None = None) -> None:
        """Trace the user's running frames; others may have set their own trace functions."""
        for frame in islice(walk(top), at_most):
            code = frame.f_code
            if is_user_file(code.co_filename) and not _is_ours(frame.f_trace) and original_of(code) is None:
                frame.f_trace = self._traced(frame, frame.f_trace, is_generated=False)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> TraceFunction | None:
        before = self.before
        local: TraceFunction | None = before(frame, event, argument) if before is not None else None
        if not self._entries:
            if sys.gettrace() is self._function:
                set_trace(before)
            return local
        code = frame.f_code
        if not (code.co_filename.startswith("<") or is_user_file(code.co_filename)):
            return local
        try:
            is_generated = original_of(code) is not None
            if not is_generated and not is_user_file(code.co_filename):
                return local
            self._look(frame.f_back, None)
            # debugpy replaced the function of the frame that it had stopped.
            self._follow(frame.f_back, at_most=1)
            if code.co_firstlineno in self._lines:
                self._meet(frame)
            return self._traced(frame, local, is_generated=is_generated)
        except Exception:  # noqa: BLE001  (an exception that leaves a trace function becomes the program's)
            log_exception("watching attributes at a call")
            return local

    def _traced(self, frame: FrameType, before: TraceFunction | None, *, is_generated: bool) -> TraceFunction:
        traced = _TracedFrame(frame.f_lineno, before, is_generated=is_generated)
        traced.function = _Local(self._on_event, traced)
        return traced.function

    def _on_event(self, traced: _TracedFrame, frame: FrameType, event: str, argument: Any) -> TraceFunction | None:
        if traced.before is not None:
            traced.before = traced.before(frame, event, argument)
        if not self._entries:
            return traced.before
        if event != "exception":
            function = frame.f_trace
            try:
                self._look(frame, traced)
            except Exception:  # noqa: BLE001  (the program would get whatever leaves this function)
                log_exception(f"watching attributes at '{event}'")
            traced.line = frame.f_lineno
            if frame.f_trace is not function:
                traced.before = frame.f_trace  # a step of debugpy has begun at the stop
        return traced.function

    # -- watching --------------------------------------------------------------------------------------------------

    def _meet(self, frame: FrameType) -> None:
        """Find the objects of a call of a function that names watched attributes."""
        original = original_of(frame.f_code)
        function = user_function_of(frame.f_code if original is None else original)
        for entry in self._entries:
            if not entry.variable.belongs_to(function):
                continue
            name, steps = entry.variable.parts
            root = frame.f_locals.get(name, frame.f_globals.get(name, _MISSING))
            if any(one.entry is entry and one.root() is root for one in self._targets):
                continue
            try:
                held = weakref.ref(root)
            except TypeError:
                continue
            value = _followed(root, steps)
            self._targets.append(_Target(entry, held, steps, _state(value), _text(value)))

    def _look(self, frame: FrameType | None, traced: _TracedFrame | None) -> None:
        """Stop if an attribute has changed; ``traced`` knows the last line of ``frame``."""
        if not self._targets or self._host.is_holding:
            return
        changes = [(one.entry, text) for one in self._targets if (text := one.look()) is not None]
        if not changes or frame is None:
            return
        at = frame
        hit = self._host.should_stop([entry for entry, _ in changes], lambda: EagerFrame(at, self._host.print))
        if not hit:
            return
        texts = dict.fromkeys(text for entry, text in changes if entry.id in hit)
        where = _where(frame, traced)
        raised = data_changed("; ".join(f"{text}, {where}" for text in texts))
        stack = self._host.python_stack
        self._host.hold(
            Stop(
                EAGER,
                "data breakpoint",
                lambda: stack(at),
                description=raised.headline,
                text=raised.text,
                hit_breakpoint_ids=list(hit),
                exception=raised,
                ordinary=at,
            )
        )
        self._follow(frame if traced is None else frame.f_back)


class _Local:
    """A frame's local trace function, which is recognized by its class."""

    __slots__ = ("_function", "_traced")

    def __init__(self, function: Callable[..., TraceFunction | None], traced: _TracedFrame) -> None:
        self._function = function
        self._traced = traced

    def __call__(self, frame: FrameType, event: str, argument: Any) -> TraceFunction | None:
        """Pass an event on."""
        return self._function(self._traced, frame, event, argument)


def _is_ours(function: object) -> bool:
    return type(function) is _Local


def _where(frame: FrameType, traced: _TracedFrame | None) -> str:
    """Name the user's line that ran before the change was seen."""
    others = " or by another thread" if _has_other_threads() else ""
    if traced is not None and traced.is_generated:
        return f"by compiled code{others}"
    if traced is not None:
        return f"at {PurePath(frame.f_code.co_filename).name}:{traced.line}{others}"
    user = next((one for one in walk(frame) if is_user_file(one.f_code.co_filename)), frame)
    at = "at" if _is_ours(user.f_trace) else "at or before"
    return f"{at} {PurePath(user.f_code.co_filename).name}:{user.f_lineno}{others}"


def _has_other_threads() -> bool:
    """Whether the program has a thread besides the main one."""
    main = threading.main_thread()
    return any(one is not main and "is_pydev_daemon_thread" not in vars(one) for one in threading.enumerate())


# -- values ------------------------------------------------------------------------------------------------------------


def _followed(value: Any, steps: tuple[PathStep, ...]) -> Any:
    """Follow steps through what objects store; no code of the program runs."""
    for is_attribute, name in steps:
        if value is _MISSING:
            return value
        if not is_attribute:
            value = _item(value, name)
            continue
        stored = instance_dictionary(value)
        # A lookup, since the other way goes through every class.
        value = dict.get(stored, name, _MISSING) if name in stored else stored_attribute(value, name, _MISSING)
    return value


def _item(value: Any, key: Any) -> Any:
    # A module of a ModuleList or Sequential is named by its number.
    modules = dict.get(instance_dictionary(value), "_modules")
    if type(modules) is dict:
        return modules.get(str(key), _MISSING)
    if type(value) is dict:
        return value.get(key, _MISSING)
    if is_exactly(value, (tuple, list)) and type(key) is int and -len(value) <= key < len(value):
        return value[key]
    return _MISSING


def _state(value: Any) -> object:
    """Return what equals another look's exactly if the value is the same. It keeps no object of the program."""
    if is_exactly(value, _SCALARS):
        return type(value), value
    return id(value), tuple(_parts(value))


def _parts(value: Any) -> Iterator[object]:
    if type(value) is dict:
        yield from ((_part(key), _part(one)) for key, one in value.items())
    elif is_exactly(value, (tuple, list)):
        yield from map(_part, value)


def _part(value: Any) -> object:
    return (type(value), value) if is_exactly(value, _SCALARS) else id(value)


def _text(value: Any) -> str:
    return "no value" if value is _MISSING else preview(value, _WIDTH)
