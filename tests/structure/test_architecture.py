"""The architecture page agrees with the code."""

from __future__ import annotations

import re

import pytest

from dynamo_dap.debuggee.wrapping.locks import Level
from tests.structure.sources import ADAPTER, ROOT, adapter_modules
from tests.structure.test_dependencies import _DEBUGGEE, MAY_IMPORT

_PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
_OURS = ADAPTER / "dynamo_dap"


def _section(title: str) -> str:
    return _PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def _first_cells(text: str) -> list[str]:
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([\w-]+)`", row)]


def test_every_package_is_in_its_table_in_the_order_of_imports() -> None:
    outside, inside = _section("Packages").split("Inside the debugged program")
    assert set(_first_cells(outside)) == {name for name in MAY_IMPORT if not name.startswith("debuggee.")}
    assert tuple(_first_cells(inside)) == _DEBUGGEE


def test_the_levels_of_locks_are_in_their_order() -> None:
    assert _first_cells(_section("Locks")) == [level.name for level in Level]


def test_every_lock_of_the_program_has_a_level() -> None:
    plain = re.compile(r"\bR?Lock\(\)|\ballocate_lock\(\)")
    found = {
        path.relative_to(_OURS / "debuggee").as_posix()
        for path in (_OURS / "debuggee").rglob("*.py")
        if plain.search(path.read_text(encoding="utf-8"))
    }
    # Another thread releases the one that waits for a message to pydevd.
    assert found == {"wrapping/locks.py", "agent/interruption.py", "eager/pydevd_messages.py"}


@pytest.mark.parametrize(
    "title", ["The life of a breakpoint", "The life of a cached call", "Where does a change belong"]
)
def test_every_file_of_a_section_exists(title: str) -> None:
    named = re.findall(r"(?<![\w/])(?:\w+/)+\w+\.py", _section(title))
    assert len(named) >= 8
    assert not [name for name in named if not ((_OURS / name).is_file() or (_OURS / "debuggee" / name).is_file())]


_CONNECTED_OTHERWISE = {
    "agent/handlers/breakpoints.py": "the server sends it a message",
    "composition/cached_calls.py": "generated/cached_calls.py knows it as a protocol",
}
"""Files of the lives that import no earlier file of theirs, and are imported by none."""


@pytest.mark.parametrize("title", ["The life of a breakpoint", "The life of a cached call"])
def test_each_step_of_a_life_is_connected_to_an_earlier_one_by_an_import(title: str) -> None:
    imports = {
        module.path.relative_to(_OURS).as_posix().removeprefix("debuggee/"): {
            name for found, _ in module.imports() for name in (found, found.rpartition(".")[0])
        }
        for module in adapter_modules()
    }
    names = {file: _module_name(file) for file in imports}
    files = re.findall(r"(?<![\w/])(?:\w+/)+\w+\.py", _section(title))
    apart = [
        file
        for number, file in enumerate(files)
        if not any(names[file] in imports[earlier] or names[earlier] in imports[file] for earlier in files[:number])
    ]
    assert set(apart[1:]) == {file for file in files if file in _CONNECTED_OTHERWISE}


def _module_name(file: str) -> str:
    """Return the dotted name of a file of the lives."""
    inside = "" if (_OURS / file).is_file() else "debuggee."
    return f"dynamo_dap.{inside}{file.removesuffix('.py').replace('/', '.')}"


def test_every_reason_to_trace_is_in_its_table() -> None:
    runs = re.compile(r"^class (?=TraceRun:|\w+\((?:Trace|Replay)Run\):)(\w+)", re.MULTILINE)
    sources = [path.read_text(encoding="utf-8") for path in (_OURS / "debuggee").rglob("*.py")]
    found = {name for text in sources for name in runs.findall(text)}
    assert set(_first_cells(_section("Why a trace runs"))) == found


@pytest.mark.parametrize(
    ("change", "evidence"),
    [
        ("A new launch option", r"_described\("),
        ("A new custom request", r"^CUSTOM_PREFIX = "),
        ("A new subcommand of `dynamo-dap`", r"^GROUPS\b"),
        ("A new exception filter", r"^EVENTS\b"),
        ("A new scope of a traced function", "opened_on_demand"),
        ("A VariableTracker class of a new torch", r"@_reads\(\"TensorVariable\"\)"),
        ("How a tensor is shown", "def tensor_text"),
        ("What a trace does at a line, by its purpose", "class TraceRun"),
        ("Which kinds of NaN stop", "class ValueStops"),
        ("What a step back restores", "class ChangeHooks"),
        ("Why a breakpoint is not verified", "def bind_lines"),
    ],
)
def test_a_question_of_where_leads_to_the_file_that_has_the_mechanism(change: str, evidence: str) -> None:
    answers = dict(re.findall(r"^\| (.+) \| `(.+)` \|$", _section("Where does a change belong"), re.MULTILINE))
    name = answers[change]
    path = _OURS / name if (_OURS / name).is_file() else _OURS / "debuggee" / name
    assert re.search(evidence, path.read_text(encoding="utf-8"), re.MULTILINE)
