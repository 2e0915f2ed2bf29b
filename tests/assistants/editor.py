"""An editor for tests, as its extension and its debugger behave: asked at a socket, it joins a session as a client."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

from dynamo_dap.protocol.wire.messages import Event, to_builtins
from dynamo_dap.protocol.wire.streams import SocketStream
from dynamo_dap.protocol.wire.types import Breakpoint, InitializeRequestArguments, SourceBreakpoint, StackFrame
from dynamo_dap.terminal.client import Client
from tests.client.timeline import DEADLINE


class Editor:
    """One window. It shows every session that it is asked to."""

    def __init__(self, *, refuses: str | None = None) -> None:
        self.refuses = refuses
        self.asked: list[dict[str, str]] = []
        self.breakpoints: dict[str, list[int]] = {}
        """What the user has set, by path."""
        self.reported: dict[str, list[Breakpoint]] = {}
        self.client: Client | None = None
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.closed = threading.Event()
        self._folder = tempfile.TemporaryDirectory()
        self.address = str(Path(self._folder.name, "editor"))
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.address)
        self._listening.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Close the window."""
        self._listening.close()
        if self.client is not None:
            self.client.close()
        self._folder.cleanup()

    def set_breakpoints(self, path: Path, lines: list[int]) -> None:
        """The user sets breakpoints, instead of those there were."""
        assert self.client is not None
        places = [SourceBreakpoint(line=line) for line in lines]
        self.reported[str(path)] = self.client.set_breakpoints(path, places)

    def next_event(self, *names: str) -> tuple[str, dict[str, Any]]:
        """The next event of one of these names."""
        while True:
            event = self.events.get(timeout=DEADLINE)
            if event.event in names:
                return event.event, to_builtins(event.body)

    def stop(self) -> tuple[dict[str, Any], StackFrame]:
        """The next stop, with the innermost frame."""
        assert self.client is not None
        _, body = self.next_event("stopped")
        return body, self.client.stack_trace(body["threadId"]).stack_frames[0]

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                asking, _ = self._listening.accept()
                with asking, asking.makefile("rw", encoding="utf-8") as lines:
                    self.asked.append(json.loads(lines.readline()))
                    if self.refuses is not None:
                        lines.write(json.dumps({"problem": self.refuses}) + "\n")
                        continue
                self._join(self.asked[-1])

    def _join(self, asked: dict[str, str]) -> None:
        # Nobody else may reach the program by the socket.
        assert Path(asked["adapter"]).parent.stat().st_mode & 0o077 == 0
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(asked["adapter"])
        self.events = queue.SimpleQueue()
        self.closed.clear()
        client = self.client = Client(
            SocketStream(connected), on_event=self.events.put, on_closed=lambda problem: self.closed.set()
        )
        client.initialize(
            InitializeRequestArguments(
                adapter_id="dynamo",
                client_id="vscode",
                path_format="path",
                lines_start_at1=True,
                columns_start_at1=True,
                supports_variable_type=True,
                supports_run_in_terminal_request=True,
                supports_start_debugging_request=True,
            )
        )
        beginning = client.begin(asked["request"], {"name": asked["name"]})
        for path, lines in self.breakpoints.items():
            self.set_breakpoints(Path(path), lines)
        client.set_exception_filters([])
        client.configuration_done()
        beginning.result(DEADLINE)
