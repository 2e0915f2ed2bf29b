"""Launching: the program, its environment, its output, and the report of its end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.client import FIXTURES, Fixture, Session
from tests.client.environments import VirtualEnvironment
from tests.client.session import launch_configuration
from tests.conftest import NewSession


def test_a_program_runs_with_its_arguments_directory_and_environment(session: Session, tmp_path: Path) -> None:
    session.launch("plain", args=["one", "two words"], cwd=str(tmp_path), env={"FIXTURE_VARIABLE": "set"})
    assert session.wait_for_exit() == 0
    assert session.output("stdout").splitlines() == [
        "arguments ['one', 'two words']",
        f"directory {tmp_path}",
        "variable set",
        "name __main__",
        "written to descriptor 1",
        "torch imported: False",
        "no newline at the end",
    ]
    assert session.output("stderr") == "to stderr\n"


def test_arguments_may_be_one_string_and_a_variable_may_be_unset(new_session: NewSession) -> None:
    session = new_session(environment={"FIXTURE_VARIABLE": "inherited"})
    session.launch("plain", args="one 'two words'", env={"FIXTURE_VARIABLE": None})
    assert session.wait_for_exit() == 0
    assert "arguments ['one', 'two words']" in session.output("stdout")
    assert "variable None" in session.output("stdout")


def test_a_module_runs_as_python_m_does(session: Session) -> None:
    configuration = launch_configuration("plain", module="plain", cwd=str(FIXTURES), args=["one"])
    del configuration["program"]
    with session.configuring("launch", configuration):
        pass
    assert session.wait_for_exit() == 0
    assert "arguments ['one']" in session.output("stdout")
    assert "name __main__" in session.output("stdout")


def test_code_runs_as_python_c_does(session: Session) -> None:
    configuration = launch_configuration(
        "plain", code=["import sys", "print('code', sys.argv[1:], __name__)"], args=["x"]
    )
    del configuration["program"]
    with session.configuring("launch", configuration):
        pass
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "code ['x'] __main__\n"


def test_another_interpreter_runs_the_program(session: Session, tmp_path: Path) -> None:
    """The other environment first lacks a package that the debugger needs, and then has it."""
    environment = VirtualEnvironment(tmp_path / "environment")
    python = str(environment.python)
    configuration = launch_configuration("plain", code="import sys; print(sys.prefix)", python=python)
    del configuration["program"]
    session.initialize()
    text = session.refusal("launch", configuration)
    assert f"{python} -m pip install bytecode debugpy msgspec" in text

    environment.add_all_packages()
    with session.configuring("launch", configuration):
        pass
    assert session.wait_for_exit() == 0
    assert session.output("stdout").strip() == str(environment.folder)


def test_imports_come_from_the_directory_of_the_program(session: Session, tmp_path: Path) -> None:
    """``sys.path[0]`` is the same as without a debugger, and none of our modules hides one of the program's."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, protocol, entry\nprint(sys.path[0], protocol.NAME, entry.NAME, sys.argv[0], __file__)\n"
    )
    (tmp_path / "protocol.py").write_text("NAME = 'mine'\n")
    (tmp_path / "entry.py").write_text("NAME = 'also mine'\n")
    session.launch(program)
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == f"{tmp_path} mine also mine {program} {program}\n"


def test_a_module_of_the_program_is_called_as_a_package_of_ours(session: Session, tmp_path: Path) -> None:
    """Program and debugger each import their own module ``bytecode``."""
    program = Fixture(tmp_path / "program.py")
    program.path.write_text(
        "import torch, bytecode\n\n\n"
        "@torch.compile(backend='eager')\n"
        "def function(x):\n"
        "    return x + 1  #@line\n\n\n"
        "print(bytecode.NAME, float(function(torch.ones(1))))\n"
    )
    (tmp_path / "bytecode.py").write_text("NAME = 'mine'\n")
    with session.launching(program, python=[sys.executable]):
        session.set_breakpoints(program, "line", mode="run-time")
    stop = session.wait_for_stop("breakpoint")
    assert stop.frames[1].marker == "line"
    session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "mine 2.0\n"


