"""Accepts programs that connect to a waiting session (``"listen"`` of ``attach``): one, or a job's ranks.

The first wanted program becomes this session's. For each further rank the client starts another session, whose server
takes over the connection. Ranks may connect from any machine and at any time during this session. Runs on the event
loop; lives as long as the session's program.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from dynamo_dap.protocol.access.access_tokens import is_loopback, write_token_file
from dynamo_dap.protocol.access.authorization import NamedServer, Welcome
from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.contract import CONNECT_VARIABLE, ErrorId, ProcessInformation
from dynamo_dap.protocol.requests.options import (
    TOGETHER,
    AttachArguments,
    ConnectTarget,
    HandedOverTarget,
    ListenTarget,
)
from dynamo_dap.protocol.requests.ranks import Rank
from dynamo_dap.protocol.wire.messages import decode
from dynamo_dap.protocol.wire.streams import SocketStream
from dynamo_dap.server.backends.debugpy_side import EagerSide
from dynamo_dap.server.client.errors import StartRefused
from dynamo_dap.server.client.ide import Client
from dynamo_dap.server.client.loop_connection import HandshakeReceiver, LoopConnection, until_any
from dynamo_dap.server.launching.handing_over import ConnectionGiver
from dynamo_dap.server.launching.options import token_wanted
from dynamo_dap.server.launching.program_listener import IncomingProgram, ProgramListener
from dynamo_dap.server.programs.child_sessions import start_session_of_program, texts_about_ranks
from dynamo_dap.server.programs.rank_meeting import RankMeeting

_log = logging.getLogger(__name__)

_MAXIMUM_REPORTED = 10
"""The most addresses without a valid token that are reported by name."""


class ConnectingPrograms:
    """Accepts the programs that connect to one session."""

    def __init__(
        self, client: Client, given: dict[str, object], options: AttachArguments, target: ListenTarget
    ) -> None:
        """Listen at ``target``; ``given`` are the client's ``attach`` arguments, ``options`` the checked ones.

        Raises:
            StartRefused: the address is not available, or needs a token.
        """
        token = token_wanted(target)
        where = f"{target.host}:{target.port}"
        try:
            self._listener = ProgramListener(target.host, target.port, self._report_refused)
        except OSError as error:
            raise StartRefused(ErrorId.CANNOT_ATTACH, f"cannot listen on {where}: {error.strerror or error}") from None
        self._client = client
        self._given = given
        self._options = options
        self._target = target
        self._first: asyncio.Future[tuple[LoopConnection, msgspec.Raw]] = asyncio.get_running_loop().create_future()
        self._has_first = False
        self._job: Rank | None = None
        """The rank that connected first, wanted or not, if it was a rank."""
        self._arrived: set[int] = set()
        """The numbers of the ranks that connected."""
        self._unwanted: set[object] = set()
        """The connections of ranks that wait for the others, and are not debugged."""
        self._unauthenticated: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._token_file: Path | None = None
        self._giver: ConnectionGiver | None = None
        self.meeting: RankMeeting | None = None
        """Where the ranks meet that stop together."""
        self._server = self._invite(token)

    def _invite(self, token: str | None) -> NamedServer:
        """Expect programs, and show the user how they can connect."""
        host, _, port = self._listener.address.rpartition(":")
        shown = self._listener.expect(self._on_program, token=token, repeatedly=True)
        server = NamedServer(host, int(port), shown)
        if token is None:
            try:
                self._token_file = write_token_file(host, server.port, shown)
            except OSError as error:
                self._listener.close()
                raise StartRefused(ErrorId.CANNOT_ATTACH, str(error)) from None
        variable = self._target.access_token_variable
        value = shlex.quote(str(server)) if variable is None else f'"{server.address}#${variable}"'
        self._client.output(f'Waiting for a program that calls dynamo_dap.connect(("{host}", {port})).')
        # The text contains the token, which must not be in a log.
        text = f"For programs on other machines, and for ranks: export {CONNECT_VARIABLE}={value}\n"
        self._client.program_output(text, "console")
        return server

    async def first(self) -> tuple[LoopConnection, msgspec.Raw]:
        """Return the connection of the session's own program, with its description.

        Raises:
            StartRefused: none connected in time.
        """
        seconds = self._target.timeout
        if not await until_any(seconds, self._first):
            who = "program" if self._options.ranks is None else f"wanted rank ({_listed(self._options.ranks)})"
            came = f"; {_named(self._arrived)} connected" if self._arrived else ""
            text = f"no {who} connected to {self._server.address} within {seconds:g} s with the right token{came}"
            raise StartRefused(ErrorId.CONNECT_TIMEOUT, text)
        return self._first.result()

    def expect_debugpy(self, eager: EagerSide) -> None:
        """Expect the debugpy of the session's own program here, too."""
        eager.uses_agents_address = True

        async def take(incoming: IncomingProgram) -> None:
            eager.receive(await incoming.accept())

        self._listener.expect(take, token=eager.invitation.token)

    def close(self) -> None:
        """Stop waiting; programs without a session run on."""
        self._listener.close()
        self._forget_token()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        for connected in list(self._unwanted):
            self._drop(connected)
        if self._giver is not None:
            self._giver.close()
        if self._first.done() and not self._first.cancelled():
            self._first.result()[0].close()

    # -- connections ------------------------------------------------------------------------------------------------

    async def _on_program(self, incoming: IncomingProgram) -> None:
        rank = decode(incoming.request.arguments, ProcessInformation, "information about the process").rank
        if rank is not None:
            self._note(rank)
        wanted = self._options.ranks
        if rank is not None and wanted is not None and rank.number not in wanted:
            await self._take_unwanted(incoming)
        elif not self._has_first:
            await self._take_first(incoming, rank)
        elif rank is None or self._job is None:
            await incoming.refuse("this debug session already has a program")
        else:
            await self._take_further(incoming, rank)

    def _note(self, rank: Rank) -> None:
        if self._job is None:
            self._job = rank
            if self._options.ranks is not None:
                for text, category in texts_about_ranks(rank, self._options.ranks):
                    self._client.output(text, category)
        self._arrived.add(rank.number)
        if self._timer is None and self._missing:
            seconds = self._options.launch_timeout
            self._timer = asyncio.get_running_loop().call_later(seconds, self._report_missing)

    @property
    def _missing(self) -> set[int]:
        """The wanted ranks that have not connected."""
        of = None if self._job is None else self._job.of
        wanted = self._options.ranks
        if wanted is None:
            return set(range(of or 0)) - self._arrived
        return {number for number in wanted if of is None or number < of} - self._arrived

    def _report_missing(self) -> None:
        if self._missing:
            seconds = f"{self._options.launch_timeout:g} s"
            text = f"{_named(self._missing)} did not connect to {self._server.address} within {seconds} after the first"
            self._client.output(
                f"{text} one. A rank that connects later is debugged while this session lasts.", "important"
            )

    async def _take_unwanted(self, incoming: IncomingProgram) -> None:
        how = self._options
        connected = await incoming.accept(Welcome(False, how.stretch_timeouts, how.rank_output))
        if not how.stretch_timeouts:
            connected.close()
            return
        # While this connection is open, the rank waits for the held ones.
        self._unwanted.add(connected)
        asyncio.get_running_loop().add_reader(connected, self._drop, connected)

    def _drop(self, connected: Any) -> None:
        asyncio.get_running_loop().remove_reader(connected)
        self._unwanted.discard(connected)
        connected.close()

    async def _take_first(self, incoming: IncomingProgram, rank: Rank | None) -> None:
        self._has_first = True
        try:
            connected = await incoming.accept(self._welcome)
        except OSError:
            self._has_first = False
            raise
        if rank is None:
            self._forget_token()
        else:
            if self._options.stop_ranks == TOGETHER:
                self.meeting = RankMeeting()
            self._client.output(f"{rank} connected from {incoming.host} and is debugged in this session.")
        connection = LoopConnection(SocketStream(connected), "agent", HandshakeReceiver("the agent"))
        self._first.set_result((connection, incoming.request.arguments))

    async def _take_further(self, incoming: IncomingProgram, rank: Rank) -> None:
        if not self._client.has_child_sessions:
            self._report_undebugged(rank, "this client starts no sessions")
            await self._take_unwanted(incoming)
            return
        self._giver = self._giver or ConnectionGiver(self._listener)
        connected = await incoming.accept(self._welcome)
        self._client.output(f"{rank} connected from {incoming.host}.")
        is_taken = asyncio.Event()
        information = incoming.request.arguments
        target = self._giver.offer(connected, information, is_taken.set, is_local=is_loopback(self._target.host))
        self._run(self._start_session(self._giver, rank, target, is_taken))

    @property
    def _welcome(self) -> Welcome:
        return Welcome(True, self._options.stretch_timeouts, self._options.rank_output)

    async def _start_session(
        self, giver: ConnectionGiver, rank: Rank, target: HandedOverTarget, is_taken: asyncio.Event
    ) -> None:
        meeting: ConnectTarget | None = None if self.meeting is None else self.meeting.target
        problem = None
        try:
            await start_session_of_program(self._client, self._given, str(rank), target, meeting)
            seconds = self._options.launch_timeout
            if not await until_any(seconds, is_taken.wait()):
                problem = f"no session came for it within {seconds:g} s"
        except (RequestFailed, TimeoutError) as error:
            problem = str(error)
        if problem is not None and giver.withdraw(target):
            self._report_undebugged(rank, problem)

    def _report_undebugged(self, rank: Rank, problem: str) -> None:
        self._client.output(f"{rank} runs without debugging: {problem}.", "important")

    def _report_refused(self, host: str) -> None:
        """Report a refused connection, once for each address."""
        if host in self._unauthenticated or len(self._unauthenticated) > _MAXIMUM_REPORTED:
            return
        self._unauthenticated.add(host)
        who = (
            f"A connection from {host}"
            if len(self._unauthenticated) <= _MAXIMUM_REPORTED
            else "A connection from another address"
        )
        text = f"{who} did not show the right token for {self._server.address}, and was refused."
        self._client.output(text, "important")

    def _forget_token(self) -> None:
        if self._token_file is not None:
            self._token_file.unlink(missing_ok=True)
            self._token_file = None

    def _run(self, coroutine: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _named(numbers: set[int]) -> str:
    return ", ".join(f"rank {number}" for number in sorted(numbers))
