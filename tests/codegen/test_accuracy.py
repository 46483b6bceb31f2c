"""No more digits are lost than eager loses: errors against float64, of products, convolutions, attention, reductions and chains of them.

A result may be off by twice what eager's is off by (root mean square over the result), or by one and a half units in the last place
of an average
element where eager is better than that: it sums some things in float64.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pliant

WORST = 2.0


def sample(kind: str, shape: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
    x = torch.randn(shape, generator=g, dtype=torch.float64)
    if kind == "positive":
        return torch.rand(shape, generator=g, dtype=torch.float64)
    if kind == "offset":
        return x + 1000
    if kind == "cancelling":  # of many magnitudes and both signs
        return x * 10 ** (4 * torch.rand(shape, generator=g, dtype=torch.float64))
    return x


KINDS = ("normal", "positive", "offset", "cancelling")
HALVES = (torch.float16, torch.bfloat16)

Row = tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]


SIZES = (
    (64, 4608, 64), (8, 4608, 64), (1, 16384, 64), (64, 16384, 48), (128, 768, 256), (3, 768, 768), (16, 100_000, 16), (17, 1000, 33),
)  # fmt: skip


def product_rows() -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for m, k, n in SIZES:
        rows[f"matmul {m}x{k}x{n}"] = (lambda a, b: a @ b, ((m, k), (k, n)))
        rows[f"linear {m}x{k}x{n}"] = (lambda a, b: F.linear(a, b), ((m, k), (n, k)))
    return rows | {
        "addmm": (lambda a, b: torch.addmm(a[:, :64], a, b), ((64, 4608), (4608, 64))),
        "transposed": (lambda a, b: a.t() @ b, ((4608, 48), (4608, 64))),
        "bmm": (lambda a, b: torch.bmm(a, b), ((4, 33, 2048), (4, 2048, 64))),
        "bmm of columns": (lambda a, b: a @ b.transpose(1, 2), ((4, 64, 2048), (4, 33, 2048))),
        "vector": (lambda a, b: a @ b, ((64, 16384), (16384,))),
        "dot": (lambda a, b: a @ b + 0, ((100_000,), (100_000,))),
        "einsum": (lambda a, b: torch.einsum("abc,cbd->ad", a, b), ((16, 8, 512), (512, 8, 16))),
    }  # fmt: skip


def convolution_rows() -> dict[str, Row]:
    return {
        "1d": (lambda x, w: F.conv1d(x, w), ((2, 512, 40), (64, 512, 9))),
        "1d, padded": (lambda x, w: F.conv1d(x, w, padding=4), ((2, 512, 40), (33, 512, 9))),
        "3x3": (lambda x, w: F.conv2d(x, w, padding=1), ((1, 512, 14, 14), (64, 512, 3, 3))),
        "3x3 of 2048 channels": (lambda x, w: F.conv2d(x, w, padding=1), ((1, 2048, 10, 10), (24, 2048, 3, 3))),
        "3x3 without padding": (lambda x, w: F.conv2d(x, w), ((1, 2048, 10, 10), (24, 2048, 3, 3))),
        "dilated": (lambda x, w: F.conv2d(x, w, padding=2, dilation=2), ((1, 512, 20, 20), (32, 512, 3, 3))),
        "strided": (lambda x, w: F.conv2d(x, w, padding=1, stride=2), ((2, 512, 20, 20), (32, 512, 3, 3))),
        "1x1": (lambda x, w: F.conv2d(x, w), ((1, 2048, 14, 14), (64, 2048, 1, 1))),
        "1x1 of many pictures": (lambda x, w: F.conv2d(x, w), ((8, 2048, 7, 7), (40, 2048, 1, 1))),
        "7x7 of a picture": (lambda x, w: F.conv2d(x, w, stride=2, padding=3), ((1, 3, 56, 56), (64, 3, 7, 7))),
        "grouped": (lambda x, w: F.conv2d(x, w, padding=1, groups=4), ((1, 512, 14, 14), (64, 128, 3, 3))),
        "few pixels": (lambda x, w: F.conv2d(x, w, padding=1), ((1, 1024, 3, 3), (64, 1024, 3, 3))),
        "one pixel": (lambda x, w: F.conv2d(x, w), ((4, 1024, 3, 3), (64, 1024, 3, 3))),
        "depthwise 3": (lambda x, w: F.conv2d(x, w, padding=1, groups=64), ((1, 64, 28, 28), (64, 1, 3, 3))),
        "depthwise 7": (lambda x, w: F.conv2d(x, w, padding=3, groups=64), ((1, 64, 28, 28), (64, 1, 7, 7))),
        "depthwise 31": (lambda x, w: F.conv2d(x, w, padding=15, groups=16), ((1, 16, 28, 28), (16, 1, 31, 31))),
        "3d": (lambda x, w: F.conv3d(x, w, padding=1), ((1, 128, 6, 8, 8), (32, 128, 3, 3, 3))),
        "transposed": (lambda x, w: F.conv_transpose2d(x, w), ((1, 256, 8, 8), (256, 32, 3, 3))),
        "with bias and relu": (lambda x, w: F.conv2d(x, w, x[0, :64, 0, 0], padding=1).relu(), ((1, 600, 14, 14), (64, 600, 3, 3))),
    }


def attention_rows() -> dict[str, Row]:
    def attend(q: Any, k: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, k)

    return {
        "attention": (attend, ((2, 4, 64, 64), (2, 4, 700, 64))),
        "long": (attend, ((1, 2, 64, 64), (1, 2, 5000, 64))),
        "causal": (lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), ((1, 2, 500, 64), (1, 2, 500, 64))),
        "written out": (lambda q, k: (q @ k.transpose(-1, -2) / 8).softmax(-1) @ k, ((2, 4, 64, 64), (2, 4, 700, 64))),
    }


ALONG: dict[str, Callable[..., torch.Tensor]] = {
    "sum": lambda x, y: (x + 0).sum(-1) * 1,
    "sum of squares": lambda x, y: (x * x).sum(-1),
    "mean": lambda x, y: x.mean(-1),
    "var": lambda x, y: x.var(-1),
    "softmax": lambda x, y: x.softmax(-1),
    "log_softmax": lambda x, y: x.log_softmax(-1),
    "logsumexp": lambda x, y: x.logsumexp(-1),
    "cumsum": lambda x, y: x.cumsum(-1),
    "norm": lambda x, y: x.norm(dim=-1),
    "mse": lambda x, y: ((x - y) ** 2).mean(-1),
}


def reduction_rows() -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for n in (40, 100, 1000, 16384, 100_000):
        for name, fn in ALONG.items():
            rows[f"{name} of rows of {n}"] = (fn, ((7, n), (7, n)))
            rows[f"{name} of columns of {n}"] = (lambda x, y, fn=fn: fn(x.t(), y.t()), ((n, 7), (n, 7)))
        rows[f"layer_norm {n}"] = (lambda x: F.layer_norm(x, x.shape[-1:]), ((7, n),))
        rows[f"rms_norm {n}"] = (lambda x: F.rms_norm(x, x.shape[-1:]), ((7, n),))
    return rows | {
        "wide columns": (lambda x: x.sum(0) * 1, ((4096, 300),)),
        "two dims apart": (lambda x: (x * 1).sum((0, 2)), ((50, 33, 400),)),
        "three dims": (lambda x: (x * 1).mean((0, 2, 3)), ((16, 9, 30, 30),)),
        "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), ((8, 16, 40, 40),)),
        "group_norm": (lambda x: F.group_norm(x, 4), ((4, 32, 40, 40),)),
        "average": (lambda x: F.adaptive_avg_pool2d(x, 1), ((2, 8, 112, 112),)),
        "cross_entropy": (lambda x: F.cross_entropy(x, torch.arange(512), reduction="none"), ((512, 3000),)),
        "kl_div": (lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="none").sum(-1), ((64, 3000), (64, 3000))),
        "smooth_l1": (lambda x, y: F.smooth_l1_loss(x, y), ((64, 3000), (64, 3000))),
    }


def deep_products(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(50):
        x = F.layer_norm(F.relu(x @ w), x.shape[-1:])
    return x


def deep_convolutions(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(50):
        x = F.layer_norm(F.conv2d(x, w, padding=1), x.shape[1:])
    return x


CHAINS: dict[str, Row] = {
    "products": (deep_products, ((64, 512), (512, 512))),
    "convolutions": (deep_convolutions, ((1, 64, 14, 14), (64, 64, 3, 3))),
}


def rms(x: torch.Tensor) -> float:
    return x.double().square().mean().sqrt().item()


def error(got: torch.Tensor, want: torch.Tensor) -> tuple[float, float]:
    """(root mean square, maximum) where what is wanted is a number."""
    d = (got.double() - want)[want.isfinite()]
    return rms(d), d.abs().max().item()


def compare(fn: Callable, shapes: tuple[tuple[int, ...], ...], kind: str, dtype: torch.dtype, scale: float = 1.0) -> str:
    """What is wrong; "" if nothing is."""
    g = torch.Generator().manual_seed(zlib.crc32(repr((shapes, kind)).encode()))
    first = sample(kind, shapes[0], g)
    others = [sample("normal" if kind == "offset" and scale != 1.0 else kind, s, g) * scale for s in shapes[1:]]
    args = [x.to(dtype) for x in (first, *others)]
    with torch.no_grad():
        want = fn(*[x.double() for x in args])
        eager = error(fn(*args), want)
        ours = error(pliant.compile(fn, backend="native", fullgraph=True, strict=True)(*args), want)
    eps, known = torch.finfo(dtype).eps, want[want.isfinite()]
    place = eps * rms(known)
    if ours[0] <= max(WORST * eager[0], 2 * place) and ours[1] <= max(3 * eager[1], 4 * place, 1.5 * eps * known.abs().max().item()):
        return ""
    return f"{kind} {dtype}: eager is off by {eager[0]:.2e} (at most {eager[1]:.2e}), we by {ours[0]:.2e} ({ours[1]:.2e})"


def check(rows: dict[str, Row], name: str, kinds: tuple[str, ...] = KINDS, dtypes: tuple = (torch.float32,), weights: bool = False) -> None:
    fn, shapes = rows[name]
    scale = 1 / math.sqrt(math.prod(shapes[1]) / max(shapes[1][0], 1)) if weights else 1.0
    wrong = [w for dtype in dtypes for kind in kinds if (w := compare(fn, shapes, kind, dtype, scale))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", product_rows())
def test_products(name: str) -> None:
    check(product_rows(), name)


@pytest.mark.parametrize("name", convolution_rows())
def test_convolutions(name: str) -> None:
    check(convolution_rows(), name, weights=True)


@pytest.mark.parametrize("name", attention_rows())
def test_attention(name: str) -> None:
    check(attention_rows(), name, ("normal", "positive"))


@pytest.mark.parametrize("name", reduction_rows())
def test_reductions(name: str) -> None:
    kinds = tuple(k for k in KINDS if k != "offset" or "layer_norm" not in name)  # there a mean that is rounded once decides
    check(reduction_rows(), name, kinds)


@pytest.mark.parametrize("name", CHAINS)
def test_fifty_layers(name: str) -> None:
    check(CHAINS, name, ("normal", "positive"), weights=True)


ALL_ROWS = {"products": product_rows(), "convolutions": convolution_rows(), "attention": attention_rows()}


@pytest.mark.parametrize(("group", "name"), [(group, name) for group, rows in ALL_ROWS.items() for name in rows])
def test_halves(group: str, name: str) -> None:
    check(ALL_ROWS[group], name, ("normal",), HALVES, weights=True)


def test_sums_of_what_is_no_number() -> None:
    """What rounding drops is added up apart: of infinities it is no number, and must not make one of the sum."""
    x = torch.ones(4, 5000)
    x[0, 3], x[1, 4000], x[2, 7], x[2, 4100] = math.inf, -math.inf, math.inf, -math.inf
    x[3] = 3e38
    for fn in (lambda x: (x * 1).sum(-1) + 0, lambda x: (x.t() * 1).sum(0) + 0, lambda x: (x * 1).sum() + 0):
        got, want = pliant.compile(fn, backend="native", strict=True)(x), fn(x)
        assert torch.equal(got.isnan(), want.isnan()) and torch.equal(got.nan_to_num(1.0), want.nan_to_num(1.0))
