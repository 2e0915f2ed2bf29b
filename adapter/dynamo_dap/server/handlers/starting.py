"""``launch``, ``attach`` and ``configurationDone``: from nothing to a running program."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import msgspec

from dynamo_dap.protocol.access_tokens import is_loopback
from dynamo_dap.protocol.options import AttachArguments, LaunchArguments, SessionOptions
from dynamo_dap.protocol.types import Capabilities
from dynamo_dap.server import starting
from dynamo_dap.server.debuggee import StartMethod
from dynamo_dap.server.debugpy_backend import given_arguments
from dynamo_dap.server.handling import Answers, Merge, NoArguments, broadcasts, handles
from dynamo_dap.server.launching.options import read_options, target_of, unknown_attributes
from dynamo_dap.server.launching.program import prepare

if TYPE_CHECKING:
    from dynamo_dap.server.session import Session


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
    """Connect to a program that listens."""
    session.refuse_second_start()
    options = read_options(raw, AttachArguments, "attach")
    session.check_access(options.access_token)
    target = target_of(options)
    _warn(session, raw, AttachArguments)
    # Over TCP "accessToken" is this server's; the program's can then be given in "connect".
    token = target.access_token or (options.access_token if session.access.token is None else None)
    name = f"{target.host}:{target.port}"
    debuggee = session.new_debuggee(StartMethod.ATTACH, name, is_local=is_loopback(target.host))
    start = starting.attach(debuggee, options, token, given_arguments(raw))
    return _initialized_after(session, session.start(debuggee, start))


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
            # After the answer, which has no body.
            asyncio.get_running_loop().call_soon(debuggee.events.tell_early_stops)

    return merge


def _warn(session: Session, raw: msgspec.Raw, known: type[SessionOptions]) -> None:
    for warning in unknown_attributes(raw, known):
        session.client.output(warning)
    given = given_arguments(raw)
    if given.get("subProcess") is True and given.get("eager") is False:
        session.client.output('"subProcess": child processes are debugged in eager sessions only.', "important")
