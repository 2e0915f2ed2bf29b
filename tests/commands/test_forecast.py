"""A forecast is what torch does: each size is asked of torch itself, in the same program, by 200 random calls."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dynamo_dap.debuggee.launch.forecasts.warm_ups import RealCalls, find_warm_up
from tests.client.environments import alone, python_option
from tests.client.timeline import DEADLINE

pytestmark = pytest.mark.timeout(300)

PROGRAM = """\
import json
import math
import random
import sys

import torch
import torch.nn.functional as F
from torch import nn


@torch.compile(backend="eager")
def scaled(x, w, scale=2):
    return (x @ w).relu() * scale


@torch.compile(backend="eager")
def even(x):
    return x[::2] if x.shape[0] % 2 == 0 else x


@torch.compile(backend="eager")
def grouped(x):
    return x.view(-1, 4).sum(1) if x.shape[0] % 4 == 0 else x.sum()


@torch.compile(backend="eager")
def unrolled(x):
    for number in range(x.shape[0]):
        x = x + number
    return x


@torch.compile(backend="eager")
def paired(x, y):
    return x * y


@torch.compile(backend="eager", dynamic=False)
def fixed(x):
    return x.cos()


@torch.compile(backend="eager")
def in_a_dict(batch):
    return batch["x"] + batch["mask"]


@torch.compile(backend="eager")
def marked(x):
    return x.sin() * x.shape[0]


class Layer:
    def __init__(self, n):
        self.keys, self.values = torch.ones(n, 4), torch.ones(n, 4)


class Cache:
    def __init__(self, n):
        self.layers = [Layer(n), Layer(n)]


@torch.compile(backend="eager")
def decoded(x, **inputs):
    for layer in inputs.pop("cache").layers:
        layer.keys, layer.values = torch.cat([layer.keys, x]), torch.cat([layer.values, x])
        x = (x @ layer.keys.T).softmax(-1) @ layer.values
    return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.layer(x).mean(1)


model = torch.compile(Model(), backend="eager")


def inputs(name, n):
    if name == "scaled":
        return torch.ones(n, 4), torch.ones(4, 3)
    if name == "decoded":
        return torch.ones(1, 4), Cache(n)
    if name == "paired":
        return torch.ones(3, n), torch.ones(3, n)
    if name == "in_a_dict":
        return ({"x": torch.ones(n, 2), "mask": torch.ones(n, 2)},)
    if name == "model":
        return (torch.ones(2, n, 8),)
    if name == "marked":
        x = torch.ones(n)
        torch._dynamo.mark_dynamic(x, 0, min=4, max=64)
        return (x,)
    return (torch.ones(n),)


SIZES = {"scaled": (3, 5), "even": (4, 6, 7), "grouped": (8, 12, 5), "unrolled": (3, 5), "paired": (2, 7),
         "fixed": (3, 5, 9), "in_a_dict": (4, 6), "marked": (8, 20), "decoded": (4, 5, 6), "model": (5, 9)}


def call(name, args):
    return decoded(args[0], cache=args[1]) if name == "decoded" else globals()[name](*args)


for name, sizes in SIZES.items():
    for n in sizes:
        if name == "model":
            call(name, inputs(name, n)).sum().backward()
        else:
            with torch.no_grad():
                call(name, inputs(name, n))
print("served so far", sum(map(len, SIZES.values())))

if len(sys.argv) > 1:
    answers = {}
    rng = random.Random(0)
    for name in SIZES:
        answers[name] = {}
        for n in (rng.randint(0, 70) for _ in range(200)):
            if name == "marked" and not 4 <= n <= 64:
                continue
            args = inputs(name, n)
            try:
                with torch.compiler.set_stance("fail_on_recompile"), torch.set_grad_enabled(name == "model"):
                    call(name, args)
                answers[name][n] = True
            except RuntimeError as error:
                if "fail_on_recompile" not in str(error):
                    raise
                answers[name][n] = False
    with open(sys.argv[1], "w") as file:
        json.dump(answers, file)
