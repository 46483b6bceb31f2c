"""The face of symbolic numbers towards PyTorch: the node behind `torch.SymInt`, `torch.SymFloat` and `torch.SymBool`.

PyTorch asks a node for arithmetic (symbolic answers) and for decisions (`guard_bool`, `guard_int`, ...). Arithmetic becomes an
expression; a decision goes to the scope, which proves it or records a guard at the current site. No answer is ever read from a
hint without the scope knowing. Sizes and strides questions (contiguity and the like) live in `layout.py`.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import Any

import torch

from pliant.graph import layout
from pliant.graph.originals import math
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr
from pliant.symbolic.magnitude import LARGEST, OF_A_FLOAT, bits
from pliant.symbolic.scope import DataDependent, Scope

Number = int | float | bool
current_node = torch._C._current_autograd_node
SYMS = (torch.SymInt, torch.SymFloat, torch.SymBool)
"""Symbolic numbers as programs see them."""


def no_site() -> Any:
    """The default of `site_hook`: nobody is interpreting."""
    return None


#: Gives the user's instruction that is being executed; the interpreter sets it.
site_hook: Callable[[], Any] = no_site


class Answers:
    """What PyTorch's own Python code (`guard_or_false`, `statically_known_true`, `torch._check_is_size`) asks a node's `shape_env`."""

    __slots__ = ("scope",)

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def _maybe_evaluate_static(self, expr: Expr) -> Number | None:
        if expr.const is None and expr.kind is bool:
            return True if self.scope.known_true(expr) else False if self.scope.known_false(expr) else None
        return self.scope.simplify(expr).const

    def evaluate_sym_node(self, node: SymNode, size_oblivious: bool = False, fallback_value: bool | None = None) -> Number:
        if node.is_bool() and fallback_value is not None:
            return node.guard_or_true() if fallback_value else node.guard_or_false()
        return concrete(to_sym(self.scope, node.expr))

    def optimization_hint(self, expr: Expr, fallback: int | None = None) -> Number:
        return self.scope.optimization_hint(expr, 64 if fallback is None else fallback)

    def _constrain_range_for_size(self, expr: Expr, lo: int | None = None, hi: int | None = None) -> None:
        self.scope.assume(ops.ge(expr, max(lo or 0, 0)), site_hook())
        if hi is not None:
            self.scope.assume(ops.le(expr, hi), site_hook())


class SymNode:
    """What PyTorch calls a SymNode: an expression in a scope. Immutable; `expr` is hash-consed, so compare `a.expr is b.expr`."""

    __slots__ = ("scope", "expr", "__weakref__")

    def __init__(self, scope: Scope, expr: Expr) -> None:
        self.scope = scope
        self.expr = expr

    # what it is ------------------------------------------------------------------
    def is_int(self) -> bool:
        return self.expr.kind is int

    def is_float(self) -> bool:
        return self.expr.kind is float

    def is_bool(self) -> bool:
        return self.expr.kind is bool

    @property
    def pytype(self) -> type:
        return self.expr.kind

    #: PyTorch would answer some questions from this without recording anything: it never gets one.
    _hint = None

    @property
    def hint(self) -> Number | None:
        return self.expr.hint if self.scope.values is None else self.scope.optimization_hint(self.expr)

    @property
    def shape_env(self) -> Answers:
        return Answers(self.scope)

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def nested_int_coeff(self) -> None:
        return None

    def is_constant(self) -> bool:
        # PyTorch's Python side unwraps constant ints and bools, but asserts on constant floats.
        return self.expr.const is not None and self.expr.kind is not float

    def is_symbolic(self) -> bool:
        return self.expr.const is None

    def constant_int(self) -> int | None:
        return self.expr.const if self.expr.kind is int else None

    def constant_bool(self) -> bool | None:
        return self.expr.const if self.expr.kind is bool else None

    def maybe_as_float(self) -> float | None:
        return self.expr.const if self.expr.kind is float else None

    maybe_as_int, maybe_as_bool = constant_int, constant_bool

    def has_hint(self) -> bool:
        return self.expr.backed

    def wrap_int(self, n: int) -> SymNode:
        return SymNode(self.scope, self.expr.ctx.lift(int(n)))

    def wrap_float(self, n: float) -> SymNode:
        return SymNode(self.scope, self.expr.ctx.lift(float(n)))

    def wrap_bool(self, n: bool) -> SymNode:
        return SymNode(self.scope, self.expr.ctx.lift(bool(n)))

    def clone(self) -> SymNode:
        return self

    def str(self) -> builtins.str:
        return str(self.expr)

    def _graph_repr(self) -> builtins.str:
        return str(self.expr)

    def __repr__(self) -> builtins.str:
        return f"SymNode({self.expr})"

    # decisions -------------------------------------------------------------------
    def guard_int(self, file: builtins.str = "", line: int = 0) -> int:
        """The number, pinned: from here on the expression is a constant (a guard is recorded)."""
        c = self.expr.const
        return c if c is not None else int(self.pinned())

    def guard_float(self, file: builtins.str = "", line: int = 0) -> float:
        c = self.expr.const
        return c if c is not None else float(self.pinned())

    def pinned(self) -> Number:
        try:
            return self.scope.specialize(self.expr, site_hook())
        except DataDependent as e:
            e.node = current_node()
            raise

    def guard_bool(self, file: builtins.str = "", line: int = 0) -> bool:
        c = self.expr.const
        if c is not None:
            return bool(c)
        return layout.agree(self.scope, self.expr, site_hook()) or self.decide(layout.Framework.depth > 0)

    def decide(self, short_cut: bool) -> bool:
        """The answer to a question, which may be about a short cut."""
        cond = truth(self.expr)
        try:
            if short_cut and (not cond.backed or ((layout.Framework.metadata or layout.Framework.swept) and layout.is_declared(cond))):
                return layout.general(self.scope, cond, site_hook())
            if short_cut and layout.is_open(cond):
                return layout.on_open(self.scope, cond, site_hook())
            return self.scope.decide(cond, site_hook())
        except DataDependent as e:
            e.node = current_node()
            raise

    def int_(self) -> int:
        return self.guard_int()

    def bool_(self) -> bool:
        """What Python's `bool` asks, be it the program's or `torch.nn.functional`'s: an exception may hang on it, so it is no short cut."""
        c = self.expr.const
        return bool(c) if c is not None else self.decide(layout.Framework.metadata > 0)

    def guard_or_false(self, file: builtins.str = "", line: int = 0) -> bool:
        c = self.expr.const
        if c is not None:
            return bool(c)
        return not layout.settled(self.scope, self.expr, file) and layout.ask(self.scope, self.expr, site_hook())

    def guard_or_true(self, file: builtins.str = "", line: int = 0) -> bool:
        c = self.expr.const
        return bool(c) if c is not None else not layout.ask(self.scope, ops.not_(self.expr), site_hook())

    guard_size_oblivious = guard_or_false

    def expect_true(self, file: builtins.str = "", line: int = 0) -> bool:
        c = self.expr.const
        return bool(c) if c is not None else self.scope.assume(self.expr, site_hook())

    expect_size = expect_true

    def statically_known_true(self, file: builtins.str = "", line: int = 0) -> bool:
        return layout.known(self.scope, self.expr, site_hook(), file)

    # layout questions: the answers are constants, the scope has recorded what they rest on -----------
    def is_contiguous(self, sizes: list[SymNode], strides: list[SymNode]) -> SymNode:
        return self.wrap_bool(layout.is_contiguous(self.scope, exprs(sizes), exprs(strides), site_hook()))

    def is_channels_last_contiguous_2d(self, sizes: list[SymNode], strides: list[SymNode]) -> SymNode:
        return self.wrap_bool(layout.is_channels_last(self.scope, exprs(sizes), exprs(strides), 4, site_hook()))

    def is_channels_last_contiguous_3d(self, sizes: list[SymNode], strides: list[SymNode]) -> SymNode:
        return self.wrap_bool(layout.is_channels_last(self.scope, exprs(sizes), exprs(strides), 5, site_hook()))

    def is_channels_last_strides_2d(self, sizes: list[SymNode], strides: list[SymNode]) -> SymNode:
        return self.wrap_bool(layout.has_channels_last_strides(self.scope, exprs(sizes), exprs(strides), 4, site_hook()))

    def is_channels_last_strides_3d(self, sizes: list[SymNode], strides: list[SymNode]) -> SymNode:
        return self.wrap_bool(layout.has_channels_last_strides(self.scope, exprs(sizes), exprs(strides), 5, site_hook()))

    def is_non_overlapping_and_dense(self, sizes: list[SymNode], strides: list[SymNode]) -> SymNode:
        return self.wrap_bool(layout.is_non_overlapping_and_dense(self.scope, exprs(sizes), exprs(strides), site_hook()))

    def is_non_overlapping_and_dense_indicator(self, sizes: list[SymNode], strides: list[SymNode]) -> SymNode:
        return self.wrap_int(int(layout.is_non_overlapping_and_dense(self.scope, exprs(sizes), exprs(strides), site_hook())))

    # odd shapes ------------------------------------------------------------------
    def sym_sum(self, args: tuple[SymNode, ...]) -> SymNode:
        return SymNode(self.scope, ops.sum_([a.expr for a in args]))

    def sym_ite(self, then: SymNode, other: SymNode) -> SymNode:
        return SymNode(self.scope, ops.where(truth(self.expr), then.expr, other.expr))

    def round(self, ndigits: int | None = None) -> SymNode:
        if self.expr.kind is int and (ndigits is None or ndigits >= 0):
            return self
        if ndigits is None:
            becomes_whole(self)
            return SymNode(self.scope, ops.round_(self.expr))
        value = self.guard_float() if self.is_float() else self.guard_int()
        return SymNode(self.scope, self.expr.ctx.lift(round(value, ndigits)))

    def is_integer(self) -> SymNode:
        if self.expr.kind is not float:
            return self.wrap_bool(True)
        return SymNode(self.scope, ops.eq(ops.to_float(ops.floor(self.expr)), self.expr))

    def pow(self, other: SymNode) -> SymNode:
        """Python's `**`. The kind of the result of ints depends on the exponent's sign, so that is decided first."""
        a, b = number(self.expr), number(other.expr)
        if a.kind is int and b.kind is int:
            if not layout.ask(self.scope, ops.ge(b, 0), site_hook()):
                a, b = in_float(self.scope, a), in_float(self.scope, b)
            else:
                try:
                    return SymNode(self.scope, ops.pow_(a, b))
                except ValueError:  # the sign is known to the scope only
                    b = b.ctx.lift(SymNode(self.scope, b).guard_int())
        elif a.kind is not b.kind:
            a, b = in_float(self.scope, a), in_float(self.scope, b)
        return SymNode(self.scope, ops.pow_(a, b))

    def lshift(self, other: SymNode) -> SymNode:
        return self.shift(ops.lshift, other)

    def rshift(self, other: SymNode) -> SymNode:
        return self.shift(ops.rshift, other)

    def shift(self, op: Callable[[Expr, Expr], Expr], other: SymNode) -> SymNode:
        b = number(other.expr)
        if not self.scope.assume(ops.ge(b, 0), site_hook(), NEGATIVE_SHIFT, ValueError):
            raise ValueError(NEGATIVE_SHIFT)
        return SymNode(self.scope, op(number(self.expr), b))


