"""Expressions: hash-consed scalars in normal form.

An `Expr` is a Python int, float or bool that may depend on symbols. Building the same value twice gives the same
object, so `is` compares. Integer arithmetic is kept as a polynomial, the *normal form*: a sum of monomials with integer
coefficients over *atoms*. An atom is a symbol or an operator that polynomials cannot express (`//`, `%`, `min`, ...), so

    (a + b) * (a - b) + b * b  is  a * a

holds by construction, as in JAX's shape polymorphism. Floats are never re-associated: their arithmetic is opaque nodes.
Comparisons keep the two sides that the program compared, for printing; `relation.py` gives their normal form.

`//` and `%` presuppose a divisor other than zero: whoever builds them for a program first makes sure
(`scope.assume(ops.ne(b, 0), site)`), so that `(a * b) // b` may be `a`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from operator import is_  # as it is now: a program may put another in its place
from typing import Any

Scalar = int | float | bool
Mono = tuple["Expr", ...]  # atoms, repeated by power, in order of creation
Terms = tuple[tuple[Mono, int], ...]  # monomials with their coefficients; the constant last


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """What is known of a symbol from its birth. `lo`/`hi` are inclusive, None is unbounded."""

    name: str
    kind: type
    hint: Scalar | None
    lo: Scalar | None
    hi: Scalar | None
    backed: bool
    size_like: bool
    source: Any
    dim: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """A row of the table of scalar operators; `ops.py` holds the rows and says what each field means."""

    name: str
    arity: int
    fn: Callable[..., Scalar]
    make: Callable[..., Expr]
    range: Callable[..., tuple | None] | None
    python: str
    llvm: str
    stablehlo: str
    smt: str


TABLE: dict[str, Op] = {}


class Expr:
    """A scalar expression. Operators build expressions: `s * 2 + 1`, `e > 7`, `e == 3` (symbolic: use `is` for identity)."""

    __slots__ = ("ctx", "op", "args", "kind", "const", "serial", "terms", "info", "cache")

    def __init__(self, ctx: Context, op: str, args: tuple, kind: type, const: Any = None, info: Any = None) -> None:
        self.ctx = ctx
        self.op = op  # "const", "sym", "sum", or a row of TABLE
        self.args = args
        self.kind = kind
        self.const: Any = const  # the value of a constant, else None
        self.info: Any = info  # the Symbol of a symbol, else None
        self.serial = ctx.serial = ctx.serial + 1
        self.terms: Terms = (((self,), 1),)
        self.cache: dict[str, Any] = {}  # facts that never change: symbols, hint, static range, normal relation

    # arithmetic --------------------------------------------------------------------
    # Each operator looks itself up in the memo first: most questions of a capture repeat.

    def __add__(self, other):
        if other.__class__ is not Expr:
            other = self.ctx.constant(other)
        r = self.ctx.memo.get(("add", self, other))
        return r if r is not None else apply("add", self, other)

    def __sub__(self, other):
        if other.__class__ is not Expr:
            other = self.ctx.constant(other)
        r = self.ctx.memo.get(("sub", self, other))
        return r if r is not None else apply("sub", self, other)

    def __mul__(self, other):
        if other.__class__ is not Expr:
            other = self.ctx.constant(other)
        r = self.ctx.memo.get(("mul", self, other))
        return r if r is not None else apply("mul", self, other)

    def __radd__(self, other):
        return apply("add", other, self)

    def __rsub__(self, other):
        return apply("sub", other, self)

    def __rmul__(self, other):
        return apply("mul", other, self)

    def __floordiv__(self, other):
        return apply("floordiv", self, other)

    def __rfloordiv__(self, other):
        return apply("floordiv", other, self)

    def __mod__(self, other):
        return apply("mod", self, other)

    def __rmod__(self, other):
        return apply("mod", other, self)

    def __truediv__(self, other):
        return apply("truediv", self, other)

    def __rtruediv__(self, other):
        return apply("truediv", other, self)

    def __pow__(self, other):
        return apply("pow", self, other)

    def __rpow__(self, other):
        return apply("pow", other, self)

    def __neg__(self):
        return apply("neg", self)

    def __pos__(self):
        return self

    def __abs__(self):
        return apply("abs", self)

    def __and__(self, other):
        return apply("bit_and", self, other)

    def __rand__(self, other):
        return apply("bit_and", other, self)

    def __or__(self, other):
        return apply("bit_or", self, other)

    def __ror__(self, other):
        return apply("bit_or", other, self)

    def __xor__(self, other):
        return apply("bit_xor", self, other)

    def __rxor__(self, other):
        return apply("bit_xor", other, self)

    def __invert__(self):
        return apply("bit_not", self)

    def __lshift__(self, other):
        return apply("lshift", self, other)

    def __rlshift__(self, other):
        return apply("lshift", other, self)

    def __rshift__(self, other):
        return apply("rshift", self, other)

    def __rrshift__(self, other):
        return apply("rshift", other, self)

    # comparisons -------------------------------------------------------------------

    def __eq__(self, other):
        if other.__class__ is not Expr:
            other = self.ctx.constant(other)
        r = self.ctx.memo.get(("eq", self, other))
        return r if r is not None else apply("eq", self, other)

    def __ne__(self, other):
        if other.__class__ is not Expr:
            other = self.ctx.constant(other)
        r = self.ctx.memo.get(("ne", self, other))
        return r if r is not None else apply("ne", self, other)

    def __lt__(self, other):
        if other.__class__ is not Expr:
            other = self.ctx.constant(other)
        r = self.ctx.memo.get(("lt", self, other))
        return r if r is not None else apply("lt", self, other)

    def __le__(self, other):
        if other.__class__ is not Expr:
            other = self.ctx.constant(other)
        r = self.ctx.memo.get(("le", self, other))
        return r if r is not None else apply("le", self, other)

    def __gt__(self, other):
        if other.__class__ is not Expr:
            other = self.ctx.constant(other)
        r = self.ctx.memo.get(("gt", self, other))
        return r if r is not None else apply("gt", self, other)

    def __ge__(self, other):
        if other.__class__ is not Expr:
            other = self.ctx.constant(other)
        r = self.ctx.memo.get(("ge", self, other))
        return r if r is not None else apply("ge", self, other)

    __hash__ = object.__hash__  # identity: expressions are interned

    def __bool__(self) -> bool:
        if self.const is None:
            raise TypeError(f"the truth of `{self}` is a question for a Scope: scope.decide(e, site)")
        return bool(self.const)

    # views -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of a symbol."""
        if self.info is None:
            raise TypeError(f"`{self}` is not a symbol")
        return self.info.name

    def symbols(self) -> tuple[Expr, ...]:
        """The symbols it depends on, in order of creation."""
        syms = self.cache.get("symbols")
        if syms is None:
            found: set[Expr] = set()
            for node in postorder(self, stop="symbols"):
                if node.op == "sym":
                    found.add(node)
                elif "symbols" in node.cache:
                    found.update(node.cache["symbols"])
            syms = self.cache["symbols"] = tuple(sorted(found, key=_by_serial))
        return syms

    def leaves(self) -> tuple[Expr, ...]:
        """The symbols and subtotals it is made of, in order of creation, subtotals not looked into: what a fact about it can be about."""
        found = self.cache.get("leaves")
        if found is None:
            if self.op != "subtotal" and not shallow(self, "leaves"):
                for n in postorder(self, stop="leaves", leaf="subtotal"):
                    if "leaves" not in n.cache:
                        n.cache["leaves"] = _own_leaves(n)
            found = self.cache["leaves"] = _own_leaves(self)
        return found

    @property
    def backed(self) -> bool:
        """Whether every symbol is backed: only then a hint may decide, under a guard."""
        v = self.cache.get("backed")
        if v is None:
            v = _own_backed(self)
            if v is None:
                for n in postorder(self, stop="backed"):
                    if "backed" not in n.cache:
                        n.cache["backed"] = _own_backed(n)
                return self.cache["backed"]
            self.cache["backed"] = v
        return v

    @property
    def hint(self) -> Scalar | None:
        """Its value in the call being captured; None if a symbol has no hint."""
        if self.const is not None:
            return self.const
        cache = self.cache
        if "hint" not in cache:
            if not shallow(self, "hint"):
                for n in postorder(self, stop="hint"):
                    if "hint" not in n.cache:
                        n.cache["hint"] = n.info.hint if n.info is not None else value_of(n, _hint_of)
            cache["hint"] = self.info.hint if self.info is not None else value_of(self, _hint_of)
        return cache["hint"]

    def evaluate(self, values: dict[str, Scalar]) -> Scalar:
        """Its value when the symbols have `values` (by name); raises what the arithmetic raises."""
        done: dict[Expr, Scalar] = {}
        for e in postorder(self):
            if e.const is not None:
                done[e] = e.const
            elif e.op == "sym":
                done[e] = values[e.name]
            else:
                done[e] = value_of(e, done.__getitem__)
        return done[self]

    def python(self, rename: Any = None, named: Any = None) -> str:
        """A Python expression over the symbols' names (`rename`: a dict or a function) and those of subexpressions in `named`."""
        return self.ctx.show(self, rename, named)

    def postfix(self, index: dict[str, int]) -> list[tuple] | None:
        """The native relation program, None if int64 arithmetic cannot express it; `index` numbers the symbols."""
        return self.ctx.program(self, index)

    def __repr__(self) -> str:
        return self.ctx.show(self, None, None)


