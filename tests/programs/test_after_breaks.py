"""What follows a graph break and only moves values about: stores, jumps, the ends of handlers and of loops, returns.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
import weakref

import pytest
import torch

from tests.helpers import IDENTITY, check, pliant
from tests.programs.registry import cases, each, program, t

SHAPES = each(3, 5, 2)
SOME = (1, 99)


@pliant.disable
def opaque(x):
    return x * 1.5


@pliant.disable
def raising(x, n):
    if n % 2:
        raise KeyError(n)
    return x - n


@program(*SHAPES, breaks=1, captures=(1, 2))
def returns_what_the_break_gave(x):
    return opaque(x + 1)


@program(*SHAPES, breaks=1, captures=(1, 2))
def returns_a_local(x):
    y = x * 2
    z = opaque(y)
    y = z
    a, b = z, y
    return a


@program(*SHAPES, breaks=SOME)
def calls_for_nothing(x):
    y = x + 1
    opaque(x)
    return y


@program(*[(t(3, 2), n) for n in (2, 3, 4, 5)], breaks=SOME)
def handlers_end(x, n):
    try:
        y = raising(x, n)
    except KeyError as e:
        k = opaque(x)
        y = k
    return y


@program(*[(t(3, 2), n) for n in (2, 3, 4, 5)], breaks=SOME)
def returns_from_a_handler(x, n):
    try:
        return raising(x, n)
    except KeyError as e:
        try:
            raising(x, n + 2)
        except KeyError as f:
            return opaque(x), f.__context__ is e, str(sys.exc_info()[1])
    finally:
        x.add_(1)


@program(*[(t(3, 2), n) for n in (2, 3, 4, 5)], breaks=SOME)
def handlers_in_handlers(x, n):
    seen = []
    for i in range(n):
        try:
            try:
                x = raising(x, i)
            except KeyError:
                x = opaque(x)
                raise ValueError(i) from None
        except ValueError as e:
            seen.append(str(e))
            opaque(x)
            continue
        finally:
            seen.append(sys.exc_info()[0])
        seen.append(i)
    return x, seen, sys.exc_info()


@program(*[(t(3, 2), n) for n in (1, 2, 4, 3, 6, 5, 7)], breaks=(0, 9))
def loops_that_end_with_a_break(x, n):
    for i in range(n):
        if i == 4:
            break
        for j in range(i):
            y = opaque(x)
            x = y
        k = opaque(x)
    else:
        return x, "whole"
    while n > 2:
        n -= 1
        if n == 3:
            continue
        z = opaque(x)
        x = z
    return x, k, i, n


@program(*SHAPES, breaks=SOME)
def a_list_outlives_the_frame(x):
    def inner(t):
        parts = [t, t + 1]
        more = {"a": parts}
        u = opaque(t)
        return parts if u is not None else more

    y = inner(x)
    y.append(opaque(y[0]))
    return y


@program(*[(t(3, 2), n) for n in (2, 3, 4, 5)], breaks=SOME)
def both_sides_return(x, n):
    if (x * n).sum() > 0:
        return x
    return n


@program(*SHAPES, breaks=SOME)
def within_with(x):
    with torch.no_grad():
        y = opaque(x)
        z = y
    return z


@program(*SHAPES, breaks=SOME)
def deletes(x):
    y = x + 1
    z = opaque(y)
    del y
    try:
        return y
    except UnboundLocalError as e:
        return z, str(e)


def test_a_traceback_holds_the_locals_of_the_line() -> None:
    """What the frame would drop next is there while the breaking call runs."""

    class Kept:
        pass

    def fn(x):
        kept = Kept()
        ref = weakref.ref(kept)
        try:
            y = raising(x, 1)
        except KeyError:
            return ref() is kept, x
        return y

    check(fn, *SHAPES)


def test_generators_of_a_frame_that_ends_are_closed() -> None:
    log: list = []

    def gen(t):
        try:
            yield t
        finally:
            log.append("closed")

    def inner(t):
        g = gen(t)
        u = next(g)
        return opaque(u)

    def fn(x):
        y = inner(x)
        return y + 1

    for run in (fn, pliant.compile(fn)):
        run(t(3))
        assert log == ["closed"]
        log.clear()


def test_trivial_rests_take_no_capture() -> None:
    def fn(x):
        y = x + 1
        z = opaque(y)
        return z

    report = check(fn, *each(3, 5, 4))
    if not IDENTITY:
        assert report.captures == 1


@pytest.mark.parametrize("case", cases(__name__), ids=str)
def test_program(case) -> None:
    case.run()


class Odd(dict):
    def __getitem__(self, k):
        return 9


class Keyed:
    __iter__ = None

    def keys(self):
        return ["a"]

    def __getitem__(self, k):
        return 5


UNPACKING = {"update": lambda x, v: {"x": x, **v}, "merge": lambda x, v: dict(x=x, **v), "list": lambda x, v: [x, *v]}


@pytest.mark.parametrize("fn", UNPACKING.values(), ids=UNPACKING)
def test_what_unpacking_refuses_where_the_graph_breaks(fn) -> None:
    """Values of changing types are opaque in the end, and what unpacks them runs in CPython."""
    compiled = pliant.compile(fn)
    values = [{"a": 1}, [("a", 2)], 3, None, "ab", Odd(a=1), {"x": 3}, 2.5, int, (("p", 1),), {"b": 3}, [1, 2], {5}, 7]

    def outcome(run, v):
        try:
            return repr(run(torch.ones(1), v))
        except Exception as e:
            return type(e)

    for v in [*values, Keyed()] * 2:
        assert outcome(compiled, v) == outcome(fn, v), v


def test_a_float_is_itself() -> None:
    def fn(x, v):
        return x + (v is v)

    compiled = pliant.compile(fn, strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where it is known by its worth, the frame is left to CPython
        for v in (-1.0, 2.0, 0.5, float("nan"), 3, 300, True, -0.0):
            assert torch.equal(compiled(torch.ones(2), v), fn(torch.ones(2), v))


def broke(v):
    pliant.graph_break()
    return v


def lists_of_shapes(x, shapes, start, end):
    return [x.reshape((*start, *s, *end)).shape for s in shapes]


def displayed(x, shapes, start, end):
    return [*broke(start), *broke(end), *[broke(s) for s in shapes]], (*broke(start), *broke(end), *(broke(s) for s in shapes))


def in_sets(x, shapes, start, end):
    return {broke(len(s)) for s in shapes}, {*start, *broke(shapes[0]), *end}


def in_dicts(x, shapes, start, end):
    a, b = dict(enumerate(start)), {-i: s for i, s in enumerate(end)}
    return {broke(i): broke(s) for i, s in enumerate(shapes)}, {**a, **broke(b), 5: 6, **broke(a)}


def in_calls(x, shapes, start, end):
    def given(*a, **k):
        return a, k

    a, b = {f"a{i}": s for i, s in enumerate(start)}, {f"b{i}": s for i, s in enumerate(end)}
    return given(*start, *broke(end), *broke(start), **a, **broke(b), **broke({f"c{len(start)}": 1}))


@pytest.mark.parametrize("fn", [lists_of_shapes, displayed, in_sets, in_dicts, in_calls])
def test_containers_in_the_making_that_keep_changing(fn):
    """What a break leaves half made on the stack is another size each time: after some calls nothing is assumed of it."""
    made = pliant.compile(fn)
    for k in range(40):
        args = torch.ones(3), [(1,) * (k % 5), [1] * (k % 3), (1,) * (k % 4)], (3,) + (1,) * (k % 2), (1,) * (k % 3)
        if fn is lists_of_shapes:
            args = (args[0].numpy(), *args[1:])
        assert made(*args) == fn(*args)


def sizes_that_the_backward_joins(x, scale):
    """Both counts are carried by the breaks, and that they are the same is learned when the backward part is traced."""
    b, d = x.shape[:-2], x.shape[-1]
    n, m = x.shape[-2], x.shape[-2]
    out = torch.zeros(*b, n * (d + 1), m * (d + 1))
    left, right = x.div(scale), x.div(scale)
    outer = (left.view(*b, n, 1, d) - right.view(*b, 1, m, d)) / scale.unsqueeze(-2)
    outer = torch.transpose(outer, -1, -2).contiguous()
    pliant.graph_break()
    near = (left @ right.mT).exp()
    pliant.graph_break()
    out[..., :n, :m] = near
    first = outer.view(*b, n, m * d)
    out[..., :n, m : m * (d + 1)] = first * near.repeat([*([1] * (len(b) + 1)), d])
    second = outer.transpose(-1, -3).reshape(*b, m, n * d).transpose(-1, -2)
    out[..., n : n * (d + 1), :m] = -second * near.repeat([*([1] * len(b)), d, 1])
    third = first.repeat([*([1] * len(b)), d, 1]) * second.repeat([*([1] * (len(b) + 1)), d])
    pliant.graph_break()
    return out * n + m, third


def test_sizes_that_the_backward_joins():
    made = pliant.compile(sizes_that_the_backward_joins, backend="aten")
    for n in (6, 5, 4):
        x, scale = torch.randn(3, 2, n, 2), torch.full((3, 2, 1, 2), 1.5, requires_grad=True)
        torch.testing.assert_close(made(x, scale), sizes_that_the_backward_joins(x, scale))


def put_and_taken(x, table, broken):
    """A dict that has another size at the break than when its iterator was made, and again the same when that goes on."""
    out = []
    for k, v in table.items():
        table["c"] = x
        if k == "b":
            del table["a"]
        if broken:
            pliant.graph_break()
        elif v.sum() > 100:
            out.append(v)
        if k != "b":
            del table["c"]
        out.append((k, v + 1))
    return out, list(table)


@pytest.mark.parametrize("broken", [True, False])
def test_a_dict_that_has_its_size_again(broken):
    check(put_and_taken, *[(torch.ones(n), {"a": torch.ones(n), "b": torch.zeros(n), "d": torch.ones(2)}, broken) for n in (2, 3, 4)])


# -- loops that leave a loop --------------------------------------------------------------------------------------------------
def steps_and_places(y, t):
    """A loop whose rounds have a loop on data: its end is on the way to the next round of the outer one."""
    out, j = torch.empty(len(t), *y.shape), 1
    out[0] = y
    for t0, t1 in zip(t[:-1], t[1:]):
        y = y + (t1 - t0) * y.sin()
        while j < len(t) and t1 >= t[j]:
            out[j] = y
            j += 1
    return out


def three_deep(x, n):
    total = x * 0
    for i in range(n):
        while total.sum() < i:
            total = total + 1
            for k in range(n):
                if x.sum() * k > 100:
                    break
                total = total + 0.5
            else:
                total = total + x.abs().sum()
        try:
            pliant.graph_break()
        finally:
            total = total + 1
    return total


def searched(x, n):
    found = []
    for i in range(n):
        j = 0
        while True:
            j += 1
            if (x[i % x.shape[0]] * j).sum() > i:
                found.append(j)
                break
            if j > 4:
                continue_at = i
                break
        else:
            continue_at = -1
        found.append(x.sum() + j)
    return found, continue_at if j > 4 else None


@pytest.mark.parametrize("rounds", [5, 20])
def test_captures_do_not_grow_with_the_rounds(rounds):
    """Behind the end of an inner loop the frame was taken to be in it still, and each round of the outer loop was captured anew."""
    arg_sets = [(torch.randn(3 + i % 2, 2), torch.linspace(0, 1, rounds + i % 3)) for i in range(8)]
    report = check(steps_and_places, *arg_sets)
    assert report.captures <= 12 and report.history[-1]["captures"] == report.history[3]["captures"]


@pytest.mark.parametrize("rounds", [3, 12])
@pytest.mark.parametrize("fn", [three_deep, searched], ids=lambda fn: fn.__name__)
def test_loops_in_loops(fn, rounds):
    check(fn, *[(torch.ones(2 + i % 2, 3) * (i - 1), rounds + i % 3) for i in range(6)])


def raised_until(x, n):
    """The inner loop stands at the end of the outer one's body: its ways out are jumps back of their own since 3.12."""
    total = x * 0
    for i in range(n):
        while not (total.sum() >= i):
            total = total + 1
    return total


