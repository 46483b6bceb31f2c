"""Tools for rules: comparing and broadcasting sizes, result types, and the strides that PyTorch's TensorIterator gives its results."""

from __future__ import annotations

from typing import Any

from pliant.graph import symnode
from pliant.graph.layout import CHANNELS_LAST_ORDER, ask, contiguous_strides, is_non_overlapping_and_dense
from pliant.graph.layout import is_packed as packed
from pliant.graph.originals import get_default_dtype, torch
from pliant.graph.symnode import expr_of, to_sym
from pliant.graph.traced import TracedTensor, make
from pliant.symbolic import ops
from pliant.symbolic.dims import OPEN

SymInt = torch.SymInt


# new tensors --------------------------------------------------------------------------------------
def key(s: Any) -> Any:
    return s if type(s) is int else s.node.expr


def row_major(trace: Any, sizes: tuple) -> tuple:
    """Strides of a new tensor; remembered per trace, since products of symbols are the costly part."""
    if all([type(s) is int for s in sizes]):
        return contiguous_strides(sizes)
    k = tuple([s if type(s) is int else s.node.expr.serial + 0.5 for s in sizes])
    strides = trace.strides_memo.get(k)
    if strides is None:
        strides = trace.strides_memo[k] = contiguous_strides(sizes)
    return strides


def new(trace: Any, sizes: tuple, dtype: torch.dtype, device: Any) -> TracedTensor:
    """A row-major tensor with memory of its own."""
    strides = row_major(trace, sizes)
    if sizes and type(strides[0]) is type(sizes[0]) is int and strides[0] * sizes[0] * dtype.itemsize >= 2**63 and 0 not in sizes:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(sizes)}")
    return make(trace, sizes, strides, dtype, 0, None, device, True)


def strided(trace: Any, sizes: tuple, strides: tuple, dtype: torch.dtype, device: Any) -> TracedTensor:
    """A tensor with memory of its own and these strides."""
    if len(sizes) != len(strides):
        raise RuntimeError(f"dimensionality of sizes ({len(sizes)}) must match dimensionality of strides ({len(strides)})")
    dense = all(same(a, b) for a, b in zip(strides, row_major(trace, sizes)))
    return make(trace, sizes, strides, dtype, 0, None, device, dense)


def view_of(x: TracedTensor, sizes: tuple, strides: tuple, offset: Any, dtype: torch.dtype | None = None) -> TracedTensor:
    """A tensor that shares the memory of `x`."""
    packed = row_major(x.trace, sizes)
    dense = strides is packed or all([same(a, b) for a, b in zip(strides, packed)])
    return make(x.trace, sizes, strides, dtype or x.dtype, offset, x.storage_id, x.device, dense)


# questions about sizes -------------------------------------------------------------------------------
def same(a: Any, b: Any) -> bool:
    """Whether two sizes are one expression. Asks nobody."""
    if a is b:
        return True
    if type(a) is int or type(b) is int:
        return type(a) is type(b) and a == b
    return a.node.expr is b.node.expr


def equal(trace: Any, a: Any, b: Any) -> bool:
    """Whether two sizes are equal: proved, or decided under a guard; False where only the run could tell."""
    if same(a, b):
        return True
    if type(a) is int and type(b) is int:
        return False
    return ask(trace.scope, ops.eq(key(a), key(b)), symnode.site_hook())


def known_equal(trace: Any, a: Any, b: Any) -> bool:
    """Whether two sizes are equal for all that is known by now. Guards nothing."""
    return same(a, b) or not (type(a) is type(b) is int) and trace.scope.known_true(ops.eq(key(a), key(b)))


def less(trace: Any, a: Any, b: Any) -> bool:
    if type(a) is int and type(b) is int:
        return a < b
    return False if same(a, b) else ask(trace.scope, ops.lt(key(a), key(b)), symnode.site_hook())


def inside(trace: Any, a: Any, b: Any) -> bool:
    """Whether a stride is less than another one. Of sizes that only the run knows none is taken for 0 or 1: then strides tell nothing."""
    if less(trace, a, b):
        return True
    if same(a, b) or type(a) is type(b) is int:
        return False
    scope, cond = trace.scope, ops.lt(key(a), key(b))
    unknown = [s for s in cond.symbols() if not s.backed]
    return bool(unknown) and not scope.known_false(cond) and scope.implied(cond, [ops.ge(s, 2) for s in unknown])


def require_equal(trace: Any, a: Any, b: Any) -> bool:
    """As `equal`, for sizes that eager demands to be equal: where only the run could tell it becomes an assertion."""
    if same(a, b):
        return True
    if type(a) is int and type(b) is int:
        return False
    return require_same(trace, key(a), key(b))


