"""What objects, classes and the library keep, changed between calls: caches, registries, imports, enumerations, descriptors, attributes."""

from __future__ import annotations

import abc
import builtins
import collections
import contextlib
import copyreg
import dataclasses
import enum
import functools
import importlib.machinery
import importlib.util
import inspect
import numbers
import operator
import sys
import types
import typing
import weakref

import pytest
import torch
from torch import nn

from tests.programs import worlds
from tests.programs.worlds import MISSING, attribute, item, values, world

# -- functions with a cache -------------------------------------------------------------------------------------------------
LEVEL = 1


def level(n):
    globals()["LEVEL"] = n


def read_level(x):
    return LEVEL * x


@world
def cache_cleared_over_a_global():
    @functools.lru_cache
    def cached(n):
        return n * LEVEL

    def put(n):
        level(n)
        cached.cache_clear()

    return lambda x: x + cached(3), *values(put, 1, 2, 5)


@world
def cache_kept_over_a_global():
    @functools.cache
    def cached(n):
        return n * LEVEL

    return lambda x: x + cached(x.shape[0]), *values(level, 1, 2, 5)


@world
def cache_without_arguments():
    @functools.cache
    def cached():
        return LEVEL

    def put(n):
        level(n)
        cached.cache_clear()

    return lambda x: x + cached(), *values(put, 1, 2)


@world
def cache_of_a_container():
    @functools.cache
    def cached():
        return [LEVEL]

    def put(n):
        cached()[0] = n

    return lambda x: x + cached()[0], *values(put, 1, 2)


@world
def cache_information():
    @functools.lru_cache(maxsize=2)
    def cached(n):
        return n + 1

    def f(x):
        y = x + cached(1) + cached(2)
        return y, cached.cache_info()[1:]  # how many hits it counted is not kept up

    return f, cached.cache_clear, worlds.same


@world
def cache_that_is_full():
    @functools.lru_cache(maxsize=1)
    def cached(n):
        return n * LEVEL

    def put(n):
        level(n)
        cached(9)

    return lambda x: x + cached(1), *values(put, 1, 2)


@world
def cache_that_counts_its_calls():
    calls = []

    @functools.cache
    def cached(n):
        calls.append(n)
        return n

    def f(x):
        return x + cached(2), len(calls)

    return f, cached.cache_clear, worlds.same


@world
def cache_of_a_method():
    class Thing:
        def __init__(self):
            self.n = 1

        @functools.lru_cache
        def cached(self, k):
            return self.n + k

    o = Thing()

    def put(n):
        o.n = n
        Thing.cached.cache_clear()

    return lambda x: x + o.cached(1), *values(put, 1, 2)


@world
def cache_with_a_symbolic_argument():
    @functools.lru_cache
    def cached(n):
        return n * LEVEL

    def put(n):
        level(n)
        cached.cache_clear()

    return lambda x: x + cached(x.shape[0]), *values(put, 1, 2)


@world
def cache_that_does_not_take_a_list():
    @functools.lru_cache
    def cached(n):
        return 1

    def f(x):
        try:
            return x + cached([1])
        except TypeError:
            return x * 3

    return f, worlds.same, cached.cache_clear


@world
def cache_told_apart_by_type():
    @functools.lru_cache(typed=True)
    def cached(n):
        return type(n).__name__

    return lambda x: (x, cached(1), cached(1.0), cached(True)), worlds.same, cached.cache_clear


@world
def cache_of_a_tensor_function():
    @functools.lru_cache
    def table(n):
        return torch.arange(n) * LEVEL

    def put(n):
        level(n)
        table.cache_clear()

    return lambda x: x + table(1), *values(put, 1, 2)


@world
def cached_property():
    class Thing:
        n = 1

        @functools.cached_property
        def value(self):
            return self.n * 2

    o = Thing()

    def put(n):
        o.n = n
        o.__dict__.pop("value", None)

    return lambda x: x + o.value, *values(put, 1, 2)


@world
def cached_property_kept():
    class Thing:
        n = 1

        @functools.cached_property
        def value(self):
            return self.n * 2

    o = Thing()
    return lambda x: x + o.value, *attribute(o, "n", 5)


@world
def cached_property_overwritten():
    class Thing:
        @functools.cached_property
        def value(self):
            return 2

    o = Thing()
    return lambda x: x + o.value, *values(lambda n: o.__dict__.__setitem__("value", n), 2, 7)


