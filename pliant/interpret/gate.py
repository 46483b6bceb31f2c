"""The gate: what code that is not interpreted is given to read.

C code, torch functions and Python code that CPython runs see real objects. Whatever they read of an object from before the capture must
have been *guarded by value*, *lifted* (a symbol or an input of the graph), or be *interpreted* when they ask for it; everything else
*breaks* the graph. All that leaves the interpreter passes here:

| who reads                              | through     | what it may be given                                                          |
|----------------------------------------|-------------|-------------------------------------------------------------------------------|
| a C function or method                 | `to_c`      | what is plain, containers with all that is in them, objects it will only hold |
| CPython's own subscript, slice, range  | `position`  | ints, perhaps symbolic; `__index__` is interpreted                            |
| a torch function                       | `to_graph`  | tensors, numbers, settings, and containers of these; nothing else             |
| Python code that CPython runs          | `readable`  | what is plain through and through; else the function is interpreted           |

Python methods that C code calls on what it is given come back to the interpreter (`captured`). A type that no row of the table of types
(`types/`) knows is opaque: it is known by identity, and whoever would read it breaks the graph.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import itertools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from pliant import native as engine
from pliant.graph.originals import gc, math, operator
from pliant.graph.seeding import OWN
from pliant.graph.symnode import SymNode, concrete
from pliant.guards.views import behind_view, walked
from pliant.interpret import set_order, shadows
from pliant.interpret.attributes import from_outside, getattr_, lookup, not_yet, own_item
from pliant.interpret.capture import UNSET
from pliant.interpret.generators import Generator
from pliant.interpret.immutable import HEAPTYPE, IMMUTABLE
from pliant.interpret.shadows import CONTAINERS
from pliant.interpret.state import Break, Restart, taken, vm
from pliant.interpret.type_names import type_name
from pliant.interpret.types.dict_views import METHODS as VIEWS
from pliant.interpret.types.row import ROWS

FunctionType = types.FunctionType
SYM_TYPES = {torch.SymInt, torch.SymBool, torch.SymFloat}
VALUES = {int, float, complex, str, bytes, bool, object}
"""Bases of C whose part of an instance never changes: an instance from outside is guarded by identity (`World.locate_other`)."""

# -- what C code may be given -------------------------------------------------------------------------------------
ORDERLESS = frozenset(
    "add contains __contains__ discard remove update difference_update intersection_update symmetric_difference_update issubset issuperset"
    " isdisjoint union intersection difference symmetric_difference copy or_ and_ sub xor ior iand isub ixor eq ne le lt ge gt not_ truth"
    " len isinstance frozenset set bool append".split()
)
"""Functions of C to which the order of a set is nothing."""
STORES = {
    "append": (0,), "appendleft": (0,), "insert": (1,), "setdefault": (0, 1), "get": (0, 1), "pop": (0, 1), "__setitem__": (0, 1),
    **dict.fromkeys(("add", "discard", "remove", "index", "count", "__contains__"), (0,)),
}  # fmt: skip
"""Methods of containers and which of their arguments they keep or look up, without looking into an object that is equal to itself alone."""
KEPT = {"append": (0,), "appendleft": (0,), "insert": (1,), "setdefault": (1,), "get": (1,), "pop": (1,), "__setitem__": (1,)}
"""Those of them that are kept whatever they are."""
HOLDERS = {
    *(len, list, tuple, dict, zip, enumerate, reversed, iter, next, isinstance, issubclass, id, type, bool, slice, map, filter),
    *(getattr, setattr, hasattr, callable, super, object.__new__, functools.partial),
    *(collections.deque, collections.OrderedDict, collections.defaultdict),
    *(f for f in vars(itertools).values() if isinstance(f, type) and f is not itertools.groupby),
    *(itertools.chain.from_iterable, types.SimpleNamespace, types.MappingProxyType),
    *(getattr(operator, n) for n in "is_ is_not not_ truth getitem setitem delitem add iadd concat iconcat mul imul length_hint".split()),
}  # fmt: skip
"""Functions of C that take a container, or make one, and do not look into what is in it."""
OF_HOLDERS = frozenset(
    "append appendleft extend extendleft insert setdefault get pop popitem popleft copy items values keys clear reverse rotate"
    " __getitem__ __setitem__ __delitem__ __len__ __iter__ __reversed__ __add__ __iadd__ __mul__ __imul__ __rmul__ __new__ __init__"
    " move_to_end __copy__ _asdict _replace _make cast __next__ __setattr__ __set__ __get__".split()
)
"""Likewise, methods."""


OF_ITEMS = frozenset({
    "count", "index", "remove", "sort", *[f"__{n}__" for n in "eq ne lt le gt ge contains repr str format hash reduce reduce_ex".split()],
})  # fmt: skip
"""Methods of containers that ask what is in them, and what is in that."""


def holds_only(fn: Any, a: Any) -> bool:
    """Whether C code `fn` does not look into what is in container `a` that it is given."""
    t = type(fn)
    if (type(a) in ITERATORS or type(a) is Generator) and fills_dicts(fn):
        return False  # it walks pairs
    if t in METHODS_OF_C or t is types.BuiltinFunctionType and type(fn.__self__) not in (types.ModuleType, types.NoneType):
        of_dict = isinstance(a, dict) or isinstance(getattr(fn, "__self__", None), dict)
        return fn.__name__ in OF_HOLDERS or of_dict and fn.__name__ in MERGES
    return id(fn) in HOLDER_IDS or t in GETTERS


MERGES = ("update", "__or__", "__ior__", "__ror__")  # a dict knows the hashes of its keys
METHODS_OF_C = (types.MethodWrapperType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
GETTERS = (operator.itemgetter, operator.attrgetter, functools.partial)
HOLDER_IDS = {*map(id, HOLDERS)}


def ordered_by(fn: Any, a: Any, position: int) -> Any:
    """The same for a function that is given a `key`: what is in a container it only hands to that."""
    if isinstance(a, (list, tuple, dict)) and shadows.walked_by_c(vm.world, a):
        shadows.read_deep(vm.world, a)
        return a
    return to_c(fn, a, position)


def to_c(fn: Any, a: Any, position: int | None = None) -> Any:
    """What C code `fn` is given for `a`, its argument number `position` (None: a keyword). Raises Break where it would read what nobody
    guarded."""
    t = type(a)
    row = ROWS.get(t)
    if row is not None:
        return a if row.plain else row.to_c(fn, a) if row.to_c is not None else a
    world = vm.world
    if shadows.walked_by_c(world, a):
        walk(fn, a)
        if issubclass(t, (set, frozenset)) and name_of(fn) not in ORDERLESS:
            ordered(a)
    elif id(a) in world.outside:
        if has_c_state(t) and not stored(fn, a, position) and not (name_of(fn) in TEXTS and known_text(a)):  # type: ignore[arg-type]
            if t is not FunctionType or not keeps_functions(fn):
                raise unreadable(fn, a)
        if isinstance(getattr(fn, "__self__", None), KEYED):
            lookup(t, "__hash__"), lookup(t, "__eq__")
            world.known_by_identity(a)
        return vm.mapping_for_c(a) if merges(fn, position) else a
    elif t in VIEWS:
        walk(fn, behind_view(a))
    elif t in ITERATORS and not holds_only(fn, a):
        for held in gc.get_referents(a):
            to_c(fn, held)
    elif (t is functools.partial or issubclass(t, BaseException)) and not holds_only(fn, a):  # made here: its text is of what it was given
        walk(fn, a.args)
        if t is functools.partial:
            walk(fn, a.keywords)
    elif merges(fn, position):
        return vm.mapping_for_c(a)
    return a


def merges(fn: Any, position: int | None) -> bool:
    """Whether C code takes what it is given there for a mapping if that has `keys`, also as an attribute of its own."""
    if isinstance(fn, type) and issubclass(fn, collections.defaultdict):
        return position == 1
    return position is not None and fills_dicts(fn)


def fills_dicts(fn: Any) -> bool:
    """Whether C code makes a dict, or adds to one, of a mapping or pairs."""
    if isinstance(fn, type):
        return issubclass(fn, dict)
    of = getattr(fn, "__objclass__", None) or getattr(fn, "__self__", None)
    return name_of(fn) in FILLING and issubclass(of if isinstance(of, type) else type(of), dict)


FILLING = ("update", "__ior__", "__init__")


def item_for_c(fn: Any, item: Any) -> Any:
    """What a generator gives C code `fn` that drives it."""
    try:
        return to_c(fn, item)
    except (Break, Restart) as e:
        through_c(e)
        raise


EMPTY: tuple[Any, ...] = (
    [], (), set(), {}, {}.values(), {}.items(), collections.deque(), collections.OrderedDict(),
)  # fmt: skip
ITERATORS = {
    *(f for f in vars(itertools).values() if hasattr(f, "__next__") and f is not itertools.count), enumerate, zip, map, filter, reversed,
    *(type(iter(o)) for o in EMPTY), *(type(reversed(o)) for o in EMPTY if hasattr(o, "__reversed__")),
}  # fmt: skip
"""Iterators of C, which hold what they walk."""


def walk(fn: Any, a: Any) -> None:
    """C code `fn` is given container `a`: what is in it is read, and so is what is in that."""
    shadows.read_deep(vm.world, a, None if holds_only(fn, a) else functools.partial(within, fn))


def within(fn: Any, a: Any) -> None:
    """Raises Break where `fn` would look into what is in a container and that is nothing it may read."""
    t = type(a)
    if t in ROWS and t not in UNLIKE or name_of(fn) in COMPARE and equal_to_itself(t):
        return
    if t in ITERATORS or t in VIEWS or t in UNLIKE:
        to_c(fn, a)
    elif id(a) in vm.world.outside and has_c_state(t):  # type: ignore[arg-type]
        raise unreadable(fn, a)


COMPARE = ORDERLESS | {"index", "count", "fromkeys", "__eq__", "__ne__"}
"""Functions that ask whether what is in a container is equal to something, or for its hash, and no more."""
UNLIKE: set[type] = set()
"""Proxies that are nothing like what they stand for."""


def stored(fn: Any, a: Any, position: int | None) -> bool:
    """Whether a method of a container only keeps `a`, or looks it up."""
    name = name_of(fn)
    if position in KEPT.get(name, ()):
        return True
    if position not in STORES.get(name, ()) or not equal_to_itself(type(a)):
        return False
    return lookup(type(a), "__index__") is UNSET or not isinstance(getattr(fn, "__self__", None), POSITIONAL)


POSITIONAL = (list, collections.deque)


def keeps_functions(fn: Any) -> bool:
    """Whether C code only keeps a function that it is given, and calls it, which comes back to the interpreter."""
    return id(fn) in KEEPING or name_of(fn) == "__init__" and isinstance(getattr(fn, "__self__", None), collections.defaultdict)


KEEPING = {
    *map(id, (collections.defaultdict, collections.defaultdict.__init__, dict.__new__)),  # the last: of classes derived from it
    *map(id, (functools.partial, functools.partial.__new__, types.MethodType)),
}  # fmt: skip


def equal_to_itself(t: type) -> bool:
    """Whether an instance is equal to no other object: nothing is read to compare it."""
    return lookup(t, "__eq__") is object.__eq__ and lookup(t, "__hash__") is object.__hash__


TEXTS = {"str", "repr", "ascii", "format"}
OF_ARGS = {BaseException.__str__, BaseException.__repr__, KeyError.__str__}


def known_text(e: Any) -> bool:
    """Whether the text of an exception from outside says no more than what it was made of, which is guarded here."""
    t = type(e)
    if not issubclass(t, BaseException) or not {lookup(t, "__str__"), lookup(t, "__repr__")} <= OF_ARGS:
        return False
    given = getattr_(e, "args")
    pairs = zip(given, e.args, strict=True)
    return all([concrete(x) == y if type(x) is torch.SymInt else x is y and readable(x) for x, y in pairs])


NUMBER = ("__float__", "__index__")
ASKS: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys([f for f in vars(math).values() if isinstance(f, types.BuiltinFunctionType)], (*NUMBER, "__iter__")),
    math.ceil: (*NUMBER, "__ceil__"), math.floor: (*NUMBER, "__floor__"), math.trunc: (*NUMBER, "__trunc__"),
    complex: (*NUMBER, "__complex__"), bytes: ("__bytes__", "__index__", "__iter__"), bytearray: ("__index__", "__iter__"),
    operator.length_hint: ("__len__", "__length_hint__"),
}  # fmt: skip
"""Special methods that a C function asks its arguments for, one in the place of another: a class may get one later."""


WRAPPED = ("__module__", "__name__", "__qualname__", "__doc__", "__isabstractmethod__")
READS: dict[Any, tuple[str, ...]] = {
    property: ("__doc__", "__isabstractmethod__"), staticmethod: WRAPPED, classmethod: WRAPPED,
}  # fmt: skip
"""Attributes that a C function reads of what it is given: any object may have them, or get them later."""


def guard_asked(fn: Any, args: tuple) -> None:
    for name in ASKS.get(fn, ()):
        for a in args:
            lookup(type(a), name)
    for name in READS.get(fn, ()):
        for a in args:
            if type(a) not in ROWS and not isinstance(a, type) and answers_plainly(type(a), name):
                with contextlib.suppress(AttributeError):
                    getattr_(a, name)


def answers_plainly(t: type, name: str) -> bool:
    """Whether no code of the program runs where that attribute is read; what does run is interpreted."""
    own = lookup(t, "__getattr__") is not UNSET or lookup(t, "__getattribute__") is not object.__getattribute__
    return not own and type(lookup(t, name)) not in (property, FunctionType)


KEYED = (dict, set, frozenset)
"""Containers that know what is in them by hashes: mostly by identity."""


def unreadable(fn: Any, a: Any) -> Break:
    return Break("PL0007", f"{name_of(fn)} would read a {type(a).__module__}.{type(a).__qualname__}", clean=True)


def name_of(fn: Any) -> str:
    return str(getattr(fn, "__name__", None) or type(fn).__name__)


def ordered(s: set | frozenset) -> None:
    """The program may see in which order a set is walked: that of another process is another, unless hashes are values."""
    world = vm.world
    held = set_order.members(s)
    if len(held) > 1 and not all([type(x) is int for x in held]):
        world.bound_here = "the order of a set"
    h = world.by_copy.get(id(s))
    if h is not None:
        source, table = h.source, h.orig
    else:
        source, table = world.standing[id(s)][2] if id(s) in world.standing else None, s
    if source is not None and len(held) > 1:
        world.guard(source.apply("walked"), "EQ_MATCH", walked(table))


@functools.cache
def has_c_state(t: Any) -> bool:
    """Whether instances hold state that only C code sees (iterators, generators, arrays, files…)."""
    if t in IMMUTABLE or issubclass(t, (enum.Enum, types.CellType)) or t is engine.EntryPoint:
        return False
    return any([b not in VALUES and not engine.made_in_python(b) for b in t.__mro__])


def opaque(v: Any) -> bool:
    """Whether `v` comes from outside and holds state that only C code sees: nobody has guarded it."""
    world = vm.world
    return id(v) in world.outside and id(v) not in world.by_copy and has_c_state(type(v))  # type: ignore[arg-type]


def captured(fn: Callable, *args: Any) -> Any:
    """Run C code that may call methods of Python, which are interpreted, on what is fit to be read."""
    return captured_call(fn, args, {})


def captured_call(fn: Callable, args: tuple, kwargs: dict) -> Any:
    """The same with keywords."""
    r = in_c(fn, args, kwargs)
    if vm.pending is not None:
        raise taken()
    return r


def in_c(fn: Callable, args: tuple, kwargs: dict) -> Any:
    """Run C code: what it calls back gives its answers to `fn`."""
    outer, vm.reader = vm.reader, fn
    try:
        return engine.call_captured(fn, args, kwargs)
    finally:
        vm.reader = outer


LOOKED_INTO = {*(f"__{n}__" for n in "iter eq ne lt le gt ge bool contains instancecheck subclasscheck".split()), "keys", "items"}
"""Methods of Python whose answer is walked, or asked whether it is true, by whoever calls them."""
ASKS_MORE = (
    dict, collections.OrderedDict, collections.defaultdict, len, isinstance, issubclass, bool, operator.not_, operator.truth, slice, type,
)  # fmt: skip
HANDS_ON = HOLDER_IDS - {*map(id, ASKS_MORE)}
LOOKS = {"__init__", "__new__", "_replace", "_make", "__len__", "cast"}


def answered(reader: Any, names: Any, r: Any) -> Any:
    """What Python code that C code has called back, by these names, answers: mostly `reader` looks into that as into its arguments."""
    if LOOKED_INTO.isdisjoint(names) and (id(reader) in HANDS_ON or type(reader) in GETTERS or name_of(reader) in OF_HOLDERS - LOOKS):
        return r  # which is handed on
    if reader is None:  # PyTorch's own, which is not called from here
        shadows.read_deep(vm.world, r)
        return r
    return to_c(reader, r)


def through_c(e: BaseException) -> None:
    """A break is on its way out through C code. What that has done by now is done (an iterator has moved): the break is before the call."""
    vm.pending = e
    if type(e) is Break and not e.frames:
        e.clean = False


# -- positions: indices, bounds of slices and ranges --------------------------------------------------------------
def index(v: Any) -> Any:
    """`operator.index(v)`: an int, perhaps symbolic. TypeError, in CPython's words, for what has no index."""
    t = type(v)
    if t is int or t is torch.SymInt:
        return v
    row = ROWS.get(t)
    if row is not None and row.index is not None:
        return row.index(v)
    if issubclass(t, int):  # as CPython does: a subclass's own `__index__` is not asked
        return int.__add__(v, 0)
    m = lookup(t, "__index__")
    if type(m) is FunctionType:
        not_yet()
        r = vm.interp(m, (v,), {})
        if type(r) in (int, torch.SymInt):
            return r
        if type(r) is not torch.SymBool and not isinstance(r, int):
            raise TypeError(f"__index__ returned non-int (type {type_name(vm.type_of(r))})")
        return operator.index(Answers(concrete(r)))  # CPython warns of subclasses
    if opaque(v):
        raise unreadable(operator.index, v)
    return captured(operator.index, v)


