"""What newer Pythons have and 3.11 does not: functions, protocols and syntax, each answered as its own CPython does (or refuses)."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import functools
import inspect
import itertools
import math
import operator
import random
import sys
import types
import typing
import warnings
from collections import namedtuple

import pytest
import torch

import pliant
from tests.helpers import check
from tests.programs.registry import cases, each, program, t

ROWS = each(3, 5, 2, 3, tail=(4,))
replace = getattr(copy, "replace", lambda value, /, **changes: type(value).__replace__(value, **changes))
batched = getattr(itertools, "batched", None)


# -- copy.replace, and the method behind it (3.13) -------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Point:
    x: torch.Tensor
    n: int = 3
    tags: tuple = dataclasses.field(default=(), kw_only=True)


Pair = namedtuple("Pair", "a b")


class Own:
    def __init__(self, v):
        self.v = v

    def __replace__(self, /, **changes):
        return Own(changes.pop("v", self.v) + len(changes))


@program(*ROWS)
def replaced_dataclasses(x):
    p = Point(x, tags=("a",))
    try:
        q = replace(p, n=x.shape[0], x=x + 1)
        return q, q.tags, replace(q).n, p.n, type(q) is Point
    except (AttributeError, TypeError) as e:
        return type(e).__name__, str(e)


@program(*ROWS)
def replaced_tuples(x):
    try:
        return replace(Pair(x, 1), b=x.shape[0]), replace(Pair(1, 2)), Pair(x, 1)._replace(a=x * 2)
    except (AttributeError, TypeError) as e:
        return type(e).__name__, str(e)


@program(*ROWS)
def replaced_with_fields_that_are_not_there(x):
    said = []
    for value in (Point(x), Pair(x, 1), Own(x), 3, "a", [x]):
        try:
            said.append(type(replace(value, other=1)).__name__)
        except (AttributeError, TypeError, ValueError) as e:
            said.append((type(e).__name__, str(e)))
    return said, x + 1


@program(*ROWS)
def replaced_by_a_method_of_the_program(x):
    return replace(Own(x), v=x * 2).v, replace(Own(x), w=1, u=2).v, Own(x).__replace__(v=x).v


@program(*ROWS)
def replaced_namespaces(x):
    ns = types.SimpleNamespace(a=x, n=1)
    try:
        other = replace(ns, n=x.shape[0], b=2)
    except (AttributeError, TypeError) as e:
        return type(e).__name__, str(e), ns.a
    return other.a is ns.a, other.n, other.b, ns.n, sorted(vars(other))


@program(*ROWS)
def namespaces_of_a_mapping(x):
    try:
        ns = types.SimpleNamespace({"a": x, "n": 1}, n=x.shape[0])
    except TypeError as e:
        return type(e).__name__, str(e), x
    return ns.a + ns.n, sorted(vars(ns))


# -- numbers ---------------------------------------------------------------------------------------------------------------
FLOATS = ((0.1, 10.0, -1.0), (1e308, 10.0, -1e308), (math.inf, 0.0, 1.0), (math.nan, 1.0, 2.0), (0.0, -0.0, -0.0), (1e-320, 0.5, 0.0))


@program(*[(t(2), *row) for row in FLOATS])
def multiplied_and_added(x, a, b, c):
    """`math.fma`, since 3.13."""
    fma = getattr(math, "fma", None)
    if fma is None:
        return x
    try:
        return x, fma(a, b, c), fma(a, b, 1), fma(x.shape[0], a, c)
    except (OverflowError, ValueError) as e:
        return x, type(e).__name__, str(e)


@program(*[(t(2), *row) for row in FLOATS])
def floats_beside(x, a, b, c):
    """`math.nextafter` takes steps since 3.12."""
    try:
        return x, math.nextafter(a, b, steps=3), math.nextafter(a, b, steps=x.shape[0])
    except TypeError as e:
        return x, str(e)


@program(*[(t(2), *row) for row in FLOATS])
def rounded_and_whole(x, a, b, c):
    return x, (1.5).is_integer(), b.is_integer(), x.shape[0].is_integer() if hasattr(int, "is_integer") else None


@program(*ROWS)
def drawn(x):
    random.seed(3)
    draw = getattr(random, "binomialvariate", None)
    return x * random.random(), draw(10, 0.3) if draw else None, random.expovariate() if sys.version_info >= (3, 12) else None


# -- iterators -------------------------------------------------------------------------------------------------------------
@program(*ROWS)
def in_batches(x):
    if batched is None:
        return x
    rows = [r.sum() for r in x]
    return list(batched(rows, 2)), [len(b) for b in batched(range(x.shape[0]), 2)], [sum(b) for b in batched((1, 2, 3), 2)]


@program(*ROWS)
def in_whole_batches(x):
    if batched is None:
        return x
    seen = []
    try:
        for b in batched(x, 2, strict=True):
            seen.append(b[0] + b[1])
    except (ValueError, TypeError) as e:
        return seen, type(e).__name__, str(e)
    return seen


# -- texts and builtins ----------------------------------------------------------------------------------------------------
@program(*ROWS)
def replaced_texts(x):
    try:
        return "aaa".replace("a", "b", count=2), x + 1
    except TypeError as e:
        return str(e), x


@program(*ROWS)
def evaluated_with_names(x):
    n = x.shape[0]
    try:
        return eval("n + m", globals={"n": n}, locals={"m": 2}), x
    except TypeError as e:
        return str(e), x


@program(*ROWS)
def evaluated_with_some_names(x):
    n = x.shape[0]
    said = []
    for names in ({"locals": {"n": n}}, {"globals": {"n": n}}, {"globals": None, "locals": None}, {"other": 1}):
        try:
            said.append(eval("n + 1", **names))
        except (TypeError, NameError) as e:
            said.append(type(e).__name__)
    try:
        said.append(eval("n + 1", {"n": n}, locals={"n": 7}))
        exec("m = n + 1", globals={"n": n}, locals=(space := {}))
        said.append(space)
    except TypeError as e:
        said.append(str(e))
    return said, x


@program(*ROWS)
def f_strings_within_f_strings(x):
    n = x.shape[0]
    return f"{n:{len(f'{n}') + 2}d} {f'{n!r:>4}'} {n=} {-0.0:z.1f}", x


# -- enumerations ----------------------------------------------------------------------------------------------------------
class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Bits(enum.IntFlag):
    A = 1
    B = 2


@program(*ROWS)
def contained_values(x):
    said = []
    for value in (1, "b", 3, Colour.RED, x.shape[0], None):
        try:
            said.append(value in Colour)
        except TypeError as e:
            said.append(str(e))
    return said, x + (1 if Colour.RED in Colour else 2)


@program(*ROWS)
def flags(x):
    both = Bits.A | Bits.B
    try:
        there = 1 in Bits
    except TypeError as e:
        there = str(e)
    return x * both, str(both), format(both), repr(both), list(both), Bits.A in both, there, ~Bits.A


# -- classes ---------------------------------------------------------------------------------------------------------------
class Described:
    """What it is.

    And more.
    """

    kept = 1

    def __init__(self, v):
        self.v, self.w = v, 1

    @property
    def twice(self):
        """Two of it."""
        return self.v * 2

    @classmethod
    def made(cls, v):
        return cls(v)


@program(*ROWS)
def what_classes_tell(x):
    d = Described.made(x)
    told = sorted(getattr(Described, "__static_attributes__", ()))
    return d.twice, told, getattr(Described, "__firstlineno__", None), Described.__doc__, Described.twice.__doc__


@program(*ROWS)
def names_of_properties(x):
    p = Described.twice
    return x, getattr(p, "__name__", None), p.fget.__name__, inspect.isfunction(p.fget), inspect.getdoc(Described)


@program(*ROWS)
def classes_made_in_the_function(x):
    class Local:
        """Local.

        Indented."""

        def __init__(self):
            self.a = x
            self.b = 2

    made = Local()
    hidden = {"__firstlineno__", "__static_attributes__"}
    return made.a + made.b, Local.__doc__, sorted(k for k in vars(Local) if k not in hidden), hasattr(Local, "__static_attributes__")


class Meta(type):
    def __prepare__(name, bases, **kw):  # noqa: N805
        return {"seen": []}

    def __new__(cls, name, bases, space, **kw):
        names = [k for k in space if k != "seen"]
        made = super().__new__(cls, name, bases, space)
        made.names = names
        return made


@program(*ROWS)
def namespaces_of_class_bodies(x):
    class Made(metaclass=Meta):
        a = 1

        def f(self):
            self.q = 1

    return Made.names, x


@program(*ROWS)
def overridden(x):
    override = getattr(typing, "override", lambda f: f)

    class Base:
        def f(self):
            return 1

    class Sub(Base):
        @override
        def f(self):
            return x + super().f()

    return Sub().f(), getattr(Sub.f, "__override__", None)


@program(*ROWS)
def deprecated_functions(x):
    mark = getattr(warnings, "deprecated", lambda text: lambda f: f)

    @mark("no more")
    def old(v):
        return v + 1

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        r = old(x)
    return r, [str(w.message) for w in caught], getattr(old, "__deprecated__", None), old.__name__


# -- what metaclasses tell of classes --------------------------------------------------------------------------------------
class Told:
    def __init__(self, text):
        self.text = text

    def __get__(self, obj, cls=None):
        return self.text, obj is None


class Kept(Told):
    def __set__(self, obj, value):
        raise AttributeError("kept")


class Forgotten(Told):
    def __delete__(self, obj):
        raise AttributeError("kept")


class Kind(type):
    kept, forgotten, told, plain = Kept("a"), Forgotten("b"), Told("c"), 1

    @property
    def named(cls):
        return cls.__name__

    def method(cls):
        return cls.__class__.__qualname__


class OfKind(metaclass=Kind):
    kept, forgotten, told, plain, named, method = 1, 2, 3, 4, 5, 6


class Claims:
    __class__ = property(lambda self: int)


@program(*ROWS, breaks=0)
def classes_of_classes(x):
    ours = (OfKind, Kind, Claims, Colour, Bits, Described, Point, Pair, torch.nn.Module, int, type, object)
    return [c.__class__ for c in ours], [c.__class__.__name__ for c in ours], Kind.method(OfKind), Claims().__class__, x + 1


@program(*ROWS, breaks=0)
def attributes_of_metaclasses_first(x):
    return x, OfKind.kept, OfKind.forgotten, OfKind.told, OfKind.plain, OfKind.named, OfKind.method


class Asks(type):
    def __getattr__(cls, name):
        return name


class Asked(metaclass=Asks):
    n = 1


@program(*ROWS)
def dicts_of_classes(x):
    """Metaclasses with a `__getattr__`: `EnumType` had one up to 3.11."""
    return x, sorted(Asked.__dict__)[-1], Colour.__dict__["BLUE"].value, len(Kind.__dict__), OfKind.__dict__["plain"], Asked.other


@program(*ROWS, breaks=0)
def what_type_tells(x):
    ours = (OfKind, Kind, Described, type)
    return x + 1, [(c.__module__, c.__itemsize__, c.__basicsize__, c.__flags__, c.__weakrefoffset__, c.__dictoffset__) for c in ours]


# -- comprehensions in the frame around them (PEP 709) ---------------------------------------------------------------------
class Owner:
    scale = 3

    def rows(self, x):
        return [super(Owner, self).__getattribute__("scale") * r for r in x], [__class__.__name__ for _ in range(2)]


@program(*ROWS, breaks=0)
def comprehensions_with_class_cells(x):
    return Owner().rows(x)


@program(*ROWS)
def comprehensions_that_raise(x):
    r = 5
    try:
        return [r for r in range(3) if 1 // (2 - r) > -5], r
    except ZeroDivisionError as e:
        return x + r, str(e), r


@program(*ROWS)
def comprehensions_of_names_that_are_not_set(x):
    if x.shape[0] > 100:
        i = 1
    a = [i * 2 for i in range(2)]
    try:
        return a, i
    except UnboundLocalError as e:
        return a, str(e), x


@program(*ROWS)
def comprehensions_and_cells(x):
    fs = [lambda k=k: (k, j) for k in range(2) for j in range(2)]
    gs = {n: (lambda: n + x.shape[0]) for n in range(3)}
    return [f() for f in fs], [g() for g in gs.values()], {s.sum() for s in ()}


@program(*ROWS)
def comprehensions_that_see_locals(x):
    n = 2
    a = [sorted(k for k in locals() if not k.startswith(".")) for i in range(1)]
    return a, n, x


@program(*ROWS)
def comprehensions_with_generators_beneath(x):
    g = (r + 1 for r in [v * 2 for v in x] if [q for q in range(2)])
    return list(g), next((i for i in [j for j in range(3)] if i), None)


# -- exceptions ------------------------------------------------------------------------------------------------------------
@program(*ROWS)
def groups_with_handlers(x):
    log = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), ExceptionGroup("h", [ValueError(3), OSError(4)])])
    except* ValueError as g:
        log.append(("value", [str(e) for e in g.exceptions]))
    except* (TypeError, OSError) as g:
        log.append(("other", repr(g)))
    return x + len(log), log


@program(*ROWS)
def suppressed_groups(x):
    log = []
    try:
        with contextlib.suppress(ValueError):
            log.append(1)
            raise ExceptionGroup("g", [ValueError(1), ValueError(2)])
    except ExceptionGroup as e:
        log.append(str(e))
    return x * len(log), log


@program(*ROWS)
def words_of_errors(x):
    said = []
    calls = [
        lambda: (lambda a, *, b: a)(1, c=2),
        lambda: (lambda a: a)(),
        lambda: Described.made(x).nothing,
        lambda: sum([1], 2, 3),
        lambda: [1, 2].indx,
        lambda: math.sqrt(-x.shape[0]),
        lambda: int("a"),
        lambda: {}[x.shape[0]],
        lambda: "a" + 1,
        lambda: operator.index(1.5),
        lambda: list(zip([1], [1, 2], strict=True)),
        lambda: functools.reduce(operator.add, []),
        lambda: isinstance(1, "a"),
        lambda: max(()),
        lambda: next(iter(())),
        lambda: range(1.0),
        lambda: object(1),
        lambda: Described(),
        lambda: Point(x).__setattr__("n", 1),
        lambda: "a".replace("b"),
        lambda: [].pop(),
        lambda: {}.popitem(),
        lambda: (1).to_bytes(0, "big"),
        lambda: (1, 2).index(3),
        lambda: slice(1, 2) < 3,
        lambda: len(3),
        lambda: divmod(1, 0),
        lambda: 1 % 0,
        lambda: 1.0 // 0,
        lambda: 2**-1 // 0,
        lambda: math.log(0),
        lambda: round(1.5, "a"),
        lambda: [*3],
        lambda: dict(a=1, **{"a": 2}),
        lambda: print(1, end=3),
    ]
    for f in calls:
        try:
            said.append(f())
        except Exception as e:
            said.append((type(e).__name__, str(e)))
    return said, x + 1


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


# -- iterators of `itertools` warn of their `__reduce__` (3.12) ---------------------------------------------------------------
ITERATORS = {
    "chain": lambda: itertools.chain([1, 2], [3]), "islice": lambda: itertools.islice([1, 2, 3, 4], 1, 4),
    "count": lambda: itertools.count(3), "cycle": lambda: itertools.cycle([1, 2, 3]), "repeat": lambda: itertools.repeat(2, 5),
    "accumulate": lambda: itertools.accumulate([1, 2, 3]),
    "zip_longest": lambda: itertools.zip_longest([1, 2], [3]), "product": lambda: itertools.product([1, 2], [3, 4]),
    "permutations": lambda: itertools.permutations([1, 2, 3]), "combinations": lambda: itertools.combinations([1, 2, 3], 2),
    "takewhile": lambda: itertools.takewhile(lambda v: v < 3, [1, 2, 3]), "starmap": lambda: itertools.starmap(pow, [(1, 2), (2, 3)]),
    "tee": lambda: itertools.tee([1, 2, 3])[0],
}  # fmt: skip


@pytest.mark.parametrize("kind", ITERATORS)
def test_warnings_that_are_errors(kind):
    def given(x, it):
        first = next(it)
        print(end="")
        return x + 1, first, [v for v, _ in zip(it, range(2))]  # noqa: B905

    def made(x):
        it = ITERATORS[kind]()
        first = next(it)
        print(end="")
        return x + 1, first, next(it, None), it

    for_given, for_made = pliant.compile(given), pliant.compile(made)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = [*warnings.filters]
        for n in (2, 3, 3):
            x = torch.ones(n)
            assert for_given(x, ITERATORS[kind]())[1:] == given(x, ITERATORS[kind]())[1:]
            *want, rest = made(x)
            *got, left = for_made(x)
            assert got[1:] == want[1:] and next(left, None) == next(rest, None)
        assert warnings.filters == before


# -- defaults of type parameters (3.13) ------------------------------------------------------------------------------------
TYPED = """
def a_function(x):
    def f[T = int, *Ts = *tuple[int, str], **P = [int]](a: T) -> T:
        return a * 2
    made = f.__type_params__
    return f(x), [(type(p).__name__, p.__name__, p.has_default()) for p in made], made[0].__default__

