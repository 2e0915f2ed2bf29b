"""``diff --caches`` names the differing part of the keys of Triton's, autotune, remote and precompile caches.

Triton compiles for a GPU without one. Torch reads its autotune caches on GPUs only, so the program makes these lookups
itself, with torch's own classes. The remote cache is a folder.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from dynamo_dap.commands.diff import main
from dynamo_dap.diff.model import JsonCaches, KeyPart, NotCached, Numbers, Side
from dynamo_dap.diff.sides import Run
from dynamo_dap.diff.text import print_caches
from dynamo_dap.records.model import Place
from tests.client.environments import need_inductor
from tests.client.zygote import python

HEAD = """\
import os, pathlib, shutil, sys
import torch
import torch._inductor.config as config
import torch._inductor.runtime.autotune_cache as autotune
import torch._inductor.remote_cache as remote

B = os.environ["RUN"] == "B"
x = torch.ones(3)
"""
TRITON = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

def jitted(function):
    return triton.jit(function)

@triton.jit
def add(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i) + 1, mask=i < n)

@triton.jit
def subtract(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i) - 1, mask=i < n)

def compiled(kernel=add, dtype="*fp32", block=64, arch=80, **options):
    def backend(graph, inputs):
        types = {"x": dtype, "n": "i32", "BLOCK": "constexpr"}
        triton.compile(ASTSource(kernel, types, {"BLOCK": block}), target=GPUTarget("cuda", arch, 32), options=options)
        return graph.forward
    return torch.compile(backend=backend)

@compiled()
def served(x):
    return x + 1

@compiled(num_warps=8 if B else 2)
def option(x):
    return x + 2

@compiled(block=32 if B else 128)
def constant(x):
    return x + 3

@compiled(dtype="*fp16" if B else "*fp64")
def signature(x):
    return x + 4

@compiled(kernel=subtract if B else add, num_warps=1)
def source(x):
    return x + 5

@compiled(arch=90 if B else 80, num_warps=16)
def device(x):
    return x + 6

for function in (served, option, constant, signature, source, device):
    function(x)
"""
AUTOTUNE = """
class Folder(remote.RemoteCacheBackend):
    path = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "remote")

    def _get(self, key):
        file = self.path / key.replace("/", "_")
        return file.read_bytes() if file.exists() else None

    def _put(self, key, data):
        self.path.mkdir(exist_ok=True)
        (self.path / key.replace("/", "_")).write_bytes(data)

for name in ("RemoteFxGraphCache", "RemoteBundledAutotuneCache", "RemoteAutotuneCache"):
    getattr(remote, name).backend_override_cls = Folder

META = {"autotune_local_cache": True, "autotune_remote_cache": True, "bundled_autotune_remote_cache": True,
        "backend_hash": "sm80", "is_fbcode": False}

class Best:
    kwargs, num_warps, num_stages = {"XBLOCK": 8}, 4, 1

def compiled(code="kernel", configs="configs", **meta):
    def backend(graph, inputs):
        given = {**META, **meta}
        autotune.AutotuneCacheBundler.begin_compile(given, code=code)
        file = os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "ab", f"{code}.py")
        cache = autotune.AutotuneCache.create(given, file, configs)
        if cache.read_best(given, []) is None:
            cache.save(Best, 1)
        autotune.AutotuneCacheBundler.end_compile()
        return graph.forward
    return torch.compile(backend=backend)

@compiled()
def served(x):
    return x + 1

@compiled(code="kernel b" if B else "kernel a")
def code(x):
    return x + 2

@compiled(code="tuned", configs="configs b" if B else "configs a")
def configs(x):
    return x + 3

@compiled(code="device", backend_hash="sm90" if B else "sm80")
def device(x):
    return x + 4

for function in (served, code, configs, device):
    function(x)
"""
REMOTE = """
config.fx_graph_remote_cache = True
torch._dynamo.reset()

@torch.compile
def kept(x):
    return x.sin() + 1

@torch.compile(options={"max_fusion_size": 32 + B})
def setting(x):
    return x.cos() + 1

if B:
    # What is left is the remote cache.
    for name in ("fxgraph", "aotautograd"):
        shutil.rmtree(os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], name), ignore_errors=True)
kept(x)
setting(x)
"""


