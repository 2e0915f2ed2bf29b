"""Finds the running call of a compiled function on a held thread, with its arguments. Runs on that thread."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass

from dynamo_dap.debuggee.history.changed_traces import CannotChange, is_full_graph, traced_call
from dynamo_dap.debuggee.recording.function_names import name_of_call
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import resume_function, user_function_name
from dynamo_dap.debuggee.torch_api.code_objects.frame_memory import captured_cells
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import cache_entry_of, original_of
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import FrameCompile
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall


@dataclass(frozen=True)
class HeldCall:
    """A call that has begun or is about to begin."""

    call: CachedCall
    is_full_graph: bool = False
    note: str | None = None
    """What has changed since the call began, as readable text."""


def held_call(top: types.FrameType) -> HeldCall | None:
    """Return the innermost call of a compiled function on the stack of ``top``, or None.

    After a graph break, return the whole call, whose generated code has called the resume function.
    """
    resumed: str | None = None
    try:
        traced = traced_call(top, "?")
    except CannotChange:
        traced = None
    if traced is not None:
        if resume_function(traced.code) is None:
            return HeldCall(traced, is_full_graph(top) if traced.is_compiled_now else False)
        resumed = name_of_call(traced)
    for frame in _with_callers(top):
        original = original_of(frame.f_code)
        if original is None:
            continue
        if resume_function(original) is not None:
            resumed = resumed or user_function_name(original)
            continue
        note = "the arguments are saved as they are at the stop: the call has begun"
        if resumed is not None:
            note = f"{note}, and {resumed} is a part of it"
        return HeldCall(_running_call(frame, original), note=note)
    return None


def _with_callers(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _running_call(frame: types.FrameType, original: types.CodeType) -> CachedCall:
    cells = dict(zip(frame.f_code.co_freevars, captured_cells(frame), strict=True))
    return CachedCall(
        code=original,
        frame=frame,
        arguments=dict(frame.f_locals),
        closure=tuple(cells.get(name, types.CellType()) for name in original.co_freevars),
        compile_id="?",
        backend=getattr(cache_entry_of(frame.f_code), "backend", None),
        number=None,
    )


def compiled_call(compiling: FrameCompile) -> HeldCall | None:
    """Return the call for which a compile begins; None if the compile is of the part after a graph break."""
    frame = compiling.frame
    if resume_function(compiling.code) is not None or frame is None:
        return None
    call = CachedCall(
        code=compiling.code,
        frame=frame,
        arguments=frame.f_locals,
        closure=tuple(getattr(frame, "closure", None) or ()),
        compile_id=compiling.compile_id,
        backend=compiling.backend,
        number=None,
        is_compiled_now=True,
    )
    return HeldCall(call, compiling.one_graph)
