"""Opens a session for each child process of the debugged program (DAP ``startDebugging``).

A child connects, sends the token from the invitation file, and the address at which it listens for a debugger. The
server asks the client to start a session that attaches there; that session may run in another server process. The child
waits for some seconds, while its connection to this server is open. If no session comes for one child, later children
of the same run do not wait. Runs on the event loop; lives as long as one run of the program.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable

import msgspec

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.contract import (
    RUNS_ON_EVENT,
    SESSION_BEGINS_EVENT,
    ChildOffer,
    Invitation,
    RunsOnEventBody,
)
from dynamo_dap.protocol.requests.options import (
    TOGETHER,
    AttachArguments,
    ConnectTarget,
    HandedOverTarget,
    LaunchArguments,
    SessionOptions,
)
from dynamo_dap.protocol.requests.ranks import Rank
from dynamo_dap.protocol.wire.messages import Event, ProtocolError, Request, decode
from dynamo_dap.server.client.ide import Client
from dynamo_dap.server.client.loop_connection import LoopConnection
from dynamo_dap.server.launching.listeners import AgentListener
from dynamo_dap.server.launching.own_folder import make_folder
from dynamo_dap.server.programs.rank_meeting import RankMeeting

_log = logging.getLogger(__name__)

_OF_THE_PARENT = {
    *("name", "postDebugTask", "preLaunchTask", "ranks", "request", "restart", "stopOnEntry", "type"),
    *(
        {*LaunchArguments.__struct_encode_fields__, *AttachArguments.__struct_encode_fields__}
        # The extension finds the server by the attribute "python".
        - {*SessionOptions.__struct_encode_fields__, "python"}
    ),
}
"""The parent's attributes that say what to debug. Its other attributes say how, and also apply to children."""


async def start_session(
    client: Client, given: dict[str, object], name: str, target: ConnectTarget, meeting: ConnectTarget | None = None
) -> None:
    """Make the client start a session that attaches to ``target``, with the options in ``given``.

    ``meeting``: where ranks that stop together meet. Raises ``RequestFailed``, ``TimeoutError``.
    """
    await client.start_debugging(
        {**_inherited_arguments(given, meeting), "name": name, "connect": _as_configured(target)}
    )


async def start_session_of_program(
    client: Client, given: dict[str, object], name: str, target: HandedOverTarget, meeting: ConnectTarget | None
) -> None:
    """Make the client start a session for a program that connected by itself; ``target`` has its connection."""
    how = _inherited_arguments(given, meeting)
    await client.start_debugging({**how, "name": name, "handedOver": msgspec.to_builtins(target)})


def _inherited_arguments(given: dict[str, object], meeting: ConnectTarget | None) -> dict[str, object]:
    how = {key: value for key, value in given.items() if key not in _OF_THE_PARENT and key[:2] != "__"}
    if meeting is not None:
        how["meeting"] = _as_configured(meeting)
    return how


def texts_about_ranks(one: Rank, wanted: list[int]) -> list[tuple[str, str]]:
    """Return messages, with DAP's categories, about a job of which ``one`` is a rank, and only some are ``wanted``."""
    named = ", ".join(map(str, wanted)) or "none"
    texts = [(f'"ranks": of this job these are debugged: {named}; the others run without debugging.', "console")]
    missing = [number for number in wanted if one.of is not None and number >= one.of]
    if missing:
        there = f"it has {one.of}, counted from 0"
        texts.append((f'"ranks": this job has no rank {", ".join(map(str, missing))}: {there}.', "important"))
    return texts


def _as_configured(target: ConnectTarget) -> dict[str, object]:
    connect: dict[str, object] = {"host": target.host, "port": target.port}
    if target.access_token is not None:
        connect["accessToken"] = target.access_token
    return connect


async def start_rank(
    client: Client, given: dict[str, object], rank: int, target: ConnectTarget, meeting: ConnectTarget | None
) -> None:
    """Make the client start a session with another rank of a running job, at ``target``; report a failure."""
    problem = "this client starts no sessions"
    if client.has_child_sessions:
        try:
            await start_session(client, given, str(Rank(rank)), target, meeting)
        except (RequestFailed, TimeoutError) as error:
            problem = str(error)
        else:
            return
    client.output(f"Rank {rank} at {target.host}:{target.port} runs without debugging: {problem}.", "important")


