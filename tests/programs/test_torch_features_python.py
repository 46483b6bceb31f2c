"""Python around tensors: containers, classes, closures, generators, context managers, exceptions. One graph each for sizes that change.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import abc
import bisect
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import heapq
import inspect
import itertools
import math
import operator
import re
import string
import sys
import types
import typing
import warnings

import pytest
import torch

from tests.programs.registry import cases, each, listed, program, programs, t

WHOLE = {"breaks": 0, "captures": 1}
ROWS = each(3, 5, 2, tail=(4,))
TWO = each(3, 5, 2, tail=(4,), n=2)


# -- containers -------------------------------------------------------------------------------------------------------
programs(__name__, *ROWS, **WHOLE)({
    "list_of_tensors": lambda x: [a.sum() for a in [x, x + 1, x * 2][::-1]],
    "list_built": lambda x: [out for out in [[]] if not any([out.append(x), out.extend([x + 1, 2]), out.insert(0, x.sum()),
        out.reverse()])][0],
    "list_methods": lambda x: [(v.pop(), v.index(2), v.count(1), v.copy(), v.remove(1), v.clear()) for v in [[1, 2, 7, x]]],
    "list_sorted": lambda x: (sorted([x, x[:1]], key=lambda v: v.shape[1]), sorted([3, 1, 2], reverse=True), sorted("bca"), sorted([(2,
        "b"), (1, "a")])),
    "list_repeat_and_add": lambda x: ([x] * 3, [x] + [x + 1], [0] * 4 + [x.shape[0]], (x,) * 2 + (1,)),
    "list_slices": lambda x: [(v[1:], v[::2], v[-1], v.__setitem__(slice(0, 1), [x, x * 2]), v) for v in [[x, x + 1, x + 2]]],
    "list_compared": lambda x: ([1, 2] == [1, 2], [1] < [2], (x.shape[0], 4) == tuple(x.shape), [*x.shape] != [1, 2], None in [None, 1]),
    "nested_lists": lambda x: [[[x[0] * i + j for j in range(2)] for i in range(2)], [x, [x + 1, (x + 2, {"k": x})]]],
    "tuple_methods": lambda x: ((x, 1, 2)[1:], (1, 2, 1).count(1), (1, 2).index(2), (x,) + (x + 1,), len((x, x)), hash((1, 2))),
    "dict_of_tensors": lambda x: {k: v * 2 for k, v in {"a": x, "b": x + 1}.items()},
    "dict_methods": lambda x: [(d.get("a"), d.get("z", 3), d.setdefault("c", x), list(d), d.pop("a"), d.pop("z", None), d.update(q=1),
        d.popitem(), dict(d)) for d in [{"a": x, "b": 2}]],
    "dict_merged": lambda x: ({**{"a": x}, "b": x + 1}, {"a": 1} | {"b": x}, dict(a=x, b=2), dict([("a", x)]), dict(zip("ab", [x,
        x + 1])), dict.fromkeys(["a", "b"], x)),
    "dict_views": lambda x: [(list(d.keys()), list(d.values()), [k for k, v in d.items() if v is not None], "a" in d, len(d),
        d.keys() & {"a"}) for d in [{"a": x, "b": None}]],
    "dict_keys": lambda x: {(1, "a"): x, None: x + 1, True: x + 2, x.shape[1]: 3, torch.float32: 4, "x" * 2: 5},
    "dict_ordered": lambda x: [(list(d), d.move_to_end("a"), list(d), d.popitem(last=False)) for d in [collections.OrderedDict(a=x,
        b=x + 1)]],
    "dict_nested": lambda x: [d["m"]["n"][0] + d["m"]["o"] for d in [{"m": {"n": [x, 1], "o": x * 2}}]],
    "defaultdicts": lambda x: [d for d in [collections.defaultdict(list)] if not any([d["a"].append(x), d["b"].append(x + 1),
        d["a"].append(x * 2)])],
    "counters": lambda x: [(c["a"], c.most_common(1), c + c, sum(c.values())) for c in [collections.Counter("aab")]],
    "deques": lambda x: [(q.appendleft(x), q.pop(), q.popleft(), q.extend([3, x]), q.rotate(1), list(q),
        len(q)) for q in [collections.deque([1, x + 1, 2], maxlen=5)]],
    "chainmaps": lambda x: [(c["a"], c["b"], list(c), c.new_child({"a": 3})["a"]) for c in [collections.ChainMap({"a": x}, {"a": 1,
        "b": x + 1})]],
    "sets": lambda x: [(s | {3}, s & {1}, s - {1}, s ^ {2, 9}, 1 in s, s <= {1, 2, 3}, sorted(s), len(s), frozenset(s)) for s in [{1, 2}]],
    "sets_changed": lambda x: [(s.add(x.ndim), s.discard(9), s.update([7, 8]), s.remove(1), sorted(s)) for s in [{1}]],
    "unpackings": lambda x: [(a, b, c, d, rest) for (a, (b, c)), d, *rest in [((x, (x + 1, 2)), 3, 4, 5)]],
    "calls_with_stars": lambda x: ((lambda *a, **k: (a, k))(x, *[1, 2], k=3, **{"m": x}), (lambda a, /, b, *, c=5: a + b + c)(x, b=1),
        max(*[1, 2], 3)),
    "comprehensions": lambda x: ([i * j for i in range(3) for j in range(i)], {i: x[0] * i for i in range(2)}, {i % 2 for i in range(5)},
        sum(i for i in range(x.shape[1])), [x for _ in range(2) if x.ndim == 2]),
    "walruses": lambda x: [y + z for i in range(3) if (y := x * i) is not None and (z := y.sum()) is not None],
    "conditional_expressions": lambda x: (x if x.ndim == 2 else -x, x.shape[1] > 3 and x.sum(), x.shape[1] > 9 or x.mean(), not x.ndim,
        1 < x.ndim < 3, None or x),
    "ranges": lambda x: (list(range(5))[::-1], range(10)[2:5], 3 in range(5), len(range(0, 10, 3)), [*range(3)], range(4).index(2),
        sum(range(x.shape[1]))),
    # -- text
    "texts": lambda x: (f"{x.ndim} of {x.dtype}", "{:>5}".format(3), "%s-%d" % ("a", 2), "a,b".split(","), "-".join("abc"), "Ab".lower(),
        " x ".strip(), "abc".replace("b", "z"), "ab" in "cab", "x".isdigit()),
    "texts_of_sizes": lambda x: (f"{x.shape[0]}x{x.shape[1]}", str(x.shape), repr(tuple(x.shape)), "n=%d" % x.shape[0],
        "{}".format(x.shape[0] * 2), f"{x.shape[0]:03d}", f"{x.shape}"),
    "texts_formatted": lambda x: (f"{3.14159:.2f}", f"{255:#x}", f"{'a':^7}", f"{1e6:,}", f"{True!r}",
        string.Template("$a b").substitute(a=1), str(1.5), repr("q"), ascii("é"), chr(97), ord("a"), hex(10), bin(3)),
    "regular_expressions": lambda x: (re.sub("a+", "b", "caat"), re.match(r"(\w)(\d)", "a1").groups(), bool(re.search("z", "abc")),
        re.findall(r"\d", "a1b2"), re.split(",", "a,b")),
    "dispatch_on_text": lambda x: [getattr(x, name)() for name in ("sin", "cos", "abs")] + [getattr(torch, "exp")(x),
        operator.attrgetter("shape")(x)[1], operator.methodcaller("sum", 0)(x)],
    # -- itertools, functools, operator
    "itertools_used": lambda x: (list(itertools.chain([x], [x + 1])), list(itertools.accumulate([1, 2, 3])), list(itertools.product("ab",
        [1])), list(itertools.islice(itertools.count(2), 3)), list(itertools.pairwise([1, 2, 3]))),
    "itertools_more": lambda x: (list(itertools.zip_longest([1, 2], [x])), list(itertools.combinations([1, 2, 3], 2)),
        list(itertools.permutations("ab")), list(itertools.starmap(torch.add, [(x, 1)])), [list(g) for _, g in itertools.groupby([1, 1,
        2])],
                                 list(itertools.takewhile(lambda i: i < 2, range(5))), list(itertools.dropwhile(lambda i: i < 2,
                                 range(4))), list(itertools.compress("abc", [1, 0, 1])), list(itertools.filterfalse(None, [0, 1]))),
    "itertools_tee": lambda x: [[*a] + [*b] for a, b in [itertools.tee(iter([x,
        x + 1]))]] + [[next(c) for _ in range(3)] for c in [itertools.cycle([1, 2])]] + [list(itertools.repeat(x, 2))],
    "functools_used": lambda x: (functools.reduce(torch.add, [x, x, x]), functools.partial(torch.sum, dim=1)(x),
        functools.reduce(lambda a, b: a * b, x.shape, 1), functools.partial(torch.add, x)(1)),
    "builtins_used": lambda x: (list(map(lambda v: v * 2, [x, x + 1])), list(filter(None, [0, 1, 2])), list(zip([x], [1])),
        list(enumerate([x], 1)), any([0, 1]), all([]), sum([x, x]), min(3, 1), abs(-2), round(2.5), divmod(7, 2), pow(2, 3), len([x])),
    "builtins_more": lambda x: (isinstance(x, torch.Tensor), issubclass(bool, int), callable(torch.sin), type(x) is torch.Tensor,
        hasattr(x, "shape"), getattr(x, "nothing", 3), x is x, x is not None, list(reversed([1, x])), next(iter([x]))),
    "operators_used": lambda x: (operator.add(x, 1), operator.matmul(x, x.T), operator.getitem(x, 0), operator.itemgetter(0)(x),
        operator.neg(x), operator.truediv(x, 2), operator.is_(x, x), operator.contains([1], 1), operator.concat([x], [1]),
        operator.index(3)),
    "bisect_and_heapq": lambda x: (bisect.bisect([1, 3, 5], 3), [h for h in [[3, 1, 2]] if heapq.heapify(h) is None], heapq.nlargest(2,
        [1, 5, 3]), heapq.nsmallest(1, [(2, "a"), (1, "b")])),
    "maths": lambda x: (math.ceil(x.shape[1] / 3), math.floor(2.5), math.log2(8), math.gcd(12, 8), math.inf > 1, math.isnan(float("nan")),
        math.comb(4, 2), math.sqrt(x.shape[1]), math.pi * x, math.copysign(1, -2), int(3.9), float("1.5"), complex(1, 2) * 2),
    "integers_and_bits": lambda x: (7 // 2, -7 % 3, 2**10, 5 & 3, 5 | 2, 5 ^ 1, ~5, 1 << 4, (255).bit_length(), int("ff", 16),
        (3).to_bytes(2, "big"), 10 .__index__(), True + 1, 1_000, 0x10, (0.5).as_integer_ratio()),
    "copies": lambda x: [(copy.copy(d)["a"], copy.deepcopy({"k": [1, 2]}), copy.copy([x, 1])) for d in [{"a": x}]],
    "closures": lambda x: [f(x) + g() for f, g in [((lambda k: lambda v: v * k)(3), (lambda v: lambda: v.sum())(x))]],
    "recursion": lambda x: (lambda f: f(f, 4, x))(lambda f, n, v: v if n == 0 else f(f, n - 1, v * 0.5 + n)),
    "lambdas_in_dict": lambda x: [f(x) for f in {"a": lambda v: v + 1, "b": torch.sin, "c": torch.Tensor.cos,
        "d": functools.partial(torch.mul, 2)}.values()],
    "globals_read": lambda x: x * SCALE + TABLE["k"] + NESTED[1][0],
    "types_named": lambda x: (type(x).__name__, x.__class__.__name__, type([]).__name__, torch.sin.__name__,
        type(x).__mro__[-1] is object, isinstance(1, (int, str)), isinstance(x.shape, tuple), isinstance(x.shape[0], int)),
    "numbers_of_sizes": lambda x: (x.shape[0] // 2 * 2, x.shape[0] % 2 + 1.5, x.shape[0] ** 2, -x.shape[0], x.shape[0] / 2,
        float(x.shape[0]), x.shape[0] == 99, max(x.shape[0], 1), int(x.shape[0] * 1.0), bool(x.shape[0]), abs(x.shape[0] - 9),
        str(x.shape[0])),
})  # fmt: skip

SCALE = 2.5
TABLE = {"k": 3}
NESTED = [1, (0.5, "a")]


# -- classes ----------------------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Point:
    a: torch.Tensor
    b: int = 2
    c: list = dataclasses.field(default_factory=list)

    def total(self):
        return self.a.sum() * self.b


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    n: int
    name: str = "q"


@dataclasses.dataclass(slots=True)
class Slotted:
    a: torch.Tensor
    n: int = 1


@dataclasses.dataclass
class After:
    a: torch.Tensor
    scale: dataclasses.InitVar[float] = 2.0
    b: torch.Tensor = dataclasses.field(init=False, repr=False)

    def __post_init__(self, scale):
        self.b = self.a * scale


class Pair(typing.NamedTuple):
    first: torch.Tensor
    second: int = 3

    def both(self):
        return self.first * self.second


Plain = collections.namedtuple("Plain", "u v", defaults=[5])


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"

    @property
    def twice(self):
        return self.value * 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()


class Base(abc.ABC):
    count = 0

    @abc.abstractmethod
    def run(self, x): ...

    @classmethod
    def make(cls, *a):
        return cls(*a)

    @staticmethod
    def half(x):
        return x / 2

    @property
    def double(self):
        return self.k * 2


class Derived(Base):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def run(self, x):
        return self.half(x) * self.k + self.double

    def __call__(self, x):
        return self.run(x)

    def __getitem__(self, i):
        return self.k + i

    def __len__(self):
        return 7

    def __contains__(self, i):
        return i == self.k

    def __iter__(self):
        yield self.k
        yield self.k + 1

    def __add__(self, other):
        return Derived(self.k + (other.k if isinstance(other, Derived) else other))

    __radd__ = __add__

    def __iadd__(self, other):
        self.k += other
        return self

    def __eq__(self, other):
        return self.k == other.k

    def __hash__(self):
        return hash(self.k)

    def __lt__(self, other):
        return self.k < other.k

    def __bool__(self):
        return self.k > 0

    def __repr__(self):
        return f"Derived({self.k})"

    def __enter__(self):
        self.k += 1
        return self

    def __exit__(self, *e):
        self.k -= 1
        return False


class Lazy:
    def __init__(self, x):
        self.__dict__["x"] = x
        self.seen = []

    def __getattr__(self, name):
        if name.startswith("get_"):
            return lambda: self.x + len(name)
        raise AttributeError(name)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        object.__delattr__(self, name)


class Typed:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name, 0) + 1

    def __set__(self, obj, value):
        setattr(obj, self.name, value)


class Described:
    n = Typed()
    __slots__ = ("_n", "other")


class Cached:
    def __init__(self, x):
        self.x = x

    @functools.cached_property
    def total(self):
        return self.x.sum()

    @functools.singledispatchmethod
    def of(self, v):
        return "other"

    @of.register
    def _(self, v: int):
        return v + 1

    @of.register
    def _(self, v: str):
        return v + "!"


class Mixin:
    def who(self):
        return ["mixin", *super().who()]


class Root:
    def who(self):
        return ["root"]


class Both(Mixin, Root):
    def who(self):
        return ["both", *super().who()]


class Meta(type):
    def __new__(mcs, name, bases, space):
        return super().__new__(mcs, name, bases, {**space, "made": True})

    def __call__(cls, *a, **k):
        out = super().__call__(*a, **k)
        out.called = True
        return out


class WithMeta(metaclass=Meta):
    def __init__(self, v):
        self.v = v


@functools.singledispatch
def kind_of(v):
    return "thing"


@kind_of.register
def _(v: int):
    return "int"


@kind_of.register(torch.Tensor)
def _(v):
    return "tensor"


@functools.lru_cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def decorated(scale):
    def wrap(fn):
        @functools.wraps(fn)
        def inner(*a, **k):
            return fn(*a, **k) * scale

        inner.scale = scale
        return inner

    return wrap


@decorated(3)
def tripled(x, k=1):
    """Three times."""
    return x + k


def changed(obj, **values):
    for k, v in values.items():
        setattr(obj, k, v)
    return obj


class Bare:
    __slots__ = ("a", "b")


def written_first(obj, **values):
    for name, value in values.items():
        setattr(obj, name, value)
    return obj.a, getattr(obj, "b", "none"), hasattr(obj, "b")


@program(*ROWS, world=True, **WHOLE)
def slots_from_outside():
    held = Bare()
    return lambda x: (written_first(held, a=x * 2), x), Bare


programs(__name__, *ROWS, **WHOLE)({
    "slots_alone": lambda x: (written_first(Bare(), a=x), written_first(Bare(), b=1, a=x)),
    "dataclass_made": lambda x: [(p.total(), p.a, p.b, p.c, dataclasses.astuple(Frozen(3)),
        dataclasses.is_dataclass(p)) for p in [Point(x, b=4)]],
    "dataclass_returned": lambda x: Point(x * 2, 3, [x]),
    "dataclass_replaced": lambda x: [dataclasses.replace(p, b=9).total() + changed(p, b=1).total() for p in [Point(x)]],
    "dataclass_fields": lambda x: ([f.name for f in dataclasses.fields(Point)], Frozen(1) == Frozen(1), Frozen(1) < Frozen(2),
        hash(Frozen(1)) == hash(Frozen(1)), repr(Frozen(2)), {Frozen(1): x}[Frozen(1)], dataclasses.asdict(Frozen(1))),
    "dataclass_slots": lambda x: [(s.a * s.n, changed(s, n=5).n) for s in [Slotted(x, 3)]],
    "dataclass_post_init": lambda x: [(p.a, p.b) for p in [After(x), After(x, scale=3.0)]],
    "namedtuple_made": lambda x: [(p.first, p[1], p.both(), p._replace(second=4).both(), p._asdict()["second"], len(p), [*p],
        Pair._fields) for p in [Pair(x)]],
    "namedtuple_returned": lambda x: (Pair(x + 1, 2), Plain(x, 3), Plain(1)._replace(v=x), Plain._make([x, 1])),
    "namedtuple_matched": lambda x: [a * b for a, b in [Pair(x, 2)]] + [p == Plain(1, 2) for p in [Plain(1, 2)]],
    "enums": lambda x: (Colour.RED.value, Colour["BLUE"].name, Colour(1) is Colour.RED, [c.name for c in Colour], Colour.RED.twice,
        Level.HIGH > Level.LOW, Level.HIGH + 1, x * Level.HIGH, Flags.A | Flags.B, bool(Flags.A & Flags.B), {Colour.RED: x}[Colour.RED],
        isinstance(Level.LOW, int)),
    "enum_returned": lambda x: (Colour.BLUE, Level.LOW, x + 1, Flags.A),
    "class_methods": lambda x: [(d.run(x), d(x), Derived.half(x), d.double, d.count, Base.half(x), isinstance(d, Base),
        type(d).__name__) for d in [Derived.make(3)]],
    "class_protocols": lambda x: [(d[2], len(d), 3 in d, list(d), (d + 1).k, (1 + d).k, (d + d).k, d == Derived(3), bool(d), repr(d),
        hash(d) == hash(3), sorted([Derived(2), d])[0].k, d < Derived(9)) for d in [Derived(3)]],
    "class_in_place": lambda x: [operator.iadd(d, 2).k + x for d in [Derived(3)]],
    "class_of_tensors": lambda x: [(d.run(x), (d + 1).k, d[1], list(d)) for d in [Derived(x)]],
    "attributes_made_up": lambda x: [(v.get_it(), getattr(v, "nope", None), hasattr(v, "x"), changed(v, y=x * 2).y, v.seen, delattr(v,
        "y"), hasattr(v, "y")) for v in [Lazy(x)]],
    "descriptors": lambda x: [(setattr(d, "n", 4), d.n, type(Described.n).__name__, changed(d, other=x).other) for d in [Described()]],
    "cached_properties": lambda x: [(c.total, c.total is c.total, "total" in c.__dict__) for c in [Cached(x)]],
    "single_dispatch": lambda x: (kind_of(1), kind_of(x), kind_of("s")),
    "single_dispatch_of_methods": lambda x: (Cached(x).of(3), Cached(x).of("a"), Cached(x).of(None)),
    "lru_caches": lambda x: (fib(10), fib(5) * x),
    "several_bases": lambda x: (Both().who(), [c.__name__ for c in Both.__mro__], issubclass(Both, Root), super(Mixin, Both()).who()),
    "metaclasses": lambda x: [(w.v, w.made, w.called, type(type(w)) is Meta) for w in [WithMeta(x)]],
    "decorators": lambda x: (tripled(x), tripled(x, k=2), tripled.__name__, tripled.__doc__, tripled.scale, tripled.__wrapped__(x)),
    "bound_methods": lambda x: [(f(x), f.__self__.k, f.__func__ is Derived.run) for f in [Derived(2).run]] + [x.add.__name__,
        types.MethodType(Derived.run, Derived(1))(x)],
    "simple_namespaces": lambda x: [(n.a, changed(n, b=3).b, vars(n)["b"]) for n in [types.SimpleNamespace(a=x)]],
    "mapping_proxies": lambda x: [(m["a"], list(m), len(m), m.get("z")) for m in [types.MappingProxyType({"a": x})]],
    "annotations_read": lambda x: (Pair.__annotations__["second"], list(Point.__dataclass_fields__), typing.get_origin(list[int]),
        typing.cast(int, 3), inspect.signature(tripled.__wrapped__).parameters["k"].default),
    "objects_compared": lambda x: (Point(x) is not None, Derived(1) != Derived(2), Colour.RED == Colour.RED, Root() == Root(),
        Frozen(1) in [Frozen(1)], Derived(1) in {Derived(1): 2}),
})  # fmt: skip


@program(*ROWS, **WHOLE)
def class_made_here(x):
    class Local:
        k = 2

        def __init__(self, v):
            self.v = v

        def f(self):
            return self.v * self.k

    class Child(Local):
        def f(self):
            return super().f() + 1

    return Child(x).f(), Local(x).f()


@program(*ROWS, **WHOLE)
def nonlocal_counter(x):
    n, seen = 0, []

    def step(v):
        nonlocal n
        n += 1
        seen.append(n)
        return v * n

    out = step(step(x))
    return out, n, seen


@program(*ROWS, **WHOLE)
def late_binding(x):
    fs = [lambda v: v * i for i in range(3)]
    gs = [lambda v, i=i: v * i for i in range(3)]
    return [f(x) for f in fs], [g(x) for g in gs]


@program(*ROWS, **WHOLE)
def loop_forms(x):
    out = []
    for i in range(5):
        if i == 1:
            continue
        if i == 4:
            break
        out.append(x * i)
    else:
        out.append("never")
    n = 3
    while n:
        n -= 1
        out.append(n)
    else:
        out.append("done")
    return out


@program(*ROWS, **WHOLE)
def match_statements(x):
    def name(v):
        match v:
            case torch.Tensor(ndim=2):
                return "matrix"
            case 0 | 1:
                return "small"
            case [a, b, *rest]:
                return "list", a, b, len(rest)
            case {"k": k, **rest}:
                return "dict", k, sorted(rest)
            case Frozen(n=n) if n > 5:
                return "frozen", n
            case Pair(first, second):
                return "pair", first.shape[1], second
            case str() as s:
                return s.upper()
            case Colour.RED:
                return "red"
            case None:
                return "none"
            case _:
                return "other"

    return [name(v) for v in (0, [1, 2, 3], {"k": 1, "z": 2}, Frozen(7), Frozen(1), Pair(x), "ab", x, Colour.RED, None, 9.5)]


# -- generators and context managers ----------------------------------------------------------------------------------
def counting(x, n):
    got = None
    for i in range(n):
        got = yield x * i + (0 if got is None else got)
    return "end"


def delegating(x):
    r = yield from counting(x, 2)
    yield r


def closing(log):
    try:
        yield 1
        yield 2
    except ValueError as e:
        log.append(str(e))
        yield 3
    finally:
        log.append("closed")


@contextlib.contextmanager
def logged(log, name):
    log.append("+" + name)
    try:
        yield name * 2
    except KeyError:
        log.append("!" + name)
    finally:
        log.append("-" + name)


class Guard:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, t, v, tb):
        self.log.append((t.__name__ if t else None, str(v)))
        return self.swallow


class Decorating(contextlib.ContextDecorator):
    def __enter__(self):
        return self

    def __exit__(self, *e):
        return False


programs(__name__, *ROWS, **WHOLE)({
    "generators": lambda x: (list(counting(x, 3)), sum(counting(x, 3)), [*delegating(x)], next(counting(x, 1)), dict(enumerate(counting(1,
        2)))),
    "generators_sent": lambda x: [(next(g), g.send(x), g.send(1), next(g, "over")) for g in [counting(x, 3)]],
    "generators_closed": lambda x: [(next(g), g.close(), log) for log in [[]] for g in [closing(log)]] + [(next(g),
        g.throw(ValueError("v")), log) for log in [[]] for g in [closing(log)]],
    "generator_expressions": lambda x: (sum(x[:, i] for i in range(4)), tuple(v * 2 for v in (x, x + 1)), all(i > 0 for i in (1, 2)),
        max((i for i in (1, 3, 2)), default=0), ",".join(str(i) for i in range(3))),
    "iterators": lambda x: [(next(it), list(it), next(it, None)) for it in [iter([x, 1,
        2])]] + [list(iter(lambda c=itertools.count(): next(c), 3))],
})  # fmt: skip


@program(*ROWS, **WHOLE)
def context_managers(x):
    log = []
    with logged(log, "a") as a, logged(log, "b"):
        y = x * len(a)
    with logged(log, "c"):
        raise KeyError("k")
    with Guard(log, True):
        raise ValueError("v")
    with Guard(log) as g:
        assert isinstance(g, Guard)
    with contextlib.suppress(ZeroDivisionError):
        1 / 0
    with contextlib.nullcontext(x) as z:
        y = y + z
    return y, log


@program(*ROWS, **WHOLE)
def exit_stacks(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, "last")
        names = [stack.enter_context(logged(log, n)) for n in "ab"]
        y = x * len(names)
    return y, log


@program(*ROWS, **WHOLE)
def context_decorators(x):
    @Decorating()
    def f(v):
        return v * 2

    @torch.no_grad()
    def g(v):
        return v + 1, torch.is_grad_enabled()

    return f(x), g(x), torch.is_grad_enabled()


@program(*ROWS, **WHOLE)
def returns_in_with(x):
    log = []

    def f(v):
        with logged(log, "w"):
            for i in range(3):
                with Guard(log):
                    if i == 1:
                        return v * i
        return None

    return f(x), log


# -- exceptions -------------------------------------------------------------------------------------------------------
class Wrong(Exception):
    def __init__(self, what, code=3):
        super().__init__(what)
        self.code = code


@program(*ROWS, **WHOLE)
def exceptions(x):
    out = []
    for f in (lambda: 1 / 0, lambda: {}["k"], lambda: [][1], lambda: int("z"), lambda: None.q, lambda: x.nope, lambda: x.shape[7],
    lambda: (_ for _ in ()).throw(Wrong("w", 5))):
        try:
            f()
        except (ZeroDivisionError, KeyError) as e:
            out.append(("first", type(e).__name__, str(e)))
        except LookupError as e:
            out.append(("lookup", e.args))
        except Wrong as e:
            out.append((e.code, str(e)))
        except Exception as e:
            out.append(type(e).__name__)
        else:
            out.append("none")
        finally:
            out.append(x.ndim)
    return out, x * 2


@program(*ROWS, **WHOLE)
def exceptions_chained(x):
    try:
        try:
            raise KeyError("inner")
        except KeyError as e:
            raise Wrong("outer") from e
    except Wrong as e:
        return x, type(e.__cause__).__name__, str(e), e.__suppress_context__, type(e.__context__).__name__


@program(*ROWS, **WHOLE)
def exceptions_and_finally(x):
    log = []

    def f(n):
        try:
            log.append(n)
            if n == 1:
                return x + 1
            if n == 2:
                raise Wrong("two")
        except Wrong:
            log.append("caught")
            return x + 2
        finally:
            log.append("finally")
        return x

    return f(0), f(1), f(2), log


@program(*ROWS, **WHOLE)
def exceptions_reraised(x):
    log = []
    try:
        try:
            raise Wrong("a")
        except Wrong:
            log.append("seen")
            raise
        finally:
            log.append("f")
    except Exception as e:
        log.append(e.code)
        e.add_note("noted")
        log.append(e.__notes__)
    return x, log


@program(*ROWS)
def exception_raised(x):
    if x.shape[1] == 4:
        raise Wrong(f"columns: {x.shape[1]}", 8)
    return x


@program(*ROWS)
def exception_of_torch(x):
    return x @ x


@program(*ROWS, **WHOLE)
def assertions(x):
    assert x.ndim == 2, "two"
    assert isinstance(x, torch.Tensor) and x.shape[1] == 4
    try:
        assert x.ndim == 3, f"is {x.ndim}"
    except AssertionError as e:
        return x + 1, str(e)


@program(*ROWS, **WHOLE)
def warnings_caught(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x * 2
    return y + 1


@program(*ROWS, **WHOLE)
def warnings_recorded(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        y = x * 2
        warnings.warn("careful", stacklevel=1)
    return y + 1, [str(w.message) for w in seen]


@program(*ROWS, **WHOLE)
def prints(x):
    print("shape", x.shape, x.dtype, sep="|")
    print(f"{x.shape[0]} rows", end="!\n")
    return x + 1


@program(*TWO, **WHOLE)
def structures(x, y):
    state = {"layers": [{"w": x, "b": y}, {"w": y, "b": x}], "meta": ("v1", Pair(x, 1))}
    for layer in state["layers"]:
        layer["w"] = layer["w"] * 2 + layer["b"]
    state["sum"] = sum(layer["w"].sum() for layer in state["layers"])
    return state


@program(*ROWS, world=True, **WHOLE)
def attribute_writes():
    holder = types.SimpleNamespace(steps=torch.zeros(()), seen=[], last=torch.zeros(()), names={"x": 0.0})

    def run(x):
        holder.steps = holder.steps + 1
        holder.last = x.sum()
        holder.names["x"] = x * 2
        return x + holder.steps

    return run, holder


@program(*ROWS, world=True, **WHOLE)
def outside_containers():
    table = {"a": t(4, seed=1), "b": [t(4, seed=2), 3]}
    return lambda x: x * table["a"] + table["b"][0] * table["b"][1], table


LATER = {"single_dispatch_of_methods": "methods are kept behind weak references with callbacks"}

listed(__name__, {
    "warnings_recorded": "warnings are looked at", **(LATER if sys.version_info >= (3, 12) else {}),
})  # fmt: skip


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()
