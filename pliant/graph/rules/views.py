"""Views: new sizes, strides and offset over the same memory."""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph import symnode
from pliant.graph.layout import is_declared
from pliant.graph.rules.shape import (
    count,
    equal,
    expr,
    fits,
    key,
    known_equal,
    less,
    may_be_one,
    new,
    require_equal,
    require_same,
    row_major,
    same,
    sym,
    view_of,
    wrap,
)
from pliant.graph.rules.table import rule
from pliant.graph.traced import TracedTensor, Untraceable
from pliant.symbolic import ops
from pliant.symbolic.static import static_range


@rule("alias", "detach", "view_as_alias")
def alias(trace: Any, x: TracedTensor) -> Any:
    return view_of(x, x.sizes, x.strides, x.offset)


@rule("t")
def t(trace: Any, x: TracedTensor) -> Any:
    if len(x.sizes) > 2:
        return NotImplemented
    return view_of(x, x.sizes[::-1], x.strides[::-1], x.offset)


@rule("transpose.int")
def transpose(trace: Any, x: TracedTensor, dim0: int, dim1: int) -> Any:
    a, b = wrap(dim0, len(x.sizes)), wrap(dim1, len(x.sizes))
    if a is None or b is None:
        return NotImplemented
    if not x.sizes:
        return alias(trace, x)
    sizes, strides = list(x.sizes), list(x.strides)
    sizes[a], sizes[b] = sizes[b], sizes[a]
    strides[a], strides[b] = strides[b], strides[a]
    return view_of(x, tuple(sizes), tuple(strides), x.offset)


@rule("permute")
def permute(trace: Any, x: TracedTensor, dims: list[int]) -> Any:
    n = len(x.sizes)
    order: list[Any] = [wrap(d, n) for d in dims]
    if len(order) != n or None in order or len(set(order)) != n:
        return NotImplemented
    return view_of(x, tuple([x.sizes[d] for d in order]), tuple([x.strides[d] for d in order]), x.offset)


@rule("unsqueeze")
def unsqueeze(trace: Any, x: TracedTensor, dim: int) -> Any:
    n = len(x.sizes)
    d = wrap(dim, n + 1)
    if d is None:
        return NotImplemented
    stride = x.sizes[d] * x.strides[d] if d < n else 1
    return view_of(x, (*x.sizes[:d], 1, *x.sizes[d:]), (*x.strides[:d], stride, *x.strides[d:]), x.offset)


def is_single(trace: Any, size: Any) -> bool:
    """Whether a size is 1, decided under a guard, for declared sizes too. Where only the run could tell, the graph breaks."""
    return size == 1 if type(size) is int else trace.scope.decide(ops.eq(key(size), 1), symnode.site_hook())


@rule("squeeze", "squeeze.dim", "squeeze.dims")
def squeeze(trace: Any, x: TracedTensor, dims: Any = None) -> Any:
    """A dim goes if it is 1: the rank of the result hangs on it, so there is no general case."""
    n = len(x.sizes)
    wanted = range(n) if dims is None else [wrap(d, n) for d in ([dims] if isinstance(dims, int) else dims)]
    if None in wanted:
        return NotImplemented
    keep = [d for d in range(n) if d not in wanted or not is_single(trace, x.sizes[d])]
    return view_of(x, tuple([x.sizes[d] for d in keep]), tuple([x.strides[d] for d in keep]), x.offset)


@rule("squeeze_copy", "squeeze_copy.dim", "squeeze_copy.dims")
def squeeze_copy(trace: Any, x: TracedTensor, dims: Any = None) -> Any:
    view = squeeze(trace, x, dims)
    return view if view is NotImplemented else new(trace, view.sizes, x.dtype, x.device)


def unless_kept(trace: Any, want: Any, have: Any) -> Any:
    """A size to expand to, which may turn out to be -1: then it stays as it is."""
    e, scope = key(want), trace.scope
    if static_range(e)[0] >= 0 or scope.known_true(ops.ge(e, 0)):
        return want
    if e.backed:
        negative = scope.decide(ops.lt(e, 0), symnode.site_hook())
        return have if negative and scope.decide(ops.eq(e, -1), symnode.site_hook()) else want
    return sym(trace, ops.where(ops.eq(e, -1), key(have), e))


