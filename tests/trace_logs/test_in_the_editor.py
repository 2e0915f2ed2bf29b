"""A trace log of another machine, in an editor and for an assistant."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from lsprotocol import types

from dynamo_dap.language_server.presentation import WRITE_REPORT
from tests.language_server.editor import Editor
from tests.trace_logs.conftest import PROGRAM
from tests.trace_logs.test_trace_logs import line_of

BREAK = "GB0170"


def test_a_log_that_the_settings_name_marks_the_lines_of_a_checkout(logs: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    program = workspace / PROGRAM.name
    program.write_text(PROGRAM.read_text())
    mapping = {"localRoot": "${workspaceFolder}", "remoteRoot": str(PROGRAM.parent)}
    settings = {"traceLog": str(logs / "breaks"), "pathMappings": [mapping]}
    with Editor(workspace, tmp_path / "records", settings=settings) as editor:
        editor.open(program)
        branch, compared = line_of("branch"), line_of("compared")
        editor.wait("the graph break", lambda: bool(editor.at(program, branch, BREAK)))
        assert "Data-dependent branching" in editor.at(program, branch, BREAK)[0].message
        page = Path(str(editor.execute(types.Command("", WRITE_REPORT))))
        assert page == logs / "breaks.html"
        assert str(program) in page.read_text()

        editor.change_settings({**settings, "traceLog": str(logs / "recompiles")})
        editor.wait("the first log is gone", lambda: not editor.at(program, branch, BREAK))
        editor.change_settings({**settings, "traceLog": "nowhere"})
        editor.wait("what is wrong", lambda: bool(editor.messages))
        assert "nowhere: No such file" in editor.messages[-1]
        assert not editor.at(program, compared)


def test_an_assistant_reads_a_log_below_its_roots(logs: Path, tmp_path: Path) -> None:
    pytest.importorskip("mcp.server.mcpserver")
    from tests.assistants.client import assistant

    async def ask() -> None:
        async with assistant(tmp_path, roots=[logs]) as one:
            text, data = await one.ask("what_was_recorded", trace_log="breaks")
            assert "Graph break count: 4" in text
            assert line_of("branch") in [found["line"] for found in data["findings"]]
            assert "is not a trace log" in await one.refused("what_was_recorded", trace_log=".")
            assert "outside of the roots" in await one.refused("what_was_recorded", trace_log="..")
            assert "no file or folder" in await one.refused("what_was_recorded", trace_log="absent")

    asyncio.run(ask())