class Answers:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __index__(self) -> Any:
        return self.answer


def has_index(v: Any) -> bool:
    row = ROWS.get(type(v))
    return row.index is not None and type(v) is not torch.SymFloat if row is not None else lookup(type(v), "__index__") is not UNSET


PLAIN_BOUNDS = (int, type(None))


def plain_bound(b: Any) -> Any:
    if lookup(type(b), "__index__") is not UNSET or b is None:
        return b
    raise TypeError("slice indices must be integers or None or have an __index__ method")


def position(k: Any) -> Any:
    """What CPython's own sequences are given as a subscript: an int, a slice of ints; `__index__` is interpreted, symbols are pinned."""
    t = type(k)
    if t is int:
        return k
    if t is slice:
        if type(k.start) in PLAIN_BOUNDS and type(k.stop) in PLAIN_BOUNDS and type(k.step) in PLAIN_BOUNDS:
            return k
        step, start, stop = [concrete(index(b)) if has_index(b) else plain_bound(b) for b in (k.step, k.start, k.stop)]
        return slice(start, stop, step)
    if not has_index(k):
        return k  # an error: CPython says so
    i = concrete(index(k))
    if not -sys.maxsize - 1 <= i <= sys.maxsize:
        raise IndexError(f"cannot fit {type_name(vm.type_of(k))!r} into an index-sized integer")
    return i


