"""Operations that raise on what only the run can tell (an index out of range, a division of integers by 0), and what they did by then."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._ops import OpOverload

from pliant.graph import implemented
from pliant.graph.implemented import BOUNDS, unsure, untold
from pliant.graph.operands import number, op_inputs
from pliant.graph.operators import Column, overloads
from pliant.graph.originals import torch
from pliant.graph.schema import argument, of_operator, op_info, written
from pliant.graph.traced import TracedTensor
from pliant.symbolic import ops as numbers

CHECKS_DATA = Column("checks_data")
"""Operators that raise on bad data: eager raises even where nobody reads the result, so they are kept, in their turn among the writes."""
CHECKS_DATA.add(*overloads((
    "index", "index_select", "gather", "embedding", "embedding_renorm_", "_embedding_bag", "_embedding_bag_forward_only", "take",
    "index_put", "index_put_", "_index_put_impl_", "put", "put_", "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce",
    "scatter_reduce_", "index_add", "index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_", "index_reduce", "index_reduce_",
    "masked_scatter", "masked_scatter_", "nll_loss_forward", "nll_loss2d_forward", "multi_margin_loss", "multilabel_margin_loss_forward",
    "binary_cross_entropy", "max_unpool2d", "max_unpool3d", "_ctc_loss", "linalg_inv_ex", "linalg_cholesky_ex", "linalg_solve_ex",
    "_linalg_solve_ex", "_linalg_check_errors", "_linalg_eigh", "_linalg_svd", "linalg_eig", "linalg_lstsq", "linalg_pinv", "cholesky",
    "cholesky_inverse", "repeat_interleave", "bincount", "histc", "histogram", "one_hot", "multinomial", "normal", "poisson",
    "binomial", "_pack_padded_sequence", "segment_reduce", "_assert_async", "_functional_assert_async",
    "fake_quantize_per_channel_affine_cachemask", "_local_scalar_dense", "as_strided_copy",
)))  # fmt: skip
_aten = torch.ops.aten
CHECKS_DATA.add(_aten.bernoulli.default, _aten.bernoulli.out, _aten.bernoulli.Tensor, _aten.bernoulli.Tensor_out, _aten.bernoulli_.Tensor)
OVERWRITING = Column("overwrites")
OVERWRITING.add(*overloads(("index_put_", "_index_put_impl_", "put_", "scatter_", "index_copy_", "index_fill_")))
"""They write while they look at one index after another, and write the same if that is done again, unless they accumulate or reduce."""
DIVISIONS = frozenset(f"aten::{name}{end}" for name in ("div", "divide", "floor_divide", "remainder", "fmod", "pow") for end in ("", "_"))
"""Operators of which integers raise on a divisor of 0, or on a negative exponent."""
CHOOSING = frozenset(f"aten::{name}" for name in "max min amax amin aminmax argmax argmin median nanmedian mode".split())
"""Reductions without an identity: they choose among elements, and raise where there are none. So does a norm of infinite order."""
ITEM = torch.ops.aten._local_scalar_dense.default
"""Kept as what raises is, since others are told numbers by it; it does not raise itself."""
NORM = torch.ops.aten.linalg_vector_norm.default


@of_operator
def divides(target: Any) -> bool:
    """Does the operator raise on some integers?"""
    return target._schema.name in DIVISIONS


@of_operator
def chooses(target: Any) -> bool:
    """Is it a reduction that raises on no elements?"""
    names = [a.name for a in target._schema.arguments]
    return target is NORM or target._schema.name in CHOOSING and "other" not in names


@of_operator
def depends(target: Any) -> bool:
    """Do its operands tell whether the operator raises on bad data (`raises_here`)?"""
    return divides(target) or chooses(target) or target in REFUSES or target in BOUNDS or converts(target)


def raises_here(op: Any) -> bool:
    """Whether an operation of an operator that `depends` may raise."""
    if divides(op.target) and raises_on_integers(op) or chooses(op.target) and may_find_nothing(op):
        return True
    if converts(op.target) and may_not_fit(op):
        return True
    refuses = REFUSES.get(op.target)
    if unsure(op):
        return True
    return refuses is not None and refuses(functools.partial(told, op))


def told(op: Any, name: str, otherwise: Any = None) -> Any:
    """An argument of an operation; `otherwise` where its schema has none of this name."""
    info = op_info(op.target)
    return argument(info, op.args, op.kwargs or {}, name) if name in info.names else otherwise


def at_least(v: Any, least: Any, *, itself: bool = True) -> bool:
    """Whether a number is known to be at least, or, unless `itself`, more than another."""
    return type(v) in PLAIN and type(least) in PLAIN and (v >= least if itself else v > least)


def is_range(get: Callable[..., Any]) -> bool:
    """Whether the numbers to draw from are known to be some."""
    low, high = (get("from", get("low")), get("to", get("high")))
    return high is None or at_least(high, 0 if low is None else low, itself=False)


def is_chance(get: Callable[..., Any]) -> bool:
    """Whether the number to draw by is known to be a probability."""
    p = 0.5 if get("p") is None else get("p")
    return at_least(p, 0) and at_least(1, p)


def has_dim(get: Callable[..., Any]) -> bool:
    rank = len(get("self").sizes)
    return -rank <= get("dim") < rank


PLAIN = (int, float, bool)
REFUSES = Column("refuses")
for _names, _refuses in {
    "exponential_": lambda get: not (get("lambd") is None or at_least(get("lambd"), 0, itself=False)),
    "uniform_": lambda get: not at_least(1.0 if get("to") is None else get("to"), 0.0 if get("from") is None else get("from")),
    "random_ randint randint_like": lambda get: not is_range(get),
    "normal_ normal_functional": lambda get: not at_least(1.0 if get("std") is None else get("std"), 0),
    "clamp_ clip_": lambda get: get("min") is None and get("max") is None,
    "lcm lcm_ gcd gcd_": lambda get: get("self").dtype.is_floating_point,
    "isclose": lambda get: get("self").dtype is not get("other").dtype,
    "unique_dim": lambda get: not has_dim(get),
    "roll": lambda get: bool(get("dims")) and not get("self").sizes,
    "tril_indices triu_indices": lambda get: not (at_least(get("row"), 0) and at_least(get("col"), 0)),
    "as_strided": lambda get: any([type(n) is int and n < 0 for n in get("stride")]),
}.items():
    REFUSES.update(dict.fromkeys(overloads(_names.split()), _refuses))
for _op in (_aten.bernoulli.p, _aten.bernoulli.float_out, _aten.bernoulli_.float):
    REFUSES[_op] = lambda get: not is_chance(get)


def may_find_nothing(op: Any) -> bool:
    """Does it reduce dims that may have no places?"""
    x, dims = op.args[0], told(op, "dim")
    if op.target is NORM and told(op, "ord") not in (float("inf"), float("-inf")):
        return False
    if dims is None and op.target._schema.name.endswith("median"):
        return False  # which is NaN then
    rank = len(x.sizes)
    gone = [dims] if type(dims) is int else dims or range(rank)
    return rank > 0 and not all([has_places(x.sizes[d]) for d in gone])


@of_operator
def converts(target: Any) -> bool:
    """Does it convert a number to the dtype of its result, with a check?"""
    return target._schema.name in implemented.CHECKED


def may_not_fit(op: Any) -> bool:
    """Is there a number that only the run knows, which may be none of the result's dtype? (Others are guarded: `implemented.refuse`.)"""
    made = op.outs[0] if op.outs else None
    if type(made) is not TracedTensor:
        return False
    unknown = [v for v in (*op.args, *(op.kwargs or {}).values()) if type(v) in implemented.VARIES and not v.node.expr.backed]
    if made.dtype is torch.int64:
        return any([type(v) is torch.SymFloat for v in unknown])
    narrow = made.dtype in implemented.MOST and made.dtype not in implemented.WIDE
    return narrow and not all([v.node.scope.known_true(implemented.fit(v.node.expr, made.dtype)) for v in unknown])


