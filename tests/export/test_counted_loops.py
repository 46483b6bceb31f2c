"""Loops over ranges and rows of which a size, or data, tells how many there are: exported as one operation, for every number of rounds.

What rounds write from before the loop is carried; what cannot be (memory known by two names) is unrolled, and pins the size.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import pliant
from pliant.export.signature import SignatureError
from tests.programs.test_grown_lists import until_close, until_equal


def scan(x: Any) -> Any:
    out, s = torch.zeros_like(x), torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        s = s * 0.5 + x[:, t]
        out[:, t] = s
    return out, s


def rows(x: Any) -> Any:
    s = torch.zeros(x.shape[1])
    for r in x:
        s = s * 0.9 + r
    return s


def hits(x: Any) -> Any:
    out = torch.zeros_like(x)
    for e in (x.sum(1) > 0).nonzero():
        out.index_add_(0, e, x[e] * 2)
        out[0] += 1
    return out


def nested(x: Any) -> Any:
    out = torch.zeros(x.shape[0], x.shape[1])
    for i in range(x.shape[0]):
        for j in range(1, x.shape[1]):
            out[i, j] = out[i, j - 1] + x[i, j]
        if x[i].sum() > 0:
            out[i] += 1
    return out


def writes_input(x: Any) -> Any:
    for i in range(x.shape[0]):
        x[i] += i
    return x.sum()


def downwards(x: Any) -> Any:
    s, n = torch.zeros(x.shape[1]), 0
    for i in range(x.shape[0] - 1, -1, -1):
        s = s * 0.5 + x[i]
        n += i
    return s, n


def leaves_early(x: Any) -> Any:
    s = torch.zeros(x.shape[1])
    for i in range(x.shape[0]):
        s = s + x[i]
        if s.sum() > 3:
            break
    else:
        s = s - 1
    return s


def seen_through_a_view(x: Any) -> Any:
    out = torch.zeros(x.shape[0], 3)
    v = out.view(-1)
    for i in range(x.shape[0]):
        out[i] = x[i].sum() * 2
    v.add_(1)
    return out, v


def counted_in_a_tensor(x: Any) -> Any:
    n, a = torch.tensor(0), torch.zeros(x.shape[1])
    for i in range(x.shape[0]):
        if n.item() > 2:
            a += x[i]
        n += 1
    return a, n


def state_of_other_strides(x: Any) -> Any:
    state = torch.zeros(x.shape[1], 4)
    s, c = state[:, 1], state[:, 2] * 2
    for r in x:
        s = s + r
        c = c * 0.5 + s
    state[:, 1] = s
    d = c + 1
    state[:, 2] = d
    return state, d


def parameters_without_gradients(x: Any, w: Any = nn.Parameter(torch.rand(4, 6))) -> Any:
    out = torch.zeros_like(x)
    for e in (x.sum(1) > 0).nonzero():
        with torch.no_grad():
            a = x[e[0]] * 2
        out[e[0]] += a * w.view(4, 2, 3)[e[0] % 4].sum()
    return out


WHOLE = [
    scan, rows, hits, nested, writes_input, downwards, leaves_early, seen_through_a_view, counted_in_a_tensor, state_of_other_strides,
]  # fmt: skip


def compared(f: Any, p: Any, n: int, m: int = 4) -> None:
    x = torch.randn(n, m)
    a, b = x.clone(), x.clone()
    with torch.no_grad():
        want = f(a)
    torch.testing.assert_close(p(b), want)
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize("f", WHOLE, ids=lambda f: f.__name__)
def test_whole(f: Any, tmp_path: Any) -> None:
    p = pliant.export(f, (torch.randn(5, 4),))
    p.save(tmp_path / "p.pliant")
    q = pliant.load(tmp_path / "p.pliant")
    for n, m in ((5, 4), (1, 4), (2, 7), (9, 1), (1, 1), (0, 4)):
        if n or f is not writes_input:
            compared(f, p, n, m)
            compared(f, q, n, m)


def test_views_of_parameters() -> None:
    with torch.no_grad():
        p = pliant.export(parameters_without_gradients, (torch.randn(5, 6),))
    for n in (5, 1, 8):
        compared(parameters_without_gradients, p, n, 6)


def over_range_of_data(x: Any) -> Any:
    out = torch.zeros_like(x)
    numbers = range(0, (x > 0).sum().item(), 2)
    for i in numbers:
        if x.sum() > i:
            out[0] += i
        else:
            out[0] = 1
        out.mul_(0.5)
    return out


def written_by_turns(x: Any) -> Any:
    y = x.clone()
    while y.abs().max() > 0.1:
        y *= 0.7
        y[0] = 0.0
    return y


def written_and_replaced(x: Any) -> Any:
    y = x * 1
    for i in range(x.shape[0]):
        y[0] += i
        y = y * 0.5
    return y


ON_DATA = [until_equal, until_close, over_range_of_data, written_by_turns, written_and_replaced]


@pytest.mark.parametrize("f", ON_DATA, ids=lambda f: f.__name__)
def test_loops_on_data(f: Any, tmp_path: Any) -> None:
    p = pliant.export(f, (torch.randn(5, 4),))
    p.save(tmp_path / "p.pliant")
    for q in (p, pliant.load(tmp_path / "p.pliant")):
        for n in (5, 1, 9):
            compared(f, q, n)


def beside_other_lists(x: Any, items: Any) -> Any:
    pairs = [[x], {"items": items}]
    n = 0
    while x.sum() < 90 and n < 20:
        x = x + 1
        n += 1
    pairs[0].append(x)
    return x, n, pairs, items


def test_lists_that_a_loop_leaves_alone_may_hold_anything() -> None:
    items = [torch.ones(2), [4, torch.zeros(1)]]
    p = pliant.export(beside_other_lists, (torch.randn(5), items))
    for n in (5, 2, 30):
        x = torch.zeros(n)
        torch.testing.assert_close(p(x, items), beside_other_lists(x, items))


# -- what cannot be one operation --------------------------------------------------------------------------------------------------
def two_names(x: Any) -> Any:
    out = torch.zeros(x.shape[0], 3)
    v = out[:, 0]
    for i in range(x.shape[0]):
        out[i] = v.sum() + x[i, 0]
    return out


def keeps_a_view(x: Any) -> Any:
    out = torch.zeros(x.shape[0], 3)
    now = out[0]
    for i in range(x.shape[0]):
        out[i] = now + x[i, 0]
        now = out[i]
    return out, now


def may_be_written_behind_it(x: Any) -> Any:
    first = torch.zeros(x.shape[1])
    s = first
    for r in x:
        s = s + r
    first += 1
    return s, first


def exchanged(x: Any) -> Any:
    a = torch.zeros(4)
    b = a + 1
    for _ in x:
        a, b = b, a
    a.add_(1)
    return a, b


@pytest.mark.parametrize("f", [two_names, keeps_a_view, may_be_written_behind_it, exchanged], ids=lambda f: f.__name__)
def test_unrolled(f: Any) -> None:
    p = pliant.export(f, (torch.randn(5, 4),))
    compared(f, p, 5)
    with pytest.raises(SignatureError):
        p(torch.randn(3, 4))


# -- modules that data chooses -----------------------------------------------------------------------------------------------------
class ByName(nn.ModuleDict):
    def __init__(self) -> None:
        super().__init__({f"expert_{i}": nn.Linear(4, 4) for i in range(3)})

    def forward(self, x: Any, which: Any) -> Any:
        out = torch.zeros_like(x)
        mask = nn.functional.one_hot(which, 3).permute(1, 0)
        for e in torch.greater(mask.sum(-1), 0).nonzero():
            (rows,) = torch.where(mask[e].squeeze(0))
            out.index_add_(0, rows, self[f"expert_{e[0]}"](x[rows]))
        return out


class ByIndex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x: Any, which: Any) -> Any:
        out = torch.zeros_like(x)
        mask = nn.functional.one_hot(which, 3).permute(1, 0)
        for e in torch.greater(mask.sum(-1), 0).nonzero():
            e = e[0]
            (rows,) = torch.where(mask[e])
            out.index_add_(0, rows, self.experts[e](x[rows]))
        return out


@pytest.mark.parametrize("kind", [ByName, ByIndex])
def test_experts(kind: Any, tmp_path: Any) -> None:
    m = kind()
    with torch.no_grad():
        p = pliant.export(m, (torch.randn(6, 4), torch.randint(0, 3, (6,))))
        p.save(tmp_path / "p.pliant")
        for q in (p, pliant.load(tmp_path / "p.pliant")):
            for n in (6, 1, 2, 9):
                x, which = torch.randn(n, 4), torch.randint(0, 3, (n,))
                torch.testing.assert_close(q(x, which), m(x, which))


class NoSuchKey(nn.ModuleDict):
    def forward(self, x: Any) -> Any:
        out = torch.zeros(4)
        for n in x.nonzero():
            out += self[f"m{n[0]}"](torch.ones(4))
        return out


def test_a_key_that_is_not_there_raises() -> None:
    m = NoSuchKey({"m0": nn.Linear(4, 4), "m2": nn.ReLU()})
    with torch.no_grad():
        p = pliant.export(m, (torch.tensor([1, 0, 1]),))
        assert p(torch.tensor([0, 0, 1, 0])).equal(m(torch.tensor([0, 0, 1, 0])))
        with pytest.raises((KeyError, RuntimeError)):
            p(torch.tensor([1, 1, 0]))


class OtherParameters(nn.Module):
    """Each way through the loop reads something of its own, which it is the first to read."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.ones(3))
        self.register_buffer("b", torch.ones(3) * 10)

    def forward(self, x: Any) -> Any:
        n = x.sum()
        while n < 20:
            n = n + self.a.sum() if n > 5 else n + self.b[0]
        return n


