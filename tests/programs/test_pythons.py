"""What differs between the Pythons that pliant runs on: each answers as its own CPython does."""

from __future__ import annotations

import math
import sys

import pytest
import torch

from tests.helpers import check
from tests.programs.registry import cases, each, program, t

ROWS = each(3, 5, 2, 3, tail=(4,))
WHOLE = {"breaks": 0, "captures": 1}
INF, NAN = math.inf, math.nan
FLOATS = (
    (0.1, 0.2, 0.3), (1e16, 1.0, 1.0), (-1e16, 0.7, 1e16), (1.0, 1e100, -1e100), (-0.0, -0.0, -0.0), (0.5, -0.5, -0.0),
    (1e308, 1.7e308, -1e308), (INF, 1.0, 0.1), (-INF, INF, 1.0), (NAN, 0.1, 1e16), (5e-324, 1e16, 1.0), (3.0, 0.1, 0.2),
)  # fmt: skip


# -- sums of floats: since 3.12 CPython makes up for what rounding loses ---------------------------------------------------
@program(*[(t(2), *row) for row in FLOATS], breaks=0)
def sums_of_floats(x, a, b, c):
    return x, sum([a, b, c]), sum((a, 0.1, b, 0.2, c, -b, 0.3)), sum(v for v in (a, b, -c)), sum([b, a], c), sum([a], 0.0)


@program(*[(t(2), *row) for row in FLOATS], breaks=0)
def sums_of_floats_scale(x, a, b, c):
    return x * sum([a, 0.1, b, 0.2, c, -b, 0.1])


@program(*[(t(n + 2), *row) for n, row in enumerate(FLOATS)], breaks=0)
def sums_of_floats_and_ints(x, a, b, c):
    n = x.shape[0]
    large = sum([a, b, 2**70, c, 0.1]), sum([2**70, a, b, c, 0.1])
    return x, sum([1, a, n, b, c, 0.1]), sum([a, b, n, True, c]), sum([n, n, a, b, c]), large


@program(*[(t(2), *row) for row in FLOATS], breaks=0)
def sums_that_leave_the_floats(x, a, b, c):
    return sum([a, b, 1j, c]), sum([0.1] * 10 + [x]), sum([a, b, c, x]), sum([a, x[0], b, c]), sum([True, a, b], True)


class Small(float):
    pass


class Adds:
    def __radd__(self, other):
        return ("added to", other)


@program(*[(t(2), *row) for row in FLOATS if row[0] == row[0]])
def sums_with_classes_of_the_program(x, a, b, c):
    return x, sum([a, b, Small(1.0), c, 0.1]), sum([a, b, c, Adds()])


@program(*each(3, 5, 2, tail=(4,)))
def sums_of_items(x):
    items = [v.item() for v in x.double().flatten() / 10]
    return sum(items), x * sum(items, 0.1), sum(items[:2])


@program(*[(t(2), *row) for row in FLOATS])
def products_of_floats(x, a, b, c):
    """`math.sumprod`, since 3.12."""
    return x, math.sumprod([a, b], [b, 2.0]), math.sumprod([a, b, c], (c, 2, x.shape[0])) if hasattr(math, "sumprod") else None


@program(*ROWS)
def products_of_sizes(x):
    return x, math.sumprod(x.shape, [1, 2]) if hasattr(math, "sumprod") else None, sum(x.shape)


# -- generators: since 3.13 `close` gives what they return -----------------------------------------------------------------
def closing(log, value):
    try:
        yield 1
    except GeneratorExit:
        log.append("closed")
        return value


def delegating(log, value):
    log.append((yield from closing(log, value)))


class Items:
    def __iter__(self):
        return self

    def __next__(self):
        return 5

    def close(self):
        return 6


def over_items():
    try:
        yield from Items()
    except GeneratorExit:
        return 8


def closed(g):
    return next(g), g.close(), g.close(), next(g, "end")


