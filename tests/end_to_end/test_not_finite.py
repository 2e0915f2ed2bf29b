"""The exception filter ``nan`` holds the thread at the user's line that made the first NaN or Inf of a call."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.client import Fixture, Session, Stop
from tests.client.environments import alone
from tests.client.free_program import FreeProgram

CULPRITS = '''
import torch
import torch.nn.functional as F
from torch import nn

class Attention(nn.Module):
    def forward(self, q, k, v, mask):
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(~mask, float("-inf"))
        weights = scores.softmax(-1)  # @masked_row
        return weights @ v

class Normalized(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        return centred * torch.rsqrt(variance + self.eps) * self.scale  # @eps

def ratio(x, y):
    share = x / y  # @zero_by_zero
    return share.mean()

def entropy(p):
    logs = p.log()  # @log_of_zero
    return -(p * logs).sum()

def half(x):
    x = x.half()
    squared = x * x  # @overflow
    return squared / squared.sum()

def helper(x):
    rooted = x.sqrt()  # @negative_root
    return rooted + 1

def inlined(x):
    y = torch.relu(x) + 1
    return helper(x) * y

def in_loop(x):
    for _ in range(20):
        x = x.exp()  # @third_turn
    return x

def in_place(x):
    out = torch.zeros_like(x)
    out[1:] = torch.acos(x[1:] * 2)  # @in_place
    out.add_(1)
    return out * 2

def changes_its_input(x, y):
    x.add_(1)
    y = y / (x - 2)  # @input_changed
    x.zero_()
    return y

def with_dropout(x):
    x = F.dropout(x, 0.5, training=True)
    return (x / x.sum(-1, keepdim=True)).sum()  # @dropped

def broken(x):
    x = x * 2
    torch._dynamo.graph_break()
    x = x - 2
    return torch.log1p(-x)  # @after_break

def condensed(x):
    return F.normalize(x, eps=0.0).sum()  # @normalize

def distance(a, b):
    norms = (a * a).sum() - (b * b).sum()
    return (
        norms.abs().sqrt()  # @several_lines
        / norms.sum()
    )

def unwritten(x):
    out = torch.empty_like(x)
    torch.pow(x, 0.5, out=out)  # @written_out
    return out

def scaled(values, scale):
    return values / scale  # @number

def by_row(values, scales):
    return values / scales  # @row

def run(function, *arguments, backend="eager"):
    """Call it with harmless arguments first: the second call, which the cache serves, is the one that goes wrong."""
    torch.manual_seed(0)
    compiled = torch.compile(function, backend=backend)
    for each in arguments:
        compiled(*[value.clone() if isinstance(value, torch.Tensor) else value for value in each])

ones = torch.ones(8)
zeros = torch.zeros(8)
mask = torch.ones(4, 4, dtype=torch.bool)
q = torch.arange(32.0).reshape(4, 8) / 32
row = mask.clone()
row[2] = False
steps = [
    (ratio, (ones, ones * 2), (zeros, ones.index_fill(0, torch.tensor([3]), 0.0))),
    (entropy, (ones / 8,), (ones.index_fill(0, torch.tensor([3]), 0.0),)),
    (half, (ones,), (ones * 300,)),
    (inlined, (ones,), (-ones,)),
    (in_loop, (ones - 30,),),
    (in_place, (ones / 8,), (ones,)),
    (changes_its_input, (ones * 3, ones), (ones, ones)),
    (with_dropout, (torch.ones(4, 1),),),
    (broken, (ones / 2,), (ones * 3,)),
    (condensed, (ones.reshape(2, 4),), (zeros.reshape(2, 4),)),
    (distance, (ones, zeros), (ones, ones)),
    (unwritten, (ones,), (-ones,)),
    (scaled, (ones, torch.tensor(2.0)), (ones, torch.tensor(0.0))),
    (by_row, (q, torch.ones(4, 1)), (q, torch.tensor([[1.0], [1.0], [0.0], [1.0]]))),
]
for function, *arguments in steps:
    run(function, *arguments)
run(Attention(), (q, q, q, mask), (q, q, q, row))
with torch.no_grad():
    run(Normalized(0.0), (q,), (torch.ones(4, 8),), backend="aot_eager")
print("done", torch.rand(1).item())
'''


def program_of(text: str, folder: Path) -> Fixture:
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return Fixture(path)


def launch(session: Session, program: Fixture, condition: str | None = None, **options: Any) -> None:
    filters = {"filterOptions": [{"filterId": "nan", **({"condition": condition} if condition else {})}]}
    with session.launching(program, **options):
        session.request("setExceptionBreakpoints", {"filters": [], **filters})


def reported(session: Session, stop: Stop) -> tuple[str, list[str]]:
    info = session.request("exceptionInfo", {"threadId": stop.thread_id})
    return info["exceptionId"], info["description"].splitlines()


EXPECTED = {
    "zero_by_zero": "NaN: operator.truediv: 1 of 8 elements is NaN, first [3]",
    "log_of_zero": "NaN: log: 1 of 8 elements is -Inf, first [3]",
    "overflow": "NaN: operator.mul: 8 of 8 elements are Inf, first [0]",
    "negative_root": "NaN: sqrt: 8 of 8 elements are NaN, first [0]",
    "third_turn": "Inf: exp: 8 of 8 elements are Inf, first [0]",
    "in_place": "NaN: torch.acos: 7 of 7 elements are NaN, first [0]",
    "input_changed": "Inf: operator.truediv: 8 of 8 elements are Inf, first [0]",
    "dropped": "NaN: operator.truediv: 3 of 4 elements are NaN, first [0, 0]",
    "after_break": "NaN: torch.log1p: 8 of 8 elements are NaN, first [0]",
    "normalize": "NaN: torch.nn.functional.normalize: 8 of 8 elements are NaN, first [0, 0]",
    "several_lines": "NaN: operator.truediv: is NaN",
    "written_out": "NaN: torch.pow: 8 of 8 elements are NaN, first [0]",
    "number": "Inf: operator.truediv: 8 of 8 elements are Inf, first [0]",
    "row": "Inf: operator.truediv: 8 of 32 elements are Inf, first [2, 0]",
    "masked_row": "NaN: softmax: 4 of 16 elements are NaN, first [2, 0]",
    "eps": "NaN: torch.rsqrt: 4 of 4 elements are Inf, first [0, 0]",
}
OPERANDS = {
    "zero_by_zero": ("y[3].item()", "0.0"),
    "log_of_zero": ("p.min().item()", "0.0"),
    "overflow": ("x.max().item()", "300.0"),
    "negative_root": ("x.max().item()", "-1.0"),
    "third_turn": ("x.isfinite().all().item()", "True"),
    "input_changed": ("(x - 2).sum().item()", "0.0"),
    "dropped": ("x.flatten().tolist()", "[0.0, 0.0, 2.0, 0.0]"),
    "after_break": ("x.max().item()", "4.0"),
    "masked_row": ("scores[2].tolist()", "[-inf, -inf, -inf, -inf]"),
    "eps": ("variance.sum().item()", "0.0"),
}
"""What stands at the line, as it was before it."""
BECAUSE = {
    "zero_by_zero": "y[3] is 0",
    "log_of_zero": "p[3] is 0",
    "overflow": "x.half()[0] is 300.0",
    "negative_root": "x[0] is -1.0",
    "third_turn": "x.exp().exp().exp().exp().exp()[0] is 3814273.0",
    "in_place": "(x[1:] * 2)[0] is 2.0",
    "input_changed": "(x - 2)[0] is 0",
    "dropped": "torch.nn.functional.dropout(x, 0.5, training=True).sum(-1, keepdim=True)[0, 0] is 0",
    "after_break": "(-(x - 2))[0] is -4.0",
    "number": "scale is 0",
    "row": "scales[2, 0] is 0",
    "several_lines": "((a * a).sum() - (b * b).sum()).sum() is 0",
    "eps": "((x - x.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True) + 0.0)[0, 0] is 0",
}
"""The operands of the first such element; none if an element has many operands."""


@pytest.mark.timeout(300)
def test_each_culprit_is_found_at_its_line(session: Session, tmp_path: Path) -> None:
    """Both compiled and cached calls stop."""
    program = program_of(CULPRITS, tmp_path)
    launch(session, program)
    for marker, headline in EXPECTED.items():
        stop = session.wait_for_stop("exception", at=marker)
        exception_id, (what, *because, where, cause) = reported(session, stop)
        assert exception_id == headline
        assert because == [f"Because {text}." for text in (BECAUSE.get(marker),) if text], marker
        assert what.startswith(f"The call returns {headline[:3]}. ")
        assert where.startswith(f"Where: {program.path}:{stop.frame.line} in ")
        assert cause.startswith("Cause: your code.")
        assert stop.description == headline[:3]
        if marker in OPERANDS:
            expression, value = OPERANDS[marker]
            assert stop.frame.evaluate(expression).text == value, marker
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "done 0.49625658988952637\n"


PER_OPERATION = """
import torch

