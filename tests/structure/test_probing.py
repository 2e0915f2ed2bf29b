"""Probing torch's files finds the same missing names as importing torch."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dynamo_dap.debuggee.torch_api import features, objects
from tests.matrix.probe_sources import Answer, Lookup, Sources, attributes, differing_signatures, lookups, needs


@pytest.fixture(scope="module")
def installed() -> Path:
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    needs()  # imports every module, whose features have the signatures
    return Path(found.origin).parents[1]


DEFINED_TWICE = {
    "torch._dynamo.variables.misc:ComptimeVariable.call_function",
    "torch._dynamo.output_graph:SubgraphTracer.create_node",
    "torch._inductor.codegen.cpp:CppScheduling.codegen_node",
}
"""Names that are found in a base class if the class lacks them, as with an imported torch."""


def test_every_name_of_an_installed_torch_is_found_in_its_files(installed: Path) -> None:
    lookup = Lookup(Sources(installed))
    wanted = {**needs(), **attributes(), **lookups()}
    assert {need: answer for need in wanted if (answer := lookup.find(need)) is not Answer.FOUND} == {}


def test_tensors_have_the_attributes_that_are_described() -> None:
    """These attributes are public, so an imported torch is checked instead of its files."""
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(2, requires_grad=True) * 2
    described = {objects.Tensor: tensor, objects.GradientNode: tensor.grad_fn}
    for kind, one in described.items():
        names = kind.__annotations__.keys() - {"__tensor_flatten__"}  # only subclasses that wrap tensors have it
        assert len(names) > 3
        assert [name for name in names if not hasattr(type(one), name)] == []


MOVED = [
    ("symbolic_convert", "torch._dynamo.symbolic_convert:InstructionTranslatorBase.symbolic_locals"),
    ("config", "torch._dynamo.config:suppress_errors"),
]


@pytest.mark.parametrize(("module", "need"), MOVED)
def test_a_name_without_a_feature_is_reported_when_it_has_moved(installed: Path, module: str, need: str) -> None:
    assert need in {**attributes(), **lookups()}
    file, name = f"torch/_dynamo/{module}.py", re.split("[:.]", need)[-1]
    changed = re.sub(rf"\b{name}\b", "moved_away", Sources(installed).text(file) or "")
    assert Lookup(Sources(installed, {file: changed})).find(need) is Answer.MISSING


def test_every_name_that_its_files_have_no_more_is_reported(installed: Path) -> None:
    sources = Sources(installed)
    not_reported, tried = [], 0
    for need in needs().keys() - DEFINED_TWICE:
        module, _, path = need.partition(":")
        stem, name = module.replace(".", "/"), re.escape(path.rpartition(".")[2])
        for file in (f"{stem}.py", f"{stem}/__init__.py"):
            text = sources.text(file)
            if text is not None and re.search(rf"\b{name}\b", text):
                changed = re.sub(rf"\b{name}\b", "moved_away", text)
                tried += 1
                if Lookup(Sources(installed, {file: changed})).find(need) is not Answer.MISSING:
                    not_reported.append(need)
    assert not not_reported
    assert tried > 100


def test_signatures_are_those_that_hooks_rely_on(installed: Path) -> None:
    lookup = Lookup(Sources(installed))
    assert differing_signatures(lookup) == {}
    assert {need for need in features.signatures() if lookup.parameters(need) is None} == set()
    assert len(features.signatures()) >= 8


def test_a_changed_signature_is_reported_from_the_files_and_when_it_runs(installed: Path) -> None:
    need = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.starts_line"
    file = "torch/_dynamo/symbolic_convert.py"
    changed = (Sources(installed).text(file) or "").replace("def starts_line(self, ", "def starts_line(self, thread, ")
    assert differing_signatures(Lookup(Sources(installed, {file: changed}))) == {need: ("self", "thread", "lineno")}
    right = features.Feature("a feature", need, signatures={need: ("self", "lineno")})
    wrong = features.Feature("a feature", need, signatures={need: ("self", "thread")})
    try:
        assert right.problem is None
        assert wrong.problem is not None
        assert "with other arguments" in wrong.problem
    finally:
        features._features.remove(right)
        features._features.remove(wrong)


def test_a_wheel_is_probed_as_it_is(installed: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "torch-99-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("torch/__init__.py", "")
        for file in ("_dynamo/comptime.py", "_dynamo/__init__.py"):
            archive.write(installed / "torch" / file, f"torch/{file}")
    command = [sys.executable, "-m", "tests.matrix.probe_sources"]
    reported = subprocess.run([*command, str(wheel)], capture_output=True, text=True, timeout=120, check=False)
    assert reported.returncode == 1, reported.stderr
    assert "no torch._dynamo.comptime.ComptimeContext" not in reported.stdout
    assert "no torch._guards.CompileContext: " in reported.stdout
    assert "is off" in reported.stdout
    reported = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False)
    assert reported.returncode == 2
    assert "neither a wheel of torch nor" in reported.stderr
