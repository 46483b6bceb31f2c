"""`x[..., n, ...]` where n is a symbolic int, or a tensor that is one.

PyTorch's C++ code for indexing turns such an n into a number. A `select` along the dim that n stands for is the same and keeps it symbolic;
what is left of the index is applied to the result.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import ORIGINAL, operator, torch
from pliant.graph.traced import TracedTensor
from pliant.interpret.calls import graph_call
from pliant.interpret.gate import to_graph
from pliant.interpret.number_lists import as_index
from pliant.interpret.wrappers import is_stand

PLAIN = {int, slice, torch.SymInt, type(None), type(Ellipsis), bool}


def plain(k: Any) -> Any:
    """An index with what stands for numbers and arrays of others replaced by what torch is given for it."""
    if type(k) is tuple:
        items = [as_index(x) if type(x) is list else x if type(x) in PLAIN else number(to_graph(operator.getitem, x)) for x in k]
        return k if all([x is y for x, y in zip(items, k)]) else tuple(items)
    if type(k) is list:
        return as_index(k)
    return k if type(k) in PLAIN else number(to_graph(operator.getitem, k))


def number(x: Any) -> Any:
    """A tensor that is one integer is an index like the number in it: PyTorch's C++ code reads it, and selects."""
    if type(x) is TracedTensor and not x.sizes and x.dtype in INTEGERS and not is_stand(x):
        return graph_call(ORIGINAL.item, (x,), {}, "item")
    return x


INTEGERS = frozenset((torch.int8, torch.int16, torch.int32, torch.int64))


def is_symbolic(k: Any) -> bool:
    """Whether an index is, or holds, a symbolic int."""
    return type(k) is torch.SymInt or (type(k) is tuple and any([type(i) is torch.SymInt for i in k]))


def selected(x: Any, k: Any) -> tuple[Any, Any]:
    """`x` with its symbolic ints selected, and the rest of the index. What cannot be told apart is left as it is."""
    items = k if type(k) is tuple else (k,)
    found = places(items, ORIGINAL.dim(x))
    if found is None:
        return x, k
    last = max([i for i, _ in found if items[i] is not None])
    rest, shift = list(items), 0
    for i, dim in found:
        if items[i] is not None:
            x, shift = graph_call(torch.select, (x, dim + shift, items[i]), {}), shift - 1
            rest[i] = GONE
        elif i < last and bool not in map(type, items):  # its stride is made of the dim behind it, which may be one that is selected
            x, shift = graph_call(torch.unsqueeze, (x, dim + shift), {}), shift + 1
            rest[i] = WHOLE
    left = tuple([item for item in rest if item is not GONE])
    return x, left if any([item is not Ellipsis and item is not WHOLE for item in left]) else Ellipsis


GONE, WHOLE = object(), slice(None)


def places(items: tuple, ndim: int) -> list[tuple[int, int]] | None:
    """For each symbolic int its position in the index and the dim of the tensor that it stands for; for None, that of the dim behind it."""
    taken = [consumes(item) for item in items]
    if None in taken or sum([item is Ellipsis for item in items]) > 1:
        return None
    out, dim = [], 0
    for i, item in enumerate(items):
        if item is Ellipsis:
            dim = ndim - sum(taken[i + 1 :])  # type: ignore[arg-type]
        elif type(item) is torch.SymInt:
            if not 0 <= dim < ndim:
                return None  # too many indices: PyTorch says so
            out.append((i, dim))
        elif item is None:
            out.append((i, dim))
        dim += taken[i]  # type: ignore[operator]
    return out


def consumes(item: Any) -> int | None:
    """How many dims of the tensor an index stands for; None if that is not plain."""
    if item is None or item is Ellipsis or type(item) is bool:
        return 0
    if type(item) in (int, slice, torch.SymInt):
        return 1
    if isinstance(item, torch.Tensor):
        return ORIGINAL.dim(item) if item.dtype in (torch.bool, torch.uint8) else 1
    return None  # a list may be a mask, of one dim or of several
