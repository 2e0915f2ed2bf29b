"""Saved compiles are read without torch, never trusted, and reported to accept the inputs that torch accepts."""

from __future__ import annotations

import codecs
import pickle
import zipfile
import zlib
from pathlib import Path

import pytest

from dynamo_dap.commands.report import main
from dynamo_dap.records.artifacts.compiled_functions import read_compiled_function
from dynamo_dap.records.artifacts.exported_programs import read_exported_programs
from dynamo_dap.records.artifacts.precompiled_programs import read_precompiled_cache, read_precompiled_program
from dynamo_dap.records.artifacts.saved_caches import is_saved_cache, read_saved_cache
from dynamo_dap.records.file import UnreadableRecord
from tests.client.environments import alone, need_inductor
from tests.structure.sources import ROOT

CACHE = """\
import torch

@torch.compile(dynamic=True)
def scaled(x, y):
    if x.shape[0] > 4:
        return x @ y
    return y

scaled(torch.ones(8, 4), torch.ones(4, 4))
open("cache.bin", "wb").write(torch.compiler.save_cache_artifacts()[0])
"""
EXPORT = """\
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)

    def forward(self, x, flag):
        return self.fc(x).relu() * flag

sizes = {"x": {0: torch.export.Dim("batch", min=2, max=64)}, "flag": None}
torch.export.save(torch.export.export(Model(), (torch.ones(6, 4), 3), dynamic_shapes=sizes), "model.pt2")
model = torch.export.load("model.pt2").module()
for x, flag in ((torch.ones(64, 4), 3), (torch.ones(65, 4), 3), (torch.ones(6, 5), 3), (torch.ones(6, 4), 4)):
    try:
        model(x, flag)
        print("accepted")
    except Exception:
        print("refused")
"""
COMPILED = """\
import torch

def scaled(x, twice):
    if x.shape[0] > 4:
        return x.relu() * (2 if twice else 3)
    return x

compiled = torch.compile(scaled, fullgraph=True, dynamic=True, backend="inductor")
compiled.aot_compile(((torch.ones(6, 4), True), {})).save_compiled_function("scaled.compiled")
with open("scaled.compiled", "rb") as file:
    loaded = torch.compiler.load_compiled_function(file)
x = torch.ones(9, 4)
for given in ((x, True), (torch.ones(4, 4), True), (x, False), (x.double(), True), (x[:, 0], True)):
    try:
        loaded(*given)
        print("accepted")
    except RuntimeError:
        print("refused")
with torch.no_grad():
    try:
        loaded(x, True)
        print("accepted")
    except RuntimeError:
        print("refused")
"""