def test_ways_that_read_other_tensors() -> None:
    m = OtherParameters()
    g, p = pliant.compile(m), pliant.export(m, (torch.tensor([1.0, 0, 0]),))
    for v in (1.0, 6.0, 30.0, -3.0):
        x = torch.tensor([v, 0, 0])
        assert g(x).equal(m(x)) and p(x).equal(m(x))


# -- loops in chunks ---------------------------------------------------------------------------------------------------------------
def in_chunks(x: Any) -> Any:
    out = []
    for i in range(0, x.shape[1], 8):
        j = min(i + 8, x.shape[1])
        out.append(x[:, i:j] - x[:, i:j].mean(1, keepdim=True))
    return torch.cat(out, 1)


def test_a_program_for_each_number_of_chunks() -> None:
    p = pliant.export(in_chunks, (torch.randn(2, 5),))
    for n in (1, 5, 8, 9, 16, 17):
        compared(in_chunks, p, 3, n)


def test_pooling_of_one_dim() -> None:
    def f(x: Any) -> Any:
        return nn.functional.max_pool1d(x[None], 4, 2, padding=1), torch.max_pool1d(x, 3)

    p = pliant.export(f, (torch.randn(2, 7),))
    for n in (4, 7, 12, 33):
        compared(f, p, 3, n)


# -- state that is not one ------------------------------------------------------------------------------------------------------------
class PutsBack(nn.Module):
    """Attributes of a module that end as they began, and a module that is put where it is."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.dtype = torch.float32
        self.capacity = 3

    def forward(self, x: Any) -> Any:
        self.inner = self.inner.to(self.dtype)
        self.capacity = x.shape[0]
        y = self.inner(x) + self.capacity
        self.dtype = y.dtype
        return y


def test_puts_back() -> None:
    m = PutsBack()
    with torch.no_grad():
        m(torch.randn(2, 4))
        p = pliant.export(m, (torch.randn(3, 4),))
        for n in (3, 5, 1):
            x = torch.randn(n, 4)
            torch.testing.assert_close(p(x), m(x))
        g = pliant.compile(m)
        for n in (3, 5):
            x = torch.randn(n, 4)
            torch.testing.assert_close(g(x), m(x))
        m.inner = nn.Linear(4, 4)
        torch.testing.assert_close(g(x), m(x))