# -- torch functions ------------------------------------------------------------------------------------------------
SETTINGS: set[type] = {
    str, bytes, int, float, bool, complex, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout, torch.memory_format,
    torch.Size, torch.SymInt, torch.SymFloat, torch.SymBool, range, torch.qscheme,
}  # fmt: skip
"""Leaves of a call of torch that are guarded by value, or symbols."""
SEQUENCES = (list, tuple, torch.Size)


OTHER_NUMBERS: set[type] = set()
"""Types of numbers, NumPy's and what stands for them, with which a size makes one of theirs: a symbolic size would stay what it is."""


def of_another_arithmetic(a: Any, depth: int = 2) -> bool:
    t = type(a)
    return t in OTHER_NUMBERS or (t is tuple or t is list) and depth > 0 and any([of_another_arithmetic(x, depth - 1) for x in a])


OF_CONDITIONS = {
    *[f for n, f in vars(operator).items() if n in operator.__all__ and "item" not in n and n not in ("index", "concat", "iconcat")],
    torch.sym_not, torch.sym_ite, torch.where, torch.full, torch._check,
}  # fmt: skip
"""Functions for which a symbolic bool is a number, or a condition, like another: elsewhere a bool means something of its own."""


def to_graph(fn: Any, a: Any) -> Any:
    """What torch function `fn` is given for one argument. Raises Break for what the graph cannot hold."""
    t = type(a)
    if t in SETTINGS:
        return concrete(a) if t is torch.SymBool and fn not in OF_CONDITIONS or t is torch.SymInt and is_no_symint(a) else a
    row = ROWS.get(t)
    if row is not None and row.to_graph is not None:
        return row.to_graph(fn, a)
    world = vm.world
    if t in CONTAINERS or id(a) in world.by_copy or issubclass(t, (tuple, list, dict)):
        if t not in CONTAINERS and python_methods(t):
            raise Break("PL0011", f"{name_of(fn)} would call methods of a {t.__module__}.{t.__qualname__}", clean=True)
        shadows.read_deep(world, a)
        return members(fn, a)
    if t is slice:
        if type(a.start) in SETTINGS and type(a.stop) in SETTINGS and type(a.step) in SETTINGS:
            return a
        return slice(*[bound(fn, b) for b in (a.start, a.stop, a.step)])
    if row is not None and row.plain:
        return a
    if issubclass(t, torch.Tensor):
        raise Break("PL0011", f"a {t.__name__} is passed to {name_of(fn)}", clean=True)
    if t is torch.Generator:
        if a is OWN:
            return a
        raise Break("PL0011", f"{name_of(fn)} with a torch.Generator of a device, or as a positional argument", clean=True)
    if issubclass(t, (type, enum.Enum, FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)) or fixed(a):
        return a
    if t is types.MethodType or issubclass(t, (torch._ops.OpOverload, torch._ops.OpOverloadPacket, types.ModuleType)):
        return a
    if told_by_class(a):  # of the call
        world.has_subclasses = True
        world.tensor_likes.add(t)
        return a
    if issubclass(t, (int, float, str, bytes, complex)) and not python_methods(t):
        return a
    raise Break("PL0011", f"{name_of(fn)} would read a {t.__module__}.{t.__qualname__}", clean=True)


