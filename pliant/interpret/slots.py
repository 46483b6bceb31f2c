"""The slot table: truth, iteration, items, membership, length, comparison and arithmetic, over proxies."""

from __future__ import annotations

import array
import collections
import functools
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from pliant.graph.originals import math, operator, torch
from pliant.graph.symclasses import as_int
from pliant.graph.symnode import concrete as specialize
from pliant.graph.symnode import expr_of
from pliant.graph.traced import TracedTensor
from pliant.interpret import late_keys, powers, shadows
from pliant.interpret.attributes import lookup
from pliant.interpret.calls import METHOD_LOOKASIDES, call, graph_call, interp, native
from pliant.interpret.capture import UNSET
from pliant.interpret.comparisons import alike, among, among_keys, in_order, of_data
from pliant.interpret.ended_iterators import ENDING, end_of
from pliant.interpret.gate import SYM_TYPES, captured, index, no_operator, opaque, ordered, position, to_c, told_by_itself
from pliant.interpret.generators import Generator
from pliant.interpret.immutable import HEAPTYPE
from pliant.interpret.iteration import ask_length, drain
from pliant.interpret.keys import HASHED, compares, settle
from pliant.interpret.late_items import item_of, item_outside, under_key
from pliant.interpret.late_text import LateText, chosen, percent, varies
from pliant.interpret.same_objects import METHODS, identical, method_key, note_equality, of_outside, outside_method
from pliant.interpret.shadows import WRITTEN
from pliant.interpret.slips import slipped
from pliant.interpret.special_methods import bound_special
from pliant.interpret.state import Break, carried, current_site, vm, writes
from pliant.interpret.type_names import type_name
from pliant.interpret.types.row import ROWS, TypeRow

FunctionType = types.FunctionType
# CPython's own operators on these never run Python code nor read outside state
PLAIN_OPERANDS = {int, float, bool, str, bytes, complex, torch.SymInt, torch.SymFloat, torch.SymBool, type(None), range, slice}
QUIET_ITERATORS = {  # type: ignore[var-annotated]
    type(iter(o)) for o in ([], (), "", "\u00e9", b"", range(0), {}, {}.values(), {}.items(), set())
} | {type(reversed([])), type(reversed({}))}  # fmt: skip
"""Iterators of C that hand out what is there and call nobody."""


BY_IDENTITY = (object.__hash__, torch.Tensor.__hash__)


def hashable(k: Any) -> Any:
    """A dict key or set member: a symbolic number is specialized here, as its hash is its value."""
    t = type(k)
    if t in HASHED:
        return k
    if issubclass(t, tuple):  # `isinstance` would ask an object for its class
        for x in k:
            if type(x) not in HASHED:
                items = [hashable(x) for x in k]
                return k if all([x is y for x, y in zip(items, k)]) else t(items) if t in TUPLES else tuple.__new__(t, items)
        return k
    if t in METHODS:  # hashed and compared as what it is made of
        method_key(k)
        if t is types.MethodType:
            hashable(k.__func__)
    row = ROWS.get(t)
    if row is not None:
        return row.hashed(k) if row.hashed is not None else k
    if id(k) in vm.world.outside or is_key_itself(k):
        vm.world.known_by_identity(k)
    if issubclass(t, weakref.ref) and not by_identity(k()):  # hashed and compared as what it refers to is
        raise Break("PL0007", "a weak reference as a key, to what says itself what equals it", clean=True)
    if not hashed_by_identity(t) and opaque(k) or asks_others(t):
        raise Break("PL0007", f"a {t.__module__}.{t.__qualname__} as a key", clean=True)
    note_equality(k)
    return k


def asks_others(t: type) -> bool:
    """Whether C code that hashes or compares these calls an object of the program's: a mock, a partial. It may count its calls."""
    found = [m for m in (lookup(t, "__hash__"), lookup(t, "__eq__")) if m is not None and type(m) is not FunctionType]
    return any([own_way(m) for m in found])


def hashed_by_identity(t: type) -> bool:
    m = lookup(t, "__hash__")  # what a class has there says itself what it is equal to
    return any([m is fn for fn in BY_IDENTITY])


def by_identity(o: Any) -> bool:
    """Whether an object equals itself alone, and no code of the program is asked."""
    t = type(o)
    return o is None or t is TracedTensor or (hashed_by_identity(t) and type(lookup(t, "__eq__")) is not FunctionType)


