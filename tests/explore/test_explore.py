"""``dynamo-dap explore``: the stages of real models agree with what torch itself notes of where each part came from."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from dynamo_dap.explore.file import (
    KEPT,
    SUFFIX,
    StagesWriter,
    UnreadableStages,
    read_stages,
    remove_old_stages,
    stages_in,
)
from dynamo_dap.explore.model import STAGES, Document, Explored, Links, Part
from dynamo_dap.explore.text import kernels_by_line
from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from dynamo_dap.records.model import Place
from tests.client import Session
from tests.client.environments import alone, own_command

_NOTING = """\
import json, sys
import torch
import torch._inductor.debug as debug
from torch._inductor import metrics
from torch.utils.flop_counter import FlopCounterMode

torch._logging.set_logs(inductor_metrics=True)  # without it torch does not count
found, saved = [], []
backward = torch.Tensor.backward


def noting(loss):
    saved.extend(each.nbytes for each in loss.grad_fn.saved_tensors)
    backward(loss)


torch.Tensor.backward = noting
original = debug.dump_inductor_provenance_info


def dump():
    answer = original()
    kernels = debug._inductor_triton_kernel_to_post_grad_node_info
    found.append({"postToPre": answer.get("postToPre", {}), "kernels": kernels})
    found[-1] = json.loads(json.dumps(found[-1]))
    return answer


debug.dump_inductor_provenance_info = dump
torch.manual_seed(0)
"""
_SAVING = """\
torch.Tensor.backward = backward
with FlopCounterMode(display=False) as counter:
    uncompiled()
figures = {"bytes": metrics.num_bytes_accessed, "saved": sum(saved), "flops": counter.get_total_flops()}
with open(sys.argv[1], "w") as file:
    json.dump([*found, figures], file)
"""
SMALL = """\
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)])

    def forward(self, x, scale):
        hidden = self.layers[0](self.norm(x))
        active = torch.relu(hidden) * scale  # in one kernel with what follows
        return self.layers[1](active + x).sum()


def uncompiled():
    Model()(torch.randn(3, 8), torch.tensor(2.0)).backward()


torch.compile(Model())(torch.randn(3, 8), torch.tensor(2.0)).backward()
"""
LANGUAGE_MODEL = """\
class Norm(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Attention(torch.nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (torch.nn.Linear(size, size, bias=False) for _ in range(4))

    def rotated(self, x):
        angles = torch.arange(x.shape[2])[:, None] / 10 ** torch.arange(0, 1, 2 / x.shape[3])
        first, second = x.chunk(2, -1)
        cosine, sine = angles.cos(), angles.sin()
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)

    def forward(self, x):
        shape = (*x.shape[:2], self.heads, -1)
        query, key, value = (each(x).view(shape).transpose(1, 2) for each in (self.query, self.key, self.value))
        mixed = torch.nn.functional.scaled_dot_product_attention(
            self.rotated(query), self.rotated(key), value, is_causal=True
        )
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class Block(torch.nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.attention, self.before, self.after = Attention(size, heads), Norm(size), Norm(size)
        self.gate, self.up = torch.nn.Linear(size, 2 * size, bias=False), torch.nn.Linear(size, 2 * size, bias=False)
        self.down = torch.nn.Linear(2 * size, size, bias=False)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        hidden = self.after(x)
        return x + self.down(torch.nn.functional.silu(self.gate(hidden)) * self.up(hidden))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = torch.nn.Embedding(50, 16), Norm(16)
        self.layers = torch.nn.ModuleList([Block(16, 2), Block(16, 2)])

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        logits = self.norm(x) @ self.embedding.weight.t()
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


model, tokens = Model(), torch.randint(0, 50, (2, 6))
torch.compile(model)(tokens, tokens).backward()


def uncompiled():
    model(tokens, tokens).backward()


"""
IMAGE_MODEL = """\
class Residual(torch.nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.first = torch.nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = torch.nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm2d(after), torch.nn.BatchNorm2d(after)])
        self.shortcut = torch.nn.Conv2d(before, after, 1, stride, bias=False) if stride > 1 else torch.nn.Identity()

    def forward(self, x):
        hidden = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(hidden)) + self.shortcut(x))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, 2, 1)
        self.blocks = torch.nn.ModuleList([Residual(8, 8, 1), Residual(8, 16, 2)])
        self.head = torch.nn.Linear(16, 3)

    def forward(self, x, labels):
        x = torch.nn.functional.max_pool2d(torch.relu(self.stem(x)), 2)
        for block in self.blocks:
            x = block(x)
        return torch.nn.functional.cross_entropy(self.head(x.mean((2, 3))), labels)


