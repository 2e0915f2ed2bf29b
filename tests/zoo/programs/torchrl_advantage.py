"""torchrl: an actor whose step is compiled, and the advantages of its rewards."""

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.modules import MLP
from torchrl.objectives.value.functional import generalized_advantage_estimate

torch.manual_seed(0)
actor = TensorDictModule(MLP(in_features=3, out_features=2, num_cells=[8]), in_keys=["seen"], out_keys=["action"])


@torch.compile(backend="aot_eager")
def step(data):
    data = actor(data)
    action = data["action"].tanh()
    return data.set("action", action)


for _ in range(2):
    data = step(TensorDict({"seen": torch.randn(4, 3)}, batch_size=[4]))
    print(round(data["action"].sum().item(), 4))
value, following, reward = torch.rand(4, 1), torch.rand(4, 1), torch.rand(4, 1)
done = torch.tensor([[False], [False], [False], [True]])
advantage, target = generalized_advantage_estimate(0.9, 0.95, value, following, reward, done)
print(round(advantage.sum().item(), 4), round(target.sum().item(), 4))
print(torch.rand(2).tolist())
