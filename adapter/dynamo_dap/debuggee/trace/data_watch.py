"""Implements data breakpoints in a trace: compares watched variables with their last values before each instruction.

A change therefore stops right after the instruction that made it, in the variable's own function or in a callee. Runs
on the tracing thread only; between traces only a variable's name and function are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dynamo_dap.debuggee.agent.breakpoints import GUARDED, DataEntry, WatchedVariable
from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import user_function_of
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import is_tracker, is_unrealized, unwrapped
from dynamo_dap.debuggee.trace.forms import form_family
from dynamo_dap.debuggee.trace.traced_view import TracedView
from dynamo_dap.debuggee.trace.watched_parts import watched_part
from dynamo_dap.debuggee.wrapping.weak_collections import WeakKeyDictionary


@dataclass(frozen=True, slots=True)
class VariableState:
    """A variable's value at one point. It keeps the trackers alive, so that no other object gets their address."""

    value: object
    contents: tuple[object, ...] | None
    """None if the trace has not touched the object."""
    text: str


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a watched variable."""

    entry: DataEntry
    text: str
    """``x was rebound: f32[3] before, f32[4] now``"""


class DataWatch:
    """Checks the watched variables of this process's traces."""

    def __init__(self) -> None:
        self._states: WeakKeyDictionary[object, dict[str, VariableState | None]] = WeakKeyDictionary()

    def changes(self, entries: tuple[DataEntry, ...], innermost: TracedFrame) -> list[Change]:
        """Return the changes since the last check in the trace."""
        changes: list[Change] = []
        for frame in innermost.with_callers():
            if frame.is_in_resume_prologue:
                continue
            code = user_function_of(frame.code)
            for entry in entries:
                variable = entry.variable
                if entry.access != GUARDED and not variable.is_path and variable.belongs_to(code):
                    changes += self._check(entry, frame)
        return changes

    def _check(self, entry: DataEntry, frame: TracedFrame) -> Iterator[Change]:
        name = entry.variable.name
        states = self._states.setdefault(frame.interpreter, {})
        key = f"{name} {entry.id}"
        before = states.get(key)
        now = state_of(frame, name, before)
        is_known = key in states
        states[key] = now
        if is_known and (text := difference(name, before, now)) is not None:
            yield Change(entry, text)


def watched_variable(frame: TracedFrame, name: str) -> WatchedVariable | None:
    """Return the local variable ``name`` of a traced function for a data breakpoint, or None."""
    watched = WatchedVariable.of(name, user_function_of(frame.code))
    if watched.is_path:
        variable = watched.parts[0]
        return watched_part(frame, _tracker(frame, variable), variable, name)
    return watched if _tracker(frame, name) is not None else None


def _tracker(frame: TracedFrame, name: str) -> object:
    values = {**dict(frame.locals()), **{cell: frame.cell_contents(value) for cell, value in frame.cells()}}
    return values.get(name)


def state_of(frame: TracedFrame, name: str, before: VariableState | None = None) -> VariableState | None:
    """Return a variable's present value; ``before`` itself if it is unchanged; None without a value."""
    tracker = _tracker(frame, name)
    if tracker is None:
        return None
    value = unwrapped(tracker) if is_tracker(tracker) else tracker
    is_touched = is_tracker(value) and not is_unrealized(value)
    contents = tuple(_contents(frame, value)) if is_touched else None
    if before is not None and before.value is value and _are_same(before.contents, contents):
        # The usual case. Formatting a value takes longer than everything else here.
        return before
    return VariableState(value, contents, TracedView(frame).value(tracker).text)


def _contents(frame: TracedFrame, value: object) -> Iterable[object]:
    """Return the parts of a value that a mutation can change."""
    form = frame.form_of(value)
    return form_family(form).contents(form)


def difference(name: str, before: VariableState | None, now: VariableState | None) -> str | None:
    """Return the change of a variable to ``now``; None if it is unchanged."""
    if before is None or now is None:
        if before is now:
            return None
        return f"{name} was deleted" if now is None else f"{name} was bound to {now.text}"
    texts = f"{before.text} before, {now.text} now"
    if not _is_same(before.value, now.value):
        return f"{name} was rebound: {texts}"
    if before.contents is None or _are_same(before.contents, now.contents):
        return None
    return mutation(name, before, now)


def mutation(name: str, before: VariableState, now: VariableState) -> str:
    """Return the in-place change of a variable's object."""
    return f"{name} was mutated: {before.text} before, {now.text} now"


def _are_same(before: tuple[object, ...] | None, now: tuple[object, ...] | None) -> bool:
    if before is None or now is None:
        return before is now
    return len(before) == len(now) and all(map(_is_same, before, now))


def _is_same(one: object, other: object) -> bool:
    if is_tracker(one) and is_tracker(other):
        # A lazy tracker represents the same value after the trace has realized it.
        return unwrapped(one) is unwrapped(other)
    plain = (int, str)
    return one is other or (is_exactly(one, plain) and is_exactly(other, plain) and one == other)
