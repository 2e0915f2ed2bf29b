"""Runs one script with two adapters, debugpy's own and ours, and makes comparable transcripts.

A scenario drives a ``Peer`` by DAP requests. The ``transcript`` keeps the parts of answers and events that a user sees:
places, reasons, values, outputs. It leaves out ids, times, and features that only one adapter has. It also leaves out
intended differences of ours: qualified names of functions, and the texts of values other than numbers and texts, which
look as in compiled code (``test_values``).
"""

from __future__ import annotations

import contextlib
import queue
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.wire.messages import Event, Request, to_builtins
from dynamo_dap.protocol.wire.streams import SocketStream
from dynamo_dap.terminal.client import Client, ServerProcess
from tests.client.fixtures import Fixture
from tests.client.recorded_stream import RecordedStream
from tests.client.session import INITIALIZE
from tests.client.timeline import DEADLINE, Timeline

ADAPTERS = {
    "debugpy": [sys.executable, "-m", "debugpy.adapter"],
    "dynamo": [sys.executable, "-m", "dynamo_dap"],
}

_PLAIN_TYPES = frozenset({"NoneType", "bool", "complex", "float", "int", "str"})
_LAUNCHER = ("_run_code", "_run_module_as_main")
"""Frames of ``runpy``, with which debugpy's launcher runs a program."""


