"""Reads exceptions that end a compile: the user's error behind one, the failed stage of the backend.

Runs on the compiling thread; nothing is realized.

When an operation fails while Dynamo computes the shape of its result, Dynamo raises a ``TorchRuntimeError`` that wraps
a graph break that wraps the operation's own error. An exception that the traced code raises is an ``ObservedException``
and a tracker in ``exn_vt_stack``; if no traced function catches it, it becomes a graph break.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

from dynamo_dap.debuggee.torch_api.compiles.graph_breaks import is_control_flow, is_graph_break
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place

_STEPS = 20
"""How many exceptions are followed from the outermost one to the first."""


@dataclass(frozen=True, slots=True)
class UserError:
    """A user's error, as ordinary Python would have raised it."""

    kind: type[BaseException]
    message: str

    @property
    def text(self) -> str:
        """The last line of its traceback: ``ValueError: three``."""
        return f"{self.kind.__name__}: {self.message}" if self.message else self.kind.__name__


def error_behind(exception: BaseException) -> UserError:
    """Return the user's error behind torch's exception; the exception itself if there is none, and for graph breaks."""
    innermost = exception
    for _ in range(0 if is_graph_break(exception) else _STEPS):
        earlier = innermost.__cause__
        if earlier is None and _is_of_dynamo(innermost):
            earlier = innermost.__context__
        if earlier is None:
            break
        innermost = earlier
    if _is_of_dynamo(innermost):
        innermost = exception
    return UserError(type(innermost), str(innermost).strip())


def _is_of_dynamo(exception: BaseException) -> bool:
    return type(exception).__module__.startswith("torch._dynamo")


def is_error_of_program(exception: BaseException) -> bool:
    """Return whether the exception reaches the program, unlike graph breaks, failed backends and control flow."""
    if is_control_flow(exception) or is_graph_break(exception) or type(exception).__name__ == "BackendCompilerFailed":
        return False
    return not sys.modules["torch._dynamo.config"].suppress_errors


def is_machinery(frame: types.FrameType) -> bool:
    """Return whether a Python frame lies between a compiled function and its caller, or ran the program."""
    name = str(frame.f_globals.get("__name__", ""))
    return name.startswith(("torch._dynamo.", "torch._compile", "runpy"))


def is_raised_by_user(exception: BaseException) -> bool:
    """Return whether a graph break is an exception that the traced code raised and did not catch."""
    return is_graph_break(exception) and str(getattr(exception, "gb_type", "")).startswith("Observed exception")


def error_being_raised(frame: TracedFrame) -> UserError | None:
    """Return the exception that passes through traced code."""
    tracker = getattr(getattr(frame.translator, "exn_vt_stack", None), "_current_exception", None)
    kind = _field(tracker, "exc_type")
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        return None
    arguments = [_constant(argument) for argument in _field(tracker, "args") or ()]
    return UserError(kind, arguments[0] if len(arguments) == 1 else ", ".join(arguments))


def _field(tracker: object, name: str) -> Any:
    # An exception of a user's class holds the tracker of the built-in part.
    for holder in (tracker, getattr(tracker, "exc_vt", None)):
        value = getattr(holder, "__dict__", {}).get(name)
        if value is not None:
            return value
    return None


def _constant(tracker: object) -> str:
    value = getattr(tracker, "__dict__", {}).get("value")
    return str(value) if isinstance(value, str | int | float | bool) else "…"


_STEPS_OF_BACKENDS = (
    ("/torch/_inductor/", "Inductor"),
    ("/torch/_functorch/", "AOTAutograd"),
    ("/torch/_dynamo/backends/", "the backend"),
    ("/torch/_dynamo/", "Dynamo"),
)
_NO_FAILURES = frozenset({"SkipFrame", "RestartAnalysis", "TensorifyScalarRestartAnalysis"})


@dataclass(frozen=True, slots=True)
class BackendFailure:
    """An exception of the backend."""

    step: str
    """``Inductor``, ``AOTAutograd``, ``Dynamo``, or ``the backend`` for one that is not torch's."""
    inner: BaseException
    """The exception before Dynamo wrapped it."""
    place: Place | None
    """Where it was raised."""


def failure_of(problem: BaseException) -> BackendFailure | None:
    """Return the failure; None for the exceptions by which a backend requests something from Dynamo."""
    if any(kind.__name__ in _NO_FAILURES for kind in type(problem).__mro__):
        return None
    inner = getattr(problem, "inner_exception", None)
    if not isinstance(inner, BaseException):
        inner = problem.__cause__ if isinstance(problem.__cause__, BaseException) else problem
    files = list(_places(inner.__traceback__ or problem.__traceback__))
    return BackendFailure(_step(files), inner, files[-1] if files else None)


def is_failure_of_dynamo(problem: BaseException | None) -> TypeGuard[BaseException]:
    """Return whether Dynamo itself failed: neither a graph break nor a failure of its callees."""
    return any(kind.__name__ == "InternalTorchDynamoError" for kind in type(problem).__mro__)


def _step(places: list[Place]) -> str:
    for place in reversed(places):
        for part, step in _STEPS_OF_BACKENDS:
            if part in place.path.replace("\\", "/"):
                # Dynamo's own frame only calls the backend.
                return "the backend" if step == "Dynamo" else step
    return "the backend"


def _places(traceback: types.TracebackType | None) -> Iterator[Place]:
    while traceback is not None:
        yield Place(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno, 1)
        traceback = traceback.tb_next
