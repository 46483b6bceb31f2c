"""Lists and tuples of numbers from data: their order, where a number is in them, and what is at a place that only the run knows.

`sorted(scores)`, `scores.index(best)`, `max(range(n), key=scores.__getitem__)` compare what is known only at run time. How long such a list
is, is known: Python's own function is called by the graph (`python_numbers.py`) and gives places, or the numbers in their order. An item at
such a place, or under such a key of a dict, is a selection among all items, where these are numbers of one type.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Callable
from typing import Any

from pliant.graph.originals import math, operator, torch
from pliant.graph.symnode import expr_of, number, to_sym
from pliant.interpret import shadows
from pliant.interpret.calls import LOOKASIDES, METHOD_LOOKASIDES, apply_kind, call, graph_call, native
from pliant.interpret.capture import UNSET
from pliant.interpret.comparisons import of_data
from pliant.interpret.late_items import item_of, under_key
from pliant.interpret.lookasides import numbers_of
from pliant.interpret.policy import method_policy
from pliant.interpret.python_numbers import KINDS, kind_of, may_be_called, tensor_of
from pliant.interpret.python_numbers import operator as number_operator
from pliant.interpret.slots import compare, truth, unpack
from pliant.interpret.state import Break, vm, writes
from pliant.symbolic import ops

FEW = 12
MOST = 256
"""Items of a list that the graph puts in order."""


ORDER = number_operator(
    "number_order(Tensor keys, bool reverse) -> Tensor",
    lambda keys, reverse: sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse), torch.int64, many=True,
)  # fmt: skip
FIRST = number_operator(
    "number_farthest(Tensor keys, bool largest) -> Tensor",
    lambda keys, largest: (max if largest else min)(range(len(keys)), key=keys.__getitem__), torch.int64,
)  # fmt: skip
PLACE = number_operator("number_place(Tensor x, Tensor v) -> Tensor", lambda x, v: x.index(v), torch.int64, raises=True)


KEY = number_operator(
    "number_key(Tensor keys, Tensor k) -> Tensor", lambda keys, k: {key: i for i, key in enumerate(keys)}[k], torch.int64, raises=True,
)  # fmt: skip


# -- order --------------------------------------------------------------------------------------------------------------
def in_order(items: list[Any], key: Any, reverse: Any) -> Any:
    """`sorted(items, key=key, reverse=reverse)`, or UNSET where it is something else, and no key was asked for."""
    if not 1 < len(items) <= MOST or type(reverse) not in (bool, int) or not may_be_called():
        return UNSET
    if key is None:
        kind = kind_of(items) if any(map(of_data, items)) else None
        if kind is None:
            return UNSET
        made = tensor_of(items, kind)
        return numbers_of(graph_call(operator.getitem, (made, graph_call(ORDER, (made, bool(reverse)), {})), {}))
    if not may_be_asked(key, items):
        return UNSET
    keys = [call(key, (x,), {}) for x in items]
    kind = kind_of(keys) if any(map(of_data, keys)) else None
    if kind is None:  # all keys have been asked for
        found = native(sorted, (list(range(len(items))),), {"key": keys.__getitem__, "reverse": reverse})
        return [items[i] for i in found]
    order = graph_call(ORDER, (tensor_of(keys, kind), bool(reverse)), {})
    kind = kind_of(items)
    if kind is not None:
        return numbers_of(graph_call(operator.getitem, (tensor_of(items, kind), order), {}))
    return [at(items, i) for i in numbers_of(order)]


def may_be_asked(key: Any, items: list[Any]) -> bool:
    """Whether the keys of these items may come from data, and all of them may be asked for at once: it is a function of the program, of
    plain items, or the items of a list with numbers from data."""
    owner = getattr(key, "__self__", None) if type(key) is type(len) else None
    if type(owner) is list and key.__name__ == "__getitem__":
        return kind_of(items) is int and any(map(of_data, owner))
    return type(key) is FunctionType and (kind_of(items) is not None or all([type(x) is str for x in items]))


FunctionType = type(lambda: None)
SORTED = LOOKASIDES[sorted]


def l_sorted(args: tuple, kw: dict) -> Any:
    if len(args) == 1 and kw.keys() <= {"key", "reverse"}:
        items = unpack(args[0], hint=True)
        found = in_order(items, kw.get("key"), kw.get("reverse", False))
        return found if found is not UNSET else native(sorted, (items,), kw)
    return SORTED(args, kw)


def sort(owner: Any, args: tuple, kw: dict) -> Any:
    """`list.sort` of a list that is made here."""
    if not args and kw.keys() <= {"key", "reverse"} and kw.get("key") is None:
        found = in_order(list(owner), None, kw.get("reverse", False))
        if found is not UNSET:
            writes(owner)
            owner[:] = found
            return None
    return as_ever(owner, "sort", args, kw)


def extremum(fn: Any) -> Callable:
    """`max` and `min` with a key."""
    before = LOOKASIDES[fn]
    beyond = operator.gt if fn is max else operator.lt

    def pick(args: tuple, kw: dict) -> Any:
        items = args[0] if len(args) == 1 else args
        key = kw.get("key")
        if kw.keys() != {"key"} or type(items) not in (list, tuple, range, str) or not 1 < len(items) <= MOST or not may_be_called():
            return before(args, kw)
        items = list(unpack(items))
        if not may_be_asked(key, items):
            return before((items,), kw)
        keys = []
        for x in items:
            keys.append(call(key, (x,), {}))
            if type(keys[-1]) not in KINDS:  # to compare numbers raises nothing, and nobody hears of it
                break
        kind = kind_of(keys) if len(keys) == len(items) and any(map(of_data, keys)) else None
        if kind is not None:
            return at(items, numbers_of(graph_call(FIRST, (tensor_of(keys, kind), fn is max), {})))
        if len(keys) == len(items) <= FEW and {KINDS.get(type(k)) for k in keys} == {int} and any(map(of_data, keys)):
            return at(items, first_of(keys, fn is max))  # of more than 64 bits, perhaps
        best = 0
        for i, x in enumerate(items):
            if i == len(keys):
                keys.append(call(key, (x,), {}))
            if i and truth(compare(beyond, keys[i], keys[best])):
                best = i
        return items[best]

    return pick


def first_of(keys: list[Any], largest: bool) -> Any:
    """Where the first of the largest or smallest integers is, as a relation."""
    exprs = [expr_of(k, vm.scope) for k in keys]
    place, best = vm.scope.ctx.lift(0), exprs[0]
    for i, e in enumerate(exprs[1:], 1):
        place = ops.where(ops.gt(e, best) if largest else ops.lt(e, best), i, place)
        best = (ops.max_ if largest else ops.min_)(best, e)
    return to_sym(vm.scope, place)


def at(items: list[Any], place: Any) -> Any:
    """The item that is at this place from data."""
    if type(place) is int:
        return items[place]
    found = item_of(items, place, there=True)
    if found is None:
        raise Break("PL0002", "which of several objects it is, only the run knows", clean=True)
    return found


# -- where a number is ----------------------------------------------------------------------------------------------------
def index(owner: Any, args: tuple, kw: dict) -> Any:
    """`xs.index(v)`: where the first is that is `v`, or equals it."""
    if len(args) == 1 and not kw and made_here(owner) and may_be_called() and any(map(of_data, (*owner, *args))):
        values, v = list(owner), args[0]
        kind = kind_of((*values, v))
        if kind is int or kind is float and not any([of_one(x, v) for x in values]):
            return numbers_of(graph_call(PLACE, (tensor_of(values, kind), tensor_of(v, kind)), {}))
        if kind is float and is_extremum(values, v):  # that is NaN where the first is, and then it is the first
            place: Any = len(values) - 1
            for i in reversed(range(1, len(values) - 1)):
                place = chosen(values[i] == v, i, place)
            return chosen(operator.or_(values[0] == v, values[0] != values[0]), 0, place)
    return as_ever(owner, "index", args, kw)


def made_here(owner: Any) -> bool:
    return 0 < len(owner) <= MOST and id(owner) not in vm.world.outside


def is_extremum(values: list[Any], v: Any) -> bool:
    """Whether `v` is what `max` or `min` gives for these floats."""
    e, exprs = expr_of(v, vm.scope), [expr_of(x, vm.scope) for x in values]
    if len(exprs) == 2:
        a, b = exprs
        if e is ops.where(ops.gt(b, a), b, a) or e is ops.where(ops.lt(b, a), b, a):
            return True
    return any([functools.reduce(ops.DOORS[name], exprs) is e for name in ("fmin", "fmax")])


def of_one(x: Any, v: Any) -> bool:
    """Whether two floats may be one object, which is found even if it is NaN."""
    a, b = expr_of(x, vm.scope), expr_of(v, vm.scope)
    return a is b or a.const is None and b.const is None and not {*a.symbols()}.isdisjoint(b.symbols()) or a.const != a.const


def count(owner: Any, args: tuple, kw: dict) -> Any:
    """`xs.count(v)`: how many are `v`, or equal it."""
    if len(args) == 1 and not kw and made_here(owner) and any(map(of_data, (*owner, *args))):
        values, v = [whole(x) for x in owner], whole(args[0])
        kind = kind_of((*values, v))
        if kind is int or kind is float and not any([of_one(x, v) for x in values]):
            exprs = [ops.to_int(ops.eq(expr_of(x, vm.scope), expr_of(v, vm.scope))) for x in values]
            return to_sym(vm.scope, ops.sum_([vm.scope.ctx.lift(e) for e in exprs]))
    return as_ever(owner, "count", args, kw)


def place_of_key(keys: list[int], k: Any) -> Any:
    """Which of these keys it is; the graph raises what a dict raises."""
    return numbers_of(graph_call(KEY, (tensor_of(keys, int), tensor_of(k, int)), {})) if may_be_called() else None


def bisected(fn: Any, left: bool) -> Callable:
    """`bisect.bisect(xs, v)` of numbers that are known, in their order, and one from data: how many come before it."""

    def look(args: tuple, kw: dict) -> Any:
        if not kw and len(args) == 2 and type(args[0]) is list and of_data(args[1]) and type(args[1]) in KINDS and len(args[0]) <= MOST:
            shadows.read_all(vm.world, args[0])
            if all([type(x) in (int, float) for x in args[0]]) and all([a <= b for a, b in itertools.pairwise([*args[0], math.inf])]):
                v = expr_of(args[1], vm.scope)
                before = [ops.lt(x, v) if left else ops.not_(ops.lt(v, x)) for x in args[0]]
                return to_sym(vm.scope, ops.sum_([vm.scope.ctx.lift(0), *[ops.to_int(c) for c in before]]))
        return native(fn, args, kw)

    return look


def get(owner: Any, args: tuple) -> Any:
    """`d.get(k, default)` of a number from data, or UNSET."""
    if len(args) == 2 and of_data(args[0]):
        found = under_key(vm.world, vm.world.by_copy.get(id(owner)), owner, *args)
        if found is not None:
            return found
    return UNSET


def got(owner: Any, args: tuple, kw: dict) -> Any:
    found = get(owner, args) if not kw and made_here(owner) else UNSET
    return as_ever(owner, "get", args, kw) if found is UNSET else found


def whole(v: Any) -> Any:
    """A truth as the number that it is."""
    if type(v) is bool:
        return int(v)
    return to_sym(vm.scope, number(v.node.expr)) if type(v) is torch.SymBool else v


def chosen(c: Any, yes: Any, no: Any) -> Any:
    if type(c) is bool:
        return yes if c else no
    return to_sym(vm.scope, ops.where(*[expr_of(v, vm.scope) for v in (c, yes, no)]))


def as_ever(owner: Any, name: str, args: tuple, kw: dict) -> Any:
    return apply_kind(method_policy(type(owner), name, outside=id(owner) in vm.world.outside), getattr(owner, name), args, kw)


LOOKASIDES[bisect.bisect_left] = bisected(bisect.bisect_left, True)
LOOKASIDES[bisect.bisect_right] = bisected(bisect.bisect_right, False)
vm.place_of_key = place_of_key
LOOKASIDES[sorted] = l_sorted
for _fn in (max, min):
    LOOKASIDES[_fn] = extremum(_fn)
METHOD_LOOKASIDES[list, "sort"] = sort
METHOD_LOOKASIDES[dict, "get"] = got
vm.got_of_data = get
for _t in (list, tuple):
    METHOD_LOOKASIDES[_t, "index"] = index
    METHOD_LOOKASIDES[_t, "count"] = count
