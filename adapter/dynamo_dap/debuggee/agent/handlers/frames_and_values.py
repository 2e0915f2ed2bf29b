"""Handles requests about a held thread's frames and their values: stack, scopes, variables, evaluation, sources.

Runs on the held thread. ``locations``, and ``source`` for a source of the session, run on the agent's reader thread.
"""

from __future__ import annotations

import linecache
import os
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.agent.frames import Frame, GlobalsFrame
from dynamo_dap.debuggee.agent.pause import Pause, Reply
from dynamo_dap.debuggee.agent.requests import AnsweredLater, handles, handles_while_held
from dynamo_dap.debuggee.agent.stepping import Assignment, ChangesTrace, Jump, RequestedChange, Step, StepKind
from dynamo_dap.debuggee.agent.user_code import is_torch_file, replaces_builtin
from dynamo_dap.debuggee.bytecode.constants import without_addresses
from dynamo_dap.debuggee.bytecode.line_table import is_cell
from dynamo_dap.debuggee.values.model import (
    Children,
    EvaluationError,
    Interrupted,
    Location,
    ScopeOfFrame,
    ShownTensor,
    Value,
    Variable,
    VirtualSource,
    WriteRefused,
    text_of_raised,
)
from dynamo_dap.debuggee.values.tensor_parts import part_of_tensor
from dynamo_dap.protocol.requests.contract import TENSOR, TRACED, TRACED_TENSOR, ErrorId, MarkedVariable
from dynamo_dap.protocol.requests.tensor_requests import TensorArguments, TensorBody
from dynamo_dap.protocol.wire.types import (
    CompletionsArguments,
    CompletionsResponseBody,
    ContinuedEventBody,
    EvaluateArguments,
    EvaluateResponseBody,
    ExceptionInfoArguments,
    ExceptionInfoResponseBody,
    LocationsArguments,
    LocationsResponseBody,
    Scope,
    ScopesArguments,
    ScopesResponseBody,
    SetExpressionArguments,
    SetExpressionResponseBody,
    SetVariableArguments,
    SetVariableResponseBody,
    Source,
    SourceArguments,
    SourceResponseBody,
    StackFrame,
    StackTraceArguments,
    StackTraceResponseBody,
    ValueFormat,
    VariablePresentationHint,
    VariablesArguments,
    VariablesResponseBody,
)
from dynamo_dap.protocol.wire.types import Variable as DapVariable

T = TypeVar("T")
_READ_ONLY = "readOnly"
_INTEGER = re.compile(r"-?\d+")


# -- frames and sources ------------------------------------------------------------------------------------------------


@handles_while_held(
    "stackTrace",
    StackTraceArguments,
    lambda agent, arguments: agent.threads.pause_of(arguments.thread_id),
    is_bounded=False,
)
def stack_trace(agent: Agent, pause: Pause, arguments: StackTraceArguments) -> StackTraceResponseBody:
    """Return a page of the stack, top first."""
    frames = _shown_frames(pause, agent.options.just_my_code)
    start = max(0, arguments.start_frame or 0)
    end = start + arguments.levels if arguments.levels else len(frames)
    just_my_code = agent.options.just_my_code
    shown = [
        _stack_frame(agent, pause, frame, is_subtle=_is_subtle(frame, just_my_code, is_top=index == 0))
        for index, frame in enumerate(frames[start:end], start=start)
    ]
    return StackTraceResponseBody(shown, total_frames=len(frames))


def _shown_frames(pause: Pause, just_my_code: bool) -> list[Frame]:
    if not just_my_code:
        return list(pause.frames)
    return [frame for index, frame in enumerate(pause.frames) if index == 0 or frame.is_user_code or frame.is_label]


def _is_subtle(frame: Frame, just_my_code: bool, *, is_top: bool) -> bool:
    """Return whether an IDE should grey a frame: it is torch's, or with ``just_my_code`` any installed package's.

    An IDE selects the first frame that is not grey. So the stopped frame is not grey, unless it is torch's Python
    version of a builtin; then the IDE selects its caller.
    """
    if isinstance(frame.source, str) and replaces_builtin(frame.source):
        return True
    if is_top or frame.is_user_code:
        return False
    return just_my_code or not isinstance(frame.source, str) or is_torch_file(frame.source)


