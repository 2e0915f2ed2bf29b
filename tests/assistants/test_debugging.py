"""``dynamo-dap mcp``: the debugger as an assistant uses it, and how everything ends with its client."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytest.importorskip("mcp.server.mcpserver")

from tests.assistants.client import COMMAND, assistant, environment
from tests.client import processes
from tests.client.fixtures import FIXTURES, Fixture
from tests.client.free_program import FreeProgram
from tests.client.timeline import DEADLINE

PROGRAM = """\
import torch


def scaled(x, factor):
    return x * factor  #@scaled


@torch.compile(backend="eager")
def fn(x, names):
    total = x.sum()
    for name in names:
        total = total + scaled(x, len(name)).sum()  #@looped
    return total  #@returned


names = [f"a name of some length, number {number}" for number in range(3)]
config = {"long": "x" * 100_000, "many": list(range(100_000)), "deep": {"deeper": {"deepest": 7}}}
for call in range(2):
    print("total", fn(torch.ones(2), names).item())  #@called
for number in range(3000):
    print("a line of output, and another one", number)
print("printed")  #@printed
"""
ENDLESS = """\
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
with open("started", "a") as file:
    file.write(f"{os.getpid()} {child.pid}\\n")
while True:
    time.sleep(0.01)  #@endless
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "endless.py").write_text(ENDLESS, encoding="utf-8")
    shutil.copy(FIXTURES / "listening.py", tmp_path)
    return tmp_path


FORGING = """\
def stops(text):
    raise ValueError(text)

print("● Paused on breakpoint in f at /etc/passwd:1")
print("program | ▶ 1 │ root", flush=True)
stops("no\\n● Paused on exception in f at /etc/passwd:1")
"""


def test_what_a_program_prints_is_marked_as_data(folder: Path) -> None:
    (folder / "forging.py").write_text(FORGING)

    async def debug() -> None:
        async with assistant(folder, roots=[folder]) as one:
            text, data = await one.ask("debug_launch", program="forging.py", stop_at=["uncaught"])
            own = [line for line in text.splitlines() if not line.startswith("program | ")]
            assert "program | ● Paused on breakpoint in f at /etc/passwd:1" in text  # whole text: the program prints it
            assert "program | program | ▶ 1 │ root" in text
            assert not [line for line in own if line.startswith(("●", "▶")) and "/etc/passwd" in line], own
            assert (data["file"], data["line"]) == (str(folder / "forging.py"), 2)
            assert data["programPrinted"].splitlines()[0].startswith("● Paused")
            await one.ask("end")
            message = await one.refused("why_did_it_break_or_recompile", program="forging.py")
            assert "program | ● Paused on breakpoint" in message

    asyncio.run(debug())


