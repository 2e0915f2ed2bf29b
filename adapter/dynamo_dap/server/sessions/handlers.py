"""Answers the requests that the server serves itself, or splits between the backends. Plain functions on the loop.

Importing this module registers them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import msgspec

from dynamo_dap.protocol.access.access_tokens import is_loopback
from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.contract import ErrorId
from dynamo_dap.protocol.requests.options import (
    COMPILING_OPTIONS,
    AttachArguments,
    HandedOverTarget,
    LaunchArguments,
    SessionOptions,
)
from dynamo_dap.protocol.wire.types import (
    Breakpoint,
    BreakpointEventBody,
    CancelArguments,
    Capabilities,
    ContinuedEventBody,
    DisconnectArguments,
    InitializeRequestArguments,
    SetBreakpointsArguments,
    SetDataBreakpointsArguments,
    SetExceptionBreakpointsArguments,
    SetFunctionBreakpointsArguments,
    SetInstructionBreakpointsArguments,
    TerminateArguments,
    Thread,
    ThreadEventBody,
)
from dynamo_dap.server.backends.backend import Backend
from dynamo_dap.server.backends.breakpoints import Remembered, conditions_refused
from dynamo_dap.server.backends.debugpy_side import given_arguments
from dynamo_dap.server.backends.routing import Answers, Merge, Sharing
from dynamo_dap.server.client.capabilities import AGENT_CAPABILITIES, EAGER_CAPABILITIES, offering, union
from dynamo_dap.server.client.errors import RequestRefused
from dynamo_dap.server.launching.options import read_options, target_of, unknown_attributes
from dynamo_dap.server.launching.program import Job, prepare
from dynamo_dap.server.programs import starting
from dynamo_dap.server.programs.debuggee import Debuggee, StartMethod
from dynamo_dap.server.sessions.session import NoArguments, Phase, Session, broadcasts, handlers, handles


@handles("initialize", InitializeRequestArguments, before_initialize=True)
def initialize(session: Session, arguments: InitializeRequestArguments) -> Capabilities:
    """Return the capabilities of the handlers, the agent and debugpy together."""
    if session.client.is_introduced:
        raise RequestRefused(ErrorId.INITIALIZED_TWICE, "'initialize' was sent before")
    session.client.introduce(arguments)
    parts = [AGENT_CAPABILITIES, EAGER_CAPABILITIES, *(handler.capabilities for handler in handlers.values())]
    return offering(union(parts), session.filters)


@handles("launch", msgspec.Raw)
def launch(session: Session, raw: msgspec.Raw) -> Awaitable[None]:
    """Start the program; it waits for ``configurationDone``."""
    session.refuse_second_start()
    options = read_options(raw, LaunchArguments, "launch")
    session.check_access(options.access_token)
    job = prepare(options)
    _warn(session, raw, LaunchArguments)
    debuggee = session.new_debuggee(StartMethod.LAUNCH, job.name)
    session.job, session.given = job, given_arguments(raw)
    return _initialized_after(
        session, session.start(debuggee, starting.launch(debuggee, job, session.client, session.given))
    )


@handles("attach", msgspec.Raw)
def attach(session: Session, raw: msgspec.Raw) -> Awaitable[None]:
    """Connect to a program that listens, or wait for one that connects."""
    session.refuse_second_start()
    options = read_options(raw, AttachArguments, "attach")
    session.check_access(options.access_token)
    target = target_of(options)
    _warn(session, raw, AttachArguments)
    # Over TCP, "accessToken" is the server's token; the program's may be in "connect".
    token = target.access_token or (options.access_token if session.access.token is None else None)
    given = given_arguments(raw)
    if isinstance(target, HandedOverTarget):
        name, is_local = str(given.get("name", "a program that connected")), target.is_local
    else:
        name, is_local = f"{target.host}:{target.port}", is_loopback(target.host)
    debuggee = session.new_debuggee(StartMethod.ATTACH, name, is_local=is_local)
    start = session.start(debuggee, starting.attach(debuggee, options, token, session.client, given))
    return _initialized_after(
        session, _with_other_ranks(session, debuggee, start, options, str(given.get("name", name)))
    )


async def _with_other_ranks(
    session: Session, debuggee: Debuggee, start: Awaitable[None], options: AttachArguments, name: str
) -> None:
    await start
    meeting = options.meeting or (debuggee.ranks.target if debuggee.ranks is not None else None)
    if meeting is not None:
        await session.join_ranks(debuggee, meeting, name)


async def _initialized_after(session: Session, start: Awaitable[None]) -> None:
    await start
    session.client.event("initialized")


@broadcasts(
    "configurationDone",
    NoArguments,
    brings=Capabilities(supports_configuration_done_request=True),
    after_end=True,
)
def configuration_done(session: Session, raw: msgspec.Raw, arguments: NoArguments) -> Merge:
    """Let the program run."""
    session.is_configured = True
    debuggee = session.debuggee

    def merge(answers: Answers) -> None:
        if debuggee is not None:
            # Do this after the answer, which has no body.
            asyncio.get_running_loop().call_soon(debuggee.events.report_early_stops)
        if session.rank is not None:
            session.rank.runs()

    return merge


def _warn(session: Session, raw: msgspec.Raw, known: type[SessionOptions]) -> None:
    for warning in unknown_attributes(raw, known):
        session.client.output(warning)
    given = given_arguments(raw)
    if given.get("subProcess") is True and given.get("eager") is False:
        session.client.output('"subProcess": child processes are debugged in eager sessions only.', "important")
    without = [name for name in COMPILING_OPTIONS if given.get("noDebug") and given.get(name)]
    if without:
        names = ", ".join(f'"{name}"' for name in without)
        session.client.output(f"{names}: no effect without debugging.", "important")


_NOT_FOR_NEW_PROCESSES = "setInstructionBreakpoints"


class _RestartArguments(msgspec.Struct):
    arguments: msgspec.Raw = msgspec.Raw(b"null")
    """New ``launch`` arguments, if any."""


@handles("restart", _RestartArguments, brings=Capabilities(supports_restart_request=True))
async def restart(session: Session, arguments: _RestartArguments) -> None:
    """Kill the program and launch it again."""
    job = _next_job(session, arguments.arguments)
    await _discard(session)
    debuggee = session.new_debuggee(StartMethod.LAUNCH, job.name)
    try:
        await session.start(debuggee, _launch_again(session, debuggee, job))
    except BaseException:
        session.fail_start("The program could not be started again.")
        raise
    session.job = job
    if session.is_configured:
        # Not awaited: the answer to ``restart`` must precede the first stop.
        for backend in debuggee.backends:
            backend.send("configurationDone", None, lambda response: None)


def _next_job(session: Session, raw: msgspec.Raw) -> Job:
    if session.phase is not Phase.RUNNING:
        raise RequestRefused(ErrorId.NOT_RESTARTABLE, "no program is running, so none can be restarted")
    if session.job is None or session.debuggee is None or session.debuggee.start_method is not StartMethod.LAUNCH:
        text = "only a program that this session launched can be restarted"
        raise RequestRefused(ErrorId.NOT_RESTARTABLE, text)
    if bytes(raw) == b"null":
        return prepare(session.job.options)
    options = read_options(raw, LaunchArguments, "restart")
    return prepare(options)


async def _discard(session: Session) -> None:
    """End the present process silently: for the IDE, the session continues."""
    old = session.debuggee
    assert old is not None
    session.phase = Phase.STARTING
    old.events.is_silent = True
    for thread_id in old.events.stopped_threads.held:
        # Without this event, VS Code would show this old stop instead of the new process's first one.
        session.client.event("continued", ContinuedEventBody(thread_id=thread_id, all_threads_continued=False))
    for thread_id in old.events.stopped_threads.ever_stopped:
        session.client.event("thread", ThreadEventBody(reason="exited", thread_id=thread_id))
    await old.leave(kill=True)
    old.close()


async def _launch_again(session: Session, debuggee: Debuggee, job: Job) -> None:
    await starting.launch(debuggee, job, session.client, session.given)
    session.breakpoints.forget_process()
    for remembered in session.breakpoints.in_force():
        if remembered.command != _NOT_FOR_NEW_PROCESSES:
            await _set_again(session, debuggee, remembered, job.options.launch_timeout)


async def _set_again(session: Session, debuggee: Debuggee, remembered: Remembered, timeout: float) -> None:
    answers: list[tuple[Backend, msgspec.Raw]] = []
    for backend in debuggee.backends:
        arguments = remembered.share(backend, remembered.arguments)
        if arguments is None:
            continue
        try:
            raw = await backend.connection.request(remembered.command, arguments, timeout=timeout)
        except (RequestFailed, TimeoutError) as error:
            session.client.output(f"Not set again after the restart: {error}", "important")
            continue
        answers.append((backend, raw))
    if answers:
        _report_changed(session, session.breakpoints.merge(remembered, answers).breakpoints)


@broadcasts("setBreakpoints", SetBreakpointsArguments)
def set_breakpoints(session: Session, raw: msgspec.Raw, arguments: SetBreakpointsArguments) -> Sharing:
    """Set one source's line breakpoints."""
    source = arguments.source
    if not source.path and not source.source_reference:
        text = "setBreakpoints arguments: a source needs a path or a reference - at `$.source`"
        raise RequestRefused(ErrorId.INVALID_ARGUMENTS, text)
    key = source.path or f"{source.name} {source.source_reference}"
    count = len(arguments.breakpoints if arguments.breakpoints is not None else arguments.lines or [])
    return _remember(session, "setBreakpoints", key, raw, count)


