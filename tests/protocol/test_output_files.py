"""No command writes over a file of the user's; what a command has written before, it may write again."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from dynamo_dap.checking.findings import findings_in
from dynamo_dap.checking.formats import as_junit, as_sarif
from dynamo_dap.checking.settings import Settings, judge
from dynamo_dap.explore.html_page import html_page
from dynamo_dap.profile.files import read_profile, write_profile
from dynamo_dap.profile.flame_page import flame_page
from dynamo_dap.profile.model import VERSION, Frame, Node, Profile, Track
from dynamo_dap.protocol.output_files import NotOurs, write_output
from dynamo_dap.protocol.requests.contract import LOG_VARIABLE, RECORDS_VARIABLE
from dynamo_dap.records.events import Record
from dynamo_dap.records.report.html_report import html_report
from tests.structure.sources import ROOT

PROGRAM = "print('it ran')\n"
SETTINGS = '{"name": "mine", "devDependencies": {"dynamo-dap": "1"}}\n'


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "--sarif", "settings.json", "program.py"],
        ["check", "--junit", "program.py", "program.py"],
        ["check", "--update", "--baseline", "settings.json", "program.py"],
        ["explore", "--html", "program.py", "program.py"],
        ["profile", "--output", "settings", "program.py"],
        ["--log", "program.py"],
    ],
    ids=" ".join,
)
def test_a_file_of_the_users_is_refused_before_the_program_runs(tmp_path: Path, arguments: list[str]) -> None:
    for name, text in (("program.py", PROGRAM), ("settings.json", SETTINGS), ("settings.cpuprofile", SETTINGS)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "dynamo_dap", *arguments],
        cwd=tmp_path,
        input="",
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode != 0, ran.stdout
    assert "it ran" not in ran.stdout
    assert ".py" in ran.stderr or "settings" in ran.stderr
    assert (tmp_path / "program.py").read_text(encoding="utf-8") == PROGRAM
    assert {path.read_text(encoding="utf-8") for path in tmp_path.glob("settings.*")} == {SETTINGS}
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("options", "output"),
    [(["--html", "--no-browser"], "trace.html"), (["--chromium-events", "events.json"], "events.json")],
    ids=["html", "chromium-events"],
)
def test_report_does_not_write_over_a_file_of_the_users(tmp_path: Path, options: list[str], output: str) -> None:
    """The page is written beside the log, under the log's name."""
    with tarfile.open(ROOT / "fixtures" / "traces" / "ten-programs-2.15.tar.xz") as archive:
        log = next(member for member in archive.getmembers() if member.name.startswith("breaks/") and member.isfile())
        content = archive.extractfile(log)
        assert content is not None
        (tmp_path / "trace.log").write_bytes(content.read())
    command = [sys.executable, "-m", "dynamo_dap", "report", "trace.log", *options]
    file = tmp_path / output
    file.write_text(SETTINGS, encoding="utf-8")
    for refuses in (True, False, False):
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
        assert (ran.returncode != 0) is refuses, ran.stderr
        assert (output in ran.stderr) is refuses
        assert (file.read_text(encoding="utf-8") == SETTINGS) is refuses
        if refuses:
            file.unlink()


def test_the_log_of_the_program_is_not_written_over_a_file_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "dynamo_dap", "run", "program.py"],
        cwd=tmp_path,
        env={**os.environ, LOG_VARIABLE: "program.py", RECORDS_VARIABLE: str(tmp_path / "records")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "it ran\n")
    assert "no log" in ran.stderr
    assert (tmp_path / "program.py").read_text(encoding="utf-8") == PROGRAM


def _profile() -> Profile:
    track = Track("MainThread", is_main=True, began=0, ended=10, nodes=[Node(0, -1)], times=[0], running=[0])
    return Profile(VERSION, ["program.py"], [Frame("f", "function", "/program.py", 1)], [track])


def test_each_format_is_known_as_ours(tmp_path: Path) -> None:
    found = findings_in([], tmp_path)
    verdict = judge(found, Settings().complete())
    contents = {
        "out.sarif": as_sarif(verdict),
        "out.xml": as_junit(verdict, found, tmp_path),
        "stages.html": "".join(html_page([])).encode(),
        "profile.html": "".join(flame_page(_profile())).encode(),
        "report.html": "".join(html_report(Record(), {}, lambda compiled: None)).encode(),
    }
    for name, content in contents.items():
        for _ in range(2):
            write_output(tmp_path / name, content)
        (tmp_path / name).write_bytes(content[5:])
        with pytest.raises(NotOurs):
            write_output(tmp_path / name, content)


def test_a_profile_is_written_twice_and_read(tmp_path: Path) -> None:
    for _ in range(2):
        paths = write_profile(_profile(), tmp_path / "out")
    assert read_profile(paths[-1]) == _profile()
