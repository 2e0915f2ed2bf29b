"""Ends a replay at its first graph break, reports the break, and changes a condition or callee of the trace.

A trial changes one thing at a graph break that data causes, the answer of a condition or the code of a called function.
It traces the call again to see how far the trace then gets. Runs on the held tracing thread; a change holds for one
replay.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Generator, Iterator

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.traced.data_dependence import symbols_of_data
from dynamo_dap.debuggee.torch_api.traced.replays import Replay, current_replay
from dynamo_dap.debuggee.torch_api.traced.symbols import replaced
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame, running_frame
from dynamo_dap.debuggee.wrapping.patches import Given, Outcome, Patches, Result

_OUTPUT = "torch._dynamo.output_graph:OutputGraph"
_CLEANUP = "torch._dynamo.output_graph:OutputGraph.cleanup"
_IS_ERROR = "torch._dynamo.symbolic_convert:_get_error_on_graph_break"
_FUNCTION = "torch._dynamo.variables:UserFunctionVariable"
_NESTED = "torch._dynamo.variables:NestedUserFunctionVariable"
_INIT_CELLS = "torch._dynamo.variables.functions:init_cellvars"
_SHAPES = "torch.fx.experimental.symbolic_shapes:ShapeEnv"
_EVALUATE = "torch.fx.experimental.symbolic_shapes:ShapeEnv.evaluate_expr"
_GUARD_OR_FALSE = "torch.fx.experimental.symbolic_shapes:guard_or_false"

TRIALS = Feature("trying fixes at a stop", _OUTPUT, _CLEANUP, _IS_ERROR, _FUNCTION, _NESTED, _INIT_CELLS)
UNTAKEN = Feature("trying guard_or_false at a stop", _SHAPES, _EVALUATE, _GUARD_OR_FALSE)

_patches = Patches(TRIALS.name)
_NAME_OF_IS_ERROR = _IS_ERROR.partition(":")[2]
_NAME_OF_INIT_CELLS = _INIT_CELLS.partition(":")[2]
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

    def is_error() -> Generator[None, Outcome, Result | None]:
        if current_replay() is replay:
            return Result(True)
        yield None
        return None

    # With ``fullgraph`` instead, Dynamo would capture numbers that the program's own compile does not.
    breaks_are_errors = _patches.meanwhile(sys.modules["torch._dynamo.symbolic_convert"], _NAME_OF_IS_ERROR, is_error)
    with _patches.meanwhile(TRIALS.resolve(_OUTPUT), "cleanup", before_cleanup), breaks_are_errors:
        yield


@contextlib.contextmanager
def called_with_code(replay: Replay, code: types.CodeType, changed: types.CodeType) -> Iterator[None]:
    """Inline ``changed`` where the trace of ``replay`` calls a function with ``code``."""

    def get_code(*_: object) -> Generator[None, Outcome, Result | None]:
        outcome = yield None
        return Result(changed) if outcome.result is code and current_replay() is replay else None

    def init_cells(parent: object, values: object, of_function: object) -> Generator[Given | None, Outcome, None]:
        is_called = of_function is code and current_replay() is replay
        yield Given((parent, values, changed), {}) if is_called else None

    with contextlib.ExitStack() as stack:
        for each in (_FUNCTION, _NESTED):
            stack.enter_context(_patches.meanwhile(TRIALS.resolve(each), "get_code", get_code))
        functions = sys.modules["torch._dynamo.variables.functions"]
        stack.enter_context(_patches.meanwhile(functions, _NAME_OF_INIT_CELLS, init_cells))
        yield


@contextlib.contextmanager
def branch_not_taken(
    replay: Replay, is_here: Callable[[TracedFrame], bool], on_guard: Callable[[], None]
) -> Iterator[None]:
    """Make data-dependent conditions False where ``is_here`` returns true, as ``guard_or_false`` does.

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


def _depends_on_data(expression: object, environment: object) -> bool:
    return bool(symbols_of_data(replaced(expression, environment)))
