"""torch's private names, each missing by itself: what needs it is off and says so, everything else works.

Real sessions, with the default options. ``make soak`` takes each name that the debugger needs; the suite those that
most hangs on.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.debuggee import torch_api
from dynamo_dap.debuggee.torch_api import features
from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Fixture, Session, zygote
from tests.client.session import Stop
from tests.soak.counts import is_soaking

DEFAULTS: dict[str, Any] = {"eager": True, "mode": "both"}
PROGRAM = """
import torch

def helper(x):
    return x * 3  #@helper

def traced(x, log):
    y = helper(x) + 1  #@trace
    log.append(2)
    print("breaks")
    z = y + x  #@resumed
    return z * 2

compiled = torch.compile(traced, backend="eager")
x = torch.ones(2)
for number in range(2):
    x = torch.ones(2) * number  #@eager
    print(compiled(x, []).tolist())
"""
PRINTED = "breaks\n[2.0, 2.0]\nbreaks\n[10.0, 10.0]\n"
PYTHON = """#!/bin/sh
options=
while case "$1" in -*) true;; *) false;; esac; do
    options="$options $1"
    if [ "$1" = -X ]; then shift; options="$options $1"; fi
    shift
done
exec {python} $options {hiding} "$@"
"""
CENTRAL = ("tracing_hooks", "traced_frame", "replays", "generated_code")
"""The modules whose names the suite hides."""

OF_REPLAYS = ("torch._C:DisableTorchFunction",)
"""Names that a replay looks up only when it begins."""


def needs() -> dict[str, list[str]]:
    """Every private name that a feature needs, and the modules that do."""
    found: dict[str, list[str]] = {}
    for module in pkgutil.walk_packages(torch_api.__path__, f"{torch_api.__name__}."):
        imported = importlib.import_module(module.name)
        for feature in vars(imported).values():
            if isinstance(feature, features.Feature):
                for need in feature._needs:
                    found.setdefault(need, []).append(module.name.rpartition(".")[2])
    return found


NEEDS = needs()
SOME = sorted(n for n, rooms in NEEDS.items() if {*rooms} & {*CENTRAL})[::3]
HIDDEN = sorted(NEEDS) if is_soaking("LIVES") else sorted({*SOME, *OF_REPLAYS})
OF_COMMANDS = ("bisecting", "call_conditions", "compile_timing", "replays", "compiled_calls", "guard_lookup")
"""Modules that a session does not import unless it is asked for what they do."""
STOPS = 12
"""More than it makes: two in ordinary Python, and those of two calls in a trace."""


@pytest.mark.parametrize("name", HIDDEN)
def test_a_name_that_is_missing_turns_off_what_needs_it(session: Session, tmp_path: Path, name: str) -> None:
    program = Fixture(tmp_path / "program.py")
    program.path.write_text(PROGRAM, encoding="utf-8")
    python = tmp_path / "python"
    hiding = Path(__file__).with_name("hiding.py")
    python.write_text(PYTHON.format(python=zygote.python()[0], hiding=hiding), encoding="utf-8")
    python.chmod(0o755)
    with session.launching(program, **DEFAULTS, python=[str(python)], env={"HIDDEN_NAME": name}):
        wanted = [SourceBreakpoint(line=line) for line in program.markers.values()]
        session.set_breakpoints(program, *wanted)
    stop = session.wait_for_stop("breakpoint", at="eager")
    reported = stop.frame.evaluate(
        "__import__('dynamo_dap.debuggee.torch_api.features', fromlist=['']).problems()", context="clipboard"
    ).text
    if not {*NEEDS[name]} <= {*OF_COMMANDS}:
        assert f" has no {name.replace(':', '.')}: " in reported
    assert reported.count(" is off") == reported.count(f" has no {name.replace(':', '.')}: "), reported

    seen = []
    for _ in range(STOPS):
        seen.append(stop.marker)
        look(session, stop)
        if stop.marker == "trace" and seen.count("trace") == 1:
            stop = back_and_forth(session, stop)
        session.resume(thread_id=stop.thread_id)
        event, body = session.timeline.expect_first("stopped", "exited")
        if event == "exited":
            break
        stop = Stop(session, body)
        session._last_stop = stop
    assert event == "exited"
    assert body["exitCode"] == 0
    assert session.output("stdout") == PRINTED
    if "skipping" not in NEEDS[name]:  # else Dynamo traces the debugger's own, and says so
        assert session.output("stderr") == ""
    assert "internal error" not in session.output()
    assert seen.count("eager") == 2
    if "tracing_hooks" not in NEEDS[name]:
        assert "trace" in seen, f"{name} is not what stops in a trace need: {session.output('important')}"


def back_and_forth(session: Session, stop: Stop) -> Stop:
    """Step in, back and over, as far as that is offered; return where it ended."""
    for command in ("stepIn", "stepBack", "next"):
        try:
            session.request(command, {"threadId": stop.thread_id})
        except RequestFailed:
            continue  # what that needs is off
        event, body = session.timeline.expect_first("stopped", "exited")
        assert event == "stopped", f"the program ran to its end in a {command}"
        stop = Stop(session, body)
        assert stop.frames
    return stop


def look(session: Session, stop: Stop) -> None:
    """Ask for all that an editor shows, and go back and forth; what is refused is refused for users."""
    frame, thread = stop.frame.data.id, stop.thread_id
    with refused_in_words():
        for scope in stop.frame.scopes.values():
            scope.open(1)
    for command, arguments in (
        ("evaluate", {"expression": "x.sum()", "frameId": frame, "context": "watch"}),
        ("evaluate", {"expression": "float(x.sum())", "frameId": frame, "context": "repl"}),
        ("dynamoCompiles", {}),
        ("dynamoTimeline", {"threadId": thread, "count": 3}),
        ("dynamoGuards", {"compileId": "0/0"}),
        ("dynamoEntries", {}),
        ("completions", {"text": "x.", "column": 3, "frameId": frame}),
        ("disassemble", {"memoryReference": "0x10", "instructionCount": 3}),
        ("dataBreakpointInfo", {"name": "x", "frameId": frame}),
    ):
        with refused_in_words():
            session.request(command, arguments)


@contextlib.contextmanager
def refused_in_words() -> Any:
    try:
        yield
    except RequestFailed as refused:
        text = str(refused)
    else:
        return
    assert text.strip()
    assert "internal error" not in text, text
    assert "/dynamo_dap/" not in text, text