@program(*ROWS, **WHOLE)
def closed_generators(x):
    log = []
    given = [closing(log, (1, 2)), closing(log, x + 1), closing(log, None), delegating(log, 3), over_items()]
    return [closed(g) for g in given], type(closed(closing(log, StopIteration(3)))[1]), closing(log, 1).close(), log


@program(*ROWS)
def closed_behind_a_break(x):
    log = []
    a, b = closing(log, x + 2), closing(log, 7)
    next(a), next(b)
    print(end="")
    return a.close(), b.close(), log


# -- comprehensions: since 3.12 they run in the frame around them ----------------------------------------------------------
@program(*ROWS, **WHOLE)
def comprehensions_and_their_names(x):
    i = 7
    try:
        [1 // (i - 1) for i in range(3)]
    except ZeroDivisionError as e:
        said = str(e)
    fs = [lambda: i for i in range(3)]
    return [[x[j] * k for k in range(2)] for j in range(2)], i, said, [f() for f in fs], sorted(locals()), [k := j for j in range(3)], k


@program(*ROWS)
def comprehensions_over_breaks(x):
    i = 7
    try:
        r = [(print(end=""), x + 1 // (i - 1))[1] for i in range(3)]
    except ZeroDivisionError:
        r = [(print(end=""), x + i)[1] for i in range(3)]
    return r, i


# -- locals(): one dict a frame, until 3.13 ---------------------------------------------------------------------------------
@program(*ROWS, **WHOLE)
def locals_asked_again(x):
    n = 1
    d = locals()
    d["b"] = 3
    n = 2
    e = locals()
    return sorted(d), d["n"], e["n"], sorted(e), d is e, list(d)[:2], x + 1


@program(*ROWS, **WHOLE)
def locals_that_are_gone(x):
    n = 1
    d = locals()
    del n
    e = vars()
    return sorted(d), sorted(e), x


@program(*ROWS, **WHOLE)
def locals_of_inner_functions(x):
    def inner(k):
        p = vars()
        k = k + 1
        q = locals()
        return p["k"], q["k"], p is q, (lambda: k)()

    return inner(x), inner(3)


@program(*ROWS)
def locals_for_eval(x):
    n = 1
    d = locals()
    n = 2
    r = eval("n + d['n']")
    return r, d["n"], sorted(d), x + 1


# -- slices hash since 3.12 ------------------------------------------------------------------------------------------------
@program(*ROWS)
def slices_as_keys(x):
    try:
        return x, {slice(1, 2): 3}[slice(1, 2)], len({slice(0, x.shape[0]), slice(0, 3)})
    except TypeError as e:
        return x, str(e)


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


# -- type parameters: made in a break of the graph -------------------------------------------------------------------------
TYPED = """
def a_function(x):
    def f[T: int, *Ts, **P](a: T) -> T:
        return a * 2
    made = f.__type_params__
    return f(x), [(type(p).__name__, p.__name__) for p in made], made[0].__bound__, f.__annotations__["return"].__name__

def a_function_that_breaks(x):
    def f[T](a: T, b=3) -> T:
        print(end="")
        return a * b
    return f(x) + 1, f(x, b=2)

def a_class(x):
    class A[T]:
        n = 3
        def __init__(self, v: T):
            self.v = v
        def get(self) -> T:
            return self.v * self.n
    class B[U](A[U]):
        def get(self):
            return super().get() + 1
    return A(x).get(), B[int](x).v, A.__type_params__[0].__name__, B(x).get(), [c.__name__ for c in B.__mro__]

def choices(x):
    def f[T: (int, str)](a): return a + 1
    return f(x), f.__type_params__[0].__constraints__

def an_alias(x):
    type V = list[int]
    type W[T] = dict[T, V]
    return x + 1, V.__name__, V.__value__, W.__name__, len(W.__type_params__), W[int].__args__
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a syntax since Python 3.12")
@pytest.mark.parametrize("name", ["a_function", "a_function_that_breaks", "a_class", "choices", "an_alias"])
def test_type_parameters(name):
    space = {"__name__": __name__, "torch": torch}
    exec(compile(TYPED, "<typed>", "exec"), space)
    check(space[name], *ROWS, lines=False)
