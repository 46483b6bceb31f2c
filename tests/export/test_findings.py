"""What torch.export refuses or silently pins (FINDINGS), exported and run in every format, at other sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pliant
from pliant import Dim
from tests.export.test_flows import runs

FORMATS = ("program", "file", "torch", "onnx", "stablehlo")


def r(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@dataclasses.dataclass
class Jagged:
    """A tensor of rows of different lengths; nobody has registered it as a pytree."""

    values: torch.Tensor
    lengths: torch.Tensor


def jagged(rows: int, n: int) -> Jagged:
    return Jagged(r(n, 3), torch.arange(n) % rows)


def branch_on_size(x: Any) -> Any:
    return x * 2 if x.shape[0] > 4 else x.sum(0, keepdim=True).expand(x.shape[0], -1) + 1


def branch_on_item(x: Any) -> Any:
    if x.sum().item() > 3:
        return x * 2
    return x - 1


def with_int(x: Any, n: int) -> Any:
    return x * n + x.shape[0]


def quarters(x: Any) -> Any:
    return x.view(x.shape[0] // 4, 4, -1).sum(1)


def pooled(j: Jagged, groups: Any) -> Any:
    return torch.zeros_like(groups).index_add(0, j.lengths, j.values)


class Step(nn.Module):
    """A step of a decoder with a cache that grows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.q, self.k, self.v = nn.Embedding(11, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, token: Any, cache: list) -> Any:
        x = self.table(token)
        k = torch.cat([cache[0], self.k(x).unflatten(-1, (2, 4)).transpose(1, 2)], 2)
        v = torch.cat([cache[1], self.v(x).unflatten(-1, (2, 4)).transpose(1, 2)], 2)
        y = nn.functional.scaled_dot_product_attention(self.q(x).unflatten(-1, (2, 4)).transpose(1, 2), k, v)
        y = y.transpose(1, 2).flatten(2)
        return (y[:, -1] @ self.table.weight.T).argmax(-1), [k, v]


def step(batch: int, length: int) -> tuple:
    return torch.arange(batch)[:, None] % 11, [r(batch, 2, length, 4), r(batch, 2, length, 4) - 0.5]


BATCH = Dim("batch")
CASES: dict[str, tuple[Callable[..., Any], dict | None, list[tuple]]] = {
    "an example of size 1": (lambda x: x.softmax(-1) + x.mean(0), None, [(r(1, 1),), (r(3, 4),), (r(2, 1),)]),
    "two dims that are equal": (lambda x, y: x @ y.T, {"x": {0: Dim("a")}, "y": {0: Dim("b")}}, [(r(3, 3), r(3, 3)), (r(2, 3), r(5, 3))]),
    "a branch on a named dim": (branch_on_size, {"x": {0: BATCH}}, [(r(3, 2),), (r(7, 4),), (r(5, 1),)]),
    "a branch on item()": (branch_on_item, None, [(r(3, 2),), (r(7, 4),), (r(1, 1),)]),
    "an int beside named dims": (with_int, {"x": {0: BATCH}}, [(r(3, 2), 2), (r(7, 4), -5), (r(1, 1), 1)]),
    "a view of a quarter of a dim": (quarters, {"x": {0: BATCH}}, [(r(8, 2),), (r(4, 3),), (r(20, 1),)]),
    "an unregistered dataclass": (pooled, None, [(jagged(2, 5), r(2, 3)), (jagged(4, 9), r(4, 3)), (jagged(1, 1), r(1, 3))]),
    "a step with its cache": (Step(), None, [step(2, 3), step(1, 7), step(5, 1)]),
}


def thumbnail(x: Any) -> Any:
    size = (x.shape[2] // 2 + 1, 9)
    small = nn.functional.interpolate(x, size=size, mode="bicubic", antialias=True)
    return small, nn.functional.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)


CASES["antialiased resizing"] = (thumbnail, None, [(r(2, 3, 8, 10),), (r(1, 3, 20, 5),), (r(3, 1, 4, 16),)])


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("name", CASES)
def test_formats_agree_with_eager(name: str, format_: str, tmp_path: Path) -> None:
    if format_ == "stablehlo":
        pytest.importorskip("jaxlib")
    f, dynamic, calls = CASES[name]
    with torch.no_grad():
        p = pliant.export(f, calls[0], dynamic=dynamic)
        run = runs(p, format_, tmp_path)
        for args in calls:
            got, want = run(p.inputs_of(*args)), p.outputs_of(f(*args))
            for a, b in zip(got, want, strict=True):
                torch.testing.assert_close(torch.as_tensor(a), b, atol=1e-5, rtol=1e-4)
