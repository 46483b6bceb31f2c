"""What models of other people do on the way, and a program does without: warnings once, scratch attributes, conversions that change
nothing, scans; and sizes of 1 where the exported ones are larger."""

from __future__ import annotations

import functools
import logging
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan

import pliant
from pliant.errors import GraphBreakError, PliantError
from pliant.export import openings


def agree(f: Any, p: pliant.Program, *args: Any) -> None:
    got, want = p(*args), f(*args)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@functools.lru_cache(None)
def warned_once(self: Any, words: str) -> None:
    self.warning(words)


LOGGER = logging.getLogger("pliant.tests.idioms")
logging.Logger.warned_once = warned_once  # type: ignore[attr-defined]


def test_warning_once() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        LOGGER.warned_once(f"padded to {x.dim()}")  # type: ignore[attr-defined]
        return x * 2

    agree(f, pliant.export(f, (torch.rand(3),)), torch.rand(5))
    agree(f, pliant.compile(f, fullgraph=True), torch.rand(5))


class Scratch(nn.Module):
    """Attributes that are set before they are read."""

    def __init__(self) -> None:
        super().__init__()
        self.factor, self.length, self.kept, self.calls = 1, 0, None, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.factor = 1
        self.length = x.shape[1]
        for _ in range(2):
            self.factor *= 2
        self.kept = x.sum()
        return x * self.factor + self.length


