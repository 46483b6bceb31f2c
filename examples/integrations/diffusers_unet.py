"""diffusers: a UNet and a VAE compiled inside of a denoising loop, at changing resolutions. Random weights.

    python -m pliant run --stats examples/integrations/diffusers_unet.py
"""

from __future__ import annotations

import torch
from diffusers import AutoencoderKL, DDIMScheduler, DiTTransformer2DModel, UNet2DConditionModel

torch.manual_seed(0)
unet = UNet2DConditionModel(
    sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8,
    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    cross_attention_dim=32, attention_head_dim=8,
).eval()  # fmt: skip
vae = AutoencoderKL(block_out_channels=(32,), norm_num_groups=8, latent_channels=4).eval()
dit = DiTTransformer2DModel(
    num_attention_heads=2, attention_head_dim=16, in_channels=4, num_layers=2, sample_size=8, norm_num_groups=8
).eval()


def denoise(height: int, width: int, steps: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(height * width)
    latents = torch.randn(1, 4, height, width, generator=generator)
    text = torch.randn(1, 7, 32, generator=generator)
    scheduler = DDIMScheduler(num_train_timesteps=100)
    scheduler.set_timesteps(steps)
    for t in scheduler.timesteps:
        latents = scheduler.step(unet(latents, t, encoder_hidden_states=text).sample, t, latents).prev_sample
    return vae.decode(latents).sample


def label(height: int) -> torch.Tensor:
    x = torch.randn(2, 4, height, height, generator=torch.Generator().manual_seed(height))
    return dit(x, timestep=torch.tensor([3, 50]), class_labels=torch.tensor([1, 2])).sample


sizes = [(16, 16), (16, 24), (32, 16), (24, 24)]
with torch.no_grad():
    eager = [denoise(*s) for s in sizes] + [label(8)]
    unet.compile()
    dit.compile()
    vae.decode = torch.compile(vae.decode)
    compiled = [denoise(*s) for s in sizes] + [label(8)]
for a, b in zip(eager, compiled, strict=True):
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
print("the same pictures:", len(sizes), "sizes")
