"""C code that calls functions for the program: `map`, `filter`, `sorted(key=…)`, `functools.reduce`, the iterators of `itertools`.

A Python function that C code calls comes back to the interpreter (the frame hook). A C function would not: `map(len, lists)` reads lists,
`sorted(objects, key=attrgetter("rank"))` attributes, that nobody has guarded. So C code is given a `Callback` in its place, whose call is
a call of the interpreter's; and what C code itself asks of items (their truth, their order, their sum) is asked by one.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import operator
import types
from collections.abc import Callable
from typing import Any

from pliant.interpret import policy
from pliant.interpret.attributes import lookup
from pliant.interpret.calls import CALLBACKS, LOOKASIDES, call, native
from pliant.interpret.capture import UNSET
from pliant.interpret.gate import SYM_TYPES, answered, through_c, to_c
from pliant.interpret.lookasides import iterable, lookaside
from pliant.interpret.slots import get_iter, get_next, iterator, truth, unpack
from pliant.interpret.state import Break, Restart, vm

FunctionType, MethodType = types.FunctionType, types.MethodType


TRUTH = "truth"


class Callback:
    """A function as C code is given it: called, it is called by the interpreter. `read`: C code looks at what it returns (`TRUTH`: it asks
    whether that is true).

    `symbolic`: it has returned symbolic numbers.
    """

    __slots__ = ("fn", "read", "symbolic")

    def __init__(self, fn: Any, read: Any = False) -> None:
        self.fn = fn
        self.read = read
        self.symbolic = False

    def __call__(self, *args: Any) -> Any:
        try:
            r = call(self.fn, args, {})
            if self.read == TRUTH:
                return truth(r)
            r = to_c(self.fn, r) if self.read else answered(vm.reader, (), r)
            self.symbolic |= self.read and type(r) in SYM_TYPES
        except (Break, Restart) as e:
            through_c(e)
            raise
        return r


CALLBACKS.add(Callback)


def callback(fn: Any) -> Any:
    """What C code is given for `fn`, whose result it hands on."""
    if type(fn) is Callback:
        return fn
    inner = fn.__func__ if type(fn) is MethodType else fn
    known = id(inner) not in vm.world.function_sources  # else it is known by its code alone, which C code may not read
    if type(inner) is FunctionType and known and not policy.stands_alone(inner) and not policy.runs_natively(inner.__code__):
        return fn
    return Callback(no_ids(fn))


def key(fn: Any) -> Any:
    """What C code is given for `fn`, whose results it compares."""
    return fn if fn is None else Callback(no_ids(fn), read=True)


def no_ids(fn: Any) -> Any:
    """C code may let go of an object as soon as it has asked for its `id()`; the next one gets its place, and here it lives on."""
    if fn is id:
        raise Break("PL0035", "id() of what C code holds, which may end before the next is made", clean=True)
    return fn


def predicate(fn: Any) -> Any:
    """What C code is given for `fn`, of whose results it asks whether they are true."""
    return fn if type(fn) is Callback else Callback(no_ids(fn), TRUTH)


# -- builtins ----------------------------------------------------------------------------------------------------
def over(fn: Any, args: tuple, kw: dict, made: Callable = callback) -> Any:
    """`map(function, *iterables)` and its like: lazily, item by item."""
    if len(args) < 2 or kw:
        return native(fn, args, kw)
    return native(fn, (made(args[0]), *[iterable(a) for a in args[1:]]), kw)


LOOKASIDES[map] = functools.partial(over, map)


def chosen(fn: Any, args: tuple, kw: dict) -> Any:
    """`filter` and its like: by a predicate, of which None stands for the items' own truth."""
    if len(args) != 2 or kw:
        return native(fn, args, kw)
    return native(fn, (predicate(bool if args[0] is None else args[0]), iterable(args[1])), {})


for _fn in (filter, itertools.filterfalse):
    LOOKASIDES[_fn] = functools.partial(chosen, _fn)


@lookaside(sorted)
def l_sorted(args: tuple, kw: dict) -> Any:
    return native(sorted, (unpack(args[0], hint=True),) if len(args) == 1 else args, kw)


def keyed(fn: Any, plain: Callable) -> Callable:
    """`max` and `min` with a key: item by item, as CPython asks for items and keys."""

    def pick(args: tuple, kw: dict) -> Any:
        if kw.get("key") is None:
            return plain(args, kw)
        return native(fn, (iterable(args[0]),) if len(args) == 1 else args, kw)

    return pick


