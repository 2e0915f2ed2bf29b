"""A program under the debugger for a benchmark: a real server process and a client that checks and records nothing."""

from __future__ import annotations

import queue
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dynamo_dap.protocol.wire.messages import Event, decode
from dynamo_dap.protocol.wire.types import InitializeRequestArguments, SourceBreakpoint, StoppedEventBody
from dynamo_dap.terminal.client import Client, ServerProcess

_INTRODUCTION = InitializeRequestArguments(
    adapter_id="dynamo", client_id="benchmark", path_format="path", supports_variable_type=True
)


class DebuggedProgram:
    """A launched program; use as a context manager, which ends it."""

    def __init__(
        self,
        program: Path,
        arguments: Sequence[str] = (),
        breakpoints: Mapping[Path, Sequence[int]] | None = None,
        filters: Sequence[str] = (),
        condition: str | None = None,
        breakpoint_mode: str | None = None,
        **options: object,
    ) -> None:
        """``breakpoints`` are lines by file, all with one condition and mode.

        ``filters`` are exception filters; ``options`` are launch options.
        """
        self._stops: queue.SimpleQueue[StoppedEventBody] = queue.SimpleQueue()
        self._server = ServerProcess()
        self.client = Client(self._server.stream, on_event=self._take)
        self.client.initialize(_INTRODUCTION)
        configuration = {
            "program": str(program),
            "args": list(arguments),
            "python": [sys.executable],
            "mode": "compile-time",
            "eager": False,  # debugpy has benchmarks of its own (eager.py)
            **options,
        }
        beginning = self.client.begin("launch", configuration)
        self.unverified = 0
        for path, lines in (breakpoints or {}).items():
            wanted = [SourceBreakpoint(line=line, condition=condition, mode=breakpoint_mode) for line in lines]
            answers = self.client.set_breakpoints(path, wanted)
            self.unverified += sum(not answer.verified for answer in answers)
        if filters:
            self.client.set_exception_filters(list(filters))
        self.client.configuration_done()
        beginning.result()

    def wait_for_stop(self, timeout: float = 60.0) -> StoppedEventBody:
        """Wait until a thread stops."""
        return self._stops.get(timeout=timeout)

    @property
    def server_process_id(self) -> int:
        """The server's process; the program is a child of it."""
        return self._server.process_id

    @property
    def has_stopped(self) -> bool:
        """Whether a stop is there that nobody has waited for."""
        return not self._stops.empty()

    def __enter__(self) -> DebuggedProgram:
        return self

    def __exit__(self, *raised: object) -> None:
        self.client.request("disconnect", {"terminateDebuggee": True})
        self.client.close()
        self._server.end()

    def _take(self, event: Event) -> None:
        if event.event == "stopped":
            self._stops.put(decode(event.body, StoppedEventBody, "stopped event"))
