"""The fusions of the kernel suite (`benchmarks/kernels.py`): one row each, a function of tensors and how to make its arguments.

Arguments are made for a matrix of (m, n). Layouts are part of a row: `full` is contiguous, `turned` is a transposed matrix, `wide` every
other column of a wider one, `row` and `column` broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

Tensor = torch.Tensor
aten = torch.ops.aten


class Args:
    """Makes the arguments of one call. `m` and `n` are multiples of 4."""

    def __init__(self, m: int, n: int, dtype: torch.dtype) -> None:
        self.m, self.n, self.dtype = m, n, dtype
        self.random = torch.Generator().manual_seed(m * n)

    def made(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.random).to(self.dtype)

    def full(self) -> Tensor:
        return self.made(self.m, self.n)

    def turned(self) -> Tensor:
        return self.made(self.n, self.m).t()

    def wide(self) -> Tensor:
        return self.made(self.m, 2 * self.n)[:, ::2]

    def row(self) -> Tensor:
        return self.made(self.n)

    def column(self) -> Tensor:
        return self.made(self.m, 1)

    def positive(self) -> Tensor:
        return self.made(self.m, self.n).abs() + 0.1

    def labels(self) -> Tensor:
        return torch.randint(self.n, (self.m,), generator=self.random)

    def mask(self) -> Tensor:
        return torch.randn(self.m, self.n, generator=self.random) > 0

    def heads(self) -> Tensor:
        """(4, m / 4, n / 4, 4): batch, positions, heads of 4... as views of one matrix."""
        return self.full().view(4, self.m // 4, 4, self.n // 4)

    def images(self) -> Tensor:
        """(batch, 8 channels, pixels) of about m * n elements."""
        return self.made(max(self.m // 8, 1), 8, self.n)

    def channels(self) -> Tensor:
        return self.made(8)

    def variances(self) -> Tensor:
        return torch.rand(8, generator=self.random).to(self.dtype) + 0.5

    def soft(self) -> Tensor:
        return torch.softmax(self.full(), -1)

    def log_soft(self) -> Tensor:
        return torch.log_softmax(self.full(), -1)

    def means(self) -> Tensor:
        return self.made(self.m, 1)

    def scales(self) -> Tensor:
        return (torch.rand(self.m, 1, generator=self.random) + 0.5).to(self.dtype)


class Fusion(NamedTuple):
    name: str
    fn: Callable[..., Tensor | tuple[Tensor, ...]]
    args: tuple[str, ...]
    """Names of methods of `Args`."""


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def interleave(x: Tensor, y: Tensor) -> Tensor:
    return torch.stack((x, y), -1).flatten(-2) * 2


def rotary_pairs(x: Tensor) -> Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((-b, a), -1).flatten(-2)


def batch_norm(x: Tensor, mean: Tensor, var: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, mean, var, w, b))


def group_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    assert x.shape[1] == 8  # as the parameters of a layer say
    return F.group_norm(x, 4, w, b)


def backward(op: Callable[..., Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """An ATen gradient of a row, its operands known to have one shape, as they have in a graph of the two passes."""

    def gradient(g: Tensor, y: Tensor) -> Tensor:
        assert g.shape == y.shape
        return op(g, y, -1, y.dtype)

    return gradient


def layer_norm_backward(g: Tensor, x: Tensor, mean: Tensor, scale: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    assert g.shape == x.shape and mean.shape == scale.shape == (x.shape[0], 1) and w.shape == x.shape[1:]
    return aten.native_layer_norm_backward(g, x, [x.shape[1]], mean, scale, w, w, [True] * 3)


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (v.sqrt() + 1e-8), m, v


FUSIONS: tuple[Fusion, ...] = (
    # pointwise
    Fusion("add", lambda x, y: x + y, ("full", "full")),
    Fusion("relu(2x+1)", lambda x: torch.relu(2 * x + 1), ("full",)),
    Fusion("clamp chain", lambda x, y: (x * y + 0.5).clamp(-1, 1) * 3 - x, ("full", "full")),
    Fusion("where", lambda m, x, y: torch.where(m, x * 2, y - 1), ("mask", "full", "full")),
    Fusion("masked_fill", lambda m, x: x.masked_fill(m, -1e4) * 0.125, ("mask", "full")),
    Fusion("gelu", lambda x: F.gelu(x), ("full",)),
    Fusion("gelu tanh", lambda x: F.gelu(x, approximate="tanh"), ("full",)),
    Fusion("silu", lambda x: F.silu(x), ("full",)),
    Fusion("swiglu", lambda x, y: F.silu(x) * y, ("full", "full")),
    Fusion("sigmoid gate", lambda x, y: torch.sigmoid(x) * torch.tanh(y), ("full", "full")),
    Fusion("gelu(ab+c)*sigmoid(d)", lambda a, b, c, d: F.gelu(a * b + c) * torch.sigmoid(d), ("full",) * 4),
    Fusion("bias+gelu", lambda x, b: F.gelu(x + b), ("full", "row")),
    Fusion("bias+gelu+residual", lambda x, b, y: F.gelu(x + b) + y, ("full", "row", "full")),
    Fusion("mish", lambda x: F.mish(x), ("full",)),
    Fusion("softplus", lambda x: F.softplus(x) + 1, ("full",)),
    Fusion("log1p exp", lambda x: torch.log1p(torch.exp(-x.abs())), ("full",)),
    Fusion("sin cos", lambda x: torch.sin(x) * torch.cos(x), ("full",)),
    Fusion("pow", lambda x: x.pow(1.7) + x.sqrt(), ("positive",)),
    Fusion("adam", adam, ("full", "full", "full", "positive")),
    # broadcast and layouts
    Fusion("x*row+column", lambda x, r, c: x * r + c, ("full", "row", "column")),
    Fusion("outer", lambda r, c: c * r + 1, ("row", "column")),
    Fusion("transposed+1", lambda x: (x + 1).contiguous(), ("turned",)),
    Fusion("transposed+full", lambda x, y: (x + y).contiguous(), ("turned", "full")),
    Fusion("transposed both", lambda x, y: torch.relu(x * y), ("turned", "turned")),
    Fusion("strided", lambda x, y: x * y + 1, ("wide", "full")),
    Fusion("strided slice", lambda x: x[:, 1::2] * x[:, ::2], ("full",)),
    Fusion("permute heads", lambda x: (x.permute(0, 2, 1, 3) * 0.5).contiguous(), ("heads",)),
    Fusion("cat", lambda x, y: torch.cat((x * 2, torch.relu(y)), 1), ("full", "full")),
    Fusion("split", lambda x: (lambda a, b: F.silu(a) * b)(*x.chunk(2, -1)), ("full",)),
    Fusion("interleave", interleave, ("full", "full")),
    Fusion("rotary", rotary, ("full", "row", "row")),
    Fusion("rotary pairs", rotary_pairs, ("full",)),
    Fusion("pad", lambda x: F.pad(x.relu(), (1, 1)), ("full",)),
    # reductions
    Fusion("sum all", lambda x: (x * 2).sum(), ("full",)),
    Fusion("mse", lambda x, y: F.mse_loss(x, y), ("full", "full")),
    Fusion("sum rows", lambda x: (x * x).sum(-1), ("full",)),
    Fusion("sum columns", lambda x: torch.relu(x).sum(0), ("full",)),
    Fusion("mean", lambda x, y: (x + y).mean(-1, keepdim=True) * 2, ("full", "full")),
    Fusion("var", lambda x: x.var(-1), ("full",)),
    Fusion("amax", lambda x: x.abs().amax(-1), ("full",)),
    Fusion("argmax", lambda x: (x + 1).argmax(-1), ("full",)),
    Fusion("argmax columns", lambda x: (x + 1).argmax(0), ("full",)),
    Fusion("max and place", lambda x: tuple((x * 2).max(-1)), ("full",)),
    Fusion("min and place columns", lambda x: tuple(x.min(0)), ("full",)),
    Fusion("amax columns", lambda x: (x * 2).amax(0), ("full",)),
    Fusion("logsumexp", lambda x: torch.logsumexp(x, -1), ("full",)),
    Fusion("norm", lambda x: x / x.norm(dim=-1, keepdim=True), ("full",)),
    Fusion("sum transposed", lambda x: (x + 1).sum(-1), ("turned",)),
    Fusion("quantize", lambda x: torch.round(x * (127 / x.abs().amax(-1, keepdim=True))).to(torch.int8), ("full",)),
    # rows in one kernel
    Fusion("softmax", lambda x: torch.softmax(x, -1), ("full",)),
    Fusion("softmax(x+mask)", lambda x, y: torch.softmax(x * 0.125 + y, -1), ("full", "full")),
    Fusion("softmax columns", lambda x: torch.softmax(x, 0), ("full",)),
    Fusion("log_softmax", lambda x: torch.log_softmax(x, -1), ("full",)),
    Fusion("cross entropy", lambda x, y: F.cross_entropy(x, y), ("full", "labels")),
    Fusion("layer norm", lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), ("full", "row", "row")),
    Fusion("residual+layer norm", lambda x, y, w, b: F.layer_norm(x + y, x.shape[-1:], w, b), ("full", "full", "row", "row")),
    Fusion("rms norm", rms_norm, ("full", "row")),
    Fusion("residual+rms norm", lambda x, y, w: (rms_norm(x + y, w), x + y), ("full", "full", "row")),
    Fusion("batch norm", batch_norm, ("images", "channels", "variances", "channels", "channels")),
    Fusion("group norm", group_norm, ("images", "channels", "channels")),
    Fusion("cumsum", lambda x: torch.cumsum(x * 2, -1), ("full",)),
    # backward
    Fusion("gelu backward", lambda g, x: aten.gelu_backward(g, x), ("full", "full")),
    Fusion("silu backward", lambda g, x: aten.silu_backward(g, x), ("full", "full")),
    Fusion("relu backward", lambda g, x: aten.threshold_backward(g * 2, x, 0), ("full", "full")),
    Fusion("softmax backward", backward(aten._softmax_backward_data.default), ("full", "soft")),
    Fusion("log_softmax backward", backward(aten._log_softmax_backward_data.default), ("full", "log_soft")),
    Fusion("layer norm backward", layer_norm_backward, ("full", "full", "means", "scales", "row")),
)
