"""torch's ShapeEnv as an engine for streams of questions (`pliant.symbolic.stream`): what a question costs there, and what it knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StrictMinMaxConstraint
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

#: Our operators under their names there; `where`'s and the folded ones' are made below.
NAMES = {
    "floordiv": "int_floordiv",
    "min": "sym_min",
    "max": "sym_max",
    "and": "and_",
    "or": "or_",
    "not": "sym_not",
    "to_float": "sym_float",
    "int_pow": "pow_by_natural",
    "fadd": "add",
    "fsub": "sub",
    "fmul": "mul",
    "fdiv": "float_truediv",
    "fneg": "neg",
    "fpow": "float_pow",
    "bit_and": "bitwise_and",
    "bit_or": "bitwise_or",
}
VERBS: dict[str, Callable[[SymNode], Any]] = {
    "decide": lambda r: r.guard_bool("", 0),
    "decide_or_false": lambda r: r.guard_or_false("", 0),
    "known_true": lambda r: r.statically_known_true("", 0),
    "known_false": lambda r: r.sym_not().statically_known_true("", 0),
    "assume": lambda r: r.expect_true("", 0),
    "learn": lambda r: r.expect_true("", 0),
    "require": lambda r: r.expect_true("", 0),
    "specialize": lambda r: (r.guard_int if r.is_int() else r.guard_float if r.is_float() else r.guard_bool)("", 0),
}


class OnShapeEnv:
    """Asks at the level of SymNode, its lowest public one. Constants are nodes from the start, so that none is made in a question."""

    def __init__(self) -> None:
        self.env = ShapeEnv()
        self._any: SymNode | None = None  # some node, to make constants with

    def symbol(self, name: str, kind: type, hint: Any, lo: Any, hi: Any, backed: bool, size_like: bool) -> SymNode:
        env = self.env
        if not backed:
            made = env.create_unbacked_symint() if kind is int else env.create_unbacked_symfloat()
            if kind is int:
                if size_like:
                    env._constrain_range_for_size(made.node.expr)
                env.constrain_symbol_range(
                    made.node.expr, compiler_min=-int_oo if lo is None else lo, compiler_max=int_oo if hi is None else hi
                )
            node = made.node
        else:
            source = ConstantSource(name)
            if kind is float:
                sym = env.create_unspecified_symbol(hint, source, DimDynamic.DYNAMIC)
                node = env.create_symfloatnode(sym, hint=hint, source=source).node
            else:
                low, high = -int_oo if lo is None else lo, int_oo if hi is None else hi
                bounds = StrictMinMaxConstraint(warn_only=False, vr=ValueRanges(low, high))
                positive = True if lo is not None and lo >= 0 else None
                sym = env.create_symbol(hint, source, DimDynamic.DYNAMIC, bounds, positive, do_not_specialize_zero_one=lo is None or lo < 2)
                node = env.create_symintnode(sym, hint=hint, source=source).node
        self._any = node
        return node

    def lift(self, x: Any) -> SymNode:
        """A constant as a node."""
        if isinstance(x, SymNode):
            return x
        assert self._any is not None
        return (self._any.wrap_bool if type(x) is bool else self._any.wrap_float if type(x) is float else self._any.wrap_int)(x)

    def apply(self, op: str, *operands: Any) -> SymNode:
        nodes = [self.lift(x) for x in operands]
        if op == "where":
            return nodes[0].sym_ite(nodes[1], nodes[2])
        method = NAMES.get(op, op)
        if len(nodes) == 1:
            return getattr(nodes[0], method)()
        out = nodes[0]
        for other in nodes[1:]:
            out = getattr(out, method)(other)
        return out

    def question(self, verb: str, op: str, operands: list[Any]) -> Callable[[], Any]:
        ask = VERBS[verb]
        if not op:
            node = self.lift(operands[0])
            return lambda: ask(node)
        if len(operands) == 2:
            b = self.lift(operands[1])
            build = getattr(self.lift(operands[0]), NAMES.get(op, op))
            return lambda: ask(build(b))
        return lambda: ask(self.apply(op, *operands))

    # what it knows ---------------------------------------------------------------------------

    def known(self, op: str, operands: list[Any]) -> Any:
        """The value that it would give without a guard; None if it has to look."""
        node = self.apply(op, *operands) if op else self.lift(operands[0])
        expr = node.expr
        static = expr if expr.is_number or expr in (sympy.true, sympy.false) else self.env._maybe_evaluate_static(expr)
        if static is None or not (static.is_number or static in (sympy.true, sympy.false)):
            return None
        return bool(static) if node.is_bool() else int(static) if node.is_int() else float(static)

    def recorded(self) -> int:
        """How many guards and runtime assertions it keeps."""
        return len(self.env.guards) + sum(map(len, self.env.deferred_runtime_asserts.values()))