class ChildSessions:
    """The child processes of one run of the program."""

    def __init__(
        self, client: Client, given: dict[str, object], options: SessionOptions, parent: Callable[[], Rank | None]
    ) -> None:
        """Take ``given``, the client's ``launch`` or ``attach`` arguments, and ``options``, parsed from them.

        ``parent`` is the program's own rank in a distributed job.
        """
        self._client = client
        self._given = given
        self._ranks = options.ranks
        self._stop_together = options.stop_ranks == TOGETHER
        self._meeting: RankMeeting | None = None
        self._parent = parent
        self._has_reported_ranks = False
        self._listener = AgentListener()
        self._children: set[_Waiting] = set()
        self._folder = make_folder()
        self._run_undebugged = False
        self.known: set[int] = set()
        """Process ids of the children that connected."""
        token = self._listener.expect(self._on_accepted, repeatedly=True)
        address = self._listener.address
        invitation = Invitation(address, token, options.ranks, options.stretch_timeouts, options.rank_output)
        self.invitation_file = self._folder / "children.json"
        self.invitation_file.touch(mode=0o600)
        self.invitation_file.write_bytes(msgspec.json.encode(invitation))

    def close(self) -> None:
        """Let waiting and later children run without a debugger."""
        self._listener.close()
        if self._meeting is not None:
            self._meeting.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        for child in list(self._children):
            child.close()

    def _on_accepted(self, connection: LoopConnection, arguments: msgspec.Raw) -> None:
        child = decode(arguments, ChildOffer, "offer of a child process")
        self.known.add(child.process_id)
        if child.rank is not None and self._ranks is not None:
            self._report_ranks(child.rank, self._ranks)
        if not child.port:
            connection.close()
            return
        waiting = _Waiting(connection, self._children.discard, lambda why: self._report_undebugged(child, why))
        if self._run_undebugged:
            waiting.close()
            return
        self._children.add(waiting)
        waiting.asking = asyncio.get_running_loop().create_task(self._start(child, waiting))

    async def _start(self, child: ChildOffer, waiting: _Waiting) -> None:
        target = ConnectTarget(host=child.host, port=child.port, access_token=child.access_token)
        try:
            await start_session(self._client, self._given, self._name_of(child), target, self._meeting_of(child))
        except (RequestFailed, TimeoutError) as error:
            self._report_undebugged(child, f"no session was started for it ({error})")
            waiting.close()
        else:
            waiting.begins()

    def _name_of(self, child: ChildOffer) -> str:
        if self._is_rank(child):
            return str(child.rank)
        parent = self._parent()
        return f"Subprocess {child.process_id}" + ("" if parent is None else f" of {parent}")

    def _meeting_of(self, child: ChildOffer) -> ConnectTarget | None:
        if not self._stop_together or not self._is_rank(child):
            return None
        self._meeting = self._meeting or RankMeeting()
        return self._meeting.target

    def _is_rank(self, child: ChildOffer) -> bool:
        """Return whether ``child`` is a rank itself; a child of a rank only inherits the rank's environment."""
        parent = self._parent()
        return child.rank is not None and (parent is None or child.rank.number != parent.number)

    def _report_ranks(self, one: Rank, wanted: list[int]) -> None:
        """Report once, at the first program of a job, what happens to ranks that are not ``wanted``."""
        if self._has_reported_ranks:
            return
        self._has_reported_ranks = True
        for text, category in texts_about_ranks(one, wanted):
            self._client.output(text, category)

    def _report_undebugged(self, child: ChildOffer, why: str) -> None:
        """Report once that ``child`` and later children run without a debugger."""
        if self._run_undebugged:
            return
        self._run_undebugged = True
        text = f"The child process {child.process_id} runs without debugging: {why}."
        self._client.output(f"{text} So will all further child processes of this run.", "important")


class _Waiting:
    """The connection of a child that waits for its session."""

    def __init__(
        self, connection: LoopConnection, on_closed: Callable[[_Waiting], None], on_abandoned: Callable[[str], None]
    ) -> None:
        self._connection = connection
        self._on_closed = on_closed
        self._on_abandoned = on_abandoned
        self.asking: asyncio.Task[None] | None = None
        connection.receiver = self

    def begins(self) -> None:
        """Start the child's last seconds of waiting: the client has accepted its session, which comes soon or never."""
        if not self._connection.is_closed:
            self._connection.send_event(SESSION_BEGINS_EVENT)

    def close(self) -> None:
        """Let the child run."""
        self._connection.close()
        self._on_closed(self)

    def on_request(self, request: Request) -> None:
        """Ignore the request: a child sends no further ones."""

    def on_event(self, event: Event) -> None:
        """Note the child's report that it no longer waits."""
        if event.event != RUNS_ON_EVENT:
            return
        try:
            seconds = decode(event.body, RunsOnEventBody, f"{RUNS_ON_EVENT} event").seconds
        except ProtocolError as error:
            self.on_invalid_message(str(error))
            return
        self._on_abandoned(f"no session came for it within {seconds:g} s")

    def on_invalid_message(self, problem: str) -> None:
        """Log the problem."""
        _log.error("a child process sent an invalid message: %s", problem)

    def on_closed(self, problem: str | None) -> None:
        """Close: the child's session is configured, or the child has ended."""
        self.close()
