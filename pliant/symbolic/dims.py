"""Declared dimensions: what a user promises of a size, and what happens when the program needs more than that.

    batch = Dim("batch", min=1, max=4096, multiple_of=8)
    length = Dim("length");  doubled = 2 * length + 1          # derived: both are tied to one symbol

A promise becomes the declared range of a symbol, so 0 and 1 are not specialized unless the range is just that. If the program
nevertheless specializes a declared dim or narrows it, `check` raises `ConstraintViolation` with the line and the fix.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pliant.errors import ConstraintViolation
from pliant.symbolic.expr import Expr
from pliant.symbolic.prover import FULL, Prover
from pliant.symbolic.scope import Scope, SymGuard


@dataclass(frozen=True, slots=True)
class Dim:
    """A named size in [min, max], a multiple of `multiple_of`. Arithmetic with ints gives a derived dim."""

    name: str
    min: int = 0
    max: int | None = None
    multiple_of: int = 1

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"a Dim's name is an identifier, not {self.name!r}")
        if self.min < 0 or (self.max is not None and self.max < self.min) or self.multiple_of < 1:
            raise ValueError(f"{self!r}: 0 <= min <= max and multiple_of >= 1 must hold")

    def __mul__(self, k: int) -> Derived:
        return Derived(self, k, 0)

    __rmul__ = __mul__

    def __add__(self, k: int) -> Derived:
        return Derived(self, 1, k)

    __radd__ = __add__

    def __sub__(self, k: int) -> Derived:
        return Derived(self, 1, -k)

    def allows(self, n: int) -> bool:
        return self.min <= n and (self.max is None or n <= self.max) and n % self.multiple_of == 0

    def __str__(self) -> str:
        extra = [f"min={self.min}"] * (self.min > 0) + [f"max={self.max}"] * (self.max is not None)
        extra += [f"multiple_of={self.multiple_of}"] * (self.multiple_of > 1)
        return f"Dim({', '.join([repr(self.name), *extra])})"


@dataclass(frozen=True, slots=True)
class Derived:
    """`scale * base + offset`, scale > 0: a size that follows a declared one."""

    base: Dim
    scale: int
    offset: int

    def __post_init__(self) -> None:
        if type(self.scale) is not int or type(self.offset) is not int or self.scale < 1:
            raise ValueError("a derived dim is k*dim + c with whole k >= 1 and c")

    def __mul__(self, k: int) -> Derived:
        return Derived(self.base, self.scale * k, self.offset * k)

    __rmul__ = __mul__

    def __add__(self, k: int) -> Derived:
        return Derived(self.base, self.scale, self.offset + k)

    __radd__ = __add__

    def __sub__(self, k: int) -> Derived:
        return self + -k

    def solve(self, n: int) -> int | None:
        """The base's value for which this is n; None if there is none."""
        v, rest = divmod(n - self.offset, self.scale)
        return v if rest == 0 and self.base.allows(v) else None

    def __str__(self) -> str:
        offset = f" {'+' if self.offset > 0 else '-'} {abs(self.offset)}" if self.offset else ""
        return (f"{self.scale}*" if self.scale != 1 else "") + self.base.name + offset


def declare(scope: Scope, dim: Dim | Derived, hint: int, source: Any, site: Any = None) -> Expr:
    """The expression of a size declared as `dim`, whose value in this call is `hint`.

    One symbol for each base dim of a scope, read at the source of its first use; later uses are guarded to agree with it.
    Raises `ConstraintViolation` if the hint breaks the promise.
    """
    base, value = (dim.base, dim.solve(hint)) if isinstance(dim, Derived) else (dim, hint if dim.allows(hint) else None)
    if value is None:
        raise ConstraintViolation(f"size {hint} at {source} does not fit {dim} ({base}). Pass an example that fits, or widen the Dim.")
    known = scope.symbols.get(base.name)
    if known is not None and known.info.dim is not base and known.info.dim != base:
        raise ConstraintViolation(f"two different Dims are named {base.name!r}: {known.info.dim} and {base}")
    if isinstance(dim, Derived) or known is not None:
        return _tied(scope, dim, base, known, value, hint, source, site)
    s = scope.backed(base.name, hint=value, lo=base.min, hi=base.max, source=source, size_like=True, dim=base)
    if base.multiple_of > 1:
        scope.require(s % base.multiple_of == 0, site, "declared")
    return s


