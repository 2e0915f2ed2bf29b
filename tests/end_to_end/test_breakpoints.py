"""Breakpoints of every kind, while Dynamo traces."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from dynamo_dap.protocol.requests.contract import EXCEPTION_FILTERS
from dynamo_dap.protocol.wire.types import FunctionBreakpoint, SourceBreakpoint
from dynamo_dap.server.client.capabilities import AGENT_CAPABILITIES
from tests.client import FIXTURES, Fixture, Session
from tests.client.environments import VirtualEnvironment
from tests.client.session import lines_of


def test_lines_in_a_compiled_function_and_in_one_that_it_calls(session: Session) -> None:
    with session.launching("basic"):
        answers = session.set_breakpoints("basic", "first", "in_helper", "return")
        assert [answer.verified for answer in answers] == [True, True, True]
        assert [answer.line for answer in answers] == [
            Fixture("basic").line(m) for m in ("first", "in_helper", "return")
        ]
        assert len({answer.id for answer in answers}) == 3
    first = session.wait_for_stop("breakpoint", at="first")
    assert first.body["hitBreakpointIds"] == [answers[0].id]
    helper = session.continue_to_stop(at="in_helper")
    assert helper.body["hitBreakpointIds"] == [answers[1].id]
    session.continue_to_stop(at="return")
    # The second call is a cache hit, and stops as well.
    second = session.continue_to_stop(at="first")
    assert second.description == "Call 2 of compute [0/0]"
    session.continue_to_stop(at="in_helper")
    session.continue_to_stop(at="return")
    assert session.run_to_end() == 0
    assert session.output("stdout") == "result 87.0\nagain 87.0\n"


def test_a_breakpoint_without_code_moves_down_or_says_why_not(session: Session) -> None:
    loops = Fixture("loops")
    end_of_file = len(loops.path.read_text().splitlines())
    with session.launching("loops"):
        below_loop, at_blank, past_end = session.set_breakpoints(
            "loops", loops.line("third_line") + 1, loops.line("return") - 1, end_of_file + 10
        )
        assert (below_loop.verified, below_loop.line) == (True, loops.line("return"))
        assert (at_blank.verified, at_blank.line) == (True, loops.line("return"))
        # In ordinary Python, the breakpoint moves to the last line.
        assert (past_end.verified, past_end.line) == (True, end_of_file)
    assert session.wait_for_stop("breakpoint").frame.line == end_of_file
    session.continue_to_stop(at="return")
    assert session.run_to_end() == 0


UNCOMPILED = """\
def plain(
    x,  #@head
):
    y = x + 1  #@body
    # The result  #@comment
    return y * 2  #@return

