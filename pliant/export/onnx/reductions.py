"""Reductions, softmax, scans and sorting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from pliant.export.onnx.elementwise import out_dtype, truth, working
from pliant.export.onnx.graph import Graph, NotExpressible, Size, Tensor, compute, torch_dtype
from pliant.symbolic.expr import Expr

Row = Callable[..., Any]


def axes_of(x: Tensor, dims: int | Sequence[int] | None) -> list[int]:
    """The dims that a reduction goes over: all for None and []."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(x.rank))
    return sorted(d % max(x.rank, 1) for d in ([dims] if isinstance(dims, int) else dims)) if x.rank else []


def reduce(g: Graph, name: str, v: ir.Value, axes: Sequence[int], keep: bool) -> ir.Value:
    return g.op(name, v, g.ints(*axes), keepdims=int(keep)) if axes else v


def count(g: Graph, sizes: Sequence[Size]) -> Size:
    """The number of elements: an int or an expression."""
    n: Any = 1
    for s in sizes:
        n = s * n if isinstance(s, Expr) else n * s
    return n


def reduced(g: Graph, x: Tensor, axes: Sequence[int]) -> Size:
    return count(g, [x.sizes[a] for a in axes])


def never_zero(g: Graph, n: Size) -> bool:
    if not isinstance(n, Expr):
        return n != 0
    lo = g.scope.range(n)[0]
    return lo is not None and lo > 0


def of_number(g: Graph, n: Any, dtype: torch.dtype) -> ir.Value:
    return g.cast(g.sizes.scalar(n), dtype) if isinstance(n, Expr) else g.const(n, dtype)


def total(name: str) -> Row:
    def row(g: Graph, op: Any, x: Tensor, dims: Any = None, keep: bool = False, dtype: Any = None) -> ir.Value:
        return g.cast(reduce(g, name, g.cast(x.value, working(op)), axes_of(x, dims), keep), out_dtype(op))

    return row


def product(g: Graph, op: Any, x: Tensor, dim: Any = None, keep: bool = False, dtype: Any = None) -> ir.Value:
    return total("ReduceProd")(g, op, x, dim, keep)


def mean(g: Graph, op: Any, x: Tensor, dims: Any = None, keep: bool = False, dtype: Any = None) -> ir.Value:
    axes = axes_of(x, dims)
    return g.cast(mean_of(g, g.cast(x.value, working(op)), axes, keep, reduced(g, x, axes)), out_dtype(op))


def mean_of(g: Graph, v: ir.Value, axes: Sequence[int], keep: bool, n: Size) -> ir.Value:
    """ONNX Runtime's mean of nothing is 0, eager's nan."""
    if never_zero(g, n):
        return reduce(g, "ReduceMean", v, axes, keep)
    return g.op("Div", reduce(g, "ReduceSum", v, axes, keep), of_number(g, n, torch_dtype(v)))


def variance(root: bool, with_mean: bool = False) -> Row:
    def row(g: Graph, op: Any, x: Tensor, dims: Any = None, *args: Any, correction: Any = 1, keepdim: bool = False, **_: Any) -> Any:
        if isinstance(dims, bool):  # var(x, unbiased)
            dims, args = None, (dims,)
        if args:
            correction, keepdim = int(args[0]), bool(args[1]) if len(args) > 1 else keepdim
        correction = 1 if correction is None else correction
        axes = axes_of(x, dims)
        v, mu = moments(g, g.cast(x.value, working(op)), axes, keepdim, reduced(g, x, axes), correction)
        v = g.op("Sqrt", v) if root else v
        return (g.cast(v, x.dtype), g.cast(mu, x.dtype)) if with_mean else g.cast(v, x.dtype)

    return row


def moments(g: Graph, v: ir.Value, axes: Sequence[int], keep: bool, n: Size, correction: Any) -> tuple[ir.Value, ir.Value]:
    """Variance and mean."""
    dtype = torch_dtype(v)
    mu = mean_of(g, v, axes, True, n)
    d = g.op("Sub", v, mu)
    squares = g.op("Mul", d, d)
    if not correction:
        out = mean_of(g, squares, axes, keep, n)
    else:
        free = g.op("Max", of_number(g, n - correction, dtype), g.const(0.0, dtype))
        out = g.op("Div", reduce(g, "ReduceSum", squares, axes, keep), free)
    return out, mu if keep or not axes else g.op("Squeeze", mu, g.ints(*axes))


def any_(g: Graph, op: Any, x: Tensor, dims: Any = None, keep: bool = False) -> ir.Value:
    n = reduce(g, "ReduceSum", g.cast(truth(g, x), torch.int64), axes_of(x, dims), keep)
    return g.cast(g.op("Greater", n, g.const(0)), out_dtype(op))


