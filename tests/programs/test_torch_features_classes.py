"""Classes of the program, and of the library, around tensors.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import abc
import collections
import copy
import dataclasses
import enum
import functools
import math
import operator
import types
import typing
from typing import Any

import pytest
import torch

from tests.programs.registry import cases, each, program, programs

WHOLE = {"breaks": 0, "captures": 1}
LESS = {"breaks": 0}
ROWS = each(3, 5, 2, tail=(4,))


class MyList(list):
    def first(self):
        return self[0]

    def __getitem__(self, i):
        return super().__getitem__(i)


class MyDict(dict):
    def __missing__(self, k):
        self[k] = k * 2
        return self[k]

    def __setitem__(self, k, v):
        super().__setitem__(k, v)


class AttrDict(dict):
    def __getattr__(self, k):
        try:
            return self[k]
        except KeyError:
            raise AttributeError(k)

    def __setattr__(self, k, v):
        self[k] = v


class MyTuple(tuple):
    def __new__(cls, *a):
        return super().__new__(cls, a)

    def total(self):
        return sum(self)


class MySet(set):
    def add2(self, v):
        self.add(v)
        return self


class MyInt(int):
    def __add__(self, o):
        return MyInt(int(self) + int(o) + 100)

    @property
    def twice(self):
        return self * 2


class MyFloat(float):
    pass


class MyStr(str):
    def shout(self):
        return self.upper() + "!"


class OD(collections.OrderedDict):
    def __setitem__(self, k, v):
        super().__setitem__(k.upper(), v)


class MO(collections.OrderedDict):
    def __post_init__(self):
        pass

    def to_tuple(self):
        return tuple(self.values())

    def __getattr__(self, n):
        if n in self:
            return self[n]
        raise AttributeError(n)


class Vec:
    __slots__ = ("v",)

    def __init__(self, v):
        self.v = v

    def __add__(self, o):
        return Vec(self.v + getattr(o, "v", o))
    __radd__ = __add__

    def __matmul__(self, o):
        return self.v @ o.v.T

    def __neg__(self):
        return Vec(-self.v)

    def __getitem__(self, i):
        return self.v[i]

    def __setitem__(self, i, w):
        self.v = self.v.clone()
        self.v[i] = w

    def __call__(self, *a):
        return self.v, a

    def __len__(self):
        return 2

    def __bool__(self):
        return True

    def __contains__(self, k):
        return k == 1

    def __eq__(self, o):
        return isinstance(o, Vec)

    def __hash__(self):
        return 5

    def __iter__(self):
        return iter((self.v, 1))

    def __reversed__(self):
        return iter((1, self.v))

    def __index__(self):
        return 1

    def __int__(self):
        return 4

    def __float__(self):
        return 2.5

    def __str__(self):
        return "Vec"

    def __format__(self, s):
        return "V" + s

    def __lt__(self, o):
        return True

    def __iadd__(self, o):
        self.v = self.v + o
        return self

    def __enter__(self):
        return self

    def __exit__(self, *a):
        return False

    def __getattr__(self, n):
        if n.startswith("dyn"):
            return lambda: self.v * len(n)
        raise AttributeError(n)

    def __divmod__(self, o):
        return 1, o

    def __round__(self, n=None):
        return 7

    def __abs__(self):
        return self.v.abs()

    def __invert__(self):
        return "inv"

    def __pow__(self, o, m=None):
        return "pow", o, m

    def __rsub__(self, o):
        return "rsub", o

    def __lshift__(self, o):
        return "ls", o

    def __delitem__(self, i):
        self.v = None

    def __length_hint__(self):
        return 2

    def __copy__(self):
        return Vec(self.v)

    def __dir__(self):
        return ["a"]

    def __bytes__(self):
        return b"q"

    def __complex__(self):
        return 1j

    def __ceil__(self):
        return 9

    def __trunc__(self):
        return 8


class Desc:
    def __set_name__(self, o, n):
        self.n = "_" + n

    def __get__(self, o, t=None):
        return self if o is None else o.__dict__.get(self.n, 0)

    def __set__(self, o, v):
        o.__dict__[self.n] = v

    def __delete__(self, o):
        o.__dict__.pop(self.n, None)


class WithDesc:
    d = Desc()

    def __init__(self, v):
        self.d = v

    def __init_subclass__(cls, tag=None, **k):
        super().__init_subclass__(**k)
        cls.tag = tag


class SubDesc(WithDesc, tag="t"):
    pass


class Sing:
    _i = None

    def __new__(cls, *a):
        if cls._i is None:
            cls._i = super().__new__(cls)
        return cls._i


class Base:
    def __init__(self, a):
        self.a = a

    def f(self, x):
        return x + self.a

    @property
    def p(self):
        return self.a * 2

    @p.setter
    def p(self, v):
        self.a = v

    @p.deleter
    def p(self):
        del self.a

    @classmethod
    def c(cls, x):
        return cls.__name__, x

    @staticmethod
    def s(x):
        return x - 1

    @functools.cached_property
    def cp(self):
        return self.a + 10

    @functools.singledispatchmethod
    def sd(self, v):
        return "obj"

    @sd.register
    def _(self, v: int):
        return "int"

    @functools.lru_cache
    def lc(self, n):
        return n * 2
    fm = functools.partialmethod(f)
    part = functools.partial(torch.mul, other=2)


class Child(Base):
    def f(self, x):
        return super().f(x) * 2

    @property
    def p(self):
        return super().p + 1

    @classmethod
    def c(cls, x):
        return super().c(x)

    def __getattribute__(self, n):
        return super().__getattribute__(n)


class GA:
    def __init__(self):
        object.__setattr__(self, "log", [])

    def __setattr__(self, n, v):
        self.log.append(n)
        object.__setattr__(self, n, v)

    def __delattr__(self, n):
        self.log.append("-" + n)
        object.__delattr__(self, n)


@functools.total_ordering
class TO:
    def __init__(self, v):
        self.v = v

    def __eq__(self, o):
        return self.v == o.v

    def __lt__(self, o):
        return self.v < o.v

    def __hash__(self):
        return hash(self.v)


@typing.runtime_checkable
class RProto(typing.Protocol):
    def f(self, x):
        ...


T_ = typing.TypeVar("T_")


class Gen(typing.Generic[T_]):
    def __init__(self, v):
        self.v = v

    @classmethod
    def __class_getitem__(cls, k):
        return super().__class_getitem__(k)


class TD(typing.TypedDict):
    a: Any


class ABase(abc.ABC):
    @abc.abstractmethod
    def g(self, x):
        ...

    @property
    @abc.abstractmethod
    def h(self):
        ...


class AImpl(ABase):
    def g(self, x):
        return x + 1
    h = 3


@dataclasses.dataclass
class DC:
    a: Any
    b: int = 2
    c: list = dataclasses.field(default_factory=list)
    d: Any = dataclasses.field(default=1, repr=False, compare=False)
    e: dataclasses.InitVar[int] = 5
    K: typing.ClassVar[int] = 9

    def __post_init__(self, e):
        self.z = e


@dataclasses.dataclass(frozen=True, order=True)
class FD:
    a: int
    b: str = "x"


@dataclasses.dataclass(kw_only=True, slots=True)
class KD:
    a: Any
    b: int = 3


@dataclasses.dataclass
class DCSub(DC):
    f: int = 8


class En(enum.Enum):
    A = 1
    B = "b"
    C = 1, 2

    @property
    def low(self):
        return self.name.lower()

    @classmethod
    def pick(cls, v):
        return cls(v)

    @classmethod
    def _missing_(cls, v):
        return cls.A if v == "?" else None


class SE(str, enum.Enum):  # noqa: UP042
    X = "x"
    Y = "y"


class IE(enum.IntEnum):
    P = 1
    Q = 2


class FL(enum.Flag):
    R = 1
    W = 2
    RW = R | W


class IF_(enum.IntFlag):
    R = 1
    W = 2


class FE(enum.Enum):
    ADD = enum.member(functools.partial(torch.add, other=1))
    NEG = enum.member(torch.neg)

    def __call__(self, x):
        return self.value(x)


programs(__name__, *ROWS, **WHOLE)({
    "list_sub": lambda x: [(m.first(), m[1], len(m), m + [1], m.copy(), m.append(3), isinstance(m, list),
        m) for m in [MyList([x, 2])]],
    "dict_sub_missing": lambda x: [(m[3], m.get(5), m["a"], list(m), "q" in m) for m in [MyDict(a=x)]],
    "attr_dict": lambda x: [(a.k, setattr(a, "n", 3), a.n, a["n"], hasattr(a, "zz"), a) for a in [AttrDict(k=x)]],
    "tuple_sub": lambda x: [(m.total(), m[0], len(m), type(m[1:]).__name__, m) for m in [MyTuple(x, x)]],
    "set_sub": lambda x: [(x, sorted(m.add2(3)), type(m | {5}).__name__, len(m)) for m in [MySet([1])]],
    "int_sub": lambda x: (x * MyInt(2), MyInt(3) + 4, MyInt(3).twice, isinstance(MyInt(1), int), MyInt(2) * 3, [1, 2,
        3][MyInt(1)]),
    "float_str_sub": lambda x: (x * MyFloat(1.5), MyStr("a").shout(), MyStr("a") + "b", {MyStr("k"): 1}["k"],
        f"{MyStr('z')}"),
    "od_sub": lambda x: [(list(o), o["A"], o.popitem(), len(o)) for o in [OD(a=x, b=2)]],
    "model_output": lambda x: [(m.a, m.to_tuple(), m["a"], hasattr(m, "zz"), m) for m in [MO(a=x, b=x + 1)]],
    "vec_ops": lambda x: [((v + v).v, (v + 1).v, (1 + v).v, v @ v, (-v).v, v[0], v(1), len(v), bool(v), 1 in v, v == v,
        v == 3, v != 3, hash(v), [*v], list(reversed(v)), [5, 6][v], int(v), float(v), str(v), f"{v:>3}", v < v,
        v > v) for v in [Vec(x)]],
    "vec_more": lambda x: [(v.dyn_a(), hasattr(v, "nope"), divmod(v, 3), round(v), round(v, 2), abs(v), ~v, v ** 2, pow(v,
        2, 3), 3 - v, v << 1, copy.copy(v).v, math.ceil(v), math.trunc(v), bytes(v), complex(v), operator.length_hint(v),
        operator.index(v), range(3)[v], hex(v)) for v in [Vec(x)]],
    "desc_set": lambda x: [(w.d, setattr(w, "d", 5), w.d, w.__dict__["_d"], type(WithDesc.d).__name__, delattr(w, "d"), w.d,
        SubDesc.tag) for w in [WithDesc(x)]],
    "singleton": lambda x: (x, isinstance(Sing(), Sing)),
    "base_ops": lambda x: [(b.f(x), b.p, setattr(b, "p", 7), b.a, b.c(1), b.s(x), Base.s(2), b.cp, b.sd(1), b.sd("a"),
        b.fm(x), Base.part(x), Base.f(b, x)) for b in [Base(3)]],
    "child_ops": lambda x: [(b.f(x), b.p, b.c(2), b.s(x), isinstance(b, Base), super(Child, b).f(x),
        b.__class__.__mro__[1].__name__) for b in [Child(3)]],
    "property_deleted": lambda x: [(delattr(b, "p"), hasattr(b, "a"), x) for b in [Base(1)]],
    "setattr_logged": lambda x: [(setattr(g, "q", x), delattr(g, "q"), g.log) for g in [GA()]],
    "total_order": lambda x: (x, TO(1) <= TO(2), TO(2) >= TO(3), max(TO(1), TO(5)).v, sorted([TO(3), TO(1)])[0].v, {TO(1),
        TO(1)} == {TO(1)}),
    "protocols": lambda x: (x, isinstance(Base(1), RProto), isinstance(3, RProto), issubclass(Base, RProto)),
    "generics": lambda x: (Gen(x).v, Gen[int](x).v, Gen[int].__origin__ is Gen),
    "typed_dict": lambda x: (TD(a=x), TD.__annotations__.keys() == {"a"}),
    "abstract": lambda x: (AImpl().g(x), AImpl().h, isinstance(AImpl(), ABase), ABase.__abstractmethods__ == {"g", "h"}),
    "dc_full": lambda x: [(d.a, d.b, d.c, d.z, d.K, dataclasses.fields(d)[0].name, dataclasses.replace(d, b=9, e=1).b,
        DCSub(x, f=2).f, d == d) for d in [DC(x)]],
    "dc_repr_eq": lambda x: (x, repr(DC(1)), DC(1) == DC(1), FD(1) < FD(2), hash(FD(1)) == hash(FD(1)), {FD(1): 2}[FD(1)],
        FD(1, b="z"), dataclasses.asdict(DC(1)), dataclasses.astuple(FD(3))),
    "dc_kw": lambda x: [(k.a, k.b, k) for k in [KD(a=x)]],
    "dc_asdict_tensor": lambda x: dataclasses.asdict(DC(1, c=[1, 2]))["c"] + [x],
    "dc_made": lambda x: [c(x, 1).p for c in [dataclasses.make_dataclass("MD", ["p", "q"])]],
    "dc_shallow": lambda x: [{f.name: getattr(d, f.name) for f in dataclasses.fields(d)} for d in [DC(x)]],
    "enum_ops": lambda x: (x, En.A.value, En("b"), En["C"].value[1], En.A.low, En.pick(1), En("?"), list(En), En.A in En,
        En.A is En.A, len(En), En.A.name, {En.A: x}[En.A], En.A == En.B, repr(En.A), str(En.B), En.__members__["A"]),
    "enum_str_int": lambda x: (x * IE.Q, SE.X == "x", SE("y") is SE.Y, SE.X.value, IE.P < IE.Q, IE(2), f"{IE.P}",
        SE.X.upper(), [x, x + 1, 5][IE.P], isinstance(SE.X, str), x.sum(IE.P - 1)),
    "enum_flags": lambda x: (x, FL.R | FL.W, FL.RW & FL.R, FL.R in FL.RW, ~FL.R, bool(FL(0)), IF_.R | 2, IF_(3).value,
        FL.RW.name, [f.name for f in FL.RW]),
    "enum_callable": lambda x: (FE.ADD(x), FE.NEG(x), FE.ADD.value(x)),
    "class_dict_ops": lambda x: (x, "f" in Base.__dict__, Base.__name__, hasattr(Base, "p"), getattr(Base, "zz", 3),
        isinstance(Base.__dict__["p"], property), Base.__qualname__, vars(Base(1)), Base(1).__dict__,
        Base(2).__class__ is Base),
    "class_reassign": lambda x: [(setattr(b, "__class__", Child), b.f(x), type(b).__name__) for b in [Base(1)]],
    "bound_eq": lambda x: [(b.f == b.f, b.f is b.f, b.f.__self__ is b, b.f.__name__, b.f.__func__ is Base.f,
        {b.f: 1}[b.f]) for b in [Base(1)]] + [x],
    "method_attr_set": lambda x: [(setattr(b, "f", lambda y: y * 100), b.f(x)) for b in [Base(1)]],
    "types_new": lambda x: (types.new_class("N", (Base,), {}, lambda ns: ns.update(k=3))(1).k, type("Q", (Base,),
        {"f": lambda s, y: y})(2).f(x)),
    "ns_equality": lambda x: (x, types.SimpleNamespace(a=1) == types.SimpleNamespace(a=1),
        repr(types.SimpleNamespace(a=1))),
    "structseq": lambda x: (x.max(0).values, x.max(0)[1], x.sort(1)._fields if hasattr(x.sort(1), "_fields") else 0,
        torch.topk(x, 2, 1).indices, [*x.min(1)][0], isinstance(x.max(0), tuple), type(x.max(0)).__name__,
        x.max(0).indices.shape, torch.return_types.max),
    "repr_objects": lambda x: (x, repr([1, (2,), {"a": None}]), str({1: "a"}), repr(Base)[:6], repr(FD(1)), repr(range(3)),
        repr(slice(1)), repr(torch.float32), str(torch.device("cpu")), repr(x.shape)),
    "sorted_objs": lambda x: [o.a for o in sorted([Base(3), Base(1)], key=lambda o: o.a)] + [max([Base(2), Base(5)],
        key=operator.attrgetter("a")).a, x],
    "list_eq_objs": lambda x: (x, [FD(1)] == [FD(1)], (FD(1),) in [(FD(1),)], [FD(2), FD(1)].index(FD(1)), [FD(1),
        FD(1)].count(FD(1)), FD(1) in {FD(1)}, [En.A].index(En.A)),
    "isinstance_tuple_nested": lambda x: (x, isinstance(1, (str, (int, float))), isinstance(Base(1), (int, Base)),
        issubclass(Child, (int, Base))),
})  # fmt: skip


@program(*ROWS, world=True, **LESS)
def mylist_outside():
    m = MyList([1, torch.ones(4)])

    def f(x):
        m.append(x.sum())
        return x * m.first() + m[1] + len(m)
    return f, m


@program(*ROWS, world=True, **LESS)
def mydict_outside():
    m = MyDict(a=torch.ones(4))

    def f(x):
        return x * m["a"] + m[3]
    return f, m


@program(*ROWS, world=True, **LESS)
def attrdict_outside():
    m = AttrDict(a=torch.ones(4), n=2)

    def f(x):
        m.n = m.n + 1
        return x * m.a + m["n"]
    return f, m


@program(*ROWS, world=True, **WHOLE)
def slots_outside():
    v = Vec(torch.ones(4))

    def f(x):
        v.v = v.v + x.sum(0)
        return (v + 1).v
    return f


@program(*ROWS, world=True, **WHOLE)
def model_output_outside():
    m = MO(a=torch.ones(4), b=torch.zeros(4))
    return lambda x: x * m.a + m["b"] + m.to_tuple()[0]


@program(*ROWS, world=True, **LESS)
def desc_outside():
    w = WithDesc(3)

    def f(x):
        w.d = w.d + 1
        return x * w.d
    return f, w


@program(*ROWS, world=True, **LESS)
def property_outside():
    b = Base(2)

    def f(x):
        b.p = b.p + 1
        return x * b.cp
    return f, b


@program(*ROWS, world=True, **LESS)
def cached_property_outside():
    b = Base(2)
    return lambda x: x * b.cp + b.cp, b


@program(*ROWS, world=True, **WHOLE)
def lru_method_outside():
    b = Base(2)
    return lambda x: x * b.lc(3)


@program(*ROWS, world=True, **WHOLE)
def ga_outside():
    g = GA()

    def f(x):
        g.t = x.sum()
        return x + len(g.log)
    return f, g


@program(*ROWS, world=True, **LESS)
def dc_outside():
    d = DC(torch.ones(4))

    def f(x):
        d.b += 1
        d.c.append(d.b)
        return x * d.a + d.b
    return f, d


@program(*ROWS, world=True, **WHOLE)
def frozen_dc_outside():
    d = FD(3)
    c = {FD(3): 5}
    return lambda x: x * d.a + c[d] + c[FD(3)]


@program(*ROWS, world=True, **WHOLE)
def enum_keyed_outside():
    d = {En.A: torch.ones(4), SE.X: 2, IE.P: 3}
    return lambda x: x * d[En.A] + d[SE.X] + d[1] + d["x"]


@program(*ROWS, world=True, **LESS)
def deque_outside():
    q = collections.deque(maxlen=3)

    def f(x):
        q.append(x.sum())
        return x + len(q) + q[-1]
    return f, q


@program(*ROWS, world=True, **LESS)
def ordered_outside():
    o = collections.OrderedDict(a=1, b=torch.ones(4))

    def f(x):
        o.move_to_end("a")
        o["c"] = x.sum()
        return x * o["b"] + next(iter(o.values()))
    return f, o


@program(*ROWS, world=True, **LESS)
def defaultdict_outside():
    d = collections.defaultdict(list)

    def f(x):
        d["k"].append(x.sum())
        d["n"]
        return x + len(d["k"])
    return f, d


@program(*ROWS, world=True, **LESS)
def counter_outside():
    c = collections.Counter("ab")

    def f(x):
        c["a"] += 1
        c.update("b")
        return x * c["a"]
    return f, c


@program(*ROWS, world=True, **LESS)
def chainmap_outside():
    a = {"a": 1}
    c = collections.ChainMap({}, a)

    def f(x):
        c["z"] = 3
        return x * c["a"] + c["z"]
    return f, c


@program(*ROWS, world=True, **LESS)
def userdict_outside():
    u = collections.UserDict(a=1)

    def f(x):
        u["b"] = u["a"] + 1
        return x * u["b"]
    return f, u


@program(*ROWS, world=True, **LESS)
def namespace_outside():
    n = types.SimpleNamespace(a=1)

    def f(x):
        n.a += 1
        n.t = x.sum()
        return x * n.a
    return f, n


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_classes(case):
    case.run()
