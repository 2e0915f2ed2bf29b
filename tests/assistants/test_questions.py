"""``dynamo-dap mcp``: what an assistant asks about real programs, through the SDK's client and a server process."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import jsonschema
import pytest

pytest.importorskip("mcp.server.mcpserver")

from dynamo_dap.commands.schema import schema_of
from tests.assistants.client import assistant
from tests.client.environments import need_inductor
from tests.client.fixtures import FIXTURES, Fixture

PROGRAM = """\
import logging
import sys

import torch

log = logging.getLogger(__name__)


class Steps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
        self.calls = 0

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        torch._dynamo.graph_break()  #@broken
        return x.sum()


model = torch.compile(Steps(), backend="eager")
for size in (3, 5):
    total = model(torch.ones(size, 4))
for number in range(3000):
    print("a line of output, and another one", number)
sys.exit(0)
"""
WRONG_WHEN_COMPILED = """\
import torch


@torch.compile
def fn(x):
    return x + (1 if torch.compiler.is_compiling() else 0)


assert fn(torch.zeros(2)).sum().item() == 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "program.py").write_text(PROGRAM, encoding="utf-8")
    (path / "traced.py").write_text(WRONG_WHEN_COMPILED, encoding="utf-8")
    (tmp_path / "outside.py").write_text("import torch\n", encoding="utf-8")
    (path / "link.py").symlink_to(tmp_path / "outside.py")
    shutil.copy(FIXTURES / "wrong_backend.py", path)
    return path


def test_what_a_program_compiles(folder: Path) -> None:
    """Why, whether it may, what helps, what is cached, where time goes; a program outside of the roots is not run."""
    program = Fixture(folder / "program.py")
    place = f"program.py:{program.line('broken')}"

    async def ask() -> None:
        async with assistant(folder.parent, roots=[folder]) as one:
            assert "no program has been recorded" in await one.refused("what_was_recorded")
            assert "no record mentions" in await one.refused("try_this_fix", file="program.py", line=1)
            text, data = await one.ask("why_did_it_break_or_recompile", program="program.py")
            assert f"Graph break at {place}: Call to `torch._dynamo.graph_break()`" in text
            (found,) = [each for each in data["findings"] if each["kind"] == "graph break"]
            assert (found["path"], found["line"]) == ("program.py", program.line("broken"))
            again, _ = await one.ask("what_was_recorded")
            assert again == text

            listed = await one.read("dynamo-dap://records")
            uri = next(word for word in listed.split() if "/graphs/" in word)
            assert "torch.tanh" in await one.read(uri)
            uri = next(word for word in listed.split() if "/code/" in word)
            generated = await one.read(uri)
            assert "__compiled_fn_" in generated
            assert "RETURN_VALUE" in generated
            assert "unknown compile 9-9" in await one.not_there(uri.rpartition("/")[0] + "/9-9")
            assert "page 1 of" in await one.read(f"dynamo-dap://records/{data['record']}/json")
            assert "counted from 1" in await one.read(f"dynamo-dap://records/{data['record']}/json?page=999")

            text, data = await one.ask("check", program="program.py", max_breaks=0, max_recompiles=2)
            assert "    hint (not tried): Remove " in text
            assert f"{place}: Graph break" in text
            assert not data["ok"]
            assert len(data["problems"]) == 1
            jsonschema.validate(data, schema_of("check"))

            text, _ = await one.ask("try_this_fix", file="program.py", line=program.line("broken"))
            assert "It helps, and" in text
            assert "the result is the same" in text
            assert "-        torch._dynamo.graph_break()" in text
            assert program.path.read_text(encoding="utf-8") == PROGRAM

            # The program prints far more than an answer may have: that is not the answer.
            text, _ = await one.ask("what_is_cached", program="program.py", function="forward")
            assert text.startswith(f"Steps.forward  {program.path}:")
            text, _ = await one.ask("where_compile_time_goes", program="program.py")
            assert text.startswith("Where the time goes")
            assert "Steps.forward  program.py:" in text

            for given in ("../outside.py", "link.py", "/etc/passwd"):
                assert "outside of the roots" in await one.refused("check", program=given)
            assert "has no module pytest" in await one.refused("check", module="pytest")
            text, data = await one.ask("check", module="program", max_breaks=9, max_recompiles=9)
            assert data["ok"], text
            assert "give a program" in await one.refused("check")
            assert "outside of the roots" in await one.refused("what_was_recorded", folder="..")

    asyncio.run(ask())


