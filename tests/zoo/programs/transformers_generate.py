"""transformers: a small GPT-2 generates tokens, with its forward pass compiled."""

# also: transformers.models.gpt2.modeling_gpt2 GPT2MLP.forward
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=50, n_positions=32, bos_token_id=0, eos_token_id=49)
model = GPT2LMHeadModel(config).eval()
model.forward = torch.compile(model.forward, backend="aot_eager")
tokens = model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=4, do_sample=False, pad_token_id=0)
print(tokens.tolist())
print(torch.rand(2).tolist())
