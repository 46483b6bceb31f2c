"""Scans: what the points of a row up to each one give, as a cumulative sum.

Rows that run beside each other, in lanes and copies, each carry what they have so far. Where the lanes are neighbours in one row, a
vector first scans itself, in log steps, and then takes in what came before: only that one step waits for the vector before it.
"""

from __future__ import annotations

from pliant.codegen.cpu.access import Frame
from pliant.codegen.cpu.dtypes import constant
from pliant.codegen.cpu.math import Math
from pliant.codegen.cpu.scalars import combine, identity
from pliant.codegen.cpu.text import BITS, Value
from pliant.lower.loops import Node


class Scans:
    """The scans of one sweep. The *chain* is what each has so far: a number if the lanes follow each other, else a value for each frame."""

    def __init__(self, m: Math, nodes: list[Node], follows: bool) -> None:
        self.m, self.b, self.nodes, self.follows = m, m.b, nodes, follows

    def start(self, lanes: int) -> list[Value]:
        return [self.b.splat(self.nothing(n), lanes) for n in self.nodes]

    def nothing(self, n: Node) -> Value:
        return constant(identity(n.attrs[0], n.dtype), n.dtype)

    def go_on(self, n: Node, frames: list[Frame], chain: list[Value]) -> list[Value]:
        """Give each frame the value of `n`, and return the chain behind them."""
        chain, kind, at = list(chain), n.attrs[0], self.nodes.index(n)
        for u, f in enumerate(frames):
            place = at if self.follows else u * len(self.nodes) + at
            v = f.values[id(n.args[0])]
            if self.follows and f.lanes > 1:
                v = self.b.splat(v, f.lanes)
                if f.mask is not None:
                    v = self.b.select(f.mask, v, self.nothing(n))
                v = self.within(n, v)
                f.values[id(n)] = combine(self.m, kind, n.dtype, chain[place], v)
                v = self.b.extract(v, f.lanes - 1)
                chain[place] = combine(self.m, kind, n.dtype, chain[place], v)
            else:
                f.values[id(n)] = chain[place] = combine(self.m, kind, n.dtype, chain[place], v)
        return chain

    def within(self, n: Node, v: Value) -> Value:
        """The scan of the lanes of a vector: of each register in log steps, then one register after the other.

        Lanes are turned, and the first ones left alone: the instruction that shifts in zeros waits for what its destination held before.
        """
        lanes, all_lanes = v.lanes, range(v.lanes)
        part, distance = min(lanes, self.m.target.vector_bits // BITS[v.ty]), 1
        while distance < part:
            turned = [i - i % part + (i - distance) % part for i in all_lanes]
            v = self.taken_in(n, v, turned, [i % part >= distance for i in all_lanes])
            distance *= 2
        for end in range(part, lanes, part):
            v = self.taken_in(n, v, [end - 1] * lanes, [end <= i < end + part for i in all_lanes])
        return v

    def taken_in(self, n: Node, v: Value, sources: list[int], where: list[bool]) -> Value:
        """Of a vector, the lanes chosen by `where` together with those at `sources`."""
        on = Value("<" + ", ".join(f"i1 {int(here)}" for here in where) + ">", "i1", v.lanes)
        return self.b.select(on, combine(self.m, n.attrs[0], n.dtype, self.b.shuffle(v, None, sources), v), v)
