"""The slot table: truth, iteration, items, membership, length, comparison and arithmetic, over stand-ins."""

from __future__ import annotations

import collections
import itertools
import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from pliant.graph.symnode import concrete as specialize
from pliant.interpret import indexing
from pliant.interpret.attributes import lookup
from pliant.interpret.calls import METHOD_LOOKASIDES, call, graph_call, interp, native, ordered
from pliant.interpret.capture import UNSET
from pliant.interpret.generators import Generator
from pliant.interpret.state import Break, vm
from pliant.interpret.world import WRITTEN

FunctionType = types.FunctionType
SYM_TYPES = {torch.SymInt, torch.SymBool, torch.SymFloat}
# CPython's own operators on these never run Python code nor read outside state
PLAIN_OPERANDS = {int, float, bool, str, bytes, complex, torch.SymInt, torch.SymFloat, torch.SymBool, type(None), range, slice}
HASHED = {str, int, bool, float, bytes, type(None), types.FunctionType, type}
NATIVE_ITERATORS = {
    map, filter, zip, enumerate, reversed, itertools.chain, itertools.starmap, itertools.groupby, itertools.takewhile,
    itertools.dropwhile, itertools.filterfalse, itertools.islice, itertools.accumulate, itertools.zip_longest, itertools.cycle,
    itertools.product, itertools.tee([])[0].__class__, type(iter(int, 1)),
}  # fmt: skip


def hashable(k: Any) -> Any:
    """A dict key or set member: a symbolic number is specialized here, as its hash is its value."""
    t = type(k)
    if t in HASHED:
        return k
    if t in SYM_TYPES:
        return specialize(k)
    if t is tuple or isinstance(k, tuple):
        for x in k:
            if type(x) in SYM_TYPES or isinstance(x, tuple):
                items = [hashable(x) for x in k]
                return tuple(items) if t is tuple or t is torch.Size else tuple.__new__(t, items)
    return k


def outside_key(k: Any) -> Any:
    """A key to look up in an outside dict: for the stand-in of an outside tensor, that tensor (tensors are keys by identity)."""
    if type(k) is vm.traced_type:
        world = vm.world
        real = world.real.get(id(k))
        if real is None:
            raise Break("PL0012", "a tensor made here as the key of a dict", clean=True)
        world.guard(k.source, "ID_MATCH", real)
        world.sources[id(real)] = k.source
        return real
    if id(k) in vm.world.outside and id(k) not in vm.world.by_copy:
        vm.world.guard(vm.world.sources[id(k)], "ID_MATCH", k)  # another object may be another key
    return hashable(k)


def truth(v: Any) -> bool:
    """`bool(v)`, recording what it relied on."""
    if v is True or v is False:
        return v
    t = type(v)
    if t in SYM_TYPES or t in PLAIN_OPERANDS:
        return bool(v)
    if t is vm.traced_type:
        return tensor_truth(v)
    m = lookup(t, "__bool__")
    if type(m) is FunctionType:
        r = interp(m, (v,), {})
        if type(r) is not bool:
            raise TypeError(f"__bool__ should return bool, returned {type(r).__name__}")
        return r
    if m is UNSET:
        m = lookup(t, "__len__")
        if type(m) is FunctionType:
            return truth(interp(m, (v,), {}) != 0)
        h = vm.world.by_copy.get(id(v))
        if h is not None:
            vm.world.length(h)
    return bool(v)


def tensor_truth(v: Any) -> bool:
    raise Break("PL0001", "a branch on the value of a tensor", clean=True)


def length(o: Any) -> Any:
    """`len(o)`; of a tensor, the symbolic size."""
    t = type(o)
    if t is vm.traced_type:
        if not o.sizes:
            raise TypeError("len() of a 0-d tensor")
        return o.sizes[0]
    m = lookup(t, "__len__")
    if type(m) is FunctionType:
        return interp(m, (o,), {})
    world = vm.world
    h = world.by_copy.get(id(o))
    if h is not None:
        if world.countable(h) and vm.frame.watched and vm.history.breaks_at(vm.frame.code, vm.frame.decoded.offsets[vm.frame.pc - 1]):
            return world.changing_length(h)  # here it was pinned before, and was another one the next time
        world.length(h)
        return len(o)
    if id(o) in world.outside:
        raise Break("PL0007", f"the length of a {t.__module__}.{t.__qualname__}", clean=True)
    return len(o)


