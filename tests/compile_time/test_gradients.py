"""Gradients of traced tensors in the program's backward pass: they equal eager's, and the program notices nothing."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

from dynamo_dap.debuggee.numerics.gradients import gradient_run as gradients_module
from dynamo_dap.protocol.requests.options import RealValues
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.benchmarks.gradients import Comparison, Looking, compared, eager_gradients, loss_of
from tests.client.environments import need_inductor
from tests.compile_time.backward import backward_breakpoints, every_backward_pass

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
    """A layer of a transformer, with dropout of the attention probabilities."""

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
    """Computes its outputs from each other, and returns a view."""

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
    """Recomputes a part in the backward pass."""

    def forward(self, x: Any) -> Any:
        hidden = self.layer(x)
        part = torch.utils.checkpoint.checkpoint(lambda given: given.tanh().exp(), hidden, use_reentrant=False)
        return part * hidden


def step_of(kind: type[nn.Module], given: Any, backend: str, tolerance: float = 0.0) -> Comparison:
    """Compare a second step of training, which hits the cache, with an eager step."""
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
    assert looking.count == 2, "both backward passes are inspected"
    model.load_state_dict(before)
    torch.manual_seed(1)
    return compared(looking.visits(), eager_gradients(model, {"x": given}, is_here), tolerance)


def is_here(path: str) -> bool:
    return path == __file__


class LookingHere(Looking):
    """Inspects the models of this file."""

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
    """Inductor's kernels round differently, so the gradients differ slightly."""
    need_inductor("gradients")

    class Still(Attention):
        def forward(self, x: Any) -> Any:
            self.training = False
            return super().forward(x)

    found = step_of(Still, TOKENS, "inductor", tolerance=1e-5)
    assert not found.different
    assert found.equal > 10


# -- effects on the program -------------------------------------------------------------------------------------------


class Noted(nn.Module):
    """Has a line to stop at."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        hidden = self.norm(self.layer(x))
        hidden = nn.functional.dropout(hidden, 0.5)
        hidden = hidden * 2  # the line
        return hidden, hidden.exp().mean()


LINE = Noted.forward.__code__.co_firstlineno + 3


def compiled_model(backend: str = "aot_eager") -> tuple[Any, Any]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model = Noted().train()
    return model, torch.compile(model, backend=backend)


def ordinary_training(compiled: Any, given: Any) -> list[Any]:
    hidden, loss = compiled(given)
    (loss + hidden.sum()).backward()
    return [loss, hidden]


def an_output_used_twice_and_changed(compiled: Any, given: Any) -> list[Any]:
    hidden, loss = compiled(given)
    (hidden * 3).sum().backward(retain_graph=True)
    changed = hidden.mul_(2)
    (changed.sum() + loss * hidden.mean()).backward()
    return [loss, changed]


def twice(compiled: Any, given: Any) -> list[Any]:
    """Run two backward passes over the same graph, with hooks of the program that change a gradient."""
    hidden, loss = compiled(given)
    hidden.register_hook(lambda gradient: gradient * 2)
    hidden.retain_grad()
    (hidden.sum() + loss).backward(retain_graph=True)
    (hidden.mean() + loss).backward()
    return [loss, hidden, hidden.grad]


def some_inputs_alone(compiled: Any, given: Any) -> list[Any]:
    hidden, loss = compiled(given)
    return list(torch.autograd.grad(loss + hidden.sum(), [given], retain_graph=True))


def double_backward(compiled: Any, given: Any) -> list[Any]:
    _, loss = compiled(given)
    (first,) = torch.autograd.grad(loss, [given], create_graph=True)
    first.square().sum().backward()
    return [loss, first]


PROGRAMS = [ordinary_training, an_output_used_twice_and_changed, twice, some_inputs_alone]


def outcome(program: Callable[[Any, Any], list[Any]], backend: str) -> list[Any]:
    """Return all comparable results of two steps of a program."""
    model, compiled = compiled_model(backend)
    found: list[Any] = []
    for step in range(2):
        torch.manual_seed(step)
        given = torch.randn(3, 4, requires_grad=True)
        results = program(compiled, given)
        found += [(each.tolist(), each._backward_hooks is None, each._version) for each in results]
        found += [None if each.grad is None else each.grad.tolist() for each in (given, *model.parameters())]
        found += [each.tolist() for each in model.buffers()]
        found.append(torch.rand(1).item())
    return [*found, torch._dynamo.utils.counters["stats"]["unique_graphs"]]


@pytest.mark.parametrize(
    ("program", "backend"),
    [*((program, backend) for program in PROGRAMS for backend in ("eager", "aot_eager")), (double_backward, "eager")],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_nothing_changes(program: Callable[[Any, Any], list[Any]], backend: str) -> None:
    """The thread is held in each backward pass, at a line whose values are opened."""
    opened: list[str] = []

    def look(stop: Any) -> None:
        hidden = stop.variables("Locals")["hidden"].value.children
        shown = {each.name: each.value for each in hidden.named()}
        opened.extend(each.value.text for name in ("value", "grad") for each in shown[name].children.named())
        opened.append(stop.frame.evaluate("__grad__.norm().item()", "watch").text)

    alone = outcome(program, backend)
    with backward_breakpoints(__file__, SourceBreakpoint(line=LINE, mode="backward"), script=look) as host:
        watched = outcome(program, backend)
    assert not host.printed
    assert len(opened) >= 2 * 3, "each step stops"
    assert "Tensor f32[3, 4] cpu" in opened
    for one, other in zip(watched, alone, strict=True):
        assert one == other


def test_a_backward_pass_stops_once_for_each_time_it_comes() -> None:
    norms: list[str] = []
    _, compiled = compiled_model()
    line = SourceBreakpoint(line=LINE, mode="backward")

    def look(stop: Any) -> None:
        norms.append(stop.frame.evaluate("__grad__.sum().item()", "watch").text)

    with backward_breakpoints(__file__, line, script=look):
        hidden, _ = compiled(torch.ones(3, 4))
        hidden.sum().backward(retain_graph=True)
        (hidden * 2).sum().backward()
    assert norms == ["12.0", "24.0"]


def output_gradients_made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that gets an entry for every call whose autograd graph gets a hook."""
    made: list[object] = []
    original = gradients_module.OutputGradients.__init__

    def noted(self: Any, *arguments: Any) -> None:
        made.append(weakref.ref(self))
        original(self, *arguments)

    monkeypatch.setattr(gradients_module.OutputGradients, "__init__", noted)
    return made