def padded(x, target):
    loss = (x - target) ** 2  # @given
    return x.log(), loss  # @beside_padding

def masked(x, mask):
    scores = x + mask
    return x.reciprocal(), scores  # @beside_mask

def marked(x, valid):
    return torch.where(valid, x, float("nan"))

def complex_ratio(x):
    return x / x.abs()  # @complex

nan, inf = float("nan"), float("inf")
ones = torch.ones(2, 3)
torch.compile(padded, backend="eager")(-ones, torch.tensor([1.0, 1.0, nan]))
torch.compile(masked, backend="eager")(ones * 0, torch.tensor([0.0, 0.0, -inf]))
torch.compile(marked, backend="eager")(ones, ones > 2)
torch.compile(padded, backend="eager")(ones, torch.tensor([1.0, 1.0, nan]))
values = ones.to(torch.complex64)
values[1, 2] = 0
torch.compile(complex_ratio, backend="eager")(values)
"""


@pytest.mark.timeout(300)
def test_each_operation_is_judged_by_its_own_operands(session: Session, tmp_path: Path) -> None:
    """NaN and Inf in other inputs, or written by the program, neither hide a culprit nor count as one."""
    launch(session, program_of(PER_OPERATION, tmp_path))
    for marker, headline in {
        "beside_padding": "NaN: log: 6 of 6 elements are NaN, first [0, 0]",
        "beside_mask": "Inf: reciprocal: 6 of 6 elements are Inf, first [0, 0]",
        "given": "NaN: input target has NaN at [2]",
        "complex": "NaN: operator.truediv: 1 of 6 elements is NaN, first [1, 2]",
    }.items():
        stop = session.wait_for_stop("exception", at=marker)
        assert reported(session, stop)[0] == headline
        session.resume()
    assert session.wait_for_exit() == 0


TRAINING = """
import torch
import torch._inductor.config
from torch import nn

