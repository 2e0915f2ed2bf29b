"""Habits of pdb's users at the prompt, each in a real session, in a trace and in ordinary Python."""

from __future__ import annotations

import io
import pdb
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.terminal.breakpoints import Quit, UsageError, parse_place
from dynamo_dap.terminal.command_table import PDB_NAMES, commands, find
from dynamo_dap.terminal.commands import complete_line, execute, read_block
from dynamo_dap.terminal.debugger import Debugger, State
from dynamo_dap.terminal.help_command import overview
from dynamo_dap.terminal.screen import Screen
from tests.client import FIXTURES, Fixture

PLAIN = """\
import sys

def double(n):
    result = n * 2
    return result

def total(first, second=2, *rest, key=None):
    value = double(first)
    for each in range(3):
        value += each
    words = ["word"] * 3
    value += second
    print("total", value)
    return value

def main():
    n = 5
    graph = "a local named as a command"
    print("arguments", sys.argv[1:])
    answer = total(n, 7, key="k")
    print("answer", answer)

main()
"""


class Typist:
    """Types lines into a debugger, as the prompt reads them from a pipe."""

    def __init__(self, program: Path, line: int, **options: object) -> None:
        self._printed = io.StringIO()
        screen = Screen(Console(file=self._printed, width=100, highlight=False))
        configuration = {
            "program": str(program),
            "cwd": str(program.parent),
            "console": "internalConsole",
            "python": [sys.executable],
            "showReturnValue": True,
            **options,
        }
        self.debugger = Debugger(screen, "launch", configuration)
        self._waiting: list[str] = []
        self.debugger.prompt.read = self._read
        self.debugger.breakpoints.add(parse_place(f"{program}:{line}", None))
        self._first = self.debugger.breakpoints.all[0]
        self.debugger.begin()
        self.debugger.resume("continue")

    def begin_again(self) -> None:
        """Stop at the first breakpoint of a new run, with the state of a new session."""
        self.debugger.end()
        self.debugger.breakpoints.all[:] = [self._first]
        self.debugger.breakpoints.next_number = 2
        self.debugger.prompt.displays.clear()
        self.debugger.begin()
        self.debugger.resume("continue")

    def type(self, *lines: str) -> str:
        """Type lines one after the other and return the output."""
        self._printed.seek(0)
        self._printed.truncate()
        self._waiting = list(lines)[::-1]
        while self._waiting:
            line = self._waiting.pop()
            try:
                execute(self.debugger, read_block(self.debugger, line, self._read, self._waiting.append))
            except (UsageError, RequestFailed) as error:
                self.debugger.screen.problem(str(error))
        return self._printed.getvalue()

    def _read(self, _: str) -> str | None:
        return self._waiting.pop() if self._waiting else None


@pytest.fixture(scope="module")
def traced() -> Iterator[Typist]:
    """Stop a session in a function that Dynamo inlines."""
    typist = Typist(FIXTURES / "basic.py", Fixture("basic").line("in_helper"), mode="compile-time", eager=False)
    yield typist
    typist.debugger.end()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typist]:
    """Stop a session in ordinary Python, at the beginning of ``total``."""
    program = tmp_path_factory.mktemp("plain") / "plain.py"
    program.write_text(PLAIN)
    typist = Typist(program, 8)
    yield typist
    typist.debugger.end()


