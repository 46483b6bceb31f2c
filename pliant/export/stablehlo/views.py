"""Operators that rearrange: views, copies, joins and cuts, and tensors made from nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.export.stablehlo.builder import Builder, Unsupported, Value, integers, is_float
from pliant.export.stablehlo.pointwise import Operand, to
from pliant.export.stablehlo.table import lowering
from pliant.graph.layout import memory_order
from pliant.graph.symnode import expr_of
from pliant.lower import liveness
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr


# -- the same elements in the same order --------------------------------------------------------------------------------------------
@lowering(
    "view.default reshape.default _unsafe_view.default _reshape_alias.default flatten.using_ints unflatten.int squeeze.default"
    " squeeze.dim squeeze.dims unsqueeze.default view_copy.default unsqueeze_copy.default squeeze_copy.dims squeeze_copy.dim"
)
def reshape(b: Builder, self: Value, *_: Any, **__: Any) -> Value:
    return b.reshape(self, b.outs[0].sizes)


@lowering(
    "clone.default alias.default detach.default contiguous.default lift_fresh_copy.default lift_fresh.default lift.default"
    " alias_copy.default view_as.default detach_copy.default"
)
def identity(b: Builder, self: Value, *_: Any, **__: Any) -> Value:
    return self


@lowering("_to_copy.default to.dtype")
def to_copy(b: Builder, self: Value, *_: Any, **__: Any) -> Value:
    return b.convert(self, b.outs[0].dtype)


@lowering("copy.default")
def copy(b: Builder, self: Value, src: Value, non_blocking: bool = False) -> Value:
    return to(b, src, b.outs[0].sizes, b.outs[0].dtype)


@lowering("view.dtype")
def bitcast(b: Builder, self: Value, dtype: torch.dtype) -> Value:
    if dtype.itemsize != self.dtype.itemsize or torch.bool in (dtype, self.dtype):
        raise Unsupported(f"{self.dtype} seen as {dtype}: of another size")
    return b.same("bitcast_convert", self, dtype=dtype)


@lowering("expand.default expand_copy.default expand_as.default broadcast_to.default")
def expand(b: Builder, self: Value, *_: Any, **__: Any) -> Value:
    return b.expand(self, b.outs[0].sizes)


# -- another order -------------------------------------------------------------------------------------------------------------------
@lowering("permute.default permute_copy.default")
def permute(b: Builder, self: Value, dims: Any) -> Value:
    return b.transpose(self, [d % self.rank for d in dims])


@lowering("transpose.int transpose_copy.int swapaxes.default swapdims.default")
def transpose(b: Builder, self: Value, dim0: int, dim1: int) -> Value:
    order = list(range(self.rank))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return b.transpose(self, order)


@lowering("t.default t_copy.default numpy_T.default mT.default")
def matrix_transpose(b: Builder, self: Value) -> Value:
    order = list(range(self.rank))
    return b.transpose(self, order[:-2] + order[-2:][::-1])


@lowering("movedim.int")
def move_dim(b: Builder, self: Value, source: int, destination: int) -> Value:
    order = [d for d in range(self.rank) if d != source % self.rank]
    order.insert(destination % self.rank, source % self.rank)
    return b.transpose(self, order)


@lowering("flip.default")
def flip(b: Builder, self: Value, dims: Any) -> Value:
    return b.same("reverse", self, dimensions=integers([d % self.rank for d in dims])) if dims else self


# -- parts ---------------------------------------------------------------------------------------------------------------------------
def wrapped(b: Builder, index: Any, n: Any) -> Any:
    """An index that may be negative, as a number from 0 on."""
    if type(index) is int:
        return index if index >= 0 else b.simple(n + index)
    if b.scope.known_true(ops.ge(index, 0)):
        return index
    if b.scope.known_true(ops.lt(index, 0)):
        return b.simple(index + n)
    return b.simple(ops.where(ops.lt(index, 0), index + n, index))


def static(b: Builder, value: Any) -> bool:
    """Whether shapes alone tell this number."""
    return type(value) is not Expr or not any(s.name in b.of_data or s.name in b.numbers for s in value.symbols())


def take(b: Builder, x: Value, dim: int, index: Value) -> Value:
    """`x` at the positions of a 1-d `index` of one dim."""
    sizes = [*x.sizes[:dim], index.sizes[0], *x.sizes[dim + 1 :]]
    slices = [1 if d == dim else s for d, s in enumerate(x.sizes)]
    offset = [d for d in range(x.rank) if d != dim]
    return b.gather(x, b.reshape(index, (index.sizes[0], 1)), sizes, offset, [dim], slices)


@lowering("select.int select_copy.int")
def select(b: Builder, self: Value, dim: int, index: Any) -> Value:
    dim %= self.rank
    at = wrapped(b, index, self.sizes[dim])
    if static(b, at):
        part = b.slice(self, dim, at, b.simple(at + 1), size=1)
    else:
        part = take(b, self, dim, b.reshape(b.number(at), (1,)))
    return b.reshape(part, b.outs[0].sizes)


def clamped(b: Builder, index: Any, n: Any) -> Any:
    """The bound of a slice as Python reads it: negative ones count from the end, all are clamped."""
    if type(index) is int and index == 0:
        return 0
    if type(index) is int and index >= 2**62:
        return n
    return b.simple(ops.min_(ops.max_(wrapped(b, index, n), 0), n))


def bounds(b: Builder, n: Any, start: Any, step: int, length: Any) -> tuple[Any, Any]:
    """The start and the end of a slice that has `length` elements."""
    first = clamped(b, 0 if start is None else start, n)
    return first, b.simple(first + length) if step == 1 else b.simple(ops.min_(first + length * step, n))


@lowering("slice.Tensor slice_copy.Tensor")
def slice_(b: Builder, self: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    dim %= self.rank
    n, length = self.sizes[dim], b.outs[0].sizes[dim]
    first, last = bounds(b, n, start, step, length)
    if static(b, first):
        return b.slice(self, dim, first, last, step, length)
    steps = b.same("multiply", b.iota((length,), 0), b.full(step, (length,), torch.int64))
    return take(b, self, dim, b.same("add", steps, b.full(first, (length,), torch.int64)))


def pieces(b: Builder, x: Value, dim: int, lengths: list[Any]) -> list[Value]:
    out, at = [], 0
    for n in lengths:
        out.append(b.slice(x, dim, at, b.simple(at + n), size=n))
        at = b.simple(at + n)
    return out


@lowering("split_with_sizes.default split.Tensor chunk.default split_with_sizes_copy.default split.sizes split_copy.Tensor"
          " unsafe_split.Tensor unsafe_split_with_sizes.default tensor_split.sections unsafe_chunk.default")  # fmt: skip
def split(b: Builder, self: Value, split_size: Any, dim: int = 0) -> list[Value]:
    return pieces(b, self, dim % self.rank, [o.sizes[dim] for o in b.outs])


@lowering("unbind.int unbind_copy.int")
def unbind(b: Builder, self: Value, dim: int = 0) -> list[Value]:
    dim %= self.rank
    return [b.reshape(p, o.sizes) for p, o in zip(pieces(b, self, dim, [1] * len(b.outs)), b.outs)]


@lowering("narrow.default")
def narrow(b: Builder, self: Value, dim: int, start: Any, length: Any) -> Value:
    return slice_(b, self, dim, start)


@lowering("diagonal.default diagonal_copy.default")
def diagonal(b: Builder, self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    dim1, dim2 = dim1 % self.rank, dim2 % self.rank
    rest = [d for d in range(self.rank) if d not in (dim1, dim2)]
    x = b.transpose(self, [*rest, dim1, dim2])
    n = b.outs[0].sizes[-1]
    line = b.iota((n, 1), 0)
    at = [b.same("add", line, b.full(max(k, 0), (n, 1), torch.int64)) for k in (-offset, offset)]
    k = len(rest)
    return b.gather(x, b.concat(at, 1), [*x.sizes[:k], n], list(range(k)), [k, k + 1], [*x.sizes[:k], 1, 1])


@lowering("as_strided.default as_strided_copy.default")
def as_strided(b: Builder, self: Value, size: Any, stride: Any, storage_offset: Any = None) -> Value:
    """Of a tensor that fills its memory, as the trace has it: the elements by their positions there."""
    start = liveness.number(b.operand.offset)
    own = b.operand.offset if start is None else start
    first = b.simple((own if storage_offset is None else storage_offset) - own)
    order = memory_order(b.scope, *([expr_of(n, b.scope) for n in of] for of in (b.operand.sizes, b.operand.strides)))
    if order is None or not static(b, first) or (type(first) is Expr and any(s.name not in b.sources for s in first.symbols())):
        raise Unsupported("as_strided of a tensor that does not fill its memory from a known start: positions there mean nothing here")
    out = b.outs[0].sizes
    at = b.full(first, out, torch.int64)
    for d, step in enumerate(stride):
        at = b.same("add", at, b.same("multiply", b.iota(out, d), b.full(step, out, torch.int64)))
    flat = b.reshape(b.transpose(self, order), (product(b, self.sizes),))
    n = product(b, out)
    return b.reshape(take(b, flat, 0, b.reshape(at, (n,))), out)


def product(b: Builder, sizes: Any) -> Any:
    total: Any = 1
    for s in sizes:
        total = total * s
    return b.simple(total)


@lowering("unfold.default unfold_copy.default")
def unfold(b: Builder, self: Value, dimension: int, size: int, step: int) -> Value:
    d = dimension % self.rank if self.rank else 0
    n = b.outs[0].sizes[d]
    grid = (n, size)
    at = b.same("add", b.same("multiply", b.iota(grid, 0), b.full(step, grid, torch.int64)), b.iota(grid, 1))
    flat = take(b, self, d, b.reshape(at, (b.simple(n * size),)))
    split_ = b.reshape(flat, [*self.sizes[:d], n, size, *self.sizes[d + 1 :]])
    order = list(range(split_.rank))
    order.append(order.pop(d + 1))
    return b.transpose(split_, order)


@lowering("slice_scatter.default")
def slice_scatter(b: Builder, self: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    """Where a position along `dim` is one of the slice's, the element of `src`, else that of `self`."""
    dim %= self.rank
    n, length = self.sizes[dim], src.sizes[dim]
    first, last = bounds(b, n, start, step, length)
    src = b.convert(src, self.dtype)
    if step == 1 and static(b, first):
        return b.concat([b.slice(self, dim, 0, first), src, b.slice(self, dim, last, n, size=n - last)], dim)
    place = b.same("subtract", b.iota((n,), 0), b.full(first, (n,), torch.int64))
    q = b.same("divide", place, b.full(step, (n,), torch.int64))
    inside = b.compare("EQ", b.same("multiply", q, b.full(step, (n,), torch.int64)), place)
    for direction, edge in (("GE", 0), ("LT", length)):
        inside = b.same("and", inside, b.compare(direction, q, b.full(edge, (n,), torch.int64)))
    inside = b.same("and", inside, b.compare("GE", place, b.full(0, (n,), torch.int64)))
    empty_safe = b.pad(src, [0] * src.rank, [1 if d == dim else 0 for d in range(src.rank)])  # there may be nothing to gather
    q = b.select(inside, q, b.full(0, (n,), torch.int64))
    return b.select(b.broadcast(inside, self.sizes, (dim,)), take(b, empty_safe, dim, q), self)


