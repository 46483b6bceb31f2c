"""Indices into dims without places, and into what has none elsewhere: machine code raises where eager does, and nowhere else."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import pliant
from tests.helpers import check

FLOAT, INDEX = torch.float32, torch.int64


def zeros(*sizes, dtype=FLOAT):
    return torch.zeros(sizes, dtype=dtype)


def put(x, i):
    v = x + 1
    v.index_put_((i,), torch.ones(()))
    return v


def put_adding(x, i):
    v = x + 1
    v.index_put_((torch.zeros(2, dtype=INDEX),), torch.ones(()), accumulate=True)
    return v


def put_aside(x, i):
    return torch.ops.aten.index_put(x + 1, (None, i), torch.ones(())) * 2


def indexed(x, i):
    return (x + 1)[i] * 2


def indexed_aside(x, i):
    return (x + 1)[:, i] * 2


def selected(x, i):
    return (x + 1).index_select(0, i) * 2


def selected_aside(x, i):
    return (x + 1).index_select(1, i) * 2


def embedded(x, i):
    return F.embedding(i, x + 1) * 2


def added(x, i):
    return (x + 1).index_add(0, i, torch.ones(i.shape[0], x.shape[1])) * 2


def copied(x, i):
    return (x + 1).index_copy(0, i, torch.ones(i.shape[0], x.shape[1])) * 2


def gathered(x, i):
    return (x + 1).gather(0, i[:, None].expand(-1, x.shape[1])) * 2


def scattered(x, i):
    v = x + 1
    return v.scatter_add(0, i[:, None].expand(-1, x.shape[1]), torch.ones(i.shape[0], x.shape[1])) * 2


def summed(x, i):
    """Each row has its own index, which does not vary along what is summed."""
    return x.gather(1, i[0].expand(x.shape)).sum(1)


def summed_of_zeros(x, i):
    return x.gather(-1, torch.zeros_like(x, dtype=INDEX)).sum(-1)


def summed_down(x, i):
    return x.gather(0, torch.zeros_like(x, dtype=INDEX)).sum(0, keepdim=True) * 2


def largest(x, i):
    return x.gather(1, i[0].expand(x.shape)).any(1)


PROGRAMS = (
    put, put_adding, put_aside, indexed, indexed_aside, selected, selected_aside, embedded, added, copied, gathered, scattered, summed,
    summed_of_zeros, summed_down, largest,
)  # fmt: skip
SIZES = ((3, 4), (5, 2), (0, 4), (4, 0), (0, 0), (1, 0), (0, 1), (1, 1), (6, 3))


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as e:
        return type(e)


@pytest.mark.parametrize("index", [0, 1, 99], ids=["first", "second", "none"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_sizes_without_elements(fn, index):
    compiled = pliant.compile(fn, backend="native", background=False)
    for size in SIZES:
        x, i = torch.randn(size), torch.full((2,), index)
        want, got = outcome(fn, x, i), outcome(compiled, x, i)
        if isinstance(want, type):
            assert want is got, size
        else:
            assert not isinstance(got, type) and want.shape == got.shape and torch.equal(want, got), size


@pytest.mark.parametrize("count", [0, 2], ids=["no index", "indices"])
def test_a_size_that_only_the_run_knows(count):
    def fn(x, i):
        v = x[x.nonzero()[:, 0]][:, None].expand(-1, 4).t()
        return v.gather(-1, i.expand(4, v.shape[1])).sum(1), x[x.nonzero()[:, 0]].index_select(0, i[:count, 0])

    compiled = pliant.compile(fn, backend="native", background=False)
    for x in (torch.ones(5), torch.ones(8), torch.zeros(8), torch.ones(3)):
        want, got = outcome(fn, x, zeros(4, 1, dtype=INDEX)), outcome(compiled, x, zeros(4, 1, dtype=INDEX))
        assert want is got if isinstance(want, type) else all(map(torch.equal, want, got))


def rows_of_all(x):
    return torch.native_layer_norm(x, x.shape[2:], None, None, 1e-5)[0]


def squeezed(x):
    return F.layer_norm(x.squeeze(), x.squeeze().shape[-1:])


@pytest.mark.parametrize("fn", [squeezed, lambda x: F.layer_norm(x, x.shape[2:]), rows_of_all])
def test_layer_norm_over_no_dims(fn):
    compiled = pliant.compile(fn, backend="native", background=False)
    for size in ((3, 4), (1, 1), (2, 3, 4), (1, 1, 1), (5, 4)):
        x = torch.randn(size)
        want, got = outcome(fn, x), outcome(compiled, x)
        assert want is got if isinstance(want, type) else torch.allclose(want, got, atol=1e-5)


@pytest.mark.parametrize("dim", [-3, -2, 1, 2])
@pytest.mark.parametrize("writes", [
    lambda v, i, dim: v.scatter_(dim, i, 0), lambda v, i, dim: v.scatter_(dim, i, v.clone()),
    lambda v, i, dim: v.scatter_add_(dim, i, v.clone()), lambda v, i, dim: v.index_fill_(dim, i, 2),
    lambda v, i, dim: v.index_add_(dim, i, v.clone()),
])  # fmt: skip
def test_a_dim_that_is_not_there(writes, dim):
    def fn(v):
        w = -128 - v
        writes(v, torch.zeros_like(v, dtype=INDEX), dim)
        return v, w

    compiled = pliant.compile(fn, backend="native", background=False)
    for n in (3, 5, 1):
        assert outcome(compiled, torch.ones(n)) is outcome(fn, torch.ones(n)) is IndexError


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("grad", [False, True])
def test_indices_along_a_dim_wrap_around(dim, grad):
    """`take_along_dim` takes indices by their remainder, on both sides; without a dim they are those of `gather`."""

    def along(x, i):
        return torch.take_along_dim(x, i, dim), x.take_along_dim(i + 7, dim) * 2

    given = [(torch.randn(n, 4).requires_grad_(grad), torch.randint(-9, 9, (n, 4))) for n in (5, 3, 7, 1)]
    check(along, *given, grad=grad, options={"fullgraph": True})
    check(lambda x, i: torch.take_along_dim(x, i), *[(x.detach(), torch.tensor([[0], [-1]])) for x, _ in given])