LOOKS: list[tuple[str, list[str], list[str]]] = [
    ("u goes up, d down", ["u", "d"], ["▶  #1  compute", "▶  #0  scale"]),
    ("d at the innermost frame says so", ["d"], ["innermost frame"]),
    ("up 2", ["up 2", "down 2"], ["#2  main", "#0  scale"]),
    ("w shows the stack", ["w"], ["#0  scale", "#1  compute", "#2  main"]),
    ("bt", ["bt"], ["#0  scale"]),
    ("a shows arguments", ["a"], ["tensor = Tensor f32[3, 4]", "factor = 2"]),
    ("l continues, l . comes back", ["w", "l", "l", "l ."], ["▶  7 │", "  13 │", "  23 │", "▶  7 │"]),
    ("Enter repeats l", ["w", "l", ""], ["  12 │", "  13 │"]),
    ("l FIRST, LAST", ["l 16, 19"], ["  16 │     shape", "  19 │     return"]),
    ("l FIRST, COUNT", ["l 16, 2"], ["  16 │", "  18 │"]),
    ("ll shows the function", ["ll"], ["6 │ def scale", "8 │     return doubled + 1"]),
    ("p", ["p factor, factor + 1"], ["(2, 3)"]),
    ("p at once", ["p(factor)"], ["2"]),
    ("pp shows items", ["pp {'one': 1, 'two': [2]}"], ["'one'", "= 1", "'two'"]),
    ("whatis", ["whatis scale", "whatis factor"], ["function", "int"]),
    ("source", ["source scale"], ["basic.py:6", "6 │ def scale(tensor, factor):", "8 │     return"]),
    ("an expression", ["factor * 21"], ["42"]),
    ("! and a statement", ["!counted = 3", "counted"], ["3"]),
    ("a loop is not a 'forget'", ["for each in range(2): print('each', each)"], ["each 0", "each 1"]),
    ("a block", ["for each in (5, 6):", "    print('item', each)", "", "factor"], ["item 5", "item 6", "2"]),
    ("a pasted block", ["if factor == 2:\n    print('two')\nelse:\n    print('other')\n"], ["two"]),
    ("pasted lines", ["p factor\nw"], ["2", "#0  scale"]),
    ("an argument over two lines", ["p (factor +", "   40)"], ["42"]),
    ("names are not cut short", ["contin"], ["'contin'", "did you mean 'continue'"]),
    ("an assignment to a command's name", ["n = 9", "p n"], ["9"]),
    (";; separates", ["p factor ;; p 'a;;b'"], ["2", "a;;b"]),
    ("alias", ["alias twice p %1 * 2", "twice factor", "unalias twice", "alias"], ["4"]),
    ("interact", ["interact", "factor + 5", "w = 1", "exit()", "whatis factor"], ["7", "int"]),
    ("b lists", ["b"], ["● 1  ", "basic.py:7"]),
    ("help", ["h"], ["continue", "'help COMMAND'"]),
    ("help of a command", ["help until"], ["until, unt [LINE]", "for example: until 18"]),
    ("a word of another debugger", ["code"], ["'entries FUNCTION'"]),
    (
        "display and undisplay",
        ["display factor", "display", "undisplay factor", "display"],
        ["factor: 2", "nothing is"],
    ),
    ("exceptions", ["exceptions"], ["did not stop at an exception"]),
    ("debug", ["debug scale(1, 2)"], ["'step' steps into a call"]),
]


@pytest.mark.parametrize(("lines", "shown"), [each[1:] for each in LOOKS], ids=[each[0] for each in LOOKS])
def test_looking_around(traced: Typist, lines: list[str], shown: list[str]) -> None:
    printed = traced.type(*lines)
    _in_order(printed, shown)
    assert traced.debugger.state is State.STOPPED
    assert traced.debugger.frames()[0].line == Fixture("basic").line("in_helper")


MOVES: list[tuple[str, list[str], list[str]]] = [
    ("s, n and r", ["s", "n", "r"], ["Paused on step in double at", "▶ 5 │", "in total at"]),
    ("retval", ["s", "r", "retval"], ["(return) double = 10"]),
    ("Enter repeats n", ["n", ""], ["▶  9 │", "▶ 10 │"]),
    ("n with a count", ["n 2"], ["▶ 10 │"]),
    ("s with a count", ["s 2"], ["in double at", "▶ 5 │"]),
    ("n of a selected frame", ["up", "n"], ["#1  main", "total 20", "in main at", "▶ 21 │"]),
    ("r of a selected frame", ["s", "up", "r"], ["#1  total", "in main at", "▶ 20 │"]),
    ("until a line", ["until 11"], ["▶ 11 │"]),
    ("unt leaves a loop", ["n 2", "unt", "unt"], ["▶ 10 │", "▶ 11 │"]),
    ("until a line above", ["until 3"], ["line 3 is not below"]),
    ("b LINE, CONDITION", ["b 10, each == 2", "c", "p each"], ["if each == 2", "▶ 10 │", "2"]),
    ("b FUNCTION", ["b double", "c"], ["double", "Paused on function breakpoint", "in double at"]),
    ("b FILE:LINE", ["b plain:11", "c"], ["▶ 11 │"]),
    ("tbreak", ["tbreak 11", "c", "b"], ["(once)", "▶ 11 │", "● 1  "]),
    ("cl by number", ["b 11", "cl 1", "b"], ["removed breakpoint 1", "plain.py:11"]),
    ("cl by line", ["cl plain.py:8", "b"], ["removed breakpoint", "no breakpoints"]),
    ("disable and enable", ["b 10", "disable 2", "b", "b 11", "c", "enable 2"], ["(disabled)", "▶ 11 │", "● 2"]),
    ("condition", ["b 10", "condition 2 each == 1", "c", "p each"], ["if each == 1", "1"]),
    ("ignore", ["b 10", "ignore 2 2", "c", "p each"], ["(ignores 2 hits)", "▶ 10 │", "2"]),
    (
        "commands",
        ["b 10", "commands", "silent", "p 'each is', each", "c", "end", "b 13", "c"],
        ["('each is', 0)", "('each is', 1)", "('each is', 2)", "▶ 13 │"],
    ),
    ("display", ["n", "display value", "n 4"], ["display value: 10", "▶  9 │", "display value: 11  [old: 10]"]),
    ("a with rest and keywords", ["a"], ["first = 5", "second = 7", "rest = ()", "key = 'k'"]),
    ("j", ["j 13", "n"], ["▶ 13 │"]),
    ("a jump to another function is refused", ["j 4"], ["4"]),
    ("run with arguments", ["run --epochs 3", "c"], ["arguments ['--epochs', '3']", "answer"]),
    ("names win over commands that pdb lacks", ["up", "graph"], ["a local named as a command"]),
    ("pdb's commands win over names", ["up", "n"], ["in main at"]),
]