def is_key_itself(k: Any) -> bool:
    """Whether `k` stands for an object from outside that is hashed by identity."""
    return id(k) in vm.world.standing and hashed_by_identity(type(k))


TUPLES = (tuple, torch.Size)
GETITEM, CONTAINS = operator.getitem, operator.contains


def outside_key(k: Any, d: Any) -> Any:
    """A key to look up in an outside dict."""
    row = ROWS.get(type(k))
    if row is not None and row.outside_key is not None:
        return row.outside_key(k, d)
    if issubclass(type(k), (tuple, frozenset)):
        stood = vm.stood_for_as_key(k)
        return stood if stood is not k and shadows.has(vm.world.by_copy[id(d)].orig, stood) else hashable(k)
    if type(k) is weakref.ref and type(k()) is TracedTensor:
        raise Break("PL0007", "a weak reference to a tensor as the key of a dict", clean=True)
    if is_key_itself(k):
        _, real, source = vm.world.standing[id(k)]
        vm.world.is_key(real, source, d if lookup(type(real), "__hash__") is object.__hash__ else None)
        return real if shadows.has(vm.world.by_copy[id(d)].orig, real) else k
    if id(k) in vm.world.outside and lookup(type(k), "__hash__") is object.__hash__:
        vm.world.is_key(k, vm.world.sources[id(k)], d)
    elif id(k) not in vm.world.by_copy:
        vm.world.pin(k)  # another object may be another key
    if type(k) in METHODS and method_key(k):
        k = outside_method(k)
    return hashable(k)


def holds_key(d: Any, k: Any) -> bool:
    """`k in d` of what a dict (a shadow's copy too) or set stores."""
    asked = shadows.base_of(d).__contains__
    if not compares(k):
        return asked(d, k)
    held = captured(asked, d, k)
    settle(k)
    return held


def truth(v: Any) -> bool:
    """`bool(v)`, recording what it relied on."""
    if v is True or v is False:
        return v
    t = type(v)
    if t in PLAIN_OPERANDS:
        return bool(v)
    row = ROWS.get(t)
    if row is not None and row.truth is not None:
        return row.truth(v)
    m = lookup(t, "__bool__")
    if type(m) is FunctionType or own_way(m):
        r = interp(m, (v,), {}) if type(m) is FunctionType else by_name(m, v, "__bool__")
        if type(r) is torch.SymBool:
            return bool(r)
        if type(r) is not bool:
            raise TypeError(f"__bool__ should return bool, returned {type_name(vm.type_of(r))}")
        return r
    if m is UNSET:
        m = lookup(t, "__len__")
        if m is UNSET:
            return True
        h = vm.world.by_copy.get(id(v))
        if type(m) is FunctionType:
            return truth(compare(operator.ne, length(v), 0))
        if h is not None:
            shadows.filled(vm.world, h)
    if opaque(v):
        raise Break("PL0007", f"the truth of a {t.__module__}.{t.__qualname__}", clean=True)
    return captured(bool, v)


def changes(h: Any) -> bool:
    """Whether the length of this container is symbolic already, or the program has made it longer or shorter: it will be another the
    next time."""
    if not getattr(vm.history, "joins", False):
        return False
    return shadows.size(h.copy) != shadows.size(h.orig) or (h.source.length(), "int") in vm.world.reads


OF_C = {types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType, type(UNSET)}


def own_way(m: Any) -> bool:
    """Whether a subclass of a container has a special method of its own that is no function: a static method, say, or a partial."""
    return type(m) not in OF_C


def by_name(m: Any, o: Any, name: str, *args: Any) -> Any:
    """Such a special method, called as CPython does it."""
    if m is None:
        raise Break("PL0007", f"{name} of a {type(o).__name__}, which is None", clean=True)
    return call(bound_special(m, o, type(o), name), args, {})


def length(o: Any) -> Any:
    """`len(o)`; of a tensor, the symbolic size."""
    t = type(o)
    row = ROWS.get(t)
    if row is not None and row.length is not None:
        return row.length(o)
    m = lookup(t, "__len__")
    if type(m) is FunctionType:
        return as_length(interp(m, (o,), {}))
    if own_way(m):
        return as_length(by_name(m, o, "__len__"))
    world = vm.world
    h = world.by_copy.get(id(o))
    if h is not None:
        if shadows.countable(h) and (changes(h) or shadows.counted(world, h) or pinned_here(vm.frame)):
            return shadows.changing_length(world, h)
        shadows.length(world, h)
        return len(o)
    if opaque(o):
        raise Break("PL0007", f"the length of a {t.__module__}.{t.__qualname__}", clean=True)
    return len(o)