def get_iter(o: Any) -> Any:
    """`iter(o)`."""
    t = type(o)
    if t is Generator:
        return o
    if t is vm.traced_type:
        return iter(unbind(o))
    m = lookup(t, "__iter__")
    if type(m) is FunctionType:
        return interp(m, (o,), {})
    world = vm.world
    if t is set or t is frozenset:
        ordered(o)
    h = world.by_copy.get(id(o))
    if h is not None:
        world.all(o)
    elif id(o) in world.outside:
        raise Break("PL0007", f"iteration over a {t.__module__}.{t.__qualname__}", clean=True)
    if m is UNSET:
        g = lookup(t, "__getitem__")
        if type(g) is FunctionType:
            return sequence_iterator(o)
    return iter(o)


def sequence_iterator(o: Any) -> Any:
    """The old protocol: `o[0]`, `o[1]`, … until IndexError. CPython's own iterator, its calls come back to us."""
    return native(iter, (o,), {})


def unbind(t: Any) -> Any:
    if not t.sizes:
        raise TypeError("iteration over a 0-d tensor")
    n = t.sizes[0]
    if type(n) is not int:
        specialize(n)
    return graph_call(torch.Tensor.unbind, (t, 0), {}, "unbind")


def get_next(it: Any) -> Any:
    """`next(it)`; StopIteration at the end."""
    t = type(it)
    if t is Generator:
        return it.send(None)
    n = lookup(t, "__next__")
    if type(n) is FunctionType:
        return interp(n, (it,), {})
    if id(it) in vm.world.outside:
        raise Break("PL0007", f"an iterator made outside ({t.__name__})", clean=True)
    if t in NATIVE_ITERATORS:
        return native(next, (it,), {})
    return next(it)


def getitem(o: Any, k: Any) -> Any:
    """`o[k]`."""
    t = type(o)
    world = vm.world
    h = world.by_copy.get(id(o))
    if h is not None:
        m = lookup(t, "__getitem__")
        if type(m) is FunctionType:
            return interp(m, (o, k), {})
        if isinstance(o, dict):
            k = outside_key(k)
            if dict.__contains__(o, k):
                return world.item(h, k)
            world.absent(h, k)
            missing = lookup(t, "__missing__")
            if type(missing) is FunctionType:
                return interp(missing, (o, k), {})
            if t is collections.defaultdict or t is collections.Counter:
                h.located[k] = WRITTEN
                return native(operator.getitem, (o, k), {})
            raise KeyError(k)
        if isinstance(o, list):
            if type(k) in SYM_TYPES:
                k = specialize(k)
            if type(k) is int:
                if not -len(o) <= k < len(o):
                    world.length(h)
                return world.index(h, k)
        world.all(o)
        return o[k]
    if t is vm.traced_type:
        if indexing.is_symbolic(k):
            o, k = indexing.selected(o, k)
            if k is Ellipsis:
                return o
        return graph_call(operator.getitem, (o, k), {})
    if t is dict:
        return o[hashable(k)]
    if t is tuple or t is list or t is torch.Size or t is str:
        return o[k]
    m = lookup(t, "__getitem__")
    if type(m) is FunctionType:
        return interp(m, (o, k), {})
    if isinstance(o, type):
        mm = lookup(type(o), "__getitem__")
        if type(mm) is FunctionType:
            return interp(mm, (o, k), {})
        if mm is UNSET:
            return call(vm.getattr(o, "__class_getitem__"), (k,), {})
        return o[k]
    if id(o) in world.outside:
        raise Break("PL0007", f"an item of a {t.__module__}.{t.__qualname__}", clean=True)
    return native(operator.getitem, (o, hashable(k) if isinstance(o, dict) else k), {})


def setitem(o: Any, k: Any, v: Any) -> None:
    """`o[k] = v`."""
    t = type(o)
    if t is vm.traced_type:
        if indexing.is_symbolic(k):
            o, k = indexing.selected(o, k)
        graph_call(operator.setitem, (o, k, v), {})
        return
    world = vm.world
    m = lookup(t, "__setitem__")
    if type(m) is FunctionType:
        interp(m, (o, k, v), {})
        return
    h = world.by_copy.get(id(o))
    if h is not None:
        if isinstance(o, dict):
            k = outside_key(k)
            if k in h.orig and k not in h.located:
                world.present(h, k)
            elif k not in h.orig:
                world.absent(h, k)
            h.located[k] = WRITTEN
        elif type(k) is int and isinstance(o, list) and 0 <= k < len(h.orig):
            h.located[k] = WRITTEN
        else:
            world.all(o)
    elif id(o) in world.outside:
        raise Break("PL0006", f"an item of a {t.__module__}.{t.__qualname__}", clean=True)
    elif isinstance(o, dict):
        k = hashable(k)
    o[k] = v