torch._inductor.config.fallback_random = True  # dropout draws what eager code would

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.last = None

    def forward(self, x, scale):
        hidden = self.norm(self.linear(x))
        self.last = scale
        hidden = self.drop(hidden).relu()
        return (hidden / scale).mean()  # @divided

torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
step = torch.compile(net)
for number in range(4):
    optimizer.zero_grad()
    loss = step(torch.randn(8, 4), torch.tensor(0.0 if number == 2 else 2.0))
    print(number, loss.item(), net.last.item(), net.norm.running_mean.tolist())  # @printed
    if number != 2:
        loss.backward()
        optimizer.step()
print(torch.rand(1).item(), dict(torch._dynamo.utils.counters["stats"]), dict(torch._dynamo.utils.counters["frames"]))
print(sorted(name[:13] for name in globals()), net.linear.weight.sum().item(), loss._version, step.training)
entries = torch._dynamo.eval_frame._debug_get_cache_entry_list(Net.forward)
print(len(entries), [len(entry.guard_manager.code_parts) for entry in entries])
"""


def untouched(program: Fixture) -> str:
    run = alone(program.path)
    return run.stdout


@pytest.mark.timeout(300)
def test_the_program_does_not_notice(session: Session, tmp_path: Path) -> None:
    """With Inductor, in training, these stay the same: dropout, statistics, attributes, guards, caches, counters."""
    program = program_of(TRAINING, tmp_path)
    launch(session, program)
    stop = session.wait_for_stop("exception", at="divided")
    assert stop.frame.evaluate("scale.item()").text == "0.0"
    # Dynamo has not replayed the side effect of this call yet.
    assert stop.frame_called("<module>").evaluate("net.last.item()").text == "2.0"
    session.next()
    assert session.next(at="printed").frame.evaluate("loss.item()").text == "nan"
    assert session.run_to_end() == 0
    assert session.output("stdout") == untouched(program)


OPTIMIZER = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.unused = nn.Parameter(torch.ones(4))

    def forward(self, x):
        hidden = self.first(x)
        return (hidden + self.unused * 0).sum()  # @taken

torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), eps=0.0)
step = torch.compile(net, backend="aot_eager")
for number in range(3):
    loss = step(torch.randn(8, 4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("done")
"""


