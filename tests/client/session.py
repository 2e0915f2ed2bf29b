"""One debug session of a test: a server process, a client and the timeline, with helpers for tests.

Runs on the test's thread. ``Session.close`` ends everything that the session started, and ``Session.problems`` reports
broken messages, tracebacks in logs, and processes that did not end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.wire.messages import Request, to_builtins
from dynamo_dap.protocol.wire.streams import SocketStream
from dynamo_dap.protocol.wire.types import (
    Breakpoint,
    Capabilities,
    InitializeRequestArguments,
    Scope,
    SourceBreakpoint,
    StackFrame,
    Variable,
)
from dynamo_dap.terminal.client import Client, OnReverseRequest, PendingResponse, ServerProcess
from tests.client import processes, thread_events, zygote
from tests.client.environments import need_inductor
from tests.client.fixtures import Fixture
from tests.client.forked_server import ForkedServer, start_server
from tests.client.recorded_stream import RecordedStream
from tests.client.timeline import DEADLINE, Timeline

TRACEBACK = "Traceback (most recent call last)"
END_DEADLINE = 120.0
"""Seconds within which all processes must end after a session."""

INITIALIZE = InitializeRequestArguments(
    adapter_id="dynamo",
    client_id="tests",
    client_name="dynamo-dap tests",
    lines_start_at1=True,
    columns_start_at1=True,
    path_format="path",
    supports_variable_type=True,
    supports_variable_paging=True,
    supports_run_in_terminal_request=True,
    supports_memory_references=True,
    supports_progress_reporting=True,
    supports_invalidated_event=True,
)


class Tree:
    """A value as the IDE shows it: its text, and children that are fetched at their first use."""

    def __init__(self, session: Session, variable: Variable) -> None:
        self._session = session
        self.variable = variable
        self._children: dict[str, Tree] | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.variable.name

    @property
    def text(self) -> str:
        """The value as text."""
        return self.variable.value

    @property
    def children(self) -> dict[str, Tree]:
        """The children by name, fetched as by an IDE without paging."""
        if self._children is None:
            reference = self.variable.variables_reference
            found = self._session.client.variables(reference) if reference else []
            self._children = {one.name: Tree(self._session, one) for one in found}
            assert len(self._children) == len(found), f"children of {self.name} share names: {found}"
        return self._children

    def __getitem__(self, name: str) -> Tree:
        assert name in self.children, f"{self.name!r} has no child {name!r}, only {list(self.children)}"
        return self.children[name]

    def __contains__(self, name: str) -> bool:
        return name in self.children

    def texts(self) -> dict[str, str]:
        """The children's texts by name."""
        return {name: child.text for name, child in self.children.items()}

    def open(self, depth: int) -> int:
        """Fetch all values down to ``depth`` levels below, as if a user opened all; return their number."""
        if depth == 0:
            return 0
        return sum(1 + child.open(depth - 1) for child in self.children.values())


class Frame:
    """A frame of a stopped thread."""

    def __init__(self, session: Session, data: StackFrame) -> None:
        self._session = session
        self.data = data
        self._scopes: dict[str, Tree] | None = None

    def __repr__(self) -> str:
        where = self.data.source.path or self.data.source.name if self.data.source else None
        return f"{self.name} ({where}:{self.line})"

    @property
    def name(self) -> str:
        """The name in the call stack."""
        return self.data.name

    @property
    def line(self) -> int:
        """The 1-based line."""
        return self.data.line

    @property
    def path(self) -> Path | None:
        """The source file."""
        return Path(self.data.source.path) if self.data.source and self.data.source.path else None

    @property
    def marker(self) -> str | None:
        """The marker on the current line; None if there is none."""
        return Fixture(self.path).marker_at(self.line) if self.path and self.path.is_file() else None

    @property
    def scopes(self) -> dict[str, Tree]:
        """The scopes by name, each with its variables as children."""
        if self._scopes is None:
            self._scopes = {scope.name: self._tree(scope) for scope in self._session.client.scopes(self.data.id)}
        return self._scopes

    def __getitem__(self, scope: str) -> Tree:
        assert scope in self.scopes, f"frame {self.name} has no scope {scope!r}, only {list(self.scopes)}"
        return self.scopes[scope]

    def evaluate(self, expression: str, context: str = "watch") -> Tree:
        """Return the value of an expression in this frame."""
        body = self._session.client.evaluate(expression, self.data.id, context)
        return Tree(
            self._session,
            Variable(expression, body.result, body.variables_reference, body.type, body.presentation_hint),
        )

    def refusal(self, expression: str, context: str = "watch") -> str:
        """Return the error text of an expression that must fail."""
        try:
            value = self.evaluate(expression, context)
        except RequestFailed as failed:
            return str(failed)
        raise AssertionError(f"{expression!r} has the value {value.text!r}, and should have been refused")

    def _tree(self, scope: Scope) -> Tree:
        return Tree(self._session, Variable(scope.name, "", scope.variables_reference))


