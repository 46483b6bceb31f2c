"""Lists whose length is a size of the arguments, under export: what stands for `list(range(n))` and `list(t)`.

An export pins no size, so such a list has no items yet. It is a sequence of *pieces*: items that are known, numbers of a range, rows of a
tensor. `len`, the truth, an item, slices, `+`, `torch.cat`, `torch.stack`, `torch.tensor` and loops that the run counts work on pieces.
For all else (a write, a comparison, one that is given back) the capture starts again and makes an ordinary list there, of a pinned length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from pliant.bytecode import kinds as K
from pliant.graph.originals import ORIGINAL, operator, torch
from pliant.graph.traced import TracedTensor
from pliant.interpret import globalstate
from pliant.interpret.calls import OF_LISTS, graph_call
from pliant.interpret.data_ranges import DataIterator, DataRange
from pliant.interpret.gate import STORES, name_of
from pliant.interpret.state import LEAVE, Restart, counts_rounds, vm
from pliant.interpret.types.row import row
from pliant.interpret.walks import RESTART, ceil_of, counted, list_key
from pliant.interpret.wrappers import is_stand

SAME_LAYOUT = 3
"""Rows of more dims may be in channels-last order, and what `torch.cat` makes of them, too."""


@dataclass(slots=True)
class Numbers:
    """`n` numbers from `start`, `step` apart."""

    start: Any
    step: int
    n: Any

    def item(self, k: Any) -> Any:
        return self.start + k * self.step

    def part(self, first: Any, n: Any, step: int) -> Numbers:
        return Numbers(self.item(first), self.step * step, n)


@dataclass(slots=True)
class Rows:
    """The rows of a tensor."""

    of: TracedTensor
    n: Any

    def item(self, k: Any) -> Any:
        x = graph_call(ORIGINAL.select, (self.of, 0, k), {}, "select")
        vm.trace.flow_results.add(x.vid)  # each time another object: nobody may ask which it is
        return x

    def part(self, first: Any, n: Any, step: int) -> Rows:
        start = torch.sym_min(self.n, first)
        part = graph_call(ORIGINAL.__getitem__, (self.of, slice(start, start + n * step, step)), {}, "__getitem__")
        return Rows(part, part.sizes[0])


class LateList:
    """Stands for a list. `pieces`: lists of items, `Numbers` and `Rows`. `made`: where it, and those it is of, were made."""

    __slots__ = ("made", "pieces")

    def __init__(self, pieces: list[Any], made: dict[tuple, Any]) -> None:
        self.pieces = pieces
        self.made = made


def made_of(v: Any) -> LateList | None:
    """`list(v)`, which is just called: what stands for the list, or None for one that is made as it is."""
    f = vm.frame
    if f is None or f.decoded.kinds[f.pc - 1] is not K.CALL or not counts_rounds() or vm.asking or globalstate.user_modes():
        return None
    key = list_key(f, f.pc - 1)
    if vm.loops.get(key) is LEAVE:
        return None
    if type(v) is DataRange and v.of is None:
        piece: Any = Numbers(v.start, v.step, ceil_of(v.start, v.stop, v.step))
    elif type(v) is TracedTensor and v.pytype is torch.Tensor and v.sizes and symbolic(v.sizes[0]) and not is_stand(v):
        piece = Rows(graph_call(ORIGINAL.view_as, (v, v), {}, "view_as"), v.sizes[0])  # whose sizes nobody changes
    else:
        return None
    vm.history.counted = True
    return LateList([piece], {key: f.code})


def symbolic(n: Any) -> bool:
    """Whether a size is known at the start of the call, and not before."""
    return type(n) is torch.SymInt and n.node.expr.backed and vm.scope.simplify(n.node.expr).const is None


def force(o: LateList, *_: Any, **__: Any) -> NoReturn:
    """The capture starts again, with ordinary lists in the places where this one comes from."""
    for key, code in o.made.items():
        vm.loops[key] = LEAVE
        vm.loop_codes.append(code)
    raise Restart(RESTART, len(vm.loop_codes), "PL0002", "a list whose length is a size")


def check_late_lists(objects: Iterable[tuple[Any, list]]) -> None:
    """At the end of a capture: a list in what is given back or written, each object with what is in it, may be read by somebody."""
    for _, inside in objects:
        for o in inside:
            if type(o) is LateList:
                force(o)


for _name in (
    "eq ne lt le gt ge add radd mul rmul bool hash str repr format len iter getitem setitem delitem contains iadd imul reversed reduce_ex"
).split():  # C code that finds one in a container
    setattr(LateList, f"__{_name}__", force)


def at_least(n: Any, k: Any) -> bool:
    return bool(vm.truth(n >= k))


def count(piece: Any) -> Any:
    return len(piece) if type(piece) is list else piece.n


def length(o: LateList) -> Any:
    return sum(map(count, o.pieces))


def truth(o: LateList) -> bool:
    return any([type(p) is list and p for p in o.pieces]) or at_least(length(o), 1)


# -- items and slices -----------------------------------------------------------------------------------------------------------------
def getitem(o: LateList, k: Any) -> Any:
    if type(k) is slice:
        return sliced(o, k)
    if type(k) is not int:
        return force(o)
    at = k if k >= 0 else -k - 1
    for p in o.pieces if k >= 0 else reversed(o.pieces):
        n = count(p)
        if at_least(n, at + 1):
            where = at if k >= 0 else n - 1 - at
            return p[where] if type(p) is list else p.item(where)
        if type(n) is not int:  # how many are in there would have to be known
            if p is not (o.pieces[-1] if k >= 0 else o.pieces[0]):
                force(o)
            break
        at -= n
    raise IndexError("list index out of range")


def sliced(o: LateList, k: slice) -> LateList:
    start, stop, step = k.start, k.stop, k.step
    if not all([v is None or type(v) is int for v in (start, stop, step)]) or step is not None and step < 1:
        force(o)
    if (start or 0) < 0 or stop is not None and stop >= 0 and start:
        force(o)
    pieces = without(o, list(o.pieces), start or 0, False)
    if stop is not None and stop < 0:
        pieces = without(o, pieces, -stop, True)
    elif stop is not None:
        pieces = first(o, pieces, stop)
    return LateList(every(o, pieces, step or 1), o.made)


def without(o: LateList, pieces: list[Any], k: int, end: bool) -> list[Any]:
    """The pieces without their first, or last, `k` items."""
    while k and pieces:
        p = pieces.pop(-1 if end else 0)
        n = count(p)
        if type(p) is list:
            rest: Any = p[: max(n - k, 0)] if end else p[k:]
            k = max(k - n, 0)
        else:
            if pieces and not at_least(n, k):
                force(o)  # it depends how many of the others are left
            left = n - k if pieces else torch.sym_max(n - k, 0)
            rest, k = p.part(0 if end else k, left, 1), 0
        if type(rest) is not list or rest:
            pieces.insert(len(pieces) if end else 0, rest)
    return pieces


def first(o: LateList, pieces: list[Any], k: int) -> list[Any]:
    """The first `k` items."""
    found: list[Any] = []
    for p in pieces:
        if type(p) is list:
            found.append(p[:k])
            k -= min(k, len(p))
        elif p is pieces[-1] or at_least(p.n, k):
            found.append(p.part(0, torch.sym_min(p.n, k), 1))
            break
        else:
            force(o)
        if not k:
            break
    return found


def every(o: LateList, pieces: list[Any], step: int) -> list[Any]:
    """Each `step`-th item."""
    if step == 1:
        return pieces
    found: list[Any] = []
    at = 0  # the first one that is wanted of the next piece
    for p in pieces:
        if type(p) is list:
            found.append(p[at::step])
            at = (at - len(p)) % step
        elif p is pieces[-1]:
            left = torch.sym_max(p.n - at, 0)
            found.append(p.part(at, (left + step - 1) // step, step))
        else:
            force(o)  # where the next one begins depends on how many there are
    return found


def added(fn: Any, a: Any, b: Any) -> Any:
    """`a + b`."""
    late = a if type(a) is LateList else b
    if fn is not operator.add or {type(a), type(b)} - {LateList, list} or any([id(v) in vm.world.by_copy for v in (a, b)]):
        force(late)
    pieces = [p for v in (a, b) for p in (v.pieces if type(v) is LateList else [list(v)]) if type(p) is not list or p]
    return LateList(pieces, {k: c for v in (a, b) if type(v) is LateList for k, c in v.made.items()})


def iterate(o: LateList) -> Any:
    """What a loop walks that may be one operation."""
    f = vm.frame
    if len(o.pieces) == 1 and type(o.pieces[0]) is not list and f.decoded.kinds[f.pc - 1] is K.GET_ITER and counted(f, f.pc):
        p = o.pieces[0]
        if type(p) is Rows:
            return DataIterator(DataRange(0, p.n, 1, p.of))
        return DataIterator(DataRange(p.start, p.item(p.n), p.step))
    return force(o)


# -- the whole as a tensor ------------------------------------------------------------------------------------------------------------
def rows_of(o: LateList) -> list[Any]:
    """Tensors and `Rows`, at least one row in all. An ordinary list for what may be empty."""
    found = [x for p in o.pieces for x in (p if type(p) is list else [p])]
    for x in found:
        if type(x) not in (Rows, TracedTensor) or type(x) is Rows and len(x.of.sizes) > SAME_LAYOUT + 1:
            force(o)
    if not any([type(x) is TracedTensor for x in found]) and not at_least(length(o), 1):
        force(o)
    return found


def cat(o: LateList, dim: Any = 0) -> Any:
    parts = []
    for x in rows_of(o):
        if type(x) is Rows:
            n = len(x.of.sizes) - 1
            if type(dim) is not int or not -n <= dim < n:
                force(o)
            moved = graph_call(ORIGINAL.movedim, (x.of, 0, dim % n), {}, "movedim")
            x = graph_call(ORIGINAL.flatten, (moved, dim % n, dim % n + 1), {}, "flatten")
        parts.append(x)
    return graph_call(torch.cat, (parts, dim), {})


def stack(o: LateList, dim: Any = 0) -> Any:
    parts = []
    for x in rows_of(o):
        n = len(x.of.sizes) if type(x) is Rows else len(x.sizes) + 1
        if type(dim) is not int or not -n <= dim < n:
            force(o)
        if type(x) is Rows:
            parts.append(graph_call(ORIGINAL.movedim, (x.of, 0, dim % n), {}, "movedim"))
        else:
            parts.append(graph_call(ORIGINAL.unsqueeze, (x, dim), {}, "unsqueeze"))
    return graph_call(torch.cat, (parts, dim), {})


def tensor(o: LateList, *, dtype: Any = None) -> Any:
    """Of numbers."""
    parts = []
    for p in o.pieces:
        if type(p) is Rows or type(p) is list and not all([type(x) is int for x in p]):
            force(o)
        if type(p) is Numbers:
            made = graph_call(torch.arange, (p.n,), {"dtype": torch.int64})
            parts.append(made * p.step + p.start)
        elif p:
            parts.append(graph_call(torch.tensor, (p,), {"dtype": torch.int64}))
    if dtype is not None and (type(dtype) is not torch.dtype or dtype is torch.bool) or dtype is None and not at_least(length(o), 1):
        force(o)  # what is empty is of another type
    whole = parts[0] if len(parts) == 1 else graph_call(torch.cat, (parts,), {})
    return whole if dtype in (None, torch.int64) else graph_call(ORIGINAL.to, (whole, dtype), {}, "to")


WHOLE: dict[Any, Callable[..., Any]] = {
    torch.stack: stack, torch.cat: cat, torch.concat: cat, torch.tensor: tensor, torch.as_tensor: tensor,
}  # fmt: skip


def of_list(fn: Any, args: tuple, kwargs: dict) -> Any:
    """A function of torch is given such a list."""
    o, *others = args
    if fn not in WHOLE or torch._C._len_torch_function_stack() or torch.utils._device.CURRENT_DEVICE is not None:
        force(o)
    if not all([type(v) in (int, torch.dtype, type(None)) for v in (*others, *kwargs.values())]):
        force(o)
    try:
        return WHOLE[fn](o, *others, **kwargs)
    except TypeError:
        return force(o)


OF_LISTS[LateList] = of_list


def to_c(fn: Any, o: LateList) -> Any:
    """C code may keep one. What reads it later starts the capture again."""
    return o if name_of(fn) in STORES else force(o)


def read(o: LateList, name: str) -> Any:
    return list if name == "__class__" else force(o)


row(
    name="list whose length is a size", stands=(LateList,), type=lambda o: list, getattr=read, setattr=force, delattr=force,
    getitem=getitem, setitem=force, delitem=force, contains=force, iter=iterate, next=force, length=length, truth=truth, index=force,
    number=force, hashed=force, text=force, format=force, unary=lambda fn, o: force(o),
    binary=added, compare=lambda fn, a, b: force(a if type(a) is LateList else b), call=force, to_c=to_c,
    to_graph=lambda fn, o: force(o),
)  # fmt: skip
