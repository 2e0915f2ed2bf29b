"""speechbrain: a block of a recognizer, in a package whose modules are lazy."""

# also: speechbrain.nnet.containers Sequential.forward
import speechbrain as sb
import torch
from speechbrain.nnet.containers import Sequential
from speechbrain.nnet.linear import Linear
from speechbrain.nnet.normalization import LayerNorm

torch.manual_seed(0)
print(sb.__name__)
model = Sequential(
    Linear(n_neurons=8, input_size=5),
    torch.nn.LeakyReLU(),
    LayerNorm(input_size=8),
    Linear(n_neurons=3, input_size=8),
)
compiled = torch.compile(model, backend="aot_eager")
for _ in range(2):
    print(round(compiled(torch.randn(2, 4, 5)).sum().item(), 4))
print(torch.rand(2).tolist())