"""


EXPRESSIONS = {
    "summed": "x.sum(0)",
    "gram": "x.T @ x",
    "attention": "(x @ x.T).softmax(-1) @ x",
    "causal": "(torch.ones(x.shape[0], x.shape[0]).tril() * (x @ x.T)) @ x",
    "positions": "x + torch.arange(x.shape[0])[:, None]",
    "normalized": "F.layer_norm(x, (4,))",
    "embedded": "F.embedding(x[:, 0].long(), torch.ones(5, 3))",
    "padded": "F.pad(x, (0, 0, 0, 8 - x.shape[0] % 8))",
    "halved": "x[: x.shape[0] // 2] + 1",
    "in_chunks": "torch.cat(x.chunk(2)) + 1",
    "first_part": "x.split(4)[0] + 1",
    "above": "x * 2 if x.shape[0] > 16 else x * 3",
    "between": "x * 2 if 8 < x.shape[0] <= 32 else x + 1",
    "equal": "x - 1 if x.shape[0] == 10 else x + 1",
    "unequal": "x * 2 if x.shape[0] != 8 else x - 1",
    "in_threes": "x.view(-1, 3, 4).sum(1) if x.shape[0] % 3 == 0 else x + 1",
    "in_pairs": "x.view(x.shape[0] * 2, 2) + 1",
    "flat": "x.flatten() + 1",
    "expanded": "x[None].expand(2, -1, -1).sum(0)",
    "repeated": "x.repeat(2, 1) + 1",
    "averaged": "x / x.shape[0]",
    "rooted": "x / math.sqrt(x.shape[0])",
    "pooled": "F.max_pool1d(x.T[None], 2) + 1",
    "convolved": "F.conv1d(x.T[None], torch.ones(1, 4, 3), padding=1)",
    "stacked": "torch.stack(list(x)) + 1",
    "a_long_product": "x * (x.shape[0] * (x.shape[0] + 1) // 2)",
}
"""Functions of an ``x`` of n rows and 4 columns."""


def _of_expressions() -> str:
    """Return the program with these functions instead of its own, each compiled for three sizes."""
    begin, rest = PROGRAM.split("@torch.compile", 1)
    functions = [
        f'@torch.compile(backend="eager")\ndef {name}(x):\n    return {text}\n' for name, text in EXPRESSIONS.items()
    ]
    sizes = dict.fromkeys(EXPRESSIONS, (9, 12, 21))
    inputs = "def inputs(name, n):\n    return (torch.ones(n, 4),)\n\n\n"
    inputs += "def call(name, args):\n    return globals()[name](*args)\n"
    loop = rest[rest.index("for name, sizes in SIZES.items():") :]
    return "\n\n".join([begin.rstrip() + "\n", *functions, inputs, f"SIZES = {sizes!r}\n{loop}"])


def _forecast(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dynamo_dap", "forecast", *python_option(program), *arguments],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        cwd=program.parent,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def _served(size: dict[str, Any]) -> dict[int, bool]:
    return {n: one.get("entry") is not None for one in size["served"] for n in range(one["first"], one["last"] + 1)}


@pytest.mark.parametrize("text", [PROGRAM, _of_expressions()], ids=["functions", "expressions"])
def test_each_size_is_served_as_torch_serves_it(tmp_path: Path, text: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(text, encoding="utf-8")
    # A second run would replace the answers.
    asked_for = ["--json", "--no-verify", "--range", "0:70", program.name, str(tmp_path / "answers.json")]
    ran = _forecast(program, *asked_for)
    assert ran.returncode == 0, ran.stderr
    answers = json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))
    functions = {
        one["name"].partition(".")[0].lower(): one for one in json.loads(ran.stdout.splitlines()[-1])["functions"]
    }
    wrong = []
    for name, asked in answers.items():
        (size,) = functions[name]["sizes"]
        served = _served(size)
        assert set(asked.values()) == {True, False} or name == "marked", f"{name}: {asked} shows nothing"
        wrong += [(name, n, answer) for n, answer in asked.items() if served[int(n)] != answer]
    assert wrong == []


def _has_dynamic_shapes() -> bool:
    return "dynamic_shapes" in inspect.signature(torch.compile).parameters


def test_a_list_of_sizes_and_a_mark_are_tried(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    asked = ["--json", "--function", "scaled", "--vary", "x.shape[0]=1:40", "--calls", "6,7,1"]
    ran = _forecast(program, *asked, program.name)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("served so far") + ran.stdout.count("served so far") == 1, "trials print nothing"
    body = json.loads(ran.stdout.splitlines()[-1])
    (function,) = body["functions"]
    assert "one entry serves every size" in body["text"]
    calls, mark, spec = function["sizes"][0]["trials"]
    assert (calls["sizes"], calls["compiled"]) == ([6, 7, 1], [0, 0, 1])
    assert mark["title"] == "mark_dynamic(x, 0)"
    assert mark["compiled"][0] == 1
    assert sum(mark["compiled"]) == 1, "one entry serves every other size"
    argument = "dynamic_shapes" if _has_dynamic_shapes() else "shapes_spec"
    assert spec["title"] == argument + '={"x": TensorSpec([n, None])} with n = ShapeVar("n", min=1, max=40)'
    assert [(one["first"], one["last"]) for one in spec["served"]] == [(1, 40)], "one entry serves also a size of 1"
    assert sum(spec["compiled"]) == 1
    for trial in (mark, spec):
        verified = trial["verification"]
        assert "problem" not in verified
        assert verified["compiles"] == 1, "two without a declaration"
        assert verified["compiled"] == [0] * len(verified["sizes"])
        assert len(verified["sizes"]) > 2
        assert verified["served"][-1]["last"] == 40
    assert "verification" not in calls
    assert body["text"].count("      verified in a new process") == 2


def test_a_warm_up_leaves_nothing_to_compile_in_a_new_run(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    found = _forecast(program, "--json", "--function", "scaled", "--range", "0:40", "--warm-up", program.name)
    assert found.returncode == 0, found.stderr
    (function,) = json.loads(found.stdout.splitlines()[-1])["functions"]
    warm_up = function["sizes"][0]["warmUp"]
    assert warm_up["least"] == len(warm_up["sizes"]) == len(warm_up["apart"])
    asked = (
        PROGRAM.replace('(3, 5), "even"', f'{tuple(warm_up["sizes"])}, "even"')
        + """
