"""A trace log of another machine, in an editor and for an assistant."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from lsprotocol import types

from dynamo_dap.language_server.presentation import WRITE_REPORT
from dynamo_dap.language_server.report_page import ReportPage
from dynamo_dap.trace_logs.logs import TraceReader, chosen_log
from tests.language_server.editor import Editor
from tests.trace_logs.conftest import PROGRAM
from tests.trace_logs.test_trace_logs import RELOADS, compiles, compiles_on, line_of, write_large

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


@pytest.mark.parametrize("is_stopped", [False, True])
def test_the_page_of_a_large_log_begins_with_its_first_part(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    monkeypatch.setattr("dynamo_dap.language_server.report_page._FIRST_PAGE_SECONDS", 0.0)
    monkeypatch.setattr("dynamo_dap.language_server.report_page._PIECE_SECONDS", 0.0)
    log = tmp_path / "large.log"
    copies = write_large(log, chosen_log(logs / "breaks").read_text(), 2_000_000)
    written = ReportPage(log)
    path = written.begin()
    assert RELOADS in path.read_text()
    assert compiles_on(path.read_text()) < copies
    if is_stopped:
        written.stop()
    written.finish()
    page = path.read_text()
    assert RELOADS not in page
    assert ("the reading was stopped" in page) is is_stopped
    assert is_stopped or compiles_on(page) == copies * len(compiles(logs / "breaks"))


@pytest.mark.long
def test_an_editor_gets_the_page_of_a_large_log_before_the_whole_was_read(logs: Path, tmp_path: Path) -> None:
    log, size, text = tmp_path / "large.log", 100_000_000, chosen_log(logs / "breaks").read_text()
    copies = write_large(log, text, size)
    while TraceReader(log).read(2.0):
        size *= 2
        copies = write_large(log, text, size)
    with Editor(tmp_path, tmp_path / "records", settings={"traceLog": str(log)}) as editor:
        page = log.with_suffix(".html")

        def is_written() -> bool:
            return editor.execute(types.Command("", WRITE_REPORT)) is not None

        editor.wait("the first page", is_written)
        assert RELOADS in page.read_text()
        editor.wait("the whole page", lambda: RELOADS not in page.read_text())
    assert compiles_on(page.read_text()) == copies * len(compiles(logs / "breaks"))


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
