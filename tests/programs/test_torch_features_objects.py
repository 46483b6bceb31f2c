"""Identity and aliasing of results, effects in order, gradients, and the protocols of objects.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import types

import pytest
import torch
from torch import nn

from tests.programs.registry import cases, each, program

WHOLE = {"breaks": 0, "captures": 1}
LESS = {"breaks": 0}
ROWS = each(3, 5, 2, tail=(4,))
GRADS = each(3, 5, 2, tail=(4,), grad=True)


@program(*ROWS, **WHOLE)
def identity_same_twice(x):
    y = x + 1
    return y, y, [y, {"k": y}], x, x


@program(*ROWS, **WHOLE)
def identity_self_list(x):
    l = [x]
    l.append(l)
    return l


@program(*ROWS, **WHOLE)
def identity_self_dict(x):
    d = {"x": x}
    d["d"] = d
    return d, [d]


@program(*ROWS, **WHOLE)
def identity_shared_inner(x):
    a = [x]
    return [a, a], (a, {"a": a})


@program(*ROWS, **WHOLE)
def identity_views(x):
    y = x + 0
    return y, y[0], y.view(-1), y.T, y[:, 1:]


@program(*ROWS, **WHOLE)
def identity_input_views(x):
    return x[0], x.view(-1), x.T, x[1:], x.unsqueeze(0), x.detach(), x.expand(1, *x.shape)


@program(*ROWS, **WHOLE)
def identity_inplace_arg(x):
    x.add_(1)
    x[0] = 5
    y = x * 2
    x.mul_(2)
    return y, x


@program(*ROWS, **WHOLE)
def identity_inplace_view(x):
    v = x[1:]
    v.zero_()
    w = x.view(-1)
    w[0] = 9
    return x, v


@program(*ROWS, **WHOLE)
def identity_out_kw(x):
    o = torch.empty_like(x)
    torch.add(x, 1, out=o)
    r = torch.sum(x, 0, out=torch.empty(4))
    return o, r


@program(*ROWS, world=True, **LESS)
def identity_list_arg_mutated():
    l = [1, [2]]

    def f(x):
        l[1].append(x.sum())
        l.append(l[0] + 1)
        l[0] += 1
        return x + len(l[1])
    return f, l


@program(*ROWS, world=True, **WHOLE)
def identity_alias_two_names():
    a = {"k": [1]}
    b = a["k"]

    def f(x):
        b.append(2)
        a["k"].append(3)
        return x + len(b), a["k"] is b
    return f, (a, b)


@program(*ROWS, world=True, **WHOLE)
def identity_swap():
    s = types.SimpleNamespace(a=torch.ones(4), b=torch.zeros(4))

    def f(x):
        s.a, s.b = s.b + x.sum(0), s.a
        return x * s.a + s.b
    return f, s


@program(*ROWS, world=True, **LESS)
def identity_nested_state():
    s = {"l": [{"t": torch.ones(4), "n": 0}]}

    def f(x):
        e = s["l"][0]
        e["n"] += 1
        e["t"] = e["t"] + x.sum(0)
        s["l"].append({"t": e["t"], "n": e["n"]})
        if len(s["l"]) > 2:
            s["l"].pop(0)
        return x + s["l"][-1]["t"]
    return f, s


@program(*ROWS, world=True, **LESS)
def identity_print_error():
    n = [0]

    def f(x):
        print("before")
        n[0] += 1
        if n[0] == 2:
            raise ValueError("boom")
        print("after")
        return x
    return f, n


@program(*ROWS, **WHOLE)
def identity_log_then_exception(x):
    log = []
    try:
        log.append(1)
        (x + 1).sum()
        raise KeyError("z")
    except KeyError as e:
        log.append(e.args)
    finally:
        log.append("f")
    return log, x


@program(*GRADS, grad=True, **WHOLE)
def gradient_hook(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return y.sum()


@program(*GRADS, grad=True, **WHOLE)
def gradient_hook_closure(x):
    k = x.shape[0]
    y = x.sin()
    y.register_hook(lambda g: g + k)
    return y.sum()


@program(*GRADS, grad=True, **WHOLE)
def gradient_detach(x):
    return (x * x.detach()).sum(), x.detach() * 2


@program(*GRADS, grad=True, **WHOLE)
def gradient_no_grad(x):
    with torch.no_grad():
        y = x * 2
    z = y + x
    return z.sum(), y


@program(*GRADS, grad=True, **WHOLE)
def gradient_requires(x):
    y = torch.ones(4, requires_grad=False)
    return (x * y).sum(), y.requires_grad, (x * y).requires_grad, x.grad_fn is None


@program(*GRADS, grad=True, **WHOLE)
def gradient_grad_inside(x):
    y = (x ** 2).sum()
    g, = torch.autograd.grad(y, x, create_graph=True)
    return g.sum() + y


@program(*GRADS, grad=True, **WHOLE)
def gradient_custom(x):
    class Sq(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            ctx.k = 3
            return a * a

        @staticmethod
        def backward(ctx, g):
            a, = ctx.saved_tensors
            return 2 * a * g * ctx.k
    return Sq.apply(x).sum()


@program(*GRADS, grad=True, **WHOLE)
def gradient_retain(x):
    y = x * 2
    y.retain_grad()
    return y.sum()


@program(*GRADS, grad=True, **WHOLE)
def gradient_clone_inplace(x):
    y = x.clone()
    y[0] = 0
    y.mul_(2)
    return y.sum()


@program(*GRADS, grad=True, **WHOLE)
def gradient_set_grad(x):
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    return (y + x).sum()


@program(*GRADS, grad=True, **WHOLE)
def gradient_checkpoint(x):
    return torch.utils.checkpoint.checkpoint(lambda v: v.sin().cos(), x, use_reentrant=False).sum()


@program(*GRADS, grad=True, **WHOLE)
def gradient_loop(x):
    h = x
    for i in range(3):
        h = torch.tanh(h @ h.T @ x) * (i + 1)
    return h.sum()


@program(*GRADS, grad=True, **WHOLE)
def gradient_backward_inside(x):
    (x * 2).sum().backward()
    return x.grad


@program(*GRADS, grad=True, **WHOLE)
def gradient_param_made(x):
    p = nn.Parameter(torch.ones(4))
    return (x * p).sum(), isinstance(p, nn.Parameter), p.requires_grad


@program(*ROWS, **WHOLE)
def protocol_class_state(x):
    class Acc:
        total = 0

        def __init__(s):
            s.items = []

        def __call__(s, v):
            s.items.append(v)
            Acc.total += 1
            return s

        def __len__(s):
            return len(s.items)

        def __iadd__(s, v):
            s.items.append(v)
            return s

        def __getitem__(s, i):
            return s.items[i]

        def __setitem__(s, i, v):
            s.items[i] = v

        def __delitem__(s, i):
            del s.items[i]

        def __contains__(s, v):
            return any(v is i for i in s.items)

        def __enter__(s):
            s.items.append("in")
            return s

        def __exit__(s, *a):
            s.items.append("out")
    a = Acc()(x)(1)
    a += 2
    a[1] = "z"
    del a[2]
    with a as b:
        b("mid")
    return a.items, Acc.total, len(a), x in a, a[0], a[-1]


@program(*ROWS, **WHOLE)
def protocol_iter_mutating(x):
    d = {"a": 1, "b": 2}
    for k in list(d.keys()):
        if k == "a":
            del d[k]
    l = [1, 2, 3, 4]
    for v in l[:]:
        if v % 2:
            l.remove(v)
    return x, d, l


@program(*ROWS, **WHOLE)
def protocol_del_in_loop(x):
    l = [1, 2, 3, 4]
    out = []
    for v in l:
        out.append(v)
        l.remove(v)
    return x, out, l


@program(*ROWS, **WHOLE)
def protocol_try_return_order(x):
    log = []

    def f():
        try:
            log.append("t")
            return log.append("r") or 1
        except Exception:
            return 2
        else:
            return 3
        finally:
            log.append("f")
    return x, f(), log


@program(*ROWS, **WHOLE)
def protocol_nested_finally(x):
    log = []

    def f():
        for i in range(3):
            try:
                try:
                    if i == 1:
                        raise ValueError(i)
                    log.append(i)
                finally:
                    log.append("a")
            except ValueError:
                log.append("v")
                continue
            finally:
                log.append("b")
    f()
    return x, log


@program(*ROWS, **WHOLE)
def protocol_exception_chain(x):
    def a():
        raise ValueError("a")

    def b():
        try:
            a()
        except ValueError as e:
            raise TypeError("b") from e
    try:
        b()
    except TypeError as e:
        return x, repr(e), repr(e.__cause__), e.__cause__ is e.__context__, e.__suppress_context__


@program(*ROWS, **WHOLE)
def protocol_exc_del(x):
    try:
        raise ValueError("q")
    except ValueError as e:
        err = e
    return x, err.args, err.__traceback__ is not None


@program(*ROWS, **WHOLE)
def protocol_stop_in_next(x):
    class Item:
        def __init__(s):
            s.n = 0

        def __iter__(s):
            return s

        def __next__(s):
            s.n += 1
            if s.n > 3:
                raise StopIteration(s.n)
            return x * s.n
    i = Item()
    return list(i), i.n, next(i, "d")


@program(*ROWS, **WHOLE)
def protocol_getitem_iter(x):
    class S:
        def __getitem__(s, i):
            if i > 2:
                raise IndexError
            return x * i
    return (list(S()), [*S()], 1 in [1], [v.shape for v in S()])


@program(*ROWS, **WHOLE)
def protocol_len_bool(x):
    class L:
        def __len__(s):
            return 0
    return x if L() else -x, not L(), bool(L()), L() or 3


@program(*ROWS, **WHOLE)
def protocol_descriptor_order(x):
    log = []

    class D:
        def __get__(s, o, t):
            log.append(("get", o is None))
            return 5

        def __set__(s, o, v):
            log.append(("set", v))

    class A:
        d = D()
    a = A()
    a.d = 3
    r = a.d + A.d
    a.__dict__["d"] = 99
    return x, r, a.d, log


@program(*ROWS, **WHOLE)
def protocol_nondata(x):
    class D:
        def __get__(s, o, t):
            return 5

    class A:
        d = D()
    a = A()
    r = a.d
    a.d = 7
    return x, r, a.d, A.d


@program(*ROWS, **WHOLE)
def protocol_operators_fallback(x):
    class A:
        def __add__(s, o):
            return NotImplemented

        def __eq__(s, o):
            return NotImplemented

    class B:
        def __radd__(s, o):
            return "radd"

        def __eq__(s, o):
            return "eqB"
    try:
        A() + 1
    except TypeError as e:
        m = str(e)
    return x, A() + B(), m, A() == B(), A() == A(), A() != A()


@program(*ROWS, **WHOLE)
def protocol_hash_eq(x):
    class K:
        def __init__(s, v):
            s.v = v

        def __hash__(s):
            return hash(s.v) % 2

        def __eq__(s, o):
            return s.v == o.v
    d = {K(1): "a", K(3): "b"}
    d[K(1)] = "c"
    return x, d[K(3)], len(d), K(1) in d, K(5) in d, {K(1), K(1)}.__len__()


@program(*ROWS, **WHOLE)
def protocol_callable_defaults(x):
    def mk():
        n = [0]

        def f(a=n):
            a[0] += 1
            return a[0]
        return f
    f = mk()
    g = mk()
    return x, f(), f(), g(), f.__defaults__


@program(*ROWS, **WHOLE)
def protocol_global_builtin_shadow(x):
    len = lambda v: 42
    return x, len([1]), max(1, 2)


@program(*ROWS, **WHOLE)
def protocol_scope_class(x):
    n = "outer"

    class A:
        n = "inner"
        m = [n for _ in range(2)]

        def f(s):
            return n
    return x, A.n, A.m, A().f()


@program(*ROWS, **WHOLE)
def protocol_format_spec(x):
    class A:
        def __format__(s, spec):
            return f"<{spec}>"

        def __str__(s):
            return "S"

        def __repr__(s):
            return "R"
    a = A()
    return x, f"{a:abc}", f"{a!s}", f"{a!r:>3}", "%s %r" % (a, a), "{:q}".format(a), str([a]), f"{a}"


@program(*ROWS, **WHOLE)
def protocol_slots_dict(x):
    class A:
        __slots__ = ("p",)
    a = A()
    try:
        a.p
    except AttributeError as e:
        m = str(e)
    a.p = x
    try:
        a.q = 1
    except AttributeError:
        n = True
    return a.p, n, hasattr(a, "q")


@program(*ROWS, **WHOLE)
def protocol_missing(x):
    class D(dict):
        def __missing__(s, k):
            return k * 2
    d = D(a=1)
    return x, d["z"], d.get("z"), "z" in d, d["a"]


@program(*ROWS, **WHOLE)
def protocol_context_exceptions(x):
    log = []

    class C:
        def __init__(s, n):
            s.n = n

        def __enter__(s):
            log.append(("in", s.n))
            return s

        def __exit__(s, t, v, tb):
            log.append(("out", s.n, t and t.__name__))
            return s.n == 2
    with C(1), C(2) as c, C(3):
        raise ValueError(c.n)
    return x, log


@program(*ROWS, **WHOLE)
def protocol_generator_pipeline(x):
    def src():
        for i in range(4):
            yield x * i

    def dbl(it):
        for v in it:
            yield v * 2

    def take(it, n):
        for _, v in zip(range(n), it):
            yield v
    return (list(take(dbl(src()), 3)), sum(1 for _ in dbl(src())))


@program(*ROWS, **WHOLE)
def protocol_coroutine_style(x):
    def avg():
        t, n, r = 0, 0, None
        while True:
            v = yield r
            t, n = t + v, n + 1
            r = t / n
    g = avg()
    next(g)
    return g.send(x), g.send(x * 3), g.send(2)


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_objects(case):
    case.run()