def _run(folder: Path, text: str) -> str:
    path = folder / "program.py"
    path.write_text(text)
    done = alone(path, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_saved_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_inductor("program.py")
    _run(tmp_path, CACHE)
    path = tmp_path / "cache.bin"
    entry = next(each for each in read_saved_cache(path) if each.cache == "inductor")
    assert entry.guards is not None
    assert "5 <= L['t0']" in entry.guards
    assert [place.line for place, _ in entry.lines] == [6]
    assert main([str(path)]) == 0
    printed = capsys.readouterr().out
    assert "program.py:6 in scaled" in printed
    assert "aot_autograd" in printed
    path.write_bytes(path.read_bytes()[:-1])
    assert main([str(path)]) == 1
    assert "is damaged" in capsys.readouterr().err


class _Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('this must not run')",)


def _saved(content: bytes, count: int = 1) -> bytes:
    def block(text: bytes) -> bytes:
        return len(text).to_bytes(8, "big") + text

    body = (1).to_bytes(8, "big") + block(b"aW5kdWN0b3I=") + count.to_bytes(8, "big") + block(b"a2V5") + block(content)
    return zlib.crc32(body).to_bytes(4, "big") + body


def test_a_hostile_cache_is_only_listed(tmp_path: Path) -> None:
    path = tmp_path / "cache.bin"
    path.write_bytes(_saved(pickle.dumps([_Hostile(), "guards_expr", "\x1b]0;taken\x07"])))
    assert is_saved_cache(path)
    (entry,) = read_saved_cache(path)
    assert entry.cache == "inductor"
    assert entry.guards is not None
    assert "\x1b" not in entry.guards
    for wrong in (_saved(b"", 2**60), _saved(b"not a pickle")[:-1] + b"\x00"):
        path.write_bytes(wrong)
        with pytest.raises(UnreadableRecord):
            read_saved_cache(path)


def test_an_exported_program_accepts_what_the_report_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(tmp_path, EXPORT).split() == ["accepted", "refused", "refused", "refused"]
    (program,) = read_exported_programs(tmp_path / "model.pt2")
    ((symbol, bounds),) = program.ranges.items()
    assert bounds == "2 … 64"
    assert program.inputs == {"x": f"f32[{symbol}, 4] cpu", "flag": "the constant 3, and no other value"}
    assert program.weights == {"fc.weight": "f32[2, 4] cpu", "fc.bias": "f32[2] cpu"}
    assert main([str(tmp_path / "model.pt2")]) == 0
    printed = capsys.readouterr().out
    assert "aten.relu.default: 1" in printed
    assert "raises an error for other sizes" in printed
    assert "other values of constants." in printed


def test_a_compiled_function_refuses_what_the_report_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_inductor("program.py")
    assert _run(tmp_path, COMPILED).split() == ["accepted", *["refused"] * 5]
    path = tmp_path / "scaled.compiled"
    found = read_compiled_function(path)
    assert (found.function, found.place.line, found.backend) == ("scaled", 3, "inductor")
    assert found.inputs == {"x": "f32[6, 4] cpu", "twice": "True"}
    ((tensor, place),) = found.tensors
    assert tensor == "L['x']: f32[…, …] cpu"
    assert place is not None
    assert Path(place.path) == tmp_path / "program.py"
    guards = dict(found.guards)
    assert any("L['twice']" in text for text in guards)
    assert any(text.startswith("5 <= L['x'].size()[0]") for text in guards)
    assert found.has_global_state
    assert main([str(path)]) == 0
    printed = capsys.readouterr().out
    assert "Refuses a call unless\n  L['x']: f32[…, …] cpu  " in printed
    assert "Triton" not in printed, "torch compares it on GPUs only"


def test_a_compiled_function_of_another_torch() -> None:
    found = read_compiled_function(ROOT / "fixtures" / "saved" / "torch-2.15.compiled")
    assert found.versions["Torch"].startswith("2.15.0")
    assert [tensor for tensor, _ in found.tensors] == ["L['x']: f32[…, …] cpu"]
    assert "5 <= L['x'].size()[0]" in dict(found.guards)
    assert [source[1:] for source in found.sources] == [(4, 8)]


def test_a_precompiled_program(capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "fixtures" / "saved" / "torch-2.15.precompiled"
    found = read_precompiled_program(path)
    assert (found.backend, found.modules, found.gradients) == ("inductor", 1, [])
    # Torch 2.15 accepted the first sizes 6 and 64; it refused 65, a second size of 5, and float64.
    assert found.inputs == ["f32[2 … 64, 4] cpu", ""]
    assert found.weights == {"fc.weight": "f32[2, 4] cpu", "fc.bias": "f32[2] cpu"}
    assert main([str(path)]) == 0
    printed = capsys.readouterr().out
    assert "input 1: f32[2 … 64, 4] cpu" in printed
    assert "input 2: not a tensor" in printed


def test_the_cache_of_a_precompiled_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "fixtures" / "saved" / "torch-2.15.precompiled-cache"
    found = read_precompiled_cache(path)
    assert (found.backend, len(found.code_hash), found.entries) == ("eager", 64, [])
    assert main([str(path)]) == 0
    assert found.code_hash in capsys.readouterr().out
    text = _saved(pickle.dumps({"guards_expr": "True"})).decode("latin-1")
    with_kernels = {"format": "torch.compiler.precompile", "backend": "inductor", "artifact": _Encoded(text)}
    (entry,) = read_precompiled_cache(_archive(tmp_path, pickle.dumps(with_kernels))).entries
    assert (entry.cache, entry.guards) == ("inductor", "True")


class _Encoded:
    """Bytes, as ``torch.save`` writes them."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return codecs.encode, (self._text, "latin1")


def _archive(folder: Path, content: bytes) -> Path:
    path = folder / "program.cache"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content)
    return path


def test_hostile_precompiled_files_run_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.py"
    beginning = "# Generated by torch.compiler.precompile\n"
    for text in ("raise SystemExit('this must not run')", "BACKEND = exec('1')", "BACKEND = " + "(" * 300, "\0"):
        path.write_text(beginning + text)
        assert main([str(path)]) == 1
        assert "unknown form" in capsys.readouterr().err
    cache = _archive(tmp_path, pickle.dumps({"format": "torch.compiler.precompile", "artifact": _Hostile()}))
    assert main([str(cache)]) == 0
    cache = _archive(tmp_path, pickle.dumps({"format": _Hostile()}))
    assert main([str(cache)]) == 1


def test_a_hostile_compiled_function_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scaled.compiled"
    for hostile in ({"signature": _Hostile(), "original_code": _Hostile()}, ["signature", _Hostile()]):
        path.write_bytes(pickle.dumps(hostile))
        assert main([str(path)]) == 1
        assert "unknown form" in capsys.readouterr().err
    path.write_bytes(pickle.dumps({"signature": 1})[:-1])
    assert main([str(path)]) == 1
