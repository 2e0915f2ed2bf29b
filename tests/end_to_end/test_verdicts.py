"""``dynamo-dap compare`` on programs with injected defects, and on correct ones: no false verdict."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.client.environments import need_inductor, own_command
from tests.end_to_end.verdicts import CORRECT_CALLS, WRONG, compared, correct_calls, false_alarms, marked_lines, scores

PAGE = Path(__file__).parents[2] / "docs" / "compare-score.md"


def test_wrong_programs_differ_at_their_line_and_stage() -> None:
    """Each injected defect is found, with the line and the stage."""
    need_inductor("functions with defects in Inductor")
    assert sum(len(marked_lines(program)) for program in WRONG) >= 128
    assert [each for each in scores() if not each.is_right] == []
    assert compared("defects.py")[0] == 1


def test_the_page_has_the_score() -> None:
    """The table in the docs is the output of the command."""
    need_inductor("functions with defects in Inductor")
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert rows == [each.row for each in scores()]


def test_a_verdict_has_evidence() -> None:
    """The JSON of each compared call says which runs prove the verdict."""
    calls = [each for each in compared("defects.py")[1] if each.get("compared", True)]
    assert len(calls) > 40
    assert [each["function"] for each in calls if not each.get("evidence")] == []


def test_the_row_at_fault_is_never_the_same() -> None:
    """The line that a verdict names differs in the table, too."""
    need_inductor("functions with defects in Inductor")
    for body in (body for program in WRONG for body in compared(program)[1] if body.get("lines")):
        for row in body["lines"]:
            if (row["path"], row["line"]) == (body.get("path"), body.get("line")):
                kinds = [row[name] for name in ("compiled", "dynamo", "gradient") if name in row]
                assert not all(each["same"] for each in kinds), body["function"]


def test_the_part_of_inductor_is_named() -> None:
    """As ``bisect`` does, ``compare`` says which decomposition, pass or lowering is at fault."""
    need_inductor("functions with defects in Inductor")
    calls = [*compared("stages.py")[1], *compared("gradients.py")[1]]
    parts = {each["function"]: each["part"] for each in calls if "part" in each}
    assert parts["wrong_decomposition"] == "the decomposition of aten.silu.default"
    assert parts["wrong_lowering_of_sine"] == "the lowering of sin"
    assert parts["wrong_pass"] == "the post-grad pass post_grad_custom_post_pass"
    assert parts["decomposition_of_a_backward"] == "the decomposition of aten.silu_backward.default"
    assert parts["wrong_results_without_a_setting"] == "the setting emulate_precision_casts = True"
    assert {*parts} >= {"lowering_of_a_backward", "wrong_lowering_of_a_maximum"}


@pytest.mark.parametrize(("program", "fewest"), CORRECT_CALLS.items())
def test_correct_programs_do_not_differ(program: str, fewest: int) -> None:
    """No call of a correct program differs."""
    need_inductor("functions that round otherwise")
    assert false_alarms(program) == []
    assert len(correct_calls(program)) >= fewest


def test_what_a_comparison_left_out_is_listed() -> None:
    status, calls = compared("correct.py")
    assert status == 0
    left_out = [each["notCompared"] for each in calls if "notCompared" in each]
    assert sum("torch.empty" in each for names in left_out for each in names) == 8
    assert any("gradients: no backward pass was run" in names for names in left_out)
    assert all("strides of gradients" in each["notCompared"] for each in calls), "what is never compared is listed"


def test_inf_in_eager_alone_is_said() -> None:
    """A compiled result that float64 confirms is right, but the verdict mentions eager's Inf."""
    need_inductor("functions that round otherwise")
    _, calls = compared("rounding.py")
    found = next(each for each in calls if each["function"] == "overflow_in_half")
    assert found["same"]
    assert "elements are Inf in eager alone" in found["verdict"]
    assert "referenceError" not in found["outputs"], "eager is infinitely far from float64"