@rule("expand")
def expand(trace: Any, x: TracedTensor, size: list, implicit: bool = False) -> Any:
    skip = len(size) - len(x.sizes)
    if skip < 0:
        return NotImplemented
    sizes, strides = list(size), [0] * len(size)
    for i in range(len(size) - 1, -1, -1):
        want = size[i]
        if i >= skip:
            have, stride = x.sizes[i - skip], x.strides[i - skip]
        else:
            have, stride = 1, sizes[i + 1] * strides[i + 1] if x.sizes and i + 1 < len(size) else 0 if not x.sizes else 1
        if type(want) is int and want < 0:
            if want != -1 or i < skip:
                return NotImplemented
            want = have
        elif type(want) is not int and i >= skip:
            want = unless_kept(trace, want, have)
        if not same(want, have) and not equal(trace, want, have):
            if equal(trace, have, 1):
                stride = 0
            elif not fits(trace, have, want):
                return NotImplemented
            elif may_be_one(trace, key(have)):  # only the run knows whether it is stretched
                stride = sym(trace, ops.where(ops.eq(key(have), key(want)), key(stride), 0))
        sizes[i], strides[i] = want, stride
    return view_of(x, tuple(sizes), tuple(strides), x.offset)


# view ------------------------------------------------------------------------------------------------
def infer_size(trace: Any, size: Any, have: tuple) -> tuple | None:
    """`size` with its -1 filled in, checked against the number of elements of `have`; None if it cannot fit."""
    total = count(trace, have)
    holes = [i for i, s in enumerate(size) if type(s) is int and s < 0]
    if len(holes) > 1 or any(size[i] != -1 for i in holes):
        return None
    given = count(trace, [s for i, s in enumerate(size) if i not in holes])
    if not holes:
        return tuple(size) if given is total or require_same(trace, given, total) else None
    if type(given) is int and type(total) is int:
        if given == 0 or total % given:
            return None
        hole: Any = total // given
    else:
        n, g = trace.scope.ctx.lift(total), trace.scope.ctx.lift(given)
        scope, site = trace.scope, symnode.site_hook()
        if not (scope.assume(ops.ne(g, 0), site) and scope.assume(ops.eq(ops.mod(n, g), 0), site)):
            return None
        hole = sym(trace, ops.floordiv(n, g))
    return tuple([hole if i in holes else s for i, s in enumerate(size)])


def unchanged(x: TracedTensor, size: Any) -> bool:
    """Whether `size`, at most one of them -1, names the sizes that `x` has, none of which can be 1 (there strides may change)."""
    if len(size) != len(x.sizes) or sum([type(s) is int and s == -1 for s in size]) > 1:
        return False
    lowest = x.trace.scope.range
    return all(
        [
            (same(a, b) or (type(a) is int and a == -1)) and (b > 1 if type(b) is int else lowest(b.node.expr)[0] > 1)
            for a, b in zip(size, x.sizes)
        ]
    )


@rule("view", "_unsafe_view")
def view(trace: Any, x: TracedTensor, size: Any) -> Any:
    sizes = infer_size(trace, size, x.sizes)
    if sizes is None:
        return NotImplemented
    if x.dense:
        strides: tuple | None = row_major(trace, sizes)
    else:
        strides = x.strides if unchanged(x, size) else regrouped_strides(trace, x.sizes, x.strides, sizes)
    if strides is None and all([type(s) is int or decidable(s.node.expr) for s in (*x.sizes, *sizes)]):
        raise RuntimeError(NO_VIEW)  # PyTorch's Python code would raise a ValueError
    return view_of(x, sizes, strides, x.offset) if strides is not None else NotImplemented


def decidable(e: Any) -> bool:
    """Whether a question about this size has an answer now."""
    return e.backed and not is_declared(e)


NO_VIEW = (
    "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous subspaces). "
    "Use .reshape(...) instead."
)


@rule("_reshape_alias")
def reshape_alias(trace: Any, x: TracedTensor, size: Any, stride: Any) -> Any:
    return view_of(x, tuple(size), tuple(stride), x.offset)


