"""Evaluates a user's expressions over a paused trace without changing the trace.

A path (``z``, ``d["k"]``, ``self.weight``) is resolved over the trackers, and shown as a tracker. Python computes any
other expression on converted values: constants, FakeTensors under the trace's fake mode, SymInts whose comparisons add
no guard. An expression that needs a tensor's data (``loss.item()``, the truth of ``z.isnan().any()``) is computed again
on the real values of this call. User functions that an expression calls really run. ``ctx`` is
torch's ``ComptimeContext`` and ``tx`` the translator, unless the program has variables of these names. An expression's
changes of the trace are undone and reported: ``ctx.graph_break()`` and ``ctx.get_local("n").force_static()`` have no
effect. Statements in the console that assign to the program's variables are not run here: see ``what_if``. Runs on the
tracing thread; the agent limits the time.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from dynamo_dap.debuggee.agent.frames import LOG_CONTEXT
from dynamo_dap.debuggee.agent.stepping import Assignment, ChangesTrace
from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import evaluating_on_real_values
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_fake_tensor
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import WouldChangeTensor, data_dependent_reason, is_of_dynamo
from dynamo_dap.debuggee.torch_api.traced.symbols import hint_of
from dynamo_dap.debuggee.torch_api.traced.trace_state import Undo
from dynamo_dap.debuggee.torch_api.traced.traced_frame import MISSING, TracedFrame
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import NumberForm
from dynamo_dap.debuggee.trace.conversion import Converter
from dynamo_dap.debuggee.trace.expressions import (
    Parsed,
    assigned_of_program,
    check_assignments,
    is_repeatable,
    names_used,
    parse,
    rename_calls,
    replace_paths,
)
from dynamo_dap.debuggee.trace.forms import UNKNOWN
from dynamo_dap.debuggee.trace.paths import INTERPRETER_NAMES, Paths
from dynamo_dap.debuggee.trace.placeholders import has_attribute, type_of
from dynamo_dap.debuggee.trace.runs import current_run
from dynamo_dap.debuggee.trace.traced_view import TracedView, proven
from dynamo_dap.debuggee.values.model import EvaluationError, Followed, ShownTensor, Value, text_with_data
from dynamo_dap.debuggee.values.python_values import present
from dynamo_dap.debuggee.values.tensors import little_data, printed_text
from dynamo_dap.protocol.texts import first_line_of

_NOTHING = object()
_NATIVE_FRAMES = "\nException raised from "
"""The beginning of the C++ frames that torch appends to an error's text."""
_SUBSTITUTES: dict[str, tuple[str, Callable[..., object]]] = {
    "type": ("__type_of__", type_of),
    "hasattr": ("__has_attribute__", has_attribute),
}
"""Builtins that inspect the object itself, with the names that replace them in an expression."""
_MAXIMUM_CLIPBOARD = 100_000
"""Maximum characters to copy: a clipboard takes the whole value, a pane its beginning."""


def evaluate(
    frame: TracedFrame,
    expression: str,
    context: str,
    console: Callable[[str], None],
    scratch: dict[str, object] | None = None,
) -> Value:
    """Return the value of ``expression`` in a frame.

    ``context`` is DAP's; in ``repl`` statements run as well, and ``scratch`` keeps the names they assign. Output goes
    to ``console``.

    Raises:
        EvaluationError: the expression has no value; the text says why.
        Exception: the expression raised it.
    """
    evaluation = _Evaluation(frame, scratch if scratch is not None else {}, console, reports=context == "repl")
    parsed = parse(expression, statements_allowed=context == "repl")
    if parsed.is_bare:
        value = evaluation.paths.follow(parsed.expression)  # type: ignore[arg-type]  # parsed as an expression
        if value is not UNKNOWN:
            return evaluation.shown(value, expression.strip(), context)
    if context == "repl" and evaluation.assigns_to_program(parsed):
        raise ChangesTrace(Assignment(expression, frame))
    result = evaluation.compute(parsed)
    if result is _NOTHING:
        return Value("")
    return evaluation.shown_result(result, expression, expression.strip() if parsed.is_bare else None, context)


def evaluate_to_python(frame: TracedFrame, expression: str, names: dict[str, object] | None = None) -> object:
    """Return the truth of ``expression``, or its value if that is a plain constant, for conditions.

    ``names`` can be used besides those of the frame.

    Raises:
        EvaluationError: the expression has no value, or no truth while tracing; the text says why.
    """
    evaluation = _Evaluation(frame, names or {}, lambda text: None)
    return evaluation.compute(parse(expression, statements_allowed=False), finish=_settled)


def evaluate_to_tensor(
    frame: TracedFrame, expression: str, console: Callable[[str], None], scratch: dict[str, object]
) -> ShownTensor:
    """Return the tensor that ``expression`` gives in this call, with its data.

    Raises:
        EvaluationError: the expression gives no tensor with data; the text says why.
        Exception: the expression raised it.
    """
    evaluation = _Evaluation(frame, scratch, console)
    return evaluation.shown_tensor(evaluation.tensor(expression))


