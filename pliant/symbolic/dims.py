"""Declared dimensions: what a user promises of a size, and what happens when the program needs more than that.

    batch = Dim("batch", min=1, max=4096, multiple_of=8)
    length = Dim("length");  doubled = 2 * length + 1          # derived: both are tied to one symbol

A promise becomes the declared range of a symbol, so 0 and 1 are not specialized unless the range is just that. If the program
nevertheless specializes a declared dim or narrows it, `check` raises `ConstraintViolation` with the line and the fix.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pliant.errors import ConstraintViolation
from pliant.symbolic.expr import Expr
from pliant.symbolic.prover import FULL, Prover
from pliant.symbolic.scope import Scope, SymGuard


class Mark(enum.Enum):
    """What may be said of a size without naming it."""

    STATIC = "static"  # its number is part of what is compiled
    MAYBE = "maybe dynamic"  # symbolic, 0 and 1 too, until the program specializes it
    DYNAMIC = "dynamic"  # likewise, and it is an error if the program pins it to one number; sizes may turn out to be equal
    UNBACKED = "unbacked"  # no decision of the program may look at it


@dataclass(frozen=True, slots=True)
class Dim:
    """A named size in [min, max], a multiple of `multiple_of`. Arithmetic with ints gives a derived dim."""

    name: str
    min: int = 0
    max: int | None = None
    multiple_of: int = 1

    def __post_init__(self) -> None:
        numbers = [self.min, self.multiple_of, *([self.max] if self.max is not None else [])]
        if type(self.name) is not str or any(type(n) is not int for n in numbers):
            raise TypeError(f"Dim(name, min=, max=, multiple_of=) is a text and whole numbers, not {self!r}")
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


OPEN = Dim("open")
"""The promise of an export for every size that nobody has named: the program looks for a way that is right for all of them, and where it
needs one value all the same, so be it."""

FREE = Dim("marked_dynamic")
"""What `Mark.DYNAMIC` promises of each size that it stands for."""


def declare(scope: Scope, dim: Dim | Derived, hint: int, source: Any, site: Any = None, name: str | None = None) -> Expr:
    """The expression of a size declared as `dim`, whose value in this call is `hint`.

    One symbol for each base dim of a scope (called `name`, by default as the dim), read at the source of its first use; later uses are
    guarded to agree with it. Raises `ConstraintViolation` if the hint breaks the promise.
    """
    base, value = (dim.base, dim.solve(hint)) if isinstance(dim, Derived) else (dim, hint if dim.allows(hint) else None)
    if value is None:
        promise = f"{dim} of {base}" if isinstance(dim, Derived) else str(dim)
        raise ConstraintViolation(f"size {hint} at {source} does not fit {promise}. Pass an example that fits, or widen the Dim.")
    name = name or base.name
    uses = [s for s in scope.symbols.values() if base_of(s) is not None and base_of(s).name == base.name]  # type: ignore[union-attr]
    other = next((s for s in uses if base_of(s) != base), None)
    if other is not None:
        raise ConstraintViolation(f"two different Dims are named {base.name!r}: {base_of(other)} and {base}")
    known = scope.symbols.get(name)
    if dim is base and known is None:
        s = scope.backed(name, hint=value, lo=base.min, hi=base.max, source=source, size_like=True, dim=base)
        if base.multiple_of > 1:
            scope.require(s % base.multiple_of == 0, site, "declared")
        for use in uses:  # derived sizes that were met first
            agree(scope, s, use, site)
        return s
    own = scope.backed(f"{name}_{len(uses)}", hint=hint, source=source, size_like=True, dim=dim)
    if known is not None:
        agree(scope, known, own, site)
        return scope.simplify(own)
    bound(scope, dim, base, own, site)
    if uses:  # two derived sizes of a base that is nowhere read itself
        relate(scope, uses[0], own, site)
    return own


def promised(s: Expr) -> bool:
    """Whether the user has promised something of this size."""
    return s.info.dim is not None and s.info.dim is not OPEN


def base_of(s: Expr) -> Dim | None:
    dim = s.info.dim if promised(s) else None
    return dim.base if isinstance(dim, Derived) else dim


def value_of(s: Expr) -> tuple[int, int, int]:
    """(scale, offset, the base's value in this call) of a declared symbol."""
    dim, hint = s.info.dim, int(s.hint)  # type: ignore[arg-type]
    return (dim.scale, dim.offset, (hint - dim.offset) // dim.scale) if isinstance(dim, Derived) else (1, 0, hint)


def agree(scope: Scope, base: Expr, own: Expr, site: Any) -> None:
    """Guard that `own` is what its declaration makes of the base's symbol."""
    scale, offset, value = value_of(own)
    if base.hint != value:
        raise disagreement(own, base)
    scope.require(own == base * scale + offset, site, "declared")


def relate(scope: Scope, a: Expr, b: Expr, site: Any) -> None:
    """Guard that two sizes derived from one base agree on it."""
    (k, c, v), (m, d, w) = value_of(a), value_of(b)
    if v != w:
        raise disagreement(b, a)
    scope.require((a - c) * m == (b - d) * k, site, "declared")


def disagreement(own: Expr, first: Expr) -> ConstraintViolation:
    return ConstraintViolation(
        f"size {own.hint} at {own.info.source} is declared {own.info.dim}, but {first.info.dim} is {first.hint} at {first.info.source}:"
        " they must agree."
    )


def bound(scope: Scope, dim: Dim | Derived, base: Dim, own: Expr, site: Any) -> None:
    """The promises on a derived size whose base is nowhere read itself: the base is what solves the equation."""
    assert isinstance(dim, Derived)
    scope.require(own >= dim.scale * base.min + dim.offset, site, "declared")
    step = dim.scale * base.multiple_of
    if step > 1:
        scope.require((own - dim.offset) % step == 0, site, "declared")
    if base.max is not None:
        scope.require(own <= dim.scale * base.max + dim.offset, site, "declared")


def check(scope: Scope, sites: Iterable[SymGuard] | None = None) -> None:
    """Raise `ConstraintViolation` if a decided guard excludes sizes that a declared dim allows.

    A guard is no violation if the declarations imply it. Guards that involve undeclared symbols are not the user's promise.
    """
    declared = {s for s in scope.symbols.values() if promised(s)}
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


def check_specialized(scope: Scope, is_branch: Callable[[Any], bool]) -> None:
    """Raise `ConstraintViolation` if the program pinned a declared dim to one value, or made two declared dims one.

    Milder than `check`: what serves calls of one process may be captured once for each side of a branch, so a guard that merely narrows
    is no violation, nor is one at a site of which `is_branch` says that the program itself branches there.
    """
    problems = []
    for s in filter(promised, scope.symbols.values()):
        now = scope.simplify(s)
        if now is s or (now.const is not None and only(s)):
            continue
        for g in scope.guards:
            symbols = [x for x in g.expr.symbols() if promised(x)]
            if not any(x is s for x in symbols) or g.why == "declared" or g.expr.op != "eq" or is_branch(g.site):
                continue
            if now.const is None and len({base_of(x) for x in symbols}) < 2:
                continue
            if now.const in (0, 1) and g.why != "specialize":
                continue  # asked by PyTorch's own code about an empty or a single one: other sizes get their own graph
            problems.append(_explain(g, tuple(symbols)))
    if problems:
        raise ConstraintViolation("a size that was declared dynamic is not:\n" + "\n".join(dict.fromkeys(problems)))


def only(s: Expr) -> bool:
    """Whether the declaration itself allows one value only."""
    return s.info.lo is not None and s.info.lo == s.info.hi


def _explain(g: SymGuard, symbols: tuple[Expr, ...]) -> str:
    """The line, the relation that it needs, and the fix."""
    dims = " and ".join(dict.fromkeys(f"{'mark_dynamic' if s.info.dim is FREE else s.info.dim} of {s.info.source}" for s in symbols))
    where = f"{g.site}" if g.site is not None else "unknown line"
    needs = g.user_form.python({s.name: shown(s) for s in g.user_form.symbols()})
    return f"  - {where} needs `{needs}`, but {dims} allows more.\n    Fix: {suggest(g.expr, symbols)}"


def shown(s: Expr) -> str:
    """How a message calls a symbol: by the name that the user gave its dim."""
    dim = s.info.dim
    if isinstance(dim, Derived):
        return f"({dim})"
    return dim.name if dim is not None and dim is not FREE else s.name


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
                return f"Dim({shown(s)!r}, min={-constant})" if k > 0 else f"Dim({shown(s)!r}, max={constant})"
        atom = p.terms[0][0][0] if p.kind is int and p.terms and len(p.terms[0][0]) == 1 else None
        if c.op == "eq" and atom is not None and atom.op == "mod" and atom.args[0] is s and constant == 0 and atom.args[1].const:
            return f"Dim({shown(s)!r}, multiple_of={atom.args[1].const})"
    elif c.op == "eq":
        return "declare the two with one Dim, or one as derived from the other (`2*s + 1`)"
    return "narrow the Dim, or change the line so that it holds for all declared sizes"
