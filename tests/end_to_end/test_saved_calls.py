"""A call that is saved at a stop is replayed in another process from its folder alone, with the same arguments."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dynamo_dap.calls.folder import CALL_FILE, REPLAYING, TENSORS_FILE, BadFolder, first_line, read_snapshot, reported
from dynamo_dap.protocol.requests.contract import RECORD_CALL
from dynamo_dap.protocol.requests.saved_calls import RecordCallBody
from tests.client import Fixture, Session, zygote
from tests.client.timeline import DEADLINE

PROGRAM = """
import collections, dataclasses, enum, functools, threading
import torch
import helping
from helping import Kind

SHIFT = torch.full((4,), 0.5)
UNUSED = threading.Lock()
raise_if_run_again = open(__file__ + ".once", "x")  # what a module does besides is not done again

@dataclasses.dataclass
class Settings:
    by: float
    kind: "Kind" = Kind.TWICE

def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments, **named):
        return function(*arguments, **named) + SHIFT
    return wrapper

class Block(torch.nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.linear = torch.nn.Linear(4, 4)
        self.tied = self.linear.weight
        self.register_buffer("count", torch.zeros(1))
        self.act = lambda value: torch.relu(value) * settings.by
        self.lock = threading.Lock()
        self.history = collections.deque([1, 2], maxlen=None)

    @decorated
    def forward(self, x, *rest, key=None, **more):
        y = self.linear(x) @ self.tied  #@traced
        y = helping.scaled(y, self.settings.kind)
        y = y * self.count
        self.count += 1
        return self.act(y) + sum(rest) + key + more["extra"]  #@last

torch.manual_seed(0)
block = Block(Settings(3.0))
compiled = torch.compile(block, backend="eager")
torch._dynamo.config.recompile_limit = 5

@torch.compile(backend="eager")
def broken(x):
    y = x + 1
    print("breaks")
    return torch.rand(1) + y * SHIFT  #@resumed

for number in range(3):
    x = torch.arange(8.0).reshape(2, 4)[:, ::1] + number  #@plain
    print("result", compiled(x, 1.0, 2.0, key=5, extra=7).sum().item())
print("broken", broken(torch.ones(4)).tolist())
"""
HELPING = """
import enum

class Kind(enum.Enum):
    ONCE = 1
    TWICE = 2

def scaled(value, kind):
    return value * (2 if kind is Kind.TWICE else 1)  #@helper
"""


@pytest.fixture
def program(tmp_path: Path) -> Fixture:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "helping.py").write_text(HELPING)
    path = folder / "train.py"
    path.write_text(PROGRAM)
    return Fixture(path)


def replayed(
    folder: Path, *options: str, standard_input: str | None = None, cwd: str | Path = "/"
) -> tuple[int, str, str]:
    """Return exit status, output and errors of ``dynamo-dap replay``."""
    done = subprocess.run(
        [sys.executable, "-m", "dynamo_dap", "replay", *options, "--python", *zygote.python(), str(folder)],
        env={**os.environ, "PYTHONUNBUFFERED": "1", "XDG_STATE_HOME": str(folder.parent), "DYNAMO_DAP_RECORDS": ""},
        input=standard_input,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def results(text: str, word: str = "result") -> list[str]:
    return [line.removeprefix(f"{word} ") for line in text.splitlines() if line.startswith(f"{word} ")]


def test_calls_are_made_again_without_the_program(session: Session, program: Fixture, tmp_path: Path) -> None:
    """The calls are saved in a trace, in a cached call, and after a graph break."""
    first, second, broken = (tmp_path / name for name in ("first", "second", "broken"))
    session.launch(program, "last", "resumed")
    session.wait_for_stop("breakpoint", at="last")
    saved = _saved(session, first)
    assert [(each["path"], each["text"]) for each in saved["lost"]] == [("arguments[0].lock", "_thread.lock")]
    assert "notes" not in saved
    session.continue_to_stop(at="last")
    assert "is not an empty folder" in session.refusal(RECORD_CALL, {"threadId": 1, "folder": str(first)})
    _saved(session, second)
    session.set_breakpoints(program, "resumed")
    session.continue_to_stop(at="resumed")
    assert "is a part of it" in _saved(session, broken)["notes"][0]
    assert session.run_to_end() == 0
    printed = session.output("stdout")
    shutil.rmtree(program.path.parent)

    for folder, result in zip((first, second), results(printed), strict=False):
        status, output, errors = replayed(folder, "--run", "--yes")
        assert status == 0, errors
        assert "arguments[0].lock (_thread.lock) was not saved" in output
        assert sum(map(sum, _tensor_in(output))) == pytest.approx(float(result), rel=1e-4)
    status, output, _ = replayed(broken, "--run", "--yes")
    assert status == 0
    assert _tensor_in(output) == pytest.approx(json.loads(results(printed, "broken")[0]), abs=1e-4)


def _saved(session: Session, folder: Path) -> dict[str, Any]:
    answer: dict[str, Any] = session.request(RECORD_CALL, {"threadId": 1, "folder": str(folder)})
    assert Path(answer["folder"]) == folder
    return answer


def _tensor_in(output: str) -> Any:
    text = output[output.index("tensor(") + len("tensor(") :]
    depth = 0
    for at, character in enumerate(text):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth == 0 and character == "]":
            return json.loads(text[: at + 1].replace(".,", ".0,").replace(".]", ".0]"))
    raise AssertionError(output)


SMALL = """
import torch

class Doubles(torch.nn.Module):
    def forward(self, x, names):
        y = x * 2  #@first
        return y, sorted(names)

torch.compile(Doubles(), backend="eager")(torch.arange(3, dtype=torch.int32), {"b", "a"})
raise SystemExit("the program is ended before")
"""


def recorded(program: Path, folder: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "dynamo_dap", "record-call", "--json", "--folder", str(folder), *options]
    done = subprocess.run(
        [*command, "--python", *zygote.python(), str(program)],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


DECORATED = """
import functools

import torch

def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)
    return wrapper

