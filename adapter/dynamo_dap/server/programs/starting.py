"""Starts a debuggee: launches a job, as the server's child or in a terminal, or connects to a listening program.

Runs on the event loop, as tasks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from dataclasses import dataclass

from dynamo_dap.protocol.access.access_tokens import read_token_file, searched_places
from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.contract import (
    ACCESS_TOKEN_VARIABLE,
    AUTHORIZE,
    LAUNCH_VARIABLE,
    AuthorizeArguments,
    ErrorId,
    Invitation,
)
from dynamo_dap.protocol.requests.options import AttachArguments, ConnectTarget, HandedOverTarget, ListenTarget
from dynamo_dap.protocol.wire.streams import SocketStream
from dynamo_dap.server.backends.debugpy_side import Greeted, is_greeted_by_debugpy
from dynamo_dap.server.client.errors import StartRefused
from dynamo_dap.server.client.ide import Client
from dynamo_dap.server.client.loop_connection import HandshakeReceiver, LoopConnection, until_any
from dynamo_dap.server.client.outgoing import connect_to
from dynamo_dap.server.launching.handing_over import ConnectionTaker, NotTaken
from dynamo_dap.server.launching.listeners import AgentListener, OnAccepted
from dynamo_dap.server.launching.options import target_of, target_of_rank
from dynamo_dap.server.launching.own_folder import CrashFolder
from dynamo_dap.server.launching.processes import ChildProcess, OwnedProcess, death_by_signal
from dynamo_dap.server.launching.program import Changes, Job, with_changes
from dynamo_dap.server.launching.terminal_process import TerminalCommand, TerminalProcess
from dynamo_dap.server.programs.connecting_programs import ConnectingPrograms
from dynamo_dap.server.programs.debuggee import Debuggee

_log = logging.getLogger(__name__)

_BOOTSTRAP_FAILED = 3
"""Exit code of ``debuggee.launch`` when it cannot start; its last line on stderr says why."""
_SHOWN_LINES = 10
_CONNECT_TIMEOUT = 10.0


async def launch(debuggee: Debuggee, job: Job, client: Client, given: dict[str, object]) -> None:
    """Start ``job`` and begin the session with its agent; clean up if that fails.

    ``given`` are the client's ``launch`` arguments.

    Raises:
        StartRefused: the program cannot be started, died first, or its agent did not answer in time.
    """
    listener = AgentListener()
    is_eager = job.options.eager and not job.options.no_debug
    debugpy = debuggee.expect_debugpy(given).invitation if is_eager else None
    if is_eager:
        debuggee.expect_children(job.options, given)
    debuggee.slow_start.waits_for(f"starting {job.python[0]}")
    try:
        starter = Starter(job, client, listener, debuggee.crash_folder, debugpy)
        debuggee.process = await starter.start(debuggee.adopt_agent)
        if not job.options.no_debug:
            await _until_agent_connects(debuggee, debuggee.process, job)
            await _introduce(debuggee, debuggee.process, job)
    finally:
        listener.close()


async def attach(
    debuggee: Debuggee, options: AttachArguments, token: str | None, client: Client, given: dict[str, object]
) -> None:
    """Connect to the program that ``options`` name, or wait for it, and begin the session with its agent.

    ``given`` are the client's ``attach`` arguments. ``token`` is the program's access token; if None, it is read from
    the user's own files.

    Raises:
        StartRefused: nobody listens there, or the program refused the session.
    """
    target = target_of(options)
    if options.ranks and isinstance(target, ConnectTarget):
        debuggee.ask_for_ranks(given, target, options)
        target = target_of_rank(target, options.ranks[0])
    if isinstance(target, ListenTarget):
        await _await_program(debuggee, target, options, client, given)
    elif isinstance(target, HandedOverTarget):
        await _take_program_over(debuggee, target, options, given)
    else:
        debuggee.slow_start.waits_for("connecting to the program")
        connected = await _connect(target)
        # Read the token file only now: a starting program writes its token before it accepts connections.
        token = token or read_token_file(target.host, target.port)
        if token is not None:
            await _connect_to_agent(debuggee, target, connected, token, options.launch_timeout)
            _expect_eager(debuggee, options, given)
        else:
            await _connect_to_debugpy(debuggee, target, connected, options, given)
    await debuggee.introduce(options)


def _expect_eager(debuggee: Debuggee, options: AttachArguments, given: dict[str, object]) -> None:
    if not options.eager:
        return
    if not debuggee.is_local:
        text = (
            "The program runs on another machine: its tracing and generated code are debugged, ordinary Python is not."
        )
        debuggee.report(text)
        return
    debuggee.expect_debugpy(given)
    debuggee.expect_children(options, given)


async def _connect_to_agent(
    debuggee: Debuggee, target: ConnectTarget, connected: socket.socket, token: str, timeout: float
) -> None:
    connection = LoopConnection(SocketStream(connected), "agent", HandshakeReceiver("the agent"))
    try:
        information = await connection.request(AUTHORIZE, AuthorizeArguments(token), timeout=timeout)
    except (RequestFailed, TimeoutError) as error:
        connection.close()
        text = f"the program at {target.host}:{target.port} did not accept the debugger: {error}"
        raise StartRefused(ErrorId.CANNOT_ATTACH, text) from None
    debuggee.adopt_agent(connection, information)


async def _await_program(
    debuggee: Debuggee, target: ListenTarget, options: AttachArguments, client: Client, given: dict[str, object]
) -> None:
    """Listen until a program with the token connects; the client can cancel this."""
    debuggee.connecting_programs = connecting_programs = ConnectingPrograms(client, given, options, target)
    debuggee.slow_start.waits_for("waiting for a program that calls dynamo_dap.connect()")
    debuggee.adopt_agent(*await connecting_programs.first())
    debuggee.ranks = connecting_programs.meeting
    if options.eager:
        connecting_programs.expect_debugpy(debuggee.expect_debugpy(given))
        debuggee.expect_children(options, given)


async def _take_program_over(
    debuggee: Debuggee, target: HandedOverTarget, options: AttachArguments, given: dict[str, object]
) -> None:
    """Take over a program that connected to the server of another session."""
    eager = debuggee.expect_debugpy(given) if options.eager else None
    if eager is not None:
        eager.uses_agents_address = True
    taker = ConnectionTaker(target)
    try:
        connected, information = await taker.take(None if eager is None else eager.invitation.token)
    except NotTaken as problem:
        raise StartRefused(ErrorId.CANNOT_ATTACH, str(problem)) from None
    debuggee.adopt_agent(LoopConnection(SocketStream(connected), "agent", HandshakeReceiver("the agent")), information)
    if eager is None:
        taker.close()
        return
    debuggee.take_over_debugpy(taker, eager)
    debuggee.expect_children(options, given)


async def _connect_to_debugpy(
    debuggee: Debuggee,
    target: ConnectTarget,
    connected: socket.socket,
    options: AttachArguments,
    given: dict[str, object],
) -> None:
    """Try debugpy's adapter, which needs no token: the program may be listening for debugpy, and not for us."""
    greeted = Greeted()
    connection = LoopConnection(SocketStream(connected), "debugpy", greeted)
    if not debuggee.is_local or not options.eager or not await is_greeted_by_debugpy(connection, greeted):
        connection.close()
        text = (
            f"no access token for the program at {target.host}:{target.port}: {searched_places(target.port)}. If the "
            'program runs with another HOME, TMPDIR or user, or on another machine, give its token as "accessToken".'
        )
        raise StartRefused(ErrorId.CANNOT_ATTACH, text)
    listener = AgentListener()
    try:
        token = listener.expect(debuggee.adopt_agent)
        await debuggee.adopt_debugpy(given, connection).inject_agent(options, listener.address, token)
        if not await until_any(options.launch_timeout, debuggee.agent_connected.wait()):
            seconds = f"{options.launch_timeout:g} s"
            text = f"the debug agent that was loaded into the program did not connect within {seconds}"
            raise StartRefused(ErrorId.CONNECT_TIMEOUT, text)
    finally:
        listener.close()
    debuggee.expect_children(options, given)


