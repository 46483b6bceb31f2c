"""What a program of the table is, and the small tensors that the programs are fed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

#: Sizes that a program is called with: an ordinary one is captured first, then the awkward ones.
USUAL = (5, 0, 1, 2, 7, 3, 8)


@dataclass(frozen=True, slots=True)
class Program:
    """One row. `fn(*args(n))` is called for each n of `sizes`, all of which eager accepts.

    `issue` is the public report that it is made after. `dims`: (argument, dim, declared dim) of input sizes that vary. `captures`: how
    many graphs it needs at most: one, or more where what eager does differs from size to size. `grad`: the result is differentiated.
    """

    name: str
    issue: str
    fn: Callable[..., Any]
    args: Callable[[int], tuple]
    sizes: tuple[int, ...] = USUAL
    dims: tuple[tuple[int, int, Any], ...] = ()
    captures: int = 1
    grad: bool = False


PROGRAMS: dict[str, Program] = {}


def program(issue: str, args: Callable[[int], tuple], **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function is a row of the table. A bare number is an issue of pytorch/pytorch."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        where = f"pytorch/pytorch#{issue}" if issue.isdigit() else issue
        PROGRAMS[fn.__name__] = Program(fn.__name__, where, fn, args, **options)
        return fn

    return register


def data(*shape: int, seed: int = 0, grad: bool = False) -> torch.Tensor:
    """Random numbers, the same ones each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


def flags(n: int, total: int) -> torch.Tensor:
    """A mask with n of `total` set, scattered."""
    order = torch.randperm(total, generator=torch.Generator().manual_seed(n))
    mask = torch.zeros(total, dtype=torch.bool)
    mask[order[:n]] = True
    return mask


def whole(*values: int) -> torch.Tensor:
    """Integers as data."""
    return torch.tensor(values if len(values) > 1 else values[0])