@world
def single_dispatch():
    @functools.singledispatch
    def kind(v):
        return 1

    def put(n):
        kind.register(float, (lambda v: n) if n else kind.registry[object])

    return lambda x: x + kind(2.5) + kind("a"), *values(put, 0, 5)


@world
def single_dispatch_over_an_abstract_class():
    class Shape(abc.ABC):
        pass

    class Square:
        pass

    @functools.singledispatch
    def kind(v):
        return 1

    kind.register(Shape, lambda v: 5)
    o = Square()
    return lambda x: x + kind(o), worlds.same, lambda: Shape.register(Square)


@world
def single_dispatch_of_methods():
    class Thing:
        @functools.singledispatchmethod
        def kind(self, v):
            return 1

    o = Thing()
    Thing.__dict__["kind"].register(str, lambda self, v: 2)

    def put(n):
        Thing.__dict__["kind"].register(float, lambda self, v: n)

    return lambda x: x + o.kind(2.5), *values(put, 1, 7)


# -- imports --------------------------------------------------------------------------------------------------------------------
def module(name, **content):
    m = types.ModuleType(name)
    m.__dict__.update(content)
    return m


@world
def import_of_a_module():
    def f(x):
        import pliant_world_a

        return x + pliant_world_a.n

    return f, *values(lambda m: sys.modules.__setitem__("pliant_world_a", m), module("pliant_world_a", n=1), module("pliant_world_a", n=2))


@world
def import_of_a_module_that_may_be_missing():
    def f(x):
        try:
            import pliant_world_b
        except ImportError:
            return x - 1
        return x + pliant_world_b.n

    return f, *item(sys.modules, "pliant_world_b", module("pliant_world_b", n=1), None)


@world
def import_from_a_module():
    def f(x):
        from pliant_world_c import n

        return x + n

    def put(n):
        sys.modules.setdefault("pliant_world_c", module("pliant_world_c")).n = n

    return f, *values(put, 1, 2, 3)


@world
def import_from_a_module_what_may_be_missing():
    def f(x):
        try:
            from pliant_world_d import n
        except ImportError:
            n = 9
        return x + n

    m = sys.modules.setdefault("pliant_world_d", module("pliant_world_d"))
    return f, *attribute(m, "n", 2)


@world
def import_from_another_module():
    def f(x):
        from pliant_world_e import n as k

        return x + k

    return f, *values(lambda m: sys.modules.__setitem__("pliant_world_e", m), module("pliant_world_e", n=1), module("pliant_world_e", n=2))


@world
def import_of_a_submodule():
    def f(x):
        import pliant_world_f.inner

        return x + pliant_world_f.inner.n

    def put(n):
        inner = sys.modules["pliant_world_f.inner"] = module("pliant_world_f.inner", n=n)
        sys.modules["pliant_world_f"] = module("pliant_world_f", inner=inner, __path__=[])

    return f, *values(put, 1, 2)


@world
def import_of_a_submodule_by_another_name():
    def f(x):
        import pliant_world_g.inner as g

        return x + g.n

    def put(n):
        inner = sys.modules["pliant_world_g.inner"] = module("pliant_world_g.inner", n=n)
        sys.modules["pliant_world_g"] = module("pliant_world_g", inner=inner, __path__=[])

    return f, *values(put, 1, 2)


@world
def import_from_a_package_of_a_submodule():
    def f(x):
        from pliant_world_h import inner

        return x + inner.n

    def put(n):
        sys.modules["pliant_world_h.inner"] = module("pliant_world_h.inner", n=n)
        sys.modules["pliant_world_h"] = module("pliant_world_h", __path__=[])

    return f, *values(put, 1, 2)


@world
def import_by_the_name_of_the_package():
    space = {"__name__": "pliant_world_i.user", "__package__": "pliant_world_i", "__builtins__": builtins}
    exec("def f(x):\n    from .inner import n\n    return x + n\n", space)

    def put(n):
        sys.modules["pliant_world_i"] = module("pliant_world_i", __path__=[])
        sys.modules["pliant_world_i.inner"] = module("pliant_world_i.inner", n=n)

    return space["f"], *values(put, 1, 2)


@world
def import_by_the_name_of_a_package_that_changes():
    space = {"__name__": "pliant_world_j.user", "__package__": "pliant_world_j", "__builtins__": builtins}
    exec("def f(x):\n    from . import n\n    return x + n\n", space)
    for k, name in enumerate(("pliant_world_j", "pliant_world_k")):
        sys.modules[name] = module(name, __path__=[], n=k)
    return space["f"], *values(lambda n: space.__setitem__("__package__", n), "pliant_world_j", "pliant_world_k")