async def _until_agent_connects(debuggee: Debuggee, process: OwnedProcess, job: Job) -> None:
    seconds = job.options.launch_timeout
    await until_any(seconds, debuggee.agent_connected.wait(), process.exited)
    if debuggee.agent_connected.is_set():
        return
    if process.exited.done():
        raise _died_before_connecting(process, job)
    text = (
        f"{job.python[0]} was started, but the program did not connect to the debugger within {seconds:g} s. "
        'If starting takes longer here, raise "launchTimeout".'
    )
    raise StartRefused(ErrorId.CONNECT_TIMEOUT, text)


async def _introduce(debuggee: Debuggee, process: OwnedProcess, job: Job) -> None:
    try:
        await debuggee.introduce(job.options)
    except StartRefused:
        if await until_any(1.0, process.exited):
            raise _died_before_connecting(process, job) from None
        raise


def _died_before_connecting(process: OwnedProcess, job: Job) -> StartRefused:
    exit_code = process.exited.result()
    lines = process.recent_errors.strip().splitlines()
    if exit_code == _BOOTSTRAP_FAILED and lines:
        return StartRefused(ErrorId.DIED_BEFORE_CONNECTING, f"cannot debug {job.name}: {lines[-1]}")
    if exit_code is None:
        return StartRefused(ErrorId.DIED_BEFORE_CONNECTING, "the terminal was closed before the program started")
    how = f"died of {signal_name}" if (signal_name := death_by_signal(exit_code)) else f"exited with code {exit_code}"
    output = ". It said:\n" + "\n".join(lines[-_SHOWN_LINES:]) if lines else ", and wrote nothing to stderr"
    return StartRefused(ErrorId.DIED_BEFORE_CONNECTING, f"{job.python[0]} {how} before the program could start{output}")


