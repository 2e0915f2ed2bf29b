"""``dynamo-dap diff`` of saved calls: each is made again from its folder, after the user's consent."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dynamo_dap.commands.diff import main
from dynamo_dap.commands.saved_calls import record_call
from dynamo_dap.diff.model import JsonDiff
from tests.client.zygote import python

PROGRAM = """\
import sys
import torch

def helper(x):
    return x.relu() + 1

@torch.compile(backend="aot_eager")
def score(x, scale):
    y = helper(x * scale)
    return y.sum()

score(torch.linspace(0, 1, 6), int(sys.argv[1]))
"""
SAVED = {
    "same": (PROGRAM, "2"),
    "argument": (PROGRAM, "3"),
    "line": (PROGRAM.replace("x.relu() + 1", "x.relu() + 2"), "2"),
    "value": (PROGRAM.replace("linspace(0, 1", "linspace(0, 2"), "2"),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    for name, (text, argument) in {"base": (PROGRAM, "2"), **SAVED}.items():
        path = folder / name / "score.py"
        path.parent.mkdir()
        path.write_text(text)
        call = folder / f"call of {name}"
        assert record_call(["--folder", str(call), "--python", *python(), str(path), argument]) == 0
    return folder


def _diff(capsys: pytest.CaptureFixture[str], *arguments: str, status: int) -> JsonDiff:
    capsys.readouterr()
    assert main(["--json", "--yes", "--python", *python(), *arguments]) == status
    return msgspec.json.decode(capsys.readouterr().out, type=JsonDiff)


@pytest.mark.parametrize(
    ("name", "kind", "line", "says"),
    [
        ("argument", "guard", "y = helper(x * scale)", "+scale == 3"),
        ("line", "graph", "return x.relu() + 2", "+y = relu + 2"),
        ("value", "value", "", "gets another x"),
    ],
)
def test_the_first_difference_of_two_saved_calls_is_named(
    name: str,
    kind: str,
    line: str,
    says: str,
    saved: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(saved)
    found = _diff(capsys, "--values", "call of base", f"call of {name}", status=1)
    first = found.differences[0]
    assert (first.kind, first.function) == (kind, "score")
    assert says in "\n".join([first.text, *first.diff])
    if line:
        assert first.place_in_b is not None
        place = Path(first.place_in_b.path)
        assert place == saved / f"call of {name}" / "sources" / "score.py"
        assert place.read_text().splitlines()[first.place_in_b.line - 1].strip() == line


def test_a_call_that_was_saved_twice_is_the_same(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _diff(capsys, "--values", f"{saved}/call of base", f"{saved}/call of same", status=0)
    assert found.a.numbers.graphs == found.b.numbers.graphs == 1


def test_one_saved_call_is_made_with_two_settings(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = f"'{saved}/call of base'"
    found = _diff(capsys, call, f"TORCH_COMPILE_DYNAMIC_SOURCES=\"L['x']\" {call}", status=1)
    assert found.differences[0].kind == "guard"


def test_settings_that_differ_are_listed(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = f"'{saved}/call of base'"
    for name in ("", "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS=1 "):
        found = _diff(capsys, call, f"{name}{call}", status=0)
        settings = {each.name: (each.in_a, each.in_b) for each in found.settings}
        expected = {"torch._dynamo.config.capture_scalar_outputs": ("false", "true")} if name else {}
        assert settings == expected


@pytest.mark.usefixtures("saved")
def test_nothing_runs_without_consent(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main([f"{saved}/call of base", f"{saved}/call of same"]) == 2
    shown = capsys.readouterr()
    assert "y = helper(x * scale)" in shown.out
    assert "not running the saved call" in shown.err
    (tmp_path / "call.json").write_text("{}")
    assert main(["--yes", str(tmp_path)]) == 2
    assert "call.json cannot be read" in capsys.readouterr().err
