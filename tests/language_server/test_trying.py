"""A fix is tried on a copy: the program runs without and with it, each difference is reported; then it is applied."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from lsprotocol import types

from dynamo_dap.commands.fix import apply_fix, known_fixes
from dynamo_dap.fixes.recorded_program import CannotTry
from dynamo_dap.language_server.presentation import TRY_FIX
from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import SUFFIX
from tests.client.environments import alone, own_command, python_option
from tests.client.fixtures import Fixture
from tests.client.timeline import DEADLINE
from tests.language_server.editor import Editor, edited, run

MODEL = """\
import torch


@torch.compile(backend="eager")
def fn(x, steps):
    y = x + 1
    steps.append(1)
    torch._dynamo.graph_break()  #@broken
    return y * 2


@torch.compile(backend="eager")
def other(x):
    return x * 2  #@sized
"""
PROGRAM = """\
import torch
from model import fn, other

steps = []
total = fn(torch.ones(3), steps)
for n in (3, 5):
    rows = torch.ones(n, 2)
    other(rows)
print("total", total.sum().item(), "steps", len(steps))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program whose compiled functions are in a module beside it, and its record."""
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    path.with_name("model.py").write_text(MODEL, encoding="utf-8")
    run(path, path.parent / "records")
    return path


@pytest.fixture
def program(recorded: Path) -> Path:
    """The recorded program as it was when it was recorded."""
    recorded.write_text(PROGRAM, encoding="utf-8")
    recorded.with_name("model.py").write_text(MODEL, encoding="utf-8")
    return recorded


def _fix(
    program: Path, *arguments: str, python: list[str] | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Try fixes; programs run as others under test do, but for an own option ``python``."""
    python = python_option(program) if python is None else python
    return subprocess.run(
        [sys.executable, "-m", "dynamo_dap", "fix", *python, *arguments],
        env={**os.environ, RECORDS_VARIABLE: str(program.parent / "records"), "PYTHONUNBUFFERED": "1"},
        cwd=program.parent,
        input=given,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def _row(output: str, name: str) -> list[str]:
    return next(line for line in output.splitlines() if line.strip().startswith(name)).split()[-2:]


def test_a_fix_is_tried_on_a_copy_and_applied_when_it_is_proven(program: Path) -> None:
    model = program.with_name("model.py")
    place = f"model.py:{Fixture(model).line('broken')}"
    tried = _fix(program, place, python=[])
    assert tried.returncode == 0, tried.stderr + tried.stdout
    assert "Remove torch._dynamo.graph_break()" in tried.stdout
    assert _row(tried.stdout, "graph breaks") == ["1", "0"]
    assert _row(tried.stdout, "exit status") == ["0", "0"]
    for name in ("compiling", "whole run"):
        assert re.search(rf"^ +{name} +\d+\.\d s +\d+\.\d s$", tried.stdout, re.MULTILINE), tried.stdout
    assert "It helps, and" in tried.stdout
    assert f"result is the same ({RESULT})." in tried.stdout
    assert model.read_text(encoding="utf-8") == MODEL, "the file is the user's until the fix is applied"
    assert not list(program.parent.glob("__pycache__/*.broken*"))

    applied = _fix(program, place, "--apply")
    assert f"Edited {model}" in applied.stdout
    assert "graph_break" not in model.read_text(encoding="utf-8")
    # What was tried left no bytecode behind that would be taken for the file's.
    again = alone(program, cwd=program.parent)
    assert "total 12.0 steps 1" in again.stdout


def test_an_edit_of_the_caller_takes_the_recompile_away(program: Path) -> None:
    tried = _fix(program, f"model.py:{Fixture(program.with_name('model.py')).line('sized')}")
    assert tried.returncode == 0, tried.stderr + tried.stdout
    assert _row(tried.stdout, "recompiles") == ["1", "0"]
    assert "+    if isinstance(rows, torch.Tensor):" in tried.stdout
    assert "+        torch._dynamo.maybe_mark_dynamic(rows, 0)" in tried.stdout


SOMETIMES_A_TENSOR = """\
import torch


@torch.compile(backend="eager")
def weighted(x, weight):
    return x if weight is None else x * weight  #@sized


for weight in (torch.ones(3), torch.ones(5), None, 0.5):
    print(weighted(torch.ones(1), weight).sum().item())
"""


def test_an_argument_is_marked_only_in_calls_where_it_is_a_tensor(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SOMETIMES_A_TENSOR, encoding="utf-8")
    run(program, tmp_path / "records")
    (record,) = (tmp_path / "records").rglob(f"*{SUFFIX}")
    (fix,) = known_fixes(read_record(record), str(program), Fixture(program).line("sized"))
    apply_fix(fix)
    assert "maybe_mark_dynamic(weight, 0)" in program.read_text(encoding="utf-8")
    ran = alone(program, check=False)
    assert ran.stdout.splitlines() == ["3.0", "5.0", "1.0", "0.5"], ran.stderr


def test_a_variable_that_only_the_edit_makes_is_no_other_result(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        'import torch\n\n\n@torch.compile(backend="eager")\ndef mean(batch):\n'
        "    return batch.sum() / batch.shape[0]\n\n\n"
        "for size in (4, 6, 8):\n    mean(torch.ones(size, 3))\n",
        encoding="utf-8",
    )
    run(program, tmp_path / "records")
    tried = _fix(program, "program.py:6")
    assert "batch_input = torch.ones(size, 3)" in tried.stdout
    assert "It helps, and" in tried.stdout, tried.stdout
    assert "the result is the same" in tried.stdout, tried.stdout


def test_each_run_reads_the_input_and_is_announced(program: Path) -> None:
    program.write_text(PROGRAM + "print(input())\n", encoding="utf-8")
    place = f"model.py:{Fixture(program.with_name('model.py')).line('broken')}"
    tried = _fix(program, place, given="a line\n")
    assert tried.returncode == 0, tried.stderr + tried.stdout
    assert [line.split()[-3:] for line in tried.stderr.splitlines() if line.startswith("running")] == [
        ["without", "the", "edit"],
        ["with", "the", "edit"],
    ]


def test_what_is_edited_keeps_its_encoding_and_line_ends(program: Path) -> None:
    """A byte order mark, or a coding line; line ends of both kinds, and none at the end."""
    model = program.with_name("model.py")
    lines = MODEL.replace("y = x + 1", "y = x + 1  # é").rstrip().split("\n")
    for begin, encoding in (("\ufeff", "utf-8"), ("# -*- coding: latin-1 -*-\r\n", "latin-1")):
        text = begin + "\r\n".join(lines[:-1]) + "\n" + lines[-1]
        line = 1 + next(number for number, one in enumerate(text.split("\n")) if "#@broken" in one)
        model.write_bytes(text.encode(encoding))
        records = program.parent / f"records of {encoding}"
        run(program, records)
        (record,) = records.rglob(f"*{SUFFIX}")
        (fix,) = known_fixes(read_record(record), str(model), line)
        apply_fix(fix)
        expected = re.sub(r".*graph_break.*\r\n", "", text)
        assert model.read_bytes() == expected.encode(encoding)
        model.write_bytes(b"# edited meanwhile\n" + expected.encode(encoding))
        with pytest.raises(CannotTry, match="was changed meanwhile"):
            apply_fix(fix)


def test_another_result_is_reported_and_nothing_is_applied(program: Path) -> None:
    """A program that reads its own source gives another result when it is edited."""
    reported = "\nprint('lines', len(__import__('inspect').getsource(__import__('model')).splitlines()))\n"
    program.write_text(PROGRAM + reported, encoding="utf-8")
    model = program.with_name("model.py")
    tried = _fix(program, f"model.py:{Fixture(model).line('broken')}", "--apply")
    assert tried.returncode == 1
    count = len(MODEL.splitlines())
    assert f"it prints 'lines {count - 1}' instead of 'lines {count}'" in tried.stdout, tried.stdout
    assert "No file was edited" in tried.stdout
    assert model.read_text(encoding="utf-8") == MODEL


def test_what_cannot_be_tried_says_why(program: Path) -> None:
    program.with_name("other.py").write_text("value = 1\n", encoding="utf-8")
    for arguments, text in (
        (("model.py:1",), f"the report names lines {Fixture(program.with_name('model.py')).line('broken')}, "),
        (("other.py:1",), "which compiled nothing in that file"),
        (("model.py",), "give a place as FILE:LINE"),
        (("nowhere.py:3",), "nowhere.py does not exist"),
    ):
        reported = _fix(program, *arguments)
        assert reported.returncode == 2
        assert text in reported.stderr


RESULT = "3 calls of compiled functions, 4 values in __main__, 1 line of output"
TITLE = "Remove torch._dynamo.graph_break()"
NOT_TRIED = f"{TITLE} (not tried)"
TRIED = f"{TITLE} (tried: graphs 4 → 3, graph breaks 1 → 0)"


def _kinds(editor: Editor) -> list[str]:
    """What the only progress went through."""
    (values,) = editor.progress.values()
    return [one["kind"] if isinstance(one, dict) else one.kind for one in values]


@pytest.fixture
def model(program: Path) -> Path:
    return program.with_name("model.py")


@pytest.fixture
def editor(program: Path, model: Path) -> Iterator[Editor]:
    """An editor that has received the break in the model."""
    with Editor(program.parent, program.parent / "records") as one:
        one.open(model)
        one.wait("the break", lambda: bool(_broken(one, model)))
        yield one


def _broken(editor: Editor, model: Path) -> list[types.Diagnostic]:
    return editor.at(model, Fixture(model).line("broken"), "GB0025")


def _actions(editor: Editor, model: Path) -> dict[str, types.CodeAction]:
    (diagnostic,) = _broken(editor, model)
    return editor.actions(model, diagnostic)


def _related(editor: Editor, model: Path) -> list[str]:
    return [related.message for one in _broken(editor, model) for related in one.related_information or []]


def _try(editor: Editor, model: Path) -> None:
    command = _actions(editor, model)[f"Try this fix: {TITLE}"].command
    assert command is not None
    editor.execute(command)


def test_an_editor_tries_a_fix_and_prefers_it_then(editor: Editor, model: Path) -> None:
    assert not _actions(editor, model)[NOT_TRIED].is_preferred
    _try(editor, model)
    editor.wait("what came of it", lambda: any(one.startswith(TITLE) for one in editor.messages))
    reported = f"It helps, and the result is the same ({RESULT}). graphs 4 → 3, graph breaks 1 → 0."
    assert editor.messages == [f"{TITLE}: {reported}"]
    assert _kinds(editor) == ["begin", "report", "report", "end"]
    tried = _actions(editor, model)
    assert tried[TRIED].is_preferred
    assert f"Try this fix: {TITLE}" not in tried
    row = f"Tried: {TITLE} (graphs 4 → 3, graph breaks 1 → 0)"
    editor.wait("the result beside the finding", lambda: row in _related(editor, model))
    assert not [text for text in _related(editor, model) if "not tried" in text], "this advice was tried"
    assert [text for text in _related(editor, model) if text.startswith("Hint: Remove the ")]
    assert model.read_text(encoding="utf-8") == MODEL

    # A comment changes nothing of what was tried; other code does.
    editor.change(model, f"# A comment.\n{MODEL}")
    editor.wait("the break to move", lambda: not _broken(editor, model))
    line = Fixture(model).line("broken") + 1
    editor.wait("the break below", lambda: bool(editor.at(model, line, "GB0025")))
    (moved,) = editor.at(model, line, "GB0025")
    assert TRIED in editor.actions(model, moved)
    editor.change(model, f"x = 1\n{MODEL}")
    editor.wait("the other text", lambda: NOT_TRIED in editor.actions(model, moved))
    below = Fixture(model).line("broken") + 1
    editor.wait("no result", lambda: not [1 for one in editor.at(model, below) if "Tried: " in str(one)])


def test_a_proven_fix_is_applied_by_one_click_while_the_code_is_what_was_tried(editor: Editor, model: Path) -> None:
    editor.answers = True
    editor.may_answer.clear()
    _try(editor, model)
    editor.wait("the question", lambda: any(one.startswith(TITLE) for one in editor.messages))
    # A comment moves the line meanwhile.
    editor.change(model, f"# A comment.\n{MODEL}")
    editor.may_answer.set()
    editor.wait("the change", lambda: bool(editor.applied))
    (edits,) = (editor.applied[0].changes or {}).values()
    assert "graph_break" not in edited(f"# A comment.\n{MODEL}", list(edits))


def test_what_is_not_saved_is_what_is_tried(editor: Editor, model: Path) -> None:
    """The text in the editor has a second break, which the file on disk does not have."""
    editor.change(model, MODEL.replace("x * 2  #@sized", "torch._dynamo.graph_break() or x * 2"))
    _try(editor, model)
    editor.wait("what came of it", lambda: bool(editor.messages))
    assert "graph breaks 3 → 2" in editor.messages[0] or "graph breaks 2 → 1" in editor.messages[0]


def test_a_fix_that_changes_the_result_is_not_to_be_had(program: Path, editor: Editor, model: Path) -> None:
    reported = "\nprint('lines', len(__import__('inspect').getsource(__import__('model')).splitlines()))\n"
    program.write_text(PROGRAM + reported, encoding="utf-8")
    _try(editor, model)
    editor.wait("what came of it", lambda: bool(editor.messages))
    assert "not the same: it prints 'lines" in editor.messages[0]
    action = _actions(editor, model)[f"{TITLE} (tried: different result)"]
    assert action.edit is None
    assert action.disabled is not None
    assert "it prints" in action.disabled.reason


def test_a_command_without_a_title_tries_everything_at_a_line(editor: Editor, model: Path) -> None:
    place = {"uri": model.as_uri(), "line": Fixture(model).line("broken") - 1}
    editor.execute(types.Command("", TRY_FIX, arguments=[place]))
    editor.wait("what came of it", lambda: any(one.startswith(TITLE) for one in editor.messages))
    for arguments, text in (
        ([{**place, "line": 0}], "No fix is known for line 1"),
        ([model.as_uri(), 3], "takes one argument"),
        ([{"uri": "untitled:Untitled-1", "line": 0}], "No fix is known for line 1"),
        ([], "takes one argument"),
    ):
        editor.messages.clear()
        editor.execute(types.Command("", TRY_FIX, arguments=arguments))
        editor.wait(f"an answer to {arguments}", lambda text=text: any(text in one for one in editor.messages))


def test_an_advice_in_a_message_is_not_called_untried_once_it_was_tried(editor: Editor, model: Path) -> None:
    line = Fixture(model).line("sized")

    def advice() -> list[str]:
        texts = [text for one in editor.at(model, line, "recompile") for text in one.message.split("\n")]
        return [text.partition(": ")[0] for text in texts if "maybe_mark_dynamic" in text]

    assert advice() == ["Advice (not tried)"]
    editor.execute(types.Command("", TRY_FIX, arguments=[{"uri": model.as_uri(), "line": line - 1}]))
    editor.wait("the advice without the note", lambda: advice() == ["Advice"])


@pytest.fixture
def endless(program: Path) -> Path:
    """The program starts a process of its own, and both run on and on; a file says which they are."""
    started = program.with_name("started")
    started.unlink(missing_ok=True)
    program.write_text(
        f"{PROGRAM}\nimport os, pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        f"pathlib.Path({str(started)!r}).write_text(f'{{os.getpid()}} {{child.pid}}')\ntime.sleep(1000)\n",
        encoding="utf-8",
    )
    return started


def _started(editor: Editor, endless: Path) -> list[psutil.Process]:
    editor.wait("the program to run", lambda: endless.exists() and len(endless.read_text().split()) == 2)
    return [psutil.Process(int(one)) for one in endless.read_text().split()]


def test_a_trial_can_be_cancelled_and_leaves_nothing_running(endless: Path, editor: Editor, model: Path) -> None:
    _try(editor, model)
    processes = _started(editor, endless)
    _try(editor, model)
    editor.wait("the second to be refused", lambda: any("Another fix is being tried" in one for one in editor.messages))
    (token,) = editor.progress
    editor.cancel(token)
    editor.wait("the end of the progress", lambda: _kinds(editor)[-1] == "end")
    editor.wait("both processes to end", lambda: not any(map(_runs, processes)))
    assert NOT_TRIED in _actions(editor, model), "what was cancelled tells nothing"


def test_what_is_tried_ends_with_the_editor(endless: Path, program: Path, model: Path) -> None:
    with Editor(program.parent, program.parent / "records") as editor:
        editor.open(model)
        editor.wait("the break", lambda: bool(_broken(editor, model)))
        _try(editor, model)
        processes = _started(editor, endless)
    editor.wait("both processes to end", lambda: not any(map(_runs, processes)))


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def test_what_is_compiled_now_that_ran_eagerly_before_is_a_gain(tmp_path: Path) -> None:
    """A graph break in a loop makes the function run eagerly as a whole: it has no graph then."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n\n\n@torch.compile(backend='eager')\ndef fn(x):\n    for _ in range(2):\n        x = x + 1\n"
        "        torch._dynamo.graph_break()  #@broken\n    return x * 2\n\n\nprint(fn(torch.ones(3)))\n",
        encoding="utf-8",
    )
    run(program, tmp_path / "records")
    tried = _fix(program, f"program.py:{Fixture(program).line('broken')}")
    before, after = map(int, _row(tried.stdout, "graphs"))
    assert before < after
    assert "It helps, and" in tried.stdout
    assert "the result is the same" in tried.stdout


def test_no_result_proves_nothing(tmp_path: Path) -> None:
    """Nothing is printed, nothing is kept, and what the compiled function returns is nothing that can be compared."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n\n\n@torch.compile(backend='eager')\ndef fn(x):\n    y = x + 1\n"
        "    torch._dynamo.graph_break()  #@broken\n    x.copy_(y)\n\n\nfn(torch.ones(3))\n",
        encoding="utf-8",
    )
    run(program, tmp_path / "records")
    tried = _fix(program, f"program.py:{Fixture(program).line('broken')}")
    assert "It helps, but" in tried.stdout
    assert "but no result can be compared" in tried.stdout
    assert tried.returncode == 1


