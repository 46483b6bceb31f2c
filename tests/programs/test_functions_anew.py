"""Functions and classes that are made anew for each call: what they hold is read where it is now, and captures come to an end."""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import itertools
import types

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.jit import region
from tests.helpers import check

NUMBERS = range(2, 12)
X = torch.randn(2, 8, 8)


def times(n):
    def scaled(x):
        return x * n

    return scaled


def marked(n, mark):
    fn = times(n)
    setattr(fn, mark, True)
    return fn


def with_defaults(n):
    def scaled(x, by=n, *, plus=n + 1, text="a"):
        return x * by + plus + len(text)

    return scaled


@contextlib.contextmanager
def nothing():
    yield


MAKERS = {
    "closure": times,
    "defaults": with_defaults,
    "default": lambda n: lambda x, n=n: x * n,
    "default_list": lambda n: lambda x, n=[n]: x * n[0],  # noqa: B006
    "default_tensor": lambda n: (lambda t: lambda x, t=t: x * t)(torch.tensor(float(n))),
    "default_function": lambda n: (lambda g: lambda x, g=g: g(x))(times(n)),
    "keyword_default": lambda n: lambda x, *, n=n: x * n,
    "either": lambda n: (lambda x, k=n: x * k) if n % 2 else (lambda x, *, k=n: x * k),
    "functionalize": lambda n: torch.func.functionalize(times(n)),
    "vmap": lambda n: torch.vmap(times(n)),
    "grad": lambda n: torch.func.grad(lambda x: (x * n).sum()),
    "linearize": lambda n: torch.func.linearize(times(n), X)[1],
    "singledispatch": lambda n: functools.singledispatch(times(n)),
    "torch_compile": lambda n: torch.compile(times(n)),
    "torch_disable": lambda n: torch.compiler.disable(times(n)),
    "compile": lambda n: pliant.compile(times(n)),
    "allow_in_graph": lambda n: torch.compiler.allow_in_graph(times(n)),
    "ignore": lambda n: torch.jit.ignore(times(n)),
    "script_if_tracing": lambda n: torch.jit.script_if_tracing(times(n)),
    "no_grad": lambda n: torch.no_grad()(times(n)),
    "grad_modes": lambda n: (torch.no_grad() if n % 2 else torch.enable_grad())(times(n)),
    "context": lambda n: nothing()(times(n)),
    "wraps": lambda n: functools.wraps(F.relu)(times(n)),
    "cache": lambda n: functools.cache(times(n)),
    "partial": lambda n: functools.partial(lambda k, x: x * k, n),
    "method": lambda n: types.MethodType(lambda self, x: x * self.n, types.SimpleNamespace(n=n)),
    "region": lambda n: torch.compiler.nested_compile_region(times(n)),
    "custom_fwd": lambda n: torch.amp.custom_fwd(lambda x: x * n, device_type="cpu"),
}
ALWAYS = {"linearize", "allow_in_graph"}  # a graph of its own each time; an operator that the program told of


def of_its_own():
    """A function that calls what it is given; its code is its own."""

    def call(f, x):
        return f(x)

    return types.FunctionType(call.__code__.replace(co_name="call"), globals())


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "gone"])
@pytest.mark.parametrize("name", MAKERS)
def test_wrappers_made_anew(name, kept):
    make, call = MAKERS[name], of_its_own()
    compiled = pliant.compile(call)
    made, captures = [], []
    for n in NUMBERS:
        f = make(n)
        made += [f] if kept else []
        before = pliant.stats()["captures"]
        assert torch.equal(compiled(f, X), call(f, X)), n
        captures.append(pliant.stats()["captures"] - before)
    assert sum(captures[-3:]) == 0 or name in ALWAYS, captures


def test_functions_of_one_code_that_are_operators():
    """`F.max_pool1d` and `F.max_pool2d` share their code: a function made anew does not say what these do."""
    call = of_its_own()
    compiled = pliant.compile(call)
    pools = [functools.partial(p, kernel_size=2) for p in (F.max_pool1d, F.max_pool2d, F.max_pool1d)]
    for f in [times(2), times(3), *pools, times(4), F.relu, torch.relu, torch.abs]:
        assert torch.equal(compiled(f, X), call(f, X)), f
    compiled = pliant.compile(lambda f, x: f(x, 2))
    adaptive = F.adaptive_max_pool1d, F.adaptive_max_pool2d
    for f in (lambda x, k: x + k, lambda x, k: x - k, F.max_pool1d, F.max_pool2d, F.max_pool1d, *adaptive):
        assert torch.equal(compiled(f, X), f(X, 2)), f


