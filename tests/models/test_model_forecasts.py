"""Forecasts for models of transformers: each of 200 random inputs is asked of torch itself, in the same program."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client.environments import python_option
from tests.client.timeline import DEADLINE

pytestmark = pytest.mark.timeout(600)

PROGRAM = """\
import json
import sys

import torch
from transformers import BertConfig, BertModel, DynamicCache, LlamaConfig, LlamaForCausalLM
from transformers import MixtralConfig, MixtralForCausalLM, YolosConfig, YolosForObjectDetection

torch._dynamo.config.recompile_limit = 32
SIZES = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
TEXT = dict(SIZES, vocab_size=32)
YOLOS = dict(SIZES, image_size=[32, 32], patch_size=8, num_detection_tokens=4, use_mid_position_embeddings=False)
BUILD = {
    "bert": lambda: BertModel(BertConfig(**TEXT)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**TEXT, num_key_value_heads=2)),
    "mixtral": lambda: MixtralForCausalLM(
        MixtralConfig(**TEXT, num_key_value_heads=2, num_local_experts=2, num_experts_per_tok=1)
    ),
    "yolos": lambda: YolosForObjectDetection(YolosConfig(**YOLOS)),
}
CALLS = {
    "bert": [(2, 6), (3, 6), (3, 9)],
    "llama": [(4,), (5,), (6,)],
    "mixtral": [(1, 5), (1, 6), (1, 8)],
    "yolos": [(2,), (3,)],
}


def cache_of(model, length):
    cache = DynamicCache(config=model.config)
    for layer in range(model.config.num_hidden_layers):
        cache.update(torch.ones(1, 2, length, 8), torch.ones(1, 2, length, 8), layer)
    return cache


def call(name, sizes):
    if name == "llama":
        words, cache = torch.ones(1, 1, dtype=torch.long), cache_of(model, *sizes)
        return compiled(words, past_key_values=cache, use_cache=True).logits
    if name == "yolos":
        return compiled(torch.ones(*sizes, 3, 32, 32)).logits
    return compiled(torch.ones(*sizes, dtype=torch.long))[0]


name = sys.argv[1]
torch.manual_seed(0)
model = BUILD[name]().eval()
compiled = torch.compile(model, backend="eager")
with torch.no_grad():
    for sizes in CALLS[name]:
        call(name, sizes)
    if len(sys.argv) > 2:
        answers = []
        with open(sys.argv[2]) as file:
            given = json.load(file)
        for sizes in given:
            try:
                with torch.compiler.set_stance("fail_on_recompile"):
                    call(name, sizes)
                answers.append(True)
            except RuntimeError as error:
                if "fail_on_recompile" not in str(error):
                    raise
                answers.append(False)
        with open(sys.argv[3], "w") as file:
            json.dump(answers, file)
"""
WORDS = "args[0]=({},{})"
CACHE = "kwargs['past_key_values'].layers[0].{}.shape[2]={}"
INPUTS: dict[str, Any] = {
    "bert": ((1, 9), (2, 40), WORDS.format),
    "llama": ((1, 90), None, lambda size: ", ".join(CACHE.format(part, size) for part in ("keys", "values"))),
    "mixtral": ((1, 3), (2, 40), WORDS.format),
    "yolos": ((1, 30), None, "args[0]=({},3,32,32)".format),
}
"""By model: the ranges of its sizes, and how ``--input`` names them."""


@pytest.mark.parametrize("name", INPUTS)
def test_each_input_of_a_model_is_served_as_torch_serves_it(tmp_path: Path, name: str) -> None:
    program, given, answers = tmp_path / "program.py", tmp_path / "given.json", tmp_path / "answers.json"
    program.write_text(PROGRAM, encoding="utf-8")
    *ranges, named = INPUTS[name]
    rng = random.Random(0)
    inputs = [[rng.randint(*one) for one in ranges if one is not None] for _ in range(200)]
    given.write_text(json.dumps(inputs), encoding="utf-8")
    options = [f"--input={named(*sizes)}" for sizes in inputs]
    asked = [*python_option(program), "--json", *options, program, name, given, answers]
    ran = subprocess.run(
        [sys.executable, "-m", "dynamo_dap", "forecast", *map(str, asked)],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    functions = json.loads(ran.stdout.splitlines()[-1])["functions"]
    (found,) = [one["inputs"] for one in functions if len(one["inputs"]) == len(inputs)]
    served = json.loads(answers.read_text(encoding="utf-8"))
    assert set(served) == {True, False}, "some inputs compile"
    assert [one.get("entry") is not None for one in found] == served
