"""A start that takes long: the client learns what is waited for, and can cancel it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.server.programs.progress import PATIENCE
from tests.client import Session
from tests.client.session import launch_configuration
from tests.client.timeline import DEADLINE
from tests.server.programs import write


class SlowStart:
    """What takes as long as the test wants: until the server has said what it waits for."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._end = folder, folder / "may continue"

    def python(self) -> str:
        """Write an interpreter that starts late."""
        waits = f"while [ ! -e '{self._end}' ]; do sleep 0.05; done"
        python = write(self._folder, f'#!/bin/sh\n{waits}\nexec {sys.executable} "$@"\n', "python")
        python.chmod(0o755)
        return str(python)

    def importing_torch(self, then: str = "") -> Path:
        """Write a program that imports a module in the place of torch, since real torch is not slow to order."""
        waits = f"import os, time\nwhile not os.path.exists({str(self._end)!r}):\n    time.sleep(0.05)\n"
        write(self._folder, waits + then, "torch.py")
        return write(self._folder, "import torch\nprint('imported')\n", "program.py")

    def end(self) -> None:
        """Continue."""
        self._end.touch()


@pytest.fixture
def slow_start(tmp_path: Path) -> SlowStart:
    """A start that takes until the test ends it."""
    return SlowStart(tmp_path)


def _progress(session: Session) -> list[str]:
    return [event["event"] for event in session.timeline.events if event["event"].startswith("progress")]


def _slow_import(session: Session) -> str:
    """Wait for the progress of the import, and return its id. On a busy machine the start before it has one, too."""
    begun = session.timeline.expect_event("progressStart", lambda body: body["message"].startswith("importing torch"))
    return begun["progressId"]


def test_a_slow_interpreter_is_reported_until_the_program_is_there(session: Session, slow_start: SlowStart) -> None:
    python = slow_start.python()
    session.initialize()
    launched = session.client.send("launch", launch_configuration("plain", python=python))
    begun = session.timeline.expect_event("progressStart")
    assert begun["title"] == "Starting plain.py"
    assert begun["message"] == f"starting {python}"
    assert begun["cancellable"] is True
    slow_start.end()
    assert session.timeline.expect_event("progressEnd")["progressId"] == begun["progressId"]
    session.timeline.expect_event("initialized")
    session.request("configurationDone")
    launched.result(DEADLINE)
    assert session.wait_for_exit() == 0
    assert _progress(session)[0] == "progressStart"
    assert _progress(session)[-1] == "progressEnd"


def test_a_slow_start_that_is_cancelled_ends_the_session(session: Session, slow_start: SlowStart) -> None:
    session.initialize()
    pending = session.client.send("launch", launch_configuration("plain", python=slow_start.python()))
    begun = session.timeline.expect_event("progressStart")
    session.request("cancel", {"progressId": begun["progressId"]})
    session.timeline.expect_event("progressEnd")
    session.timeline.expect_event("terminated")
    with pytest.raises(RequestFailed, match="cancelled"):
        pending.result(DEADLINE)


def test_a_slow_import_of_torch_is_reported(session: Session, slow_start: SlowStart) -> None:
    session.launch(slow_start.importing_torch(), python=[sys.executable])
    begun = _slow_import(session)
    slow_start.end()
    assert session.timeline.expect_event("progressEnd")["progressId"] == begun
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "imported\n"
    assert _progress(session)[-1] == "progressEnd"


def test_a_slow_import_that_is_cancelled_ends_the_program(session: Session, slow_start: SlowStart) -> None:
    session.launch(slow_start.importing_torch(), python=[sys.executable])
    session.request("cancel", {"progressId": _slow_import(session)})
    assert session.wait_for_exit() != 0
    assert "imported" not in session.output("stdout")


def test_an_import_that_fails_is_no_longer_waited_for(session: Session, slow_start: SlowStart) -> None:
    program = slow_start.importing_torch("raise ImportError('broken')\n")
    program.write_text("try:\n    import torch\nexcept ImportError:\n    pass\nimport time; time.sleep(600)\n")
    session.launch(program, python=[sys.executable])
    begun = _slow_import(session)
    slow_start.end()
    assert session.timeline.expect_event("progressEnd")["progressId"] == begun
    session.disconnect()


def test_the_traceback_of_an_import_that_fails_is_the_programs_own(session: Session, tmp_path: Path) -> None:
    session.expects_program_traceback = True
    write(tmp_path, "def load():\n    raise OSError('no such library')\nload()\n", "torch.py")
    text = "import traceback\ntry:\n    import torch\nexcept OSError:\n    traceback.print_exc()\nimport torch\n"
    program = write(tmp_path, text)
    plain = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    session.launch(program, python=[sys.executable])
    assert session.wait_for_exit() == plain.returncode == 1
    assert session.output("stderr") == plain.stderr


def test_waiting_for_a_program_to_come_is_reported(session: Session) -> None:
    session.initialize()
    session.client.send("attach", {"request": "attach", "listen": {"port": 0}})
    begun = session.timeline.expect_event("progressStart")
    assert "waiting for a program" in begun["message"]
    session.request("cancel", {"progressId": begun["progressId"]})
    session.timeline.expect_event("terminated")


def test_a_quick_start_is_not_spoken_of(session: Session) -> None:
    began = time.monotonic()
    session.launch("plain")
    assert session.wait_for_exit() == 0
    # A machine may be so busy that the start is slow.
    assert not _progress(session) or time.monotonic() - began > PATIENCE


def test_torch_looks_as_it_does_without_us_before_it_is_imported() -> None:
    """Libraries that can live without torch look at its spec, and must not set anything off."""
    code = """
import importlib.util, sys
from dynamo_dap.debuggee.torch_api.import_hooks import while_torch_is_imported
plain = importlib.util.find_spec("torch")
told = []
while_torch_is_imported(lambda name, is_done: told.append((name, is_done)))
spec = importlib.util.find_spec("torch")
assert spec.origin == plain.origin and spec.loader.path == plain.loader.path
assert spec.loader.get_source("torch") == plain.loader.get_source("torch")
assert told == [], told
import torch
assert type(torch.__spec__.loader) is type(plain.loader) is type(torch.__loader__)
assert told == [("torch", False), ("torch", True)], told
torch._dynamo.config.cache_size_limit
assert told[2:] == [("torch._dynamo", False), ("torch._dynamo", True)], told
"""
    subprocess.run([sys.executable, "-c", code], check=True)
