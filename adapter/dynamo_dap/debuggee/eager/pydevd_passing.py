"""Makes debugpy skip some breakpoints, and continue steps that would end in certain code.

This is for programs of a Triton kernel that are not debugged, for breakpoints that a trace has reported already, and
for frames in which a resume function restores its state. Uses debugpy's private names, as ``pydevd_internals`` does.
Functions are called on the threads that debugpy traces.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import types
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from dynamo_dap.debuggee.eager import pydevd_internals


def has_conditions() -> bool:
    """Return whether any breakpoint has a condition or hit condition, or an exception filter is on."""
    pydb = pydevd_internals.debugger()
    breakpoints = [one for lines in pydb.breakpoints.values() for one in lines.values()]
    breakpoints += pydb.function_breakpoint_name_to_breakpoint.values()
    return bool(pydb.break_on_caught_exceptions or pydb.break_on_user_uncaught_exceptions) or any(
        one.condition or one.hit_condition for one in breakpoints
    )


def breakpoint_files() -> list[str]:
    """Return the files that have breakpoints."""
    return [path for path, lines in pydevd_internals.debugger().breakpoints.items() if lines]


def has_breakpoints() -> bool:
    """Return whether any breakpoint is set on a line or a function."""
    pydb = pydevd_internals.debugger()
    return any(pydb.breakpoints.values()) or bool(pydb.function_breakpoint_name_to_breakpoint)


def breakpoints_at(path: str, lines: range, function: str) -> bool | None:
    """Return whether a breakpoint in or on a function has a condition; None if there is no such breakpoint."""
    pydb = pydevd_internals.debugger()
    of_lines = pydb.breakpoints.get(path) or {}
    found = [one for line, one in of_lines.items() if line in lines]
    of_function = pydb.function_breakpoint_name_to_breakpoint.get(function)
    if of_function is not None:
        found.append(of_function)
    return any(one.condition or one.hit_condition for one in found) if found else None


def path_of(code: types.CodeType) -> str:
    """Return the file of a code object as debugpy's breakpoints write it."""
    files = importlib.import_module("pydevd_file_utils")
    return str(files.get_abs_path_real_path_and_base_from_file(code.co_filename)[1])


def _never(*_: object) -> bool:
    return False


_are_unconditional_off: Callable[[], bool] = _never
_is_frame_passed: Callable[[types.FrameType], bool] = _never
_take_reported: Callable[[types.FrameType, bool], bool] = _never


class Counting(Protocol):
    """A breakpoint of the agent with a hit condition."""

    def hit(self) -> bool:
        """Count a hit, and return whether the hit condition is met."""


def _none(*_: object) -> None:
    return None


_counting_at: Callable[[types.FrameType, bool], Counting | None] = _none
conditions_met: dict[tuple[str, int], bool] = {}
"""For each file and line where debugpy reached a breakpoint, whether the breakpoint's condition ever held."""
_latest = threading.local()
"""``breakpoint``: the breakpoint whose log message this thread has just handled, and whether a trace reported it."""


def pass_unconditional(is_wanted: Callable[[], bool]) -> None:
    """Skip breakpoints without a condition while ``is_wanted`` returns true.

    The thread that reaches a breakpoint calls ``is_wanted``. Lasts for the life of the process; a later call replaces
    ``is_wanted``.
    """
    global _are_unconditional_off
    _are_unconditional_off = is_wanted
    _wrap_breakpoints()


def pass_frames(is_passed: Callable[[types.FrameType], bool]) -> None:
    """Skip breakpoints, with their conditions and log messages, in frames for which ``is_passed`` returns true.

    Lasts for the life of the process; a later call replaces ``is_passed``.
    """
    global _is_frame_passed
    _is_frame_passed = is_passed
    _wrap_breakpoints()


def pass_reported(
    take_reported: Callable[[types.FrameType, bool], bool],
    counting_at: Callable[[types.FrameType, bool], Counting | None],
) -> None:
    """Skip breakpoints that a trace has reported, and share the hit counts of the others with the agent.

    For each breakpoint reached, ``take_reported`` is called once with the frame, and whether it is a function
    breakpoint. It returns whether a trace has reported the breakpoint. ``counting_at`` returns the agent's breakpoint
    at the same place, whose hit count includes the hits in traces. Lasts for the life of the process; a later call
    replaces both functions.
    """
    global _take_reported, _counting_at
    _take_reported, _counting_at = take_reported, counting_at
    _wrap_breakpoints()