def a_class(x):
    class A[T, U = list[T]]:
        def get(self, v: U):
            return v + 1
    return A().get(x), A.__type_params__[1].has_default(), A[int].__args__

def an_alias(x):
    type V[T = int] = dict[str, T]
    return x + 1, V.__type_params__[0].__default__
"""


@pytest.mark.skipif(sys.version_info < (3, 13), reason="a syntax since Python 3.13")
@pytest.mark.parametrize("name", ["a_function", "a_class", "an_alias"])
def test_defaults_of_type_parameters(name):
    space = {"__name__": __name__, "torch": torch}
    exec(compile(TYPED, "<typed>", "exec"), space)
    check(space[name], *ROWS, lines=False)


# -- truth where CPython goes on (its jumps take True and False alone since 3.13) -----------------------------------------------
NOW: list = []


@pliant.disable
def now():
    return NOW[0]


class Says:
    def __lt__(self, other):
        return now()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return now()


def leaves_quietly():
    try:
        with Says():
            raise ValueError
        return True
    except ValueError:
        return False


def asserted():
    try:
        assert now()
        return True
    except AssertionError:
        return False


def of_a_loop():
    while now():
        return True
    return False


TRUTHS = {
    "if": lambda: 1 if now() else 2, "not": lambda: not now(), "comparison": lambda: 1 if Says() < 1 else 2,
    "not of a comparison": lambda: not Says() < 1, "chain": lambda: 1 if 0 < 1 > 0 and Says() < 1 else 2, "or": lambda: now() or 3,
    "with": leaves_quietly, "assert": asserted, "while": of_a_loop, "comprehension": lambda: [i for i in range(2) if now()],
}  # fmt: skip


@pytest.mark.parametrize("name", TRUTHS)
def test_truth_behind_breaks_of_frames_that_are_left_to_cpython(name):
    ask = TRUTHS[name]

    def program(x):
        return ask(), x + 1

    run = pliant.compile(program, recompile_limit=1, strict=True)
    for value in ([], "", {}, 0.0, None, (), [1], "a", {1: 2}, 1.5, (1,), set(), {1}, b"", b"a"):
        NOW[:] = [value]
        assert run(torch.ones(1))[0] == program(torch.ones(1))[0]
