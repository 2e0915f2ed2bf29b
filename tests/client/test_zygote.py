"""A forked program or server is what the real interpreter would have made of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.client import Session, processes, zygote
from tests.client.forked_server import start_server
from tests.client.timeline import DEADLINE
from tests.conftest import NewSession

_FACTS = """\
import json, os, signal, sys, threading
main = sys.modules["__main__"]
print(json.dumps({
    "arguments": sys.argv, "executable": sys.executable, "prefix": sys.prefix, "path": sys.path,
    "original": sys.orig_argv[1:], "cwd": os.getcwd(), "mark": os.environ["TOLD"], "environment": sorted(os.environ),
    "main": [main.__name__, main.__file__, main.__dict__ is globals(), main.__spec__, main.__package__],
    "flags": list(sys.flags), "frozen": sys._xoptions,
    "thread": [threading.current_thread() is threading.main_thread(), threading.active_count()],
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
    "streams": [sys.stdin.fileno(), sys.stdout.fileno(), sys.stderr.fileno(), sys.stdin.read()],
    "session": os.getsid(0) == os.getpgid(0), "mask": os.umask(0), "below": sys._getframe().f_code.co_name,
}))
sys.exit(7)
"""


def run(python: list[str], program: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*python, "-u", "-X", "frozen_modules=off", str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False, **options)


def test_a_forked_program_finds_what_it_would_find_in_the_real_interpreter(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_FACTS)
    found = []
    for python in ([sys.executable], zygote.python()):
        environment = {**os.environ, "TOLD": "something"}
        ran = run(python, program, "a", "-b", cwd=tmp_path, env=environment, input="typed", start_new_session=True)
        assert ran.returncode == 7, ran.stderr
        found.append(json.loads(ran.stdout))
    real, forked = found
    assert forked == real


def test_a_forked_program_has_torch_already_and_nothing_compiled(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\nhad = 'torch' in sys.modules\nimport torch\n"
        "print(had, len(torch._dynamo.utils.compilation_time_metrics), len(os.listdir('/proc/self/task')))\n"
    )
    assert run(zygote.python(), program).stdout == "True 0 1\n"


_DEBUGGERS = """\
import sys
print(*(name in sys.modules for name in ("dynamo_dap.debuggee.trace", "pydevd", "msgspec")))
"""


def test_only_a_program_that_a_server_starts_finds_the_debugger_imported(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_DEBUGGERS)
    assert run(zygote.python(), program).stdout == "False False False\n"
    # as a child process of a debugged program inherits it
    assert run(zygote.python(), program, env={**os.environ, "DYNAMO_DAP_LAUNCH": "{}"}).stdout == "False False False\n"
    session.launch(program, python=zygote.python())
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "True True True\n"


def test_debugpy_is_not_imported_for_a_program_that_does_without(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_DEBUGGERS)
    session.launch(program, python=zygote.python(), eager=False)  # the option is what this is about
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "True False True\n"


def test_a_server_is_forked_and_belongs_to_its_session(new_session: NewSession) -> None:
    session = new_session()
    session.initialize()
    server = psutil.Process(session.server_process_id)
    assert server.parent() != psutil.Process()  # but the zygote
    assert [one.pid for one in processes.marked_with(session.mark)] == [server.pid]
    session.close()
    assert not server.is_running()


def test_a_server_is_started_anew_where_python_would_read_a_variable(new_session: NewSession) -> None:
    session = new_session(environment={"PYTHONOPTIMIZE": "1"})
    session.initialize()
    assert psutil.Process(session.server_process_id).parent() == psutil.Process()


def test_a_forked_server_that_does_not_end_is_killed(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    with (tmp_path / "stderr").open("wb") as standard_error:
        server = start_server({**os.environ, processes.MARK: mark}, standard_error)
    os.kill(server.process_id, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        server.wait(0.01)
    server.end(0.01)
    assert server.wait(DEADLINE) == -signal.SIGKILL
    assert not processes.marked_with(mark)


def test_what_it_could_not_do_is_done_by_the_real_interpreter(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys\nprint('torch' in sys.modules)\n")
    changed = {**os.environ, "TORCH_LOGS": "recompiles"}
    assert run(zygote.python(), program, env=changed).stdout == "False\n"
    for arguments in (["-u", "-c", program.read_text()], ["-u", "-I", str(program)]):
        ran = subprocess.run(
            [*zygote.python(), *arguments], capture_output=True, text=True, timeout=DEADLINE, check=True
        )
        assert ran.stdout == "False\n"


def test_its_death_is_the_stand_ins(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, sys\nos.kill(os.getpid(), int(sys.argv[1]))\n")
    for number in (signal.SIGSEGV, signal.SIGTERM, signal.SIGKILL):
        assert run(zygote.python(), program, str(int(number))).returncode == -number
    program.write_text("def fail():\n    raise ValueError('so')\n\n\nfail()\n")
    real, forked = run([sys.executable], program), run(zygote.python(), program)
    assert (forked.returncode, forked.stderr) == (real.returncode, real.stderr)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_dies_with_its_stand_in_and_belongs_to_the_session_of_it(tmp_path: Path, number: signal.Signals) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    mark = uuid.uuid4().hex
    stand_in = subprocess.Popen(
        [*zygote.python(), "-u", str(program)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, processes.MARK: mark},
        start_new_session=True,
    )
    assert stand_in.stdout is not None
    forked = psutil.Process(int(stand_in.stdout.readline()))
    assert forked.pid != stand_in.pid
    assert {one.pid for one in processes.marked_with(mark)} == {stand_in.pid, forked.pid}
    os.killpg(stand_in.pid, number)
    assert stand_in.wait(DEADLINE) == -number
    stand_in.stdout.close()
    assert not processes.wait_until_gone(mark, 20)