def _stack_frame(agent: Agent, pause: Pause, frame: Frame, *, is_subtle: bool) -> StackFrame:
    position = frame.position
    hint = "label" if frame.is_label else "subtle" if is_subtle else None
    return StackFrame(
        id=agent.references.number_of(frame, pause),
        name=frame.name,
        source=dap_source(agent, pause, frame.source, is_user_code=not is_subtle),
        line=position.line,
        column=position.column,
        end_line=position.end_line,
        end_column=position.end_column,
        instruction_pointer_reference=frame.instruction_pointer_reference,
        presentation_hint=hint,
    )


def dap_source(
    agent: Agent, pause: Pause | None, source: str | VirtualSource | None, *, is_user_code: bool = True
) -> Source | None:
    """Return the DAP ``Source`` of a file (by path) or a virtual source."""
    if source is None:
        return None
    hint = None if is_user_code else "deemphasize"
    if isinstance(source, VirtualSource):
        # Replace the slash of a compile's id: editors show only the part of a name after a slash.
        name = source.name.replace("/", "\N{DIVISION SLASH}")
        return Source(name=name, source_reference=agent.references.number_of(source, pause), presentation_hint=hint)
    if source.startswith("<"):
        return Source(name=source, presentation_hint="deemphasize")
    shown = Source(name=os.path.basename(source), path=source, presentation_hint=hint)
    if is_cell(source):
        text = VirtualSource(shown.name or "", lambda: "".join(linecache.getlines(source)), key=("cell", source))
        shown.source_reference = agent.references.number_of(text, pause)
    return shown


@handles_while_held("scopes", ScopesArguments, lambda agent, arguments: agent.references.frame(arguments.frame_id)[1])
def scopes(agent: Agent, pause: Pause, arguments: ScopesArguments) -> ScopesResponseBody:
    """Return the scopes of a frame."""
    frame, _ = agent.references.frame(arguments.frame_id)
    return ScopesResponseBody([_scope(agent, pause, scope) for scope in frame.scopes()])


def _scope(agent: Agent, pause: Pause, scope: ScopeOfFrame) -> Scope:
    return Scope(
        name=scope.name,
        variables_reference=agent.references.number_of(scope.children, pause),
        named_variables=scope.children.named_count if not scope.expensive else None,
        indexed_variables=scope.children.indexed_count or None if not scope.expensive else None,
        expensive=scope.expensive,
        presentation_hint=scope.presentation_hint,
        source=dap_source(agent, pause, scope.source),
    )


@handles_while_held(
    "exceptionInfo", ExceptionInfoArguments, lambda agent, arguments: agent.threads.pause_of(arguments.thread_id)
)
def exception_info(agent: Agent, pause: Pause, arguments: ExceptionInfoArguments) -> ExceptionInfoResponseBody:
    """Return the exception at which a thread stopped."""
    raised = pause.stop.exception
    if raised is None:
        raise RequestError(f"thread {arguments.thread_id} did not stop at an exception", error_id=ErrorId.NO_EXCEPTION)
    return ExceptionInfoResponseBody(
        exception_id=raised.exception_id,
        break_mode=raised.break_mode,
        description=without_addresses(raised.description),
        details=raised.details,
    )


def _source_number(arguments: SourceArguments) -> int:
    return (arguments.source.source_reference if arguments.source else None) or arguments.source_reference


def _pause_of_source(agent: Agent, arguments: SourceArguments) -> Pause | None:
    return agent.references.find(_source_number(arguments), "source reference").pause