class _NeedsData(EvaluationError):
    """An expression asks for a tensor's data, which symbols do not have."""


def _settled(value: object) -> object:
    """Return a value whose truth can be tested later, outside the protected evaluation."""
    if is_fake_tensor(value):
        raise _NeedsData("the truth of this tensor depends on data, which does not exist while tracing")
    plain = value is None or is_exactly(value, (bool, int, float, str))
    return value if plain else bool(value)


def _with_data(value: object) -> object:
    if is_fake_tensor(value):
        raise _NeedsData("the tensor has no data while tracing")
    return value


def _revert(undo: Undo) -> list[str]:
    """Revert the changes of the trace, and return them as readable text.

    Raises:
        EvaluationError: some change could not be reverted.
    """
    changes, left = undo.revert()
    if left:
        raise EvaluationError(f"the expression changed the trace, and this could not be reverted: {', '.join(left)}")
    return changes


class _Evaluation:
    """One evaluation in one frame."""

    def __init__(
        self, frame: TracedFrame, scratch: dict[str, object], console: Callable[[str], None], *, reports: bool = False
    ) -> None:
        """Evaluate in ``frame``. A change of the trace is an error or, with ``reports``, is shown in the console."""
        self._frame = frame
        self._reports = reports
        self._scratch = scratch
        self._console = console
        self._view = TracedView(frame)
        self._converter = Converter(self._view)
        self.paths = Paths(frame, scratch)

    def assigns_to_program(self, parsed: Parsed) -> bool:
        """Return whether statements assign to variables or objects of the program."""
        return assigned_of_program(parsed, self._is_of_program)

    def shown(self, value: object, expression: str | None, context: str) -> Value:
        """Return the value of a path in displayed form."""
        if context == "clipboard":
            return Value(self._view.text(value, _MAXIMUM_CLIPBOARD, _MAXIMUM_CLIPBOARD))
        if context == LOG_CONTEXT and current_run().call is not None:
            form = self.paths.form_of(value)
            if isinstance(form, NumberForm) and (number := hint_of(form.number)) is not None:
                return present(number)  # a symbol has the same number at all lines of a call
        return self._view.value(value, expression)

    def shown_result(self, result: object, text: str, expression: str | None, context: str) -> Value:
        """Return the value of ``text`` in displayed form; a tracker's own object opens like the tracker."""
        origin = self._converter.origin_of(result)
        shown = self.shown(result if origin is None else origin, expression, context)
        if origin is not None or context == "clipboard":
            return shown
        if not is_fake_tensor(result):
            return replace(shown, text=proven(shown.text, self._converter.why_not_proven))

        def tensor() -> Any:
            computed = _Evaluation(self._frame, self._scratch, self._console)  # an error if it changes the trace
            try:
                return computed.tensor(text)
            finally:
                self._converter = computed._converter

        with_number = self._with_number(shown.text, result, tensor)
        is_printed = context == "repl" and with_number == shown.text and is_repeatable(text)
        return replace(
            shown,
            text=with_number,
            children=Followed(shown.children, tuple, lambda: self.shown_tensor(tensor())),
            printed_text=(lambda: self._printed(shown.text, tensor)) if is_printed else None,
        )

    def tensor(self, text: str) -> Any:
        """Return the tensor that the expression ``text`` gives in this call; raises as ``evaluate_to_tensor``."""
        return self.compute(parse(text, statements_allowed=False), finish=_with_data)

    def shown_tensor(self, tensor: Any) -> ShownTensor:
        """Return what ``tensor`` has computed last as it is shown."""
        return ShownTensor(tensor, self._converter.why_not_proven)

    def _printed(self, text: str, tensor: Callable[[], Any]) -> str | None:
        """Return the text of a computed tensor with its data; None if it has none."""
        try:
            printed = printed_text(text, tensor())
        except Exception:  # noqa: BLE001  (opening the value says why it has none)
            return None
        return None if printed is None else proven(printed, self._converter.why_not_proven)

    def _with_number(self, text: str, result: Any, tensor: Callable[[], Any]) -> str:
        """Return the text of a computed tensor, with its number if it has a single element."""
        if result.dim():
            return text
        try:
            data = little_data(tensor())
        except Exception:  # noqa: BLE001  (opening the value says why it has none)
            data = None
        return text if data is None else text_with_data(text, f"= {proven(data, self._converter.why_not_proven)}")

    def compute(self, parsed: Parsed, finish: Callable[[object], object] = lambda value: value) -> object:
        """Run the code and return its value, or ``_NOTHING``. ``finish`` converts the value in the same isolation."""
        whole_trace = bool(self._interpreter_names(parsed))
        check_assignments(parsed, self._is_of_program)
        replace_paths(parsed, self.paths.follow, UNKNOWN)
        rename_calls(parsed, {name: new for name, (new, _) in _SUBSTITUTES.items() if not self._is_known(name)})
        try:
            return self._computed(parsed, finish, self._frame.evaluating(), whole_trace=whole_trace)
        except _NeedsData:
            self._converter = Converter(self._view, real=True)
            return self._computed(parsed, finish, evaluating_on_real_values(), whole_trace=whole_trace)

    def _computed(
        self,
        parsed: Parsed,
        finish: Callable[[object], object],
        isolation: AbstractContextManager[None],
        *,
        whole_trace: bool,
    ) -> object:
        names = _Names(self._name, self._converter.convert, parsed.paths, self._scratch)
        undo = self._frame.undo(whole_trace=whole_trace)
        try:
            with _printing_to(self._console), isolation:
                result = self._run(parsed, names, finish)
            self._converter.check_unchanged()
        except BaseException as problem:
            _revert(undo)
            if isinstance(problem, FeatureMissing):
                raise EvaluationError(str(problem)) from None
            raise
        changes = _revert(undo)
        if changes:
            text = f"this would have changed the trace ({', '.join(changes)}); it was reverted"
            if not self._reports:
                raise EvaluationError(text)
            self._console(f"{text}\n")
        return result

    def _run(self, parsed: Parsed, names: _Names, finish: Callable[[object], object]) -> object:
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
                raise _NeedsData(reason) from None
            if is_of_dynamo(problem):
                reason = first_line_of(problem)
                raise EvaluationError(f"not done, because this would end or restart the trace: {reason}") from None
            if _NATIVE_FRAMES in str(problem):
                raise EvaluationError(
                    f"{type(problem).__name__}: {str(problem).partition(_NATIVE_FRAMES)[0]}"
                ) from None
            raise

    def _interpreter_names(self, parsed: Parsed) -> frozenset[str]:
        used = names_used(parsed) & INTERPRETER_NAMES.keys()
        return frozenset(name for name in used if not self._is_of_program(name))

    def _is_of_program(self, name: str) -> bool:
        return name not in self._scratch and (self._frame.is_declared(name) or name in self._frame.globals)

    def _is_known(self, name: str) -> bool:
        return name in self._scratch or self._is_of_program(name)

    def _name(self, name: str) -> object:
        """Return the converted value of a name, for the running expression."""
        value = self._frame.lookup(name)
        if value is not MISSING:
            return self._converter.convert(value)
        if name in INTERPRETER_NAMES:
            return INTERPRETER_NAMES[name](self._frame)
        if self._frame.is_declared(name):
            raise EvaluationError(f"'{name}' has no value here: it is not assigned yet, or its last use is past")
        raise NameError(f"name '{name}' is not defined")