def value_of(e: Expr, of: Callable[[Expr], Any]) -> Any:
    """The value of one node from those of its parts; None if one of them is None."""
    if e.const is not None:
        return e.const
    if e.op == "sum":
        total = 0
        for mono, c in e.terms:
            for atom in mono:
                v = of(atom)
                if v is None:
                    return None
                c *= v
            total += c
        return total
    args = [of(a) for a in e.args]
    return None if None in args else TABLE[e.op].fn(*args)


def _hint_of(e: Expr) -> Any:
    return e.const if e.const is not None else e.info.hint if e.info is not None else e.cache["hint"]


def _own_backed(n: Expr) -> bool | None:
    """None if that is not known of its parts."""
    v: bool | None = True
    for p in parts(n) if n.info is None else (n,):
        if p.const is None:
            b = p.info.backed if p.info is not None else p.cache.get("backed")
            if b is None:
                return None
            v = v and b
    return v


def _own_leaves(n: Expr) -> tuple[Expr, ...]:
    if n.info is not None or n.op == "subtotal":
        return (n,)
    groups = [(p,) if p.info is not None else p.cache["leaves"] for p in parts(n) if p.const is None]
    if len(groups) < 2 or (len(groups) == 2 and same(*groups)):
        return groups[0] if groups else ()
    return tuple(sorted(set().union(*groups), key=_by_serial))