model, images, labels = Model(), torch.randn(2, 3, 16, 16), torch.tensor([0, 2])
torch.compile(model)(images, labels).backward()


def uncompiled():
    model(images, labels).backward()


"""
LLAMA = """\
from transformers import LlamaConfig, LlamaForCausalLM

sizes = dict(vocab_size=100, hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2)
model = torch.compile(LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, **sizes)))
ids = torch.randint(0, 100, (1, 8))
model(input_ids=ids, labels=ids, use_cache=False).loss.backward()


def uncompiled():
    model._orig_mod(input_ids=ids, labels=ids, use_cache=False).loss.backward()


"""
RESNET = """\
from transformers import ResNetConfig, ResNetForImageClassification

sizes = dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], layer_type="basic", num_labels=3)
model = torch.compile(ResNetForImageClassification(ResNetConfig(**sizes)))
given = dict(pixel_values=torch.randn(2, 3, 32, 32), labels=torch.tensor([0, 1]))
model(**given).loss.backward()


def uncompiled():
    model._orig_mod(**given).loss.backward()


"""
GRAPHS = (
    "dynamo",
    "pre-grad",
    "joint",
    "joint-passes",
    "forward",
    "forward-post-grad",
    "backward",
    "backward-post-grad",
)


def _explore(folder: Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    return _command(folder, *options, str(path), str(folder / "noted.json"))


def _command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*own_command(), "explore", *arguments],
        env={**os.environ, RECORDS_VARIABLE: str(folder / "records")},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def _parts(compiled: Explored, document: str) -> list[Part]:
    return next(each for each in compiled.documents if each.id == document).parts


_LARGE = [pytest.param(name, marks=pytest.mark.long) for name in ("language", "image", "llama", "resnet")]


@pytest.fixture(scope="module", params=["small", *_LARGE])
def explored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Explored, list[dict]]:  # type: ignore[type-arg]
    """A model's only compile, forward and backward, and what torch has noted of both."""
    if request.param in ("llama", "resnet") and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed: the models are its own")
    folder = tmp_path_factory.mktemp(request.param)
    models = {"small": SMALL, "language": LANGUAGE_MODEL, "image": IMAGE_MODEL, "llama": LLAMA, "resnet": RESNET}
    model = models[request.param]
    run = _explore(folder, _NOTING + model + _SAVING, "--json")
    assert run.returncode == 0, run.stderr
    (compiled,) = msgspec.json.decode(run.stdout, type=list[Explored])
    return compiled, json.loads((folder / "noted.json").read_text(encoding="utf-8"))


def test_every_stage_of_forward_and_backward_is_there(explored: tuple[Explored, list]) -> None:  # type: ignore[type-arg]
    compiled, _ = explored
    assert [each.id for each in compiled.documents] == list(STAGES)
    for document in compiled.documents:
        lines = document.text.count("\n")
        assert lines > 3, document.id
        assert all(1 <= part.first <= part.last <= lines for part in document.parts), document.id
        assert len({part.name for part in document.parts}) == len(document.parts)


