"""torch_geometric: two graph convolutions."""

# also: torch_geometric.nn.conv.gcn_conv GCNConv.forward
import torch
from torch_geometric.nn import GCNConv


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GCNConv(3, 4)
        self.second = GCNConv(4, 2)

    def forward(self, x, edges):
        x = self.first(x, edges).relu()
        return self.second(x, edges)


torch.manual_seed(0)
net = torch.compile(Net(), backend="aot_eager")
edges = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
for _ in range(2):
    print(net(torch.randn(3, 3), edges).sum().item())
print(torch.rand(2).tolist())
