"""e3nn: spherical harmonics and a gate of an equivariant network."""

import torch
from e3nn import o3


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = o3.Linear("1x0e + 1x1o", "2x0e + 1x1o")

    def forward(self, positions):
        length = positions.norm(dim=-1, keepdim=True)
        features = torch.cat([length, positions], dim=-1)
        return self.linear(features)


torch.manual_seed(0)
model = torch.compile(Model(), backend="aot_eager")
for _ in range(2):
    print(model(torch.randn(5, 3)).sum().item())
print(torch.rand(2).tolist())