@broadcasts(
    "setFunctionBreakpoints", SetFunctionBreakpointsArguments, brings=Capabilities(supports_function_breakpoints=True)
)
def set_function_breakpoints(session: Session, raw: msgspec.Raw, arguments: SetFunctionBreakpointsArguments) -> Sharing:
    """Set breakpoints by function name."""
    return _remember(session, "setFunctionBreakpoints", "", raw, len(arguments.breakpoints))


@broadcasts(
    "setInstructionBreakpoints",
    SetInstructionBreakpointsArguments,
    brings=Capabilities(supports_instruction_breakpoints=True),
)
def set_instruction_breakpoints(
    session: Session, raw: msgspec.Raw, arguments: SetInstructionBreakpointsArguments
) -> Sharing:
    """Set breakpoints on instructions. A new process has other addresses, so they are not set again."""
    return _remember(session, "setInstructionBreakpoints", "", raw, len(arguments.breakpoints))


@broadcasts("setDataBreakpoints", SetDataBreakpointsArguments, brings=Capabilities(supports_data_breakpoints=True))
def set_data_breakpoints(session: Session, raw: msgspec.Raw, arguments: SetDataBreakpointsArguments) -> Sharing:
    """Set breakpoints on changes of variables and attributes, and on their guards."""
    return _remember(session, "setDataBreakpoints", "", raw, len(arguments.breakpoints))


