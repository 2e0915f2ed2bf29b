"""Starting a job as a process: the server's child, or one in the IDE's terminal. Used on the loop."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dynamo_dap.protocol.contract import ACCESS_TOKEN_VARIABLE, LAUNCH_VARIABLE, Invitation
from dynamo_dap.server.client import Client
from dynamo_dap.server.crash_folder import CrashFolder
from dynamo_dap.server.launching import environment
from dynamo_dap.server.launching.agent_listener import AgentListener, OnArrival
from dynamo_dap.server.launching.child_process import ChildProcess
from dynamo_dap.server.launching.processes import OwnedProcess
from dynamo_dap.server.launching.program import Job
from dynamo_dap.server.launching.terminal_process import TerminalCommand, TerminalProcess


@dataclass(frozen=True)
class Starter:
    """Starts ``job`` for ``client``; the program connects to ``listener``."""

    job: Job
    client: Client
    listener: AgentListener
    crash_folder: CrashFolder
    debugpy: Invitation | None = None
    """Where debugpy connects, when it is wanted."""

    async def start(self, on_agent: OnArrival) -> OwnedProcess:
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

    def _start_child(self, command: list[str], changes: environment.Changes) -> ChildProcess:
        # The server's own secret is none of the program's.
        base = {**self.job.own_variables, **os.environ}
        base.pop(ACCESS_TOKEN_VARIABLE, None)
        return ChildProcess(command, self.job.cwd, environment.apply(base, changes), self.client.program_output)

    async def _start_in_terminal(self, command: list[str], changes: environment.Changes) -> TerminalProcess:
        options = self.job.options
        process = TerminalProcess()
        what = TerminalCommand(command, self.job.cwd, changes, options.console, f"dynamo-dap: {self.job.name}")
        try:
            await process.start(what, self.client, self.listener, options.launch_timeout)
        except BaseException:
            process.close()
            raise
        return process
