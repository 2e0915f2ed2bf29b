"""``make bench``: the table and its JSON file hold what was measured, and why the rest was not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.figures import Measured, Row, reported
from tests.benchmarks.page import PAGE, page
from tests.benchmarks.rows import MEASURES, ROWS

_MACHINE = {"python": "3.11", "torch": "2.13", "debugpy": "1.8", "system": "Linux", "processors": 2}
_NO_ROWS = {"began": "2026-11-23T12:00:00+00:00", "machine": _MACHINE, "quick": False}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it as ``make bench`` does."""
    command = [sys.executable, "-m", "tests.benchmarks.table", *arguments]
    folder = Path(__file__).parents[2]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False)


def test_a_row_is_measured_and_reported(tmp_path: Path) -> None:
    done = bench("setting.first", "--quick", "--json", str(tmp_path / "bench.json"))
    assert done.returncode == 0, done.stderr
    body: dict[str, Any] = json.loads((tmp_path / "bench.json").read_bytes())
    assert (body["quick"], list(body["seconds"]), len(body["load"])) == (True, ["setting"], 1)
    assert body["machine"]["processors"] >= 1
    (row,) = body["rows"]
    assert (row["row"], row["unit"], row["aim"], row["aim_is"]) == ("setting.first", "ms", 300.0, "at most")
    assert (row["count"], row["not_measured"], row["quarters"]) == (1, None, [row["median"]] * 2)
    assert row["median"] > 0
    assert row["reached"] == (row["median"] <= 300)
    assert "setting.first" in done.stdout
    assert "setting.more" not in done.stdout


def test_a_group_that_takes_too_long_says_so(tmp_path: Path) -> None:
    done = bench("setting", "--quick", "--limit", "0.1", "--json", str(tmp_path / "bench.json"))
    rows = json.loads((tmp_path / "bench.json").read_bytes())["rows"]
    assert [(row["row"], row["median"], row["reached"]) for row in rows] == [
        ("setting.first", None, None),
        ("setting.more", None, None),
        ("setting.one-file", None, None),
        ("setting.growth", None, None),
    ]
    assert all(row["not_measured"] == "it took longer than 0.1 s (--limit)" for row in rows)
    assert (done.returncode, done.stdout.count("not measured")) == (1, 4)


def test_a_name_that_is_not_one_is_refused() -> None:
    done = bench("settings")
    assert done.returncode == 2
    assert "no row or group settings" in done.stderr
    assert "instructions.stepped" in done.stderr


def test_every_group_has_rows_and_a_benchmark() -> None:
    assert {row.group for row in ROWS} == MEASURES.keys()
    assert len({row.key for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    ("row", "figures", "reached"),
    [
        (Row("a.b", "", "ms", 3.0), [2.0, 3.0, 9.0], True),
        (Row("a.b", "", "ms", 3.0), [2.0, 3.1, 9.0], False),
        (Row("a.b", "", "", 100.0, is_least=True), [99.0], False),
        (Row("a.b", "", "", 100.0, is_least=True), [100.0], True),
        (Row("a.b", "", ""), [1.0], None),
    ],
)
def test_the_median_is_compared_with_the_aim(row: Row, figures: list[float], reached: bool | None) -> None:
    assert reported(row, Measured("a.b", figures), "")["reached"] is reached


def test_the_page_has_the_newest_of_each_row_and_what_was_tried_for_those_that_miss() -> None:
    first, second = [next(row for row in ROWS if row.key == key) for key in ("encoder.idle", "opening.list")]

    def body(quick: bool, *rows: dict[str, Any]) -> dict[str, Any]:
        return {**_NO_ROWS, "quick": quick, "rows": [*rows]}

    older = body(
        False, reported(first, Measured(first.key, [3.0]), ""), reported(second, Measured(second.key, [3.0]), "")
    )
    newer = body(False, reported(first, Measured(first.key, [1.0, 1.0]), ""))
    text = page([older, newer])
    assert "| 1 | 1 to 1 | at most 1.02 |" in text
    assert "| 3 ms | measured once | at most 50 ms |" in text
    assert "miss their target" not in text
    assert f"- `{first.key}`: " in page([older])
    with pytest.raises(ValueError, match="quick"):
        page([older, body(True)])


def test_the_published_page_has_the_texts_of_the_rows() -> None:
    """The page's figures may be older than the rows' texts, but its texts are not edited by hand."""
    published = PAGE.read_text(encoding="utf-8")
    known = {row.key: row for row in ROWS}
    assert published.startswith(page([{**_NO_ROWS, "rows": []}]).partition("Measured on")[0])
    for key, label in re.findall(r"^\| `([\w.-]+)` \| (.*?) \|", published, re.MULTILINE):
        assert label == known[key].label
    for key, tried in re.findall(r"^- `([\w.-]+)`: (.*)$", published, re.MULTILINE):
        assert tried == known[key].tried
