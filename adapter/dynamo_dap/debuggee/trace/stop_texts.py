"""Writes the texts of stops in a compile: headlines, and DAP's ``exceptionInfo``. Runs on the compiling thread."""

from __future__ import annotations

import linecache
import types
from collections.abc import Sequence

from dynamo_dap.debuggee.agent.stepping import RaisedException
from dynamo_dap.debuggee.recording.advice import advice_about, failed_guard_line
from dynamo_dap.debuggee.recording.function_names import name_of_call, name_of_compile
from dynamo_dap.debuggee.torch_api.cache.guards import RequestedGuard
from dynamo_dap.debuggee.torch_api.cache.recompiles import Failure
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import user_function_name
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import HOOKS, FrameCompile
from dynamo_dap.debuggee.torch_api.compiles.errors import BackendFailure, UserError
from dynamo_dap.debuggee.torch_api.compiles.graph_breaks import BreakFacts
from dynamo_dap.debuggee.torch_api.devices.cuda_graph_texts import CudaGraphFacts
from dynamo_dap.debuggee.torch_api.traced.data_dependence import PENDING_HINTS, PENDING_TEXT, PendingSymbol
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall
from dynamo_dap.debuggee.torch_api.traced.symbols import SpecializationFacts
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.translator import CompileIdentity, restart_reasons
from dynamo_dap.debuggee.trace.runs import current_run
from dynamo_dap.debuggee.values.model import bounded_text
from dynamo_dap.debuggee.values.python_values import expected_and_actual_texts
from dynamo_dap.protocol.requests.cuda_graphs import ADVICE, OVERWRITTEN, PARTIAL, RERECORDED, SKIPPED
from dynamo_dap.protocol.wire.types import ExceptionDetails

_MAXIMUM_LENGTH = 4000
_MAXIMUM_REASON = 120
_MAXIMUM_LINE = 300
_LINES_OF_TORCHS_TEXT = 3


def raised(
    headline: str,
    lines: Sequence[str | None],
    kind: str = "",
    message: str | None = None,
    *,
    links: Sequence[str | None] = (),
) -> RaisedException:
    """Build a stop's text. ``links`` become DAP's stack trace: linked places and addresses, then whole texts."""
    text = bounded_text("\n".join(line for line in lines if line), _MAXIMUM_LENGTH)
    name = kind.rpartition(".")[2] or None
    trace = bounded_text("\n".join(line for line in links if line).strip(), _MAXIMUM_LENGTH) or None
    details = ExceptionDetails(bounded_text(message or text, _MAXIMUM_LENGTH), name, kind or None, stack_trace=trace)
    return RaisedException(bounded_text(headline, 200), text, details=details)


def graph_break(
    exception: object, facts: BreakFacts, effect: str, error: UserError | None = None, values: Sequence[str] = ()
) -> RaisedException:
    """Report a graph break: its cause, its effect on the function, hints, then torch's context.

    ``error`` is the user's error behind the break; ``values`` are the data of this call on which it depends.
    """
    headline = f"Graph break: {facts.kind}" + (f" [{facts.identifier}]" if facts.identifier else "")
    lines = [
        None if error is None else error.text,
        facts.explanation or facts.message,
        f"In this call: {', '.join(values)}." if values else None,
        f"Then: {effect}.",
        *(f"Hint (not tried): {hint}" for hint in sorted(facts.hints, key=len)),
        f"Context: {_beginning(facts.context)}" if facts.context else None,
    ]
    links = [f"See {facts.link}" if facts.link else None, _whole(facts.context)]
    return raised(headline, lines, _kind_of(exception), facts.message, links=links)


def pending_symbols(exception: BaseException, symbols: Sequence[PendingSymbol]) -> RaisedException:
    """Report data-dependent numbers that an operation creates but does not return, each with its line."""
    headline = f"Number not returned: {', '.join(symbol.name for symbol in symbols)}"
    lines = [PENDING_TEXT, *(f"{symbol.text}." for symbol in symbols), "Then: the program gets an exception."]
    lines += [f"Hint (not tried): {hint}." for hint in PENDING_HINTS]
    return raised(headline, lines, _kind_of(exception), str(exception))