with torch.compiler.set_stance("fail_on_recompile"), torch.no_grad():
    for n in range(41):
        scaled(*inputs("scaled", n))
print("warm")
"""
    )
    assert str(tuple(warm_up["sizes"])) in asked
    program.write_text(asked, encoding="utf-8")
    ran = alone(program, check=False)
    assert ran.stdout.splitlines()[-1:] == ["warm"], ran.stderr


class _Entries:
    """A function that compiles once for each region of sizes: for the first size as a constant."""

    def __init__(self, regions: list[frozenset[int]], *, first_is_static: bool) -> None:
        self.regions = regions
        self._first_is_static = first_is_static
        self.entries: list[frozenset[int]] = []

    def call(self, size: int, varies: bool) -> None:
        if self.served() >= {size}:
            return
        is_static = self._first_is_static and not self.entries and not varies
        region = next(each for each in self.regions if size in each)
        self.entries.append(frozenset({size}) if is_static else region)

    def served(self, varies: bool = False) -> frozenset[int]:
        return frozenset().union(*self.entries)

    @property
    def real_calls(self) -> RealCalls:
        return RealCalls(self.entries.clear, self.call, self.served)


@pytest.mark.parametrize("number", range(30))
def test_no_list_is_shorter_than_the_warm_up(number: int) -> None:
    """All shorter lists are tried."""
    rng = random.Random(number)
    sizes, kinds = range(rng.choice([3, 4, 6])), rng.randint(1, 3)
    kind_of = {size: rng.randrange(kinds) for size in sizes}
    regions = [frozenset(size for size in sizes if kind_of[size] == kind) for kind in range(kinds)]
    function = _Entries([each for each in regions if each], first_is_static=rng.random() < 0.7)
    found = find_warm_up(function.real_calls, sizes)
    assert function.served() == set(sizes)
    assert len(found.sizes) == found.least
    for shorter in itertools.product(sizes, repeat=found.least - 1):
        function.entries.clear()
        for size in shorter:
            function.call(size, varies=False)
        assert function.served() != set(sizes), shorter


def test_a_size_that_the_function_refuses_is_left_out_of_the_warm_up() -> None:
    function = _Entries([frozenset({1}), frozenset(range(2, 9))], first_is_static=True)

    def call(size: int, varies: bool) -> None:
        if size == 0:
            raise IndexError("no first row")
        function.call(size, varies)

    found = find_warm_up(RealCalls(function.entries.clear, call, function.served), range(9))
    assert (found.sizes, found.least, list(found.failing)) == ([1, 2], 2, [0])


MANY = """\
import torch


