"""Type parameters and aliases made in compiled functions: others in each call; what they stand for is worked out when it is asked for."""

from __future__ import annotations

import itertools
import operator
import sys
import types
import typing
from typing import Generic, ParamSpec, TypeVar, TypeVarTuple, Unpack

import pytest
import torch

from tests.helpers import check, compiled
from tests.programs.registry import cases, each, program

ROWS = each(3, 5, 2, 3, tail=(4,))
OUTSIDE = TypeVar("OUTSIDE")


@program(*ROWS, breaks=0)
def another_in_each_call(x):
    T, P, Ts = TypeVar("T"), ParamSpec("P"), TypeVarTuple("Ts")
    return T, P, Ts, P.args, P.kwargs, T.__name__, T.__module__, repr(P), OUTSIDE, x + 1


@program(*ROWS, breaks=0)
def annotations_of_them(x):
    T, P = TypeVar("T"), ParamSpec("P")
    told = typing.Optional[T], typing.Dict[str, T], typing.Callable[P, T], T | None  # noqa: UP006, UP045
    return list[T], told, typing.List[T] is typing.List[T], list[T].__parameters__[0] is T, list[OUTSIDE], x  # noqa: UP006


@program(*ROWS)
def generic_classes(x):
    T, Ts = TypeVar("T"), TypeVarTuple("Ts")

    class Box(Generic[T]):
        def __init__(self, v: T):
            self.v = v

    class Sub(Box[T], Generic[T]):
        pass

    class Many(Generic[Unpack[Ts]]):  # noqa: UP044
        pass

    print(end="")
    return Sub[int](x).v, Box[T], Sub.__orig_bases__, Sub[T][int], Many[int, str], Many.__parameters__[0] is Ts, T


@program(*ROWS)
def with_bounds_and_attributes(x):
    T = TypeVar("T", bound=list[x.shape[0]])
    T.kept = x + 1
    U = TypeVar("U", int, str)
    print(end="")
    T.kept.add_(1)
    return T, T.__bound__, T.kept, U, U.__constraints__, {T: 1}[T], T == U


@program(*ROWS, breaks=0)
def annotated_functions(x):
    T = TypeVar("T")

    def f(v: T, w: list[T] | None = None) -> T:
        return v

    return f.__annotations__["v"], f.__annotations__["w"].__args__[0].__args__[0] is T, f, x


@program(*ROWS, breaks=0)
def what_is_refused(x):
    said = []
    for make in (lambda: TypeVar("T", int), lambda: TypeVar("T", covariant=True, contravariant=True), lambda: TypeVar(3)):
        try:
            make()
        except (TypeError, ValueError) as e:
            said.append(str(e))
    return said, x


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


# -- their syntax (3.12) ---------------------------------------------------------------------------------------------------
WRITTEN = """
def functions(x):
    def f[T](v: T) -> T:
        return v + 1
    T = f.__type_params__[0]
    return f(x), f, T, f.__annotations__["v"] is T, T.__infer_variance__

def functions_with_defaults(x):
    def f[T](v: T, w=x + 1, *, k=x * 2) -> T:
        return v + w + k
    print(end="")
    return f(x), f.__defaults__, f.__kwdefaults__, [str(p) for p in f.__type_params__]

def bounds(x):
    n = x.shape[0]
    def f[T: list[n]](v: T) -> T:
        return v + n
    def g[T: (int, str), *Ts, **P](*v: *Ts):
        return v
    n += 1
    return f(x), f.__type_params__[0].__bound__, g.__type_params__[0].__constraints__, g.__type_params__

def bounds_that_name_it(x):
    def f[T: list[T]](v: T) -> T:
        return v
    return f(x), f.__type_params__[0].__bound__.__args__[0] is f.__type_params__[0]

def classes(x):
    class C[T](list[T]):
        k = x + 1
        def m[U](self, u: U) -> tuple[T, U]:
            return u + self.k
    c = C([1, 2])
    return c.m(x), C.__bases__, C.__orig_bases__[0].__origin__, C.__parameters__, C[int], C

def classes_of_classes(x):
    class A[T]:
        pass
    class B[T](A[T]):
        def f(self):
            return __class__.__name__, super().__init__()
    return B().f(), B.__orig_bases__, B.__mro__[1].__name__, B.__type_params__[0] is A.__type_params__[0], x

def around_breaks(x):
    class A[T]:
        def __init__(self, v: T):
            self.v = v
    a = A[int](x)
    print(end="")
    return a.v + 1, type(a).__type_params__, A[str](x).v

def dataclasses_of_them(x):
    @dataclasses.dataclass
    class D[T]:
        a: T
        b: int = 2
        def s(self):
            return self.a + self.b
    return D(x).s(), D[int](x, 3).s(), [f.name for f in dataclasses.fields(D)]

def aliases(x):
    n = x.shape[0]
    type L[T] = list[T]
    type M = list[n]
    n = n + 1
    return L, L[int], L.__name__, len(L.__type_params__), M.__value__, M.__value__ is M.__value__, x + n

def aliases_that_name_themselves(x):
    type R = list[R] | int
    before = R
    return R.__value__.__args__[0].__args__[0] is before, x

def aliases_of_nothing(x):
    type E = nothing_there
    try:
        return E.__value__
    except NameError as e:
        return str(e), x

def aliases_of_what_comes_later(x):
    type L = list[late]
    try:
        early = str(L.__value__)
    except NameError as e:
        early = str(e)
    late = x.shape[0]
    return early, str(L.__value__), x

def names_of_class_bodies(x):
    class C:
        T = x.shape[0]
        def f[U: T](self, u: U):
            return u
        type A = T
        type B[V] = (T, V)
    return C().f(x), C.f.__type_params__[0].__bound__, C.A.__value__, C.B.__value__[0], C.B.__type_params__

def scopes(x):
    T = 5
    def outer[T](v: T):
        def inner[U](u: U):
            return T.__name__, U.__name__, v + u
        return inner
    return outer(x)(x + 1), T

def in_a_loop(x):
    made = []
    for i in range(3):
        def f[T](v: T, i=i):
            return v + i
        made.append(f)
    return [f(x) for f in made], [f.__type_params__[0] for f in made]

def generators(x):
    def g[T](v: T):
        yield v
        print(end="")
        yield v + 1
    return list(g(x)), g

type OUTSIDE[T] = list[T]
type CHANGED = list[SIZE]
SIZE = 1

def aliases_from_outside(x):
    global SIZE
    SIZE = x.shape[0]
    return OUTSIDE[int], OUTSIDE.__value__, CHANGED.__name__, str(CHANGED.__value__), x + SIZE
"""
SPACE: dict = {"__name__": __name__}
if sys.version_info >= (3, 12):
    exec(compile("import dataclasses\n" + WRITTEN, "<written>", "exec"), SPACE)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a syntax since Python 3.12")