#@between
print(plain(1))  #@module
"""


def test_a_breakpoint_stops_in_ordinary_python_where_it_is_shown(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "uncompiled.py"
    path.write_text(UNCOMPILED, encoding="utf-8")
    program = Fixture(path)
    with session.launching(program):
        answers = session.set_breakpoints(program, "head", "comment", "between")
    lines = [program.line(marker) for marker in ("body", "return", "module")]
    assert [(answer.verified, answer.line) for answer in answers] == [(True, line) for line in lines]
    session.wait_for_stop("breakpoint", at="module")
    session.continue_to_stop(at="body")
    session.continue_to_stop(at="return")
    assert session.run_to_end() == 0


def test_a_breakpoint_where_there_is_no_python_says_so(session: Session, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"a": 1}\n')
    (tmp_path / "empty.py").write_text("# nothing\n")
    no_python = {
        FIXTURES.parent / "LICENSE": (3, "LICENSE, line 1"),
        FIXTURES.parent / "README.md": (1, "README.md is not a Python file"),
        tmp_path / "data.json": (1, "data.json is not a Python file"),
        tmp_path / "empty.py": (1, "no code"),
        FIXTURES / "broken" / "does_not_parse.py": (1, "does_not_parse.py, line "),
        FIXTURES / "nowhere.py": (3, "does not exist"),
    }
    with session.launching("basic"):
        for path, (line, message) in no_python.items():
            (answered,) = session.set_breakpoints(path, line)
            assert not answered.verified, path
            assert message in (answered.message or ""), answered
    assert session.wait_for_exit() == 0


def test_a_program_may_have_any_name(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.txt"
    program.write_text("# a comment\n\nvalue = 1\nprint(value)\n")
    with session.launching(program):
        answered = session.set_breakpoints(program, 1, 4)
        assert [(one.verified, one.line) for one in answered] == [(True, 3), (True, 4)]
    assert session.wait_for_stop("breakpoint").frame.line == 3
    assert session.continue_to_stop().frame["Locals"]["value"].text == "1"
    assert session.run_to_end() == 0


def test_breakpoint_locations_are_the_lines_with_code(session: Session) -> None:
    loops = Fixture("loops")
    session.launch("loops", "return")
    session.wait_for_stop("breakpoint", at="return")
    body = session.request(
        "breakpointLocations",
        {"source": {"path": str(loops.path)}, "line": loops.line("loop"), "endLine": loops.line("return")},
    )
    lines = sorted({location["line"] for location in body["breakpoints"]})
    assert lines == [loops.line(m) for m in ("loop", "first_line", "second_line", "third_line", "return")]
    assert session.run_to_end() == 0


def test_hit_counts(session: Session) -> None:
    """``5`` is the fifth hit, ``>= 3`` from the third on, ``% 2`` every second; each breakpoint has its own count."""
    loops = Fixture("loops")
    with session.launching("loops"):
        session.set_breakpoints(
            "loops",
            SourceBreakpoint(line=loops.line("first_line"), hit_condition="5"),
            SourceBreakpoint(line=loops.line("second_line"), hit_condition=">= 5"),
            SourceBreakpoint(line=loops.line("third_line"), hit_condition="% 3"),
        )
    seen = []
    for _ in range(5):
        stop = session.wait_for_stop("breakpoint")
        seen.append((stop.marker, int(stop.frame["Locals"]["index"].text)))
        session.resume()
    assert seen == [
        ("third_line", 2),
        ("first_line", 4),
        ("second_line", 4),
        ("second_line", 5),
        ("third_line", 5),
    ]
    assert session.wait_for_exit() == 0


def test_conditions_over_symbolic_locals(session: Session) -> None:
    loops = Fixture("loops")
    with session.launching("loops"):
        session.set_breakpoints(
            "loops",
            SourceBreakpoint(line=loops.line("first_line"), condition="index == 3 and x.shape[0] == 2"),
            SourceBreakpoint(line=loops.line("second_line"), condition="index > 100"),
            SourceBreakpoint(line=loops.line("third_line"), condition="no_such_name > 1"),
        )
    stop = session.wait_for_stop("breakpoint")
    while stop.marker == "third_line":
        # A condition that cannot be evaluated may stop or not, if the reason is reported.
        stop = session.continue_to_stop()
    assert stop.marker == "first_line"
    assert stop.frame["Locals"]["index"].text == "3"
    session.set_breakpoints("loops")
    assert session.run_to_end() == 0
    assert "no_such_name" in session.output("console") + session.output("important") + session.output("stderr")


def test_log_messages_print_and_do_not_stop(session: Session) -> None:
    with session.launching("loops"):
        session.set_breakpoints(
            "loops",
            SourceBreakpoint(
                line=Fixture("loops").line("first_line"), log_message="index {index}, shape {x.shape[0]}, x is {x}!"
            ),
        )
    assert session.wait_for_exit() == 0
    logged = session.output("console") or session.output("stdout")
    assert [f"index {index}, shape 2, x is Tensor f32[2] cpu = [1.0, 1.0]!" in logged for index in range(6)] == [
        True
    ] * 6


def test_function_breakpoints(session: Session) -> None:
    with session.launching("containers"):
        answers = session.client.set_function_breakpoints(
            [
                FunctionBreakpoint(name="gather"),
                FunctionBreakpoint(name="Account.deposit", condition="amount > 1"),
                FunctionBreakpoint(name="no_such_function"),
            ]
        )
        assert len(answers) == 3
    stop = session.wait_for_stop("function breakpoint")
    assert stop.frame.name == "gather"
    assert stop.body["hitBreakpointIds"] == [answers[0].id]
    stop = session.continue_to_stop(at="deposit")
    assert stop.frame.name.endswith("deposit")
    assert session.run_to_end() == 0


def test_breakpoints_set_while_stopped_and_taken_away(session: Session) -> None:
    session.launch("basic", "first", "branch")
    session.wait_for_stop("breakpoint", at="first")
    session.set_breakpoints("basic", "total")
    stop = session.continue_to_stop(at="total")
    assert lines_of(stop.frames)[0] == f"compute:{Fixture('basic').line('total')}"
    assert session.finish() == 0


def test_a_library_is_left_alone_unless_asked_for(session: Session, tmp_path: Path) -> None:
    environment = VirtualEnvironment(tmp_path / "environment")
    environment.add_all_packages()
    shutil.copytree(FIXTURES / "library" / "scaling", environment.site_packages / "scaling")
    library = Fixture(environment.site_packages / "scaling" / "factors.py")
    with session.launching("uses_library", python=str(environment.python), justMyCode=False):
        (answer,) = session.set_breakpoints(library, "in_library")
        assert answer.verified, answer.message
    stop = session.wait_for_stop("breakpoint", at="in_library")
    assert [frame.name for frame in stop.user_frames][:3] == ["rescale", "compute", "main"]
    session.request("restart")
    session.wait_for_stop("breakpoint", at="in_library")
    assert session.run_to_end() == 0


def test_just_my_code_says_why_a_breakpoint_in_a_library_is_not_hit(session: Session, tmp_path: Path) -> None:
    environment = VirtualEnvironment(tmp_path / "environment")
    environment.add_all_packages()
    shutil.copytree(FIXTURES / "library" / "scaling", environment.site_packages / "scaling")
    library = Fixture(environment.site_packages / "scaling" / "factors.py")
    with session.launching("uses_library", python=str(environment.python)):
        (answer,) = session.set_breakpoints(library, "in_library")
        assert not answer.verified
        assert "justMyCode" in (answer.message or "")
        session.set_breakpoints("uses_library", "call_library")
    session.wait_for_stop("breakpoint", at="call_library")
    session.step_in(at="after")
    assert session.run_to_end() == 0


def test_a_breakpoint_in_torch_itself(session: Session) -> None:
    """The breakpoint is in a module that Dynamo inlines, and is set before torch is imported."""
    import torch.nn.modules.linear as linear  # noqa: PLR0402  only for the path of its file

    lines = Path(linear.__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, start=1) if "return F.linear(" in text)
    with session.launching("model", justMyCode=False):
        (answer,) = session.set_breakpoints(Path(linear.__file__), line)
        assert answer.verified, answer.message
    stop = session.wait_for_stop("breakpoint")
    assert stop.frame.name == "Linear.forward"
    assert stop.frame.line == line
    assert stop.frame["Locals"]["input"].text.startswith("Tensor f32[3, 4]")
    session.set_breakpoints(Path(linear.__file__))
    assert session.run_to_end() == 0


def test_comptime_breakpoint_stops_here_and_not_in_pdb(session: Session) -> None:
    session.launch("comptime_breakpoint")
    stop = session.wait_for_stop("breakpoint")
    assert stop.frame.name == "compute"
    assert stop.marker in ("comptime", "after")
    assert stop.frame["Locals"]["y"].text.startswith("Tensor f32[2]")
    session.next(at="after")
    assert session.run_to_end() == 0
    assert session.output("stdout") == "[4.0, 4.0]\n"


def test_a_breakpoint_of_another_mode_is_not_verified(session: Session) -> None:
    with session.launching("basic", mode="compile-time"):  # the test is about the mode
        compile_time, run_time = session.set_breakpoints(
            "basic",
            SourceBreakpoint(line=Fixture("basic").line("first"), mode="compile-time"),
            SourceBreakpoint(line=Fixture("basic").line("total"), mode="run-time"),
        )
        assert compile_time.verified
        assert not run_time.verified
        assert "compile-time" in (run_time.message or "")
    session.wait_for_stop("breakpoint", at="first")
    assert session.finish() == 0


COUNTING = """
import sys