def all_(g: Graph, op: Any, x: Tensor, dims: Any = None, keep: bool = False) -> ir.Value:
    n = reduce(g, "ReduceSum", g.cast(g.op("Not", truth(g, x)), torch.int64), axes_of(x, dims), keep)
    return g.cast(g.op("Equal", n, g.const(0)), out_dtype(op))


def extreme(g: Graph, name: str, v: ir.Value, axes: Sequence[int], keep: bool) -> ir.Value:
    """ONNX Runtime's overlooks a nan, or does not, by where it stands: eager's is one."""
    out = reduce(g, f"Reduce{name}", v, axes, keep)
    dtype = torch_dtype(v)
    if not axes or not dtype.is_floating_point:
        return out
    some = reduce(g, "ReduceMax", g.cast(g.op("IsNaN", v), torch.int32), axes, keep)
    return g.op("Where", g.op("Greater", some, g.const(0, torch.int32)), g.const(math.nan, dtype), out)


def extremum(name: str) -> Row:
    def row(g: Graph, op: Any, x: Tensor, dims: Any = None, keep: bool = False) -> ir.Value:
        return g.cast(extreme(g, name, g.cast(x.value, working(op)), axes_of(x, dims), keep), out_dtype(op))

    return row


def position(g: Graph, name: str, x: Tensor, axis: int, keep: bool) -> ir.Value:
    """Where the extremum is: the first of equals; a nan is one, as in eager."""
    v = g.cast(x.value, compute(x.dtype))
    at = g.op(f"Arg{name}", v, axis=axis, keepdims=int(keep))
    if not x.dtype.is_floating_point:
        return at
    nans = g.cast(g.op("IsNaN", v), torch.int32)
    some = g.op("Greater", g.op("ReduceMax", nans, g.ints(axis), keepdims=int(keep)), g.const(0, torch.int32))
    return g.op("Where", some, g.op("ArgMax", nans, axis=axis, keepdims=int(keep)), at)


def extremum_of_dim(name: str) -> Row:
    def row(g: Graph, op: Any, x: Tensor, dim: int, keep: bool = False) -> tuple:
        if not x.rank:
            return x.value, g.const(0)
        d = dim % x.rank
        v = g.cast(extreme(g, name, g.cast(x.value, working(op)), [d], keep), x.dtype) if g.wants(op, 0) else None
        return v, position(g, name, x, d, keep) if g.wants(op, 1) else None

    return row


def arg_extremum(name: str) -> Row:
    def row(g: Graph, op: Any, x: Tensor, dim: int | None = None, keep: bool = False) -> ir.Value:
        if not x.rank:
            return g.const(0)
        if dim is not None:
            return position(g, name, x, dim % x.rank, keep)
        flat = Tensor(g.reshape(x.value, [-1]), x.dtype, (count(g, x.sizes),))
        return g.reshape(position(g, name, flat, 0, False), op.outs[0].sizes)

    return row