@functools.cache
def _wrap_breakpoints() -> None:
    breakpoints = importlib.import_module("_pydevd_bundle.pydevd_breakpoints")
    pydb = sys.modules["pydevd"].PyDB
    evaluate, log = pydb.handle_breakpoint_condition, pydb.handle_breakpoint_expression

    def handle_breakpoint_condition(
        self: object, info: object, pybreakpoint: Any, new_frame: types.FrameType
    ) -> object:
        at = new_frame.f_code.co_filename, new_frame.f_lineno
        if _is_passed(pybreakpoint, new_frame):
            return False
        conditions_met.setdefault(at, False)
        counting = _counting_of(pybreakpoint, new_frame, kinds)
        if is_reported(pybreakpoint, new_frame):
            if counting is None:
                pybreakpoint.handle_hit_condition(new_frame)
            return False
        if counting is None:
            holds = not _is_conditional(pybreakpoint) or evaluate(self, info, pybreakpoint, new_frame)
            conditions_met[at] |= bool(holds)
            return holds
        condition = types.SimpleNamespace(condition=pybreakpoint.condition, handle_hit_condition=_never)
        holds = not pybreakpoint.condition or evaluate(self, info, condition, new_frame)
        conditions_met[at] |= bool(holds)
        return holds and counting.hit()

    def handle_breakpoint_expression(self: object, pybreakpoint: Any, info: object, new_frame: types.FrameType) -> None:
        if not _is_passed(pybreakpoint, new_frame) and not is_reported(pybreakpoint, new_frame, keep=True):
            log(self, pybreakpoint, info, new_frame)

    def is_reported(pybreakpoint: object, frame: types.FrameType, *, keep: bool = False) -> bool:
        """Return whether a trace has reported the breakpoint. With ``keep``, note the answer for the next call.

        debugpy handles a breakpoint's log message first, then its condition.
        """
        if not isinstance(pybreakpoint, kinds):
            return False
        known, known_found = getattr(_latest, "breakpoint", (None, False))
        _latest.breakpoint = None, False
        found = known_found if known is pybreakpoint else _take_reported(frame, isinstance(pybreakpoint, kinds[1]))
        if keep:
            _latest.breakpoint = pybreakpoint, found
        return bool(found)

    kinds = (breakpoints.LineBreakpoint, breakpoints.FunctionBreakpoint)
    for kind in kinds:
        kind.has_condition = True  # then debugpy evaluates the condition of each
    pydb.handle_breakpoint_condition = handle_breakpoint_condition
    pydb.handle_breakpoint_expression = handle_breakpoint_expression


def _counting_of(pybreakpoint: Any, frame: types.FrameType, kinds: tuple[type, type]) -> Counting | None:
    """Return the agent's breakpoint that counts the hits of a debugpy breakpoint with a hit condition, or None."""
    if not pybreakpoint.hit_condition or not isinstance(pybreakpoint, kinds):
        return None
    return _counting_at(frame, isinstance(pybreakpoint, kinds[1]))


def _is_passed(pybreakpoint: Any, frame: types.FrameType) -> bool:
    return _is_frame_passed(frame) or (_are_unconditional_off() and not _is_conditional(pybreakpoint))


def _is_conditional(pybreakpoint: Any) -> bool:
    return bool(pybreakpoint.condition or pybreakpoint.hit_condition)


