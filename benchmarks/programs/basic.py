"""One pointwise function and one small network."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.programs.program import Program, generator, seeded, sizes

COUNT = 30


def relu_affine(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(2 * x + 1)


def vectors() -> list[tuple]:
    g = generator()
    return [(torch.randn(n, 64, generator=g),) for n in sizes(COUNT, 2, 2000)]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 16)).eval()


def rows() -> list[tuple]:
    g = generator()
    return [(torch.randn(n, 256, generator=g),) for n in [*sizes(COUNT - 1, 2, 300), 1]]


PROGRAMS = (
    Program("relu", "relu(2x+1)", lambda: relu_affine, vectors),
    Program("mlp", "MLP", seeded(mlp), rows),
)