compiled = []

def hook(event, arguments):
    if event == "compile" and arguments[0] is not None:
        text = arguments[0]
        compiled.append(text if isinstance(text, str) else bytes(text).decode(errors="replace"))

sys.addaudithook(hook)
print("counting")  #@counting
"""


def test_a_file_is_parsed_once_per_version(session: Session, tmp_path: Path) -> None:
    """The number of breakpoints and of requests does not matter; our agent and debugpy share one parse."""
    program, library = Fixture(tmp_path / "program.py"), Fixture(tmp_path / "library.py")
    program.path.write_text(COUNTING)
    functions = "".join(f"def f{number}(x):\n    return x + {number}\n" for number in range(100))
    library.path.write_text(f"# the library\n{functions}")
    with session.launching(program, eager=True, mode="both"):
        session.set_breakpoints(program, "counting")
    stop = session.wait_for_stop("breakpoint", at="counting")

    def times_parsed() -> str:
        return stop.frame.evaluate("len([one for one in compiled if one.startswith('# the library')])").text

    lines = [3 + 2 * number for number in range(100)]
    for count in (99, 100):
        assert all(answer.verified for answer in session.set_breakpoints(library, *lines[:count]))
    assert times_parsed() == "1"
    library.path.write_text(f"# the library\n# has changed\n{functions}")
    assert all(answer.verified for answer in session.set_breakpoints(library, *[line + 1 for line in lines]))
    assert times_parsed() == "2"
    assert session.run_to_end() == 0


def test_filters_that_cannot_work_are_not_verified(session: Session) -> None:
    """The other filters of the request stay on."""
    with session.launching("graph_break", eager=True, mode="both"):
        body = session.request(
            "setExceptionBreakpoints",
            {
                "filters": ["graph-break", "grph-break", "uncaught"],
                "filterOptions": [
                    {"filterId": "recompile", "condition": "((("},
                    {"filterId": "raised", "condition": "x > 1"},
                    {"filterId": "guard", "condition": "__source__ == 'x'"},
                    {"filterId": "graph-break", "condition": "__reason__"},
                ],
            },
        )
        answers = body["breakpoints"]
        assert [answer["verified"] for answer in answers] == [True, False, True, False, False, True, True]
        assert "unknown exception filter 'grph-break'" in answers[1]["message"]
        assert "known filters: graph-break, " in answers[1]["message"]
        assert "not a Python expression" in answers[3]["message"]
        assert "'raised' takes no condition" in answers[4]["message"]
    session.wait_for_stop("exception")
    session.request("setExceptionBreakpoints", {"filters": []})
    assert session.run_to_end() == 0


def test_every_filter_that_is_offered_is_known_to_the_agent() -> None:
    offered = {one.filter for one in AGENT_CAPABILITIES.exception_breakpoint_filters or ()}
    assert offered == set(EXCEPTION_FILTERS)


SLOW_TO_READ = """
import os, sys
import torch

