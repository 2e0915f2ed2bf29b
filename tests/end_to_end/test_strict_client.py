"""A very strict client can run whole sessions: the server sends only what DAP allows.

``tests.client.strict_client`` describes the client. The sessions have the default options, since strict clients give
none; ``python`` only saves the import of torch.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client import Fixture, processes, zygote
from tests.client.free_program import FreeProgram
from tests.client.session import END_DEADLINE
from tests.client.strict_client import StrictClient

LOOP = Fixture("eager/compiled_in_loop")
LISTENING = Fixture("listening")


class Strict:
    """A session of the strict client with a program, by default ``compiled_in_loop``."""

    def __init__(self, folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.environment = {**os.environ, processes.MARK: self.mark, "DYNAMO_DAP_RECORDS": str(folder)}
        self.client = StrictClient(self.environment, {"runInTerminal": self._run_in_terminal})
        self.thread = -1
        self.fixture = LOOP

    def begin(self, *places: str, says: dict[str, Any] | None = None, **options: Any) -> None:
        """Launch or attach with breakpoints, one request after the other. ``says`` has the client's capabilities."""
        self.client.request("initialize", {"adapterID": "dynamo", **(says or {})})
        if "connect" in options:
            self.client.request("attach", options)
        else:
            self.client.request("launch", {"program": str(self.fixture.path), **options})
        self.client.event("initialized")
        self.break_at(*places)
        self.client.request("setExceptionBreakpoints", {"filters": []})
        self.client.request("configurationDone")

    def break_at(self, *places: str) -> None:
        breakpoints = [{"line": self.fixture.line(place)} for place in places]
        body = self.client.request(
            "setBreakpoints", {"source": {"path": str(self.fixture.path)}, "breakpoints": breakpoints}
        )
        assert [one["verified"] for one in body["breakpoints"]] == [True] * len(places)

    def stop(self) -> tuple[str | None, dict[str, str]]:
        """Wait for a stop, and request what an editor requests; return the stop's marker, and the locals."""
        stopped = self.client.event("stopped")
        self.thread = stopped["threadId"]
        assert self.thread in [one["id"] for one in self.client.request("threads")["threads"]]
        frame = self.client.request("stackTrace", {"threadId": self.thread})["stackFrames"][0]
        scopes = self.client.request("scopes", {"frameId": frame["id"]})["scopes"]
        variables = self.client.request("variables", {"variablesReference": scopes[0]["variablesReference"]})
        path = frame["source"].get("path")
        marker = self.fixture.marker_at(frame["line"]) if path == str(self.fixture.path) else None
        return marker, {one["name"]: one["value"] for one in variables["variables"]}

    def go(self, command: str) -> tuple[str | None, dict[str, str]]:
        """Continue with a step or ``continue``, and wait for the next stop."""
        self.client.request(command, {"threadId": self.thread})
        return self.stop()

    def run_to_end(self) -> None:
        self.client.request("continue", {"threadId": self.thread})
        self.client.event("terminated")
        self.client.request("disconnect")

    def _run_in_terminal(self, arguments: dict[str, Any]) -> dict[str, Any]:
        environment = {**self.environment, **{name: text for name, text in arguments.get("env", {}).items() if text}}
        quiet: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.program = subprocess.Popen(arguments["args"], cwd=arguments["cwd"], env=environment, **quiet)
        return {}


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Strict]:
    """Make the client; afterwards no process that it started may be left."""
    made = Strict(tmp_path)
    yield made
    made.client.end()
    left = processes.wait_until_gone(made.mark, END_DEADLINE)
    processes.kill_all(made.mark)
    assert not left


def test_a_session_through_eager_compile_time_and_run_time_stops(strict: Strict) -> None:
    strict.begin("call", "fn2", cachedCalls="generated")  # so that a step into the second call stops in generated code
    marker, names = strict.stop()
    assert (marker, names["a"]) == ("call", "0")
    marker, names = strict.go("continue")
    assert (marker, names["y"].split(" cpu")[0]) == ("fn2", "Tensor f32[2]")
    assert strict.go("next")[0] == "fn3"
    strict.break_at("call")
    marker, names = strict.go("continue")
    assert (marker, names["a"]) == ("call", "2")
    marker, names = strict.go("stepIn")
    assert marker is None, "the second call runs what was generated, whose listing is not a file"
    assert "x" in names
    strict.break_at()
    assert strict.go("stepOut")[0] is None, "it shows what is about to be returned"
    strict.client.request("next", {"threadId": strict.thread})
    strict.stop()
    strict.run_to_end()
    assert "done\n" in "".join(
        one["body"]["output"] for one in strict.client.transcript if one.get("event") == "output"
    )


def test_a_program_in_the_clients_terminal(strict: Strict) -> None:
    # With this console the server sends a request to the client, whose responses have no "seq".
    strict.begin(
        "fn2", says={"supportsRunInTerminalRequest": True}, console="integratedTerminal", python=zygote.python()
    )
    assert strict.stop()[0] == "fn2"
    strict.break_at()
    strict.run_to_end()
    assert strict.program.wait(END_DEADLINE) == 0


def test_attaching(strict: Strict) -> None:
    program = FreeProgram(LISTENING.path)
    host, port = program.address()
    strict.fixture = LISTENING
    strict.begin("return", connect={"host": host, "port": port})
    marker, names = strict.stop()
    assert (marker, names["y"].split(" cpu")[0]) == ("return", "Tensor f32[2]")
    assert strict.go("next")[0] == "eager_call"
    strict.client.request("disconnect")
    assert program.process.poll() is None
    program.end()


def test_changes_of_compiles_are_reported_to_those_who_asked_for_them(strict: Strict) -> None:
    strict.begin("fn2", "fn4", python=zygote.python())
    assert strict.stop()[0] == "fn2"
    # Every event would have been an error. From now on this one is gone.
    assert strict.client.request("dynamoCompiles")["functions"]
    strict.client.known_events |= {"dynamoCompilesChanged"}
    assert strict.go("continue")[0] == "fn4"
    assert "dynamoCompilesChanged" in [one.get("event") for one in strict.client.transcript]
    strict.break_at()
    strict.run_to_end()