@world
def import_function_replaced():
    first = builtins.__import__

    def other(name, *rest):
        return module(name, n=5) if name == "pliant_world_l" else first(name, *rest)

    sys.modules["pliant_world_l"] = module("pliant_world_l", n=1)

    def f(x):
        import pliant_world_l

        return x + pliant_world_l.n

    return f, *values(lambda fn: setattr(builtins, "__import__", fn), first, other)


@world
def import_by_the_library():
    def f(x):
        return x + __import__("importlib").import_module("pliant_world_m").n

    return f, *values(lambda m: sys.modules.__setitem__("pliant_world_m", m), module("pliant_world_m", n=1), module("pliant_world_m", n=2))


@world
def module_found_by_the_library():
    def f(x):
        return x * (2 if importlib.util.find_spec("pliant_world_n") is None else 3)

    m = module("pliant_world_n")
    m.__spec__ = importlib.machinery.ModuleSpec("pliant_world_n", None)
    return f, *item(sys.modules, "pliant_world_n", m)


@world
def module_with_a_getattr():
    m = module("pliant_world_o")
    return lambda x: x + m.late, *values(lambda fn: setattr(m, "__getattr__", fn), lambda name: 1, lambda name: 2)


@world
def module_with_a_getattr_and_state():
    m = module("pliant_world_p")
    state = {"n": 1}
    m.__getattr__ = lambda name: state["n"]
    return lambda x: x + m.late, *item(state, "n", 2)


@world
def module_of_a_class_of_its_own():
    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            return self.__dict__["n"] + 1

    m = Lazy("pliant_world_q")
    m.n = 1
    return lambda x: x + m.late, *attribute(m, "n", 5)


@world
def module_attribute_added():
    m = module("pliant_world_r")
    return lambda x: x + getattr(m, "n", 3), *attribute(m, "n", 1)


@world
def directory_of_a_module():
    m = module("pliant_world_s")
    return lambda x: x + len([n for n in dir(m) if n == "n"]), *attribute(m, "n", 1)


# -- abstract classes ------------------------------------------------------------------------------------------------------------
@world
def instance_of_an_abstract_class():
    class Shape(abc.ABC):
        pass

    class Square:
        pass

    o = Square()
    return lambda x: x * (2 if isinstance(o, Shape) else 3), worlds.same, lambda: Shape.register(Square)


@world
def subclass_of_an_abstract_class():
    class Shape(abc.ABC):
        pass

    class Square:
        pass

    return lambda x: x * (2 if issubclass(Square, Shape) else 3), worlds.same, lambda: Shape.register(Square)


@world
def instance_of_one_of_two():
    class Shape(abc.ABC):
        pass

    class Square:
        pass

    o = Square()
    return lambda x: x * (2 if isinstance(o, (int, Shape)) else 3), worlds.same, lambda: Shape.register(Square)


@world
def instance_of_a_number():
    class Mine:
        pass

    o = Mine()
    return lambda x: x * (2 if isinstance(o, numbers.Number) else 3), worlds.same, lambda: numbers.Number.register(Mine)


@world
def instance_of_a_collection():
    class Mine:
        pass

    o = Mine()
    return lambda x: x * (2 if isinstance(o, collections.abc.Sequence) else 3), worlds.same, lambda: collections.abc.Sequence.register(Mine)


@world
def instance_by_a_method():
    class Mine:
        pass

    o = Mine()
    return lambda x: x * (2 if isinstance(o, collections.abc.Sized) else 3), *attribute(Mine, "__len__", lambda self: 1)


@world
def instance_that_is_callable():
    class Mine:
        pass

    o = Mine()
    return lambda x: x * (2 if callable(o) else 3), *attribute(Mine, "__call__", lambda self: 1)


@world
def instance_that_is_hashable():
    class Mine:
        pass

    o = Mine()
    return lambda x: x * (2 if isinstance(o, collections.abc.Hashable) else 3), *attribute(Mine, "__hash__", None)


@world
def subclass_hook():
    class Shape(abc.ABC):
        answer = False

        @classmethod
        def __subclasshook__(cls, other):
            return cls.answer

    class Square:
        pass

    def put(v):
        Shape.answer = v
        numbers.Number.register(type("Fresh", (), {}))  # what abc remembers of other answers no longer counts

    return lambda x: x * (2 if issubclass(Square, Shape) else 3), *values(put, False, True)


