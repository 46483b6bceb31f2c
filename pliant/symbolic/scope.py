"""A scope: the symbols of one capture, what is known of them, and the questions that the program asks.

Four verbs. `decide` answers by proof, else by the hint under a guard. `known_true` / `known_false` only prove.
`decide_or_false` never needs a hint. `assume` is for what eager would have checked anyway: a runtime assertion, and a fact.
All facts enter through one door, `learn`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import copysign, inf  # names that a program may replace in the module
from typing import Any, ClassVar

from pliant.symbolic import ops, printers, subtotals
from pliant.symbolic.event import RECORD, Event, stack
from pliant.symbolic.expr import Context, Expr, Scalar, Symbol, apply
from pliant.symbolic.minimize import minimal, without_declared
from pliant.symbolic.prover import CHEAP, FULL, LOOKUP, Prover
from pliant.symbolic.relation import normal
from pliant.symbolic.static import static_range

__all__ = ["CHEAP", "FULL", "LOOKUP", "Assert", "DataDependent", "Scope", "SymGuard"]


class DataDependent(Exception):
    """A decision on a value that is known only when the graph runs, and no fact settles it."""

    def __init__(self, expr: Expr, site: Any) -> None:
        super().__init__(f"cannot decide `{expr}` while capturing: {unbacked_names(expr)} known only at run time ({site})")
        self.expr = expr
        self.site = site
        self.node: Any = None  # of the autograd graph, if its derivative asked


def unbacked_names(e: Expr) -> str:
    names = [s.name for s in e.symbols() if not s.info.backed]
    return ", ".join(names) + (" is" if len(names) == 1 else " are")


@dataclass(frozen=True, slots=True, eq=False)
class SymGuard:
    """A relation that must hold when the entry runs. `expr` is normalized, `user_form` as the program asked.

    `why` is "decide", "specialize", or "declared" (the range a symbol was made with).
    """

    expr: Expr
    site: Any
    why: str
    user_form: Expr

    def __str__(self) -> str:
        return f"{self.user_form}  # {self.why} at {self.site}" if self.site is not None else f"{self.user_form}  # {self.why}"


UNFIT = "the values of this run do not fit"
BRANCH = "the run takes the other side of a branch"


@dataclass(frozen=True, slots=True, eq=False)
class Assert:
    """A runtime assertion of the graph: eager would have raised where it fails."""

    expr: Expr
    site: Any
    message: str
    error: type[Exception] = RuntimeError

    @property
    def text(self) -> str:
        """What the error says: the program's own words, or the line and what it needs."""
        where = f" at {self.site}" if self.site is not None else ""
        return self.message or f"{UNFIT}: `{self.expr}` is false{where}"

    def __str__(self) -> str:
        return f"assert {self.expr}  # {self.message or 'eager requires it'} at {self.site}"


