"""Calls a compiled Llama of two layers, tiny and with random weights, three times."""

import torch
import transformers

config = transformers.LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
)
model = transformers.LlamaForCausalLM(config).eval()
compiled = torch.compile(model, backend="eager")
with torch.no_grad():
    for number in range(3):
        compiled(input_ids=torch.arange(6).reshape(1, 6))