def require_same(trace: Any, a: Any, b: Any) -> bool:
    """`require_equal` for ints and expressions."""
    return holds(trace, ops.eq(a, b))


def count(trace: Any, sizes: Any) -> Any:
    """The number of elements: an int or an expression (products of expressions cost a fifth of those of `SymInt`s)."""
    n: Any = 1
    symbolic = []
    for s in sizes:
        if type(s) is int:
            n = n * s
        else:
            symbolic.append(s.node.expr)
    for e in symbolic:
        n = e * n
    return n if type(n) is int or n.const is None else n.const


def wrap(dim: int, ndim: int) -> int | None:
    """`dim` counted from the front, None if out of range."""
    if -ndim <= dim < ndim:
        return dim % ndim
    return 0 if ndim == 0 and dim in (-1, 0) else None


def in_range(ndim: int, dims: Any) -> bool:
    """True; IndexError, as the kernels raise it, for a dim out of range. For operators whose shape functions in PyTorch do not look."""
    for d in [dims] if isinstance(dims, int) else dims:
        if wrap(d, ndim) is None:
            n = max(ndim, 1)
            raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {d})")
    return True


def sym(trace: Any, expr: Any) -> Any:
    return expr if isinstance(expr, int) else to_sym(trace.scope, expr)


def expr(trace: Any, value: Any) -> Any:
    return expr_of(value, trace.scope)


# broadcasting ------------------------------------------------------------------------------------------
def broadcast(trace: Any, a: tuple, b: tuple) -> tuple | None:
    """The common shape of `a` and `b`; None if there is none."""
    if a is b:
        return a
    if len(a) < len(b):
        a, b = b, a
    skip = len(a) - len(b)
    out = list(a)
    for i, q in enumerate(b):
        p = out[skip + i]
        if p is q:
            continue
        tp, tq = type(p), type(q)
        if tq is int and tp is int:
            if p == q or q == 1:
                continue
            if p != 1:
                return None
            out[skip + i] = q
        elif tp is not int and tq is not int and p.node.expr is q.node.expr:
            continue
        elif tq is int and q == 1:
            continue
        elif tp is int and p == 1:
            out[skip + i] = q
        else:
            r = common_size(trace, p, q)
            if r is None:
                return None
            out[skip + i] = r
    return tuple(out)


def common_size(trace: Any, p: Any, q: Any) -> Any:
    """Two different size expressions that meet in broadcasting, at least one symbolic."""
    if equal(trace, p, q):
        return q if type(q) is int else p
    if equal(trace, p, 1):
        return q
    if equal(trace, q, 1):
        return p
    a, b = key(p), key(q)
    first, second = may_be_one(trace, a), may_be_one(trace, b)
    if not (first or second):
        return p if require_equal(trace, p, q) else None
    if is_open(a) and is_open(b):  # an export: what is alike in the example is meant to be, what is 1 there is meant to be stretched
        for size, other, to in ((p, 1, q), (q, 1, p)) if key_hint(a) != key_hint(b) else ():
            if key_hint(key(size)) == 1:
                return to if require_equal(trace, size, other) else None
        return p if require_equal(trace, p, q) else None
    # Only the run knows which of the two is stretched, if any.
    fits = ops.eq(a, b)
    if first:
        fits = ops.or_(fits, ops.eq(a, 1))
    if second:
        fits = ops.or_(fits, ops.eq(b, 1))
    if not holds(trace, fits):
        return None
    return sym(trace, ops.where(ops.eq(a, 1), b, a)) if first and second else q if first else p


def is_open(size: Any) -> bool:
    """Whether a size is a number, or made of sizes that an export leaves open."""
    return isinstance(size, int) or (size.hint is not None and all([s.info.dim is OPEN for s in size.symbols()]))


def key_hint(size: Any) -> Any:
    return size if isinstance(size, int) else size.hint


def may_be_one(trace: Any, size: Any) -> bool:
    """Whether a size could be 1 in some run that this capture serves."""
    return size == 1 if isinstance(size, int) else not trace.scope.known_false(ops.eq(size, 1))


def holds(trace: Any, cond: Any, words: str = "") -> bool:
    """Whether `cond` holds, which eager demands, in these words: decided under a guard, or an assertion where only the run could tell."""
    if isinstance(cond, bool):
        return cond
    if cond.const is None and cond.backed:
        return trace.scope.decide(cond, symnode.site_hook())
    return trace.scope.assume(cond, symnode.site_hook(), words)