def _compared_in_text(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run `compare` on a program with this text."""
    path = folder / "program.py"
    path.write_text(text)
    words = [*own_command(), "compare", str(path)]
    return subprocess.run(words, capture_output=True, text=True, timeout=250, check=False)


WITHIN_ROUNDING = """
import torch

def off_by_one_step(graph, inputs):
    return lambda *given: tuple(each * 1.006 for each in graph(*given))

@torch.compile(backend=off_by_one_step)
def few(x):
    return x * 3

few(torch.tensor([1.3, 0.7, 2.1]).bfloat16())
"""


def test_what_rounding_may_conceal_is_not_called_the_same(tmp_path: Path) -> None:
    """Three elements that are off by one step in one direction prove nothing; both errors are printed."""
    run = _compared_in_text(tmp_path, WITHIN_ROUNDING)
    assert "Within rounding" in run.stdout, run.stderr
    assert "bfloat16 rounding: 0.5 %, eager 0.062 %" in run.stdout
    assert run.stdout.splitlines()[-1] == "1 call: 1 within rounding"
    assert run.returncode == 0


TIES = """
import torch

def of_ties(number):
    def backend(graph, inputs):
        return lambda *given: tuple(
            each if each.is_floating_point() else torch.full_like(each, number) for each in graph(*given)
        )
    return backend

def largest(x):
    return (x * 1.1 / 1.1).argmax(-1)

x = torch.rand(256)
x[3] = x[12] = 2.0
for backend in (of_ties(12), of_ties(7), of_ties(200), "inductor"):
    torch.compile(largest, backend=backend)(x)
    torch._dynamo.reset()
"""


def test_an_index_that_rounding_decides_is_one_of_the_ties(tmp_path: Path) -> None:
    """An index of a tie counts as the same, with a note on rounding; any other index differs."""
    program = tmp_path / "ties.py"
    program.write_text(TIES, encoding="utf-8")
    status, calls = compared(str(program))
    assert [(each.get("compared", True), each["same"]) for each in calls] == [
        (True, True),
        (True, False),
        (True, False),
        (True, True),
    ]
    assert calls[0]["outputs"]["rounding"].startswith("rounding decides 1 integer of ")
    assert status == 1


ONE_WRONG = """
import torch

def one_wrong(graph, inputs):
    def run(*given):
        results = [each.clone() for each in graph(*given)]
        results[0].view(-1)[4321] += 1
        return tuple(results)
    return run

def quantized(x, w):
    return torch.round((x @ w) * 50).to(torch.int64)

def clamped(x, w):
    return (torch.round((x @ w) / 0.37) + 128).clamp(0, 255).to(torch.uint8)

def highest(x, w):
    return (x.half() @ w.half()).argmax(-1)

torch.manual_seed(0)
for function, rows in ((quantized, 256), (clamped, 256), (highest, 5000)):
    for backend in (one_wrong, "aot_eager"):
        torch.compile(function, backend=backend)(torch.randn(rows, 64), torch.randn(64, 256))
        torch._dynamo.reset()
"""


def test_one_wrong_integer_among_thousands_differs(tmp_path: Path) -> None:
    """Rounding decides other integers of the results, but not this one: its number is far from any boundary."""
    program = tmp_path / "one_wrong.py"
    program.write_text(ONE_WRONG, encoding="utf-8")
    _, calls = compared(str(program))
    assert [(each["function"], each.get("compared", True), each["same"]) for each in calls] == [
        (name, True, same) for name in ("quantized", "clamped", "highest") for same in (False, True)
    ]
    assert [each.get("stage") for each in calls[::2]] == ["one_wrong"] * 3


NESTED = """
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.utils.checkpoint import checkpoint

def wrong_sine(graph, inputs):
    for module in graph.modules():
        for node in module.graph.nodes:
            node.target = "cos" if node.target == "sin" else node.target
        module.recompile()
    return graph.forward

def wrong_backward(graph, inputs):
    def changed(module, _):
        for node in module.graph.nodes:
            if node.target is torch.ops.aten.tanh_backward.default:
                node.target = lambda gradient, result: gradient * (1 - result)
        module.recompile()
        return make_boxed_func(module.forward)
    def kept(module, _):
        return make_boxed_func(module.forward)
    return aot_autograd(fw_compiler=kept, bw_compiler=changed)(graph, inputs)

def inner(x):
    y = x * 2
    z = y.sin()  # line: wrong_sine
    z = z.tanh()  # line: wrong_backward
    return z + 1

def outer(x):
    y = x + 1
    y = checkpoint(inner, y, use_reentrant=False)
    return y.exp()

def nested(x):
    return checkpoint(outer, x, use_reentrant=False).sum()

for backend in (wrong_sine, wrong_backward):
    torch.compile(nested, backend=backend)(torch.linspace(0, 1, 8, requires_grad=True)).backward()
    torch._dynamo.reset()
"""


def test_the_line_inside_nested_checkpoints_is_named(tmp_path: Path) -> None:
    """The wrong operation is in the body of a checkpoint inside the body of another."""
    program = tmp_path / "nested.py"
    program.write_text(NESTED, encoding="utf-8")
    _, calls = compared(str(program))
    lines = NESTED.splitlines()
    for call in calls:
        assert lines[call["line"] - 1].endswith(f"# line: {call['backend']}"), call["line"]
    assert [each["backend"] for each in calls] == ["wrong_sine", "wrong_backward"]


ONE_PERCENT = """
import torch

def slightly_off(graph, inputs):
    return lambda *given: tuple(each * 1.01 for each in graph(*given))

@torch.compile(backend=slightly_off)
def scaled(x):
    return x * 3

scaled(torch.ones(4))
"""


def test_both_errors_against_float64_are_printed(tmp_path: Path) -> None:
    run = _compared_in_text(tmp_path, ONE_PERCENT)
    assert run.returncode == 1, run.stderr
    for line in ("Differs: largest difference 0.03, RMSE 0.03, ", "  first difference: operator.mul at "):
        (found,) = [each for each in run.stdout.splitlines() if each.startswith(line)]
        assert "error against float64 0.03 compiled, 0 in eager" in found


ONLY_IN_FLOAT32 = """
import torch

@torch.library.custom_op("verdicts::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    if x.dtype != torch.float32:
        raise NotImplementedError("only float32")
    return x * 2

doubled.register_fake(torch.empty_like)
doubled.register_autograd(lambda ctx, gradient: doubled(gradient))

def slightly_off(graph, inputs):
    return lambda *given: tuple(each * (1 + 1e-5) for each in graph(*given))

@torch.compile(backend=slightly_off)
def rounded(x):
    return doubled(x).sin()

@torch.compile(backend="aot_eager")
def equal(x):
    return doubled(x).sin()

for function in (rounded, equal):
    function(torch.randn(16, requires_grad=True)).sum().backward()
"""


def test_a_graph_that_has_no_float64_says_so(tmp_path: Path) -> None:
    """An unequal result is then judged by its scale; gradients of the operator's input are compared."""
    program = tmp_path / "in_float32.py"
    program.write_text(ONLY_IN_FLOAT32, encoding="utf-8")
    _, calls = compared(str(program))
    assert [each["same"] for each in calls] == [True, True]
    left_out = [[one for one in each["notCompared"] if "float64" in one] for each in calls]
    assert left_out[0], "no run in float64"
    assert all("only float32" in one for one in left_out[0])
    assert left_out[1] == [], "none was needed"
    assert all("the program's backward pass" in each["evidence"] for each in calls)


def test_a_compile_that_is_not_valid_is_named() -> None:
    """The verdict names the unguarded value as the cause, not the backend."""
    _, calls = compared("defects.py")
    first, second = (each for each in calls if each["function"] == "Switched.forward")
    assert first["same"]
    assert "self.flag was False" in second["verdict"]
    assert "and is True now" in second["verdict"]
    assert second["stage"] == "Dynamo"


def test_gradients_are_compared_in_the_programs_own_backward_pass() -> None:
    """The verdict on a training program includes its backward pass; without one, the verdict says so."""
    _, calls = compared("training.py")
    through = [each for each in calls if "the program's backward pass" in each.get("evidence", ())]
    others = [each for each in calls if each not in through]
    assert len(through) >= 60
    assert {each["function"] for each in others} == {"passed_on"}


OPTIMIZER = """
import torch

def wrong(graph, inputs):
    for node in graph.graph.nodes:
        if node.target == "lerp_":
            node.args = (node.args[0], node.args[1], 0.3)
    graph.recompile()
    return graph.forward

parameter = torch.nn.Parameter(torch.randn(4, 4))
optimizer = torch.optim.AdamW([parameter], lr=torch.tensor(1e-3))
step = torch.compile(optimizer.step, backend=wrong)
for _ in range(2):
    parameter.grad = torch.randn(4, 4)
    step()
"""


def test_a_wrong_step_of_an_optimizer_is_the_backends(tmp_path: Path) -> None:
    """The graph owns the parameters and the optimizer's state, and returns nothing. A correct step is the same."""
    program, right = tmp_path / "training.py", tmp_path / "right.py"
    program.write_text(OPTIMIZER, encoding="utf-8")
    right.write_text(OPTIMIZER.replace("backend=wrong", "backend='eager'"), encoding="utf-8")
    _, calls = compared(str(right))
    assert [each["same"] for each in calls] == [True, True]
    _, calls = compared(str(program))
    assert [each["stage"] for each in calls] == ["wrong"] * len(calls)
    for each in calls:
        assert each["operation"] == "lerp_"
        assert Path(each["path"]).name == "adam.py"
        assert "with other contents: largest difference" in each["verdict"]


MEMORY_AND_SIZES = """
import torch
from torch._dynamo.backends.common import aot_autograd

torch._dynamo.config.capture_dynamic_output_shape_ops = True
aten = torch.ops.aten

def changing(change):
    def backend(graph, inputs):
        for node in graph.graph.nodes:
            change(node)
        graph.recompile()
        return graph.forward
    return backend

def unscaled(node):
    if node.target == "mul_":
        node.args = (node.args[0], 1.0)

def at_least(node):
    if getattr(node.target, "__name__", "") == "gt":
        node.target = torch.ge

def cosine(node):
    if node.target is aten.sin.default:
        node.target = aten.cos.default

def boxed(graph, inputs):
    run = changing(cosine)(graph, inputs)
    boxed = lambda arguments: run(*arguments)
    boxed._boxed_call = True
    return boxed

class Tracker(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(3))

    def forward(self, x):
        self.mean.mul_(0.9)  # wrong
        self.mean.add_(x.mean(0), alpha=0.1)
        return torch.tanh(x)

class Divided(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        size = x.sqrt()
        doubled = size * 2  # wrong
        self.scale.div_(doubled)
        return x + 1

def double(node):
    if getattr(node.target, "__name__", "") == "mul":
        node.args = (node.args[0], 3)

@torch.compile(backend=changing(at_least), fullgraph=True)
def chosen(x):
    keep = x > 0  # wrong
    return x[keep] * 2

@torch.compile(backend=aot_autograd(fw_compiler=boxed))
def jagged(rows):
    a = torch.sin(rows)
    return a * 2  # wrong

torch.compile(Tracker(), backend=changing(unscaled))(torch.rand(4, 3))
torch.compile(Divided(), backend=changing(double))(torch.rand(3))
chosen(torch.tensor([-1.0, 0.0, 2.0]))
jagged(torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(3, 3)], layout=torch.jagged))
"""


def test_memory_sizes_and_jagged_results(tmp_path: Path) -> None:
    """The verdict names the first wrong write or operation; it covers sizes that depend on data, and jagged results."""
    program = tmp_path / "layers.py"
    program.write_text(MEMORY_AND_SIZES, encoding="utf-8")
    wrong = [line for line, text in enumerate(MEMORY_AND_SIZES.splitlines(), start=1) if text.endswith("# wrong")]
    _, calls = compared(str(program))
    assert [each["function"] for each in calls] == ["Tracker.forward", "Divided.forward", "chosen", "jagged"]
    assert [each.get("line") for each in calls] == wrong
    assert [each["stage"] for each in calls] == ["backend", "backend", "backend", "compiler_fn"]
    assert [each.get("operation") for each in calls] == ["mul_", "operator.mul", "operator.gt", None]
    assert "Result 0 differs" in calls[-1]["verdict"]


OVERWRITTEN = """
import torch
from torch.utils.checkpoint import checkpoint

def changed(graph, inputs):
    for module in graph.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if node.target == "sin_":
                    node.target = "cos_"
                elif getattr(node.target, "__name__", "") == "setitem":
                    node.args = (*node.args[:2], 4)
            module.recompile()
    return graph.forward

@torch.compile(backend=changed)
def chain(x):
    y = x @ x
    y.sin_()  # wrong
    y.add_(1)
    return y

@torch.compile(backend=changed)
def a_row(x):
    y = x.clone()
    y[0].sin_()  # wrong
    y.mul_(2)
    return y + 1

@torch.compile(backend=changed)
def cached(cache, x):
    cache[:, 1] = 3  # wrong
    y = cache + x
    cache.mul_(2)
    return y

def block(x):
    y = x @ x
    y[1] = 3  # wrong
    y.add_(1)
    return y.sum(-1)

@torch.compile(backend=changed)
def in_a_body(x):
    return checkpoint(block, x, use_reentrant=False) + 1

@torch.compile
def right(cache, x):
    cache[0] = x[0].softmax(-1)
    y = x.clone()
    y.mul_(2)
    y[1] += x.mean()
    y.sigmoid_()
    return y @ cache, y.argmax(-1)

x = torch.randn(4, 4)
for function, given in ((chain, (x,)), (a_row, (x,)), (cached, (x.clone(), x)), (in_a_body, (x.requires_grad_(),))):
    function(*given)
for dtype in (torch.float32, torch.bfloat16):
    for _ in range(2):
        right(torch.zeros(4, 4, dtype=dtype), torch.randn(4, 4, dtype=dtype))
"""


def test_a_wrong_result_that_later_lines_overwrite(tmp_path: Path) -> None:
    """The verdict names the line that makes the wrong result, not the line that overwrites it."""
    program = tmp_path / "in_place.py"
    program.write_text(OVERWRITTEN, encoding="utf-8")
    wrong = [line for line, text in enumerate(OVERWRITTEN.splitlines(), start=1) if text.endswith("# wrong")]
    _, calls = compared(str(program))
    differing = [each for each in calls if each["function"] != "right"]
    assert [each["line"] for each in differing] == wrong
    assert [each["operation"] for each in differing] == ["sin_", "sin_", "operator.setitem", "operator.setitem"]
    assert all(each["ofOperation"]["referenceError"] < 1e-5 for each in differing)
    assert [each["same"] for each in calls if each["function"] == "right"] == [True] * 4


GRADIENTS_IN_PLACE = """
import torch
from torch._dynamo.backends.common import aot_autograd
aten = torch.ops.aten
torch.manual_seed(0)

def compiler(change):
    def compiled(graph, inputs):
        for node in graph.graph.nodes:
            change(node)
        graph.recompile()
        boxed = lambda given: graph.forward(*given)
        boxed._boxed_call = True
        return boxed
    return compiled

def sine(node):
    if node.target is aten.cos.default:
        node.target = aten.sin.default

def half(node):
    if node.target is aten.threshold_backward.default:
        node.args = (*node.args[:2], 0.5)

wrong = aot_autograd(fw_compiler=compiler(lambda node: None), bw_compiler=compiler(sine))
threshold = aot_autograd(fw_compiler=compiler(lambda node: None), bw_compiler=compiler(half))

@torch.compile(backend=wrong)
def chain(x):
    y = x * 2
    y.sin_()  # wrong
    y.mul_(3)
    return y

@torch.compile(backend=wrong)
def a_row(x):
    y = x * 2
    y[0].sin_()  # wrong
    y.mul_(2)
    return y.exp()

@torch.compile(backend=wrong)
def assigned(x):
    y = torch.zeros(2, 4)
    y[0] = x[0].sin()  # wrong
    y.mul_(2)
    return y.exp()

# Of a ReLU's inputs, some must lie between 0 and 0.5: there the two thresholds differ.
linear = torch.nn.Linear(4, 4, bias=False)
torch.nn.init.eye_(linear.weight)

@torch.compile(backend=threshold)
def a_layer(x):
    y = linear(x)
    torch.relu_(y)  # wrong
    return y * 2

@torch.compile
def right(x):
    y = linear(x)
    torch.relu_(y)
    z = y * 2
    z[0] = x[1].sin()
    z.mul_(2)
    return z

for function in (chain, a_row, assigned, a_layer, right):
    for _ in range(2):
        function(torch.rand(2, 4, requires_grad=True)).sum().backward()
"""


def test_a_wrong_gradient_of_what_later_lines_overwrite(tmp_path: Path) -> None:
    """The verdict names the line whose backward is wrong, not the line before the first in-place write."""
    program = tmp_path / "gradients.py"
    program.write_text(GRADIENTS_IN_PLACE, encoding="utf-8")
    wrong = [line for line, text in enumerate(GRADIENTS_IN_PLACE.splitlines(), start=1) if text.endswith("# wrong")]
    _, calls = compared(str(program))
    lines = {each["function"]: each.get("line") for each in calls}
    assert lines == dict(zip(lines, [*wrong, None], strict=True))
    assert [each["same"] for each in calls if each["function"] == "right"] == [True, True]


LEFT_OPEN = """
import torch

def failing(graph, inputs):
    if len(graph.graph.output_node().args[0]) == 1:
        return graph.forward
    for node in graph.graph.nodes:
        if node.target is torch.exp:
            node.target = torch.linalg.inv
    graph.recompile()
    return graph.forward

@torch.compile(backend=failing)
def slope(x):
    with_tangent = lambda y: torch.func.jvp(lambda z: torch.exp(z) * z, (y,), (y,))[1].sum()
    return torch.func.grad(with_tangent)(x)

slope(torch.rand(3))
print(torch._C._functorch.get_dynamic_layer_stack_depth(), torch.autograd.forward_ad._current_level)
print(torch._C._autograd._saved_tensors_hooks_is_enabled())
"""


def test_a_failed_comparison_closes_the_transforms(tmp_path: Path) -> None:
    """If a graph raises inside ``torch.func`` during a comparison, no transform stays open in the program."""
    program = tmp_path / "slopes.py"
    program.write_text(LEFT_OPEN, encoding="utf-8")
    words = [*own_command(), "compare", str(program)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert run.stdout.splitlines()[:2] == ["0 -1", "True"], run.stdout + run.stderr
    assert "Not compared: RuntimeError: linalg.inv" in run.stdout


TWO_WITH_BREAKS = """
import torch

def broken(x):
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2

def also_broken(x):
    x = x - 1
    torch._dynamo.graph_break()
    return x

for function, calls in ((broken, 4), (also_broken, 1)):
    compiled = torch.compile(function, backend="eager")
    for _ in range(calls):
        compiled(torch.ones(3))
"""


def test_a_reason_that_calls_share_is_printed_once(tmp_path: Path) -> None:
    """Calls of a function that cannot run as ordinary Python share one line, which counts them."""
    run = _compared_in_text(tmp_path, TWO_WITH_BREAKS)
    reasons = [line for line in run.stdout.splitlines() if "is not run as ordinary Python" in line]
    assert [each.partition(" ")[0] for each in reasons] == ["broken", "also_broken"]
    assert [each.endswith(" (3 calls)") for each in reasons] == [True, False]
    assert run.stdout.splitlines()[-1] == "7 of 9 calls: 3 same, 4 same below Dynamo"
    assert run.stdout.count("The same below Dynamo:") == 4
    assert run.returncode == 0


CALLS_ANOTHER = """
import torch
from torch import nn

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.lstm = nn.LSTM(8, 8)
        self.last = nn.Linear(8, 5)
        self.last.register_forward_hook(lambda module, inputs, outputs: outputs * 2)

    def forward(self, x):
        x = self.first(x).relu()
        x, _ = self.lstm(x)
        return self.last(x)

model = torch.compile(Tagger())
for _ in range(2):
    model(torch.randn(3, 6, 8)).sum().backward()
"""


def test_calls_in_a_fork_are_not_compared(tmp_path: Path) -> None:
    """To see what a call stores, `compare` continues it in a fork, where it calls other compiled functions."""
    run = _compared_in_text(tmp_path, CALLS_ANOTHER)
    calls = [line.partition(",")[0] for line in run.stdout.splitlines() if line.startswith("call ")]
    assert sorted(calls) == sorted(
        f"call {number} of {function}"
        for number in (1, 2)
        for function in ("Tagger.forward [0/0]", "Linear.forward [1/0]", "Tagger.__init__.<locals>.<lambda> [2/0]")
    )
    assert run.stdout.splitlines()[-1] == "6 calls: 6 same"


RIGHT_ALONE = """
import torch

def wrong_with_more_results(gm, inputs):
    def run(*args):
        outputs = gm(*args)
        return outputs if len(outputs) == 1 else tuple(each * 2 for each in outputs)
    return run

@torch.compile(backend=wrong_with_more_results)
def computed(x):
    y = x + 1
    return y * 3

computed(torch.ones(3))
"""


def test_lines_of_another_compile_do_not_make_results_differ(tmp_path: Path) -> None:
    """The results of the call match; only the graph that returns every operation's result is compiled wrong."""
    run = _compared_in_text(tmp_path, RIGHT_ALONE)
    assert "The same" in run.stdout, run.stdout + run.stderr
    assert "But some lines differ" in run.stdout
    assert run.returncode == 0


WRONG_ALONE = """
import torch
from torch._dynamo.backends.common import aot_autograd

def scaled(graph, inputs):
    single = len(graph.graph.output_node().args[0]) < 4
    factor = 0.5 if single else 1.0
    def run(*given):
        return tuple(None if each is None else each * factor for each in graph(*given))
    return run

@torch.compile(backend=aot_autograd(fw_compiler=lambda graph, inputs: graph, bw_compiler=scaled))
def layer(x, weight):
    return (x.sin() * weight).cos().sum()

x, weight = torch.rand(4, requires_grad=True), torch.rand(4, requires_grad=True)
layer(x, weight).backward()
"""


def test_a_stage_is_named_if_only_the_unchanged_graph_is_wrong(tmp_path: Path) -> None:
    """A backward graph that also returns the gradients of operands is right: no line can be named."""
    ended = _compared_in_text(tmp_path, WRONG_ALONE)
    assert ended.returncode == 1, ended.stderr
    assert "alone" not in ended.stdout
    assert "is wrong is not known" in ended.stdout
    assert "aot_eager (AOTAutograd) right" in ended.stdout


CHANGED_LATER = """
import torch

class Centered(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(3))

    def forward(self, x, teacher):
        wanted = ((teacher - self.center) / 0.1).softmax(-1)
        self.center.mul_(0.9).add_(teacher.mean(0) * 0.1)
        return -(wanted * (x / 0.2).log_softmax(-1)).sum(-1).mean()

def gradient(compiled):
    torch.manual_seed(0)
    x, teacher, model = torch.randn(16, 3, requires_grad=True), torch.randn(16, 3), Centered()
    (torch.compile(model) if compiled else model)(x, teacher).backward()
    return x.grad

found = gradient(True)
if __name__ == "__main__":
    print("torch is wrong" if (found - gradient(False)).abs().max() > 1e-3 else "torch is right")
"""


def test_a_graph_is_compiled_again_with_its_marks(tmp_path: Path) -> None:
    """Inductor reads a buffer in the backward pass that the forward pass has changed: only static inputs show this."""
    need_inductor("a partitioner that recomputes")
    ended = _compared_in_text(tmp_path, CHANGED_LATER)
    assert ("torch is wrong" in ended.stdout) == (ended.returncode == 1), ended.stderr
    assert "alone" not in ended.stdout