def regrouped_strides(trace: Any, sizes: tuple, strides: tuple, new: tuple) -> tuple | None:
    """Strides that show the elements of (sizes, strides) under the sizes `new`; None if no strides can. (at::detail::computeStride)"""
    if not sizes:
        return (1,) * len(new)
    if 0 in [s for s in (*sizes, *new) if type(s) is int]:
        return strides if len(sizes) == len(new) and all(map(same, sizes, new)) else row_major(trace, new)
    out: list[Any] = [0] * len(new)
    d = len(new) - 1
    base, chunk, seen = strides[-1], 1, 1
    for i in range(len(sizes) - 1, -1, -1):
        chunk = chunk * sizes[i]
        if i == 0 or not (equal(trace, sizes[i - 1], 1) or equal(trace, strides[i - 1], chunk * base)):
            while d >= 0 and (unfinished(trace, seen, chunk) or equal(trace, new[d], 1)):
                out[d] = seen * base
                seen = seen * new[d]
                d -= 1
            if not equal(trace, seen, chunk):
                return None
            if i:
                base, chunk, seen = strides[i - 1], 1, 1
    return tuple(out) if d == -1 else None


def unfinished(trace: Any, seen: Any, chunk: Any) -> bool:
    """Whether a run of new dims covers less than the chunk that it regroups; where only the run could tell, whether it may."""
    if type(seen) is int and type(chunk) is int:
        return seen < chunk
    cond = ops.lt(key(seen), key(chunk))
    if isinstance(cond, bool) or (cond.backed and not is_declared(cond)):
        return less(trace, seen, chunk)
    return not equal(trace, seen, chunk)


