"""Makes the scopes of a function that Dynamo is tracing.

Runs on the held tracing thread. The variables of a scope are computed when the user opens it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from types import CodeType, MappingProxyType

from dynamo_dap.debuggee.agent.breakpoints import WatchedVariable
from dynamo_dap.debuggee.agent.stepping import ChangesTrace
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import (
    dynamos_locals,
    is_dynamos_global,
    split_by_owner,
    user_function_name,
)
from dynamo_dap.debuggee.torch_api.compiles.compilation import CompileFacts, cache_entries
from dynamo_dap.debuggee.torch_api.graphs.graph import nodes_of
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.translator import restart_reasons
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Tracker
from dynamo_dap.debuggee.trace.data_watch import watched_variable
from dynamo_dap.debuggee.trace.expressions import assignment
from dynamo_dap.debuggee.trace.graph_view import graph_children, graph_source
from dynamo_dap.debuggee.trace.guards_view import guard_children
from dynamo_dap.debuggee.trace.side_effects_view import side_effect_children
from dynamo_dap.debuggee.trace.traced_view import TracedView
from dynamo_dap.debuggee.values.callables import location_of_code
from dynamo_dap.debuggee.values.eager_frames import with_group
from dynamo_dap.debuggee.values.model import (
    Deferred,
    Fixed,
    Location,
    ScopeOfFrame,
    Value,
    Variable,
    VirtualSource,
    WriteRefused,
    bounded_text,
)

__all__ = ["graph_source", "scopes_of"]

ListingOf = Callable[[CodeType], VirtualSource | None]
"""Returns the listing of code that Dynamo generated; None if the session does not show such code."""


def scopes_of(
    frame: TracedFrame, listing_of: ListingOf = lambda code: None, earlier: Mapping[str, Value] = MappingProxyType({})
) -> list[ScopeOfFrame]:
    """Return a traced function's scopes, most interesting first.

    ``earlier`` has values from before a graph break. An inlined function shows ``Graph``, ``Guards``, ``Side Effects``
    and ``Compile`` of the frame being compiled.
    """
    view = TracedView(frame)
    local_variables = frame.locals()
    is_dynamos = dynamos_locals(frame.code)
    users, dynamos = split_by_owner(local_variables, lambda each: is_dynamos(each[0]))
    stack = frame.value_stack()
    scopes = [
        ScopeOfFrame(
            "Locals",
            _Variables(
                frame,
                lambda: with_group([*_variables(local_variables, view), *_of_earlier(earlier)], is_dynamos),
                len(users) + len(earlier) + bool(dynamos),
                earlier,
            ),
            "locals",
        ),
        ScopeOfFrame("Value Stack", Deferred(lambda: _stack(stack, view), max(len(stack), 1)), "registers"),
    ]
    if frame.cell_names:
        cells = frame.cells()
        scopes.append(ScopeOfFrame("Cells", _Variables(frame, lambda: _variables(cells, view), len(cells))))
    opened_on_demand: list[tuple[str, Callable[[], Sequence[Variable]]]] = [
        ("Globals", lambda: with_group(_variables(frame.globals_used(), view), is_dynamos_global)),
        ("Graph", lambda: graph_children(frame, view).named()),
        ("Guards", lambda: guard_children(frame).named()),
        ("Side Effects", lambda: side_effect_children(view).named()),
        ("Compile", lambda: _compile_facts(frame, listing_of)),
    ]
    sources = {"Graph": graph_source(frame)}
    scopes += [
        ScopeOfFrame(name, Deferred(make), expensive=True, source=sources.get(name)) for name, make in opened_on_demand
    ]
    return scopes


class _Variables(Deferred):
    """Variables that support data breakpoints and *Go Back to Assignment*."""

    are_traced_locals = True

    def __init__(
        self,
        frame: TracedFrame,
        make: Callable[[], Sequence[Variable]],
        count: int,
        read_only: Container[str] = (),
    ) -> None:
        super().__init__(make, count)
        self._frame = frame
        self._read_only = read_only

    def watched(self, name: str) -> WatchedVariable | None:
        return watched_variable(self._frame, name)

    def can_write(self, name: str) -> bool:
        return name not in self._read_only

    def write(self, name: str, expression: str) -> Value:
        if not self._frame.is_declared(name):
            raise WriteRefused(f"'{name}' is not a variable of the function")
        if name in self._read_only:
            raise WriteRefused(f"the rest of the function does not use '{name}': this is its value before the break")
        raise ChangesTrace(assignment(self._frame, name, expression))


def _variables(named: Sequence[tuple[str, object]], view: TracedView) -> list[Variable]:
    return [Variable(name, view.value(value, name), name) for name, value in named]


def _of_earlier(earlier: Mapping[str, Value]) -> list[Variable]:
    return [Variable(name, value, name) for name, value in earlier.items()]


def _stack(stack: Sequence[Tracker], view: TracedView) -> list[Variable]:
    top = len(stack) - 1
    shown = [
        Variable(f"{number} (top)" if number == top else str(number), view.value(tracker))
        for number, tracker in enumerate(stack)
    ]
    return shown or [Variable("(empty)", Value("", kind="virtual"))]


def _compile_facts(frame: TracedFrame, listing_of: ListingOf) -> list[Variable]:
    facts = frame.compile_facts()
    seconds = "unknown" if facts.seconds is None else f"{facts.seconds:.1f} s, pauses included"
    texts = {
        "compile id": facts.compile_id,
        "attempt": str(facts.attempt + 1),
        "backend": facts.backend,
        "fullgraph": str(facts.is_full_graph),
        "dynamic": facts.dynamic,
        "elapsed": seconds,
        "inline depth": str(facts.inlined),
        "graph nodes": str(sum(len(nodes_of(graph)) for graph in frame.graphs())),
        "guards": str(facts.guard_count),
    }
    first, second, *others = [Variable(name, Value(text)) for name, text in texts.items()]
    compiled = Variable("frame", Value(user_function_name(facts.code), location=location_of_code(facts.code)))
    return [first, second, *_restarts(), compiled, *others, _generated(facts, listing_of)]


def _restarts() -> list[Variable]:
    reasons = restart_reasons(sys._getframe())
    if not reasons:
        return []
    lines = tuple(Variable(str(number), Value(bounded_text(reason))) for number, reason in enumerate(reasons))
    return [Variable("restarted because", Value(bounded_text(reasons[-1]), children=Fixed(lines)))]


def _generated(facts: CompileFacts, listing_of: ListingOf) -> Variable:
    """Show the generated code of earlier compiles, with listings; this compile has none before its end."""
    # After a step back over a graph break, the compile that is shown has ended: leave out its own entry.
    entries = [each for each in cache_entries(facts.code) if str(each.compile_id) != facts.compile_id]
    below = tuple(Variable(f"[{entry.compile_id}]", _listing(listing_of(entry.code))) for entry in entries)
    text = f"{len(entries)} from earlier compiles" if entries else "none yet: this is the first compile of this code"
    return Variable("generated code", Value(text, children=Fixed(below) if below else None))


def _listing(listing: VirtualSource | None) -> Value:
    if listing is None:
        return Value("without a listing: this session does not show generated code")
    return Value(os.path.splitext(listing.name)[0], location=Location(listing, 1))
