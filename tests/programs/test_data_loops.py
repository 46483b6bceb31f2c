"""Loops whose number of rounds depends on data."""

from __future__ import annotations

from typing import Any

import torch

import pliant
from tests.helpers import check


def test_many_rounds_need_no_deep_stack() -> None:
    def until(x: Any, most: Any) -> Any:
        while x.sum() < most:
            print(end="")
            x = x + 1
        return x

    fn = pliant.compile(until)
    for most in (5.0, 5000.0):
        assert fn(torch.zeros(1), torch.tensor(most)).item() == most
    assert pliant.stats()["fallbacks"] == 0


def test_a_branch_on_data_in_a_loop_over_a_size() -> None:
    def counted(x: Any, k: int) -> Any:
        i = 0
        while i < k:
            if x.sum() > 0:
                i += 1
            x = x + 1
            i += 1
        return x

    check(counted, (torch.tensor([-3.0]), 4), (torch.tensor([1.0]), 9), (torch.tensor([-1.0]), 2500), (torch.tensor([1.0]), 0))