def _by_serial(e: Expr) -> int:
    return e.serial


def parts(e: Expr) -> Iterable[Expr]:
    """The expressions that `e` is directly made of."""
    return [a for mono, _ in e.terms for a in mono] if e.op == "sum" else e.args


def shallow(e: Expr, key: str) -> bool:
    """Whether what `key` names in the caches is at hand for all parts of e: then there is no need to walk."""
    for p in parts(e):
        if p.info is None and p.const is None and key not in p.cache:
            return False
    return True


def postorder(e: Expr, stop: str = "", done: Container[Expr] = (), leaf: str = "") -> list[Expr]:
    """Every distinct subexpression, the oldest first, so operands before what is made of them.

    A node whose cache has the key `stop`, or whose operator is `leaf`, is listed, but not opened; one in `done` is neither.
    """
    if e in done:
        return []
    if e.op == leaf or (stop and stop in e.cache):
        return [e]
    seen = {e}
    stack = [e]
    while stack:
        for p in parts(stack.pop()):
            if p not in seen and p not in done:
                seen.add(p)
                if p.info is None and p.const is None and p.op != leaf and not (stop and stop in p.cache):
                    stack.append(p)
    return [e] if len(seen) == 1 else sorted(seen, key=_by_serial)  # whatever a node is made of is older than it


LONG = 16  # terms; a longer sum of symbols is folded into subtotals


def term_order(item: tuple[Mono, int]) -> tuple:
    """The higher degree first, older atoms first, the constant last."""
    mono = item[0]
    if len(mono) == 1:
        return -1, mono[0].serial
    return -len(mono), *[a.serial for a in mono]


def in_order(items: list[tuple[Mono, int]]) -> list[tuple[Mono, int]]:
    """Terms by `term_order`, which is asked for products alone: nearly all are atoms, and a number."""
    atoms: list[tuple[int, tuple[Mono, int]]] = []
    products: list[tuple[Mono, int]] = []
    number: list[tuple[Mono, int]] = []
    for it in items:
        mono = it[0]
        if len(mono) == 1:
            atoms.append((mono[0].serial, it))  # these differ: the terms are never compared
        elif mono:
            products.append(it)
        else:
            number.append(it)
    atoms.sort()
    if len(products) > 1:
        products.sort(key=term_order)
    return [*products, *[it for _, it in atoms], *number]