@handles_while_held("source", SourceArguments, _pause_of_source)
def source(agent: Agent, pause: Pause | None, arguments: SourceArguments) -> SourceResponseBody:
    """Return the text of a virtual source."""
    target = agent.references.find(_source_number(arguments), "source reference").target
    if not isinstance(target, VirtualSource):
        raise RequestError(f"{_source_number(arguments)} is not a source reference", error_id=ErrorId.UNKNOWN_REFERENCE)
    return SourceResponseBody(content=target.text(), mime_type=target.mime_type)


@handles("locations", LocationsArguments)
def locations(agent: Agent, arguments: LocationsArguments) -> LocationsResponseBody:
    """Return the source and line of a location reference."""
    found = agent.references.find(arguments.location_reference, "location reference")
    location = found.target
    if not isinstance(location, Location):
        raise RequestError(
            f"{arguments.location_reference} is not a location reference", error_id=ErrorId.UNKNOWN_REFERENCE
        )
    place = dap_source(agent, found.pause, location.path)
    assert place is not None
    return LocationsResponseBody(source=place, line=location.line, column=location.column)


# -- values ------------------------------------------------------------------------------------------------------------


def _formatted_text(value: Value, wanted: ValueFormat | None, *, is_printed: bool = False) -> str:
    """Return the text of ``value`` in the format ``wanted``."""
    if wanted is not None and wanted.hex and value.type_name == "int" and _INTEGER.fullmatch(value.text):
        return hex(int(value.text))
    return value.printed if is_printed else value.row


def _pause_of_variables(agent: Agent, arguments: VariablesArguments | SetVariableArguments) -> Pause:
    return agent.references.variables(arguments.variables_reference)[1]


def _is_bounded(agent: Agent, arguments: VariablesArguments) -> bool:
    return not agent.references.variables(arguments.variables_reference)[0].takes_long


@handles_while_held("variables", VariablesArguments, _pause_of_variables, is_bounded=_is_bounded)
def variables(agent: Agent, pause: Pause, arguments: VariablesArguments) -> VariablesResponseBody:
    """Return the children of a value or scope, or a page of them."""
    children, _ = agent.references.variables(arguments.variables_reference)
    page = children.page(arguments.filter, max(0, arguments.start or 0), arguments.count or 0)
    shown = [_dap_variable(agent, pause, one, arguments.format, children) for one in page]
    return VariablesResponseBody(_uniquely_named(shown))


def _uniquely_named(variables: list[DapVariable]) -> list[DapVariable]:
    """Give each variable a unique name: clients identify a value's children by it (DAP ``Variable``)."""
    seen: Counter[str] = Counter()
    for variable in variables:
        name = variable.name
        seen[name] += 1
        if seen[name] > 1:
            variable.name = f"{name} ({seen[name]})"
    return variables


def _dap_variable(
    agent: Agent, pause: Pause, variable: Variable, wanted: ValueFormat | None, siblings: Children
) -> DapVariable:
    value = variable.value
    mark = _mark(pause, variable, siblings) if agent.is_for_vs_code else None
    make = DapVariable if mark is None else partial(MarkedVariable, menu_context=mark)
    return make(
        name=variable.name,
        value=_formatted_text(value, wanted),
        variables_reference=_children_reference(agent, pause, value),
        type=value.type_name,
        presentation_hint=_presentation_hint(value, siblings.can_write(variable.name)),
        evaluate_name=variable.evaluate_name,
        named_variables=_named_count(value),
        indexed_variables=_indexed_count(value),
        memory_reference=value.memory_reference,
        declaration_location_reference=_location_reference(agent, pause, variable.declaration),
        value_location_reference=_location_reference(agent, pause, value.location),
    )


def _mark(pause: Pause, variable: Variable, siblings: Children) -> str | None:
    """Return the mark of a variable by which VS Code shows the commands of its context menu; None for no mark."""
    value = variable.value
    is_tensor = value.children is not None and not value.lazy and value.children.is_of_tensor
    if siblings.are_traced_locals and pause.stop.history is not None and variable.evaluate_name is not None:
        return TRACED_TENSOR if is_tensor else TRACED
    return TENSOR if is_tensor else None


