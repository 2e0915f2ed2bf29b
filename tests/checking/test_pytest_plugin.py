"""The pytest plugin, in real runs of pytest, also with pytest-xdist."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.zygote import python

TESTS = """
import pytest
import torch

def function(x):
    print("in it")
    return x + 1

@pytest.mark.compiles(graphs=1, breaks=0, recompiles=0)
def test_as_it_should():
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))

@pytest.mark.compiles(graphs=1, breaks=0)
def test_breaks():
    torch.compile(function, backend="eager")(torch.ones(3))

@pytest.mark.compiles(recompiles=0)
def test_recompiles():
    compiled = torch.compile(function, backend="eager")
    compiled(torch.ones(3))
    compiled(torch.ones(4))

def test_fixture(compiles):
    assert compiles.graphs == ()
    torch.compile(function, backend="eager")(torch.ones(4))
    assert (len(compiles.graphs), len(compiles.breaks), len(compiles.recompiles)) == (1, 1, 0)
    (found,) = compiles.breaks
    assert (found.function, found.line, found.source) == ("function", 6, 'print("in it")')

def test_of_something_else():
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--strict-markers"\n')
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a process of its own, as a user does; the plugin comes with the installed package."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "GITHUB"))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_markers_and_fixture(folder: Path) -> None:
    ran = run(folder, "-m", "pytest", "-q", "--no-header")
    assert "2 failed, 3 passed" in ran.stdout, ran.stdout
    assert "torch.compile made 1 graph break, expected 0" in ran.stdout
    assert "test_it.py:6: Graph break: Failed to trace" in ran.stdout
    assert "builtin operator (in function)" in ran.stdout
    assert "hint (not tried): Avoid calling builtin `print`" in ran.stdout
    assert "torch.__trace" not in ran.stdout
    assert "torch.compile made 1 recompile, expected 0" in ran.stdout
    assert "size 0 of x: 3, 4" in ran.stdout


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_report_has_each_test_apart(folder: Path, workers: str) -> None:
    ran = run(folder, "-m", "pytest", "-q", "-n", workers, "--torch-compile-report=report.json", "--junit-xml=out.xml")
    tests = json.loads((folder / "report.json").read_text())["tests"]
    made = {name.partition("::")[2]: one for name, one in tests.items()}
    counts = {name: (one["graphs"], one["breaks"], one["recompiles"]) for name, one in made.items()}
    assert counts["test_as_it_should"] == (1, 0, 0)
    assert counts["test_breaks"] == (1, 1, 0)
    assert counts["test_recompiles"] == (2, 1, 1)
    assert counts["test_fixture"] == (1, 1, 0)
    assert counts["test_of_something_else"] == (0, 0, 0)
    summary = ran.stdout.partition(" torch.compile ")[2]
    assert "test_it.py::test_recompiles" in summary
    assert "test_it.py:6  Graph break" in summary
    assert "test_of_something_else" not in summary
    assert "torch_compile" not in (folder / "out.xml").read_text()


def test_the_report_takes_no_test_for_its_file(folder: Path) -> None:
    (folder / "test_other.py").write_text("def test_other():\n    raise AssertionError\n")
    ran = run(folder, "-m", "pytest", "-q", "--torch-compile-report", "test_it.py", "-k", "something_else")
    assert "1 passed, 4 deselected" in ran.stdout, ran.stdout + ran.stderr
    assert " torch.compile " in ran.stdout
    ran = run(folder, "-m", "pytest", "--torch-compile-report=test_other.py", "test_it.py")
    assert (ran.returncode, "test_other.py exists" in ran.stderr) == (pytest.ExitCode.USAGE_ERROR, True), ran.stderr
    assert (folder / "test_it.py").read_text() == TESTS


def test_a_wrong_marker_is_reported(folder: Path) -> None:
    (folder / "test_it.py").write_text("import pytest\n\n@pytest.mark.compiles(brakes=0)\ndef test_it():\n    pass\n")
    ran = run(folder, "-m", "pytest", "-q")
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
    assert "compiles(brakes=0)" in ran.stdout
    assert "Did you mean breaks?" in ran.stdout
    assert "pytest_plugin.py" not in ran.stdout, "no traceback into the plugin"


def test_nothing_is_imported_for_tests_that_ask_for_nothing(folder: Path) -> None:
    (folder / "test_it.py").write_text(
        "import sys\n\ndef test_it():\n"
        "    names = {name.partition('.')[0] for name in sys.modules}\n"
        "    assert 'dynamo_dap.checking.pytest_plugin' in sys.modules\n"
        "    assert not {'torch', 'msgspec', 'bytecode', 'rich'} & names\n"
        "    assert not any(name.startswith(('dynamo_dap.debuggee', 'dynamo_dap.records')) for name in sys.modules)\n"
    )
    ran = run(folder, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:timeout")
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("workers", ["0", "2"])
def test_check_sees_what_workers_compile(folder: Path, workers: str) -> None:
    """And what the processes do that tests start."""
    (folder / "script.py").write_text(
        "import torch\n\ndef child(x):\n    torch._dynamo.graph_break()\n\n"
        "torch.compile(child, backend='eager')(torch.ones(3))\n"
    )
    (folder / "test_script.py").write_text(
        f"import subprocess\n\ndef test_script():\n    subprocess.run([{python()[0]!r}, 'script.py'], check=True)\n"
    )
    ran = run(folder, "-m", "dynamo_dap", "check", "--max-breaks", "0", "--json", "pytest", "-q", "-n", workers)
    report = json.loads(ran.stdout)
    assert report["programStatus"] == 1, "two tests fail"
    assert ran.returncode == 1
    assert [(one["function"], one["line"]) for one in report["new"]] == [("child", 4), ("function", 6)]
    assert report["breaks"] == 2
