"""Dynamo's symbolic interpreter: hooks into it, and the facts of a paused translator that stepping needs.

torch/_dynamo/symbolic_convert.py: ``InstructionTranslatorBase.starts_line`` is called for every instruction that has a
line, ``step`` runs one instruction; both are looked up on the class at each call, so wrappers can come and go while a
trace runs. Hooks are called on the tracing thread, which holds Dynamo's global compile lock: only one thread at a time
is inside a trace. Installing and removing may happen on any thread.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_internals.features import Feature

Translator = Any
"""A ``torch._dynamo.symbolic_convert.InstructionTranslatorBase``."""
Instruction = Any
"""A ``torch._dynamo.bytecode_transformation.Instruction``: opname, argval, offset, starts_line, positions, target."""

_BASE = "torch._dynamo.symbolic_convert:InstructionTranslatorBase"
_STARTS_LINE = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.starts_line"
_RUN = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.run"
_STEP = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.step"
_CALLBACK = "torch._dynamo.convert_frame:CatchErrorsWrapper.__call__"
_CONTEXT = "torch._guards:CompileContext.try_get"
_COMPILE_FRAME = "torch._dynamo.convert_frame:compile_frame"

LINES = Feature("stopping while Dynamo traces", _BASE, _STARTS_LINE)
INSTRUCTIONS = Feature("stepping by instruction while Dynamo traces", _BASE, _STEP)
RUNNING = Feature("telling who runs a generator", _RUN)
CALLERS = Feature("telling the callers of a traced function from torch's own frames", _CALLBACK)
IDENTITY = Feature("telling attempts of a trace apart", _CONTEXT)
RESTARTS = Feature("telling why an analysis was restarted", _COMPILE_FRAME)

Hook = Callable[[Translator], None]


class LineHooks:
    """Wraps ``starts_line`` for whoever wants to hear of lines. One per process, as the method is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hooks: dict[object, Hook] = {}
        self._original: Any = None

    def want(self, owner: object, hook: Hook | None) -> None:
        """Call ``hook`` at every instruction that has a line, from now on; None to have none of ``owner`` any more.

        ``lineno`` and ``instruction_pointer`` of the translator tell of the instruction by then.
        """
        with self._lock:
            if hook is self._hooks.get(owner) or LINES.problem is not None:
                return
            base = LINES.resolve(_BASE)
            if self._original is None:
                self._original = base.__dict__["starts_line"]
            if hook is None:
                del self._hooks[owner]
            else:
                self._hooks[owner] = hook
            wrapper = self._original
            for one in self._hooks.values():
                wrapper = _with_hook(wrapper, one)
            base.starts_line = wrapper
            if not self._hooks:
                self._original = None


def _with_hook(original: Any, hook: Hook) -> Any:
    def starts_line(self: Translator, lineno: int) -> None:
        original(self, lineno)
        hook(self)

    return starts_line


LINE_HOOKS = LineHooks()


class TranslatorHooks:
    """Wrappers around two methods of the interpreter. One per process, as the methods are."""

    def __init__(self, on_line_instruction: Hook, on_instruction: Hook) -> None:
        """Keep the hooks to be called.

        ``on_line_instruction`` is called at every instruction that has a line, once ``lineno`` and
        ``instruction_pointer`` tell of it; ``on_instruction`` before every instruction is fetched.
        """
        self._on_line_instruction = on_line_instruction
        self._on_instruction = on_instruction
        self._lock = threading.Lock()
        self._original_step: Any = None
        self._has_lines = False

    def want(self, *, lines: bool, instructions: bool) -> None:
        """Have exactly these hooks in."""
        with self._lock:
            LINE_HOOKS.want(self, self._on_line_instruction if lines else None)
            self._has_lines = lines and LINES.problem is None
            self._want_steps(instructions)

    @property
    def installed(self) -> tuple[str, ...]:
        """The names of the methods that are wrapped now."""
        names = {"starts_line": self._has_lines, "step": self._original_step is not None}
        return tuple(name for name, is_in in names.items() if is_in)

    def _want_steps(self, wanted: bool) -> None:
        if wanted == (self._original_step is not None) or INSTRUCTIONS.problem is not None:
            return
        base = INSTRUCTIONS.resolve(_BASE)
        if wanted:
            self._original_step = base.__dict__["step"]
            base.step = self._step_wrapper(self._original_step)
        else:
            base.step = self._original_step
            self._original_step = None

    def _step_wrapper(self, original: Any) -> Any:
        hook = self._on_instruction

        def step(self: Translator) -> Any:
            hook(self)
            return original(self)

        return step