@pytest.mark.parametrize(("lines", "shown"), [each[1:] for each in MOVES], ids=[each[0] for each in MOVES])
def test_continuing(plain: Typist, lines: list[str], shown: list[str]) -> None:
    plain.begin_again()
    _in_order(plain.type(*lines), shown)


def test_si_with_a_count_ends_where_as_many_single_steps_end() -> None:
    """The single steps are in the first call, the steps with a count in the second."""
    typist = Typist(FIXTURES / "basic.py", 15)

    def instruction() -> str | None:
        return typist.debugger.frames()[0].instruction_pointer_reference

    try:
        begin = instruction()
        typist.type("si", "si", "si")
        end = instruction()
        typist.type("c")
        assert instruction() == begin
        typist.type("si 3")
        assert instruction() == end != begin
    finally:
        typist.debugger.end()


RETURNING = """\
import torch

class Scale:
    def __init__(self, by):
        self.by = by

def twice(x):
    for factor in (2, 3):
        yield x * factor

def shift(x, by):
    return x + by

@torch.compile(backend="eager")
def compute(x):
    scale = Scale(2)
    for row in [twice(x), twice(x)]:
        for item in row:
            x = x + item
    return torch.add(x, other=shift(x, scale.by))

for _ in range(2):
    result = compute(torch.zeros(1))
"""


def test_retval_after_r_in_a_compile_and_in_a_cached_call(tmp_path: Path) -> None:
    """It says nothing after a constructor and a generator, which have not returned the value that the caller gets."""
    program = tmp_path / "returning.py"
    program.write_text(RETURNING)
    typist = Typist(program, 5)
    try:
        for place in ("9", "12"):
            typist.type(f"b {place}")
        for where in ("while Dynamo traces compute", "call 2 of compute"):
            assert where in str(typist.debugger.stop)
            assert "no returned value" in typist.type("retval", "r", "retval").partition("in compute at")[2]
            for _ in range(4):
                assert "no returned value" in typist.type("c", "r", "retval").partition("in compute at")[2]
            shown = typist.type("c", "r", "retval", "n", "retval")
            _in_order(shown, ["in shift at", "in compute at", "(returned to compute) = ", "2.0", "in <module> at"])
            assert "result = compute(" in shown
            _in_order(shown.partition("in <module> at")[2], ["(return) ", "= Tensor"])
            typist.type("c")
    finally:
        typist.debugger.end()


def test_a_place_is_completed(plain: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, a line of it at which a statement begins, a function of the current file, a name in a condition."""
    plain.begin_again()
    source = plain.debugger.current_path()
    assert source is not None
    monkeypatch.chdir(Path(source).parent)
    assert complete_line(plain.debugger, "b pla") == [("plain.py:", 3)]
    lines = ["1", "10", "11", "12", "13", "14", "16", "17", "18", "19"]
    assert [text for text, _ in complete_line(plain.debugger, "b plain.py:1")] == lines
    assert complete_line(plain.debugger, "tbreak plain:2") == [(text, 1) for text in ("20", "21", "23")]
    assert complete_line(plain.debugger, "b dou") == [("double", 3)]
    assert ("second", 3) in complete_line(plain.debugger, "b 13, sec")
    assert complete_line(plain.debugger, "conti")[0] == ("continue ", 5)


def test_step_over_after_step_back_goes_over() -> None:
    """This is the same in the second call, which is cached and replayed."""
    typist = Typist(FIXTURES / "basic.py", 15)
    try:
        for call in (1, 2):
            _in_order(typist.type("s", "back", "n"), ["in scale at", "in compute at", "in compute at", "▶ 16 │"])
            typist.type("c")
            assert (typist.debugger.state is State.STOPPED) is (call == 1)
    finally:
        typist.debugger.end()


def test_pdbs_commands_are_there() -> None:
    """Each command of this Python's pdb is a command here, or has a hint."""
    names = {name.removeprefix("do_") for name in dir(pdb.Pdb) if name.startswith("do_")} - {"EOF"}
    assert names <= PDB_NAMES
    assert {name for name in names if find(name) is None} == {"debug"}


def test_help_fits_a_screen() -> None:
    lines = overview().splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert all(re.search(rf"(^|\s){re.escape(one.names[0])}(\s|$)", overview()) for one in commands)


def test_each_command_has_an_example() -> None:
    for one in commands:
        assert one.example.split()[0] in one.names
        assert one.argument.startswith("[") or not one.argument or one.example not in one.names, one.names


def test_q_leaves(plain: Typist) -> None:
    with pytest.raises(Quit):
        plain.type("q")


def _in_order(text: str, parts: list[str]) -> None:
    position = 0
    for part in parts:
        found = text.find(part, position)
        assert found >= 0, f"no {part!r} after position {position} of:\n{text}"
        position = found + len(part)
