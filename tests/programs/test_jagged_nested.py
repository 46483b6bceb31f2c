"""Jagged nested tensors: made inside, as arguments and as results; batch and lengths change."""

from __future__ import annotations

import itertools
import re
import warnings

import pytest
import torch
import torch.nn.functional as F

import pliant
from tests.helpers import compiled, own_backend
from tests.programs.registry import t

LENGTHS = ([2, 3], [1, 4, 2], [3, 3, 1, 2])
WEIGHT = t(3, 4, seed=2)

pytestmark = [own_backend, pytest.mark.filterwarnings("ignore")]


def jagged(values, offsets):
    return torch.nested.nested_tensor_from_jagged(values, offsets)


OF_JAGGED = {
    "pointwise": lambda n: (n * 2 + n.sin(), (n * 2).values(), n > 0, torch.where(n > 0, n, -n), n * torch.arange(4.0)),
    "linear": lambda n: (F.linear(n, WEIGHT), n @ WEIGHT.t(), F.gelu(n), F.dropout(n, 0.0)),
    "over_the_ragged_dim": lambda n: (n.sum(1), n.sum(), n.max()),
    "over_the_last_dim": lambda n: (F.softmax(n, -1), n * F.softmax(n * 2, -1)),
    "padded": lambda n: torch.nested.to_padded_tensor(n, 0.0) * 2,
    "shapes": lambda n: (n.unsqueeze(-1).squeeze(-1), n.reshape(n.size(0), -1, 2, 2), torch.cat([n, n], -1), n.transpose(1, 2)),
    "chunks": lambda n: n.chunk(2, -1),
    "questions": lambda n: (n.size(0), n.dim(), n.is_nested, n.layout, n.shape[2], n.offsets() + 1, n.dtype, n.requires_grad),
    "copies": lambda n: (n.clone(), n.detach(), torch.zeros_like(n), n.to(torch.float64)),
}


def attention(n, is_causal=False):
    n = n.unflatten(-1, (2, 2)).transpose(1, 2)
    return F.scaled_dot_product_attention(n, n * 2, n, is_causal=is_causal).transpose(1, 2).flatten(2)


OF_JAGGED["attention"] = attention
WITHOUT_DERIVATIVE = {"over_the_ragged_dim", "questions"}  # eager has none for a part of it


def compare(want, got, where="result"):
    assert type(want) is type(got), (where, type(want), type(got))
    if isinstance(want, torch.Tensor):
        assert want.requires_grad == got.requires_grad and want.dtype == got.dtype, where
        if want.is_nested:
            assert want.dim() == got.dim() and want.layout is got.layout and want._ragged_idx == got._ragged_idx, where
            torch.testing.assert_close(want.offsets(), got.offsets())
            want, got = want.values(), got.values()
        assert want.stride() == got.stride(), where
        torch.testing.assert_close(want, got)
    elif isinstance(want, (list, tuple)):
        assert len(want) == len(got), where
        for i, (a, b) in enumerate(zip(want, got)):
            compare(a, b, f"{where}[{i}]")
    else:
        assert want == got, (where, want, got)


def backward(value):
    terms = [x for x in (value if isinstance(value, tuple) else (value,)) if isinstance(x, torch.Tensor) and x.requires_grad]
    loss = sum((x.values() if x.is_nested else x).sin().sum() for x in terms)
    if terms:
        loss.backward()


def run(fn, grad, from_outside, captures=1, breaks=0):
    pliant.reset()
    before = pliant.stats()
    whole = fn if from_outside else lambda values, offsets: fn(jagged(values, offsets))
    target = compiled(whole)
    for lengths in LENGTHS:
        offsets = torch.tensor([0, *itertools.accumulate(lengths)])
        sides = []
        for f in (whole, target):
            values = t(sum(lengths), 4).requires_grad_(grad and not from_outside)
            given = (jagged(values, offsets).requires_grad_(grad),) if from_outside else (values, offsets.clone())
            result = f(*given)
            sides.append((result, given))
        compare(sides[0][0], sides[1][0])
        if grad:
            for result, _ in sides:
                backward(result)
            compare(sides[0][1][0].grad, sides[1][1][0].grad, "gradient")
    stats = {k: pliant.stats()[k] - before[k] for k in ("captures", "graph_breaks", "fallbacks")}
    if captures is not None:
        assert stats == {"captures": captures, "graph_breaks": breaks, "fallbacks": 0}
    assert stats["fallbacks"] == 0


@pytest.mark.parametrize("from_outside", [False, True], ids=["made", "argument"])
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "gradients"])
@pytest.mark.parametrize("name", OF_JAGGED)
def test_program(name, grad, from_outside):
    if grad and name in WITHOUT_DERIVATIVE:
        pytest.skip("eager has no derivative")
    run(OF_JAGGED[name], grad, from_outside)


@pytest.mark.parametrize("from_outside", [False, True], ids=["made", "argument"])
def test_rows(from_outside):
    """How many rows there are is pinned; their lengths are not."""
    run(lambda n: [row * 2 for row in n.unbind()], False, from_outside, captures=None)
    run(lambda n: n[0] + 1, False, from_outside, captures=None)


def test_one_ragged_size_for_all_that_share_offsets():
    def both(a, b):
        return a + b, a * b.sin()

    pliant.reset()
    before = pliant.stats()["captures"]
    target = compiled(both)
    for lengths in LENGTHS:
        offsets = torch.tensor([0, *itertools.accumulate(lengths)])
        a, b = jagged(t(sum(lengths), 4), offsets), jagged(t(sum(lengths), 4, seed=1), offsets)
        want, got = both(a, b), target(a, b)
        compare(want, got)
        assert got[0].shape == want[0].shape  # the same number of PyTorch's own
    assert pliant.stats()["captures"] == before + 1


def test_others_are_refused_as_eager_refuses_them():
    target = compiled(lambda a, b: a + b)
    a, b = (jagged(t(5, 4), torch.tensor(o)) for o in ([0, 2, 5], [0, 3, 5]))
    for f in (lambda a, b: a + b, target):
        with pytest.raises(RuntimeError):
            f(a, b)


def test_causal_attention_is_refused_as_eager_refuses_it():
    n = jagged(t(5, 4), torch.tensor([0, 2, 5]))
    with pytest.raises(RuntimeError) as eager:  # "No viable backend", or what CUDA says in a build of PyTorch for GPUs without one
        attention(n, True)
    with pytest.raises(RuntimeError, match=re.escape(str(eager.value).splitlines()[0])):
        compiled(attention)(n, True)


def test_shapes_are_pytorchs_own():
    target = compiled(lambda n: n.shape)
    for offsets in ([0, 2, 5], [0, 1, 3, 5]):
        n = jagged(t(5, 4), torch.tensor(offsets))
        assert target(n) == n.shape


def test_training():
    def loss(n, w):
        return F.linear(n, w).values().relu().sum() + n.sum(1).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target = compiled(loss)
        for lengths in LENGTHS:
            offsets = torch.tensor([0, *itertools.accumulate(lengths)])
            sides = []
            for f in (loss, target):
                n = jagged(t(sum(lengths), 4), offsets)
                w = t(3, 4, seed=1, grad=True)
                f(n, w).backward()
                sides.append(w.grad)
            torch.testing.assert_close(*sides)