class Stop:
    """A thread that stopped."""

    def __init__(self, session: Session, body: Mapping[str, Any]) -> None:
        self._session = session
        self.body = body
        self._frames: list[Frame] | None = None

    @property
    def reason(self) -> str:
        """DAP's ``stopped.reason``."""
        return self.body["reason"]

    @property
    def description(self) -> str:
        """The description that the IDE shows; ``""`` if there is none."""
        return self.body.get("description") or ""

    @property
    def thread_id(self) -> int:
        """The thread that stopped."""
        return self.body["threadId"]

    @property
    def user_frames(self) -> list[Frame]:
        """The call stack without the frames that the IDE greys out."""
        return [frame for frame in self.frames if frame.data.presentation_hint not in ("subtle", "label")]

    @property
    def frames(self) -> list[Frame]:
        """The whole call stack, innermost first."""
        if self._frames is None:
            found = self._session.client.stack_trace(self.thread_id).stack_frames
            self._frames = [Frame(self._session, frame) for frame in found]
        return self._frames

    @property
    def frame(self) -> Frame:
        """The innermost frame."""
        assert self.frames, "the thread is stopped and has no frames"
        return self.frames[0]

    @property
    def marker(self) -> str | None:
        """The marker at which the thread stopped."""
        return self.frame.marker

    def frame_called(self, name: str) -> Frame:
        """Return the innermost frame of that name."""
        for frame in self.frames:
            if frame.name == name:
                return frame
        raise AssertionError(f"no frame called {name!r} in {self.frames}")


