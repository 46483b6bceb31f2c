"""One graph for all sizes: functions of PyTorch on a declared dim, and on rows that a mask selects, against eager at 0, 1 and other sizes.

Captured at an ordinary size. Kernels are real here: what must not reach them empty would be seen (and some would take the process down).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import pliant
from benchmarks.compare import difference
from pliant.graph import emptiness


def data(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


W, B, K1, K2 = data(4, 4), data(4, seed=1), data(5, 4, 3), data(5, 3, 3, 3)

#: By name (of `emptiness.GENERAL`, before a dot): a function of rows of four.
SAMPLES: dict[str, Callable[[torch.Tensor], Any]] = {
    "matmul": lambda x: x @ W,
    "matmul.square": lambda x: x @ x.t(),
    "mm": lambda x: torch.mm(x.t(), x),
    "bmm": lambda x: torch.bmm(x[None], x.t()[None]),
    "linear": lambda x: F.linear(x, W, B),
    "conv1d": lambda x: F.conv1d(x.unsqueeze(-1).expand(-1, -1, 6), K1),
    "conv2d": lambda x: F.conv2d(x[:, :3, None, None].expand(-1, -1, 5, 5), K2),
    "conv3d": lambda x: F.conv3d(x[:, :3, None, None, None].expand(-1, -1, 1, 5, 5), K2.unsqueeze(2)),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "tensordot": lambda x: torch.tensordot(x, W, 1),
    "cdist": lambda x: torch.cdist(x, W),
    "reshape": lambda x: x.t().reshape(2, -1),
    "view": lambda x: x.view(-1, 2, 2).swapaxes(0, 1).flatten(1),
    "flatten": lambda x: x.unsqueeze(0).expand(2, -1, -1).flatten(0, 1),
    "contiguous": lambda x: x.t().contiguous(),
    "outer": lambda x: torch.outer(x[:, 0], B),
    "cartesian_prod": lambda x: torch.cartesian_prod(x[:, 0], B),
    "roll": lambda x: x.roll(1, 0),
    "softmax": lambda x: x.softmax(0),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "broadcast": lambda x: (x[None] - x[:, None]) * x[:, :1],
    "cat": lambda x: torch.cat([x, W, x]).cumsum(0),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "slices": lambda x: (x[1:], x[:-1], x[::2], x[1:3]),
    "index": lambda x: x[torch.arange(x.shape[0])],
    "index_add": lambda x: torch.zeros(4, 4).index_add(0, torch.arange(x.shape[0]) % 4, x),
    "sort": lambda x: x.sort(0),
    "one_hot": lambda x: F.one_hot(torch.arange(x.shape[0]) % 4, 4),
    "interpolate": lambda x: F.interpolate(x[:, None], scale_factor=1.5),
    "cumsum": lambda x: (x.cumsum(1), x.cumsum(0), (x * 2).view(-1, 2, 2).cumsum(-1)),
    "cumprod": lambda x: x.cumprod(1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "cummax": lambda x: x.cummax(1),
}
#: Those that must not reach their usual kernels empty; a declared dim gets a graph for each of nothing, one, and others.
CAREFUL: dict[str, Callable[[torch.Tensor], Any]] = {
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    "attention.batch": lambda x: F.scaled_dot_product_attention(x[:, None, None], x[:, None, None], x[:, None, None]),
    "group_norm": lambda x: F.group_norm(x.unsqueeze(-1), 2),
    "batch_norm": lambda x: F.batch_norm(x, B, B.square() + 1, B, W[0]),
}
FIRST_AND_OTHERS = (5, 1, 0, 2, 8)


def result(fn: Callable, x: torch.Tensor, grad: bool) -> Any:
    x = x.clone().requires_grad_(grad)
    out = fn(x)
    tensors = [t for t in (out if isinstance(out, tuple) else (out,)) if t.requires_grad]
    if tensors:
        sum(t.sin().sum() for t in tensors).backward()  # type: ignore[union-attr]
    return torch.utils._pytree.tree_map(lambda t: t.detach(), out), x.grad


def compare(fn: Callable, compiled: Callable, rows: Callable[[int], torch.Tensor], grad: bool) -> int:
    pliant.reset()
    for n in FIRST_AND_OTHERS:
        x = rows(n)
        assert difference(result(lambda x: compiled(x, n), x, grad), result(lambda x: fn(x, n), x, grad)) <= 1e-5, n
    return pliant.stats()["captures"]


def test_the_table_is_swept() -> None:
    assert emptiness.GENERAL <= {name.partition(".")[0] for name in SAMPLES}


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("name", [*SAMPLES, *CAREFUL])
def test_a_declared_dim(name: str, grad: bool) -> None:
    body = SAMPLES.get(name) or CAREFUL[name]

    def fn(x: torch.Tensor, n: int) -> Any:
        return body(x)

    compiled = pliant.compile(fn, fullgraph=True, strict=True, dynamic={"x": {0: pliant.Dim("rows")}, "n": True})
    assert compare(fn, compiled, lambda n: data(n, 4, seed=n), grad) <= (1 if name in SAMPLES and not grad else 3)


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("name", [n for n in (*SAMPLES, *CAREFUL) if n != "cdist"])  # it chooses by more than emptiness: a graph break
def test_rows_that_a_mask_selects(name: str, grad: bool) -> None:
    body = SAMPLES.get(name) or CAREFUL[name]

    def fn(x: torch.Tensor, n: int) -> Any:
        return body(x[torch.arange(9) < n])

    compiled = pliant.compile(fn, fullgraph=True, strict=True, dynamic={"n": True})
    assert compare(fn, compiled, lambda n: data(9, 4, seed=n), grad) == 1


ORDERS = {
    "scaled": lambda y: y.t() * 0.5,
    "in a batch": lambda y: (y[None, None].transpose(-2, -1) * 0.5)[0, 0],
    "two": lambda y: y.t() + y.t(),
    "copied": lambda y: y.t().clone(),
    "alike": lambda y: torch.ones_like(y.t()) * y.t(),
    "of three": lambda y: (y.view(-1, 2, 2).permute(2, 0, 1) * 2).reshape(4, -1),
    "with a row": lambda y: y.t() * y.sum(1),
}


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("name", ORDERS)
def test_results_whose_dims_lie_in_another_order(name: str, backend: str) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor, n: int) -> Any:
        y = x[torch.arange(9) < n]
        z = ORDERS[name](y)
        return y @ z, w @ z, z  # products read memory by the strides that the capture knows

    compiled = pliant.compile(fn, fullgraph=True, strict=True, backend=backend, dynamic={"n": True})
    for n in FIRST_AND_OTHERS:
        got, want = compiled(data(9, 4, seed=n), W, n), fn(data(9, 4, seed=n), W, n)
        assert difference(got, want) <= 1e-5, n
        assert n < 2 or [t.stride() for t in got] == [t.stride() for t in want]
    assert pliant.stats()["captures"] == 1