def never_step_into(paths: Iterable[str], is_passed: Callable[[types.FrameType], bool]) -> None:
    """Leave files that match ``paths`` out of steps and stacks, as ``justMyCode`` does with libraries.

    Steps also end in no frame for which ``is_passed`` returns true, but stacks show such frames and breakpoints stop in
    them. Runs on any thread.
    """
    pydb = pydevd_internals.debugger()
    kind = importlib.import_module("_pydevd_bundle.pydevd_filtering").ExcludeFilter
    ours = [kind(path, True, True) for path in paths]
    theirs = [one for one in pydb._files_filtering._exclude_filters if one not in ours]
    set_filters, is_filtered = type(pydb).set_exclude_filters, pydb.apply_files_filter
    # debugpy's client sets its own filters when it attaches. Then add ours again.
    pydb.set_exclude_filters = lambda filters: set_filters(pydb, [*filters, *ours])
    importlib.import_module("_pydevd_bundle.pydevd_api").PyDevdAPI().set_exclude_filters(pydb, theirs)

    def apply_files_filter(frame: types.FrameType, file_name: str, force: bool) -> bool:
        return bool(is_filtered(frame, file_name, force)) or (pydevd_internals.is_stepping() and is_passed(frame))

    report = pydb.notify_skipped_step_in_because_of_filters
    pydb.notify_skipped_step_in_because_of_filters = lambda frame: None if is_passed(frame) else report(frame)
    apply_files_filter.shows_more = getattr(is_filtered, "shows_more", False)  # type: ignore[attr-defined]  # a mark on the function
    pydb.apply_files_filter = apply_files_filter
    if pydevd_internals.uses_monitoring():
        # With ``sys.monitoring``, debugpy calls the filter once for each code object, for all threads. So the filter
        # cannot depend on one thread's step.
        _continue_step_in(pydb, is_passed)


def _continue_step_in(pydb: Any, is_passed: Callable[[types.FrameType], bool]) -> None:
    """Continue a step into calls that would end in a frame that ``is_passed`` accepts, before debugpy reports it."""
    if hasattr(pydb.set_suspend, "is_of_passing"):
        return

    def step_in(information: Any, _: types.FrameType) -> None:
        information.pydev_step_cmd, information.pydev_step_stop = _command("CMD_STEP_INTO"), None

    _continue_steps(pydb, is_passed, step_in)
    pydb.set_suspend.is_of_passing = True


_LEAVING_RESTORED_STATE = "steps_of_dynamo_dap"
"""The attribute that ``continue_steps_in_frames`` sets on pydevd's debugger, so that it changes the debugger once."""


def continue_steps_in_frames(is_passed: Callable[[types.FrameType], bool]) -> None:
    """Continue a step that would end in a frame that ``is_passed`` accepts; it then ends at the frame's next line.

    Lasts for debugpy's session.
    """
    pydb = pydevd_internals.debugger()
    if hasattr(pydb, _LEAVING_RESTORED_STATE):
        return
    setattr(pydb, _LEAVING_RESTORED_STATE, True)

    def step_over(information: Any, frame: types.FrameType) -> None:
        information.pydev_step_cmd, information.pydev_step_stop = _command("CMD_STEP_OVER"), frame

    _continue_steps(pydb, is_passed, step_over)


def _command(name: str) -> int:
    return int(getattr(importlib.import_module("_pydevd_bundle.pydevd_comm_constants"), name))


def _continue_steps(
    pydb: Any, is_passed: Callable[[types.FrameType], bool], set_step: Callable[[Any, types.FrameType], None]
) -> None:
    """Call ``set_step`` instead of ending a step in a frame that ``is_passed`` accepts."""
    set_suspend, wait = pydb.set_suspend, pydb.do_wait_suspend
    names = ("CMD_STEP_INTO", "CMD_STEP_OVER", "CMD_STEP_RETURN")
    steps = {_command(name + suffix) for name in names for suffix in ("", "_MY_CODE")}
    ending = threading.local()

    def suspend_unless_passed(thread: object, stop_reason: int, *args: object, **kwargs: object) -> None:
        # Wait for ``do_wait_suspend``, which gets the frame for ``is_passed``.
        if stop_reason in steps and thread is threading.current_thread():
            ending.step = lambda: set_suspend(thread, stop_reason, *args, **kwargs)
        else:
            set_suspend(thread, stop_reason, *args, **kwargs)

    def do_wait_suspend(thread: Any, frame: types.FrameType, event: str, *args: object, **kwargs: object) -> None:
        end_step, ending.step = getattr(ending, "step", None), None
        if end_step is not None and is_passed(frame):
            information = thread.additional_info
            set_step(information, frame)
            information.update_stepping_info()
            pydb.set_trace_for_frame_and_parents(thread.ident, frame)
            return
        if end_step is not None:
            end_step()
        wait(thread, frame, event, *args, **kwargs)

    pydb.set_suspend, pydb.do_wait_suspend = suspend_unless_passed, do_wait_suspend


def forget_filtered() -> None:
    """Make debugpy forget which code a step has skipped, so that breakpoints stop in it. Runs on any thread."""
    sys.modules["pydevd"].global_cache_skips.clear()
    sys.modules["pydevd"].global_cache_frame_skips.clear()
