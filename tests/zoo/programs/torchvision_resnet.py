"""torchvision: a residual block, and a transform that is compiled."""

# also: torchvision.models.resnet BasicBlock.forward
import torch
from torchvision.models.resnet import BasicBlock
from torchvision.transforms.v2.functional import normalize


@torch.compile(backend="aot_eager")
def prepared(image):
    image = normalize(image, [0.5, 0.5, 0.5], [0.2, 0.2, 0.2])
    return image.flip(-1)


torch.manual_seed(0)
block = torch.compile(BasicBlock(3, 3).eval(), backend="aot_eager")
for _ in range(2):
    image = prepared(torch.rand(1, 3, 8, 8))
    print(round(block(image).sum().item(), 4))
print(torch.rand(2).tolist())
