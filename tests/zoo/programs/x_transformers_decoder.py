"""x-transformers: a decoder with rotary embeddings."""

# also: x_transformers.x_transformers FeedForward.forward
import torch
from x_transformers import Decoder, TransformerWrapper

torch.manual_seed(0)
model = TransformerWrapper(
    num_tokens=20, max_seq_len=16, attn_layers=Decoder(dim=16, depth=1, heads=2, rotary_pos_emb=True)
).eval()
compiled = torch.compile(model, backend="aot_eager")
with torch.no_grad():
    for length in (4, 4, 6):
        tokens = torch.arange(length)[None]
        print(compiled(tokens).sum().item())
print(torch.rand(2).tolist())
