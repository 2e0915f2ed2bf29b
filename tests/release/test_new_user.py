"""A new user has the built artifacts, an empty environment and an empty home, and nothing of the repository.

With that alone: the wheel installs on each Python, each tutorial's commands print what it shows, and a breakpoint
stops in a cached call, in the terminal, in Neovim and in VS Code.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import dynamo_dap
from tests.docs.pages import Page, read_page, run_page
from tests.editors.desk import Desk, run_neovim
from tests.matrix.run import COMBINATIONS, find_interpreter
from tests.release.artifacts import NewUser, Release, new_user
from tests.structure.sources import ROOT, guides

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

_PYTHONS = sorted({combination.python for combination in COMBINATIONS}, key=lambda name: int(name.partition(".")[2]))
_TUTORIALS = [read_page(path) for path in guides() if path.stem in ("five-minutes", "mismatch")]
"""``tests/docs`` runs every page with the checkout."""
_BROWSER_TESTS = ROOT / "tests" / "vscode"
_PLAIN = "total = 0\nfor number in range(3):\n    total += number\nprint(total)\n"
_COMPILED = """\
import torch


@torch.compile(backend='eager')
def scale(x, y):
    z = x * 2
    return z + y


for number in range(3):
    scale(torch.full((2,), float(number)), torch.ones(2))
"""


@pytest.mark.parametrize("version", _PYTHONS)
def test_the_wheel_installs_and_debugs_on_each_python(version: str, release: Release, tmp_path: Path) -> None:
    """Without a compiler, and without torch, which ordinary Python needs not."""
    interpreter = find_interpreter(version)
    if interpreter is None:
        pytest.skip(f"no python{version} on this machine")
    user = new_user(release, tmp_path, interpreter, with_torch=False)
    assert user.run("dynamo-dap", "--version", folder=tmp_path).stdout.split() == ["dynamo-dap", dynamo_dap.__version__]
    (tmp_path / "plain.py").write_text(_PLAIN)
    command = ["dynamo-dap", "debug", "plain.py", "-b", "plain.py:3"]
    debugged = user.run(*command, folder=tmp_path, typed="continue\nprint total + 40\nclear\ncontinue\n")
    assert "40" in debugged.stdout.splitlines(), debugged.stdout + debugged.stderr
    doctor = user.run("dynamo-dap", "doctor", "--json", folder=tmp_path)
    checks = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}
    assert (doctor.returncode, checks["torch"]["result"]) == (1, "problem"), doctor.stdout
    assert checks["debugpy"]["result"] == "ok"


def test_a_breakpoint_stops_in_a_cached_call_in_the_terminal(user: NewUser, tmp_path: Path) -> None:
    """The second stop at the line is in a cached call, with that call's values."""
    (tmp_path / "program.py").write_text(_COMPILED)
    command = ["dynamo-dap", "debug", "program.py", "--break", "program.py:7"]
    typed = "continue\nprint z\nwhere\ncontinue\nprint z\nquit\n"
    ran = user.run(*command, folder=tmp_path, typed=typed)
    assert "call 2 of scale, which uses cache" in ran.stdout, ran.stdout + ran.stderr
    assert "[2.0, 2.0]" in ran.stdout
    assert "[4.0, 4.0]" in ran.stdout


def test_a_breakpoint_stops_in_a_cached_call_in_neovim(user: NewUser, tmp_path: Path) -> None:
    desk = Desk(tmp_path, user.python)
    run_neovim(desk, 1)
    desk.check(cached_calls=2)


def test_a_breakpoint_stops_in_a_cached_call_in_vs_code(release: Release) -> None:
    """The released extension installs the package that it carries; ``new-user.test.ts`` does it."""
    if shutil.which("npx") is None or not (_BROWSER_TESTS / "node_modules").exists():
        pytest.skip("the packages of the browser tests are not installed: make check-typescript installs them")
    variables = {**os.environ, "DYNAMO_DAP_VSIX": str(release.file("*.vsix")), "DYNAMO_DAP_PYTHON": sys.executable}
    with tempfile.TemporaryDirectory(prefix="vscode-") as folder:  # a path that is short enough for sockets
        variables["DYNAMO_DAP_VSCODE_RUNS"] = folder
        output = str(Path(folder) / "failures")
        command = ["npx", "playwright", "test", "--project=1.100", "new-user.test.ts", "--output", output]
        ran = subprocess.run(
            command, cwd=_BROWSER_TESTS, env=variables, capture_output=True, check=False, text=True, timeout=1000
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout, ran.stdout


def test_the_doctor_finds_everything(user: NewUser, tmp_path: Path) -> None:
    ran = user.run("dynamo-dap", "doctor", "--json", folder=tmp_path)
    checks = json.loads(ran.stdout)["checks"]
    own = next(check for check in checks if check["name"] == "dynamo-dap")
    assert str(user.environment) in own["text"], "the repository is used, not the wheel"
    assert not [check for check in checks if check["result"] == "problem"], ran.stdout
    assert ran.returncode == 0


@pytest.mark.parametrize("page", _TUTORIALS, ids=lambda page: page.path.stem)
def test_a_tutorial_prints_what_it_shows(page: Page, user: NewUser, tmp_path: Path) -> None:
    command = [str(user.environment / "bin" / "dynamo-dap")]
    wrong = run_page(page, tmp_path, command, user.variables)
    assert not wrong, "\n\n".join(wrong)