def instruction_at(translator: Translator) -> int:
    """Return the index, in ``translator.instructions``, of the instruction being executed."""
    if translator.instruction_pointer is None:
        # It returns: the graph is being compiled.
        return int(translator.indexof[translator.current_instruction])
    return int(translator.instruction_pointer) - 1


def chain_of(translator: Translator, top: types.FrameType) -> list[Translator]:
    """Return the translator, whoever runs it, and so on out to the frame being compiled.

    Read off the Python frames of the interpreter above ``top``, since a generator's ``parent`` made it, and another
    function may run it.
    """
    if RUNNING.problem is not None:
        return list(_parents(translator))
    run = RUNNING.resolve(_RUN).__code__
    callback = CALLERS.resolve(_CALLBACK).__code__ if CALLERS.problem is None else None
    chain: list[Translator] = []
    frame: types.FrameType | None = top
    while frame is not None and frame.f_code is not callback:
        if frame.f_code is run:
            chain.append(frame.f_locals["self"])
        frame = frame.f_back
    return chain[chain.index(translator) :] if translator in chain else list(_parents(translator))


def frames_of_trace(top: types.FrameType) -> Iterator[types.FrameType]:
    """Yield the Python frames from ``top`` down to where Dynamo was called."""
    callback = CALLERS.resolve(_CALLBACK).__code__ if CALLERS.problem is None else None
    frame: types.FrameType | None = top
    while frame is not None and frame.f_code is not callback:
        yield frame
        frame = frame.f_back


def running_translator(top: types.FrameType) -> Translator | None:
    """Return the innermost translator that runs above ``top``; None when none does."""
    if RUNNING.problem is not None:
        return None
    run = RUNNING.resolve(_RUN).__code__
    return next((frame.f_locals["self"] for frame in frames_of_trace(top) if frame.f_code is run), None)


def translator_of_traceback(traceback: types.TracebackType | None) -> Translator | None:
    """Return the innermost translator that an exception has passed; None when it passed none."""
    found = None
    run = RUNNING.resolve(_RUN).__code__ if RUNNING.problem is None else None
    while traceback is not None:
        if traceback.tb_frame.f_code is run:
            found = traceback.tb_frame.f_locals["self"]
        traceback = traceback.tb_next
    return found


def with_callers(translator: Translator) -> Iterator[Translator]:
    """Yield the translator, and those that it was inlined into; cheaper than ``chain_of``, and blind to generators."""
    return _parents(translator)


def _parents(translator: Translator) -> Iterator[Translator]:
    current = translator
    while current is not None:
        yield current
        current = getattr(current, "parent", None)


def outermost(translator: Translator) -> Translator:
    """Return the translator of the frame being compiled, into which the others are inlined."""
    return list(_parents(translator))[-1]


def is_in_resume_prologue(translator: Translator) -> bool:
    """Whether a resume function is still restoring its state: none of the user's code runs there."""
    return bool(getattr(translator, "is_tracing_resume_prologue", False))


@dataclass(frozen=True, slots=True)
class CompileIdentity:
    """Which compile a trace belongs to: ``compile_id`` such as ``0/1``, and the attempt, counted from 0."""

    compile_id: str
    attempt: int


def compile_identity() -> CompileIdentity:
    """Return the identity of the trace running on this thread."""
    if IDENTITY.problem is None:
        context = IDENTITY.resolve(_CONTEXT)()
        if context is not None:
            return CompileIdentity(str(context.compile_id), int(getattr(context, "attempt", 0) or 0))
    return CompileIdentity("?", 0)


def restart_reasons(top: types.FrameType) -> Sequence[str]:
    """Return why earlier attempts of the trace running in the Python frame ``top`` were given up."""
    if RESTARTS.problem is not None:
        return ()
    code = RESTARTS.resolve(_COMPILE_FRAME).__code__
    frame: types.FrameType | None = top
    while frame is not None:
        if frame.f_code is code:
            return sorted(str(reason) for reason in frame.f_locals.get("restart_reasons") or ())
        frame = frame.f_back
    return ()


def frame_below_trace(top: types.FrameType) -> types.FrameType | None:
    """Return the Python frame that called into Dynamo: what lies above it is the interpreter's machinery."""
    callback = CALLERS.resolve(_CALLBACK).__code__ if CALLERS.problem is None else None
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
