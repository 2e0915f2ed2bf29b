"""Programs that recompile or break, each with a remedy that the advice must name and that must help.

``main()`` of each returns the result that is compared before and after. The remedy is a setting that the record
suggests, or the edit of a person who follows the advice.
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
    """The text that the remedy replaces, and its replacement."""
    cause: str = ""
    """A part of a title in the report."""
    origin: str = ""
    """The line that the report must name: the break, the call, or the line that sets the value that changed."""


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
        cause="size 0 of weight: 2, 3",
        origin="return [scaled(nn.Parameter(torch.ones(n))",
        advice="torch's own hint",
    ),
    Program(
        "parameter_and_its_update",
        COMPILED + "def updated(X, U):\n    return [x - u.sign() for x, u in zip(X, U)]\n\n\n"
        "def main():\n    found = []\n    for shape in ((6, 4), (4, 6), (3, 3), (6, 6), (5, 6)):\n"
        "        weight = nn.Parameter(torch.ones(shape))\n        with torch.no_grad():\n"
        "            found += updated([weight], [torch.ones(shape)])\n    return found\n",
        PARAMETERS,
        "needs it equal to a size of X[0], a parameter",
        cause="size 0 of U[0]: 6, 4",
        origin="found += updated([weight]",
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
        cause="size 0 of self.weight: 2, 3",
        origin="return [Table(rows)(torch.ones(4))",
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
        cause="self.index: 2, 3",
        origin="return x * self.index",
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
        cause="self.step: 2, 3",
        origin="may be set at: steps_of_a_module_before.py:17  self.step += 1",
    ),
    Program(
        "logged_info",
        COMPILED + "def fn(x):\n    x = x + 1\n    LOGGER.info('shape %s', x.shape)\n    return x * 2\n\n\n"
        "def main():\n    return [fn(torch.ones(3))]\n",
        _ignoring("info"),
        cause="logging.Logger method",
        origin="LOGGER.info(",
    ),
    Program(
        "logged_in_a_helper",
        "def helper(x):\n    LOGGER.warning('called')\n    return x - 1\n\n\n"
        + COMPILED
        + "def fn(x):\n    return helper(x + 1) * 2\n\n\ndef main():\n    return [fn(torch.ones(3))]\n",
        _ignoring("warning"),
        cause="logging.Logger method",
        origin="LOGGER.warning('called')",
    ),
    Program(
        "logged_by_a_module",
        "class Model(nn.Module):\n    def forward(self, x):\n        y = x.sin()\n        LOGGER.debug('%s', 1)\n"
        "        return y.cos()\n\n\n"
        "def main():\n    return [torch.compile(Model(), backend='eager')(torch.ones(3))]\n",
        _ignoring("debug"),
        cause="logging.Logger method",
        origin="LOGGER.debug(",
    ),
    Program(
        "item_as_a_factor",
        COMPILED + "def fn(x):\n    return x * x.sum().item()\n\n\ndef main():\n    return [fn(torch.ones(3))]\n",
        SCALARS,
        cause="Tensor.item()",
        origin="return x * x.sum().item()",
    ),
    Program(
        "item_as_a_value",
        COMPILED + "def fn(x):\n    top = x.max().item()\n    return torch.full((3,), top) + x\n\n\n"
        "def main():\n    return [fn(torch.ones(3))]\n",
        SCALARS,
        cause="Tensor.item()",
        origin="top = x.max().item()",
    ),
    Program(
        "nonzero",
        COMPILED
        + "def fn(x):\n    return torch.nonzero(x + 1).sum()\n\n\ndef main():\n    return [fn(torch.ones(3))]\n",
        SHAPES,
        cause="Dynamic shape operator",
        origin="return torch.nonzero(x + 1).sum()",
    ),
    Program(
        "mask_as_an_index",
        COMPILED + "def fn(x):\n    y = x - 1\n    return y[y > 0].sum()\n\n\n"
        "def main():\n    return [fn(torch.arange(5.0))]\n",
        SHAPES,
        cause="Dynamic shape operator",
        origin="return y[y > 0].sum()",
    ),
    Program(
        "unique_values",
        COMPILED
        + "def fn(x):\n    return torch.unique(x * 2).sum()\n\n\ndef main():\n    return [fn(torch.arange(5.0))]\n",
        SHAPES,
        cause="Dynamic shape operator",
        origin="return torch.unique(x * 2).sum()",
    ),
    Program(
        "size_of_a_batch",
        COMPILED + "def fn(x):\n    return x.sum(0)\n\n\n"
        "def main():\n    found = []\n    for n in (3, 5, 7):\n        x = torch.ones(n, 2)\n"
        "        found.append(fn(x))\n    return found\n",
        advice="torch._dynamo.maybe_mark_dynamic(x, 0)",
        edit=("        found.append", "        torch._dynamo.maybe_mark_dynamic(x, 0)\n        found.append"),
        cause="size 0 of x: 3, 5",
        origin="found.append(fn(x))",
    ),
    Program(
        "number_given",
        COMPILED + "def fn(x, n):\n    return x * n\n\n\n"
        "def main():\n    return [fn(torch.ones(3), n) for n in (3, 5, 7)]\n",
        advice="torch.compile(..., dynamic=True)",
        edit=('backend="eager"', 'backend="eager", dynamic=True'),
        cause="fn: n: 3, 5",
        origin="return [fn(torch.ones(3), n)",
    ),
    Program(
        "fraction_given",
        COMPILED + "def fn(x, factor):\n    return x * factor\n\n\n"
        "def main():\n    return [fn(torch.ones(3), factor) for factor in (0.5, 0.25, 0.125)]\n",
        advice="give it as a tensor",
        edit=("torch.ones(3), factor)", "torch.ones(3), torch.tensor(factor))"),
        cause="factor: 0.5, 0.25",
        origin="return [fn(torch.ones(3), factor)",
    ),
    Program(
        "loop_over_a_number",
        COMPILED + "def fn(x, n):\n    for _ in range(n):\n        x = x + 1\n    return x\n\n\n"
        "def main():\n    return [fn(torch.ones(3), n) for n in (3, 5, 7, 9)]\n",
        advice="needs the number itself",
        edit=("    for _ in range(n):\n        x = x + 1\n    return x", "    return x + n"),
        cause="fn: n: 3, 5, 7, 9",
        origin="for _ in range(n):",
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
        cause="size 0 of x: 3, 5, 7, 9",
        origin="for row in range(x.shape[0]):",
    ),
    Program(
        "loop_over_data",
        COMPILED + "def refine(x, budget):\n    n = budget.max()\n    for _ in range(int(n)):\n        x = x + 1\n"
        "    return x\n\n\ndef main():\n    budgets = ((1, 3), (2, 4), (5, 1))\n"
        "    return [refine(torch.ones(3), torch.tensor(each)) for each in budgets]\n",
        advice="needs the number itself",
        edit=("    for _ in range(int(n)):\n        x = x + 1\n    return x", "    return x + n"),
        cause="intermediate value 1: 3, 4, 5",
        origin="for _ in range(int(n)):",
    ),
    Program(
        "computed_length_compared",
        COMPILED + "def fn(x, seen):\n    keys = torch.cat([seen, x])\n"
        "    return keys.sum(0) if keys.shape[0] == 8 else keys.sum(0)\n\n\n"
        "def main():\n    return [fn(torch.ones(1, 2), torch.ones(n, 2)) for n in (3, 4, 5, 7)]\n",
        advice="the code compares it with this value",
        edit=(" if keys.shape[0] == 8 else keys.sum(0)", ""),
        cause="1 + seen.shape[0]: not 8, 8",
        origin="if keys.shape[0] == 8",
    ),
    Program(
        "growing_cache",
        COMPILED + "def fn(x, cache):\n    return torch.stack([*cache, x]).sum(0)\n\n\n"
        "def main():\n    cache, found = [], []\n    for _ in range(5):\n"
        "        found.append(fn(torch.ones(3), cache))\n        cache.append(torch.ones(3))\n    return found\n",
        advice="a growing cache",
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
        cause="len(cache): 0, 1, 2, 3, 4",
        origin="found.append(fn(torch.ones(3), cache))",
    ),
    Program(
        "other_keywords",
        COMPILED + "def fn(x, **kwargs):\n    for value in kwargs.values():\n        x = x + value\n    return x\n\n\n"
        "def main():\n    return [fn(torch.ones(3), a=torch.ones(3)), "
        "fn(torch.ones(3), a=torch.ones(3), b=torch.zeros(3))]\n",
        advice="always pass all",
        edit=("fn(torch.ones(3), a=torch.ones(3)), ", "fn(torch.ones(3), a=torch.ones(3), b=torch.zeros(3)), "),
        cause="len(kwargs): 1, 2",
        origin="return [fn(torch.ones(3), a=torch.ones(3))",
    ),
    Program(
        "other_dtypes",
        COMPILED + "def fn(x):\n    return (x * 2).float()\n\n\n"
        "def main():\n    return [fn(torch.ones(3)), fn(torch.ones(3).double())]\n",
        advice="each dtype is compiled separately: call it with one",
        edit=(".double()", ""),
        cause="dtype of x: Float, Double",
        origin="return [fn(torch.ones(3)), fn(",
    ),
    Program(
        "sometimes_a_gradient",
        COMPILED + "def fn(x):\n    return x * 2\n\n\n"
        "def main():\n    return [fn(torch.ones(3)), fn(torch.ones(3, requires_grad=True)).detach()]\n",
        advice="always detach() it",
        edit=("requires_grad=True)).detach()", "requires_grad=True).detach())"),
        cause="requires_grad of x: False, True",
        origin="return [fn(torch.ones(3)), fn(",
    ),
    Program(
        "sometimes_none",
        COMPILED + "def fn(x, mask):\n    return x if mask is None else x * mask\n\n\n"
        "def main():\n    return [fn(torch.ones(3), mask) for mask in (torch.ones(3), None)]\n",
        advice="give it a value",
        edit=("mask in (torch.ones(3), None)", "mask in (torch.ones(3), torch.ones(3))"),
        cause="mask: a tensor, None",
        origin="return [fn(torch.ones(3), mask)",
    ),
    Program(
        "graph_break_called",
        COMPILED + "def fn(x):\n    x = x + 1\n    torch._dynamo.graph_break()\n    return x * 2\n\n\n"
        "def main():\n    return [fn(torch.ones(3))]\n",
        advice="Remove the `torch._dynamo.graph_break()` call",
        edit=("    torch._dynamo.graph_break()\n", ""),
        cause="torch._dynamo.graph_break()",
        origin="torch._dynamo.graph_break()",
    ),
    Program(
        "many_variants_wanted",
        COMPILED + "def fn(x, word):\n    return x * len(word)\n\n\n"
        "def main():\n    return [fn(torch.ones(3), 'a' * n) for n in range(1, 12)]\n",
        advice="torch._dynamo.config.recompile_limit = 16",
        edit=("def main():\n", "torch._dynamo.config.recompile_limit = 16\n\n\ndef main():\n"),
        cause="recompile_limit",
        origin="return [fn(torch.ones(3), 'a' * n)",
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
        cause="self.param_groups[0]['lr']: 0.5, 0.25",
        origin="optimizer.param_groups[0]['lr'] *= 0.5",
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
        cause="self.merged: False, True",
        origin="model.merged = merged",
    ),
    Program(
        "asked_for_a_size",
        COMPILED + "def fn(x):\n    return x + 1 if x.shape[0] == 4 else x + 1\n\n\n"
        "def main():\n    return [fn(torch.ones(n)) for n in (3, 4, 5, 6)]\n",
        advice="needs the number itself",
        edit=(" if x.shape[0] == 4 else x + 1", ""),
        cause="size 0 of x: 3, 4, 5",
        origin="if x.shape[0] == 4",
    ),
    Program(
        "keys_in_another_order",
        COMPILED + "def fn(batch):\n    total = 0\n    for value in batch.values():\n        total = total + value\n"
        "    return total\n\n\n"
        "def main():\n    first = {'a': torch.ones(3), 'b': torch.ones(3)}\n"
        "    second = {'b': torch.ones(3), 'a': torch.ones(3)}\n    return [fn(first), fn(second)]\n",
        advice="the same keys in the same order",
        edit=("fn(second)", "fn(dict(sorted(second.items())))"),
        cause="keys of batch: 'a', 'b'",
        origin="return [fn(first), fn(second)]",
    ),
    Program(
        "key_in_some_calls",
        "class Offloaded(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.weights = {}\n\n"
        "    def forward(self, x):\n        weight = self.weights.get('w')\n"
        "        return x + 1 if weight is None else x + weight\n\n\n"
        "def main():\n    model = Offloaded()\n    compiled, found = torch.compile(model, backend='eager'), []\n"
        "    for number in range(3):\n        found.append(compiled(torch.ones(3)))\n"
        "        model.weights['w'] = torch.ones(3)\n    return found\n",
        advice="always pass it",
        edit=("self.weights = {}", "self.weights = {'w': torch.ones(3)}"),
        cause="self.weights['w']: missing, there",
        origin="model.weights['w'] = torch.ones(3)",
    ),
    Program(
        "global_that_changes",
        "MODE = 'zero'\n\n\n" + COMPILED + "def fn(x):\n    return x * len(MODE)\n\n\n"
        "def choose(mode):\n    global MODE\n    MODE = mode\n\n\n"
        "def main():\n    found = []\n    for mode in ('one', 'two', 'six'):\n        choose(mode)\n"
        "        found.append(fn(torch.ones(3)))\n    return found\n",
        advice="take the choice out of the function",
        edit=("x * len(MODE)", "x * 3"),
        cause="MODE: 'one', 'two', 'six'",
        origin="MODE = mode",
    ),
    Program(
        "adapter_of_a_list",
        "class Adapted(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.lora = nn.ModuleDict({name: nn.Identity() for name in 'ab'})\n        self.active = ['a']\n\n"
        "    def set_adapter(self, name):\n        self.active = [name]\n\n"
        "    def forward(self, x):\n        for name in self.active:\n            x = x + self.lora[name](x)\n"
        "        return x\n\n\n"
        "def main():\n    model, found = Adapted(), []\n    compiled = torch.compile(model, backend='eager')\n"
        "    for name in ('a', 'b'):\n        model.set_adapter(name)\n        found.append(compiled(torch.ones(3)))\n"
        "    return found\n",
        advice="each value is compiled separately",
        edit=("('a', 'b')", "('a', 'a')"),
        cause="self.active[0]: 'a', 'b'",
        origin="self.active = [name]",
    ),
    Program(
        "training_and_evaluation",
        "def main():\n    model, found = nn.Sequential(nn.Dropout(0.0)), []\n"
        "    compiled = torch.compile(model, backend='eager')\n    found.append(compiled(torch.ones(3)))\n"
        "    model.eval()\n    found.append(compiled(torch.ones(3)))\n    return found\n",
        advice="in training and in evaluation mode",
        edit=(
            "found.append(compiled(torch.ones(3)))\n    model.eval()\n",
            "model.eval()\n    compiled(torch.ones(3))\n    found.append(compiled(torch.ones(3)))\n",
        ),
        cause="training: True, False",
        origin="model.eval()",
    ),
    Program(
        "grad_mode",
        COMPILED + "def fn(x):\n    return x * 2\n\n\n"
        "def main():\n    x = torch.ones(3)\n    found = [fn(x)]\n    with torch.no_grad():\n"
        "        found.append(fn(x))\n    return found\n",
        advice="with and without gradients",
        edit=("    with torch.no_grad():\n        found", "    found"),
        cause="grad mode",
        origin="with torch.no_grad():",
    ),
    Program(
        "function_of_each_call",
        COMPILED + "def fn(x, change):\n    return change(x)\n\n\n"
        "def main():\n    texts = ('a', 'bb', 'ccc')\n"
        "    return [fn(torch.ones(3), lambda y, text=text: y * len(text)) for text in texts]\n",
        advice="each value is compiled separately",
        edit=("lambda y, text=text: y * len(text)", "lambda y: y) * len(text"),
        cause="change.__defaults__[0]: 'a', 'bb', 'ccc'",
        origin="return [fn(torch.ones(3), lambda",
    ),
    Program(
        "stateful_sampler",
        "class Sampler:\n    def __init__(self):\n        self.temperature = 0.0\n\n"
        "    def set_temperature(self, value):\n        self.temperature = value\n\n\n"
        + COMPILED
        + "def fn(x, sampler):\n    return x * sampler.temperature\n\n\n"
        "def main():\n    sampler, found = Sampler(), []\n    for value in (0.5, 0.25, 0.125):\n"
        "        sampler.set_temperature(value)\n        found.append(fn(torch.ones(3), sampler))\n    return found\n",
        advice="give it as a tensor",
        edit=("self.temperature = value", "self.temperature = torch.tensor(value)"),
        cause="sampler.temperature: 0.5, 0.25",
        origin="self.temperature = value",
    ),
    Program(
        "generation_with_a_growing_cache",
        "class Attention(nn.Module):\n    def forward(self, x, past):\n"
        "        keys = x if past is None else torch.cat([past, x])\n"
        "        return x @ keys.T @ keys, keys\n\n\n"
        "def main():\n    model, cache, found = torch.compile(Attention(), backend='eager'), None, []\n"
        "    for _ in range(5):\n        out, cache = model(torch.ones(1, 4), cache)\n        found.append(out)\n"
        "    return found\n",
        advice="a growing cache",
        edit=(
            "None, []\n    for _ in range(5):\n        out, cache = model(torch.ones(1, 4), cache)",
            (
                "torch.zeros(5, 4), []\n    for number in range(5):\n"
                "        out, _ = model(torch.ones(1, 4), cache)\n        cache[number] = 1.0"
            ),
        ),
        cause="cache",
        origin="out, cache = model(torch.ones(1, 4), cache)",
    ),
    Program(
        "experts_without_rows",
        "SHAPES = torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)\n\n\n"
        + COMPILED
        + "def route(x, kinds):\n    out = torch.zeros_like(x)\n    for number in range(2):\n"
        "        rows = (kinds == number).nonzero().squeeze(-1)\n        if rows.shape[0] == 0:\n            continue\n"
        "        out[rows] = x[rows] * 2\n    return out\n\n\n"
        "def main():\n    with SHAPES:\n        return [route(torch.ones(4, 2), torch.tensor([0, 1, 1, 0]))]\n",
        advice="torch._check(rows.shape[0] == 0)",
        edit=("        if rows.shape[0] == 0:\n            continue\n", "        torch._check(rows.shape[0] != 0)\n"),
        cause="Data-dependent condition: rows.shape[0] == 0",
        origin="if rows.shape[0] == 0:",
    ),
    Program(
        "boxes_that_are_kept",
        "SHAPES = torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)\n\n\n"
        + COMPILED
        + "def detect(boxes):\n    kept = boxes[boxes[:, 0] > 2]\n    if kept.shape[0] == 0:\n"
        "        return boxes.new_zeros(2)\n    return kept.sum(0)\n\n\n"
        "def main():\n    with SHAPES:\n        return [detect(torch.arange(12.0).reshape(6, 2))]\n",
        advice="guard_or_false(kept.shape[0] == 0)",
        edit=(
            "    if kept.shape[0] == 0:",
            "    if torch.fx.experimental.symbolic_shapes.guard_or_false(kept.shape[0] == 0):",
        ),
        cause="Data-dependent condition: kept.shape[0] == 0",
        origin="if kept.shape[0] == 0:",
    ),
    Program(
        "length_of_a_sample",
        "SCALARS = torch._dynamo.config.patch(capture_scalar_outputs=True)\n\n\n"
        + COMPILED
        + "def sample(x):\n    length = (x.cumsum(0) < 7).sum().item()\n    if length >= 6:\n        return x\n"
        "    return x * length\n\n\n"
        "def main():\n    with SCALARS:\n        return [sample(torch.arange(6.0))]\n",
        advice="torch._check(length >= 6)",
        edit=("    if length >= 6:\n        return x\n", "    torch._check(length < 6)\n"),
        cause="Data-dependent condition: length >= 6",
        origin="if length >= 6:",
    ),
    Program(
        "hook_after_the_first_call",
        "HOOKS = torch._dynamo.config.patch(skip_nnmodule_hook_guards=False)\n\n\n"
        "class Layer(nn.Module):\n    def forward(self, x):\n        return x + 1\n\n\n"
        "def main():\n    model, found = nn.Sequential(Layer()), []\n"
        "    compiled = torch.compile(model, backend='eager')\n    with HOOKS:\n        compiled(torch.ones(3))\n"
        "        model[0].register_forward_hook(lambda module, given, out: out * 2)\n"
        "        found.append(compiled(torch.ones(3)))\n    return found\n",
        advice="register all hooks before it",
        edit=("    with HOOKS:\n        compiled(torch.ones(3))\n", "    with HOOKS:\n"),
        cause="_forward_hooks: no hooks",
        origin="model[0].register_forward_hook(",
    ),
    Program(
        "grad_mode_of_a_thread",
        "import threading\n\n\n" + COMPILED + "def fn(x):\n    return x * 2\n\n\n"
        "def main():\n    found = []\n\n    def work():\n        found.append(fn(torch.ones(3)))\n\n"
        "    with torch.no_grad():\n        work()\n        thread = threading.Thread(target=work)\n"
        "        thread.start()\n        thread.join()\n    return found\n",
        advice="no_grad() holds in its own thread",
        edit=("    def work():\n        found", "    def work():\n        with torch.no_grad():\n            found"),
        cause="grad mode",
        origin="with torch.no_grad():",
    ),
    Program(
        "classes_as_arguments",
        COMPILED + "def fn(x, kind):\n    return x * 2 if kind is float else x + 1\n\n\n"
        "def main():\n    return [fn(torch.ones(3), kind) for kind in (int, float, str)]\n",
        advice="each call passes a new object",
        edit=("fn(torch.ones(3), kind)", "fn(torch.ones(3), float if kind is float else int)"),
        cause="kind: <class 'int'>, <class 'float'>",
        origin="return [fn(torch.ones(3), kind)",
    ),
    Program(
        "offloading_hook",
        "class Offloaded(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self._hf_hook = None\n\n    def forward(self, x):\n"
        "        return x + 1 if self._hf_hook is None else x + self._hf_hook\n\n\n"
        "def main():\n    model, found = Offloaded(), []\n    compiled = torch.compile(model, backend='eager')\n"
        "    for _ in range(2):\n        found.append(compiled(torch.ones(3)))\n        model._hf_hook = 1\n"
        "    return found\n",
        advice="choose the state before the first call",
        edit=("self._hf_hook = None", "self._hf_hook = 1"),
        cause="self._hf_hook: None, 1",
        origin="model._hf_hook = 1",
    ),
    Program(
        "parameter_of_another_dtype",
        "class Scaled(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.ones(3))\n\n"
        "    def forward(self, x):\n        return (x * self.weight).detach().float()\n\n\n"
        "def main():\n    model, found = Scaled(), []\n    compiled = torch.compile(model, backend='eager')\n"
        "    for _ in range(2):\n        found.append(compiled(torch.ones(3)))\n        model.double()\n"
        "    return found\n",
        advice="each dtype is compiled separately",
        edit=("Scaled(), []", "Scaled().double(), []"),
        cause="dtype of self.weight: Float, Double",
        origin="may be set at: parameter_of_another_dtype_before.py:24  model.double()",
    ),
    Program(
        "experts_in_a_loop",
        "class Experts(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.weights = nn.ParameterList([torch.eye(2) * n for n in (1.0, 2.0, 3.0)])\n\n"
        "    def forward(self, x, counts):\n        rows = counts.tolist()\n"
        "        parts = torch.split(x, rows)\n"
        "        return torch.cat([part @ weight for part, weight in zip(parts, self.weights)])\n\n\n"
        "def main():\n    model = torch.compile(Experts(), backend='eager')\n"
        "    calls = ((1, 3, 2), (2, 2, 2))\n"
        "    return [model(torch.ones(6, 2), torch.tensor(counts)).detach() for counts in calls]\n",
        SCALARS,
        cause="Data dependent operator",
        origin="rows = counts.tolist()",
    ),
    Program(
        "repeated_by_lengths",
        "def expand(frames, durations):\n    return frames.repeat_interleave(durations, dim=0)\n\n\n"
        + COMPILED
        + "def synthesize(frames, durations):\n    return expand(frames * 2, durations).cumsum(0)\n\n\n"
        "def main():\n    frames = torch.ones(3, 2)\n"
        "    return [synthesize(frames, torch.tensor(each)) for each in ((1, 2, 1), (2, 2, 3))]\n",
        SHAPES,
        cause="Dynamic shape operator",
        origin="return frames.repeat_interleave(durations, dim=0)",
    ),
    Program(
        "last_batch_of_one",
        COMPILED + "def scores(batch):\n    return batch.softmax(1)\n\n\n"
        "def main():\n    data = torch.arange(14.0).reshape(7, 2)\n"
        "    return [scores(batch) for batch in data.split(3)]\n",
        advice="pad them away",
        edit=(
            "    return [scores(batch) for",
            (
                "    pad = nn.functional.pad\n"
                "    return [scores(pad(batch, (0, 0, 0, 3 - len(batch))))[: len(batch)] for"
            ),
        ),
        cause="size 0 of batch: 3, 1",
        origin="return [scores(batch)",
    ),
    Program(
        "wrapper_of_several_modules",
        "def counted(forward):\n    @torch.compile(backend='eager')\n    def wrapper(module, x):\n"
        "        return forward(module, x)\n\n    return wrapper\n\n\n"
        "class Double(nn.Module):\n    @counted\n    def forward(self, x):\n        return x * 2\n\n\n"
        "class Shift(nn.Module):\n    @counted\n    def forward(self, x):\n        return x + 1\n\n\n"
        "def main():\n    return [model(torch.ones(3)) for model in (Double(), Shift())]\n",
        advice="compile these functions instead",
        edit=(
            "    @torch.compile(backend='eager')\n    def wrapper(module, x):\n        return forward(module, x)\n",
            (
                "    compiled = torch.compile(forward, backend='eager')\n\n"
                "    def wrapper(module, x):\n        return compiled(module, x)\n"
            ),
        ),
        cause="forward.__code__",
        origin="return [model(torch.ones(3)) for model in (Double(), Shift())]",
    ),
    Program(
        "inference_mode_and_no_grad",
        COMPILED + "def scaled(x):\n    return x * 2\n\n\n"
        "def validated(n):\n    with torch.inference_mode():\n        return scaled(torch.ones(n)) + 0\n\n\n"
        "def sampled(n):\n    with torch.no_grad():\n        return scaled(torch.ones(n)) + 0\n\n\n"
        "def main():\n    return [step(4) for step in (validated, sampled)]\n",
        advice="inference_mode() makes other tensors than no_grad()",
        edit=("torch.inference_mode()", "torch.no_grad()"),
        cause="kind of x: an inference tensor, an ordinary tensor",
        origin="return scaled(torch.ones(n)) + 0",
    ),
]
