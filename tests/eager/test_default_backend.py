"""Inductor under the debugger: its results are unchanged, and the processes that it starts are not debugged.

All tests use the default launch options.
"""

from __future__ import annotations

import json
import queue
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.debuggee.launch.children.child_command import is_for_program
from dynamo_dap.protocol.wire.messages import Request
from tests.client import Fixture, Session
from tests.conftest import NewSession
from tests.eager.test_child_processes import DEADLINE, WITH_CHILDREN

PROGRAMS = Fixture("inductor_programs")
DEFAULTS: dict[str, Any] = {"eager": True, "mode": "both", "python": [sys.executable]}
RUN_SECONDS = 600.0

REPORTING_PYTHON = """#!{python}
import json, os, sys
with open({log!r}, "a") as log:
    print(json.dumps([sys.argv[1:], dict(os.environ)]), file=log)
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""
"""Replaces Python, and notes the arguments and the environment of each start."""


def reporting_python(folder: Path) -> tuple[Path, Callable[[], list[Any]]]:
    """Return a Python, and a function that reads its starts so far."""
    python, log = folder / "python", folder / "started"
    folder.mkdir()
    python.write_text(REPORTING_PYTHON.format(python=sys.executable, log=str(log)), encoding="utf-8")
    python.chmod(0o755)
    return python, lambda: [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def started_alike(starts: list[Any]) -> list[str]:
    """The parts of Python's starts that are equal in every run: no numbers, no temporary names."""
    texts = []
    for arguments, environment in starts:
        text = re.sub(r"/(debugged|plain)/python", "PYTHON", json.dumps([arguments, environment], sort_keys=True))
        texts.append(re.sub(r"\d+", "N", re.sub(r"inductor_programs\w+(/\w+)*(\.\w+)?", "FILE", text)))
    return sorted(texts)


def without_a_debugger(program: Fixture, python: Path, environment: dict[str, str]) -> list[str]:
    """The lines that ``program`` prints without a debugger."""
    command = [sys.executable, str(program.path), str(python)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS, check=True)
    return run.stdout.splitlines()


def test_inductor_makes_the_same_and_its_processes_run_untouched(new_session: NewSession, tmp_path: Path) -> None:
    asked: list[Request] = []
    session = new_session(reverse_requests={"startDebugging": asked.append})
    session.initialize(WITH_CHILDREN)
    python, starts = reporting_python(tmp_path / "debugged")
    with session.launching(PROGRAMS, args=[str(python)], **DEFAULTS):
        pass
    plain_python, plain_starts = reporting_python(tmp_path / "plain")
    plain = [json.loads(line) for line in without_a_debugger(PROGRAMS, plain_python, session.environment)]
    assert session.wait_for_exit() == 0

    debugged = [json.loads(line) for line in session.output("stdout").splitlines()]
    assert len(plain) == 12
    assert [one["program"] for one in debugged] == [one["program"] for one in plain]
    for ours, theirs in zip(debugged, plain, strict=True):
        assert ours["output code"], f"nothing was compiled for {ours['program']}"
        for part in theirs:
            assert ours[part] == theirs[part], f"{part} of {ours['program']}"

    assert any("cdll.LoadLibrary" in " ".join(arguments) for arguments, _ in starts()), "Inductor started no probe"
    assert any("compile_worker" in " ".join(arguments) for arguments, _ in starts()), "Inductor started no workers"
    assert started_alike(starts()) == started_alike(plain_starts())
    assert not asked
    assert not session.output("important")


STARTS_BY_ITSELF = """
import multiprocessing, os, subprocess, sys
multiprocessing.set_executable(sys.argv[1])

def work(n):
    return n + 1

if __name__ == "__main__":
    subprocess.run([sys.argv[1], "-c", "print('code')"], check=True)
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        print(pool.map(work, [1]))
"""


def test_servers_of_forks_trackers_and_code_run_untouched(new_session: NewSession, tmp_path: Path) -> None:
    asked: list[Request] = []

    def refuse(request: Request) -> None:
        asked.append(request)
        raise ValueError("no more windows")

    session = new_session(reverse_requests={"startDebugging": refuse})
    session.initialize(WITH_CHILDREN)
    program = Fixture(tmp_path / "program.py")
    program.path.write_text(STARTS_BY_ITSELF, encoding="utf-8")
    python, starts = reporting_python(tmp_path / "debugged")
    with session.launching(program, args=[str(python)], **DEFAULTS):
        pass
    plain_python, plain_starts = reporting_python(tmp_path / "plain")
    plain = without_a_debugger(program, plain_python, session.environment)
    assert session.wait_for_exit() == 0
    assert session.output("stdout").splitlines() == plain == ["code", "[2]"]
    assert started_alike(starts()) == started_alike(plain_starts())
    assert len(starts()) == 3
    assert len(asked) == 1, "the worker, which runs the program's function, and nothing else is offered"