@rule("as_strided")
def as_strided(trace: Any, x: TracedTensor, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    begins = 0 if storage_offset is None else key(storage_offset)
    if not trace.scope.assume(ops.ge(begins, 0), symnode.site_hook(), "Tensor: invalid storage offset"):
        raise RuntimeError(f"Tensor: invalid storage offset {int(storage_offset)}")
    return view_of(x, tuple(size), tuple(stride), x.offset if storage_offset is None else storage_offset)


# parts -------------------------------------------------------------------------------------------------
def settled(trace: Any, size: Any) -> Any:
    """The size as an int where the program has pinned it: then nothing is left to ask about its parts."""
    if type(size) is int:
        return size
    n = trace.scope.simplify(size.node.expr).const
    return size if n is None else n


def clip(trace: Any, at: Any, size: Any, default: Any) -> Any:
    """A slice bound as an index from 0 to size: Python's rules."""
    if at is None:
        return default
    if type(at) is int and type(size) is int:
        return min(max(at + size if at < 0 else at, 0), size)
    if type(at) is int and (at == 0 or at == 2**63 - 1):
        return size if at else 0
    scope, site = trace.scope, symnode.site_hook()
    a, n = expr(trace, at), expr(trace, size)
    if not a.backed or not n.backed or is_declared(a) or is_declared(n):
        # Only the run can tell: the bound as an expression, unless facts settle the cases.
        if not scope.known_true(ops.ge(a, 0)):
            a = ops.add(a, n) if scope.known_true(ops.lt(a, 0)) else ops.where(ops.lt(a, 0), ops.add(a, n), a)
            if not scope.known_true(ops.ge(a, 0)):
                a = ops.max_(a, 0)
        return sym(trace, a if scope.known_true(ops.le(a, n)) else ops.min_(a, n))
    if scope.decide(ops.lt(a, 0), site):
        a = ops.add(a, n)
        if scope.decide(ops.lt(a, 0), site):
            return 0
    return sym(trace, n if scope.decide(ops.gt(a, n), site) else a)


HUGE = 2**31
"""A step with which ATen's arithmetic of sizes and strides may overflow: what becomes of it is its own affair."""


@rule("slice.Tensor")
def slice_(trace: Any, x: TracedTensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    d = wrap(dim, len(x.sizes))
    if d is None or not x.sizes or type(step) is not int or step < 1:
        return NotImplemented
    if step >= HUGE:
        raise Untraceable("slice", "its step is larger than what it is a step in")
    size, stride = settled(trace, x.sizes[d]), x.strides[d]
    start, end = (settled(trace, at) if type(at) is torch.SymInt else at for at in (start, end))
    first, last = clip(trace, start, size, 0), clip(trace, end, size, size)
    if type(first) is int and type(last) is int:
        length: Any = max(last - first, 0)
    elif type(first) is int and first == 0:
        length = last
    else:
        a, b = expr(trace, first), expr(trace, last)
        n = ops.sub(b, a)
        if n.const is None and not n.backed:
            length = sym(trace, n if trace.scope.known_true(ops.ge(n, 0)) else ops.max_(n, 0))
        else:
            length = sym(trace, n) if trace.scope.decide(ops.ge(n, 0), symnode.site_hook()) else 0
    if step != 1:
        length = (length + (step - 1)) // step
        stride = stride * step
    offset = x.offset if type(first) is int and first == 0 else x.offset + first * x.strides[d]
    return view_of(x, (*x.sizes[:d], length, *x.sizes[d + 1 :]), (*x.strides[:d], stride, *x.strides[d + 1 :]), offset)


@rule("select.int")
def select(trace: Any, x: TracedTensor, dim: int, index: Any) -> Any:
    d = wrap(dim, len(x.sizes))
    if d is None or not x.sizes:
        return NotImplemented
    size = settled(trace, x.sizes[d])
    if type(index) is int and type(size) is int:
        if not -size <= index < size:
            raise IndexError(f"select(): index {index} out of range for tensor of size {list(x.sizes)} at dimension {d}")
        at: Any = index + size if index < 0 else index
    else:
        scope, site = trace.scope, symnode.site_hook()
        i, n = expr(trace, index), expr(trace, size)
        inside = scope.assume(ops.lt(i, n), site, error=IndexError) and scope.assume(ops.le(ops.neg(n), i), site, error=IndexError)
        if not inside:
            raise IndexError(f"select(): index {i} out of range for a dimension of size {n}")
        if i.backed:
            negative: Any = scope.decide(ops.lt(i, 0), site)
            at = sym(trace, ops.add(i, n) if negative else i)
        else:
            known = scope.known_true(ops.ge(i, 0))
            at = sym(trace, i if known else ops.where(ops.lt(i, 0), ops.add(i, n), i))
    return without(x, d, at)


def without(x: TracedTensor, d: int, at: Any) -> TracedTensor:
    """`x` at index `at`, which lies inside, of dimension d."""
    offset = x.offset if type(at) is int and at == 0 else x.offset + at * x.strides[d]
    return view_of(x, (*x.sizes[:d], *x.sizes[d + 1 :]), (*x.strides[:d], *x.strides[d + 1 :]), offset)


@rule("unbind.int")
def unbind(trace: Any, x: TracedTensor, dim: int = 0) -> Any:
    d = wrap(dim, len(x.sizes))
    if d is None or not x.sizes:
        return NotImplemented
    n = int(symnode.concrete(x.sizes[d]))  # the number of results is Python's: the size is pinned
    not_too_many("unbind", n)
    return [without(x, d, i) for i in range(n)]


MOST = 1 << 17


def not_too_many(name: str, n: int) -> None:
    """So many results are more than a graph is good for; and nobody knows yet whether there is memory for what they are parts of."""
    if n > MOST:
        raise Untraceable(name, f"it has {n} results")


def pieces(x: TracedTensor, d: int, lengths: list) -> list:
    out, at = [], 0
    for n in lengths:
        offset = x.offset if type(at) is int and at == 0 else x.offset + at * x.strides[d]
        out.append(view_of(x, (*x.sizes[:d], n, *x.sizes[d + 1 :]), x.strides, offset))
        at = at + n
    return out


OF_SPLIT = "split expects split_size be non-negative"


@rule("split.Tensor")
def split(trace: Any, x: TracedTensor, split_size: Any, dim: int = 0) -> Any:
    d = wrap(dim, len(x.sizes))
    if d is None or not x.sizes:
        return NotImplemented
    size = settled(trace, x.sizes[d])
    if not trace.scope.assume(ops.ge(expr(trace, split_size), 0), symnode.site_hook(), OF_SPLIT):
        return NotImplemented
    if equal(trace, split_size, 0):
        return pieces(x, d, [size]) if equal(trace, size, 0) else NotImplemented
    count: Any = symnode.concrete((size + (split_size - 1)) // split_size)  # only the number of pieces is pinned
    count = max(count, 1)
    not_too_many("split", count)
    last = size - split_size * (count - 1)
    return pieces(x, d, [split_size] * (count - 1) + [last])


@rule("unsafe_split.Tensor", "split_copy.Tensor")
def copied_pieces(trace: Any, x: TracedTensor, split_size: Any, dim: int = 0) -> Any:
    """(Their shape functions make one piece after another.)"""
    d = wrap(dim, len(x.sizes))
    if d is not None and x.sizes and less(trace, 0, split_size):
        not_too_many("split", int(symnode.concrete((x.sizes[d] + (split_size - 1)) // split_size)))
    return NotImplemented


@rule("split_with_sizes")
def split_with_sizes(trace: Any, x: TracedTensor, sizes: list, dim: int = 0) -> Any:
    d = wrap(dim, len(x.sizes))
    if d is None or not x.sizes or any(type(s) is int and s < 0 for s in sizes):
        return NotImplemented
    total = sym(trace, ops.sum_([expr(trace, s) for s in sizes])) if sizes else 0
    scope, site = trace.scope, symnode.site_hook()
    for s in sizes:
        if type(s) is not int and not scope.assume(ops.ge(key(s), 0), site):
            return NotImplemented
    if require_equal(trace, total, x.sizes[d]):
        return pieces(x, d, list(sizes))
    shown = [symnode.concrete(s) for s in sizes]
    raise RuntimeError(
        f"split_with_sizes expects split_sizes to sum exactly to {symnode.concrete(x.sizes[d])} (input tensor's size at dimension {d}),"
        f" but got split_sizes={shown}"
    )


@rule("diagonal")
def diagonal(trace: Any, x: TracedTensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    n = len(x.sizes)
    a, b = wrap(dim1, n), wrap(dim2, n)
    if a is None or b is None or a == b or n < 2 or type(offset) is not int:
        return NotImplemented
    start, square = x.offset, not offset and known_equal(trace, x.sizes[a], x.sizes[b])
    if square:
        length = x.sizes[a]
    elif type(x.sizes[a]) is not int or type(x.sizes[b]) is not int:
        if offset:
            return NotImplemented
        length = sym(trace, ops.min_(key(x.sizes[a]), key(x.sizes[b])))
    else:
        length = max(min(x.sizes[a], x.sizes[b] - offset) if offset >= 0 else min(x.sizes[a] + offset, x.sizes[b]), 0)
    if offset and length:
        start = start + (offset * x.strides[b] if offset >= 0 else -offset * x.strides[a])
    rest = [d for d in range(n) if d not in (a, b)]
    sizes = (*[x.sizes[d] for d in rest], length)
    return view_of(x, sizes, (*[x.strides[d] for d in rest], x.strides[a] + x.strides[b]), start)


@rule("unfold")
def unfold(trace: Any, x: TracedTensor, dim: int, size: int, step: int) -> Any:
    d = wrap(dim, len(x.sizes))
    if d is not None and type(size) is int and size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if d is None or not x.sizes or type(size) is not int or type(step) is not int or type(x.sizes[d]) is not int:
        return NotImplemented
    if size > x.sizes[d] or step < 1:
        return NotImplemented
    count = (x.sizes[d] - size) // step + 1
    sizes = (*x.sizes[:d], count, *x.sizes[d + 1 :], size)
    strides = (*x.strides[:d], x.strides[d] * step, *x.strides[d + 1 :], x.strides[d])
    return view_of(x, sizes, strides, x.offset)


@rule("view.dtype")
def view_dtype(trace: Any, x: TracedTensor, dtype: torch.dtype) -> Any:
    return view_of(x, x.sizes, x.strides, x.offset, dtype) if dtype.itemsize == x.dtype.itemsize else NotImplemented
