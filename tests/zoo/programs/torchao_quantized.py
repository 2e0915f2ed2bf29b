"""torchao: weights in 8 bits."""

import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(32, 16)

    def forward(self, x):
        y = self.linear(x)
        return y.relu()


torch.manual_seed(0)
model = Model().eval()
quantize_(model, Int8WeightOnlyConfig())
compiled = torch.compile(model, backend="aot_eager")
with torch.no_grad():
    for _ in range(2):
        print(compiled(torch.randn(4, 32)).sum().item())
print(torch.rand(2).tolist())
