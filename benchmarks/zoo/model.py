"""One model of the zoo: how it is made, and the calls that it is asked to answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Call = tuple[tuple[Any, ...], dict[str, Any]]

TEXT_SHAPES = ((2, 7), (3, 12), (1, 5), (4, 9))  # batch and length
IMAGE_SHAPES = ((2, 64, 64), (3, 96, 64), (1, 64, 96), (2, 96, 96))  # batch, height, width
SOUND_SHAPES = ((2, 1600), (3, 2000), (1, 1200), (2, 2800))  # batch and samples


@dataclass(frozen=True, slots=True)
class Model:
    """`make()` gives a module in eval mode, or a function around one; `calls(module)` the arguments, one per shape.

    `train`: whether it is trained too (the sum of all outputs with gradients is differentiated; gradients are compared).
    `generate`: keyword arguments of `generate()`, which then takes the place of the call.
    """

    name: str
    make: Callable[[], Any]
    calls: Callable[[Any], list[Call]]
    train: bool = False
    generate: dict[str, Any] | None = None
