"""NumPy's own functions as operators of the graph: `pliant_numpy::…`.

What torch has no exact counterpart of (the order of equal keys in NumPy's default sort, its factorizations) but whose result has a known
shape and dtype needs no graph break: the compiled program calls NumPy there, on arrays over the memory of its tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import from_numpy  # a program may put a function of its own in its place

from pliant.graph.originals import numpy as np
from pliant.graph.originals import torch
from pliant.graph.own_operators import register_fake

LIBRARY = torch.library.Library("pliant_numpy", "FRAGMENT")


def operator_of_numpy(schema: str, fn: Callable[..., Any], fake: Callable[..., Any] | None) -> Any:
    """The operator of this schema: `fn` is given tensors and returns arrays; `fake` tells their shapes and dtypes, if there are any."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, as_tensors(fn), "CPU")
    if fake is not None:
        register_fake(LIBRARY, name, fake)
    return getattr(torch.ops.pliant_numpy, name).default


def as_tensors(fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        r = fn(*args)
        if r is None:
            return None
        return tuple([packed(x) for x in r]) if isinstance(r, tuple) else packed(r)

    return call


def packed(x: Any) -> Any:
    """A row-major tensor of an array or scalar."""
    x = np.asarray(x)
    return from_numpy(np.ascontiguousarray(x)).reshape(x.shape)


def positions(x: Any, *args: Any) -> Any:
    """int64, in the shape of the first argument."""
    return torch.empty(x.shape, dtype=torch.int64)


def alike(x: Any, *args: Any) -> Any:
    """As the first argument is."""
    return torch.empty(x.shape, dtype=x.dtype)