class Net(torch.nn.Module):
    @decorated
    def forward(self, x):
        return x + 1

torch.compile(Net(), backend="eager")(torch.ones(2))
"""


def test_a_call_is_found_by_the_name_that_reports_have(tmp_path: Path) -> None:
    """Dynamo compiles a decorator's wrapper, but reports name the wrapped function."""
    program = tmp_path / "program.py"
    program.write_text(DECORATED, encoding="utf-8")
    answer = recorded(program, tmp_path / "call", "--function", "Net.forward")
    assert answer.get("problem") is None
    assert (tmp_path / "call").is_dir()


WITHOUT_GRADIENTS = """
import torch

@torch.compile(backend="eager")
def function(x):
    return x * (2 if torch.is_grad_enabled() else 3)

with torch.no_grad():
    function(torch.ones(1))
"""


def test_a_call_without_gradients_is_made_again_without(tmp_path: Path) -> None:
    path, folder = tmp_path / "program.py", tmp_path / "a call"
    path.write_text(WITHOUT_GRADIENTS)
    saved = recorded(path, folder)
    _, output, errors = replayed(folder, "--run", "--yes")
    assert "3." in output, errors
    assert reported(msgspec.convert(saved, RecordCallBody)).splitlines()[-1].endswith(f"dynamo-dap replay '{folder}'")


OWN_BACKEND = """
import torch

def negated(graph, inputs):
    return lambda *given: [-each for each in graph(*given)]

@torch.compile(backend=negated)
def function(x):
    return x * 3

function(torch.ones(1))
"""


def test_a_call_of_the_programs_own_backend_is_made_again_with_it(tmp_path: Path) -> None:
    """The user need not allow the name of torch's wrapper around the backend."""
    path, folder = tmp_path / "program.py", tmp_path / "call"
    path.write_text(OWN_BACKEND)
    recorded(path, folder)
    _, output, errors = replayed(folder, "--run", "--yes")
    assert "tensor([-3.])" in output, errors