class Scope:
    """See the module's docstring. Not thread-safe: one capture, one scope."""

    #: Told of every new scope, while someone records their questions (`stream.py`).
    born: ClassVar[Callable[[Scope], None] | None] = None

    def __init__(self, record: bool | None = None) -> None:
        """`record`: keep every question and answer for `validate.py`; by default where PLIANT_VALIDATE=1."""
        self.ctx = Context(printers.python, printers.postfix)
        self.oracle: Callable[[Expr, Any], bool | None] | None = None  # answers what only the run could: one side of a branch (export)
        self.exits: Callable[[Expr, Any], bool | None] | None = None  # the side of a branch behind which the graph goes on (`take`)
        self.late: Callable[[type[Exception], Expr], None] | None = None  # told before an assertion is made that the run may check late
        self.taken: dict[Expr, bool] = {}  # what such branches asked, and the side
        self.exited = 0  # how many symbols there were at the last of them; 0: there was none
        self.mixed = False  # something was assumed behind one, of a value from before it
        self.varying: set[Expr] = set()  # questions about backed symbols that the oracle answers, since both answers are wanted
        self.ctx.fold = subtotals.fold
        self.prover = Prover()
        self.symbols: dict[str, Expr] = {}
        self.known: dict[Expr, bool] = {}  # answers given: they stay true, facts only grow
        self._forget_answers()
        self._tried: dict[Expr, int] = {}  # questions that were not provable at a strength, until facts grow
        self._tried_version = -1
        self._guards: list[SymGuard] = []
        self.events: list[Event] | None = None
        if RECORD if record is None else record:
            self.events = []
            self.ctx.record = self._applied
        self.values: dict[str, Scalar] | None = None  # what answers in the place of hints (`answered_by`)
        self.answered: list[Expr] = []
        self.closed_to: int | None = None  # the thread that may not add guards or assertions
        self._minimal: tuple[tuple[int, int], list[SymGuard]] | None = None
        self._asserts: list[tuple] = []  # the fields of each, so that assuming costs little
        self._asserted: list[Assert] = []  # those that somebody has asked for, who may compare them with `is`
        if Scope.born is not None:
            Scope.born(self)

    # symbols -------------------------------------------------------------------------

    def backed(
        self,
        name: str,
        hint: Scalar,
        lo: Scalar | None = None,
        hi: Scalar | None = None,
        source: Any = None,
        kind: type = int,
        size_like: bool = False,
        dim: Any = None,
    ) -> Expr:
        """A symbol whose value the entry reads at `source`. `size_like`: never negative by nature, so needs no guard for that."""
        return self._symbol(name, kind, hint, lo, hi, True, size_like, source, dim)

    def unbacked(
        self,
        name: str,
        lo: Scalar | None = None,
        hi: Scalar | None = None,
        size_like: bool = False,
        source: Any = None,
        kind: type = int,
        hint: Scalar | None = None,
    ) -> Expr:
        """A symbol known only when the graph runs. The hint, if any, serves optimization and never decides."""
        return self._symbol(name, kind, hint, lo, hi, False, size_like, source, None)

    def _symbol(self, name, kind, hint, lo, hi, backed, size_like, source, dim) -> Expr:
        if name in self.symbols:
            raise ValueError(f"symbol {name} exists")
        if size_like and (lo is None or lo < 0):
            lo = 0
        lo = None if lo == -inf else lo
        hi = None if hi == inf else hi
        if hint is not None and ((lo is not None and not hint >= lo) or (hi is not None and not hint <= hi)):
            raise ValueError(f"{name}: hint {hint} outside [{lo}, {hi}]")
        s = self.symbols[name] = self.ctx.symbol(Symbol(name, kind, hint, lo, hi, backed, size_like, source, dim))
        static_range(s)  # which every question about it asks for
        return s

    def const(self, value: Scalar) -> Expr:
        return self.ctx.lift(value)

    # questions -----------------------------------------------------------------------

    def decide(self, c: Expr | bool, site: Any = None) -> bool:
        """The truth of c. Adds a guard if it is not proven; raises `DataDependent` where there is no hint to go by."""
        v = self.known.get(c)  # type: ignore[arg-type]
        if v is not None and c.__class__ is Expr:
            return v
        if c.__class__ is not Expr:
            return bool(c)
        if c.const is not None:  # type: ignore[union-attr]
            return bool(c.const)  # type: ignore[union-attr]
        v = self._prove(c, FULL)
        if v is None:
            c_bool = c if c.kind is bool else apply("to_bool", c)
            if not c_bool.backed or c_bool in self.varying and self.oracle is not None:
                side = self.taken.get(c_bool)
                if side is None and self.exits is not None:
                    side = self.exits(c_bool, site)
                if side is not None:
                    return side
                answer = self.oracle(c_bool, site) if self.oracle is not None else None
                if answer is None:
                    raise DataDependent(c_bool, site)
                fact = c_bool if answer else apply("not", c_bool)
                self._may_grow(fact, site)
                self._asserts.append((fact, site, BRANCH, RuntimeError))
                self._learn("assume", fact, site)
                return answer
            v = bool(self._now(c_bool, site))
            self._guard(c_bool if v else apply("not", c_bool), site, "decide")
            self.known[c] = v
            self._event("answer", c, v, site)
        return v

    def known_true(self, c: Expr | bool, strength: int = FULL) -> bool:
        """Whether the facts imply c. Never guards."""
        return self._ask(c, strength) is True

    def known_false(self, c: Expr | bool, strength: int = FULL) -> bool:
        """Whether the facts exclude c. Never guards."""
        return self._ask(c, strength) is False

    def _ask(self, c: Expr | bool, strength: int) -> bool | None:
        if c.__class__ is not Expr:
            return bool(c)
        v = self.known.get(c)
        return v if v is not None else self._prove(c, strength)

    def decide_or_false(self, c: Expr | bool, site: Any = None) -> bool:
        """As `decide`, but False where only the run could tell: for questions to which False is a safe, general answer."""
        v = self._ask(c, FULL)
        if v is not None:
            return v
        return self.decide(c, site) if c.backed else False  # type: ignore[union-attr]

    def _prove(self, c: Expr, strength: int) -> bool | None:
        """Proof with memory, positive and negative."""
        if c.const is not None:
            return bool(c.const)
        version = self.prover.facts.version
        if self._tried_version != version:
            self._tried.clear()
            self._tried_version = version
        elif self._tried.get(c, -1) >= strength:
            return None
        v = self.prover.prove(c if c.kind is bool else apply("to_bool", c), strength)
        if v is None:
            self._tried[c] = strength
            return None
        self.known[c] = v
        if self.events is not None:
            self._event("answer", c, v)
        return v

    # learning ------------------------------------------------------------------------

    def learn(self, c: Expr) -> None:
        """c is true from here on, by the nature of things (`nonzero(x) <= numel(x)`): neither guard nor assertion."""
        self._learn("axiom", c, None)

    def _learn(self, why: str, c: Expr, site: Any) -> None:
        """The one door through which facts enter."""
        if self.events is not None:
            self._event(why, c, True, site)
        self.prover.learn(c)
        self.known[c] = True

    def _guard(self, c: Expr, site: Any, why: str) -> None:
        if self.values is not None:
            self.answered.append(c)
            self._learn("guard", c, site)
            return
        self._may_grow(c, site)
        self._guards.append(SymGuard(normal(c), site, why, c))
        self._learn("guard", c, site)

    def keep(self, g: SymGuard) -> None:
        """A guard that was recorded before a `rollback`, unless what is still known implies it."""
        if not self.known_true(g.user_form):
            self._guard(g.user_form, g.site, g.why)

    def _may_grow(self, c: Expr, site: Any) -> None:
        if self.is_closed():
            raise DataDependent(c, site)

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Guards are compiled: what this thread asks inside is proven, or it is told that only the run can tell (`DataDependent`)."""
        self.closed_to = threading.get_ident()
        try:
            yield
        finally:
            self.closed_to = None

    @contextlib.contextmanager
    def answered_by(self, values: dict[str, Scalar]) -> Iterator[list[Expr]]:
        """Guards are compiled, and these are the values of symbols in a call that they let pass: they answer inside, in the place of hints.
        What had to be answered is listed, for who makes something that holds where it is true; behind, nothing of it is known."""
        token = self.snapshot()
        self.values, self.answered = values, []
        try:
            yield self.answered
        finally:
            self.values = None
            self.rollback(token)

    def _now(self, e: Expr, site: Any) -> Any:
        """The value of an expression in the call that questions are about."""
        if self.values is None:
            return e.hint
        if not all([s.name in self.values for s in e.symbols()]):
            raise DataDependent(e, site)
        return e.evaluate(self.values)

    def is_closed(self) -> bool:
        """Whether this thread may add nothing to what is known."""
        return self.closed_to == threading.get_ident()

    def require(self, c: Expr | bool, site: Any = None, why: str = "declared") -> None:
        """Guard on c without being asked a question: a promise of the caller that every call must keep. It must hold now."""
        v = self._ask(c, FULL)
        if v is None:
            v = bool(self._now(c, site))  # type: ignore[arg-type]
            if v:
                self._guard(c, site, why)  # type: ignore[arg-type]
        if not v:
            raise ValueError(f"required `{c}` does not hold")

    def assume(self, c: Expr | bool, site: Any = None, message: str = "", error: type[Exception] = RuntimeError) -> bool:
        """c, or eager would have raised here. A proof costs nothing; else it becomes a runtime assertion and a fact.

        Returns False where c is false for this call (the caller raises what eager raises; the capture is then guarded on it).
        """
        v = self.known.get(c)  # type: ignore[arg-type]
        if v is not None and c.__class__ is Expr:
            return v
        if c.__class__ is not Expr:
            return bool(c)
        v = self._prove(c, FULL)
        if v is not None:
            return v
        asked: Expr = c if c.kind is bool else apply("to_bool", c)
        guarded = not asked.hint or self.exited or self.values is not None  # what is left at a side exit need not hold: then it is a guard
        if asked.backed and guarded:
            return self.decide(asked, site)
        if self.late is not None and not asked.backed:
            self.late(error, asked)
        if self.exited and not self.is_new(asked):
            self.mixed = True
        self._may_grow(asked, site)
        self._asserts.append((asked, site, message, error))
        self._learn("assert", asked, site)
        return True

    def take(self, c: Expr, side: bool) -> None:
        """The graph goes on where c is `side`, and is left elsewhere: no fact, since what comes before runs on both sides."""
        self.taken[c] = side
        self.taken[apply("not", c)] = not side
        self.exited = max(len(self.symbols), 1)

    def stake(self, c: Expr, side: bool, site: Any, message: str, error: type[Exception]) -> None:
        """As `take`, and where c is not `side`, the graph raises `error`."""
        fact = c if side else apply("not", c)
        self._may_grow(fact, site)
        self._asserts.append((fact, site, message, error))
        self.take(c, side)

    def is_new(self, c: Expr) -> bool:
        """Whether the run finds all symbols of c behind the last side exit: what is assumed of them says nothing of what comes before."""
        old = set(list(self.symbols)[: self.exited])
        return all(not s.info.backed and s.name not in old for s in c.symbols())

    def specialize(self, e: Expr | Scalar, site: Any = None) -> Scalar:
        """Pin e to its value in this call, under a guard; `simplify` then gives the constant."""
        if e.__class__ is not Expr:
            return e  # type: ignore[return-value]
        s = self.simplify(e)
        if s.const is not None:
            return s.const
        if not s.backed:
            s = e  # an equal backed expression will do
        if not s.backed:
            raise DataDependent(s, site)
        v: Any = self._now(s, site)
        if s.kind is bool:
            self._guard(s if v else apply("not", s), site, "specialize")
        elif s.kind is float:
            self._guard(same_float(s, v), site, "specialize")  # type: ignore[arg-type]
            self.prover.assign(s, self.ctx.lift(v))
        else:
            self._guard(apply("eq", s, v), site, "specialize")
        return v  # type: ignore[return-value]

    def _applied(self, op: str, args: tuple[Expr, ...], result: Expr) -> None:
        self.events.append(Event("apply", result, args, None, op, stack()))  # type: ignore[union-attr]

    def _event(self, kind: str, e: Expr, value: Any, site: Any = None) -> None:
        if self.events is not None:
            self.events.append(Event(kind, e, value, site, "", stack()))

    # views ---------------------------------------------------------------------------

    def range(self, e: Expr) -> tuple | None:
        """(lo, hi), inclusive, +-math.inf where unbounded; None for a float that may be nan."""
        if e.__class__ is not Expr:
            return (e, e)
        r = self.prover.ranges.of(self.simplify(e))
        if r is not None:
            self._event("range", e, r)
        return r

    def simplify(self, e: Expr) -> Expr:
        """An equal expression, as simple as the facts make it."""
        r = self.prover.equalities.simplify(e)
        if r is not e:
            self._event("simplify", e, r)
        return r

    def optimization_hint(self, e: Expr, fallback: Scalar = 64) -> Scalar:
        """A plausible value, to choose between equally correct ways: never to answer a question of the program."""
        if e.__class__ is not Expr:
            return e  # type: ignore[return-value]
        if self.values is not None and all([s.name in self.values for s in e.symbols()]):
            return e.evaluate(self.values)
        if e.hint is not None:
            return e.hint
        values = {}
        for s in e.symbols():
            lo, hi = self.range(s) or (None, None)
            v = s.info.hint if s.info.hint is not None else fallback
            values[s.name] = v if lo is None else max(lo, min(hi, v))
        try:
            return e.evaluate(values)
        except (ArithmeticError, ValueError):
            return fallback

    @property
    def guards(self) -> list[SymGuard]:
        """What the entry must check: the declared ranges, then what the program decided; none that others imply."""
        if self._minimal is None or self._minimal[0] != (len(self._guards), len(self.symbols)):
            decided = minimal(self._guards)
            key = (len(self._guards), len(self.symbols))
            self._minimal = key, [*without_declared(self.declared_guards(), decided), *decided]
        return list(self._minimal[1])

    def guards_since(self, token: tuple) -> list[SymGuard]:
        """Those that were decided after `snapshot` gave the token."""
        return self._guards[token[1] :]

    @property
    def all_guards(self) -> list[SymGuard]:
        """Every guard as it was recorded, implied ones too: for the log."""
        return [*self.declared_guards(), *self._guards]

    def declared_guards(self) -> list[SymGuard]:
        """The ranges that backed symbols were declared with, as guards."""
        out = []
        for s in self.symbols.values():
            i = s.info
            if i.backed and i.kind is not bool:
                if i.lo is not None and not (i.size_like and i.lo <= 0):
                    out.append(self.ctx.node("ge", (s, self.ctx.lift(i.lo)), bool))  # as it stands: by declaration it is simply true
                if i.hi is not None:
                    out.append(self.ctx.node("le", (s, self.ctx.lift(i.hi)), bool))
        return [SymGuard(normal(c), None, "declared", c) for c in out if c.const is None]

    @property
    def asserts(self) -> list[Assert]:
        """The runtime assertions, in the order in which they were assumed."""
        self._asserted += [Assert(*fields) for fields in self._asserts[len(self._asserted) :]]
        return list(self._asserted)

    def snapshot(self) -> tuple:
        """A token for `rollback`."""
        return self.prover.facts.mark(), len(self._guards), len(self._asserts), len(self.symbols), len(self.events or ())

    def rollback(self, token: tuple) -> None:
        """Forget everything since the snapshot: an abandoned capture leaves no fact behind."""
        mark, guards, asserts, symbols, events = token
        if self.events is not None:
            del self.events[events:]
        self._minimal = None
        self.prover.facts.undo(mark)
        del self._guards[guards:], self._asserts[asserts:], self._asserted[asserts:]
        for name in list(self.symbols)[symbols:]:
            del self.symbols[name]
        self._forget_answers()  # some may rest on forgotten facts

    def implied(self, c: Expr, premises: Iterable[Expr]) -> bool:
        """Whether `c` would be known if all of `premises` were, as far as they may hold. Nothing of that is kept."""
        known, token = dict(self.known), self.snapshot()
        for p in premises:
            if not self.known_false(p):
                self.learn(p)
        answer = self.known_true(c)
        self.rollback(token)
        self.known.update(known)  # these rest on facts that are still there
        return answer

    def _forget_answers(self) -> None:
        self.known.clear()
        self.known[self.ctx.true] = True
        self.known[self.ctx.false] = False


def same_float(e: Expr, v: float) -> Expr:
    """e is v to the bit (but for nan payloads): == alone does not tell 0.0 from -0.0."""
    if v != v:
        return ops.ne(e, e)
    if v == 0.0:
        return ops.and_(ops.eq(e, v), ops.eq(apply("copysign", 1.0, e), copysign(1.0, v)))
    return ops.eq(e, v)
