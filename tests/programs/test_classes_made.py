"""Classes that the program makes while it runs: statements, decorators, metaclasses, dataclasses, enumerations, named tuples.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import gc
import typing

import pytest
import torch
from torch import nn

from tests.helpers import check, compiled, pliant
from tests.programs.registry import cases, each, program, t

SHAPES = each(3, 5, 2)
SEEN: list[str] = []


class Base:
    registry = {}

    def __init_subclass__(cls, tag=None, **kw):
        super().__init_subclass__(**kw)
        cls.tag = tag
        SEEN.append(cls.__name__)

    def hello(self, x):
        return x + 1


class Field:
    def __set_name__(self, owner, name):
        self.name = name
        self.owner = owner.__name__

    def __get__(self, obj, cls):
        return self if obj is None else obj.__dict__["_" + self.name]

    def __set__(self, obj, v):
        obj.__dict__["_" + self.name] = v * 2


class Meta(type):
    def __new__(m, name, bases, ns, k=1):
        ns["k"] = k
        return super().__new__(m, name, bases, ns)

    def __init__(cls, name, bases, ns, k=1):
        super().__init__(name, bases, ns)
        cls.made = name

    def __call__(cls, *a):
        o = super().__call__(*a)
        o.called = True
        return o


class Prep(type):
    @classmethod
    def __prepare__(m, name, bases):
        return {"given": 5}


class Out:
    k = 3
    fs = []

    def f(self, x):
        return x + self.k


@program(*SHAPES, breaks=0, captures=1)
def simple(x):

    class P:
        kind = "p"

        def __init__(self, a):
            self.a = a

        def total(self):
            return self.a.sum() + x.shape[0]

        @property
        def double(self):
            return self.a * 2

        @staticmethod
        def s(a):
            return a + 3

        @classmethod
        def c(cls, a):
            return cls(a)

    p = P(x)
    return (p.total(), p.double, P.s(x), P.c(x + 1).a, P.kind, P.__name__, P.__qualname__, P.__module__, isinstance(p, P))


@program(*SHAPES, breaks=0, captures=1)
def supers(x):

    class A:
        def f(self, y):
            return y + 1

    class B(A):
        def f(self, y):
            return super().f(y) * 2

        def me(self):
            return __class__ is B

    class C(B):
        n = x.shape[0]
        m = [i + 1 for i in range(3)]

        def f(self, y):
            return super().f(y) - self.n

    return (C().f(x), C().me(), C.m, issubclass(C, A), [c.__name__ for c in C.__mro__])


@program(*SHAPES, breaks=0, captures=1)
def escapes(x):

    class P:
        """doc"""

        z = x * 2
        w: int = 3

        def __init__(self, a):
            self.a = a

        def get(self):
            return super().__repr__() is not None and self.a

    return (P(x + 1), P)


@program(*SHAPES, breaks=0, captures=1)
def hooks(x):

    class S(Base, tag="t"):
        f = Field()

        def go(self, y):
            self.f = y
            return self.f + self.hello(y)

    s = S()
    return (s.go(x), S.tag, S.f.name, S.f.owner, s)


@program(*SHAPES, breaks=0, captures=1)
def metas(x):

    class M(metaclass=Meta, k=4):
        def __init__(self, a):
            self.a = a

    class N(M):
        pass

    n = N(x)
    return (M.k, N.k, N.made, n.called, n.a + 1, n)


@program(*SHAPES, breaks=0, captures=1)
def prep(x):

    class Q(metaclass=Prep):
        mine = given + 1
        y = x

    return (Q.given, Q.mine, Q.y + 1, Q)


@program(*SHAPES, breaks=0, captures=1)
def decor(x):

    @functools.total_ordering
    class V:
        def __init__(self, v):
            self.v = v

        def __eq__(self, o):
            return self.v == o.v

        def __lt__(self, o):
            return self.v < o.v

    return (x + 1, V(1) < V(2), V(3) >= V(2), sorted([V(3), V(1)])[0].v)


@program(*SHAPES, breaks=0, captures=1)
def dc(x):

    @dataclasses.dataclass
    class D:
        a: torch.Tensor
        b: int = 2
        c: list = dataclasses.field(default_factory=list)

    d = D(x, c=[1])
    e = D(x + 1)
    return (d.a * d.b, e, d.c, dataclasses.replace(d, b=5).b, [f.name for f in dataclasses.fields(D)])


@program(*SHAPES, breaks=0, captures=1)
def dcf(x):

    @dataclasses.dataclass(frozen=True, order=True)
    class D:
        b: int = 2

        def f(self):
            return x * self.b

    try:
        D(1).b = 3
    except dataclasses.FrozenInstanceError as e:
        msg = str(e)
    return (D(3).f(), D(1) < D(2), D(1) == D(1), msg, hash(D(1)) == hash(D(1)))


@program(*SHAPES, breaks=0, captures=1)
def abcs(x):

    class A(abc.ABC):
        @abc.abstractmethod
        def f(self): ...

    class B(A):
        def f(self):
            return x + 1

    try:
        A()
    except TypeError as e:
        msg = str(e)
    return (B().f(), msg, isinstance(B(), A), B())


@program(*SHAPES, breaks=0, captures=1)
def modules(x):

    class L(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 2.0

        def forward(self, y):
            return y * self.scale

    return (L()(x), nn.Sequential(L(), L())(x))


@program(*SHAPES, breaks=0, captures=1)
def slots(x):

    class S:
        __slots__ = ("a", "__b")

        def __init__(self, a):
            self.a = a
            self.__b = a + 1

        def b(self):
            return self.__b

    s = S(x)
    return (s.b(), s)


@program(*SHAPES, breaks=0, captures=1)
def mk(x):
    T = type("T", (Base,), {"v": 1, "f": lambda self, y: y + self.v}, tag="u")
    return (T().f(x), T.__module__, T.__name__, T.tag)


@program(*SHAPES, breaks=0, captures=1)
def exc(x):

    class Mine(ValueError):
        def __init__(self, a):
            super().__init__("w")
            self.a = a

    try:
        raise Mine(x)
    except ValueError as e:
        return (e.a + 1, e)


@program(*SHAPES)
def raises(x):

    class Mine(Exception):
        pass

    y = x + 1
    raise Mine("no")


@program(*SHAPES, breaks=0, captures=1)
def body_effects(x):
    out = []

    class K:
        out.append(1)
        for i in range(3):
            out.append(i)
        del i
        with torch.no_grad():
            y = x * 2

        def f(self):
            return self.y

        out.append(locals().keys() >= {"y"})

    return (out, K().f(), hasattr(K, "i"))


@program(*SHAPES, breaks=0, captures=1)
def broken(x):

    class K:
        a = x.sum().item() > 100

    return (x + 1, K.a)


@program(*SHAPES, breaks=0, captures=1)
def enums(x):

    class Col(enum.Enum):
        R = 1
        G = 2

    return (x + Col.R.value, Col.G.name)


@program(*SHAPES, breaks=0, captures=1)
def nt(x):

    class P(typing.NamedTuple):
        a: torch.Tensor
        b: int = 1

    N = collections.namedtuple("N", "u v")
    p = P(x)
    n = N(x, 1)
    return (p.a + p.b, n.u + n.v)


@program(*SHAPES, breaks=0, captures=1)
def generic(x):
    T = typing.TypeVar("T")

    class Box(typing.Generic[T]):
        def __init__(self, v):
            self.v = v

        def get(self) -> T:
            return self.v

    class IntBox(Box[int]):
        pass

    return (Box(x).get() + 1, IntBox(2).get())


@program(*SHAPES, breaks=1)
def crossing(x):

    class P:
        def __init__(self, a):
            self.a = a

        def f(self):
            return self.a + 1

    p = P(x)
    y = p.f()
    pliant.graph_break()
    return (p.f() + y, type(p) is P)


@program(*SHAPES, breaks=0, captures=1)
def classattr(x):

    class P:
        n = 0

        def inc(self):
            type(self).n += 1
            return self.n

    p = P()
    p.inc()
    p.inc()
    P.extra = 5
    setattr(P, "m", x)
    del P.n
    return (P.extra, P.m + 1, hasattr(P, "n"))


@program(*SHAPES, breaks=0, captures=1)
def cls_dict(x):

    class Dd(dict):
        def __missing__(self, k):
            return x + k

    d = Dd(a=1)
    return (d[3], d["a"], d)


@program(*SHAPES, breaks=0, captures=1)
def enum_out(x):

    class Col(enum.IntEnum):
        R = enum.auto()
        G = enum.auto()

        @property
        def low(self):
            return self.name.lower()

    class Fl(enum.Flag):
        A = 1
        B = 2

    return (x + Col.R, Col.G.low, Col.R, Fl.A | Fl.B, [c.value for c in Col], Col(2) is Col.G, Col)


@program(*SHAPES, breaks=0, captures=1)
def nt_out(x):

    class P(typing.NamedTuple):
        a: torch.Tensor
        b: int = 1

        def s(self):
            return self.a + self.b

    N = collections.namedtuple("N", ["u", "v"], defaults=[2])
    p = P(x)
    return (p, N(x), p._replace(b=5).s(), P._fields, N._field_defaults)


@program(*SHAPES, breaks=0, captures=1)
def enum_func(x):
    E = enum.Enum("E", "A B")
    return (x + E.B.value, E.A)


@program(*SHAPES, breaks=0, captures=1)
def base_changes(x):

    class K(Out):
        pass

    return K().f(x)


@program(*SHAPES, breaks=0, captures=1)
def metacall(x):
    T = Meta("T", (), {"f": lambda s, y: y + 1}, k=3)
    return (T().f(x), T.k, T)


@program(*SHAPES, breaks=0, captures=1)
def onlyinit(x):

    class MI(type):
        def __init__(cls, n, b, ns):
            super().__init__(n, b, ns)
            cls.reg = [n]

        def __len__(cls):
            return 7

        def __getattr__(cls, name):
            return name

    class K(metaclass=MI):
        pass

    return (x + len(K), K.reg, K.foo, K)


@program(*SHAPES, breaks=0, captures=1)
def conflict(x):

    class M1(type):
        pass

    class M2(type):
        pass

    class A(metaclass=M1):
        pass

    class B(metaclass=M2):
        pass

    try:

        class C(A, B):
            pass
    except TypeError as e:
        return (x + 1, str(e))


@program(*SHAPES, breaks=0, captures=1)
def badmro(x):

    class A:
        pass

    class B(A):
        pass

    try:

        class C(A, B):
            pass
    except TypeError as e:
        return (x + 1, str(e))


@program(*SHAPES, breaks=0, captures=1)
def nested(x):

    class A:
        class B:
            v = 2

            def f(self, y):
                return y * self.v

        b = B()

        def g(self, y):
            return self.b.f(y) + self.B.v

    return (A().g(x), A.B.__qualname__, A().b)


@program(*SHAPES, breaks=0, captures=1)
def desc(x):

    class D:
        def __set_name__(self, o, n):
            self.n = n

        def __get__(self, o, c):
            return x + len(self.n)

    class A:
        foo = D()

        @functools.cached_property
        def cp(self):
            return x * 2

    a = A()
    return (a.foo, a.cp, a.cp is a.cp, a)


@program(*SHAPES, breaks=0, captures=1)
def getattrs(x):

    class A:
        def __getattr__(self, n):
            return len(n)

        def __setattr__(self, n, v):
            object.__setattr__(self, "_" + n, v)

        def __call__(self, y):
            return y + self.abc

        def __len__(self):
            return 3

        def __iter__(self):
            yield from [1, 2]

        def __enter__(self):
            return self

        def __exit__(self, *a):
            return True

        def __bool__(self):
            return False

        def __hash__(self):
            return 5

        def __eq__(self, o):
            return True

    a = A()
    a.q = x
    with a:
        raise ValueError
    return (a(x), len(a), list(a), bool(a), {a: 1}[A()], a._q + 1)


@program(*SHAPES, breaks=0, captures=1)
def dcinh(x):

    @dataclasses.dataclass
    class A:
        a: int

    @dataclasses.dataclass
    class B(A):
        b: torch.Tensor = None

        def __post_init__(self):
            self.c = self.a

    return (B(1, x), B(2, x) == B(2, x), dataclasses.asdict(A(3)))


@program(*SHAPES, breaks=0, captures=1)
def modcls(x):

    class Block(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.lin = nn.Identity()
            self.n = n

        def forward(self, y):
            return self.lin(y) + self.n

    m = Block(2)
    return (m(x), type(m).__name__)


@program(*SHAPES, breaks=0, captures=1)
def local_exc(x):

    class E1(Exception):
        pass

    class E2(E1):
        pass

    r = []
    for E in (E1, E2):
        try:
            raise E(x.shape[0])
        except E2 as e:
            r.append(("2", e.args))
        except E1 as e:
            r.append(("1", e.args))
    return (r, x + 1)


@program(*SHAPES, breaks=0, captures=1)
def func_attr(x):

    def f():
        return 1

    f.cls = type("Z", (), {})

    class K:
        pass

    K.f = f
    K.g = staticmethod(f)
    return (K.g() + x, K.f is f, isinstance(K(), K))


@program(*SHAPES, breaks=0, captures=1)
def in_loop(x):
    out = []
    for i in range(3):

        class K:
            n = i

            def f(self):
                return x + self.n

        out.append(K)
    return ([k().f() for k in out], out[0] is not out[1])


@program(*SHAPES, breaks=0, captures=1)
def closure_after(x):

    class K:
        def f(self):
            return y

    y = x + 1
    return (K().f(), K)


@program(*SHAPES, breaks=0, captures=1)
def subclass_reg(x):

    class R(Base):
        pass

    Base.registry[R.__name__] = R
    return (Base.registry["R"].__name__, x + 1)


@program(*SHAPES, breaks=0, captures=1)
def cm(x):

    class C(contextlib.ContextDecorator):
        def __enter__(self):
            return x

        def __exit__(self, *a):
            return False

    @C()
    def f():
        return x + 1

    with C() as c:
        return c + f()


@program(*SHAPES, breaks=1)
def with_defaults_of_tensors(x):
    @dataclasses.dataclass
    class A:
        a: object = x

    return A().a + 1


@program(*SHAPES, breaks=1)
def with_slots_and_fields(x):
    @dataclasses.dataclass(slots=True)
    class D:
        a: torch.Tensor

    return D(x + 1).a


@program(*SHAPES, breaks=1)
def of_tensors(x):
    class P(nn.Parameter):
        pass

    return x + 1, P.__name__


@program(*each(3, 5, 2, grad=True), grad=True, breaks=0, captures=1)
def of_autograd(x):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            ctx.save_for_backward(v)
            return v * v

        @staticmethod
        def backward(ctx, g):
            return g * 3 * ctx.saved_tensors[0]

    return Square.apply(x) + Square.apply(x * 2), Square.__name__


@program(*each(3, 5, 2, grad=True), grad=True, breaks=0)
def of_autograd_with_variables(x):
    scale = x.shape[0]

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            return v * scale

        @staticmethod
        def backward(ctx, g):
            return g * scale

    return Scaled.apply(x)


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


def test_the_functions_of_named_tuples_end_with_them():
    """A guard asked for `__new__` of the class that the capture had made: with the class it was gone, and each call was captured anew."""

    def fn(x):
        P = collections.namedtuple("P", "a b")

        class Q(typing.NamedTuple):
            a: torch.Tensor

        p = P(x + 1, 2)
        return p._replace(b=3).a + Q(x).a, P._make, P.__new__, Q._replace

    target = pliant.compile(fn)
    for n in (2, 3, 4):
        total, make, new, replace = target(torch.ones(n))
        assert total.tolist() == [3] * n and make.__self__.__new__ is new and make([1, 2])._asdict() == {"a": 1, "b": 2}
        assert replace.__qualname__ == "Q._replace"
        gc.collect()
    assert pliant.stats()["captures"] == 1


def test_named_tuples_that_are_carried_over_a_break():
    """Their classes say nothing of the function that made them; that each call makes another is learned once."""

    def fn(x):
        P = collections.namedtuple("P", "a b", defaults=(1,))
        pliant.graph_break()
        return P(x), P._replace

    target = pliant.compile(fn)
    counts = []
    for _ in range(6):
        p, replace = target(torch.ones(2))
        assert type(p)._replace is replace and p.b == 1
        counts.append(pliant.stats()["captures"])
    assert counts[-1] == counts[1] == 5, counts


def test_hooks_run_once_a_call():
    """What `__init_subclass__` does is replayed; the class that the emitted code makes does not do it again."""
    target = compiled(hooks)
    SEEN.clear()
    for n in (3, 4, 5):
        target(t(n))
    assert SEEN == ["S"] * 3


def test_each_call_makes_a_class():
    target = compiled(escapes)
    (a, cls), (b, other) = target(t(3)), target(t(4))
    assert type(a) is cls and type(b) is other and cls is not other
    assert torch.equal(a.get(), t(3) + 1) and torch.equal(other(5).get() + b.z, t(4) * 2 + 5)


def test_bases_are_watched():
    """The class inherits from one of the outside: what is found there is guarded."""

    def before(i, state):
        Out.k = 3 if i < 2 else 4
        Out.f = first if i < 3 else second

    def second(self, x):
        return x - self.k

    first = Out.f

    def inherits(x):
        class K(Out):
            pass

        return K().f(x), K.k

    try:
        assert check(inherits, *each(3, 5, 2, 4, 6), before=before).captures == 3
    finally:
        Out.k, Out.f = 3, first


def test_nothing_is_kept_alive():
    """The class that the capture made dies with it."""
    target = compiled(supers)
    before = {id(c) for c in object.__subclasses__()}
    target(t(3))
    gc.collect()
    assert not [c for c in object.__subclasses__() if id(c) not in before and "supers" in c.__qualname__]


def test_a_class_that_cannot_be_made_again():
    """It holds what no code can rebuild: the statement is left to CPython."""

    def holds(x):
        class K:
            rows = zip(*[iter([x, x + 1])] * 2)
            lock = memoryview(b"ab")

        return K, x * 2

    check(holds, *SHAPES)


class Measured:
    def __init__(self, t, k):
        self.t, self.k = t, k

    def shift(self):
        return self.k

    def scale(self, by):
        return self.t * by + self.shift()


@torch.compiler.disable
def left_alone(x):
    return x


def test_super_in_a_class_that_is_another_on_every_call():
    """The class is no value to guard: `super()` is left to CPython, called from another frame than the method's."""

    def twice(x):
        def inner(t):
            class Local(Measured):
                def shift(self):
                    return super().shift() * 2

            return t + Local(left_alone(x), len(x[x > 0]) % 5).scale(2)

        return inner(inner(x))

    check(twice, *each(*range(2, 12)))


