"""Gradients of traced tensors, in the program's backward pass: those of eager code, and nothing of it is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

from tests.benchmarks.gradients import Comparison, Looking, compared, eager_gradients, loss_of
from tests.client.environments import need_inductor
from tests.compile_time.backward import every_backward_pass

pytestmark = pytest.mark.timeout(300)


class Images(nn.Module):
    """A convolutional net with running statistics and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(64, 3)

    def block(self, hidden: Any) -> Any:
        around = hidden
        hidden = self.norm(hidden).relu()
        hidden = hidden + around
        return self.drop(hidden)

    def forward(self, x: Any) -> Any:
        hidden = self.first(x)
        for _ in range(2):
            hidden = self.block(hidden)
        values, places = nn.functional.max_pool2d(hidden, 2, return_indices=True)
        flat = values.flatten(1)
        result = self.last(flat)
        return result * (places.sum() > 0)


class Attention(nn.Module):
    """A layer of a transformer, its probabilities dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(10, 8)
        self.inner = nn.Linear(8, 24)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Any) -> Any:
        hidden = self.tokens(x)
        query, key, value = self.inner(hidden).chunk(3, -1)
        scores = query @ key.transpose(-1, -2) / 8**0.5
        scores = scores.masked_fill(torch.ones(5, 5).tril() == 0, float("-inf"))
        weights = nn.functional.dropout(scores.softmax(-1), 0.3, self.training)
        mixed = weights @ value
        hidden = self.norm(hidden + mixed)
        return hidden @ self.tokens.weight.T


class ManyOutputs(nn.Module):
    """Its outputs are computed from each other, and one is a view."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        hidden = self.layer(x)
        squashed = hidden.tanh()
        loss = (squashed * 3).sum()
        return {"loss": loss, "squashed": squashed, "hidden": hidden.sigmoid()}


class View(ManyOutputs):
    """Returns a tensor and a view of it."""

    def forward(self, x: Any) -> Any:
        hidden = self.layer(x).tanh()
        flat = hidden.view(-1)
        return {"hidden": hidden, "flat": flat}


class InPlace(ManyOutputs):
    """Writes to its own tensors, and computes without gradients in between."""

    def forward(self, x: Any) -> Any:
        hidden = self.layer(x)
        scaled = hidden * 2
        scaled += 1
        kept = scaled[:, :2]
        kept.mul_(3)
        with torch.no_grad():
            largest = scaled.max()
        return scaled / largest


class Checkpointed(ManyOutputs):
    """Computes a part again in the backward pass."""

    def forward(self, x: Any) -> Any:
        hidden = self.layer(x)
        part = torch.utils.checkpoint.checkpoint(lambda given: given.tanh().exp(), hidden, use_reentrant=False)
        return part * hidden


def step_of(kind: type[nn.Module], given: Any, backend: str, tolerance: float = 0.0) -> Comparison:
    """Compare a second step of training, which the cache serves, with an eager one."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = kind().train()
    with every_backward_pass(LookingHere) as looking, looking.noting():
        compiled = torch.compile(model, backend=backend)
        for _ in range(2):
            looking.by_call = {}
            before = {name: value.clone() for name, value in model.state_dict().items()}
            torch.manual_seed(1)
            loss_of(compiled(given)).backward()
    assert looking.count == 2, "both backward passes are looked at"
    model.load_state_dict(before)
    torch.manual_seed(1)
    return compared(looking.visits(), eager_gradients(model, {"x": given}, is_here), tolerance)


def is_here(path: str) -> bool:
    return path == __file__


class LookingHere(Looking):
    """Looks at the models of this file."""

    wanted: Callable[[str], bool] = staticmethod(is_here)


IMAGES = torch.linspace(-2, 2, 128).reshape(2, 1, 8, 8).sin()
ROWS = torch.linspace(-2, 2, 12).reshape(3, 4).cos()
TOKENS = torch.tensor([[1, 2, 3, 4, 0], [5, 5, 6, 7, 1]])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (Images, IMAGES),
        (Attention, TOKENS),
        (ManyOutputs, ROWS),
        (View, ROWS),
        (InPlace, ROWS),
        (Checkpointed, ROWS),
    ],
    ids=["images", "attention", "outputs", "view", "in place", "checkpoint"],
)
def test_gradients_are_those_of_eager_code(kind: type[nn.Module], given: Any, backend: str) -> None:
    found = step_of(kind, given, backend)
    assert not found.different
    assert found.lines == found.hit
    assert found.equal >= found.lines > 0


def test_gradients_with_inductor() -> None:
    """Its kernels round in other ways: so do the gradients that arrive."""
    need_inductor("gradients")

    class Still(Attention):
        def forward(self, x: Any) -> Any:
            self.training = False
            return super().forward(x)

    found = step_of(Still, TOKENS, "inductor", tolerance=1e-5)
    assert not found.different
    assert found.equal > 10
