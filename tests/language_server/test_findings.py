"""What a record in the making has to say: what is still to come is not said to be missing."""

from __future__ import annotations

import pytest
from lsprotocol.types import CodeLens
from pygls.workspace import PositionCodec

from dynamo_dap.fixes.document import Document, Positions
from dynamo_dap.fixes.findings import Finding, Kind, findings_of
from dynamo_dap.language_server import presentation
from dynamo_dap.language_server.presentation import title
from dynamo_dap.records.events import Ended, Record
from dynamo_dap.records.model import Compile, CompiledFunction, Graph, GraphBreak, Place, TracedFunction
from dynamo_dap.records.texts import digest_of_line

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
    text = "no graph of its own, 0.5 s"
    assert titles(_first_part(seconds=0.5), second) == [text, f"{text}, 0/1 not finished"]
    assert titles(_first_part(seconds=0.5)) == [text, text]


def test_a_slow_compile_is_a_finding_at_its_function() -> None:
    phases = {"whole frame": 12.5, "backend": 10.0}
    quick, slow = _first_part(seconds=9.9), _first_part(seconds=12.5, phases=phases)
    (found,) = [one for one in findings_of(_session(quick, slow))[PATH] if one.kind is Kind.SLOW]
    assert found.message.startswith("Slow compile: fn took 12.5 s\nDynamo 2.5 s, AOTAutograd 10.0 s\n")
    assert (found.place.line, found.is_about_function, found.compiles) == (1, True, [slow])
    held = _first_part(seconds=10.5, phases={"whole frame": 60.0, "backend": 1.0})
    (found,) = [one for one in findings_of(_session(held))[PATH] if one.kind is Kind.SLOW]
    assert "Dynamo" not in found.message.splitlines()[1], "a debugger held this compile"
    assert not [one for one in findings_of(_session(quick)).get(PATH, []) if one.kind is Kind.SLOW]


@pytest.mark.parametrize(("broken_at", "text"), [(9, "inlined into fn; no graph"), (3, "no graph of its own")])
def test_a_lens_names_the_callers_that_inline_a_function(broken_at: int, text: str) -> None:
    helper = TracedFunction("helper", Place(PATH, 2), [3, 4], [3])
    broken = GraphBreak("a break", Place(PATH, broken_at))
    caller = _first_part(seconds=1.0, graphs=[Graph(0, "g", 1, 1)], breaks=[broken])
    caller.traced.append(helper)
    session = _session(caller)
    own = Compile("1/0", "helper", "compiled", Place(PATH, 2), breaks=[broken, broken], seconds=1.0)
    session.functions.append(CompiledFunction("helper", Place(PATH, 2), [own]))
    titles = [lens.command.title for lens in _lenses(session) if lens.command]
    assert text in titles[1]
    assert titles[1].endswith("2 breaks, 1.0 s")


def test_callers_are_searched_only_where_they_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    session = _session(_first_part(graphs=[Graph(0, "g", 1, 1)]))
    session.functions.append(CompiledFunction("other", Place("/elsewhere.py", 1), [_first_part()]))
    monkeypatch.setattr(presentation, "_inlines", lambda *_: pytest.fail("nobody sees the result"))
    assert len(_lenses(session)) == 1


def _lenses(session: Record) -> list[CodeLens]:
    lines = ["def fn(): pass", "def helper():", "    pass"]
    document = Document(PATH, "file:///p", lines, [digest_of_line(line) for line in lines])
    return presentation.lenses(session, document, Positions(PositionCodec()))


def test_a_name_is_found_as_python_normalizes_it() -> None:
    """Python takes a mathematical letter, and a ligature, for plain ones."""
    document = Document(PATH, "file:///p", ["\N{MATHEMATICAL BOLD SMALL X} = \N{LATIN SMALL LIGATURE FI}t(1)"], [])
    assert document.column_after(1, "x", 1) == 1
    assert document.column_after(1, "fit", None) == 6
