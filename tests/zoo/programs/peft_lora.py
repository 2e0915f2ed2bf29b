"""peft: a linear model with LoRA adapters."""

# also: peft.tuners.lora.layer Linear.forward
import torch
from peft import LoraConfig, get_peft_model


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.second = torch.nn.Linear(8, 2)

    def forward(self, x):
        hidden = self.first(x).relu()
        return self.second(hidden)


torch.manual_seed(0)
model = get_peft_model(Model(), LoraConfig(r=2, target_modules=["first", "second"]))
compiled = torch.compile(model, backend="aot_eager")
for _ in range(3):
    print(compiled(torch.randn(3, 4)).sum().item())
print(torch.rand(2).tolist())
