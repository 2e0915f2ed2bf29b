"""A record may come from another user: its command runs only if this user's processes wrote it, or the user agrees."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lsprotocol import types

from dynamo_dap.commands import fix, report
from dynamo_dap.fixes.recorded_program import CannotTry, recorded_program, refuses_untrusted
from dynamo_dap.language_server.presentation import TRY_FIX
from dynamo_dap.protocol.access.consent import agree_to
from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from dynamo_dap.records.events import Started
from dynamo_dap.records.folders import records_folder
from dynamo_dap.records.signed import is_own, signed
from dynamo_dap.records.texts import digest_of_line
from tests.client.environments import own_command, python_option
from tests.client.timeline import DEADLINE
from tests.language_server.editor import Editor

PROGRAM = """\
import sys, torch

@torch.compile(backend="eager")
def fn(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2

open("ran", "a").write(repr(sys.argv[1:]))
print(fn(torch.ones(3)))
"""
LINE = 6


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(RECORDS_VARIABLE, str(tmp_path / "work" / "records"))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def started(folder: Path, *arguments: str, **changed: Any) -> Started:
    program = [str(folder / "program.py"), *arguments]
    return Started(**{"version": 1, "time": 1.0, "process": 1, "program": program, "cwd": str(folder), "python": "3",
                      **changed})  # fmt: skip


def write(folder: Path, first: Started) -> Path:
    """Write a record in the folder where the newest is looked for."""
    path = str(folder / "program.py")
    place = {"path": path, "line": LINE}
    graph_break = {"reason": "Call to `torch._dynamo.graph_break()`", "code": "GB0025", "place": place}
    events = [
        msgspec.to_builtins(first),
        {"event": "compileBegan", "id": "0/0", "name": "fn", "function": "fn", "place": place, "time": 1.0,
         "functionPlace": {"path": path, "line": 4}},
        {"event": "sourceRead", "path": path, "digests": "".join(map(digest_of_line, PROGRAM.split("\n")))},
        {"event": "breakFound", "id": "0/0", "graphBreak": graph_break},
        {"event": "compileEnded", "id": "0/0", "state": "compiled", "seconds": 0.5},
    ]  # fmt: skip
    record = records_folder(folder) / "20260101-000000-000000000-1.jsonl"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in events))
    return record


def tried(*options: str) -> tuple[int, str]:
    """Exit status and errors of ``dynamo-dap fix``, in this process, without a terminal."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO())
        return fix.main([*options, f"program.py:{LINE}"]), errors.getvalue()


FORGED: dict[str, Callable[[Path], Started]] = {
    "module": lambda folder: started(folder, "-s", "import.of.a.stranger", module="timeit"),
    "arguments": lambda folder: started(folder, "--upload"),
    "unsigned": started,
    "another's signature": lambda folder: started(folder, signature="0" * 64),
    "edited after signing": lambda folder: Started(
        **{**as_dict(signed(started(folder))), "program": [str(folder / "program.py"), "--upload"]}
    ),
    "module added after signing": lambda folder: Started(**{**as_dict(signed(started(folder))), "module": "timeit"}),
    "folder edited after signing": lambda folder: Started(
        **{**as_dict(signed(started(folder))), "cwd": str(folder.parent)}
    ),
}


def as_dict(event: Started) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_forged_command_is_shown_and_does_not_run(
    folder: Path, forged: Callable[[Path], Started], capsys: pytest.CaptureFixture[str]
) -> None:
    first = forged(folder)
    record = write(folder, first)
    assert not is_own(first)
    status, errors = tried()
    shown = capsys.readouterr().out
    assert status == 2
    assert "--yes" in errors, "no terminal to ask on"
    assert all(argument in shown for argument in first.program[1:])
    assert f"Working directory: {first.cwd}" in shown
    assert first.module is None or f"-m {first.module}" in shown
    with pytest.raises(CannotTry, match="by a process of yours"):
        refuses_untrusted(recorded_program(first))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO())
        assert report.main(["--try", str(record)]) == 2
    assert not (folder / "ran").exists()


