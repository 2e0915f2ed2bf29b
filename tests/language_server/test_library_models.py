"""Models of libraries: what is found in an installed package is shown at its line, and at the user's line that called.

The package is made here, in a folder named as those of installed packages are: ``generate`` calls a decorated
``forward`` with a cache that grows, as the models of large libraries do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import SUFFIX
from tests.client.fixtures import Fixture
from tests.language_server.editor import Editor, run

LIBRARY = """\
import functools

import torch


def checked(func):
    @functools.wraps(func)
    def wrapper(self, *args, **kwargs):
        return func(self, *args, **kwargs)

    return wrapper


class Model(torch.nn.Module):
    @checked
    def forward(self, x, cache):
        y = torch.cat([cache, x])  #@grows
        print("size", y)  #@breaks
        return y * 2

    def generate(self, x):
        cache = torch.zeros(2, 4)
        for _ in range(3):
            cache = self.forward(x, cache)
        return cache
"""
PROGRAM = """\
import sys

import torch

sys.path.insert(0, {site!r})
from somelib.modeling import Model  # noqa: E402

model = Model()
model.forward = torch.compile(model.forward, backend="eager")
output = model.generate(torch.ones(1, 4))  #@called
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A program in a folder of the working directory, and the library's file."""
    base = tmp_path_factory.mktemp("library")
    library = base / "site-packages" / "somelib"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("", encoding="utf-8")
    (library / "modeling.py").write_text(LIBRARY, encoding="utf-8")
    program = base / "work" / "program.py"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(site=str(library.parent)), encoding="utf-8")
    run(program, base / "records")
    return program, library / "modeling.py"


@pytest.fixture
def editor(workspace: tuple[Path, Path]) -> Iterator[Editor]:
    program, _ = workspace
    with Editor(program.parent, program.parent.parent / "records") as one:
        yield one


def test_what_is_found_in_a_library_is_shown_at_the_users_line(editor: Editor, workspace: tuple[Path, Path]) -> None:
    program, library = workspace
    line = Fixture(program).line("called")
    editor.open(program)
    editor.wait("the recompile", lambda: bool(editor.at(program, line, "recompile")))
    # The line is found in the library; the function is the user's name for it, not the decorator's wrapper.
    found = "\n".join(one.message for one in editor.at(program, line))
    assert "size 0 of args[1] was 2 and is 3" in found
    assert "Model.forward" in found
    assert "modeling.py:" in found
    assert "wrapper" not in found
    (broken,) = editor.at(program, line, "GB0059")
    places = {
        (Path(one.location.uri.removeprefix("file://")), one.location.range.start.line + 1)
        for one in broken.related_information or ()
    }
    assert (library, Fixture(library).line("breaks")) in places
    assert library not in editor.diagnostics, "a library's file is not the user's to fix until it is opened"
    assert not [title for title in editor.actions(program, broken) if not title.startswith("Set")]


def test_an_open_file_of_a_library_shows_what_was_found_in_it(editor: Editor, workspace: tuple[Path, Path]) -> None:
    _, library = workspace
    lines = Fixture(library)
    editor.open(library)
    editor.wait("the break", lambda: bool(editor.at(library, lines.line("breaks"), "GB0059")))
    (broken,) = editor.at(library, lines.line("breaks"), "GB0059")
    assert editor.actions(library, broken) == {}
    assert [lens.command.title for lens in editor.lenses(library) if lens.command]
    text = LIBRARY.splitlines()[lines.line("grows") - 1]
    column = text.index("y =")
    hint = editor.hints(library)[lines.line("grows"), column + 1]
    assert hint.startswith(": f32[")
    assert hint.endswith(", 4]")
    reported = editor.hover(library, lines.line("grows"), column)
    assert reported is not None
    assert f"`f32[3, 4]` at line {lines.line('grows')} in Model.forward [" in reported


def test_a_file_of_a_library_that_is_opened_alone_is_enough(workspace: tuple[Path, Path]) -> None:
    """It lies nowhere near the program that used it."""
    program, library = workspace
    with Editor(None, program.parent.parent / "records") as editor:
        editor.open(library)
        editor.wait("the break", lambda: bool(editor.at(library, Fixture(library).line("breaks"), "GB0059")))


def test_a_folder_below_the_working_directory_is_enough(tmp_path: Path) -> None:
    """The program ran above what is opened: a package of its own, with the model in it."""
    package = tmp_path / "work" / "package"
    package.mkdir(parents=True)
    (package / "model.py").write_text(
        "import torch\n\n\n@torch.compile(backend='eager')\ndef fn(x):\n"
        "    y = x + 1\n    torch._dynamo.graph_break()  #@broken\n    return y * 2\n",
        encoding="utf-8",
    )
    program = tmp_path / "work" / "main.py"
    program.write_text("import torch\nfrom package.model import fn\n\nfn(torch.ones(3))\n", encoding="utf-8")
    run(program, tmp_path / "records")
    with Editor(package, tmp_path / "records") as editor:
        editor.open(package / "model.py")
        line = Fixture(package / "model.py").line("broken")
        editor.wait("the break", lambda: bool(editor.at(package / "model.py", line, "GB0025")))


def test_the_record_names_the_function_that_a_decorator_wraps(workspace: tuple[Path, Path]) -> None:
    program, library = workspace
    session = read_record(sorted(program.parent.parent.rglob(f"*{SUFFIX}"))[-1])
    assert [(one.name, one.place and one.place.path) for one in session.functions] == [("Model.forward", str(library))]
    assert {str(library)} <= session.libraries
    assert str(program) in session.sources.keys() - session.libraries


def test_a_record_without_a_finished_compile_replaces_none(workspace: tuple[Path, Path]) -> None:
    """A session that is ended at its first stop leaves a record in which nothing was finished."""
    program, _ = workspace
    (record,) = program.parent.parent.rglob(f"*{SUFFIX}")
    first, *others = record.read_text(encoding="utf-8").splitlines(keepends=True)
    began = next(one for one in others if '"compileBegan"' in one)
    newer = record.with_name(f"99990101-000000-000000000-1{SUFFIX}")
    newer.write_text(first + began, encoding="utf-8")
    try:
        with Editor(program.parent, program.parent.parent / "records") as editor:
            editor.open(program)
            line = Fixture(program).line("called")
            editor.wait("what the older record tells", lambda: bool(editor.at(program, line, "recompile")))
    finally:
        newer.unlink()
