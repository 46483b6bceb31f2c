"""Subscripts of arrays, read and written, by NumPy's rules.

Basic subscripts (ints, slices, None, Ellipsis) give views. Slices of negative steps, and ints that only the run knows, have no view in
torch: such an array is derived, read off its base whenever it is used. Advanced subscripts (arrays, lists, masks) give copies; an int
beside an array is an array as well, so torch's own subscript, which selects first, would order the dims of the result otherwise.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import ORIGINAL, operator, torch
from pliant.graph.originals import numpy as np
from pliant.graph.symnode import concrete
from pliant.graph.traced import TracedTensor
from pliant.interpret.arrays.dtypes import BOOL, SCALARS, Unsure
from pliant.interpret.arrays.numpy_operators import operator_of_numpy
from pliant.interpret.arrays.operands import asarray, lent
from pliant.interpret.arrays.operators import apart, store, value_for, writable
from pliant.interpret.arrays.proxies import TracedArray, TracedScalar, derived, scalar, view_of, whole_array
from pliant.interpret.arrays.table import compute
from pliant.interpret.arrays.ufuncs import t
from pliant.interpret.gate import index
from pliant.interpret.state import vm

INTS = (int, torch.SymInt)


class Later:
    """An int that only the run knows, as a subscript: a tensor without dims."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


# -- reading a subscript --------------------------------------------------------------------------------------------------
def parts_of(k: Any) -> list[Any]:
    """The items of a subscript: ints, `Later`s, slices of ints, None, Ellipsis, and tensors of ints or bools."""
    return [part(x) for x in (k if type(k) is tuple else (k,))]


def part(x: Any) -> Any:
    c = type(x)
    if c in INTS or x is None or x is Ellipsis:
        return x
    if c is slice:
        return slice(*[None if b is None else bound(b) for b in (x.start, x.stop, x.step)])
    if c in SCALARS:
        if SCALARS[c].kind not in "iu":
            raise Unsure(f"a {c.__name__} as a subscript")
        return int(x)
    if c is TracedScalar:
        if x.dtype.kind not in "iu":
            raise Unsure(f"a scalar of {x.dtype} as a subscript")
        return x.number if x.number is not None else Later(t(ORIGINAL.to, x.tensor, torch.int64))
    if c is list:
        x = asarray(x) if x else asarray([], np.intp)
        c = TracedArray
    if c is TracedTensor:
        x, c = lent(x), TracedArray
    if c is TracedArray:
        if x.dtype.kind not in "iub":
            raise Unsure(f"an array of {x.dtype} as a subscript")
        if not x.ndim and x.dtype.kind != "b":
            return Later(t(ORIGINAL.to, x.tensor, torch.int64))
        if not x.ndim:
            raise Unsure("a condition without dims as a subscript")
        return x.tensor if x.dtype == BOOL else t(ORIGINAL.to, x.tensor, torch.int64)
    raise Unsure(f"a {c.__name__} as a subscript")


def bound(b: Any) -> Any:
    if type(b) is TracedArray or type(b) is TracedTensor:
        raise Unsure("an array as the bound of a slice")
    return index(b)


def spread(items: list[Any], ndim: int) -> list[Any]:
    """The items with Ellipsis written out, and full slices behind."""
    taken = sum([dims_of(x) for x in items])
    dots = [i for i, x in enumerate(items) if x is Ellipsis]
    if len(dots) > 1 or taken > ndim:
        raise Unsure("too many indices")
    at = dots[0] if dots else len(items)
    return [*items[:at], *[slice(None)] * (ndim - taken), *items[at + len(dots) :]]


def dims_of(x: Any) -> int:
    if x is None or x is Ellipsis:
        return 0
    return ORIGINAL.dim(x) if type(x) is TracedTensor and x.dtype is torch.bool else 1


# -- basic subscripts -----------------------------------------------------------------------------------------------------
def is_negative(step: Any) -> bool:
    return step is not None and vm.truth(step < 0)


def reversed_slice(s: slice, n: Any) -> slice:
    """For a slice of a negative step, the slice that walks the same items forwards. Python ints, or sizes that are decided upon."""
    start, stop, step = slice(*[None if b is None else concrete(b) for b in (s.start, s.stop, s.step)]).indices(concrete(n)) if not (  # type: ignore[arg-type]
        s.start is None and s.stop is None and s.step == -1) else (None, None, -1)  # fmt: skip
    if start is None:
        return slice(None)
    count = len(range(start, stop, step))  # type: ignore[arg-type]
    first = start + (count - 1) * step
    return slice(first, start + 1, -step) if count else slice(0, 0)


