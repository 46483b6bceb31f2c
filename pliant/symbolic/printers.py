"""How expressions are written: Python source for people and logs, postfix programs for the native guard engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite  # names that a program may replace in the module

from pliant.symbolic.expr import TABLE, Expr, postorder

# Binding strength of the Python templates; a call binds strongest.
PRECEDENCE = {"where": 1, "or": 2, "and": 3, "not": 4} | dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), 5)
PRECEDENCE |= {"bit_or": 6, "bit_xor": 7, "bit_and": 8, "lshift": 9, "rshift": 9, "sum": 10, "fadd": 10, "fsub": 10}
PRECEDENCE |= dict.fromkeys(("product", "floordiv", "mod", "int_truediv", "fmul", "fdiv", "ffloordiv", "fmod"), 11)
PRECEDENCE |= {"fneg": 12, "negative": 12, "int_pow": 13, "fpow": 13}
CALL = 20


class Texts(dict[Expr, tuple[str, int]]):
    """Subexpressions printed so far, with their binding strength; those that have names are printed as these."""

    def __init__(self, named: Mapping[Expr, str]) -> None:
        super().__init__()
        self.named = named

    def __missing__(self, e: Expr) -> tuple[str, int]:
        return self.named[e], CALL


def python(
    e: Expr, rename: Mapping[str, str] | Callable[[str], str] | None = None, named: Mapping[Expr, str] | None = None
) -> str:
    """A Python expression over symbol names (`rename` maps them) and variables that hold subexpressions; `math` may be needed."""
    name = rename if callable(rename) else (lambda n: rename.get(n, n)) if rename else (lambda n: n)
    named = named or {}
    done = Texts(named)
    for n in postorder(e, done=named):
        if n.const is not None:
            done[n] = _const(n.const)
        elif n.op == "sym":
            done[n] = (name(n.name), CALL)
        elif n.op == "sum":
            done[n] = _sum(n, done)
        elif n.op == "subtotal":  # a sum in its own right: it keeps the precedence of one
            done[n] = done[n.args[0]]
        else:
            done[n] = _node(n, done)
    return done[e][0]


def _const(v: int | float | bool) -> tuple[str, int]:
    if isinstance(v, float) and not isfinite(v):
        return f"float('{v}')", CALL
    return text_of(v), (PRECEDENCE["negative"] if v < 0 or text_of(v).startswith("-") else CALL)


def text_of(v: int | float | bool | str | None) -> str:
    """A constant as Python reads it: an integer that is longer than Python writes in decimals in hexadecimals."""
    return hex(v) if type(v) is int and v.bit_length() > LONGEST else repr(v)


LONGEST = 1024
"""Bits of an integer that is written in decimals."""


def _wrap(item: tuple[str, int], at_least: int) -> str:
    return item[0] if item[1] >= at_least else f"({item[0]})"


def _sum(e: Expr, done: dict[Expr, tuple[str, int]]) -> tuple[str, int]:
    out = ""
    product = PRECEDENCE["product"]
    terms = list(e.terms)
    if any([a.op != "sym" for mono, _ in terms for a in mono]):  # what is older says nothing to a reader
        terms = [(tuple(sorted(mono, key=lambda a: _place(a, done))), c) for mono, c in terms]
        terms.sort(key=lambda t: (-len(t[0]), [_place(a, done) for a in t[0]]))
    terms.sort(key=lambda t: (not t[0], t[1] < 0))  # subtractions after additions, the constant last
    for mono, c in terms:
        factors = []
        i = 0
        while i < len(mono):
            n = sum(1 for a in mono if a is mono[i])
            alone = n == len(mono) == 1 and abs(c) == 1
            factors.append(_wrap(done[mono[i]], product + (c < 0 or not alone)) + (f"**{n}" if n > 1 else ""))
            i += n
        if abs(c) != 1 or not factors:
            factors.insert(0, text_of(abs(c)))
        text = "*".join(factors)
        sign = "-" if c < 0 else "+"
        out += f" {sign} {text}" if out else text if c > 0 else f"-{text}"
    return out, PRECEDENCE["sum"] if len(terms) > 1 else product


def _place(e: Expr, done: dict[Expr, tuple[str, int]]) -> tuple[int, str]:
    """Symbols first, in their order, then others by their text."""
    return (e.serial, "") if e.op == "sym" else (2**60, done[e][0])


def _node(e: Expr, done: dict[Expr, tuple[str, int]]) -> tuple[str, int]:
    template = TABLE[e.op].python
    p = PRECEDENCE.get(e.op, CALL)
    if template.startswith("{*"):
        return f" {e.op} ".join(_wrap(done[a], p + 1) for a in e.args), p
    if "{*}" in template:
        return template.replace("{*}", ", ".join(done[a][0] for a in e.args)), CALL
    if p == CALL:
        return template.format(*[done[a][0] for a in e.args]), CALL
    return template.format(*[_wrap(done[a], p + 1) for a in e.args]), p


POSTFIX = frozenset(
    ("floordiv", "mod", "neg", "abs", "min", "max", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "where")
)
INT64 = 2**63


def postfix(e: Expr, index: Mapping[str, int]) -> list[tuple] | None:
    """The native relation program of an int or bool expression, None if it needs more than int64 arithmetic.

    `index` gives each symbol's variable. Bools are 0 and 1.
    """
    code: list[tuple] = []
    stack: list[Expr | tuple] = [e]
    while stack:
        item = stack.pop()
        if isinstance(item, tuple):
            code.append(item)
            continue
        if item.kind is float:
            return None
        if item.const is not None:
            if not -INT64 <= item.const < INT64:
                return None
            code.append(("const", int(item.const)))
        elif item.op == "sym":
            code.append(("var", index[item.name]))
        elif item.op == "sum":
            if any(not -INT64 <= c < INT64 for _, c in item.terms):
                return None
            stack.extend(reversed(_sum_program(item)))
        elif item.op in ("bool_to_int", "subtotal"):
            stack.append(item.args[0])
        elif item.op in POSTFIX and all(a.kind is not float for a in item.args):
            stack.extend(reversed(_node_program(item)))
        else:
            return None
    return code


def _node_program(e: Expr) -> list[Expr | tuple]:
    if len(e.args) <= 2 or e.op == "where":
        return [*e.args, (e.op,)]
    out: list[Expr | tuple] = [e.args[0]]
    for a in e.args[1:]:
        out += [a, (e.op,)]
    return out


def _sum_program(e: Expr) -> list[Expr | tuple]:
    out: list[Expr | tuple] = []
    for k, (mono, c) in enumerate(sorted(e.terms, key=lambda t: t[1] < 0)):
        minus = c < 0 and k > 0
        c = -c if minus else c
        term: list[Expr | tuple] = []
        for a in mono:
            term += [a, ("mul",)] if term else [a]
        if not term:
            term = [("const", c)]
        elif c == -1:
            term.append(("neg",))
        elif c != 1:
            term += [("const", c), ("mul",)]
        out += term
        if k:
            out.append(("sub",) if minus else ("add",))
    return out
