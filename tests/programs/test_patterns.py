"""The ten ordinary patterns that exhaust a recompile limit elsewhere: they converge to few entries and stay compiled.

Each runs 30 variations: right answers, a bounded number of entries, nothing compiled any more in the second half.
The second half repeats no variation of the first, but for the patterns whose variations are a finite set of code paths.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from tests.helpers import check_converges
from tests.programs.registry import t

PATTERNS = {}
SIZES = list(range(2, 32))


def pattern(arguments, bound=16, **options):
    def register(factory):
        PATTERNS[factory.__name__] = (factory, arguments, bound, options)
        return factory

    return register


@pattern([([t(2, 3, seed=k) for k in range(n)],) for n in range(1, 31)])
def list_length():
    def fn(xs):
        total = xs[0] * 0
        for x in xs:
            total = total + x.relu()
        return total

    return fn, ()


@pattern([(t(n, 3),) for n in SIZES])
def loop_over_a_shape():
    def fn(x):
        out = []
        for i in range(x.shape[0]):
            out.append(x[i] * (i + 1))
        return torch.stack(out)

    return fn, ()


@pattern([(t(4), n) for n in SIZES])
def loop_over_an_int():
    def fn(x, n):
        for i in range(n):
            x = x * 0.5 + i
        return x

    return fn, ()


def buckets(n):
    if n <= 4:
        return 4
    elif n <= 8:
        return 8
    elif n <= 16:
        return 16
    elif n <= 24:
        return 24
    return 32


@pattern([(t(n, 2),) for n in (3, 7, 12, 20, 30, 4, 5, 9, 17, 25, 2, 6, 10, 18, 26, 8, 11, 19, 27, 13, 21, 28, 14, 22, 29, 15, 23, 31,
    16, 24)], bound=20)
def bucketed_if_chain():
    def fn(x):
        n = x.shape[0]
        size = buckets(n)
        return F.pad(x, (0, 0, 0, size - n)) * size

    return fn, ()


@pattern([(t(n, 3),) for n in range(8, 8 + 8 * 30, 8)])
def split_into_chunks():
    def fn(x):
        parts = x.split(x.shape[0] // 8)
        return torch.cat([p.sum(0, keepdim=True) * i for i, p in enumerate(parts)])

    return fn, ()


@pattern([(t(n, 3),) for n in range(4, 4 + 4 * 30, 4)])
def chunks_of_fixed_size():
    def fn(x):
        return torch.cat([p.sum(0, keepdim=True) for p in x.split(4)])

    return fn, ()


def chunks(x, size):
    for i in range(0, x.shape[0], size):
        yield x[i : i + size]


@pattern([(t(n, 2),) for n in range(3, 3 + 5 * 30, 5)])
def generator_chunks():
    def fn(x):
        out = x[0] * 0
        for c in chunks(x, 4):
            out = out + c.sum(0)
        return out

    return fn, ()


class Stepping(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0
        self.lin = nn.Linear(3, 3)

    def forward(self, x):
        self.step += 1
        return self.lin(x) / self.step


@pattern([(t(2 + n % 5, 3),) for n in range(30)])
def step_counter():
    torch.manual_seed(0)
    return Stepping()


class Warmup(Stepping):
    def forward(self, x):
        self.step += 1
        if self.step < 5:
            x = x * (self.step / 5)
        return self.lin(x)


@pattern([(t(2 + n % 5, 3),) for n in range(30)])
def step_counter_that_branches():
    torch.manual_seed(0)
    return Warmup()


@pattern([({f"k{j}": t(3, seed=j) for j in range(n % 7 * 3, n % 7 * 3 + 1 + n)},) for n in range(30)])
def changing_keys():
    def fn(d):
        out = 0
        for k in d:
            out = out + d[k] * 2
        return out

    return fn, ()


@pattern([({f"key{n}": t(3, seed=n), "mask": t(3)},) for n in range(30)], bound=18)
def changing_key_names():
    def fn(d):
        return {k: v * d["mask"] for k, v in d.items() if k != "mask"}

    return fn, ()


class Scale(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.weight * self.k


@pattern([(Scale(k), t(2 + k % 3, 3)) for k in range(2, 32)])
def instances_with_an_int_attribute():
    def fn(m, x):
        return m(x).relu()

    return fn, ()


@pattern([(Scale(k * 0.5), t(2 + k % 3, 3)) for k in range(2, 32)])
def instances_with_a_float_attribute():
    def fn(m, x):
        return m(x).relu()

    return fn, ()


@pattern([(t(1, 2, 4, 4), 1 + k * 0.25) for k in range(30)])
def interpolate_scale_factor():
    def fn(x, scale):
        return F.interpolate(x, scale_factor=scale, mode="nearest") * 2

    return fn, ()


@pattern([(t(3), 0.1 * k) for k in range(30)])
def float_argument():
    def fn(x, lr):
        return x - lr * x.sin()

    return fn, ()


@pattern([(t(3), f"mode{k}") for k in range(30)])
def string_argument():
    def fn(x, mode):
        return {"name": mode, "x": x + len(mode)}

    return fn, ()


@pattern([(t(2, k + 2), k % 2 == 0) for k in range(30)], bound=4)
def bool_argument():
    def fn(x, flag):
        if flag:
            x = x.t()
        return x * 2

    return fn, ()


@pattern([(t(2, 3), tuple(range(k))) for k in range(30)])
def tuple_length():
    def fn(x, ks):
        return x + sum(ks) + len(ks)

    return fn, ()


@pattern([(t(2, 3), (lambda k: lambda v: v * k)(k)) for k in range(30)])
def fresh_closures():
    def fn(x, f):
        return f(x) + 1

    return fn, ()


@pattern([(t(*([2] * (1 + k % 5))),) for k in range(30)], bound=16)
def ranks():
    def fn(x):
        return x.sum(-1) * x.dim()

    return fn, ()


def cache_world():
    """A cache that grows by one each call: the decode loop of a language model."""
    cache = []

    def fn(x):
        cache.append(x)
        return torch.cat(cache).sum(0)

    return fn, cache


PATTERNS["growing_cache"] = (cache_world, [(t(2, 3, seed=k),) for k in range(30)], 16, {})


@pytest.mark.parametrize("name", PATTERNS)
def test_converges(name):
    factory, arguments, bound, options = PATTERNS[name]
    assert len(arguments) == 30
    check_converges(factory, arguments, bound, **options)
