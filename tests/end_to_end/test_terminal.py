"""The debugger in the terminal: as a script, piped, and typed at a real (pseudo) terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dynamo_dap.protocol.requests.contract import LOG_VARIABLE
from dynamo_dap.terminal.breakpoints import BreakpointRequest, UsageError, parse_place
from tests.client import FIXTURES, Fixture, processes
from tests.client.environments import alone, own_command
from tests.client.timeline import DEADLINE
from tests.end_to_end.test_compile_progress import FORWARD, WAITING

COMPILE_TIME = ["--mode", "compile-time", "--no-eager"]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return the environment of a debugger whose processes must all end with the test."""
    mark = uuid.uuid4().hex
    yield {**os.environ, processes.MARK: mark, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm", "COLUMNS": "150"}
    left = processes.wait_until_gone(mark)
    processes.kill_all(mark)
    assert not left


def run(arguments: Sequence[str], environment: dict[str, str], typed: str = "") -> subprocess.CompletedProcess[str]:
    """Run ``dynamo-dap debug`` with its standard input piped."""
    return subprocess.run(
        [*own_command(), "debug", *arguments],
        input=typed,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        cwd=FIXTURES.parent,
    )


def commands(*lines: str) -> list[str]:
    """Return the command line options for these commands."""
    return [part for line in lines for part in ("--command", line)]


def in_order(text: str, *parts: str) -> None:
    """Check that the text contains every part, in this order."""
    position = 0
    for part in parts:
        found = text.find(part, position)
        assert found >= 0, f"no {part!r} after position {position} of:\n{text}"
        position = found + len(part)


HOSTILE = """\
class Owner:
    def __repr__(self):
        return "repr \\x1b]0;owned\\x07\\x9b2J"

def stops(value):
    vars(value)["name\\x1b[2J"] = 1
    raise ValueError("error \\x1b[2J\\x07")

print("own \\x1b[1mbold")
stops(Owner())
"""


def test_control_characters_of_values_names_and_errors_are_visible(environment: dict[str, str], tmp_path: Path) -> None:
    """The program's own output is not changed."""
    program = tmp_path / "hostile.py"
    program.write_text(HOSTILE)
    inspected = commands("locals", "expand value", "print value", "print str(1/0) + value", "where")
    ran = run([str(program), "--catch", "uncaught", *inspected, *commands("continue")], environment)
    output = ran.stdout.replace("own \x1b[1mbold", "", 1)
    assert output != ran.stdout
    assert "repr ␛]0;owned␇" in output
    assert "name␛[2J" in output
    assert "error ␛[2J␇" in output
    # Python writes its own traceback; the debugger writes the rest.
    ours = output.partition("Traceback (most recent call last)")[0]
    assert not set(ours) & {"\x1b", "\x07", "\x9b", "\x08"}


def test_a_session_from_breakpoint_to_end(environment: dict[str, str]) -> None:
    line = Fixture("basic").line("in_helper")
    ran = run(
        [
            "fixtures/basic.py",
            *COMPILE_TIME,
            f"--break=fixtures/basic.py:{line}",
            *commands("where", "locals", "stepi", "stepi", "stack", "next", "print doubled.shape[0] + 1"),
            *commands("expand doubled", "scopes", "graph", "guards", "out", "list", "up", "print y.requires_grad"),
            *commands("continue", "print tensor.sum().item()", "continue"),
        ],
        environment,
    )
    assert ran.stderr == ""
    assert ran.returncode == 0
    in_order(
        ran.stdout,
        f"in scale at fixtures/basic.py:{line}",
        f"{line} │     doubled = tensor * factor",
        "(dynamo) where",
        "#0  scale",
        "#1  compute",
        "#2  main",
        "(dynamo) locals",
        "tensor = Tensor f32[3, 4] cpu all 3, requires_grad",
        "factor = 2",
        "(dynamo) stepi",
        "value stack: Tensor f32[3, 4]",
        "(dynamo) stack",
        "1 (top) = 2",
        "(dynamo) next",
        "return doubled + 1",
        "(dynamo) print",
        "4",
        "(dynamo) expand doubled",
        "torch.float32",
        "(dynamo) scopes",
        "Value Stack",
        "(dynamo) graph",
        "doubled",
        "(dynamo) guards",
        "TENSOR_MATCH",
        "(dynamo) out",
        "in compute at",
        "(dynamo) up",
        "main",
        "(dynamo) print y.requires_grad",
        "True",
        "(dynamo) continue",
        "result 87.0",
        "Paused on breakpoint in call 2 of compute, which uses cache entry 0/0",
        "36.0",
        "again 87.0",
        "exit code 0",
    )


def test_breakpoints_restart_and_mistakes_from_a_pipe(environment: dict[str, str]) -> None:
    loops = Fixture("loops")
    typed = "\n".join(
        [
            "help",
            "dance",
            "locals",
            "break nowhere.py:3",
            f"break fixtures/loops.py:{loops.line('first_line')} if index == 2",
            f"tbreak {loops.line('second_line')}",
            "break",
            "continue",
            "print index",
            "continue",
            "print no_such_name",
            "continue",
            "restart",
            "print index",
            "delete",
            "breakpoints",
            "continue",
            "print 1",
            "quit",
        ]
    )
    ran = run(["fixtures/loops.py", *COMPILE_TIME], environment, typed)
    assert ran.stderr == ""
    assert "Traceback" not in ran.stdout
    in_order(
        ran.stdout,
        "(dynamo) help",
        "restart",
        "(dynamo) dance",
        "unknown command 'dance'",
        "(dynamo) locals",
        "has not started yet",
        "nowhere.py does not exist",
        "● 1  fixtures/loops.py",
        "if index == 2",
        "(once)",
        "(breakpoint 2)",
        "(dynamo) print index",
        "0",
        "(breakpoint 1)",
        "(dynamo) print no_such_name",
        "no_such_name",
        "(dynamo) continue",
        "[63.0, 63.0]",
        "exit code 0",
        "(dynamo) restart",
        "(breakpoint 1)",
        "(dynamo) print index",
        "2",
        "(dynamo) breakpoints",
        "no breakpoints",
        "(dynamo) continue",
        "[63.0, 63.0]",
        "(dynamo) print 1",
        "has ended",
        "(dynamo) quit",
    )


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        ([], "a script, --module"),
        (["fixtures/nowhere.py"], "does not exist"),
        (["fixtures/basic.py", "--module", "basic"], "exactly one"),
        (["--attach", "nowhere"], "HOST:PORT"),
        (["fixtures/basic.py", "--break", "fixtures/basic.py:x"], "not a line number"),
        (["fixtures/basic.py", "-x", "no_such_script"], "no_such_script"),
    ],
)
def test_mistakes_on_the_command_line(arguments: list[str], reported: str, environment: dict[str, str]) -> None:
    ran = run(arguments, environment)
    assert ran.returncode in (1, 2)
    assert reported in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr


UNREACHED = """\
import torch

def never_called(x):
    return x + 1

@torch.compile
def scaled(x):
    if x.shape[0] > 3:
        return x * 2
    return x * 3

for _ in range(2):
    print(scaled(torch.ones(3)).sum().item())
"""


def test_the_end_says_why_breakpoints_never_stopped(tmp_path: Path, environment: dict[str, str]) -> None:
    program = tmp_path / "unreached.py"
    program.write_text(UNREACHED)
    places = (f"{program}:{place}" for place in (4, 9, "10 if x.shape[0] == 7", 13))
    ran = run([str(program), *commands(*map("break {}".format, places), *["continue"] * 3)], environment)
    in_order(
        ran.stdout,
        "breakpoint 1 never stopped",
        "never_called was neither traced",
        "breakpoint 2 never stopped",
        "scaled ran, but was not seen",
        "breakpoint 3 never stopped",
        "condition was never true",
        "has ended",
    )
    assert "breakpoint 4 never" not in ran.stdout


def test_program_arguments_and_its_exit_code(environment: dict[str, str]) -> None:
    ran = run(["fixtures/plain.py", *commands("continue"), "--", "--break", "two words"], environment)
    assert "arguments ['--break', 'two words']" in ran.stdout
    in_order(ran.stdout, "no newline at the end", "\nthe program has ended")
    assert ran.returncode == 0
    ran = run(["fixtures/endings/sys_exit.py", *commands("continue")], environment)
    assert ran.returncode == 3