def is_no_symint(n: Any, listed: bool = False) -> bool:
    """Whether C++ code that asks for the value of this number would read another one: a `c10::SymInt` has no bits for it. Of one in a list,
    code that makes a tensor of that reads 32 bits."""
    hint = n.node.expr.hint if type(n.node) is SymNode else None
    return hint is not None and (hint <= -(2**62) or listed and not -(2**31) <= hint < 2**31)


def told_by_class(o: Any) -> bool:
    """Whether the class of an object that is no tensor has a `__torch_function__`, and that is what the object has, too."""
    t = type(o)
    if not t.__flags__ & HEAPTYPE or type(lookup(t, "__torch_function__")) not in (classmethod, staticmethod, FunctionType):
        return False
    return not told_by_itself(o)


def told_by_itself(o: Any) -> bool:
    """Whether an object that is no tensor has a `__torch_function__` of its own."""
    return type(o).__flags__ & HEAPTYPE != 0 and own_item(o, "__torch_function__", from_outside(o)) is not UNSET


def members(fn: Any, a: Any) -> Any:
    """A container for torch: itself if nothing in it has to be another object than it is."""
    if isinstance(a, dict):
        found = {k: to_graph(fn, v) for k, v in dict.items(a)}
        return a if all([found[k] is v for k, v in dict.items(a)]) else found
    if not isinstance(a, (list, tuple)):
        for x in a:
            to_graph(fn, x)
        return a
    items = [to_graph(fn, x) for x in (tuple if isinstance(a, tuple) else list).__iter__(a)]  # type: ignore[arg-type]
    items = [concrete(x) if type(x) is torch.SymInt and is_no_symint(x, listed=True) else x for x in items]
    if all([x is y for x, y in zip(items, a, strict=True)]):
        return a
    t = type(a)
    return items if isinstance(a, list) else tuple(items) if t is tuple else tuple.__new__(t, items)  # type: ignore[type-var]