def test_marks_of_functions_of_one_code():
    call = of_its_own()
    compiled = pliant.compile(call)
    functions = [times(2), times(3), torch.compiler.assume_constant_result(lambda x: 3), torch.compiler.assume_constant_result(lambda x: 4)]
    functions += [marked(5, "other"), times(6), torch._dynamo.disable(times(7)), torch.compile(times(8)), times(9), pliant.skip(times(10))]
    for f in functions:
        got, want = compiled(f, X), call(f, X)
        assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want


@pytest.mark.usefixtures("young_heap")
def test_classes_made_anew_wait():
    """An entry dies with the class that it needs: after a few of them captures come ever more rarely."""

    def make(n):
        class Scale:
            by = n

            def __call__(self, x):
                return x * self.by

        return Scale()

    call = of_its_own()
    compiled = pliant.compile(call)
    before = pliant.stats()["captures"]
    for n in range(40):
        f = make(n)
        assert torch.equal(compiled(f, X), call(f, X))
        del f
        gc.collect()
    assert pliant.stats()["captures"] - before <= region.SHORT_LIVED + 6


def test_ids_of_objects_that_change():
    """What is read of an object that is another one in each call is not that of the first."""

    def registry():
        numbers, seen = {}, set()

        def fn(x, o):
            if id(o) not in numbers:
                numbers[id(o)] = len(numbers)
            seen.add(id(o))
            made = [o]
            return x * numbers[id(o)] + len(seen), id(made) in numbers

        return fn

    objects = [object() for _ in range(4)]
    fn = registry()
    compiled = pliant.compile(registry())
    for i in range(20):
        got, want = compiled(X, objects[i % 4]), fn(X, objects[i % 4])
        assert torch.equal(got[0], want[0]) and got[1] == want[1], i


def test_keys_that_change_come_to_an_end():
    compiled, captures = pliant.compile(lambda x, d, n: x * d[n]), []
    for n in range(2, 14):
        before = pliant.stats()["captures"]
        assert torch.equal(compiled(X, {n: n}, n), X * n)
        captures.append(pliant.stats()["captures"] - before)
    assert not any(captures[-4:]), captures


def test_a_free_variable_that_is_not_bound_is_guarded():
    def variable():
        def read(x):
            try:
                return x * i
            except NameError as e:
                return str(e)

        def bind(v):
            nonlocal i
            i = v

        def unbind():
            nonlocal i
            del i

        def contents(x):
            try:
                return x + read.__closure__[0].cell_contents
            except ValueError as e:
                return str(e)

        i = 0
        del i
        return read, contents, bind, unbind

    x = torch.ones(2)
    for which in (0, 1):
        sides = []
        for wrap in (lambda f: f, pliant.compile):
            fn, bind, unbind = (made := variable())[which], *made[2:]
            fn = wrap(fn)
            seen = [fn(x)]
            for v in (3, None, 4.5, None, 2):
                bind(v) if v is not None else unbind()
                seen.append(fn(x))
            sides.append([v.tolist() if isinstance(v, torch.Tensor) else v for v in seen])
        assert sides[0] == sides[1]


# -- which function it is ------------------------------------------------------------------------------------------------------
def scaling(k):
    def f(x):
        return x * k

    return f


ONE, TWO = scaling(1), scaling(2)
NAMED = {ONE: 1, TWO: 2}


def behind_a_break(x, f, g):
    pliant.graph_break()
    return x + (f is g) + 2 * (f == g) + 4 * (f is ONE) + 8 * (f != TWO)


def without_first(x, f, g):
    known = [f, g]
    if ONE in known:
        known.remove(ONE)
    return x * len(known)


WHICH = {
    "identity": lambda x, f, g: x + 1 if f is g else x - 1,
    "equality": lambda x, f, g: x + 1 if f == g else x - 1,
    "beside_named": lambda x, f, g: x + (f is ONE) * 2 + (g is TWO) * 3 + (f is not g),
    "behind_a_break": behind_a_break,
    "in_tuples": lambda x, f, g: x + 1 if (f, 1) == (g, 1) else x - 1,
    "in_a_list": lambda x, f, g: x * (f in [g, ONE]) + [ONE, g, f].index(f) + [ONE, g, f].count(f),
    "as_keys": lambda x, f, g: x + {f: 1, g: 2}[f] + len({f, g, ONE}),
    "keys_of_others": lambda x, f, g: x + NAMED.get(f, 7) + (g in NAMED),
    "removed": without_first,
    "held": lambda x, f, g: x + 1 if functools.partial(f).func is functools.partial(g).func else x - 1,
}
PAIRS = [(ONE, ONE), (ONE, TWO), (TWO, TWO), (TWO, ONE)]


