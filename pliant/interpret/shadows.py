"""Shadows: an outside container is copied on first touch, read item by item, and what was written is found by comparing both.

`effects.py` makes effects of the difference. A `Shadow` also knows what the program relied on: items that were located, keys, lengths,
names that lack.
"""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant import native
from pliant.graph.symnode import concrete, to_sym
from pliant.graph.traced import KEYS, TracedTensor, held_in
from pliant.guards.guard import Guard
from pliant.guards.source import Source
from pliant.interpret import set_order
from pliant.interpret.capture import UNSET
from pliant.interpret.immutable import IMMUTABLE, TYPE_PARAMETERS, dict_of, hides_its_dict
from pliant.interpret.state import Break, changed, vm
from pliant.native import made_in_python

if TYPE_CHECKING:
    from pliant.interpret.world import World

GENERIC_GETATTR = object.__getattribute__
FACTORY = collections.defaultdict.__dict__["default_factory"]
HELD_DICT = (types.GetSetDescriptorType, types.MemberDescriptorType)  # what a class has under `__dict__` that says nothing about it
WRITTEN = type("Written", (), {"__repr__": lambda self: "WRITTEN"})()
C_FIELDS = {collections.defaultdict: ("default_factory",), collections.deque: ("maxlen",)}
DICTS = (dict, collections.OrderedDict)
NUMBERS = {bool, int, float}
NUMBERS_TENSOR = "numbers_tensor"  # what `guards.views` makes of a list of them; `World.reads` holds the input
CONTAINERS = {list, dict, set, collections.OrderedDict, collections.deque, collections.defaultdict, collections.Counter, tuple}
CONSTANT_TYPES = {str, bytes, bool, type(None), complex, type(Ellipsis), type(NotImplemented), int, float, torch.dtype, torch.device}


class Shadow:
    """An outside container and the copy of it that the program sees. `located`: keys (indexes) whose values went through `locate`."""

    __slots__ = ("all", "copy", "keys_known", "lacks", "lacks_here", "late", "located", "orig", "owner", "source")

    def __init__(self, orig: Any, copy: Any, source: Source, owner: Any) -> None:
        self.orig = orig
        self.copy = copy
        self.source = source
        self.owner = owner  # the instance whose `__dict__` this is, or None
        self.located: dict = {}  # key or index -> the proxy put there; WRITTEN once the program stored over it
        self.all = False
        self.keys_known = False
        self.late = False  # emitted code reads items of it (`late_items.py`)
        self.lacks: dict[str, Any] = {}  # names that the program relied on to lack here, or to be empty dicts
        self.lacks_here: Guard | None = None  # the DICT_LACKS of the latest instruction that relied on some


def registered(world: World, h: Shadow) -> Shadow:
    v = h.orig
    world.shadows[id(v)] = world.by_copy[id(h.copy)] = h
    world.outside[id(v)] = v
    world.sources[id(v)] = h.source
    world.made.append(h)
    return h


def shadow(world: World, v: Any, source: Source, owner: Any = None) -> Shadow:
    copy = native.set_clone(v) if type(v) is set else v.copy() if owner is None else dict(v)
    h = registered(world, Shadow(v, copy, source, owner))
    if owner is None:
        world.guard(source, "TYPE_MATCH", type(v))
        for name in C_FIELDS.get(type(v), ()):  # type: ignore[call-overload]
            world.locate(getattr(v, name), source.attr(name))
        if type(v) is collections.OrderedDict:  # unlike the others, it takes attributes
            attributes(world, h)
        elif type(v) is collections.defaultdict:
            copy.default_factory = world.locate(v.default_factory, source.attr("default_factory"))  # type: ignore[union-attr]
        elif type(v) is collections.deque:
            world.guard(source.attr("maxlen"), "EQ_MATCH", v.maxlen)
    return h


def attributes(world: World, h: Shadow) -> None:
    """The attributes of a shadowed container, and that there are no others."""
    d = getattr(h.orig, "__dict__", None)
    if d is None:
        return
    source = h.source.dict()
    world.guard(source, "DICT_KEYS", list(d))
    for k, x in d.items():
        h.copy.__dict__[k] = world.locate(x, source.key(k))