CRASH = """\
import sys
import torch

@torch.compile(backend="eager")
def double(x):
    if x.shape[0] > 3:
        raise ValueError("too long")
    return x * 2

def run(size):
    shown = double(torch.ones(size))
    return shown[int(sys.argv[1])]

run(4 if sys.argv[1] == "traced" else 2)
"""


@pytest.mark.parametrize(
    ("argument", "where", "looks"),
    [
        ("2", ["IndexError: index 2 is out of", " in run at "], ["p size"]),
        ("traced", ["ValueError: too long", " in double at "], ["p x.shape[0] // 2", "up"]),
    ],
)
def test_an_uncaught_exception_stops(
    argument: str, where: list[str], looks: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    """The exception is in ordinary Python or in a trace; the program then ends as without a debugger."""
    program = tmp_path / "crash.py"
    program.write_text(CRASH)
    ran = run([str(program), *commands("continue", *looks, "continue"), "--", argument], environment)
    in_order(ran.stdout, *where, "uncaught exception", looks[0], "\n2\n", "(dynamo) continue", "Traceback (most")
    assert ran.stdout.count("uncaught exception") == 1
    assert ran.returncode == 1
    # Without a further command, the program also ends as without a debugger.
    ran = run([str(program), *commands("continue"), "--", argument], environment)
    in_order(ran.stdout, "uncaught exception", "Traceback (most")
    assert ran.returncode == 1


# Makes the pseudo terminal the controlling one, so that its Ctrl-C reaches the command.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """A pseudo terminal in which the debugger runs."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str], *, rows: int | None = None) -> None:
        self._master, follower = pty.openpty()
        if rows is not None:
            fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 100, 0, 0))
        self._log = Path(environment["XDG_STATE_HOME"], "log")
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, *own_command(), "debug", *arguments],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={**environment, LOG_VARIABLE: str(self._log)},
            cwd=FIXTURES.parent,
            start_new_session=True,
        )
        os.close(follower)
        self.text = ""

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._master, text.encode())

    def wait_for(self, text: str, deadline: float = DEADLINE) -> None:
        """Wait until ``text`` appears, without colours, after the text of the wait before."""
        until = time.monotonic() + deadline
        while text not in self.text:
            assert time.monotonic() < until, f"no {text!r} in:\n{self.text}\nlog:\n{self._logged()}"
            readable, _, _ = select.select([self._master], [], [], 1.0)
            if readable:
                with contextlib.suppress(OSError):
                    self.text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(self._master, 65536).decode())
        self.text = self.text[self.text.index(text) + len(text) :]

    def _logged(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def close(self) -> int:
        """Wait until the debugger ends, and return its exit status."""
        try:
            return self.process.wait(DEADLINE)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self._master)


def test_typed_at_a_terminal(environment: dict[str, str]) -> None:
    line = Fixture("basic").line("first")
    terminal = Terminal(["fixtures/basic.py", *COMPILE_TIME, f"--break=fixtures/basic.py:{line}"], environment)
    terminal.wait_for("in compute at fixtures/basic.py")
    terminal.wait_for("(dynamo)")
    terminal.type("print x.shap\t")
    terminal.wait_for("x.shape")
    terminal.type("\r")
    terminal.wait_for("torch.Size([3, 4])")
    terminal.wait_for("(dynamo)")
    terminal.type("\x1b[A")
    terminal.wait_for("print x.shape")
    terminal.type("\x03")
    terminal.wait_for("(dynamo)")
    terminal.type("quit\r")
    assert terminal.close() == 0


def test_a_long_compile_is_shown(environment: dict[str, str], tmp_path: Path) -> None:
    program, go = tmp_path / "program.py", tmp_path / "forward"
    program.write_text(WAITING + FORWARD.replace('"forward"', repr(str(go))))
    last = len(program.read_text().splitlines())
    terminal = Terminal([str(program), f"--break={program}:{last}"], environment)
    terminal.wait_for("in <module> at")
    terminal.wait_for("(dynamo)")
    terminal.type("c\r")
    terminal.wait_for("patient compiles scale (")
    go.touch()
    terminal.wait_for("6.0")
    terminal.wait_for("(dynamo)")
    terminal.type("q\r")
    assert terminal.close() == 0


