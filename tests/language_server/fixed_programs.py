"""Programs as users write them, for every kind of fix: training steps, models, losses, samplers, preprocessing.

Each text is a module with ``main()``, whose result is compared before and after the fix. ``REFUSED`` are those
where a fix would change what the program computes, or would not help.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """\
import logging
import math
import sys
import warnings

import torch
import torch._dynamo.config
import torch.nn as nn
import torch.nn.functional as F

logger = logging.getLogger("model")


"""


@dataclass(frozen=True)
class Program:
    """One module."""

    name: str
    kind: str
    """What the title of its fix begins with; of those that are refused, what no title may begin with."""
    text: str


MARK, MOVE, RUN, ASSERT, REMOVE = (
    "Mark size",
    "Move ",
    "Disable compiling ",
    "Add torch._check(",
    "Remove ",
)
SCALARS, SHAPES, LATER = (
    "Set torch._dynamo.config.capture_scalar",
    "Set torch._dynamo.config.capture_dynamic",
    "Let Dynamo",
)

_MARKED = {
    "loss_of_pairs": """
@torch.compile(backend="eager")
def loss(prediction, target, weight=1.0):
    error = (prediction - target) ** 2
    return weight * error.mean()


def main():
    return [loss(torch.ones(n, 2), torch.zeros(n, 2)) for n in ()] + batches()


def batches():
    found = []
    for n in (4, 6, 9):
        prediction = torch.arange(n * 2.0).reshape(n, 2)
        target = torch.ones(n, 2)
        found.append(loss(prediction, target))
    return found
""",
    "classifier_in_eval": """
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, features):
        return self.body(features).softmax(-1)


def main():
    torch.manual_seed(0)
    model = Classifier().eval()
    compiled = torch.compile(model, backend="eager")
    total = []
    for size in (2, 5, 7):
        with torch.no_grad():
            output = compiled(torch.linspace(0, 1, size * 4).reshape(size, 4))
        total.append(output.sum().item())
    return total
""",
    "attention_mask": """
@torch.compile(backend="eager")
def attend(query, key, value, mask=None):
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    return scores.softmax(-1) @ value


def main():
    found = []
    for length in (3, 5, 8):
        sequence = torch.linspace(-1, 1, length * 4).reshape(1, length, 4)
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        found.append(attend(sequence, sequence, sequence, mask=mask))
    return found
""",
    "padding": """
def pad(rows: torch.Tensor, width: int) -> torch.Tensor:
    missing = width - rows.shape[1]
    return F.pad(rows, (0, missing)) * 2


fast_pad = torch.compile(pad, backend="eager")


def main():
    result = []
    for width in (3, 4, 6):
        result.append(fast_pad(torch.ones(2, width), 8))
    return result
""",
    "recurrent_step": """
class Step(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(6, 4)

    @torch.compile(backend="eager")
    def forward(self, x, hidden):
        joined = torch.cat([x, hidden], dim=1)
        return torch.tanh(self.cell(joined))


def main():
    torch.manual_seed(1)
    step, found = Step(), []
    for batch in (2, 3, 5):
        x = torch.ones(batch, 2)
        hidden = torch.zeros(batch, 4)
        hidden = step(x, hidden)
        found.append(hidden.detach())
    return found
""",
    "image_resize": """
@torch.compile(backend="eager")
def normalize(image, mean, std):
    return (image - mean[:, None, None]) / std[:, None, None]


def main():
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1.0, 2.0, 4.0])
    sizes = [(4, 6), (5, 6), (7, 6)]
    results = []
    for height, width in sizes:
        results.append(normalize(torch.ones(3, height, width), mean, std))
    return results
""",
}

_REMOVED = {
    "debugging_left": """