def test_nothing_of_a_large_output_is_lost(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "for number in range(20000):\n"
        "    print('line', number, 'ä€😀')\n"
        "    if number % 100 == 0: print('error', number, file=sys.stderr)\n"
        "sys.stdout.write('the end')\n"
    )
    session.launch(program)
    assert session.wait_for_exit() == 0
    lines = session.output("stdout").split("\n")
    assert lines == [f"line {number} ä€😀" for number in range(20000)] + ["the end"]
    assert session.output("stderr").splitlines() == [f"error {number}" for number in range(0, 20000, 100)]


def test_stop_on_entry_stops_before_the_first_line(session: Session) -> None:
    session.launch("plain", stopOnEntry=True)
    stop = session.wait_for_stop("entry")
    assert stop.frame.path == FIXTURES / "plain.py"
    assert stop.frame.line == 1
    assert session.output("stdout") == ""
    assert session.run_to_end() == 0


def test_the_process_is_reported(session: Session) -> None:
    session.launch("plain")
    body = session.timeline.expect_event("process")
    assert body["startMethod"] == "launch"
    assert body["name"].endswith("plain.py")
    assert body["systemProcessId"] > 0
    assert session.wait_for_exit() == 0


def test_without_debugging_the_program_just_runs(session: Session) -> None:
    with session.launching("basic", noDebug=True):
        session.set_breakpoints("basic", "first")
    assert session.wait_for_exit() == 0
    assert "result 87.0" in session.output("stdout")


@pytest.mark.parametrize(
    ("program", "exit_code", "reported"),
    [
        ("endings/sys_exit", 3, "before the end"),
        ("endings/os_exit", 4, "before the end\n"),
        ("endings/raises", 1, "RuntimeError: the program's own error: 2.0"),
    ],
)
def test_exit_codes(session: Session, program: str, exit_code: int, reported: str) -> None:
    session.expects_program_traceback = program == "endings/raises"
    session.launch(program)
    assert session.wait_for_exit() == exit_code
    assert reported in session.output()


@pytest.mark.parametrize(("program", "signal"), [("endings/segfault", "SIGSEGV"), ("endings/aborts", "SIGABRT")])
def test_death_by_a_signal_is_reported(session: Session, program: str, signal: str) -> None:
    session.launch(program)
    assert session.wait_for_exit() != 0
    assert "before the end" in session.output("stdout")
    assert signal in session.output("important")


def test_a_traceback_shows_the_program_and_nothing_of_ours(session: Session) -> None:
    session.expects_program_traceback = True
    session.launch("endings/raises")
    assert session.wait_for_exit() == 1
    text = session.output("stderr")
    assert 'raises.py"' in text
    assert "dynamo_dap" not in text
    assert "runpy" not in text


@pytest.mark.parametrize("console", ["integratedTerminal", "externalTerminal"])
def test_a_program_in_a_terminal(session: Session, console: str) -> None:
    session.launch("plain", console=console, args=["one"], env={"FIXTURE_VARIABLE": "in the terminal"})
    assert session.wait_for_exit() == 0
    requests = [entry.message for entry in session.timeline.entries if entry.message.get("command") == "runInTerminal"]
    assert requests[0]["arguments"]["kind"] == console.removesuffix("Terminal")
    assert "arguments ['one']" in session.terminal_output
    assert "variable in the terminal" in session.terminal_output
    assert "no newline at the end" in session.terminal_output
    assert session.output("stdout") == ""


def test_a_breakpoint_in_a_terminal_and_over_tcp(new_session: NewSession) -> None:
    """A whole session works with the other transport and the other console."""
    session = new_session(transport="tcp")
    session.launch("basic", "first", console="integratedTerminal")
    stop = session.wait_for_stop("breakpoint", at="first")
    assert "x" in stop.frame["Locals"]
    assert session.finish() == 0
    assert "result 87.0" in session.terminal_output


def test_python_is_the_interpreter_of_the_server_by_default(session: Session) -> None:
    configuration = launch_configuration("plain", code="import sys; print(sys.executable)")
    del configuration["program"], configuration["python"]
    with session.configuring("launch", configuration):
        pass
    assert session.wait_for_exit() == 0
    assert Path(session.output("stdout").strip()).resolve() == Path(sys.executable).resolve()
