"""diffusers: a small U-Net denoises twice."""

# also: diffusers.models.resnet ResnetBlock2D.forward
import torch
from diffusers import DDPMScheduler, UNet2DModel

torch.manual_seed(0)
model = UNet2DModel(
    sample_size=8,
    in_channels=1,
    out_channels=1,
    layers_per_block=1,
    block_out_channels=(8,),
    norm_num_groups=4,
    down_block_types=("DownBlock2D",),
    up_block_types=("UpBlock2D",),
)
compiled = torch.compile(model, backend="eager")
scheduler = DDPMScheduler(num_train_timesteps=2)
sample = torch.randn(1, 1, 8, 8)
with torch.no_grad():
    for step in scheduler.timesteps:
        noise = compiled(sample, step).sample
        sample = scheduler.step(noise, step, sample).prev_sample
print(sample.sum().item())
print(torch.rand(2).tolist())
