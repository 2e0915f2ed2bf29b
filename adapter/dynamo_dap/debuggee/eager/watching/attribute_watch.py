"""Implements data breakpoints on attributes in ordinary Python, for example on an attribute that a guard checks.

A watched attribute has the name that a function uses for it: ``self.layer.scale``. If that function runs, or as soon as
it runs, the object is found, and the attribute is compared after each line of the user's code. A change by library code
is attributed to the user's line that called the library. The thread's trace function is replaced only while such a
breakpoint is set; each event is passed on to the previous trace function.

Runs on the main thread only, where training loops run. ``update_hooks`` and ``close`` are called on any thread. The
watch keeps no object alive.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator
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
from dynamo_dap.debuggee.bytecode.exact_types import is_a, is_exactly
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import original_of, user_function_of
from dynamo_dap.debuggee.trace.stop_texts import data_changed
from dynamo_dap.debuggee.values.model import VirtualSource, preview
from dynamo_dap.debuggee.values.objects import stored_attribute
from dynamo_dap.debuggee.values.type_facts import dictionary_descriptor, instance_dictionary
from dynamo_dap.debuggee.wrapping.patches import Patches
from dynamo_dap.protocol.wire.types import DisassembleArguments, DisassembleResponseBody

EAGER = "eager"
_MISSING = object()
_SCALARS = (type(None), bool, int, float, str)
_WIDTH = 60


@dataclass
class _Target:
    """A watched attribute of one object."""

    entry: DataEntry
    root: weakref.ref[object]
    path: _Path
    state: object
    text: str
    scalar: object = _MISSING
    """The last value, if it is a number, a string or None."""

    def has_changed(self) -> bool:
        """Return whether the attribute has changed since the last call of ``look``. Runs at each line."""
        root = self.root()
        if root is None:
            self.path.forget()
            return False
        value = self.path.follow(root)
        if value is self.scalar and value is not _MISSING:
            return False
        if is_exactly(value, _SCALARS) and (type(value), value) == self.state:
            self.scalar = value
            return False
        return _state(value) != self.state

    def look(self) -> str | None:
        """Return a text about the change of the attribute since the last call; None if it has not changed."""
        root = self.root()
        if root is None or not self.has_changed():
            return None
        value = self.path.follow(root)
        before, self.state, self.text = self.text, _state(value), _text(value)
        self.scalar = value if is_exactly(value, _SCALARS) else _MISSING
        return f"{self.entry.variable.name} was changed: {before} before, {self.text} now"


class _Local:
    """The local trace function of a user frame, with the frame's present line and previous trace function."""

    __slots__ = ("_watch", "before", "is_generated", "line")

    def __init__(
        self, watch: AttributeWatch, line: int, before: TraceFunction | None, *, is_generated: bool = False
    ) -> None:
        self._watch = watch
        self.line = line
        self.before = before
        self.is_generated = is_generated

    def __call__(self, frame: FrameType, event: str, argument: object) -> TraceFunction | None:
        """Pass an event on to the previous function, then stop if a watched attribute has changed."""
        if self.before is not None:
            self.before = self.before(frame, event, argument)
        watch = self._watch
        if not watch.is_on:
            return self.before
        if event != "exception":
            if watch.has_changed():
                watch.stop_in(self, frame, event)
            self.line = frame.f_lineno
        return self