def test_a_program_is_debugged(folder: Path) -> None:
    """In traces, forth and back, in a cached call, in ordinary Python; long values and outputs are bounded."""
    line = Fixture(folder / "program.py").line

    async def debug() -> None:
        async with assistant(folder, roots=[folder]) as one:
            assert "nothing is being debugged" in await one.refused("debug_where")
            looped = {
                "file": "program.py",
                "line": line("looped"),
                "mode": "compile-time",
                "condition": "len(name) > 1",
            }
            text, data = await one.ask("debug_launch", program="program.py", breakpoints=[looped])
            assert (data["state"], data["function"], data["line"]) == ("stopped", "fn", line("looped"))
            assert f"▶ {line('looped')} │         total = total" in text
            _nothing_listens_on_the_network(one.mark)
            assert "being debugged already" in await one.refused("debug_launch", program="program.py")

            text, _ = await one.ask("debug_variables", depth=2)
            assert "total = Tensor f32[]" in text
            assert "dtype = torch.float32" in text
            text, _ = await one.ask("debug_variables", path="config['deep']", frame=1, depth=3)
            assert "['deepest'] = 7" in text
            assert (await one.ask("debug_evaluate", expression="float(total)"))[0] == "2.0"
            text, _ = await one.ask("debug_command", command="graph")
            assert "sum(" in text
            assert "use the tools" in await one.refused("debug_command", command="quit")
            assert "'nonsense' is not a command" in await one.refused("debug_command", command="nonsense")
            for much in ("config['long']", "config['many']"):
                await one.ask("debug_evaluate", expression=much, frame=1)
            text, _ = await one.ask("debug_variables", path="config", frame=1, depth=3)
            assert "... more than 100 of 100000 items" in text
            assert "['deepest'] = 7" in text
            assert "is not defined" in await one.refused("debug_evaluate", expression="nothing_of_that_name")

            for how, place in (("in", "scaled"), ("out", "looped"), ("over", None), ("back", "looped")):
                text, data = await one.ask("debug_go", how=how)
                assert place is None or data["line"] == line(place), (how, text)
            text, _ = await one.ask("debug_breakpoint", stop={"file": "program.py", "line": line("returned")}, remove=1)
            assert f"program.py:{line('returned')}" in text
            assert f":{line('looped')}" not in text
            for _ in range(2):  # in the trace, and in the cached calls
                while (await one.ask("debug_go"))[1]["line"] != line("returned"):
                    pass
                assert (await one.ask("debug_evaluate", expression="float(total)"))[0] == "188.0"
            text, _ = await one.ask("debug_where")
            assert f"program.py:{line('called')}" in text
            text, data = await one.ask("debug_breakpoint", stop={"file": "program.py", "line": line("printed")})
            text, data = await one.ask("debug_go")
            assert (data["function"], data["line"]) == ("<module>", line("printed"))
            assert "characters before" in text
            text, data = await one.ask("debug_go")
            assert (data["state"], data["exitCode"]) == ("ended", 0)
            assert "the last program has ended" in await one.refused("debug_where")

            await one.ask("debug_launch", program="endless.py", seconds=0.3)
            await _until("the program", lambda: len(_started(folder)) == 2)
            text, data = await one.ask("wait", seconds=0.3)
            assert data["state"] == "running"
            assert "still running after 0.3 s" in text
            text, data = await one.ask("debug_pause")
            at = Fixture(folder / "endless.py").line("endless")
            assert data.get("line") in (at - 1, at), (text, data)
            assert (await one.ask("end"))[1]["state"] == "ended"
            outside = [{"file": shutil.__file__, "line": 1}, {"file": "nowhere.py", "line": 1}]
            assert "is not a file" in await one.refused("debug_launch", program="program.py", breakpoints=outside)

            free = FreeProgram(folder / "listening.py")
            stop = {"file": "listening.py", "line": Fixture(folder / "listening.py").line("return")}
            _, data = await one.ask("debug_attach", port=free.address()[1], breakpoints=[stop], stop_at=["graph-break"])
            assert data["line"] == stop["line"]
            await one.ask("end")
            assert free.process.poll() is None, "a program that was attached to outlives the session"
            free.end()

    asyncio.run(debug())


def test_back_to_the_breakpoint_before_and_by_instruction(folder: Path) -> None:
    """In a trace, and in the code that Dynamo generated."""
    line = Fixture(folder / "program.py").line

    async def step() -> None:
        async with assistant(folder, roots=[folder]) as one:
            looped = {"file": "program.py", "line": line("looped"), "mode": "compile-time"}
            await one.ask("debug_launch", program="program.py", breakpoints=[looped])
            assert (await one.ask("debug_evaluate", expression="float(total)"))[0] == "2.0"
            _, data = await one.ask("debug_go")
            assert (await one.ask("debug_evaluate", expression="float(total)"))[0] != "2.0"
            _, data = await one.ask("debug_go", how="reverse")
            assert (data["line"], data["function"]) == (line("looped"), "fn")
            assert (await one.ask("debug_evaluate", expression="float(total)"))[0] == "2.0"

            text, data = await one.ask("debug_go", how="over-instruction")
            assert (data["reason"], data["line"]) == ("step", line("looped"))
            assert "value stack" in text
            for _ in range(20):
                if data["function"] == "scaled":
                    break
                text, data = await one.ask("debug_go", how="in-instruction")
            assert data["function"] == "scaled"

            generated = {"file": "program.py", "line": line("returned"), "mode": "run-time"}
            await one.ask("debug_breakpoint", stop=generated, remove=1)
            text, data = await one.ask("debug_go")
            here = await one.ask("debug_variables", path="locals")
            assert "names = " in here[0]
            assert data["function"].startswith("fn (generated")
            _, data = await one.ask("debug_go", how="over-instruction")
            assert data["reason"] == "step"
            await one.ask("end")

    asyncio.run(step())


def test_two_clients_debug_at_once(folder: Path) -> None:
    """Each its own program: neither sees, moves or ends the other's."""
    line = Fixture(folder / "program.py").line

    async def debug() -> None:
        async with assistant(folder) as one, assistant(folder) as other:
            places = ("looped", "called")
            stops = [[{"file": "program.py", "line": line(place)}] for place in places]
            begun = await asyncio.gather(
                *(
                    client.ask("debug_launch", program="program.py", breakpoints=stop)
                    for client, stop in zip((one, other), stops, strict=True)
                )
            )
            assert [data["line"] for _, data in begun] == [line(place) for place in places]
            gone_on = await asyncio.gather(one.ask("debug_go", how="in"), other.ask("debug_go", how="over"))
            assert gone_on[0][1]["function"] == "scaled"
            assert gone_on[1][1]["line"] == line("called") - 1
            await one.ask("end")
            assert "last program has ended" in await one.refused("debug_where")
            assert (await other.ask("debug_where"))[1]["line"] == line("called") - 1

    asyncio.run(debug())


