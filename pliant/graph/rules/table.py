"""The table of shape rules, and the tools to write a row.

A rule is `rule(trace, *args, **kwargs) -> result(s)`, called with what the operator was called with: traced tensors, ints, `SymInt`s
and Python constants. It returns new traced tensors, or `NotImplemented` to leave the case to PyTorch's meta kernels.
It must give exactly the sizes, strides, dtype, storage offset and aliasing of the eager operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.errors import InternalError
from pliant.graph.operators import Column, overload

Rule = Callable[..., Any]

RULES = Column("shape")
"""Shape rules by operator."""
HANDLERS = Column("handler")
"""Operators that do more than compute metadata: `handler(trace, func, args, kwargs)` records what is needed itself."""

aten = torch.ops.aten


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Decorator: the function is the shape rule of these operators."""

    def register(fn: Rule) -> Rule:
        add(fn, *names)
        return fn

    return register


def add(fn: Rule, *names: str) -> None:
    for name in names:
        op = overload(name)
        if op is not None:
            if op in RULES:
                raise InternalError(f"{name} has a shape rule already, in {RULES[op].__module__}")
            RULES[op] = fn


def handler(*names: str) -> Callable[[Callable], Callable]:
    """Decorator: the function handles these operators altogether."""

    def register(fn: Callable) -> Callable:
        for name in names:
            op = overload(name)
            if op is not None:
                HANDLERS[op] = fn
        return fn

    return register
