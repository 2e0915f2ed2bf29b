"""What the newest record reports, in an editor: diagnostics, inlay hints, hovers, lenses; while a program runs, too."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lsprotocol import types

from dynamo_dap.language_server.presentation import OPEN_RECORD, WRITE_REPORT
from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from tests.client import zygote
from tests.client.environments import own_command
from tests.client.fixtures import Fixture
from tests.client.timeline import DEADLINE
from tests.language_server.editor import Editor, run

PROGRAM = """\
import threading

import torch
import torch._dynamo.config

torch._dynamo.config.recompile_limit = 3


def helper(z, scale):
    z = z * scale  #@scaled
    torch._dynamo.graph_break()  #@broken
    return z + 1


@torch.compile(backend="eager")
def fn(x, mode):  #@fn
    y = x + 1  #@assigned
    n = x.shape[0] + 2  #@size
    if mode == "a":  #@mode
        y = y * n
    elif mode == "z":
        y = y - 1  #@never
        y = y - 2
    t = "\N{GRINNING FACE}"; u = y * 2  #@wide
    y = helper(y, 2)  #@call
    return y, u, t


@torch.compile(backend="eager")
def limited(x, word):  #@limited
    return x * len(word)


@torch.compile(backend="eager")
def skipped(x):  #@skipped
    y = x + 1
    torch._dynamo.skip_frame()
    return y


@torch.compile(backend="eager")
def asking(x):
    y = x + 1
    t = threading.current_thread()  #@library
    return y * 2


@torch.compile(backend="eager")
def empty(x):  #@empty
    return 3


@torch.compile(backend="eager")
def named(x):
    \N{MATHEMATICAL BOLD SMALL Z} = x + 1  #@bold
    \N{LATIN SMALL LIGATURE FI}t = z[1:] * 2; fit = fit[1:]  #@twice
    for n in range(2):
        row = fit[n:]  #@loop
    left = right = row + 1  #@chain
    return left + right, \N{MATHEMATICAL BOLD SMALL Z}