NEGATIVE_SHIFT = "negative shift count"

#: PyTorch's meta functions look for *their* unbacked symbols under this name; ours are found in other ways.
Expr.free_symbols = property(lambda self: frozenset())  # type: ignore[attr-defined]


def exprs(nodes: list[SymNode]) -> list[Expr]:
    return [n.expr for n in nodes]


def number(e: Expr) -> Expr:
    """`e` as a number: Python's True is 1."""
    return ops.to_int(e) if e.kind is bool else e


def truth(e: Expr) -> Expr:
    """`e` as a truth value: Python's 3 is True."""
    return e if e.kind is bool else ops.ne(e, 0)


def real(e: Expr) -> Expr:
    return e if e.kind is float else ops.to_float(number(e))


TOO_LARGE = "int too large to convert to float"
QUOTIENT_TOO_LARGE = "integer division result too large for a float"


def in_float(scope: Scope, e: Expr) -> Expr:
    """`float(e)`. That an integer is not too large for one is an assertion: Python raises otherwise, whoever reads the float."""
    e = number(e)
    if e.kind is int and bits(e) >= OF_A_FLOAT and not scope.assume(ops.le(ops.abs_(e), LARGEST), site_hook(), TOO_LARGE, OverflowError):
        raise OverflowError(TOO_LARGE)
    return real(e)