def made_plainly(t: type) -> Any:
    """The `__new__` of C below those of Python: what makes an instance of `t` without running the program's code."""
    return next(b.__dict__["__new__"] for b in t.__mro__ if "__new__" in b.__dict__ and not made_in_python(b))


def shadow_subclass(world: World, v: Any, source: Source) -> Shadow:
    t = type(v)
    base = collections.OrderedDict if issubclass(t, collections.OrderedDict) else base_of(v)
    copy = made_plainly(t)(t)
    if issubclass(t, collections.defaultdict):  # past the `__getattribute__` and `__setattr__` of the class
        FACTORY.__set__(copy, world.locate(FACTORY.__get__(v, t), source.attr("default_factory")))
    if base is list:
        list.extend(copy, list.__iter__(v))
    elif base is set:
        set_order.become(copy, set_order.members(v), set_order.table_of(v))
    else:  # what is stored: `update` would ask the class's own `__getitem__` and `__iter__`
        for k, x in base.items(v):  # type: ignore[union-attr]
            base.__setitem__(copy, k, x)
    h = registered(world, Shadow(v, copy, source, None))
    world.guard(source, "TYPE_MATCH", t)
    if base is set:
        world.guard(source.apply("frozen"), "SET_EQUALS", frozenset(set_order.members(v)))
        h.all = True
    attributes(world, h)
    return h


def in_order(d: collections.OrderedDict) -> bool:
    """Whether an OrderedDict holds what it lists. Where methods of `dict` have changed it behind its back, no copy is like it."""
    try:
        listed = list(collections.OrderedDict.__iter__(d))
    except KeyError:
        return False
    return len(listed) == dict.__len__(d) and {*map(id, listed)} == {*map(id, dict.__iter__(d))}


def says_its_own_dict(t: type) -> bool:
    """Whether the class answers `__dict__` itself (a property): where its attributes are then nobody tells."""
    return next((type(b.__dict__["__dict__"]) not in HELD_DICT for b in t.__mro__ if "__dict__" in b.__dict__), False)


def no_dict(obj: Any, outside: bool) -> dict | None:
    """There is no `obj.__dict__`. Raises Break where it has attributes all the same, and may get others."""
    t = type(obj)
    if not hides_its_dict(t):
        return None
    if outside or t not in IMMUTABLE and t not in TYPE_PARAMETERS:
        raise Break("PL0007", f"attributes of a {t.__qualname__}, which shows nobody its `__dict__`")
    return dict_of(obj)


def instance_dict(world: World, obj: Any) -> Shadow | None:
    """The shadow of an outside instance's `__dict__` (None: it has none)."""
    if says_its_own_dict(type(obj)):
        raise Break("PL0007", f"attributes of a {type(obj).__qualname__}, whose class has a `__dict__` of its own")
    try:
        d = GENERIC_GETATTR(obj, "__dict__")  # whatever the class's own `__getattribute__` would do
    except AttributeError:
        return no_dict(obj, True)  # type: ignore[return-value]
    h = world.shadows.get(id(d))
    if h is None:
        if type(d) is not dict:
            return None
        return shadow(world, d, world.sources[id(obj)].dict(), obj)
    source = world.sources[id(obj)].dict()
    if h.source is not source:  # it was met as a dict before
        world.guard(source, "ALIAS", h.source)
    return h


def base_of(c: Any) -> Any:
    """The C type of a container, which knows what it holds whatever its class says (nor is it asked: `isinstance` may do that)."""
    for t in (dict, list, set, frozenset, collections.deque):
        if issubclass(type(c), t):
            return t
    raise TypeError(type(c))


def has(d: Any, k: Any) -> bool:
    """Whether a dict holds a key, whatever its class makes of that question."""
    return dict.__contains__(d, k)


def size(c: Any) -> int:
    """How many items a container holds, whatever its class makes of its length."""
    return base_of(c).__len__(c)


def stored_again(world: World, h: Shadow, k: Any) -> None:
    """The program is about to store key `k` of a dict: where it has taken that away before, it goes behind all others."""
    if has(h.orig, k) and not has(h.copy, k):
        length(world, h)


def stored_anew(world: World, h: Shadow, k: Any) -> None:
    """The program is about to store a key that a dict does not have by now."""
    absent(world, h, k)
    stored_again(world, h, k)