@world
def instance_check_of_a_metaclass():
    class Meta(type):
        answer = True

        def __instancecheck__(cls, o):
            return cls.answer

    class Thing(metaclass=Meta):
        pass

    return lambda x: x * (2 if isinstance(3, Thing) else 3), *attribute(Meta, "answer", False)


@world
def subclass_check_of_a_metaclass():
    class Meta(type):
        answer = True

        def __subclasscheck__(cls, o):
            return cls.answer

    class Thing(metaclass=Meta):
        pass

    return lambda x: x * (2 if issubclass(int, Thing) else 3), *attribute(Meta, "answer", False)


@world
def protocol_of_methods():
    @typing.runtime_checkable
    class Sized(typing.Protocol):
        def size_of(self): ...

    class Mine:
        pass

    o = Mine()
    return lambda x: x * (2 if isinstance(o, Sized) else 3), *attribute(Mine, "size_of", lambda self: 1)


@world
def protocol_of_data():
    @typing.runtime_checkable
    class Named(typing.Protocol):
        name: str

    class Mine:
        pass

    o = Mine()
    return lambda x: x * (2 if isinstance(o, Named) else 3), *attribute(o, "name", "a")


@world
def class_of_an_object_by_property():
    class Mine:
        kind = int

        @property
        def __class__(self):
            return Mine.kind

    o = Mine()
    return lambda x: x * (2 if isinstance(o, str) else 3), *attribute(Mine, "kind", str)


@world
def bases_assigned():
    class A:
        n = 1

    class B:
        n = 2

    class C(A):
        pass

    o = C()
    return lambda x: x + o.n + C.n, *values(lambda b: setattr(C, "__bases__", b), (A,), (B,))


@world
def bases_assigned_for_a_method():
    class A:
        def m(self):
            return 1

    class B:
        def m(self):
            return 2

    class C(A):
        def k(self):
            return super().m()

    o = C()
    return lambda x: x + o.m() + o.k(), *values(lambda b: setattr(C, "__bases__", b), (A,), (B,))


@world
def subclass_after_bases_are_assigned():
    class A:
        pass

    class B:
        pass

    class C(A):
        pass

    o = C()
    return lambda x: x + isinstance(o, B) + issubclass(C, B), *values(lambda b: setattr(C, "__bases__", b), (A,), (B,))


@world
def order_of_methods_read():
    class A:
        pass

    class B:
        pass

    class C(A):
        pass

    return lambda x: (x, [c.__name__ for c in C.__mro__], [c.__name__ for c in C.__bases__], C.mro()[1].__name__), *values(
        lambda b: setattr(C, "__bases__", b), (A,), (B,))


@world
def subclasses_of_a_class():
    class A:
        pass

    kept = []

    def put(n):
        kept[:] = [type(f"S{i}", (A,), {}) for i in range(n)]
        import gc

        gc.collect()

    return lambda x: x + len(A.__subclasses__()), *values(put, 0, 2)


@world
def class_of_an_instance_assigned():
    class A:
        def m(self):
            return 1

    class B:
        def m(self):
            return 2

    o = A()
    return lambda x: x + o.m() + isinstance(o, B), *attribute_class(o, A, B)


def attribute_class(o, *classes):
    return values(lambda c: setattr(o, "__class__", c), *classes)


@world
def class_of_a_module_assigned():
    class A(nn.Module):
        def forward(self, x):
            return x + 1

    class B(nn.Module):
        def forward(self, x):
            return x + 2

    m = A()
    return lambda x: m(x), *attribute_class(m, A, B)


@world
def type_seen():
    class A:
        pass

    class B:
        pass

    o = A()
    return lambda x: (x, type(o).__name__, o.__class__.__name__), *attribute_class(o, A, B)


# -- enumerations ----------------------------------------------------------------------------------------------------------------
def colours():
    class Colour(enum.Enum):
        RED = 1
        BLUE = 2

    return Colour


@world
def value_of_a_member():
    C = colours()
    return lambda x: x + C.RED.value, *attribute(C.RED, "_value_", 7)


@world
def value_of_a_member_given():
    C = colours()
    member = C.BLUE
    return lambda x: x + member.value + member._value_, *attribute(member, "_value_", 7)


@world
def name_of_a_member():
    C = colours()
    return lambda x: (x, C.RED.name), *attribute(C.RED, "_name_", "OTHER")


@world
def text_of_a_member():
    C = colours()
    return lambda x: (x, str(C.RED), repr(C.RED), f"{C.RED}"), *attribute(C.RED, "_name_", "OTHER")


