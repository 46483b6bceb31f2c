"""Operators of linear algebra and histograms for which PyTorch has no shape function."""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import torch
from pliant.graph.rules.factory import like
from pliant.graph.rules.misfits import misfit
from pliant.graph.rules.shape import category, equal, less, new, row_major, strided
from pliant.graph.rules.table import rule
from pliant.graph.traced import TracedTensor


def by_columns(trace: Any, sizes: tuple, rows: Any, x: TracedTensor) -> Any:
    """Matrices as LAPACK lays them out. `rows`: those of the memory of each, of which the result may be the first ones."""
    *batch, _, k = sizes
    strides = row_major(trace, (*batch, k, rows))
    return strided(trace, sizes, (*strides[:-2], strides[-1], strides[-2]), x.dtype, x.device)


def matrices(*given: TracedTensor) -> bool:
    """Whether these are matrices, or batches of them, of sizes that are known when the graph runs, and of a dtype that LAPACK takes."""
    known = all([type(s) is int or s.node.expr.backed for x in given for s in x.sizes])
    return known and all([len(x.sizes) > 1 and category(x.dtype) > 1 and x.dtype.itemsize > 2 for x in given])


@rule("geqrf")
def geqrf(trace: Any, x: TracedTensor) -> Any:
    if not matrices(x):
        return NotImplemented
    *batch, m, n = x.sizes
    return by_columns(trace, x.sizes, m, x), new(trace, (*batch, n if less(trace, n, m) else m), x.dtype, x.device)


@rule("linalg_lstsq")
def lstsq(trace: Any, a: TracedTensor, b: TracedTensor, rcond: Any = None, *, driver: str | None = None) -> Any:
    """By the driver of the CPU, of as many right sides as there are matrices."""
    if driver not in (None, "gelsy") or not matrices(a, b) or a.dtype is not b.dtype or len(a.sizes) != len(b.sizes):
        return NotImplemented
    *batch, m, n = a.sizes
    if not all([equal(trace, p, q) for p, q in zip([*batch, m], b.sizes[:-1])]) or a.device.type != "cpu":
        return NotImplemented
    solution = by_columns(trace, (*batch, n, b.sizes[-1]), n if less(trace, m, n) else m, a)
    real = a.dtype.to_real()
    return solution, new(trace, (0,), real, a.device), new(trace, tuple(batch), torch.int64, a.device), new(trace, (0,), real, a.device)


@rule("histogram.bin_ct")
def histogram(
    trace: Any, x: TracedTensor, bins: Any = 100, *, range: Any = None, weight: TracedTensor | None = None, density: bool = False
) -> Any:
    if type(bins) is not int or bins < 1 or not counted(x, weight):
        return NotImplemented
    return new(trace, (bins,), x.dtype, x.device), new(trace, (bins + 1,), x.dtype, x.device)


@rule("histogram.bins_tensor")
def histogram_of_edges(
    trace: Any, x: TracedTensor, bins: TracedTensor, *, weight: TracedTensor | None = None, density: bool = False
) -> Any:
    if len(bins.sizes) != 1 or type(bins.sizes[0]) is not int or bins.sizes[0] < 2 or bins.dtype is not x.dtype or not counted(x, weight):
        return NotImplemented
    return new(trace, (bins.sizes[0] - 1,), x.dtype, x.device), new(trace, (bins.sizes[0],), x.dtype, x.device)


def counted(x: TracedTensor, weight: TracedTensor | None) -> bool:
    return x.dtype in (torch.float32, torch.float64) and x.device.type == "cpu" and weight is None


@rule("ormqr")
def ormqr(trace: Any, a: TracedTensor, tau: TracedTensor, other: TracedTensor, left: bool = True, transpose: bool = False) -> Any:
    """PyTorch's shape function holds `tau` against one side alone."""
    if tau.sizes and len(a.sizes) > 1 and len(other.sizes) > 1:
        least = a.sizes[-1] if less(trace, a.sizes[-1], other.sizes[-2]) else other.sizes[-2]
        if equal(trace, tau.sizes[-1], least):
            return NotImplemented
    return misfit(trace, torch.ops.aten.ormqr.default, a, tau, other, left, transpose)


@rule("bucketize.Tensor")
def bucketize(trace: Any, x: TracedTensor, boundaries: TracedTensor, **named: Any) -> Any:
    return NotImplemented if len(boundaries.sizes) == 1 else misfit(trace, torch.ops.aten.bucketize.Tensor, x, boundaries, **named)


@rule("_masked_softmax")
def masked_softmax(trace: Any, x: TracedTensor, mask: TracedTensor, dim: Any = None, mask_type: Any = None) -> Any:
    """Where each element has its own mask."""
    if mask_type != 2 or mask.dtype is not torch.bool or not alike(trace, x, mask) or category(x.dtype) != 2:
        return NotImplemented
    return like(trace, x)


@rule("_masked_softmax_backward")
def masked_softmax_backward(trace: Any, g: TracedTensor, y: TracedTensor, mask: TracedTensor, dim: Any = None) -> Any:
    fits = alike(trace, g, y) and alike(trace, g, mask) and g.dtype is y.dtype
    return new(trace, g.sizes, g.dtype, g.device) if fits else NotImplemented


def alike(trace: Any, x: TracedTensor, other: TracedTensor) -> bool:
    return len(x.sizes) == len(other.sizes) > 0 and all([equal(trace, p, q) for p, q in zip(x.sizes, other.sizes)])


@rule("_trilinear")
def trilinear(
    trace: Any, a: TracedTensor, b: TracedTensor, c: TracedTensor, expand1: Any, expand2: Any, expand3: Any, summed: Any, unrolled: Any = 1
) -> Any:
    """Three factors, each without some of the dims, multiplied and summed over some (`F.bilinear`). PyTorch's shape function runs the
    kernel's loop over a dim, whose size it wants as a number, and which takes seconds for some hundred rounds."""
    factors, apart = (a, b, c), tuple(map(tuple, (expand1, expand2, expand3)))
    rank = len(a.sizes) + len(expand1)
    ranks_fit = all([len(x.sizes) + len(set(dims)) == rank and all([0 <= d < rank for d in dims]) for x, dims in zip(factors, apart)])
    alike = all([x.dtype is a.dtype and x.device == a.device for x in factors])
    if not ranks_fit or not alike or category(a.dtype) < 2 or not 0 <= unrolled < rank:
        return NotImplemented
    found: list[Any] = [None] * rank
    for x, dims in zip(factors, apart):
        sizes = iter(x.sizes)
        for d in range(rank):
            if d in dims:
                continue
            s = next(sizes)
            if found[d] is not None and not equal(trace, found[d], s):
                return NotImplemented
            found[d] = s
    if any([s is None for s in found]):
        return NotImplemented
    return new(trace, tuple([s for d, s in enumerate(found) if d not in summed]), a.dtype, a.device)
