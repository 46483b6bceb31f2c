"""Generators, exceptions and contexts around tensors.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import inspect
import itertools
import sys
import types

import pytest
import torch
import torch.nn.functional as F

from tests.programs.registry import cases, each, program, programs

WHOLE = {"breaks": 0, "captures": 1}
LESS = {"breaks": 0}
ROWS = each(3, 5, 2, tail=(4,))


def count3(x):
    yield x + 1
    yield x + 2
    yield x + 3


def endless(x):
    i = 0
    while True:
        yield x + i
        i += 1


def sub_(x):
    r = yield from count3(x)
    yield x * 9
    return r


def with_return(x):
    yield x
    return x + 5


def sender(x):
    got = yield x
    while got is not None:
        got = yield x + got


def thrower(x):
    try:
        yield x
    except ValueError as e:
        yield x + len(e.args)
    finally:
        LOG.append("fin")


LOG = []


def generator_pairs(x):
    for i in range(3):
        yield i, x + i


def tree(n, x):
    if n:
        yield from tree(n - 1, x + 1)
        yield x
        yield from tree(n - 1, x - 1)


class GenObj:
    def __init__(self, x):
        self.x = x

    def __iter__(self):
        for i in range(3):
            yield self.x * i


class It:
    def __init__(self, x, n):
        self.x, self.n = x, n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.x * self.n


class MyErr(Exception):
    def __init__(self, code, x=None):
        super().__init__(code)
        self.code, self.x = code, x


class Sub(MyErr, KeyError):
    pass


class Cm:
    def __init__(self, swallow=False, log=None):
        self.swallow, self.log = swallow, log if log is not None else []

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, t, v, tb):
        self.log.append(t.__name__ if t else None)
        return self.swallow


def raiser(x, e):
    raise e


programs(__name__, *ROWS, **WHOLE)({
    "generator_next3": lambda x: [next(g) + next(g) + next(g) for g in [count3(x)]],
    "generator_endless_zip": lambda x: list(zip(range(3), endless(x))),
    "generator_containers": lambda x: (dict(generator_pairs(x)), collections.OrderedDict(generator_pairs(x)), list(generator_pairs(x)),
        tuple(count3(x)), collections.deque(count3(x), maxlen=2)),
    "generator_sub": lambda x: list(sub_(x)),
    "generator_tree": lambda x: list(tree(3, x)),
    "generator_iter_class": lambda x: (list(GenObj(x)), sum(GenObj(x)), max(It(1, 4)), list(It(x, 3))),
    "generator_unpack": lambda x: [a + b + c for a, b, c in [count3(x)]],
    "generator_star": lambda x: torch.stack([*count3(x)]) + torch.cat(list(count3(x)))[:1],
    "generator_reversed": lambda x: list(reversed(list(count3(x)))),
    "generator_map_filter": lambda x: (list(map(lambda a: a * 2, count3(x))), list(filter(lambda p: p[0] % 2, generator_pairs(x)))),
    "generator_chain": lambda x: list(itertools.chain(count3(x), [x])) + list(itertools.chain.from_iterable([count3(x),
        count3(x)])),
    "generator_islice": lambda x: list(itertools.islice(endless(x), 1, 5, 2)),
    "generator_enumerate": lambda x: [(i, v) for i, v in enumerate(count3(x), 2)],
    "generator_default_next": lambda x: [(next(g), next(g, None), next(g, None)) for g in [with_return(x)]],
    "generator_in_contains": lambda x: (2 in (i for i in range(3)), 5 in (i for i in range(3)), x + 1),
    "generator_tee": lambda x: [(list(a), list(b)) for a, b in [itertools.tee(count3(x), 2)]],
    "generator_groupby": lambda x: [(k, [v for _, v in g]) for k, g in itertools.groupby(generator_pairs(x), key=lambda p: p[0] // 2)],
    "generator_accumulate": lambda x: (list(itertools.accumulate(count3(x))), list(itertools.accumulate([x, x], torch.mul,
        initial=x))),
    "generator_zip_longest": lambda x: list(itertools.zip_longest(count3(x), [1], fillvalue=0)),
    "generator_zip_strict": lambda x: list(zip(count3(x), [1, 2, 3], strict=True)),
    "generator_takewhile": lambda x: list(itertools.takewhile(lambda v: v[0] < 2,
        generator_pairs(x))) + list(itertools.dropwhile(lambda v: v[0] < 2, generator_pairs(x))),
    "generator_sorted": lambda x: sorted(generator_pairs(x), key=lambda p: -p[0]),
    "generator_iter_sentinel": lambda x: [list(iter(lambda: q.pop(0), 3)) for q in [[1, 2, 3, 4]]] + [x],
})  # fmt: skip


programs(__name__, *ROWS, **LESS)({
    "generator_expression": lambda x: (sum(v for v in count3(x)), torch.stack(tuple(v * 2 for v in x)),
        any(v.ndim == 1 for v in x), all(v.ndim == 2 for v in [x])),
})  # fmt: skip


@program(*ROWS, **WHOLE)
def generator_send(x):
    g = sender(x)
    a = next(g)
    b = g.send(2)
    c = g.send(x)
    try:
        g.send(None)
    except StopIteration:
        return a, b, c


@program(*ROWS, **WHOLE)
def generator_return_value(x):
    g = with_return(x)
    next(g)
    try:
        next(g)
    except StopIteration as e:
        return e.value


@program(*ROWS, **LESS)
def generator_throw(x):
    g = thrower(x)
    next(g)
    r = g.throw(ValueError("a"))
    g.close()
    return r, list(LOG[-1:])


@program(*ROWS, **WHOLE)
def generator_throw_out(x):
    g = count3(x)
    next(g)
    try:
        g.throw(KeyError("k"))
    except KeyError as e:
        return x + 1, str(e)


@program(*ROWS, **WHOLE)
def generator_close(x):
    log = []

    def g():
        try:
            yield x
            yield x + 1
        except GeneratorExit:
            log.append("exit")
            raise
        finally:
            log.append("fin")
    h = g()
    next(h)
    h.close()
    h.close()
    return x * 2, log


@program(*ROWS, **WHOLE)
def generator_stop_in_body(x):
    def g():
        yield x
        raise StopIteration("b")
    h = g()
    next(h)
    try:
        next(h)
    except RuntimeError as e:
        return x, str(e), type(e.__cause__).__name__


@program(*ROWS, **WHOLE)
def generator_reenter(x):
    def g():
        yield next(h)
    h = g()
    try:
        next(h)
    except ValueError as e:
        return x + 1, str(e)


@program(*ROWS, **WHOLE)
def generator_attrs(x):
    g = count3(x)
    a = g.__name__, g.gi_running, g.gi_yieldfrom, g.__qualname__, inspect.isgenerator(g), isinstance(g,
        types.GeneratorType), isinstance(g, collections.abc.Generator), hasattr(g, "send")
    return a, list(g)


@program(*ROWS, **WHOLE)
def generator_ctx_inside(x):
    def g():
        with torch.no_grad():
            yield torch.is_grad_enabled()
        yield torch.is_grad_enabled()
    return x, list(g())


@program(*ROWS, **WHOLE)
def generator_method_alias(x):
    g = count3(x)
    n = g.__next__
    return n(), n(), g.__iter__() is g


@program(*ROWS, **LESS)
def generator_yield_from_iter(x):
    def g():
        yield from [x, x + 1]
        yield from (i for i in range(2))
        yield from {"a": 1}
        yield from "bc"
        yield from x
    return list(g())


@program(*ROWS, **WHOLE)
def generator_yf_send(x):
    def outer():
        r = yield from inner()
        yield r

    def inner():
        a = yield x
        b = yield a + 1
        return a + b
    g = outer()
    next(g)
    return g.send(x), g.send(2)


@program(*ROWS, **WHOLE)
def generator_yf_throw(x):
    def inner():
        try:
            yield x
        except ValueError:
            yield x + 100

    def outer():
        yield from inner()
    g = outer()
    next(g)
    return g.throw(ValueError)


@program(*ROWS, **WHOLE)
def generator_list_mutated(x):
    q = [x]
    out = []
    for v in q:
        out.append(v)
        if len(q) < 4:
            q.append(v + 1)
    return out


@program(*ROWS, **WHOLE)
def generator_early_exit(x):
    for v in endless(x):
        if v.ndim == 2:
            break
    return v


@program(*ROWS, **WHOLE)
def generator_two_interleaved(x):
    a, b = count3(x), count3(x * 2)
    return [next(a), next(b), next(a), next(b)]


@program(*ROWS, **WHOLE)
def generator_stored_attr(x):
    o = types.SimpleNamespace(g=endless(x))
    next(o.g)
    d = {"g": o.g}
    return next(d["g"])


@program(*ROWS, **WHOLE)
def generator_cell_late(x):
    gs = [(lambda: (x * i for _ in range(1)))() for i in range(3)]
    return [list(g) for g in gs]


@program(*ROWS, **WHOLE)
def exception_custom(x):
    try:
        raise MyErr(3, x)
    except MyErr as e:
        return e.x + e.code, e.args, repr(e), str(e)


@program(*ROWS, **WHOLE)
def exception_sub(x):
    try:
        raise Sub(2)
    except KeyError as e:
        return x + 1, type(e).__name__, isinstance(e, MyErr)


@program(*ROWS, **WHOLE)
def exception_note(x):
    try:
        e = ValueError("a")
        e.add_note("n")
        raise e
    except ValueError as e:
        return x, e.__notes__


@program(*ROWS, **WHOLE)
def exception_traceback_attr(x):
    try:
        raise ValueError("a")
    except ValueError as e:
        return x, e.__traceback__ is not None, e.with_traceback(None) is e


@program(*ROWS, **WHOLE)
def exception_list_index(x):
    try:
        [][1]
    except IndexError as e:
        r = str(e)
    try:
        [1].index(4)
    except ValueError as e:
        r += str(e)
    try:
        [].pop()
    except IndexError as e:
        r += str(e)
    return x, r


@program(*ROWS, **WHOLE)
def exception_attr(x):
    try:
        object().foo
    except AttributeError as e:
        r = str(e), e.name
    try:
        x.nothing_here
    except AttributeError as e:
        r += (str(e),)
    return x + 1, r


@program(*ROWS, **WHOLE)
def exception_type(x):
    try:
        "a" + 1
    except TypeError as e:
        r = str(e)
    try:
        len(3)
    except TypeError as e:
        r += str(e)
    try:
        (lambda a: a)(1, 2)
    except TypeError as e:
        r += str(e)[-20:]
    return x, r


@program(*ROWS, **WHOLE)
def exception_stop_iteration(x):
    try:
        next(iter([]))
    except StopIteration as e:
        return x, e.value


@program(*ROWS, **WHOLE)
def exception_unbound(x):
    try:
        if x.ndim == 9:
            q = 1
        q
    except UnboundLocalError as e:
        return x, str(e), e.name if hasattr(e, "name") else 0


@program(*ROWS, **WHOLE)
def exception_name(x):
    try:
        undefined_name_here
    except NameError as e:
        return x, e.name


@program(*ROWS, **WHOLE)
def exception_unpack(x):
    try:
        a, b = [1, 2, 3]
    except ValueError as e:
        r = str(e)
    try:
        a, b = [1]
    except ValueError as e:
        r += str(e)
    try:
        a, b, c, d, e2, *f = (1, 2)
    except ValueError as e:
        r += str(e)
    return x, r


@program(*ROWS, **WHOLE)
def exception_groups(x):
    log = []
    try:
        raise ExceptionGroup("g", [ValueError("a"), KeyError("b"), ExceptionGroup("h", [ValueError("c")])])
    except* ValueError as e:
        log.append([type(i).__name__ for i in e.exceptions])
    except* KeyError as e:
        log.append(len(e.exceptions))
    return x + 1, log


@program(*ROWS, **WHOLE)
def exception_group_methods(x):
    g = ExceptionGroup("g", [ValueError("a"), KeyError("b")])
    m, r = g.split(ValueError)
    return x, m.exceptions[0].args, r.exceptions[0].args, g.subgroup(lambda e: isinstance(e,
        KeyError)).message, g.derive([ValueError()]).message


@program(*ROWS, **WHOLE)
def exception_return_in_finally(x):
    def f():
        try:
            raise ValueError
        finally:
            return x + 1
    return f()


@program(*ROWS, **WHOLE)
def exception_sys_exc_info(x):
    try:
        raise ValueError("q")
    except ValueError:
        t_, v, tb = sys.exc_info()
        r = t_.__name__, v.args, tb is not None, sys.exception().args
    return x, r, sys.exc_info()[0]


@program(*ROWS, **WHOLE)
def exception_raise_bad(x):
    try:
        raise 3
    except TypeError as e:
        return x, str(e)


@program(*ROWS, **WHOLE)
def exception_bare_no_active(x):
    try:
        raise
    except RuntimeError as e:
        return x, str(e)


@program(*ROWS, **WHOLE)
def exception_init_kwargs(x):
    class E(Exception):
        def __init__(self, *, a):
            self.a = a

        def __str__(self):
            return f"E{self.a}"
    try:
        raise E(a=2)
    except E as e:
        return x * e.a, str(e)


@program(*ROWS, **WHOLE)
def exception_compare(x):
    return x, ValueError("a") == ValueError("a"), issubclass(MyErr,
        Exception), ValueError.__mro__[1].__name__, isinstance(ValueError(), Exception)


@program(*ROWS, **WHOLE)
def exception_match_in_except_expr(x):
    def kinds():
        return ValueError, KeyError
    try:
        raise KeyError(1)
    except kinds():
        return x + 1


@program(*ROWS, **WHOLE)
def exception_cleanup_name(x):
    e = 5
    try:
        raise ValueError
    except ValueError as e:
        pass
    try:
        return x, e
    except NameError:
        return x, "gone"


@program(*ROWS, **WHOLE)
def exception_oserror(x):
    try:
        raise OSError(2, "no such", "f.txt")
    except FileNotFoundError as e:
        return x, e.errno, e.strerror, e.filename


@program(*ROWS, **WHOLE)
def context_return_inside(x):
    log = []

    def f():
        for i in range(3):
            with Cm(log=log):
                if i == 1:
                    return x * i
    return f(), log


@program(*ROWS, **WHOLE)
def context_exit_stack_pop_all(x):
    log = []
    with contextlib.ExitStack() as s:
        s.callback(log.append, 1)
        t2 = s.pop_all()
    t2.close()
    return x, log


@program(*ROWS, **WHOLE)
def context_closing(x):
    class R:
        def close(self):
            self.c = True
    r = R()
    with contextlib.closing(r):
        pass
    return x, r.c


@program(*ROWS, **WHOLE)
def context_decorator_class(x):
    log = []

    class D(contextlib.ContextDecorator):
        def __enter__(self):
            log.append(1)

        def __exit__(self, *a):
            log.append(2)

    @D()
    def f(v):
        return v * 3
    return f(x), log


@program(*ROWS, **WHOLE)
def context_gen_exception_inside(x):
    @contextlib.contextmanager
    def c():
        try:
            yield 1
        except ValueError:
            out.append("caught")
    out = []
    with c():
        raise ValueError
    return x, out


@program(*ROWS, **WHOLE)
def context_gen_reraise(x):
    @contextlib.contextmanager
    def c():
        try:
            yield 1
        except ValueError as e:
            raise KeyError("k") from e
    try:
        with c():
            raise ValueError
    except KeyError as e:
        return x, type(e.__cause__).__name__


@program(*ROWS, **WHOLE)
def context_autocast_object(x):
    c = torch.autocast("cpu", dtype=torch.bfloat16)
    with c:
        a = x @ x.T
    with c:
        b = x @ x.T
    return a, b, c.fast_dtype


@program(*ROWS, **WHOLE)
def context_profiler(x):
    with torch.profiler.record_function("a"):
        y = x + 1
    with torch.autograd.profiler.record_function("b") as r:
        y = y + 1
    return y


@program(*ROWS, **WHOLE)
def context_sdp(x):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        y = F.scaled_dot_product_attention(x, x, x)
    return y


@program(*ROWS, **WHOLE)
def context_local_fn_enter(x):
    class P:
        def __enter__(s):
            return x

        def __exit__(s, *a):
            pass
    with P() as v:
        return v + 1


@program(*ROWS, **WHOLE)
def context_nested_functions(x):
    def f(c):
        with c:
            return g()

    def g():
        with torch.no_grad():
            return torch.is_grad_enabled(), x + 1
    return f(torch.enable_grad())


@program(*ROWS, **WHOLE)
def context_fork_rng(x):
    with torch.random.fork_rng():
        y = torch.rand(2)
    return x, y


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_language(case):
    case.run()