@world
def attribute_of_a_member():
    C = colours()
    C.RED.extra = 1
    return lambda x: x + C.RED.extra, *attribute(C.RED, "extra", 5)


@world
def attribute_of_a_type_variable():
    variable = typing.TypeVar("variable")
    variable.extra = 1
    return lambda x: (x + variable.extra, variable.__name__), *attribute(variable, "extra", 5)


@world
def attribute_of_an_annotation():
    kind = typing.Callable[[int], str]
    kind.extra = 1
    return lambda x: (x + kind.extra, kind.__args__), *attribute(kind, "extra", 5)


MEMBERS = {
    "a key": lambda C: (lambda d: lambda x: [x + k.value for k in d])({C.RED: 1}),
    "a key of items": lambda C: (lambda d: lambda x: [x + k.extra * v for k, v in d.items()])({C.RED: 2}),
    "in a key": lambda C: (lambda d: lambda x: [x + k.value for k, _ in d])({(C.RED, 3): 1}),
    "in a set": lambda C: (lambda s: lambda x: [(x + k.extra, k.name, str(k)) for k in s])({C.RED}),
    "in a frozenset": lambda C: (lambda s: lambda x: [x + k.value for k in s])(frozenset({C.RED})),
    "popped": lambda C: (lambda d: lambda x: x + dict(d).popitem()[0].value)({C.RED: 1}),
}


def member_held(how, name, value):
    def made():
        C = colours()
        C.RED.extra = 1
        return MEMBERS[how](C), *attribute(C.RED, name, value)

    made.__qualname__ = f"member {how}: {name}"
    return world(made)


for _how in MEMBERS:
    for _name, _value in (("_value_", 7), ("_name_", "OTHER"), ("extra", 5)):
        member_held(_how, _name, _value)


@world
def attribute_of_a_member_added():
    C = colours()
    return lambda x: x + getattr(C.RED, "extra", 3), *attribute(C.RED, "extra", 5)


@world
def method_of_an_enumeration():
    class Colour(enum.Enum):
        RED = 1

        def twice(self):
            return self.value * 2

    return lambda x: x + Colour.RED.twice(), *attribute(Colour, "twice", lambda self: 9)


@world
def property_of_an_enumeration():
    class Colour(enum.Enum):
        RED = 1

        @property
        def twice(self):
            return self.value * 2

    return lambda x: x + Colour.RED.twice, *attribute(Colour, "twice", property(lambda self: 9))


@world
def member_by_value():
    C = colours()
    return lambda x: (x, C(1).name, C["BLUE"].value), *attribute(C.BLUE, "_value_", 8)


@world
def member_by_a_value_that_comes():
    C = colours()

    def f(x):
        try:
            return x, C(5).name
        except ValueError:
            return x, None

    return f, *item(C._value2member_map_, 5, C.RED, C.BLUE)


@world
def members_walked():
    C = colours()
    return lambda x: (x, [m.name for m in C], len(C), [m.value for m in C.__members__.values()]), *attribute(C.BLUE, "_value_", 8)


@world
def members_added():
    C = colours()
    extra = object.__new__(C)
    extra._value_, extra._name_, extra._sort_order_ = 5, "GREEN", 3

    def put(on):
        C._member_map_.pop("GREEN", None)
        while "GREEN" in C._member_names_:
            C._member_names_.remove("GREEN")
        if on:
            C._member_map_["GREEN"] = extra
            C._member_names_.append("GREEN")

    return lambda x: (x, [m.name for m in C], "GREEN" in C.__members__, len(C)), *values(put, False, True)


@world
def class_attribute_of_an_enumeration():
    C = colours()
    type.__setattr__(C, "extra", 3)

    def put(n):
        type.__setattr__(C, "extra", n)

    return lambda x: x + C.extra, *values(put, 3, 4)


@world
def flags():
    class Flag(enum.Flag):
        A = 1
        B = 2

    return lambda x: x + (Flag.A | Flag.B).value + (Flag.A in (Flag.A | Flag.B)), *attribute(Flag.B, "_value_", 4)


@world
def whole_flags():
    class Flag(enum.IntFlag):
        A = 1
        B = 2

    return lambda x: x + Flag.A.value + Flag.B, *attribute(Flag.A, "_value_", 4)