def test_every_operation_is_mapped_or_listed_as_lost(explored: tuple[Explored, list]) -> None:  # type: ignore[type-arg]
    compiled, _ = explored
    for document in compiled.documents:
        without = [part.name for part in document.parts if not part.lines and "=" in _line(document, part)]
        lost = [name for name in without if name in document.lost]
        assert {each for each in without if each not in document.lost} <= _inputs(document), document.id
        assert len(lost) <= max(8, document.operations // 20), (document.id, lost)
        if document.id.endswith(("-ir", "-fused", "-kernels")):
            # Those that copy an input are not of a line.
            made_from = {part.name: part.parents for part in document.parts}
            assert all(made_from[name] for name in document.lost), document.id
        if document.id.endswith("-kernels"):
            assert document.lost == [], document.id


def _line(document: Document, part: Part) -> str:
    return document.text.splitlines()[part.first - 1]


def _inputs(document: Document) -> set[str]:
    return {part.name for part in document.parts if _line(document, part).lstrip().startswith("#")}


def test_kernels_compute_the_nodes_that_torch_says(explored: tuple[Explored, list]) -> None:  # type: ignore[type-arg]
    compiled, noted = explored
    links = Links(compiled.documents)
    for direction, of in zip(("forward", "backward"), noted[:2], strict=True):
        calls = {part.name: part for part in _parts(compiled, f"{direction}-code") if "definition" not in part.name}
        assert set(calls) == set(of["kernels"])
        for name, nodes in of["kernels"].items():
            found = links.made_from(f"{direction}-code:{name}")
            assert {part.name for part in links.in_document(found, f"{direction}-post-grad")} == set(nodes), name


def test_nodes_were_made_from_the_nodes_that_torch_says(explored: tuple[Explored, list]) -> None:  # type: ignore[type-arg]
    compiled, (forward, *_) = explored
    links = Links(compiled.documents)
    assert len(forward["postToPre"]) > 5
    for name, nodes in forward["postToPre"].items():
        found = links.made_from(f"forward-post-grad:{name}")
        assert {part.name for part in links.in_document(found, "pre-grad")} == set(nodes), name


def test_costs_are_those_that_torch_counts(explored: tuple[Explored, list]) -> None:  # type: ignore[type-arg]
    compiled, (*_, figures) = explored
    operations = [*_parts(compiled, "forward-fused"), *_parts(compiled, "backward-fused")]
    kernels = [*_parts(compiled, "forward-kernels"), *_parts(compiled, "backward-kernels")]
    moved = [sum((each.read or 0) + (each.written or 0) for each in of) for of in (operations, kernels)]
    assert moved[0] == figures["bytes"]
    assert moved[0] * 0.9 <= moved[1] <= moved[0], "a call of ATen's may be no kernel of the output code"
    assert sum(each.flops or 0 for each in operations) == figures["flops"]
    assert all(each.memory is not None and each.memory >= (each.written or 0) for each in operations)
    assert sum(each.saved or 0 for each in _parts(compiled, "forward")) == figures["saved"]


def test_a_line_leads_to_its_kernels_and_back(explored: tuple[Explored, list]) -> None:  # type: ignore[type-arg]
    compiled, _ = explored
    links = Links(compiled.documents)
    by_line = kernels_by_line(compiled)
    assert any(len(kernels) == 2 for kernels in by_line.values()), "forward and backward"
    for (path, line), kernels in by_line.items():
        reached = links.became(links.of_line(path, line))
        for document, names in kernels.items():
            assert {f"{document}:{name}" for name in names} <= reached


def test_inputs_are_named_as_the_user_wrote_them_at_every_stage(explored: tuple[Explored, list]) -> None:  # type: ignore[type-arg]
    compiled, _ = explored
    for document in compiled.documents:
        if document.id in GRAPHS:
            code = "\n".join(line for line in document.text.splitlines() if not line.lstrip().startswith("#"))
            assert "l_self_" not in code, document.id
            assert "primals_" not in code, document.id
            assert "self." in code, document.id


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the small model was explored."""
    found = tmp_path_factory.mktemp("shown")
    run = _explore(found, _NOTING + SMALL + _SAVING)
    assert run.returncode == 0, run.stderr
    assert "active = torch.relu(hidden) * scale" in run.stdout
    assert "forward: cpp_fused_add_mul_relu" in run.stdout
    return found


def test_stages_are_shown_again_without_the_program(folder: Path) -> None:
    line = next(
        number for number, text in enumerate((folder / "program.py").read_text().splitlines(), 1) if "active =" in text
    )
    graph = _command(folder, "--stage", "dynamo").stdout
    assert "hidden = torch._C._nn.linear(layer_norm, self.layers[0].weight, self.layers[0].bias)" in graph
    changed = _command(folder, "--stage", "joint-passes").stdout
    assert "-    alias = torch.ops.aten.alias.default(relu)" in changed, "what passes changed, as a diff"
    kernels = _command(folder, "--stage", "kernels", "--function", "Model.forward").stdout
    assert kernels.count('extern "C"  void  kernel(') >= 3, "of both directions"
    assert f"// program.py:{line} in forward: active = torch.relu(hidden) * scale" in kernels
    became = _command(folder, "--line", f"program.py:{line}").stdout
    assert "relu = torch.relu(hidden)" in became
    assert "le = torch.ops.aten.le.Scalar(relu, 0)" in became
    assert "cpp_fused_mul_threshold_backward_1" in became


def test_what_is_not_there_is_said(folder: Path) -> None:
    wrong = _command(folder, "--stage", "nowhere")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "no stage 'nowhere'" in wrong.stderr
    assert "there are: dynamo, pre-grad," in wrong.stderr
    assert "no compile of 'nobody'; there are: Model.forward" in _command(folder, "--function", "nobody").stderr
    empty = _explore(folder, "print('nothing here')\n")
    assert empty.returncode == 1
    assert "the program compiled nothing" in empty.stderr
    failing = _explore(
        folder, "import sys, torch\ntorch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\nsys.exit(3)\n"
    )
    assert failing.returncode == 3
    assert "dynamo  " in failing.stdout, "what was compiled before it ended; of another backend its graph"


def test_the_graph_as_a_program_runs(folder: Path, tmp_path: Path) -> None:
    stages = next(each for each in sorted((folder / "records").rglob(f"*{SUFFIX}")))
    (compiled,) = read_stages(stages)
    program = tmp_path / "runnable.py"
    program.write_text(
        next(each for each in compiled.documents if each.id == "forward-runnable").text, encoding="utf-8"
    )
    run = alone(program, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stderr


def test_files_from_elsewhere_obey_nobody(tmp_path: Path) -> None:
    file = tmp_path / f"any{SUFFIX}"
    document = Document("dynamo", "t\x1b[2J", "python", "x\x1b[2Jy\n</script><script>alert(1)</script>")
    made = {"compiled": Explored("0/0", "f\x1b]0;", Place("p.py", 1)), "document": document}
    begun = {"stages": 1, "program": [], "cwd": "/"}
    file.write_bytes(b"\n".join(map(msgspec.json.encode, [begun, made, {"half": 1}])))
    (compiled,) = read_stages(file)
    assert "\x1b" not in compiled.name + compiled.documents[0].title + compiled.documents[0].text
    file.write_bytes(msgspec.json.encode({**begun, "stages": 99}))
    with pytest.raises(UnreadableStages, match="99"):
        read_stages(file)


def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = 10_000
    monkeypatch.setattr("dynamo_dap.explore.file.BOUND", bound)
    explored = Explored("0/0", "f", Place("p.py", 1))
    for number in range(KEPT + 3):
        file = tmp_path / f"{number:03}{SUFFIX}"
        writer = StagesWriter(file, ["p.py"])
        writer.write(explored, [Document(each, each, "python", "x" * 3000) for each in STAGES])
        assert bound - 4000 < file.stat().st_size <= bound
    assert [each.id for each in read_stages(file)[0].documents] == list(STAGES[:3]), "whole documents"
    remove_old_stages(tmp_path)
    assert [each.name for each in stages_in(tmp_path)] == [f"{each:03}{SUFFIX}" for each in range(3, KEPT + 3)]


def test_stages_in_a_debug_session(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import torch\n\n{SMALL}\nprint('done')\n", encoding="utf-8")
    end = program.read_text(encoding="utf-8").splitlines().index("print('done')") + 1
    session.launch(program, end, explore=True)
    session.wait_for_stop("breakpoint")
    (listed,) = session.request("dynamoStages", {})["compiles"]
    assert [each["id"] for each in listed["stages"]] == list(STAGES)
    assert "parts" not in listed["stages"][0]
    (compiled,) = session.request("dynamoStages", {"compileId": "0/0"})["compiles"]
    by_id = {each["id"]: each for each in compiled["stages"]}
    source = by_id["forward-kernels"]["source"]
    assert source["name"] == "forward-kernels of Model.forward [0\N{DIVISION SLASH}0].cpp"
    text = session.request("source", {"source": source, "sourceReference": 0})["content"]
    part = next(each for each in by_id["forward-kernels"]["parts"] if "relu" in each["name"])
    assert text.splitlines()[part["first"] - 1] == f"// {part['name']}"
    assert "in one kernel" in text, "under the user's lines"
    before = by_id["joint-passes"]["before"]
    assert "aten.alias.default(relu)" in session.request("source", {"source": before, "sourceReference": 0})["content"]
    assert "7/7" in session.refusal("dynamoStages", {"compileId": "7/7"})
    session.set_breakpoints(program)
    session.run_to_end()


def test_without_the_option_nothing_is_explored(session: Session) -> None:
    session.launch("basic", "print")
    session.wait_for_stop("breakpoint", at="print")
    assert '"explore": true' in session.refusal("dynamoStages", {})
    session.set_breakpoints("basic")
    session.run_to_end()