def writes_to(h: Shadow, k: Any, located: Any) -> None:
    """The program is about to store item `k`, there by now or not; `located`: what was there of `h.located`."""
    if vm.journal is not None:
        there = has(h.copy, k) if issubclass(type(h.copy), dict) else True
        vm.journal.append((h, k, stored(h.copy)[k] if there else UNSET, located))
    h.located[k] = WRITTEN


def unwrite(h: Shadow, k: Any, before: Any, located: Any) -> None:
    """Undo one store of the journal."""
    base: Any = dict if issubclass(type(h.copy), dict) else list
    if before is UNSET:
        base.__delitem__(h.copy, k)
    else:
        base.__setitem__(h.copy, k, before)
    if located is UNSET:
        h.located.pop(k, None)
    else:
        h.located[k] = located


# -- dicts ------------------------------------------------------------------------------------------------------------
def item(world: World, h: Shadow, k: Any) -> Any:
    """Read one key of a dict through its shadow."""
    v = dict.__getitem__(h.copy, k)  # subclasses may say otherwise; a shadow is the plain content
    if world.log is not None:
        return logged(world, ITEM, h, k, v)
    if k not in h.located and dict.__contains__(h.orig, k):
        h.located[k] = WRITTEN
        w = h.located[k] = world.locate(v, under(world, h, k))
        if w is not v:
            dict.__setitem__(h.copy, k, w)
            return w
    return v


def under(world: World, h: Shadow, k: Any) -> Source:
    """Where the guards find what a dict holds under a key."""
    late = world.late_keys.get(id(k)) if world.late_keys else None
    return h.source.key(k) if late is None else h.source.item(late)


def logged(world: World, how: str, h: Shadow, k: Any, v: Any) -> Any:
    """`item` or `index` while a block is recorded (`blocks.py`)."""
    log, world.log = world.log, None
    began = len(world.guards)
    try:
        r = (item if how is ITEM else index)(world, h, k)
    finally:
        world.log = log
    log.append((how, h, k, r, site_here(), began, len(world.guards)))  # type: ignore[union-attr]
    return r


def note(world: World, how: str, h: Shadow, k: Any, began: int) -> None:
    """Something else that was asked of a container, while a block is recorded; its guards are those from number `began` on."""
    world.log.append((how, h, k, None, site_here(), began, len(world.guards)))  # type: ignore[union-attr]


ITEM, INDEX, LACKS, PRESENT, ABSENT, LENGTH, ALL = "item", "index", "lacks", "present", "absent", "length", "all"
"""What the log of a block holds: (how, shadow, key, result, site, number of the first guard, number behind the last one)."""


def site_here() -> Any:
    f = vm.frame
    return f.decoded.site(f.pc - 1 if f.pc else 0) if f is not None else None


def present(world: World, h: Shadow, k: Any) -> None:
    began = len(world.guards)
    if dict.__contains__(h.orig, k):
        if id(k) in world.late_keys:
            world.guard(under(world, h, k), "NOT_ALIAS", ())  # of nothing: it can be read
        else:
            world.guard(h.source, "DICT_CONTAINS", (k, True), k)
    if world.log is not None:
        note(world, PRESENT, h, k, began)



def absent(world: World, h: Shadow, k: Any) -> None:
    """The program relied on `k` not being in this dict."""
    if not dict.__contains__(h.orig, k):
        if type(k) is str:
            lacking(world, h, k, None)
        else:
            began = len(world.guards)
            k = vm.stood_for_as_key(k, found=True)
            if id(k) in world.late_keys:
                world.guard(h.source, "DICT_LACKS_ITEM", world.late_keys[id(k)], world.late_keys[id(k)])
            elif type(k) is not TracedTensor:  # one that is made here
                world.guard(h.source, "DICT_CONTAINS", (k, False), k)
            if world.log is not None:
                note(world, ABSENT, h, k, began)


def lacking(world: World, h: Shadow, name: str, kind: type | None) -> None:
    """The program relied on `name` not being in this dict, or on an empty dict of this kind there: a guard for each instruction."""
    began = len(world.guards)
    if name not in h.lacks:
        lacking_all(world, h, {name: kind})
    if world.log is not None:
        note(world, LACKS, h, {name: kind}, began)