def bound(fn: Any, b: Any) -> Any:
    """A bound of a slice, which torch asks for its index."""
    return b if b is None or type(b) in SETTINGS else index(b) if has_index(b) else to_graph(fn, b)


def python_methods(t: type) -> bool:
    """Whether a class derived from a number, a string or a container has methods of its own that C code would call."""
    return bool(t.__flags__ & HEAPTYPE) and any([type(lookup(t, n)) is FunctionType for n in CONVERSIONS])


CONVERSIONS = (
    "__index__", "__int__", "__float__", "__complex__", "__bool__", "__len__", "__iter__", "__getitem__", "__torch_function__",
)  # fmt: skip


# -- Python code that CPython runs ----------------------------------------------------------------------------------
def readable(a: Any, depth: int = 6) -> bool:
    """Whether all that any code could read of `a` is guarded: constants, classes, functions, and containers of these."""
    t = type(a)
    if t in CONTAINERS or id(a) in vm.world.by_copy:
        shadows.read_deep(vm.world, a)
        values = [*a.keys(), *a.values()] if isinstance(a, dict) else list(a)
        return depth > 0 and all([readable(x, depth - 1) for x in values])
    if t in ROWS:  # a generator is of another class, and so is a symbol, for code that asks; what may not be read of others, `to_c` refuses
        return t is not Generator and t not in SYM_TYPES and t is not itertools.count
    if t is FunctionType and id(a) in vm.world.own_functions:
        return False  # what is made of it belongs to this capture, and emitted code has to make it again
    kinds = (type, enum.Enum, FunctionType, types.BuiltinFunctionType, types.ModuleType)
    return issubclass(t, kinds) or fixed(a) or t in SETTINGS or t is object


def fixed(a: Any) -> bool:
    """Whether a value never changes, nor anything that it holds (`types/holders.py`)."""
    return type(a) in IMMUTABLE and id(a) not in vm.world.outside


__all__ = [
    "answered", "captured", "captured_call", "has_c_state", "in_c", "index", "name_of", "opaque", "ordered", "position", "readable",
    "through_c", "to_c", "to_graph",
]  # fmt: skip


NO_NUMBERS = {str, bytes, type(None), range, slice}
FLOATS = {float, complex, torch.SymFloat}
OF_BITS = {
    operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.iand, operator.ior, operator.ixor,
    operator.ilshift, operator.irshift,
}  # fmt: skip


def no_operator(fn: Any, ta: type, tb: type) -> bool:
    """Whether numbers of these types have no such operator, though what stands for one of them may."""
    return fn in OF_BITS and not FLOATS.isdisjoint((ta, tb)) or fn in (operator.pow, operator.ipow) and not NO_NUMBERS.isdisjoint((ta, tb))
