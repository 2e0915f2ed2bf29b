"""Handles requests about a held thread's stack, virtual sources and locations.

Runs on the held thread. ``locations``, and ``source`` for a source of the session, run on the agent's reader thread.
"""

from __future__ import annotations

import linecache
import os

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.debuggee.agent.pause import Pause
from dynamo_dap.debuggee.agent.requests import handles, handles_while_held
from dynamo_dap.debuggee.agent.user_code import is_torch_file, replaces_builtin
from dynamo_dap.debuggee.bytecode.constants import without_addresses
from dynamo_dap.debuggee.bytecode.line_table import is_cell
from dynamo_dap.debuggee.values.model import Location, ScopeOfFrame, VirtualSource
from dynamo_dap.protocol.requests.contract import ErrorId
from dynamo_dap.protocol.wire.types import (
    ExceptionInfoArguments,
    ExceptionInfoResponseBody,
    LocationsArguments,
    LocationsResponseBody,
    Scope,
    ScopesArguments,
    ScopesResponseBody,
    Source,
    SourceArguments,
    SourceResponseBody,
    StackFrame,
    StackTraceArguments,
    StackTraceResponseBody,
)


@handles_while_held(
    "stackTrace",
    StackTraceArguments,
    lambda agent, arguments: agent.threads.pause_of(arguments.thread_id),
    is_bounded=False,
)
def stack_trace(agent: Agent, pause: Pause, arguments: StackTraceArguments) -> StackTraceResponseBody:
    """Return a page of the stack, top first."""
    frames = _shown(pause, agent.options.just_my_code)
    start = max(0, arguments.start_frame or 0)
    end = start + arguments.levels if arguments.levels else len(frames)
    just_my_code = agent.options.just_my_code
    shown = [
        _stack_frame(agent, pause, frame, is_subtle=_is_subtle(frame, just_my_code, is_top=index == 0))
        for index, frame in enumerate(frames[start:end], start=start)
    ]
    return StackTraceResponseBody(shown, total_frames=len(frames))


def _shown(pause: Pause, just_my_code: bool) -> list[Frame]:
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


def _number(arguments: SourceArguments) -> int:
    return (arguments.source.source_reference if arguments.source else None) or arguments.source_reference


def _pause_of_source(agent: Agent, arguments: SourceArguments) -> Pause | None:
    return agent.references.find(_number(arguments), "source reference").pause


@handles_while_held("source", SourceArguments, _pause_of_source)
def source(agent: Agent, pause: Pause | None, arguments: SourceArguments) -> SourceResponseBody:
    """Return the text of a virtual source."""
    target = agent.references.find(_number(arguments), "source reference").target
    if not isinstance(target, VirtualSource):
        raise RequestError(f"{_number(arguments)} is not a source reference", error_id=ErrorId.UNKNOWN_REFERENCE)
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
