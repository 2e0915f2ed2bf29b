"""The scopes of a frame that Dynamo is tracing. Made on the held tracing thread; children are computed when opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from dynamo_dap.debuggee.agent.watched_variable import WatchedVariable
from dynamo_dap.debuggee.compile_time.compile_view import ListingOf, compile_children
from dynamo_dap.debuggee.compile_time.data_watch import watched_variable
from dynamo_dap.debuggee.compile_time.graph_view import graph_children, graph_source
from dynamo_dap.debuggee.compile_time.guards_view import guard_children
from dynamo_dap.debuggee.compile_time.names import cell_names, cells_of, globals_used, locals_of
from dynamo_dap.debuggee.compile_time.side_effects_view import side_effect_children
from dynamo_dap.debuggee.compile_time.trackers.traced_view import TracedView
from dynamo_dap.debuggee.torch_internals.dynamo_names import dynamos_locals, is_dynamos_global
from dynamo_dap.debuggee.values.eager_frames import with_group
from dynamo_dap.debuggee.values.model import Children, Deferred, ScopeOfFrame, Value, Variable

__all__ = ["graph_source", "scopes_of"]


def _no_listing(code: CodeType) -> None:  # noqa: ARG001
    return None


def scopes_of(tx: Any, listing_of: ListingOf = _no_listing) -> list[ScopeOfFrame]:
    """Return the scopes of ``tx``, a paused ``InstructionTranslatorBase``, most interesting first.

    ``listing_of`` shows code that Dynamo generated.

    An inlined function shows ``Graph``, ``Guards``, ``Side Effects`` and ``Compile`` of the frame being compiled.
    """
    view = TracedView(tx)
    scopes = [
        ScopeOfFrame("Locals", _Variables(tx, lambda: _locals(tx, view)), "locals"),
        ScopeOfFrame("Value Stack", Deferred(lambda: _stack(tx, view)), "registers"),
    ]
    if cell_names(tx):
        scopes.append(ScopeOfFrame("Cells", _Variables(tx, lambda: _variables(cells_of(tx), view))))
    scopes.append(ScopeOfFrame("Globals", Deferred(lambda: _globals(tx, view)), expensive=True))
    scopes += [
        ScopeOfFrame("Graph", _when_opened(lambda: graph_children(tx, view)), expensive=True, source=graph_source(tx)),
        ScopeOfFrame("Guards", _when_opened(lambda: guard_children(tx)), expensive=True),
        ScopeOfFrame("Side Effects", _when_opened(lambda: side_effect_children(view)), expensive=True),
        ScopeOfFrame("Compile", _when_opened(lambda: compile_children(tx, listing_of)), expensive=True),
    ]
    return scopes


class _Variables(Deferred):
    """Variables on which there may be data breakpoints."""

    def __init__(self, tx: Any, make: Callable[[], Sequence[Variable]]) -> None:
        super().__init__(make)
        self._tx = tx

    def watched(self, name: str) -> WatchedVariable | None:
        return watched_variable(self._tx, name)


def _when_opened(make: Callable[[], Children]) -> Children:
    return Deferred(lambda: make().named())


def _locals(tx: Any, view: TracedView) -> list[Variable]:
    """Return the user's variables, and in a resume function those that only Dynamo knows, in a group at the end."""
    return with_group(_variables(locals_of(tx), view), dynamos_locals(tx.f_code))


def _globals(tx: Any, view: TracedView) -> list[Variable]:
    return with_group(_variables(globals_used(tx), view), is_dynamos_global)


def _variables(named: Sequence[tuple[str, Any]], view: TracedView) -> list[Variable]:
    return [Variable(name, view.value(value, name), name) for name, value in named]


def _stack(tx: Any, view: TracedView) -> list[Variable]:
    top = len(tx.stack) - 1
    variables: list[Variable] = []
    for number, tracker in enumerate(list(tx.stack)):
        variables.append(Variable(f"{number} (top)" if number == top else str(number), view.value(tracker)))
    if not variables:
        variables.append(Variable("(empty)", Value("", kind="virtual")))
    return variables
