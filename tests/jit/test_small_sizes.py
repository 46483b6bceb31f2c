"""Sizes of 0 and 1 among ragged rows: the number of graphs does not multiply, and answers stay eager's."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

import pliant
from tests import helpers

WEIGHT = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))


def rows(rng, low, count=12):
    return [torch.randn(rng.randint(low, 9), 4, generator=torch.Generator().manual_seed(rng.randint(0, 99))) for _ in range(count)]


def joined(xs):
    return torch.cat(xs)


def doubled(xs):
    return [x * 2 for x in xs]


def pooled(xs):
    return torch.stack([F.linear(x, WEIGHT).relu().sum(0) for x in xs])


def attended(xs):
    return torch.stack([F.softmax(x @ x.t(), -1).sum() for x in xs])


def centred(xs):
    return torch.cat([x - x.mean(0, keepdim=True) for x in xs]).sum(0)


def largest(xs):
    return torch.stack([x.max(0).values if len(x) else x.new_zeros(4) for x in xs])


def padded(xs):
    return pad_sequence(xs, batch_first=True, padding_value=-1.0)


def padded_on_the_left(xs):
    return pad_sequence(xs, padding_side="left") * 2


def masked(xs):
    lengths = torch.tensor([len(x) for x in xs])
    x = pad_sequence(xs, batch_first=True)
    mask = torch.arange(x.shape[1])[None] < lengths[:, None]
    return (x * mask[..., None]).sum(1) / lengths.clamp(min=1)[:, None]


PROGRAMS = [joined, doubled, pooled, attended, centred, padded, padded_on_the_left, masked]


@pytest.mark.parametrize("low", [0, 1])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_rows_of_a_list(fn, low):
    compiled, rng = helpers.compiled(fn), random.Random(5)
    for _ in range(30):
        xs = rows(rng, low)
        torch.testing.assert_close(compiled(xs), fn(xs), equal_nan=True)
    assert pliant.stats()["captures"] <= 4


@pytest.mark.parametrize("fn", [joined, pooled, centred, padded, masked], ids=lambda f: f.__name__)
def test_rows_that_are_trained(fn):
    compiled, rng = helpers.compiled(fn), random.Random(7)
    for _ in range(30):
        xs = rows(rng, 1, 6)
        for x in xs:
            x.requires_grad_()
        got, want = [torch.autograd.grad(f(xs).square().sum(), xs) for f in (compiled, fn)]
        torch.testing.assert_close(got, want)
    assert pliant.stats()["captures"] <= 5


def test_a_branch_on_emptiness_is_the_programs():
    compiled, rng = helpers.compiled(largest), random.Random(3)
    for _ in range(20):
        xs = rows(rng, 0, 3)
        torch.testing.assert_close(compiled(xs), largest(xs))


def test_features_of_a_dict():
    def fn(features):
        return torch.stack([F.linear(v, WEIGHT).sum(0) for v in features.values()]).relu()

    compiled, rng = helpers.compiled(fn), random.Random(9)
    for _ in range(40):
        features = dict(zip("abcdef", rows(rng, 0, 6), strict=True))
        torch.testing.assert_close(compiled(features), fn(features))
    assert pliant.stats()["captures"] <= 6


def test_arguments_of_their_own():
    def fn(a, b, c, d):
        return torch.cat([a.cumsum(0), b * 2, c, d - 1]).sum(0)

    compiled, rng = helpers.compiled(fn), random.Random(11)
    for _ in range(60):
        xs = rows(rng, 0, 4)
        torch.testing.assert_close(compiled(*xs), fn(*xs))
    assert pliant.stats()["captures"] <= 12


def test_a_batch_of_one_has_its_own_graph():
    """All tensors have the batch: one size that is 1 or not, however many they are. Nothing is left open."""

    def fn(x, mask, positions, labels):
        return F.cross_entropy(x * mask[:, None] + positions, labels)

    compiled = helpers.compiled(fn)
    for n in (4, 1, 6, 1, 3, 8, 1):
        args = torch.randn(n, 4), torch.ones(n), torch.randn(n, 4), torch.zeros(n, dtype=torch.long)
        torch.testing.assert_close(compiled(*args), fn(*args))
    assert pliant.stats()["captures"] == 2


def test_what_is_always_one_stays_so():
    def fn(xs):
        bias, scale, *rest = xs
        return [x * scale + bias for x in rest]

    compiled, rng = helpers.compiled(fn), random.Random(13)
    for _ in range(30):
        xs = [torch.randn(1, 4), torch.randn(1, 4), *rows(rng, 0, 6)]
        torch.testing.assert_close(compiled(xs), fn(xs))
    assert pliant.stats()["captures"] <= 4


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("value", [0, 1, -100, 2.5, float("inf")], ids=str)
def test_padding_of_every_dtype(dtype, value):
    def fn(xs):
        return pad_sequence(xs, batch_first=True, padding_value=value)

    compiled = helpers.compiled(fn)
    for lengths in ((3, 5, 2), (6, 2, 4), (1, 2, 2), (0, 2, 1)):
        xs = [torch.ones(n, 2, dtype=torch.int64).to(dtype) for n in lengths]
        same_outcome(compiled, fn, xs)


def same_outcome(compiled, fn, xs):
    try:
        want = fn(xs)
    except Exception as e:
        with pytest.raises(type(e)):
            compiled(xs)
        return
    got = compiled(xs)
    assert got.dtype == want.dtype and got.stride() == want.stride()
    assert torch.equal(got, want)


def test_rows_whose_lengths_only_the_run_knows():
    def fn(x):
        return pad_sequence([torch.unique(t) for t in x.unbind()], batch_first=True, padding_value=-1)

    compiled = helpers.compiled(fn)
    for n in (5, 8, 6, 5):
        x = torch.randint(0, 6, (4, n))
        assert torch.equal(compiled(x), fn(x))
    assert pliant.stats()["graph_breaks"] == 0
