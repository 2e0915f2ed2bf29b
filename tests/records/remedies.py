"""Programs with a known remedy: each recompiles or breaks, the advice names what helps, and that helps when applied.

``main()`` of each returns what is compared before and after. The remedy is a setting that the record suggests, or an
edit of the text by a person who reads the advice.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """\
import logging

import torch
import torch.nn as nn

LOGGER = logging.getLogger("program")
LOGGER.setLevel(logging.CRITICAL)


"""
COMPILED = '@torch.compile(backend="eager")\n'


@dataclass(frozen=True)
class Program:
    """One program and its remedy."""

    name: str
    text: str
    setting: str = ""
    """The setting that the record must suggest."""
    advice: str = ""
    """A part of the advice that the report must give."""
    edit: tuple[str, str] = ("", "")
    """What is replaced, and by what."""


PARAMETERS = "torch._dynamo.config.force_parameter_static_shapes = False"
INTEGERS = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"
SCALARS = "torch._dynamo.config.capture_scalar_outputs = True"
SHAPES = "torch._dynamo.config.capture_dynamic_output_shape_ops = True"


def _ignoring(method: str) -> str:
    return f"torch._dynamo.config.ignore_logging_functions.add(logging.Logger.{method})"


PROGRAMS = [
    Program(
        "parameter_given",
        COMPILED + "def scaled(weight, x):\n    return weight * x\n\n\n"
        "def main():\n    return [scaled(nn.Parameter(torch.ones(n)), torch.ones(1)) for n in range(2, 8)]\n",
        PARAMETERS,
    ),
    Program(
        "parameter_of_modules",
        "class Table(nn.Module):\n"
        "    def __init__(self, rows):\n        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.ones(rows, 4))\n\n"
        f"    {COMPILED}"
        "    def forward(self, x):\n        return self.weight.sum(0) + x\n\n\n"
        "def main():\n    return [Table(rows)(torch.ones(4)) for rows in range(2, 8)]\n",
        PARAMETERS,
        "6 modules share this code",
    ),
    Program(
        "index_of_layers",
        "class Layer(nn.Module):\n"
        "    def __init__(self, index):\n        super().__init__()\n        self.index = index\n\n"
        f"    {COMPILED}"
        "    def forward(self, x):\n        return x * self.index\n\n\n"
        "def main():\n    return [Layer(index)(torch.ones(4)) for index in range(2, 8)]\n",
        INTEGERS,
        "6 modules share this code",
    ),
    Program(
        "steps_of_a_module",
        "class Trainer(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.step = 2\n\n"
        f"    {COMPILED}"
        "    def forward(self, x):\n        self.step += 1\n        return x * self.step\n\n\n"
        "def main():\n    model = Trainer()\n    return [model(torch.ones(4)) for _ in range(6)]\n",
        INTEGERS,
        "its values count up",
    ),
    Program(
        "logged_info",
        COMPILED + "def fn(x):\n    x = x + 1\n    LOGGER.info('shape %s', x.shape)\n    return x * 2\n\n\n"
        "def main():\n    return [fn(torch.ones(3))]\n",
        _ignoring("info"),
    ),
    Program(
        "logged_in_a_helper",
        "def helper(x):\n    LOGGER.warning('called')\n    return x - 1\n\n\n"
        + COMPILED
        + "def fn(x):\n    return helper(x + 1) * 2\n\n\ndef main():\n    return [fn(torch.ones(3))]\n",
        _ignoring("warning"),
    ),
    Program(
        "logged_by_a_module",
        "class Model(nn.Module):\n    def forward(self, x):\n        y = x.sin()\n        LOGGER.debug('%s', 1)\n"
        "        return y.cos()\n\n\n"
        "def main():\n    return [torch.compile(Model(), backend='eager')(torch.ones(3))]\n",
        _ignoring("debug"),
    ),
    Program(
        "item_as_a_factor",
        COMPILED + "def fn(x):\n    return x * x.sum().item()\n\n\ndef main():\n    return [fn(torch.ones(3))]\n",
        SCALARS,
    ),
    Program(
        "item_as_a_value",
        COMPILED + "def fn(x):\n    top = x.max().item()\n    return torch.full((3,), top) + x\n\n\n"
        "def main():\n    return [fn(torch.ones(3))]\n",
        SCALARS,
    ),
    Program(
        "nonzero",
        COMPILED
        + "def fn(x):\n    return torch.nonzero(x + 1).sum()\n\n\ndef main():\n    return [fn(torch.ones(3))]\n",
        SHAPES,
    ),
    Program(
        "mask_as_an_index",
        COMPILED + "def fn(x):\n    y = x - 1\n    return y[y > 0].sum()\n\n\n"
        "def main():\n    return [fn(torch.arange(5.0))]\n",
        SHAPES,
    ),
    Program(
        "unique_values",
        COMPILED
        + "def fn(x):\n    return torch.unique(x * 2).sum()\n\n\ndef main():\n    return [fn(torch.arange(5.0))]\n",
        SHAPES,
    ),
    Program(
        "size_of_a_batch",
        COMPILED + "def fn(x):\n    return x.sum(0)\n\n\n"
        "def main():\n    found = []\n    for n in (3, 5, 7):\n        x = torch.ones(n, 2)\n"
        "        found.append(fn(x))\n    return found\n",
        advice="torch._dynamo.maybe_mark_dynamic(x, 0)",
        edit=("        found.append", "        torch._dynamo.maybe_mark_dynamic(x, 0)\n        found.append"),
    ),
    Program(
        "number_given",
        COMPILED + "def fn(x, n):\n    return x * n\n\n\n"
        "def main():\n    return [fn(torch.ones(3), n) for n in (3, 5, 7)]\n",
        advice="torch.compile(..., dynamic=True)",
        edit=('backend="eager"', 'backend="eager", dynamic=True'),
    ),
    Program(
        "fraction_given",
        COMPILED + "def fn(x, factor):\n    return x * factor\n\n\n"
        "def main():\n    return [fn(torch.ones(3), factor) for factor in (0.5, 0.25, 0.125)]\n",
        advice="give it as a tensor",
        edit=("torch.ones(3), factor)", "torch.ones(3), torch.tensor(factor))"),
    ),
    Program(
        "loop_over_a_number",
        COMPILED + "def fn(x, n):\n    for _ in range(n):\n        x = x + 1\n    return x\n\n\n"
        "def main():\n    return [fn(torch.ones(3), n) for n in (3, 5, 7, 9)]\n",
        advice="needs the number itself",
        edit=("    for _ in range(n):\n        x = x + 1\n    return x", "    return x + n"),
    ),
    Program(
        "loop_over_a_size",
        COMPILED + "def fn(x):\n    total = 0\n    for row in range(x.shape[0]):\n        total = total + x[row]\n"
        "    return total\n\n\ndef main():\n    return [fn(torch.ones(n, 2)) for n in (3, 5, 7, 9)]\n",
        advice="needs the number itself",
        edit=(
            "    total = 0\n    for row in range(x.shape[0]):\n        total = total + x[row]\n    return total",
            "    return x.sum(0)",
        ),
    ),
    Program(
        "growing_cache",
        COMPILED + "def fn(x, cache):\n    return torch.stack([*cache, x]).sum(0)\n\n\n"
        "def main():\n    cache, found = [], []\n    for _ in range(5):\n"
        "        found.append(fn(torch.ones(3), cache))\n        cache.append(torch.ones(3))\n    return found\n",
        advice="a cache that grows",
        edit=(
            (
                "    cache, found = [], []\n    for _ in range(5):\n"
                "        found.append(fn(torch.ones(3), cache))\n        cache.append(torch.ones(3))\n"
            ),
            (
                "    cache, found = [torch.zeros(3) for _ in range(4)], []\n    for number in range(5):\n"
                "        found.append(fn(torch.ones(3), cache))\n"
                "        if number < 4:\n            cache[number] = torch.ones(3)\n"
            ),
        ),
    ),
    Program(
        "other_keywords",
        COMPILED + "def fn(x, **kwargs):\n    for value in kwargs.values():\n        x = x + value\n    return x\n\n\n"
        "def main():\n    return [fn(torch.ones(3), a=torch.ones(3)), "
        "fn(torch.ones(3), a=torch.ones(3), b=torch.zeros(3))]\n",
        advice="give all of them always",
        edit=("fn(torch.ones(3), a=torch.ones(3)), ", "fn(torch.ones(3), a=torch.ones(3), b=torch.zeros(3)), "),
    ),
    Program(
        "other_dtypes",
        COMPILED + "def fn(x):\n    return (x * 2).float()\n\n\n"
        "def main():\n    return [fn(torch.ones(3)), fn(torch.ones(3).double())]\n",
        advice="each dtype is compiled separately: call it with one",
        edit=(".double()", ""),
    ),
    Program(
        "sometimes_a_gradient",
        COMPILED + "def fn(x):\n    return x * 2\n\n\n"
        "def main():\n    return [fn(torch.ones(3)), fn(torch.ones(3, requires_grad=True)).detach()]\n",
        advice="detach() it always",
        edit=("requires_grad=True)).detach()", "requires_grad=True).detach())"),
    ),
    Program(
        "sometimes_none",
        COMPILED + "def fn(x, mask):\n    return x if mask is None else x * mask\n\n\n"
        "def main():\n    return [fn(torch.ones(3), mask) for mask in (torch.ones(3), None)]\n",
        advice="give it a value",
        edit=("mask in (torch.ones(3), None)", "mask in (torch.ones(3), torch.ones(3))"),
    ),
    Program(
        "graph_break_called",
        COMPILED + "def fn(x):\n    x = x + 1\n    torch._dynamo.graph_break()\n    return x * 2\n\n\n"
        "def main():\n    return [fn(torch.ones(3))]\n",
        advice="Remove the `torch._dynamo.graph_break()` call",
        edit=("    torch._dynamo.graph_break()\n", ""),
    ),
    Program(
        "many_variants_wanted",
        COMPILED + "def fn(x, word):\n    return x * len(word)\n\n\n"
        "def main():\n    return [fn(torch.ones(3), 'a' * n) for n in range(1, 12)]\n",
        advice="torch._dynamo.config.recompile_limit = 16",
        edit=("def main():\n", "torch._dynamo.config.recompile_limit = 16\n\n\ndef main():\n"),
    ),
    Program(
        "learning_rate",
        "def main():\n    weight = nn.Parameter(torch.ones(3))\n"
        "    optimizer = torch.optim.SGD([weight], lr=0.5)\n"
        "    step = torch.compile(optimizer.step, backend='eager')\n    found = []\n"
        "    for _ in range(3):\n        weight.grad = torch.ones(3)\n        step()\n"
        "        found.append(weight.detach().clone())\n        optimizer.param_groups[0]['lr'] *= 0.5\n"
        "    return found\n",
        advice="lr=torch.tensor(",
        edit=("lr=0.5)", "lr=torch.tensor(0.5))"),
    ),
    Program(
        "merged_adapter",
        "class Adapted(nn.Module):\n    merged = False\n\n    def forward(self, x):\n"
        "        return x * 2 if self.merged else x + x\n\n\n"
        "def main():\n    model, found = Adapted(), []\n"
        "    compiled = torch.compile(model, backend='eager')\n"
        "    for merged in (False, True):\n        model.merged = merged\n"
        "        found.append(compiled(torch.ones(3)))\n    return found\n",
        advice="choose the state before the first call",
        edit=("(False, True)", "(True, True)"),
    ),
    Program(
        "asked_for_a_size",
        COMPILED + "def fn(x):\n    return x + 1 if x.shape[0] == 4 else x + 1\n\n\n"
        "def main():\n    return [fn(torch.ones(n)) for n in (3, 4, 5, 6)]\n",
        advice="needs the number itself",
        edit=(" if x.shape[0] == 4 else x + 1", ""),
    ),
]
