"""Evaluates a user's expressions over a paused trace, so that the trace does not notice.

A path (``z``, ``d["k"]``, ``self.weight``) is followed over the trackers, and its answer opens like them. Anything
more is computed by Python on converted values: constants, FakeTensors under the trace's fake mode, SymInts whose
comparisons leave no guard. User functions that an expression calls really run. ``ctx`` is torch's ``ComptimeContext``
and ``tx`` the translator, where the program has no such name; whatever they change in the trace is taken back and told,
and so ``ctx.graph_break()`` and ``ctx.get_local("n").force_static()`` do nothing. Tracing thread; the agent bounds the
time.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from dynamo_dap.debuggee.compile_time.console import printing_to
from dynamo_dap.debuggee.compile_time.conversion import Converter
from dynamo_dap.debuggee.compile_time.expressions import (
    Parsed,
    check_assignments,
    names_used,
    parse,
    rename_calls,
    take_paths_out,
)
from dynamo_dap.debuggee.compile_time.names import MISSING, is_declared, lookup
from dynamo_dap.debuggee.compile_time.paths import NOT_A_PATH, Paths
from dynamo_dap.debuggee.compile_time.trackers.stand_ins import has_attribute, type_of
from dynamo_dap.debuggee.compile_time.trackers.traced_view import TracedView
from dynamo_dap.debuggee.torch_internals.comptime_access import comptime_context
from dynamo_dap.debuggee.torch_internals.fake_evaluation import (
    WouldChangeTensor,
    data_dependent_reason,
    evaluating,
    is_of_dynamo,
)
from dynamo_dap.debuggee.torch_internals.features import FeatureMissing
from dynamo_dap.debuggee.torch_internals.tensor_facts import is_fake_tensor
from dynamo_dap.debuggee.torch_internals.trace_state import ObjectState, TraceState, counts_of, differences
from dynamo_dap.debuggee.values.model import EvaluationError, Value

_NOTHING = object()
_NATIVE_FRAMES = "\nException raised from "
"""Where torch appends the C++ frames to an error's text."""
_INTERPRETER_NAMES = frozenset({"ctx", "tx"})
_ASKED_OF_STAND_INS: dict[str, tuple[str, Callable[..., Any]]] = {
    "type": ("__type_of__", type_of),
    "hasattr": ("__has_attribute__", has_attribute),
}
"""Builtins that tell of the object itself: what an expression calls instead, under which name."""
_CLIPBOARD_ROOM = 100_000
"""Characters that are copied at most: a clipboard takes the whole value, a pane its beginning."""


def evaluate(
    tx: Any,
    expression: str,
    context: str,
    console: Callable[[str], None],
    scratch: dict[str, object] | None = None,
) -> Value:
    """Return the value of ``expression`` in the frame of ``tx``.

    ``context`` is DAP's; in ``repl`` statements run as well, and the names they assign are kept in ``scratch``. What is
    printed goes to ``console``.

    Raises:
        EvaluationError: it has no value; the text says why.
        Exception: the expression's own.
    """
    evaluation = _Evaluation(tx, scratch if scratch is not None else {}, console, tells=context == "repl")
    parsed = parse(expression, statements_allowed=context == "repl")
    if parsed.is_bare:
        found = evaluation.paths.follow(parsed.expression)  # type: ignore[arg-type]
        if found is not NOT_A_PATH:
            return evaluation.shown(found, expression.strip(), context)
    result = evaluation.compute(parsed)
    if result is _NOTHING:
        return Value("")
    return evaluation.shown_result(result, expression.strip() if parsed.is_bare else None, context)


def evaluate_to_python(tx: Any, expression: str, names: dict[str, object] | None = None) -> object:
    """Return the truth of ``expression``, or its value when that is a plain constant: for conditions.

    ``names`` can be used besides those of the frame.

    Raises:
        EvaluationError: it has no value, or no truth while tracing; the text says why.
    """
    evaluation = _Evaluation(tx, names or {}, lambda text: None)
    return evaluation.compute(parse(expression, statements_allowed=False), finish=_settled)


def _settled(value: Any) -> Any:
    """Return a value that can be asked for its truth later, outside the protected evaluation."""
    if is_fake_tensor(value):
        raise EvaluationError("this is a tensor, whose truth depends on data that is not there while tracing")
    plain = value is None or type(value) in (bool, int, float, str)
    return value if plain else bool(value)


class _Undo:
    """Takes back what an evaluation changed in the trace: everything when it was given the interpreter itself."""

    def __init__(self, tx: Any, *, whole_trace: bool) -> None:
        self._tx = tx
        self._symbols = ObjectState(tx.output.shape_env)
        self._trace = TraceState(tx) if whole_trace else None
        self._counts = counts_of(tx)

    def take_back(self) -> list[str]:
        """Put the trace back, and return what had changed, for a person.

        Raises:
            EvaluationError: it could not be put back.
        """
        changes = self._trace.changes() if self._trace is not None else []
        if self._trace is not None and changes:
            self._trace.restore()
        if self._trace is not None:
            self._trace.restore_statistics()
        self._symbols.restore()
        left = differences(self._counts, counts_of(self._tx)) or (
            self._trace.changes() if changes and self._trace else []
        )
        if left:
            raise EvaluationError(
                f"the expression changed the trace, and it could not be taken back: {', '.join(left)}"
            )
        return changes