def test_nothing_of_a_folder_runs_before_the_user_agrees(session: Session, tmp_path: Path) -> None:
    """The user agrees once, until the folder's content changes. The call is then debugged in the folder's files."""
    path, folder = tmp_path / "small.py", tmp_path / "call"
    path.write_text(SMALL)
    assert recorded(path, folder, "--function", "Doubles.forward")["function"] == "Doubles.forward"
    path.unlink()
    status, output, errors = replayed(folder, "--run", standard_input="")
    assert status == 1
    assert "        y = x * 2" in output
    assert "SystemExit" not in output
    assert "give --yes" in errors
    assert replayed(folder, "--agree")[0] == 0
    status, output, _ = replayed(folder, "--run", standard_input="")
    assert (status, "returned (tensor([0, 2, 4], dtype=torch.int32), ['a', 'b'])" in output) == (0, True)

    source, line = first_line(read_snapshot(folder))
    variables = {"XDG_STATE_HOME": str(tmp_path), "DYNAMO_DAP_RECORDS": ""}
    wanted = {"module": REPLAYING, "args": [str(folder)], "python": zygote.python(), "env": variables}
    with session.configuring("launch", wanted):
        session.set_breakpoints(Fixture(source), line)
    stop = session.wait_for_stop("breakpoint")
    assert (stop.frame.name, stop.frame.line) == ("Doubles.forward", Fixture(source).line("first"))
    assert stop.frame.evaluate("x.tolist()").text == "[0, 1, 2]"
    assert session.run_to_end() == 0

    source.write_text(source.read_text().replace("x * 2", "x * 3"))
    assert replayed(folder, "--run", standard_input="")[0] == 1


def test_nothing_is_imported_from_where_a_call_is_replayed(tmp_path: Path) -> None:
    """A folder may hold a torch of its own, and be the working directory; and torch may hold what is another's."""
    path, folder = tmp_path / "small.py", tmp_path / "call"
    path.write_text(SMALL)
    recorded(path, folder)
    (folder / "torch.py").write_text("open('imported', 'w')")
    status, output, errors = replayed(folder, "--run", "--yes", cwd=folder)
    assert status == 0, errors
    assert not (folder / "imported").exists()

    call = json.loads((folder / CALL_FILE).read_text())
    number = len(call["values"])
    call["values"].append({"is": "named", "module": "torch.utils._pytree", "name": "cast"})
    call["conditions"].setdefault("settings", {})["_dynamo.verbose"] = number
    (folder / CALL_FILE).write_text(json.dumps(call))
    status, output, errors = replayed(folder, "--run", "--yes", "--allow", "_dynamo.verbose")
    assert status == 2, output
    assert "is typing.cast" in errors


def test_a_call_without_its_data_and_folders_that_hold_none(tmp_path: Path) -> None:
    path, folder = tmp_path / "small.py", tmp_path / "call"
    path.write_text(SMALL)
    recorded(path, folder, "--no-data")
    assert not (folder / TENSORS_FILE).exists()
    status, output, _ = replayed(folder, "--run", "--yes")
    assert status == 0
    assert "dtype=torch.int32" in output
    assert set(_tensor_in(output)) <= {0, 2}

    content = (folder / CALL_FILE).read_text()
    for text, message in (
        ("", "cannot be read"),
        (content.replace('"version": 1', '"version": 9'), "version 9"),
        (content.replace("sources/small.py", "../../small.py"), "is not in"),
        (content.replace('"function": ', '"function": 99', 1), "refers to value 99"),
        (content.replace('"is": "scalar"', '"is": "os.system"', 1), "cannot be read"),
    ):
        (folder / CALL_FILE).write_text(text)
        with pytest.raises(BadFolder, match=message):
            read_snapshot(folder)
    with pytest.raises(BadFolder, match="holds no saved call"):
        read_snapshot(tmp_path)
    (folder / CALL_FILE).write_text(content)
    (folder / "sources" / "small.py").write_text("def (")
    with pytest.raises(BadFolder, match="is not Python"):
        read_snapshot(folder)