def quotient(scope: Scope, a: Expr, b: Expr) -> Expr:
    """A quotient of integers, which are divided before they are rounded."""
    if bits(a) >= OF_A_FLOAT:
        fits = ops.le(ops.abs_(a), ops.mul(ops.abs_(b), LARGEST))
        if not scope.assume(fits, site_hook(), QUOTIENT_TOO_LARGE, OverflowError):
            raise OverflowError(QUOTIENT_TOO_LARGE)
    return ops.truediv(a, b)


def arithmetic(op: Callable[[Expr, Expr], Expr]) -> Callable[[SymNode, SymNode], SymNode]:
    """An operator on two numbers, after Python's promotion. (Expressions' own operators are quickest: they look themselves up first.)"""

    def method(self: SymNode, other: SymNode) -> SymNode:
        a, b = self.expr, other.expr
        kind = a.kind
        if kind is not b.kind or kind is bool:
            a, b = number(a), number(b)
            if a.kind is not b.kind:
                a, b = in_float(self.scope, a), in_float(self.scope, b)
        return SymNode(self.scope, op(a, b))

    return method


EXACT = 53.0
"""Bits up to which every integer is a float."""


EQUALITY = (operator.eq, operator.ne)


def comparison(op: Callable[[Expr, Expr], Expr]) -> Callable[[SymNode, SymNode], SymNode]:
    """Python compares an integer with a float as they are: two that are the same float are told apart by what was rounded away. What is
    less as a float is less."""

    def method(self: SymNode, other: SymNode) -> SymNode:
        a, b = number(self.expr), number(other.expr)
        if a.kind is b.kind or not rounds(*(a, b) if a.kind is int else (b, a)):
            return compared(self, other)
        if b.kind is int:
            return MIRRORED[op](other, self)
        x = in_float(self.scope, a)
        same, whole = ops.eq(x, b), ops.trunc(x)
        if op in EQUALITY:
            equal = ops.and_(same, ops.eq(a, whole))
            return SymNode(self.scope, equal if op is EQUALITY[0] else ops.not_(equal))
        return SymNode(self.scope, ops.or_(ops.and_(same, op(a, whole)), ops.and_(ops.ne(x, b), op(x, b))))

    compared = arithmetic(op)
    return method


