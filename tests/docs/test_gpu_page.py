"""The page on GPUs lists every test that no card has run."""

from __future__ import annotations

import re

from tests.structure.sources import ROOT


def test_the_list_of_what_no_card_has_run_has_every_test() -> None:
    files = sorted((ROOT / "tests" / "gpu").glob("test_*.py"))
    tests = [name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.M)]
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    assert re.findall(r"^- `(test_\w+)`$", page.partition("## Not run on a card yet")[2], re.M) == tests
