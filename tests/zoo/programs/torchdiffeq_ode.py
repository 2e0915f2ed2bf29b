"""torchdiffeq: an ordinary differential equation, whose right side is compiled."""

# also: torchdiffeq._impl.rk_common _interp_evaluate
import torch
from torchdiffeq import odeint


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, t, y):
        y = self.linear(y) * t
        return y.tanh()


torch.manual_seed(0)
field = torch.compile(Field(), backend="aot_eager")
path = odeint(field, torch.ones(2), torch.linspace(0, 1, 3), method="rk4")
print([round(value, 4) for value in path.flatten().tolist()])
path.sum().backward()
print(round(field.linear.bias.grad.sum().item(), 4))
print(torch.rand(2).tolist())