def pinned_here(f: Any) -> bool:
    """Whether a length was pinned at this instruction, and was another one the next time."""
    return f.watched and vm.history.breaks_at(f.code, f.decoded.offsets[f.pc - 1])


def as_length(n: Any) -> Any:
    """What `len()` makes of the answer of a `__len__` of the program's."""
    if type(n) is not int and type(n) is not torch.SymInt:
        n = captured(operator.index, n)
    if n < 0:
        raise ValueError("__len__() should return >= 0")
    if n > sys.maxsize:
        raise OverflowError("cannot fit 'int' into an index-sized integer")
    return n


def get_iter(o: Any) -> Any:
    """`iter(o)`."""
    t = type(o)
    if t is Generator:
        return o
    row = ROWS.get(t)
    if row is not None and row.iter is not None:
        return row.iter(o)
    m = lookup(t, "__iter__")
    if type(m) is FunctionType or m is not None and own_way(m):
        it = interp(m, (o,), {}) if type(m) is FunctionType else by_name(m, o, "__iter__")
        if type(it) is not Generator and lookup(vm.type_of(it), "__next__") is UNSET:
            raise TypeError(f"iter() returned non-iterator of type {type_name(vm.type_of(it))!r}")
        return it
    world = vm.world
    if issubclass(t, (set, frozenset)):
        ordered(o)
    h = world.by_copy.get(id(o))
    if h is not None:
        shadows.read_all(world, o)
    elif opaque(o) and t not in ENDING:
        raise Break("PL0007", f"iteration over a {t.__module__}.{t.__qualname__}", clean=True)
    if m is UNSET:
        g = lookup(t, "__getitem__")
        if type(g) is FunctionType:  # the old protocol: `o[0]`, `o[1]`, … until IndexError; CPython's own iterator calls us for them
            return native(iter, (o,), {})
    return carried(iter(o))


def get_next(it: Any) -> Any:
    """`next(it)`; StopIteration at the end."""
    x = advance(it)
    f = vm.frame
    if f is not None:
        f.moved = f.pc
    return x


def advance(it: Any) -> Any:
    t = type(it)
    row = ROWS.get(t)
    if row is not None and row.next is not None:
        return row.next(it)
    n = lookup(t, "__next__")
    if type(n) is FunctionType:
        return interp(n, (it,), {})
    if id(it) in vm.world.outside:
        if t in ENDING:
            end_of(it)
        raise Break("PL0007", f"an iterator made outside ({t.__name__})", clean=True)
    return next(it) if t in QUIET_ITERATORS else native(next, (it,), {})


def is_last_key(same: Any) -> bool:
    """What is none of the other keys is the last one, or eager would have raised."""
    return vm.scope.assume(expr_of(same, vm.scope), current_site(), "no such key", KeyError)