def _children_reference(agent: Agent, pause: Pause, value: Value) -> int:
    """Return the variables reference of a value, 0 when it has no children."""
    return agent.references.number_of(value.children, pause) if value.children is not None else 0


def _presentation_hint(value: Value, is_writable: bool) -> VariablePresentationHint | None:
    """Return a value's DAP presentation hint; ``is_writable`` says whether the user can set it."""
    attributes = list(value.attributes)
    if not is_writable and _READ_ONLY not in attributes:
        attributes.append(_READ_ONLY)
    if value.kind is None and not attributes and not value.lazy:
        return None
    return VariablePresentationHint(kind=value.kind, attributes=attributes or None, lazy=True if value.lazy else None)


def _named_count(value: Value) -> int | None:
    """Return the number of a value's named children, if it also has indexed ones: then a client reads pages."""
    if value.children is None or value.lazy or not value.children.indexed_count:
        return None
    return value.children.named_count


def _indexed_count(value: Value) -> int | None:
    """Return the number of a value's indexed children; None if there are none."""
    if value.children is None or value.lazy:
        return None
    return value.children.indexed_count or None


def _location_reference(agent: Agent, pause: Pause, location: object) -> int | None:
    return agent.references.number_of(location, pause) if location is not None else None


@handles_while_held("setVariable", SetVariableArguments, _pause_of_variables)
def set_variable(
    agent: Agent, pause: Pause, arguments: SetVariableArguments
) -> SetVariableResponseBody | AnsweredLater:
    """Change one child of a value or scope."""

    def body(value: Value, *, is_of_pause: bool) -> SetVariableResponseBody:
        return SetVariableResponseBody(
            value=_formatted_text(value, arguments.format),
            type=value.type_name,
            variables_reference=_children_reference(agent, pause, value) if is_of_pause else None,
            named_variables=_named_count(value) if is_of_pause else None,
            indexed_variables=_indexed_count(value) if is_of_pause else None,
        )

    children, _ = agent.references.variables(arguments.variables_reference)
    try:
        return body(children.write(arguments.name, arguments.value), is_of_pause=True)
    except ChangesTrace as asked:
        return changed_trace(agent, pause, asked.change, lambda value: body(value, is_of_pause=False))


def changed_trace(
    agent: Agent, pause: Pause, change: Assignment | Jump, body: Callable[[Value], object]
) -> AnsweredLater:
    """Make a change in a separate trace, and hold the thread there; ``body`` makes the answer from the new value."""

    def begin(reply: Reply) -> None:
        def answer(value: Value) -> None:
            reply.respond(body(value))

        def refuse(text: str) -> None:
            reply.refuse(text, error_id=ErrorId.CANNOT_CHANGE)

        step = Step(StepKind.CHANGE, "statement", pause.stop.engine, pause.stop.origin)
        step.asked = RequestedChange(change, answer, refuse)
        # As in ``execution._travel``: the client must not keep showing the previous stop.
        agent.send_event("continued", ContinuedEventBody(thread_id=pause.thread_id, all_threads_continued=False))
        pause.release(step)

    return AnsweredLater(begin)


def _pause_of_tensor(agent: Agent, arguments: TensorArguments) -> Pause:
    if arguments.variables_reference is not None:
        return agent.references.variables(arguments.variables_reference)[1]
    return _pause_of_expression(agent, arguments)


@handles_while_held(TENSOR, TensorArguments, _pause_of_tensor)
def tensor(agent: Agent, pause: Pause, arguments: TensorArguments) -> TensorBody:
    """Return a part of a tensor."""

    def computed(expression: str) -> ShownTensor:
        return _reporting_exceptions(lambda: _frame(agent, arguments).tensor(expression))

    if arguments.variables_reference is not None:
        shown = agent.references.variables(arguments.variables_reference)[0].tensor()
    elif arguments.expression is not None:
        shown = computed(arguments.expression)
    else:
        text = f"'{TENSOR}' takes a variables reference or an expression"
        raise RequestError(text, error_id=ErrorId.INVALID_ARGUMENTS)
    other = None if arguments.minus is None else computed(arguments.minus)
    body = part_of_tensor(shown.data, arguments, None if other is None else other.data)
    reason = shown.why_not_proven or (other and other.why_not_proven)
    if reason is not None:
        body.note = "; ".join(filter(None, [f"not proven: {reason}", body.note]))
    return body


