"""Applies debugpy's exception filters to exceptions that are raised while Dynamo traces.

debugpy does not see these: Dynamo models the traced code's exceptions and passes them between the traced functions.
Whether debugpy would have stopped in ordinary Python follows from who would catch the exception: the traced functions,
and the Python code below them. Runs on the tracing thread; nothing is kept.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynamo_dap.debuggee.agent.engine import RAISED, UNCAUGHT, USER_UNHANDLED
from dynamo_dap.debuggee.agent.user_code import is_debugger_file, is_torch_file, is_user_file
from dynamo_dap.debuggee.code_analysis.handlers import is_caught
from dynamo_dap.debuggee.torch_internals.errors import is_machinery
from dynamo_dap.debuggee.torch_internals.traced_frame import TracedFrame

PYTHON_FILTERS = frozenset({RAISED, USER_UNHANDLED, UNCAUGHT})

_IGNORED = (StopIteration, StopAsyncIteration, GeneratorExit)
"""What debugpy does not stop for: they end loops."""


@dataclass(frozen=True, slots=True)
class _Running:
    """A function on the stack, traced or running."""

    code: types.CodeType
    line: int
    names: Sequence[Mapping[str, object]]

    @property
    def is_user_code(self) -> bool:
        return is_user_file(self.code.co_filename)

    def catches(self, kind: type[BaseException]) -> bool:
        # Torch's own frames raise again whatever they catch of the program's.
        return not is_torch_file(self.code.co_filename) and is_caught(self.code, self.line, self.names, kind)


def filters_met(
    chain: Sequence[TracedFrame], below: types.FrameType | None, kind: type[BaseException]
) -> frozenset[str]:
    """Return the filters that stop for an exception of ``kind`` that leaves the trace.

    ``chain`` are the traced functions from the innermost out, none of which catches it; ``below`` is the Python frame
    that called what is compiled.
    """
    if issubclass(kind, _IGNORED):
        return frozenset()
    stack = [*_traced(chain), *_running(below)]
    left = len(stack)
    for index, running in enumerate(stack):
        if index >= len(chain) and running.catches(kind):
            left = index
            break
    met = {RAISED, *([UNCAUGHT] if left == len(stack) else [])}
    passed = stack[:left]
    followed_by = [*stack[1:], None]
    for running, caller in zip(passed, followed_by, strict=False):
        if running.is_user_code and (caller is None or not caller.is_user_code):
            met.add(USER_UNHANDLED)
    return frozenset(met)


def is_caught_in_trace(chain: Sequence[TracedFrame], kind: type[BaseException]) -> bool:
    """Whether a traced function catches an exception of ``kind`` that the innermost has raised."""
    return not issubclass(kind, _IGNORED) and any(running.catches(kind) for running in _traced(chain))


def _traced(chain: Sequence[TracedFrame]) -> Iterator[_Running]:
    for frame in chain:
        yield _Running(frame.code, frame.line, (frame.globals,))


def _running(frame: types.FrameType | None) -> Iterator[_Running]:
    """Yield the Python frames, without the machinery of Dynamo and of the debugger."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_bootstrap_inner" and frame.f_globals.get("__name__") == "threading":
            # The end of a thread: what comes here is reported, and caught by nobody.
            return
        if not is_debugger_file(code.co_filename) and not is_machinery(frame):
            yield _Running(code, frame.f_lineno or 1, (frame.f_locals, frame.f_globals))
        frame = frame.f_back