@torch.compile(backend="eager")
def unrolled(x):
    for number in range(x.shape[0]):
        x = x + number
    return x


for n in (3, 5):
    unrolled(torch.ones(n))
"""


def test_where_each_size_compiles_no_warm_up_and_no_declaration_is_claimed(tmp_path: Path) -> None:
    program = tmp_path / "many.py"
    program.write_text(MANY, encoding="utf-8")
    ran = _forecast(program, "--range", "0:40", "--warm-up", program.name)
    assert ran.returncode == 0, ran.stderr
    sizes = ", ".join(map(str, range(9)))
    assert "no warm-up found" in ran.stdout
    assert "at least 9 calls are needed" in ran.stdout
    assert f"({sizes} each need their own entry)" in ran.stdout
    assert "mark_dynamic(x, 0)\n      it fails: ConstraintViolationError" in ran.stdout
    spec = ran.stdout.partition("tried: shapes_spec")[2]
    assert "one entry serves" not in ran.stdout.replace(spec, "")


def test_what_cannot_be_forecast_is_said(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    ran = _forecast(program, "--json", "--function", "paired", "--vary", "z.shape[0]=1:4", program.name)
    assert ran.returncode == 0, ran.stderr
    (function,) = json.loads(ran.stdout.splitlines()[-1])["functions"]
    assert "no size z.shape[0], only x.shape[0]" in function["problem"]
    refused = _forecast(program, "--vary", "x.shape[0]=4", program.name)
    assert refused.returncode == 2
    assert "give SIZE=FIRST:LAST" in refused.stderr


UNSURE = """\
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.training_step = 0

    def forward(self, x):
        return x + self.training_step


def twice(x):
    return x * 2


model = torch.compile(Model(), backend="eager")
for n in (3, 5):
    model(torch.ones(n))
model.training_step = 7  # no entry serves any call of the model now

for backend in ("eager", "aot_eager"):
    torch.compile(twice, backend=backend)(torch.ones(3))
"""


def test_nothing_is_forecast_where_sizes_are_not_the_only_question(tmp_path: Path) -> None:
    program = tmp_path / "unsure.py"
    program.write_text(UNSURE, encoding="utf-8")
    ran = _forecast(program, "--json", program.name)
    assert ran.returncode == 0, ran.stderr
    problems = {one["name"]: one["problem"] for one in json.loads(ran.stdout.splitlines()[-1])["functions"]}
    assert "has changed since" in problems["Model.forward"]
    assert "several torch.compile calls" in problems["twice"]


CONTINUED = """\
import os
import sys

import torch

is_continued = os.path.exists("checkpoint")
open("checkpoint", "w").close()


@torch.compile(backend="eager")
def scaled(x):
    return x - 1 if is_continued and x.shape[0] == 8 else x + 1


for n in (3, 5):
    scaled(torch.ones(n))
