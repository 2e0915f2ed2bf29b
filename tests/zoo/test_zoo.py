"""The zoo's runner on programs of our own: it finds what differs, and which lines are not hit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.zoo.run import Row, page, row_of, rows_of

SAME = """\
# also: helper scaled
import sys
import torch
from helper import scaled

@torch.compile(backend="eager")
def function(x):
    y = scaled(x)
    return (
        y
        + 1
    )

for _ in range(2):
    print(function(torch.ones(2)).tolist())
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("def scaled(x):\n    return x * 2\n", encoding="utf-8")
    path = tmp_path / "program.py"
    path.write_text(SAME, encoding="utf-8")
    return path


def test_lines_that_run_are_hit(program: Path) -> None:
    row = row_of(program, Path(sys.executable))
    assert not row.problems
    assert {line for path, line in row.executed if path == str(program)} >= {3, 8, 10, 11, 14, 15}
    assert (str(program.with_name("helper.py")), 2) in row.hit
    unexplained = [line for line in row.missed if line not in row.reasons]
    assert not unexplained, page([row], [])


def test_a_program_that_differs_is_reported(program: Path) -> None:
    program.write_text(f"{SAME}print('dynamo_dap' in sys.modules)\nsys.exit(3 * ('dynamo_dap' in sys.modules))\n")
    row = row_of(program, Path(sys.executable))
    assert [problem.partition(" and")[0] for problem in row.problems] == [
        "idle debugger: exit status 3",
        "breakpoints: exit status 3",
    ]
    assert "idle debugger: exit status 3" in page([row], ["other"])


def test_rows_of_programs_that_do_not_run_again_are_kept() -> None:
    old = page([Row("second"), Row("third", ["it fails"])], ["missing"])
    assert list(rows_of(old)) == ["second", "third"]
    new = page([Row("first"), Row("third")], [], rows_of(old))
    assert new == page([Row("first"), Row("second"), Row("third")], [])
    assert rows_of("no page") == {}
