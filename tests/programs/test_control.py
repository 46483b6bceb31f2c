"""Control flow: branches, loops, exceptions, contexts, match.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import contextlib

import pytest
import torch

from tests.programs.registry import cases, each, program, t

SHAPES = each(3, 5, 2)


@program(*SHAPES, captures=1, breaks=0)
def straight(x):
    y = x * 2 + 1
    return y.relu()


@program(*each(3, 5, 12, 20, 4), captures=2, breaks=0)
def branch_on_size(x):
    if x.shape[0] > 8:
        return x + 1
    return x - 1


@program(*[(t(3), n) for n in (0, 1, 2, 3, 7)], breaks=0)
def branch_on_int(x, n):
    if n == 0:
        return x
    elif n % 2:
        return x * n
    else:
        x = x + 1
    return x - n


@program(*[(t(n), f) for n, f in [(3, True), (4, False), (5, True), (6, False)]], captures=2, breaks=0)
def branch_on_bool(x, flag):
    return x + 1 if flag else x - 1


@program(*[(t(4, seed=s) - (s % 2),) for s in range(6)])
def branch_on_data(x):
    if x.sum() > 0:
        return x * 2
    return x - 10


@program(*[(t(n), n % 4) for n in range(2, 9)], breaks=0)
def loop_over_range(x, n):
    for i in range(n):
        x = x * 0.5 + i
    return x


@program(*SHAPES, breaks=0)
def loop_over_shape(x):
    out = x
    for s in x.shape:
        out = out + s
    return out


@program(*[(t(3), n) for n in (2, 5, 9)], breaks=0)
def break_and_else(x, n):
    for i in range(6):
        if i == n:
            break
        x = x + i
    else:
        x = x * 100
    return x


@program(*[(t(3), n) for n in (1, 4, 6)], breaks=0)
def continue_in_loop(x, n):
    for i in range(n):
        if i % 2:
            continue
        x = x + i
    return x


@program(*[(t(3), n) for n in (0, 1, 4, 6)], breaks=0)
def while_loop(x, n):
    while n > 0:
        x, n = x + n, n - 2
    else:
        x = x.neg()
    return x, n


@program(*[(t(3), n) for n in (1, 4, 6)], breaks=0)
def while_true(x, n):
    i = 0
    while True:
        i += 1
        x = x + 1
        if i >= n:
            break
    return x, i


@program(*[(t(3), n) for n in (3, 4, 6)], breaks=0)
def nested_loops(x, n):
    for i in range(n):
        for j in range(i):
            if j == 2:
                break
            x = x + i * j
        else:
            continue
        x = x * 0.5
    return x


@program(*[(t(2, n), [t(2, n, seed=k) for k in range(n)]) for n in (2, 3, 4)], breaks=0)
def loop_over_list(x, items):
    for i, y in enumerate(items):
        x = x + y * i
    return x


@program(*each(3, 4, 5, tail=(2,)), breaks=0)
def loop_over_tensor(x):
    out = 0
    for row in x:
        out = out + row
    return out


@program(*[(t(3), n) for n in (0, 1, 2, 3)])
def try_except(x, n):
    try:
        if n == 1:
            raise ValueError("one", n)
        y = [x, x + 1][n]
    except ValueError as e:
        return x, e.args
    except IndexError as e:
        return x * n, str(e)
    return y


@program(*[(t(3), n) for n in (0, 1, 2)], world=False)
def try_finally(x, n):
    seen = []
    try:
        seen.append("try")
        if n == 1:
            return x + 1, seen
        if n == 2:
            raise KeyError("gone")
    finally:
        seen.append("finally")
    return x, seen


@program(*[(t(3), n) for n in (0, 1, 2)])
def try_else(x, n):
    out = []
    try:
        y = x.view(3, n) if n else x
    except RuntimeError:
        out.append("runtime")
    else:
        out.append("else")
        x = y
    finally:
        out.append("finally")
    return x, out


@program(*[(t(3), n) for n in (0, 1)])
def nested_try(x, n):
    log = []
    try:
        try:
            raise ValueError(n)
        except KeyError:
            log.append("never")
        finally:
            log.append("inner")
            x = x + 1
    except ValueError as e:
        log.append(e.args[0])
        try:
            raise TypeError("again") from e
        except TypeError as e2:
            log.append(type(e2.__cause__).__name__)
            log.append(type(e2.__context__).__name__)
    return x, log


@program(t(3), t(4))
def reraise(x):
    try:
        try:
            raise ValueError("v")
        except ValueError:
            x = x + 1
            raise
    except ValueError as e:
        return x, e.args


@program(t(3), t(4))
def uncaught(x):
    y = x + 1
    if y.shape[0] > 0:
        raise RuntimeError("from the program", 3)
    return y


@program(t(3), t(4))
def error_inside_torch(x):
    return x + torch.ones(x.shape[0] + 2)


@program((t(3), t(3)), (t(3), t(4)), (t(4), t(4)))
def error_on_some_shapes(x, y):
    return (x + 1) * y


@program((t(3), 1), (t(3), "a"))
def wrong_types(x, n):
    return x + n


@program(t(3), t(4))
def unbound_local(x):
    if x.dim() > 5:
        y = 1
    return x + y


@program(t(3))
def name_error(x):
    return x + no_such_name  # noqa: F821


@program(t(3), t(4))
def attribute_error(x):
    return x.no_such_attribute


@program(t(3), t(4), breaks=0)
def assert_passes(x):
    assert x.dim() == 1, "one dim"
    return x + 1


@program((t(3), 3), (t(4), 3))
def assert_fails(x, n):
    assert x.shape[0] == n, f"expected {n}, got {x.shape[0]}"
    return x + 1


@program(t(3), t(4))
def except_star(x):
    log = []
    try:
        raise ExceptionGroup("both", [ValueError(1), KeyError(2), TypeError(3)])
    except* ValueError as g:
        log.append(("v", len(g.exceptions)))
    except* (KeyError, TypeError) as g:
        log.append(("k", len(g.exceptions)))
    return x + len(log), log


@program(t(3), t(4))
def except_star_leftover(x):
    try:
        raise ExceptionGroup("both", [ValueError(1), OSError(2)])
    except* ValueError:
        x = x + 1
    return x


@program(t(3))
def except_star_inside_except(x):
    log = []
    try:
        try:
            raise KeyError("x")
        except* KeyError:
            log.append(1)
            raise ValueError("y") from None
    except ExceptionGroup as e:
        log.append([type(v).__name__ for v in e.exceptions])
    except ValueError as e:
        log.append(e.args)
    return x * 2, log


class Context:
    def __init__(self, log, swallow=False):
        self.log = log
        self.swallow = swallow

    def __enter__(self):
        self.log.append("enter")
        return 10

    def __exit__(self, kind, value, tb):
        self.log.append(kind and kind.__name__)
        return self.swallow


@program(t(3), t(4), breaks=0)
def with_statement(x):
    log = []
    with Context(log) as k:
        x = x + k
    return x, log


@program((t(3), 0), (t(4), 1))
def with_exception(x, n):
    log = []
    with Context(log, swallow=True):
        x = x + 1
        if n:
            raise ValueError
        x = x * 2
    return x, log


@program((t(3), 1))
def with_exception_passes(x, n):
    log = []
    try:
        with Context(log), Context(log):
            raise KeyError(n)
    except KeyError as e:
        log.append(e.args)
    return x + 1, log


@program((t(3), 0), (t(4), 1), (t(5), 2), breaks=0)
def return_inside_with(x, n):
    log = []
    with Context(log) as k:
        if n == 1:
            return x + k, log
        for i in range(3):
            with Context(log):
                if i == n:
                    break
    return x, log


@contextlib.contextmanager
def managed(log, k):
    log.append(k)
    try:
        yield k * 2
    except ValueError as e:
        log.append(e.args)
    finally:
        log.append(-k)


@program((t(3), 0), (t(4), 1), breaks=0)
def contextmanager(x, n):
    log = []
    with managed(log, 3) as k:
        x = x + k
        if n:
            raise ValueError("in", n)
        x = x * 2
    return x, log


@program((t(3), 0), (t(4), 1))
def exit_stack(x, n):
    log = []
    with contextlib.ExitStack() as stack:
        for i in range(n + 2):
            x = x + stack.enter_context(managed(log, i + 1))
        stack.callback(log.append, "called")
    return x, log


@program((t(3), 0), (t(4), 1), breaks=0)
def suppressed(x, n):
    with contextlib.suppress(KeyError):
        x = x + 1
        {}[n]
        x = x + 100
    return x


@program(*[(t(3), v) for v in (0, 1, 2, 5, "s", 2.5, None)])
def match_values(x, v):
    match v:
        case 0:
            return x
        case 1 | 2:
            return x + v
        case int(k) if k > 4:
            return x * k
        case str():
            return x, v + "!"
        case None:
            return None
        case _:
            return x - v


@program(*[(t(3), v) for v in ([], [1], [1, 2], (1, 2, 3, 4), "ab", {1: 2})], breaks=0)
def match_sequences(x, v):
    match v:
        case []:
            return x
        case [a]:
            return x + a
        case [a, b]:
            return x + a * b
        case [a, *rest, b]:
            return x + a + b + len(rest)
        case {1: k, **others}:
            return x * k, others
    return "none"


class Point:
    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a = a
        self.b = b


@program(t(3), t(4), breaks=0)
def match_classes(x):
    out = []
    for p in (Point(x, 1), Point(x, 2), Point(1, 2), {"k": x, "j": 3}, {"z": 1}):
        match p:
            case Point(torch.Tensor() as a, 1):
                out.append(a + 1)
            case Point(a=int(k)):
                out.append(k)
            case Point():
                out.append("point")
            case {"k": torch.Tensor(shape=(n, *_)), **rest}:
                out.append((n, rest))
            case _:
                out.append("other")
    return out


@program(*[(t(n), n) for n in (2, 5, 9, 30)], breaks=0)
def chained_comparison(x, n):
    return x + (1 < n < 4) + 2 * (2 <= n <= 9 != 5) - 1 * (0 < x.shape[0] < 100 < n)


@program(*[(t(n), n) for n in (2, 5, 9)], breaks=0)
def walrus(x, n):
    if (k := x.shape[0] + n) > 8:
        x = x * k
    out = [(y := i * 2) + y for i in range(n)]
    return x, k, y, out


@program(*[(t(3), a, b) for a in (True, False) for b in (None, [], 3)], breaks=0)
def boolean_operators(x, a, b):
    c = a and b
    d = a or b
    e = not b
    if a and not b or b == 3:
        x = x + 1
    return x, c, d, e, b is None, b is not None


@program(*[(t(3), v) for v in (None, 2, None, 5)], breaks=0)
def none_branches(x, v):
    while v is None:
        v = 7
    if v is not None:
        x = x + v
    return x if x is not None else v


@program(*[(t(3), (1, (2, (3, None)))), (t(3), None), (t(3), (5, None))], breaks=0)
def while_not_none(x, chain):
    while chain is not None:
        value, chain = chain
        x = x + value
    return x


@program(*each(3, 5, 9), breaks=0)
def early_return_in_loop(x):
    for i in range(10):
        if i * 2 > x.shape[0]:
            return x + i
    return x


@program(*[(t(n, 2),) for n in (3, 5, 9, 4)], breaks=0)
def del_local(x):
    y = x + 1
    z = y
    del y
    try:
        return y
    except UnboundLocalError:
        return z


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()