def user_error(error: UserError, wrapped: BaseException | None) -> RaisedException:
    """Describe a user error in traced code; ``wrapped`` is torch's wrapper of it."""
    kind = error.kind.__qualname__
    lines: list[str | None] = [error.message or kind]
    details = ExceptionDetails(error.message or None, kind, _name_of(error.kind))
    if wrapped is None:
        lines.append("Raised while Dynamo traces; the traced code catches it.")
    elif not isinstance(wrapped, error.kind) or str(wrapped) != error.message:
        lines.append(f"Raised while Dynamo traces; the program gets {type(wrapped).__qualname__}.")
        text = bounded_text(str(wrapped).strip(), _MAXIMUM_LENGTH)
        details.inner_exception = [ExceptionDetails(text, type(wrapped).__qualname__, _name_of(type(wrapped)))]
    return RaisedException(
        kind, bounded_text("\n".join(line for line in lines if line), _MAXIMUM_LENGTH), details=details
    )


def data_changed(text: str) -> RaisedException:
    """Report the change of a watched variable."""
    return raised(text, [text])


def recompiled(compiling: FrameCompile, failures: Sequence[Failure]) -> RaisedException:
    """Report for each earlier compile the failed guard, its values and its line, and possible remedies."""
    name = name_of_compile(compiling)
    lines: list[str] = []
    links: list[str] = []
    for failure in failures:
        lines.append(failed_guard_line(failure))
        then, now = expected_and_actual_texts(failure, compiling.frame)
        if then is not None:
            lines.append(f"  value then: {then}")
        if now is not None:
            lines.append(f"  value now: {now}")
        if failure.place is not None:
            # An id before the path would become a part of the link in editors.
            links.append(f"at {failure.place.path}:{failure.place.line}")
    links = list(dict.fromkeys(links))
    lines += [f"Advice (not tried): {advice}" for advice in advice_about(compiling, failures)]
    reasons = "\n".join(failure.reason for failure in failures)
    return raised(
        f"Recompile: {name} [{compiling.compile_id}]", lines, message=reasons, links=list(dict.fromkeys(links))
    )


def limit_reached(compiling: FrameCompile, limit: str) -> RaisedException:
    """Report that a function was compiled too often."""
    lines = [
        f"This function hit torch's limit '{limit}'. Calls that match no earlier compile now run eagerly.",
        f"Hint (not tried): find the recompiles with the filter 'recompile', or raise torch's setting {limit}.",
    ]
    return raised(f"Recompile limit: {name_of_compile(compiling)} exceeds {limit}", lines)


def backend_failure(failure: BackendFailure, node_count: int) -> RaisedException:
    """Report the failed step of compiling a graph."""
    kind = type(failure.inner)
    text = str(failure.inner)
    lines = [
        f"The graph has {node_count} nodes: see the scope 'Graph'.",
        f"{failure.step} raised {kind.__name__}: {_beginning(text)}",
    ]
    headline = f"Backend failure: {failure.step} raised {kind.__name__}"
    links = [None if failure.place is None else f"at {failure.place.path}:{failure.place.line}", _whole(text)]
    return raised(headline, lines, _kind_of(failure.inner), text, links=links)


def dynamo_failed(compiling: FrameCompile, problem: BaseException) -> RaisedException:
    """Report that Dynamo itself failed."""
    inner = problem.__cause__ or problem.__context__ or problem
    lines = [
        f"Dynamo raised {type(inner).__name__}: {_beginning(str(inner))}",
        f"while it traced {name_of_compile(compiling)}",
    ]
    headline = f"Backend failure: Dynamo raised {type(inner).__name__}"
    return raised(headline, lines, _kind_of(inner), str(problem), links=[_whole(str(inner))])


def specialized(facts: SpecializationFacts, message: str) -> RaisedException:
    """Report that a size became a constant."""
    lines = [
        f"{facts.source} ({facts.symbol}) is {facts.value} from here on, for all calls that use this compile.",
        message,
    ]
    return raised(f"Specialized: {facts.source} == {facts.value}", lines)


_CUDA_GRAPHS = {
    SKIPPED: "skipped",
    PARTIAL: "some operations stay outside",
    RERECORDED: "recorded again",
    OVERWRITTEN: "overwrites an output that is still used",
}


def cuda_graph(facts: CudaGraphFacts) -> RaisedException:
    """Report an event of a CUDA graph: the reason, the user's line, possible remedies."""
    part = "the backward pass" if facts.is_backward else "the function"
    place = None if facts.place is None else f"{facts.place.path}:{facts.place.line}"
    code = None if facts.place is None else linecache.getline(facts.place.path, facts.place.line).strip()
    advice = ADVICE.get(facts.cause or "")
    lines = [
        f"{facts.text[:1].upper()}{facts.text[1:]}.",
        None if place is None else f"Where: {place}" + (f": {code}" if code else ""),
        f"CUDA graphs recorded for {part}: {facts.count}." if facts.outcome == RERECORDED else None,
        None if advice is None else f"Advice (not tried): {advice}",
    ]
    links = [None if place is None else f"at {place}"]
    return raised(f"CUDA graph: {_CUDA_GRAPHS[facts.outcome]}: {facts.text}", lines, links=links)