_OfExpression: TypeAlias = EvaluateArguments | SetExpressionArguments | CompletionsArguments | TensorArguments


def _pause_of_expression(agent: Agent, arguments: _OfExpression) -> Pause:
    if arguments.frame_id is not None:
        return agent.references.frame(arguments.frame_id)[1]
    pauses = agent.threads.pauses()
    if not pauses:
        raise RequestError(
            "nothing can be evaluated while the program runs; stop it first", error_id=ErrorId.NOTHING_STOPPED
        )
    return pauses[-1]


def _frame(agent: Agent, arguments: _OfExpression) -> Frame:
    """Return the frame that a request names, else a frame of the program's globals."""
    return GlobalsFrame(agent.print) if arguments.frame_id is None else agent.references.frame(arguments.frame_id)[0]


@handles_while_held("evaluate", EvaluateArguments, _pause_of_expression)
def evaluate(agent: Agent, pause: Pause, arguments: EvaluateArguments) -> EvaluateResponseBody | AnsweredLater:
    """Evaluate an expression in a frame, or in the program's globals."""
    frame = _frame(agent, arguments)
    try:
        value = _reporting_exceptions(lambda: frame.evaluate(arguments.expression, arguments.context or "watch"))
    except ChangesTrace as asked:
        return changed_trace(agent, pause, asked.change, lambda value: EvaluateResponseBody(value.text, 0))
    return EvaluateResponseBody(
        result=_formatted_text(value, arguments.format, is_printed=arguments.context == "repl"),
        variables_reference=_children_reference(agent, pause, value),
        type=value.type_name,
        presentation_hint=_presentation_hint(value, frame.is_writable),
        named_variables=_named_count(value),
        indexed_variables=_indexed_count(value),
        memory_reference=value.memory_reference,
        value_location_reference=agent.references.number_of(value.location, pause) if value.location else None,
    )


@handles_while_held("setExpression", SetExpressionArguments, _pause_of_expression)
def set_expression(
    agent: Agent, pause: Pause, arguments: SetExpressionArguments
) -> SetExpressionResponseBody | AnsweredLater:
    """Assign to an expression in a frame."""
    frame = _frame(agent, arguments)
    try:
        value = _reporting_exceptions(lambda: frame.write(arguments.expression, arguments.value))
    except ChangesTrace as asked:
        return changed_trace(
            agent,
            pause,
            asked.change,
            lambda value: SetExpressionResponseBody(_formatted_text(value, arguments.format), type=value.type_name),
        )
    return SetExpressionResponseBody(
        value=_formatted_text(value, arguments.format),
        type=value.type_name,
        variables_reference=_children_reference(agent, pause, value),
        named_variables=_named_count(value),
        indexed_variables=_indexed_count(value),
    )


@handles_while_held("completions", CompletionsArguments, _pause_of_expression)
def completions(agent: Agent, pause: Pause, arguments: CompletionsArguments) -> CompletionsResponseBody:
    """Complete the text in the debug console."""
    lines = arguments.text.splitlines() or [""]
    line = lines[min(len(lines), max(1, arguments.line or 1)) - 1]
    column = min(max(1, arguments.column), len(line) + 1)
    return CompletionsResponseBody(list(_frame(agent, arguments).completions(line, column)))


def _reporting_exceptions(work: Callable[[], T]) -> T:
    """Run ``work``, which evaluates the user's expression; report its exception as the user's, not the debugger's."""
    try:
        return work()
    except (ChangesTrace, EvaluationError, WriteRefused, Interrupted):
        raise
    except BaseException as error:  # noqa: BLE001  (the user's expression may raise anything)
        raise EvaluationError(text_of_raised(error)) from None
