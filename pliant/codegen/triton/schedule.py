"""How a kernel is laid over a grid: each program has a tile of `rows` by `lanes` points.

Rows walk the outer dims, flattened; lanes walk the reduction dims, flattened, in a loop, or the last dim of a kernel that reduces nothing.
Tiles are chosen by the kernel's hints, so they fit typical sizes best; every size is right with every tile.
"""

from __future__ import annotations

from dataclasses import dataclass

from pliant.graph.originals import math
from pliant.lower.loops import Kernel, Node, levels

TILE = 1024
"""Points of a tile: eight for each thread of four warps."""
HEAVY = 64
"""Nodes of a kernel from which on its tiles are half as large, to spare registers."""
UNKNOWN = 64


@dataclass(frozen=True, slots=True)
class Schedule:
    """`outer`: how many dims the rows walk. `passes`: how many loops over the lanes there are, where they are reduced."""

    outer: int
    rows: int
    lanes: int
    passes: int
    warps: int


def extent(kernel: Kernel, dims: tuple) -> int:
    return math.prod([d if type(d) is int else kernel.hints.get(d, UNKNOWN) for d in dims])


def power(n: int) -> int:
    """The least power of two that is no smaller."""
    return 1 << max(n - 1, 0).bit_length()


def schedule(kernel: Kernel) -> Schedule:
    nodes = kernel.nodes()
    reduced = bool(kernel.reduced)
    outer = len(kernel.dims) - kernel.reduced if reduced else max(len(kernel.dims) - 1, 0)
    n_rows, n_lanes = extent(kernel, kernel.dims[:outer]), extent(kernel, kernel.dims[outer:])
    tile = TILE // 2 if len(nodes) > HEAVY else TILE
    if across(kernel, nodes, outer):  # memory lies along the rows
        rows = min(power(n_rows), 32)
        lanes = min(power(n_lanes), tile // rows)
    else:
        lanes = min(power(n_lanes), tile)
        rows = min(power(n_rows), tile // lanes)
    passes = 1 + max(levels(nodes).values(), default=0) if reduced else 1
    return Schedule(outer, rows, lanes, passes, 4 if rows * lanes >= 256 else 1)


def across(kernel: Kernel, nodes: list[Node], outer: int) -> bool:
    """Is there an access that moves by 1 along the last of the rows' dims, and by more along the lanes?"""
    loads = [n.strides for n in nodes if n.op == "load"]
    full = [s.strides for s in kernel.stores if len(s.strides) == len(kernel.dims)]
    return outer > 0 and any([s[outer - 1] == 1 and s[-1] not in (0, 1) for s in loads + full if len(s) > outer])