@dataclass(frozen=True)
class Cause:
    """What the report says of a function."""

    results: tuple[str, ...]
    parts: tuple[str, ...]
    advice: str


CAUSES = {
    "option": Cause(("Triton cache miss",), ("triton_option[num_warps]",), "num_warps in both runs"),
    "constant": Cause(("Triton cache miss",), ("triton_constant[BLOCK]",), "constant BLOCK"),
    "signature": Cause(("Triton cache miss",), ("triton_signature[x]",), "type of x"),
    "source": Cause(("Triton cache miss",), ("triton_source",), "source of the Triton kernel"),
    "device": Cause(("Triton cache miss",), ("triton_backend",), "device or ptxas"),
}
TUNED = {
    "code": Cause(
        ("bundled autotune cache miss", "remote autotune cache miss", "autotune cache miss"),
        ("autotune_code",),
        "generated code differs",
    ),
    "configs": Cause(("autotune cache miss",), ("autotune_configs",), "configurations differ"),
    "device": Cause(("bundled autotune cache miss",), ("autotune_backend",), "tune once on each"),
}


def _found(path: Path, *arguments: str) -> JsonCaches:
    with pytest.MonkeyPatch.context() as patched:
        written: list[str] = []
        patched.setattr(sys.stdout, "write", written.append)
        assert (
            main(["--caches", "--json", "--python", *python(), *(arguments or (f"RUN=A {path}", f"RUN=B {path}"))]) < 2
        )
    return msgspec.json.decode("".join(written), type=JsonCaches)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> JsonCaches:
    pytest.importorskip("triton")
    path = tmp_path_factory.mktemp("kernels") / "program.py"
    path.write_text(HEAD + TRITON)
    return _found(path)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> JsonCaches:
    path = tmp_path_factory.mktemp("tuned") / "program.py"
    path.write_text(HEAD + AUTOTUNE)
    return _found(path)


def _of(found: JsonCaches, name: str) -> NotCached:
    return next(each for each in found.not_cached if each.function == name)


@pytest.mark.parametrize("name", CAUSES)
def test_the_part_of_a_triton_key_is_named(name: str, kernels: JsonCaches) -> None:
    _is_as_expected(_of(kernels, name), CAUSES[name])
    assert [each.function for each in kernels.not_cached] == list(CAUSES)
    assert kernels.hits == 1


@pytest.mark.parametrize("name", TUNED)
def test_the_part_of_an_autotune_key_is_named(name: str, tuned: JsonCaches) -> None:
    _is_as_expected(_of(tuned, name), TUNED[name])
    assert [each.function for each in tuned.not_cached] == list(TUNED)


def _is_as_expected(missed: NotCached, cause: Cause) -> None:
    assert set(cause.results) <= set(missed.results), missed
    assert [part.name for part in missed.parts] == list(cause.parts), missed
    assert cause.advice in "\n".join(missed.advice)


