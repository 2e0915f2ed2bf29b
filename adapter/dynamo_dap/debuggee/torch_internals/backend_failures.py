"""Which step of compiling a graph failed, read off the traceback. Compiling thread."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeGuard

from dynamo_dap.debuggee.torch_internals.variable_trackers import Place

_STEPS = (
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
    """What was raised, before Dynamo wrapped it."""
    place: Place | None
    """Where it was raised."""


def failure_of(problem: BaseException) -> BackendFailure | None:
    """Tell what failed; None for the exceptions by which a backend asks Dynamo for something."""
    if any(kind.__name__ in _NO_FAILURES for kind in type(problem).__mro__):
        return None
    inner = getattr(problem, "inner_exception", None)
    if not isinstance(inner, BaseException):
        inner = problem.__cause__ if isinstance(problem.__cause__, BaseException) else problem
    files = list(_places(inner.__traceback__ or problem.__traceback__))
    return BackendFailure(_step(files), inner, files[-1] if files else None)


def is_failure_of_dynamo(problem: BaseException | None) -> TypeGuard[BaseException]:
    """Whether Dynamo itself failed, which is no graph break and no failure of what it called."""
    return any(kind.__name__ == "InternalTorchDynamoError" for kind in type(problem).__mro__)


def _step(places: list[Place]) -> str:
    for place in reversed(places):
        for part, step in _STEPS:
            if part in place.path.replace("\\", "/"):
                # Dynamo's own frame only calls the backend.
                return "the backend" if step == "Dynamo" else step
    return "the backend"


def _places(traceback: TracebackType | None) -> Any:
    while traceback is not None:
        yield Place(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno, 1)
        traceback = traceback.tb_next
