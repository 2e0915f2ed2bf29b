"""litgpt: a small GPT, whose cached calls have other lengths."""

# also: litgpt.model GptNeoxMLP.forward
import torch
from litgpt import GPT, Config

torch.manual_seed(0)
config = Config(block_size=16, n_layer=1, n_embd=16, n_head=2, padded_vocab_size=20, vocab_size=20)
model = GPT(config).eval()
compiled = torch.compile(model, backend="aot_eager")
with torch.no_grad():
    for length in (4, 4, 6):
        logits = compiled(torch.arange(length)[None])
        print(round(logits.sum().item(), 4))
print(torch.rand(2).tolist())
