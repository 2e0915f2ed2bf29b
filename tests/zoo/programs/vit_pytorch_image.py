"""vit-pytorch: a vision transformer that rearranges with einops."""

# also: vit_pytorch.vit ViT.forward
import torch
from vit_pytorch import ViT

torch.manual_seed(0)
model = ViT(image_size=8, patch_size=4, num_classes=3, dim=16, depth=1, heads=2, mlp_dim=16).eval()
compiled = torch.compile(model, backend="aot_eager")
with torch.no_grad():
    for _ in range(2):
        print(round(compiled(torch.randn(1, 3, 8, 8)).sum().item(), 4))
print(torch.rand(2).tolist())