def getitem(o: Any, k: Any) -> Any:
    """`o[k]`."""
    t = type(o)
    row = ROWS.get(t)
    if row is not None and row.getitem is not None:
        return row.getitem(o, k)
    world = vm.world
    h = world.by_copy.get(id(o))
    if t is dict and of_data(k) and (found := under_key(world, h, o, k)) is not None:
        return found
    if h is not None:
        m = lookup(t, "__getitem__")
        if type(m) is FunctionType:
            return interp(m, (o, k), {})
        if own_way(m):
            return by_name(m, o, "__getitem__", k)
        if isinstance(o, dict):
            if type(k) is LateText and vm.exploring:
                shadows.read_all(world, o)
                k = chosen(o, k, vm.truth, is_last_key)
            if late_keys.may_be_late(h, k) and k.value in h.orig:
                return late_keys.item(world, h, k)
            k = outside_key(k, o)
            if holds_key(o, k):
                return shadows.item(world, h, k)
            shadows.absent(world, h, k)
            missing = lookup(t, "__missing__")
            if type(missing) is FunctionType:
                return interp(missing, (o, k), {})
            if t is collections.defaultdict or t is collections.Counter:
                h.located[k] = WRITTEN
                return native(GETITEM, (o, k), {})
            if missing is not UNSET:
                return call(bound_special(missing, o, t, "__missing__"), (k,), {})
            raise KeyError(k)
        k = place_from_data(k)
        if type(k) is torch.SymInt and (found := item_outside(world, h, k)) is not None:
            return found
        k = position(k)
        if isinstance(o, list) and type(k) is int:
            if not -len(o) <= k < len(o):
                shadows.length(world, h)
            return shadows.index(world, h, k)
        shadows.read_all(world, o)
        return o[k]
    if t is dict:
        k = hashable(k)
        return captured(dict.__getitem__, o, k) if compares(k) else o[k]
    if t in SEQUENCES:
        if t in (tuple, list, str) and type(k := place_from_data(k)) is torch.SymInt and (found := item_of(o, k)) is not None:
            return found
        return o[position(k)]
    m = lookup(t, "__getitem__")
    if type(m) is FunctionType:
        return interp(m, (o, k), {})
    if issubclass(t, type):
        mm = lookup(type(o), "__getitem__")
        if type(mm) is FunctionType:
            return interp(mm, (o, k), {})
        if mm is UNSET and lookup(o, "__class_getitem__") is not UNSET:
            return call(vm.getattr(o, "__class_getitem__"), (k,), {})
        return native(GETITEM, (o, k), {})
    if opaque(o):
        raise Break("PL0007", f"an item of a {t.__module__}.{t.__qualname__}", clean=True)
    if issubclass(t, dict):
        k = hashable(k)
        holds_key(o, k)
        lookup(t, "__missing__")  # which C asks for, where there is no such key: guarded
    return native(GETITEM, (o, k), {})


def place_from_data(k: Any) -> Any:
    """A subscript of a sequence: of a truth from data the integer that it is, of a tensor the one in it."""
    return as_int(k) if type(k) is torch.SymBool and of_data(k) else index(k) if type(k) is TracedTensor else k


SEQUENCES = {tuple, list, torch.Size, str, bytes, range}


def setitem(o: Any, k: Any, v: Any) -> None:
    """`o[k] = v`."""
    t = type(o)
    row = ROWS.get(t)
    if row is not None and row.setitem is not None:
        row.setitem(o, k, v)
        return
    m = lookup(t, "__setitem__")
    if type(m) is FunctionType:
        interp(m, (o, k, v), {})
        return
    if own_way(m):
        by_name(m, o, "__setitem__", k, v)
        return
    write_item(o, k, v)


def write_item(o: Any, k: Any, v: Any, put: Callable | None = None) -> None:
    """`o[k] = v` as C does it. `put(k, v)`: the slot of a C class that was asked for by name, of which the class of `o` is a subclass."""
    if vm.asking or vm.world.hashed_by:
        writes(o)
    world = vm.world
    h = world.by_copy.get(id(o))
    if h is not None:
        if isinstance(o, dict):
            if type(k) is LateText and varies(k):
                raise Break("PL0017", "a key that is another on every call", clean=True)
            shadows.keys_found(h)
            k = outside_key(k, o)
            if holds_key(o, k):
                if shadows.has(h.orig, k) and k not in h.located:
                    shadows.present(world, h, k)
            else:
                shadows.stored_anew(world, h, k)
            shadows.writes_to(h, k, h.located.get(k, UNSET))
        else:
            k = position(k)
            if type(k) is int and isinstance(o, list) and 0 <= k < shadows.size(h.orig):
                shadows.reaches(world, h, k)
                if type(o) is list and k < len(o):
                    shadows.writes_to(h, k, h.located.get(k, UNSET))
                h.located[k] = WRITTEN
            else:
                shadows.read_all(world, o)
                if type(k) is int and isinstance(o, collections.deque) and 0 <= k < len(h.orig):
                    h.located[k] = WRITTEN
    elif id(o) in world.outside:
        raise Break("PL0006", f"an item of a {type(o).__module__}.{type(o).__qualname__}", clean=True)
    elif issubclass(type(o), dict):
        k = hashable(k)
        holds_key(o, k)
    elif type(o) is list:
        k = position(k)
    if type(k) is slice:
        if type(v) not in (list, tuple):
            v = iterator(v, NOT_ASSIGNED[k.step not in (None, 1)]) if isinstance(o, list) else get_iter(v)
        v = unpack(v, hint=type(v) not in (list, tuple))  # C code makes a list of its iterator
    put = put or functools.partial(operator.setitem, o)
    put(k, v)


