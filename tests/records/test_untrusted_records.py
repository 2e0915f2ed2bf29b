"""A record may come with a repository: its content is only shown as text, and a bad line spoils no other line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import records_folder
from dynamo_dap.records.texts import digest_of_line
from tests.client.timeline import DEADLINE
from tests.language_server.editor import Editor

SOURCE = "import torch\n\n\ndef fn(x):\n    y = x + 1\n    return y\n"
ESCAPE = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\x7f\u202e"


def _write(folder: Path, more: Iterable[str | dict[str, Any]], **started: Any) -> tuple[Path, Path]:
    """Write a program, and a record of it in its records folder; return both paths."""
    program = folder / "program.py"
    program.write_text(SOURCE, encoding="utf-8")
    place = {"path": str(program), "line": 4}
    began = {"event": "compileBegan", "id": "0/0", "name": "fn", "function": "fn", "place": place}
    events: list[str | dict[str, Any]] = [
        {"event": "started", "version": 1, "time": 1.0, "process": 1, "program": [str(program)], "python": "3"}
        | {"cwd": str(folder), **started},
        began | {"functionPlace": place, "time": 1.0},
        {"event": "sourceRead", "path": str(program), "digests": "".join(map(digest_of_line, SOURCE.split("\n")))},
        *more,
        {"event": "compileEnded", "id": "0/0", "state": "compiled", "seconds": 0.5},
        {"event": "ended", "time": 2.0},
    ]
    lines = [one if isinstance(one, str) else json.dumps(one) for one in events]
    records = Path(os.environ[RECORDS_VARIABLE])
    record = records_folder(folder) / "20260101-000000-000000000-1.jsonl"
    assert record.is_relative_to(records)
    record.parent.mkdir(parents=True)
    compact = [line.replace('{"event": "', '{"event":"').replace('", "id', '","id') for line in lines]
    record.write_text("\n".join(compact) + "\n", encoding="utf-8", errors="surrogatepass")
    return program, record


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(RECORDS_VARIABLE, str(tmp_path / "records"))
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def _report(record: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dynamo_dap", "report", str(record), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)


def _break(**facts: Any) -> dict[str, Any]:
    return {"event": "breakFound", "id": "0/0", "graphBreak": {"reason": "a reason", **facts}}


def test_control_characters_reach_no_terminal(folder: Path) -> None:
    text = f"before {ESCAPE} after"
    limit = {"event": "limitReached", "id": "0/0", "limit": text}
    escaped = _break(reason=text, explanation=text, hints=[text], effect=text)
    raw = json.dumps(_break(reason="raw \x7f \x9b31m \u202e"), ensure_ascii=False)
    _, record = _write(folder, [limit, escaped, raw], program=[text])
    for options in ((), ("--json",)):
        shown = _report(record, *options)
        assert shown.returncode == 0, shown.stderr
        assert "before" in shown.stdout
        assert "raw " in shown.stdout
        assert not {*shown.stdout} & {"\x1b", "\x07", "\r", "\x9b", "\x7f", "\u202e"}


def test_a_path_of_windows_is_no_control_character(folder: Path) -> None:
    _, record = _write(folder, [_break(reason=r"C:\repo\beta\u001b.py")])
    (compiled,) = (one for _, one in read_record(record).compiles())
    assert compiled.breaks[0].reason == r"C:\repo\beta\u001b.py"


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[" * 100_000,
        '{"event":"guardsMade","id":"0/0","count":1,"guards":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"event":"guardsMade","id":"0/0","count":1,"guards":[],"more":' + '{"a":' * 50_000 + "1" + "}" * 50_000 + "}",
        '{"event":"guardsMade","id":"0/0","count":"many","guards":[]}',
        '{"event":"no such event"}',
        '{"event":"breakFound","id":"0/0","graphBreak":{"reason":"\\ud800"}}',
    ],
    ids=[
        "no JSON",
        "deep",
        "deep in a field",
        "deep in an unknown field",
        "a wrong type",
        "unknown",
        "half a character",
    ],
)
def test_a_bad_line_costs_that_line_only(folder: Path, line: str) -> None:
    _, record = _write(folder, [line, _break(reason="still there")])
    shown = _report(record)
    assert shown.returncode == 0, shown.stderr
    assert "still there" in shown.stdout
    if '"more":' in line and "1 guards" in shown.stdout:
        return  # from Python 3.14 on msgspec skips an unknown field, however deep it is
    assert "1 lines of the record cannot" in shown.stdout
    assert "Traceback" not in shown.stderr


def test_a_trace_outside_of_the_records_folder_is_refused(folder: Path) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "dedicated_log.log").write_text("V0101", encoding="utf-8")
    _, record = _write(folder, [], trace=str(elsewhere))
    shown = _report(record, "--tlparse", "--no-browser")
    assert shown.returncode == 1
    assert "outside of its folder" in shown.stderr
    assert [one.name for one in elsewhere.iterdir()] == ["dedicated_log.log"]


def test_an_editor_shows_text_and_opens_nothing(folder: Path) -> None:
    """No Markdown and no invalid page address reaches the editor; a device instead of a file blocks nothing."""
    evil = "a` [click](command:evil) ![](https://example.org/x.png) <img src=x> `b"
    place = {"path": str(folder / "program.py"), "line": 5, "column": 5}
    value = {"name": "y", "text": evil, "place": place, "source": evil, "hasTensor": True}
    function = {"name": "fn", "place": {**place, "line": 4}, "lines": [4, 5, 6], "traced": [4, 5, 6]}
    traced = {"event": "traced", "id": "0/0", "functions": [function], "values": [value]}
    found = _break(place=place, link="command:evil", id="GB1", stack=[{"place": place, "function": evil}])
    device = {"event": "sourceRead", "path": "/dev/zero", "digests": "00000000"}
    guard = {"expression": evil, "type": "EQUALS_MATCH", "source": "y"}
    guards = {"event": "guardsMade", "id": "0/0", "count": 1, "guards": [guard]}
    program, _ = _write(folder, [found, traced, guards, device, _break(place={"path": "/dev/zero", "line": 1})])
    with Editor(folder, Path(os.environ[RECORDS_VARIABLE])) as editor:
        editor.open(program)
        editor.wait("the graph break", lambda: bool(editor.at(program, 5)))
        (diagnostic,) = editor.at(program, 5)
        assert diagnostic.code_description is None
        hover = editor.hover(program, 5, 4)
        assert editor.lenses(Path("/no\0file.py")) == []
    assert hover is not None
    # The text is code, fenced by more backticks than it has: no part of it is Markdown.
    assert hover.count(f"``{evil}``") == 3
    assert "command:" not in hover.replace(f"``{evil}``", "")