class _Evaluation:
    """One evaluation in one frame."""

    def __init__(
        self, tx: Any, scratch: dict[str, object], console: Callable[[str], None], *, tells: bool = False
    ) -> None:
        """``tells``: a change that was taken back is told in the console, and the value is shown all the same."""
        self._tx = tx
        self._tells = tells
        self._scratch = scratch
        self._console = console
        self._view = TracedView(tx)
        self._converter = Converter(tx, self._view)
        self.paths = Paths(tx, self._view, scratch)

    def shown(self, found: Any, expression: str | None, context: str) -> Value:
        """Return what a path gave as it is shown."""
        if context == "clipboard":
            return Value(self._view.text(found, _CLIPBOARD_ROOM, _CLIPBOARD_ROOM))
        return self._view.value(found, expression)

    def shown_result(self, result: Any, expression: str | None, context: str) -> Value:
        """Return a computed value as it is shown; one that is a tracker's own opens like the tracker."""
        origin = self._converter.origin_of(result)
        return self.shown(result if origin is None else origin, expression, context)

    def compute(self, parsed: Parsed, finish: Callable[[Any], Any] = lambda value: value) -> Any:
        """Run the code and return its value, ``_NOTHING`` when it has none; ``finish`` runs protected as well."""
        interpreter = self._interpreter_names(parsed)
        check_assignments(parsed, self._is_of_program)
        take_paths_out(parsed, self.paths.follow, NOT_A_PATH)
        rename_calls(parsed, {name: new for name, (new, _) in _ASKED_OF_STAND_INS.items() if not self._is_known(name)})
        names = _Names(self._name, self._converter.convert, parsed.paths, self._scratch)
        undo = _Undo(self._tx, whole_trace=bool(interpreter))
        try:
            with printing_to(self._console), evaluating(self._tx):
                result = self._run(parsed, names, finish)
            self._converter.check_unchanged()
        except BaseException as problem:
            undo.take_back()
            if isinstance(problem, FeatureMissing):
                raise EvaluationError(str(problem)) from None
            raise
        changes = undo.take_back()
        if changes:
            text = f"this would have changed the trace ({', '.join(changes)}); it was taken back"
            if not self._tells:
                raise EvaluationError(text)
            self._console(f"{text}\n")
        return result

    def _run(self, parsed: Parsed, names: _Names, finish: Callable[[Any], Any]) -> Any:
        try:
            statements, expression = parsed.code_of_statements(), parsed.code_of_expression()
            if statements is not None:
                exec(statements, names)
                self._scratch.update(names.assigned)
            return _NOTHING if expression is None else finish(eval(expression, names))
        except EvaluationError:
            raise
        except WouldChangeTensor as problem:
            raise EvaluationError(str(problem)) from None
        except Exception as problem:
            reason = data_dependent_reason(problem)
            if reason is not None:
                raise EvaluationError(reason) from None
            if is_of_dynamo(problem):
                first_line = (str(problem).splitlines() or [type(problem).__name__])[0]
                raise EvaluationError(f"this would end or restart the trace, and was not done: {first_line}") from None
            if _NATIVE_FRAMES in str(problem):
                raise EvaluationError(
                    f"{type(problem).__name__}: {str(problem).partition(_NATIVE_FRAMES)[0]}"
                ) from None
            raise

    def _interpreter_names(self, parsed: Parsed) -> frozenset[str]:
        used = names_used(parsed) & _INTERPRETER_NAMES
        return frozenset(name for name in used if not self._is_of_program(name))

    def _is_of_program(self, name: str) -> bool:
        return name not in self._scratch and (is_declared(self._tx, name) or name in self._tx.f_globals)

    def _is_known(self, name: str) -> bool:
        return name in self._scratch or self._is_of_program(name)

    def _name(self, name: str) -> Any:
        """Return the converted value of a name, for the running expression."""
        found = lookup(self._tx, name)
        if found is not MISSING:
            return self._converter.convert(found)
        if name == "ctx":
            return comptime_context(self._tx)
        if name == "tx":
            return self._tx
        if is_declared(self._tx, name):
            raise EvaluationError(f"'{name}' has no value here: it is not assigned yet, or not used any more")
        raise NameError(f"name '{name}' is not defined")


class _Names(dict[str, Any]):
    """The names an expression sees; the frame's are converted when they are first read."""

    def __init__(
        self,
        name: Callable[[str], Any],
        convert: Callable[[Any], Any],
        paths: dict[str, Any],
        scratch: dict[str, object],
    ) -> None:
        super().__init__(scratch)
        dict.__setitem__(self, "__builtins__", builtins)
        for new_name, function in _ASKED_OF_STAND_INS.values():
            dict.__setitem__(self, new_name, function)
        self._name = name
        self._convert = convert
        self._paths = paths
        self.assigned: dict[str, Any] = {}

    def __missing__(self, name: str) -> Any:
        value = self._convert(self._paths[name]) if name in self._paths else self._name(name)
        dict.__setitem__(self, name, value)
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        self.assigned[name] = value
        super().__setitem__(name, value)