def _tied(scope: Scope, dim: Dim | Derived, base: Dim, known: Expr | None, value: int, hint: int, source: Any, site: Any) -> Expr:
    """A size read at its own source, and the guard that ties it to the base's symbol."""
    count = sum(1 for n in scope.symbols if n.startswith(f"{base.name}_"))
    if known is None:
        own = scope.backed(f"{base.name}_{count}", hint=hint, source=source, size_like=True)
        scope.require(own >= (dim.scale * base.min + dim.offset if isinstance(dim, Derived) else base.min), site, "declared")
        if isinstance(dim, Derived):  # the base itself is never read: it is what solves the equation
            if dim.scale > 1:
                scope.require((own - dim.offset) % dim.scale == 0, site, "declared")
            if base.max is not None:
                scope.require(own <= dim.scale * base.max + dim.offset, site, "declared")
        return own
    if known.hint != value:
        raise ConstraintViolation(
            f"size {hint} at {source} is declared {dim}, but {base.name} is {known.hint} at {known.info.source}: they must agree."
        )
    own = scope.backed(f"{base.name}_{count}", hint=hint, source=source, size_like=True)
    expected = known * dim.scale + dim.offset if isinstance(dim, Derived) else known
    scope.require(own == expected, site, "declared")
    return scope.simplify(own)


def check(scope: Scope, sites: Iterable[SymGuard] | None = None) -> None:
    """Raise `ConstraintViolation` if a decided guard excludes sizes that a declared dim allows.

    A guard is no violation if the declarations imply it. Guards that involve undeclared symbols are not the user's promise.
    """
    declared = {s for s in scope.symbols.values() if s.info.dim is not None}
    if not declared:
        return
    promises = Prover()
    for g in scope.guards:
        if g.why == "declared":
            promises.learn(g.expr)
    problems = []
    for g in scope.guards if sites is None else sites:
        symbols = g.expr.symbols()
        if g.why != "declared" and symbols and all(s in declared for s in symbols) and promises.prove(g.expr, FULL) is not True:
            problems.append(_explain(g, symbols))
    if problems:
        raise ConstraintViolation("the program does not work for all sizes that were declared dynamic:\n" + "\n".join(problems))


def _explain(g: SymGuard, symbols: tuple[Expr, ...]) -> str:
    """The line, the relation that it needs, and the fix."""
    dims = ", ".join(str(s.info.dim) for s in symbols)
    where = f"{g.site}" if g.site is not None else "unknown line"
    return f"  - {where} needs `{g.user_form}`, but {dims} allows more.\n    Fix: {suggest(g.expr, symbols)}"


def suggest(c: Expr, symbols: tuple[Expr, ...]) -> str:
    """What to declare instead."""
    if len(symbols) == 1:
        s = symbols[0]
        p = c.args[0] if c.args else c
        k = next((x for m, x in p.terms if len(m) == 1 and m[0] is s), None) if p.kind is int else None
        constant = p.terms[-1][1] if p.kind is int and p.terms and not p.terms[-1][0] else 0
        if k is not None and abs(k) == 1 and all(not m or (len(m) == 1 and m[0] is s) for m, _ in p.terms):
            if c.op == "eq":
                return f"mark it static (its size is always {-constant * k}), or remove what pins it"
            if c.op == "ge":
                return f"Dim({s.name!r}, min={-constant})" if k > 0 else f"Dim({s.name!r}, max={constant})"
        atom = p.terms[0][0][0] if p.kind is int and p.terms and len(p.terms[0][0]) == 1 else None
        if c.op == "eq" and atom is not None and atom.op == "mod" and atom.args[0] is s and constant == 0 and atom.args[1].const:
            return f"Dim({s.name!r}, multiple_of={atom.args[1].const})"
    elif c.op == "eq":
        return "declare the two with one Dim, or one as derived from the other (`2*s + 1`)"
    return "narrow the Dim, or change the line so that it holds for all declared sizes"
