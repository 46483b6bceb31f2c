"""What one benchmark program is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


def plain_call(fn: Callable[..., Any], args: tuple) -> Any:
    """One inference call."""
    with torch.no_grad():
        return fn(*args)


@dataclass(frozen=True, slots=True)
class Program:
    """`make()` builds the model or function that gets compiled, the same one every time; `inputs()` builds the arguments of all calls.

    Both are called anew for every side and every pass, so a call may change its arguments (a growing cache). `call(fn, args)` makes
    one call and returns everything that must equal eager's: outputs, and gradients when it trains.
    """

    name: str
    title: str
    make: Callable[[], Callable[..., Any]]
    inputs: Callable[[], list[tuple]]
    call: Callable[[Callable[..., Any], tuple], Any] = plain_call
    tolerance: float = 1e-4  # largest difference that is rounding (`compare.difference`)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sizes(count: int, low: int, high: int, seed: int = 0, multiple: int = 1) -> list[int]:
    """`count` sizes in [low, high], the same ones each time."""
    g = generator(seed)
    return [int(torch.randint(low, high + 1, (), generator=g)) * multiple for _ in range(count)]


def seeded(make: Callable[[], Any]) -> Callable[[], Any]:
    """`make` with torch's random state set first and put back afterwards, so that every copy has the same weights."""

    def build() -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return make()

    return build
