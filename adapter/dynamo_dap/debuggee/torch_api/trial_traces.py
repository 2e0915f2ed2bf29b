"""Lets a replay end at its first graph break, with the facts of the break, and answers a condition on data in it.

A trial traces a call again with something changed at a condition that depends on data, to see how far the trace gets.
Runs on the held tracing thread; everything holds for one replay.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Iterator
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.replays import Replay, current_replay
from dynamo_dap.debuggee.torch_api.symbols import replaced
from dynamo_dap.debuggee.torch_api.traced_frame import TracedFrame, running_frame
from dynamo_dap.debuggee.wrapping.patches import Given, Outcome, Patches

_OUTPUT = "torch._dynamo.output_graph:OutputGraph"
_CLEANUP = "torch._dynamo.output_graph:OutputGraph.cleanup"
_SHAPES = "torch.fx.experimental.symbolic_shapes:ShapeEnv"
_EVALUATE = "torch.fx.experimental.symbolic_shapes:ShapeEnv.evaluate_expr"
_GUARD_OR_FALSE = "torch.fx.experimental.symbolic_shapes:guard_or_false"

TRIALS = Feature("trying fixes at a stop", _OUTPUT, _CLEANUP)
UNTAKEN = Feature("trying guard_or_false at a stop", _SHAPES, _EVALUATE, _GUARD_OR_FALSE)

_patches = Patches(TRIALS.name)
_FALLBACK = "fallback_value"
_POSITION = 4
"""The position of this argument of ``evaluate_expr``, after ``self``. Torch's own callers pass it by name."""


@contextlib.contextmanager
def reporting_failure(replay: Replay, report: Callable[[TracedFrame, Exception], None]) -> Iterator[None]:
    """Report the exception that ends the trace of ``replay``, while its functions still have their state."""

    def before_cleanup(output: object, *_: object, **__: object) -> Generator[None, Outcome, None]:
        exception, translator = sys.exc_info()[1], getattr(output, "root_tx", None)
        if current_replay() is replay and isinstance(exception, Exception) and translator is not None:
            report(TracedFrame(translator), exception)
        yield None

    with _patches.meanwhile(TRIALS.resolve(_OUTPUT), "cleanup", before_cleanup):
        yield


@contextlib.contextmanager
def branch_not_taken(
    replay: Replay, is_here: Callable[[TracedFrame], bool], on_guard: Callable[[], None]
) -> Iterator[None]:
    """Have conditions that depend on data be False where ``is_here`` says so, as ``guard_or_false`` does.

    ``on_guard`` is called for a condition there that depends on sizes only: ``guard_or_false`` guards on it, and
    ``statically_known_true`` does not.
    """

    def evaluate(
        environment: object, expression: object, *arguments: object, **named: object
    ) -> Generator[Given | None, Outcome, None]:
        frame = None
        if current_replay() is replay and len(arguments) < _POSITION and named.get(_FALLBACK) is None:
            frame = running_frame(sys._getframe())
        is_asked = frame is not None and is_here(frame)
        if is_asked and not _depends_on_data(expression, environment):
            on_guard()
        yield Given((environment, expression, *arguments), {**named, _FALLBACK: False}) if is_asked else None

    with _patches.meanwhile(UNTAKEN.resolve(_SHAPES), "evaluate_expr", evaluate):
        yield


def _depends_on_data(expression: object, environment: Any) -> bool:
    symbols = getattr(replaced(expression, environment), "free_symbols", ())
    return any(environment.is_unbacked_symint(each) for each in symbols)
