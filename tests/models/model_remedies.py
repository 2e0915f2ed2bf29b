"""Programs like those of ``remedies``, with models of transformers: small ones with random weights."""

from __future__ import annotations

from tests.records.remedies import Program

_SIZES = (
    "SIZES = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)\n"
    "SIZES['vocab_size'] = 32\n\n\n"
)
_BERT = (
    "from transformers import BertConfig, BertModel\n\n"
    + _SIZES
    + "def main():\n    torch.manual_seed(0)\n    model, found = BertModel(BertConfig(**SIZES)).eval(), []\n"
    "    compiled = torch.compile(model, backend='eager')\n    with torch.no_grad():\n"
)
_LLAMA = (
    "from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache\n\n"
    + _SIZES
    + "def main():\n    torch.manual_seed(0)\n"
    "    model = LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2)).eval()\n"
    "    compiled, found = torch.compile(model, backend='eager'), []\n"
)
_CALL = "            found.append(compiled(words)[0])\n"


def _marked(dimension: int) -> tuple[str, str]:
    return _CALL, f"            torch._dynamo.maybe_mark_dynamic(words, {dimension})\n{_CALL}"


PROGRAMS = [
    Program(
        "batches_of_a_bert",
        f"{_BERT}        for size in (2, 3, 4):\n            words = torch.ones(size, 6, dtype=torch.long)\n"
        f"{_CALL}    return found\n",
        advice="maybe_mark_dynamic",
        edit=_marked(0),
        cause="size 0 of args[0]: 2, 3",
        origin="found.append(compiled(words)[0])",
    ),
    Program(
        "lengths_of_a_bert",
        f"{_BERT}        for size in (6, 7, 9):\n            words = torch.ones(2, size, dtype=torch.long)\n"
        f"{_CALL}    return found\n",
        advice="maybe_mark_dynamic",
        edit=_marked(1),
        cause="size 1 of args[0]: 6, 7",
        origin="found.append(compiled(words)[0])",
    ),
    Program(
        "generation_of_a_llama",
        f"{_LLAMA}    words, cache = torch.ones(1, 4, dtype=torch.long), DynamicCache(config=model.config)\n"
        "    with torch.no_grad():\n        for _ in range(5):\n"
        "            out = compiled(words, past_key_values=cache, use_cache=True)\n"
        "            words = out.logits[:, -1:].argmax(-1)\n            found.append(words)\n    return found\n",
        advice="StaticCache(config, max_cache_len=N)",
        edit=("DynamicCache(config=model.config)\n", "StaticCache(config=model.config, max_cache_len=16)\n"),
        cause="size 2 of kwargs['past_key_values'].layers[0].keys: 4, 5",
        origin="out = compiled(words, past_key_values=cache, use_cache=True)",
    ),
    Program(
        "lengths_of_a_mixture_of_experts",
        "from transformers import MixtralConfig, MixtralForCausalLM\n\n" + _SIZES + "def main():\n"
        "    torch.manual_seed(0)\n"
        "    config = MixtralConfig(**SIZES, num_key_value_heads=2, num_local_experts=2, num_experts_per_tok=1)\n"
        "    compiled, found = torch.compile(MixtralForCausalLM(config).eval(), backend='eager'), []\n"
        "    with torch.no_grad():\n        for size in (5, 6, 7):\n            words = torch.arange(size)[None]\n"
        f"{_CALL}    return found\n",
        advice="maybe_mark_dynamic",
        edit=_marked(1),
        cause="size 1 of args[0]: 5, 6",
        origin="found.append(compiled(words)[0])",
    ),
]