sys.exit(int(sys.argv[1]) if is_continued else 0)
"""


@pytest.mark.parametrize(
    ("option", "status", "reason"),
    [
        ("--verify", "0", "one entry does not serve these"),
        ("--verify", "3", "the program ended with status 3"),
        ("--no-verify", "0", "(--no-verify)"),
    ],
)
def test_a_declaration_that_does_otherwise_in_a_new_process_is_not_verified(
    tmp_path: Path, option: str, status: str, reason: str
) -> None:
    program = tmp_path / "continued.py"
    program.write_text(CONTINUED, encoding="utf-8")
    options = [] if option == "--verify" else [option]
    ran = _forecast(program, "--range", "1:20", *options, program.name, status)
    assert ran.returncode == 0, "the status of the first run"
    lines = [one.strip() for one in ran.stdout.splitlines() if "verified" in one]
    assert len(lines) == 2, "a mark and a spec"
    assert all(one.startswith("not verified in a new process") for one in lines)
    assert reason in lines[0]


def test_a_declaration_that_breaks_the_graph_is_not_offered_as_one_entry(tmp_path: Path) -> None:
    program = tmp_path / "branch.py"
    program.write_text(CONTINUED.replace("is_continued and ", ""), encoding="utf-8")
    ran = _forecast(program, "--range", "1:20", program.name, "0")
    assert ran.returncode == 0, ran.stderr
    spec = ran.stdout.partition("tried: " + ("dynamic_shapes" if _has_dynamic_shapes() else "shapes_spec"))[2]
    assert "its graph breaks with this declaration" in spec
    assert "one entry serves every size" not in ran.stdout


BROKEN = """\
import torch


@torch.compile(backend="eager")
def cut(x, y):
    h = x * 2
    torch._dynamo.graph_break()
    return h + y


for n in (3, 5):
    cut(torch.ones(n), torch.ones(1))
"""


def test_a_resume_function_is_not_called_by_itself(tmp_path: Path) -> None:
    program = tmp_path / "broken.py"
    program.write_text(BROKEN, encoding="utf-8")
    ran = _forecast(program, "--json", program.name)
    assert ran.returncode == 0, ran.stderr
    functions = {one["name"]: one for one in json.loads(ran.stdout.splitlines()[-1])["functions"]}
    mark = functions["cut"]["sizes"][0]["trials"][0]
    assert (mark["title"], mark["compiled"][:2]) == ("mark_dynamic(x, 0)", [2, 1]), "the rest of it compiles again"
    (resumed,) = [one for name, one in functions.items() if name.startswith("cut (resumed")]
    assert all("trials" not in size for size in resumed["sizes"])


INPUTS = """\
import json
import random
import sys

import torch

compiles = []


def counting(graph, inputs):
    compiles.append(graph)
    return graph.forward


@torch.compile(backend=counting)
def sliced(x, n):
    return x[:n] + 1


@torch.compile(backend=counting)
def scaled(x, n):
    return x * n if n > 8 else x + n


@torch.compile(backend=counting)
def unrolled(x, *, n):
    for number in range(n):
        x = x + number
    return x


@torch.compile(backend=counting)
def two(x, n):
    return x.T @ x if x.shape[0] > x.shape[1] else x @ x.T


@torch.compile(backend=counting)
def square(x, n):
    return x.trace() if x.shape[0] == x.shape[1] else x.sum() * n


class Model(torch.nn.Module):
    def forward(self, x, n):
        return x.repeat(n, 1) + x.shape[1]


model = torch.compile(Model(), backend=counting)
FUNCTIONS = {"sliced": sliced, "scaled": scaled, "unrolled": unrolled, "two": two, "square": square, "model": model}


def call(name, rows, columns, n):
    x = torch.ones(rows, columns)
    return unrolled(x, n=n) if name == "unrolled" else FUNCTIONS[name](x, n)


for name in FUNCTIONS:
    for sizes in ((3, 4, 5), (6, 4, 5), (6, 9, 7)):
        call(name, *sizes)

if len(sys.argv) > 1:
    with open(sys.argv[1]) as file:
        given = json.load(file)
    answers = {}
    for name in FUNCTIONS:
        served = []
        for sizes in given:
            try:
                with torch.compiler.set_stance("fail_on_recompile"):
                    call(name, *sizes)
                served.append(True)
            except RuntimeError as error:
                if "fail_on_recompile" not in str(error):
                    raise
                served.append(False)
        before = len(compiles)
        for sizes in given:
            call(name, *sizes)
        answers[name] = served, len(compiles) - before
    with open(sys.argv[2], "w") as file:
        json.dump(answers, file)