def basic(x: Any, items: list[Any], flips: list[int]) -> Any:
    """The view of tensor `x` by ints, slices and None; the dims of the result that are to be turned around go to `flips`."""
    dim = 0
    for item in items:
        if item is None:
            x = t(torch.unsqueeze, x, dim)
            dim += 1
        elif type(item) is slice:
            if is_negative(item.step):
                item = reversed_slice(item, x.sizes[dim])
                flips.append(dim)
            if item.start is not None or item.stop is not None or item.step is not None:
                x = t(operator.getitem, x, (*[slice(None)] * dim, item))
            dim += 1
        elif type(item) is TracedTensor:
            dim += ORIGINAL.dim(item) if item.dtype is torch.bool else 1
        elif type(item) is Later:
            dim += 1
        else:
            x = t(torch.select, x, dim, item)
    return x


def getitem(a: TracedArray, k: Any) -> Any:
    return compute("a subscript of an array", read, (a, k), {})


def read(a: TracedArray, k: Any) -> Any:
    items = spread(parts_of(k), a.ndim)
    if any([type(x) is TracedTensor for x in items]):
        return whole_array(picked(a.tensor, items))
    whole = sum([type(x) in INTS or type(x) is Later for x in items]) == len(items) and not any([x is Ellipsis for x in keys(k)])
    if any([type(x) is Later for x in items]):
        return scalar(later(a.tensor, items)) if whole else derived(a, "__getitem__", (k,), lambda: later(a.tensor, items))
    if a.remake is not None:
        if whole:
            return scalar(basic(a.tensor, items, []))
        return derived(a, "__getitem__", (k,), lambda: turned(a.tensor, items))
    flips: list[int] = []
    view = basic(a.tensor, items, flips)
    if whole:
        return scalar(t(torch.clone, view))
    if flips:
        return derived(a, "__getitem__", (k,), lambda: t(torch.flip, view, tuple(flips)))
    made = view_of(a, view, "__getitem__", k)
    if any([x is None for x in items]):
        made.how = (a, "__getitem__", (k,))  # NumPy gives a new dim a stride of 0
    return made


def keys(k: Any) -> tuple:
    return k if type(k) is tuple else (k,)


def turned(x: Any, items: list[Any]) -> Any:
    flips: list[int] = []
    x = basic(x, items, flips)
    return t(torch.flip, x, tuple(flips)) if flips else x


def later(x: Any, items: list[Any]) -> Any:
    """Of tensor `x`, with ints that only the run knows."""
    return advanced(x, items)


# -- advanced subscripts ----------------------------------------------------------------------------------------------------
def advanced(x: Any, items: list[Any]) -> Any:
    x, indices = located(x, items)
    return t(torch.ops.aten.index.Tensor, x, indices)


def picked(x: Any, items: list[Any]) -> Any:
    """What a subscript with arrays makes, laid out as NumPy does: by the arrays first, then by what is left of `x`, in its own order."""
    x, indices = located(x, items)
    widths = [ORIGINAL.dim(i) if type(i) is TracedTensor and i.dtype is torch.bool else 1 for i in indices]
    places = [range(sum(widths[:i]), sum(widths[: i + 1])) for i in range(len(widths))]
    taken = [d for i, p in zip(indices, places, strict=True) if i is not None for d in p]
    rest = [d for d in range(len(x.sizes)) if d not in taken]
    new_dims = dims_made(items)
    order = [*taken, *([d for d in rest if d not in new_dims] if x.dense else by_strides(x, [d for d in rest if d not in new_dims]))]
    order += [d for d in rest if d in new_dims]
    moved = order != list(range(len(order)))
    found = t(torch.ops.aten.index.Tensor, t(torch.permute, x, order) if moved else x, [i for i in indices if i is not None])
    if not found.dense:
        found = t(torch.clone, found, memory_format=torch.contiguous_format)
    new = len(found.sizes) - len(rest)
    together = taken == list(range(taken[0], taken[0] + len(taken)))
    at = taken[0] if together else 0
    dims = {d: new + i for i, d in enumerate(order[len(taken) :])}
    back = [*[dims[d] for d in rest[:at]], *range(new), *[dims[d] for d in rest[at:]]]
    return found if back == list(range(len(back))) else t(torch.permute, found, back)


def dims_made(items: list[Any]) -> list[int]:
    """The dims that None makes."""
    out, d = [], 0
    for item in items:
        if item is None:
            out.append(d)
        d += 1 if item is None else dims_of(item)
    return out