@world
def missing_members():
    class Colour(enum.Enum):
        RED = 1

        @classmethod
        def _missing_(cls, value):
            return cls.RED

    def put(fn):
        type.__setattr__(Colour, "_missing_", fn)

    def f(x):
        try:
            return x, Colour(77).name
        except ValueError:
            return x, None

    return f, *values(put, Colour.__dict__["_missing_"], classmethod(lambda cls, v: None))


# -- containers ------------------------------------------------------------------------------------------------------------------
@world
def factory_of_a_defaultdict():
    d = collections.defaultdict(lambda: 1)

    def f(x):
        y = x + d["a"]
        d.pop("a")
        return y

    return f, *attribute(d, "default_factory", lambda: 2, None)


@world
def factory_of_a_defaultdict_read():
    d = collections.defaultdict(int)
    return lambda x: (x, d.default_factory is int), *attribute(d, "default_factory", list, None)


@world
def factory_of_a_defaultdict_passed():
    box = {"d": collections.defaultdict(list)}

    def f(x):
        d = box["d"]
        d["a"].append(x.shape[0]) if d.default_factory is list else d.__setitem__("a", 1)
        return x, dict(d)

    def put(fn):
        box["d"] = collections.defaultdict(fn)

    return f, *values(put, list, int)


@world
def length_of_a_deque():
    box = {}

    def put(n):
        box["d"] = collections.deque([1, 2, 3], n)

    def f(x):
        d = box["d"]
        d.append(4)
        return x + len(d) + d[0], d.maxlen

    return f, *values(put, None, 3)


@world
def maps_of_a_chain():
    chain = collections.ChainMap({"a": 1})
    return lambda x: x + chain["a"], *attribute(chain, "maps", [{"a": 2}], [{"b": 1}, {"a": 3}])


@world
def a_mapping_proxy():
    d = {"a": 1}
    p = types.MappingProxyType(d)
    return lambda x: x + p["a"] + len(p), *item(d, "a", 2), lambda: d.update(b=1)


@world
def a_view_of_a_dict():
    d = {"a": 1}
    view = d.values()
    return lambda x: x + sum(view), *item(d, "a", 2)


@world
def an_iterator():
    items = [1, 2, 3]
    box = {}

    def put(n):
        box["it"] = iter(items[n:])

    return lambda x: x + next(box["it"]), *values(put, 0, 1)


@world
def a_simple_namespace():
    n = types.SimpleNamespace(a=1)
    return lambda x: x + n.a, *attribute(n, "a", 2)


@world
def a_partial():
    p = functools.partial(operator.add, 1)
    return lambda x: p(x), *values(p.__setstate__, (operator.add, (1,), {}, {}), (operator.mul, (3,), {}, {}))


@world
def keywords_of_a_partial():
    p = functools.partial(lambda x, k: x + k, k=1)
    return lambda x: p(x), *item(p.keywords, "k", 5)


@world
def a_weak_reference():
    class Thing:
        n = 1

    box = {"o": Thing()}
    ref = weakref.ref(box["o"])
    return lambda x: x * (2 if ref() is None else 3), worlds.same, box.clear


# -- descriptors and attributes -----------------------------------------------------------------------------------------------------
@world
def descriptor_with_state():
    class D:
        def __init__(self):
            self.n = 1

        def __get__(self, o, t=None):
            return self.n

    class Thing:
        d = D()

    o = Thing()
    return lambda x: x + o.d, *attribute(Thing.__dict__["d"], "n", 5)


@world
def descriptor_on_the_class():
    class D:
        def __init__(self):
            self.n = 1

        def __get__(self, o, t=None):
            return self.n

    class Thing:
        d = D()

    return lambda x: x + Thing.d, *attribute(Thing.__dict__["d"], "n", 5)


@world
def descriptor_that_sets():
    class D:
        def __init__(self):
            self.n = 1

        def __get__(self, o, t=None):
            return self.n + o.k

        def __set__(self, o, v):
            o.k = v

    class Thing:
        d = D()

        def __init__(self):
            self.k = 1

    o = Thing()
    return lambda x: x + o.d, *attribute(Thing.__dict__["d"], "n", 5)


@world
def descriptor_with_a_mode_in_a_list():
    class D:
        def __init__(self):
            self.items = [1]

        def __get__(self, o, t=None):
            return len(self.items)

    class Thing:
        d = D()

    o = Thing()
    return lambda x: x + o.d, *attribute(Thing.__dict__["d"], "items", [1, 2])


@world
def subclass_of_property():
    class P(property):
        n = 1

        def __get__(self, o, t=None):
            return super().__get__(o, t) + self.n

    class Thing:
        @P
        def d(self):
            return 1

    o = Thing()
    return lambda x: x + o.d, *attribute(P, "n", 5)


