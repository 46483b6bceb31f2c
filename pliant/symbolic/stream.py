"""The questions of a real capture as a plain list, to be asked again: of this engine, or of another.

    with stream.recording() as streams:
        compiled(x)                      # one stream for each capture
    for _, _, ask in replay(streams[0], On(Scope())):
        ask()                            # the same questions

While nobody records, a new scope looks once at `Scope.born`, and that is all it costs. A stream is data that JSON can hold, a list of
steps:

- `["symbol", name, kind, hint, lo, hi, "backed" | "unbacked", size_like]`, `["const", value]`, `["sum", [[[atom, ...], coefficient], ...]]`
  and `[op, [operand, ...]]` each make one value; a value is spoken of by its place among the values made;
- `["ask", verb, op, operands, answer]`: the verb (a method of `Scope`) was asked about `op` of those operands; op "" is the one operand
  itself.

A comparison that building it settles (`a*b == b*a`) never reaches a scope: it is written as a question for `decide`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from pliant.symbolic import ops
from pliant.symbolic.expr import Expr, postorder
from pliant.symbolic.relation import OPPOSITE
from pliant.symbolic.scope import Scope

Step = list[Any]
KINDS: dict[str, type] = {"int": int, "float": float, "bool": bool}
VERBS = ("decide", "decide_or_false", "known_true", "known_false", "assume", "specialize", "learn", "require")


class _NoComparisons(dict):
    """A memo of operators in which comparisons are not found again, so that each is built, and seen, every time it is asked."""

    def __setitem__(self, key: tuple, value: Expr) -> None:
        if key[0] not in OPPOSITE:
            super().__setitem__(key, value)


class Recorded(Scope):
    """A scope that writes down what it is asked. `steps` is the stream."""

    steps: list[Step]

    def begin(self) -> None:
        self.steps = []
        self._places: dict[Expr, int] = {}
        self._made = 0
        self._inside = False  # verbs call each other: only the program's own questions count
        self._marks: list[tuple[Any, int, int]] = []
        self._told = self.ctx.record
        self.ctx.record = self._seen
        self.ctx.memo = _NoComparisons(self.ctx.memo)

    def _seen(self, op: str, args: tuple[Expr, ...], result: Expr) -> None:
        if self._told is not None:
            self._told(op, args, result)
        if op in OPPOSITE and result.const is not None and not self._inside and any(a.const is None for a in args):
            self.steps.append(["ask", "decide", op, [self._place(a) for a in args], bool(result.const)])

    def _value(self, e: Expr, step: Step) -> None:
        self.steps.append(step)
        self._places[e] = self._made
        self._made += 1

    def _place(self, e: Expr) -> int:
        """Where e is among the values; made first if it is new."""
        for n in postorder(e, done=self._places, leaf="subtotal"):
            source = n.args[0] if n.op == "subtotal" else n
            if n.const is not None:
                self._value(n, ["const", n.const])
            elif source.op == "sum":
                for a in (a for m, _ in source.terms for a in m):
                    self._place(a)
                self._value(n, ["sum", [[[self._places[a] for a in m], c] for m, c in source.terms]])
            elif n.op != "sym":
                self._value(n, [n.op, [self._places[a] for a in n.args]])
        return self._places[e]

    def _symbol(self, name, kind, hint, lo, hi, backed, size_like, source, dim) -> Expr:
        s = super()._symbol(name, kind, hint, lo, hi, backed, size_like, source, dim)
        i = s.info
        self._value(s, ["symbol", name, kind.__name__, i.hint, i.lo, i.hi, "backed" if backed else "unbacked", size_like])
        return s

    def snapshot(self) -> tuple:
        token = super().snapshot()
        self._marks.append((token, len(self.steps), self._made))
        return token

    def rollback(self, token: tuple) -> None:
        super().rollback(token)
        steps, made = next((s, m) for t, s, m in reversed(self._marks) if t is token)
        del self.steps[steps:]
        self._made = made
        self._places = {e: i for e, i in self._places.items() if i < made}

    def _asked(self, verb: str, c: Expr, answer: Any) -> None:
        if c.op in ("const", "sym", "sum", "subtotal"):
            op, operands = "", [self._place(c)]
        else:
            op, operands = c.op, [self._place(a) for a in c.args]
        self.steps.append(["ask", verb, op, operands, answer])


def _recorded(verb: str) -> Callable[..., Any]:
    ask = getattr(Scope, verb)

    def method(self: Recorded, c: Any, *args: Any, **kwargs: Any) -> Any:
        if self._inside:
            return ask(self, c, *args, **kwargs)
        self._inside = True
        try:
            answer = ask(self, c, *args, **kwargs)
        finally:
            self._inside = False
        if c.__class__ is Expr and c.const is None:
            self._asked(verb, c, answer)
        return answer

    return method


for _verb in VERBS:
    setattr(Recorded, _verb, _recorded(_verb))


@contextmanager
def recording() -> Iterator[list[list[Step]]]:
    """The streams of the scopes born in the block, in order."""
    streams: list[list[Step]] = []

    def born(scope: Scope) -> None:
        scope.__class__ = Recorded
        scope.begin()  # type: ignore[attr-defined]
        streams.append(scope.steps)  # type: ignore[attr-defined]

    before = Scope.born
    Scope.born = born
    try:
        yield streams
    finally:
        Scope.born = before


# asking again ----------------------------------------------------------------------------------


class Engine(Protocol):
    """Whoever can be asked a stream. Values are the engine's own; numbers stand for themselves.

    `question` gives the act of asking, ready to be done (and timed): build `op` of the operands, then ask.
    """

    def symbol(self, name: str, kind: type, hint: Any, lo: Any, hi: Any, backed: bool, size_like: bool) -> Any: ...

    def apply(self, op: str, *operands: Any) -> Any: ...

    def question(self, verb: str, op: str, operands: list[Any]) -> Callable[[], Any]: ...


def replay(steps: list[Step], engine: Engine) -> Iterator[tuple[Step, list[Any], Callable[[], Any]]]:
    """Every question in order: its step, its operands, and how to ask it. Values are made when their turn comes.

    Whoever reads on without asking leaves a fact out of what follows.
    """
    values: list[Any] = []
    for step in steps:
        match step:
            case ["ask", verb, op, operands, _]:
                arguments = [values[i] for i in operands]
                yield step, arguments, engine.question(verb, op, arguments)
            case ["symbol", name, kind, hint, lo, hi, backed, size_like]:
                values.append(engine.symbol(name, KINDS[kind], hint, lo, hi, backed == "backed", size_like))
            case ["const", value]:
                values.append(value)
            case ["sum", terms]:
                values.append(combine(engine, [([values[i] for i in atoms], c) for atoms, c in terms]))
            case [op, operands]:
                values.append(engine.apply(op, *[values[i] for i in operands]))


def combine(engine: Engine, terms: list[tuple[list[Any], int]]) -> Any:
    """A polynomial by multiplications and additions."""
    total: Any = None
    for atoms, c in terms:
        t: Any = None if atoms and c == 1 else c
        for a in atoms:
            t = a if t is None else engine.apply("mul", t, a)
        total = t if total is None else engine.apply("add", total, t)
    return total


class On:
    """A `Scope` as an engine."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def symbol(self, name: str, kind: type, hint: Any, lo: Any, hi: Any, backed: bool, size_like: bool) -> Expr:
        make = self.scope.backed if backed else self.scope.unbacked
        return make(name, kind=kind, hint=hint, lo=lo, hi=hi, size_like=size_like)

    def apply(self, op: str, *operands: Any) -> Any:
        return ops.DOORS[op](*operands)

    def question(self, verb: str, op: str, operands: list[Any]) -> Callable[[], Any]:
        ask = getattr(self.scope, verb)
        exprs = [self.scope.ctx.lift(x) for x in operands]
        match exprs:
            case [a] if not op:
                return lambda: ask(a)
            case [a, b]:
                build = ops.DOORS[op]
                return lambda: ask(build(a, b))
        return lambda: ask(ops.DOORS[op](*exprs))
