"""``dynamo-dap diff --html`` writes a page with both sides beside each other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dynamo_dap.commands.diff import main
from tests.client.pages import own_scripts
from tests.structure.sources import ROOT

TRACES = ROOT / "fixtures" / "traces"
OLD, NEW = TRACES / "torch-2.9", TRACES / "torch-2.13"


def test_a_page_has_each_difference_with_both_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "differences.html"
    for _ in range(2):
        assert main(["--html", str(page), str(OLD), str(NEW)]) == 1
    assert capsys.readouterr().out == f"{page}\n" * 2
    text = page.read_text()
    assert "<td></td><td class=b>Data dependent operator</td>" in text
    assert "train.py:5" in text
    assert "A has this graph of weighted" in text
    assert "skip_guards_on_constant_func_defaults: true in A" in text
    assert "2.13.0+cpu" in text
    assert own_scripts(text) == []


def test_a_text_of_a_log_is_text_in_the_page(tmp_path: Path) -> None:
    shutil.copytree(NEW, tmp_path / "hostile")
    (log,) = (tmp_path / "hostile").iterdir()
    log.write_text(log.read_text().replace("Data dependent operator", "<script>alert(1)</script>"))
    assert main(["--html", str(tmp_path / "page.html"), str(OLD), str(tmp_path / "hostile")]) == 1
    text = (tmp_path / "page.html").read_text()
    assert "&lt;script&gt;alert(1)" in text
    assert "<script" not in text


def test_a_file_of_another_program_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "mine.html"
    page.write_text("mine")
    assert main(["--html", str(page), str(OLD), str(NEW)]) == 2
    assert page.read_text() == "mine"
    assert "choose another name" in capsys.readouterr().err
