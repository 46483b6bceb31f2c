"""Numbers read from memory: what `item()` gives, and its errors."""

from __future__ import annotations

import pytest
import torch

from pliant import native
from pliant.native.probe import DTYPES


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [(), (1,), (1, 1, 1), (1,) * 7], ids=str)
def test_as_item_reads_it(dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
    for value in (0, 1, 3, 200, -1.5, float("inf"), 2**60):
        try:
            row = torch.tensor([7, value, 7], dtype=dtype)
        except (RuntimeError, OverflowError):
            continue
        for t in (torch.full(sizes, row[1].item(), dtype=dtype), row[1:2].reshape(sizes), row.requires_grad_(dtype.is_floating_point)[1]):
            got, want = native.number(t), t.item()
            assert type(got) is type(want) and (got == want or got != got)


@pytest.mark.parametrize("t", [torch.ones(2), torch.ones(0), torch.empty((), device="meta")], ids=["two", "none", "meta"])
def test_others_raise_as_item_does(t: torch.Tensor) -> None:
    with pytest.raises(RuntimeError) as want:
        t.item()
    with pytest.raises(RuntimeError) as got:
        native.number(t)
    assert str(got.value) == str(want.value)
