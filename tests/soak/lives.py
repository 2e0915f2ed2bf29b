"""One debug session whose parts act in any order: who is killed, what is asked, and what has to come of it.

Driven by a test's thread. A life knows only what it has done, so that the same actions make the same life, whatever
comes in between.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import FIXTURES, Fixture, Session
from tests.client.free_program import FreeProgram
from tests.client.session import END_DEADLINE, Stop, launch_configuration
from tests.client.timeline import DEADLINE

PROGRAM = Fixture("soaked")
DEFAULTS = {"eager": True, "mode": "both"}
"""The helper that tests launch by has others."""
PLACES = {"eager": "eager", "compile-time": "trace", "run-time": "generated"}
"""Modes of breakpoints, and where they stop in the program."""
STARTS = ("stdio", "tcp", "terminal", "attach")
KILLED = ("server", "client", "program")

QUESTIONS: dict[str, Any] = {
    "threads": {},
    "stackTrace": {"threadId": 1},
    "scopes": {"frameId": 1},
    "variables": {"variablesReference": 3},
    "evaluate": {"expression": "1 + 1", "context": "watch"},
    "exceptionInfo": {"threadId": 1},
    "setExceptionBreakpoints": {"filters": ["uncaught"]},
    "setFunctionBreakpoints": {"breakpoints": []},
    "setDataBreakpoints": {"breakpoints": []},
    "completions": {"text": "nu", "column": 3},
    "gotoTargets": {"source": {"path": str(PROGRAM.path)}, "line": 5},
    "dynamoCompiles": {},
    "dynamoTimeline": {"threadId": 1},
    "dynamoWhatIf": {},
    "cancel": {"requestId": 1},
    "initialize": {"adapterID": "dynamo"},
    "launch": {"program": str(PROGRAM.path)},
    "attach": {"connect": {"host": "127.0.0.1", "port": 1}},
    "source": {"sourceReference": 5},
    "dance": {},
}
"""What may be asked at any time; each is answered, if only with a refusal."""
MOVES = ("continue", "next", "stepIn", "stepOut")


class Life:
    """A session with a server, a client and a program of their own, from ``start`` to ``end``."""

    def __init__(self, folder: Path, start: str) -> None:
        """``start`` is how it begins: see ``STARTS``."""
        self.session = Session(folder, transport="tcp" if start == "tcp" else "stdio")
        self.session.stream.allow_bad_requests()
        self.start = start
        self.state = "connected"
        """connected, initialized, configuring, running, stopped, alone (debugpy's thread has ended), over."""
        self._mode: str | None = None
        """Of the breakpoint that is set."""
        self._stop: Stop | None = None
        self._program: FreeProgram | None = FreeProgram(PROGRAM.path, "--listen") if start == "attach" else None
        self._is_let_go = False
        self._killed = time.monotonic()
        self.seconds_to_end = 0.0
        """From ``kill`` until no process of the session was left."""

    # -- what a client does ----------------------------------------------------------------------------------------

    def ask(self, command: str) -> None:
        """Ask anything; what is known of the thread that is stopped, and of its frame, is put in."""
        arguments = {**QUESTIONS[command]}
        if self._stop is not None:
            for name, value in (("threadId", self._stop.thread_id), ("frameId", self._stop.frame.data.id)):
                if name in arguments or command in ("evaluate", "completions"):
                    arguments[name] = value
        if command in ("initialize", "launch", "attach") and self.state in ("connected", "initialized"):
            return  # those would be served
        self._answered(command, arguments)

    def initialize(self) -> None:
        """Introduce the client."""
        self.session.initialize()
        self.state = "initialized"

    def begin(self) -> None:
        """Launch or attach, up to where breakpoints are set."""
        if self._program is not None:
            host, port = self._program.address()
            self.session.client.begin("attach", {"connect": {"host": host, "port": port}, **DEFAULTS})
        else:
            console = "integratedTerminal" if self.start == "terminal" else "internalConsole"
            wanted = launch_configuration(PROGRAM, **DEFAULTS, console=console)
            self.session.client.begin("launch", {**wanted, **self.session.proof_of_access})
        self.state = "configuring"

    def set_breakpoint(self, mode: str | None) -> None:
        """Have one breakpoint, or none. At a stop it may be hit by the next move already."""
        self._mode = mode
        wanted = [] if mode is None else [SourceBreakpoint(line=PROGRAM.line(PLACES[mode]), mode=mode)]
        self.session.set_breakpoints(PROGRAM, *wanted)

    def configure(self) -> None:
        """All is set: the program runs."""
        self.session.client.configuration_done()
        self.state = "running"

    def wait(self) -> None:
        """With a breakpoint, or when a pause is asked for, the program stops again and again."""
        if self._mode is None:
            self._pause()
        self._stop = self.session.wait_for_stop()
        assert self._stop.frames, "a stop without frames"
        self.state = "stopped"

    def look(self) -> None:
        """Open what there is at a stop."""
        assert self._stop is not None
        for scope in self._stop.frame.scopes.values():
            scope.open(2)
        assert self._stop.frame.evaluate("1 + 1").text == "2"

    def move(self, command: str) -> None:
        """Let the stopped thread continue."""
        assert self._stop is not None
        self.session.resume(command, thread_id=self._stop.thread_id)
        self._stop = None
        self.state = "running"
        if command != "continue":
            # A step ends: in the program, or at the breakpoint on its way.
            self.wait()

    def restart(self) -> None:
        """Run the program anew, with the breakpoints that are set."""
        if self.start == "attach":
            self._answered("restart", {})  # nobody's to start again
            return
        self.session.request("restart")
        self._stop = None
        self.state = "running"

    # -- how it ends -----------------------------------------------------------------------------------------------

    def disconnect(self, *, terminate: bool) -> None:
        """Leave; an attached program may run on, a launched one is ended here in any case."""
        self._is_let_go = not terminate and self.start == "attach"
        self._answered("disconnect", {"terminateDebuggee": not self._is_let_go})
        self.session.timeline.wait_for_end(deadline=DEADLINE)
        self.state = "over"

    def terminate(self) -> None:
        """Ask the program to end."""
        self._answered("terminate", {})
        self.state = "over"

    def kill(self, who: str) -> None:
        """``kill -9``, as nobody can prepare for; of the client the server sees only that its connection ended."""
        self._killed = time.monotonic()
        if who == "client":
            self.session.client.close()
        elif who == "server":
            os.kill(self.session.server_process_id, signal.SIGKILL)
            self.session.timeline.wait_for_end(deadline=DEADLINE)
        else:
            for process in self._program_ids():
                os.kill(process, signal.SIGKILL)
            self.session.timeline.expect_event("terminated", deadline=DEADLINE)
            # A request gets an error now, and nothing waits for an answer that cannot come.
            for command in ("threads", "stackTrace", "evaluate", "dynamoCompiles"):
                self._answered(command, QUESTIONS[command])
        self._is_let_go = who != "program" and self.start == "attach" and self.state != "connected"
        self.state = "over"

    def end_reader_of_debugpy(self) -> None:
        """The thread that reads what debugpy is asked ends, by the next request; whatever is asked is answered."""
        for process in self._program_ids():
            os.kill(process, signal.SIGUSR1)
        for command in ("threads", "stackTrace", "variables", "evaluate", "setExceptionBreakpoints", "dynamoCompiles"):
            self._answered(command, QUESTIONS[command])

    def continue_if_stopped(self) -> None:
        """Let the thread continue that was stopped last, unless it does: debugpy lets go of its own when it ends."""
        if self._stop is not None:
            self._answered("continue", {"threadId": self._stop.thread_id})

    def end(self) -> list[str]:
        """End what continues still, and return what was left over or went wrong."""
        problems = []
        try:
            self.session.close()
            self.seconds_to_end = time.monotonic() - self._killed
            problems += self.session.problems()
        finally:
            if self._program is not None:
                if self._is_let_go and self._program.process.poll() is not None:
                    problems.append("an attached program ended with its debugger")
                problems += self._ended()
        return problems

    # -- inside ----------------------------------------------------------------------------------------------------

    @property
    def can_be_killed(self) -> bool:
        """Whether there is a program."""
        return self.state in ("configuring", "running", "stopped", "alone")

    def _program_ids(self) -> list[int]:
        reported = [event["body"] for event in self.session.timeline.events if event["event"] == "process"]
        assert reported, "no program was told of"
        return [process for process in [reported[-1]["systemProcessId"]] if psutil.pid_exists(process)]

    def _pause(self) -> None:
        threads = self.session.client.threads()
        assert threads, "a running program has no threads"
        self.session.request("pause", {"threadId": threads[0].id})

    def _answered(self, command: str, arguments: Any) -> None:
        """The answer may be a refusal, as readable text; ``TimeoutError`` if there is none."""
        try:
            self.session.client.request(command, arguments, timeout=DEADLINE)
            return
        except RequestFailed as refused:
            text = str(refused)
        assert text.strip(), f"'{command}' was refused without a word"
        assert "Traceback" not in text, text

    def _ended(self) -> list[str]:
        assert self._program is not None
        try:
            self._program.end()
        except AssertionError as failed:
            return [f"the attached program says: {failed}"]
        return []


__all__ = ["END_DEADLINE", "FIXTURES", "KILLED", "MOVES", "PLACES", "QUESTIONS", "STARTS", "Life"]