def delitem(o: Any, k: Any) -> None:
    """`del o[k]`."""
    t = type(o)
    row = ROWS.get(t)
    if row is not None and row.delitem is not None:
        row.delitem(o, k)
        return
    world = vm.world
    m = lookup(t, "__delitem__")
    if type(m) is FunctionType:
        interp(m, (o, k), {})
        return
    if own_way(m):
        by_name(m, o, "__delitem__", k)
        return
    h = world.by_copy.get(id(o))
    if h is not None:
        if isinstance(o, dict):
            shadows.keys_found(h)
            k = outside_key(k, o)
            (shadows.present if holds_key(o, k) else shadows.absent)(world, h, k)
            h.located[k] = WRITTEN
        else:
            k = position(k)
            shadows.read_all(world, o)
    elif id(o) in world.outside:
        raise Break("PL0006", f"an item of a {t.__module__}.{t.__qualname__}", clean=True)
    elif issubclass(t, dict):
        k = hashable(k)
        holds_key(o, k)
    elif t is list:
        k = position(k)
    captured(operator.delitem, o, k)


def contains(c: Any, x: Any) -> bool:
    """`x in c`."""
    t = type(c)
    row = ROWS.get(t)
    if row is not None and row.contains is not None:
        return row.contains(c, x)
    world = vm.world
    m = lookup(t, "__contains__")
    if type(m) is FunctionType:
        return truth(interp(m, (c, x), {}))
    if own_way(m):
        return truth(by_name(m, c, "__contains__", x))
    h = world.by_copy.get(id(c))
    if t is dict and (found := among_keys(world, h, c, x)) is not UNSET:
        return found
    if h is not None:
        if isinstance(c, dict):
            if late_keys.may_be_late(h, x):
                return late_keys.is_there(world, h, x)
            x = outside_key(x, c)
            held = holds_key(c, x)
            (shadows.present if shadows.has(h.orig, x) else shadows.absent)(world, h, x)
            return held
        shadows.read_all(world, c)
    elif opaque(c):
        raise Break("PL0007", f"membership in a {t.__module__}.{t.__qualname__}", clean=True)
    if (found := among(c, x)) is not UNSET:
        return found
    if h is None and isinstance(c, (dict, set, frozenset)):
        return holds_key(c, hashable(x))
    if m is UNSET and t is not Generator and type(lookup(t, "__iter__")) is FunctionType:
        it = get_iter(c)
        while True:
            try:
                y = get_next(it)
            except StopIteration:
                return False
            if y is x or truth(compare(operator.eq, y, x)):
                return True
    note_equality(c, x)
    return native(CONTAINS, (c, x), {})


def answering(ta: type, tb: type, column: str) -> TypeRow | None:
    """The row that answers an operator over two operands: of those which have the column, the one of the higher rank."""
    a, b = ROWS.get(ta), ROWS.get(tb)
    if a is not None and getattr(a, column) is None:
        a = None
    if b is not None and getattr(b, column) is None:
        b = None
    return a if b is None or (a is not None and a.rank >= b.rank) else b


COMPARE_METHODS = {
    operator.lt: ("__lt__", "__gt__"), operator.le: ("__le__", "__ge__"), operator.eq: ("__eq__", "__eq__"),
    operator.ne: ("__ne__", "__ne__"), operator.gt: ("__gt__", "__lt__"), operator.ge: ("__ge__", "__le__"),
}  # fmt: skip


