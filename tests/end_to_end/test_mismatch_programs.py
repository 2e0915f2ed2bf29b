"""The exception filter ``mismatch`` on the programs with injected defects and on the correct ones of ``compare``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.client import Fixture, Session, Stop
from tests.client.environments import need_inductor
from tests.end_to_end.verdicts import CORRECT_CALLS, FOLDER, WRONG, marked_lines

pytestmark = pytest.mark.timeout(900)

_WHERE = re.compile(r"^Where: (?:returned at )?(.*?):(\d+)\b", re.MULTILINE)
RAISES = {"raising_graph"}
"""Programs whose compiled graph raises: they stop at the exception."""


class Reported(NamedTuple):
    """The function of a stop, and the file and line that it names."""

    function: str
    path: str
    line: int


ARGUMENTS = {"training.py": ["aot_eager"]}
"""One backend is enough for the filter: ``test_verdicts`` compares gradients with both."""


def stops_in(session: Session, program: str) -> list[Reported]:
    """Run a program with the filter, and return all stops."""
    with session.launching(Fixture(FOLDER / program), args=ARGUMENTS.get(program, [])):
        session.request("setExceptionBreakpoints", {"filters": ["mismatch"]})
    found: list[Reported] = []
    while True:
        event, body = session.timeline.expect_first("stopped", "terminated", deadline=850)
        if event == "terminated":
            return found
        stop = Stop(session, body)
        text = session.request("exceptionInfo", {"threadId": stop.thread_id})["description"]
        where = _WHERE.search(text)
        assert where is not None, text
        found.append(Reported(stop.frame.name.rpartition(".")[2], where[1], int(where[2])))
        session.resume(thread_id=stop.thread_id)


DOUBLED = """
import torch

def doubled(graph, inputs):
    return lambda *given: tuple(each * 2 for each in graph(*given))

@torch.compile(backend=doubled)
def scale(x):
    return x * 3  #@wrong

scale(torch.ones(4))
"""


def test_a_wrong_program_stops_at_its_line(session: Session, tmp_path: Path) -> None:
    program = Fixture(tmp_path / "program.py")
    program.path.write_text(DOUBLED, encoding="utf-8")
    (reported,) = stops_in(session, str(program.path))
    assert (reported.function, reported.line) == ("scale", program.line("wrong"))


@pytest.mark.long
@pytest.mark.parametrize("program", WRONG)
def test_each_wrong_program_stops_at_its_line(session: Session, program: str) -> None:
    """A stop names the line that ``compare`` names, also in later calls, in bodies and in backward passes."""
    need_inductor("functions with defects in Inductor")
    marks = {name.rpartition(".")[2]: line for name, line in marked_lines(program).items() if name not in RAISES}
    found = stops_in(session, program)
    lines = {each.line for each in found}
    assert {line for line in marks.values() if line is not None} <= lines
    assert {name for name, line in marks.items() if line is None} <= {each.function for each in found}
    unmarked = [each for each in found if each.line not in marks.values()]
    assert [each for each in unmarked if marks.get(each.function, 0) is not None] == []


@pytest.mark.long
@pytest.mark.parametrize("program", CORRECT_CALLS)
def test_correct_programs_do_not_stop(session: Session, program: str) -> None:
    need_inductor("functions that round otherwise")
    assert stops_in(session, program) == []