def test_keys_of_a_person(environment: dict[str, str], tmp_path: Path) -> None:
    """Only a terminal has these: a pasted block, completion, a question before all breakpoints are removed, pages."""
    program = tmp_path / "program.py"
    program.write_text("words = ['word'] * 90\ndef function(first):\n    return first\nprint(function(words))\n")
    terminal = Terminal([str(program), f"--break={program}:3"], environment, rows=24)
    terminal.wait_for("in function at")
    terminal.wait_for("(dynamo)")
    terminal.type("\x1b[200~for each in first[:2]:\r    last = each * 2\x1b[201~\r")
    terminal.wait_for("last = each")
    terminal.wait_for("(dynamo)")
    terminal.type("last\r")
    terminal.wait_for("'wordword'")
    terminal.wait_for("(dynamo)")
    terminal.type("firs\t")
    terminal.wait_for("first")
    terminal.type(".coun\t")
    terminal.wait_for("count")
    terminal.type("('word')\r")
    terminal.wait_for("90")
    terminal.wait_for("(dynamo)")
    terminal.type(f"b {program}:2\t\r")
    terminal.wait_for("● 2")
    terminal.wait_for("(dynamo)")
    terminal.type("cl\r")
    terminal.wait_for("[y/N]")
    terminal.type("\r")
    terminal.wait_for("(dynamo)")
    terminal.type("b\r")
    terminal.wait_for("● 1")
    terminal.wait_for("● 2")
    terminal.wait_for("(dynamo)")
    terminal.type("pp first\r")
    terminal.wait_for("0 = 'word'")
    terminal.wait_for("-- more")
    assert "40 = " not in terminal.text
    terminal.type("\r")
    terminal.wait_for("40 = 'word'")
    terminal.wait_for("-- more")
    terminal.type("q\r")
    terminal.wait_for("(dynamo)")
    terminal.type("cl\r")
    terminal.wait_for("[y/N]")
    terminal.type("y\r")
    terminal.wait_for("removed breakpoint 2")
    terminal.wait_for("(dynamo)")
    terminal.type("q\r")
    assert terminal.close() == 0


