"""Layouts that PyTorch chooses for its results: foretold over all orders of dims, and looked at where kernels rely on them."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant import events
from pliant.codegen import layouts
from pliant.graph.rules.table import RULES
from pliant.graph.traced import make

aten = torch.ops.aten


def ordered(order: tuple[int, ...], *sizes: int) -> torch.Tensor:
    """A tensor whose dims lie in memory in this order, outermost first."""
    memory = torch.randn([sizes[d] for d in order])
    return memory.permute([order.index(d) for d in range(len(order))])


def orders(n: int) -> list[tuple[int, ...]]:
    return list(itertools.permutations(range(n))) if n < 5 else [(0, 1, 2, 3, 4), (0, 2, 3, 4, 1), (1, 0, 2, 3, 4), (4, 3, 2, 1, 0)]


CONVOLUTIONS = {
    "conv1d": (F.conv1d, (2, 4, 9), (6, 4, 3)),
    "conv1d of one": (F.conv1d, (2, 4, 9), (6, 4, 1)),
    "conv1d by groups": (lambda x, w: F.conv1d(x, w, groups=4), (2, 4, 9), (8, 1, 3)),
    "conv_transpose1d": (F.conv_transpose1d, (2, 4, 9), (4, 6, 3)),
    "conv2d": (F.conv2d, (2, 4, 7, 9), (6, 4, 3, 3)),
    "conv2d of one": (F.conv2d, (2, 4, 7, 9), (6, 4, 1, 1)),
    "conv2d by groups": (lambda x, w: F.conv2d(x, w, groups=4), (2, 4, 7, 9), (8, 1, 3, 3)),
    "conv_transpose2d": (F.conv_transpose2d, (2, 4, 7, 9), (4, 6, 3, 3)),
    "conv3d": (F.conv3d, (2, 4, 5, 6, 7), (6, 4, 3, 3, 3)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_lay_out_their_results_as_foretold(name):
    fn, shape, weights = CONVOLUTIONS[name]
    compiled = pliant.compile(lambda x, w: fn(x, w).relu() * 2, backend="native", strict=True)
    for of_x, of_w in itertools.product(orders(len(shape)), orders(len(weights))):
        if (of_x != orders(len(shape))[0]) and (of_w != orders(len(weights))[0]) and len(shape) > 3:
            continue
        for batch in (2, 3):
            x, w = ordered(of_x, batch, *shape[1:]), ordered(of_w, *weights)
            got, want = compiled(x, w), fn(x, w).relu() * 2
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
            assert got.stride() == want.stride(), (of_x, of_w)
    assert not events.counters().get("relaid")


def test_a_rule_that_is_wrong_costs_time_and_no_answer(monkeypatch):
    monkeypatch.setattr(layouts, "_told", set())

    def wrong(trace, x, *args, **kwargs):
        values = make(trace, x.sizes, (1, x.sizes[0]), x.dtype, 0, None, x.device, False)
        return values, make(trace, x.sizes, (x.sizes[1], 1), torch.int64, 0, None, x.device, True)

    monkeypatch.setitem(RULES, aten.sort.default, wrong)

    def fn(x):
        values, at = torch.sort(x + 1)
        return values * 2 + at, values @ x.T

    compiled = pliant.compile(fn, backend="native", strict=True)
    for n in (4, 7, 1, 0):
        x = torch.randn(n, 5)
        got, want = compiled(x), fn(x)
        torch.testing.assert_close(got, want)
    assert events.counters()["relaid"] >= 2
    told = [e for e in events.events("warning") if e.fields["id"] == "layout"]
    assert len(told) == 1 and "sort" in told[0].fields["text"]
    events.reset()  # for the check that no test meets this by accident


def test_a_result_of_another_shape_is_an_error():
    with pytest.raises(pliant.PliantError, match="foretold"):
        layouts.laid(torch.ones(2, 3), (2, 4), (4, 1), "aten::sort")


def test_strides_that_say_nothing_are_let_be():
    x = torch.ones(3, 1).as_strided((3, 1), (1, 7))
    assert layouts.laid(x, (3, 1), (1, 1), "aten::sort") is x
    empty = torch.empty(0, 4)
    assert layouts.laid(empty, (0, 4), (1, 0), "aten::sort") is empty


def test_parts_at_places_that_only_the_run_knows():
    def fn(x, at):
        k = int(at)
        torch._check(k >= 0)
        torch._check(k <= 6)
        return [p * 2 for p in (x + 1).split([k, 6 - k])], x.sort(0).values.split([k, 6 - k])[1] + 1

    compiled = pliant.compile(fn, backend="native", strict=True)
    x = torch.randn(6, 4)
    for k in (2, 3, 0, 6):
        torch.testing.assert_close(compiled(x, torch.tensor(k)), fn(x, torch.tensor(k)))