def rounds(whole: Expr, real: Expr) -> bool:
    """Whether this integer may be none of the floats, where this float is compared with it. Sizes of memory are smaller."""
    if real.const is not None and abs(real.const) < 2**53 or bits(whole) <= EXACT:
        return False
    return whole.const is not None or any([not s.info.size_like for s in whole.symbols()])


def words_of(divide: Callable[[Any, Any], Any], zero: Any) -> str:
    """What CPython says of a division by this zero, which is not the same in all versions."""
    try:
        divide(zero, zero)
    except ZeroDivisionError as e:
        return str(e)
    raise AssertionError("a division by zero")


def is_no_zero(scope: Scope, divisor: Expr, divide: Callable[[Any, Any], Any]) -> None:
    """An irrefutable guard, since Python would have raised."""
    if not divisor.const:
        zero = 0 if divisor.kind is int else 0.0
        words = words_of(divide, zero)
        if divisor.const is not None or not scope.assume(ops.ne(divisor, 0), site_hook(), words, ZeroDivisionError):
            raise ZeroDivisionError(words)


def divided_at_once(scope: Scope, a: Any, b: Any) -> None:
    """`divmod(a, b)` is about to be a quotient and a remainder: the words for a zero are its own."""
    x, y = number(expr_of(a, scope)), number(expr_of(b, scope))
    is_no_zero(scope, y if x.kind is y.kind else in_float(scope, y), divmod)


