"""Finds Dynamo's symbolic interpreters on the Python stack: the running one, its callers, its compile and attempt.

torch/_dynamo/symbolic_convert.py: an ``InstructionTranslatorBase`` interprets one function; ``run`` is its loop. Runs
on the tracing thread.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.objects import Translator
from dynamo_dap.debuggee.torch_api.traced.replays import begins_replay, replayed_call

_RUN = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.run"
_CALLBACK = "torch._dynamo.convert_frame:CatchErrorsWrapper.__call__"
_CONTEXT = "torch._guards:CompileContext.try_get"
_COMPILE_FRAME = "torch._dynamo.convert_frame:compile_frame"
_TRACED_CODES = "torch._dynamo.utils:get_traced_code"

RUNNING = Feature("finding what runs a generator", _RUN)
CALLERS = Feature("distinguishing a traced function's callers from torch's frames", _CALLBACK)
IDENTITY = Feature("distinguishing attempts of a trace", _CONTEXT)
RESTARTS = Feature("finding why an analysis was restarted", _COMPILE_FRAME)
TRACED_CODES = Feature("comparing values that called functions store", _TRACED_CODES)


def with_callers(translator: Translator) -> Iterator[Any]:
    """Yield the translator, the one into which it was inlined, and so on out to the frame being compiled."""
    current: Translator | None = translator
    while current is not None:
        yield current
        current = getattr(current, "parent", None)


def is_in_resume_prologue(translator: Translator) -> bool:
    """Return whether a resume function is still restoring its state: none of the user's code runs there."""
    return bool(getattr(translator, "is_tracing_resume_prologue", False))


def traced_codes() -> Sequence[types.CodeType]:
    """Return the functions that the running trace has inlined so far; empty if this torch does not say."""
    return () if TRACED_CODES.problem is not None else TRACED_CODES.resolve(_TRACED_CODES)() or ()


def frames_of_trace(top: types.FrameType) -> Iterator[types.FrameType]:
    """Yield the Python frames from ``top`` down to the call of Dynamo."""
    callback = CALLERS.code_of(_CALLBACK) if CALLERS.problem is None else None
    call = replayed_call()
    end = None if call is None else call.frame
    frame: types.FrameType | None = top
    while frame is not None and frame.f_code is not callback and frame is not end and not begins_replay(frame):
        yield frame
        frame = frame.f_back


def running_translators(top: types.FrameType) -> Iterator[Translator]:
    """Yield the translators that run above ``top``, innermost first; none if this torch does not support it."""
    if RUNNING.problem is None:
        run = RUNNING.code_of(_RUN)
        yield from (frame.f_locals["self"] for frame in frames_of_trace(top) if frame.f_code is run)


def translator_of_traceback(traceback: types.TracebackType | None) -> Translator | None:
    """Return the innermost translator that an exception has passed; None if it passed none."""
    innermost = None
    run = RUNNING.code_of(_RUN) if RUNNING.problem is None else None
    while traceback is not None:
        if traceback.tb_frame.f_code is run:
            innermost = traceback.tb_frame.f_locals["self"]
        traceback = traceback.tb_next
    return innermost


@dataclass(frozen=True, slots=True)
class CompileIdentity:
    """The identity of a trace: ``compile_id`` such as ``0/1``, and the attempt, counted from 0."""

    compile_id: str
    attempt: int


UNKNOWN_COMPILE = "?"
"""The compile id where no trace runs."""
EARLIER_REASONS = "dynamo_dap_earlier_reasons"
"""Our own attribute of the ``CompileContext`` of an abandoned attempt."""


def compile_identity() -> CompileIdentity:
    """Return the identity of the trace that runs on this thread."""
    if IDENTITY.problem is None:
        context = IDENTITY.resolve(_CONTEXT)()
        if context is not None:
            call = replayed_call()
            compile_id = str(context.compile_id) if call is None else call.compile_id
            return CompileIdentity(compile_id, int(getattr(context, "attempt", 0) or 0))
    return CompileIdentity(UNKNOWN_COMPILE, 0)


def restart_reasons(top: types.FrameType) -> Sequence[str]:
    """Return why earlier attempts of the trace running in the Python frame ``top`` were abandoned.

    While an abandoned attempt is shown (``abandoned_attempts``), return the reasons for the attempts before it.
    """
    if IDENTITY.problem is None and (known := getattr(IDENTITY.resolve(_CONTEXT)(), EARLIER_REASONS, None)) is not None:
        return tuple(known)
    if RESTARTS.problem is not None:
        return ()
    code = RESTARTS.code_of(_COMPILE_FRAME)
    frame: types.FrameType | None = top
    while frame is not None:
        if frame.f_code is code:
            return sorted(str(reason) for reason in frame.f_locals.get("restart_reasons") or ())
        frame = frame.f_back
    return ()


def frame_below_trace(top: types.FrameType) -> types.FrameType | None:
    """Return the Python frame that called into Dynamo; the interpreter's machinery is above it.

    For the replay of a cached call, it is the one that made the call.
    """
    call = replayed_call()
    if call is not None:
        return call.frame.f_back
    callback = CALLERS.code_of(_CALLBACK) if CALLERS.problem is None else None
    torch_directory = _torch_directory()
    frame: types.FrameType | None = top
    while frame is not None and frame.f_code is not callback:
        frame = frame.f_back
    if frame is not None:
        return frame.f_back
    frame = top
    # The debugger's own frames come first.
    for is_torch in (False, True):
        while frame is not None and frame.f_code.co_filename.startswith(torch_directory) == is_torch:
            frame = frame.f_back
    return frame


def _torch_directory() -> str:
    return str(sys.modules["torch"].__path__[0])