def has_places(n: Any) -> bool:
    return n > 0 if type(n) is int else n.node.scope.known_true(numbers.ge(n.node.expr, 1))


def raises_on_integers(op: Any) -> bool:
    """Do integers divide by what may be 0, or have an exponent that may be negative?"""
    made = op.outs[0]
    if type(made) is not TracedTensor or made.dtype.is_floating_point or made.dtype.is_complex or len(op.args) < 2:
        return False
    second, power = op.args[1], "pow" in op.target._schema.name
    if type(second) is TracedTensor:
        return not power
    if type(second) in (int, bool):
        return second < 0 if power else not second
    e = number(second)
    return e is not None and not second.node.scope.known_true(numbers.ge(e, 0) if power else numbers.ne(e, 0))


def sized_by_data(op: Any) -> bool:
    """Whether the operation is the first that makes a tensor of a size that only the run knows, which may be less than 0."""
    if not op.outs or type(op.outs[0]) is not TracedTensor:
        return False
    made = op.outs[0]
    sizes = [n.node for n in made.sizes if type(n) is not int and not n.node.expr.backed]
    if not sizes:
        return False
    sizes = [n for n in sizes if not n.scope.known_true(numbers.ge(n.expr, 0))]
    if not sizes:
        return False
    read = op_inputs(op)
    known = {n.node.expr for t in read for n in t.sizes if type(n) is not int}
    return not any([t.storage_id == made.storage_id for t in read]) and any([n.expr not in known for n in sizes])


