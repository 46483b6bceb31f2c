"""Lists that a loop on data has appended to, or is about to: what stands for one, of which only the last items are known.

The items before these are a value of the trace (`graph/growing.py`). `append`, `len`, the truth, `[...]` of an item, `torch.stack`,
`torch.cat` and `torch.tensor` of the whole are operations of the trace. Whatever else reads or changes such a list breaks the graph, and
behind that it is an ordinary one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from pliant.graph import growing
from pliant.graph.dispatch import same
from pliant.graph.originals import operator, torch
from pliant.graph.symnode import to_sym
from pliant.graph.traced import TracedTensor
from pliant.interpret.calls import LOOKASIDES, OF_LISTS
from pliant.interpret.state import Break, current_site, vm, writes
from pliant.interpret.types.row import row

NUMBERS = {int: int, float: float, bool: bool, torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
DTYPES = {int: torch.int64, bool: torch.bool}
PLAIN = (int, float, bool, str, type(None))


@dataclass(frozen=True, slots=True, eq=False)
class Like:
    """What is known of all items of a list.

    `kind`: a type of number; TracedTensor, of this dtype and these sizes (None: not one size); "any" for a mixture, or "" before
    there is one.
    """

    kind: Any = ""
    dtype: Any = None
    device: Any = None
    sizes: tuple = ()

    def same_as(self, other: Like) -> bool:
        mine, theirs = self.sizes, other.sizes
        if (self.kind, self.dtype, self.device, len(mine)) != (other.kind, other.dtype, other.device, len(theirs)):
            return False
        return all([a is b or (a is not None and b is not None and same(a, b)) for a, b in zip(mine, theirs, strict=True)])

    def outside(self, outer: Callable[[Any], bool]) -> Like:
        """As it is known further out."""
        return Like(self.kind, self.dtype, self.device, tuple([n if n is not None and outer(n) else None for n in self.sizes]))

    def joined(self, v: Any, outer: Callable[[Any], bool]) -> Like:
        """With one more item. `outer` tells whether a size means the same in every round."""
        if type(v) is TracedTensor and v.dense and v.pytype is torch.Tensor:
            one = Like(TracedTensor, v.dtype, v.device, tuple([n if outer(n) else None for n in v.sizes]))
        else:
            one = Like(NUMBERS.get(type(v), "any"))
        return self.merged(one)

    def merged(self, other: Like) -> Like:
        """What is known of items of either."""
        if self.kind == "" or other.kind == "":
            return other if self.kind == "" else self
        if (self.kind, self.dtype, self.device, len(self.sizes)) != (other.kind, other.dtype, other.device, len(other.sizes)):
            return Like("any")
        sizes = [a if a is not None and b is not None and same(a, b) else None for a, b in zip(self.sizes, other.sizes, strict=True)]
        return Like(self.kind, self.dtype, self.device, tuple(sizes))


class Grown:
    """Stands for a list: the items of `token`, then those in `more`. `like` is said of the former. `copied`: another has that very list."""

    __slots__ = ("copied", "like", "more", "token")

    def __init__(self, token: TracedTensor, like: Like, more: Any = (), copied: bool = False) -> None:
        self.token = token
        self.like = like
        self.more = list(more)
        self.copied = copied

    def append(self, *items: Any) -> None:
        if len(items) != 1:
            refused(self)
        if vm.asking:
            writes()
        self.more.append(items[0])

    def extend(self, *items: Any) -> None:
        if len(items) != 1 or type(items[0]) not in (list, tuple) or id(items[0]) in vm.world.by_copy:
            refused(self)
        if vm.asking:
            writes()
        self.more += items[0]

    def copy(self) -> Grown:
        return Grown(self.token, self.like, self.more, copied=True)

    def parts(self) -> tuple:
        """As a flow knows it (`graph/growing.py`)."""
        return (self.token, *self.more)


def refused(o: Any, *_: Any, **__: Any) -> NoReturn:
    raise Break("PL0043", "a list that a loop on data has grown", clean=True)


for _name in (
    "eq ne lt le gt ge add radd mul rmul bool hash str repr format len iter getitem setitem delitem contains iadd imul reversed reduce_ex"
).split():  # C code that finds one in a container
    setattr(Grown, f"__{_name}__", refused)


def refused_by(fn: Any, o: Any) -> NoReturn:
    refused(o)


def seen_type(o: Any) -> type:
    return list


def length(o: Grown) -> Any:
    return o.token.sizes[0] + len(o.more) if o.more else o.token.sizes[0]


def truth(o: Grown) -> bool:
    return True if o.more else vm.truth(o.token.sizes[0] > 0)


def getitem(o: Grown, k: Any) -> Any:
    """An item. Where there is none the graph raises, and CPython runs the frame."""
    n = len(o.more)
    if type(k) is int and -n <= k < 0:
        return o.more[k]
    if type(k) not in (int, torch.SymInt) or n and (type(k) is not int or k >= 0):
        refused(o)
    trace, like, site = vm.trace, o.like, current_site()
    if like.kind is TracedTensor:
        return growing.from_list(trace, like.sizes, like.dtype, like.device, growing.ITEM, (o.token, k + n), site)
    if like.kind in (int, float, bool):
        e = trace.unbacked(like.kind)
        return growing.record_reader(trace, growing.NUMBER, (o.token, k + n), to_sym(trace.scope, e), [e], site)
    return refused(o)


def getattr_(o: Grown, name: str) -> Any:
    if name in METHODS:
        return getattr(o, name)
    if name == "__class__":
        return list
    return refused(o)


def added(fn: Any, a: Any, b: Any) -> Any:
    """`a + [...]`, `a += [...]`."""
    if type(a) is not Grown or type(b) is not list or id(b) in vm.world.by_copy or fn not in (operator.add, operator.iadd):
        refused(a)
    if fn is operator.add:
        return Grown(a.token, a.like, [*a.more, *b], copied=True)
    if vm.asking:
        writes()
    a.more += b
    return a


row(
    name="list that a loop has grown", stands=(Grown,), type=seen_type, getattr=getattr_, setattr=refused, delattr=refused,
    getitem=getitem, setitem=refused, delitem=refused, contains=refused, iter=refused, next=refused, length=length, truth=truth,
    index=refused, number=refused, hashed=refused, text=refused, format=refused, unary=refused, binary=added, compare=refused,
    call=refused, to_c=refused_by, to_graph=refused_by,
)  # fmt: skip
METHODS = ("append", "extend")
for _name in METHODS:
    LOOKASIDES[getattr(Grown, _name)] = functools.partial(lambda fn, args, kw: refused(args[0]) if kw else fn(*args), getattr(Grown, _name))


# -- the whole as a tensor ------------------------------------------------------------------------------------------------------------
def uniform(o: Grown) -> Like:
    like = o.like
    for v in o.more:
        like = like.joined(v, lambda n: True)
    return like


def stack(o: Grown, dim: Any = 0) -> Any:
    like = uniform(o)
    if like.kind is not TracedTensor or type(dim) is not int or not -len(like.sizes) - 1 <= dim <= len(like.sizes):
        refused(o)
    at = dim % (len(like.sizes) + 1)
    sizes = (*like.sizes[:at], length(o), *like.sizes[at:])
    return growing.from_list(vm.trace, sizes, like.dtype, like.device, growing.STACK, (o.token, tuple(o.more), dim), current_site())


def cat(o: Grown, dim: Any = 0) -> Any:
    like = uniform(o)
    n = len(like.sizes)
    if like.kind is not TracedTensor or n == 0 or type(dim) is not int or not -n <= dim < n:
        refused(o)
    sizes = [*like.sizes]
    sizes[dim % n] = None
    if None in (*sizes[: dim % n], *sizes[dim % n + 1 :]) or n == 1 and like.sizes[0] is None:  # `torch.cat` passes over what is empty
        refused(o)
    return growing.from_list(vm.trace, tuple(sizes), like.dtype, like.device, growing.CAT, (o.token, tuple(o.more), dim), current_site())


def tensor(o: Grown, *, dtype: Any = None) -> Any:
    like = uniform(o)
    if like.kind not in (int, float, bool):
        refused(o)
    made = DTYPES.get(like.kind) or torch.get_default_dtype()
    if dtype not in (None, made):
        refused(o)
    args = (o.token, tuple(o.more), made)
    return growing.from_list(vm.trace, (length(o),), made, torch.device("cpu"), growing.TENSOR, args, current_site())


WHOLE: dict[Any, Callable[..., Any]] = {torch.stack: stack, torch.cat: cat, torch.concat: cat, torch.tensor: tensor}


def of_list(fn: Any, args: tuple, kwargs: dict) -> Any:
    """A function of torch is given such a list."""
    made = WHOLE.get(fn)
    if made is None or torch._C._len_torch_function_stack() or torch.utils._device.CURRENT_DEVICE is not None:
        refused(args[0])
    if not all([type(v) in (int, torch.dtype, type(None)) for v in (*args[1:], *kwargs.values())]):
        refused(args[0])
    try:
        return made(*args, **kwargs)
    except TypeError:
        return refused(args[0])


OF_LISTS[Grown] = of_list
