"""What a record in the making has to say: what is still to come is not said to be missing."""

from __future__ import annotations

import pytest

from dynamo_dap.language_server.document import Document
from dynamo_dap.language_server.findings import Finding, Kind, findings_of
from dynamo_dap.language_server.presentation import title
from dynamo_dap.records.events import Ended, Record
from dynamo_dap.records.model import Compile, CompiledFunction, Place, TracedFunction

PATH = "/somewhere/model.py"


def _session(*compiles: Compile) -> Record:
    session = Record()
    session.functions = [CompiledFunction("fn", Place(PATH, 1), list(compiles))]
    return session


def _first_part(**facts: object) -> Compile:
    traced = [TracedFunction("fn", Place(PATH, 1), [1, 2, 3, 4], [2])]
    return Compile("0/0", "fn", "compiled", Place(PATH, 1), traced=traced, **facts)  # type: ignore[arg-type]


def _never_traced(session: Record) -> list[Finding]:
    return [one for one in findings_of(session).get(PATH, []) if one.kind is Kind.NEVER_TRACED]


@pytest.mark.parametrize(
    "compiles",
    [
        (_first_part(), Compile("1/0", "fn (resumed at line 2)", "tracing", Place(PATH, 2))),
        (_first_part(resumes=[Place(PATH, 3)]),),
    ],
    ids=["the rest is being traced", "the rest is to be compiled when it runs"],
)
def test_lines_that_may_be_traced_soon_are_not_called_untraced(compiles: tuple[Compile, ...]) -> None:
    session = _session(*compiles)
    assert not _never_traced(session)
    session.apply(Ended(time=1.0))
    assert [(one.place.line, one.last_line) for one in _never_traced(session)] == [(3, 4)]


def test_a_lens_says_that_a_compile_is_not_finished_when_the_program_has_ended() -> None:
    def titles(*compiles: Compile) -> list[str]:
        function = _session(*compiles).functions[0]
        return [title(function, has_ended=has_ended) for has_ended in (False, True)]

    second = Compile("0/1", "fn", place=Place(PATH, 1))
    assert titles(second) == ["", "not finished"]
    assert titles(_first_part(seconds=0.5), second) == ["0 graphs, 0.5 s", "0 graphs, 0.5 s, 0/1 not finished"]
    assert titles(_first_part(seconds=0.5)) == ["0 graphs, 0.5 s", "0 graphs, 0.5 s"]


def test_a_name_is_found_as_python_normalizes_it() -> None:
    """Python takes a mathematical letter, and a ligature, for plain ones."""
    document = Document(PATH, "file:///p", ["\N{MATHEMATICAL BOLD SMALL X} = \N{LATIN SMALL LIGATURE FI}t(1)"], [])
    assert document.column_after(1, "x", 1) == 1
    assert document.column_after(1, "fit", None) == 6