def overlaps(op: Any, targets: list[TracedTensor]) -> bool:
    """Does the operation read memory that it writes, by other sizes or strides? PyTorch refuses most such writes, before it writes."""
    for x in op_inputs(op) if targets else ():
        for t in targets:
            if x is not t and x.storage_id == t.storage_id and not all(map(_alike, *map(layout_of, (x, t)))):
                return True
    return False


def layout_of(x: TracedTensor) -> list[Any]:
    return [len(x.sizes), *x.sizes, *x.strides, x.offset]


def _alike(a: Any, b: Any) -> bool:
    return a == b if type(a) is type(b) is int else type(a) is type(b) and a.node.expr is b.node.expr


def may_raise(op: Any) -> bool:
    """Whether bad data makes the operation raise, or memory that it both reads and writes."""
    return raises_on_data(op) or overlaps(op, written(op))


def raises_on_data(op: Any) -> bool:
    if never_raises(op.target):
        return False
    return op.target in CHECKS_DATA and op.target is not ITEM or depends(op.target) and raises_here(op) or of_others(op.target)


@of_operator
def never_raises(target: Any) -> bool:
    """Is there no data that the operator raises on? That of most is so, and asked of every operation."""
    return (target not in CHECKS_DATA or target is ITEM) and not depends(target) and not of_others(target)


KNOWN_NAMESPACES = ("pliant", "quantized_decomposed")
"""Of libraries whose operators refuse dtypes, shapes and constants alone, which they did when they were captured."""


@of_operator
def of_others(target: Any) -> bool:
    """Is it an operator of a library or of the user's, which may raise anything, and do anything before that?"""
    return op_info(target).custom and target.namespace not in KNOWN_NAMESPACES


def cannot_undo(op: Any, memory: set[int]) -> bool:
    """Whether it could be noticed that the operation was done, although the contents of `memory`, that of others, are put back."""
    info = op_info(op.target)
    if info.custom or info.inplace_view:
        return True
    return op.grad and any([t.requires_grad and t.storage_id in memory for t in written(op)])


def leaves_a_part(ops: list[Any], n: int) -> bool:
    """Whether operation `n`, should it raise, may have written a part of what it writes, and whoever does all from the first on again
    would notice: it goes on from what it has done, or something before it reads what it overwrites."""
    op = ops[n]
    if of_others(op.target):
        return True
    memory = {t.storage_id for t in written(op)}
    if not memory:
        return False
    if not raises_on_data(op):
        return untold(op)
    if not overwrites(op) or [t.storage_id in memory for t in op_inputs(op)].count(True) > 1:
        return True
    return any([memory & reads(before) for before in ops[:n]])


def overwrites(op: Any) -> bool:
    """Whether what it writes does not depend on what was there."""
    return op.target in OVERWRITING and not (told(op, "accumulate") or told(op, "reduce"))


def reads(op: Any) -> set[int]:
    """The memory whose contents the operation may read: not that of which it makes views."""
    shared: set[int] = set()
    if isinstance(op.target, OpOverload):  # what stands for kernels makes none
        shared = {o.storage_id for o in op.outs if type(o) is TracedTensor} - {t.storage_id for t in written(op)}
    return {t.storage_id for t in op_inputs(op)} - shared