def test_what_compiled_functions_return_is_compared(tmp_path: Path) -> None:
    """It is all that such a program has: nothing printed, nothing kept, and an exit by sys.exit()."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nimport random\nimport torch\n\n\n@torch.compile(backend='eager')\ndef fn(x):\n    y = x + 1\n"
        "    torch._dynamo.graph_break()  #@broken\n    return torch.nn.functional.dropout(y * 2)\n\n\n"
        "def main():\n    for n in range(3):\n        fn(torch.rand(3) * random.random())\n\n\nsys.exit(main())\n",
        encoding="utf-8",
    )
    run(program, tmp_path / "records")
    tried = _fix(program, f"program.py:{Fixture(program).line('broken')}")
    assert "It helps, and" in tried.stdout
    assert "the result is the same (3 calls" in tried.stdout
    assert tried.returncode == 0


def test_a_result_that_is_random_proves_nothing(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os\nimport torch\n\n\n@torch.compile(backend='eager')\ndef fn(x):\n    y = x + 1\n"
        "    torch._dynamo.graph_break()  #@broken\n    return y\n\n\nprint(fn(torch.ones(3)), os.urandom(8).hex())\n",
        encoding="utf-8",
    )
    run(program, tmp_path / "records")
    tried = _fix(program, f"program.py:{Fixture(program).line('broken')}", "--apply")
    assert "result differs from run to run" in tried.stdout
    assert "No file was edited" in tried.stdout


def test_a_module_is_run_as_a_module(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "model.py").write_text(MODEL, encoding="utf-8")
    (package / "train.py").write_text(PROGRAM.replace("from model", "from .model"), encoding="utf-8")
    environment = {**os.environ, RECORDS_VARIABLE: str(tmp_path / "records")}
    command = [*own_command(), "run", "-m", "package.train"]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True)
    tried = _fix(tmp_path / "program.py", f"package/model.py:{Fixture(package / 'model.py').line('broken')}")
    assert "It helps, and" in tried.stdout, tried.stderr
    assert "the result is the same" in tried.stdout, tried.stderr


COUNTED = """\
import torch