@pytest.mark.parametrize("inherited", [signal.SIG_DFL, signal.SIG_IGN], ids=["usual", "ignored"])
def test_ctrl_c_pauses_the_program(environment: dict[str, str], inherited: signal.Handlers) -> None:
    """This also works if the shell started the debugger in the background, where it ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, inherited)
    try:
        terminal = Terminal(["fixtures/endings/runs_on.py", *COMPILE_TIME], environment)
    finally:
        signal.signal(signal.SIGINT, before)
    terminal.wait_for("(dynamo)")
    terminal.type("run\r")
    terminal.wait_for("running")
    terminal.type("\x03")
    terminal.wait_for("runs_on.py:")
    terminal.wait_for("(dynamo)")
    terminal.type("threads\r")
    terminal.wait_for("stopped")
    terminal.wait_for("(dynamo)")
    terminal.type("\x04")
    assert terminal.close() == 0


def test_a_terminal_without_unicode_shows_the_stop(environment: dict[str, str]) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    line = Fixture("endings/runs_on").line("sleep")
    arguments = [f"--break=fixtures/endings/runs_on.py:{line}", "fixtures/endings/runs_on.py", *commands("quit")]
    ran = run(arguments, {**environment, **ascii_only})
    assert f"runs_on.py:{line}" in ran.stdout
    assert ran.returncode == 0, ran.stderr


def test_generated_code_is_patched(environment: dict[str, str]) -> None:
    store = f"fixtures/patched_code.py:{Fixture('patched_code').line('store')}"
    arguments = [
        "fixtures/patched_code.py",
        *("--mode", "run-time"),  # without a mode, the breakpoint would also stop in replays
        f"--break={store}",
        *commands("listing instructions"),
    ]
    constant = re.search(r"(\d+) +\d+ +LOAD_CONST +3 ", run(arguments, environment).stdout)
    assert constant is not None
    patches = commands(
        f"patch {constant[1]}: NOP", f"patch {constant[1]}: LOAD_CONST 30", "continue", "unpatch", "unpatch"
    )
    ran = run([*arguments, *patches, *commands("delete", "continue")], environment)
    in_order(
        ran.stdout,
        "the stack would underflow",
        "from the next call on: LOAD_CONST 30 (Dynamo generated LOAD_CONST 3)",
        "record (generated #1: #0 patched)",
        "[patched, was LOAD_CONST 3]",
        "1 patched instruction reverted",
        "0 patched instructions reverted",
        "stored [3, 30, 3, 3]",
    )


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the demo steps over Python 3.11's instructions, one by one")
def test_the_demo_shows_a_session(environment: dict[str, str]) -> None:
    ran = subprocess.run(
        [sys.executable, "tests/demo/demo.py"],
        cwd=FIXTURES.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    in_order(ran.stdout, "#0  scale", "value stack: Tensor", "(dynamo) graph", "(dynamo) guards", "result 87.0")
    assert "Frame skipped" not in ran.stdout, "nobody wants to hear of torch's frames at a step in"
    run_time = ran.stdout.partition("dynamo-dap debug fixtures/generated_code.py")[2]
    in_order(
        run_time,
        "d.update({'first': graph_out_0[0]})",
        "at the break",
        "(dynamo) listing instructions",
        "pack the frame for the resume function",
        "(dynamo) stack",
        "(dynamo) listing statements",
        "return __resume_at_",
        "(dynamo) step",
        f"broken (resumed at line {Fixture('generated_code').line('break')}, generated #3)",
        "['first', 'second']",
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("12", BreakpointRequest("/here.py", 12)),
        ("scale", BreakpointRequest(function="scale")),
        ("Model.forward if x.dim() == 2", BreakpointRequest(function="Model.forward", condition="x.dim() == 2")),
        ("12 hit >= 3", BreakpointRequest("/here.py", 12, hit_condition=">= 3")),
        ("12 mode backward if x", BreakpointRequest("/here.py", 12, condition="x", mode="backward")),
        ("12 log x is {x}", BreakpointRequest("/here.py", 12, log_message="x is {x}")),
        (
            "12 hit % 2 if a if b else c log {a} if so",
            BreakpointRequest("/here.py", 12, condition="a if b else c", hit_condition="% 2", log_message="{a} if so"),
        ),
    ],
)
def test_places(text: str, place: BreakpointRequest) -> None:
    assert parse_place(text, "/here.py") == place


@pytest.mark.parametrize("text", ["", "12 wenn x", "file.py:0", "no_such_file.py:3"])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(UsageError):
        parse_place(text, "/here.py")


def test_show_a_tensor_of_a_trace(environment: dict[str, str]) -> None:
    line = Fixture("attention").line("traced")
    ran = run(
        [
            "fixtures/attention.py",
            "--break",
            f"fixtures/attention.py:{line}",
            *commands("show weights", "show", "show", "show weights[1, 19:21, :2]", "show nothing", "show 1"),
            *commands("continue", "show weights[1, 19:21, :2]", "show weights[0, 0, 0]"),
        ],
        environment,
    )
    rows = [shown.split() for shown in ran.stdout.splitlines()]
    assert ["Tensor", "f32[6,", "24,", "24]", "cpu"] in rows
    assert ["0", "1.0", *["0.0"] * (len(next(row for row in rows if row[:2] == ["0", "1.0"])) - 2)] in rows
    in_order(
        ran.stdout,
        "this is [0, :, :]",
        "16 of 24 rows: 'show' continues; another part: show (weights)[-1]",
        "min 0.0  max 1.0  mean 0.0416667  std 0.153951  zeros 1638  NaN 144  Inf 0",
        "0 █",
        " 1  (highest: 2",
        "(dynamo) show",
        "20",
        "nan",
        "23",
        "(dynamo) show",
        "no more rows",
        "Tensor f32[2, 2] cpu",
        "nan",
        "NaN 2",
        "name 'nothing' is not defined",
        "not a tensor",
        "call 2 of attend",
        "Tensor f32[2, 2] cpu",
        "NaN 2",
        "Tensor f32[] cpu",
        "1.0",
        "min 1.0  max 1.0",
    )
    assert "Traceback" not in ran.stdout + ran.stderr


def test_options_are_set_at_the_prompt(environment: dict[str, str]) -> None:
    """They are set before the program starts and while it is stopped; wrong ones are refused."""
    line = Fixture("settings").line("call")
    ran = run(
        [
            *("--python", sys.executable),  # this Python imports Dynamo while the program is debugged
            "fixtures/settings.py",
            *commands("set stance eager_on_recompile", f"break fixtures/settings.py:{line}", "continue", "continue"),
            *commands("set stance", "set stance sometimes", "set backend aot_eagle", "set stance null", "continue"),
        ],
        environment,
    )
    in_order(
        ran.stdout,
        "(dynamo) set stance eager_on_recompile",
        'stance: "eager_on_recompile" (when the program has imported Dynamo)',
        "(dynamo) set stance\n",
        'stance: "eager_on_recompile"\n',
        "did you mean aot_eager",
        "stance: the program's own",
        "scaled 3.0",
    )
    assert '"stance" is "sometimes"' in ran.stdout
    assert ran.returncode == 0


def test_what_if(environment: dict[str, str], tmp_path: Path) -> None:
    """The user sets a variable, goes to another line, and compares the graphs; a call runs the result."""
    program = tmp_path / "program.py"
    lines = [
        "import torch",
        '@torch.compile(backend="eager")',
        "def function(x, rate):",
        "    y = x + rate",
        "    if rate > 3:",
        "        return y.sin()",
        "    return y.cos()",
        "for number in range(2):",
        "    print(function(torch.ones(3) * number, 2).tolist())",
    ]
    program.write_text("\n".join(lines))
    plain = alone(program).stdout
    what_if = ["assign rate = 7", "print rate", "! y = y * 2", "jump 4", "jump 99", "next", "next", "whatif", "keep"]
    ran = run(
        [str(program), f"--break={program}:5", *commands("continue", *what_if, "delete", "continue")], environment
    )
    assert ran.returncode == 0
    in_order(
        ran.stdout,
        "Paused on breakpoint in call 2 of function",
        "(dynamo) assign rate = 7",
        "Paused in a trace of function that was changed by the debugger: rate = 7 at",
        "(dynamo) print rate",
        "7",
        "(dynamo) ! y = y * 2",
        "Paused in a trace",
        "y = y * 2 at",
        "(dynamo) jump 4",
        "goto 4 at",
        "▶ 4",
        "(dynamo) jump 99",
        "no line of function, which is traced, begins there",
        "(dynamo) next",
        "(dynamo) next",
        "▶ 6",
        "(dynamo) whatif",
        "changed: rate = 7 at",
        "--- the program's graph",
        "-    cos = y.cos()",
        "# <changed by the debugger>:2: y = y * 2",
        "(dynamo) keep",
        "warning: this call of function will run the graph of the changed trace",
        "(dynamo) continue",
        "The call runs the changed graph",
        "+    sin = y_2.sin()",
    )
    # The program's output and the debugger's come by different ways: either may be first.
    in_order(ran.stdout, "(dynamo) keep", "[0.98935")
    assert f"\n{plain.splitlines()[0]}\n" in ran.stdout, "the first call was left as it is"


def test_cache_entries_at_the_prompt(environment: dict[str, str]) -> None:
    again = Fixture("cache_entries").line("again")
    ran = run(
        [
            "fixtures/cache_entries.py",
            f"--break=fixtures/cache_entries.py:{again}",
            *commands("entries fn", "forget fn 7/7", "forget fn 0/0", "entries fn", "forget fn", "entries", "continue"),
        ],
        environment,
    )
    in_order(
        ran.stdout,
        "(dynamo) entries fn",
        "[0/0] compiled by eager",
        "last miss: factor == 2 (was 2, is 3)",
        "'fn' has no such cache entry; there are: 0/1, 0/0, 1/0",
        "1 removed",
        "(dynamo) entries fn",
        "[0/1] compiled by eager",
        "2 removed",
        "(dynamo) entries",
        "Model.forward",
        "again 3.0",
    )
    assert ran.returncode == 0


def test_compare_at_the_prompt(environment: dict[str, str], tmp_path: Path) -> None:
    """The command is used before a call differs, and at the stop of a call that differs."""
    program = tmp_path / "program.py"
    lines = [
        "import torch",
        "def wrong(graph, inputs):",
        "    return lambda *given: tuple(each + 1 for each in graph(*given))",
        "@torch.compile(backend=wrong)",
        "def function(x):",
        "    y = x * 2",
        "    return y.sin()",
        "x = torch.ones(3)",
        "function(x)",
    ]
    program.write_text("\n".join(lines))
    typed = commands("compare", "catch mismatch", "continue", "compare", "continue")
    ran = run([str(program), f"--break={program}:8", *typed], environment)
    in_order(
        ran.stdout,
        "(dynamo) compare",
        "no call that differs",
        "(dynamo) catch mismatch",
        "(dynamo) compare",
        "call 1 of function [0/0], backend wrong",
        "Differs: largest difference 1",
        "▶ 6",
        "differs",
    )
    mismatch = next(line for line in ran.stdout.splitlines() if line.startswith("● ") and "Paused" not in line)
    assert " in function at " in mismatch, "the place stands behind the first line of several"


READS = """
import torch