@torch.compile(backend="eager")
def step(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


def main():
    return step(torch.ones(3))
""",
    "only_statement": """
@torch.compile(backend="eager")
def choose(x, flag):
    y = x + 1
    if flag:
        torch._dynamo.graph_break()
    return y * 2


def main():
    return choose(torch.ones(3), True)
""",
    "in_a_module": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        x = x * self.scale
        torch._dynamo.graph_break()  # to see the graph
        return x.relu()


def main():
    return torch.compile(Block(), backend="eager")(torch.ones(3)).detach()
""",
    "in_a_helper": """
def helper(x):
    x = x * 2
    torch._dynamo.graph_break()
    return x + 1


@torch.compile(backend="eager")
def outer(x):
    return helper(x.exp()).sum()


def main():
    return outer(torch.ones(3))
""",
    "last_in_function": """
@torch.compile(backend="eager")
def update(x, out):
    out.append(x * 3)
    torch._dynamo.graph_break()
    return x - 1


def main():
    out = []
    return [update(torch.ones(3), out), *out]
""",
    "with_else": """
@torch.compile(backend="eager")
def branch(x):
    if x.shape[0] > 2:
        y = x * 2
        torch._dynamo.graph_break()
    else:
        y = x
    return y + 1


def main():
    return branch(torch.ones(4))
""",
}

_ASSERTED = {
    "longest": """
@torch.compile(backend="eager")
def longest(lengths):
    n = lengths.max().item()
    if n > 3:
        return lengths * 2
    return lengths + 1


def main():
    return longest(torch.tensor([4, 2])), longest(torch.tensor([9, 2]))
""",
    "never_empty": """
@torch.compile(backend="eager")
def mean_of(x, count):
    n = (x > count).sum().item()
    if n == 0:
        return torch.zeros(1)
    return x.sum(0, keepdim=True) / 2


def main():
    return mean_of(torch.ones(4), torch.tensor(0.5))
""",
    "with_else_branch": """
@torch.compile(backend="eager")
def top(x, k):
    size = (k * 2).sum().item()
    if size < 10:
        y = x * 2
    else:
        y = x * 3
    return y.sum()


def main():
    return top(torch.ones(4), torch.tensor(2))
""",
    "method": """
class Sampler(nn.Module):
    def forward(self, x, steps):
        count = steps.abs().max().item()
        if count >= 1:
            x = x + 1
        return x * 2


def main():
    return torch.compile(Sampler(), backend="eager")(torch.ones(2), torch.tensor(5))
""",
    "difference": """
@torch.compile(backend="eager")
def window(x, first, last):
    a, b = first.max().item(), last.max().item()
    if a > b:
        return x - 1
    return x.exp() + 1


def main():
    return window(torch.zeros(3), torch.tensor(1), torch.tensor(4))
""",
    "nested_in_with": """
@torch.compile(backend="eager")
def masked(x, limit):
    n = limit.sum().item()
    y = x.cos()
    if n != 7:
        y = y * 2
    return y


def main():
    return masked(torch.zeros(3), torch.tensor(1))
""",
}

_SCALARS = {
    "learning_rate": """
@torch.compile(backend="eager")
def scaled(x, rate):
    factor = rate.item()
    return x * factor + 1


def main():
    return scaled(torch.ones(3), torch.tensor(0.5))
""",
    "normalizer": """
@torch.compile(backend="eager")
def normalized(x):
    largest = x.abs().max().item()
    return x / (largest + 1e-6)


def main():
    return normalized(torch.tensor([1.0, -4.0]))
""",
    "float_of": """
@torch.compile(backend="eager")
def shifted(x):
    center = float(x.mean())
    return x - center


def main():
    return shifted(torch.tensor([1.0, 3.0]))
""",
    "running_loss": """
class Meter(nn.Module):
    def __init__(self):
        super().__init__()
        self.total = 0.0

    def forward(self, loss):
        value = loss.detach().item()
        return loss * 2 + value


def main():
    return torch.compile(Meter(), backend="eager")(torch.tensor(2.5))
""",
    "temperature": """
@torch.compile(backend="eager")
def sample(logits, temperature):
    t = temperature.item()
    return (logits / t).softmax(-1)


def main():
    return sample(torch.tensor([1.0, 2.0]), torch.tensor(0.7))
""",
    "clip": """
@torch.compile(backend="eager")
def clipped(grad, maximum):
    limit = maximum.item()
    norm = grad.norm()
    return grad * limit / (norm + 1)


def main():
    return clipped(torch.tensor([3.0, 4.0]), torch.tensor(1.0))
""",
}