def test_a_parameter_that_the_optimizer_made_nan_is_named(session: Session, tmp_path: Path) -> None:
    """With ``eps`` zero, Adam divides a gradient of zero by the root of zero. The parameter is reported once."""
    launch(session, program_of(OPTIMIZER, tmp_path))
    stop = session.wait_for_stop("exception", at="taken")
    exception_id, (what, _, cause) = reported(session, stop)
    assert exception_id == "NaN: in self.unused before the call"
    assert "NaN in self.unused: 4 of 4 elements" in what
    assert cause.startswith("Cause: the optimizer, or whatever")
    assert "changed self.unused since the previous call" in cause
    assert "whose results were finite" in cause
    assert cause.endswith("Its gradient is finite.")
    assert session.run_to_end() == 0


DATA = """
import torch

def error(p, y):
    return ((p - y) ** 2).mean()  # @error

step = torch.compile(error, backend="eager")
y = torch.ones(4, 3)
step(torch.ones(4, 3), y)
y[3, 2] = float("nan")
step(torch.ones(4, 3), y)  # @called
"""


def test_data_with_a_nan_names_the_input_the_index_and_the_caller(session: Session, tmp_path: Path) -> None:
    program = program_of(DATA, tmp_path)
    launch(session, program)
    exception_id, (what, where, cause) = reported(session, session.wait_for_stop("exception", at="error"))
    assert exception_id == "NaN: input y has NaN at [3, 2]"
    assert what.endswith("input y has NaN at [3, 2].")
    assert f"{program.path.name}:{program.line('called')}" in where
    assert cause.startswith("Cause: the data")
    assert session.run_to_end() == 0


SET_LATER = """
import torch

def double(x):
    return (x * 2).log()  # @log

def with_bad_backend(x):
    y = x + 1
    return y.sin()  # @sine

def backend(graph, inputs):
    return lambda *given: tuple(each * float("nan") for each in graph(*given))

compiled = torch.compile(double, backend="eager")
compiled(torch.ones(3))
print("compiled")  # @compiled
compiled(torch.zeros(3))
compiled(torch.tensor([-1.0, -1.0, -1.0]))
compiled(torch.tensor([0.0, -1.0, 1.0]))
torch.compile(with_bad_backend, backend=backend)(torch.ones(3))
print("called")  # @called
compiled(torch.zeros(3))
"""
OURS = "['dynamo_dap' in each.__code__.co_filename for name, each in globals().items() if 'compiled_fn' in name]"


