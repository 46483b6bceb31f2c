"""Arithmetic of sizes and numbers as StableHLO scalars, each expression once.

A symbol is bound by whoever knows where its value is (`bind`): a dim of an input, a number input, the result of an operation. Sizes are
i32, as XLA's own; where an intermediate result may be larger than the size it leads to (products under a division) the arithmetic is
done in i64. Numbers that are data are i64, f64 and i1. The instructions of scalar operators are the column `stablehlo` of the table in
`symbolic/ops.py`, but for `//` and `%`: operands that are known not to be negative, nearly all of them, need a single division.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo as hlo

from pliant.symbolic import ops
from pliant.symbolic.expr import TABLE, Expr, parts, postorder

STATEMENT = re.compile(r"(?:(?P<name>\w+) = )?(?P<op>\w+) (?P<operands>.*?) ?@(?P<types>[\w,>]+)$")
SMALL = 2**31
COMPARISONS = {"eq": ops.eq, "ne": ops.ne, "lt": ops.lt, "le": ops.le, "gt": ops.gt, "ge": ops.ge}
NARROW = frozenset(("floordiv", "mod", "min", "max", "subtotal", "bool_to_int"))


class Sizes:
    """Scalars of one function, shared. `inside`: the operations whose regions are being filled, the outermost first."""

    def __init__(self, scope: Any) -> None:
        self.scope = scope
        self.memo: dict[Any, Any] = {}
        self.inside: list[Any] = []
        self.sources: dict[str, Callable[[], tuple[Any, int]]] = {}  # symbol -> its value and width in bits (1: bool, -64: float)
        self.of_data: set[str] = set()  # symbols whose values no shape tells
        self.shaped_by_data: dict[str, None] = {}  # those of them that sizes are made of

    def bind(self, name: str, source: Callable[[], tuple[Any, int]], of_data: bool = False) -> None:
        self.sources.setdefault(name, source)
        if of_data:
            self.of_data.add(name)

    # -- what lowerings ask for ---------------------------------------------------------------------------------------------------
    def size(self, e: Any) -> Any:
        """A size as a 0-d tensor of i32."""
        if type(e) is not Expr:
            return self.constant(e, 32)
        for s in e.symbols():
            if s.name in self.of_data:
                self.shaped_by_data[s.name] = None
        return self.cast(self.value(e, 32 if narrow(e) else 64), 32 if narrow(e) else 64, 32)

    def scalar(self, e: Expr) -> Any:
        """A number as a 0-d tensor of i64, f64 or i1."""
        return self.value(e, 64)

    def shape(self, sizes: Sequence[Any], dtype: torch.dtype = torch.int32) -> Any:
        """Sizes as a 1-d tensor."""
        bits = 64 if dtype == torch.int64 else 32
        key = ("shape", tuple(sizes), bits)
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self.hoisted(lambda: self.make_shape(sizes, bits))
        return found

    def make_shape(self, sizes: Sequence[Any], bits: int) -> Any:
        element = ir.IntegerType.get_signless(bits)
        if all(type(s) is int for s in sizes):
            data = np.asarray(sizes, np.int64 if bits == 64 else np.int32)
            return make("constant", [], ir.RankedTensorType.get([len(sizes)], element), value=ir.DenseElementsAttr.get(data))  # type: ignore[call-overload]
        one = ir.RankedTensorType.get([1], element)
        parts = [self.entry(self.cast(self.size(s), 32, bits), one) for s in sizes]
        if len(parts) == 1:
            return parts[0]
        zero = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0)
        return make("concatenate", parts, ir.RankedTensorType.get([len(sizes)], element), dimension=zero)

    def entry(self, value: Any, one: Any) -> Any:
        """A scalar as a tensor of one element."""
        key = ("entry", value)
        if key not in self.memo:
            self.memo[key] = make("reshape", [value], one)
        return self.memo[key]

    # -- expressions -----------------------------------------------------------------------------------------------------------
    def value(self, e: Expr, bits: int) -> Any:
        """The value of an expression; its integers have `bits` bits."""
        key = ("value", e, bits)
        if key not in self.memo:
            self.hoisted(lambda: self.fill(e, bits))
        return self.memo[key]

    def fill(self, root: Expr, bits: int) -> None:
        stack = [root]
        while stack:
            e = stack[-1]
            instead = self.integral(e)
            missing = [p for p in (parts(e) if instead is None else [instead]) if ("value", p, bits) not in self.memo]
            if missing and ("value", e, bits) not in self.memo:
                stack += missing
                continue
            stack.pop()
            if ("value", e, bits) not in self.memo:
                self.memo["value", e, bits] = self.node(e, bits) if instead is None else self.memo["value", instead, bits]

    def integral(self, e: Expr) -> Expr | None:
        """What floats made of sizes come to, in integers: `ceil(n / 2)`, `floor(n * 1.5)`, `float(n) != 0`; None for another expression.
        XLA's refinement folds no floats. Sizes are far from 2**52, so both are exact."""
        if e.op in ("floor", "ceil", "trunc"):
            x = e.args[0]
            if e.op != "ceil" and (n := rooted(x)) is not None:
                return isqrt(n)
            ratio = (x.args[0], x.args[1]) if x.op == "int_truediv" else rational(x)
            if ratio is None or (e.op == "trunc" and (limits := self.scope.range(x)) is not None and limits[0] < 0):
                return None
            made = (ops.ceildiv if e.op == "ceil" else ops.floordiv)(*ratio)
        elif e.op.removeprefix("f") in COMPARISONS and any(a.kind is float for a in e.args):
            left, right = map(rational, e.args)
            if left is None or right is None:
                return None
            made = COMPARISONS[e.op.removeprefix("f")](ops.mul(left[0], right[1]), ops.mul(right[0], left[1]))
        else:
            return None
        return made if type(made) is Expr else self.scope.const(made)

    def foldable(self, e: Expr) -> bool:
        """Whether XLA's refinement can work it out from sizes: without floats, once `integral` has been at it."""
        stack, seen = [e], set()
        while stack:
            n = stack.pop()
            if n.kind is float:
                return False
            instead = self.integral(n)
            more = [p for p in (parts(n) if instead is None else [instead]) if p not in seen]
            seen.update(more)
            stack += more
        return True

    def node(self, e: Expr, bits: int) -> Any:
        def of(part: Expr) -> Any:
            return self.memo["value", part, bits]

        if e.const is not None:
            return self.constant(e.const, {int: bits, float: -64, bool: 1}[e.kind])
        if e.op == "sym":
            return self.symbol(e, bits)
        if e.op == "sum":
            return self.total(e, bits, of)
        if e.op == "subtotal":
            return of(e.args[0])
        if e.op in ("floordiv", "mod"):
            return self.division(e, of(e.args[0]), of(e.args[1]), bits)
        name = e.op
        if name in COMPARISONS and any(a.kind is float for a in e.args):
            name = f"f{name}"
        template = TABLE[name].stablehlo
        if not template:
            raise ValueError(f"`{e}`: the scalar operator {e.op} has no StableHLO")
        values = [of(a) for a in e.args]
        if any(a.kind is float for a in e.args):  # floats with floats
            values = [self.float_of(a, v, bits) for a, v in zip(e.args, values)]
        if TABLE[e.op].arity != -1:
            return self.statements(template, values, e.kind, bits)
        total = values[0]
        for v in values[1:]:
            total = self.statements(template, [total, v], e.kind, bits)
        return total

    def float_of(self, e: Expr, value: Any, bits: int) -> Any:
        if e.kind is not int:
            return value
        return self.constant(float(e.const), -64) if e.const is not None else self.cast(value, bits, -64)

    def symbol(self, e: Expr, bits: int) -> Any:
        source = self.sources.get(e.name)
        if source is None:
            raise ValueError(f"the value of {e.name} ({e.info.source or 'a number of the program'}) is not among the inputs")
        value, own = source()
        return self.cast(value, own, bits) if e.kind is int else value

    def total(self, e: Expr, bits: int, of: Callable[[Expr], Any]) -> Any:
        """A polynomial: positive terms first, so that partial sums of sizes stay sizes."""
        total = None
        for mono, c in sorted(e.terms, key=lambda t: t[1] < 0):
            minus = c < 0 and total is not None
            factor = abs(c) if minus else c
            term = None if mono and factor == 1 else self.constant(factor, bits)
            for atom in mono:
                term = of(atom) if term is None else make("multiply", [term, of(atom)])
            total = term if total is None else make("subtract" if minus else "add", [total, term])
        return total

    def division(self, e: Expr, a: Any, b: Any, bits: int) -> Any:
        lows = [limits[0] if (limits := self.scope.range(x)) is not None else -1 for x in e.args]
        if lows[0] >= 0 and lows[1] > 0:
            return make("divide" if e.op == "floordiv" else "remainder", [a, b])
        zero = self.constant(0, bits)
        m = make("remainder", [a, b])
        off = make("and", [compare("NE", m, zero), compare("NE", compare("LT", m, zero), compare("LT", b, zero), "UNSIGNED")])
        if e.op == "mod":
            return make("select", [off, make("add", [m, b]), m], m.type)
        q = make("divide", [a, b])
        return make("select", [off, make("subtract", [q, self.constant(1, bits)]), q], q.type)

    def statements(self, template: str, args: list[Any], kind: type, bits: int) -> Any:
        """The instructions of a row of the table of scalar operators."""
        letters = {"I": bits, "F": -64, "B": 1}
        local: dict[str, Any] = {str(i): a for i, a in enumerate(args)}
        for statement in template.split("; "):
            text = statement.strip().rstrip(";").replace("{T}", {int: "I", float: "F", bool: "B"}[kind])
            found = STATEMENT.match(text)
            if found is None:
                raise ValueError(f"not an instruction: {text}")
            result = scalar_type(letters[found["types"].rpartition(">")[2].split(",")[-1]])
            words = [w.strip() for w in found["operands"].split(",") if w.strip()]
            if found["op"] == "constant":
                literal = words[0].removeprefix("dense<").removesuffix(">")
                v = self.constant(float(literal) if "." in literal else int(literal), letters[found["types"][-1]])
            elif found["op"] == "compare":
                v = compare(words[0], *[local[w[1:-1]] for w in words[1:]])
            else:
                v = make(found["op"], [local[w[1:-1]] for w in words], result)
            local[found["name"] or "result"] = v
        return local["result"]

    # -- helpers ---------------------------------------------------------------------------------------------------------------
    def constant(self, value: Any, bits: int) -> Any:
        key = ("scalar", repr(value), bits)
        if key not in self.memo:
            t = scalar_type(bits)
            attr = ir.FloatAttr.get(t.element_type, value) if bits == -64 else ir.IntegerAttr.get(t.element_type, int(value))
            made = ir.DenseElementsAttr.get_splat(t, attr)
            self.memo[key] = self.hoisted(lambda: make("constant", [], t, value=made))
        return self.memo[key]

    def cast(self, value: Any, have: int, want: int) -> Any:
        if have == want:
            return value
        key = ("cast", value, want)
        if key not in self.memo:
            self.memo[key] = self.hoisted(lambda: make("convert", [value], scalar_type(want)))
        return self.memo[key]

    def hoisted(self, build: Callable[[], Any]) -> Any:
        """Build outside of any region, so that what is made can be shared."""
        if not self.inside:
            return build()
        with ir.InsertionPoint(self.inside[0]):
            inside, self.inside = self.inside, []
            try:
                return build()
            finally:
                self.inside = inside


