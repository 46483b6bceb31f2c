"""Functions: arguments, closures, generators, decorators, recursion, names.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import functools
import operator

import pytest
import torch

import pliant
from tests.helpers import Observed, call, compiled
from tests.programs.registry import cases, each, program, t

SHAPES = each(3, 5, 2)


@program(
    call(t(3)), call(t(3), 2), call(t(3), c=5), call(t(3), 2, 3, 4, c=5, z=1, w=t(3)), call(x=t(3), b=7),
    call(), call(t(3), 1, q=2, x=3), breaks=0,
)  # fmt: skip
def signature(x, b=1, *rest, c=2, **kw):
    return x + b * c + len(rest), rest, kw


@program(call(t(3), 1, c=2), call(t(3), b=1, c=2), call(t(3), 1, 2), breaks=0)
def positional_only(x, b, /, *, c):
    return x + b * c


@program(*SHAPES, breaks=0)
def calls_of_all_kinds(x):
    def f(a, b=2, *c, d=4, **e):
        return a + b, c, d, e

    args, kw = (x, 1), {"d": 9, "q": 1}
    return (f(x), f(x, 1), f(*args), f(*args, 5, *[6], **kw), f(a=x), f(x, **{"b": 3}), f(*args, **{**kw, "z": 0}),
        max(*[1, 2], key=lambda v: v),)


@program(*SHAPES)
def call_errors(x):
    def f(a, b, *, c=1):
        return a

    out = []
    for k in (lambda: f(), lambda: f(1, 2, 3), lambda: f(1, 2, d=3), lambda: f(1, a=2), lambda: f(*3), lambda: f(**{1: 2}),
        lambda: x.dim()()):
        try:
            k()
        except TypeError as e:
            out.append(str(e))
    return out, x + 1


@program(*SHAPES, breaks=0)
def closures(x):
    n = x.shape[0]

    def add(y):
        return y + n + x

    def outer():
        m = n * 2

        def inner():
            return m + n

        return inner

    return add(x), outer()(), (lambda v: v + n)(x)


@program(*SHAPES, breaks=0)
def nonlocals(x):
    total, log = x, []

    def step(k):
        nonlocal total
        total = total + k
        log.append(k)

        def again():
            nonlocal total
            total = total * 2

        return again

    for k in range(3):
        step(k)()
    return total, log


@program(*SHAPES, breaks=0)
def closure_over_later_value(x):
    fs = []
    for i in range(3):
        fs.append(lambda y: y + i)
    gs = [lambda y, i=i: y + i for i in range(3)]
    return [f(x) for f in fs], [g(x) for g in gs]


@program(*SHAPES)
def empty_cell(x):
    def f():
        return later

    try:
        f()
    except NameError as e:
        message = str(e)
    later = x
    out = f()
    del later
    try:
        f()
    except NameError as e:
        return out, message, str(e)


@program(*SHAPES, breaks=0)
def returns_closures(x):
    n = 3

    def f(y, k=x.shape[0]):
        return y + n + x + k

    return f, lambda: n, functools.partial(f, k=1)


@program(*[(t(3),)] * 3, world=True, breaks=0)
def closure_cell_written():
    count = 0

    def fn(x):
        nonlocal count
        count += 1
        return x + count

    return fn


@program(*[(t(3),)] * 3, world=True, breaks=0)
def closure_list_written():
    log = []

    def fn(x):
        log.append(x.shape[0])
        return x + len(log)

    return fn


GLOBAL = 0
TABLE: dict = {}


def globals_world(fn):
    """A factory whose functions have namespaces of their own."""

    def factory():
        space = dict(fn.__globals__, GLOBAL=0, TABLE={})
        copy = type(fn)(fn.__code__, space, fn.__name__, fn.__defaults__)
        return copy, Observed(lambda: (space.get("GLOBAL"), space.get("TABLE"), "FRESH" in space))

    factory.__name__ = fn.__name__
    factory.__module__ = fn.__module__
    factory.fn = fn
    return factory


@program(*[(t(3),)] * 4, world=True, breaks=0)
@globals_world
def global_counter(x):
    global GLOBAL
    GLOBAL += 1
    return x + GLOBAL


@program(*[(t(3), n) for n in (1, 2, 2)], world=True)
@globals_world
def global_names(x, n):
    global FRESH
    TABLE[n] = x
    TABLE.setdefault("k", []).append(n)
    if n == 1:
        FRESH = 5
    else:
        try:
            del FRESH
        except NameError as e:
            TABLE["err"] = str(e)
    return x + len(TABLE)


@program(*[(t(3), n) for n in (0, 1, 4, 6)], breaks=0)
def recursion(x, n):
    def fact(k):
        return 1 if k <= 1 else k * fact(k - 1)

    def down(y, k):
        return y if k == 0 else down(y + k, k - 1)

    return x + fact(n), down(x, n)


@program(*SHAPES)
def recursion_limit(x):
    def forever(k):
        return forever(k + 1)

    try:
        forever(0)
    except RecursionError:
        return x + 1


def numbers(x, n):
    for i in range(n):
        yield x + i


def delegating(x, n):
    got = yield x
    log = [got]
    result = yield from inner(x, n)
    log.append(result)
    return log


def inner(x, n):
    try:
        while n:
            n -= 1
            sent = yield x * n
            if sent is not None:
                x = x + sent
    finally:
        x = x - 1
    return "done"


@program(*[(t(3), n) for n in (0, 1, 2, 4)], breaks=0)
def generators(x, n):
    total = 0
    for y in numbers(x, n):
        total = total + y
    g = (y * 2 for y in numbers(x, 2))
    return (total, next(g), list(g), [*numbers(x, 2)], sum(numbers(x, 3)), dict(enumerate(numbers(x, 2))), any(i > 2 for i in range(n)),
        max((i for i in range(n)), default=-1),)


@program(*SHAPES, breaks=0)
def generator_protocol(x):
    out = []
    g = delegating(x, 3)
    out.append(next(g))
    out.append(g.send("hello"))
    out.append(g.send(5))
    try:
        while True:
            out.append(next(g))
    except StopIteration as e:
        out.append(e.value)
    h = delegating(x, 3)
    next(h), next(h)
    try:
        h.throw(KeyError("thrown"))
    except KeyError as e:
        out.append(e.args)
    k = inner(x, 2)
    next(k)
    k.close()
    out.append(next(k, "closed"))
    return out


@program(*SHAPES, breaks=0)
def generator_abandoned(x):
    log = []

    def g():
        try:
            yield 1
            yield 2
        finally:
            log.append("finally")

    for v in g():
        x = x + v
        break
    return x, log


@program(*SHAPES)
def generator_errors(x):
    def bad():
        yield x
        raise ValueError("from generator")

    def stops():
        yield x
        raise StopIteration

    out = []
    for g in (bad, stops):
        try:
            list(g())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out, x * 2


def deco(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs) + 1

    return wrapper


def with_args(k):
    def deco2(fn):
        return lambda *a: fn(*a) * k

    return deco2


@deco
@with_args(3)
def decorated_outside(x):
    """Doc."""
    return x


@program(*SHAPES, breaks=0)
def decorators(x):
    @deco
    def f(y):
        """Inner."""
        return y + x

    return decorated_outside(x), f(x), f.__name__, f.__doc__, f.__wrapped__(x)


@program(*SHAPES, breaks=0)
def lambdas_and_partials(x):
    add = functools.partial(operator.add, x)
    compose = functools.reduce(lambda f, g: lambda v: g(f(v)), [add, torch.relu, lambda v: v * 2])
    return (compose(x), functools.partial(lambda a, b, c=3: a + b + c, 1, c=5)(x), (lambda *a, **k: (a, k))(1, x, z=2),
        operator.methodcaller("add", 1)(x),)


@functools.lru_cache(maxsize=None)
def expensive(n):
    return n * 2


@program(*[(t(3), n) for n in (1, 2, 1)])
def lru_cached(x, n):
    return x + expensive(n)


@functools.singledispatch
def dispatch(v):
    return "object"


@dispatch.register
def _(v: int):
    return "int"


@program(*SHAPES)
def single_dispatch(x):
    return dispatch(1), dispatch("s"), x + 1


@program(*SHAPES, breaks=0)
def default_objects(x):
    def f(y, acc=[]):  # noqa: B006
        acc.append(y)
        return acc

    f(1)
    return f(x), f.__defaults__


@program(*SHAPES, breaks=0)
def function_attributes(x):
    def f():
        return f.k + x

    f.k = 3
    return f(), f.__name__, f.__code__.co_argcount, f.__module__


@program(*SHAPES, breaks=0)
def imports_inside(x):
    import math
    import os.path as p
    from collections import OrderedDict as od
    from math import pi

    import torch.nn.functional as F  # noqa: N812

    return F.relu(x) * math.floor(pi), p.basename("/a/b"), od(a=x)


@program(*SHAPES)
def import_error(x):
    try:
        import no_such_module_at_all  # noqa: F401
    except ImportError as e:
        return x + 1, e.name


@program(*SHAPES)
def introspection(x):
    a = 1
    return sorted(locals()), "t" in globals(), a


@program(*SHAPES)
def annotations(x):
    y: torch.Tensor = x + 1
    z: int
    return y


@program(*SHAPES)
def exec_and_eval(x):
    return eval("1 + 2") + x


def deep(x, n):
    return x + 1 if n == 0 else deep(x * 2, n - 1) + n


@program(*[(t(3), n) for n in (1, 5, 12)], breaks=0)
def deep_inlining(x, n):
    return deep(x, n)


async def coroutine(x):
    return x + 1


@program(*SHAPES)
def awaits(x):
    async def outer():
        a = await coroutine(x)
        return a * 2

    c = outer()
    try:
        c.send(None)
    except StopIteration as e:
        return e.value


@program(*SHAPES)
def async_everything(x):
    class Manager:
        async def __aenter__(self):
            return 3

        async def __aexit__(self, *a):
            return False

    async def agen():
        for i in range(3):
            yield x + i

    async def main():
        out = []
        async with Manager() as k:
            async for v in agen():
                out.append(v * k)
        return out + [v async for v in agen()]

    try:
        main().send(None)
    except StopIteration as e:
        return e.value


@program(*SHAPES, breaks=0)
def star_everything(x):
    def f(*args, **kwargs):
        return g(*args[:1], **kwargs)

    def g(a, *, k=1, **rest):
        return a * k, rest

    return f(x, 2, k=3, z=4)


@program(*SHAPES, breaks=0)
def shadowed_builtins(x):
    def len(v):  # noqa: A001
        return 42

    sum = len  # noqa: A001
    return len(x), sum([1])


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


def test_partials_with_other_keywords_each_time():
    """Which keywords a partial holds has changed too often to be guarded: it stays outside, and is read where it is called."""

    def scale(x, **factors):
        return x + sum(factors.values())

    def fn(f, x):
        def inner(x):
            return f(x)

        return inner(x)

    run = compiled(fn)
    for i in range(40):
        f, x = functools.partial(scale, **{f"k{i}": i, f"j{i % 3}": 1}), torch.randn(3)
        assert torch.equal(run(f, x), fn(f, x))
    assert pliant.stats()["captures"] < 10
