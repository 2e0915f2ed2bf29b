"""A path that is not a file of the right kind gives one readable line from every command, and no command hangs."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dynamo_dap.command_line import main
from dynamo_dap.protocol.output_files import HTML_MARK, write_output
from dynamo_dap.protocol.user_files import read_regular
from tests.client.timeline import DEADLINE

READING = (
    ["report", "PATH"],
    ["report", "--ranks", "PATH"],
    ["fix", "program.py:1", "--record", "PATH"],
    ["fix", "PATH:1"],
    ["check", "--record", "PATH"],
    ["check", "--record", "program.py", "--sarif", "PATH"],
    ["replay", "PATH"],
    ["debug", "-x", "PATH", "program.py"],
    ["debug", "--input", "PATH", "program.py"],
)
RUNNING = (
    *([command, "PATH"] for command in ("run", "explore", "entries", "profile", "compare", "bisect", "record-call")),
    *([command, "PATH"] for command in ("check", "minify", "debug")),
)
LOG = ["--log", "PATH"]
BAD = {
    "pipe": "pipe",
    "folder": "folder",
    "overlong": "a" * 5000,
    "overlong name": "b" * 300,
    "below a file": "program.py/x",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "program.py").write_text("print('it ran')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ended(arguments: list[str]) -> int | str | None:
    try:
        return main(arguments)
    except SystemExit as end:
        return end.code


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("command", "kind"),
    [
        *((command, kind) for command in (*READING, LOG) for kind in BAD),
        # Whether Python can run a folder, or finds a file, is Python's to say.
        *((command, kind) for command in RUNNING for kind in ("pipe", "overlong", "overlong name")),
    ],
    ids=lambda given: given if isinstance(given, str) else " ".join(given),
)
def test_a_bad_path_gives_one_line(capfd: pytest.CaptureFixture[str], command: list[str], kind: str) -> None:
    bad = BAD[kind]
    status = ended([word.replace("PATH", bad) for word in command])
    output, errors = capfd.readouterr()
    assert status not in (0, None)
    assert "Traceback" not in output + errors
    assert errors.strip() or output.strip()
    assert "it ran" not in output


@pytest.mark.usefixtures("folder")
def test_a_file_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user may read everything, so the test plays the system's refusal."""

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied", "program.py")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError):
        read_regular("program.py")
    assert ended(["report", "program.py"]) == 1


def test_a_null_byte_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="null"):
        read_regular("a\0b")


def test_pages_are_their_users_own(folder: Path) -> None:
    page = folder / "report.html"
    write_output(page, b"", is_private=True)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    page.write_text(f"<!doctype html><html lang='en'><head><meta charset='utf-8'>{HTML_MARK}")
    page.chmod(0o644)
    write_output(page, b"", is_private=True)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


@pytest.mark.parametrize("command", [["debug", "program.py", "--stop-on-entry"], ["report", "nowhere"], ["doctor"]])
def test_few_descriptors_give_a_text(folder: Path, command: list[str]) -> None:
    """As ``ulimit -n 12`` leaves them: what needs more says so."""
    words = shlex.join([sys.executable, "-m", "dynamo_dap", *command])
    ran = subprocess.run(
        ["bash", "-c", f"ulimit -n 12; exec {words}"], capture_output=True, text=True, timeout=DEADLINE, check=False,
        cwd=folder, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stdout
    assert "Traceback" not in ran.stdout + ran.stderr
    assert command != ["debug", "program.py", "--stop-on-entry"] or "Too many open files" in ran.stdout
    assert (ran.stdout + ran.stderr).strip()
