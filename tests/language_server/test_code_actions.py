"""Every code action does what it says: it is applied to the file, the program compiles again, and the trouble is gone.

Each case is a module of its own; one program imports and runs them all, once before the edits and once after.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from dynamo_dap.record.file import read_record
from dynamo_dap.record.folders import SUFFIX
from dynamo_dap.record.model import CompiledFunction
from dynamo_dap.record.summary import Counts, counts_of
from tests.client.fixtures import Fixture
from tests.language_server.editor import Editor, run


@dataclass(frozen=True)
class Case:
    """A module with a function ``fn``, and the action that mends what is at the line ``#@here``."""

    name: str
    text: str
    title: str
    edited: tuple[str, ...]
    """Lines that the file has afterwards, stripped."""
    before: tuple[int, int, int]
    """Graphs, breaks and recompiles of all that the module compiles."""
    after: tuple[int, int, int]


CASES = [
    Case(
        "mark_a_name",
        "@torch.compile(backend='eager')\ndef fn(x):\n    return x * 2  #@here\n\n\ndef main():\n    for n in (3, 5):\n"
        "        rows = torch.ones(n, 2)\n        fn(rows)\n",
        "Mark size 0 of x as dynamic before the call",
        ("torch._dynamo.mark_dynamic(rows, 0)",),
        (2, 0, 1),
        (1, 0, 0),
    ),
    Case(
        "mark_an_expression",
        "class Model(torch.nn.Module):\n    def forward(self, x, scale):\n        return x * scale  #@here\n\n\n"
        "model = torch.compile(Model(), backend='eager')\n\n\ndef main():\n"
        "    total = model(torch.ones(2, 3), 2).sum()\n    return total + model(torch.ones(2, 4), 2).sum()\n",
        "Mark size 1 of x as dynamic before the call",
        ("x = torch.ones(2, 3)", "torch._dynamo.mark_dynamic(x, 1)", "total = model(x, 2).sum()"),
        (2, 0, 1),
        (1, 0, 0),
    ),
    Case(
        "disable_a_function",
        "def helper(y):\n    print('a')\n    torch._dynamo.graph_break()  #@here\n    print('b')\n"
        "    return y * 2\n\n\n"
        "@torch.compile(backend='eager')\ndef fn(x):\n    y = helper(x + 1)\n    return y - 1\n\n\n"
        "def main():\n    fn(torch.ones(3))\n",
        "Run helper outside of the graph (@torch.compiler.disable)",
        ("@torch.compiler.disable",),
        (3, 4, 0),
        (2, 1, 0),
    ),
    Case(
        "move_a_statement",
        "def log(text):\n    import sys\n    sys.stdout.write(text)\n\n\n@torch.compile(backend='eager')\ndef fn(x):\n"
        "    y = x + 1\n    torch._dynamo.graph_break()  #@here\n    y = y * 2\n    return y - 1\n\n\n"
        "def main():\n    fn(torch.ones(3))\n",
        "Move torch._dynamo.graph_break(...) to the end of fn",
        ("result = y - 1", "return result"),
        (2, 1, 0),
        (1, 1, 0),
    ),
    Case(
        "run_print_later",
        "@torch.compile(backend='eager')\ndef fn(x):\n    y = x + 1\n    print('value', y)  #@here\n"
        "    return y * 2\n\n\ndef main():\n    fn(torch.ones(3))\n",
        "Let Dynamo run print after the graph (reorderable_logging_functions)",
        ("torch._dynamo.config.reorderable_logging_functions.add(print)",),
        (2, 1, 0),
        (1, 0, 0),
    ),
    Case(
        "move_print",
        "@torch.compile(backend='eager')\ndef fn(x):\n    y = x + 1\n    print('value', y)  #@here\n    z = y * 2\n"
        "    return z\n\n\ndef main():\n    fn(torch.ones(3))\n",
        "Move print(...) to the end of fn",
        ("print('value', y)  #@here",),
        (2, 1, 0),
        (1, 1, 0),
    ),
    Case(
        "set_what_a_hint_names",
        "@torch.compile(backend='eager')\ndef fn(x):\n    n = x.nonzero()  #@here\n    return n + 1\n\n\n"
        "def main():\n    fn(torch.ones(3))\n",
        "Set torch._dynamo.config.capture_dynamic_output_shape_ops = True",
        ("torch._dynamo.config.capture_dynamic_output_shape_ops = True",),
        (1, 1, 0),
        (1, 0, 0),
    ),
    Case(
        "promise_a_size",
        "@torch._dynamo.config.patch(capture_scalar_outputs=True)\ndef main():\n    fn(torch.tensor([4, 2]))\n\n\n"
        "@torch.compile(backend='eager')\ndef fn(x):\n    n = x.max().item()\n    if n > 3:  #@here\n"
        "        return torch.ones(n)\n    return x + 1\n",
        "Promise that it always holds: torch._check(n > 3)",
        ("torch._check(n > 3)",),
        (2, 1, 0),
        (1, 0, 0),
    ),
]