_SHAPES = {
    "nonzero": """
@torch.compile(backend="eager")
def indices(x):
    found = x.nonzero()
    return found + 1


def main():
    return indices(torch.tensor([0.0, 2.0, 3.0]))
""",
    "boolean_mask": """
@torch.compile(backend="eager")
def positive(x):
    y = x * 2
    return y[y > 0] + 1


def main():
    return positive(torch.tensor([-1.0, 2.0]))
""",
    "unique": """
@torch.compile(backend="eager")
def labels(x):
    values = torch.unique(x)
    return values * 10


def main():
    return labels(torch.tensor([1, 2, 2]))
""",
    "masked_select": """
@torch.compile(backend="eager")
def valid(loss, mask):
    kept = torch.masked_select(loss, mask)
    return kept.sum() / 2


def main():
    return valid(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True]))
""",
    "where_of_one": """
@torch.compile(backend="eager")
def places(x):
    (rows,) = torch.where(x > 1)
    return rows * 2


def main():
    return places(torch.tensor([1.0, 2.0, 3.0]))
""",
    "argwhere": """
class Find(nn.Module):
    def forward(self, x):
        where = torch.argwhere(x)
        return where.float().sum()


def main():
    return torch.compile(Find(), backend="eager")(torch.tensor([0, 1, 1]))
""",
}

_PRINTED_LATER = {
    "print_loss": """
@torch.compile(backend="eager")
def loss_of(x):
    y = (x ** 2).sum()
    print("loss", y)
    return y * 2


def main():
    return loss_of(torch.ones(3))
""",
    "print_in_module": """
class Layer(nn.Module):
    def forward(self, x):
        h = x.relu()
        print(h)
        return h + 1


def main():
    return torch.compile(Layer(), backend="eager")(torch.tensor([-1.0, 1.0]))
""",
    "print_first": """
@torch.compile(backend="eager")
def shown(x):
    print("in", x)
    return x.exp()


def main():
    return shown(torch.zeros(2))
""",
    "print_of_two": """
@torch.compile(backend="eager")
def attend(query, key):
    scores = query @ key
    weights = scores.softmax(-1)
    print("scores", scores, "weights", weights)
    return weights.sum(0)


def main():
    return attend(torch.eye(2), torch.ones(2, 2))
""",
    "print_twice_called": """
@torch.compile(backend="eager")
def step(x):
    z = x.sin()
    print("z", z)
    return z.cos()


def main():
    return step(torch.zeros(2)), step(torch.ones(2))
""",
    "print_max": """
@torch.compile(backend="eager")
def act(x):
    top = x.max()
    print("max", top)
    return x / top


def main():
    return act(torch.tensor([1.0, 4.0]))
""",
}

