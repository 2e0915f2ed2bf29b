"""timm: a small vision transformer."""

# also: timm.models.vision_transformer Block.forward
import timm
import torch

torch.manual_seed(0)
model = timm.create_model(
    "vit_tiny_patch16_224", img_size=32, patch_size=16, depth=1, embed_dim=24, num_heads=2, num_classes=3
).eval()
compiled = torch.compile(model, backend="aot_eager")
with torch.no_grad():
    for _ in range(2):
        print(round(compiled(torch.randn(1, 3, 32, 32)).sum().item(), 4))
print(torch.rand(2).tolist())