class _Names(dict[str, Any]):
    """The names that an expression sees; the frame's variables are converted when they are first read."""

    def __init__(
        self,
        name: Callable[[str], object],
        convert: Callable[[object], object],
        paths: dict[str, object],
        scratch: dict[str, object],
    ) -> None:
        super().__init__(scratch)
        dict.__setitem__(self, "__builtins__", builtins)
        for new_name, function in _SUBSTITUTES.values():
            dict.__setitem__(self, new_name, function)
        self._name = name
        self._convert = convert
        self._paths = paths
        self.assigned: dict[str, object] = {}

    def __missing__(self, name: str) -> object:
        value = self._convert(self._paths[name]) if name in self._paths else self._name(name)
        dict.__setitem__(self, name, value)
        return value

    def __setitem__(self, name: str, value: object) -> None:
        self.assigned[name] = value
        super().__setitem__(name, value)


class _OfThisThread(io.TextIOBase):
    """A text stream that takes one thread's output, and passes all other output on to the replaced stream."""

    def __init__(self, original: Any, write: Callable[[str], None]) -> None:
        self._original = original
        self._write = write
        self._thread = threading.get_ident()
        self._passing_on = False

    def write(self, text: str) -> int:
        if threading.get_ident() != self._thread or self._passing_on:
            return int(self._original.write(text))
        self._passing_on = True
        try:
            self._write(text)
        finally:
            self._passing_on = False
        return len(text)

    def flush(self) -> None:
        if self._original is not None:
            self._original.flush()

    def writable(self) -> bool:
        return True

    def __getattr__(self, name: str) -> object:
        return getattr(self._original, name)


@contextlib.contextmanager
def _printing_to(console: Callable[[str], None]) -> Iterator[None]:
    """Send what this thread prints, to stdout or stderr, to ``console``."""
    before = sys.stdout, sys.stderr
    sys.stdout = _OfThisThread(before[0], console)
    sys.stderr = _OfThisThread(before[1], console)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
