"""Matrix products and attention."""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.rules.misfits import misfit
from pliant.graph.rules.shape import category, expandable, new, preserved_strides, require_equal, strided
from pliant.graph.rules.table import rule
from pliant.graph.traced import TracedTensor


def same_dtype(*operands: TracedTensor) -> None:
    """Kernels refuse other dtypes; PyTorch's shape functions do not look."""
    if any([t.dtype is not operands[0].dtype for t in operands]):
        raise RuntimeError(f"expected operands of the same dtype, but got: {', '.join([str(t.dtype) for t in operands])}")


def fits(trace: Any, *pairs: tuple[Any, Any]) -> bool:
    return all([require_equal(trace, a, b) for a, b in pairs])


@rule("mm")
def mm(trace: Any, a: TracedTensor, b: TracedTensor) -> Any:
    same_dtype(a, b)
    if len(a.sizes) != 2 or len(b.sizes) != 2 or not fits(trace, (a.sizes[1], b.sizes[0])):
        return NotImplemented
    return new(trace, (a.sizes[0], b.sizes[1]), a.dtype, a.device)


@rule("addmm")
def addmm(trace: Any, bias: TracedTensor, a: TracedTensor, b: TracedTensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    same_dtype(a, b, bias)
    if len(a.sizes) != 2 or len(b.sizes) != 2 or not fits(trace, (a.sizes[1], b.sizes[0])):
        return NotImplemented
    sizes = (a.sizes[0], b.sizes[1])
    if not expandable(trace, bias.sizes, sizes):
        return misfit(trace, torch.ops.aten.addmm.default, bias, a, b)
    return new(trace, sizes, a.dtype, a.device)


@rule("addmv")
def addmv(trace: Any, bias: TracedTensor, a: TracedTensor, x: TracedTensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    fit = len(bias.sizes) < 2 and len(a.sizes) == 2 and len(x.sizes) == 1 and fits(trace, (a.sizes[1], x.sizes[0]))
    if fit and expandable(trace, bias.sizes, a.sizes[:1]):
        return NotImplemented
    return misfit(trace, torch.ops.aten.addmv.default, bias, a, x)


@rule("bmm")
def bmm(trace: Any, a: TracedTensor, b: TracedTensor) -> Any:
    same_dtype(a, b)
    if len(a.sizes) != 3 or len(b.sizes) != 3:
        return NotImplemented
    if not fits(trace, (a.sizes[0], b.sizes[0]), (a.sizes[2], b.sizes[1])):
        return NotImplemented
    return new(trace, (a.sizes[0], a.sizes[1], b.sizes[2]), a.dtype, a.device)


@rule("baddbmm")
def baddbmm(trace: Any, bias: TracedTensor, a: TracedTensor, b: TracedTensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    out = bmm(trace, a, b)
    if out is NotImplemented or bias.dtype is not a.dtype or not expandable(trace, bias.sizes, out.sizes):
        return NotImplemented
    return out


@rule("mv")
def mv(trace: Any, a: TracedTensor, x: TracedTensor) -> Any:
    same_dtype(a, x)
    if len(a.sizes) != 2 or len(x.sizes) != 1 or not fits(trace, (a.sizes[1], x.sizes[0])):
        return NotImplemented
    return new(trace, (a.sizes[0],), a.dtype, a.device)


@rule("dot")
def dot(trace: Any, a: TracedTensor, b: TracedTensor) -> Any:
    same_dtype(a, b)
    if len(a.sizes) != 1 or len(b.sizes) != 1 or not fits(trace, (a.sizes[0], b.sizes[0])):
        return NotImplemented
    return new(trace, (), a.dtype, a.device)


@rule("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(trace: Any, q: TracedTensor, k: TracedTensor, v: TracedTensor, *args: Any, **kwargs: Any) -> Any:
    """(output like the query, log of the sums of exponentials, laid out as [batch, length, head])."""
    if len(q.sizes) != 4 or len(v.sizes) != 4 or len(k.sizes) != 4 or not require_equal(trace, k.sizes[2], v.sizes[2]):
        return NotImplemented
    b, h, n, _ = q.sizes
    stats = torch.float64 if q.dtype is torch.float64 else torch.float32
    return (
        strided(trace, q.sizes, preserved_strides(trace, q), q.dtype, q.device),
        strided(trace, (b, h, n), (h * n, 1, h), stats, q.device),
    )


@rule("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(trace: Any, grad: Any, q: TracedTensor, k: TracedTensor, v: TracedTensor, *args: Any, **kw: Any) -> Any:
    """Gradients of query, key and value, each laid out as [batch, length, head, channel]."""
    return tuple(strided(trace, t.sizes, by_length(t.sizes), t.dtype, t.device) for t in (q, k, v))


def by_length(sizes: tuple) -> tuple:
    b, h, n, d = sizes
    return (h * d * n, d, h * d, 1)


@rule("tril", "triu")
def triangle(trace: Any, x: TracedTensor, diagonal: int = 0) -> Any:
    return new(trace, x.sizes, x.dtype, x.device) if len(x.sizes) >= 2 and category(x.dtype) < 3 else NotImplemented