@torch.compile(backend="eager")
def total(x):
    kept = x.nonzero()  #@broken
    if kept.shape[0] == 0:
        return x.sum()
    return x.sum() + kept.sum()


for _ in range(2):
    print(total(torch.tensor([0.0, 1.0, 2.0])).item())
"""


def test_a_setting_that_leads_to_another_condition_is_tried_with_its_checks(tmp_path: Path) -> None:
    counted = tmp_path / "counted.py"
    counted.write_text(COUNTED, encoding="utf-8")
    run(counted, tmp_path / "records")
    tried = _fix(counted, f"counted.py:{Fixture(counted).line('broken')}")
    assert tried.returncode == 0, tried.stdout + tried.stderr
    alone, wrong, right = (part for part in tried.stdout.split("Set torch._dynamo.config.")[1:])
    assert "needs a further check: kept.shape[0] == 0 at counted.py:8" in alone
    assert "It helps" not in alone + wrong
    assert "torch._check(kept.shape[0] != 0)" in right
    assert _row(right, "graph breaks") == ["1", "0"]
    assert "the result is the same" in right


CRASHING = """\
import torch


@torch.compile(backend="eager")
def scaled(x):
    return x * x.sum().item()


print(scaled(torch.ones(3)))
if torch._dynamo.config.capture_scalar_outputs:
    raise RuntimeError("no scalars here")
"""


def test_report_tries_each_suggestion_and_reports_a_crash(tmp_path: Path) -> None:
    """The setting avoids the graph break, but the program fails with it."""
    crashing = tmp_path / "crashing.py"
    crashing.write_text(CRASHING, encoding="utf-8")
    records = tmp_path / "records"
    run(crashing, records)
    words = [*own_command(), "report", "--try"]
    environment = {**os.environ, RECORDS_VARIABLE: str(records)}
    tried = subprocess.run(
        words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert _row(tried.stdout, "graph breaks") == ["1", "0"], tried.stderr + tried.stdout
    assert "it crashes with RuntimeError: no scalars" in tried.stdout
    assert "It helps" not in tried.stdout