def test_remote_caches_have_the_keys_of_local_ones(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    need_inductor(path.name)
    path.write_text(HEAD + AUTOTUNE.partition("META")[0] + REMOTE)
    found = _found(path)
    kept = _of(found, "kept")
    assert "remote FX graph cache hit" in kept.results
    assert "FX graph cache hit" in kept.results
    setting = _of(found, "setting")
    assert "remote FX graph cache miss" in setting.results
    assert [part.name for part in setting.parts] == ["inductor_config[max_fusion_size]"]


def test_inputs_that_differ_alike_are_one_line() -> None:
    parts = [KeyPart(f"example_inputs[{number}]", "f32", "f64") for number in (0, 2, 3)]
    missed = NotCached("f", "0/0", [], 0.0, None, [], [*parts, KeyPart("default_dtype", "a", "b")], None, [], [])
    side = Side("a", Numbers(1, 1, 1, 0, 0, 1, 0.0, {}))
    shown = io.StringIO()
    print_caches(JsonCaches(side, side, 0, [missed]), Run("a", []), Console(file=shown, width=120))
    assert "example_inputs[0] … [3], 3 inputs: f32 in A" in shown.getvalue()
    assert "default_dtype: a in A" in shown.getvalue()


PRECOMPILED = """\
import os, sys
import torch
sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.environ["RUN"]))
torch._dynamo.config.caching_precompile = True
from torch._dynamo.precompile_context import PrecompileContext
# Torch loads an entry into the globals of a module, where another compile would collide with its names.
import same, inlined, moved

for function in (same.same, inlined.inlined, moved.moved):
    function(torch.ones(3))
PrecompileContext.save_to_dynamo_cache()
"""
MODULES = {
    "helpers": "def helper(x):\n    return x + {}\n",
    "same": "import torch\n@torch.compile\ndef same(x):\n    return x + 1\n",
    "inlined": "import torch, helpers\n@torch.compile\ndef inlined(x):\n    return helpers.helper(x)\n",
    "moved": "import torch\n{}@torch.compile\ndef moved(x):\n    return x + 3\n",
}


GUARDED = """\
import os, torch
torch._dynamo.config.caching_precompile = True
from torch._dynamo.precompile_context import PrecompileContext
import guarded, other

guarded.settings.scale = 2
if os.environ["RUN"] == "B":
    guarded.settings.scale = 3
    # Then the names of the next compile are not those of the entry that torch loads into the same module.
    other.other(torch.ones(3))
guarded.guarded(torch.ones(3))
PrecompileContext.save_to_dynamo_cache()
"""
GUARDED_MODULES = {
    "guarded": "import torch\nclass Settings: pass\nsettings = Settings()\n\n@torch.compile\ndef guarded(x):\n"
    "    return x * settings.scale\n",
    "other": "import torch\n@torch.compile\ndef other(x):\n    return x - 1\n",
}


def test_a_guard_on_an_object_that_a_precompiled_function_does_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    need_inductor(path.name)
    path.write_text(GUARDED)
    for name, text in GUARDED_MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    guarded = _of(_found(path), "guarded")
    assert "precompile cache refused" in guarded.results
    assert "precompile cache hit" not in guarded.results
    assert guarded.reasons == ["a guard of the saved function fails: settings.scale == 2"]  # whole text: the guard
    assert guarded.place == Place(str(tmp_path / "guarded.py"), 7)
    assert ["valid for the values" in advice for advice in guarded.advice] == [True]


def test_precompiled_functions_that_are_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    need_inductor(path.name)
    path.write_text(PRECOMPILED)
    for run, values in (("A", {"helpers": 1, "moved": ""}), ("B", {"helpers": 2, "moved": "\n"})):
        (tmp_path / run).mkdir()
        for name, text in MODULES.items():
            (tmp_path / run / f"{name}.py").write_text(text.format(values.get(name)))
    found = _found(path)
    assert [each.function for each in found.not_cached] == ["inlined", "moved"], "the other one was not compiled"
    inlined, moved = found.not_cached
    assert "precompile cache refused" in inlined.results
    assert "Source code changes detected for helpers" in "\n".join(inlined.reasons)
    assert "traced function has changed" in "\n".join(inlined.advice)
    assert "precompile cache miss" in moved.results
    part = next(part for part in moved.parts if part.name == "precompile_line")
    assert (part.in_a, part.in_b) == ("2", "3")
    again = _found(path, f"RUN=A {path}", f"RUN=A {path}")
    assert (again.a.numbers.compiles, again.b.numbers.compiles, again.not_cached) == (3, 0, [])
