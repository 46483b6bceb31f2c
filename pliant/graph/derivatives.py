"""Derivatives that PyTorch's C++ code makes size by size when it is traced, in operators of any size.

Of tensors that it cannot look into, `cumprod_backward` takes one step for each element of the dim: the graph would hold as many operators
as the first size had elements, and be captured anew for each other size.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from pliant.graph.decompositions import apply, free
from pliant.graph.originals import ORIGINAL, is_grad_enabled, torch
from pliant.graph.traced import TracedTensor


def from_the_end(x: Any, dim: int) -> Any:
    """At each place, the sum of what stands there and behind."""
    return torch.flip(torch.cumsum(torch.flip(x, (dim,)), dim), (dim,))


class Cumprod(torch.autograd.Function):
    """Products of all elements up to each, in the tape of a capture."""

    @staticmethod
    def forward(ctx: Any, x: Any, dim: int) -> Any:
        out = torch.cumprod(x, dim)
        x.owner().ops[-1].grad = True  # it is the operation that autograd was on for
        ctx.dim = dim
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple:
        """An element in front of the first zero divides the products behind it; the first zero is left out of them; what follows has no
        influence."""
        x, out = ctx.saved_tensors
        dim = ctx.dim
        if is_grad_enabled():  # behind a zero nothing has influence, but its derivative has: PyTorch's way, an element at a time
            return torch.autograd.grad(torch.cumprod(x, dim), x, grad, create_graph=True)[0], None
        zeros = torch.cumsum(x == 0, dim)
        first, before = (x == 0) & (zeros == 1), zeros == 0
        ahead = from_the_end(grad * out, dim) / torch.where(before, x, torch.ones_like(x))
        without = torch.cumprod(torch.where(first, torch.ones_like(x), x), dim)
        nothing = torch.zeros_like(x)
        at_zero = from_the_end(torch.where(before, nothing, grad * without), dim)
        return torch.where(before, ahead, torch.where(first, at_zero, nothing)), None


def cumprod(x: Any, dim: Any, *, dtype: Any = None, out: Any = None) -> Any:
    """`torch.cumprod` where gradients are recorded."""
    if type(x) is not TracedTensor or not (is_grad_enabled() and x.requires_grad) or out is not None or type(dim) is not int:
        return NotImplemented
    if not x.dtype.is_floating_point or not x.sizes or dtype not in (None, x.dtype) or not free(x.owner()):
        return NotImplemented
    return Cumprod.apply(x, dim)  # type: ignore[no-untyped-call]


def affine_grid(theta: Any, size: Any, align_corners: Any = None) -> Any:
    """`torch.nn.functional.affine_grid` where gradients are recorded and a size is open, which its derivative in C++ wants as a number."""
    if type(theta) is not TracedTensor or not (is_grad_enabled() and theta.requires_grad) or not free(theta.owner()):
        return NotImplemented
    sizes, dims = list(size), len(size) - 2
    if all([type(n) is int for n in sizes]) or dims not in (2, 3) or not theta.dtype.is_floating_point or len(theta.sizes) != 3:
        return NotImplemented
    if not all([bool(n >= 1) for n in sizes]) or any([bool(a != b) for a, b in zip(theta.sizes, (sizes[0], dims, dims + 1), strict=True)]):
        return NotImplemented
    if align_corners is None:
        warnings.warn(ALIGNED, stacklevel=2)
    shape = sizes[2:]
    axes = [corners(n, align_corners is True, theta) for n in reversed(shape)]  # the last dim is x
    places: list[Any] = []
    for i, axis in enumerate(reversed(axes)):
        alone = ORIGINAL.view(axis, [n if i == j else 1 for j, n in enumerate(shape)])
        places.insert(0, ORIGINAL.expand(alone, shape))
    base = ORIGINAL.view(torch.stack([*places, torch.ones_like(places[0])], -1), 1, -1, dims + 1)
    moved = torch.bmm(ORIGINAL.expand(base, sizes[0], -1, dims + 1), torch.transpose(theta, 1, 2))
    return ORIGINAL.view(moved, sizes[0], *shape, dims)


ALIGNED = (
    "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify align_corners=True if the "
    "old behavior is desired. See the documentation of grid_sample for details."
)
"""PyTorch's words."""


def corners(n: Any, aligned: bool, like: Any) -> Any:
    """Places from -1 to 1: of the outermost elements, or of their edges. (linspace_from_neg_one)"""
    if bool(n <= 1):
        return torch.zeros((1,), dtype=like.dtype, device=like.device)
    places = apply(like.owner(), torch.ops.aten.linspace.default, -1, 1, n, dtype=like.dtype, device=like.device)
    return places if aligned else places * (n - 1) / n


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.nn.functional.affine_grid: affine_grid,
    torch.affine_grid_generator: affine_grid,
    torch.cumprod: cumprod,
    torch.Tensor.cumprod: cumprod,
}
"""As `decompositions.DECOMPOSITIONS`."""
