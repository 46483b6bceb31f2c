"""PyTorch's shape functions without TorchDynamo, which they import on first use (a second or more) to keep it out of them.

`torch._disable_dynamo` wraps each in a function that imports TorchDynamo, asks it for a version that it leaves alone, and keeps that for
later calls. As long as nobody has imported TorchDynamo there is nothing to keep out: the function itself is that version.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import torch

INNER = torch._disable_dynamo(lambda: None).__code__  # type: ignore[attr-defined]
KEPT = "__dynamo_disable"
MODULES = ("torch._refs", *[f"torch._refs.{m}" for m in ("nn.functional", "special", "linalg", "fft")], "torch._decomp.decompositions")
_done = False


def prepare() -> None:
    """Once, where TorchDynamo is not there yet."""
    global _done
    if _done or "torch._refs" not in sys.modules:
        return
    _done = True
    if "torch._dynamo" in sys.modules:
        return
    seen: set[int] = set()
    for name in MODULES:
        for f in list(vars(sys.modules[name]).values()) if name in sys.modules else ():
            if type(f) is types.FunctionType:
                walk(f, seen)


def walk(f: Any, seen: set[int]) -> None:
    """Every function in the closures under `f`."""
    if id(f) in seen or f.__closure__ is None:
        return
    seen.add(id(f))
    for name, cell in zip(f.__code__.co_freevars, f.__closure__, strict=True):
        try:
            below = cell.cell_contents
        except ValueError:
            continue
        if type(below) is types.FunctionType:
            walk(below, seen)
            if f.__code__ is INNER and name == "fn" and not hasattr(below, KEPT):
                setattr(below, KEPT, as_it_is(below, f))


def as_it_is(fn: Callable[..., Any], wrapped: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return fn(*args, **kwargs)
        if getattr(fn, KEPT, None) is call:  # from now on as PyTorch has it
            delattr(fn, KEPT)
        return wrapped(*args, **kwargs)

    return call
