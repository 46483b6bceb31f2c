"""Functions of `math` on symbolic numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pliant.graph.originals import math, torch
from pliant.graph.symnode import SymNode, concrete, in_float, to_sym
from pliant.graph.traced import TracedTensor
from pliant.interpret.calls import LOOKASIDES, native
from pliant.interpret.comparisons import of_data
from pliant.interpret.gate import SYM_TYPES
from pliant.interpret.state import current_site
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr
from pliant.symbolic.magnitude import OF_A_FLOAT, bits

NUMBERS = frozenset({int, float, torch.SymInt, torch.SymFloat})

MATH: dict[str, Callable[[Any], bool]] = {
    "sqrt": lambda x: bool(x >= 0),
    "log": lambda x: bool(x > 0),
    "log2": lambda x: bool(x > 0),
    "exp": lambda x: bool(x < 709),
    **dict.fromkeys(("sinh", "cosh"), lambda x: bool(abs(x) < 709)),
    **dict.fromkeys(("asin", "acos"), lambda x: bool(abs(x) <= 1)),
    **dict.fromkeys(("sin", "cos", "tan"), lambda x: bool(abs(x) < math.inf)),
    **dict.fromkeys(("atan", "tanh"), lambda x: True),
}
"""Functions of one number that are operators of symbolic numbers, and where they are defined and finite."""
LARGEST: float = math.log(sys.float_info.max)
DOMAINS: dict[str, tuple[Callable[[Expr], Any], type[Exception], str] | None] = {
    "sqrt": (lambda e: ops.not_(ops.lt(e, 0.0)), ValueError, "math domain error"),
    **dict.fromkeys(("log", "log2"), (lambda e: ops.not_(ops.le(e, 0.0)), ValueError, "math domain error")),
    "exp": (lambda e: ops.not_(ops.and_(ops.gt(e, LARGEST), ops.lt(e, math.inf))), OverflowError, "math range error"),
    **dict.fromkeys(("asin", "acos"), (lambda e: ops.not_(ops.gt(ops.abs_(e), 1.0)), ValueError, "math domain error")),
    **dict.fromkeys(("sin", "cos", "tan"), (lambda e: ops.ne(ops.abs_(e), math.inf), ValueError, "math domain error")),
    **dict.fromkeys(("atan", "tanh"), None),
}
"""What holds of a number from data, or the function raises: an assertion of the graph. NaN goes through all of them."""
ENDS: dict[str, dict[str, Callable[[float], bool]]] = {
    "fmin": {"exp": lambda c: c <= LARGEST},
    "fmax": {"sqrt": lambda c: c >= 0, "log": lambda c: c > 0, "log2": lambda c: c > 0},
}
"""Of the smallest or largest of several numbers: a constant among them for which the function is defined, whatever the others are."""
LOGARITHMS = ("log", "log2")
PRODUCTS = {"radians": math.pi / 180.0, "degrees": 180.0 / math.pi}
"""Functions that are a product, as CPython has it."""


def math_function(name: str) -> Callable:
    fn = getattr(math, name)

    def look(args: tuple, kw: dict) -> Any:
        if not kw and len(args) == 1 and type(args[0]) is TracedTensor:
            args = (LOOKASIDES[float](args, {}),)
        if kw or len(args) not in (1, 2) or not all([type(a) in NUMBERS for a in args]):
            return of_constants(fn, args, kw)
        if name in LOGARITHMS and any([type(a) is torch.SymInt and bits(a.node.expr) >= OF_A_FLOAT for a in args]):
            return of_constants(fn, args, kw)  # these are defined for integers that no float is
        if len(args) == 1 and of_data(args[0]) and name in DOMAINS:
            hold_to_domain(name, args[0].node)
            return operator_of(name, args[0])
        if type(args[0]) in SYM_TYPES and len(args) == 1 and MATH[name](args[0]):
            return operator_of(name, args[0])
        if name == "log" and len(args) == 2 and all([bool(a > 0) for a in args]) and bool(args[1] != 1):
            x, base = (operator_of("log", a) if type(a) in SYM_TYPES else math.log(a) for a in args)
            return x / base
        return of_constants(fn, args, kw)

    return look


def hold_to_domain(name: str, node: SymNode) -> None:
    """The function is defined there, or it raises what CPython raises."""
    domain = DOMAINS[name]
    if domain is not None:
        holds, error, words = domain
        ends = ENDS.get(node.expr.op, {}).get(name)
        if ends is not None and any([a.const is not None and ends(a.const) for a in node.expr.args]):
            return  # which is all that the assertion would say
        if not node.scope.assume(holds(in_float(node.scope, node.expr)), current_site(), words, error):
            raise error(words)


def kind_of_float(name: str) -> Callable:
    fn, told = getattr(math, name), KINDS[name]

    def look(args: tuple, kw: dict) -> Any:
        if not kw and len(args) == 1 and type(args[0]) is torch.SymFloat and of_data(args[0]):
            return told(args[0])
        return of_constants(fn, args, kw)

    return look


KINDS: dict[str, Callable[[Any], Any]] = {
    "isnan": lambda x: x != x,
    "isinf": lambda x: abs(x) == math.inf,
    "isfinite": lambda x: abs(x) < math.inf,
}


def of_constants(fn: Callable, args: tuple, kw: dict) -> Any:
    """What CPython gives: symbolic numbers are pinned."""
    return native(fn, tuple(concrete(a) if type(a) in SYM_TYPES else a for a in args), kw)


def operator_of(name: str, x: Any) -> Any:
    scope = x.node.scope
    return to_sym(scope, ops.DOORS[name](in_float(scope, x.node.expr)))


def product(name: str) -> Callable:
    fn, factor = getattr(math, name), PRODUCTS[name]

    def look(args: tuple, kw: dict) -> Any:
        if not kw and len(args) == 1 and type(args[0]) in (torch.SymInt, torch.SymFloat):
            return args[0] * factor
        return of_constants(fn, args, kw)

    return look


for _name in MATH:
    LOOKASIDES[getattr(math, _name)] = math_function(_name)
for _name in KINDS:
    LOOKASIDES[getattr(math, _name)] = kind_of_float(_name)
for _name in PRODUCTS:
    LOOKASIDES[getattr(math, _name)] = product(_name)