class Peer:
    """A session with one of the two adapters."""

    def __init__(
        self, adapter: str, program: Path, *, is_checked: bool = True, connect: tuple[str, int] | None = None
    ) -> None:
        """Start an adapter, or ``connect`` to one.

        ``is_checked``: check every message against the schema, which is too slow for benchmarks.
        """
        self.adapter = adapter
        self.fixture = Fixture(program)
        self.transcript: list[Any] = []
        self.timeline = Timeline()
        self._process: ServerProcess | None = None
        if connect is None:
            self._process = ServerProcess(ADAPTERS[adapter], standard_error=subprocess.DEVNULL)
        stream = self._process.stream if self._process else SocketStream(socket.create_connection(connect or ("", 0)))
        self._sessions_asked_for: queue.Queue[dict[str, Any]] = queue.Queue()
        self.client = Client(
            RecordedStream(stream, self.timeline) if is_checked else stream,
            on_event=(lambda event: None) if is_checked else self._record,
            on_closed=lambda problem: self.timeline.end(),
            reverse_requests={"startDebugging": self._start_debugging},
        )
        self.client.initialize(msgspec.structs.replace(INITIALIZE, supports_start_debugging_request=True))
        self.thread_id = 0
        self.frames: list[dict[str, Any]] = []

    def _record(self, event: Event) -> None:
        self.timeline.record(False, {"type": "event", "event": event.event, "body": to_builtins(event.body)})

    # -- beginning and end -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def launching(self, **options: Any) -> Any:
        """Launch; set breakpoints in the body of the ``with``."""
        configuration = {
            "program": str(self.fixture.path),
            "python": [sys.executable],
            "console": "internalConsole",
            "cwd": str(self.fixture.path.parent),
            **options,
        }
        beginning = self.client.begin("launch", configuration)
        self.timeline.expect_event("initialized")
        yield
        self.client.configuration_done()
        beginning.result(DEADLINE)

    def _start_debugging(self, request: Request) -> None:
        self._sessions_asked_for.put(msgspec.json.decode(bytes(request.arguments))["configuration"])

    @contextlib.contextmanager
    def child(self) -> Any:
        """The session of a child process that the adapter requested; set breakpoints in the body of the ``with``."""
        peer = self._next_child()
        try:
            yield peer
        finally:
            self.note("child", peer.transcript)
            peer.close()

    def _next_child(self) -> Peer:
        configuration = self._sessions_asked_for.get(timeout=DEADLINE)
        address = configuration["connect"]
        # debugpy's adapter needs a connection of its own clients. With ours, any server can attach to the child.
        connect = (address["host"], address["port"]) if self.adapter == "debugpy" else None
        peer = Peer(self.adapter, self.fixture.path, connect=connect)
        peer.client.begin("attach", configuration)
        peer.timeline.expect_event("initialized")
        return peer

    def finish(self) -> None:
        """Wait for the end of the program, and note its output and exit code."""
        exited = self.timeline.expect_event("exited", unless=("stopped",))
        self.transcript.append(("exited", exited["exitCode"]))
        self.timeline.expect_event("terminated")
        self.transcript.append(("stdout", self.output("stdout")))

    def close(self) -> None:
        """End the adapter."""
        if not self.timeline.ended:
            with contextlib.suppress(RequestFailed, TimeoutError):
                self.client.request("disconnect", {"terminateDebuggee": True}, timeout=DEADLINE)
        self.client.close()
        if self._process is not None:
            self._process.end(10)

    def output(self, category: str) -> str:
        """The output of a category so far."""
        bodies = [event["body"] for event in self.timeline.events if event["event"] == "output"]
        return "".join(body["output"] for body in bodies if body.get("category") == category)

    # -- requests --------------------------------------------------------------------------------------------------

    def ask(self, command: str, arguments: Any = None) -> Any:
        """Send a request; return the answer, also if it is a refusal."""
        try:
            return to_builtins(self.client.request(command, arguments))
        except RequestFailed:
            return {"refused": command}

    def breakpoints(self, *places: str, logged: Mapping[str, str] = MappingProxyType({}), **options: Any) -> None:
        """Set line breakpoints at markers. Those in ``logged`` print a message instead of stopping."""
        lines = [{"line": self.fixture.line(place), **options} for place in places]
        lines += [{"line": self.fixture.line(place), "logMessage": text} for place, text in logged.items()]
        body = self.ask("setBreakpoints", {"source": {"path": str(self.fixture.path)}, "breakpoints": lines})
        self.transcript.append(("breakpoints", [(one["verified"], one.get("line")) for one in body["breakpoints"]]))

    def function_breakpoints(self, *names: str) -> None:
        """Set function breakpoints."""
        body = self.ask("setFunctionBreakpoints", {"breakpoints": [{"name": name} for name in names]})
        self.transcript.append(("functions", [one["verified"] for one in body["breakpoints"]]))

    def exceptions(self, *filters: str) -> None:
        """Set exception breakpoints."""
        self.ask("setExceptionBreakpoints", {"filters": list(filters)})

    def stop(self) -> None:
        """Wait for a stop, and note it with its stack and locals."""
        body = self.timeline.expect_event("stopped", unless=("terminated",))
        self.thread_id = body["threadId"]
        self.frames = self.ask("stackTrace", {"threadId": self.thread_id})["stackFrames"]
        stack = [(bare_name(frame), frame["line"]) for frame in self.frames if frame["name"] not in _LAUNCHER]
        self.transcript.append(("stopped", body["reason"], stack, self.locals()))

    def locals(self, frame: int = 0) -> dict[str, str]:
        """The locals of a frame, as text."""
        scopes = self.ask("scopes", {"frameId": self.frames[frame]["id"]})["scopes"]
        return {one["name"]: shown(one, "value") for one in self.children(scopes[0]["variablesReference"])}

    def children(self, reference: int, **page: int) -> list[dict[str, Any]]:
        """The variables behind a reference."""
        found: list[dict[str, Any]] = self.ask("variables", {"variablesReference": reference, **page})["variables"]
        return found

    def resume(self, command: str = "continue") -> None:
        """Continue."""
        self.ask(command, {"threadId": self.thread_id})

    def step(self, command: str) -> None:
        """Continue, and wait for the stop."""
        self.resume(command)
        self.stop()

    def note(self, what: str, value: Any) -> None:
        """Add an entry to the transcript."""
        self.transcript.append((what, value))

    def evaluate(self, expression: str, context: str = "watch", frame: int = 0) -> None:
        """Evaluate an expression, and note the result."""
        arguments = {"expression": expression, "context": context, "frameId": self.frames[frame]["id"]}
        body = self.ask("evaluate", arguments)
        self.note(f"{context} {expression}", (shown(body, "result"), body.get("type"), body.get("refused")))


def bare_name(frame: dict[str, Any]) -> str:
    """The name that debugpy shows for a frame: ``render`` for ``Template.render``."""
    return str(frame["name"]).rpartition(".")[2]


def shown(variable: dict[str, Any], text: str) -> Any:
    """The text of a value if both adapters show the same one, else its type."""
    kind = variable.get("type")
    return variable.get(text) if not kind or kind in _PLAIN_TYPES else kind
