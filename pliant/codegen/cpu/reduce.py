"""Accumulators of the reductions that one sweep computes together.

A set of accumulators is a flat list of values: one for each reduction, two (value, position) for argmax and argmin. The value is the
maximum or minimum itself, so that both together take no more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from pliant.codegen.cpu.access import Frame
from pliant.codegen.cpu.dtypes import cast, constant
from pliant.codegen.cpu.math import Math
from pliant.codegen.cpu.scalars import better, combine, identity, later
from pliant.codegen.cpu.text import Value, const
from pliant.graph.originals import math
from pliant.lower.loops import DTYPES, Node

HALVES = ("bf16", "f16")
NOWHERE = (1 << 63) - 1


def accumulator_dtype(n: Node) -> str:
    """The dtype in which a reduction accumulates its values."""
    kind = n.attrs[0]
    if kind in ("any", "all"):
        return "bool"
    dtype = n.args[0].dtype if kind.startswith("arg") else n.dtype
    return "f32" if dtype in HALVES else dtype


class Accumulators:
    def __init__(self, m: Math, reduces: list[Node], ordered: bool = False) -> None:
        """`ordered`: each lane meets its reduction points in row-major order."""
        self.m, self.b, self.ordered = m, m.b, ordered
        places = {(n.attrs[0][3:], id(n.args[0])): n for n in reduces if n.attrs[0].startswith("arg")}
        self.every, self.from_place = reduces, {id(n): m for n in reduces if (m := places.get((n.attrs[0], id(n.args[0])))) is not None}
        self.reduces = [n for n in reduces if id(n) not in self.from_place]
        self.dtypes = [accumulator_dtype(n) for n in self.reduces]
        self.cascades = any(n.attrs[0] in ("sum", "prod") and DTYPES[d].kind == "f" for n, d in zip(self.reduces, self.dtypes))

    def start(self, lanes: int) -> list[Value]:
        out = []
        for n, dtype in zip(self.reduces, self.dtypes):
            out.append(self.b.splat(constant(identity(n.attrs[0], dtype), dtype), lanes))
            if n.attrs[0].startswith("arg"):
                out.append(self.b.splat(const(NOWHERE, "i64"), lanes))
        return out

    def width(self) -> int:
        return sum(1 + n.attrs[0].startswith("arg") for n in self.reduces)

    def types(self) -> list[str]:
        """LLVM types of the values of a set, as scalars."""
        return [v.ty for v in self.start(1)]

    def update(self, frame: Frame, accs: list[Value], position: Value | None, masked: bool) -> list[Value]:
        """Take in the values at `frame`; `position` counts reduction points row-major, for argmax and argmin."""
        b, out, at = self.b, [], 0
        mask = frame.mask if masked else None
        for n, dtype in zip(self.reduces, self.dtypes):
            kind, arg, acc = n.attrs[0], n.args[0], accs[at]
            at += 1
            if kind == "sum" and arg.op == "mul" and arg.dtype == n.dtype and acc.floating and self.m.target.fma:
                new = b.fma(frame.values[id(arg.args[0])], frame.values[id(arg.args[1])], acc)
            else:
                v = cast(b, frame.values[id(arg)], arg.dtype, dtype, self.m.target)
                if kind.startswith("arg"):
                    assert position is not None
                    take = later(b, kind, dtype, v, acc) if self.ordered else better(b, kind, dtype, v, position, acc, accs[at])
                    if mask is not None:
                        take = b.binary("and", take, mask)
                    out += [b.select(take, v, acc), b.select(take, position, accs[at])]
                    at += 1
                    continue
                new = combine(self.m, kind, dtype, acc, v)
            out.append(new if mask is None else b.select(mask, new, acc))
        return out

    def merge(self, one: list[Value], two: list[Value]) -> list[Value]:
        b, out, at = self.b, [], 0
        for n, dtype in zip(self.reduces, self.dtypes):
            kind = n.attrs[0]
            if kind.startswith("arg"):
                take = better(b, kind, dtype, two[at], two[at + 1], one[at], one[at + 1])
                out += [b.select(take, two[at], one[at]), b.select(take, two[at + 1], one[at + 1])]
                at += 2
            else:
                out.append(combine(self.m, kind, dtype, one[at], two[at]))
                at += 1
        return out

    # -- sums of many parts: what each addition drops is added up apart (two-sum), and comes back at the end --

    def sums(self) -> list[int]:
        """Where in a set the sums of floats are."""
        out, at = [], 0
        for n, dtype in zip(self.reduces, self.dtypes):
            if n.attrs[0] == "sum" and DTYPES[dtype].kind == "f":
                out.append(at)
            at += 1 + n.attrs[0].startswith("arg")
        return out

    def errors(self, sets: list[list[Value]]) -> list[Value]:
        """What has been dropped of these sets: nothing yet."""
        return [self.b.splat(const(0.0, one[at].ty), one[at].lanes) for one in sets for at in self.sums() if one]

    def join(self, sets: list[list[Value]], errors: list[Value], parts: list[list[Value]]) -> tuple[list[list[Value]], list[Value]]:
        """(`sets` with `parts` taken in, what has been dropped by then). Of an infinite sum nothing is."""
        b, out, dropped = self.b, [], iter(errors)
        merged, sums = [self.merge(one, two) for one, two in zip(sets, parts)], self.sums()
        for one, two, new in zip(sets, parts, merged):
            for at in sums if one else ():
                x, y, total = one[at], two[at], new[at]
                z = b.sub(total, x)
                error = b.add(next(dropped), b.add(b.sub(x, b.sub(total, z)), b.sub(y, z)))
                out.append(b.select(b.compare("ord", error, error), error, b.splat(const(0.0, x.ty), x.lanes)))
        return merged, out

    def settled(self, sets: list[list[Value]], errors: list[Value]) -> list[list[Value]]:
        """The sums with what was dropped."""
        dropped, out = iter(errors), [list(one) for one in sets]
        for one in out:
            for at in self.sums() if one else ():
                one[at] = self.b.add(one[at], next(dropped))
        return out

    def across(self, accs: list[Value]) -> list[Value]:
        """The lanes met pairwise: one lane."""
        b, out, at = self.b, [], 0
        for n, dtype in zip(self.reduces, self.dtypes):
            kind, v = n.attrs[0], accs[at]
            if not kind.startswith("arg"):
                out.append(self.extreme(v, kind) if kind in ("max", "min") and v.floating else self.fold(v, self.pair(kind, dtype)))
                at += 1
                continue
            best = self.extreme(v, kind[3:]) if v.floating else self.fold(v, self.pair(kind[3:], dtype))
            hit = b.compare("oeq" if v.floating else "eq", v, best)
            if v.floating:  # the best is NaN if there is one
                hit = b.binary("or", hit, b.compare("uno", v, v))
            places = b.select(hit, accs[at + 1], const(NOWHERE, "i64"))
            out += [best, self.fold(places, functools.partial(b.intrinsic, "smin"))]
            at += 2
        return out

    def pair(self, kind: str, dtype: str) -> Callable[[Value, Value], Value]:
        return functools.partial(combine, self.m, kind, dtype)

    def extreme(self, v: Value, kind: str) -> Value:
        """The maximum or minimum of the lanes; NaN if there is one, which is asked once and not at every step."""
        b = self.b
        if v.lanes == 1:
            return v
        nan = b.reduce_bits("or", b.compare("uno", v, v))
        better = "ogt" if kind == "max" else "olt"
        return b.select(nan, const(math.nan, v.ty), self.fold(v, lambda x, y: b.select(b.compare(better, x, y), x, y)))

    def fold(self, v: Value, meet: Callable[[Value, Value], Value]) -> Value:
        while v.lanes > 1:
            half = v.lanes // 2
            v = meet(self.part(v, 0, half), self.part(v, half, half))
        return v

    def part(self, v: Value, at: int, lanes: int) -> Value:
        return self.b.extract(v, at) if lanes == 1 else self.b.shuffle(v, None, range(at, at + lanes))

    def results(self, accs: list[Value]) -> list[Value]:
        """The values of the nodes of `every`."""
        of: dict[int, Value] = {}
        best: dict[int, Value] = {}
        at = 0
        for n, dtype in zip(self.reduces, self.dtypes):
            if n.attrs[0].startswith("arg"):  # nothing beat the identity: all are it, and the first is the one
                nowhere = self.b.compare("eq", accs[at + 1], const(NOWHERE, "i64"))
                of[id(n)], best[id(n)] = self.b.select(nowhere, const(0, "i64"), accs[at + 1]), accs[at]
                at += 2
            else:
                of[id(n)] = cast(self.b, accs[at], dtype, n.dtype, self.m.target)
                at += 1
        for n in self.every:
            if (place := self.from_place.get(id(n))) is not None:
                of[id(n)] = cast(self.b, best[id(place)], accumulator_dtype(place), n.dtype, self.m.target)
        return [of[id(n)] for n in self.every]