def main():
    fn(torch.ones(3), "a")  #@first
    fn(torch.ones(5), "a")  #@second
    fn(torch.ones(5), "b")
    for word in ("a", "bb", "ccc", "dddd"):
        limited(torch.ones(3), word)
    skipped(torch.ones(3))
    empty(torch.ones(3))
    asking(torch.ones(3))
    named(torch.ones(7))
    print("done", flush=True)


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A program, and the folder of its record."""
    folder = tmp_path_factory.mktemp("workspace")
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    run(program, folder / "records")
    return program, folder / "records"


@pytest.fixture
def program(recorded: tuple[Path, Path]) -> Path:
    return recorded[0]


@pytest.fixture
def lines(program: Path) -> Fixture:
    return Fixture(program)


@pytest.fixture(scope="module")
def one_editor(recorded: tuple[Path, Path]) -> Iterator[Editor]:
    with Editor(recorded[0].parent, recorded[1], settings={"inlayHints": True}) as editor:
        yield editor


@pytest.fixture
def editor(one_editor: Editor, program: Path) -> Editor:
    """An editor that has the program open, as it is on disk, and has received everything."""
    one_editor.open(program)
    line = Fixture(program).line("broken")
    one_editor.wait("the graph break", lambda: bool(one_editor.at(program, line, "GB0025")))
    return one_editor


def test_a_graph_break_is_shown_with_all_that_torch_says(editor: Editor, program: Path, lines: Fixture) -> None:
    (found,) = editor.at(program, lines.line("broken"), "GB0025")
    assert found.severity == types.DiagnosticSeverity.Warning
    assert found.source == "torch.compile"
    assert found.message.startswith("Graph break: Call to `torch._dynamo.graph_break()`\nUser-inserted graph break.")
    assert "compiled separately" in found.message
    assert "fn [0/0]" in found.message
    assert found.code_description is not None
    assert found.code_description.href.endswith("/gb/gb0025.html")
    text = PROGRAM.splitlines()[lines.line("broken") - 1]
    assert text[found.range.start.character : found.range.end.character] == text.strip()
    related = {one.message: one.location.range.start.line + 1 for one in found.related_information or []}
    assert related["Hint (not tried): Remove the `torch._dynamo.graph_break()` call."] == lines.line("broken")
    assert related["called here, in fn"] == lines.line("call")


def test_a_break_in_a_library_is_shown_at_the_users_line(editor: Editor, program: Path, lines: Fixture) -> None:
    (found,) = editor.at(program, lines.line("library"), "GB0007")
    assert "threading.py:" in found.message


def test_recompiles_limits_and_skipped_functions_are_shown(editor: Editor, program: Path, lines: Fixture) -> None:
    (by_size,) = editor.at(program, lines.line("assigned"), "recompile")
    assert "size 0 of x was 3 and is 5" in by_size.message
    assert "then 3, now 5" in by_size.message
    (caller,) = by_size.related_information or []
    assert caller.location.range.start.line + 1 == lines.line("second")
    (by_mode,) = editor.at(program, lines.line("mode"), "recompile")
    assert "then 'a', now 'b'" in by_mode.message
    assert "\nAdvice (not tried): each value" in by_mode.message
    (limit,) = editor.at(program, lines.line("limited"), "recompile-limit")
    assert limit.severity == types.DiagnosticSeverity.Warning
    assert "runs eagerly" in limit.message
    assert len(limit.related_information or []) == 3
    (empty,) = editor.at(program, lines.line("empty"), "skipped")
    assert "No ops traced" in empty.message
    # Why this one is skipped is said at the line of its break.
    assert not editor.at(program, lines.line("skipped"), "skipped")


def test_lines_that_were_never_traced_are_faded(editor: Editor, program: Path, lines: Fixture) -> None:
    faded = [one for one in editor.diagnostics[program] if one.code == "never-traced"]
    spans = [(one.range.start.line + 1, one.range.end.line + 1) for one in faded]
    assert spans == [(lines.line("never"), lines.line("never") + 1)]
    assert list(faded[0].tags or ()) == [types.DiagnosticTag.Unnecessary]
    assert faded[0].severity == types.DiagnosticSeverity.Hint


def test_shapes_are_shown_at_assignments(editor: Editor, program: Path, lines: Fixture) -> None:
    hints = editor.hints(program)
    symbol = hints[lines.line("assigned"), 5].removeprefix(": f32[").removesuffix("]")
    assert symbol.startswith("s")
    assert hints[lines.line("size"), 5] == f": {symbol} + 2"
    # Positions are counted in UTF-16: the face counts twice.
    wide = PROGRAM.splitlines()[lines.line("wide") - 1]
    assert hints[lines.line("wide"), wide.index("u =") + 2] == f": f32[{symbol}]"
    assert not [at for at in hints if at[0] == lines.line("never")]


def test_a_name_has_one_hint_in_a_line_wherever_it_is_written(editor: Editor, program: Path, lines: Fixture) -> None:
    """Python takes letters that look different for the same name; positions are counted in UTF-16."""
    hints = editor.hints(program)
    of_line = {
        marker: {column: text for (line, column), text in hints.items() if line == lines.line(marker)}
        for marker in ("bold", "twice", "loop", "chain")
    }
    assert of_line["bold"] == {4 + 2: ": f32[7]"}
    twice = PROGRAM.splitlines()[lines.line("twice") - 1]
    assert of_line["twice"] == {twice.index("fit =") + 3: ": f32[5]"}
    assert of_line["loop"] == {8 + 3: ": f32[5] | f32[4]"}
    assert of_line["chain"] == {4 + 4: ": f32[4]", 4 + 4 + 8: ": f32[4]"}


def test_a_name_is_hovered_however_it_is_written(editor: Editor, program: Path, lines: Fixture) -> None:
    bold = editor.hover(program, lines.line("bold"), 5)
    assert bold is not None
    assert bold.startswith("**`z`**")
    plain = PROGRAM.splitlines()[lines.line("twice") - 1]
    assert editor.hover(program, lines.line("twice"), plain.index("z[")) == bold
    assert f"`f32[7]` at line {lines.line('bold')} in named [" in bold


def test_a_hover_answers_while_the_text_has_errors(editor: Editor, program: Path, lines: Fixture) -> None:
    """As it has with most keystrokes; a new line in a function is one of it."""
    changed = PROGRAM.replace("    return left + right", "    if left.\n    return left + right")
    editor.change(program, changed)
    line = next(number for number, text in enumerate(changed.splitlines(), 1) if text == "    if left.")
    found = editor.hover(program, line, 8)
    assert found is not None
    assert f"`f32[4]` at line {lines.line('chain')} in named [" in found
    editor.change(program, PROGRAM)


def test_hints_go_with_a_setting(editor: Editor, program: Path) -> None:
    assert editor.hints(program)
    assert editor.registered == [types.WORKSPACE_DID_CHANGE_CONFIGURATION]
    editor.refreshed.clear()
    editor.change_settings({"inlayHints": False})
    editor.wait("a refresh of the hints", lambda: "inlay hints" in editor.refreshed)
    assert editor.hints(program) == {}
    editor.change_settings({"inlayHints": True})
    editor.wait("the hints again", lambda: bool(editor.hints(program)))


def test_a_hover_shows_values_sources_and_guards(editor: Editor, program: Path, lines: Fixture) -> None:
    text = PROGRAM.splitlines()[lines.line("assigned") - 1]
    value = editor.hover(program, lines.line("assigned"), text.index("y"))
    assert value is not None
    assert f"`f32[3]` at line {lines.line('assigned')} in fn [0/0]" in value
    assert "in fn [0/1]" in value
    parameter = editor.hover(program, lines.line("assigned"), text.index("x"))
    assert parameter is not None
    assert "- `f32[3]` given to fn [0/0]" in parameter
    assert "Source: `x`" in parameter
    assert "Guards:" in parameter
    assert "- `x is f32[3], on cpu, strides [1], no grad`" in parameter
    mode = editor.hover(program, lines.line("mode"), PROGRAM.splitlines()[lines.line("mode") - 1].index("mode"))
    assert mode is not None
    assert "- `'a'` given to fn [0/0]" in mode
    assert "== 'a'` (fn [0/0])" in mode
    assert editor.hover(program, 1, 1) is None


def test_a_lens_counts_and_opens_the_record(editor: Editor, program: Path, lines: Fixture) -> None:
    lenses = {one.range.start.line + 1: one.command for one in editor.lenses(program)}
    command = lenses[lines.line("fn")]
    assert command is not None
    parts = command.title.split(", ")
    assert parts[0].endswith(" graphs")
    assert parts[1] == "3 breaks"
    assert parts[2].endswith(" recompiles")
    assert parts[3].endswith(" s")
    limited = lenses[lines.line("limited")]
    assert limited is not None
    assert limited.title.endswith("limit reached")
    editor.execute(command)
    shown = shown_file(editor).read_text(encoding="utf-8")
    assert f"Graph break at {program}:{lines.line('broken')}" in shown
    assert "limited" not in shown


def shown_file(editor: Editor) -> Path:
    editor.wait("the record", lambda: bool(editor.shown))
    return Path(editor.shown[-1].removeprefix("file://").replace("%20", " "))


def test_what_was_written_to_be_shown_goes_with_the_server(recorded: tuple[Path, Path]) -> None:
    program, records = recorded
    with Editor(program.parent, records) as editor:
        editor.wait("the findings", lambda: program in editor.diagnostics)
        editor.execute(types.Command("", OPEN_RECORD, arguments=[-1, str(program)]))
        file = shown_file(editor)
        assert file.exists()
    editor.wait("its folder to be removed", lambda: not file.parent.exists())


STORM = """\
import torch


