"""What a program does to the world: writes, identity, aliasing, output, randomness, global state.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import contextlib
import io
import logging
import random
import warnings

import numpy as np
import pytest
import torch

from tests.helpers import check, check_world, pliant
from tests.programs.registry import cases, each, program, t

SHAPES = each(3, 5, 2)
log = logging.getLogger("program")


@program(*SHAPES, breaks=0)
def inplace_input(x):
    x.add_(1)
    x *= 2
    x[0] = 7
    x[1:].zero_()
    return x


@program(*SHAPES, breaks=0)
def inplace_no_result(x):
    x.mul_(3)


@program(*each(3, 5, tail=(4,)), breaks=0)
def inplace_through_views(x):
    a = x[1:]
    b = x.t()
    c = x.view(-1)
    a.add_(1)
    b[0].mul_(2)
    c[-1] = 9
    d = x.select(1, 2)
    d.sub_(5)
    return a, b, c, d


@program(*each(3, 5, tail=(4,)), breaks=0)
def view_then_mutate_base(x):
    y = x * 2
    v = y[1:]
    w = v.t()
    y.add_(1)
    before = w.clone()
    w.zero_()
    return y, v, w, before


@program(*[(lambda a: (a, a))(t(n)) for n in (3, 4)], (t(3), t(3)), breaks=0)
def same_tensor_twice(x, y):
    x.add_(1)
    return x * y, x is y


@program(*[(lambda a: (a, a.view(-1)))(t(n)) for n in (3, 4)], (t(3), t(3)), (t(4), t(4)))
def read_again_after_a_write_elsewhere(x, y):
    before = y + 1
    x.zero_()
    return before, y + 1


@program(*[(lambda a: (a, a[1:]))(t(n)) for n in (3, 4)], (t(3), t(2)), (t(4), t(3)))
def overlapping_arguments(x, y):
    x.add_(1)
    z = y * 2
    y.mul_(3)
    return z, x + 1


@program(*[(lambda a: (a[:2], a[2:]))(t(n)) for n in (4, 4)], (t(2), t(2)))
def disjoint_views_of_one_storage(x, y):
    x.add_(1)
    return x * y


@program(*[(t(n, 4).t(),) for n in (3, 5)], *[(t(8, n)[::2],) for n in (3, 5)], *[(t(n).expand(4, n),) for n in (3, 5)])
def strided_inputs(x):
    return x * 2, x.t(), x.contiguous(), x.reshape(-1), x.is_contiguous(), x[1:], torch.empty_like(x).stride()


@program(*[(t(10)[k : k + 4],) for k in (0, 2, 3)])
def offsets(x):
    x.add_(1)
    return x[1:], x.storage_offset(), x.as_strided((2,), (1,), x.storage_offset())


@program(*SHAPES, breaks=0)
def returns_inputs(x):
    return x, x[:], x.view(-1), x.detach(), [x], x.contiguous(), x.to(x.dtype), x.expand_as(x), x.reshape(x.shape)


@program(*SHAPES, breaks=0)
def returns_aliases_of_each_other(x):
    y = x + 1
    return y, y, y[1:], y.t() if y.dim() == 2 else y.unsqueeze(0), y.detach(), [y]


@program(*SHAPES, breaks=0)
def out_argument(x):
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    torch.mul(x, 2, out=x)
    return y


@program(*SHAPES)
def out_argument_resized(x):
    y = torch.empty(0)
    torch.add(x, 1, out=y)
    return y


@program(*[(t(n), t(n + 1)) for n in (3, 4)])
def set_data(x, y):
    x.data = y * 2
    return x + 1


@program(*SHAPES)
def resize(x):
    y = x.clone()
    y.resize_(2)
    x.data.add_(1)
    return y, x


def versions(*ts):
    return [v._version for v in ts]


@program(*SHAPES, world=True)
def data_written():
    def fn(x):
        d = x.data
        d[:1].fill_(2)
        y = x.data * 2
        x.add_(1)
        return d, y, x

    def watched(x):
        out = fn(x)
        return out, pliant.disable(versions)(*out)

    return watched


@pliant.disable
def add_one(x):
    x.add_(1)


@program(*SHAPES, breaks=1)
def data_handed_on(x):
    d = x.data
    y = d + 1
    add_one(d)
    return d, d, y, x


@program(*SHAPES, breaks=0)
def copy_between(x):
    y = torch.zeros_like(x)
    y.copy_(x)
    y[:1].copy_(x[1:2])
    x.copy_(y + 1)
    x.fill_(3)
    return y


@program(*each(4, 6), breaks=0)
def indexed_writes(x):
    i = torch.tensor([0, 2])
    x[i] = 5.0
    x.index_add_(0, i, torch.ones(2))
    x.scatter_(0, i, 1.5)
    x[x > 4] = 0
    x.masked_fill_(x == 0, -1)
    return x.index_put((i,), torch.zeros(2))


@program(*SHAPES)
def attributes_on_a_tensor(x):
    x.tag = "hello"
    y = x + 1
    y.note = [1]
    return y.note, x.tag, hasattr(x, "nope")


@program(*[(t(n), [1], {"a": 1}, {1}) for n in (3, 4)])
def all_containers(x, a, d, s):
    a.append(x + 1)
    d["b"] = x
    s.add(2)
    a[0] = a
    d.clear()
    d["c"] = a
    a.clear()
    a.extend([3, x])
    s |= {5}


@program(*[(t(n), [3, 1, 2]) for n in (3, 4)], breaks=0)
def order_of_effects(x, a):
    a.sort()
    a.append(a[0])
    a.reverse()
    b = a[:]
    a.clear()
    a += b
    return b


@program(*[([t(n)], [t(n)]) for n in (3, 4)], breaks=0)
def swap_between_arguments(a, b):
    a[0], b[0] = b[0], a[0]
    a.append(b)
    return b


@program(*SHAPES)
def logging_and_print(x):
    log.info("one %d", 1)
    print("two")
    x = x + 1
    log.warning("three %s", tuple(x.shape))
    print("four")
    return x


@program(*[(t(3), n) for n in (0, 1, 0)])
def output_before_error(x, n):
    print("before")
    x.add_(1)
    if n:
        raise ValueError("after the print")
    print("after")
    return x


@program(*SHAPES)
def print_to_stream(x):
    out = io.StringIO()
    print("hidden", file=out)
    with contextlib.redirect_stdout(out):
        print("redirected")
    return x + 1, out.getvalue()


@program(*SHAPES)
def warning_issued(x):
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        warnings.warn("careful", UserWarning, stacklevel=1)
    return x + 1, [str(v.message) for v in w]


@program(*SHAPES)
def torch_randomness(x):
    a = torch.rand(x.shape[0])
    b = torch.randn_like(x)
    c = torch.randint(0, 10, (x.shape[0],))
    d = torch.nn.functional.dropout(x, 0.5)
    e = torch.empty_like(x).uniform_()
    f = torch.randperm(x.shape[0])
    return a, b, c, d, e, f, torch.bernoulli(torch.full_like(x, 0.5))


@program(*SHAPES)
def seeded_inside(x):
    torch.manual_seed(5)
    a = torch.rand(2)
    g = torch.Generator().manual_seed(3)
    return a, torch.rand(3, generator=g), x + torch.rand(1)


@program(*SHAPES)
def fork_rng(x):
    with torch.random.fork_rng():
        a = torch.rand(2)
    return a, torch.rand(2), x


@program(*SHAPES)
def python_randomness(x):
    r = random.Random(3)
    return x * random.random(), random.randint(0, 9), r.random(), np.random.rand(2), random.choice([1, 2, 3])


@program(*SHAPES)
def grad_mode_left_changed(x):
    torch.set_grad_enabled(False)
    y = x + 1
    torch.set_grad_enabled(True)
    return y


@program(*SHAPES)
def default_dtype_changed(x):
    torch.set_default_dtype(torch.float64)
    y = torch.ones(2)
    torch.set_default_dtype(torch.float32)
    return y, torch.ones(2), x


@program((t(3), True), (t(3), False), (t(3), True))
def grad_mode_left_off(x, flag):
    torch.set_grad_enabled(flag)
    return x + 1


@program(*[(t(3), None) for n in range(2)], before=lambda i, s: torch.set_default_dtype(torch.float64 if i else torch.float32))
def default_dtype_between_calls(x, _):
    return torch.zeros(2), x + 1


@program(*[(t(3, grad=True),) for n in range(3)], before=lambda i, s: torch.set_grad_enabled(i != 1))
def grad_mode_between_calls(x):
    y = x * 2
    return y, y.requires_grad, torch.is_grad_enabled()


@program(*SHAPES, breaks=0)
def effects_then_exception(x):
    a = []
    try:
        a.append(1)
        x.add_(1)
        raise ValueError
    except ValueError:
        a.append(2)
    return a, x


@program(*[(t(3), []) for _ in range(2)])
def effects_before_uncaught_exception(x, a):
    a.append(1)
    x.add_(1)
    raise ValueError("out")


@program(*SHAPES, breaks=0)
def identity_of_results(x):
    a, b = [x], [x]
    return a, b, a, (a, b), {"a": a}, x.shape, x.dtype, None, ..., int, len, torch, torch.relu, x.device


@program(*SHAPES, breaks=0)
def comparisons_of_identity(x):
    y, z = x + 1, x
    a = [1]
    return (x is z, x is y, a is a, a is [1], x is not None, type(x) is type(y), id(a) == id(a), y in [x] if False else 0,
        any(v is y for v in [x, y]),)


@program(*[(t(n), 2**40, -5, 3.5, 1e300, float("inf"), float("nan"), 10**30, 1j, b"x", "é", None, ...) for n in (3, 4)])
def scalars(x, big, neg, f, huge, inf, nan, enormous, cplx, by, s, none, dots):
    return (x * f + neg, big + 1, big * big, neg // 2, neg % 3, -neg, huge * 10, inf, nan, enormous + 1, cplx * 2, by, s + "!", none,
        dots, f // 1, round(f), int(f), big / 3,)


@program(*[(t(3), n) for n in (2, 5, -3, 0, 7, 100)])
def int_arithmetic(x, n):
    return (
        x + n, n + 1, n - 3, n * 2, n // 3, n % 4, n / 2, -n, +n, ~n, abs(n), n**2, n & 6, n | 1, n ^ 3,
        n << 1, n >> 1, n == 5, n != 5, n < 5, n <= 5, n > 5, n >= 5,
        divmod(n, 3), float(n), bool(n), str(n), max(n, 3), min(n, 3, 1), n.bit_length(), hash(n), [1, 2, 3][n % 3], "ab" * n, (0,
            ) * (n % 3), {n: 1}, {n}, f"{n:04d}", n if n else None,
        sum([n, n]), pow(n, 2), round(n), isinstance(n,
            int), int(n), n.__add__(2), range(n), complex(n), bin(n), chr(n % 26 + 97), n and 4, n or 4, not n,
    )  # fmt: skip


@program(*[(t(3), f) for f in (2.5, 0.0, -1.25, 100.0)])
def float_arithmetic(x, f):
    return (x * f, f + 1, f * f, -f, abs(f), f // 1, f % 1, f < 2, f == 0.0, int(f), bool(f), round(f, 1), str(f), f**2, max(f, 1.0),
        x.clamp(max=f), x + f if f > 1 else x, f.is_integer(), f / 2,)


@program(*[(t(3), b) for b in (True, False)])
def bool_arithmetic(x, b):
    return x + b, b + 1, not b, b & True, b == 1, int(b), x if b else -x, [1, 2][b], b is True, str(b)


def moving(change):
    """A factory of `fn(x)` that keeps the last calls in a list, whose other items stay the objects that they are."""

    def factory():
        history = [("start", 1), [2], "three"]

        def fn(x):
            history.append((x.shape[0], x))
            change(history, x)
            return x * 2, history[0], len(history)

        return fn, history

    return factory


CHANGES = {
    "the first goes": lambda h, x: h.pop(0),
    "one in the middle goes": lambda h, x: h.__delitem__(1),
    "all but the last go": lambda h, x: h.__delitem__(slice(0, -1)),
    "a slice is replaced": lambda h, x: h.__setitem__(slice(1, 2), [x, x + 1]),
    "turned": lambda h, x: h.reverse(),
    "one is put in front": lambda h, x: h.insert(0, (x.sum(), "new")),
    "one moves to the end": lambda h, x: h.append(h.pop(0)),
    "doubled": lambda h, x: h.extend(h[:2]),
    "emptied": lambda h, x: h.clear(),
    "one becomes another": lambda h, x: (h.pop(0), h.__setitem__(0, h[-1])),
}


@pytest.mark.parametrize("change", CHANGES)
def test_items_of_a_list_move(change):
    check_world(moving(CHANGES[change]), *each(3, 5, 2, 4, 6))


def version_of_detached(x, items):
    z = x + items[0] + items[1] + items[2]
    y = x.detach()
    pliant.graph_break()
    y.add_(1)
    return z, x._version, y._version


def version_of_detached_view(x, items):
    z = (x + items[0]) * 2 + items[1] * 2 + items[2]
    y, w = x.view(-1).detach(), z.detach()
    pliant.graph_break()
    y.add_(1)
    w.mul_(2)
    return z, z._version, w._version, x._version


@pytest.mark.parametrize("fn", [version_of_detached, version_of_detached_view])
def test_version_counters_that_detached_tensors_share(fn):
    """In a graph that runs below autograd, `detach()` of an input would get a version counter of its own."""
    check(fn, *[(t(n, 2), [t(n, 2), t(n, 2), t(n, 2)]) for n in (3, 4, 3)])


def deleted_or_not_there(x):
    global SOMETHING
    try:
        del SOMETHING
    except NameError as e:
        return x + 1, str(e)
    return x + 2


def deleted_behind_a_change(x):
    global SOMETHING
    SOMETHING = x.shape[0]
    pliant.graph_break()
    SOMETHING += 1
    y = x + SOMETHING
    del SOMETHING
    try:
        return SOMETHING
    except NameError as e:
        return y, str(e)


def builtin_that_comes_back(x):
    global sum
    sum = max
    pliant.graph_break()
    sum = min
    y = sum([2, 3])
    del sum
    return x + y, sum([2, 3])


def deleted_and_set(x):
    global SOMETHING, OTHER
    SOMETHING, OTHER = 1, 2
    del SOMETHING
    SOMETHING = x.shape[0]
    return x + SOMETHING


DELETED = (deleted_or_not_there, deleted_behind_a_change, builtin_that_comes_back, deleted_and_set)


@pytest.mark.parametrize("fn", DELETED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("there", ["sometimes", "always", "never"])
def test_globals_that_are_deleted(fn, there):
    """Whether a name is there is guarded unless the program has written it; its place in the dict is that of its last coming."""
    compiled = pliant.compile(fn)
    for n, given in ((3, there == "always"), (5, there != "never"), (4, there == "always"), (5, there != "never")):
        seen = []
        for f in (fn, compiled):
            for name in ("SOMETHING", "OTHER", "sum"):
                globals().pop(name, None)
            if given:
                globals()["SOMETHING"] = 8
            globals()["OTHER"] = 0
            seen.append((f(t(n)), [(k, globals()[k]) for k in globals() if k in ("SOMETHING", "OTHER", "sum")]))
        assert str(seen[1]) == str(seen[0])


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()