def lacking_all(world: World, h: Shadow, kinds: dict[str, Any]) -> None:
    """`lacking` of names that are new."""
    h.lacks.update(kinds)
    site = site_here()
    g = h.lacks_here
    if g is not None and g.site is site:
        g.value.update(kinds)
    else:
        h.lacks_here = world.guards[h.source, "DICT_LACKS", next(iter(kinds))] = Guard(h.source, "DICT_LACKS", kinds, site)


def lacks(world: World, h: Shadow, absent: tuple[str, ...], empty: tuple[str, ...]) -> bool:
    """`absent` of all of these and `is_empty` of all of those, or False, and nothing is recorded."""
    d, known = h.copy, h.lacks
    new: dict[str, Any] = {}
    for k in absent:
        if k in d:
            return False
        if k not in known and k not in h.orig:
            new[k] = None
    for k in empty:
        v = d.get(k)
        if type(v) not in DICTS or v or k in h.located or id(v) in world.shadows:
            return False
        if k in known:
            if world.glimpsed[id(h), k][0] is not v:
                return False
        elif id(v) in world.by_copy:
            return False
        else:
            new[k] = type(v)
    for k in empty:
        if k in new:
            world.glimpsed[id(h), k] = (d[k], h)
    began = len(world.guards)
    if new:
        lacking_all(world, h, new)
    if world.log is not None:
        note(world, LACKS, h, {k: h.lacks[k] for k in (*absent, *empty) if k in h.lacks}, began)
    return True


def is_empty(world: World, h: Shadow, k: Any) -> bool:
    """Whether the dict under `k` is empty and was not touched yet. Then its guard says enough, and it needs no shadow."""
    v = h.copy[k]
    if v or k in h.located or id(v) in world.shadows:
        return False
    seen = world.glimpsed.get((id(h), k))
    if seen is None:
        if type(v) not in DICTS or id(v) in world.by_copy:
            return False
        lacking(world, h, k, type(v))
        seen = world.glimpsed[id(h), k] = (v, h)
    elif world.log is not None:
        note(world, LACKS, h, {k: type(v)}, len(world.guards))
    return seen[0] is v


# -- items, lengths, everything ----------------------------------------------------------------------------------------
def index(world: World, h: Shadow, i: int) -> Any:
    """Read one index of a list through its shadow."""
    v = list.__getitem__(h.copy, i)
    if world.log is not None:
        return logged(world, INDEX, h, i, v)
    n = list.__len__(h.orig)
    if i < 0:
        length(world, h)
        i += list.__len__(h.copy)
    if i >= n:  # what the program has appended: the place is by how many there were
        length(world, h)
    if i not in h.located and i < n and v is list.__getitem__(h.orig, i):
        w = h.located[i] = world.locate(v, h.source.index(i))
        if w is not v:
            list.__setitem__(h.copy, i, w)
            return w
    return v


def unchanged(h: Shadow, key: Any, now: Any, before: Any) -> bool:
    put = h.located.get(key, UNSET)
    if put is UNSET:
        return now is before
    return put is not WRITTEN and now is put


def stored_items(c: Any) -> Any:
    """What a list or deque stores: a subclass may have its own idea of its length and items."""
    return c if type(c) is list or not isinstance(c, list) else list(list.__iter__(c))


def as_it_was(h: Shadow) -> bool:
    """Whether the program sees a list as it was when the call began."""
    o, c = stored_items(h.orig), stored_items(h.copy)
    return len(o) == len(c) and all([unchanged(h, i, x, v) for i, (x, v) in enumerate(zip(c, o, strict=True))])


def filled(world: World, h: Shadow) -> None:
    """The program asks whether there are any items."""
    if type(h.orig) is list and h.orig and not h.keys_known and as_it_was(h):
        reaches(world, h, 0)
    else:
        length(world, h)


def reaches(world: World, h: Shadow, i: int) -> None:
    """The program relied on there being an item `i` in a list, whatever it is."""
    if h.keys_known or i in h.located:
        return
    if world.log is not None or i >= size(h.orig):
        length(world, h)
    else:
        world.guard(h.source.index(i), "NOT_ALIAS", ())  # of nothing: it can be read


