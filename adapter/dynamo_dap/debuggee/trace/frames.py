"""Models the frames of a paused compile: traced functions with their scopes, or a function about to be compiled.

Frames are made on the held tracing thread, and live as long as the pause. The variables of a scope are computed when
the user opens it.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cached_property
from types import CodeType, FrameType, MappingProxyType

from dynamo_dap.debuggee.agent.breakpoints import WatchedVariable
from dynamo_dap.debuggee.agent.eager_expressions import complete_python, evaluate_python, is_true_python
from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.frames import Frame, Position
from dynamo_dap.debuggee.agent.own_rank import NAME as RANK
from dynamo_dap.debuggee.agent.own_rank import extra_names
from dynamo_dap.debuggee.agent.stepping import ChangesTrace, Jump
from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.bytecode.constants import without_addresses
from dynamo_dap.debuggee.torch_api.cache.cache_entries import checks_of
from dynamo_dap.debuggee.torch_api.cache.recompiles import Failure
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import (
    dynamos_locals,
    is_dynamos_global,
    split_by_owner,
    user_function_name,
)
from dynamo_dap.debuggee.torch_api.compiles.compilation import CompileFacts, cache_entries
from dynamo_dap.debuggee.torch_api.graphs.graph import nodes_of
from dynamo_dap.debuggee.torch_api.traced.traced_frame import MISSING, TracedFrame
from dynamo_dap.debuggee.torch_api.traced.translator import frame_below_trace, restart_reasons
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Tracker
from dynamo_dap.debuggee.trace import plain_conditions
from dynamo_dap.debuggee.trace.code_facts import CodeFacts
from dynamo_dap.debuggee.trace.data_watch import watched_variable
from dynamo_dap.debuggee.trace.evaluation import evaluate, evaluate_to_python, evaluate_to_tensor
from dynamo_dap.debuggee.trace.expressions import assignment
from dynamo_dap.debuggee.trace.graph_view import graph_children, graph_source
from dynamo_dap.debuggee.trace.guards_view import guard_children
from dynamo_dap.debuggee.trace.jumps import jump_in
from dynamo_dap.debuggee.trace.paths import completions
from dynamo_dap.debuggee.trace.side_effects_view import side_effect_children
from dynamo_dap.debuggee.trace.traced_view import TracedView
from dynamo_dap.debuggee.values.callables import location_of_code
from dynamo_dap.debuggee.values.eager_frames import with_group
from dynamo_dap.debuggee.values.model import (
    Children,
    Deferred,
    Fixed,
    Location,
    ScopeOfFrame,
    ShownTensor,
    Value,
    Variable,
    VirtualSource,
    WriteRefused,
    bounded_text,
)
from dynamo_dap.debuggee.values.paging import in_pages
from dynamo_dap.debuggee.values.python_values import expected_and_actual_texts, present
from dynamo_dap.protocol.wire.types import CompletionItem

ListingOf = Callable[[CodeType], VirtualSource | None]
"""Returns the listing of code that Dynamo generated; None if the session does not show such code."""


class TracedFunction(Frame):
    """A function that Dynamo is tracing."""

    is_writable = True

    def __init__(
        self,
        frame: TracedFrame,
        address: int,
        scratch: dict[str, object],
        host: Host,
        earlier: Callable[[TracedFrame], Mapping[str, Value]] | None = None,
        more_scopes: Sequence[ScopeOfFrame] = (),
    ) -> None:
        """Show ``frame``, which is at the instruction with ``address``.

        ``scratch`` keeps the names that statements in the debug console assign; their output goes to ``host``.
        ``earlier`` returns values from before the graph break after which the frame resumes.
        """
        self._look_earlier = earlier
        self._more_scopes = more_scopes
        self.instruction_pointer_reference = hex(address)
        self._frame = frame
        self._scratch = scratch
        self._host = host
        self.is_user_code = is_user_file(frame.path)

    @property
    def name(self) -> str:
        """The user's name of the function."""
        return user_function_name(self._frame.code)

    @property
    def source(self) -> str | VirtualSource | None:
        """The user's file."""
        return self._frame.path

    @property
    def position(self) -> Position:
        """The place of the instruction being executed."""
        return Position(*self._frame.range)

    def scopes(self) -> Sequence[ScopeOfFrame]:
        """Return the scopes with the symbolic state."""
        return [*scopes_of(self._frame, self._host.listing_of, self._earlier), *self._more_scopes]

    @cached_property
    def _earlier(self) -> Mapping[str, Value]:
        return {} if self._look_earlier is None else self._look_earlier(self._frame)

    def evaluate(self, expression: str, context: str) -> Value:
        """Evaluate over the symbolic state; a name without a value now may have one from before a graph break."""
        name = expression.strip()
        is_without_value = self._frame.is_declared(name) and self._frame.lookup(name) is MISSING
        if is_without_value and name not in self._scratch and name in self._earlier:
            return self._earlier[name]
        return evaluate(self._frame, expression, context, console=self._host.print, scratch=self._scratch)

    def tensor(self, expression: str) -> ShownTensor:
        """Compute on the real values of this call."""
        return evaluate_to_tensor(self._frame, expression, self._host.print, self._scratch)

    def is_true(self, expression: str) -> bool:
        """Evaluate a condition."""
        own = (RANK,) if self._frame.has(RANK) else ()
        beside = extra_names(own) if RANK in expression else {}
        names = {**beside, **self._scratch}
        plain = plain_conditions.truth(self._frame, expression, names)
        return bool(evaluate_to_python(self._frame, expression, names)) if plain is None else plain

    def watched(self, name: str) -> WatchedVariable | None:
        """Return the local variable ``name`` for a data breakpoint, or None."""
        return watched_variable(self._frame, name)

    def write(self, expression: str, value: str) -> Value:
        """Continue a separate trace with another value."""
        raise ChangesTrace(assignment(self._frame, expression, value))

    def jump_to(self, path: str, line: int) -> Jump:
        """Return the jump to the start of a line."""
        return jump_in(self._frame, CodeFacts(self._frame.code, self._frame.instructions), path, line)

    def completions(self, text: str, column: int) -> Sequence[CompletionItem]:
        """Complete symbolic names."""
        return completions(self._frame, text, column)