def compare(fn: Callable, a: Any, b: Any) -> Any:
    """Rich comparison."""
    ta, tb = type(a), type(b)
    if ta in PLAIN_OPERANDS and tb in PLAIN_OPERANDS:
        if ta is complex or tb is complex:  # it would say of a symbolic number that it is none
            return fn(specialize(a), specialize(b))
        if ta is slice or tb is slice:
            a, b = to_c(fn, a), to_c(fn, b)  # bounds may be any objects
        return of_plain(fn, a, b)
    row = answering(ta, tb, "compare")
    if row is not None:
        r = row.compare(fn, a, b)  # type: ignore[misc]
        if r is not NotImplemented:
            return r
    if ta in SYM_TYPES or tb in SYM_TYPES:
        return compare(fn, specialize(a), specialize(b))
    if ta is tb and ta in (tuple, list) and (found := (alike if fn in EQUALITY else in_order)(fn, a, b)) is not UNSET:
        return found
    name, mirrored = COMPARE_METHODS[fn]
    order = [(a, b, ta, name), (b, a, tb, mirrored)]
    if tb is not ta and ta in tb.__mro__:  # no registered class: CPython looks at the bases
        order.reverse()
    methods = [lookup(t, n) for _, _, t, n in order]
    if any(type(m) is property for m in methods):  # where its getter raises, CPython takes it for no comparison
        raise Break("PL0004", f"{name}, which a property gives", clean=True)
    if any(type(m) is FunctionType for m in methods):
        for (x, y, _t, _n), m in zip(order, methods, strict=True):
            if type(m) is FunctionType:
                r = interp(m, (x, y), {})
            else:
                r = c_slot(m, x, y) if m is not UNSET else NotImplemented
            if r is not NotImplemented:
                return r
        if fn is operator.eq or fn is operator.ne:
            return identical(a, b) is (fn is operator.eq)
        raise TypeError(f"{SYMBOLS[fn]!r} not supported between instances of {type_name(ta)!r} and {type_name(tb)!r}")
    if fn is operator.ne and any(type(lookup(t, "__eq__")) is FunctionType for t in (ta, tb)):
        for (x, y, t, _n), m in zip(order, methods, strict=True):
            r = inverted(t, x, y) if m is object.__ne__ else c_slot(m, x, y)  # that of a list asks no `__eq__` of a class
            if r is not NotImplemented:
                return r
        return not identical(a, b)
    if fn in EQUALITY and ta is tb and ta in (FunctionType, functools.partial):
        return identical(a, b) is (fn is operator.eq)
    if fn in EQUALITY and ta is tb and of_outside(a) and of_outside(b) and lookup(ta, "__eq__") is object.__eq__:
        return identical(a, b) is (fn is operator.eq)
    note_equality(a, b)
    return native(fn, (a, b), {})


def inverted(t: type, x: Any, y: Any) -> Any:
    """`object.__ne__`: what the `__eq__` of `x` says, inverted."""
    m = lookup(t, "__eq__")
    r = interp(m, (x, y), {}) if type(m) is FunctionType else c_slot(m, x, y)
    return NotImplemented if r is NotImplemented else not truth(r)


REPEATS = {"__mul__", "__rmul__", "__imul__"}
JOINS = REPEATS | {"__add__", "__iadd__"}
JOINED = {list, tuple, str, bytes, bytearray, collections.deque, array.array}


def of_sequence(m: Any) -> bool:
    """Whether a special method of C is how a sequence repeats or joins itself: CPython asks it when the other operand has said no."""
    name, owner = getattr(m, "__name__", None), getattr(m, "__objclass__", None)
    return name in JOINS and owner in JOINED or name in REPEATS and owner is torch.Size  # which adds as numbers do


def c_slot(m: Any, x: Any, y: Any) -> Any:
    """A special method of C, of `x`, asked about `y`."""
    if opaque(x):
        raise Break("PL0007", f"{m.__name__} of a {type(x).__module__}.{type(x).__qualname__}", clean=True)
    if of_sequence(m) and m.__name__ in REPEATS and lookup(type(y), "__index__") is UNSET and type(y) not in ROWS:
        raise TypeError(f"can't multiply sequence by non-int of type {type_name(vm.type_of(y))!r}")
    if not hasattr(type(m), "__get__"):  # a partial, None or any object that a class has in its place: nothing is bound
        return vm.call(m, (y,), {})
    if x is None:  # for which `__get__` binds nothing
        return native(m, (x, y), {})
    return native(m.__get__(x, type(x)), (y,), {})


EQUALITY = (operator.eq, operator.ne)
SYMBOLS = {operator.lt: "<", operator.le: "<=", operator.eq: "==", operator.ne: "!=", operator.gt: ">", operator.ge: ">="}