def raised_until_or(x, n):
    total = x * 0
    for i in range(n):
        k = 0
        while k < 3 and total.sum() < i:
            total = total + 1
            k += 1
    return total


def skipped(x, n):
    for i in range(n):
        t = x + i
        if t.sum() > 3:
            del t
            continue
        x = t
        del t
    return x


@pytest.mark.parametrize("fn", [raised_until, raised_until_or, skipped], ids=lambda fn: fn.__name__)
def test_jumps_back_to_one_header_are_one_place(fn):
    report = check(fn, *[(torch.randn(3 + i % 2, 2) + 0.1, 3 + i % 4) for i in range(6)])
    assert report.history[-1]["graph_breaks"] <= 2, "those of the loop whose length changes"


def test_many_rounds_do_not_go_deeper():
    y, t = torch.ones(2, 2), torch.linspace(0, 1, 1500)
    torch.testing.assert_close(pliant.compile(steps_and_places)(y, t), steps_and_places(y, t))


@contextlib.contextmanager
def frozen(module):
    module.requires_grad_(False)
    try:
        yield module
    finally:
        module.requires_grad_(True)


def test_a_break_is_where_it_was_when_an_attempt_has_opened_a_size():
    """The attempt before had called less: sizes were numbers that it compared without a call."""
    host = torch.nn.Linear(2, 2)

    def fn(items):
        largest = max(items, key=lambda t: t.shape)
        with frozen(host):
            pass
        return largest + 1

    check(fn, *[([torch.ones(*size) for _ in range(n)],) for n, *size in ((2, 3, 2), (3, 1, 3), (3, 4, 4))])
