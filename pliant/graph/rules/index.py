"""Gathering, scattering, joining and rearranging elements."""

from __future__ import annotations

import functools
from typing import Any

from pliant.graph import symnode
from pliant.graph.layout import CHANNELS_LAST_ORDER
from pliant.graph.originals import torch
from pliant.graph.rules.misfits import by_meta, misfit, one_size
from pliant.graph.rules.nn import suggests_channels_last
from pliant.graph.rules.shape import (
    broadcast,
    channels_last_strides,
    equal,
    expandable,
    holds,
    in_range,
    key,
    known_equal,
    new,
    permuted_strides,
    preserved_strides,
    require_equal,
    same,
    strided,
    wrap,
)
from pliant.graph.rules.table import RULES, add, aten, rule
from pliant.graph.traced import TracedTensor, Untraceable
from pliant.symbolic import ops

INDEX_TYPES = (torch.int64, torch.int32)


@rule("embedding")
def embedding(
    trace: Any, weight: TracedTensor, indices: TracedTensor, padding_idx: Any = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    if len(weight.sizes) != 2 or indices.dtype not in INDEX_TYPES:
        return NotImplemented
    return new(trace, (*indices.sizes, weight.sizes[1]), weight.dtype, weight.device)


@rule("embedding_dense_backward")
def embedding_dense_backward(trace: Any, grad: TracedTensor, indices: TracedTensor, num_weights: Any, *args: Any) -> Any:
    return new(trace, (num_weights, grad.sizes[-1]), grad.dtype, grad.device)


@rule("_padded_dense_to_jagged_forward")
def padded_to_jagged(trace: Any, dense: TracedTensor, offsets: list, total_L: Any = None) -> Any:
    if total_L is None or len(offsets) != 1 or len(dense.sizes) < 2:
        return NotImplemented
    return new(trace, (total_L, *dense.sizes[2:]), dense.dtype, dense.device)


@rule("index_select")
def index_select(trace: Any, x: TracedTensor, dim: int, index: TracedTensor) -> Any:
    d = wrap(dim, len(x.sizes))
    if d is None or not x.sizes or len(index.sizes) != 1 or index.dtype not in INDEX_TYPES:
        return NotImplemented
    return new(trace, (*x.sizes[:d], index.sizes[0], *x.sizes[d + 1 :]), x.dtype, x.device)


@rule("index.Tensor")
def index(trace: Any, x: TracedTensor, indices: list) -> Any:
    """Integer indices: their broadcast stands where they stood together, else in front. The layout is TensorIterator's."""
    at = [d for d, i in enumerate(indices) if i is not None]
    tensors = [indices[d] for d in at]
    if not at or len(indices) > len(x.sizes) or not all([t.dtype in INDEX_TYPES for t in tensors]):
        return NotImplemented
    shape: Any = tensors[0].sizes
    for t in tensors[1:]:
        shape = broadcast(trace, shape, t.sizes)
        if shape is None:
            return NotImplemented
    front = at[0] if at[-1] - at[0] == len(at) - 1 else 0
    rest = [d for d in range(len(x.sizes)) if d not in at]
    sizes = (*[x.sizes[d] for d in rest[:front]], *shape, *[x.sizes[d] for d in rest[front:]])
    selects_from_something(trace, [x.sizes[d] for d in at], shape)
    if 0 in [s for s in sizes if type(s) is int]:
        return NotImplemented
    if x.dense and all([t.dense for t in tensors]) and 1 not in [s for s in sizes if type(s) is int]:
        return new(trace, sizes, x.dtype, x.device)
    source = (*[x.strides[d] for d in rest[:front]], *[0] * len(shape), *[x.strides[d] for d in rest[front:]])
    operands = [(sizes, source)]
    for t in tensors:
        found = amid_ones(trace, shape, expanded_strides(trace, t, shape), front, len(rest) - front)
        if found is None:
            return NotImplemented
        operands.append(found)
    return strided(trace, sizes, permuted_strides(trace, sizes, operands), x.dtype, x.device)


def selects_from_something(trace: Any, among: list, shape: tuple) -> None:
    """Raises where places of this shape are named in dims of which one has none, as eager does whatever the other dims are."""
    if 0 not in [n for n in among if type(n) is int]:
        return
    if all([n > 0 if type(n) is int else trace.scope.known_true(ops.ge(key(n), 1)) for n in shape]):
        raise IndexError("index is out of bounds for dimension with size 0")


def expanded_strides(trace: Any, t: TracedTensor, shape: tuple) -> list[Any]:
    """Those of `t.expand(shape)`: at::inferExpandGeometry. They matter where the size is 1, too: TensorIterator compares them."""
    skip = len(shape) - len(t.sizes)
    out: list[Any] = [0] * len(shape)
    step: Any = 1
    for d in range(len(shape) - 1, -1, -1):
        size, stride = (t.sizes[d - skip], t.strides[d - skip]) if d >= skip else (1, step)
        step = size * stride
        if not known_equal(trace, size, shape[d]) and known_equal(trace, size, 1):  # `broadcast` has asked
            stride = step = 0
        out[d] = stride
    return out


def amid_ones(trace: Any, shape: tuple, strides: list[Any], before: int, after: int) -> tuple[tuple, tuple] | None:
    """Sizes and strides of `index.reshape(1, …, *shape, 1, …)`: at::detail::computeStride, which gives dims of size 1 strides anew."""
    sizes = (*[1] * before, *shape, *[1] * after)
    if not shape:
        return sizes, (1,) * len(sizes)
    out: list[Any] = [1] * len(sizes)
    d = len(sizes) - 1
    base, have, given = strides[-1], 1, 1
    for i in range(len(shape) - 1, -1, -1):
        have = have * shape[i]
        if i and ((type(shape[i - 1]) is int and shape[i - 1] == 1) or equal(trace, strides[i - 1], have * base)):
            continue
        # `view_numel < tensor_numel` says: the dims of this chunk that are not yet there
        while d >= 0 and (not same(given, have) or (type(sizes[d]) is int and sizes[d] == 1)):
            out[d] = given * base
            given = given * sizes[d]
            d -= 1
        if i:
            base, have, given = strides[i - 1], 1, 1
    return (sizes, tuple(out)) if d < 0 else None


@rule("gather")
def gather(trace: Any, x: TracedTensor, dim: int, index: TracedTensor, *, sparse_grad: bool = False) -> Any:
    if wrap(dim, len(x.sizes)) is None or len(index.sizes) != len(x.sizes) or index.dtype is not torch.int64:
        return NotImplemented
    return new(trace, index.sizes, x.dtype, x.device) if inside(trace, index, x, wrap(dim, len(x.sizes))) else NotImplemented


def inside(trace: Any, index: TracedTensor, x: TracedTensor, but: int | None = None) -> bool:
    """Whether no dim of `index` is larger than that of `x`, `but` one: eager demands it of indices that are not empty."""
    if not all([s > 0 if type(s) is int else trace.scope.known_true(ops.ge(key(s), 1)) for s in index.sizes]):
        return True
    pairs = [(a, b) for d, (a, b) in enumerate(zip(index.sizes, x.sizes)) if d != but and not same(a, b)]
    return all([a <= b if type(a) is type(b) is int else holds(trace, ops.le(key(a), key(b))) for a, b in pairs])


def scatter(trace: Any, x: TracedTensor, dim: int, index: TracedTensor, *args: Any, **kwargs: Any) -> Any:
    if wrap(dim, len(x.sizes)) is None or len(index.sizes) != len(x.sizes) or index.dtype is not torch.int64:
        return NotImplemented
    return new(trace, x.sizes, x.dtype, x.device) if scatters(trace, x, dim, index, *args) else NotImplemented


def scatters(trace: Any, x: TracedTensor, dim: int, index: TracedTensor, source: Any, *args: Any) -> bool:
    """Whether the sizes are as eager demands."""
    d = wrap(dim, len(x.sizes))
    if d is None or len(index.sizes) != len(x.sizes) or not inside(trace, index, x, d):
        return False
    return not isinstance(source, TracedTensor) or (len(source.sizes) == len(x.sizes) and inside(trace, index, source))


def scatter_(trace: Any, x: TracedTensor, dim: int, index: TracedTensor, *args: Any, **kwargs: Any) -> Any:
    return x if scatters(trace, x, dim, index, *args) else NotImplemented


def fits_rows(trace: Any, x: TracedTensor, dim: int, index: TracedTensor, source: TracedTensor) -> bool:
    """Whether `source` is as `x`, but for `dim`, in which it has one place for each index."""
    d = wrap(dim, len(x.sizes))
    if d is None or not x.sizes or len(index.sizes) != 1 or len(source.sizes) != len(x.sizes):
        return False
    wanted = (*x.sizes[:d], index.sizes[0], *x.sizes[d + 1 :])
    return all([require_equal(trace, a, b) for a, b in zip(source.sizes, wanted)])


def rows_(func: Any) -> Any:
    def rule_of(trace: Any, x: TracedTensor, dim: int, index: TracedTensor, source: TracedTensor, *args: Any, **kwargs: Any) -> Any:
        if fits_rows(trace, x, dim, index, source):
            return x
        return misfit(trace, func, x, dim, index, source, *args, **kwargs)

    return rule_of


def fits_places(trace: Any, x: TracedTensor, indices: list, values: TracedTensor) -> bool:
    """Whether `values` broadcast to `x[indices]`, as far as sizes tell: masks name places that only a run counts."""
    at = [d for d, i in enumerate(indices) if i is not None]
    if not all([indices[d].dtype in INDEX_TYPES for d in at]):
        return True
    shape: Any = ()
    for d in at:
        shape = broadcast(trace, shape, indices[d].sizes)
        if shape is None:
            return False
    if at:
        selects_from_something(trace, [x.sizes[d] for d in at], shape)
    front = at[0] if at and at[-1] - at[0] == len(at) - 1 else 0
    rest = [d for d in range(len(x.sizes)) if d not in at]
    whole = (*[x.sizes[d] for d in rest[:front]], *shape, *[x.sizes[d] for d in rest[front:]])
    return expandable(trace, values.sizes, whole)


def put_(trace: Any, x: TracedTensor, indices: list, values: TracedTensor, *args: Any) -> Any:
    return x if fits_places(trace, x, indices, values) else NotImplemented


def first(trace: Any, x: TracedTensor, *args: Any, **kwargs: Any) -> Any:
    """In-place operators that leave every size alone."""
    return x


def as_first(trace: Any, x: TracedTensor, *args: Any, **kwargs: Any) -> Any:
    """The first argument, copied and changed."""
    return strided(trace, x.sizes, preserved_strides(trace, x), x.dtype, x.device)


add(scatter, "scatter.src", "scatter.value", "scatter_add", "scatter_reduce.two")
add(
    first,
    *"index_fill_.int_Scalar index_fill_.int_Tensor masked_scatter_".split(),
)
add(scatter_, "scatter_.src", "scatter_.value", "scatter_add_", "scatter_reduce_.two")
add(rows_(aten.index_add_.default), "index_add_")
add(rows_(aten.index_copy_.default), "index_copy_")
add(rows_(aten.index_reduce_.default), "index_reduce_")
add(put_, "index_put_", "_index_put_impl_")
add(as_first, "index_fill.int_Scalar")


def into_view(func: Any, view: Any, result: Any) -> Any:
    """A copy of the first argument, of which a view, such as `select` makes it, has other elements."""

    def rule_of(trace: Any, x: TracedTensor, src: TracedTensor, *where: Any, **named: Any) -> Any:
        place = RULES[view](trace, x, *where, **named)
        if place is NotImplemented:
            place = by_meta(trace, view, x, *where, **named)
        if not one_size(trace, src.sizes, place.sizes):
            misfit(trace, func, x, src, *where, **named)
        return result(trace, x)

    return rule_of


add(into_view(aten.select_scatter.default, aten.select.int, as_first), "select_scatter")
add(into_view(aten.slice_scatter.default, aten.slice.Tensor, as_first), "slice_scatter")
add(into_view(aten.diagonal_scatter.default, aten.diagonal.default, lambda trace, x: NotImplemented), "diagonal_scatter")


@rule("slice_backward", "select_backward", "diagonal_backward")
def of_a_view(trace: Any, grad: TracedTensor, input_sizes: Any, *where: Any) -> Any:
    """Zeros, with the gradient where the view was."""
    return new(trace, tuple(input_sizes), grad.dtype, grad.device)


@rule("index_copy")
def index_copy(trace: Any, x: TracedTensor, dim: int, index: TracedTensor, source: TracedTensor) -> Any:
    if not fits_rows(trace, x, dim, index, source):
        return misfit(trace, aten.index_copy.default, x, dim, index, source)
    return new(trace, x.sizes, x.dtype, x.device)


@rule("index_put", "_unsafe_index_put")
def index_put(trace: Any, x: TracedTensor, indices: list, values: TracedTensor, *args: Any) -> Any:
    return as_first(trace, x) if fits_places(trace, x, indices, values) else NotImplemented


@rule("index_add")
def index_add(trace: Any, x: TracedTensor, dim: int, index: TracedTensor, source: TracedTensor, *, alpha: Any = 1) -> Any:
    if not fits_rows(trace, x, dim, index, source):
        return misfit(trace, aten.index_add.default, x, dim, index, source, alpha=alpha)
    return new(trace, x.sizes, x.dtype, x.device) if x.dense and x.dtype is source.dtype else NotImplemented


@rule("index_reduce")
def index_reduce(trace: Any, x: TracedTensor, dim: int, index: TracedTensor, source: TracedTensor, how: str, **named: Any) -> Any:
    if fits_rows(trace, x, dim, index, source):
        return NotImplemented
    return misfit(trace, aten.index_reduce.default, x, dim, index, source, how, **named)


def surely_not_channels_last(t: TracedTensor) -> bool:
    """Whether `suggest_memory_format` of the tensor is row-major whatever the sizes are: its last dim is denser than its channels."""
    if t.dense or len(t.sizes) not in CHANNELS_LAST_ORDER:
        return True
    channels, last = t.strides[1], t.strides[-1]
    return type(channels) is int and type(last) is int and last < channels


@rule("cat")
def cat(trace: Any, tensors: list, dim: int = 0) -> Any:
    """The size along `dim` is the sum; the other sizes must agree. The result is row-major unless all parts are laid out channels last.

    Eager leaves out vectors without elements beside tensors of more dims. Among vectors that makes no difference. Where only the run
    tells that they have none, the mixture is left to PyTorch.
    """
    if not tensors:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    parts = [t for t in tensors if len(t.sizes) != 1 or type(t.sizes[0]) is not int or t.sizes[0]]
    if not parts or len(parts[0].sizes) == 1:
        parts = tensors
    x = parts[0]
    d = wrap(dim, len(x.sizes))
    if d is None or not x.sizes or not all([len(t.sizes) == len(x.sizes) for t in parts]) or not all([t.dtype is x.dtype for t in tensors]):
        return NotImplemented
    if not any([surely_not_channels_last(t) for t in tensors]):
        return NotImplemented
    for t in parts[1:]:
        if not all([i == d or require_equal(trace, a, b) for i, (a, b) in enumerate(zip(t.sizes, x.sizes))]):
            return NotImplemented
    n = torch.sym_sum([t.sizes[d] for t in parts]) if len(parts) > 2 else x.sizes[d] + parts[-1].sizes[d] if len(parts) > 1 else x.sizes[d]
    return new(trace, (*x.sizes[:d], n, *x.sizes[d + 1 :]), x.dtype, x.device)


@rule("stack")
def stack(trace: Any, tensors: list, dim: int = 0) -> Any:
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    x = tensors[0]
    d = wrap(dim, len(x.sizes) + 1)
    if d is None or not all([t.dtype is x.dtype and t.dense and len(t.sizes) == len(x.sizes) for t in tensors]):
        return NotImplemented
    if not all([require_equal(trace, a, b) for t in tensors[1:] for a, b in zip(t.sizes, x.sizes)]):
        return NotImplemented
    return new(trace, (*x.sizes[:d], len(tensors), *x.sizes[d:]), x.dtype, x.device)


@rule("repeat")
def repeat(trace: Any, x: TracedTensor, repeats: list) -> Any:
    skip = len(repeats) - len(x.sizes)
    listed(trace, "repeat", repeats)
    if skip < 0 or any([type(r) is int and r < 0 for r in repeats]):
        return NotImplemented
    sizes = tuple([r if i < skip else r * x.sizes[i - skip] for i, r in enumerate(repeats)])
    return new(trace, sizes, x.dtype, x.device)


def listed(trace: Any, name: str, numbers: list) -> None:
    """A list of numbers that may be symbolic has none below -2**62: PyTorch keeps what it knows of a symbol in such numbers, and raises."""
    for n in numbers:
        if not (n >= LEAST if type(n) is int else trace.scope.assume(ops.ge(key(n), LEAST), symnode.site_hook(), UNLISTED)):
            raise Untraceable(name, UNLISTED)


LEAST = -(2**62)
UNLISTED = "SymIntArrayRef expected to contain only concrete integers"


@rule("flip")
def flip(trace: Any, x: TracedTensor, dims: Any) -> Any:
    in_range(len(x.sizes), dims)
    if len({d % len(x.sizes) for d in dims if x.sizes}) < len(dims):
        return misfit(trace, aten.flip.default, x, dims)
    return as_first(trace, x)


@rule("roll")
def roll(trace: Any, x: TracedTensor, shifts: Any, dims: Any = ()) -> Any:
    """Along dims it is a concatenation, which keeps images that are laid out channels last; not if one of the two halves is empty."""
    shifts, dims = ([v] if isinstance(v, int) else v for v in (shifts, dims))
    if len(dims or shifts[:1]) != len(shifts):
        return misfit(trace, aten.roll.default, x, shifts, dims)
    listed(trace, "roll", shifts)
    if not dims:
        return NotImplemented
    in_range(len(x.sizes), dims)
    if len(x.sizes) in CHANNELS_LAST_ORDER and suggests_channels_last(trace, x):
        halves = [shift % x.sizes[d] for shift, d in zip(shifts, dims)]
        if not any([equal(trace, half, 0) for half in halves]):
            return strided(trace, x.sizes, channels_last_strides(x.sizes), x.dtype, x.device)
    return new(trace, x.sizes, x.dtype, x.device)


NARROWED = "narrow(): length must be non-negative."


@rule("constant_pad_nd")
def constant_pad(trace: Any, x: TracedTensor, pad: list, value: Any = 0) -> Any:
    """Eager first takes away what the negative numbers say, which has to be there, whatever is added on the other side."""
    n = len(x.sizes)
    if len(pad) % 2 == 0 and len(pad) <= 2 * n:
        for i in range(len(pad) // 2):
            ends = [key(p) for p in pad[2 * i : 2 * i + 2]]
            taken = [ops.min_(e, 0) for e in ends if not (e >= 0 if type(e) is int else trace.scope.known_true(ops.ge(e, 0)))]
            left = functools.reduce(ops.add, taken, key(x.sizes[n - 1 - i]))
            if taken and not trace.scope.assume(ops.ge(left, 0), symnode.site_hook(), NARROWED):
                raise RuntimeError(NARROWED)
    if not x.dense or len(pad) % 2 or len(pad) > 2 * n or any([type(p) is not int or p < 0 for p in pad]):
        return NotImplemented
    sizes = list(x.sizes)
    for i in range(len(pad) // 2):
        sizes[n - 1 - i] = sizes[n - 1 - i] + (pad[2 * i] + pad[2 * i + 1])
    return new(trace, tuple(sizes), x.dtype, x.device)