def guard_about_to_be_installed(requested: RequestedGuard) -> RaisedException:
    """Report that Dynamo installs a guard."""
    about = requested.readable or "the global state"
    return raised(f"Guard: {requested.check} on {about}", [f"Source: {requested.name}" if requested.name else None])


def _kind_of(exception: object) -> str:
    return _name_of(type(exception))


def _name_of(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def headline(frame: TracedFrame, identity: CompileIdentity) -> str:
    """Return the headline of a call stack: ``Tracing fn [0/0], attempt 2``, ``Call 2 of fn [0/0]``."""
    call = current_run().call
    if call is not None and not call.is_compiled_now:
        return f"{_of_call(call)[:1].upper()}{_of_call(call)[1:]} [{call.compile_id}]{_changed(call)}"
    if call is not None:
        return f"Tracing {name_of_call(call)} [{call.compile_id}]{_changed(call)}"
    text = f"Tracing {_name(frame)} [{identity.compile_id}]"
    return text if identity.attempt == 0 else f"{text}, attempt {identity.attempt + 1}"


def headline_in_history(
    frame: TracedFrame, identity: CompileIdentity, *, statements: int | None, remark: str | None
) -> str:
    """Return the headline of a stop at an earlier statement of a trace: ``Tracing fn [0/0], 12 statements back``.

    ``statements`` is None in an attempt that Dynamo abandoned.
    """
    far = {0: "back in this statement", 1: "1 statement back", None: "an abandoned attempt"}.get(
        statements, f"{statements} statements back"
    )
    text = f"{headline(frame, identity)}, {far}"
    return text if remark is None else f"{text}: {remark}"


def explain(
    reason: str, frame: TracedFrame, identity: CompileIdentity, top: types.FrameType, *, restarted: bool
) -> str:
    """Describe a stop: ``Paused on breakpoint while Dynamo traces fn [0/0], attempt 2 (restarted: ...)``."""
    call = current_run().call
    if call is not None and call.changes:
        changes = "; ".join(bounded_text(each, _MAXIMUM_REASON) for each in call.changes)
        on = "" if reason in ("changed", "goto") else f" on {reason}"
        return f"Paused{on} in a trace of {name_of_call(call)} that was {CHANGED}: {changes}"
    if call is not None:
        return f"Paused on {reason} in {_of_call(call)}, which uses cache entry {call.compile_id}"
    text = f"Paused on {reason} while Dynamo traces {_name(frame)} [{identity.compile_id}]"
    if identity.attempt == 0:
        return text
    text += f", attempt {identity.attempt + 1}"
    if restarted:
        text += ": the analysis restarted, and is back at the line where the step began"
    reasons = [_one_line(each) for each in restart_reasons(top)]
    return f"{text} (restarted: {'; '.join(reasons)})" if reasons else text


CHANGED = "changed by the debugger"


def _changed(call: CachedCall) -> str:
    return f", {CHANGED}" if call.changes else ""


def _of_call(call: CachedCall) -> str:
    name = name_of_call(call)
    return f"a cached call of {name}" if call.number is None else f"call {call.number} of {name}"


def _name(frame: TracedFrame) -> str:
    compiling = HOOKS.current
    if compiling is None or compiling.code is not frame.compiled_code:
        return user_function_name(frame.compiled_code)
    return name_of_compile(compiling)


def _beginning(text: str) -> str:
    """Return the first lines of a long text of torch; ``_whole`` has all."""
    lines = [line for line in text.splitlines() if line.strip()]
    shown = [bounded_text(line, _MAXIMUM_LINE) for line in lines[:_LINES_OF_TORCHS_TEXT]]
    more = len(lines) - len(shown)
    return "\n".join([*shown, f"… {more} more lines below"] if more else shown)


def _whole(text: str | None) -> str | None:
    """Return a text that ``_beginning`` shortens, below an empty line; None for others."""
    lines = [line for line in (text or "").splitlines() if line.strip()]
    return None if text is None or _beginning(text) == "\n".join(lines) else f"\n{text}"


def _one_line(reason: str) -> str:
    first = next((line.strip() for line in reason.splitlines() if line.strip()), "")
    return bounded_text(first, _MAXIMUM_REASON)
