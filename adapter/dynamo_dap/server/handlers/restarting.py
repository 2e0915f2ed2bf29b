"""``restart``: the same job in a new process, with the same breakpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.contract import ErrorId
from dynamo_dap.protocol.options import LaunchArguments
from dynamo_dap.protocol.types import BreakpointEventBody, Capabilities, ContinuedEventBody, ThreadEventBody
from dynamo_dap.server import starting
from dynamo_dap.server.backend import Backend
from dynamo_dap.server.breakpoint_memory import Remembered
from dynamo_dap.server.debuggee import Debuggee, StartMethod
from dynamo_dap.server.errors import RequestRefused
from dynamo_dap.server.handling import handles
from dynamo_dap.server.launching.options import read_options
from dynamo_dap.server.launching.program import Job, prepare
from dynamo_dap.server.phases import Phase

if TYPE_CHECKING:
    from dynamo_dap.server.session import Session

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
        await session.start(debuggee, _bring_up(session, debuggee, job))
    except BaseException:
        session.give_up("The program could not be started again.")
        raise
    session.job = job
    if session.is_configured:
        # Not awaited: the answer to ``restart`` is to precede the first stop.
        for backend in debuggee.backends:
            backend.send("configurationDone", None, lambda response: None)


def _next_job(session: Session, raw: msgspec.Raw) -> Job:
    if session.phase is not Phase.RUNNING:
        raise RequestRefused(ErrorId.NOT_RESTARTABLE, "there is no running program to restart")
    if session.job is None or session.debuggee is None or session.debuggee.start_method is not StartMethod.LAUNCH:
        text = "a program that was attached to cannot be restarted from here: it was not started from here"
        raise RequestRefused(ErrorId.NOT_RESTARTABLE, text)
    if bytes(raw) == b"null":
        return prepare(session.job.options)
    options = read_options(raw, LaunchArguments, "restart")
    return prepare(options)


async def _discard(session: Session) -> None:
    """End the present life silently: for the IDE, the session goes on."""
    old = session.debuggee
    assert old is not None
    session.phase = Phase.STARTING
    old.events.is_silent = True
    for thread_id in old.events.stopped_threads.held:
        # VS Code would take the first stop that was not continued for the present one.
        session.client.event("continued", ContinuedEventBody(thread_id=thread_id, all_threads_continued=False))
    for thread_id in old.events.stopped_threads.ever_stopped:
        session.client.event("thread", ThreadEventBody(reason="exited", thread_id=thread_id))
    await old.leave(kill=True)
    old.close()


async def _bring_up(session: Session, debuggee: Debuggee, job: Job) -> None:
    await starting.launch(debuggee, job, session.client, session.given)
    session.breakpoints.forget_process()
    for remembered in session.breakpoints.in_force():
        if remembered.command != _NOT_FOR_NEW_PROCESSES:
            await _arm_again(session, debuggee, remembered, job.options.launch_timeout)


async def _arm_again(session: Session, debuggee: Debuggee, remembered: Remembered, timeout: float) -> None:
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
        for breakpoint_ in session.breakpoints.merge(remembered, answers).breakpoints or []:
            session.client.event("breakpoint", BreakpointEventBody(reason="changed", breakpoint=breakpoint_))