def test_names_of_the_frame_where_the_graph_breaks():
    def names(x, k):
        left_alone(x)
        found = [sorted(vars()), sorted(locals()), dir()]
        return x * len(found), found, k

    check(names, *[(t(n), n) for n in (3, 4, 5)])


def test_objects_of_c_that_hold_others():
    """`super` objects and functions with a cache as arguments: what they hold is guarded, not only their type."""

    class Sub(Measured):
        pass

    def asked(x, s):
        return x + s.shift()

    check(asked, *[(t(3), super(Sub, Sub(None, k))) for k in range(6)])
    check(lambda x, s: x + s.__self__.k, *[(t(3), super(Sub, Sub(None, k))) for k in range(6)])

    def plus(k):
        return lambda y: y + k

    check(lambda x, f: x + f(1), *[(t(3), functools.lru_cache(plus(k))) for k in range(6)])


class Told:
    def __init__(self, answer=None):
        if answer is not None:
            self.__isabstractmethod__ = answer


class Asked:
    def __init__(self, answer):
        self.answer = answer

    @property
    def __isabstractmethod__(self):
        SEEN.append("asked")
        return self.answer


class Unfinished(abc.ABC):
    @abc.abstractmethod
    def part(self): ...


def left_abstract(o):
    class Finished(Unfinished):
        part = o

    class Other(Finished, metaclass=abc.ABCMeta):
        more = o

    made = Finished, Other, abc.ABCMeta("C", (), {"m": o})
    return [sorted(c.__abstractmethods__) for c in made]


