"""Objects: classes of every flavour, made inside and passed in.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import typing

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput

import pliant
from tests.helpers import Observed
from tests.programs.registry import cases, each, program, t

SHAPES = each(3, 5, 2)


class Plain:
    kind = "plain"

    def __init__(self, a, b=1):
        self.a = a
        self.b = b

    def total(self):
        return self.a + self.b

    @classmethod
    def make(cls, a):
        return cls(a, 7)

    @staticmethod
    def double(a):
        return a * 2

    @property
    def twice(self):
        return self.a * 2

    @twice.setter
    def twice(self, v):
        self.a = v / 2

    @twice.deleter
    def twice(self):
        del self.a

    def __repr__(self):
        return f"Plain({self.b})"


class Derived(Plain):
    def __init__(self, a):
        super().__init__(a, b=2)
        self.extra = []

    def total(self):
        return super().total() * 10

    @property
    def twice(self):
        return super().twice + 1

    @classmethod
    def make(cls, a):
        return super().make(a + 1) if False else cls(a)


@program(*SHAPES, captures=1, breaks=0)
def instances(x):
    p = Plain(x)
    p.c = x + 1
    p.b += 2
    p.twice = x * 3
    return p, p.total(), p.twice, Plain.make(x), Plain.double(x), p.kind, repr(p), isinstance(p, Plain), type(p) is Plain


@program(*SHAPES, breaks=0)
def delete_attributes(x):
    p = Plain(x)
    del p.b
    del p.twice
    return p, hasattr(p, "a"), getattr(p, "b", "gone"), p.__dict__


@program(*SHAPES, breaks=0)
def inheritance(x):
    d = Derived(x)
    return d, d.total(), d.twice, Derived.make(x).b, isinstance(d, Plain), issubclass(Derived, Plain), Derived.__mro__[1].__name__


@program(*[(Plain(t(n), n),) for n in (3, 4, 5)], breaks=0)
def instance_argument(p):
    p.b = p.b + 1
    p.new = p.total()
    return p.new * 2


@program(*[(Plain(t(3), n),) for n in (1, 2, 3, 4, 5)], breaks=0, entries=(1, 3))
def instance_int_attribute(p):
    return p.a * p.b


@program(*[(Plain(t(3)),) for n in (1, 2)], breaks=0)
def setattr_and_friends(p):
    setattr(p, "z", 4)
    vars(p)["w"] = 5
    p.__dict__["v"] = p.a + 1
    delattr(p, "b")
    return sorted(vars(p)), getattr(p, "z") + p.w


@program(*[(lambda p: (p, p, [p]))(Plain(t(n), 1)) for n in (3, 4)], breaks=0)
def aliased_instances(p, q, items):
    p.b = 5
    q.a = q.a + 1
    return q.b, p.a, items[0] is q


class Slots:
    __slots__ = ("t", "n", "unset")

    def __init__(self, t, n):
        self.t = t
        self.n = n


@program(*SHAPES)
def slots_inside(x):
    s = Slots(x, 2)
    s.n += 1
    return s.t * s.n, s, hasattr(s, "unset")


@program(*[(Slots(t(n), n),) for n in (3, 4, 5)])
def slots_argument(s):
    s.n += 1
    s.t = s.t + s.n
    return s.t * 2


class Missing:
    def __init__(self, x):
        self.x = x
        self.asked = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.asked.append(name)
        return self.x + len(name)


class Everything:
    def __init__(self, x):
        self.x = x

    def __getattribute__(self, name):
        if name == "y":
            return object.__getattribute__(self, "x") + 1
        return super().__getattribute__(name)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
        object.__setattr__(self, "last", name)


@program(*SHAPES, breaks=0)
def getattr_hooks(x):
    m, e = Missing(x), Everything(x)
    e.z = 3
    return m.abc + m.x, m.asked, e.y, e.last, e.z


@program(*[(Missing(t(n)), Everything(t(n))) for n in (3, 4)])
def getattr_hooks_argument(m, e):
    e.k = 2
    return m.abcd * e.y, e.last


class Descriptor:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        if obj is None:
            return self
        return getattr(obj, self.name) * 2

    def __set__(self, obj, value):
        setattr(obj, self.name, value + 1)


class NonData:
    def __get__(self, obj, owner=None):
        return 5


class WithDescriptors:
    d = Descriptor()
    n = NonData()

    @functools.cached_property
    def cached(self):
        return self.d + 1

    def __init__(self, x):
        self.d = x


@program(*SHAPES)
def descriptors(x):
    w = WithDescriptors(x)
    before = w.n
    w.n = 6
    return w.d, before, w.n, w.cached, w.cached is w.cached, w


@program(*[(WithDescriptors(t(n)),) for n in (3, 4)])
def descriptors_argument(w):
    w.d = w.d + 1
    return w.d + w.n, w.cached * 2


class Number:
    def __init__(self, v):
        self.v = v

    def __add__(self, o):
        return Number(self.v + getattr(o, "v", o))

    def __radd__(self, o):
        return Number(o + self.v + 1000)

    def __iadd__(self, o):
        self.v = self.v + o
        return self

    def __mul__(self, o):
        return NotImplemented if isinstance(o, str) else Number(self.v * o)

    def __matmul__(self, o):
        return Number(self.v @ o.v)

    def __neg__(self):
        return Number(-self.v)

    def __pos__(self):
        return self

    def __invert__(self):
        return "inverted"

    def __lt__(self, o):
        return self.v.shape[0] < o

    def __eq__(self, o):
        return isinstance(o, Number) and self.v is o.v

    def __hash__(self):
        return 7

    def __bool__(self):
        return False

    def __len__(self):
        return 3

    def __contains__(self, o):
        return o == 3

    def __getitem__(self, k):
        return (self.v, k)

    def __setitem__(self, k, value):
        self.v = self.v + k + value

    def __delitem__(self, k):
        self.v = k

    def __call__(self, *a, **k):
        return len(a) + len(k)

    def __index__(self):
        return 2

    def __int__(self):
        return 4

    def __str__(self):
        return "number"

    def __format__(self, spec):
        return "fmt" + spec


@program(*SHAPES, breaks=0)
def operators(x):
    n = Number(x)
    m = n
    m += 1
    r = [n + 1, 1 + n, n + n, n * 2, -n, +n is n, ~n, n < 5, n > 3 if False else 0, n == n, n != 4, not n, len(n), 3 in n, n[1:2, ...],
        n(1, a=2)]
    n[2] = 3
    r += [[1, 2, 3][n], int(n), str(n), f"{n:>3}", {n: 1}[m], bool(n), n or "empty"]
    del n[9]
    return r, n.v


@program(*SHAPES)
def operator_errors(x):
    out = []
    for f in (lambda: Number(x) * "s", lambda: Number(x) - 1, lambda: object() < 1, lambda: Plain(x)(), lambda: Plain(x)[0],
        lambda: len(Plain(x)), lambda: iter(3)):
        try:
            f()
        except TypeError as e:
            out.append(str(e))
    return out, x + 1


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if not self.n:
            raise StopIteration
        self.n -= 1
        return self.n


class Sequence:
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


@program(*[(t(3), n) for n in (1, 2, 4)], breaks=0)
def iterator_classes(x, n):
    for i in Countdown(n):
        x = x + i
    a, b, c = Countdown(3)
    return (x, list(Countdown(n)), [*Sequence([1, x])], sum(Countdown(4)), a + b + c, x.dim() in Sequence([1]),
        list(zip(Countdown(2), Sequence("ab"))), list(reversed(Sequence([1, 2]))),)


@program(*[(Countdown(3), Sequence([t(n), t(n)])) for n in (2, 4)])
def iterator_arguments(c, s):
    out = s[0]
    for i, v in zip(c, s):
        out = out + v * i
    return out, c.n


@dataclasses.dataclass
class Record:
    t: torch.Tensor
    n: int = 3
    items: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.items.append(self.n)


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    n: int
    m: int = 2


@program(*SHAPES, breaks=0)
def dataclass_inside(x):
    r = Record(x)
    r.t = r.t + 1
    s = dataclasses.replace(r, n=9)
    return r, s, Frozen(1) == Frozen(1), Frozen(1) < Frozen(2), [f.name for f in dataclasses.fields(r)], Frozen(3, m=4)


@program(*[(Record(t(n)), Frozen(n)) for n in (3, 4, 5)], breaks=0)
def dataclass_argument(r, f):
    r.n += f.n
    return r.t * f.m + r.n


@program(*SHAPES)
def frozen_dataclass_write(x):
    try:
        Frozen(1).n = 2
    except dataclasses.FrozenInstanceError as e:
        return str(e), x + 1


@program(*SHAPES, breaks=0)
def model_output(x):
    out = BaseModelOutput(last_hidden_state=x * 2, hidden_states=(x, x + 1))
    return out, out[0], out.last_hidden_state is out["last_hidden_state"], out.to_tuple(), list(out.keys()), out.attentions


class Color(enum.Enum):
    RED = 1
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


@program(*[(t(3), c) for c in (Color.RED, Color.BLUE, Color.RED)], breaks=0)
def enums(x, c):
    if c is Color.RED:
        x = x + 1
    elif c == Color.BLUE:
        x = x - 1
    return x * Level.HIGH, c.name, c.value, Level(1), c, Level.LOW < Level.HIGH


class Base(abc.ABC):
    @abc.abstractmethod
    def go(self, x): ...


class Concrete(Base):
    def go(self, x):
        return x + 1


@program(*SHAPES, breaks=0)
def abstract_classes(x):
    try:
        Base()
    except TypeError as e:
        return Concrete().go(x), str(e)


class Left:
    def who(self):
        return ["left"]


class Top:
    def who(self):
        return ["top"]


class A(Top):
    def who(self):
        return ["a", *super().who()]


class B(Top):
    def who(self):
        return ["b", *super().who()]


class Diamond(A, B):
    def who(self):
        return ["d", *super().who(), *super(A, self).who()]


@program(*SHAPES, breaks=0)
def diamond(x):
    return Diamond().who(), x + len(Diamond().who())


@program(*SHAPES)
def class_made_inside(x):
    class Inner(Plain):
        k = x.shape[0]
        scratch = k
        del scratch

        def total(self):
            return super().total() + self.k + x

    return Inner(x).total(), Inner.__name__


class Meta(type):
    def __call__(cls, *args):
        obj = super().__call__(*args)
        obj.tagged = cls.__name__
        return obj


class Tagged(metaclass=Meta):
    def __init__(self, x):
        self.x = x


@program(*SHAPES)
def metaclass(x):
    return Tagged(x).tagged, Tagged(x).x + 1


class New:
    made = 0

    def __new__(cls, x):
        obj = super().__new__(cls)
        obj.via_new = x + 1
        return obj

    def __init__(self, x):
        self.x = x


class IntSub(int):
    def half(self):
        return self // 2


class ListSub(list):
    def first(self):
        return self[0]


class DictSub(dict):
    def __missing__(self, k):
        return k * 2


@program(*SHAPES)
def new_and_builtin_subclasses(x):
    a = ListSub([x, 1])
    a.append(2)
    a.tag = "t"
    d = DictSub(a=x)
    return New(x), IntSub(7).half(), a.first(), a, d[4], d["a"], len(d)


@program(*[(ListSub([t(n)]), DictSub(a=t(n))) for n in (3, 4)])
def builtin_subclass_arguments(a, d):
    a.append(d["a"] + a.first())
    d["b"] = d[3]
    return a[-1]


class UserDict(collections.UserDict):
    pass


@program(*SHAPES)
def user_dict(x):
    d = UserDict(a=x)
    d["b"] = x + 1
    return d["a"] + d["b"], "a" in d, len(d), dict(d)


T = typing.TypeVar("T")


class Generic(typing.Generic[T]):
    def __init__(self, v: T):
        self.v = v


@program(*SHAPES)
def generics(x):
    return Generic[int](x).v + 1, Generic(x).v, typing.cast(int, x), typing.NamedTuple


class Typed(typing.NamedTuple):
    a: torch.Tensor
    b: int = 4

    def sum(self):
        return self.a + self.b


@program(*SHAPES, breaks=0)
def typed_namedtuple(x):
    p = Typed(x)
    return p, p.sum(), p._replace(b=1)


class CallableObject:
    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return x + self.calls


@program(*[(CallableObject(), t(n)) for n in (3, 4)], breaks=0)
def callable_argument(c, x):
    return c(c(x))


@program(*SHAPES, breaks=0)
def bound_methods(x):
    p = Plain(x)
    f = p.total
    g = Plain.total
    h = functools.partial(g, p)
    return f(), g(p), h(), f.__self__ is p, f.__func__ is g, f == p.total


class StepCounter:
    steps = 0

    def __call__(self, x):
        type(self).steps += 1
        return x + 1


@program(*[(t(n),) for n in (3, 4)], world=True)
def class_attribute_written():
    class Counter:
        steps = 0

    def fn(x):
        Counter.steps += 1
        return x * Counter.steps

    return fn, Observed(lambda: Counter.steps)


@program(*SHAPES, breaks=0)
def exceptions_as_objects(x):
    class Mine(Exception):
        def __init__(self, a, b):
            super().__init__(a)
            self.b = b

    try:
        raise Mine(x.shape[0], x)
    except Mine as e:
        return e.args, e.b + 1, isinstance(e, Exception)


@program(*SHAPES, breaks=0)
def returns_pytrees(x):
    return {"a": [x, (x + 1, {"b": None})], "p": Typed(x), "r": Record(x), "o": collections.OrderedDict(z=x, y=1)}


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


class Marked(list):
    mark = 1.0


class MarkedDeque(collections.deque):
    mark = 1.0


MOVED = {
    "reversed": lambda v: v.reverse(), "cleared": lambda v: v.clear(), "taken from the end": lambda v: v.pop(),
    "written": lambda v: v.__setitem__(0, 5.0), "shorter": lambda v: v.__delitem__(0), "grown in front": lambda v: v.insert(0, 3.0),
    "longer": lambda v: v.append(3.0), "as it was": lambda v: None,
}  # fmt: skip


@pytest.mark.parametrize("cls", [Marked, MarkedDeque])
@pytest.mark.parametrize("how", MOVED)
def test_a_list_whose_items_move_has_the_attributes_that_it_was_given(how, cls):
    def mark(x, v, move):
        move(v)
        v.mark, v.other = v.mark + 1, x * 2
        return x + 1

    compiled, told = pliant.compile(mark, background=False), []
    for fn in (mark, compiled):
        for v in (cls([1.0, 2.0]), cls([1.0, 2.0]), cls([4.0, 2.0, 3.0])):
            fn(torch.ones(2), v, MOVED[how])
            told.append([list(v), list(vars(v)), v.mark, v.other.tolist()])
    assert told[3:] == told[:3]