def by_strides(x: Any, dims: list[int]) -> list[int]:
    """Dims from the longest stride to the shortest."""
    out: list[int] = []
    for d in dims:
        at = len(out)
        while at and vm.truth(x.strides[out[at - 1]] < x.strides[d]):
            at -= 1
        out.insert(at, d)
    return out


def located(x: Any, items: list[Any]) -> tuple[Any, list[Any]]:
    """`x` after what is basic of a subscript, and for each of its dims a tensor of positions, or None. Ints are such tensors, too."""
    flips: list[int] = []
    arrays = any([type(i) is TracedTensor for i in items])
    x = basic(x, [item if type(item) not in INTS or not arrays else Later(item) for item in items], flips)
    if flips:
        x = t(torch.flip, x, tuple(flips))
    indices: list[Any] = []
    for item in items:
        if type(item) is slice or item is None:
            indices.append(None)
        elif type(item) is Later:
            indices.append(item.tensor)
        elif type(item) is TracedTensor:
            indices.append(item)
        elif arrays:
            indices.append(t(torch.full, (), item, dtype=torch.int64))
    while indices and indices[-1] is None:
        indices.pop()
    return x, indices


# -- writing --------------------------------------------------------------------------------------------------------------------
def setitem(a: TracedArray, k: Any, v: Any) -> None:
    compute("an assignment to an array", write, (a, k, v), {})


def write(a: TracedArray, k: Any, v: Any) -> None:
    x = writable(a)
    parts = parts_of(k)
    items = spread(parts, a.ndim)
    if all([type(i) is Later or type(i) in WHOLE for i in items]) and (type(v) in (list, tuple) or Ellipsis not in parts and has_dims(v)):
        raise Unsure("a sequence in the place of one number")
    value = value_for(a, lent(v) if type(v) is TracedTensor else v)
    masks = [i for i in items if type(i) is TracedTensor]
    if not masks and not any([type(i) is Later for i in items]):
        flips: list[int] = []
        view = basic(x, items, flips)
        if type(value) is TracedTensor:
            value = trimmed(apart(x, value), ORIGINAL.dim(view))
            if flips:
                value = t(torch.flip, t(ORIGINAL.expand, value, view.sizes), tuple(flips))
        store(view, value)
        return
    view, indices = located(x, items)
    if any([type(i) is slice and is_negative(i.step) for i in items]):
        raise Unsure("an assignment through a slice that is turned around")
    one = type(value) is not TracedTensor or not ORIGINAL.dim(value)
    value = value if type(value) is TracedTensor else t(torch.full, (), value, dtype=x.dtype)
    if one:  # where a position is there twice, the same is stored twice
        t(torch.ops.aten.index_put_.default, view, indices, value)
    else:
        t(PUT, view, indices, apart(x, value))


WHOLE = (int, torch.SymInt)


def has_dims(v: Any) -> bool:
    """Whether NumPy refuses to make one number of it."""
    return (type(v) is TracedArray and v.ndim > 0) or (type(v) is TracedTensor and ORIGINAL.dim(v) > 0)


def put(x: Any, indices: list[Any], value: Any) -> None:
    """NumPy's own assignment: of values for one position the last one stays."""
    x.numpy()[tuple([slice(None) if i is None else i.numpy() for i in indices])] = value.numpy()


PUT = operator_of_numpy("put_(Tensor(a!) x, Tensor?[] indices, Tensor value) -> ()", put, None)


def add_at(a: TracedArray, indices: Any, b: Any) -> None:
    """`np.add.at(a, indices, b)`: where a position is there twice, both are added."""
    x = writable(a)
    items = spread(parts_of(indices), a.ndim)
    if not any([type(i) is TracedTensor for i in items]) or a.dtype.kind not in "iuf":
        raise Unsure("a sum at one place")
    value = value_for(a, b)
    view, places = located(x, items)
    value = value if type(value) is TracedTensor else t(torch.full, (), value, dtype=x.dtype)
    t(torch.ops.aten.index_put_.default, view, places, apart(x, value), True)


def trimmed(value: Any, ndim: int) -> Any:
    """NumPy drops dims of size 1 in front of what it stores."""
    while ORIGINAL.dim(value) > ndim:
        if not (type(value.sizes[0]) is int and value.sizes[0] == 1):
            raise Unsure("could not broadcast")
        value = t(torch.squeeze, value, 0)
    return value


_ = BOOL