@broadcasts("setExceptionBreakpoints", SetExceptionBreakpointsArguments)
def set_exception_breakpoints(
    session: Session, raw: msgspec.Raw, arguments: SetExceptionBreakpointsArguments
) -> Sharing:
    """Set the exception filters of all backends."""
    count = len(arguments.filters) + len(arguments.filter_options or [])
    return _remember(session, "setExceptionBreakpoints", "", raw, count, conditions_refused(raw))


def _remember(
    session: Session, command: str, key: str, raw: msgspec.Raw, count: int, refused: dict[int, str] | None = None
) -> Sharing:
    remembered = Remembered(command, key, raw, count, refused=refused or {})

    def merge(answers: Answers) -> object:
        return session.breakpoints.merge(remembered, answers)

    def meanwhile(reason: str) -> object:
        return session.breakpoints.pending(remembered, reason)

    return Sharing(merge, remembered.share, meanwhile, lambda body: _report_changed(session, body.breakpoints))


def _report_changed(session: Session, breakpoints: Sequence[Breakpoint] | None) -> None:
    for each in breakpoints or ():
        session.client.event("breakpoint", BreakpointEventBody(reason="changed", breakpoint=each))


class _ThreadsBody(msgspec.Struct):
    threads: list[Thread] = []


@broadcasts("threads", NoArguments, after_end=True)
def threads(session: Session, raw: msgspec.Raw, arguments: NoArguments) -> Merge:
    """Return the threads."""
    return _merge


def _merge(answers: Answers) -> object:
    if len(answers) == 1:
        return answers[0][1]
    # Both backends list the same threads. debugpy's list, the last one, has them in the order of their start.
    known: dict[int, Thread] = {}
    for _, raw in reversed(answers):
        for thread in msgspec.json.decode(bytes(raw), type=_ThreadsBody).threads:
            known.setdefault(thread.id, thread)
    return _ThreadsBody(list(known.values()))


@handles("cancel", CancelArguments, brings=Capabilities(supports_cancel_request=True))
def cancel(session: Session, arguments: CancelArguments) -> None:
    """Cancel a request or a progress. Always succeeds: an answered request needs no cancelling."""
    if arguments.request_id is not None and not session.cancel_task(arguments.request_id):
        session.router.cancel(arguments.request_id)
    if arguments.progress_id is not None and not session.cancel_start(arguments.progress_id):
        session.router.cancel_progress(arguments.progress_id)


@handles("terminate", TerminateArguments, brings=Capabilities(supports_terminate_request=True))
def terminate(session: Session, arguments: TerminateArguments) -> None:
    """Ask the program to end by itself."""
    session.terminate()


@handles(
    "disconnect",
    DisconnectArguments,
    brings=Capabilities(support_terminate_debuggee=True),
    before_initialize=True,
)
def disconnect(session: Session, arguments: DisconnectArguments) -> Awaitable[None]:
    """End the session: kill a launched program and detach from an attached one, unless the client says otherwise."""
    # Begin at once, without a task: clients may close the connection right after this.
    session.end(kill=arguments.terminate_debuggee)
    return session.wait_until_program_left()
