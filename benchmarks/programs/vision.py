"""A residual network and a vision transformer on pictures of changing size."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.programs.program import Program, generator, seeded, sizes

COUNT = 30


class Block(nn.Module):
    """Two convolutions with batch norm around a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        same = stride == 1 and inside == outside
        self.shortcut = nn.Identity() if same else nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet() -> nn.Module:
    """Nine layers, two classes of stride, any picture size."""
    stem = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks = [Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).eval()


def pictures() -> list[tuple]:
    g = generator()
    shapes = zip(sizes(COUNT, 1, 6, seed=11), sizes(COUNT, 32, 96, seed=12), sizes(COUNT, 32, 96, seed=13))
    return [(torch.randn(b, 3, h, w, generator=g),) for b, h, w in shapes]


class Attention(nn.Module):
    """Self-attention over patches."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))


class Layer(nn.Module):
    """Pre-norm transformer layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Patches of 8, position table interpolated to the picture's grid, class token first."""

    def __init__(self, width: int = 192, heads: int = 6, layers: int = 4, patch: int = 8, grid: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.cls = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, width, grid, grid) * 0.02)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x)
        x = x + F.interpolate(self.positions, size=x.shape[-2:], mode="bilinear", align_corners=False)
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


def resolutions() -> list[tuple]:
    g = generator()
    shapes = zip(sizes(COUNT, 1, 4, seed=14), sizes(COUNT, 4, 14, seed=15, multiple=8), sizes(COUNT, 4, 14, seed=16, multiple=8))
    return [(torch.randn(b, 3, h, w, generator=g),) for b, h, w in shapes]


PROGRAMS = (
    Program("resnet", "ResNet-like", seeded(resnet), pictures),
    Program("vit", "ViT, changing resolution", seeded(lambda: ViT().eval()), resolutions),
)