def test_it_is_turned_on_and_off_at_any_time(session: Session, tmp_path: Path) -> None:
    """While it is off, no graph is wrapped; once it is on, it also checks earlier compiles."""
    program = program_of(SET_LATER, tmp_path)
    session.launch(program, "compiled", "called")
    stop = session.wait_for_stop("breakpoint", at="compiled")
    assert stop.frame.evaluate(OURS).text == "[False]"
    condition = "__kind__ == 'nan' and x.max().item() == 1.0"
    wanted = {"filters": [], "filterOptions": [{"filterId": "nan", "condition": condition}]}
    session.request("setExceptionBreakpoints", wanted)
    assert stop.frame.evaluate(OURS).text == "[True]"
    of_log = session.continue_to_stop(at="log")  # not for the calls that returned -Inf alone, or had no 1.0
    assert of_log.frame.evaluate("__value__").text.startswith("Tensor f32[3]")
    assert of_log.frame.evaluate("__value__.isnan().sum().item()").text == "1"
    of_backend = session.continue_to_stop(at="sine")
    exception_id, (_, _, cause) = reported(session, of_backend)
    assert exception_id == "NaN: made by the compiled graph alone"
    assert cause.startswith("Cause: AOTAutograd or the backend.")
    last = session.continue_to_stop(at="called")
    session.request("setExceptionBreakpoints", {"filters": []})
    assert last.frame.evaluate(OURS).text == "[False, False]"
    assert session.run_to_end() == 0


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("__value__.isinf().any()", ["log_of_zero", "overflow", "third_turn", "input_changed", "number", "row", "eps"]),
        ("__kind__ == 'inf'", ["third_turn", "input_changed", "number", "row"]),
    ],
)
def test_a_condition_chooses(session: Session, tmp_path: Path, condition: str, expected: list[str]) -> None:
    """Conditions are on the operation's result, and on the results of the call."""
    launch(session, program_of(CULPRITS, tmp_path), condition)
    for marker in expected:
        session.wait_for_stop("exception", at=marker)
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "done 0.49625658988952637\n"


CORRECT = '''
import sys
import torch
from torch import nn

class Causal(nn.Module):
    """A mask of -inf, an output of -inf that the program asks for, numbers that are not used."""

    def __init__(self):
        super().__init__()
        self.heads = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        size = x.shape[1]
        mask = torch.full((size, size), float("-inf"), dtype=x.dtype).triu(1)
        x = self.norm(x + self.heads(x, x, x, attn_mask=mask)[0])
        logits = torch.where(x > 0, x, x.abs().log())
        least = logits.topk(3).values[..., -1:]
        return logits.masked_fill(logits < least, float("-inf"))

class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5), nn.Flatten(),
            nn.LazyLinear(4),
        )

    def forward(self, x):
        return self.layers(x).log_softmax(-1)

class Masked(nn.Module):
    """Divides by zero where it then takes another value, and sums up what is large."""

    def forward(self, x):
        scratch = torch.empty_like(x)
        scratch.copy_(x / x)
        scratch[x == 0] = 1.0
        large = torch.full_like(x, torch.finfo(x.dtype).max / 2)
        return torch.where(x == 0, torch.zeros_like(x), 1 / x) + scratch, large

def models():
    yield Causal(), lambda: torch.randn(2, 5, 16)
    yield Images(), lambda: torch.randn(4, 3, 12, 12)
    yield Masked(), lambda: torch.randn(6, 6).relu()
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    yield nn.TransformerEncoder(layer, 2), lambda: torch.randn(2, 5, 16)
    yield nn.LSTM(8, 8), lambda: torch.randn(4, 2, 8)
    yield nn.Sequential(nn.Embedding(10, 8), nn.GRU(8, 8)), lambda: torch.arange(8).reshape(4, 2)

count = 0
for dtype in (torch.float32, torch.bfloat16):
    torch.manual_seed(0)
    for model, given in models():
        if isinstance(model, Images):
            model(given())
        model = model.to(dtype)
        step = torch.compile(model, backend="aot_eager")
        for number in range(3):
            x = given()
            x = x.to(dtype) if x.is_floating_point() else x
            step(x)
            count += 1
print(count, "calls")
'''


@pytest.mark.timeout(300)
def test_correct_programs_do_not_stop(session: Session, tmp_path: Path) -> None:
    """They run in float32 and bfloat16, in training mode."""
    launch(session, program_of(CORRECT, tmp_path))
    assert session.wait_for_exit() == 0
    assert "36 calls" in session.output("stdout")


LIBRARIES = """
import sys
import torch
import transformers
from torch_geometric.nn import models as graph_models

small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=64)
count = 0
for dtype in (torch.float32, torch.bfloat16):
    torch.manual_seed(0)
    ids = torch.arange(12).reshape(2, 6) % 50
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[1, :3] = 0
    cases = [
        (transformers.LlamaForCausalLM(transformers.LlamaConfig(**small)), dict(input_ids=ids, attention_mask=mask)),
        (transformers.BertModel(transformers.BertConfig(**small)), dict(input_ids=ids, attention_mask=mask)),
        (
            transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64)),
            dict(input_ids=ids, attention_mask=mask),
        ),
        (
            graph_models.GCN(8, 16, 2, 4),
            dict(x=torch.randn(6, 8, dtype=dtype), edge_index=torch.randint(0, 6, (2, 18))),
        ),
    ]
    for model, given in cases:
        step = torch.compile(model.to(dtype).train(), backend="eager")
        for number in range(2):
            step(**given)
            count += 1
print(count, "calls")
"""