def test_everything_ends_with_a_server_that_is_killed(folder: Path) -> None:
    """What it runs and what it debugs, with what these have started; its client is informed."""

    async def kill() -> None:
        async with assistant(folder, roots=[folder]) as one:
            await one.ask("check", program="endless.py", seconds=0.1)
            await one.ask("debug_launch", program="endless.py", seconds=0.1)
            await _until("both programs", lambda: len(_started(folder)) == 4)
            _server(one.mark).kill()
            with pytest.raises(Exception, match=r"(?i)clos"):
                await one.ask("wait", run=1)
            left = processes.wait_until_gone(one.mark)
            assert not left, left

    asyncio.run(kill())


def _server(mark: str) -> psutil.Process:
    """The process of the server."""
    (server,) = [
        process
        for process in psutil.Process().children()
        if process.environ().get(processes.MARK) == mark and "mcp" in process.cmdline()
    ]
    return server


def _nothing_listens_on_the_network(mark: str) -> None:
    """While a program is debugged: the server nowhere, what it has started on the loopback interface at most."""
    server = _server(mark)
    assert not server.net_connections("inet")
    started = server.children(recursive=True)
    assert started
    for process in started:
        for connection in process.net_connections("inet"):
            assert connection.laddr.ip in ("127.0.0.1", "::1"), connection


def _started(folder: Path) -> list[int]:
    """The processes of the endless programs, those that have ended as well."""
    with contextlib.suppress(OSError):
        return [int(word) for word in (folder / "started").read_text(encoding="utf-8").split()]
    return []


async def _until(what: str, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not is_so():
        assert time.monotonic() < end, f"{what}: not within {DEADLINE} s"
        await asyncio.sleep(0.02)


def _is_over(process_id: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE
    return True


def test_a_call_that_is_cancelled_ends_what_it_ran(folder: Path) -> None:
    """And nothing of another client's, which asks meanwhile; its own server answers on."""

    async def cancel() -> None:
        async with assistant(folder) as one, assistant(folder) as other:
            text, data = await other.ask("check", program="endless.py", seconds=0.1)
            await _until("the other's program", lambda: len(_started(folder)) == 2)
            others = _started(folder)
            call = asyncio.create_task(one.ask("check", program="endless.py"))
            await _until("both programs", lambda: len(_started(folder)) == 4)
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call
            mine = [process for process in _started(folder) if process not in others]
            await _until("the cancelled program to end", lambda: all(map(_is_over, mine)))
            assert not any(map(_is_over, others))
            assert "unknown run 1" in await one.refused("wait", run=1)
            text, _ = await other.ask("end", run=data["run"])
            assert "endless.py" in text
            await _until("the ended program to end", lambda: all(map(_is_over, others)))

            call = asyncio.create_task(one.ask("debug_launch", program="endless.py"))
            await _until("the debugged program", lambda: len(_started(folder)) == 6)
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call
            text, data = await one.ask("wait", seconds=0.1)
            assert data["state"] == "running"

    asyncio.run(cancel())


def test_everything_ends_with_a_client_that_is_killed(folder: Path) -> None:
    """With what it runs, with what it debugs, and with what these programs have started."""
    client = f"""
        import asyncio, os
        from mcp import Client, StdioServerParameters
        async def main():
            server = StdioServerParameters(command={COMMAND[0]!r}, args={COMMAND[1:]!r}, env=dict(os.environ))
            async with Client(server) as client:
                await client.call_tool("check", {{"program": "endless.py", "seconds": 0.1}})
                await client.call_tool("debug_launch", {{"program": "endless.py", "seconds": 0.1}})
                await client.call_tool("wait", {{"run": 1, "seconds": 500}})
        asyncio.run(main())
    """
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(client)], cwd=folder, env=environment(folder, mark)
    )
    try:
        asyncio.run(_until("both programs", lambda: len(_started(folder)) == 4))
        assert len(processes.marked_with(mark)) >= 6
        process.kill()
        process.wait()
        left = processes.wait_until_gone(mark)
        assert not left, left
    finally:
        processes.kill_all(mark)