READ_ONLY = {"what_was_recorded", "debug_where", "debug_variables"}
RUN_CODE = {
    *("why_did_it_break_or_recompile", "which_line_is_wrong", "which_kernels_compute", "where_compile_time_goes"),
    *("which_stage_is_wrong", "what_is_cached", "try_this_fix", "check"),
    *("debug_launch", "debug_attach", "debug_go", "debug_evaluate", "debug_command", "end"),
}
CONTROL = {"debug_breakpoint", "debug_pause", "wait"}


def test_tools_are_marked_as_what_they_are(folder: Path) -> None:
    """And each says what it is for, and what each of its parameters is."""

    async def look() -> None:
        async with assistant(folder) as one:
            tools = {tool.name: tool for tool in (await one.client.list_tools()).tools}
            marked = {name: tool.annotations for name, tool in tools.items() if tool.annotations is not None}
            assert set(marked) == set(tools)
            assert {name for name, marks in marked.items() if marks.read_only_hint} == READ_ONLY
            assert {name for name, marks in marked.items() if marks.destructive_hint} == RUN_CODE
            assert set(tools) == READ_ONLY | RUN_CODE | CONTROL
            assert all(tool.description for tool in tools.values())
            without = {
                (name, parameter)
                for name, tool in tools.items()
                for parameter, schema in tool.input_schema["properties"].items()
                if not schema.get("description") and not parameter.startswith("max_")
            }
            assert not without

    asyncio.run(look())


def test_which_line_and_which_stage_is_wrong(folder: Path) -> None:
    """By a client of an older protocol, which has no roots: what is run is below the server's own folder."""
    program = Fixture(folder / "wrong_backend.py")

    async def ask() -> None:
        async with assistant(folder, mode="legacy") as one:
            text, data = await one.ask("which_line_is_wrong", program="wrong_backend.py")
            assert text.startswith(f"Different: {program.path}:{program.line('differs')} in block")
            assert [each["line"] for each in data["comparisons"] if not each["same"]] == [program.line("differs")]
            jsonschema.validate(data["comparisons"][0], schema_of("compare"))
            text, _ = await one.ask("which_line_is_wrong", program="wrong_backend.py", looks_for="nan")
            assert f"in share at wrong_backend.py:{program.line('divided')}" in text

            text, data = await one.ask("which_stage_is_wrong", program="traced.py", seconds=0.2)
            assert "still running after" in text
            text, data = await one.ask("wait", run=data["run"], seconds=120)
            assert text.startswith("Wrong: eager (Dynamo's own trace)"), text
            assert data["verdict"]["stage"] == "eager"
            jsonschema.validate(data["verdict"], schema_of("bisect"))
            assert "outside of the roots" in await one.refused("check", program="../outside.py")

    asyncio.run(ask())


def test_which_kernels_compute_a_line(folder: Path) -> None:
    need_inductor("explored.py")
    shutil.copy(FIXTURES / "explored.py", folder)
    line = Fixture(folder / "explored.py").line("active")

    async def ask() -> None:
        async with assistant(folder, roots=[folder]) as one:
            text, _ = await one.ask(
                "which_kernels_compute", program="explored.py", line=f"explored.py:{line}", seconds=120
            )
            assert "forward-kernels" in text
            assert "cpp_fused" in text
            listed = await one.read("dynamo-dap://explored")
            uri = next(word for word in listed.split() if word.endswith("forward-fused"))
            pages = [await one.read(f"{uri}?page={number}") for number in (1, 2)]
            assert pages[0].startswith("(page 1 of ")
            assert pages[0] != pages[1]
            text, _ = await one.ask("which_kernels_compute", stage="forward-kernels")
            assert "extern" in text

    asyncio.run(ask())


READS_INPUT = """\
import sys
import torch

@torch.compile(backend="eager")
def fn(x, times):
    return x * times

times = int(input())
print("read", times, repr(sys.stdin.read()))
assert times == 1, times
fn(torch.zeros(2), times)
"""


def test_programs_read_the_input_that_a_tool_gives(folder: Path) -> None:
    """And the end of the input where none is given."""
    (folder / "reads.py").write_text(READS_INPUT, encoding="utf-8")
    given = {"program": "reads.py", "standard_input": "1\nthe rest"}

    async def ask() -> None:
        async with assistant(folder, roots=[folder]) as one:
            text, data = await one.ask("check", **given)
            assert data["programStatus"] == 0, text
            text, _ = await one.ask("what_is_cached", **given)
            assert text.startswith("fn  "), text
            text, _ = await one.ask("debug_launch", **given)
            assert "read 1 'the rest'" in text
            _, data = await one.ask("check", program="reads.py")
            assert data["programStatus"] == 1, "the input is at its end"
            text, _ = await one.ask("which_line_is_wrong", looks_for="nan", **given)
            assert "read 1 'the rest'" in text

    asyncio.run(ask())
