"""Functions of `math` on symbolic numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from pliant.graph.symnode import concrete, to_sym
from pliant.interpret.calls import LOOKASIDES, native
from pliant.interpret.gate import SYM_TYPES
from pliant.symbolic import ops

MATH: dict[str, Callable[[Any], bool]] = {
    "sqrt": lambda x: bool(x >= 0),
    "log": lambda x: bool(x > 0),
    "log2": lambda x: bool(x > 0),
    **dict.fromkeys(("sin", "cos", "tan", "atan", "tanh"), lambda x: True),
}
"""Functions of one number that are operators of symbolic numbers, and where they are defined."""


def math_function(name: str) -> Callable:
    fn = getattr(math, name)

    def look(args: tuple, kw: dict) -> Any:
        x = args[0] if len(args) == 1 and not kw else None
        if (type(x) is torch.SymInt or type(x) is torch.SymFloat) and MATH[name](x):
            return to_sym(x.node.scope, ops.DOORS[name](ops.to_float(x.node.expr)))
        return native(fn, tuple(concrete(a) if type(a) in SYM_TYPES else a for a in args), kw)

    return look


for _name in MATH:
    LOOKASIDES[getattr(math, _name)] = math_function(_name)
