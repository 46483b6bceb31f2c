"""Capturing a function of tensors without the interpreter: what the tests of the code generators start from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.codegen import native
from pliant.codegen.region import compile_region
from pliant.graph import handlers  # noqa: F401 (fills the table of handlers)
from pliant.graph.symnode import to_sym
from pliant.graph.trace import Trace
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic.scope import Scope


class Captured:
    """`fn` captured once on `examples`, sizes symbolic, and compiled; call it with other tensors of the same kinds.

    `static` holds the positions of tensor arguments whose sizes are fixed (parameters always are). Non-tensor arguments are baked in.
    """

    def __init__(self, fn: Callable, *examples: Any, static: tuple[int, ...] = (), compiler: Callable = compile_region) -> None:
        self.scope = Scope()
        self.trace = Trace(self.scope)
        self.slots: list[Any] = []
        self.readers: list[Callable[[tuple], Any]] = []
        names = iter(f"s{i}" for i in range(1000))
        proxies = []
        for i, value in enumerate(examples):
            if not isinstance(value, torch.Tensor):
                proxies.append(value)
                continue
            fixed = i in static or isinstance(value, torch.nn.Parameter)
            sizes = []
            for d, size in enumerate(value.shape):
                if fixed or size < 2:
                    sizes.append(size)
                    continue
                symbol = self.scope.backed(next(names), hint=size, lo=2, size_like=True)
                self.slots.append(symbol)
                self.readers.append(lambda args, i=i, d=d: args[i].size(d))
                sizes.append(to_sym(self.scope, symbol))
            strides = None if value.is_contiguous() else value.stride()
            traced = self.trace.input(value, None, tuple(sizes), strides)
            self.slots.append(traced)
            self.readers.append(lambda args, i=i: args[i])
            proxies.append(traced)
        with self.trace.recording():
            out = fn(*proxies)
        self.nested = out
        self.executable = compiler(self.trace, self.slots, out)

    def __call__(self, *args: Any) -> Any:
        flat = iter(self.executable.fn(*[read(args) for read in self.readers]))
        return self.rebuild(self.nested, flat)

    def rebuild(self, spec: Any, flat: Any) -> Any:
        if isinstance(spec, (list, tuple)):
            return type(spec)(self.rebuild(v, flat) for v in spec)
        if isinstance(spec, dict):
            return {k: self.rebuild(v, flat) for k, v in spec.items()}
        return next(flat)

    def guards_hold(self, *args: Any) -> bool:
        """Do the guards of the capture admit these arguments?"""
        values = {s.name: read(args) for s, read in zip(self.slots, self.readers, strict=True) if not isinstance(s, TracedTensor)}
        return all(g.expr.evaluate({s.name: values[s.name] for s in g.expr.symbols()}) for g in self.scope.guards)


def tensors_of(value: Any) -> list[torch.Tensor]:
    return [v for v in liveness.leaves(value) if isinstance(v, torch.Tensor)]


def watch_lowering(monkeypatch: Any) -> list[str]:
    """The operations of every program that backend "native" makes from now on, as they are in the end."""
    seen: list[str] = []
    lower = native.lower

    def watch(p: Any) -> Any:
        out = lower(p)
        seen.extend(str(op.target) for op in out.steps)
        return out

    monkeypatch.setattr(native, "lower", watch)
    return seen
