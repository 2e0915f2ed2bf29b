"""Models the frames of a paused compile: traced functions, or a function about to be compiled, and their callers.

Frames are made on the held tracing thread, and live as long as the pause.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import FrameType, MappingProxyType
from typing import Any

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
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import user_function_name
from dynamo_dap.debuggee.torch_api.traced.traced_frame import MISSING, TracedFrame
from dynamo_dap.debuggee.torch_api.traced.translator import frame_below_trace
from dynamo_dap.debuggee.trace import plain_conditions
from dynamo_dap.debuggee.trace.code_facts import CodeFacts
from dynamo_dap.debuggee.trace.data_watch import watched_variable
from dynamo_dap.debuggee.trace.evaluation import evaluate, evaluate_to_python, evaluate_to_tensor
from dynamo_dap.debuggee.trace.expressions import assignment
from dynamo_dap.debuggee.trace.jumps import jump_in
from dynamo_dap.debuggee.trace.paths import completions
from dynamo_dap.debuggee.trace.symbolic_scopes import scopes_of
from dynamo_dap.debuggee.values.model import (
    Children,
    Deferred,
    Location,
    ScopeOfFrame,
    Value,
    Variable,
    VirtualSource,
    bounded_text,
)
from dynamo_dap.debuggee.values.paging import in_pages
from dynamo_dap.debuggee.values.python_values import expected_and_actual_texts, present
from dynamo_dap.protocol.wire.types import CompletionItem


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

    def tensor(self, expression: str) -> Any:
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
        scopes = [ScopeOfFrame("Locals", Deferred(lambda: _values(self._locals)), "locals")]
        if self._failures:
            scopes.append(ScopeOfFrame("Cache Entries", Deferred(self._entries)))
        scopes.append(ScopeOfFrame("Globals", Deferred(lambda: _values(self._globals)), "globals", expensive=True))
        return scopes

    def _entries(self) -> list[Variable]:
        return [Variable(failure.compile_id, _entry(failure, entry, self._frame)) for failure, entry in self._failures]

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


def _values(names: dict[str, object]) -> list[Variable]:
    return [Variable(name, present(value, name), name) for name, value in names.items() if not name.startswith("__")]


def _entry(failure: Failure, entry: object, frame: object) -> Value:
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
        shown.append(Variable("guards", Value(f"{len(expressions)} conditions", children=_texts(expressions))))
        return shown

    return Value(bounded_text(failure.expression), "cache entry", Deferred(parts))


def _texts(texts: Sequence[str]) -> Children:
    def page(start: int, stop: int) -> list[Variable]:
        return [Variable(str(start + at), Value(bounded_text(text))) for at, text in enumerate(texts[start:stop])]

    return in_pages(len(texts), page)
