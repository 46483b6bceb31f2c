"""The order in which NumPy lays out what it makes of arrays that are not row-major; where it is not known here, the graph breaks.

Ufuncs go by the steps of all operands (`in_order`), and so do most functions, each in its own way: the tables say which.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import numpy as np
from pliant.graph.originals import torch
from pliant.graph.traced import TracedTensor
from pliant.interpret.arrays.dtypes import Unsure
from pliant.interpret.arrays.proxies import TracedArray, whole_array
from pliant.interpret.calls import graph_call
from pliant.interpret.gate import index
from pliant.interpret.state import vm

ALIKE = set("zeros_like ones_like roll cumsum cumprod fft ifft rfft".split())
"""Laid out as what they are given."""
JOINS = {"concatenate": None, "concat": None, "hstack": None, "vstack": None, "column_stack": None, "stack": 0, "dstack": -1}
"""Laid out as all of what they join; and where the axis is that they add, if there is one."""
REDUCTIONS = set("sum prod mean max amax min amin any all ptp nansum count_nonzero".split())
"""Laid out as what is left of what they are given."""
ROWS = set("take ascontiguousarray outer argsort argpartition dot inner tensordot cov corrcoef".split())
"""Row-major, whatever they are given."""
AS_IT_IS = set(
    "where astype copy clip diff flip fliplr flipud sort argmax argmin tile array asarray expand_dims"
    " take_along_axis reshape ravel flatten swapaxes transpose squeeze broadcast_to repeat diagonal view rot90 moveaxis T mT"
    " real imag nan_to_num isclose fill".split()
)
"""What PyTorch makes of these lies as NumPy's, or comes of ufuncs."""
PRODUCTS = {"matmul", "__matmul__", "__rmatmul__"}
IN_PLANES = {"round", "around", *PRODUCTS}
"""So it does of two dims alone."""
ASKED = {"zeros_like": ("order", 2, "C"), "ones_like": ("order", 2, "C"), "roll": ("axis", 2, None)}
"""The argument (name, place, value) that makes these row-major, too."""
LAID_OUT = ALIKE | set(JOINS) | REDUCTIONS | ROWS


def settled(name: str, r: Any, args: tuple, kw: dict) -> Any:
    """What a function of NumPy, or a method, answers, laid out as NumPy would. Raises Unsure where that is not known."""
    if type(r) is not TracedArray or r.ndim < 2 or r.remake is not None:
        return r
    given = [x for x in args if type(x) is TracedArray]
    given += [x for a in args if type(a) in (list, tuple) for x in a if type(x) is TracedArray]
    short = name.rpartition(".")[2]
    straight = all([x.ndim < 2 or x.tensor.dense for x in given])
    if straight and (r.tensor.dense or short not in LAID_OUT) or any([x.tensor.storage_id == r.tensor.storage_id for x in given]):
        return r
    if straight or short in ASKED and argument(*ASKED[short][:2], args, kw) == ASKED[short][2]:
        made = in_rows(r.tensor)
    elif short in JOINS and type(args[0]) is TracedArray:
        if args[0].ndim > 2:
            raise Unsure("the order of memory of the rows of an array, joined")
        made = in_rows(r.tensor)
    elif short in ALIKE and given[0].ndim == r.ndim:
        made = in_order(r.tensor, [given[0].tensor])
    elif short in JOINS:
        made = in_order(r.tensor, [joined(x, r.ndim, JOINS[short], args, kw) for x in given], True)
    elif short in REDUCTIONS:
        made = in_order(r.tensor, [reduced(given[0], r.ndim, args, kw)])
    elif short in ROWS or short in PRODUCTS and r.ndim == 3:  # one axis of matrices, in rows
        made = in_rows(r.tensor)
    elif short in AS_IT_IS or short in IN_PLANES and r.ndim == 2 or short not in IN_PLANES and of_ufunc(name, short):
        return r
    else:
        raise Unsure("the order of memory of what is made of an array that is not row-major")
    return r if made is r.tensor else whole_array(made)