class AttributeWatch(ChainingTracer):
    """Stops after the line that changes a watched attribute. One for each agent, as an engine."""

    name = EAGER

    def __init__(self, host: Host) -> None:
        """Stop threads by ``host``."""
        self._host = host
        self._entries: tuple[DataEntry, ...] = ()
        self._lines: frozenset[int] = frozenset()
        """The first lines of the functions in which an attribute is watched."""
        self._targets: list[_Target] = []
        self._held: CodeType | None = None
        """The code of the innermost user frame when the watch began; debugpy may still replace its trace function."""
        self._has_seen_threads = False
        """Whether another thread has run since the watch began."""
        self._starts = Patches("watching attributes")
        # Keep one bound method: the trace function is recognized by identity.
        self._function: TraceFunction = self._on_call

    # -- Engine ----------------------------------------------------------------------------------------------------

    def update_hooks(self) -> None:
        """Trace the main thread if an attribute is watched."""
        entries = tuple(one for one in self._host.breakpoints.data if one.access != GUARDED and one.variable.is_path)
        self._entries = entries
        self._lines = frozenset(one.variable.line for one in entries)
        self._targets = [one for one in self._targets if one.entry in entries]
        if not entries:
            self._starts.remove()
            return
        if not self._starts.is_installed:
            self._has_seen_threads = _has_other_threads()
            self._starts.before(threading.Thread, "start", self._note_thread)
        if threading.get_ident() == threading.main_thread().ident:
            self._watch_running_calls()
        else:
            call_on_main_thread(self._watch_running_calls)

    def close(self) -> None:
        """Watch nothing. The trace function removes itself at its next event."""
        self._entries, self._lines, self._targets, self._held = (), frozenset(), [], None
        self._starts.remove()

    def _note_thread(self, thread: threading.Thread) -> None:
        # Note the start: the thread may change an attribute, and end before the change is seen.
        self._has_seen_threads = self._has_seen_threads or not _is_debuggers(thread)

    def present_frame(self, frame: FrameType) -> Frame | None:
        """Return None: other engines show frames."""
        return None

    def listing_of(self, code: CodeType) -> VirtualSource | None:
        """Return None: this engine shows no generated code."""
        return None

    def disassemble(self, arguments: DisassembleArguments) -> DisassembleResponseBody | None:
        """Return None: this engine shows no generated code."""
        return None

    def stop_for_breakpoint_call(self, frame: FrameType) -> bool:
        """Return False: other engines stop at ``breakpoint()``."""
        return False

    # -- tracing ---------------------------------------------------------------------------------------------------

    def _watch_running_calls(self) -> None:
        for frame in walk(sys._getframe()):
            if frame.f_code.co_firstlineno in self._lines:
                self._watch_call(frame)
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
        users = (one.f_code for one in walk(sys._getframe()) if is_user_file(one.f_code.co_filename))
        self._held = next(users, None)

    def _follow(self, top: FrameType | None, at_most: int | None = None) -> None:
        """Trace the user's running frames from ``top`` down; their present trace functions still get all events."""
        for frame in islice(walk(top), at_most):
            code = frame.f_code
            if is_user_file(code.co_filename) and not _is_ours(frame.f_trace) and original_of(code) is None:
                frame.f_trace = _Local(self, frame.f_lineno, frame.f_trace)

    def _on_call(self, frame: FrameType, event: str, argument: object) -> TraceFunction | None:
        before = self.before
        local: TraceFunction | None = before(frame, event, argument) if before is not None else None
        if not self._entries:
            if sys.gettrace() is self._function:
                set_trace(before)
            return local
        code, caller = frame.f_code, frame.f_back
        if not (code.co_filename.startswith("<") or is_user_file(code.co_filename)) and (
            self._held is None or caller is None or caller.f_code is not self._held
        ):
            return local
        try:
            is_generated = original_of(code) is not None
            is_user = is_user_file(code.co_filename)
            if not (is_generated or is_user or (caller is not None and caller.f_code is self._held)):
                return local
            self._held = None
            self._look(caller, None)
            # Trace the caller again: debugpy replaced the trace function of the frame that it had stopped.
            self._follow(caller, at_most=1)
            if not (is_generated or is_user):
                return local
            if code.co_firstlineno in self._lines:
                self._watch_call(frame)
            return _Local(self, frame.f_lineno, local, is_generated=is_generated)
        except Exception:  # noqa: BLE001  (an exception that leaves a trace function becomes the program's)
            log_exception("watching attributes at a call")
            return local

    def stop_in(self, traced: _Local, frame: FrameType, event: str) -> None:
        """Stop in ``frame`` if an attribute has changed in the line that ``traced`` has noted."""
        function = frame.f_trace
        try:
            self._look(frame, traced)
        except Exception:  # noqa: BLE001  (the program would get whatever leaves this function)
            log_exception(f"watching attributes at '{event}'")
        if frame.f_trace is not function:
            traced.before = frame.f_trace  # a step of debugpy has begun at the stop

    # -- watching --------------------------------------------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        """Whether an attribute is watched."""
        return bool(self._entries)

    def has_changed(self) -> bool:
        """Return whether a watched attribute has changed. Runs at each line."""
        try:
            for one in self._targets:
                if one.has_changed():
                    return True
        except Exception:  # noqa: BLE001  (the program would get whatever leaves a trace function)
            log_exception("watching attributes")
        return False

    def _watch_call(self, frame: FrameType) -> None:
        """Watch the attributes of objects in ``frame``, if its function names watched attributes."""
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
            path = _Path(steps)
            value = path.follow(root)
            self._targets.append(_Target(entry, held, path, _state(value), _text(value)))

    def _look(self, frame: FrameType | None, traced: _Local | None) -> None:
        """Stop in ``frame`` if an attribute has changed; ``traced`` has the frame's last line, if it is traced."""
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
        where = self._where(frame, traced)
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

    def _where(self, frame: FrameType, traced: _Local | None) -> str:
        """Return the user's line that made the change, as text; mention other threads if one may have made it."""
        others = " or by another thread" if self._has_seen_threads or _has_other_threads() else ""
        if traced is not None and traced.is_generated:
            return f"by compiled code{others}"
        if traced is not None:
            return f"at {PurePath(frame.f_code.co_filename).name}:{traced.line}{others}"
        user = next((one for one in walk(frame) if is_user_file(one.f_code.co_filename)), frame)
        at = "at" if _is_ours(user.f_trace) else "at or before"
        return f"{at} {PurePath(user.f_code.co_filename).name}:{user.f_lineno}{others}"