BINARY_METHODS = {
    getattr(operator, n): (f"__{m}__", f"__r{m}__", None)
    for n, m in [
        ("add", "add"), ("and_", "and"), ("floordiv", "floordiv"), ("lshift", "lshift"), ("matmul", "matmul"), ("mul", "mul"),
        ("mod", "mod"), ("or_", "or"), ("pow", "pow"), ("rshift", "rshift"), ("sub", "sub"), ("truediv", "truediv"), ("xor", "xor"),
    ]
}  # fmt: skip
BINARY_METHODS.update(
    {getattr(operator, "i" + n.__name__.rstrip("_")): (m[0], m[1], "__i" + m[0][2:]) for n, m in list(BINARY_METHODS.items())}
)
INPLACE_TO_PLAIN = {getattr(operator, "i" + n.__name__.rstrip("_")): n for n, m in BINARY_METHODS.items() if m[2] is None}
BINARY_SYMBOLS = {
    "add": "+", "and_": "&", "floordiv": "//", "lshift": "<<", "matmul": "@", "mul": "*", "mod": "%", "or_": "|", "pow": "** or pow()",
    "rshift": ">>", "sub": "-", "truediv": "/", "xor": "^",
}  # fmt: skip


BOOLS = {bool, torch.SymBool}


def of_plain(fn: Callable, a: Any, b: Any) -> Any:
    """An operator of numbers, texts and the like; what it refuses, it refuses in words that name the types the program knows."""
    if (fn is operator.xor or fn is operator.ixor) and type(a) in BOOLS and type(b) in BOOLS:
        fn = operator.ne  # PyTorch's symbolic bools would give an int
    try:
        return fn(a, b)
    except TypeError:
        if type(a) in SYM_TYPES or type(b) in SYM_TYPES:
            return fn(specialize(a), specialize(b))
        raise


QUOTIENTS = (operator.floordiv, operator.ifloordiv, operator.mod, operator.imod)


def binary(fn: Callable, a: Any, b: Any) -> Any:
    """A binary operator or its in-place form."""
    ta, tb = type(a), type(b)
    if ta in PLAIN_OPERANDS and tb in PLAIN_OPERANDS:
        if ta is str and fn in (operator.mod, operator.imod) and tb in SYM_TYPES:
            later = percent(a, b)
            if later is not None:
                return later
            b = specialize(b)
        if fn in QUOTIENTS and (ta is float and not math.isfinite(a) or tb is float and not math.isfinite(b)):
            return fn(specialize(a), specialize(b))
        if no_operator(fn, ta, tb) or fn in powers.POWERS and powers.pinned(ta, tb, a, b):
            return fn(specialize(a), specialize(b))
        if ta is int and tb in SYM_TYPES and a.bit_length() > 63 or tb is int and ta in SYM_TYPES and b.bit_length() > 63:
            return fn(specialize(a), specialize(b))  # symbolic numbers are of 64 bits
        return of_plain(fn, a, b)
    row = answering(ta, tb, "binary")
    if row is not None:
        r = row.binary(fn, a, b)  # type: ignore[misc]
        if r is not NotImplemented:
            return r
    if ta in SYM_TYPES or tb in SYM_TYPES:  # beside anything else than a number, a symbolic number is its value
        return binary(fn, specialize(a), specialize(b))
    name, reflected, inplace = BINARY_METHODS[fn]
    if inplace is not None:
        m = lookup(ta, inplace)
        if type(m) is FunctionType:
            r = interp(m, (a, b), {})
            if r is not NotImplemented:
                return r
        elif m is not UNSET:
            said = lookup(tb, reflected) if of_sequence(m) else UNSET  # asked first: a sequence joins when numbers have said no
            if type(said) is FunctionType and (r := interp(said, (b, a), {})) is not NotImplemented:
                return r
            return container_operator(fn, a, b)
    order = [(a, b, ta, name), (b, a, tb, reflected)]
    if ta is tb:
        order.pop()
    elif ta in tb.__mro__ and lookup(tb, reflected) is not lookup(ta, reflected):
        order.reverse()
    methods = [lookup(t, n) for _, _, t, n in order]
    if any(type(m) is FunctionType for m in methods):
        if of_sequence(methods[0]):
            order.reverse()
            methods.reverse()
        for (x, y, t, n), m in zip(order, methods, strict=True):
            if type(m) is FunctionType:
                r = interp(m, (x, y), {})
            elif m is UNSET:
                continue
            elif t in ROWS and ROWS[t].slot is not None:
                r = ROWS[t].slot(x, n, y)  # type: ignore[misc]
            else:
                r = c_slot(m, x, y)
            if r is not NotImplemented:
                return r
        plain = INPLACE_TO_PLAIN.get(fn, fn)
        sign = BINARY_SYMBOLS[plain.__name__] + ("=" if inplace is not None else "")
        raise TypeError(f"unsupported operand type(s) for {sign}: {type_name(ta)!r} and {type_name(tb)!r}")
    return container_operator(fn, a, b)