class Recorded(NamedTuple):
    """All cases, before and after their actions."""

    folder: Path
    before: dict[str, Counts]
    titles: dict[str, list[str]]
    after: dict[str, Counts]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run everything, apply the action of each case, and run everything again."""
    folder = tmp_path_factory.mktemp("workspace")
    records = folder / "records"
    for case in CASES:
        text = f"import torch\nimport torch._dynamo.config\n\n\n{case.text}"
        (folder / f"{case.name}.py").write_text(text, encoding="utf-8")
    program = folder / "program.py"
    # Settings that a case makes are not those of the next.
    program.write_text(
        "import torch\nimport torch._dynamo.config\n"
        f"for name in {[case.name for case in CASES]!r}:\n    with torch._dynamo.config.patch():\n"
        "        printing = set(torch._dynamo.config.reorderable_logging_functions)\n"
        "        scalars = torch._dynamo.config.capture_scalar_outputs\n"
        "        sizes = torch._dynamo.config.capture_dynamic_output_shape_ops\n"
        "        __import__(name).main()\n"
        "        torch._dynamo.config.reorderable_logging_functions = printing\n"
        "        torch._dynamo.config.capture_scalar_outputs = scalars\n"
        "        torch._dynamo.config.capture_dynamic_output_shape_ops = sizes\n",
        encoding="utf-8",
    )
    run(program, records)
    before = _counts(folder)
    titles = {}
    with Editor(folder, records) as editor:
        for case in CASES:
            titles[case.name] = _apply(editor, folder / f"{case.name}.py", case.title)
    run(program, records)
    return Recorded(folder, before, titles, _counts(folder))


def _apply(editor: Editor, path: Path, title: str) -> list[str]:
    editor.open(path)
    line = Fixture(path).line("here")
    editor.wait("something at the line", lambda: bool(editor.at(path, line)))
    (diagnostic, *_) = editor.at(path, line)
    actions = editor.actions(path, diagnostic)
    if title in actions:
        editor.apply(actions[title])
    return list(actions)


def _counts(folder: Path) -> dict[str, Counts]:
    """What the newest record counts, by module."""
    newest = sorted(folder.rglob(f"*{SUFFIX}"))[-1]
    modules: dict[str, list[CompiledFunction]] = {}
    for function in read_record(newest).functions:
        assert function.place is not None
        modules.setdefault(Path(function.place.path).stem, []).append(function)
    return {name: counts_of([one for each in found for one in each.compiles]) for name, found in modules.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_action_mends_what_it_is_offered_for(recorded: Recorded, case: Case) -> None:
    assert case.title in recorded.titles[case.name]
    counts = recorded.before[case.name]
    assert (counts.graphs, counts.breaks, counts.recompiles) == case.before
    text = (recorded.folder / f"{case.name}.py").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines()]
    assert [one for one in case.edited if one not in lines] == [], text
    counts = recorded.after[case.name]
    assert (counts.graphs, counts.breaks, counts.recompiles) == case.after, text


def test_the_other_way_may_be_promised_too(recorded: Recorded) -> None:
    assert "Promise that it always holds: torch._check(n <= 3)" in recorded.titles["promise_a_size"]


def test_nothing_is_moved_past_what_it_reads(tmp_path: Path) -> None:
    """The value that is printed changes below: moving it would print another one."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n\n\n@torch.compile(backend='eager')\ndef fn(x):\n    y = x + 1\n    print(y)  #@here\n"
        "    y = y * 2\n    return y\n\n\nfn(torch.ones(3))\n",
        encoding="utf-8",
    )
    run(program, tmp_path / "records")
    with Editor(tmp_path, tmp_path / "records") as editor:
        titles = _apply(editor, program, "none")
    assert titles
    assert not [title for title in titles if title.startswith("Move")]
