"""Functions of PyTorch that start a compiler or tracer of its own, in plain operators: what the interpreter runs in their place.

Nothing here is called by pliant. It is interpreted as if the program had written it (`higher_order.py`, `transforms.py` say for what).
What PyTorch refuses raises `Refused`: the real function is left to say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.func import jvp, vmap
from torch.utils import _pytree as pytree


class Refused(Exception):
    """PyTorch would not do it."""


class FunctionsOff:
    """`torch._C.DisableTorchFunctionSubclass()` and `torch._C.DisableTorchFunction()`."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def __enter__(self) -> None:
        self.before = torch._C._get_torch_function_state()  # type: ignore[attr-defined]
        torch._C._set_torch_function_state(self.state)  # type: ignore[attr-defined]

    def __exit__(self, *error: Any) -> None:
        torch._C._set_torch_function_state(self.before)  # type: ignore[attr-defined]


# -- transforms --------------------------------------------------------------------------------------------------------
def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """`torch.func.linearize`: the tangents are worked out together with the function's value, which is worked out once in the graph."""
    output = func(*primals)

    def forward(*tangents: Any) -> Any:
        given, spec = pytree.tree_flatten(tangents)
        wanted, of_primals = pytree.tree_flatten(primals)
        if spec != of_primals:
            raise Refused
        for t, p in zip(given, wanted):
            if t.shape != p.shape or t.dtype != p.dtype or t.device != p.device:
                raise Refused
        return jvp(func, primals, tangents)[1]

    return output, forward


def mapped(f: Callable[..., Any], xs: Any, args: tuple) -> Any:
    """`map(f, xs, *args)`: every slice at once."""
    return vmap(lambda x: f(x, *args), randomness="error")(xs)


# -- attention -----------------------------------------------------------------------------------------------------------
def over_positions(f: Callable[..., Any], scored: bool) -> Callable[..., Any]:
    """A function of (score, batch, head, query, key), or of the last four, for all positions."""
    first = (0,) if scored else ()
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        f = vmap(f, in_dims=first + dims)
    return f


def create_mask(mod: Callable[..., Any], scored: bool, batch: Any, heads: Any, queries: Any, keys: Any, device: Any) -> torch.Tensor:
    """The dense mask of a `mask_mod`, or of where a `score_mod` leaves scores that are finite."""
    sizes = (1 if batch is None else batch, 1 if heads is None else heads, queries, keys)
    places = [torch.arange(0, n, device=device) for n in sizes]
    if not scored:
        return over_positions(mod, False)(*places)
    out = over_positions(mod, True)(torch.zeros(*sizes, device=device), *places)
    return torch.where(torch.isneginf(out), False, True)


def attention(query: Any, key: Any, value: Any, score_mod: Any, mask_mod: Any, scale: Any) -> tuple[Any, Any, Any]:
    """`flex_attention` with the scores as a tensor: (result, logarithms of the sums of exponentials, maxima), the latter two over ln 2."""
    if scale is None:
        scale = 1.0 / math.sqrt(query.size(-1))
    groups = query.size(1) // key.size(1)
    value = torch.repeat_interleave(value, groups, dim=1)
    key = torch.repeat_interleave(key, groups, dim=1)
    batch = query.size(0)
    if key.size(0) != batch:
        if key.size(0) != 1:
            raise Refused
        key = key.expand((batch, *key.size()[1:]))
        value = value.expand((batch, *value.size()[1:]))
    precision = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = query.to(precision) @ key.to(precision).transpose(-2, -1)
    places = [torch.arange(0, n, device=scores.device) for n in scores.size()]
    scores = (scores * scale).to(precision)
    if score_mod is not None:
        scores = over_positions(score_mod, True)(scores, *places)
    if mask_mod is not None:
        never = torch.tensor(-float("inf"), dtype=precision, device=scores.device)
        scores = torch.where(over_positions(mask_mod, False)(*places), scores, never)
    sums = scores.logsumexp(dim=-1)
    sums = torch.where(torch.all(scores == -float("inf"), dim=-1), -float("inf"), sums)
    maxima = torch.max(scores, dim=-1)[0]
    weights = torch._safe_softmax(scores, dim=-1)
    return weights.to(query.dtype) @ value.to(query.dtype), sums / math.log(2), maxima / math.log(2)


__all__ = ["Refused", "attention", "create_mask", "linearize", "mapped"]
