"""Where a mask is true, by a routine of our own: values, sizes and strides of `nonzero`, also where it is ATen that says so."""

from __future__ import annotations

import pytest
import torch

import pliant
from pliant import native
from pliant.native import _core

SIZES = [(), (0,), (1,), (255,), (256,), (257,), (4096,), (70000,), (300, 1), (1, 300), (64, 33), (3, 0, 5),
         (7, 5, 90), (2, 3, 4, 5, 6), (1 << 20, 2)]  # fmt: skip


@pytest.mark.parametrize("share", [0.0, 0.01, 0.4, 1.0])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_it_is_what_nonzero_says(sizes, share):
    g = torch.Generator().manual_seed(len(sizes))
    mask = torch.rand(sizes, generator=g) < share
    found, wanted = native.mask_positions(mask), mask.nonzero()
    assert torch.equal(found, wanted) and found.stride() == wanted.stride() and found.dtype == wanted.dtype


@pytest.mark.parametrize(
    "mask",
    [
        torch.randint(0, 256, (3000,), dtype=torch.uint8).view(torch.bool),  # true is what is not zero
        (torch.rand(60, 70) > 0.5).t(),
        (torch.rand(60, 70) > 0.5)[::2],
        (torch.rand(60, 70) > 0.5)[3:],
        (torch.rand(3000) > 0.5)[7:],
        (torch.rand(300) > 0.5).expand(40, 300),
        (torch.rand(600) > 0.5).as_subclass(torch.nn.Buffer),
    ],
    ids=["bytes", "transposed", "steps", "rows", "offset", "expanded", "class"],
)
def test_masks_of_every_layout(mask):
    assert torch.equal(native.mask_positions(mask), mask.nonzero())


def test_plain_masks_are_gone_through_here():
    assert _core.positions(torch.rand(40, 50) > 0.5) is not None
    assert _core.positions((torch.rand(60, 70) > 0.5).t()) is None
    assert _core.positions(torch.rand(3000)) is None
    assert _core.positions(torch.zeros(3000, dtype=torch.bool)) is None


def chosen(x, y):
    m = x > 0.3
    return x[m].sum(), y[m], m.nonzero(), torch.where(m & (x < 2)), x[m.any(1)]


@pytest.mark.parametrize("inference", [False, True])
def test_in_a_graph(inference):
    pliant.reset()
    compiled = pliant.compile(chosen, background=False)
    with torch.inference_mode(inference):
        for n in (40, 300, 7, 1, 0):
            x = torch.randn(n, 20, requires_grad=not inference)
            y = torch.randn(n, 20)
            for ours, eager in zip(compiled(x, y), chosen(x, y), strict=True):
                for a, b in zip(ours if type(ours) is tuple else (ours,), eager if type(eager) is tuple else (eager,), strict=True):
                    torch.testing.assert_close(a, b)
                    assert a.is_inference() == b.is_inference() and a.requires_grad == b.requires_grad
    assert pliant.stats()["graph_breaks"] == 0