def rooted(x: Expr) -> Any:
    """The size under a square root; None for another float."""
    if x.op == "sqrt" or (x.op == "fpow" and x.args[1].const == 0.5):
        of = rational(x.args[0])
        return of[0] if of is not None and of[1] == 1 and type(of[0]) is Expr else None
    return None


def isqrt(n: Expr) -> Any:
    """The integer part of the square root of a size, by Newton's method from above: for sizes a float's is the same."""
    root: Any = 2**16
    for _ in range(21):
        root = ops.min_(root, ops.floordiv(ops.add(root, ops.floordiv(n, ops.max_(root, 1))), 2))
    return root


def rational(x: Expr) -> tuple[Any, int] | None:
    """A float that is a size times a constant with few bits, as numerator and positive denominator."""
    if x.const is not None:
        c = float(x.const)
        return c.as_integer_ratio() if math.isfinite(c) and max(map(abs, c.as_integer_ratio())) <= 2**20 else None
    if x.kind is int:
        return x, 1
    if x.op == "to_float":
        return x.args[0], 1
    if x.op not in ("fmul", "fdiv", "fneg"):
        return None
    found = [rational(a) for a in x.args]
    if any(f is None for f in found):
        return None
    (n, d), *rest = found  # type: ignore[misc]
    if x.op == "fneg":
        return ops.neg(n), d
    p, q = rest[0]  # type: ignore[misc]
    if x.op == "fmul" and (type(n) is int or type(p) is int):
        return ops.mul(n, p), d * q
    if x.op == "fdiv" and type(p) is int and p > 0 and (p * d) & (p * d - 1) == 0:  # by a power of two: others are rounded
        return ops.mul(n, q), d * p
    return None


