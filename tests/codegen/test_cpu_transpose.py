"""Tiles that are turned in registers: the steps on symbols, and kernels of every dtype and ragged sizes against PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import pliant
from pliant.codegen.cpu import target
from pliant.codegen.cpu.text import Text, Value
from pliant.codegen.cpu.transpose import block_of, turn_blocks, turn_squares

TARGETS = [t for t in ("avx512", "avx2", "portable") if t == "portable" or target.has(getattr(target, t.upper()))]


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
    "lanes, ty", [(16, "float"), (8, "float"), (4, "float"), (8, "double"), (2, "double"), (16, "i16"), (4, "i16"), (16, "i8"), (32, "i8")]
)
def test_turned(lanes: int, ty: str) -> None:
    b = Shuffler(lanes, ty)
    block = block_of(lanes, ty)
    squares = [turn_squares(b, b.rows[first : first + block]) for first in range(0, lanes, block)]
    for k in range(block):
        for g, v in enumerate(turn_blocks(b, [square[k] for square in squares], block)):
            assert b.inside[v.ref] == [(r, g * block + k) for r in range(lanes)]


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8], ids=str)
def test_transposed(to: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("PLIANT_CPU", to)
    monkeypatch.setattr("pliant.codegen.native._compiled", {})
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.t() + y).contiguous()

    compiled = pliant.compile(fn, backend="native", strict=True, dynamic=True, fullgraph=True)
    random = torch.Generator().manual_seed(0)
    for m, n in ((96, 160), (3, 2), (16, 16), (17, 33), (513, 70), (5, 1100)):
        x, y = (torch.randint(-9, 9, shape, generator=random).to(dtype) for shape in ((m, n), (n, m)))
        assert torch.equal(compiled(x, y), fn(x, y)), (m, n)