@lowering("select_scatter.default")
def select_scatter(b: Builder, self: Value, src: Value, dim: int, index: Any) -> Value:
    dim %= self.rank
    at = wrapped(b, index, self.sizes[dim])
    n = self.sizes[dim]
    here = b.compare("EQ", b.iota((n,), 0), b.full(at, (n,), torch.int64))
    row = b.reshape(b.convert(src, self.dtype), [*self.sizes[:dim], 1, *self.sizes[dim + 1 :]])
    return b.select(b.broadcast(here, self.sizes, (dim,)), b.expand(row, self.sizes), self)


@lowering("diagonal_scatter.default")
def diagonal_scatter(b: Builder, self: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    dim1, dim2 = dim1 % self.rank, dim2 % self.rank
    rows, cols = b.iota(self.sizes, dim1), b.iota(self.sizes, dim2)
    here = b.compare("EQ", b.same("subtract", cols, rows), b.full(offset, self.sizes, torch.int64))
    along = dim1 if offset >= 0 else dim2
    low = [0] * src.rank
    high = [*[0] * (src.rank - 1), b.simple(self.sizes[along] - src.sizes[-1])]
    moved = [*[d for d in range(self.rank) if d not in (dim1, dim2)], along]
    order = sorted(range(len(moved)), key=lambda i: moved[i])
    padded = b.transpose(b.pad(b.convert(src, self.dtype), low, high), order)
    spread = b.broadcast(padded, self.sizes, sorted(moved))
    return b.select(here, spread, self)


@lowering("diag_embed.default")
def diag_embed(b: Builder, self: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    zeros = b.full(0, b.outs[0].sizes, self.dtype)
    return diagonal_scatter(b, zeros, self, offset, dim1, dim2)


# -- joined and repeated -------------------------------------------------------------------------------------------------------------
@lowering("cat.default concat.default")
def cat(b: Builder, tensors: Any, dim: int = 0) -> Value:
    out = b.outs[0]
    kept = [x for x in tensors if not (x.rank == 1 and out_rank(b) > 1)]  # an old rule: empty 1-d tensors are skipped
    return b.concat([b.convert(x, out.dtype) for x in kept], dim % out_rank(b))


def out_rank(b: Builder) -> int:
    return len(b.outs[0].sizes)


@lowering("stack.default")
def stack(b: Builder, tensors: Any, dim: int = 0) -> Value:
    rank = out_rank(b)
    dim %= rank
    return b.concat([b.reshape(b.convert(x, b.outs[0].dtype), [*x.sizes[:dim], 1, *x.sizes[dim:]]) for x in tensors], dim)


@lowering("repeat.default tile.default")
def repeat(b: Builder, self: Value, repeats: Any) -> Value:
    out = b.outs[0].sizes
    extra = len(out) - self.rank
    times = [*[1] * (len(out) - len(repeats)), *repeats]
    inner = [1] * extra + list(self.sizes)
    spread: list[Any] = []
    for k, s in zip(times, inner):
        spread += [k, s]
    dims = [2 * (extra + d) + 1 for d in range(self.rank)]
    return b.reshape(b.broadcast(self, spread, dims), out)


@lowering("roll.default")
def roll(b: Builder, self: Value, shifts: Any, dims: Any = ()) -> Value:
    shifts = shifts if isinstance(shifts, (list, tuple)) else [shifts]
    if not dims:
        n = product(b, self.sizes)
        return b.reshape(rolled(b, b.reshape(self, (n,)), shifts[0], 0), self.sizes)
    x = self
    for shift, dim in zip(shifts, dims):
        x = rolled(b, x, shift, dim % x.rank)
    return x


def rolled(b: Builder, x: Value, shift: Any, dim: int) -> Value:
    n = x.sizes[dim]
    if type(n) is int and n == 0:
        return x
    cut = b.simple(n - shift % ops.max_(n, 1))
    return b.concat([b.slice(x, dim, cut, n), b.slice(x, dim, 0, cut)], dim)


@lowering("pixel_shuffle.default")
def pixel_shuffle(b: Builder, self: Value, upscale_factor: int) -> Value:
    *head, c, h, w = self.sizes
    r, k = upscale_factor, len(head)
    x = b.reshape(self, [*head, b.simple(c // (r * r)), r, r, h, w])
    return b.reshape(b.transpose(x, [*range(k), k, k + 3, k + 1, k + 4, k + 2]), b.outs[0].sizes)


@lowering("pixel_unshuffle.default")
def pixel_unshuffle(b: Builder, self: Value, downscale_factor: int) -> Value:
    *head, c, h, w = self.sizes
    r, k = downscale_factor, len(head)
    x = b.reshape(self, [*head, c, b.simple(h // r), r, b.simple(w // r), r])
    return b.reshape(b.transpose(x, [*range(k), k, k + 2, k + 4, k + 1, k + 3]), b.outs[0].sizes)


# -- padding ---------------------------------------------------------------------------------------------------------------------------
def edges(rank: int, pad: Any) -> tuple[list[Any], list[Any]]:
    """PyTorch lists the last dim first."""
    low, high = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        low[rank - 1 - i], high[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return low, high


@lowering("constant_pad_nd.default")
def constant_pad(b: Builder, self: Value, pad: Any, value: Any = 0) -> Value:
    return b.pad(self, *edges(self.rank, pad), value)


def padded(b: Builder, x: Value, padding: Any, position: Callable[[Value, Value], Value]) -> Value:
    """`x` with more elements at its edges. `position`: which element stands at a place, counted from the first element of the operand and
    perhaps outside of it, given the places and the last element's."""
    for d, (low, high) in enumerate(zip(*edges(x.rank, padding))):
        if type(low) is int and type(high) is int and low == 0 == high:
            continue
        n = x.sizes[d]
        m = b.simple(n + low + high)
        places = b.same("subtract", b.iota((m,), 0), b.full(low, (m,), torch.int64))
        x = take(b, x, d, position(places, b.full(b.simple(n - 1), (m,), torch.int64)))
    return x


@lowering("reflection_pad1d.default reflection_pad2d.default reflection_pad3d.default")
def reflection_pad(b: Builder, self: Value, padding: Any) -> Value:
    def reflected(at: Value, last: Value) -> Value:
        return b.same("subtract", last, b.same("abs", b.same("subtract", last, b.same("abs", at))))

    return padded(b, self, padding, reflected)


@lowering("replication_pad1d.default replication_pad2d.default replication_pad3d.default")
def replication_pad(b: Builder, self: Value, padding: Any) -> Value:
    def replicated(at: Value, last: Value) -> Value:
        return b.same("minimum", b.same("maximum", at, b.full(0, at.sizes, torch.int64)), last)

    return padded(b, self, padding, replicated)


# -- from nothing ------------------------------------------------------------------------------------------------------------------------
@lowering(
    "zeros.default zeros_like.default new_zeros.default empty.memory_format empty_like.default new_empty.default empty_strided.default"
    " new_empty_strided.default empty_permuted.default"
)
def zeros(b: Builder, *_: Any, **__: Any) -> Value:
    """Memory that nobody has written reads as zeros."""
    return b.full(0, b.outs[0].sizes, b.outs[0].dtype)


@lowering("ones.default ones_like.default new_ones.default")
def ones(b: Builder, *_: Any, **__: Any) -> Value:
    return b.full(1, b.outs[0].sizes, b.outs[0].dtype)


@lowering("full.default full_like.default new_full.default fill.Scalar fill.Tensor")
def full(b: Builder, first: Any, value: Any, *args: Any, **__: Any) -> Value:
    if args and type(first) is Value and isinstance(value, (list, tuple)):
        value = args[0]  # new_full(x, sizes, value)
    return b.full(value, b.outs[0].sizes, b.outs[0].dtype)


@lowering("scalar_tensor.default")
def scalar_tensor(b: Builder, s: Any, **_: Any) -> Value:
    return b.full(s, (), b.outs[0].dtype)


@lowering("arange.default arange.start arange.start_step")
def arange(b: Builder, *args: Any, **_: Any) -> Value:
    out = b.outs[0]
    start, step = (0, 1) if len(args) == 1 else (args[0], args[2] if len(args) > 2 else 1)
    work = out.dtype if not is_float(out.dtype) else torch.float64
    line = b.iota(out.sizes, 0, work)
    if not (type(step) is int and step == 1):
        line = b.same("multiply", line, b.full(step, line.sizes, work))
    if not (type(start) is int and start == 0):
        line = b.same("add", line, b.full(start, line.sizes, work))
    return b.convert(line, out.dtype)


@lowering("linspace.default")
def linspace(b: Builder, start: Operand, end: Operand, steps: Any, **_: Any) -> Value:
    """From both ends towards the middle, as PyTorch does it."""
    out = b.outs[0]
    work = torch.float64
    n = out.sizes[0]
    i = b.iota(out.sizes, 0, work)
    first, last = b.full(start, out.sizes, work), b.full(end, out.sizes, work)
    if type(n) is int and n <= 1:
        return b.convert(first, out.dtype)
    gaps = b.full(b.simple(n - 1), out.sizes, work)
    step = b.same("divide", b.same("subtract", last, first), gaps)
    up = b.same("add", first, b.same("multiply", step, i))
    down = b.same("subtract", last, b.same("multiply", step, b.same("subtract", gaps, i)))
    half = b.full(b.simple(n // 2), out.sizes, work)
    line = b.select(b.compare("LT", i, half), up, down)
    alone = b.compare("EQ", gaps, b.full(0, out.sizes, work))
    return b.convert(b.select(alone, first, line), out.dtype)


@lowering("eye.default eye.m")
def eye(b: Builder, *_: Any, **__: Any) -> Value:
    out = b.outs[0]
    return b.convert(b.compare("EQ", b.iota(out.sizes, 0), b.iota(out.sizes, 1)), out.dtype)


def triangle(b: Builder, self: Value, diagonal: Any, direction: str) -> Value:
    rows, cols = b.iota(self.sizes, self.rank - 2), b.iota(self.sizes, self.rank - 1)
    gap = b.same("subtract", cols, rows)
    keep = b.compare(direction, gap, b.full(diagonal, self.sizes, torch.int64))
    return b.select(keep, self, b.full(0, self.sizes, self.dtype))


@lowering("tril.default")
def tril(b: Builder, self: Value, diagonal: Any = 0) -> Value:
    return triangle(b, self, diagonal, "LE")


@lowering("triu.default")
def triu(b: Builder, self: Value, diagonal: Any = 0) -> Value:
    return triangle(b, self, diagonal, "GE")


@lowering("_local_scalar_dense.default item.default")
def item(b: Builder, self: Value) -> Value:
    """A number that the data tell: its symbol is bound to the value."""
    return b.reshape(self, ())