class Adapted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.active = "a"

    def choose(self, name):
        self.active = name  #@chosen

    def forward(self, x):
        return x + len(self.active)


model = Adapted()
compiled = torch.compile(model, backend="eager")
for name in ("a", "bb", "ccc"):
    model.choose(name)
    compiled(torch.ones(3))
model.active = "a"  #@again
"""


@pytest.mark.parametrize("can_set", [True, False])
def test_breakpoints_are_offered_where_a_changed_attribute_is_set(tmp_path: Path, can_set: bool) -> None:
    program = tmp_path / "storm.py"
    program.write_text(STORM, encoding="utf-8")
    run(program, tmp_path / "records")
    marked = Fixture(program)
    wanted = [marked.line("chosen"), marked.line("again")]
    with Editor(tmp_path, tmp_path / "records", options={"breakpoints": True} if can_set else None) as editor:
        editor.open(program)
        editor.wait(
            "the recompile", lambda: any(one.code == "recompile" for one in editor.diagnostics.get(program, []))
        )
        found = next(one for one in editor.diagnostics[program] if one.code == "recompile")
        related = {one.location.range.start.line + 1: one.message for one in found.related_information or []}
        assert [related.get(line) for line in wanted] == ["may set self.active"] * 2
        title = "Stop where self.active is set (2 breakpoints)"
        action = editor.actions(program, found).get(title)
        assert (action is not None) == can_set, "only an editor that can carry it out is offered it"
        if action is not None:
            assert action.command is not None
            (given,) = action.command.arguments or []
            assert given == [{"uri": program.as_uri(), "line": line - 1} for line in wanted]


def test_the_report_is_written_as_a_page(recorded: tuple[Path, Path]) -> None:
    program, records = recorded
    with Editor(program.parent, records) as editor:
        editor.wait("the findings", lambda: program in editor.diagnostics)
        page = Path(str(editor.execute(types.Command("", WRITE_REPORT))))
    assert page.is_relative_to(records)
    assert "<h2 id='to-do'>What to do</h2>" in page.read_text(encoding="utf-8")


def test_without_a_record_there_is_no_page(tmp_path: Path) -> None:
    with Editor(tmp_path, tmp_path / "records") as editor:
        assert editor.execute(types.Command("", WRITE_REPORT)) is None
        editor.wait("the message", lambda: "Nothing has been recorded yet." in editor.messages)


def test_what_was_changed_is_cleared_and_what_was_moved_moves(editor: Editor, program: Path, lines: Fixture) -> None:
    line = lines.line("broken")
    editor.change(program, "# A new line.\n" + PROGRAM)
    editor.wait("the break to move", lambda: bool(editor.at(program, line + 1, "GB0025")))
    assert not editor.at(program, line, "GB0025")
    editor.change(program, PROGRAM.replace("torch._dynamo.graph_break()  #@broken", "pass"))
    editor.wait("the break to go", lambda: not editor.at(program, line))
    assert editor.at(program, lines.line("assigned"), "recompile")
    # A text with an error of syntax still gets its reports.
    editor.change(program, PROGRAM + "\ndef (")
    editor.wait("the break to come back", lambda: bool(editor.at(program, line, "GB0025")))
    assert editor.lenses(program) == []


def test_a_newer_record_takes_over_and_a_running_program_is_followed(tmp_path: Path) -> None:
    program, records = tmp_path / "live.py", tmp_path / "records"
    records.mkdir()
    (records / "x").mkdir()
    (records / "x" / "99999999-000000-0-1.jsonl").write_text("no record\n")
    program.write_text(
        "import torch\n\n@torch.compile(backend='eager')\ndef fn(x):\n    y = x + 1\n"
        "    torch._dynamo.graph_break()  #@broken\n    return y\n\nfn(torch.ones(3))\nprint('compiled', flush=True)\n"
        "input()\n",
        encoding="utf-8",
    )
    line = Fixture(program).line("broken")
    with Editor(tmp_path, records) as editor:
        command = [*own_command(), "run", program.name]
        environment = {**os.environ, RECORDS_VARIABLE: str(records)}
        running = subprocess.Popen(
            command, env=environment, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with running:
            # Nothing is open: the file gets its reports all the same.
            editor.wait("the break of a running program", lambda: bool(editor.at(program, line, "GB0025")))
            assert running.poll() is None
            running.communicate("\n", timeout=DEADLINE)
        program.write_text(
            program.read_text().replace("torch._dynamo.graph_break()", "y = y * 2").replace("input()", "")
        )
        run(program, records)
        editor.wait("the break to go", lambda: not editor.at(program, line))


def test_a_run_of_another_program_leaves_what_is_known_of_this_one(tmp_path: Path) -> None:
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    for path, name in ((first, "one"), (second, "two")):
        path.write_text(
            f"import torch\n\n@torch.compile(backend='eager')\ndef {name}(x):\n    y = x + 1\n"
            f"    torch._dynamo.graph_break()  #@broken\n    return y\n\n{name}(torch.ones(3))\n",
            encoding="utf-8",
        )
    line = Fixture(first).line("broken")
    with Editor(tmp_path, tmp_path / "records") as editor:
        editor.open(first)
        for path in (first, second):
            run(path, tmp_path / "records")
            editor.wait("the break", lambda path=path: bool(editor.at(path, line, "GB0025")))
        assert editor.at(first, line, "GB0025"), "the other program's run says nothing about this file"
        (lens,) = editor.lenses(first)
        assert lens.command is not None
        editor.execute(lens.command)
        assert f"Graph break at {first}:{line}" in shown_file(editor).read_text(encoding="utf-8")
        first.write_text(first.read_text(encoding="utf-8").replace("torch._dynamo.graph_break()", "pass"))
        run(first, tmp_path / "records")
        editor.wait("the break that was mended to go", lambda: not editor.at(first, line, "GB0025"))
        assert editor.at(second, line, "GB0025"), "nor does this one's about the other file"


def test_what_a_launchers_processes_compile_is_shown(tmp_path: Path) -> None:
    """The first process compiles nothing; of the others the first that does is shown, until the program compiles."""
    launcher, program, records = tmp_path / "launcher.py", tmp_path / "work.py", tmp_path / "records"
    (python,) = zygote.python()
    program.write_text(
        "import sys, torch\n\n@torch.compile(backend='eager')\ndef fn(x):\n    y = x + 1\n"
        "    if sys.argv[1] == 'second':\n        torch._dynamo.graph_break()  #@second\n"
        "    torch._dynamo.graph_break()  #@both\n    return y\n\n"
        "if sys.argv[1] != 'none':\n    fn(torch.ones(3))\n",
        encoding="utf-8",
    )
    launcher.write_text(
        "import subprocess\n\nfor which in ('none', 'first', 'second'):\n"
        f"    subprocess.run([{python!r}, 'work.py', which], check=True)\n",
        encoding="utf-8",
    )
    lines = Fixture(program)
    with Editor(tmp_path, records) as editor:
        run(launcher, records)
        editor.wait("the break of a child", lambda: bool(editor.at(program, lines.line("both"), "GB0025")))
        assert not editor.at(program, lines.line("second"))
        # A newer run is shown as well, also where its first process does compile.
        launcher.write_text(
            "import subprocess, torch\n\n@torch.compile(backend='eager')\ndef own(x):\n"
            "    torch._dynamo.graph_break()  #@own\n    return x\n\n"
            f"subprocess.run([{python!r}, 'work.py', 'first'], check=True)\nown(torch.ones(3))\n",
            encoding="utf-8",
        )
        run(launcher, records)
        own = Fixture(launcher).line("own")
        editor.wait("the break of the program itself", lambda: bool(editor.at(launcher, own, "GB0025")))
        assert editor.at(program, lines.line("both"), "GB0025"), "a run of another program leaves this file's findings"


def test_a_slow_compile_is_shown_at_its_function(tmp_path: Path) -> None:
    program, records = tmp_path / "slow.py", tmp_path / "records"
    program.write_text(
        "import time\nimport torch\n\ndef slow(graph, inputs):\n    time.sleep(10)\n    return graph.forward\n\n"
        "@torch.compile(backend=slow)\ndef late(x):  #@late\n    return x + 1\n\n"
        "@torch.compile(backend='eager')\ndef quick(x):\n    return x + 1\n\n"
        "late(torch.ones(3))\nquick(torch.ones(3))\n",
        encoding="utf-8",
    )
    run(program, records)
    with Editor(tmp_path, records) as editor:
        line = Fixture(program).line("late")
        editor.wait("the slow compile", lambda: bool(editor.at(program, line, "slow-compile")))
        (found,) = [one for one in editor.diagnostics[program] if one.code == "slow-compile"]
        assert found.severity == types.DiagnosticSeverity.Information
        assert found.message.startswith("Slow compile: late took 10.")
        assert "AOTAutograd 10." in found.message
        assert "In late [0/0]" in found.message


def test_a_file_that_is_opened_alone_is_enough(recorded: tuple[Path, Path]) -> None:
    """An editor without a folder, such as one that was started with the file's name."""
    program, records = recorded
    line = Fixture(program).line("broken")
    with Editor(None, records) as editor:
        editor.open(program)
        editor.wait("the graph break", lambda: bool(editor.at(program, line, "GB0025")))
        assert editor.hints(program)


def test_settings_may_come_with_the_beginning(recorded: tuple[Path, Path]) -> None:
    program, records = recorded
    with Editor(program.parent, records, options={"inlayHints": False}) as editor:
        editor.open(program)
        line = Fixture(program).line("broken")
        editor.wait("the graph break", lambda: bool(editor.at(program, line, "GB0025")))
        assert editor.hints(program) == {}
        editor.change_settings({"diagnostics": False, "inlayHints": True})
        editor.wait("no diagnostics", lambda: not editor.diagnostics.get(program))
        assert editor.hints(program)
