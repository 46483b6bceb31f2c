"""Capturing a function on real tensors, and comparing what the trace says with what eager does."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from pliant.graph.symnode import SymNode, expr_of, to_sym
from pliant.graph.trace import Trace, TracedTensor
from pliant.symbolic import Expr, Scope

SYMS = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Captured:
    """A function captured on `args`: `trace`, `out` (traced), and the symbols of the input dims."""

    def __init__(self, fn: Callable, args: Any, dynamic: Callable[..., bool] | None = None, kwargs: Any = None) -> None:
        self.scope = Scope()
        self.trace = Trace(self.scope)
        self.names = map("s{}".format, itertools.count())
        self.inputs: list[tuple[TracedTensor, torch.Tensor]] = []
        self.symbols: dict[str, int] = {}
        self.dynamic = dynamic
        targs, tkwargs = tree_map(self.proxy, (args, kwargs or {}))
        with self.trace.recording():
            self.out = fn(*targs, **tkwargs)

    def proxy(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        for traced, real in self.inputs:
            if real is x:
                return traced
        sizes, strides = self.metadata(x)
        traced = self.trace.input(x, None, sizes, strides, x.storage_offset())
        self.inputs.append((traced, x))
        return traced

    def metadata(self, x: torch.Tensor) -> tuple[tuple, tuple]:
        """Symbols for the dims that `dynamic(x, dim, size)` wants, strides as products where the real ones are."""
        sizes = list(x.size())
        if self.dynamic is None:
            return tuple(sizes), x.stride()
        for d, s in enumerate(x.size()):
            if s > 1 and self.dynamic(x, d, s):
                name = next(self.names)
                sizes[d] = to_sym(self.scope, self.scope.backed(name, hint=s, lo=2, size_like=True))
                self.symbols[name] = s
        strides: list[Any] = list(x.stride())
        order = sorted((d for d in range(x.dim()) if x.size(d) > 1), key=lambda d: x.stride(d))
        step, real = 1, 1
        for d in list(order):
            if x.stride(d) != real:
                break
            strides[d] = step
            step, real = step * sizes[d], real * x.size(d)
            order = order[1:]
        for d in order:
            if type(sizes[d]) is not int and x.stride(d) > 1:
                name = f"t{next(self.names)[1:]}"
                strides[d] = to_sym(self.scope, self.scope.backed(name, hint=x.stride(d), lo=2, size_like=True))
        return tuple(sizes), tuple(strides)


def bind(traced: TracedTensor, real: torch.Tensor, env: dict) -> bool:
    """Read the symbols of an input from a real tensor into `env`; False if the tensor does not look as the capture expects."""
    pairs = list(zip((*traced.sizes, *traced.strides), (*real.size(), *real.stride())))
    for s, v in pairs:
        if isinstance(s, torch.SymInt) and s.node.expr.op == "sym" and env.setdefault(s.node.expr.name, v) != v:
            return False
    return len(traced.sizes) == real.dim() and traced.offset == real.storage_offset() and all(value(s, env) == v for s, v in pairs)


def value(v: Any, env: dict) -> Any:
    """A symbolic number at the sizes `env`."""
    if isinstance(v, SYMS):
        v = v.node
    if isinstance(v, SymNode):
        v = v.expr
    return v.evaluate(env) if isinstance(v, Expr) else v


def described(x: Any, env: dict) -> Any:
    """(sizes, strides, dtype, offset) of a traced or real tensor; numbers as they are."""
    if type(x) is TracedTensor:
        sizes = tuple(value(s, env) for s in x.sizes)
        told = (sizes, tuple(value(s, env) for s in x.strides), x.dtype, value(x.offset, env))
        seen = (tuple(value(s, env) for s in x.size()), tuple(value(s, env) for s in x.stride()), x.dtype, value(x.storage_offset(), env))
        assert told == seen, f"Python and C++ disagree: {told} {seen}"
    elif isinstance(x, torch.Tensor):
        sizes, told = tuple(x.size()), (tuple(x.size()), tuple(x.stride()), x.dtype, x.storage_offset())
    else:
        return value(x, env)
    return (told[0], told[2]) if 0 in sizes else told  # the strides of nothing are nobody's business


def describe_all(out: Any, env: dict) -> list:
    return [described(x, env) for x in tree_flatten(out)[0]]


def holds(scope: Scope, env: dict) -> bool:
    """Whether the guards and assertions of the capture admit the sizes `env`."""
    try:
        return all(g.expr.evaluate(env) for g in scope.guards) and all(a.expr.evaluate(env) for a in scope.asserts)
    except (ArithmeticError, ValueError):
        return False


def replay(trace: Trace, reals: dict[int, torch.Tensor], env: dict, out: Any) -> Any:
    """Run the recorded operations on real tensors. `reals` maps vids to tensors, `env` symbol names to values (extended in place)."""
    reals = dict(reals)
    for c in trace.constants:
        reals[c.vid] = c.constant

    def real(x: Any) -> Any:
        if type(x) is TracedTensor:
            return reals[x.vid]
        if isinstance(x, (list, tuple)):
            return type(x)(map(real, x))
        return value(x, env) if isinstance(x, SYMS) else x

    for op in trace.ops:
        r = op.target(*[real(a) for a in op.args], **{k: real(v) for k, v in op.kwargs.items()})
        flat = [r] if op.out_spec is None else list(r) if op.out_spec == "flat" else tree_flatten(r)[0]
        assert len(flat) == len(op.outs), op
        for name, o in zip(op.outs, flat):
            if type(name) is TracedTensor:
                reals[name.vid] = o
        for b in op.binds:
            env[b.symbol.name] = flat[b.out] if b.dim is None else flat[b.out].size(b.dim)
    return tree_map(real, out)


__all__ = ["Captured", "describe_all", "described", "expr_of", "holds", "replay", "value"]