UNARY_METHODS = {operator.neg: "__neg__", operator.pos: "__pos__", operator.invert: "__invert__", operator.abs: "__abs__"}


def unary(fn: Callable, v: Any) -> Any:
    """A unary operator, or `abs`."""
    t = type(v)
    if t in PLAIN_OPERANDS:
        return fn(torch.sym_int(v) if t is torch.SymBool else v)  # the sign of a bool is that of an int
    row = ROWS.get(t)
    if row is not None and row.unary is not None:
        return row.unary(fn, v)
    m = lookup(t, UNARY_METHODS[fn])
    return interp(m, (v,), {}) if type(m) is FunctionType else native(fn, (v,), {})


SAYS_NO = (type(UNSET), FunctionType, types.WrapperDescriptorType)
"""What `__radd__` is where it has nothing to say to a list: there is none, it was asked before, or it is one of C, of numbers."""


def container_operator(fn: Callable, a: Any, b: Any) -> Any:
    """`list + list`, `list += iterable`, `dict | dict`, `str % tuple`, sets…"""
    if type(a) is str and fn in (operator.mod, operator.imod):
        later = percent(a, b)
        if later is not None:
            return later
        b = tuple(specialize(x) if type(x) in SYM_TYPES else x for x in b) if type(b) is tuple else b
    if fn is operator.iadd and issubclass(type(a), list) and type(lookup(type(b), "__radd__")) in SAYS_NO:
        list.extend(a, unpack(b, hint=True))
        return a
    for x in (a, b):
        if opaque(x):
            raise Break("PL0007", f"an operator on a {type(x).__module__}.{type(x).__qualname__}", clean=True)
        if fn in (operator.mul, operator.imul):
            lookup(type(x), "__index__")  # a sequence asks for it
        for name in BINARY_METHODS[fn]:
            if name is not None:
                lookup(type(x), name)
    if type(a) is TracedTensor or type(b) is TracedTensor:
        other = b if type(a) is TracedTensor else a
        told = type(other).__flags__ & HEAPTYPE and type(other) is not TracedTensor
        told = told and (lookup(type(other), "__torch_function__") is not UNSET or told_by_itself(other))
        if vm.world.has_subclasses or told:
            return graph_call(fn, (a, b), {})  # the result is of the class, or what the class of a number answers
    return native(fn, (a, b), {})


def not_assigned(step: int) -> str:
    """What CPython says of an assignment to a slice of a list that is given no iterable."""
    try:
        [0][::step] = 0  # type: ignore[call-overload]
    except TypeError as e:
        return e.args[0]
    raise AssertionError


NOT_ASSIGNED = not_assigned(1), not_assigned(2)


def iterator(v: Any, refusal: str) -> Any:
    """`iter(v)`. For a TypeError, whoever raises it, the C code that asks says something of its own."""
    try:
        return get_iter(v)
    except TypeError as e:
        if slipped(e):
            raise
    raise TypeError(refusal)


def unpack(v: Any, hint: bool = False) -> list:
    """Its items, one after the other. `hint`: C code asks how many there are, to make room for them."""
    t = type(v)
    if t is tuple or t is torch.Size:
        return list(v)
    if t is list:
        shadows.read_all(vm.world, v)
        return list(v)
    it = get_iter(v)
    if hint:
        ask_length(v)
    return drain(it)


vm.truth = truth
vm.iter = get_iter
vm.next = get_next
vm.getitem = getitem
vm.setitem = setitem
vm.write_item = write_item
vm.delitem = delitem
vm.contains = contains
vm.length = length
vm.hashable = hashable
vm.outside_key, vm.holds_key = outside_key, holds_key
__all__ = ["METHOD_LOOKASIDES", "binary", "compare", "contains", "get_iter", "get_next", "getitem", "identical", "truth", "unary", "unpack"]