WORKERS = """
import torch

class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index

if __name__ == "__main__":
    for epoch in range(3):
        print(list(torch.utils.data.DataLoader(Items(), num_workers=2, batch_size=None)), flush=True)
"""


def start_workers(new_session: NewSession, tmp_path: Path, answer: Callable[[Request], None]) -> Session:
    session = new_session(reverse_requests={"startDebugging": answer})
    session.initialize(WITH_CHILDREN)
    program = Fixture(tmp_path / "workers.py")
    program.path.write_text(WORKERS, encoding="utf-8")
    session.launch(program, **DEFAULTS)
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "[0, 1, 2, 3]\n" * 3
    return session


def test_a_refused_session_is_reported_once_for_all_workers(new_session: NewSession, tmp_path: Path) -> None:
    def refuse(request: Request) -> None:
        raise ValueError(f"no more windows for '{request.command}'")

    session = start_workers(new_session, tmp_path, refuse)
    assert session.output("important").count("runs without debugging") == 1


def test_workers_run_on_when_their_sessions_do_not_come(new_session: NewSession, tmp_path: Path) -> None:
    """The client agrees to start the sessions, but never does."""
    asked: list[Request] = []
    session = start_workers(new_session, tmp_path, asked.append)
    assert session.output("important").count("runs without debugging") == 1
    assert "within 8 s" in session.output("important")
    assert len(asked) <= 2, "once nobody came for the workers of the first epoch, the others are not offered"


RANK = """
import os, sys

if os.environ.get("RANK") is None:
    sys.argv = ["torchrun", "--nproc-per-node=1", "--standalone", __file__]
    from torch.distributed.run import main
    main()
else:
    rank = os.environ["RANK"]  #@rank
"""


def test_a_rank_of_torchrun_is_debugged(new_session: NewSession, tmp_path: Path) -> None:
    asked: queue.Queue[Request] = queue.Queue()
    parent = new_session(reverse_requests={"startDebugging": asked.put})
    parent.initialize(WITH_CHILDREN)
    program = Fixture(tmp_path / "rank.py")
    program.path.write_text(RANK, encoding="utf-8")
    parent.launch(program, **DEFAULTS)
    configuration = json.loads(bytes(asked.get(timeout=DEADLINE).arguments))["configuration"]
    child = new_session()
    child.initialize(WITH_CHILDREN)
    with child.configuring("attach", configuration):
        child.set_breakpoints(program, "rank")
    assert child.wait_for_stop("breakpoint", at="rank").frame.evaluate("os.environ['RANK']").text == "'0'"
    child.resume()
    assert parent.wait_for_exit() == 0
    assert asked.empty()


def _frame(name: str, back: types.FrameType | None = None) -> Any:
    return types.SimpleNamespace(f_globals={"__name__": name}, f_back=back)


@pytest.mark.parametrize(
    ("stack", "command", "fork"),
    [
        ("subprocess __main__", True, True),
        ("_pydev_bundle.pydev_monkey subprocess torch._inductor.cpu_vec_isa __main__", False, False),
        ("multiprocessing.popen_fork concurrent.futures.process torch._inductor.async_compile __main__", False, False),
        ("multiprocessing.context torch.utils.data.dataloader __main__", True, True),
        ("subprocess torch.distributed.elastic.multiprocessing.subprocess_handler __main__", True, True),
        ("subprocess triton.runtime.build __main__", False, False),
        ("subprocess ensurepip __main__", False, True),
        ("socketserver __main__", False, True),
        ("multiprocessing.pool threading", True, True),
        ("asyncio.unix_events a_library __main__", True, True),
    ],
)
def test_who_makes_a_process_shows_whether_it_runs_the_program(stack: str, *, command: bool, fork: bool) -> None:
    frame: Any = None
    for name in reversed(stack.split()):
        frame = _frame(name, frame)
    assert is_for_program(frame, is_fork=False) is command
    assert is_for_program(frame, is_fork=True) is fork