def length(world: World, h: Shadow) -> None:
    """The program relied on how many items there are."""
    began = len(world.guards)
    count(world, h)
    if world.log is not None:
        note(world, LENGTH, h, None, began)


def count(world: World, h: Shadow) -> None:
    if not h.keys_known:
        if issubclass(type(h.orig), dict) and keyed_by_objects(h.orig):
            raise Break("PL0007", f"the keys of {h.source.name}, which are objects")  # and nothing is known of them behind it
        h.keys_known = True
        if issubclass(type(h.orig), dict):
            world.guard(h.source, "DICT_KEYS", list(stored(h.orig)))
        elif not issubclass(type(h.orig), (set, frozenset)):
            world.guard(h.source, "LENGTH", size(h.orig))


def keyed_by_objects(d: dict) -> bool:
    """Whether some key is what only its own methods tell from others, so that nobody guards which keys there are."""
    return any([type(k) not in CONSTANT_TYPES and not plain_key(k) for k in stored(d)])


def keys_found(h: Shadow) -> None:
    """Raises Break where the keys may no longer be where their `__hash__` says, so that nobody can tell afterwards what was written."""
    if KEYS in vm.refused and keyed_by_objects(h.orig):
        raise Break("PL0007", f"an item of {h.source.name}, whose keys are objects", clean=True)


def countable(h: Shadow) -> bool:
    """Whether the program knows no more of how many items there are than by how many they have become more or fewer."""
    return not h.keys_known and h.owner is None and type(h.orig) in (list, dict)


def counted(world: World, h: Shadow) -> bool:
    """Whether this is a list of numbers, and either an input of the graph (`number_lists.py`), or of another length the last time."""
    f, history = vm.frame, world.history
    if f is None or history is None or type(h.orig) is not list or not {*map(type, h.orig)} <= NUMBERS:
        return False
    known = (h.source.apply(NUMBERS_TENSOR), NUMBERS_TENSOR) in world.reads
    return known or history.takes_whole(f.decoded.site(f.pc - 1 if f.pc else 0), False)


def changing_length(world: World, h: Shadow) -> Any:
    """How many items there are, as a symbolic number."""
    world.unusual()
    whole = world.reads.get((h.source.apply(NUMBERS_TENSOR), NUMBERS_TENSOR))
    if whole is not None:
        return whole.sizes[0] + (len(h.copy) - len(h.orig))
    source = h.source.length()
    before = world.reads.get((source, "int"), UNSET)
    if before is UNSET:
        name = world.new_symbol(source)
        before = world.reads[(source, "int")] = to_sym(world.scope, world.scope.backed(name, hint=len(h.orig), lo=0, source=source))
    return before + (len(h.copy) - len(h.orig))


MUTABLE = (list, dict, set, bytearray, collections.deque)
DEEP = 4  # how far into containers of containers


def hashed_by(value: Any, what: Any = None, name: str = "") -> None:
    """A `__hash__` that C code asks for a container has read attribute `name` of an object, a cell or a global, and found this value."""
    known = vm.world.hashed_by
    known[id(what), name] = what
    if name and type(what) is not dict:  # or by way of its `__dict__`, or what its class has
        try:
            h = instance_dict(vm.world, what) if id(what) in vm.world.outside else None
            written = h is not None and h.located.get(name) is WRITTEN or (id(what), name) in vm.world.tensor_writes
            if written and vm.asking:  # C asks the object as it is, where it is not written yet
                changed()
            d = GENERIC_GETATTR(what, "__dict__") if h is None else h.copy
        except AttributeError:  # it has slots
            d = None
        known[id(d), ""] = d
        known.update({(id(c), name): c for c in type(what).__mro__})
    found = [value]
    for _ in range(DEEP):
        known.update({(id(v), ""): v for v in found if issubclass(type(v), MUTABLE)})
        kinds = [(v, type(v)) for v in found]  # `isinstance` believes a `__class__`
        found = [x for v, t in kinds if issubclass(t, (list, tuple, dict)) for x in (dict.values(v) if issubclass(t, dict) else held_in(v))]


