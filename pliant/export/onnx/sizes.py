"""Size arithmetic as int64 nodes: every number is a tensor of one element, computed once and shared.

Symbols are read off the shapes of inputs, off number inputs, and off the results of operations that find them; expressions over them
become Add, Mul, Div, Mod, Min, Max and Where. ONNX's integer Div truncates: where a sign is not proven, floor is built of it and Mod,
which has the divisor's sign as Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import onnx_ir as ir
import torch

from pliant.export.onnx.graph import Graph, NotExpressible, Size, torch_dtype
from pliant.symbolic.expr import Expr, postorder

I64, F64, BOOL = torch.int64, torch.float64, torch.bool
DTYPE = {int: I64, float: F64, bool: BOOL}


class Sizes:
    """`of` maps expressions to their values (one element, 1-d)."""

    def __init__(self, g: Graph) -> None:
        self.g = g
        self.of: dict[Expr, ir.Value] = {}
        self.later: dict[Expr, Callable[[], ir.Value]] = {}  # symbols that nobody has asked for yet

    def define(self, symbol: Expr, read: Callable[[], ir.Value]) -> None:
        """A symbol, and how to read it (the first definition stays)."""
        if symbol not in self.of:
            self.later.setdefault(symbol, read)

    def dim(self, v: ir.Value, d: int) -> ir.Value:
        return self.g.op("Shape", v, start=d, end=d + 1)

    def bind(self, v: ir.Value, sizes: Iterable[Size]) -> None:
        """Read symbols off the shape of a value: a size that is a symbol, or one that is linear in one."""
        for d, s in enumerate(sizes):
            if not isinstance(s, Expr):
                continue
            if s.op == "sym":
                self.define(s, lambda d=d: self.dim(v, d))  # type: ignore[misc]
            elif len(s.symbols()) == 1 and s.op == "sum" and (found := linear(s)) is not None:
                symbol, c, k = found
                self.define(symbol, lambda d=d, c=c, k=k: self.solved(v, d, c, k))  # type: ignore[misc]

    def solved(self, v: ir.Value, d: int, c: int, k: int) -> ir.Value:
        rest = self.g.op("Sub", self.dim(v, d), self.g.ints(k)) if k else self.dim(v, d)
        return self.g.op("Div", rest, self.g.ints(c)) if c != 1 else rest

    def tells(self, symbol: Expr) -> bool:
        """Whether something tells this very symbol, or one that it is known to equal."""
        return any(s in self.of or s in self.later or s.const is not None for s in (symbol, self.g.scope.simplify(symbol)))

    def exactly(self, e: Expr) -> ir.Value:
        """A condition that the scope takes for true, written out."""
        for n in postorder(e, done=self.of):
            if n not in self.of:
                self.of[n] = self.make(n)
        return self.of[e]

    # numbers -------------------------------------------------------------------------------------------------------------------
    def number(self, e: Size | float) -> ir.Value:
        """One element, 1-d: int64, float64 or bool."""
        if not isinstance(e, Expr):
            return self.g.const([e], DTYPE[type(e)])
        e = self.g.scope.simplify(e) if e.op == "sym" else e
        return self.of[e] if e in self.of else self.exactly(e)

    def scalar(self, e: Size | float) -> ir.Value:
        """0-d."""
        if not isinstance(e, Expr):
            return self.g.const(e, DTYPE[type(e)])
        return self.g.op("Squeeze", self.number(e), self.g.ints(0))

    def vector(self, sizes: Iterable[Size]) -> ir.Value:
        """A vector of int64; runs of constants are one."""
        parts: list[Any] = []
        for s in sizes:
            s = s.const if isinstance(s, Expr) and s.const is not None else s
            if isinstance(s, Expr):
                parts.append(self.number(s))
            elif parts and isinstance(parts[-1], list):
                parts[-1].append(int(s))
            else:
                parts.append([int(s)])
        made = [self.g.ints(*p) if isinstance(p, list) else p for p in parts]
        if not made:
            return self.g.ints()
        return made[0] if len(made) == 1 else self.g.op("Concat", *made, axis=0)

    def make(self, e: Expr) -> ir.Value:
        g = self.g
        if e.const is not None:
            return g.const([e.const], DTYPE[e.kind])
        if e.op == "sym":
            if (read := self.later.pop(e, None)) is not None:
                return read()
            equal = g.scope.simplify(e)
            if equal is e:
                raise NotExpressible(f"no input and no operation tells the size {e}")
            return self.number(equal)
        if e.op == "sum":
            return self.total(e)
        row = ARITHMETIC.get(e.op)
        if row is None:
            raise NotExpressible(f"`{e.op}` of sizes, in {e}")
        return row(self, e, *[self.of[a] for a in e.args])

    def total(self, e: Expr) -> ir.Value:
        g = self.g
        out: ir.Value | None = None
        for mono, c in e.terms:
            term: ir.Value | None = None
            for atom in mono:
                term = self.of[atom] if term is None else g.op("Mul", term, self.of[atom])
            if term is None:
                term = g.ints(c)
            elif c == -1 and out is not None:
                out = g.op("Sub", out, term)
                continue
            elif c != 1:
                term = g.op("Mul", term, g.ints(c))
            out = term if out is None else g.op("Add", out, term)
        assert out is not None
        return out

    def positive(self, *es: Expr) -> bool:
        """Proven not to be negative."""
        return all((lo := self.g.scope.range(e)[0]) is not None and lo >= 0 for e in es)


def linear(e: Expr) -> tuple[Expr, int, int] | None:
    """(symbol, c, k) of c * symbol + k."""
    symbol, c, k = None, 0, 0
    for mono, n in e.terms:
        if not mono:
            k = n
        elif len(mono) == 1 and mono[0].op == "sym":
            symbol, c = mono[0], n
        else:
            return None
    return (symbol, c, k) if symbol is not None and c else None


def floordiv(s: Sizes, e: Expr, a: ir.Value, b: ir.Value) -> ir.Value:
    g = s.g
    if s.positive(*e.args):
        return g.op("Div", a, b)
    return g.op("Div", g.op("Sub", a, g.op("Mod", a, b)), b)


def plain(name: str) -> Callable[..., ir.Value]:
    return lambda s, e, *xs: s.g.op(name, *xs)


def compared(name: str, negated: bool = False) -> Callable[..., ir.Value]:
    def row(s: Sizes, e: Expr, a: ir.Value, b: ir.Value) -> ir.Value:
        dtype = I64 if {torch_dtype(a), torch_dtype(b)} <= {I64, BOOL} else F64
        out = s.g.op(name, s.g.cast(a, dtype), s.g.cast(b, dtype))
        return s.g.op("Not", out) if negated else out

    return row


def chained(name: str) -> Callable[..., ir.Value]:
    def row(s: Sizes, e: Expr, *xs: ir.Value) -> ir.Value:
        out = xs[0]
        for x in xs[1:]:
            out = s.g.op(name, out, x)
        return out

    return row


def cast_to(dtype: torch.dtype, *before: str) -> Callable[..., ir.Value]:
    def row(s: Sizes, e: Expr, x: ir.Value) -> ir.Value:
        for name in before:
            x = s.g.op(name, x)
        return s.g.cast(x, dtype)

    return row


def where(s: Sizes, e: Expr, c: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    dtype = DTYPE[e.kind]
    return s.g.op("Where", c, s.g.cast(a, dtype), s.g.cast(b, dtype))


def power(s: Sizes, e: Expr, a: ir.Value, b: ir.Value) -> ir.Value:
    """Small constant powers are products: ONNX Runtime's Pow of ints goes through float64."""
    n = e.args[1].const
    if n is None or not 0 <= n <= 16:
        return s.g.op("Pow", a, b)
    out = s.g.ints(1)
    for i in range(n):
        out = a if i == 0 else s.g.op("Mul", out, a)
    return out