def of_ufunc(name: str, short: str) -> bool:
    """Whether a result is a ufunc's, or an operator's, which comes to the same, as other special methods' are."""
    return isinstance(getattr(np, short, None), np.ufunc) or short.startswith("__") or not name.startswith(("numpy.", "ndarray."))


def in_rows(x: Any) -> Any:
    """`x`, row-major: a copy, if it is not."""
    return x if x.dense else graph_call(torch.clone, (x,), {"memory_format": torch.contiguous_format})


def argument(name: str, place: int, args: tuple, kw: dict, default: Any = None) -> Any:
    return kw.get(name, args[place] if len(args) > place else default)


class Steps:
    """The sizes and strides of an operand, as the axes of the result are numbered."""

    def __init__(self, sizes: list, strides: list) -> None:
        self.sizes, self.strides, self.dense = sizes, strides, False


def joined(a: TracedArray, ndim: int, added: int | None, args: tuple, kw: dict) -> Any:
    x = a.tensor
    if len(x.sizes) == ndim or added is None:
        return x
    at = int(index(argument("axis", 1, args, kw, 0))) % ndim if added == 0 else ndim - 1
    return Steps([*x.sizes[:at], 1, *x.sizes[at:]], [*x.strides[:at], 0, *x.strides[at:]])


def reduced(a: TracedArray, ndim: int, args: tuple, kw: dict) -> Any:
    x = a.tensor
    axis = argument("axis", 1, args, kw)
    gone = {int(index(d)) % a.ndim for d in (axis if type(axis) is tuple else () if axis is None else (axis,))}
    if ndim == a.ndim:
        return Steps([1 if d in gone else n for d, n in enumerate(x.sizes)], list(x.strides))
    kept = [d for d in range(a.ndim) if d not in gone]
    if len(kept) != ndim:
        raise Unsure("what is left of an array")
    return Steps([x.sizes[d] for d in kept], [x.strides[d] for d in kept])


def in_order(r: Any, given: list[Any], joined: bool = False) -> Any:
    """A result in the order of memory that NumPy's iterators choose, or its joins; PyTorch's go by the first operand alone."""
    operands = [g for g in given if type(g) in (TracedTensor, Steps) and g.sizes]
    if len(r.sizes) < 2 or all([x.dense for x in (r, *operands)]):
        return r
    order = axes_by_stride(r, operands, joined)
    if order == axes_by_stride(r, [r], joined):
        return r
    x = in_rows(graph_call(torch.permute, (r, order), {}))
    return graph_call(torch.permute, (x, [order.index(d) for d in range(len(order))]), {})


def axes_by_stride(r: Any, operands: list[Any], joined: bool) -> list[int]:
    """The axes of `r`, the one of the largest steps first: a stable sort, in which operands that are at odds leave two axes as they are.

    NumPy's `npyiter_find_best_axis_ordering`, which begins with the innermost axis, and `PyArray_CreateMultiSortedStridePerm`, which begins
    with the outermost.
    """
    n = len(r.sizes)
    steps = [[0] * (n - len(x.sizes)) + [0 if vm.truth(k == 1) else s for k, s in zip(x.sizes, x.strides, strict=True)] for x in operands]
    found: list[int] = []
    for axis in range(n) if joined else range(n - 1, -1, -1):
        place = len(found)
        for k in range(place - 1, -1, -1):
            pairs = [(s[found[k]], s[axis]) for s in steps]
            swap = [vm.truth(own > theirs if joined else own < theirs) for theirs, own in pairs if not (zero(own) or zero(theirs))]
            if swap and not all(swap):
                break
            if swap:
                place = k
        found.insert(place, axis)
    return found if joined else found[::-1]


def zero(step: Any) -> bool:
    """Whether a dim is repeated, or of one element."""
    return type(step) is int and step == 0