@torch.compile(backend="eager")
def f(x, ts):
    y = x + 1
    z = y * 2
    torch._dynamo.graph_break()
    return z + ts["a"]

f(torch.ones(3), {"a": torch.arange(3.0), "b": [torch.full((2,), 7.0)]})
print("hello", input("name? "))
"""


def test_counts_ranges_containers_and_what_prints(environment: dict[str, str], tmp_path: Path) -> None:
    path, given = tmp_path / "reads.py", tmp_path / "given.txt"
    path.write_text(READS)
    given.write_text("World\n")
    lines = [
        "listing instructions",
        f"break {path}:7",
        "continue",
        "print ctx.print_locals()",
        "print None",
        "print ts",
    ]
    lines += ["list 2, 3", "stepi 3", "stack", "restart", "step 2", "break 9", "continue", "up", "continue"]
    ran = run([str(path), f"--input={given}", *commands(*lines)], environment)
    printed = ran.stdout.partition("print ctx")[2].partition("print None")[0]
    assert "x = Tensor" in printed
    assert "None" not in printed
    assert "\n\n" not in printed
    listed = ran.stdout.partition("list 2, 3")[2].partition("(dynamo)")[0]
    assert re.findall(r"(\d+) │", listed) == ["2", "3"]
    in_order(
        ran.stdout,
        "(dynamo) print None\nNone",
        "(dynamo) print ts",
        "['a'] = Tensor f32[3] cpu = [0.0, 1.0, 2.0]",
        "['b'] = [Tensor f32[2] cpu = [7.0, 7.0]]",
        "0 = Tensor f32[2] cpu = [7.0, 7.0]",
        "(dynamo) list 2, 3",
        "2 │ import torch",
        "(dynamo) stepi 3",
        "value stack:",
        "(dynamo) stack",
        "(dynamo) restart",
        "reads.py:7",
        "(dynamo) step 2",
        "(dynamo) up",
        "CALL",  # the second run also lists instructions
        "hello World",
        "exit code 0",
    )


def test_a_program_reads_what_is_typed(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "reads.py"
    path.write_text(READS)
    terminal = Terminal([str(path), *COMPILE_TIME, "--console=terminal", f"--break={path}:7"], environment)
    terminal.wait_for("(dynamo)")
    terminal.type("delete\r")
    terminal.wait_for("(dynamo)")
    terminal.type("continue\r")
    terminal.wait_for("name?")
    terminal.type("World\r")
    terminal.wait_for("hello World")
    terminal.wait_for("exit code 0")
    terminal.wait_for("(dynamo)")
    terminal.type("quit\r")
    assert terminal.close() == 0