class Context:
    """The interning tables of one scope, and the memo of every operator applied in it.

    `record`, when set, is told each new application `(op, args, result)`: translation validation replays them.
    """

    def __init__(self, show: Callable[[Expr, Any, Any], str], program: Callable[[Expr, Any], list[tuple] | None]) -> None:
        self.show = show  # printers are given: they know the table, this file knows only how to build
        self.program = program
        self.memo: dict[tuple, Expr] = {}
        self.record: Callable[[str, tuple, Expr], None] | None = None
        self.ints: dict[int, Expr] = {}
        self._consts: dict[tuple, Expr] = {}
        self._nodes: dict[tuple, Expr] = {}
        self._polys: dict[Terms, Expr] = {}
        self.serial = 0  # of the youngest expression
        self.subtotals = False  # whether any sum was long enough to be folded: see subtotals.py
        self.fold: Callable[[Context, list], list] | None = None
        self.zero = self.lift(0)
        self.one = self.lift(1)
        self.true = self.lift(True)
        self.false = self.lift(False)

    def constant(self, value: Any) -> Expr:
        """`lift` of what is most likely a small int."""
        e = self.ints.get(value) if value.__class__ is int else None
        return e if e is not None else self.lift(value)

    def lift(self, value: Any) -> Expr:
        """The expression of a Python number; an `Expr` of this context is itself."""
        t = type(value)
        if t is int or t is bool:
            key = (t, value)
        elif t is float:
            key = (t, value.hex())  # tells -0.0 from 0.0, and makes nan equal to itself
        elif t is Expr:
            if value.ctx is not self:
                raise ValueError(f"`{value}` belongs to another scope")
            return value
        elif isinstance(value, int):
            return self.lift(int(value))
        elif isinstance(value, float):
            return self.lift(float(value))
        else:
            raise TypeError(f"no scalar expression from {t.__name__}")
        e = self._consts.get(key)
        if e is None:
            e = self._consts[key] = Expr(self, "const", (), t, value)
            if t is int:
                self.ints[value] = e
            if t is not float:
                e.terms = (((), int(value)),) if value else ()
        return e

    def symbol(self, info: Symbol) -> Expr:
        """A new symbol (names are unique within a scope: the scope sees to it)."""
        e = Expr(self, "sym", (), info.kind, info=info)
        e.cache.update(leaves=(e,), symbols=(e,), backed=info.backed, hint=info.hint)  # each question asks for some of these
        return e

    def node(self, op: str, args: tuple[Expr, ...], kind: type) -> Expr:
        """The one opaque node `op(*args)`: no rewriting."""
        key = (op, args)
        e = self._nodes.get(key)
        if e is None:
            e = self._nodes[key] = Expr(self, op, args, kind)
        return e

    def poly(self, terms: dict[Mono, int], fold: bool = True) -> Expr:
        """The integer with these coefficients (zeros allowed). `fold=False` leaves subtotals as they are, for the provers."""
        items = [it for it in terms.items() if it[1]]
        if len(items) < 2:
            if not items:
                return self.zero
            mono, c = items[0]
            if not mono:
                return self.lift(c)
            if c == 1 and len(mono) == 1:
                return mono[0]
        else:
            if fold and self.fold is not None and (len(items) > LONG or self.subtotals):
                items = self.fold(self, items)
                if len(items) < 2:
                    return self.poly(dict(items))
            items = in_order(items)
        key = tuple(items)
        e = self._polys.get(key)
        if e is None:
            e = self._polys[key] = Expr(self, "sum", (), int)
            e.terms = key
        return e


def same(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    """Whether two tuples hold the same expressions (`==` on tuples would ask a symbolic question)."""
    return len(a) == len(b) and all(map(is_, a, b))


def mono_mul(a: Mono, b: Mono) -> Mono:
    if not a:
        return b
    if not b:
        return a
    return tuple(sorted(a + b, key=_by_serial))


def poly_add(a: Expr, b: Expr, scale: int = 1, k: int = 0) -> Expr:
    """a + scale * b + k, all integers."""
    d = dict(a.terms)
    for mono, c in b.terms:
        d[mono] = d.get(mono, 0) + scale * c
    if k:
        d[()] = d.get((), 0) + k
    return a.ctx.poly(d)


def poly_scale(a: Expr, k: int) -> Expr:
    return a if k == 1 else a.ctx.poly({m: c * k for m, c in a.terms})


def poly_mul(a: Expr, b: Expr) -> Expr:
    """a * b, integers, expanded."""
    d: dict[Mono, int] = {}
    for m1, c1 in a.terms:
        for m2, c2 in b.terms:
            m = mono_mul(m1, m2)
            d[m] = d.get(m, 0) + c1 * c2
    return a.ctx.poly(d)


def context_of(args: Iterable[Any]) -> Context | None:
    for a in args:
        if a.__class__ is Expr:
            return a.ctx
    return None


def apply(name: str, *args: Any) -> Any:
    """Apply a row of the table. Plain numbers give a plain number; anything symbolic gives an `Expr`."""
    ctx = context_of(args)
    row = TABLE[name]
    if ctx is None:
        return row.fn(*args)
    exprs = tuple([a if a.__class__ is Expr and a.ctx is ctx else ctx.lift(a) for a in args])
    key = (name, *exprs)
    r = ctx.memo.get(key)
    return r if r is not None else apply_anew(ctx, key)


def apply_anew(ctx: Context, key: tuple) -> Expr:
    """What the operator `key[0]` gives for the operands `key[1:]`, expressions of this context: not in the memo yet."""
    name, *exprs = key
    row = TABLE[name]
    for e in exprs:
        if e.const is None:
            r = row.make(ctx, *exprs)
            break
    else:
        r = ctx.lift(row.fn(*[e.const for e in exprs]))
    ctx.memo[key] = r
    if ctx.record is not None:
        ctx.record(name, key[1:], r)
    return r