@pytest.mark.parametrize("name", [line[4:].split("(")[0] for line in WRITTEN.splitlines() if line.startswith("def ")])
def test_syntax(name):
    check(SPACE[name], *ROWS, lines=False)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a syntax since Python 3.12")
@pytest.mark.parametrize("name", ["functions", "classes_of_classes", "scopes", "in_a_loop"])
def test_no_breaks(name):
    report = check(SPACE[name], *ROWS, lines=False)
    assert report.graph_breaks == 0


# -- names of class bodies -----------------------------------------------------------------------------------------------------
def seen(names):
    return sorted(k for k in names if k[0] not in "._")


def in_comprehensions(x):
    class A:
        y = x.shape[0]
        a = [seen(locals()) for i in range(1)]
        b = [[seen(locals()) for j in range(1)] for i in range(1)]
        c = list(seen(vars()) for i in range(1))
        d = [k for k in dir() if k == "y"]
        e = seen(locals())

    return A.a, A.b, A.c, A.d, A.e, x


def test_names_in_comprehensions_of_class_bodies():
    """They run in the frame of the body since 3.12."""
    check(in_comprehensions, *ROWS)


MADE = {
    "list": lambda: list[int],
    "pair": lambda: dict[str, int],
    "union": lambda: int | str,
    "none": lambda: int | None,
    "of an alias": lambda: list[int] | None,
    "nested": lambda: list[dict[str, int]],
    "by its class": lambda: types.GenericAlias(list, int),
    "by a function": lambda: operator.or_(int, str),
    "unpacked": lambda: [*tuple[int, str]][0],
    "unpacked by hand": lambda: next(iter(list[int])),
    "an argument": lambda: (lambda *a: a)(*list[int])[0],
    "mapped": lambda: next(map(lambda a: a, tuple[int])),
    "zipped": lambda: list(zip(tuple[int], tuple[str], strict=True))[0][1],
    "counted": lambda: next(enumerate(tuple[int]))[1],
    "chained": lambda: list(itertools.chain(tuple[int]))[0],
    "chained from within": lambda: list(itertools.chain.from_iterable([tuple[int]]))[0],
    "chained from what a function gives": lambda: list(itertools.chain.from_iterable(map(lambda a: a, [tuple[int]])))[0],
    "added to a list": lambda: extended([]),
    "kept by typing": lambda: typing.Optional[int],  # noqa: UP045
    "from outside": lambda: OUTSIDE["a"],
    "out of a copy": lambda: dict(OUTSIDE).pop("a"),
}


def extended(items):
    items.extend(tuple[int])
    return items[0]


OUTSIDE = {"a": list[int]}


@pytest.mark.parametrize("name", MADE)
def test_aliases_are_made_anew_in_each_call(name):
    def made(x):
        a = MADE[name]()
        return x + 1, a, (a,)

    def told(f):
        given = [f(torch.ones(2))[1:] for _ in range(3)]
        return [[a is b for a, _ in given for b, _ in given], [a is t[0] for a, t in given], given]

    assert told(compiled(made)) == told(made)
