"""Every code action does what it says: it is applied to the file, the program compiles again, and the trouble is gone.

The programs of ``fixed_programs`` are modules; one program imports and runs them all, once before the edits and once
after, and writes down what each of them returned and printed.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lsprotocol import types

from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import SUFFIX
from dynamo_dap.records.model import CompiledFunction, Counts, counts_of
from tests.language_server.editor import Editor, run
from tests.language_server.fixed_programs import ASSERT, MARK, MOVE, PROGRAMS, REFUSED, RUN, Program

_ALL = [*PROGRAMS, *REFUSED]
_DRIVER = """
import contextlib, importlib, io, json, re, sys
import torch
import torch._dynamo.config as config


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


results = {}
for name, captures in json.load(open("programs.json")):
    printing = set(config.reorderable_logging_functions)
    kept = config.capture_scalar_outputs, config.capture_dynamic_output_shape_ops
    if captures:
        config.capture_scalar_outputs = True
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        result = plain(importlib.import_module(name).main())
    # A tensor that is printed after the graph tells its gradient's function by another name.
    printed = re.sub(r", grad_fn=<\\w+>", "", output.getvalue())
    results[name] = [result, sorted(printed.split())]
    config.reorderable_logging_functions = printing
    config.capture_scalar_outputs, config.capture_dynamic_output_shape_ops = kept
json.dump(results, open(sys.argv[0] + ".json", "w"))
"""
"""Settings that a program makes are not those of the next."""


class Recorded(NamedTuple):
    """All programs, before and after their actions."""

    folder: Path
    before: dict[str, Counts]
    titles: dict[str, list[str]]
    after: dict[str, Counts]
    results: list[dict[str, Any]]
    """Of each program what it returned, and the words that it printed; before and after."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run everything, apply the action of each case, and run everything again."""
    folder = tmp_path_factory.mktemp("workspace")
    for one in _ALL:
        (folder / f"{one.name}.py").write_text(one.text, encoding="utf-8")
    captures = [(one.name, one.kind == ASSERT) for one in _ALL]
    (folder / "programs.json").write_text(json.dumps(captures), encoding="utf-8")
    program = folder / "program.py"
    program.write_text(_DRIVER, encoding="utf-8")
    run(program, folder / "records")
    before, results = _counts(folder), [_results(program)]
    titles = {}
    with Editor(folder, folder / "records") as editor:
        for one in _ALL:
            titles[one.name] = _apply(editor, folder / f"{one.name}.py", one.kind if one in PROGRAMS else None)
    run(program, folder / "records")
    return Recorded(folder, before, titles, _counts(folder), [*results, _results(program)])


def _results(program: Path) -> dict[str, Any]:
    return dict(json.loads(program.with_name(f"{program.name}.json").read_text(encoding="utf-8")))


def _apply(editor: Editor, path: Path, kind: str | None) -> list[str]:
    """Apply the first action of a kind; return the titles of all."""
    editor.open(path)
    editor.wait(f"something in {path.name}", lambda: bool(editor.diagnostics.get(path)))
    actions: dict[str, types.CodeAction] = {}
    for diagnostic in editor.diagnostics[path]:
        actions.update(editor.actions(path, diagnostic))
    wanted = next((actions[title] for title in actions if kind and title.startswith(kind)), None)
    if wanted is not None:
        editor.apply(wanted)
    return list(actions)


def _counts(folder: Path) -> dict[str, Counts]:
    """What the newest record counts, by module."""
    newest = sorted(folder.rglob(f"*{SUFFIX}"))[-1]
    modules: dict[str, list[CompiledFunction]] = {}
    for function in read_record(newest).functions:
        assert function.place is not None
        modules.setdefault(Path(function.place.path).stem, []).append(function)
    return {name: counts_of([one for each in found for one in each.compiles]) for name, found in modules.items()}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_an_action_fixes_what_it_is_offered_for(recorded: Recorded, program: Program) -> None:
    titles = recorded.titles[program.name]
    assert [title for title in titles if title.startswith(program.kind)], titles
    before, after = recorded.before[program.name], recorded.after[program.name]
    text = (recorded.folder / f"{program.name}.py").read_text(encoding="utf-8")
    if program.kind == MARK:
        assert after.recompiles < before.recompiles, text
        assert after.recompiles == 0, text
    elif program.kind in (MOVE, RUN):
        assert after.graphs < before.graphs, text
        assert after.breaks <= before.breaks, text
    else:
        assert after.breaks < before.breaks, text
    (result, words), (result_after, words_after) = (one[program.name] for one in recorded.results)
    assert result == pytest.approx(result_after) if isinstance(result, float) else result == result_after
    assert words == words_after


@pytest.mark.parametrize("program", REFUSED, ids=lambda one: one.name)
def test_nothing_is_offered_that_changes_a_result_or_does_not_help(recorded: Recorded, program: Program) -> None:
    assert not [title for title in recorded.titles[program.name] if title.startswith(program.kind)]


def test_each_kind_of_fix_is_tried_on_six_programs_and_no_other_is_offered(recorded: Recorded) -> None:
    kinds = Counter(one.kind for one in PROGRAMS)
    assert min(kinds.values()) >= 6, kinds
    # What assumes something of the data is offered to be tried, not as an edit.
    offered = {title for titles in recorded.titles.values() for title in titles if not title.startswith("Try this fix")}
    assert [title for title in offered if not title.startswith(tuple(kinds))] == []


def test_marking_is_never_an_error(recorded: Recorded) -> None:
    texts = [(recorded.folder / f"{one.name}.py").read_text(encoding="utf-8") for one in PROGRAMS if one.kind == MARK]
    assert all("torch._dynamo.maybe_mark_dynamic(" in text for text in texts)
    assert not any("torch._dynamo.mark_dynamic(" in text for text in texts)


def test_what_is_left_to_do_for_graph_break_is_to_remove_it(recorded: Recorded) -> None:
    assert not [title for title in recorded.titles["debugging_left"] if title.startswith("Move")]


def test_a_decorator_goes_below_what_makes_no_function(recorded: Recorded) -> None:
    for name, above in (("static_method", "@staticmethod"), ("property_of_module", "@property")):
        text = (recorded.folder / f"{name}.py").read_text(encoding="utf-8")
        assert f"{above}\n    @torch.compiler.disable\n" in text