def bits(name: str) -> Callable[..., ir.Value]:
    return lambda s, e, a, b: s.g.op(name, a, b)


def truediv(s: Sizes, e: Expr, a: ir.Value, b: ir.Value) -> ir.Value:
    return s.g.op("Div", s.g.cast(a, F64), s.g.cast(b, F64))


def ffloordiv(s: Sizes, e: Expr, a: ir.Value, b: ir.Value) -> ir.Value:
    m = fmod(s, e, a, b)
    return s.g.op("Round", s.g.op("Div", s.g.op("Sub", a, m), b))


def fmod(s: Sizes, e: Expr, a: ir.Value, b: ir.Value) -> ir.Value:
    g = s.g
    zero = g.const([0.0], F64)
    m = g.op("Mod", a, b, fmod=1)
    other = g.op("And", g.op("Not", g.op("Equal", m, zero)), g.op("Xor", g.op("Less", m, zero), g.op("Less", b, zero)))
    return g.op("Where", other, g.op("Add", m, b), m)


ARITHMETIC: dict[str, Callable[..., ir.Value]] = {
    "floordiv": floordiv, "mod": plain("Mod"), "abs": plain("Abs"), "min": chained("Min"), "max": chained("Max"), "int_pow": power,
    "bit_and": bits("BitwiseAnd"), "bit_or": bits("BitwiseOr"), "bit_xor": bits("BitwiseXor"), "subtotal": lambda s, e, x: x,
    "and": chained("And"), "or": chained("Or"), "not": plain("Not"), "where": where, "bool_to_int": cast_to(I64), "to_float": cast_to(F64),
    "int_truediv": truediv, "floor": cast_to(I64, "Floor"), "ceil": cast_to(I64, "Ceil"), "trunc": cast_to(I64),
    "round": cast_to(I64, "Round"), "fadd": plain("Add"), "fsub": plain("Sub"), "fmul": plain("Mul"), "fdiv": plain("Div"),
    "ffloordiv": ffloordiv, "fmod": fmod, "fpow": plain("Pow"), "fmin": plain("Min"), "fmax": plain("Max"), "fneg": plain("Neg"),
    "fabs": plain("Abs"), "sqrt": plain("Sqrt"), "exp": plain("Exp"), "log": plain("Log"), "sin": plain("Sin"), "cos": plain("Cos"),
    "tanh": plain("Tanh"),
}  # fmt: skip
for _name, _onnx in {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}.items():
    ARITHMETIC[_name] = ARITHMETIC["f" + _name] = compared(_onnx)
ARITHMETIC["ne"] = ARITHMETIC["fne"] = compared("Equal", negated=True)
