"""sentence-transformers: a small BERT with pooling, as one compiled model."""

# also: sentence_transformers.models.Pooling Pooling.forward
import tempfile
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizerFast

torch.manual_seed(0)
with tempfile.TemporaryDirectory() as folder:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "short", "sentence", "and", "another"]
    Path(folder, "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(str(Path(folder, "vocab.txt"))).save_pretrained(folder)
    config = BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=len(words)
    )
    BertModel(config).save_pretrained(folder)
    model = SentenceTransformer(modules=[Transformer(folder), Pooling(16)], device="cpu")
model.compile(backend="aot_eager")
for sentences in (["a short sentence"], ["another sentence"], ["a short sentence", "and another"]):
    vectors = model.encode(sentences, show_progress_bar=False)
    print(vectors.shape, round(float(vectors.sum()), 4))
print(torch.rand(2).tolist())
