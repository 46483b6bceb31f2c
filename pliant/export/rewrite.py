"""Rewriting the operations of a trace: some are recorded anew as others, all that follows reads the new tensors.

An operation whose operands have been replaced is recorded anew too, for its result may be laid out otherwise. One that defines symbols
(`nonzero`, `item`) keeps its results: its layout does not depend on its operands', and its symbols must stay the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from pliant.graph import layout, symnode
from pliant.graph.decompositions import PAST_SCHEMAS
from pliant.graph.dispatch import dispatch
from pliant.graph.record import Op
from pliant.graph.recurrent import WHOLE
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness

VIEWS = {torch.ops.aten.view.default: torch.reshape, torch.ops.aten._unsafe_view.default: torch.reshape}
"""How an operator on a replaced operand is spelled, which may be laid out so that it cannot be viewed. (In a program without writes a copy
is as good as a view.)"""


class Rewriter:
    """Collects the new operations in `ops`. `values`: traced tensors (by vid) that stand for others now."""

    def __init__(self, trace: Any) -> None:
        self.trace = trace
        self.ops: list[Op] = []
        self.values: dict[int, TracedTensor] = {}

    def value(self, t: TracedTensor) -> TracedTensor:
        """What stands for `t` now."""
        return self.values.get(t.vid, t)

    def now(self, x: Any) -> Any:
        """An argument or an output, its tensors replaced."""
        if type(x) is TracedTensor:
            return self.value(x)
        if type(x) is list:
            return [self.now(v) for v in x]
        if type(x) is tuple:
            return tuple([self.now(v) for v in x])
        if type(x) is dict:
            return {k: self.now(v) for k, v in x.items()}
        return x

    def record(self, fn: Callable[..., Any], *args: Any, site: Any = None, **kwargs: Any) -> tuple[Any, list[Op]]:
        """What `fn` gives for traced arguments, and the operations that it came to; they are not yet among `ops`."""
        trace = self.trace
        kept, trace.ops = trace.ops, []
        hook, symnode.site_hook = symnode.site_hook, lambda: site
        try:
            with torch.no_grad(), layout.framework(swept=True), trace.recording():
                out = dispatch(trace, fn, args, kwargs) if fn in WHOLE or fn in PAST_SCHEMAS else fn(*args, **kwargs)
            made = trace.ops
        finally:
            trace.ops = kept
            symnode.site_hook = hook
        for op in made:
            if op.site is None:
                op.site = site
        return out, made

    def put(self, fn: Callable[..., Any], *args: Any, site: Any = None, **kwargs: Any) -> Any:
        """Record and append."""
        out, made = self.record(fn, *args, site=site, **kwargs)
        self.ops += made
        return out

    def again(self, op: Op) -> list[Any]:
        """Append `op` on what its operands are now; its results, flat."""
        args, kwargs = self.now(op.args), self.now(op.kwargs)
        if same(args, op.args) and same(kwargs, op.kwargs):
            self.ops.append(op)
            return op.outs
        if op.binds or not op.outs:
            self.ops.append(dataclasses.replace(op, args=args, kwargs=kwargs))
            return op.outs
        out = self.put(VIEWS.get(op.target, op.target), *args, site=op.site, **kwargs)
        outs = [out] if op.out_spec is None else liveness.leaves(out)
        self.replace(op.outs, outs)
        return outs

    def replace(self, old: list[Any], new: list[Any]) -> None:
        """From now on `new` stand for `old`."""
        for a, b in zip(old, new, strict=True):
            if type(a) is TracedTensor and a is not b:
                self.values[a.vid] = b


def same(a: Any, b: Any) -> bool:
    """Whether the very same tensors are read."""
    if type(a) is TracedTensor or type(b) is TracedTensor:
        return a is b
    if isinstance(a, (list, tuple)):
        return all(map(same, a, b))
    if isinstance(a, dict):
        return all(same(v, b[k]) for k, v in a.items())
    return True
