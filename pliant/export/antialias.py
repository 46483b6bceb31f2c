"""Antialiased resizing as two products with matrices of weights, for formats that have no such operator.

The weights are those of PyTorch's kernels (aten/src/ATen/native/cpu/UpSampleKernel.cpp), which are PIL's: a filter as wide as the scale,
cut off at the edges and normalized.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
CUBIC = -0.5


def cubic(t: torch.Tensor) -> torch.Tensor:
    near = ((CUBIC + 2) * t - (CUBIC + 3)) * t * t + 1
    far = (((t - 5) * t + 8) * t - 4) * CUBIC
    return torch.where(t < 1, near, torch.where(t < 2, far, torch.zeros_like(t)))


def linear(t: torch.Tensor) -> torch.Tensor:
    return (1 - t).clamp_min(0)


def weights(
    n: Any, m: Any, factor: float | None, same: torch.Tensor, x: torch.Tensor, support: float, shape: Callable[..., torch.Tensor]
) -> torch.Tensor:
    """[m, n]: what each of m results takes of n values. `same`: whether there are as many as before, in both dims."""
    as_tensor: dict[str, Any] = {"dtype": x.dtype, "device": x.device}
    scale = torch.full((), n, **as_tensor) / torch.full((), m, **as_tensor) if factor is None else torch.full((), 1.0 / factor, **as_tensor)
    scale = torch.where(same, torch.ones_like(scale), scale)  # the kernels copy then, whatever the factor says
    wide = scale.clamp_min(1.0)
    center = (torch.arange(m, **as_tensor)[:, None] + 0.5) * scale
    at = torch.arange(n, **as_tensor)[None, :]
    first, behind = (center - support * wide + 0.5).trunc().clamp_min(0), (center + support * wide + 0.5).trunc()
    found = shape(((at - center + 0.5) / wide).abs()) * ((at >= first) & (at < behind))
    return found / found.sum(1, keepdim=True)


def resized(support: float, shape: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def resize(x: torch.Tensor, size: Any, align_corners: bool, scales_h: Any = None, scales_w: Any = None) -> torch.Tensor:
        if align_corners or x.dtype not in (torch.float32, torch.float64):
            raise NotImplementedError
        before, after = [[torch.full((), n, dtype=torch.int64, device=x.device) for n in sizes] for sizes in (x.shape[2:], size)]
        same = (before[0] == after[0]) & (before[1] == after[1])
        rows = weights(x.shape[2], size[0], scales_h, same, x, support, shape)
        columns = weights(x.shape[3], size[1], scales_w, same, x, support, shape)
        return rows @ x @ columns.T

    return resize


DECOMPOSITIONS = {
    aten._upsample_bicubic2d_aa.default: resized(2.0, cubic),
    aten._upsample_bilinear2d_aa.default: resized(1.0, linear),
}
