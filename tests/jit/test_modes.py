"""`mode=` and `options=`: checked for pliant's own backends, handed over to others."""

from __future__ import annotations

import pytest
import torch

import pliant
from pliant.errors import PliantError
from pliant.jit.modes import MODES, OPTIONS


@pytest.mark.parametrize("mode", MODES)
def test_modes_are_those_of_torch(mode):
    fn = pliant.compile(lambda x: x * 2, mode=mode, strict=True)
    assert torch.equal(fn(torch.ones(3)), torch.full((3,), 2.0))


def test_what_is_not_known_is_refused():
    with pytest.raises(PliantError, match="unknown mode 'fast'.*reduce-overhead"):
        pliant.compile(lambda x: x, mode="fast")
    with pytest.raises(PliantError, match="unknown option 'max_autotune'.*entry_limit"):
        pliant.compile(lambda x: x, options={"max_autotune": True})
    with pytest.raises(PliantError, match="either mode= or options="):
        pliant.compile(lambda x: x, mode="default", options={"entry_limit": 3})
    for name, wrong in {"entry_limit": 0, "below": 1}.items():
        with pytest.raises(PliantError, match=OPTIONS[name].wanted):
            pliant.compile(lambda x: x, options={name: wrong})


def test_entry_limit():
    pliant.reset()
    fn = pliant.compile(lambda x, k: x * len(k), dynamic=False, options={"entry_limit": 2}, strict=True)
    for n in range(2, 7):
        assert torch.equal(fn(torch.ones(n), "ab"), torch.full((n,), 2.0))
    assert pliant.stats()["entries"] == 2


def test_below_off():
    def key(x):
        y = (x * 2).sum()
        pliant.graph_break()
        return float(y)

    counts = []
    for below in (True, False):
        pliant.reset()
        fn = pliant.compile(lambda xs: sorted(xs, key=key), options={"below": below}, strict=True)
        fn([torch.ones(3), torch.zeros(3)])
        counts.append(pliant.stats()["captures"])
    assert counts[0] > counts[1]


def test_other_backends_are_handed_both():
    seen = []

    def backend(module, inputs, **given):
        seen.append(given)
        return module.forward

    for how in ({"mode": "max-autotune"}, {"options": {"anything": [1]}}, {"mode": "default"}):
        fn = pliant.compile(lambda x: x + 1, backend=backend, strict=True, **how)
        assert torch.equal(fn(torch.ones(3)), torch.full((3,), 2.0))
    assert seen == [{"mode": "max-autotune"}, {"options": {"anything": [1]}}, {}]