_MOVED = {
    "print_sum": """
@torch.compile(backend="eager")
def forward(x, w):
    h = x @ w
    print("hidden", h.sum())
    out = h.relu()
    return out


def main():
    return forward(torch.eye(2), torch.ones(2, 2))
""",
    "print_f_string": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        h = self.fc(x)
        print(f"mean {h.mean()}")
        return torch.sigmoid(h) * 2


def main():
    torch.manual_seed(0)
    return torch.compile(Net(), backend="eager")(torch.ones(1, 2)).detach()
""",
    "write": """
@torch.compile(backend="eager")
def norm(x):
    length = x.norm()
    sys.stdout.write("normed")
    y = x / length
    return y + 1


def main():
    return norm(torch.tensor([3.0, 4.0]))
""",
    "no_return_value": """
@torch.compile(backend="eager")
def store(x, out):
    y = x * 2
    print("stored", y)
    out["y"] = y + 1


def main():
    out = {}
    store(torch.ones(2), out)
    return out["y"]
""",
    "parameter": """
@torch.compile(backend="eager")
def scaled(x, factor):
    y = x * factor
    print("factor", factor, y.max())
    z = y - 1
    return z.abs()


def main():
    return scaled(torch.tensor([1.0, 4.0]), 3)
""",
    "logged": """
@torch.compile(backend="eager")
def step(x):
    y = x.exp()
    logger.warning("value %s", y)
    return y.log() + 1


def main():
    return step(torch.zeros(2))
""",
}

_DISABLED = {
    "helper_with_graphs": """
def report(y):
    z = y * 2
    torch._dynamo.graph_break()
    return z + 1


@torch.compile(backend="eager")
def outer(x):
    return report(x.sin()).cos()


def main():
    return outer(torch.ones(3))
""",
    "static_method": """
class Tool:
    @staticmethod
    def measure(y):
        z = y + 2
        print("measured", z.sum())
        return z * 2


@torch.compile(backend="eager")
def outer(x):
    return Tool.measure(x * 3) - 1


def main():
    return outer(torch.ones(3))
""",
    "property_of_module": """
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    @property
    def scale(self):
        value = self.weight * 2
        print("scale", value.sum())
        return value + 1

    def forward(self, x):
        return (x + 1) * self.scale


def main():
    return torch.compile(Scaled(), backend="eager")(torch.ones(3)).detach()
""",
    "class_method": """
class Registry:
    factor = 3

    @classmethod
    def apply(cls, y):
        z = y * cls.factor
        torch._dynamo.graph_break()
        return z - 1


@torch.compile(backend="eager")
def outer(x):
    return Registry.apply(x + 1) * 2


def main():
    return outer(torch.ones(3))
""",
    "submodule": """
class Noisy(nn.Module):
    def forward(self, x):
        y = x.relu()
        print(y.mean())
        return y * 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.noisy = Noisy()

    def forward(self, x):
        return self.noisy(self.first(x)).sum()


def main():
    torch.manual_seed(0)
    return torch.compile(Model(), backend="eager")(torch.ones(1, 2)).detach()
""",
    "two_breaks": """
def verbose(x):
    print("before", x)
    y = x * 2
    torch._dynamo.graph_break()
    z = y + 1
    print("after", z)
    return z


@torch.compile(backend="eager")
def outer(x):
    y = verbose(x + 1)
    return y - 1


def main():
    return outer(torch.ones(3))
""",
}

_ALL = {
    MARK: _MARKED,
    REMOVE: _REMOVED,
    ASSERT: _ASSERTED,
    SCALARS: _SCALARS,
    SHAPES: _SHAPES,
    LATER: _PRINTED_LATER,
    MOVE: _MOVED,
    RUN: _DISABLED,
}
PROGRAMS = [Program(name, kind, HEAD + text) for kind, texts in _ALL.items() for name, text in texts.items()]

_REFUSED = {
    "backward_in_training": (
        MOVE,
        """
@torch.compile(backend="eager")
def train(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss


def main():
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return [train(model, optimizer, torch.ones(2, 2)).item() for _ in range(2)]
""",
    ),
    "printed_before_it_changes": (
        MOVE,
        """
@torch.compile(backend="eager")
def fn(x):
    y = x + 1
    print(y)
    y.mul_(2)
    return y + 1


def main():
    return fn(torch.ones(3))
""",
    ),
    "printed_before_its_view_changes": (
        MOVE,
        """
@torch.compile(backend="eager")
def fn(x):
    y = x + 1
    z = y.view(-1)
    print(y)
    z += 1
    return z * 2


def main():
    return fn(torch.ones(3))
""",
    ),
    "list_that_grows": (
        MOVE,
        """
def grow(items, x):
    items.append(x)
    return x * 2


@torch.compile(backend="eager")
def fn(x, items):
    y = x + 1
    print(items, y)
    return grow(items, y)


def main():
    return fn(torch.ones(3), [])
""",
    ),
    "attribute_that_counts": (
        MOVE,
        """
class Net(nn.Module):
    count = 0

    def forward(self, x):
        y = x + 1
        print(self.count, y)
        self.count += 1
        return y * 2


def main():
    return torch.compile(Net(), backend="eager")(torch.ones(2))
""",
    ),
    "print_of_the_users": (
        MOVE,
        """
seen = []


def print(value):
    torch._dynamo.graph_break()
    seen.append(len(seen))


@torch.compile(backend="eager")
def fn(x):
    y = x + 1
    print(y)
    return y * len(seen)


def main():
    return fn(torch.ones(3))
""",
    ),
    "nothing_below": (
        MOVE,
        """
@torch.compile(backend="eager")
def fn(x):
    y = x + 1
    print(y)
    return y


def main():
    return fn(torch.ones(3))
""",
    ),
    "size_that_is_specialized": (
        MARK,
        """
@torch.compile(backend="eager")
def fn(x):
    if x.shape[0] == 5:
        return x + 1
    return x * 2


def main():
    found = []
    for n in (3, 5, 6):
        rows = torch.ones(n, 2)
        found.append(fn(rows))
    return found
""",
    ),
    "size_tied_to_a_buffer": (
        MARK,
        """
class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = torch.ones(3, 2)

    def forward(self, x):
        return x + self.rows


def main():
    table = Table()
    compiled = torch.compile(table, backend="eager")
    found = []
    for n in (3, 4):
        table.rows = torch.ones(n, 2)
        rows = torch.ones(n, 2)
        found.append(compiled(rows))
    return found
""",
    ),
    "call_in_a_comprehension": (
        MARK,
        """
@torch.compile(backend="eager")
def fn(x):
    return x * 2


def main():
    return [fn(torch.ones(n, 2)) for n in (3, 4)]
""",
    ),
    "branch_that_goes_both_ways": (
        ASSERT,
        """
@torch.compile(backend="eager")
def fn(x):
    n = x.max().item()
    if n > 3:
        return x * 2
    return x + 1


def main():
    return fn(torch.tensor([4, 2])), fn(torch.tensor([1, 2]))
""",
    ),
    "helper_without_graphs": (
        RUN,
        """
def note(value):
    print("note", value)


@torch.compile(backend="eager")
def fn(x):
    y = x + 1
    note(y)
    return y * 2


def main():
    return fn(torch.ones(3))
""",
    ),
    "scalar_that_is_branched_on": (
        SCALARS,
        """
@torch.compile(backend="eager")
def fn(x):
    n = x.sum().item()
    if n > 2:
        return x * 2
    return x + 1


def main():
    return fn(torch.ones(3))
""",
    ),
    "printed_in_a_helper": (
        LATER,
        """
def show(x):
    y = x + 1
    print(y)
    return y


@torch.compile(backend="eager")
def outer(x):
    return show(x * 2) * 3


def main():
    return outer(torch.ones(2))
""",
    ),
    "printed_by_a_submodule": (
        LATER,
        """
class Noisy(nn.Module):
    def forward(self, x):
        y = x.relu()
        print("mean", y.mean())
        return y * 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.noisy = Noisy()

    def forward(self, x):
        return self.noisy(x + 1).sum()


def main():
    return torch.compile(Model(), backend="eager")(torch.ones(2))
""",
    ),
    "printed_sizes": (
        LATER,
        """
@torch.compile(backend="eager")
def fn(x):
    y = x + 1
    print("hidden", y.shape)
    return y * 2


def main():
    return fn(torch.ones(3))
""",
    ),
    "printed_later_than_it_changes": (
        LATER,
        """
@torch.compile(backend="eager")
def fn(x):
    y = x + 1
    print(y)
    y.add_(1)
    return y * 2


def main():
    return fn(torch.ones(3))
""",
    ),
}
REFUSED = [Program(name, kind, HEAD + text) for name, (kind, text) in _REFUSED.items()]
