"""``dynamo-dap doctor`` on environments that work and on some that do not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from dynamo_dap import __version__
from dynamo_dap.commands.doctor import Check, JsonDoctor
from tests.client.environments import VirtualEnvironment
from tests.client.timeline import DEADLINE


def doctor(python: str, *before: str, **variables: str) -> tuple[int, dict[str, Check]]:
    command = [*before, sys.executable, "-m", "dynamo_dap", "doctor", "--json", "--python", python]
    environment = {**os.environ, **variables}
    run = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, env=environment, check=False)
    report = msgspec.json.decode(run.stdout, type=JsonDoctor)
    return run.returncode, {check.name: check for check in report.checks}


def test_everything_works_here(tmp_path: Path) -> None:
    status, checks = doctor(sys.executable, DYNAMO_DAP_RECORDS=str(tmp_path))
    assert [check for check in checks.values() if check.result == "problem"] == []
    assert status == 0
    assert list(checks) == [
        "dynamo-dap",
        "Python",
        "torch",
        "features",
        "debugpy",
        "triton",
        "C++ compiler",
        "connections",
        "ptrace",
        "records",
        "compile cache",
        "VS Code",
        "a debug session",
    ]


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


def interpreter(folder: Path, **facts: object) -> str:
    """Make an interpreter that has what this machine cannot have: it only prints the facts that doctor asks for."""
    packages = {"dynamo-dap": __version__, "torch": "2.13.0", "debugpy": "1.8.22", "triton": None, "bytecode": None}
    facts_here = {
        "python": "3.13.1",
        "executable": "/opt/python",
        "freeThreaded": False,
        "packages": packages | dict(facts.pop("packages", {})),  # type: ignore[call-overload]
        "torchProblem": None,
        "features": 196,
        "off": [],
        **facts,
    }
    path = folder / "python"
    path.write_text(f"#!/bin/sh\nprintf %s '{json.dumps(facts_here)}'\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_free_threaded_python_is_refused(tmp_path: Path) -> None:
    status, checks = doctor(interpreter(tmp_path, freeThreaded=True))
    assert status == 1
    assert checks["Python"].result == "problem"
    assert "free-threaded" in (checks["Python"].advice or "")


def test_old_packages_and_missing_features_are_named(tmp_path: Path) -> None:
    packages = {"torch": "2.11.1+cpu", "debugpy": "1.8.5"}
    _, checks = doctor(interpreter(tmp_path, packages=packages, off=["Guards are not shown: no such name"]))
    assert {checks[name].result for name in ("torch", "debugpy", "triton", "features")} == {"warning"}
    assert "2.12" in (checks["torch"].advice or "")
    assert "pip install --upgrade debugpy" in (checks["debugpy"].advice or "")
    assert "Guards are not shown" in (checks["features"].advice or "")
    assert "no such name" in (checks["features"].advice or "")
    assert "pip install triton" in (checks["triton"].advice or "")


def test_a_session_that_does_not_stop_is_a_problem(tmp_path: Path) -> None:
    status, checks = doctor(interpreter(tmp_path))
    assert status == 1
    assert checks["a debug session"].result == "problem"


def test_a_machine_without_a_compiler(tmp_path: Path) -> None:
    _, checks = doctor(interpreter(tmp_path), PATH="/nowhere", CXX="")
    assert checks["C++ compiler"].result == "warning"


@pytest.mark.parametrize(
    ("scope", "expected"), [("1\n", "that they start (ptrace_scope 1)"), ("3\n", "may not attach"), (None, "no limit")]
)
def test_who_may_attach_a_native_debugger(tmp_path: Path, scope: str | None, expected: str) -> None:
    from dynamo_dap.commands.doctor import _ptrace

    if scope is not None:
        (tmp_path / "scope").write_text(scope, encoding="utf-8")
    check = _ptrace(tmp_path / "scope")
    assert check.result == "ok"
    assert expected in check.text


def test_a_machine_without_network_whose_cache_cannot_hold_programs(tmp_path: Path) -> None:
    """In namespaces of its own: not even loopback is up, and the cache is on a file system mounted with noexec."""
    isolated = ["unshare", "--map-root-user", "--net", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*isolated, "true"], check=False).returncode:
        pytest.skip("this user may not make namespaces")
    cache = tmp_path / "cache"
    cache.mkdir()
    mounted = [*isolated, "sh", "-c", 'mount -t tmpfs -o noexec none "$0" && exec "$@"', str(cache)]
    python = interpreter(tmp_path, cacheFolder=str(cache))
    status, checks = doctor(python, *mounted)
    assert status == 1
    assert checks["connections"].result == "ok"
    assert checks["compile cache"].result == "problem"
    assert "noexec" in checks["compile cache"].text


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    _, checks = doctor(interpreter(tmp_path, cacheFolder=str(tmp_path / "file" / "cache")))
    assert checks["compile cache"].result == "problem"
    assert "TORCHINDUCTOR_CACHE_DIR" in (checks["compile cache"].advice or "")


@pytest.mark.parametrize(
    ("installed", "result"), [(None, "ok"), ("", "warning"), ("0.0.1", "warning"), (__version__, "ok")]
)
def test_the_editors_extension(tmp_path: Path, installed: str | None, result: str) -> None:
    """No editor; one without the extension; one with that of another release; one with this release's."""
    if installed is not None:
        folder = tmp_path / ".vscode-server" / "extensions"
        (folder / f"dynamo-dap.dynamo-dap-{installed}" if installed else folder).mkdir(parents=True)
    from dynamo_dap.commands.doctor import _editor

    check = _editor(tmp_path)
    assert check.result == result
    assert (installed or "VS Code") in f"{check.name} {check.text}"
