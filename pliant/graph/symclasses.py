"""What `torch.SymInt`, `torch.SymFloat` and `torch.SymBool` lack, for our nodes.

The methods below are added to PyTorch's classes when this module is imported; what another system's node did before, it still
does. They make dict keys, `format`, `divmod` and the like record what they rest on, where PyTorch raises TypeError or prints a symbol.
"""

from __future__ import annotations

import decimal
import fractions
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pliant.graph.originals import numpy, operator
from pliant.graph.symnode import METHODS, SymNode, concrete, expr_of, number, to_sym
from pliant.graph.traced import Printing
from pliant.symbolic import ops
from pliant.symbolic.magnitude import OF_A_FLOAT, bits


@contextmanager
def quiet() -> Iterator[None]:
    """While inside, printing a symbolic number shows the symbol and pins nothing: for logs, messages and PyTorch's own Python code."""
    Printing.library += 1
    try:
        yield
    finally:
        Printing.library -= 1


MOST_DIGITS = 15  # twice what is left of a number fits into 64 bits


def pinned(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A method that needs the number itself."""

    def method(self: Any, *args: Any) -> Any:
        return fn(concrete(self), *map(concrete, args))

    return method


OF_SHARDINGS = "torch.distributed.tensor."


def hashed(self: Any) -> int:
    """The hash of the number, except for PyTorch's propagation of shardings, which keeps nothing of symbolic sizes if they have none."""
    if str(sys._getframe(2).f_globals.get("__name__")).startswith(OF_SHARDINGS):
        raise TypeError("unhashable type: a symbolic size")
    return hash(concrete(self))


def shown(self: Any) -> Any:
    return repr(concrete(self)) if Printing.recording and not Printing.library else str(self.node.expr)


def int_divmod(self: Any, other: Any) -> Any:
    return (self // other, self % other)


def int_rdivmod(self: Any, other: Any) -> Any:
    return (other // self, other % self)


def rounded(self: Any, ndigits: Any = None) -> Any:
    """To tens, hundreds and so on: half to even, and exact."""
    if ndigits is not None and type(ndigits) not in (int, bool, torch.SymInt):
        given: Any = concrete(ndigits)
        return round(concrete(self), given)  # which says what is no integer
    if ndigits is None or ndigits >= 0:
        return self
    if type(ndigits) is not int or ndigits < -MOST_DIGITS:
        digits: Any = concrete(ndigits)
        return round(concrete(self), digits)
    unit = 10**-ndigits
    whole = self // unit
    up = (self - whole * unit) * 2 + whole % 2 > unit  # the unit is even
    return (whole + (choose(up, 1, 0) if type(up) is torch.SymBool else int(up))) * unit


def floor_division(turned: bool) -> Callable[..., Any]:
    """`//`, which of floats is not the floor of the quotient (`1.0 // 0.1` is 9.0, and `0.0 // -2` is -0.0)."""

    def method(self: Any, other: Any) -> Any:
        if type(other) in NUMBERS:
            scope = self.node.scope
            nodes = self.node, SymNode(scope, expr_of(other, scope))
            return to_sym(scope, METHODS["floordiv"](*(nodes[::-1] if turned else nodes)).expr)
        if not isinstance(other, (int, float)) or hasattr(other, "dtype"):
            return NotImplemented
        return other // concrete(self) if turned else concrete(self) // other

    return method


NUMBERS = frozenset({int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool})


def as_int(self: Any) -> Any:
    return to_sym(self.node.scope, number(self.node.expr))


def choose(self: Any, then: Any, other: Any) -> Any:
    scope = self.node.scope
    return to_sym(scope, ops.where(self.node.expr, expr_of(then, scope), expr_of(other, scope)))


def through_int(name: str) -> Callable[..., Any]:
    """An operator on a symbolic bool: Python's True is 1."""

    def method(self: Any, other: Any) -> Any:
        if isinstance(other, torch.Tensor):
            return NotImplemented  # its own operator takes the number as it is
        mine = as_int(self) if type(other) in NUMBERS else concrete(self)
        own = getattr(type(mine), name, None)
        return NotImplemented if own is None else own(mine, as_int(other) if type(other) is torch.SymBool else other)

    return method


EXTRA: dict[type, dict[str, Callable[..., Any]]] = {
    torch.SymInt: {
        "__hash__": hashed,
        "__format__": pinned(format),
        "__repr__": shown,
        "__floordiv__": floor_division(False),
        "__rfloordiv__": floor_division(True),
        "__divmod__": int_divmod,
        "__rdivmod__": int_rdivmod,
        "__round__": rounded,
        "__invert__": lambda self: -self - 1,
        "__float__": pinned(float),
        "__complex__": pinned(complex),
        "bit_count": pinned(int.bit_count),
        "to_bytes": pinned(int.to_bytes),
    },
    torch.SymFloat: {
        "__format__": pinned(format),
        "__repr__": shown,
        "__floordiv__": floor_division(False),
        "__rfloordiv__": floor_division(True),
        "__divmod__": pinned(divmod),
        "__rdivmod__": pinned(lambda a, b: divmod(b, a)),
        "__complex__": pinned(complex),
    },
    torch.SymBool: {
        "__format__": pinned(format),
        "__repr__": shown,
        "__sym_ite__": choose,
        "__index__": pinned(int),
        "__float__": pinned(float),
        **{
            f"__{n}__": through_int(f"__{n}__")
            for n in "lt le gt ge add radd sub rsub mul rmul mod floordiv truediv pow lshift rshift xor".split()
        },
    },
}


COMPARISONS = "eq ne lt le gt ge".split()
ARITHMETIC = (
    "add radd sub rsub mul rmul floordiv rfloordiv mod rmod truediv rtruediv pow rpow and rand or ror xor rxor"
    " lshift rlshift rshift rrshift"
).split()
OF_NUMBERS = frozenset("add radd sub rsub mul rmul".split())
BEHIND_SCALARS = -1000.0
"""NumPy's scalars, of a million less, leave an operator to a number of this priority; arrays, of zero, do not."""
OTHER_NUMBERS = (int, float, decimal.Decimal, fractions.Fraction, numpy.number, numpy.bool_)
USUAL = {int, float, bool, complex, torch.SymInt, torch.SymFloat, torch.SymBool, type(None), str}


def beside_subclasses(name: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    """An operator that knows members of an `IntEnum`, fractions, decimals and other numbers of a class: the number itself is beside them.

    C code that compares items of a list comes here. PyTorch's operator does not know them: they would be equal to none.
    """
    own, from_right = getattr(operator, name, None) or getattr(operator, name + "_", None), name[0] == "r" and name[1:] in ARITHMETIC
    if own is None:
        own = getattr(operator, name[1:], None) or getattr(operator, name[1:] + "_")

    compares = name in COMPARISONS

    def method(self: Any, other: Any) -> Any:
        if type(self.node) is not SymNode:
            return theirs(self, other)
        if type(other) is torch.SymBool and type(self) is not torch.SymBool and name in OF_NUMBERS:
            return theirs(self, as_int(other))
        if type(other) in USUAL:
            if compares and {type(self), type(other)} in MIXED:
                return mixed(name, own, self, other)
            return theirs(self, other)
        if not isinstance(other, OTHER_NUMBERS):
            return theirs(self, other)
        return own(other, concrete(self)) if from_right else own(concrete(self), other)

    method.__name__ = method.__qualname__ = f"__{name}__"
    return method


MIXED: tuple[set, ...] = ({torch.SymInt, float}, {torch.SymInt, torch.SymFloat}, {int, torch.SymFloat})


def mixed(name: str, own: Callable[..., Any], a: Any, b: Any) -> Any:
    """An integer compared with a float, as they are; also where the integer may be too large for a float."""
    scope = a.node.scope
    nodes = [SymNode(scope, expr_of(v, scope)) for v in (a, b)]
    if any([n.expr.kind is int and bits(n.expr) >= OF_A_FLOAT for n in nodes]):
        return own(concrete(a), concrete(b))
    return to_sym(scope, METHODS[name](*nodes).expr)


def install() -> None:
    """Add `EXTRA` to PyTorch's classes; foreign nodes keep their behaviour."""
    for whole in (torch.SymInt, torch.SymBool):  # decimals ask for them, as of every rational number
        setattr(whole, "numerator", property(lambda self: int(concrete(self))))  # noqa: B010
        setattr(whole, "denominator", property(lambda self: 1))  # noqa: B010
    for cls, methods in EXTRA.items():
        for name, ours in methods.items():
            setattr(cls, name, guarded(name, ours, getattr(cls, name, None)))
    for kind in (torch.SymInt, torch.SymFloat, torch.SymBool):
        for name in COMPARISONS + ARITHMETIC:
            theirs = getattr(kind, f"__{name}__", says_nothing)
            setattr(kind, f"__{name}__", beside_subclasses(name, theirs))
        setattr(kind, "__array_priority__", property(priority))  # noqa: B010


def says_nothing(self: Any, other: Any) -> Any:
    return NotImplemented


def priority(self: Any) -> float:
    if type(self.node) is not SymNode:
        raise AttributeError("__array_priority__")
    return BEHIND_SCALARS


def guarded(name: str, ours: Callable[..., Any], theirs: Any) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        if type(self.node) is SymNode:
            return ours(self, *args)
        if theirs is None:
            return NotImplemented
        return theirs(self, *args)

    method.__name__ = method.__qualname__ = name
    return method


install()