MORE_LIBRARIES = """
import torch
import transformers as library
from torch_geometric.nn import models as graph_models

small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
ids = torch.arange(12).reshape(2, 6) % 50
mask = torch.ones(2, 6, dtype=torch.long)
mask[1, :3] = 0
text = dict(input_ids=ids, attention_mask=mask)

def cases(dtype):
    t5 = library.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=64)
    yield library.T5Model(t5), dict(**text, decoder_input_ids=ids)
    distilled = library.DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=64, vocab_size=64)
    yield library.DistilBertModel(distilled), text
    yield library.ElectraModel(library.ElectraConfig(**small, vocab_size=64, embedding_size=32)), text
    yield library.Qwen2ForCausalLM(library.Qwen2Config(**small, vocab_size=64, num_key_value_heads=2)), text
    yield library.MistralForCausalLM(library.MistralConfig(**small, vocab_size=64, num_key_value_heads=2)), text
    opt = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64, word_embed_proj_dim=32)
    yield library.OPTModel(library.OPTConfig(**opt, vocab_size=64)), text
    vit = library.ViTConfig(**small, image_size=16, patch_size=4)
    yield library.ViTModel(vit), dict(pixel_values=torch.randn(2, 3, 16, 16, dtype=dtype))
    graph = dict(x=torch.randn(6, 8, dtype=dtype), edge_index=torch.randint(0, 6, (2, 18)))
    for kind in (graph_models.GAT, graph_models.GIN, graph_models.GraphSAGE):
        yield kind(8, 16, 2, 4), graph

count = 0
for dtype in (torch.float32, torch.bfloat16):
    torch.manual_seed(0)
    for model, given in cases(dtype):
        torch.compile(model.to(dtype).train(), backend="eager")(**given)
        count += 1
print(count, "calls")
"""

IMAGES = """
import timm
import torch

vit = dict(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4)
count = 0
for dtype in (torch.float32, torch.bfloat16):
    torch.manual_seed(0)
    for name, options in (("resnet10t", {}), ("mobilenetv3_small_050", {}), ("vit_tiny_patch16_224", vit)):
        model = timm.create_model(name, **options).to(dtype).train()
        torch.compile(model, backend="eager")(torch.randn(4, 3, 32, 32, dtype=dtype))
        count += 1
print(count, "calls")
"""
_BOTH = "(torch.float32, torch.bfloat16)"
OF_LIBRARIES = {
    "language": (LIBRARIES, ("transformers", "torch_geometric"), "16 calls"),
    "more": (MORE_LIBRARIES.replace(_BOTH, "(torch.float32,)"), ("transformers", "torch_geometric"), "10 calls"),
    "bfloat16": (MORE_LIBRARIES.replace(_BOTH, "(torch.bfloat16,)"), ("transformers", "torch_geometric"), "10 calls"),
    "images": (IMAGES, ("timm",), "6 calls"),
}
"""Programs, the libraries that they need, and their output."""


def need_libraries(*names: str) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as problem:  # noqa: BLE001  (torchvision, which timm needs, fails in its own way beside some torch)
            pytest.skip(f"{name} cannot be imported: {problem}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", OF_LIBRARIES)
def test_correct_models_of_libraries_do_not_stop(session: Session, tmp_path: Path, kind: str) -> None:
    """The models have attention masks that leave out tokens, graph networks, and images."""
    text, needed, printed = OF_LIBRARIES[kind]
    need_libraries(*needed)
    launch(session, program_of(text, tmp_path))
    assert session.wait_for_exit(deadline=250) == 0
    assert printed in session.output("stdout")