def narrow(e: Expr) -> bool:
    """Whether no intermediate result of a size is larger than sizes are: linear in the sizes, divided by constants."""
    for n in postorder(e):
        if n.kind is float:
            return False
        if n.const is not None:
            if abs(n.const) >= SMALL:
                return False
        elif n.op == "sum":
            plain = all(len(m) < 2 and (abs(c) == 1 or not m) for m, c in n.terms)
            if not plain and not (n is e and all(c > 0 for _, c in n.terms)):
                return False  # a size's own terms are sizes; under a division, or beside a subtraction, they may be larger
        elif n.op != "sym" and n.op not in NARROW:
            return False
    return True


def scalar_type(bits: int) -> Any:
    element = ir.F64Type.get() if bits == -64 else ir.IntegerType.get_signless(bits)
    return ir.RankedTensorType.get([], element)


def make(name: str, operands: list[Any], result: Any = None, **attributes: Any) -> Any:
    return ir.Operation.create(f"stablehlo.{name}", [result or operands[0].type], operands, attributes).results[0]


def compare(direction: str, a: Any, b: Any, kind: str = "") -> Any:
    element = ir.RankedTensorType(a.type).element_type
    kind = kind or ("FLOAT" if isinstance(element, ir.F64Type) else "SIGNED")
    attributes = dict(comparison_direction=hlo.ComparisonDirectionAttr.get(direction), compare_type=hlo.ComparisonTypeAttr.get(kind))
    return make("compare", [a, b], scalar_type(1), **attributes)
