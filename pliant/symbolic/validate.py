"""Translation validation: whatever was answered follows from what is kept.

A recording scope writes down each operator that the program applied, each answer, and each fact. Every one is a *claim*:

- `apply`: the expression built is the operator's value on its operands (a wrong rewrite rule breaks this);
- `answer`, `range`, `simplify`: it follows from the guards that the entry keeps, the assertions and the axioms made before it
  (a wrong proof, a wrong minimization, or a fact that was learned but not kept breaks this).

z3 looks for sizes that satisfy the guards and refute a claim. Claims are asked about in blocks; a block with a refutation is bisected,
earlier half first, so that the violation reported is the *first* step that went wrong, with its stack and concrete sizes.

Floats are taken as real numbers: validation is about sizes. z3 may give up on non-linear claims; those are counted, and tried on
random models.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import z3

from pliant.symbolic.event import Event
from pliant.symbolic.expr import TABLE, Expr, Scalar, postorder, same
from pliant.symbolic.ops import UNARY
from pliant.symbolic.scope import Scope
from pliant.symbolic.straight_line import Step, program

BLOCK = 32
SORTS = {int: "Int", float: "Real", bool: "Bool"}
DIVISIONS = ("floordiv", "mod", "int_truediv", "fdiv", "ffloordiv", "fmod")
BITWISE = ("bit_and", "bit_or", "bit_xor")

PRELUDE = """
(define-fun pl_floordiv ((a Int) (b Int)) Int (ite (> b 0) (div a b) (div (- a) (- b))))
(define-fun pl_mod ((a Int) (b Int)) Int (- a (* b (pl_floordiv a b))))
(define-fun pl_min ((a Int) (b Int)) Int (ite (<= a b) a b))
(define-fun pl_max ((a Int) (b Int)) Int (ite (>= a b) a b))
(define-fun pl_signed ((x (_ BitVec 64))) Int (ite (bvslt x #x0000000000000000) (- (bv2int x) 18446744073709551616) (bv2int x)))
(declare-fun pl_pow (Int Int) Int)
(declare-fun pl_fpow (Real Real) Real)
(declare-fun pl_copysign (Real Real) Real)
(define-fun pl_fmod ((a Real) (b Real)) Real (- a (* b (to_real (to_int (/ a b))))))
(define-fun pl_round ((a Real)) Int (let ((f (to_int a))) (let ((d (- a (to_real f))))
  (ite (< d 0.5) f (ite (> d 0.5) (+ f 1) (ite (= (mod f 2) 0) f (+ f 1)))))))
""" + "\n".join(f"(declare-fun pl_{f} (Real) Real)" for f in UNARY)


class Inexpressible(Exception):
    """A constant that real numbers do not have (inf, nan)."""


@dataclass(frozen=True, slots=True)
class Violation:
    """The first wrong step, and sizes that show it."""

    index: int
    event: Event
    model: dict[str, Scalar]

    def __str__(self) -> str:
        sizes = ", ".join(f"{k}={v}" for k, v in self.model.items())
        stack = "".join(f"\n    {line}" for line in self.event.stack)
        return f"step {self.index} is wrong: {self.event}\n  refuted by {sizes}{stack}"


@dataclass(slots=True)
class Report:
    """`checked` claims were shown, `undecided` ones neither shown nor refuted, `skipped` ones cannot be expressed."""

    violation: Violation | None = None
    checked: int = 0
    undecided: list[Event] = field(default_factory=list)
    skipped: int = 0


def validate(scope: Scope, timeout_ms: int = 2000) -> Report:
    """Check a recording scope. Events that were rolled back are forgotten with their facts."""
    if scope.events is None:
        raise ValueError("the scope did not record: Scope(record=True), or PLIANT_VALIDATE=1")
    validator = Validator(scope, timeout_ms)
    claims = [i for i, e in enumerate(scope.events) if not trivial(e)]
    for start in range(0, len(claims), BLOCK):
        validator.report.violation = validator.first_wrong(claims[start : start + BLOCK])
        if validator.report.violation is not None:
            break
    return validator.report


def trivial(e: Event) -> bool:
    """Facts are hypotheses, and an operator's node that was built as asked says itself."""
    if e.kind in ("guard", "assert", "axiom"):
        return e.kind != "guard"
    return e.kind == "apply" and e.expr.op == e.op and same(e.expr.args, e.value)


class Validator:
    """Claims of one scope as questions to z3."""

    def __init__(self, scope: Scope, timeout_ms: int) -> None:
        self.events: list[Event] = scope.events or []
        self.kept = [g.expr for g in scope.guards]
        self.symbols = list(scope.symbols.values())
        self.timeout_ms = timeout_ms
        self.report = Report()
        self.rng = random.Random(0)

    def first_wrong(self, block: Sequence[int]) -> Violation | None:
        """The first refuted claim of the block, by bisection."""
        if not block:
            return None
        try:
            answer, model = self.ask(block)
        except Inexpressible:
            answer, model = z3.unknown, {}
            if len(block) == 1:
                self.report.skipped += 1
                return None
        if answer == z3.unsat:
            self.report.checked += len(block)
            return None
        if len(block) == 1:
            if answer == z3.unknown or not self.refutes(block[0], model):
                model = self.refute_by_luck(block[0]) or {}
                if not model:
                    self.report.undecided.append(self.events[block[0]])
                    return None
            return Violation(block[0], self.events[block[0]], model)
        half = len(block) // 2
        return self.first_wrong(block[:half]) or self.first_wrong(block[half:])

    def ask(self, block: Sequence[int]) -> tuple[z3.CheckSatResult, dict[str, Scalar]]:
        """Whether some sizes refute one of the claims."""
        before = [i for i in range(block[-1]) if self.events[i].kind in ("assert", "axiom")]
        roots: list[Expr] = [*self.kept, *(self.events[i].expr for i in before)]
        for i in block:
            roots += expressions(self.events[i])
        steps, index = program(roots)
        text = Text(steps, index)
        lines = [PRELUDE, *text.declarations(), *self.declared_ranges(text)]
        lines += [f"(assert {text.holds(c)})" for c in self.kept]
        refuted = []
        for i in block:
            hypotheses = [text.holds(self.events[j].expr) for j in before if j < i]
            refuted.append(conjunction([*hypotheses, *text.defined(expressions(self.events[i])), f"(not {text.claim(self.events[i])})"]))
        lines.append(f"(assert (or false {' '.join(refuted)}))")
        solver = z3.Solver()
        solver.set("timeout", self.timeout_ms)
        solver.from_string("\n".join(lines))
        answer = solver.check()
        return answer, self.model(solver.model()) if answer == z3.sat else {}

    def refutes(self, i: int, model: dict[str, Scalar]) -> bool:
        """Whether a counter-model of z3 is one for Python, too: z3 speaks of real numbers, and of powers that mean nothing to it."""
        event = self.events[i]
        if not any(n.kind is float for e in expressions(event) for n in postorder(e)):
            return True
        try:
            return not claim_value(event, model)
        except (ArithmeticError, ValueError, KeyError):
            return True

    def declared_ranges(self, text: Text) -> list[str]:
        """What symbols are born with. A backed symbol's range must be guarded, but for a size's `>= 0`."""
        out = []
        for s in self.symbols:
            info = s.info
            if s in text.index and info.kind is not bool:
                lo = 0 if info.backed and info.size_like else None if info.backed else info.lo
                hi = None if info.backed else info.hi
                for op, end in ((">=", lo), ("<=", hi)):
                    if end is not None:
                        out.append(f"(assert ({op} {text.term(s)} {literal(end)}))")
        return out

    def model(self, m: z3.ModelRef) -> dict[str, Scalar]:
        values = {str(d): m[d] for d in m.decls() if d.arity() == 0}
        return {s.name: number(values[quoted(s.name).strip("|")], s.info.kind) for s in self.symbols if s.name in values}

    def refute_by_luck(self, i: int) -> dict[str, Scalar] | None:
        """Random sizes that satisfy all hypotheses and refute the claim, for what z3 cannot decide."""
        event = self.events[i]
        hypotheses = self.kept + [e.expr for e in self.events[:i] if e.kind in ("assert", "axiom")]
        for _ in range(300):
            model = {s.name: self.random_value(s) for s in self.symbols}
            try:
                if all(h.evaluate(model) for h in hypotheses) and not claim_value(event, model):
                    return model
            except (ArithmeticError, ValueError):
                continue
        return None

    def random_value(self, s: Expr) -> Scalar:
        info = s.info
        if info.kind is bool:
            return self.rng.random() < 0.5
        lo = info.lo if info.lo is not None else -6
        hi = info.hi if info.hi is not None else lo + self.rng.choice([3, 12, 100])
        return self.rng.randint(math.ceil(lo), math.floor(hi)) if info.kind is int else self.rng.uniform(lo, hi)


def expressions(e: Event) -> list[Expr]:
    """What a claim speaks of."""
    if e.kind == "apply":
        return [e.expr, *e.value]
    return [e.expr, e.value] if e.kind == "simplify" else [e.expr]


def claim_value(e: Event, model: dict[str, Scalar]) -> bool:
    """The claim in one concrete world."""
    v = e.expr.evaluate(model)
    match e.kind:
        case "apply":
            return v == TABLE[e.op].fn(*[a.evaluate(model) for a in e.value])
        case "simplify":
            return v == e.value.evaluate(model)
        case "range":
            return e.value[0] <= v <= e.value[1]
    return bool(v) == e.value


class Text:
    """A program as SMT-LIB: one definition for each step."""

    def __init__(self, steps: list[Step], index: dict[Expr, int]) -> None:
        self.steps = steps
        self.index = index

    def declarations(self) -> list[str]:
        out = []
        for i, s in enumerate(self.steps):
            if s.op == "sym":
                name = quoted(s.value.name)  # type: ignore[union-attr]
                out.append(f"(declare-const {name} {SORTS[s.kind]})")
                out.append(f"(define-fun pl_t{i} () {SORTS[s.kind]} {name})")
            else:
                body = literal(s.value) if s.op == "const" else TABLE[s.op].smt.format(*[f"pl_t{a}" for a in s.args])  # type: ignore[arg-type]
                out.append(f"(define-fun pl_t{i} () {SORTS[s.kind]} {body})")
        return out

    def term(self, e: Expr) -> str:
        return f"pl_t{self.index[e]}"

    def defined(self, roots: Iterable[Expr]) -> list[str]:
        """No divisor is zero, and what is taken bit by bit fits a machine word."""
        out = []
        seen: set[int] = set()
        stack = [self.index[e] for e in roots]
        while stack:
            i = stack.pop()
            if i not in seen:
                seen.add(i)
                s = self.steps[i]
                stack.extend(s.args)
                if s.op in DIVISIONS:
                    out.append(f"(not (= pl_t{s.args[1]} {'0' if s.op in ('floordiv', 'mod', 'int_truediv') else '0.0'}))")
                elif s.op in BITWISE:
                    out += [fits_int64(f"pl_t{a}") for a in s.args]
        return out

    def holds(self, c: Expr) -> str:
        """A guard as the entry checks it: a division by zero fails it."""
        return conjunction([*self.defined([c]), self.term(c)])

    def claim(self, e: Event) -> str:
        t = self.term(e.expr)
        match e.kind:
            case "apply":
                asked = self.asked(e)
                divisor = self.as_number(e.value[1]) if e.op in ("floordiv", "mod", "ceildiv", "truediv") else ""
                if e.op in BITWISE and e.expr.kind is int:
                    return f"(=> {conjunction([fits_int64(self.as_number(a)) for a in e.value])} (= {t} {asked}))"
                return f"(or (= {divisor} 0) (= {t} {asked}))" if divisor else f"(= {t} {asked})"
            case "simplify":
                return f"(= {t} {self.term(e.value)})"
            case "range":
                value = self.as_number(e.expr)
                ends = [f"({op} {value} {literal(v)})" for op, v in ((">=", e.value[0]), ("<=", e.value[1])) if not math.isinf(v)]
                return conjunction(ends)
        return t if e.value else f"(not {t})"

    def asked(self, e: Event) -> str:
        """The operator on its operands, as Python defines it: independent of the rewrite rules."""
        args: tuple[Expr, ...] = e.value
        kinds = {a.kind for a in args}
        if e.op in ("and", "or", "not"):
            return chain(e.op, [self.as_truth(a) for a in args])
        if e.op in ("to_bool",):
            return self.as_truth(args[0])
        if e.op == "where":
            branches = [self.as_kind(a, e.expr.kind) for a in args[1:]]
            return f"(ite {self.as_truth(args[0])} {' '.join(branches)})"
        if e.op in ("bit_and", "bit_or", "bit_xor") and kinds == {bool}:
            return chain(e.op.removeprefix("bit_"), [self.term(a) for a in args])
        floats = float in kinds
        terms = [self.as_kind(a, float) if floats else self.as_number(a) for a in args]
        return asked_number(e.op, floats, terms, args)

    def as_truth(self, e: Expr) -> str:
        return self.term(e) if e.kind is bool else f"(not (= {self.term(e)} {'0' if e.kind is int else '0.0'}))"

    def as_number(self, e: Expr) -> str:
        return f"(ite {self.term(e)} 1 0)" if e.kind is bool else self.term(e)

    def as_kind(self, e: Expr, kind: type) -> str:
        if kind is float and e.kind is not float:
            return f"(to_real {self.as_number(e)})"
        return self.as_number(e) if kind is int else self.term(e)


def asked_number(op: str, floats: bool, terms: list[str], args: Sequence[Expr]) -> str:
    """An arithmetic operator or a comparison on SMT terms of one sort."""
    constant = args[1].const if len(args) > 1 else None
    match op:
        case "ceildiv" if not floats:
            return f"(- (pl_floordiv (- {terms[0]}) {terms[1]}))"
        case "truediv":
            return TABLE["fdiv" if floats else "int_truediv"].smt.format(*terms)
        case "pow" | "int_pow" if not floats and type(constant) is int and 0 <= constant <= 16:
            return chain("*", [terms[0]] * constant) if constant else "1"
        case "pow":
            return f"(pl_fpow {' '.join(terms)})" if floats else f"(pl_pow {' '.join(terms)})"
        case "lshift" | "rshift" if type(constant) is int and 0 <= constant <= 62:
            return f"({'*' if op == 'lshift' else 'pl_floordiv'} {terms[0]} {1 << constant})"
        case "bit_not":
            return f"(- (- {terms[0]}) 1)"
        case "to_int":
            return TABLE["trunc"].smt.format(*terms) if floats else terms[0]
        case "floor" | "ceil" | "trunc" | "round" if not floats:
            return terms[0]
        case "to_float" if floats:
            return terms[0]
        case "ceildiv":
            return f"(- {TABLE['ffloordiv'].smt.format(f'(- {terms[0]})', terms[1])})"
    row = TABLE["f" + op] if floats and "f" + op in TABLE else TABLE[op]
    if (op in UNARY or op == "copysign") and not floats:
        terms = [f"(to_real {t})" for t in terms]
    while len(terms) > 2 and row.arity in (-1, 2):
        terms = [row.smt.format(terms[0], terms[1]), *terms[2:]]
    return row.smt.format(*terms)


def fits_int64(term: str) -> str:
    return f"(and (<= (- {2**63}) {term}) (< {term} {2**63}))"


def chain(op: str, terms: list[str]) -> str:
    return terms[0] if len(terms) == 1 and op != "not" else f"({op} {' '.join(terms)})"


def conjunction(parts: Sequence[str]) -> str:
    return f"(and true {' '.join(parts)})"


def quoted(name: str) -> str:
    return f"|{name}|"


def literal(v: Scalar) -> str:
    """A number as SMT-LIB writes it."""
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, int):
        return str(v) if v >= 0 else f"(- {-v})"
    if not math.isfinite(v):
        raise Inexpressible(v)
    f = Fraction(v)
    text = f"(/ {abs(f.numerator)}.0 {f.denominator}.0)"
    return text if f >= 0 else f"(- {text})"


def number(v: z3.ExprRef, kind: type) -> Scalar:
    """A value of z3's model as Python's."""
    if kind is bool:
        return z3.is_true(v)
    if not z3.is_int_value(v) and not z3.is_rational_value(v) and not z3.is_algebraic_value(v):
        raise Inexpressible(v)  # in terms of a function that z3 knows nothing about
    if kind is int:
        return v.as_long()
    f = v.as_fraction() if z3.is_rational_value(v) else v.approx(20).as_fraction()
    return float(f)
