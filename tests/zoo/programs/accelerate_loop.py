"""accelerate: a training loop with a compiled model."""

import torch
from accelerate import Accelerator


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def forward(self, x):
        y = self.linear(x)
        return y.tanh()


torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(torch.compile(model, backend="aot_eager"), optimizer)
for _ in range(3):
    loss = model(torch.randn(5, 4)).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
print(torch.rand(2).tolist())