async def _connect(target: ConnectTarget) -> socket.socket:
    where = f"{target.host}:{target.port}"
    try:
        return await asyncio.wait_for(connect_to(target), _CONNECT_TIMEOUT)
    except (ConnectionRefusedError, asyncio.TimeoutError, TimeoutError):
        text = f"no program listens at {where}. It must be running, and have called dynamo_dap.listen() with that port."
        raise StartRefused(ErrorId.CANNOT_ATTACH, text) from None
    except OSError as error:
        raise StartRefused(ErrorId.CANNOT_ATTACH, f"cannot connect to {where}: {error.strerror or error}") from None


@dataclass(frozen=True)
class Starter:
    """Starts ``job`` for ``client``; the program connects to ``listener``."""

    job: Job
    client: Client
    listener: AgentListener
    crash_folder: CrashFolder
    debugpy: Invitation | None = None
    """Where debugpy connects, if it is wanted."""

    async def start(self, on_agent: OnAccepted) -> OwnedProcess:
        """Start the process; ``on_agent`` is called when its agent connects, never when run without debugging.

        Raises:
            StartRefused: it could not be started.
        """
        changes = dict(self.job.environment_changes)
        command = self.job.plain_command()
        if not self.job.options.no_debug:
            command = self.job.debugged_command()
            token = self.listener.expect(on_agent)
            changes.update(self.crash_folder.variables())
            changes[LAUNCH_VARIABLE] = self.job.launch_variable(self.listener.address, token, self.debugpy)
        if self.job.options.console == "internalConsole":
            return self._start_child(command, changes)
        return await self._start_in_terminal(command, changes)

    def _start_child(self, command: list[str], changes: Changes) -> ChildProcess:
        # The program must not get the server's own secret.
        base = {**self.job.own_variables, **os.environ}
        base.pop(ACCESS_TOKEN_VARIABLE, None)
        environment, given = with_changes(base, changes), self.job.options.input_file
        path = None if given is None else self.job.cwd / given
        return ChildProcess(command, self.job.cwd, environment, self.client.program_output, input_file=path)

    async def _start_in_terminal(self, command: list[str], changes: Changes) -> TerminalProcess:
        options = self.job.options
        process = TerminalProcess()
        what = TerminalCommand(command, self.job.cwd, changes, options.console, f"dynamo-dap: {self.job.name}")
        try:
            await process.start(what, self.client, self.listener, options.launch_timeout)
        except BaseException:
            process.close()
            raise
        return process
