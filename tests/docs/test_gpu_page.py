"""The page on GPUs says of every test whether it passed on a card."""

from __future__ import annotations

import re

from tests.structure.sources import ROOT


def test_the_page_lists_every_test() -> None:
    files = sorted((ROOT / "tests" / "gpu").glob("test_*.py"))
    tests = [name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.M)]
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^- `(test_\w+)`$", page, re.M)) == sorted(tests)