def test_classes_ask_what_they_are_given_whether_it_is_abstract():
    values = [Told, lambda: Told(True), Told, lambda: Told([]), lambda: Told([1]), lambda: Asked(True), lambda: Asked(0)]
    values += [lambda: property(Asked(True)), lambda: staticmethod(Told(True)), lambda: staticmethod(Told()), lambda: 3]
    f = compiled(left_abstract)
    for make in (*values, *values):
        got = []
        for g in (left_abstract, f):
            SEEN.clear()
            got.append((g(make()), list(SEEN)))
        assert got[0] == got[1]


def of_its_instance(x, parametrized):
    """An instance, and a class of its own that knows it: which is there first?"""
    if parametrized:
        m = nn.Linear(3, 3)
        nn.utils.parametrize.register_parametrization(m, "weight", nn.Softplus(), unsafe=True)
    else:
        m = Out()
        own = {"twice": property(lambda self: m.k * 2), "is_it": lambda self: self is m}
        m.__class__ = type("Own", (Out,), own)
    return m, (m(x) if parametrized else m.f(x) + m.twice)


@pytest.mark.parametrize("parametrized", [False, True])
def test_an_instance_whose_class_knows_it(parametrized):
    fn = compiled(of_its_instance)
    for n in (2, 4, 5):
        torch.manual_seed(n)
        want, result = of_its_instance(t(n, 3), parametrized)
        torch.manual_seed(n)
        got, value = fn(t(n, 3), parametrized)
        assert torch.allclose(value, result) and type(got).__name__ == type(want).__name__ and type(got) is not type(want)
        assert torch.allclose(got.weight, want.weight) if parametrized else got.is_it() and got.twice == 6


def test_a_class_that_is_given_what_knows_it():
    """Its names have to be whole when it is made: they cannot wait for it."""

    def fn(x):
        class Counted(torch.autograd.Function):
            shape = None

            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                Counted.shape = g.shape
                return g * 2

        y = Counted.apply(x * 1)
        y.sum().backward()
        return y.detach(), Counted.shape

    c = compiled(fn)
    for n in (3, 4, 5):
        sides = []
        for f in (fn, c):
            x = t(n, grad=True)
            sides.append((*f(x), x.grad))
        assert torch.equal(sides[0][0], sides[1][0]) and sides[0][1] == sides[1][1] and torch.equal(sides[0][2], sides[1][2])