class Terminal(io.StringIO):
    """Standard input of somebody who types an answer."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def python(folder: Path) -> list[str]:
    return python_option(folder / "program.py")


def test_it_is_asked_for_once_per_content(
    folder: Path, python: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, started(folder, "one"))
    for answer, status in (("n\n", 2), ("y\n", 0)):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        assert fix.main([*python, f"program.py:{LINE}"]) == status
        assert "Run it?" in capsys.readouterr().out
    assert (folder / "ran").read_text().startswith("['one']")
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert fix.main([*python, f"program.py:{LINE}"]) == 0
    assert "Run it?" not in capsys.readouterr().out
    write(folder, started(folder, "two"))
    assert tried(*python)[0] == 2
    (folder / "program.py").write_text(PROGRAM + "\n# another program\n")
    write(folder, started(folder, "one"))
    assert tried(*python)[0] == 2


def test_what_is_swapped_between_show_and_run_does_not_run(
    folder: Path, python: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is read once; the program is compared again before each run."""

    class Swaps(Terminal):
        def readline(self, *_: Any) -> Any:
            self.swap()
            return "y\n"

        def swap(self) -> None:
            write(folder, started(folder, "swapped"))

    write(folder, started(folder, "shown"))
    monkeypatch.setattr(sys, "stdin", Swaps())
    assert fix.main([*python, f"program.py:{LINE}"]) == 0
    assert "swapped" not in (folder / "ran").read_text()
    (folder / "ran").unlink()

    class SwapsProgram(Swaps):
        def swap(self) -> None:
            (folder / "program.py").write_text(PROGRAM.replace('"a"', '"w"'))

    monkeypatch.setattr(sys, "stdin", SwapsProgram())
    assert fix.main([*python, f"program.py:{LINE}"]) == 2
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("file", ["tool.py", "tool/__main__.py"])
def test_the_file_of_a_module_is_shown_and_agreed_to(
    folder: Path, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    """A record names the file of its module itself, and may name another."""
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text("open('ran', 'w')")
    named = started(folder, module="tool")
    write(folder, named)
    assert tried()[0] == 2
    assert f"File: {folder / file}\n" in capsys.readouterr().out
    checked = recorded_program(named)
    agree_to(checked.digest, checked.command)
    (folder / file).write_text("open('ran', 'w')  # another")
    with pytest.raises(CannotTry, match="by a process of yours"):
        refuses_untrusted(recorded_program(named))
    assert not (folder / "ran").exists()


def test_a_record_that_is_swapped_after_it_was_checked_is_refused(folder: Path) -> None:
    """As the server for assistants does: it checks a record, and another process runs it."""
    checked = recorded_program(signed(started(folder)))
    write(folder, signed(started(folder, "own as well")))
    status, errors = tried("--content", checked.digest)
    assert status == 2
    assert "has changed" in errors


def test_a_program_of_the_users_own_words_is_run_where_the_user_is(folder: Path, python: list[str]) -> None:
    """Nothing of the record is believed then, its working directory neither."""
    other = folder.parent / "other"
    other.mkdir()
    (other / "program.py").write_text("raise SystemExit('of a stranger')")
    write(folder, started(folder, cwd=str(other)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO())
        assert fix.main([*python, f"program.py:{LINE}", "--", "program.py", "mine"]) == 0
    assert (folder / "ran").read_text().startswith("['mine']")


def test_an_own_record_needs_no_question_and_the_key_is_private(folder: Path, python: list[str]) -> None:
    command = [*own_command(), "run", "program.py", "recorded"]
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE)
    (folder / "ran").unlink()
    assert tried(*python)[0] == 0
    assert (folder / "ran").read_text().startswith("['recorded']")
    key = folder.parent / "state" / "dynamo-dap" / "record-key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700


def test_a_key_that_others_can_read_signs_nothing(folder: Path) -> None:
    own = signed(started(folder))
    assert is_own(own)
    key = folder.parent / "state" / "dynamo-dap" / "record-key"
    key.chmod(0o644)
    assert not is_own(own)
    key.chmod(0o600)
    assert is_own(own)


def test_a_user_without_a_home_records_without_a_signature(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "file"))
    assert signed(started(folder)).signature is None


def test_an_assistant_does_not_run_a_forged_record(folder: Path) -> None:
    from tests.assistants.client import assistant

    write(folder, FORGED["module"](folder))

    async def ask() -> None:
        async with assistant(folder, roots=[folder]) as one:
            message = await one.refused("try_this_fix", file="program.py", line=LINE)
            assert "by a process of yours" in message
            assert "dynamo-dap fix --record" in message

    asyncio.run(ask())
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("forged", ["module", "unsigned", "another's signature"])
def test_an_editor_does_not_run_a_forged_record(folder: Path, forged: str) -> None:
    """It is shown, since it is data; the fix that it is asked to try says why its command does not run."""
    program = folder / "program.py"
    write(folder, FORGED[forged](folder))
    with Editor(folder, folder / "records") as editor:
        editor.open(program)
        editor.wait("the break", lambda: bool(editor.at(program, LINE, "graph-break")))
        place = {"uri": program.as_uri(), "line": LINE - 1}
        editor.execute(types.Command("", TRY_FIX, arguments=[place]))
        editor.wait("the refusal", lambda: bool(editor.messages))
        assert "by a process of yours" in editor.messages[0]
    assert not (folder / "ran").exists()