def _is_ours(function: object) -> bool:
    return type(function) is _Local


def _has_other_threads() -> bool:
    """Return whether the program has another thread than the main one."""
    main = threading.main_thread()
    return any(one is not main and not _is_debuggers(one) for one in threading.enumerate())


def _is_debuggers(thread: threading.Thread) -> bool:
    return "is_pydev_daemon_thread" in vars(thread)


# -- values ------------------------------------------------------------------------------------------------------------


class _Path:
    """The steps from an object to a watched part of it. Following them runs no code of the program."""

    __slots__ = ("_known", "_steps")

    def __init__(self, steps: tuple[PathStep, ...]) -> None:
        self._steps = steps
        # For each step, the class of its object when last followed, and the descriptor of the class's ``__dict__``.
        self._known: list[tuple[type | None, Any]] = [(None, None)] * len(steps)

    def forget(self) -> None:
        """Drop the known classes and descriptors."""
        self._known = [(None, None)] * len(self._steps)

    def follow(self, value: object) -> object:
        """Return the value at the end of the path, or ``_MISSING``."""
        for number, (is_attribute, name) in enumerate(self._steps):
            if value is _MISSING:
                return value
            if not is_attribute:
                value = _item(value, name)
                continue
            cls, descriptor = self._known[number]
            if cls is not type(value):
                descriptor = dictionary_descriptor(value)
                self._known[number] = type(value), descriptor
            stored = {} if descriptor is None else descriptor.__get__(value, type(value))
            value = _stored_in(stored if type(stored) is dict or is_a(stored, dict) else {}, value, name)
        return value


def _stored_in(stored: dict[str, object], value: object, name: str) -> object:
    # Look in the usual places first: ``stored_attribute`` goes through every class.
    if name in stored:
        return dict.get(stored, name, _MISSING)
    for registry in ("_modules", "_parameters", "_buffers"):
        entries = dict.get(stored, registry)
        if type(entries) is dict and name in entries:
            return entries[name]
    return stored_attribute(value, name, _MISSING)


def _item(value: Any, key: object) -> object:
    # An item of a ModuleList or Sequential is stored under its number as a string.
    modules = dict.get(instance_dictionary(value), "_modules")
    if type(modules) is dict:
        return modules.get(str(key), _MISSING)
    if type(value) is dict:
        return value.get(key, _MISSING)
    if is_exactly(value, (tuple, list)) and type(key) is int and -len(value) <= key < len(value):
        return value[key]
    return _MISSING


def _state(value: object) -> object:
    """Return a state of ``value`` that equals an earlier one exactly if the value has not changed.

    The state keeps no object of the program alive.
    """
    if is_exactly(value, _SCALARS):
        return type(value), value
    return id(value), tuple(_parts(value))


def _parts(value: Any) -> Iterator[object]:
    if type(value) is dict:
        yield from ((_part(key), _part(one)) for key, one in value.items())
    elif is_exactly(value, (tuple, list)):
        yield from map(_part, value)


def _part(value: object) -> object:
    return (type(value), value) if is_exactly(value, _SCALARS) else id(value)


def _text(value: object) -> str:
    return "no value" if value is _MISSING else preview(value, _WIDTH)