def hook(event, arguments):
    if event == "open" and str(arguments[0]).endswith("slow.py"):
        os.close(os.open(sys.argv[1], os.O_RDONLY))  # until somebody writes

@torch.compile(backend="eager")
def f(x):
    y = x + 1  #@traced
    return y * 2

sys.addaudithook(hook)
f(torch.ones(2))
print("ran on")
"""


def test_a_file_that_is_slow_to_read_holds_up_nothing_but_what_counts_on_it(session: Session, tmp_path: Path) -> None:
    program, slow = Fixture(tmp_path / "program.py"), Fixture(tmp_path / "slow.py")
    program.path.write_text(SLOW_TO_READ)
    slow.path.write_text("def g(x):\n    return x + 1\n")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    session.launch(program, "traced", eager=True, mode="both", args=[str(gate)])
    stop = session.wait_for_stop("breakpoint", at="traced")
    breakpoints = {"source": {"path": str(slow.path)}, "breakpoints": [{"line": 2}]}
    setting = session.client.send("setBreakpoints", breakpoints)
    resuming = session.client.send("continue", {"threadId": stop.thread_id})
    assert stop.frame["Locals"]["x"].text.startswith("Tensor f32[2] cpu")
    assert stop.frame.evaluate("x.shape").text
    answered = [one.message["command"] for one in session.timeline.entries if one.message["type"] == "response"]
    assert answered.count("setBreakpoints") == 1, "that of the program alone"
    assert "continue" not in answered, "the program does not run on before its breakpoints are set"
    gate.open("w").close()
    assert json.loads(bytes(setting.result(session.client.timeout)))["breakpoints"][0]["verified"]
    resuming.result(session.client.timeout)
    assert session.wait_for_exit() == 0
