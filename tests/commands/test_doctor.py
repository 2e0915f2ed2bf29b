"""``dynamo-dap doctor`` on environments that work and on some that do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from dynamo_dap.commands.doctor import Check, JsonDoctor
from tests.client.environments import VirtualEnvironment
from tests.client.timeline import DEADLINE


def doctor(python: str, **variables: str) -> tuple[int, dict[str, Check]]:
    command = [sys.executable, "-m", "dynamo_dap", "doctor", "--json", "--python", python]
    environment = {**os.environ, **variables}
    run = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, env=environment, check=False)
    report = msgspec.json.decode(run.stdout, type=JsonDoctor)
    return run.returncode, {check.name: check for check in report.checks}


def test_everything_works_here(tmp_path: Path) -> None:
    status, checks = doctor(sys.executable, DYNAMO_DAP_RECORDS=str(tmp_path))
    assert [check for check in checks.values() if check.result == "problem"] == []
    assert status == 0
    assert {"Python", "torch", "features", "debugpy", "loopback", "records", "a debug session"} <= checks.keys()


def test_an_environment_without_torch(tmp_path: Path) -> None:
    environment = VirtualEnvironment(tmp_path / "environment", "dynamo_dap", "msgspec", "debugpy")
    status, checks = doctor(str(environment.python), PYTHONPATH="")
    assert status == 1
    assert checks["torch"].result == "problem"
    assert "pip install torch" in (checks["torch"].advice or "")
    assert checks["debugpy"].name == "debugpy"
    assert "a debug session" not in checks


def test_a_torch_that_cannot_be_imported(tmp_path: Path) -> None:
    environment = VirtualEnvironment(tmp_path / "environment", "dynamo_dap", "msgspec", "debugpy")
    environment.add_package("torch", "2.13.0", "raise OSError('libtorch_cpu.so: no such file')\n")
    status, checks = doctor(str(environment.python), PYTHONPATH="")
    assert status == 1
    assert checks["torch"].result == "problem"
    assert "libtorch_cpu.so" in checks["torch"].text


@pytest.mark.parametrize("name", ["missing", "not executable"])
def test_an_interpreter_that_does_not_run(tmp_path: Path, name: str) -> None:
    (tmp_path / "not executable").write_text("", encoding="utf-8")
    status, checks = doctor(str(tmp_path / name))
    assert status == 1
    assert checks["Python"].result == "problem"
    assert name in checks["Python"].text


def test_records_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    status, checks = doctor(sys.executable, DYNAMO_DAP_RECORDS=str(file / "records"))
    assert status == 1
    assert checks["records"].result == "problem"