def read_all(world: World, c: Any) -> None:
    """The program (or C code) may read anything in container `c`: locate every item."""
    h = world.by_copy.get(id(c))
    if h is None:
        if id(c) in world.outside and issubclass(type(c), (dict, list, collections.deque)):  # nothing of it is guarded but its class
            raise Break("PL0007", f"the items of a {type(c).__module__}.{type(c).__qualname__} would be read")
        return
    if world.log is not None:
        log, world.log = world.log, None
        began = len(world.guards)
        try:
            read_all(world, c)
        finally:
            world.log = log
        return note(world, ALL, h, None, began)
    if h.all:
        return
    length(world, h)
    h.all = True
    if issubclass(type(c), dict):
        for k in list(stored(h.orig)):
            if dict.__contains__(c, k) and k not in h.located:
                item(world, h, k)
    elif issubclass(type(c), list):
        for i in range(min(list.__len__(h.orig), list.__len__(c))):
            if i not in h.located:
                index(world, h, i)
    elif issubclass(type(c), collections.deque):
        for i, v in enumerate(h.orig):
            if i not in h.located:
                w = h.located[i] = world.locate(v, h.source.index(i))
                if w is not v:
                    c[i] = w


def read_deep(world: World, c: Any, asked: Callable | None = None, seen: set | None = None) -> None:
    """`all`, and whatever containers are inside: C code may walk them. `asked`: called with what is in them and is no container."""
    if not walked_by_c(world, c):
        if asked is not None and seen is not None:
            asked(c)
        return
    if seen is None:
        seen = set()
    if id(c) in seen:
        return
    seen.add(id(c))
    if id(c) in world.by_copy:
        read_all(world, c)
    elif issubclass(type(c), tuple) and world.outside.get(id(c)) is c:
        pin_items(world, c)
    is_dict = issubclass(type(c), dict)
    for x in (c.start, c.stop, c.step) if type(c) is slice else stored(c).values() if is_dict else held_in(c):
        read_deep(world, x, asked, seen)
    if is_dict and asked is not None:
        for k in stored(c):
            read_deep(world, k, asked, seen)


def pin_items(world: World, c: Any) -> None:
    """All that a tuple from outside holds that stands for itself, since no copy of it can be made."""
    source, held = world.sources[id(c)], tuple.__getitem__(c, slice(None))  # whatever its class makes of its items
    world.guard(source, "LENGTH", len(held))
    for i, x in enumerate(held):
        found = world.locate(x, source.index(i))
        if found is not x and (type(found) is not torch.SymInt or concrete(found) != x):
            raise Break("PL0007", f"C code would read a {type(c).__module__}.{type(c).__qualname__}", clean=True)


def walked_by_c(world: World, c: Any) -> bool:
    """Whether C code that is given `c` may walk it: a container, and a tuple of any class, whose items nobody need have read."""
    t = type(c)
    if id(c) in world.by_copy or issubclass(t, (tuple, slice)):
        return True
    return t in CONTAINERS and t is not set or issubclass(t, OTHERS) and id(c) not in world.outside


OTHERS = (list, dict, set, frozenset, collections.deque)


def stored(d: Any) -> Any:
    """What a dict holds: iterating and subscribing an instance of a subclass may run that class's own methods. A list as it is."""
    t = type(d)
    if t is list or t is dict or t is collections.OrderedDict:
        return d
    if next(c for c in t.__mro__ if "__iter__" in c.__dict__) is dict:
        return dict.copy(d)  # which asks no key for its hash again
    return dict((collections.OrderedDict if issubclass(type(d), collections.OrderedDict) else dict).items(d))


OF_C = (
    torch._ops.OperatorBase, torch._ops.OpOverloadPacket, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType,
)  # fmt: skip
"""The classes of `torch.ops.aten.sin`, of its overloads and of `torch.Tensor.sin`, each of which is equal to itself alone."""


def plain_key(k: Any) -> bool:
    """Keys that stand for themselves in a capture."""
    t = type(k)  # `isinstance` would ask an object for its class
    if issubclass(t, tuple):
        return all(type(x) in CONSTANT_TYPES or plain_key(x) for x in k)
    if t is types.BuiltinFunctionType:  # one of a module or a class: a bound one compares what it is bound to
        return k.__self__ is None or issubclass(type(k.__self__), (types.ModuleType, type))
    return issubclass(t, (type, types.FunctionType, enum.Enum, types.ModuleType, *OF_C)) or t in IMMUTABLE