@world
def subclass_of_property_with_state():
    class P(property):
        pass

    class Thing:
        k = 1

        @P
        def d(self):
            return self.k

    o = Thing()
    return lambda x: x + o.d, *attribute(Thing, "k", 5)


@world
def property_replaced():
    class Thing:
        d = property(lambda self: 1)

    o = Thing()
    return lambda x: x + o.d, *attribute(Thing, "d", property(lambda self: 2), 7)


@world
def property_becomes_an_attribute():
    class Thing:
        pass

    o = Thing()
    o.d = 3
    return lambda x: x + o.d, *attribute(Thing, "d", property(lambda self: 2))


@world
def partial_method():
    class Thing:
        def m(self, k):
            return k

        one = functools.partialmethod(m, 1)

    o = Thing()
    return lambda x: x + o.one(), *attribute(Thing, "one", functools.partialmethod(Thing.m, 5))


@world
def partial_method_changed():
    class Thing:
        def m(self, k):
            return k

        one = functools.partialmethod(m, 1)

    o = Thing()
    return lambda x: x + o.one(), *attribute(Thing.__dict__["one"], "args", (5,))


@world
def slots():
    class Thing:
        __slots__ = ("n",)

    o = Thing()
    o.n = 1
    return lambda x: x + o.n, *attribute(o, "n", 5)


@world
def slots_that_may_be_empty():
    class Thing:
        __slots__ = ("n",)

    o = Thing()

    def put(n):
        if n is not None:
            o.n = n
        elif hasattr(o, "n"):
            del o.n

    return lambda x: x + getattr(o, "n", 3), *values(put, None, 5)


@world
def class_attribute():
    class Thing:
        n = 1

    return lambda x: x + Thing.n, *attribute(Thing, "n", 2, 3)


@world
def class_attribute_through_an_instance():
    class Thing:
        n = 1

    o = Thing()
    return lambda x: x + o.n, *attribute(Thing, "n", 2, 3)


@world
def class_attribute_shadowed_by_an_instance():
    class Thing:
        n = 1

    o = Thing()
    return lambda x: x + o.n, *attribute(o, "n", 2)[1:], lambda: o.__dict__.clear(), lambda: o.__dict__.update(n=4)


@world
def class_attribute_shadowed_by_a_subclass():
    class Base:
        n = 1

    class Thing(Base):
        pass

    o = Thing()
    return lambda x: x + o.n + Thing.n, *attribute(Thing, "n", 2)


@world
def class_attribute_of_a_base():
    class Base:
        n = 1

    class Thing(Base):
        pass

    o = Thing()
    return lambda x: x + o.n + Thing.n + super(Thing, o).n, *attribute(Base, "n", 2)


@world
def class_attribute_added():
    class Thing:
        pass

    o = Thing()
    return lambda x: x + getattr(o, "n", 3) + getattr(Thing, "n", 3) + hasattr(o, "n"), *attribute(Thing, "n", 2)


@world
def class_attribute_that_is_a_list():
    class Thing:
        items = [1]

    return lambda x: x + len(Thing.items) + Thing.items[-1], *values(lambda v: Thing.items.__setitem__(slice(None), v), [1], [1, 2], [3])


@world
def class_attribute_that_is_a_dict():
    class Thing:
        table = {"a": 1}

    o = Thing()
    return (
        lambda x: x + o.table["a"] + ("b" in o.table),
        *values(lambda d: (Thing.table.clear(), Thing.table.update(d)), {"a": 1}, {"a": 2, "b": 1}),
    )


@world
def class_attribute_that_is_none():
    class Thing:
        n = None

    return lambda x: x * (2 if Thing.n is None else 3), *attribute(Thing, "n", 1)


@world
def attribute_of_a_metaclass():
    class Meta(type):
        n = 1

    class Thing(metaclass=Meta):
        pass

    return lambda x: x + Thing.n, *attribute(Meta, "n", 2)


@world
def attribute_of_a_metaclass_shadowed():
    class Meta(type):
        n = 1

    class Thing(metaclass=Meta):
        pass

    return lambda x: x + Thing.n, *attribute(Thing, "n", 2)


@world
def property_of_a_metaclass():
    class Meta(type):
        k = 1

        @property
        def n(cls):
            return cls.k

    class Thing(metaclass=Meta):
        pass

    return lambda x: x + Thing.n, *attribute(Meta, "n", property(lambda cls: 7))