def test_other_calls_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No breakpoint has the mode, or the calls do not reach it, or gradients are off."""
    made = output_gradients_made(monkeypatch)
    _, compiled = compiled_model()
    with backward_breakpoints(__file__, SourceBreakpoint(line=LINE)):
        ordinary_training(compiled, torch.ones(3, 4))
    with backward_breakpoints(__file__, SourceBreakpoint(line=LINE - 20, mode="backward")):
        ordinary_training(compiled, torch.ones(3, 4))
    line = SourceBreakpoint(line=LINE, mode="backward")
    with backward_breakpoints(__file__, line), torch.no_grad():
        compiled(torch.ones(3, 4))
    assert not made
    with backward_breakpoints(__file__, line):
        ordinary_training(compiled, torch.ones(3, 4))
    assert len(made) == 1


def test_inputs_are_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are released with the program's autograd graph, or when the breakpoints are removed."""
    made: list[Any] = output_gradients_made(monkeypatch)
    _, compiled = compiled_model()
    line = SourceBreakpoint(line=LINE, mode="backward")
    given = torch.ones(3, 4) * 2
    memory = weakref.ref(given)
    with backward_breakpoints(__file__, line) as host:
        results = ordinary_training(compiled, given)
        del given
        assert memory() is not None, "the backward pass may come again"
        del results
        gc.collect()  # traces contain reference cycles
        assert memory() is None
        assert made[0]() is None
        _, loss = compiled(torch.ones(3, 4))
        assert made[1]() is not None
        host.breakpoints.set_lines(__file__, [], host.options)
        host.engine.update_hooks()
        assert made[1]() is None, "the hook is gone"
        loss.backward()


def test_inputs_that_were_changed_are_said() -> None:
    _, compiled = compiled_model()
    stops: list[Any] = []
    line = SourceBreakpoint(line=LINE, mode="backward")
    with backward_breakpoints(__file__, line, script=lambda stop: stops.append(stop.reason)) as host:
        given = torch.ones(3, 4)
        _, loss = compiled(given)
        given.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    (text,) = host.printed
    assert "nothing stops in the backward pass" in text
    assert "changed in place after the call" in text
    assert not stops


def test_memory_is_bounded() -> None:
    _, compiled = compiled_model()
    numbers: list[str] = []

    def look(stop: Any) -> None:
        numbers.append(stop.stop.text)

    line = SourceBreakpoint(line=LINE, mode="backward")
    with backward_breakpoints(__file__, line, script=look, real_values=RealValues(memory_limit=0.3)) as host:
        losses = [compiled(torch.ones(10_000, 4) * number)[1] for number in range(3)]
        for loss in reversed(losses):
            loss.backward()
    assert len(numbers) == 1
    (text,) = host.printed
    assert "(realValues.memoryLimit)" in text


def test_parameters_do_not_count() -> None:
    class Large(Noted):
        def __init__(self) -> None:
            super().__init__()
            self.large = nn.Parameter(torch.ones(1000, 1000))

        def forward(self, x: Any) -> Any:
            hidden = self.layer(x) * self.large[:3, :4]
            return hidden.mean()

    model = Large()
    compiled = torch.compile(model, backend="aot_eager")
    line = SourceBreakpoint(line=Large.forward.__code__.co_firstlineno + 2, mode="backward")
    reasons: list[str] = []
    options: Any = {"real_values": RealValues(memory_limit=0.1), "script": lambda stop: reasons.append(stop.reason)}
    with backward_breakpoints(__file__, line, **options) as host:
        compiled(torch.ones(3, 4)).backward()
    assert not host.printed
    assert reasons == ["breakpoint"]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_random_numbers_that_are_not_those_of_the_call_are_said(backend: str) -> None:
    need_inductor("gradients")
    _, compiled = compiled_model(backend)
    texts: list[str] = []
    line = SourceBreakpoint(line=LINE, mode="backward")
    with backward_breakpoints(__file__, line, script=lambda stop: texts.append(str(stop.stop.text))):
        ordinary_training(compiled, torch.ones(3, 4))
    (text,) = texts
    assert ("Inductor draws its own numbers" in text) == (backend == "inductor")


def test_compiled_backward_passes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch would compile a hook into the backward pass."""
    made = output_gradients_made(monkeypatch)
    _, compiled = compiled_model()
    line = SourceBreakpoint(line=LINE, mode="backward")
    with torch._dynamo.config.patch(compiled_autograd=True), backward_breakpoints(__file__, line) as host:
        ordinary_training(compiled, torch.ones(3, 4))
    assert not made
    assert [text.rpartition(": ")[2] for text in host.printed] == ["backward passes are compiled (compiled autograd)\n"]