def expandable(trace: Any, small: tuple, to: tuple) -> bool:
    """Whether `small` broadcasts to exactly `to`."""
    skip = len(to) - len(small)
    return skip >= 0 and all([fits(trace, s, to[skip + i]) for i, s in enumerate(small)])


def fits(trace: Any, s: Any, to: Any) -> bool:
    """Whether a size broadcasts to exactly `to`."""
    if same(s, to) or equal(trace, s, 1) or equal(trace, s, to):
        return True
    a = key(s)
    cond = ops.eq(a, key(to))
    return holds(trace, ops.or_(cond, ops.eq(a, 1)) if may_be_one(trace, a) else cond)


# TensorIterator -----------------------------------------------------------------------------------------
def channels_last_strides(sizes: tuple) -> tuple:
    """Strides of a new image [N, C, H, W] or volume [N, C, D, H, W] in channels-last order."""
    strides: list[Any] = [0] * len(sizes)
    step: Any = 1
    for d in CHANNELS_LAST_ORDER[len(sizes)]:
        strides[d] = step
        step = step * sizes[d]
    return tuple(strides)


def iterated(
    trace: Any, tensors: list[TracedTensor], numbers: bool = False, common: torch.dtype | None = None
) -> tuple[tuple, tuple, bool] | None:
    """(sizes, strides, dense) of the result of a pointwise operator, as TensorIterator lays it out; None: the shapes do not fit.

    `tensors` are in the order in which the operator adds its inputs; `numbers` tells that there are numbers among the operands. `common`:
    the dtype that operands are brought to first; the copy of one with holes has none.
    """
    x = tensors[0]
    shape = x.sizes
    dense = x.dense
    for t in tensors[1:]:
        dense = dense and t.dense
        if t.sizes is not shape:
            s = broadcast(trace, shape, t.sizes)
            if s is None:
                return None
            shape = s
    if dense and 0 not in [s for s in shape if type(s) is int]:
        return shape, (x.strides if shape is x.sizes else row_major(trace, shape)), True

    def alike(a: tuple, b: tuple) -> bool:
        return len(a) == len(b) and all([known_equal(trace, m, n) for m, n in zip(a, b)])

    if not (numbers and shape) and all([alike(t.sizes, shape) for t in tensors]):
        if all(map(goes_inwards, tensors)) or all(map(is_packed, tensors)):
            return shape, row_major(trace, shape), True
        if len(shape) == 4 and all([is_packed(t, True) for t in tensors]):
            return shape, channels_last_strides(shape), False
        if all([alike(t.strides, x.strides) for t in tensors]) and is_dense_in_some_order(x):
            return shape, x.strides, False
    cast = [common is not None and t.dtype is not common and bool(t.sizes) for t in tensors]
    strides = permuted_strides(trace, shape, [(t.sizes, preserved_strides(trace, t) if c else t.strides) for t, c in zip(tensors, cast)])
    return shape, strides, all(map(same, strides, row_major(trace, shape)))


def goes_inwards(x: TracedTensor) -> bool:
    """Whether each dim is known to step further than the next one: parts of row-major tensors do, with gaps and without. All ways that
    TensorIterator has of laying out a result come to row-major ones then, so that nobody need know whether there are gaps."""
    scope, sizes, strides = x.trace.scope, list(map(key, x.sizes)), list(map(key, x.strides))

    def known(compare: Any, m: Any, n: Any) -> bool:
        return bool(scope.known_true(compare(m, n)))

    if not strides or not known(ops.ge, strides[-1], 1):
        return not strides
    for d in range(len(strides) - 2, -1, -1):
        a, b = strides[d], strides[d + 1]
        if not known(ops.gt, a, b) and not known(ops.ge, ops.floordiv(a, b), 2):
            of_one = known(ops.eq, sizes[d + 1], 1) and known(ops.eq, a, b)
            if not (of_one and known(ops.ge, sizes[d], 1)):  # a dim of 1 may step as far as the one around it
                return False
    return True


def is_packed(x: TracedTensor, channels_last: bool = False) -> bool:
    """`x.is_contiguous()`, or with `memory_format=torch.channels_last` (of images and of volumes)."""
    if x.dense and not channels_last:
        return True
    n = len(x.sizes)
    order = CHANNELS_LAST_ORDER.get(n) if channels_last else tuple(range(n - 1, -1, -1))
    sizes, strides = list(map(key, x.sizes)), list(map(key, x.strides))
    return order is not None and packed(x.trace.scope, sizes, strides, order, symnode.site_hook())


def is_dense_in_some_order(x: TracedTensor) -> bool:
    if x.dense:
        return True
    sizes, strides = list(map(key, x.sizes)), list(map(key, x.strides))
    return is_non_overlapping_and_dense(x.trace.scope, sizes, strides, symnode.site_hook())


