"""What the program prints: complete, in order, decoded, and before what followed it."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from tests.client import Session
from tests.client.timeline import DEADLINE
from tests.server.programs import write


def test_output_precedes_the_stop_that_followed_it(session: Session, tmp_path: Path) -> None:
    session.launch(
        write(
            tmp_path,
            "import dynamo_dap, sys\n"
            "for number in range(20):\n"
            "    print('line', number)\n"
            "    print('error', number, file=sys.stderr)\n"
            "    dynamo_dap.breakpoint()\n",
        )
    )
    for number in range(20):
        session.wait_for_stop("breakpoint")
        assert session.output("stdout").endswith(f"line {number}\n")
        assert session.output("stderr").endswith(f"error {number}\n")
        session.resume()
    session.wait_for_exit()


def test_characters_are_not_cut_and_wrong_ones_are_shown(session: Session, tmp_path: Path) -> None:
    text = "€😀ä" * 30000
    session.launch(
        write(
            tmp_path,
            "import os\n"
            f"data = {text!r}.encode()\n"
            "while data: data = data[os.write(1, data[:4097]):]\n"
            "os.write(2, b'a\\xffb\\xe2\\x82')\n",
        )
    )
    session.wait_for_exit()
    assert session.output("stdout") == text
    assert session.output("stderr") == "a\ufffdb\ufffd"


def test_small_pieces_are_gathered(session: Session, tmp_path: Path) -> None:
    session.launch(write(tmp_path, "import sys\nfor _ in range(2000): sys.stderr.write('^')\n"))
    session.wait_for_exit()
    assert session.output("stderr") == "^" * 2000
    events = [event for event in session.timeline.events if event["event"] == "output"]
    assert len(events) < 200


@pytest.mark.parametrize("how", ["print", "os._exit(5)", "os.kill(os.getpid(), 9)"])
def test_nothing_is_lost_at_the_end(session: Session, tmp_path: Path, how: str) -> None:
    session.launch(
        write(
            tmp_path,
            "import os, sys\n"
            "for number in range(3000): os.write(1, b'%d\\n' % number)\n"
            "os.write(1, b'last')\nos.write(2, b'last')\n"
            f"{how}\n",
        )
    )
    session.wait_for_exit()
    assert session.output("stdout") == "".join(f"{number}\n" for number in range(3000)) + "last"
    assert session.output("stderr") == "last"
    names = [event["event"] for event in session.timeline.events]
    assert names[-2:] == ["exited", "terminated"]


@pytest.mark.parametrize(
    "how", ["pass", "os._exit(5)", "os.kill(os.getpid(), signal.SIGSEGV)", "os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_no_log_message_is_lost_at_the_end(session: Session, tmp_path: Path, how: str) -> None:
    program = write(tmp_path, f"import os, signal\nfor number in range(3000):\n    number + 1\n{how}\n")
    with session.launching(program):
        session.set_breakpoints(program, 3, log_message="hit {number}")
    session.wait_for_exit()
    logged = [line for line in session.output().splitlines() if line.startswith("hit ")]
    assert logged == [f"hit {number}" for number in range(3000)]


TRACED = """\
import os, signal, torch

@torch.compile(backend="eager")
def fn(x, number):
    y = x + number
    return y * 2

for number in range(200):
    fn(torch.ones(2), torch.tensor(number))
"""


@pytest.mark.parametrize("how", ["pass", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_no_log_message_of_a_compiled_call_is_lost_at_the_end(session: Session, tmp_path: Path, how: str) -> None:
    program = write(tmp_path, f"{TRACED}{how}\n")
    with session.launching(program):
        session.set_breakpoints(program, 5, log_message="hit {int(number)}")
    session.wait_for_exit()
    logged = [line for line in session.output().splitlines() if line.startswith("hit ")]
    assert logged == [f"hit {number}" for number in range(200)]


def test_the_end_is_reported_while_a_descendant_holds_the_output_open(session: Session, tmp_path: Path) -> None:
    session.launch(
        write(
            tmp_path,
            "import subprocess, sys\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(5000)'])\n"
            "print('child', child.pid)\n",
        )
    )
    assert session.wait_for_exit() == 0
    assert psutil.pid_exists(int(session.output("stdout").split()[-1])), "the end was reported before the descendant's"
    session.close()
    assert session.processes_left == []


def test_a_program_that_floods_can_be_ended(session: Session, tmp_path: Path) -> None:
    session.launch(write(tmp_path, "import os\nwhile True: os.write(1, b'x' * 65536)\n"))
    session.wait_for_output("x")
    session.disconnect()
    session.close()
    assert session.processes_left == []


def test_the_programs_input_is_at_its_end(session: Session) -> None:
    session.launch("waits_for_input")
    assert session.wait_for_exit() == 0
    assert "hello nobody" in session.output("stdout")


def test_a_program_that_was_let_go_can_continue_printing(session: Session, tmp_path: Path) -> None:
    done = tmp_path / "done"
    session.launch(
        write(
            tmp_path,
            "import os, sys, time, pathlib\n"
            "print('running', flush=True)\n"
            "while not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
            "for _ in range(1000): print('x' * 1000); print('y' * 1000, file=sys.stderr)\n"
            "pathlib.Path(sys.argv[2]).write_text('printed')\n",
        ),
        args=[str(tmp_path / "go"), str(done)],
    )
    session.wait_for_output("running")
    session.disconnect(terminateDebuggee=False)
    assert session._server.wait(DEADLINE) == 0
    (tmp_path / "go").touch()
    deadline = time.monotonic() + DEADLINE
    while not done.exists():
        assert time.monotonic() < deadline, "the program did not come to its end"
        time.sleep(0.02)


def test_a_buffer_is_kept_when_the_user_wants_one(session: Session, tmp_path: Path) -> None:
    session.launch(
        write(tmp_path, "import os; print(repr(os.environ['PYTHONUNBUFFERED']))"), env={"PYTHONUNBUFFERED": ""}
    )
    session.wait_for_exit()
    assert session.output("stdout") == "''\n"