def frames_of(
    chain: Sequence[TracedFrame],
    top: types.FrameType,
    address_of: Callable[[TracedFrame, int], int],
    host: Host,
    names: Mapping[str, object] = MappingProxyType({}),
    earlier: Callable[[TracedFrame], Mapping[str, Value]] | None = None,
    more_scopes: Sequence[ScopeOfFrame] = (),
) -> list[Frame]:
    """Return the whole stack of a tracing thread.

    ``chain`` has the traced function and its callers, and ``top`` is the hook's Python frame. ``address_of`` returns
    the address of a frame's instruction. ``host`` presents the Python frames that called into Dynamo. Expressions can
    use ``names``. ``earlier``: see ``TracedFunction``. ``more_scopes`` are further scopes of the innermost function.
    """
    scratch = dict(names)
    traced = [
        TracedFunction(each, address_of(each, each.index), scratch, host, earlier, () if at else more_scopes)
        for at, each in enumerate(chain)
    ]
    return [*traced, *host.python_stack(frame_below_trace(top))]


# -- the scopes of a traced function -----------------------------------------------------------------------------------


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
            _TracedVariables(
                frame,
                lambda: with_group([*_traced_variables(local_variables, view), *_of_earlier(earlier)], is_dynamos),
                len(users) + len(earlier) + bool(dynamos),
                earlier,
            ),
            "locals",
        ),
        ScopeOfFrame("Value Stack", Deferred(lambda: _stack(stack, view), max(len(stack), 1)), "registers"),
    ]
    if frame.cell_names:
        cells = frame.cells()
        scopes.append(
            ScopeOfFrame("Cells", _TracedVariables(frame, lambda: _traced_variables(cells, view), len(cells)))
        )
    opened_on_demand: list[tuple[str, Callable[[], Sequence[Variable]]]] = [
        ("Globals", lambda: with_group(_traced_variables(frame.globals_used(), view), is_dynamos_global)),
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


class _TracedVariables(Deferred):
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


def _traced_variables(named: Sequence[tuple[str, object]], view: TracedView) -> list[Variable]:
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


# -- a function before its trace ---------------------------------------------------------------------------------------


class FunctionFrame(Frame):
    """A function that Dynamo is about to compile, or will not compile.

    It shows its arguments, and why earlier compiles do not fit. There is no Python frame yet: CPython called Dynamo in
    its place.
    """

    def __init__(
        self,
        frame: FrameType,
        console: Callable[[str], None],
        failures: Sequence[tuple[Failure, object]] = (),
        names: dict[str, object] | None = None,
    ) -> None:
        """Show ``frame``, torch's object with ``f_code``, ``f_locals`` and ``f_globals``.

        ``failures`` belong to torch's cache entries; ``names`` can be used in expressions besides the frame's.
        """
        self._code = frame.f_code
        self._frame = frame
        self._globals: dict[str, object] = dict(frame.f_globals)
        self._locals: dict[str, object] = dict(frame.f_locals)
        self._console = console
        self._failures = failures
        self._names = names or {}
        self.is_user_code = is_user_file(frame.f_code.co_filename)

    @property
    def name(self) -> str:
        """The user's name of the function."""
        return user_function_name(self._code)

    @property
    def source(self) -> str | VirtualSource | None:
        """The file."""
        return str(self._code.co_filename)

    @property
    def position(self) -> Position:
        """The line where the function begins."""
        return Position(max(1, self._code.co_firstlineno))

    def scopes(self) -> Sequence[ScopeOfFrame]:
        """Return the scopes with the arguments, the cache entries and the globals."""
        scopes = [ScopeOfFrame("Locals", Deferred(lambda: _real_variables(self._locals)), "locals")]
        if self._failures:
            scopes.append(ScopeOfFrame("Cache Entries", Deferred(self._entries)))
        scopes.append(
            ScopeOfFrame("Globals", Deferred(lambda: _real_variables(self._globals)), "globals", expensive=True)
        )
        return scopes

    def _entries(self) -> list[Variable]:
        return [
            Variable(failure.compile_id, _cache_entry(failure, entry, self._frame)) for failure, entry in self._failures
        ]

    def evaluate(self, expression: str, context: str) -> Value:
        """Evaluate over the arguments."""
        names = {**self._locals, **self._names}
        return evaluate_python(expression, context, self._globals, names, self._console)

    def is_true(self, expression: str) -> bool:
        """Evaluate a condition."""
        return is_true_python(expression, self._globals, {**self._locals, **self._names})

    def completions(self, text: str, column: int) -> Sequence[CompletionItem]:
        """Complete names and attributes."""
        return complete_python(text, column, {**self._globals, **self._locals, **self._names})


def _real_variables(names: dict[str, object]) -> list[Variable]:
    return [Variable(name, present(value, name), name) for name, value in names.items() if not name.startswith("__")]


def _cache_entry(failure: Failure, entry: object, frame: object) -> Value:
    def parts() -> list[Variable]:
        then, now = expected_and_actual_texts(failure, frame)
        place = failure.place
        location = None if place is None else Location(place.path, place.line)
        shown = [Variable("failed guard", Value(bounded_text(failure.expression)), declaration=location)]
        if then is not None:
            shown.append(Variable("value then", Value(bounded_text(then))))
        if now is not None:
            shown.append(Variable("value now", Value(bounded_text(now))))
        if place is not None:
            shown.append(Variable("user line", Value(f"{place.path}:{place.line}", location=location)))
        expressions = [without_addresses(check.expression) for check in checks_of(entry)]
        shown.append(Variable("guards", Value(f"{len(expressions)} conditions", children=_conditions(expressions))))
        return shown

    return Value(bounded_text(failure.expression), "cache entry", Deferred(parts))


def _conditions(texts: Sequence[str]) -> Children:
    def page(start: int, stop: int) -> list[Variable]:
        return [Variable(str(start + at), Value(bounded_text(text))) for at, text in enumerate(texts[start:stop])]

    return in_pages(len(texts), page)
