"""A forked program or server behaves as in the real interpreter."""

from __future__ import annotations

import json
import os
import re
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
    "globals": sorted(globals()),
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
        environment = {**os.environ, "TOLD": "something", "PYTHONHASHSEED": "0"}
        ran = run(python, program, "a", "-b", cwd=tmp_path, env=environment, input="typed", start_new_session=True)
        assert ran.returncode == 7, ran.stderr
        found.append(json.loads(ran.stdout))
    real, forked = found
    assert forked == real


def test_threads_that_wait_leave_the_processors_to_other_tests(tmp_path: Path) -> None:
    """By default OpenMP lets them spin: three programs on two processors would compute for a fraction of the time."""
    program = tmp_path / "program.py"
    program.write_text("import torch\n")
    ran = run([sys.executable], program, env={**os.environ, "OMP_DISPLAY_ENV": "verbose"})
    turns = re.search(r"GOMP_SPINCOUNT = '(\d+)'", ran.stderr)
    if turns is None:
        pytest.skip("this torch has another OpenMP than GNU's")
    assert turns[1] == "0"


def test_a_forked_program_has_torch_already_and_nothing_compiled(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\nhad = 'torch' in sys.modules\nimport torch\n"
        "print(had, len(torch._dynamo.utils.compilation_time_metrics), len(os.listdir('/proc/self/task')))\n"
    )
    assert run(zygote.python(), program).stdout == "True 0 1\n"


_STREAMS = """\
import sys
for one in (sys.stdin, sys.stdout, sys.stderr):
    print(one.name, one.mode, one.encoding, one.errors, one.line_buffering, one.write_through, type(one.buffer))
"""


@pytest.mark.parametrize("options", [[], ["-u"]])
def test_its_streams_are_buffered_as_the_real_interpreters(tmp_path: Path, options: list[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"{_STREAMS}print('torch' in sys.modules, file=sys.stderr)\n")
    commands = ([*python, *options, str(program)] for python in ([sys.executable], zygote.python()))
    real, forked = (
        subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True) for command in commands
    )
    assert (real.stderr, forked.stderr) == ("False\n", "True\n")
    assert forked.stdout == real.stdout


def test_it_writes_the_trace_log_that_a_variable_asks_for(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nprint('torch' in sys.modules)\nimport torch\n"
        "torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"
    )
    ran = run(zygote.python(), program, env={**os.environ, "TORCH_TRACE": str(tmp_path / "trace")})
    assert ran.stdout == "True\n"
    (log,) = (tmp_path / "trace").iterdir()
    assert "dynamo_output_graph" in log.read_text()


def test_each_forked_program_draws_other_numbers(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import random, torch\nprint(random.random())\nprint(torch.rand(()).item())\n")
    first, second = (run(zygote.python(), program).stdout.split() for _ in range(2))
    assert not set(first) & set(second)


_DEBUGGERS = """\
import sys
print(*(name in sys.modules for name in ("dynamo_dap.debuggee.trace", "pydevd", "msgspec")))
"""


def test_only_a_program_that_a_server_starts_finds_the_debugger_imported(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_DEBUGGERS)
    assert run(zygote.python(), program).stdout == "False False False\n"
    # a child process of a debugged program inherits this variable
    assert run(zygote.python(), program, env={**os.environ, "DYNAMO_DAP_LAUNCH": "{}"}).stdout == "False False False\n"
    session.launch(program, python=zygote.python())
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "True True True\n"


def test_debugpy_is_not_imported_for_a_program_that_does_without(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_DEBUGGERS)
    session.launch(program, python=zygote.python(), eager=False)  # the test is about this option
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "True False True\n"


def test_a_server_is_forked_and_belongs_to_its_session(new_session: NewSession) -> None:
    session = new_session()
    session.initialize()
    server = psutil.Process(session.server_process_id)
    assert server.parent() != psutil.Process()  # its parent is the zygote
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


_SETTINGS = """\
import torch._dynamo, torch._functorch.config, torch._inductor.config, torch._inductor.compiler_bisector as bisector
for package in (torch._dynamo, torch._functorch, torch._inductor):
    settings = sorted(package.config.get_config_copy().items())
    print([each for each in settings if isinstance(each[1], bool | int | str | None)])
print(bisector.CompilerBisector.get_backend(), bisector.CompilerBisector.bisection_enabled)
print(torch.compile(lambda: torch._dynamo.is_compiling(), backend="eager")())
"""


def test_it_has_the_settings_that_variables_give_torch(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import sys\nprint('torch' in sys.modules, file=sys.stderr)\n{_SETTINGS}")
    variables = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    variables |= {"TORCHINDUCTOR_COMPILE_THREADS": "7", "TORCHDYNAMO_REPRO_AFTER": "aot"}
    variables |= {"TORCHDYNAMO_REPRO_LEVEL": "4", "TORCH_COMPILE_DEBUG_DIR": str(tmp_path)}
    variables |= {"TORCHDYNAMO_DISABLE": "1", "TORCH_BISECT_BACKEND": "inductor"}
    ran = [run(python, program, env={**os.environ, **variables}) for python in ([sys.executable], zygote.python())]
    assert [each.stderr for each in ran] == ["False\n", "True\n"]
    assert ran[0].stdout == ran[1].stdout
    assert "('repro_level', 4)" in ran[1].stdout


def test_it_and_its_substitute_end_alike(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, sys\nos.kill(os.getpid(), int(sys.argv[1]))\n")
    for number in (signal.SIGSEGV, signal.SIGTERM, signal.SIGKILL):
        assert run(zygote.python(), program, str(int(number))).returncode == -number
    program.write_text("def fail():\n    raise ValueError('so')\n\n\nfail()\n")
    real, forked = run([sys.executable], program), run(zygote.python(), program)
    assert (forked.returncode, forked.stderr) == (real.returncode, real.stderr)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_dies_with_its_substitute_and_belongs_to_its_session(tmp_path: Path, number: signal.Signals) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")
    mark = uuid.uuid4().hex
    substitute = subprocess.Popen(
        [*zygote.python(), "-u", str(program)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, processes.MARK: mark},
        start_new_session=True,
    )
    assert substitute.stdout is not None
    forked = psutil.Process(int(substitute.stdout.readline()))
    assert forked.pid != substitute.pid
    assert {one.pid for one in processes.marked_with(mark)} == {substitute.pid, forked.pid}
    os.killpg(substitute.pid, number)
    assert substitute.wait(DEADLINE) == -number
    substitute.stdout.close()
    assert not processes.wait_until_gone(mark)
