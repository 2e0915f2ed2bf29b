"""``dynamo-dap doctor`` in another person's folder, and with an interpreter that answers with what may do harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dynamo_dap.protocol.wire.types import InitializeRequestArguments
from dynamo_dap.terminal.client import Client, ServerProcess
from tests.client.environments import VirtualEnvironment
from tests.client.timeline import DEADLINE
from tests.commands.test_doctor import doctor, interpreter

FORGED = "2.0\x1b]0;owned\x07\u202e\n✓ torch: all is well\r"


def printed(python: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dynamo_dap", "doctor", "--python", python]
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=DEADLINE, env=environment, check=False
    )


def script(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("module", ["json", "platform", "dynamo_dap", "torch"])
def test_no_module_of_the_current_folder_runs(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = VirtualEnvironment(tmp_path / "environment", "dynamo_dap", "msgspec", "debugpy")
    workspace = tmp_path / "workspace"
    (workspace / module).mkdir(parents=True)
    (workspace / module / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", encoding="utf-8")
    monkeypatch.chdir(workspace)
    command = [str(Path(sys.executable).with_name("dynamo-dap")), "doctor", "--python", str(environment.python)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert "✓ Python: " in done.stdout, done.stderr
    assert not (tmp_path / "ran").exists()


def test_the_server_of_a_command_is_not_that_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dynamo_dap").mkdir()
    (tmp_path / "dynamo_dap" / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    server = ServerProcess()
    client = Client(server.stream, on_event=lambda event: None)
    answer = client.initialize(InitializeRequestArguments(adapter_id="dynamo", client_id="test"))
    client.close()
    server.end()
    assert answer.supports_configuration_done_request
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("place", ["executable", "python", "torch", "debugpy", "problem", "off", "stderr"])
def test_what_an_interpreter_says_reaches_no_terminal_as_control_characters(place: str, tmp_path: Path) -> None:
    packages = {"torch": None, **({place: FORGED} if place in ("torch", "debugpy") else {})}
    facts: dict[str, object] = {"packages": packages}
    if place in ("executable", "python"):
        facts[place] = FORGED
    if place == "problem":
        facts |= {"packages": {"torch": "2.13.0"}, "torchProblem": FORGED}
    if place in ("off", "torch"):
        facts |= {"packages": {"torch": "2.13.0"} | packages | {"torch": "2.13.0" if place == "off" else FORGED}}
        facts |= {"off": [FORGED], "torchProblem": FORGED if place == "torch" else None}
    python = interpreter(tmp_path, **facts)
    if place == "stderr":
        (tmp_path / "expected").write_text(FORGED, encoding="utf-8")
        python = script(tmp_path, f"cat {tmp_path}/said >&2; exit 1")
    out = printed(python).stdout
    assert not set(out) & {"\x1b", "\x07", "\r", "\u202e"}
    assert "\n✓ torch: all is well" not in out


def test_names_of_folders_reach_no_terminal_as_control_characters(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".vscode" / "extensions" / "dynamo-dap.dynamo-dap-\x1b[2J\n✓ forged").mkdir(parents=True)
    python = interpreter(tmp_path, packages={"torch": None})
    out = printed(python, HOME=str(home), DYNAMO_DAP_RECORDS=f"{tmp_path}/\x1b]0;x\x07\n✓ forged").stdout
    assert not set(out) & {"\x1b", "\x07"}
    assert "\n✓ forged" not in out


@pytest.mark.parametrize(
    "answer",
    [
        "null",
        "[]",
        "{}",
        '{"python": 3}',
        "\\377\\376",
        "[" * 100_000,
        '{"python": "3", "executable": "x", "freeThreaded": false, "packages": [], "features": 1, "off": []}',
        "",
    ],
)
def test_an_answer_without_facts_is_a_problem(answer: str, tmp_path: Path) -> None:
    (tmp_path / "answer").write_bytes(answer.encode().decode("unicode_escape").encode("latin-1"))
    status, checks = doctor(script(tmp_path, f"cat {tmp_path}/answer"))
    assert status == 1
    assert checks["Python"].result == "problem"


def test_an_answer_without_packages_has_none(tmp_path: Path) -> None:
    facts = {"python": "3.13.1", "executable": "x", "freeThreaded": False, "packages": {}, "torchProblem": None}
    status, checks = doctor(script(tmp_path, f"echo '{json.dumps(facts | {'features': 1, 'off': []})}'"))
    assert status == 1
    assert checks["torch"].result == "problem"


def test_a_process_that_is_left_behind_keeps_nothing_waiting(tmp_path: Path) -> None:
    """It holds the output open."""
    python = interpreter(tmp_path, packages={"torch": None})
    text = Path(python).read_text(encoding="utf-8").replace("#!/bin/sh\n", "")
    began = time.monotonic()
    _, checks = doctor(script(tmp_path, f"sleep 1000 & echo $! > {tmp_path}/left\n{text}"))
    psutil.Process(int((tmp_path / "left").read_text(encoding="utf-8"))).kill()
    assert checks["Python"].result == "ok"
    assert time.monotonic() - began < 900


def test_an_interpreter_is_not_taken_for_an_option(tmp_path: Path) -> None:
    """Nor is its name split by a shell."""
    for name in (f"sh -c 'touch {tmp_path}/ran'", f"$(touch {tmp_path}/ran)", "x" * 100_000, "-c"):
        command = [sys.executable, "-m", "dynamo_dap", "doctor", f"--python={name}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False, cwd=tmp_path)
        assert done.returncode == 1
        assert "✗ Python: " in done.stdout
        assert not done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_terminal_without_the_marks_and_a_home_that_no_folder_has(tmp_path: Path) -> None:
    python = interpreter(tmp_path, packages={"torch": None})
    done = printed(python, PYTHONIOENCODING="ascii", HOME="/" + "x" * 5000, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1
    assert not done.stderr
    # Python 3.14 says of such a folder that it does not exist; an older one raises.
    assert "the extension cannot be looked for" in done.stdout or "the extension was not looked for" in done.stdout