def division(
    op: Callable[[Expr, Expr], Expr], divide: Callable[[Any, Any], Any], real_only: bool = False
) -> Callable[[SymNode, SymNode], SymNode]:  # fmt: skip
    """A division: the divisor is not zero, or Python would have raised. C++ code would not, of floats."""

    def method(self: SymNode, other: SymNode) -> SymNode:
        a, b = number(self.expr), number(other.expr)
        if real_only or a.kind is not b.kind:
            a, b = in_float(self.scope, a), in_float(self.scope, b)
        if layout.Framework.metadata and b.kind is int and b.const is None and (not b.backed or layout.is_declared(b)):
            if not self.scope.known_true(ops.ne(b, 0)):
                b = ops.where(ops.eq(b, 0), 1, b)  # nobody will look at sizes worked out from those of nothing
        elif layout.Framework.depth and b.kind is float and not self.scope.known_true(ops.ne(b, 0.0)):
            zero = ops.eq(b, 0.0)
            return SymNode(self.scope, ops.where(zero, a * math.inf, op(a, ops.where(zero, 1.0, b))))  # as IEEE 754 has it
        else:
            is_no_zero(self.scope, b, divide)
        return SymNode(self.scope, quotient(self.scope, a, b) if op is ops.truediv and a.kind is int else op(a, b))

    return method


def real_arithmetic(op: Callable[[Expr, Expr], Expr]) -> Callable[[SymNode, SymNode], SymNode]:
    def method(self: SymNode, other: SymNode) -> SymNode:
        return SymNode(self.scope, op(in_float(self.scope, self.expr), in_float(self.scope, other.expr)))

    return method


def logical(on_bools: Callable[[Expr, Expr], Expr], on_ints: Callable[[Expr, Expr], Expr]) -> Callable[[SymNode, SymNode], SymNode]:
    def method(self: SymNode, other: SymNode) -> SymNode:
        a, b = self.expr, other.expr
        if a.kind is bool and b.kind is bool:
            return SymNode(self.scope, on_bools(a, b))
        return SymNode(self.scope, on_ints(number(a), number(b)))

    return method


def of_float(op: Callable[[Expr], Expr]) -> Callable[[SymNode], SymNode]:
    def method(self: SymNode) -> SymNode:
        return SymNode(self.scope, op(in_float(self.scope, self.expr)))

    return method


def unary(op: Callable[[Expr], Expr], of: Callable[[Expr], Expr] = number) -> Callable[[SymNode], SymNode]:
    def method(self: SymNode) -> SymNode:
        return SymNode(self.scope, op(of(self.expr)))

    return method


NOT_WHOLE: tuple[tuple[Callable[[Expr], Any], str, type[Exception]], ...] = (
    (lambda e: ops.eq(e, e), "cannot convert float NaN to integer", ValueError),
    (lambda e: ops.lt(ops.abs_(e), math.inf), "cannot convert float infinity to integer", OverflowError),
)
"""What holds of a float that is made an integer: Python raises otherwise, whoever reads the integer."""


def to_integer(op: Callable[[Expr], Expr]) -> Callable[[SymNode], SymNode]:
    def method(self: SymNode) -> SymNode:
        if self.expr.kind is not float:
            return SymNode(self.scope, number(self.expr))
        becomes_whole(self)
        return SymNode(self.scope, op(self.expr))

    return method


