"""Connects this process to a waiting debug server, at a given address or at that in ``DYNAMO_DAP_CONNECT``.

Any thread of the program may connect; the server's messages arrive on the connection's reader thread. A rank that the
session does not debug gets no agent. If the server ends or cannot be reached, the program runs on.
"""

from __future__ import annotations

import os
import queue
import sys

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.own_rank import be_spawned_as, own_rank
from dynamo_dap.debuggee.agent.serving import AgentReceiver
from dynamo_dap.debuggee.launch.children.listening import process_information
from dynamo_dap.debuggee.launch.children.rank_output import divert
from dynamo_dap.debuggee.launch.children.waiting_ranks import wait_for_held_ranks
from dynamo_dap.debuggee.launch.starting.process_agent import known_agent, note_server, process_agent
from dynamo_dap.debuggee.launch.starting.stops import pass_breakpoint_calls
from dynamo_dap.protocol.access.authorization import NamedServer, Welcome, keep_alive
from dynamo_dap.protocol.connection import Connection
from dynamo_dap.protocol.requests.contract import AUTHORIZE, CONNECT_VARIABLE, introduction
from dynamo_dap.protocol.requests.ranks import rank_in, scheduled_rank_in
from dynamo_dap.protocol.wire.local_sockets import connect_locally
from dynamo_dap.protocol.wire.messages import Event, ProtocolError, Request, Response, decode
from dynamo_dap.protocol.wire.streams import SocketStream

_SECONDS = 20.0
_POLL_SECONDS = 0.05


def connect_to(server: NamedServer) -> bool:
    """Connect this process, and return whether the session debugs it.

    Raises:
        PermissionError: the server refuses this program or its token.
        OSError: no server listens there.
    """
    connected = connect_locally(server.host, server.port, _SECONDS)
    keep_alive(connected)
    connection = Connection(SocketStream(connected), "server")
    receiver = _ServerReceiver(connection, server)
    connection.start(receiver)
    connection.send_request(AUTHORIZE, introduction(server.token, process_information()), receiver.on_answer)
    problem = receiver.problem(_SECONDS)
    if problem is not None:
        connection.close()
        raise PermissionError(f"the debug server at {server.address} refused this program: {problem}")
    welcome, rank = receiver.welcome, own_rank()
    if welcome.is_wanted:
        if rank is not None:
            agent = process_agent()
            divert(rank, welcome.rank_output, lambda text, category: _show(agent, text, category))
        return True
    if rank is not None:
        divert(rank, welcome.rank_output, lambda text, category: False)
    if welcome.stretch_timeouts:
        # The server closes the connection when its last session ends.
        wait_for_held_ranks(lambda: not connection.is_closed, lambda text: None)
    return False


def connect_from_environment() -> bool:
    """Connect to the server in ``DYNAMO_DAP_CONNECT``, and wait until it has set its breakpoints.

    Returns: Whether this process is debugged. False without the variable, and for a rank that the session does not
        debug. Also False if the connection fails: this reports the problem on stderr, and the program runs on.
    """
    reported = os.environ.pop(CONNECT_VARIABLE, None)
    agent = known_agent()
    if reported is None or (agent is not None and agent.client is not None):
        return False
    if rank_in(os.environ) is None:
        be_spawned_as(scheduled_rank_in(os.environ))
    try:
        is_wanted = connect_to(NamedServer.read(reported))
    except (OSError, ValueError) as error:
        who = own_rank() or "this program"
        name = f"{CONNECT_VARIABLE}: " if isinstance(error, ValueError) else ""
        sys.stderr.write(f"dynamo-dap: {who} runs without debugging: {name}{error}\n")
        return False
    if is_wanted:
        _wait_until_configured(process_agent())
    else:
        pass_breakpoint_calls()
    return is_wanted


def _wait_until_configured(agent: Agent) -> None:
    """Wait for the session's breakpoints, or for the end of the connection."""
    while not agent.configured.wait(_POLL_SECONDS):
        if agent.client is None:
            sys.stderr.write(f"dynamo-dap: {own_rank() or 'this program'} runs without debugging: no session began\n")
            return
    agent.eager_debugger.wait_until_configured()


def _show(agent: Agent, text: str, category: str) -> bool:
    is_there = agent.client is not None
    if is_there:
        agent.print(text, category)
    return is_there


class _ServerReceiver:
    """Receives the server's answer, then its requests, and passes these to the agent if this process has one."""

    def __init__(self, connection: Connection, server: NamedServer) -> None:
        self.welcome = Welcome()
        self._connection = connection
        self._server = server
        self._receiver: AgentReceiver | None = None
        self._problems: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def problem(self, timeout: float) -> str | None:
        """Wait for the answer; return why the server refused, or None if it did not."""
        try:
            return self._problems.get(timeout=timeout)
        except queue.Empty:
            return f"no answer within {timeout:g} s"

    def on_answer(self, response: Response) -> None:
        """Attach the agent before the session's first request arrives. Runs on the reader thread."""
        if not response.success:
            self._problems.put(response.error_text)
            return
        try:
            self.welcome = decode(response.body, Welcome, f"answer to '{AUTHORIZE}'")
        except ProtocolError as error:
            self._problems.put(str(error))
            return
        if self.welcome.is_wanted:
            agent = process_agent()
            agent.attach_client(self._connection)
            note_server(self._server)
            self._receiver = AgentReceiver(self._connection, agent)
        self._problems.put(None)

    def on_request(self, request: Request) -> None:
        """Pass the request to the agent."""
        if self._receiver is not None:
            self._receiver.on_request(request)

    def on_event(self, event: Event) -> None:
        """Ignore it: servers send no events."""

    def on_invalid_message(self, problem: str) -> None:
        """Pass the problem to the agent, which reports it."""
        if self._receiver is not None:
            self._receiver.on_invalid_message(problem)

    def on_closed(self, problem: str | None) -> None:
        """Let the program run on."""
        if self._receiver is not None:
            self._receiver.on_closed(problem)
        self._connection.close()