"""


def test_a_list_of_shapes_and_integers_compiles_as_forecast(tmp_path: Path) -> None:
    program, given, answers = tmp_path / "program.py", tmp_path / "given.json", tmp_path / "answers.json"
    program.write_text(INPUTS.replace("import torch\n", "import torch\n\n" + _LIMIT, 1), encoding="utf-8")
    rng = random.Random(0)
    inputs = [(rng.randint(0, 12), rng.randint(1, 12), rng.randint(1, 12)) for _ in range(200)]
    given.write_text(json.dumps(inputs), encoding="utf-8")
    alone(program, str(given), str(answers))
    options = [f"--input=x=({rows},{columns}), n={n}" for rows, columns, n in inputs]
    ran = _forecast(program, "--json", *options, program.name)
    assert ran.returncode == 0, ran.stderr
    functions = json.loads(ran.stdout.splitlines()[-1])["functions"]
    found = {one["name"].partition(".")[0].lower(): one["inputs"] for one in functions}
    for name, (served, compiled) in json.loads(answers.read_text(encoding="utf-8")).items():
        assert set(served) == {True, False}, f"{name} shows nothing"
        assert [one.get("entry") is not None for one in found[name]] == served, name
        assert sum(one["compiled"] for one in found[name]) == compiled, name
    assert found["sliced"][0]["values"] == dict(zip(("x.shape[0]", "x.shape[1]", "n"), inputs[0], strict=True))


_LIMIT = "torch._dynamo.config.recompile_limit = 100\n"


def test_an_integer_is_varied_like_a_size(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(INPUTS, encoding="utf-8")
    ran = _forecast(program, "--function", "scaled", "--vary", "n=0:20", "--calls", "9,3", program.name)
    assert ran.returncode == 0, ran.stderr
    lines = [" ".join(line.split()) for line in ran.stdout.splitlines()]
    assert "9 to 20 compiles" in lines
    assert "calls with 9: 1 compile; with 3: no compile" in lines
    assert "tried: torch.compile(..., dynamic=True)" in lines
    wrong = _forecast(program, "--function", "scaled", "--input", "x=3", program.name)
    assert "it has no size x, only x.shape[0]" in wrong.stdout
    refused = _forecast(program, "--input", "x=(3,a)", program.name)
    assert refused.returncode == 2


def test_integers_get_a_warm_up_and_a_verified_declaration(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    text = INPUTS.partition("class Model")[0] + "for n in (3, 5):\n    scaled(torch.ones(4, 4), n)\n"
    program.write_text(text, encoding="utf-8")
    found = _forecast(program, "--json", "--range", "2:20", "--warm-up", program.name)
    assert found.returncode == 0, found.stderr
    (function,) = json.loads(found.stdout.splitlines()[-1])["functions"]
    warm_up = function["sizes"][0]["warmUp"]
    assert (warm_up["least"], len(warm_up["sizes"])) == (3, 3), "two branches, and the first call is static"
    calls = f"""
torch._dynamo.reset()
for n in {warm_up["sizes"]}:
    scaled(torch.ones(4, 4), n)
with torch.compiler.set_stance("fail_on_recompile"):
    for n in range(2, 21):
        scaled(torch.ones(4, 4), n)
print("warm")
"""
    program.write_text(text + calls, encoding="utf-8")
    ran = alone(program, check=False)
    assert ran.stdout.splitlines()[-1:] == ["warm"], ran.stderr
    program.write_text(text, encoding="utf-8")
    one_branch = _forecast(program, "--json", "--range", "2:8", "--vary", "n=2:8", program.name)
    (function,) = json.loads(one_branch.stdout.splitlines()[-1])["functions"]
    assert "trials" not in function["sizes"][0], "nothing compiles"
    unseen = text.replace("(3, 5)", "(3, 3)")
    program.write_text(unseen, encoding="utf-8")
    declared = _forecast(program, "--json", "--vary", "n=2:8", program.name)
    body = json.loads(declared.stdout.splitlines()[-1])
    (trial,) = body["functions"][0]["sizes"][0]["trials"]
    assert trial["title"] == "torch.compile(..., dynamic=True)"
    assert trial["verification"]["served"] == [{"first": 2, "last": 8, "entry": "0/0"}]
    assert "      verified in a new process" in body["text"]