class Session:
    """A debug session. Make one by the pytest fixture ``session``, which closes and checks it."""

    def __init__(
        self,
        folder: Path,
        *,
        transport: str = "stdio",
        environment: Mapping[str, str] | None = None,
        reverse_requests: Mapping[str, OnReverseRequest] | None = None,
    ) -> None:
        """Start a server; its logs go to ``folder``. ``transport`` is ``stdio`` or ``tcp``."""
        folder.mkdir(parents=True, exist_ok=True)
        self.mark = uuid.uuid4().hex
        self.timeline = Timeline()
        self.expects_program_traceback = False
        """A test sets it if an exception ends its program."""
        self._log = folder / "server.log"
        self._standard_error = folder / "server.stderr"
        self._environment = {
            **os.environ,
            **(environment or {}),
            processes.MARK: self.mark,
            "DYNAMO_DAP_ACCESS_TOKEN": self.mark,
            "DYNAMO_DAP_LOG": str(self._log),
            "DYNAMO_DAP_RECORDS": str(folder / "records"),
        }
        self._reverse_requests = {"runInTerminal": self._run_in_terminal, **(reverse_requests or {})}
        self._terminal_programs: list[subprocess.Popen[bytes]] = []
        self._beginning: PendingResponse | None = None
        self._last_stop: Stop | None = None
        self._with_breakpoints: set[Path] = set()
        self._closed = False
        self.proof_of_access = {"accessToken": self.mark} if transport == "tcp" else {}
        """The token that a listening server requires in ``launch`` and ``attach``."""
        if transport == "stdio":
            self._start_over_stdio()
        else:
            self._start_over_tcp()
        self.client = Client(
            self.stream,
            on_event=lambda event: None,
            on_closed=self._on_closed,
            reverse_requests=self._reverse_requests,
        )

    # -- beginning -------------------------------------------------------------------------------------------------

    def initialize(self, arguments: InitializeRequestArguments = INITIALIZE) -> Capabilities:
        """Send ``initialize``, and return the answer."""
        return self.client.initialize(arguments)

    @contextlib.contextmanager
    def configuring(self, request: str, configuration: Mapping[str, Any]) -> Iterator[None]:
        """Launch or attach. The body of the ``with`` sets breakpoints; after it the program runs."""
        if not self.client.capabilities.supports_configuration_done_request:
            self.initialize()
        beginning = self.client.begin(request, {**configuration, **self.proof_of_access})
        yield
        self.client.configuration_done()
        beginning.result(self.client.timeout)

    def begin(self, request: str, configuration: Mapping[str, Any]) -> PendingResponse:
        """Send ``launch`` or ``attach``, without waiting until breakpoints can be set."""
        return self.client.send(request, {**configuration, **self.proof_of_access})

    def launching(self, fixture: str | Path | Fixture, **options: Any) -> contextlib.AbstractContextManager[None]:
        """Launch a program; see ``configuring``. ``options`` are launch arguments as DAP spells them."""
        return self.configuring("launch", launch_configuration(fixture, **options))

    def launch(self, fixture: str | Path | Fixture, *places: str | int, **options: Any) -> None:
        """Launch a program with breakpoints at ``places`` (markers) and let it run."""
        with self.launching(fixture, **options):
            if places:
                self.set_breakpoints(fixture, *places)

    def attach(self, host: str, port: int, fixture: str | None = None, *places: str, **options: Any) -> None:
        """Attach to a program that listens, with breakpoints at ``places`` of ``fixture``."""
        with self.configuring("attach", {"connect": {"host": host, "port": port}, **options}):
            if fixture is not None:
                self.set_breakpoints(fixture, *places)

    # -- breakpoints -----------------------------------------------------------------------------------------------

    def set_breakpoints(
        self, fixture: str | Path | Fixture, *places: str | int | SourceBreakpoint, **options: Any
    ) -> list[Breakpoint]:
        """Replace the breakpoints of a file.

        A place is a marker or a line. ``options`` (``condition``, ``hit_condition``, ``log_message``, ``mode``) apply
        to all places.
        """
        fixture = _as_fixture(fixture)
        breakpoints = [
            place if isinstance(place, SourceBreakpoint) else SourceBreakpoint(line=fixture.line(place), **options)
            for place in places
        ]
        self._with_breakpoints.add(fixture.path)
        answered = self.client.set_breakpoints(fixture.path, breakpoints)
        assert len(answered) == len(breakpoints), f"{len(breakpoints)} breakpoints set, {len(answered)} answered"
        return answered

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait_for_stop(self, reason: str | None = None, at: str | None = None) -> Stop:
        """Wait for the next stop; if given, it must have the ``reason`` and be ``at`` the marker."""
        body = self.timeline.expect_event("stopped", unless=("terminated",))
        stop = Stop(self, body)
        self._last_stop = stop
        assert reason is None or stop.reason == reason, f"stopped for {stop.reason!r} and not {reason!r}: {body}"
        assert at is None or stop.marker == at, f"stopped at {stop.frame!r} (#@{stop.marker}) and not at #@{at}"
        return stop

    def wait_for_output(self, text: str, category: str | None = None) -> None:
        """Wait until the output contains ``text``."""
        self.timeline.wait_until(lambda: text in self.output(category), f"output {text!r}")

    def wait_for_exit(self, deadline: float = DEADLINE) -> int:
        """Wait until the program and the session have ended; return the program's exit code."""
        code = self.timeline.expect_event("exited", deadline=deadline, unless=("terminated", "stopped"))["exitCode"]
        self.timeline.expect_event("terminated", unless=("stopped",))
        return code

    def output(self, category: str | None = None) -> str:
        """Return the output so far, of all categories or of one."""
        return "".join(
            event["body"]["output"]
            for event in self.timeline.events
            if event["event"] == "output" and category in (None, event["body"].get("category", "console"))
        )

    # -- continuing --------------------------------------------------------------------------------------------------

    def resume(
        self, command: str = "continue", *, thread_id: int | None = None, granularity: str | None = None
    ) -> None:
        """Let a thread continue, by default the one that stopped last, without waiting."""
        if thread_id is None:
            assert self._last_stop is not None, "nothing has stopped yet"
            thread_id = self._last_stop.thread_id
        self.client.resume(command, thread_id, granularity)

    def continue_to_stop(self, at: str | None = None) -> Stop:
        """Continue to the next stop."""
        self.resume()
        return self.wait_for_stop(at=at)

    def next(self, granularity: str | None = None, at: str | None = None) -> Stop:
        """Step over."""
        self.resume("next", granularity=granularity)
        return self.wait_for_stop("step", at=at)

    def step_in(self, granularity: str | None = None, at: str | None = None) -> Stop:
        """Step in."""
        self.resume("stepIn", granularity=granularity)
        return self.wait_for_stop("step", at=at)

    def step_out(self, granularity: str | None = None, at: str | None = None) -> Stop:
        """Step out."""
        self.resume("stepOut", granularity=granularity)
        return self.wait_for_stop("step", at=at)

    def run_to_end(self) -> int:
        """Continue to the program's end, without another stop; return its exit code."""
        self.resume()
        return self.wait_for_exit()

    def finish(self) -> int:
        """Remove every line breakpoint and continue to the program's end; return its exit code."""
        for path in self._with_breakpoints:
            self.client.set_breakpoints(path, [])
        return self.run_to_end()

    # -- bare requests ---------------------------------------------------------------------------------------------

    def request(self, command: str, arguments: Any = None) -> Any:
        """Send a request and return the body of the response as plain Python values."""
        return to_builtins(self.client.request(command, arguments))

    def refusal(self, command: str, arguments: Any = None) -> str:
        """Send a request that must fail, and return the error's text for users."""
        try:
            body = self.request(command, arguments)
        except RequestFailed as failed:
            text = str(failed)
            assert text.strip(), f"'{command}' failed without a text"
            assert TRACEBACK not in text, text
            return text
        raise AssertionError(f"'{command}' {arguments} succeeded and should have been refused: {body}")

    # -- the end ---------------------------------------------------------------------------------------------------

    def disconnect(self, **arguments: Any) -> None:
        """Disconnect and wait until the server has closed the connection."""
        self.client.request("disconnect", arguments)
        self.timeline.wait_for_end()

    def close(self) -> None:
        """Disconnect and end the session; afterwards no process that it started may be left."""
        if self._closed:
            return
        self._closed = True
        if not self.timeline.ended:
            with contextlib.suppress(RequestFailed, TimeoutError):
                self.client.request("disconnect", {"terminateDebuggee": True}, timeout=END_DEADLINE)
        self.client.close()
        # A listening server continues, for the next client.
        self._server.end(0.0 if self._listens else END_DEADLINE)
        self.processes_left = processes.wait_until_gone(self.mark, END_DEADLINE)
        processes.kill_all(self.mark)
        for program in self._terminal_programs:
            program.wait(END_DEADLINE)

    def problems(self) -> list[str]:
        """Return the problems of the session besides the test's own assertions. Call it after ``close``."""
        found = [*self.timeline.problems, *thread_events.problems_of(self.timeline.entries)]
        found += [f"process left over: {line}" for line in self.processes_left]
        for file in (self._log, self._standard_error):
            text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
            if text.startswith(TRACEBACK) or f"\n{TRACEBACK}" in text:  # not inside a logged message
                found.append(f"{file.name} holds a traceback:\n{_from_traceback_on(text)}")
        output = self.output()
        if "PYDEV DEBUGGER WARNING" in output:
            found.append("pydevd warns of a second debugger")
        if TRACEBACK in output and (not self.expects_program_traceback or "/dynamo_dap/" in output):
            found.append(f"the output holds an unexpected traceback:\n{_from_traceback_on(output)}")
        return found

    def log(self) -> str:
        """Return the server's log so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def logs(self) -> str:
        """Return the server's log and standard error, for the report on a failure."""
        texts = []
        for file in (self._log, self._standard_error):
            if file.exists():
                texts.append(f"{file.name}:\n{file.read_text(encoding='utf-8', errors='replace')[-8000:]}")
        return "\n".join(texts)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _start_over_stdio(self) -> None:
        self._server: ServerProcess | ForkedServer
        self._listens = False
        self.address = ("", 0)
        with self._standard_error.open("wb") as standard_error:
            self._server = start_server(self._environment, standard_error)
        self.stream = RecordedStream(self._server.stream, self.timeline)

    def _start_over_tcp(self) -> None:
        self._listens = True
        port = free_port()
        self.address = ("127.0.0.1", port)
        with self._standard_error.open("wb") as standard_error:
            self._server = ServerProcess(
                [sys.executable, "-m", "dynamo_dap", "--listen", f"127.0.0.1:{port}"],
                environment=self._environment,
                standard_error=standard_error,
            )
        self.stream = RecordedStream(SocketStream(_connect(port)), self.timeline)

    def _run_in_terminal(self, request: Request) -> object:
        """Run the command as an IDE does in a terminal; here the terminal is a process whose output goes to a file."""
        arguments = msgspec.json.decode(bytes(request.arguments))
        environment = {**self._environment}
        for name, value in (arguments.get("env") or {}).items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        program = subprocess.Popen(
            arguments["args"],
            cwd=arguments["cwd"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=(self._log.parent / "terminal.stdout").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._terminal_programs.append(program)
        return {"processId": program.pid}

    @property
    def environment(self) -> dict[str, str]:
        """Return the part of the server's environment that programs inherit: all but its secret."""
        return {name: value for name, value in self._environment.items() if name != "DYNAMO_DAP_ACCESS_TOKEN"}

    @property
    def server_process_id(self) -> int:
        """The id of the server's process."""
        return self._server.process_id

    @property
    def terminal_output(self) -> str:
        """Return the output of the program that runs in the terminal."""
        return (self._log.parent / "terminal.stdout").read_text(encoding="utf-8")

    def _on_closed(self, problem: str | None) -> None:
        if problem is not None:
            self.timeline.problems.append(problem)
        self.timeline.end()


def launch_configuration(fixture: str | Path | Fixture, **options: Any) -> dict[str, Any]:
    """Return the launch arguments for a program: the default options, changed by ``options``.

    A program that imports torch is forked from a process that has imported it, see ``zygote``. A test about the start
    of a program gives ``python=[sys.executable]``.
    """
    fixture = _as_fixture(fixture)
    if fixture.uses_inductor:
        need_inductor(fixture.path.name)
    python = zygote.python() if fixture.imports_torch else [sys.executable]
    return {"program": str(fixture.path), "python": python, **options}


def _from_traceback_on(text: str, length: int = 4000) -> str:
    """Return the useful part of a log: from the line before the first traceback on."""
    before, _, after = text.partition(TRACEBACK)
    return f"{before.rstrip().rpartition(chr(10))[2]}\n{TRACEBACK}{after}"[:length]


def free_port() -> int:
    """Return a TCP port of the loopback interface on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _connect(port: int, deadline: float = DEADLINE) -> socket.socket:
    """Connect to a server that may still be starting."""
    until = time.monotonic() + deadline
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=deadline)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def _as_fixture(fixture: str | Path | Fixture) -> Fixture:
    return fixture if isinstance(fixture, Fixture) else Fixture(fixture)


def lines_of(frames: Sequence[Frame]) -> list[str]:
    """Return frames as ``name:line``, for readable assertions."""
    return [f"{frame.name}:{frame.line}" for frame in frames]
