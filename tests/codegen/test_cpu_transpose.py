"""Tiles that are turned in registers, the steps on symbols and kernels of ragged sizes; and rows that are shorter than a vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

import pliant
from pliant.codegen import native, target
from pliant.codegen.cpu.schedule import may_grow, plan
from pliant.codegen.cpu.text import Text, Value
from pliant.codegen.cpu.transpose import block_of, turn_blocks, turn_squares
from pliant.lower.loops import Buffer, Kernel, Node, Store
from tests.codegen.loop_reference import TARGETS


class Shuffler(Text):
    """Follows what is in each lane of a vector, by its name."""

    def __init__(self, rows: int, ty: str) -> None:
        super().__init__()
        self.inside = {f"%r{r}": [(r, c) for c in range(rows)] for r in range(rows)}
        self.rows = [Value(name, ty, rows) for name in self.inside]

    def shuffle(self, a: Value, b: Value | None, lanes: Sequence[int]) -> Value:
        out = super().shuffle(a, b, lanes)
        both = self.inside[a.ref] + (self.inside[b.ref] if b is not None else [])
        self.inside[out.ref] = [both[i] for i in lanes]
        return out


@pytest.mark.parametrize(
    "lanes, ty",
    [(16, "float"), (8, "float"), (4, "float"), (8, "double"), (2, "double"), (16, "i16"), (4, "i16"), (16, "i8"), (32, "i8"), (16, "i64")],
)
def test_turned(lanes: int, ty: str) -> None:
    b = Shuffler(lanes, ty)
    block = block_of(lanes, ty)
    squares = [turn_squares(b, b.rows[first : first + block]) for first in range(0, lanes, block)]
    for k in range(block):
        for g, v in enumerate(turn_blocks(b, [square[k] for square in squares], block)):
            assert b.inside[v.ref] == [(r, g * block + k) for r in range(lanes)]


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.int64], ids=str)
def test_transposed(to: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("PLIANT_CPU", to)
    monkeypatch.setattr(target.named("cpu"), "launchers", {})
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.t() + y).contiguous()

    def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.t().float() + y + x.t().double().float()).contiguous()

    compiled, mixed = (pliant.compile(f, backend="native", strict=True, dynamic=True, fullgraph=True) for f in (fn, both))
    random = torch.Generator().manual_seed(0)
    for m, n in ((96, 160), (3, 2), (16, 16), (17, 33), (513, 70), (5, 1100)):
        x, y = (torch.randint(-9, 9, shape, generator=random).to(dtype) for shape in ((m, n), (n, m)))
        assert torch.equal(compiled(x, y), fn(x, y)), (m, n)
        assert torch.equal(mixed(x, y), both(x, y)), (m, n)  # lanes for the narrower dtype, vectors of several registers of the wider one


NARROW = {
    "strided": lambda x, y: x[:, : y.shape[1]] * 2 + y,
    "turned": lambda x, y: (x[:, : y.shape[1]].t() * 2 + y.t()).contiguous(),
    "broadcast": lambda x, y: x[:, : y.shape[1]] * y[0] + x[:, :1],
    "rows": lambda x, y: (torch.softmax(y * 2, -1), (y + 1).sum(-1), y.cumsum(-1) * 2),
}


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("name", NARROW)
def test_narrow_rows(to: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Compiled for many rows of three, and right for any."""
    monkeypatch.setenv("PLIANT_CPU", to)
    monkeypatch.setattr(target.named("cpu"), "launchers", {})
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    fn, random = NARROW[name], torch.Generator().manual_seed(0)
    compiled = pliant.compile(fn, backend="native", strict=True, dynamic=True, fullgraph=True)
    for m, n in ((900, 3), (2, 7), (33, 2), (5, 16), (19, 65)):
        x, y = (torch.randn(m, k, generator=random) for k in (n + 1, n))
        torch.testing.assert_close(compiled(x, y), fn(x, y), rtol=1e-5, atol=1e-5)


GROWING = {
    "parts": lambda xs: torch.cat([x.sigmoid() for x in xs], 1),
    "parts of another": lambda xs: torch.cat([torch.nn.functional.gelu(x) for x in xs], 1) * 2,
    "one under the other": lambda xs: torch.stack([x[:, :4].sigmoid() for x in xs], 1),
}


@pytest.mark.parametrize("name", GROWING)
def test_lanes_along_rows_that_may_grow(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Rows of three in the first call: lanes along another dim would gain nanoseconds there, and lose most once rows are long."""
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    made: list = []
    compile_all = native.compile_all
    monkeypatch.setattr(native, "compile_all", lambda launches, *more: (made.extend(launches), compile_all(launches, *more)))
    fn, random = GROWING[name], torch.Generator().manual_seed(0)
    compiled = pliant.compile(fn, backend="native", strict=True, dynamic=True, fullgraph=True)
    for n in (3, 5, 300):
        xs = [torch.randn(2, 4 + i, n, generator=random) for i in range(3)]
        torch.testing.assert_close(compiled(xs), fn(xs), rtol=1e-5, atol=1e-5)
    kernels = [m.kernel for m in made]
    rows = [k for k in kernels if any(type(d) is not int for d in k.dims)]
    assert rows
    for k in rows:
        s = plan(k, 512, True)
        assert s.vector is not None and any(store.strides[s.vector] == 1 for store in k.stores)


def test_many_rows_that_are_short_stay_so() -> None:
    """A dim beside which another is hundreds of times longer, or a dim of which the size is known, is what it was in the first call."""
    strides = ("n", 1)
    node = Node("sigmoid", (Node("load", (), "f32", (0, strides, 0, ())),), "f32")
    buffers = [Buffer("f32", False), Buffer("f32", True)]
    kernel = Kernel("rows", ("m", "n"), 0, buffers, [Store(1, strides, 0, node)], ("m", "n"))
    for m, n, grows in ((30, 3, True), (3000, 3, False), (100, 30000, False)):
        kernel.hints = {"m": m, "n": n}
        assert may_grow(kernel, 1) is grows
    assert not may_grow(replace(kernel, dims=("m", 3)), 1)