def permuted_strides(trace: Any, shape: tuple, operands: list[tuple[tuple, tuple]]) -> tuple:
    """Strides of a new tensor whose dims are ordered as those of the operands: TensorIteratorBase::reorder_dimensions."""
    n = len(shape)
    if n < 2:
        return row_major(trace, shape)
    aligned = []
    for sizes, strides in operands:
        skip = n - len(sizes)
        aligned.append(([0] * skip + list(sizes), [0] * skip + list(strides)))

    def step_of(row: tuple[list, list], d: int) -> Any:
        """An operand's stride, 0 where it is stretched. A dim that is 1 in the result, too, has its own."""
        size, stride = row[0][d], row[1][d]
        if (type(stride) is int and stride == 0) or same(size, shape[d]):
            return stride
        return 0 if known_equal(trace, size, 1) and not equal(trace, shape[d], 1) else stride

    def order(d0: int, d1: int) -> int:
        """1: d0 and d1 must be swapped; -1: they must not; 0: cannot tell."""
        for row in aligned:
            a, b = step_of(row, d0), step_of(row, d1)
            if (type(a) is int and a == 0) or (type(b) is int and b == 0):
                continue
            if inside(trace, a, b):
                return -1
            if inside(trace, b, a):
                return 1
            if less(trace, shape[d1], shape[d0]):
                return 1
        return 0

    perm = list(range(n - 1, -1, -1))
    for i in range(1, n):
        d1 = i
        for d0 in range(i - 1, -1, -1):
            c = order(perm[d0], perm[d1])
            if c > 0:
                perm[d0], perm[d1] = perm[d1], perm[d0]
                d1 = d0
            elif c < 0:
                break
    if perm == list(range(n - 1, -1, -1)):
        return row_major(trace, shape)
    found: list[Any] = [0] * n
    step: Any = 1
    for d in perm:
        found[d] = step
        step = step * shape[d]
    return tuple(found)


def preserved_strides(trace: Any, x: TracedTensor) -> tuple:
    """Strides of `empty_like(x)` and `clone(x)` with the default memory format."""
    if x.dense:
        return x.strides
    if all([trace.scope.known_true(ops.ge(key(n), 2)) for n in x.sizes]) and goes_inwards(x):
        return row_major(trace, x.sizes)  # with gaps and without; a dim of 1 without would keep its own stride
    if is_dense_in_some_order(x):
        return x.strides
    return permuted_strides(trace, x.sizes, [(x.sizes, x.strides)])


# result types ---------------------------------------------------------------------------------------------


def category(dtype: torch.dtype) -> int:
    """0 bool, 1 int, 2 float, 3 complex."""
    return 0 if dtype is torch.bool else 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1


def number_dtype(value: Any) -> torch.dtype:
    t = type(value)
    if t is bool or t is torch.SymBool:
        return torch.bool
    if t is int or t is torch.SymInt:
        return torch.int64
    if t is complex:
        return torch.complex128 if get_default_dtype() is torch.float64 else torch.complex64
    return get_default_dtype()


def result_type(*operands: Any) -> torch.dtype:
    """PyTorch's type promotion: tensors with dims first, then 0-dim tensors, then numbers."""
    dim: torch.dtype | None = None
    zero: torch.dtype | None = None
    num: torch.dtype | None = None
    for o in operands:
        if type(o) is TracedTensor:
            if o.sizes:
                dim = promote(dim, o.dtype)
            else:
                zero = promote(zero, o.dtype)
        elif o is not None:
            num = promote(num, number_dtype(o))
    return combine(dim, combine(zero, num))  # type: ignore[return-value]


def promote(a: torch.dtype | None, b: torch.dtype | None) -> torch.dtype | None:
    if a is None or a is b:
        return b
    return a if b is None else torch.promote_types(a, b)


def combine(high: torch.dtype | None, low: torch.dtype | None) -> torch.dtype | None:
    if high is None or low is None:
        return low if high is None else high
    h, w = category(high), category(low)
    if h == 3 or (h == 2 and w < 3):
        return high
    if h == 2:
        return torch.promote_types(high, torch.complex32)
    return torch.promote_types(high, low) if h == 0 or w >= 2 else high


def float_type(dtype: torch.dtype) -> torch.dtype:
    """Of the operators that turn ints into floats."""
    return get_default_dtype() if category(dtype) < 2 else dtype


def result_device(tensors: list[TracedTensor]) -> Any:
    """A 0-dim CPU tensor goes along with the others."""
    for t in tensors:
        if t.sizes:
            return t.device
    return tensors[0].device
