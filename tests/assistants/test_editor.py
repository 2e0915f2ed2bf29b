"""``dynamo-dap mcp`` in an editor: its user sees what the assistant debugs, and may step in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp.server.mcpserver")

from dynamo_dap.protocol.connection import RequestFailed
from tests.assistants.client import Assistant, assistant
from tests.assistants.editor import Editor
from tests.client.fixtures import Fixture
from tests.client.timeline import DEADLINE

PROGRAM = """\
import torch


def scaled(x, factor):
    return x * factor  #@scaled


@torch.compile(backend="eager")
def fn(x, factors):
    total = x.sum()
    for factor in factors:
        total = total + scaled(x, factor).sum()  #@looped
    return total  #@returned


for call in range(2):
    print("total", fn(torch.ones(2), [1, 2, 3]).item())  #@called
print("printed")  #@printed
"""


@pytest.fixture
def program(tmp_path: Path) -> Fixture:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    return Fixture(tmp_path / "program.py")


@pytest.fixture
def editor() -> Iterator[Editor]:
    opened = Editor()
    yield opened
    opened.close()


async def _aside(do: Callable[..., Any], *arguments: Any) -> Any:
    """What the user does, who is not on the event loop."""
    return await asyncio.to_thread(do, *arguments)


async def _stop_at(one: Assistant, line: int) -> Any:
    """Wait for the stop at a line: the assistant's server may hear of it after the editor has its answer."""
    while True:
        _, data = await one.ask("wait")
        if data["line"] == line:
            return data


def test_both_see_every_stop_and_both_step(program: Fixture, editor: Editor) -> None:
    line, path = program.line, str(program.path)
    editor.breakpoints = {path: [line("returned")]}

    async def debug() -> None:
        async with assistant(program.path.parent, editor=editor.address) as one:
            looped = {"file": "program.py", "line": line("looped"), "mode": "compile-time"}
            text, data = await one.ask("debug_launch", program="program.py", breakpoints=[looped])
            assert data["line"] == line("looped"), text
            assert [asked["name"] for asked in editor.asked] == ["program.py (assistant)"]
            body, frame = await _aside(editor.stop)
            assert (body["reason"], frame.name, frame.line) == ("breakpoint", "fn", line("looped"))
            client, thread = editor.client, body["threadId"]
            assert client is not None
            (scope, *_) = await _aside(client.scopes, frame.id)
            assert "total" in [one.name for one in await _aside(client.variables, scope.variables_reference)]

            # The user steps: the assistant is informed of it by its next answer.
            await _aside(client.resume, "stepIn", thread)
            _, frame = await _aside(editor.stop)
            assert frame.line == line("scaled")
            text, data = await one.ask("debug_evaluate", expression="factor")
            assert data["line"] == line("scaled")
            assert f"▶ {line('scaled')} │     return x * factor" in text
            # The assistant steps: the editor hears that the thread continues, and where it stops.
            text, data = await one.ask("debug_go", how="out")
            assert data["function"] == "fn"
            assert await _aside(editor.next_event, "continued", "stopped") == (
                "continued",
                {"threadId": thread, "allThreadsContinued": False},
            )
            _, frame = await _aside(editor.stop)
            assert (frame.name, frame.line) == ("fn", data["line"])
            await one.ask("debug_go", how="reverse")
            body, _ = await _aside(editor.stop)
            assert "1 statement back" in body["description"]
            # What cannot be done changes nothing for anybody.
            with pytest.raises(RequestFailed):
                await _aside(client.resume, "next", 12345)
            for command, given, message in (
                ("setBreakpoints", {"source": 5}, "source"),
                ("setBreakpoints", {"source": {"path": path}, "breakpoints": {"line": 1}}, "breakpoints"),
                ("continue", {"threadId": {}}, "threadId"),
                ("cancel", {"requestId": []}, "requestId"),
                ("next", [], "next"),
            ):
                with pytest.raises(RequestFailed, match=message):
                    await _aside(client.request, command, given)
            assert (await one.ask("debug_where"))[1]["state"] == "stopped"

            # Each changes its own breakpoints only, also in the same file.
            await _aside(editor.set_breakpoints, program.path, [line("returned"), line("printed")])
            text, data = await one.ask("debug_go")
            assert data["line"] == line("looped")
            _, frame = await _aside(editor.stop)
            assert frame.line == line("looped")
            text, _ = await one.ask("debug_breakpoint", remove=1)
            assert "No breakpoints" in text or f":{line('looped')}" not in text
            known = {one.line: one.id for one in editor.reported[path]}
            text, data = await one.ask("debug_go")
            assert data["line"] == line("returned"), text
            body, frame = await _aside(editor.stop)
            assert (frame.line, body["hitBreakpointIds"]) == (line("returned"), [known[line("returned")]])

            # The user has it continue while the assistant waits.
            await _aside(editor.set_breakpoints, program.path, [line("printed")])
            await _aside(client.resume, "continue", thread)
            data = await asyncio.wait_for(_stop_at(one, line("printed")), DEADLINE)
            assert data["state"] == "stopped"
            await _aside(client.request, "disconnect", {"terminateDebuggee": True})
            text, data = await one.ask("wait") if (await _state(one)) == "running" else ("", {"state": "ended"})
            assert data["state"] == "ended"
            assert "has ended" in await one.refused("debug_where")

    asyncio.run(debug())


async def _state(one: Any) -> str:
    text, data, is_error = await one.try_to("debug_where")
    return "ended" if is_error and "has ended" in text else data["state"]


def test_an_editor_that_refuses_or_goes_takes_nothing_from_the_assistant(program: Fixture, editor: Editor) -> None:
    line = program.line

    async def debug() -> None:
        async with assistant(program.path.parent, editor=editor.address) as one:
            stops = [{"file": "program.py", "line": line("called")}]
            editor.refuses = "it has no time"
            text, data = await one.ask("debug_launch", program="program.py", breakpoints=stops)
            assert "it has no time" in text
            assert data["line"] == line("called")
            await one.ask("end")

            editor.refuses = None
            editor.breakpoints = {str(program.path): [line("looped")]}
            text, data = await one.ask("debug_launch", program="program.py", breakpoints=stops)
            assert data["line"] == line("called")
            await _aside(editor.stop)
            assert editor.client is not None
            editor.client.close()
            await _aside(editor.closed.wait, 60)
            # With the window its breakpoint has gone.
            text, data = await one.ask("debug_go")
            assert data["line"] == line("called"), text
            await one.ask("end")

            _, data = await one.ask("debug_launch", program="program.py", breakpoints=stops)
            await _aside(editor.stop)
            await one.ask("end")
            assert (await _aside(editor.next_event, "terminated"))[0] == "terminated"
            assert editor.closed.wait(DEADLINE)

            editor.close()
            text, data = await one.ask("debug_launch", program="program.py", breakpoints=stops)
            assert "does not see this session" in text
            assert data["line"] == line("called")

    asyncio.run(debug())