BACKWARD = """
import torch

def two_uses(h):
    n = (h * h).sum()
    d = n.sqrt()  # @root
    e = n + 1
    return d * e

def of_tuple(a):
    s = a + a.T
    values, vectors = torch.linalg.eigh(s)  # @eigh
    return vectors.sum() + values.sum()

for function, size in ((two_uses, (3,)), (of_tuple, (3, 3))):
    h = torch.zeros(size, requires_grad=True)
    torch.compile(function, backend="aot_eager")(h).backward()
print("done")
"""


def test_in_a_backward_pass_the_operation_whose_own_part_is_not_finite_is_named(
    session: Session, tmp_path: Path
) -> None:
    """It is not the tensor's last user; it may return a tuple."""
    launch(session, program_of(BACKWARD, tmp_path))
    for marker in ("root", "eigh"):
        session.wait_for_stop("exception", at=marker)
        session.resume()
    assert session.wait_for_exit() == 0


OF_FORWARD = """
import torch

@torch.compile(backend="aot_eager")
def squared(w, x):
    y = (w * x).sum()  # @input
    return y * y

@torch.compile(backend="aot_eager")
def of_rows(x):
    norms = torch.vmap(lambda row: row.pow(2).sum().sqrt())(x)
    return norms.sum() + (x * 2).sum()

squared(torch.tensor([1.0, float("nan")], requires_grad=True), torch.ones(2)).backward()
of_rows(torch.zeros(2, 3, requires_grad=True)).backward()
print("done")
"""


def test_a_backward_pass_that_did_not_make_the_nan_does_not_stop(session: Session, tmp_path: Path) -> None:
    """A NaN of the forward pass does not stop; a transform stops only at its own line, since its inside is unknown."""
    launch(session, program_of(OF_FORWARD, tmp_path))
    session.wait_for_stop("exception", at="input")
    assert session.run_to_end() == 0
    assert session.output("stdout") == "done\n"
    assert "transforms of torch.func" in session.output("important")


CHANCE = """
import torch
import torch.nn.functional as F

def shared(x):
    return x / F.dropout(x, 0.5, training=True)

compiled = torch.compile(shared)
torch.manual_seed(0)
print(sum(compiled(torch.ones(1)).isinf().item() for _ in range(12)) > 0)
"""


def test_other_random_numbers_of_inductor_are_no_evidence(session: Session, tmp_path: Path) -> None:
    """If a replay drops other elements, the compiler is not blamed, and the stop shows no value."""
    launch(session, program_of(CHANCE, tmp_path), "__value__ is None")
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "True\n"
    assert "line that made it is unknown" in session.output("important")


LATE = """
import sys
import torch
import dynamo_dap

weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
optimizer = torch.optim.Adam([weight], lr=0.1, eps=0.0)

@torch.compile(backend=sys.argv[1])
def step():
    optimizer.step()

def train(number):
    weight.grad = torch.tensor([float(number < 4), 1.0])
    if number == 4:
        for state in ("exp_avg", "exp_avg_sq"):
            optimizer.state[weight][state].zero_()
    step()

for number in range(3):
    train(number)
host, port = dynamo_dap.listen(0)
print(f"listening on {host}:{port}", flush=True)
dynamo_dap.wait_for_client()
for number in range(3, 6):
    train(number)
print("trained", flush=True)
"""


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_optimizer_that_was_compiled_before_the_debugger_attached(
    session: Session, tmp_path: Path, backend: str
) -> None:
    """Its parameters belong to the compiled graph; they are not arguments of a call."""
    path = tmp_path / "late.py"
    path.write_text(LATE, encoding="utf-8")
    program = FreeProgram(path, backend)
    try:
        host, port = program.address()
        with session.configuring("attach", {"connect": {"host": host, "port": port}}):
            session.request("setExceptionBreakpoints", {"filters": ["nan"]})
        stop = session.wait_for_stop("exception")
        text = session.request("exceptionInfo", {"threadId": stop.thread_id})["description"]
        assert "addcdiv_ made the first" in text
        assert "optimizer.step()" in text
        session.request("setExceptionBreakpoints", {"filters": []})
        session.resume()
        assert program.wait_for_line("trained")
    finally:
        program.end()