@world
def getattr_of_a_metaclass():
    class Meta(type):
        def __getattr__(cls, name):
            return cls.table[name]

    class Thing(metaclass=Meta):
        table = {"n": 1}

    return lambda x: x + Thing.n, *item(Thing.table, "n", 2)


@world
def getattr_of_a_class():
    class Thing:
        def __getattr__(self, name):
            return 1

    o = Thing()
    return lambda x: x + o.n, *attribute(Thing, "__getattr__", lambda self, name: 2)


@world
def getattribute_of_a_class_added():
    class Thing:
        n = 1

    o = Thing()
    return lambda x: x + o.n, *attribute(Thing, "__getattribute__", lambda self, name: 2)


@world
def class_text():
    class Thing:
        "one"

    return (
        lambda x: (x, Thing.__doc__, Thing.__name__, Thing.__qualname__, Thing.__module__),
        *attribute(Thing, "__doc__", "two"),
        lambda: setattr(Thing, "__name__", "Other"),
        lambda: setattr(Thing, "__name__", "Thing"),
    )


@world
def annotations_of_a_class():
    class Thing:
        a: int

    return lambda x: (x, list(Thing.__annotations__)), *attribute(Thing, "__annotations__", {"b": int})


@world
def dictionary_of_a_class():
    class Thing:
        n = 1

    return lambda x: x + Thing.__dict__["n"] + ("m" in vars(Thing)), *attribute(Thing, "n", 2), lambda: setattr(Thing, "m", 1)


@world
def dictionary_of_an_instance():
    class Thing:
        pass

    o = Thing()
    o.n = 1
    return lambda x: x + o.__dict__["n"] + len(vars(o)), *attribute(o, "n", 2), lambda: setattr(o, "m", 1)


@world
def dictionary_of_an_instance_replaced():
    class Thing:
        pass

    o = Thing()
    return lambda x: x + o.n, *values(lambda d: setattr(o, "__dict__", d), {"n": 1}, {"n": 2})


@world
def fields_of_a_dataclass():
    @dataclasses.dataclass
    class Thing:
        a: int = 1

    o = Thing()
    return lambda x: (x + o.a, [f.name for f in dataclasses.fields(o)]), *attribute(o, "a", 5)


@world
def default_of_a_dataclass():
    @dataclasses.dataclass
    class Thing:
        a: int = 1

    return lambda x: x + Thing().a, *values(lambda n: setattr(Thing.__init__, "__defaults__", (n,)), 1, 5)


@world
def copy_of_an_object():
    class Thing:
        def __init__(self):
            self.n = 1

    o = Thing()
    import copy

    return lambda x: x + copy.copy(o).n, *attribute(o, "n", 5)


@world
def copier_registered():
    class Thing:
        n = 1

    def rebuilt():
        t = Thing()
        t.n = 9
        return t

    o = Thing()
    import copy

    return lambda x: x + copy.copy(o).n, *item(copyreg.dispatch_table, Thing, lambda t: (rebuilt, ()))


@world
def signature_of_a_function():
    def g(a, b=1):
        return a

    return lambda x: (x, list(inspect.signature(g).parameters), str(inspect.signature(g))), *attribute(g, "__defaults__", (5,), None)


@world
def members_by_inspection():
    class Thing:
        def m(self):
            return 1

    o = Thing()
    return lambda x: x + len([n for n, _ in inspect.getmembers(o) if n == "k"]), *attribute(Thing, "k", 1)


@world
def context_managers_with_state():
    class Manager:
        n = 1

        def __enter__(self):
            return self.n

        def __exit__(self, *e):
            return False

    m = Manager()

    def f(x):
        with m as n:
            return x + n

    return f, *attribute(m, "n", 2)


@world
def exit_of_a_manager():
    class Manager:
        quiet = True

        def __enter__(self):
            return self

        def __exit__(self, *e):
            return self.quiet

    m = Manager()

    def f(x):
        try:
            with m:
                raise ValueError("no")
        except ValueError:
            return x * 3
        return x * 2

    return f, *attribute(m, "quiet", False)


@world
def suppressed_exceptions():
    s = contextlib.suppress(ValueError)

    def f(x):
        try:
            with s:
                raise ValueError("no")
        except ValueError:
            return x * 3
        return x * 2

    return f, *attribute(s, "_exceptions", (KeyError,))


@pytest.mark.parametrize("name", worlds.of(__name__))
def test_objects(name):
    worlds.check(name)


__all__ = ["MISSING"]