def delitem(o: Any, k: Any) -> None:
    """`del o[k]`."""
    t = type(o)
    world = vm.world
    m = lookup(t, "__delitem__")
    if type(m) is FunctionType:
        interp(m, (o, k), {})
        return
    h = world.by_copy.get(id(o))
    if h is not None:
        if isinstance(o, dict):
            k = hashable(k)
            (world.present if k in o else world.absent)(h, k)
            h.located[k] = WRITTEN
        else:
            world.all(o)
    elif id(o) in world.outside:
        raise Break("PL0006", f"an item of a {t.__module__}.{t.__qualname__}", clean=True)
    del o[k]


def contains(c: Any, x: Any) -> bool:
    """`x in c`."""
    t = type(c)
    world = vm.world
    m = lookup(t, "__contains__")
    if type(m) is FunctionType:
        return truth(interp(m, (c, x), {}))
    if t is vm.traced_type:
        return truth(call(vm.getattr(c, "__contains__"), (x,), {}))
    h = world.by_copy.get(id(c))
    if h is not None:
        if isinstance(c, dict):
            x = outside_key(x)
            (world.present if x in h.orig else world.absent)(h, x)
            return x in c
        world.all(c)
    elif id(c) in world.outside:
        raise Break("PL0007", f"membership in a {t.__module__}.{t.__qualname__}", clean=True)
    elif isinstance(c, (dict, set, frozenset)):
        return hashable(x) in c
    if m is UNSET and t is not Generator and type(lookup(t, "__iter__")) is FunctionType:
        it = get_iter(c)
        while True:
            try:
                y = get_next(it)
            except StopIteration:
                return False
            if y is x or truth(compare(operator.eq, y, x)):
                return True
    return native(operator.contains, (c, x), {})


COMPARE_METHODS = {
    operator.lt: ("__lt__", "__gt__"), operator.le: ("__le__", "__ge__"), operator.eq: ("__eq__", "__eq__"),
    operator.ne: ("__ne__", "__ne__"), operator.gt: ("__gt__", "__lt__"), operator.ge: ("__ge__", "__le__"),
}  # fmt: skip


def compare(fn: Callable, a: Any, b: Any) -> Any:
    """Rich comparison."""
    ta, tb = type(a), type(b)
    if ta in PLAIN_OPERANDS and tb in PLAIN_OPERANDS:
        return fn(a, b)
    traced = vm.traced_type
    if ta is traced or tb is traced:
        return tensor_compare(fn, a, b)
    if ta in SYM_TYPES or tb in SYM_TYPES:
        return compare(fn, specialize(a), specialize(b))
    name, mirrored = COMPARE_METHODS[fn]
    order = [(a, b, ta, name), (b, a, tb, mirrored)]
    if tb is not ta and issubclass(tb, ta):
        order.reverse()
    methods = [lookup(t, n) for _, _, t, n in order]
    if any(type(m) is FunctionType for m in methods):
        for (x, y, _t, _n), m in zip(order, methods, strict=True):
            if type(m) is FunctionType:
                r = interp(m, (x, y), {})
            else:
                r = m.__get__(x, type(x))(y) if m is not UNSET else NotImplemented
            if r is not NotImplemented:
                return r
        if fn is operator.eq or fn is operator.ne:
            return identical(a, b) is (fn is operator.eq)
        raise TypeError(f"{SYMBOLS[fn]!r} not supported between instances of {ta.__name__!r} and {tb.__name__!r}")
    if fn is operator.ne and any(type(lookup(t, "__eq__")) is FunctionType for t in (ta, tb)):
        r = compare(operator.eq, a, b)  # the default __ne__ inverts __eq__
        return not truth(r)
    outside = vm.world.outside
    if id(a) in outside and id(b) in outside and ta is tb and lookup(ta, "__eq__") is object.__eq__:
        return identical(a, b) is (fn is operator.eq)
    return native(fn, (a, b), {})


SYMBOLS = {operator.lt: "<", operator.le: "<=", operator.eq: "==", operator.ne: "!=", operator.gt: ">", operator.ge: ">="}


def tensor_compare(fn: Callable, a: Any, b: Any) -> Any:
    other = b if type(a) is vm.traced_type else a
    t = type(other)
    if t is not vm.traced_type and t not in PLAIN_OPERANDS:
        name, mirrored = COMPARE_METHODS[fn]
        m = lookup(t, mirrored if other is b else name)
        if type(m) is FunctionType and t not in (list, tuple):
            r = NotImplemented
            if other is a:
                r = interp(m, (a, b), {})
            if r is not NotImplemented:
                return r
    return graph_call(fn, (a, b), {})


