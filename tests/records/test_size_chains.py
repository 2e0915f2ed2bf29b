"""The chain of reasons of each size in realistic programs: an encoder with a mask, a head with a marked batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import SUFFIX
from dynamo_dap.records.model import Compile, Size
from tests.client.environments import python_option
from tests.client.fixtures import Fixture
from tests.records.test_sizes import _command as command

pytestmark = pytest.mark.timeout(300)

ENCODER = """\
import torch


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.scale = torch.ones(4)

    def forward(self, tokens, mask):
        out = self.layer(tokens) * self.scale
        out = out * mask  #@masked
        if tokens.shape[1] > 4:  #@long
            out = out[:, 1:]
        return out.sum(1)  #@pooled


@torch.compile(backend="eager")
def head(logits):
    return logits.softmax(1)


@torch.compile(backend="eager", dynamic=False)
def loss(scores):
    return scores.sum()


@torch.compile(backend="eager")
def updated(weight, gradient):
    return weight - gradient


torch.manual_seed(0)
encoder = torch.compile(Encoder(), backend="eager")
for length in (5, 7, 9):
    pooled = encoder(torch.ones(2, length, 4), torch.ones(2, length, 1))
    print(pooled.shape)
logits = torch.ones(3, 4)
torch._dynamo.decorators.mark_unbacked(logits, 0)
print(loss(head(logits)).item())
with torch._dynamo.config.patch(force_parameter_static_shapes=False), torch.no_grad():
    for size in (3, 5):
        print(updated(torch.nn.Parameter(torch.ones(size)), torch.ones(size)).sum().item())
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record the program and return its path."""
    path = tmp_path_factory.mktemp("chains") / "encoder.py"
    path.write_text(ENCODER, encoding="utf-8")
    command(path, "run", *python_option(path), path.name)
    return path


@pytest.fixture(scope="module")
def compiles(program: Path) -> list[Compile]:
    """Return the compiles of the program."""
    (path,) = (program.parent / "records").rglob(f"*{SUFFIX}")
    return [compiled for _, compiled in read_record(path).compiles()]


def _size(compiles: list[Compile], function: str, source: str) -> Size:
    """Return a size in the last compile of a function."""
    last = next(each for each in reversed(compiles) if each.name == function)
    return next(size for size in last.sizes if size.source == source)


def _kinds(compiles: list[Compile], function: str, source: str) -> tuple[str, list[str]]:
    size = _size(compiles, function, source)
    return size.state, [reason.kind for reason in size.reasons]


def test_an_encoder_names_its_chain(compiles: list[Compile], program: Path) -> None:
    state, kinds = _kinds(compiles, "Encoder.forward", "tokens.shape[1]")
    assert state == "dynamic"
    assert kinds[0] == "automatic dynamic"
    assert {"condition", "equal size"} <= set(kinds)
    reasons = _size(compiles, "Encoder.forward", "tokens.shape[1]").reasons
    assert "was 5" in reasons[0].text
    lines = Fixture(program)
    by_line = {reason.place.line: reason.text for reason in reasons if reason.place is not None}
    assert by_line[lines.line("long")] == "tokens.shape[1] > 4"
    assert "mask.shape[1]" in by_line[lines.line("masked")]
    asked = [reason.text for reason in reasons if "asked by torch/" in reason.text]
    assert asked, "the operation's own code in torch"
    assert _kinds(compiles, "Encoder.forward", "tokens.shape[0]") == ("static", ["first call"])
    last = next(each for each in reversed(compiles) if each.name == "Encoder.forward")
    modules = [size.reasons[0].text for size in last.sizes if "sizes of" in size.source]
    assert any("force_nn_module_property_static_shapes" in text for text in modules), modules


def test_marks_and_settings_name_themselves(compiles: list[Compile]) -> None:
    assert "mark_unbacked" in _size(compiles, "head", "logits.shape[0]").reasons[0].text
    assert _size(compiles, "head", "logits.shape[0]").state == "dynamic"
    assert _kinds(compiles, "loss", "scores.shape[0]") == ("static", ["setting"])
    assert "dynamic=False" in _size(compiles, "loss", "scores.shape[0]").reasons[0].text
    state, kinds = _kinds(compiles, "updated", "weight.shape[0]")
    assert (state, kinds[0]) == ("dynamic", "automatic dynamic"), "parameters may vary with this setting"


def test_the_prompt_shows_the_chain_of_a_computed_size(program: Path) -> None:
    lines = Fixture(program)
    typed = f"b encoder.py:{lines.line('pooled')}\nc\nc\nwhy out.shape[1]\nwhy tokens\nq\ny\n"
    shown = command(program, "debug", program.name, typed=typed)
    chain, whole = shown.split("(dynamo) why out.shape[1]")[1].split("(dynamo) why tokens")
    assert "computed from tokens.shape[1] = s" in chain
    assert f"tokens.shape[1] > 4, at encoder.py:{lines.line('long')}" in chain
    assert "shape[0] = 2 static" in whole