for _fn in (builtins.max, builtins.min):  # type: ignore[assignment]
    LOOKASIDES[_fn] = keyed(_fn, LOOKASIDES[_fn])


ADD = operator.add
REDUCE = functools.reduce
ACCUMULATE = itertools.accumulate
GROUPBY = itertools.groupby
FROM_ITERABLE = itertools.chain.from_iterable
COMPRESS = itertools.compress
STARMAP = itertools.starmap


@lookaside(functools.reduce)
def l_reduce(args: tuple, kw: dict) -> Any:
    if not 2 <= len(args) <= 3 or kw:
        return native(REDUCE, args, kw)
    if lookup(type(args[1]), "__iter__") is UNSET and lookup(type(args[1]), "__getitem__") is UNSET:
        return native(REDUCE, args, kw)  # which says what is wrong
    it = iterator(args[1], "reduce() arg 2 must support iteration")
    if len(args) == 3:
        acc = args[2]
    else:
        try:
            acc = get_next(it)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    while True:
        try:
            x = get_next(it)
        except StopIteration:
            return acc
        acc = call(args[0], (acc, x), {})


# -- itertools ---------------------------------------------------------------------------------------------------
for _fn in (itertools.takewhile, itertools.dropwhile):  # type: ignore[assignment]
    LOOKASIDES[_fn] = functools.partial(over, _fn, made=predicate)


@lookaside(itertools.starmap)
def l_starmap(args: tuple, kw: dict) -> Any:
    if len(args) != 2 or kw:
        return native(STARMAP, args, kw)
    return native(STARMAP, (callback(args[0]), native(map, (Callback(tuple), iterable(args[1])), {})), {})


@lookaside(itertools.accumulate)
def l_accumulate(args: tuple, kw: dict) -> Any:
    given = dict(zip(("iterable", "func"), args, strict=False))
    if len(args) > 2 or given.keys() & kw.keys() or not kw.keys() <= {"iterable", "func", "initial"} or not (args or "iterable" in kw):
        return native(ACCUMULATE, args, kw)
    given |= kw
    fn = given.get("func")
    kw = {"initial": given["initial"]} if "initial" in given else {}
    return native(ACCUMULATE, (iterable(given["iterable"]), callback(ADD if fn is None else fn)), kw)


@lookaside(itertools.groupby)
def l_groupby(args: tuple, kw: dict) -> Any:
    given = dict(zip(("iterable", "key"), args, strict=False))
    if len(args) > 2 or given.keys() & kw.keys() or not kw.keys() <= {"iterable", "key"} or not (args or "iterable" in kw):
        return native(GROUPBY, args, kw)
    given |= kw
    fn = given.get("key")
    return native(GROUPBY, (iterable(given["iterable"]), Callback(itself if fn is None else fn, read=True)), {})


def itself(x: Any) -> Any:
    """The key of `groupby` without one."""
    return x


LOOKASIDES[itself] = lambda args, kw: args[0]


def walker(x: Any) -> Any:
    """The iterator that `chain.from_iterable` walks."""
    return iter(x)


LOOKASIDES[walker] = lambda args, kw: to_c(FROM_ITERABLE, call(iter, args, kw))


def l_chain_from_iterable(args: tuple, kw: dict) -> Any:
    """`chain.from_iterable(xs)`: what it walks is asked for its iterator by the interpreter."""
    if len(args) != 1 or kw:
        return native(FROM_ITERABLE, args, kw)
    return native(FROM_ITERABLE, (native(map, (Callback(walker), iterable(args[0])), {}),), {})


LOOKASIDES[itertools.chain, "from_iterable"] = l_chain_from_iterable


@lookaside(itertools.compress)
def l_compress(args: tuple, kw: dict) -> Any:
    if len(args) != 2 or kw:
        return native(COMPRESS, args, kw)
    return native(COMPRESS, (iterable(args[0]), native(map, (Callback(bool), iterable(args[1])), {})), {})


@lookaside(iter)
def l_iter(args: tuple, kw: dict) -> Any:
    if len(args) == 1 and not kw:
        return get_iter(args[0])
    return native(iter, (key(args[0]), args[1]) if len(args) == 2 and callable(args[0]) else args, kw)


vm.callback_key = key