def identical(a: Any, b: Any) -> bool:
    """`a is b`, guarding that two outside objects stay distinct (or the same)."""
    if a is b:
        return True
    world = vm.world
    ha, hb = world.by_copy.get(id(a)), world.by_copy.get(id(b))
    sa = ha.source if ha is not None else a.source if type(a) is vm.traced_type else world.sources.get(id(a))
    sb = hb.source if hb is not None else b.source if type(b) is vm.traced_type else world.sources.get(id(b))
    if sa is not None and sb is not None and type(a) is type(b):
        world.guard(sa, "NOT_ALIAS", (sb,), sb)
    return False


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


def binary(fn: Callable, a: Any, b: Any) -> Any:
    """A binary operator or its in-place form."""
    ta, tb = type(a), type(b)
    if ta in PLAIN_OPERANDS and tb in PLAIN_OPERANDS:
        if ta is str and fn in (operator.mod, operator.imod) and tb in SYM_TYPES:
            b = specialize(b)
        if (ta is torch.SymFloat or tb is torch.SymFloat) and fn in (operator.pow, operator.ipow):
            return fn(specialize(a), specialize(b))  # its sign decides whether there is an answer
        return fn(a, b)
    traced = vm.traced_type
    if ta is traced and (tb is traced or tb in PLAIN_OPERANDS):
        return graph_call(fn, (a, b), {})
    if tb is traced and ta in PLAIN_OPERANDS:
        return graph_call(fn, (a, b), {})
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
            return container_operator(fn, a, b)
    order = [(a, b, ta, name), (b, a, tb, reflected)]
    if ta is tb:
        order.pop()
    elif issubclass(tb, ta) and lookup(tb, reflected) is not lookup(ta, reflected):
        order.reverse()
    methods = [lookup(t, n) for _, _, t, n in order]
    if any(type(m) is FunctionType for m in methods):
        for (x, y, t, n), m in zip(order, methods, strict=True):
            if type(m) is FunctionType:
                r = interp(m, (x, y), {})
            elif m is UNSET:
                continue
            elif t is traced:
                r = tensor_slot(x, n, y)
            else:
                r = native(m.__get__(x, t), (y,), {})
            if r is not NotImplemented:
                return r
        plain = INPLACE_TO_PLAIN.get(fn, fn)
        sign = BINARY_SYMBOLS[plain.__name__] + ("=" if inplace is not None else "")
        raise TypeError(f"unsupported operand type(s) for {sign}: {ta.__name__!r} and {tb.__name__!r}")
    if ta is traced or tb is traced:
        return graph_call(fn, (a, b), {})
    return container_operator(fn, a, b)


def tensor_slot(x: Any, name: str, y: Any) -> Any:
    """A tensor operator whose other side may answer it: NotImplemented passes on."""
    try:
        return graph_call(getattr(torch.Tensor, name), (x, y), {}, name)
    except TypeError:
        return NotImplemented


def container_operator(fn: Callable, a: Any, b: Any) -> Any:
    """`list + list`, `list += iterable`, `dict | dict`, `str % tuple`, sets…"""
    world = vm.world
    if type(a) is str and fn in (operator.mod, operator.imod):
        b = tuple(specialize(x) if type(x) in SYM_TYPES else x for x in b) if type(b) is tuple else b
    if fn is operator.iadd and isinstance(a, list):
        a.extend(unpack(b))
        return a
    for x in (a, b):
        if id(x) in world.outside and id(x) not in world.by_copy:
            raise Break("PL0007", f"an operator on a {type(x).__module__}.{type(x).__qualname__}", clean=True)
    return native(fn, (a, b), {})


def unpack(v: Any) -> list:
    """`[*v]`."""
    t = type(v)
    if t is tuple or t is torch.Size:
        return list(v)
    if t is list:
        vm.world.all(v)
        return list(v)
    it = get_iter(v)
    out = []
    while True:
        try:
            out.append(get_next(it))
        except StopIteration:
            return out


vm.truth = truth
vm.iter = get_iter
vm.next = get_next
vm.getitem = getitem
vm.setitem = setitem
vm.delitem = delitem
vm.contains = contains
vm.length = length
vm.hashable = hashable
vm.outside_key = outside_key
__all__ = ["METHOD_LOOKASIDES", "binary", "compare", "contains", "get_iter", "get_next", "getitem", "identical", "truth", "unpack"]
