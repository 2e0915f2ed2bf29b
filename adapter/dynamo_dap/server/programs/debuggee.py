"""Manages one run of the debugged program, from the start (or the connection) to the end.

Runs on the event loop. After a restart, the session has another ``Debuggee``. A launched program has a process that the
server owns and, unless it runs without debugging, an agent that speaks DAP. An attached program has only the agent.
There may also be debugpy (``debugpy_side``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Coroutine
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.contract import (
    COMPILING_EVENT,
    ENDING_EVENT,
    IMPORTING_EVENT,
    CompilingEventBody,
    ErrorId,
    ImportingEventBody,
    ProcessInformation,
)
from dynamo_dap.protocol.requests.options import (
    TOGETHER,
    AgentOptions,
    AttachArguments,
    ConnectTarget,
    LaunchArguments,
    SessionOptions,
)
from dynamo_dap.protocol.wire.messages import Event, decode
from dynamo_dap.protocol.wire.types import ProcessEventBody
from dynamo_dap.server.backends.backend import AGENT, DEBUGPY, Backend
from dynamo_dap.server.backends.backend_events import BackendEvents
from dynamo_dap.server.backends.breakpoints import BreakpointMemory
from dynamo_dap.server.backends.debugpy_side import AdoptedDebugpy, EagerSide
from dynamo_dap.server.backends.ids import AGENT as AGENT_IDS
from dynamo_dap.server.client.errors import StartRefused
from dynamo_dap.server.client.ide import Client
from dynamo_dap.server.client.loop_connection import LoopConnection, until_any
from dynamo_dap.server.launching.descendants import kill_all, ranks_below
from dynamo_dap.server.launching.handing_over import ConnectionTaker
from dynamo_dap.server.launching.options import agent_arguments, target_of_rank
from dynamo_dap.server.launching.own_folder import CrashFolder
from dynamo_dap.server.launching.processes import OwnedProcess, death_by_signal
from dynamo_dap.server.programs.child_sessions import ChildSessions, start_rank
from dynamo_dap.server.programs.connecting_programs import ConnectingPrograms
from dynamo_dap.server.programs.progress import CompileProgress, SlowStart
from dynamo_dap.server.programs.rank_meeting import RankMeeting

_LAUNCHERS = frozenset({"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"})
"""Modules that run no user code themselves."""

_log = logging.getLogger(__name__)

_LAST_WORDS_TIMEOUT = 2.0
"""After this silence, no more data is expected from an ended process; a forked child may hold its connection open."""
_PROCESS_END_TIMEOUT = 5.0
"""Seconds from the end of the agent's connection to the process's end, in an ordinary exit."""
_DISCONNECT_TIMEOUT = 2.0
_KILL_TIMEOUT = 10.0
TERMINATE_GRACE = 5.0
"""Seconds that a program gets to end itself."""


class StartMethod(Enum):
    """How debugging of the program began (DAP ``process.startMethod``)."""

    LAUNCH = "launch"
    ATTACH = "attach"


class Debuggee:
    """The program, as the session sees it."""

    def __init__(
        self,
        client: Client,
        breakpoints: BreakpointMemory,
        start_method: StartMethod,
        name: str,
        on_end: Callable[[Debuggee], None],
        *,
        is_local: bool = True,
    ) -> None:
        """Use ``name`` in the IDE; call ``on_end`` when the program has ended, or is out of reach.

        ``is_local``: the program runs on this machine.
        """
        self.start_method = start_method
        self.process: OwnedProcess | None = None
        self.agent: Backend | None = None
        self.eager: EagerSide | None = None
        """debugpy's side, if the session debugs ordinary Python."""
        self.children: ChildSessions | None = None
        """Where its child processes connect, if they are debugged."""
        self.ranks: RankMeeting | None = None
        """The meeting of attached ranks that stop together."""
        self.connecting_programs: ConnectingPrograms | None = None
        """Set if the program connected by itself, as other programs may."""
        self.information = ProcessInformation()
        self.crash_folder = CrashFolder()
        self.events = BackendEvents(
            client,
            breakpoints,
            owns_end=start_method is StartMethod.LAUNCH,
            flush_output=self._flush_output,
            followers={
                ENDING_EVENT: self._note_ending,
                IMPORTING_EVENT: self._follow_import,
                COMPILING_EVENT: self._follow_compile,
            },
        )
        verb = "Starting" if start_method is StartMethod.LAUNCH else "Attaching to"
        self.slow_start = SlowStart(client, f"{verb} {Path(name).name}")
        self._compiles = CompileProgress(client, self.events.stopped_threads)
        self.agent_connected = asyncio.Event()
        self.has_ended = False
        """Whether it is known to have ended, or to be out of reach."""
        self._agent_left = asyncio.Event()
        self._is_watched = False
        self._end_was_reported = asyncio.Event()
        self._is_being_ended = False
        self._is_detached = False
        self._is_ending = False
        """Whether its agent reported that it is ending."""
        self._client = client
        self._name = name
        self.is_local = is_local
        self._on_end = on_end
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def backends(self) -> list[Backend]:
        """The backends that take requests, the agent first."""
        found: list[Backend] = []
        if self.agent is not None and self.agent.is_ready:
            found.append(self.agent)
        if self.eager is not None and self.eager.backend is not None:
            found.append(self.eager.backend)
        return found

    def expect_debugpy(self, given: dict[str, object]) -> EagerSide:
        """Listen for debugpy; ``given`` are the client's ``launch`` or ``attach`` arguments."""
        self.eager = EagerSide(self._client, self.events, given)
        return self.eager

    def adopt_debugpy(self, given: dict[str, object], connection: LoopConnection) -> AdoptedDebugpy:
        """Use debugpy's adapter at the other end of ``connection``; ``given``: see ``expect_debugpy``."""
        self.eager = adopted = AdoptedDebugpy(self._client, self.events, given, connection)
        return adopted

    def expect_children(self, options: SessionOptions, given: dict[str, Any]) -> None:
        """Listen for child processes, if the user wants that and the client supports it."""
        if options.sub_process is False or not self.is_local:
            return
        if self._client.has_child_sessions:
            self.children = ChildSessions(self._client, given, options, lambda: self.information.rank)
        elif options.sub_process:
            text = '"subProcess": this client starts no sessions for child processes; they run without debugging.'
            self._client.output(text, "important")
        elif options.sub_process is None and isinstance(options, LaunchArguments) and options.module in _LAUNCHERS:
            text = f"{options.module} starts ranks, and this client starts no sessions for them: they run without"
            self._client.output(f"{text} debugging. Have each call dynamo_dap.listen(), and attach to it.", "important")

    def ask_for_ranks(self, given: dict[str, object], target: ConnectTarget, options: AttachArguments) -> None:
        """Start sessions with the other ranks of a running job, whose rank 0 listens at ``target``.

        Raises:
            StartRefused: the port of a rank would be too high.
        """
        others = [(rank, target_of_rank(target, rank)) for rank in (options.ranks or [])[1:]]
        if options.stop_ranks == TOGETHER:
            self.ranks = RankMeeting()
        meeting = None if self.ranks is None else self.ranks.target
        for rank, where in others:
            self._run(start_rank(self._client, given, rank, where, meeting))

    def report(self, text: str, category: str = "important") -> None:
        """Show the user ``text``."""
        self._client.output(text, category)

    def take_over_debugpy(self, taker: ConnectionTaker, eager: EagerSide) -> None:
        """Take over debugpy's connection from the server that received it."""
        self._run(taker.wait_for_debugpy(eager.receive))

    def adopt_agent(self, connection: LoopConnection, information: msgspec.Raw) -> None:
        """Take over the connection of the authorised agent, with ``information`` about its process."""
        self.information = decode(information, ProcessInformation, "information about the process")
        self.agent = Backend(AGENT, connection, self.events.take, self._on_agent_closed)
        self.agent_connected.set()

    async def introduce(self, options: SessionOptions) -> None:
        """Begin the session with the agent and debugpy, until their ``initialized`` events.

        A launched debugpy connects by itself; in an attached program the agent starts it.

        Raises:
            StartRefused: the agent refused, or did not answer in time.
        """
        assert self.agent is not None, "an agent is introduced when it is there"
        eager, is_launched = self.eager, self.start_method is StartMethod.LAUNCH
        self.slow_start.waits_for("setting up the debugger in the program")
        if eager is None:
            await self._introduce_agent(self.agent, agent_arguments(options), options.launch_timeout)
            return
        timeout = options.launch_timeout
        is_here = is_launched and await eager.wait_until_connected(timeout, self._agent_left)
        if is_here or not is_launched:
            self.agent.ids = AGENT_IDS
        invitation = None if is_launched or eager.is_adopted else eager.invitation
        arguments = agent_arguments(
            options,
            eager=is_here or not is_launched,
            invitation=invitation,
            adopts_debugpy=eager.is_adopted,
            children_file=self.children.invitation_file if self.children is not None else None,
        )
        await self._introduce_agent(self.agent, arguments, timeout)
        if is_here or (not is_launched and await eager.wait_until_connected(timeout, self._agent_left)):
            await eager.introduce(options)
            self._run(self._watch_debugpy(eager))

    async def _introduce_agent(self, agent: Backend, arguments: AgentOptions, timeout: float) -> None:
        connection = agent.connection
        try:
            await connection.request("initialize", self._client.initialize_arguments, timeout=timeout)
            await connection.request("attach", arguments, timeout=timeout)
        except RequestFailed as failure:
            raise StartRefused(ErrorId.AGENT_REFUSED, f"the program's debug agent refused: {failure}") from None
        except TimeoutError as error:
            raise StartRefused(ErrorId.CONNECT_TIMEOUT, str(error)) from None
        initialized = self.events.initialized[agent.name]
        await until_any(timeout, initialized.wait(), self._agent_left.wait())
        if not initialized.is_set():
            problem = "closed its connection" if self._agent_left.is_set() else f"was not ready within {timeout:g} s"
            text = f"the program's debug agent {problem} (waited for its 'initialized' event)"
            raise StartRefused(ErrorId.CONNECT_TIMEOUT, text)

    def announce(self) -> None:
        """Describe the process to the IDE, and warn about features that its torch lacks."""
        body = ProcessEventBody(
            name=self._name,
            system_process_id=self.information.process_id,
            is_local_process=self.is_local,
            start_method=self.start_method.value,
        )
        self._client.event("process", body)
        if self.agent is not None and (warning := version_warning(self.information)) is not None:
            self._client.output(warning, "important")

    def watch(self) -> None:
        """From now on, report the end of the program to the IDE."""
        self._is_watched = True
        if self.process is not None:
            self._run(self._watch_process(self.process))
        elif self._agent_left.is_set():
            self._end_attached()

    # -- ending it -------------------------------------------------------------------------------------------------

    def terminate(self) -> None:
        """Ask the program to end; after some seconds, kill it if the server owns its process."""
        self._is_being_ended = True
        if self.agent in self.backends:
            self.agent.send("terminate", None, lambda response: None)
        if self.eager is not None and self.eager.backend is not None:
            # A thread that debugpy holds could not end.
            self.eager.backend.send("disconnect", {"terminateDebuggee": False}, lambda response: None)
        if self.process is not None:
            if self.agent not in self.backends:
                self.process.terminate()
            self._run(self._kill_after(self.process, TERMINATE_GRACE))

    async def leave(self, *, kill: bool) -> None:
        """End the program with its whole process group, or detach from it and let it run on."""
        self._is_being_ended = True
        if self.process is not None and kill:
            await self._kill(self.process)
        else:
            for backend in reversed(self.backends):
                await self._disconnect(backend, kill=kill and backend is self.agent)
            if self.process is not None:
                self._is_detached = True
                self.process.detach()
        if self.agent is not None:
            self.agent.connection.close()
        if self.eager is not None:
            self.eager.close()
        if self.children is not None:
            self.children.close()

    async def _disconnect(self, backend: Backend, *, kill: bool) -> None:
        arguments = {"terminateDebuggee": kill}
        with contextlib.suppress(RequestFailed, TimeoutError):
            await backend.connection.request("disconnect", arguments, timeout=_DISCONNECT_TIMEOUT)
        if kill:
            await until_any(TERMINATE_GRACE, self._agent_left.wait())

    async def _kill(self, process: OwnedProcess) -> None:
        self._kill_with_ranks(process)
        if await until_any(_KILL_TIMEOUT, process.exited) and self._is_watched:
            await until_any(_KILL_TIMEOUT, self._end_was_reported.wait())

    def close(self) -> None:
        """Release everything; kill a launched process that was not detached. Must be the last call."""
        for task in self._tasks:
            task.cancel()
        self.slow_start.is_over()
        self._compiles.is_over()
        if self.eager is not None:
            self.eager.close()
        if self.agent is not None:
            self.agent.connection.close()
        if self.process is not None:
            if not self._is_detached and not self.process.exited.done():
                self._kill_with_ranks(self.process)
            self.process.close()
        if self.children is not None:
            self.children.close()
        if self.ranks is not None:
            self.ranks.close()
        if self.connecting_programs is not None:
            self.connecting_programs.close()
        self.crash_folder.close()

    # -- its end ---------------------------------------------------------------------------------------------------

    async def _watch_process(self, process: OwnedProcess) -> None:
        exit_code = await asyncio.shield(process.exited)
        if self.agent is not None:
            await self._drain(self._agent_left)
        if self.eager is not None and self.eager.backend is not None:
            await self._drain(self.eager.left)
        if self.events.is_silent:
            self._end_was_reported.set()
            return
        if exit_code is None:
            self._client.output("The terminal was closed; the program's exit status is unknown.", "important")
        else:
            signal_name = death_by_signal(exit_code)
            if signal_name is not None and not self._is_being_ended:
                self._report_death(signal_name)
            self._client.exited(exit_code)
        self._report_end()

    async def _drain(self, left: asyncio.Event) -> None:
        """Wait until no more data arrives from an ended process."""
        heard = -1
        while heard != self.events.count and not left.is_set():
            heard = self.events.count
            await until_any(_LAST_WORDS_TIMEOUT, left.wait())

    def _report_death(self, signal_name: str) -> None:
        crash_site = self.crash_folder.crash_site(self.information.process_id)
        if crash_site is None:
            self._client.output(f"The program died of {signal_name}.", "important")
            return
        where, listing = crash_site
        self._client.output(f"The program died of {signal_name} {where}.", "important")
        self._client.output(listing)

    def _flush_output(self, whole_lines: bool) -> None:
        if self.process is not None:
            self.process.flush_output(whole_lines=whole_lines)

    def _note_ending(self, event: Event) -> None:
        self._is_ending = True

    def _follow_compile(self, event: Event) -> None:
        self._compiles.take(decode(event.body, CompilingEventBody, "compiling event"))

    def _follow_import(self, event: Event) -> None:
        reported = decode(event.body, ImportingEventBody, "importing event")
        if reported.is_done:
            self.slow_start.is_over()
        else:
            self.slow_start.waits_for(f"importing {reported.module} in the program")

    def _on_agent_closed(self, backend: Backend, problem: str | None) -> None:
        self._agent_left.set()
        self._compiles.is_over()
        if problem is not None:
            _log.error("the connection to the agent broke: %s", problem)
        if self.process is None:
            self._run(self._end_after_last_messages())
        else:
            self._run(self._expect_process_end(self.process))

    async def _expect_process_end(self, process: OwnedProcess) -> None:
        """Handle a lost connection to the agent, usually because the process is ending."""
        has_ended = await until_any(_PROCESS_END_TIMEOUT, process.exited)
        if self._was_replaced or self._is_ending:
            return
        if not has_ended and not self._is_being_ended and not self.events.is_silent:
            text = (
                "The connection to the debugger's agent in the program broke; the program runs on, without debugging."
            )
            self._client.output(text, "important")
            self._report_continued(self.events.stopped_threads.ever_stopped)

    @property
    def _was_replaced(self) -> bool:
        """Whether the program has replaced itself by another (``exec``), which has its own session."""
        return self.children is not None and self.information.process_id in self.children.known

    async def _watch_debugpy(self, eager: EagerSide) -> None:
        """Report if debugpy's connection ends before the program."""
        await eager.left.wait()
        if eager.has_terminated:
            return
        ended = [] if self.process is None else [self.process.exited]
        if (
            await until_any(_LAST_WORDS_TIMEOUT, self._agent_left.wait(), *ended)
            or self._is_being_ended
            or self.events.is_silent
            or self._was_replaced
        ):
            return
        text = "The connection to debugpy in the program broke; ordinary Python is no longer debugged in this session."
        self._client.output(text, "important")
        held = self.events.stopped_threads.of(DEBUGPY)
        self.events.stopped_threads.resumed_by(DEBUGPY)
        self._report_continued(held)

    def _report_continued(self, thread_ids: list[int]) -> None:
        for thread_id in thread_ids:
            self._client.event("continued", {"threadId": thread_id, "allThreadsContinued": True})

    async def _end_after_last_messages(self) -> None:
        if self.eager is not None and self.eager.backend is not None and not self._is_being_ended:
            await self._drain(self.eager.left)
        self._end_attached()

    def _end_attached(self) -> None:
        if not self._is_being_ended and not self.events.is_silent and not self.events.terminated_was_sent:
            self._client.output("The program has ended, or closed its connection to the debugger.")
        self._report_end()

    def _report_end(self) -> None:
        self.has_ended = True
        self.slow_start.is_over()
        if not self.events.terminated_was_sent and not self.events.is_silent:
            self.events.terminated_was_sent = True
            self._client.event("terminated")
        self._end_was_reported.set()
        self._on_end(self)

    async def _kill_after(self, process: OwnedProcess, seconds: float) -> None:
        if not await until_any(seconds, process.exited):
            self._client.output(f"The program did not end within {seconds:g} s after the request; it is killed.")
            self._kill_with_ranks(process)

    def _kill_with_ranks(self, process: OwnedProcess) -> None:
        # Find ranks first: without their launcher they cannot be found.
        ranks = ranks_below(self.information.process_id, self.children.known if self.children is not None else ())
        process.kill()
        kill_all(ranks)

    def _run(self, coroutine: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


OLDEST_SUPPORTED = (2, 12)
"""Torch's oldest supported version. With an older one, each feature works whose private names of torch are found."""
_FIRST_WITH_DYNAMO = (2, 0)


def version_warning(information: ProcessInformation) -> str | None:
    """Return a warning about the program's torch, or None."""
    python = information.executable or "the program's Python"
    if information.torch_version is None:
        return (
            f"{python} has no torch: the program runs, but nothing will be traced or compiled in it. "
            'Set "python" in the configuration to the interpreter that has torch.'
        )
    found = re.match(r"(\d+)\.(\d+)", information.torch_version)
    version = (int(found[1]), int(found[2])) if found is not None else OLDEST_SUPPORTED
    if version < _FIRST_WITH_DYNAMO:
        return (
            f"{python} has torch {information.torch_version}, which has no torch.compile: the program runs, but "
            "nothing will be traced or compiled in it. Dynamo came with torch 2.0; use a newer torch."
        )
    if version < OLDEST_SUPPORTED:
        oldest = ".".join(map(str, OLDEST_SUPPORTED))
        return (
            f"{python} has torch {information.torch_version}, which is older than the oldest supported "
            f"version ({oldest}). Some features may be unavailable."
        )
    return None