@pytest.mark.parametrize("name", WHICH)
def test_functions_of_one_code_are_told_apart(name):
    """Of a function that is another one in each call its code is guarded; and which one it is, where the program asks."""
    program, x = WHICH[name], torch.ones(3)
    for order in ((0, 1, 2, 3), (1, 3, 0, 2)):
        compiled = pliant.compile(program)
        for f, g in [(scaling(3), scaling(3)), *[PAIRS[i] for i in order]] * 2:
            assert torch.equal(compiled(x, f, g), program(x, f, g)), (f is g, f is ONE)
        pliant.reset()


SELF = types.SimpleNamespace()
PARTIALS = {ONE: functools.partial(ONE, 2), TWO: functools.partial(TWO, 2)}
HOLDERS = {"method": lambda f: types.MethodType(f, SELF), "partial": PARTIALS.__getitem__}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("name", ["equality", "in_a_list_of_one", "as_a_key"])
def test_what_holds_such_functions(name, holder):
    programs = {
        "equality": lambda x, f, g: x + 1 if f == g else x - 1,
        "in_a_list_of_one": lambda x, f, g: x + 1 if f in [g] else x - 1,
        "as_a_key": lambda x, f, g: x + 1 if f in {g: 1} else x - 1,
    }
    program, hold, x = programs[name], HOLDERS[holder], torch.ones(3)
    for order in ((0, 1, 2, 3), (1, 3, 0, 2)):
        compiled = pliant.compile(program)
        for f, g in [PAIRS[i] for i in order] * 2:
            assert torch.equal(compiled(x, hold(f), hold(g)), program(x, hold(f), hold(g)))
        pliant.reset()


def test_functions_compared_behind_a_break():
    """They were read by C code, which broke the graph at each comparison."""

    def program(x, how):
        pliant.graph_break()
        return x + 1 if how == ONE else x - 1 if how == behind_a_break else x * 2

    check(program, *[(torch.ones(n), f) for n, f in ((3, ONE), (4, TWO), (5, behind_a_break), (3, TWO))], breaks=1)


GIVEN_TO_C = {
    "a factory": lambda f: collections.defaultdict(f)[1],
    "a factory of a class": lambda f: Filled(f)[1],
    "partial": lambda f: functools.partial(f, plus=2)(),
    "partial of partial": lambda f: functools.partial(functools.partial(f, plus=2), 3)(),
    "method": lambda f: types.MethodType(f, 3)(),
    "sorted": lambda f: sorted([1, 3, 2], key=lambda v: f(v))[0] + sorted([3, 1, 2], key=f)[0],
    "max": lambda f: max([1, 3, 2], key=f) + min([1, 3, 2], key=f),
    "map": lambda f: sum(map(f, [1, 2])),
    "starmap": lambda f: sum(itertools.starmap(f, [(1, 2), (3, 4)])),
    "accumulate": lambda f: list(itertools.accumulate([1, 2, 3], f))[-1],
}


class Filled(collections.defaultdict):
    pass


@pytest.mark.parametrize("name", GIVEN_TO_C)
def test_functions_given_to_c_code_behind_a_break(name):
    """C code that only keeps a function, and calls it, may have one that is known by its code alone; it broke the graph."""
    given = GIVEN_TO_C[name]

    def program(x, f):
        pliant.graph_break()
        return x * given(f)

    def made(n):
        return lambda a=1, plus=0: a * n + plus

    check(program, *[(torch.ones(3 + n % 2), made(n)) for n in (1, 2, -3, 4, 2)], breaks=1)


def test_a_factory_is_the_one_of_the_call():
    def program(x, o):
        pliant.graph_break()
        o.kept, o.part = collections.defaultdict(o.make), functools.partial(o.make)
        return x * len(o.kept[1])

    run = pliant.compile(program)
    for n in (1, 2, 3, 4):
        o = types.SimpleNamespace(make=lambda n=n: [0] * n)
        assert torch.equal(run(torch.ones(3), o), torch.ones(3) * n)
        assert o.kept.default_factory is o.make and o.part.func is o.make