def becomes_whole(node: SymNode) -> None:
    for holds, words, error in NOT_WHOLE:
        if not node.scope.assume(holds(node.expr), site_hook(), words, error):
            raise error(words)


def xor_bool(a: Expr, b: Expr) -> Expr:
    return ops.ne(ops.to_int(a), ops.to_int(b))


MATH = ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")

#: Every method that is one operator. PyTorch has several names for some of them.
METHODS: dict[str, Callable[..., SymNode]] = {
    "add": arithmetic(operator.add),
    "sub": arithmetic(operator.sub),
    "mul": arithmetic(operator.mul),
    "floordiv": division(ops.floordiv, operator.floordiv),
    "int_floordiv": division(ops.floordiv, operator.floordiv),
    "mod": division(ops.mod, operator.mod),
    "truediv": division(ops.truediv, operator.truediv, real_only=True),
    "float_truediv": division(ops.truediv, operator.truediv, real_only=True),
    "int_truediv": division(ops.truediv, operator.truediv),
    "pow_by_natural": SymNode.pow,
    "float_pow": real_arithmetic(ops.pow_),
    "eq": comparison(operator.eq),
    "ne": comparison(operator.ne),
    "lt": comparison(operator.lt),
    "le": comparison(operator.le),
    "gt": comparison(operator.gt),
    "ge": comparison(operator.ge),
    "sym_min": arithmetic(ops.min_),
    "sym_max": arithmetic(ops.max_),
    "and_": logical(ops.and_, ops.bit_and),
    "or_": logical(ops.or_, ops.bit_or),
    "sym_and": logical(ops.and_, ops.bit_and),
    "sym_or": logical(ops.or_, ops.bit_or),
    "bitwise_and": logical(ops.and_, ops.bit_and),
    "bitwise_or": logical(ops.or_, ops.bit_or),
    "bitwise_xor": logical(xor_bool, ops.bit_xor),
    "sym_not": unary(ops.not_, truth),
    "neg": unary(ops.neg),
    "pos": unary(lambda e: e),
    "abs": unary(ops.abs_),
    "sym_float": of_float(lambda e: e),
    "sym_int": to_integer(ops.trunc),
    "trunc": to_integer(ops.trunc),
    "floor": to_integer(ops.floor),
    "ceil": to_integer(ops.ceil),
    **{f"sym_{n}": of_float(ops.DOORS[n]) for n in MATH},
}
MIRRORED = {
    getattr(operator, n): METHODS[other] for n, other in {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.items()
}
"""Of a comparison, the one with its sides exchanged."""
for _name, _method in METHODS.items():
    setattr(SymNode, _name, _method)


# conversions -------------------------------------------------------------------
def to_sym(scope: Scope, expr: Expr) -> Any:
    """The Python number when `expr` is a constant, else the `torch.SymInt/SymFloat/SymBool`."""
    c = expr.const
    if c is not None:
        return c
    kind = expr.kind
    if kind is int:
        return torch.SymInt(SymNode(scope, expr))
    return (torch.SymFloat if kind is float else torch.SymBool)(SymNode(scope, expr))


def expr_of(value: Any, scope: Scope) -> Expr:
    """The expression of a Python number or of one of our symbolic numbers. TypeError for anything else."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        node = value.node
        if type(node) is SymNode:
            return node.expr
        value = node.maybe_as_int() if node.is_int() else None
    if isinstance(value, (bool, int, float)):
        return scope.ctx.lift(value)
    raise TypeError(f"{type(value).__name__} is not a number of this capture")


def concrete(value: Any) -> Number:
    """The number behind one of our symbolic numbers, pinned with a guard; other values as they are."""
    if type(value) is torch.SymInt:
        return value.node.guard_int()
    if type(value) is torch.SymFloat:
        return value.node.guard_float()
    if type(value) is torch.SymBool:
        return value.node.guard_bool()
    return value
