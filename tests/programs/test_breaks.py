"""Graph breaks everywhere: the frame is never dropped, and nobody can tell.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import zlib

import pytest
import torch

from tests.helpers import IDENTITY, check, pliant
from tests.programs.registry import cases, each, program, t

SHAPES = each(3, 5, 2)
SOME = (1, 99)


@pliant.disable
def opaque(x):
    return x * 1.5


def broken(x):
    y = x + 1
    pliant.graph_break()
    return y * 2


@program(*SHAPES)
def prints(x):
    x = x + 1
    print("x", tuple(x.shape), end="!\n", sep="|")
    return x * 2


@program(*SHAPES, breaks=SOME)
def prints_a_tensor(x):
    x = x + 1
    print(x, f"{x.sum()}", x.sum().item())
    return x * 2


@program(*SHAPES, breaks=SOME)
def explicit(x):
    a = x + 1
    pliant.graph_break()
    b = a * 2
    pliant.graph_break()
    return a, b


@program(*SHAPES, breaks=SOME)
def disabled_function(x):
    return opaque(x + 1) + opaque(x)


@program(*SHAPES, breaks=SOME)
def in_expression(x):
    return [x + 1, (opaque(x), opaque(x * 2)), {"k": opaque(x) + x, **{"j": opaque(x)}}, f"{opaque(x).shape}"]


@program(*SHAPES)
def unknown_c_function(x):
    k = zlib.crc32(b"abc") % 5
    return x + k + (1 if time.time() > 0 else 0) + len(os.getcwd()) * 0


@program(*SHAPES, breaks=SOME)
def first_and_last_instruction(x):
    pliant.graph_break()
    x = x + 1
    return opaque(x)


@program(*[(t(3), n) for n in (0, 1, 3, 4)])
def in_for_range(x, n):
    for i in range(n):
        x = x + i
        pliant.graph_break()
        x = x * 2
    return x


@program(*[([t(3, seed=k) for k in range(n)],) for n in (1, 3, 4)])
def in_for_list(items):
    out = 0
    for i, y in enumerate(items):
        out = out + opaque(y) * i
    return out


@program(*[(t(3), n) for n in (1, 3, 4)])
def in_nested_loops(x, n):
    for i in range(n):
        for j in range(i + 1):
            if j == 2:
                pliant.graph_break()
                break
            x = opaque(x) + j
            if i == 1:
                continue
        else:
            x = x - 1
        if i > 3:
            return x, "early"
    return x


@program(*[(t(3), n) for n in (1, 3, 4)])
def in_while(x, n):
    while n > 0:
        n -= 1
        if n % 2:
            pliant.graph_break()
            continue
        x = x + n
    else:
        x = opaque(x)
    return x


@program(*[(t(n + 2),) for n in (1, 3, 4)])
def data_dependent_while(x):
    k = 0
    while x.sum() < 20 and k < 8:
        x = x + 1
        k += 1
    return x, k


@program(*[(t(3, 2) + s,) for s in (0, 5, -5, 0)])
def data_dependent_branches(x):
    if x.sum() > 3:
        y = x + 1
    elif x.min() < -2 and x.max() < 0:
        y = x - 1
    else:
        y = x * 2
    z = y.relu() if y[0, 0] > 0 else y
    return y, z, bool((z > 0).all()), not y.sum() > 0


@program(*SHAPES)
def items(x):
    k = x.sum().item()
    n = int(x.abs().sum())
    return x * k, k + 1, math.floor(k), x.new_zeros(n % 4 + 1), x.tolist(), float(x[0])


@program(*each(3, 5, 8))
def data_dependent_shapes(x):
    pos = x[x > 0]
    idx = x.nonzero()
    u = torch.unique(x)
    return pos * 2, idx.shape, u, torch.masked_select(x, x < 0), torch.where(x > 0), pos.shape[0]


class Context:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return len(self.log)

    def __exit__(self, kind, value, tb):
        self.log.append(kind and kind.__name__)
        return kind is ValueError


@program(*SHAPES, breaks=SOME)
def in_with(x):
    log = []
    with Context(log) as k:
        x = x + k
        pliant.graph_break()
        x = x * 2
    return x, log


@program(*[(t(3), n) for n in (0, 1, 2)], breaks=SOME)
def in_with_and_raise(x, n):
    log = []
    with Context(log), Context(log):
        x = opaque(x)
        if n == 1:
            raise ValueError("v")
        if n == 2:
            return x, log
        x = opaque(x)
    return x * 2, log


@contextlib.contextmanager
def managed(log):
    log.append("in")
    pliant.graph_break()
    try:
        yield 3
    finally:
        pliant.graph_break()
        log.append("out")


@program(*SHAPES, breaks=SOME)
def in_contextmanager(x):
    log = []
    with managed(log) as k:
        x = x * k
        pliant.graph_break()
    return x, log


@program(*SHAPES, grad=True)
def in_no_grad(x):
    with torch.no_grad():
        y = x + 1
        pliant.graph_break()
        z = y * 2
        a = torch.is_grad_enabled()
    return y, z, a, torch.is_grad_enabled(), x * 2


@program(*each(3, 4, grad=True), grad=True)
def in_nested_grad_modes(x):
    with torch.no_grad():
        y = x + 1
        with torch.enable_grad():
            pliant.graph_break()
            z = x * 2
        pliant.graph_break()
        w = x * 3
    return y, z, w, [v.requires_grad for v in (y, z, w)]


@program(*[(t(3), n) for n in (0, 1, 2, 3)], breaks=SOME)
def in_try(x, n):
    log = []
    try:
        pliant.graph_break()
        x = x + 1
        if n == 1:
            raise ValueError("v")
        if n == 2:
            raise KeyError("k")
        if n == 3:
            return x, log
    except ValueError as e:
        pliant.graph_break()
        log.append(e.args)
    except KeyError:
        log.append("k")
        try:
            pliant.graph_break()
            raise
        except KeyError as e:
            log.append(str(e.__context__))
    else:
        pliant.graph_break()
        log.append("else")
    finally:
        pliant.graph_break()
        log.append("finally")
        x = x * 2
    return x, log


@pliant.disable
def raises(n):
    if n:
        raise ValueError("from the disabled function", n)
    return 1


@program((t(3), 0), (t(3), 1), (t(3), 0))
def the_breaking_call_raises(x, n):
    log = []
    with Context(log):
        try:
            x = x + 1
            x = x + raises(n)
        finally:
            log.append("finally")
    return x, log


@program((t(3), 0), (t(3), 1))
def the_breaking_call_raises_out(x, n):
    x = x + 1
    return x + raises(n)


@program(*SHAPES, breaks=SOME)
def in_comprehensions(x):
    a = [opaque(x + i) for i in range(3)]
    b = {i: broken(x) for i in range(2)}
    c = {opaque(i) for i in range(2)}
    d = list(opaque(x) for _ in range(2))
    e = [opaque(v) for u in [a, d] for v in u if v.dim() == 1]
    return a, b, c, d, e


@program(*SHAPES, breaks=SOME)
def in_callbacks(x):
    a = list(map(broken, [x, x + 1]))
    b = sorted([3, 1, 2], key=lambda v: (pliant.graph_break(), -v)[1])
    c = max([x, x + 1], key=lambda v: v.sum().item())
    d = sum(opaque(v) for v in a)
    return a, b, c, d


def nest(x, depth, act):
    if depth == 0:
        return act(x)
    y = x + depth
    z = nest(y, depth - 1, act)
    return z - y


@program(*[(t(3), d) for d in (1, 2, 3, 4, 5)], breaks=SOME)
def in_callee_at_depth(x, depth):
    before = x * 2
    after = nest(x, depth, broken)
    return before, after


@program(*[(t(n), 5) for n in (3, 4, 6)], breaks=SOME)
def in_callee_at_depth_five(x, depth):
    out = []
    for act in (broken, opaque, lambda v: v):
        with Context(out):
            out.append(nest(x, depth, act))
    return out


def callee_loop(x, n):
    for i in range(n):
        try:
            x = x + i
            with torch.no_grad():
                pliant.graph_break()
                x = x * 2
        finally:
            x = x - 1
    return x


@program(*[(t(3), n) for n in (1, 2, 3)])
def in_callee_loop_and_with(x, n):
    return callee_loop(x, n) + callee_loop(x, 1)


def breaking_generator(x):
    for i in range(3):
        pliant.graph_break()
        yield x + i
    print("generator done")


@program(*SHAPES, breaks=SOME)
def in_generators(x):
    out = [y * 2 for y in breaking_generator(x)]
    g = breaking_generator(x)
    out.append(next(g))
    pliant.graph_break()
    out.append(next(g))
    return out, sum(breaking_generator(x))


@program(*SHAPES, breaks=SOME)
def generator_across_break(x):
    def g():
        k = yield x
        yield x + k

    it = g()
    a = next(it)
    pliant.graph_break()
    b = it.send(5)
    return a, b


class Breaking:
    def __init__(self, x):
        pliant.graph_break()
        self.x = x

    @property
    def p(self):
        pliant.graph_break()
        return self.x + 1

    def __add__(self, other):
        pliant.graph_break()
        return self.x + other

    def __getitem__(self, i):
        pliant.graph_break()
        return self.x + i

    def __len__(self):
        pliant.graph_break()
        return 2

    def __iter__(self):
        pliant.graph_break()
        yield self.x

    def __eq__(self, other):
        pliant.graph_break()
        return True

    def __bool__(self):
        pliant.graph_break()
        return False

    def __call__(self, x):
        pliant.graph_break()
        return x * 2

    def __getattr__(self, name):
        pliant.graph_break()
        return len(name)

    def __setattr__(self, name, value):
        pliant.graph_break()
        object.__setattr__(self, name, value)

    def __contains__(self, v):
        pliant.graph_break()
        return True


@program(*SHAPES, breaks=SOME)
def in_special_methods(x):
    b = Breaking(x)
    b.k = 3
    return b.p, b + 1, b[2], len(b), list(b), b == 3, bool(b), b(x), b.missing, 3 in b, not b, [v for v in b], 1 if b else 2


@program(*SHAPES, breaks=SOME)
def closures_across_breaks(x):
    n = 1

    def add(y):
        nonlocal n
        n += 1
        pliant.graph_break()
        return y + n

    a = add(x)
    pliant.graph_break()
    b = add(a)
    return a, b, n, add


@program(*SHAPES, breaks=SOME)
def identity_across_breaks(x):
    a = [x]
    b = {"a": a}
    pliant.graph_break()
    a.append(x + 1)
    c = x
    pliant.graph_break()
    c.add_(1)
    return b["a"] is a, c is x, a, b, a[0] is x


@program(*SHAPES, breaks=SOME)
def views_across_breaks(x):
    y = x * 2
    v = y[1:]
    pliant.graph_break()
    v.add_(1)
    w = y.view(-1)
    pliant.graph_break()
    y.mul_(3)
    return y, v, w


@program(*[(t(n), [t(n)], {"k": t(n)}) for n in (3, 4)], breaks=SOME)
def effects_before_and_after(x, items, d):
    items.append(x + 1)
    d["n"] = 1
    x.add_(1)
    pliant.graph_break()
    items.append(x * 2)
    d["k"] = d["k"] + items[0]
    x.mul_(2)
    print(len(items), sorted(d))
    del d["n"]
    return items


@program(*SHAPES, breaks=SOME)
def exception_after_break(x):
    x = x + 1
    pliant.graph_break()
    y = x * 2
    raise RuntimeError("late", y.shape[0])


@program(*SHAPES, breaks=SOME)
def unbound_across_break(x):
    if x.dim() > 4:
        y = 1
    pliant.graph_break()
    try:
        return y
    except UnboundLocalError as e:
        return x + 1, str(e)


@program(*SHAPES, breaks=SOME)
def unbound_free_variables_across_break(x):
    for i in range(x.dim() - 9):
        pass
    for f in (lambda: (broken(x), i), lambda: (opaque(x), (lambda: i)()), lambda: (broken(x), k, k.size(0))):
        try:
            x = f()[1] + 1
        except NameError as e:
            x = x * 2
            opaque((type(e), str(e)))
            k = x
    return x


@program(*SHAPES, breaks=SOME)
def deleted_free_variables_across_break(x):
    def deletes():
        nonlocal i
        broken(x)
        del i

    def deletes_here():
        nonlocal own
        del own

    own, i, seen = 1, x.sum(), []
    for f in (deletes, deletes, deletes_here, deletes_here):
        try:
            f()
        except NameError as e:
            seen.append((type(e), str(e)))
    return x + 1, seen


@program(*SHAPES, breaks=SOME)
def frames_of_cells_alone(x):
    def given():
        a, b = 1, broken(x)
        c = [lambda: (a, b, d)]
        d = opaque(x) * a
        return c[0]()

    return given(), (lambda: [opaque(x), (lambda: broken(x) + 1)()])()


@program(*SHAPES, breaks=SOME)
def unpack_and_star_across_break(x):
    a, *b = opaque(x), 1, broken(x), 2
    return (lambda *p, **k: (p, k))(*b, opaque(a), z=broken(a))


@program(*[(t(3), v) for v in (1, 2, "s")], breaks=SOME)
def match_across_break(x, v):
    match opaque(x), v:
        case (torch.Tensor() as a, 1):
            pliant.graph_break()
            return a
        case (a, int(k)) if broken(a).dim() == 1:
            return a * k
        case _:
            return opaque(x)


@program(*[(t(3), n) for n in (1, 2)], breaks=SOME)
def assert_across_break(x, n):
    y = opaque(x)
    assert y.dim() == n, f"dim {pliant.graph_break()}"
    return y


@program(*SHAPES, breaks=SOME)
def class_body(x):
    class K:
        a = opaque(x)
        pliant.graph_break()
        b = a + 1

    return K.a, K.b


@program(*[(t(3), n) for n in range(12)])
def many_breaks(x, n):
    for i in range(10):
        x = x + i
        if i % 3 == n % 3:
            pliant.graph_break()
        if i > n:
            break
    return x


@program(*SHAPES, breaks=SOME)
def chain_of_boolean(x):
    return (opaque(x) is None) or (broken(x).dim() == 1 and opaque(x).shape) or 3, 0 < opaque(1) < opaque(5) < 100


@program(*[(t(n), ) for n in (3, 4)])
def allow_in_graph_function(x):
    return allowed(x, 2) + 1


@pliant.allow_in_graph
def allowed(x, k):
    return x * k


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


@pytest.mark.skipif(IDENTITY, reason="counts what the compiler does")
@pytest.mark.parametrize("depth", [1, 2, 3, 5, 8])
def test_cost_is_linear_in_depth(depth):
    def fn(x):
        return nest(x, depth, broken)

    report = check(fn, t(3), t(5), breaks=SOME)
    assert report.captures <= 3 * (depth + 2)


@pytest.mark.skipif(IDENTITY, reason="counts what the compiler does")
def test_code_after_a_break_in_a_loop_is_compiled():
    def fn(x, n):
        for i in range(n):
            x = opaque(x) + i
        return x.relu()

    report = check(fn, *[(t(n), 6) for n in (3, 4, 5, 6, 7, 8)])
    assert report.history[-1]["captures"] == report.history[3]["captures"]
    assert report.calls > 6 * 6