class Counter(Scratch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


def test_attributes() -> None:
    m = Scratch()
    p = pliant.export(m, (torch.rand(2, 3),))
    for shape in ((1, 1), (4, 5)):
        agree(m, p, torch.rand(shape))
    with pytest.raises(PliantError, match="reads and then writes"):
        pliant.export(Counter(), (torch.rand(2, 3),))


def test_attributes_that_are_not_read_are_not_guarded() -> None:
    """A counter beside what is written compiles once."""
    m = Scratch()
    c = pliant.compile(m)
    for k in range(3):
        m.calls = k + 10
        x = torch.rand(2, 3)
        torch.testing.assert_close(c(x), x * 4 + 3)


class Converts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
        self.dtype = torch.float32

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner = self.inner.to(self.dtype)
        return self.inner.to("cpu").float()(x)


def test_conversions() -> None:
    m = Converts().eval()
    agree(m, pliant.export(m, (torch.rand(2, 3),)), torch.rand(5, 3))
    m.dtype = torch.float64
    with pytest.raises(GraphBreakError, match="replaces the tensors"):
        pliant.export(m, (torch.rand(2, 3),))


def linear(a: tuple, b: tuple) -> tuple:
    return a[0] * b[0], b[0] * a[1] + b[1]


def along(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return associative_scan(linear, (a, x), dim=1, combine_mode="generic")[1]


def one_by_one(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    h, out = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        h = a[:, t] * h + x[:, t]
        out.append(h)
    return torch.stack(out, 1)


@pytest.mark.parametrize("length", (1, 2, 3, 7, 8, 9, 64, 100))
def test_scan(length: int) -> None:
    p = scans()
    a, x = torch.rand(2, length, 3), torch.rand(2, length, 3)
    torch.testing.assert_close(p(a, x), one_by_one(a, x))
    torch.testing.assert_close(pliant.compile(along, fullgraph=True)(a, x), one_by_one(a, x))


@functools.cache
def scans() -> pliant.Program:
    p = pliant.export(along, (torch.rand(3, 5, 2), torch.rand(3, 5, 2)))
    assert all("== 5" not in str(r.expr) for r in p.relations)
    return p


def test_scan_reversed_and_of_one() -> None:
    f = lambda x: associative_scan(lambda a, b: a + b, x, dim=-1, reverse=True, combine_mode="generic")  # noqa: E731
    p = pliant.export(f, (torch.rand(3, 5),))
    for shape in ((1, 1), (2, 9)):
        x = torch.rand(shape)
        torch.testing.assert_close(p(x), x.flip(-1).cumsum(-1).flip(-1))


def test_scan_of_what_is_not_pointwise() -> None:
    f = lambda x: associative_scan(lambda a, b: a @ b, x, dim=0, combine_mode="generic")  # noqa: E731
    with pytest.raises(GraphBreakError, match="not pointwise"):
        pliant.export(f, (torch.rand(4, 3, 3),))


def shifted(x: torch.Tensor) -> torch.Tensor:
    y = x.new_zeros(x.shape)
    y[..., 1:] = x[..., :-1].clone()
    y[..., 0] = 5
    return y


def pooled(x: torch.Tensor) -> torch.Tensor:
    return torch.flatten(nn.functional.adaptive_avg_pool1d(x.transpose(1, 2), 1), 1)


ATTENTION = nn.MultiheadAttention(8, 2, batch_first=True).eval()


def transposed(x: torch.Tensor) -> torch.Tensor:
    """Written in parts and transposed: without writes it is laid out otherwise, and must be copied to be viewed."""
    y = torch.stack((x[..., 0::2].sin(), x[..., 1::2].cos()), -1).flatten(-2)
    z = x.transpose(1, 2) + 0
    z[:, 0] = y.transpose(1, 2)[:, 0]
    return z.transpose(1, 2).reshape(-1, x.shape[-1]) @ torch.eye(8)


@pytest.mark.parametrize("f", (shifted, pooled, transposed), ids=lambda f: f.__name__)
def test_size_one(f: Any) -> None:
    p = pliant.export(f, (torch.rand(3, 4, 8),))
    for shape in ((1, 4, 8), (2, 1, 8), (1, 1, 8), (5, 7, 8)):
        agree(f, p, torch.rand(shape))


def test_attention_of_one() -> None:
    p = pliant.export(ATTENTION, (torch.rand(3, 4, 8),) * 3)
    for shape in ((1, 4, 8), (2, 1, 8)):
        x = torch.rand(shape)
        got, want = p(x, x, x), ATTENTION(x, x, x)
        torch.testing.assert_close(got[0], want[0])


def test_number_of_a_size_in_a_tensor() -> None:
    f = lambda x: x.view(x.size(0), torch.div(x.size(1), 4, rounding_mode="trunc"), 4).sum(1)  # noqa: E731
    p = pliant.export(f, (torch.rand(3, 8),))
    for shape in ((1, 4), (5, 20)):
        agree(f, p, torch.rand(shape))


class Positions(nn.Module):
    """A learned grid that is resized only where the input is of another size."""

    def __init__(self) -> None:
        super().__init__()
        self.grid = nn.Parameter(torch.rand(1, 2, 4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.mean((2, 3), keepdim=True)
        if x.shape[-1] * x.shape[-2] == 16 and x.shape[-1] == x.shape[-2]:
            return y + self.grid
        return y + nn.functional.interpolate(self.grid, size=x.shape[-2:], mode="bicubic")


def test_other_side_of_a_branch_on_products() -> None:
    m = Positions().eval()
    p = pliant.export(m, (torch.rand(3, 2, 4, 4),))
    for shape in ((1, 2, 4, 4), (2, 2, 6, 4), (1, 2, 9, 7)):
        agree(m, p, torch.rand(shape))
        x = torch.rand(shape)
        torch.testing.assert_close(p.run(p.inputs_of(x))[p.user_outputs[0].name], m(x).detach())


def sized_by_tensors(x: torch.Tensor, s: torch.Tensor) -> Any:
    resized = nn.functional.interpolate(x, size=(s[0], s[1]), mode="bilinear", align_corners=True)
    padded = nn.functional.pad(x, (0, s[0], 0, s[1] - 1))
    return resized, padded, torch.zeros(s[0], s[1]), torch.full((s[0], 2), 1.5), x.reshape(-1)[:8].reshape(s[0], s[1])


def test_sizes_that_are_integers_in_tensors() -> None:
    x = torch.rand(1, 2, 6, 6)
    p = pliant.export(sized_by_tensors, (x, torch.tensor([2, 4])))
    compiled = pliant.compile(sized_by_tensors)
    for sizes in ([2, 4], [4, 2], [8, 1]):
        s = torch.tensor(sizes)
        for q in (p, compiled):
            torch.testing.assert_close(q(x, s), sized_by_tensors(x, s))
    with pytest.raises(RuntimeError):
        p(x, torch.tensor([3, 3]))


def by_type(x: torch.Tensor) -> Any:
    n = torch.IntTensor([x.shape[0], 3])
    return n, torch.FloatTensor([[1, 2.5]]), torch.LongTensor(2, x.shape[0]).zero_(), torch.BoolTensor(()), torch.DoubleTensor().sum()


def test_tensors_by_the_names_of_their_types() -> None:
    p = pliant.export(by_type, (torch.rand(3),))
    for n in (3, 1, 5):
        x = torch.rand(n)
        for got, want in zip(p(x), by_type(x), strict=True):
            assert got.dtype is want.dtype
            torch.testing.assert_close(got, want)


def adds(c: float) -> Any:
    constant = torch.tensor(c)
    return lambda x: x + constant


def test_programs_with_other_constants_are_not_the_same() -> None:
    one, also_one, two = (pliant.export(adds(c), (torch.rand(3),)) for c in (1.0, 1.0, 2.0))
    assert openings.either(one, also_one) is not None
    assert openings.either(one, two) is None