def aminmax(g: Graph, op: Any, x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple:
    axes = axes_of(x, dim)
    return tuple(g.cast(extreme(g, n, g.cast(x.value, compute(x.dtype)), axes, keepdim), x.dtype) for n in ("Min", "Max"))


def softmax(name: str) -> Row:
    def row(g: Graph, op: Any, x: Tensor, dim: int, *_: Any) -> ir.Value:
        if not x.rank:
            return g.cast(g.const(1.0 if name == "Softmax" else 0.0, compute(out_dtype(op))), out_dtype(op))
        return g.cast(g.op(name, g.cast(x.value, working(op)), axis=dim % x.rank), out_dtype(op))

    return row


def safe_softmax(g: Graph, op: Any, x: Tensor, dim: int, *_: Any) -> ir.Value:
    """A row that is all -inf gives zeros."""
    v = g.cast(x.value, working(op))
    d = dim % x.rank
    empty = g.op("Equal", g.op("ReduceMax", v, g.ints(d), keepdims=1), g.const(-math.inf, torch_dtype(v)))
    return g.cast(g.op("Where", empty, g.const(0.0, torch_dtype(v)), g.op("Softmax", v, axis=d)), out_dtype(op))


def logsumexp(g: Graph, op: Any, x: Tensor, dims: Any, keep: bool = False) -> ir.Value:
    v = g.cast(x.value, working(op))
    dtype = torch_dtype(v)
    axes = axes_of(x, dims)
    high = reduce(g, "ReduceMax", v, axes, True)
    high = g.op("Where", g.op("IsInf", high), g.const(0.0, dtype), high)
    out = g.op("Add", g.op("Log", reduce(g, "ReduceSum", g.op("Exp", g.op("Sub", v, high)), axes, True)), high)
    return g.cast(out if keep or not axes else g.op("Squeeze", out, g.ints(*axes)), out_dtype(op))


def vector_norm(g: Graph, op: Any, x: Tensor, order: Any = 2, dims: Any = None, keep: bool = False, *, dtype: Any = None) -> ir.Value:
    if isinstance(order, Expr):
        raise NotExpressible("a norm whose order is not a constant")
    axes = axes_of(x, dims)
    v = g.op("Abs", g.cast(x.value, working(op)))
    kind = torch_dtype(v)
    p = float(order)
    if p in (math.inf, -math.inf):
        out = extreme(g, "Max" if p > 0 else "Min", v, axes, keep)
    elif p == 0:
        out = reduce(g, "ReduceSum", g.cast(g.op("Not", g.op("Equal", v, g.const(0.0, kind))), kind), axes, keep)
    elif p == 1:
        out = reduce(g, "ReduceSum", v, axes, keep)
    elif p == 2:
        out = g.op("Sqrt", reduce(g, "ReduceSum", g.op("Mul", v, v), axes, keep))
    else:
        out = g.op("Pow", reduce(g, "ReduceSum", g.op("Pow", v, g.const(p, kind)), axes, keep), g.const(1 / p, kind))
    return g.cast(out, out_dtype(op))


def norm(g: Graph, op: Any, x: Tensor, p: Any = 2, dims: Any = None, keep: bool = False, **_: Any) -> ir.Value:
    return vector_norm(g, op, x, 2 if p is None else p, dims, keep)


def cumsum(g: Graph, op: Any, x: Tensor, dim: int, **_: Any) -> ir.Value:
    v = g.cast(x.value, working(op))
    return g.cast(g.op("CumSum", v, g.const(dim % x.rank)), out_dtype(op)) if x.rank else g.cast(v, out_dtype(op))


def sort(g: Graph, op: Any, x: Tensor, *args: Any, dim: int = -1, descending: bool = False, **_: Any) -> tuple:
    """TopK of all: of equals, it gives the one that stands first."""
    rest = [a for a in args if a is not None and not (op.target._overloadname == "stable" and a is args[0])]
    dim, descending = (rest[0] if rest else dim), (rest[1] if len(rest) > 1 else descending)
    if not x.rank:
        return x.value, g.const(0)
    return g.ops("TopK", 2, x.value, g.sizes.vector([x.sizes[dim % x.rank]]), dtypes=[torch_of(x), torch.int64], axis=dim % x.rank,
                 largest=int(descending), sorted=1)  # fmt: skip


def torch_of(x: Tensor) -> torch.dtype:
    return torch_dtype(x.value)


def argsort(g: Graph, op: Any, x: Tensor, *args: Any, **kwargs: Any) -> ir.Value:
    return sort(g, op, x, *args, **kwargs)[1]


def topk(g: Graph, op: Any, x: Tensor, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple:
    if not x.rank:
        return x.value, g.const(0)
    return g.ops(
        "TopK", 2, x.value, g.sizes.vector([k]), dtypes=[torch_of(x), torch.int64], axis=dim % x.rank, largest=int(largest), sorted=1
    )


def count_nonzero(g: Graph, op: Any, x: Tensor, dims: Any = None) -> ir.Value:
    return reduce(g, "ReduceSum", g.cast(truth(g, x), torch.int64), axes_of(x, dims), False)


ROWS: dict[str, Row] = {
    "sum": lambda g, op, x, dtype=None: total("ReduceSum")(g, op, x), "sum.dim_IntList": total("ReduceSum"), "prod.dim_int": product,
    "prod": lambda g, op, x, dtype=None: product(g, op, x), "mean": lambda g, op, x, dtype=None: mean(g, op, x), "mean.dim": mean,
    "var": variance(False), "var.dim": variance(False), "var.correction": variance(False), "std.dim": variance(True),
    "std": variance(True), "std.correction": variance(True), "var_mean.correction": variance(False, True),
    "var_mean.dim": variance(False, True),
    "std_mean.correction": variance(True, True), "any": any_, "any.dim": any_, "any.dims": any_, "all": all_, "all.dim": all_,
    "_is_all_true": all_, "all.dims": all_, "amax": extremum("Max"), "amin": extremum("Min"), "max": extremum("Max"),
    "min": extremum("Min"),
    "max.dim": extremum_of_dim("Max"), "min.dim": extremum_of_dim("Min"), "argmax": arg_extremum("Max"), "argmin": arg_extremum("Min"),
    "aminmax": aminmax, "_softmax": softmax("Softmax"), "_log_softmax": softmax("LogSoftmax"), "softmax.int": softmax("Softmax"),
    "log_softmax.int": softmax("LogSoftmax"), "_safe_softmax": safe_softmax, "logsumexp": logsumexp, "linalg_vector_norm": vector_norm,
    "norm.ScalarOpt_dim": norm, "norm.Scalar": norm, "cumsum": cumsum, "sort": sort, "sort.stable": sort, "argsort": argsort,
    "argsort.stable": argsort, "topk": topk, "count_nonzero": count_nonzero, "count_nonzero.dim_IntList": count_nonzero,
}  # fmt: skip
