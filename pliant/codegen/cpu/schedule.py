"""How a `Kernel` will run: which dim is vectorized, in which order loops nest, in how many sweeps a row is reduced.

The nest that the printer knows, outermost first:

    outer dims            flattened and split among threads; the last one is a plain loop
      vector dim          here if it is not reduced: a strip of `lanes * unroll` points of it runs everything below at once
        sweep 0..n        each over the reduction dims; the vector dim is the innermost of them if it is reduced
      epilogue            once per outer point: what comes after the reductions

A kernel that reduces nothing is all epilogue. Sweep p computes the reductions whose operands need p others. What a later sweep needs
again is computed again if it is cheap, else kept in a scratch row. A store into a buffer that is also read waits for the last sweep
that reads it.

Nothing here depends on the values of sizes: `hints` only tune.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace

from pliant.codegen.cpu.index_set_splitting import Cut, pieces
from pliant.codegen.cpu.small_dims import written_out
from pliant.codegen.cpu.stages import Stage, stages
from pliant.graph.originals import math
from pliant.lower.loops import DTYPES, SCALARS, Kernel, Node, Size, Store, levels, operands_first

SAVE_COST = 8  # computing again costs at least this: keep it in scratch memory instead
GATHER_COST = 10
STRIDED_COST = 16  # lanes moved one by one
MEET_COST = 16  # of the lanes of one reduction
SCAN_COST = 9  # of a vector whose lanes follow each other
TILE_COST = 3  # a load that is turned in registers
WOVEN, WOVEN_COST = 4, 3  # vectors of elements that lie this far apart at most are taken apart and put together in registers
MOST_IDLE = 1.5  # as much as idle lanes count along a dim that may grow
FEW_POINTS = 1 << 15
NARROW = 256  # times as long as another dim is a dim beside which that one is narrow
TILE_BLOCK = 512  # points of the vector dim that a tiled kernel runs before the next block of the tiled dim: pages that stay mapped
HEAVY = 40  # a body of this cost is printed once, always masked, instead of twice; so is one with tiles
UNKNOWN = 512  # a size without a hint
ITERATIONS = 48  # of a loop that is worth cutting a long chain into stages


@dataclass(slots=True)
class Sweep:
    """One run over the reduction dims of an outer point."""

    reduces: list[Node] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    saves: list[Node] = field(default_factory=list)  # to scratch, when they have been computed
    loads: set[int] = field(default_factory=set)  # ids of nodes that come from scratch

    def roots(self) -> list[Node]:
        return [n.args[0] for n in self.reduces] + [n for s in self.stores for n in store_roots(s)] + self.saves


@dataclass(slots=True)
class Schedule:
    kernel: Kernel
    nodes: list[Node]
    depends: dict[int, int]  # id of a node -> bit set of the dims that its value changes with
    outer: list[int]  # without the vector dim
    inner: list[int]
    vector: int | None
    lanes: int
    unroll: int
    always_masked: bool
    sweeps: list[Sweep]
    epilogue: list[Store]
    cost: int  # picoseconds a point, roughly
    serial: bool  # order matters: counters in order, one thread for all points that may add to one address
    columns: bool  # of a serial kernel: points apart along the vector dim never do, so that threads may share that dim
    split: bool  # few outer points, much to reduce: threads share the reduction
    tile: int | None  # outer dim along which `tiled` loads are contiguous: it changes places with the vector dim
    tiled: list[Node]
    pairs: bool = False  # vectors of bf16 may be moved two at a time
    cut: Cut | None = None  # into pieces with stores of their own
    pinned: Set[int] = frozenset()  # ids of nodes that may be computed inside of a piece only
    blocked: bool = False  # outer dims run inside blocks of the vector dim: what they write between its points stays in the cache
    heavy: bool = False  # the body is not to be printed twice
    stages: list[Stage] = field(default_factory=list)  # of a long chain of operators, if it is one

    @property
    def reduces_vector(self) -> bool:
        return self.vector is not None and self.vector in self.inner


def store_roots(s: Store) -> list[Node]:
    return [s.node, *s.index, *((s.predicate,) if s.predicate is not None else ())]


def padded(strides: tuple[Size, ...], rank: int) -> tuple[Size, ...]:
    return (*strides, *(0,) * (rank - len(strides)))


def is_ordered(s: Store) -> bool:
    """May several points meet at one address?"""
    return s.mode != "set" or bool(s.index)


def is_inner(kernel: Kernel, s: Store) -> bool:
    """Does the store run at each reduction point?"""
    return kernel.reduced > 0 and len(s.strides) == len(kernel.dims)


def reachable(roots: Iterable[Node], stop: Set[int] = frozenset()) -> list[Node]:
    """Nodes below `roots`, operands first; reductions and nodes in `stop` are leaves (and included)."""
    seen: dict[int, Node] = {}
    for root in roots:
        if id(root) in seen:
            continue
        stack = [(root, False)]
        while stack:
            n, done = stack.pop()
            if id(n) in seen:
                continue
            if done or n.op == "reduce" or id(n) in stop:
                seen[id(n)] = n
            else:
                stack.append((n, True))
                stack.extend((a, False) for a in reversed(n.args))
    return list(seen.values())


def dependence(kernel: Kernel, nodes: list[Node]) -> dict[int, int]:
    outer_bits = (1 << (len(kernel.dims) - kernel.reduced)) - 1
    inner_bits = (1 << len(kernel.dims)) - 1 - outer_bits
    out: dict[int, int] = {}
    for n in nodes:
        bits = 0
        for a in n.args:
            bits |= out[id(a)]
        if n.op == "load":
            for d, stride in enumerate(n.strides):
                if stride != 0:
                    bits |= 1 << d
        elif n.op == "index":
            bits |= 1 << n.attrs[0]
        elif n.op == "reduce":
            bits &= outer_bits
        elif n.op == "scan":
            bits |= inner_bits
        out[id(n)] = bits
    return out


class Costs:
    """Costs of nodes in simple vector instructions, for one choice of vector dim."""

    def __init__(self, kernel: Kernel, depends: dict[int, int], vector: int | None, lanes: int) -> None:
        self.kernel, self.depends, self.vector, self.lanes = kernel, depends, vector, lanes

    def access(self, strides: tuple[Size, ...], index: Iterable[Node], dtype: str, loaded: bool = False) -> float:
        """Of moving one vector."""
        v = self.vector
        if v is None:
            return 1
        bit = 1 << v
        if any(self.depends[id(i)] & bit for i in index):
            return GATHER_COST
        stride = strides[v] if v < len(strides) else 0
        if stride == 0:
            return 0.3
        wide = max(DTYPES[dtype].bits / 32, 0.5)
        if stride == 1:
            return wide
        if type(stride) is int and 1 < stride <= WOVEN:
            return WOVEN_COST * wide
        rows = contiguous(self.kernel, strides, v, self.lanes)
        if rows and loaded and not self.kernel.reduced:
            return TILE_COST
        return STRIDED_COST * self.lanes / 16 * (2 if rows else 1)  # rows that may grow will want lanes of their own

    def node(self, n: Node) -> float:
        if n.op == "load":
            index = n.args[:-1] if n.predicated else n.args
            return self.access(n.strides, index, n.dtype, not n.predicated) + (1 if n.dtype in ("bf16", "f16") else 0)
        if n.op in ("const", "size"):
            return 0
        if n.op in SCALARS:
            wide = 2 if n.dtype in ("f64", "i64") else 1
            return SCALARS[n.op].cost * wide * (3 if n.dtype == "f64" and SCALARS[n.op].cost > 10 else 1)
        if n.op == "scan":
            crosses = self.vector is not None and self.vector >= len(self.kernel.dims) - self.kernel.reduced
            return SCAN_COST * (DTYPES[n.dtype].bits // 32) if crosses else SAVE_COST
        if n.op == "cast":
            return 4 if n.dtype in ("bf16", "f16") else n.args[0].dtype != "bf16"
        return 1 if n.op != "reduce" else 2

    def tree(self, n: Node, memo: dict[int, float]) -> float:
        """Of computing a node from memory again."""
        if id(n) not in memo:
            memo[id(n)] = sum(self.node(m) for m in reachable([n]) if m.op != "reduce")
        return memo[id(n)]


def extent(kernel: Kernel, dim: int) -> int:
    """A typical size of a dim."""
    size = kernel.dims[dim]
    if isinstance(size, int):
        return size
    return kernel.hints.get(size, UNKNOWN)


def plan(kernel: Kernel, vector_bits: int, masks: bool) -> Schedule:
    """Schedule a kernel for vectors of `vector_bits`. `masks`: a masked vector costs no more than a whole one."""
    kernel = written_out(kernel)
    nodes = kernel.nodes()
    depends = dependence(kernel, nodes)
    rank, outer_rank = len(kernel.dims), len(kernel.dims) - kernel.reduced
    serial = any(map(is_ordered, kernel.stores))
    lanes = choose_lanes(nodes, depends, vector_bits)
    vector = choose_vector(kernel, nodes, depends, lanes, serial)
    if vector is None:
        lanes = 1
    tile, tiled = choose_tile(kernel, nodes, depends, vector, lanes) if not serial else (None, [])
    cut = pieces(kernel, vector, depends) if vector is not None and not serial and tile is None else None
    pinned: Set[int] = frozenset()
    if cut is not None:
        kernel = replace(kernel, stores=[s for part in cut.parts() for s in part])
        before = {id(n) for n in nodes}
        nodes = operands_first([*kernel.roots(), *cut.bounds()])
        depends, pinned = dependence(kernel, nodes), frozenset(id(n) for n in nodes) - before
    costs = Costs(kernel, depends, vector, lanes)
    scans = any(n.op == "scan" for n in nodes)
    outer = [d for d in range(outer_rank) if d != vector]
    inner = [d for d in range(outer_rank, rank) if d != vector]
    if not serial:
        outer = by_stride(kernel, nodes, outer)
        if not scans and not any(n.op == "reduce" and n.attrs[0].startswith("arg") for n in nodes):
            inner = by_stride(kernel, nodes, inner)
    if vector is not None and vector >= outer_rank:
        inner.append(vector)
    epilogue = [s for s in kernel.stores if not is_inner(kernel, s)]
    sweeps = make_sweeps(kernel, nodes, depends, costs) if kernel.reduced else []
    body = sum(costs.node(n) for n in nodes)
    body += sum(costs.access(padded(s.strides, rank), s.index, s.node.dtype) for s in kernel.stores)
    heaviest = max((sum(costs.node(n) for n in reachable(s.roots(), s.loads)) for s in sweeps), default=body)
    if cut is not None:
        heaviest = max(sum(costs.node(n) for n in reachable([n for s in part for n in store_roots(s)])) for part in cut.parts())
    heavy = heaviest >= HEAVY
    pairs = vector is not None and lanes > 1 and not serial and tile is None and moves_in_pairs(kernel, nodes, depends, vector, outer_rank)
    simple = masks and not serial and tile is None and cut is None
    staged = cut_chain(kernel, nodes, depends, vector, lanes, 1 + pairs) if simple else []
    always = masks and vector is not None and (heavy or tile is not None or bool(staged))
    unroll = (2 if pairs else 1) if always or vector is None else choose_unroll(kernel, vector, lanes, heaviest, bool(kernel.reduced))
    if len(sweeps) == 1 and unroll == 4 and vector is not None and vector < outer_rank and heaviest <= 4 and len(sweeps[0].reduces) == 1:
        wide = max(vector_bits // 32, 4)  # rows a kilobyte wide: narrow ones waste the prefetcher
        unroll = wide if extent(kernel, vector) >= lanes * wide else unroll
    cost, split = picoseconds(kernel, nodes, body, lanes), not scans and choose_split(kernel, sweeps, epilogue, serial)
    if tile is not None:
        outer.remove(tile)
        outer.append(tile)
        unroll = 1
    return Schedule(
        kernel, nodes, depends, outer, inner, vector, lanes, unroll, always, sweeps, epilogue, cost, serial,
        serial and adds_within_columns(kernel, vector), split, tile, tiled, pairs and unroll % 2 == 0, cut, pinned,
        tile is not None or not serial and vector is not None and interleaves(kernel, vector, outer), heavy, staged,
    )  # fmt: skip


def cut_chain(
    kernel: Kernel, nodes: list[Node], depends: dict[int, int], vector: int | None, lanes: int, copies: int
) -> list[Stage]:
    """The stages in which the vector dim runs, where its loop is long enough for them and all accesses are plain."""
    plain = all(s.mode == "set" and not s.index and s.predicate is None for s in kernel.stores)
    if vector is None or kernel.reduced or not plain or extent(kernel, vector) < ITERATIONS * lanes * copies:
        return []
    mine = [n for n in nodes if depends[id(n)] >> vector & 1]
    loads = [n for n in nodes if n.op == "load"]
    strides = [padded(x.strides, len(kernel.dims))[vector] for x in (*loads, *kernel.stores)]
    if any(x not in (0, 1) for x in strides) or any(n.args for n in loads) or any(n.op == "bounded" for n in nodes):
        return []
    return stages(mine, kernel.stores, kernel.buffers, copies)


def moves_in_pairs(kernel: Kernel, nodes: list[Node], depends: dict[int, int], v: int, outer_rank: int) -> bool:
    """May two vectors of bf16 be moved at once, so that lanes stand for every other element?"""
    for n in nodes:
        varies = depends[id(n)] >> v & 1
        if n.op == "index" and varies or n.op == "scan" or n.op == "reduce" and n.attrs[0].startswith("arg"):
            return False
        if n.op == "load" and varies and (n.dtype != "bf16" or n.args or not steps_by_one(n.strides, v)):
            return False
    for s in kernel.stores:
        if v >= outer_rank and not is_inner(kernel, s):
            continue
        plain = s.mode == "set" and not s.index and s.predicate is None
        if not plain or s.node.dtype != "bf16" or not steps_by_one(padded(s.strides, len(kernel.dims)), v):
            return False
    return True


def steps_by_one(strides: tuple, v: int) -> bool:
    return v < len(strides) and type(strides[v]) is int and strides[v] == 1


def interleaves(kernel: Kernel, vector: int, outer: list[int]) -> bool:
    """Is something written whose neighbours in memory are points of an outer dim?"""
    if kernel.reduced:
        return False
    for s in kernel.stores:
        strides = padded(s.strides, len(kernel.dims))
        if strides[vector] not in (0, 1) and any(strides[d] == 1 for d in outer):
            return True
    return False


def choose_lanes(nodes: list[Node], depends: dict[int, int], vector_bits: int) -> int:
    """Lanes so that the widest dtype of the floats and masks fills a register; 64-bit values beside 32-bit ones take two."""
    widths = [DTYPES[n.dtype].bits for n in nodes if depends[id(n)] and n.op != "index" and n.dtype != "bool"]
    if not widths:
        widths = [8 if nodes and all(n.dtype == "bool" for n in nodes) else 32]
    halves = any(n.dtype in ("bf16", "f16") for n in nodes)
    if min(widths) >= 64:
        return max(vector_bits // 64, 2)
    widest = max(32 if halves else 8, min(max(widths), 32))
    return vector_bits // widest


def choose_vector(kernel: Kernel, nodes: list[Node], depends: dict[int, int], lanes: int, serial: bool) -> int | None:
    """The dim along which most accesses are contiguous; none where lanes would change the order of additions to memory."""
    rank, outer_rank = len(kernel.dims), len(kernel.dims) - kernel.reduced
    best: tuple[float, int] | None = None
    scans = any(n.op == "scan" for n in nodes)
    for v in range(rank - 1, -1, -1):
        if kernel.dims[v] == 1 or (serial and not keeps_order(kernel, v, depends)):
            continue
        if scans and outer_rank <= v < rank - 1:
            continue  # its lanes would not follow each other
        costs, total, bit = Costs(kernel, depends, v, lanes), 0.0, 1 << v
        for n in nodes:
            inside = not kernel.reduced or depends[id(n)] >> outer_rank
            if n.op == "load" and inside:
                total += costs.node(n)
            elif n.op in SCALARS and inside and depends[id(n)] & bit:
                total += costs.node(n)  # the others are computed once for all lanes
        for s in kernel.stores:
            if not kernel.reduced or is_inner(kernel, s):
                total += costs.access(padded(s.strides, rank), s.index, s.node.dtype) + 1
        size = extent(kernel, v)
        idle = max(1.0, -(-size // lanes) * lanes / max(size, 1))  # lanes for one that works
        total = (total + 2) * (min(idle, MOST_IDLE) if may_grow(kernel, v) else idle)
        if v >= outer_rank:
            # The lanes meet at the end of each row; with their places, that takes longer.
            meet = sum(MEET_COST * (4 if n.attrs[0].startswith("arg") else 1) for n in nodes if n.op == "reduce")
            total += meet * lanes / max(size, lanes)
        if best is None or total < best[0] - 1e-9:
            best = (total, v)
    return best[1] if best else None


def may_grow(kernel: Kernel, v: int) -> bool:
    """Whether a dim that is short in the first call may be long later, and little is lost until then: few points, and no dim that is much
    longer. (Lanes along another dim lose most of the speed for ever, once it has grown; lanes that idle in a small call, next to nothing.)
    """
    sizes = [extent(kernel, d) for d in range(len(kernel.dims))]
    return type(kernel.dims[v]) is not int and max(sizes) < NARROW * sizes[v] and math.prod(sizes) <= FEW_POINTS


def contiguous(kernel: Kernel, strides: tuple[Size, ...], beside: int, lanes: int) -> list[int]:
    """The dims along which an access is contiguous, but those shorter than a vector that surely were not so in one call only.

    Beside a much longer dim (`beside`) a short one will stay short.
    """
    dims = [d for d, stride in enumerate(strides) if stride == 1 and kernel.dims[d] != 1]
    return [d for d in dims if extent(kernel, d) >= lanes or extent(kernel, beside) < NARROW * extent(kernel, d)]


def choose_tile(
    kernel: Kernel, nodes: list[Node], depends: dict[int, int], vector: int | None, lanes: int
) -> tuple[int | None, list[Node]]:  # fmt: skip
    """The dim along which most of the loads that cross the vector dim are contiguous, and those loads. Only where nothing is reduced."""
    if vector is None or kernel.reduced:
        return None, []
    crossing: dict[int, list[Node]] = {}
    for n in nodes:
        if n.op != "load" or n.predicated or vector >= len(n.strides) or n.strides[vector] in (0, 1):
            continue
        for d in contiguous(kernel, n.strides, vector, lanes):
            moves = 1 << d | 1 << vector
            if not any(depends[id(i)] & moves for i in n.args):
                crossing.setdefault(d, []).append(n)
    if not crossing:
        return None, []
    best = max(crossing, key=lambda d: len(crossing[d]))
    return best, crossing[best]


def keeps_order(kernel: Kernel, v: int, depends: dict[int, int]) -> bool:
    """Would lanes along `v` add to distinct addresses, in one order for each address? Only then may it be vectorized."""
    if v != len(kernel.dims) - kernel.reduced - 1:
        return False
    for s in kernel.stores:
        if is_ordered(s) and is_inner(kernel, s):
            return False
        if is_ordered(s) and (v >= len(s.strides) or s.strides[v] != 1 or any(depends[id(i)] >> v & 1 for i in s.index)):
            return False
    return True


def adds_within_columns(kernel: Kernel, vector: int | None) -> bool:
    """Do additions go to rows as long as the vector dim, chosen by at most one index? Then its points have addresses of their own."""
    if vector is None or kernel.reduced:
        return False
    for s in kernel.stores:
        if is_ordered(s):
            others = [stride for d, stride in enumerate(s.strides) if d != vector and stride != 0]
            if others or any(stride != kernel.dims[vector] for stride in s.index_strides) or len(s.index) > 1:
                return False
    return True


def by_stride(kernel: Kernel, nodes: list[Node], dims: list[int]) -> list[int]:
    """Largest steps outermost, as far as they are known; what writes weighs double."""
    if len(dims) < 2:
        return dims

    def step(size: Size) -> float:
        return size if isinstance(size, int) else float(kernel.hints.get(size, UNKNOWN))

    weight = {d: 0.0 for d in dims}
    accesses = [(s.strides, 2.0) for s in kernel.stores] + [(n.strides, 1.0) for n in nodes if n.op == "load"]
    for strides, factor in accesses:
        for d in dims:
            if d < len(strides):
                weight[d] += factor * min(abs(step(strides[d])), 1 << 20)
    return sorted(dims, key=lambda d: -weight[d])


def choose_unroll(kernel: Kernel, vector: int, lanes: int, cost: float, reducing: bool) -> int:
    unroll = 4 if cost <= 12 else 2
    if reducing and cost <= 24:
        unroll = 4
    while unroll > 1 and extent(kernel, vector) < lanes * unroll:
        unroll //= 2
    return unroll


def choose_split(kernel: Kernel, sweeps: list[Sweep], epilogue: list[Store], serial: bool) -> bool:
    """Whether few outer points share a large reduction: typical sizes decide, for the result is right either way."""
    if serial or len(sweeps) != 1 or sweeps[0].stores or not kernel.reduced:
        return False
    points, reduced = 1, 1
    outer_rank = len(kernel.dims) - kernel.reduced
    for d in range(len(kernel.dims)):
        if d < outer_rank:
            points *= extent(kernel, d)
        else:
            reduced *= extent(kernel, d)
    return outer_rank == 0 or all(kernel.dims[d] == 1 for d in range(outer_rank)) or (points < 256 and reduced >= 1 << 14)


def picoseconds(kernel: Kernel, nodes: list[Node], body: float, lanes: int) -> int:
    """Time of one point on one core: instructions shared by the lanes, and bytes at the speed of a cache."""
    bits = sum(DTYPES[n.dtype].bits for n in nodes if n.op == "load") + sum(DTYPES[s.node.dtype].bits for s in kernel.stores)
    return max(int(body * 130 / max(lanes, 1) + bits / 8 * 4), 1)


def make_sweeps(kernel: Kernel, nodes: list[Node], depends: dict[int, int], costs: Costs) -> list[Sweep]:
    level = levels(nodes)
    reduces = [n for n in nodes if n.op == "reduce"]
    count = max((level[id(n)] for n in reduces), default=0)
    stores = [s for s in kernel.stores if is_inner(kernel, s)]
    place = {id(s): max(level[id(n)] for n in store_roots(s)) for s in stores}
    while True:
        sweeps = [Sweep() for _ in range(max(count, *(place[id(s)] + 1 for s in stores)) if stores else count)]
        for n in reduces:
            sweeps[level[id(n)] - 1].reduces.append(n)
        for s in stores:
            sweeps[place[id(s)]].stores.append(s)
        choose_saves(sweeps, depends, costs, len(kernel.dims) - kernel.reduced)
        if not delay_stores(kernel, sweeps, place):
            return sweeps


def choose_saves(sweeps: list[Sweep], depends: dict[int, int], costs: Costs, outer_rank: int) -> None:
    """Fill `saves` and `loads`: walk down from what each sweep needs to what an earlier sweep had already."""
    first: dict[int, int] = {}
    memo: dict[int, float] = {}
    for p, sweep in enumerate(sweeps):
        roots = sweep.roots()
        stack, seen = list(roots), set()
        while stack:
            n = stack.pop()
            if id(n) in seen or n.op == "reduce":
                continue
            seen.add(id(n))
            if not depends[id(n)] >> outer_rank:
                continue
            earlier = first.get(id(n), p)
            if earlier < p and costs.tree(n, memo) >= SAVE_COST:
                if not any(n is m for m in sweeps[earlier].saves):
                    sweeps[earlier].saves.append(n)
                sweep.loads.add(id(n))
                continue
            stack.extend(n.args)
        for n in reachable(roots, sweep.loads):
            if id(n) not in sweep.loads and n.op != "reduce":
                first.setdefault(id(n), p)


def delay_stores(kernel: Kernel, sweeps: list[Sweep], place: dict[int, int]) -> bool:
    """Move stores behind the last sweep that reads their buffer. Whether one moved."""
    last_read: dict[int, int] = {}
    for p, sweep in enumerate(sweeps):
        for n in reachable(sweep.roots(), sweep.loads):
            if n.op == "load" and id(n) not in sweep.loads:
                last_read[n.buffer] = p
    moved = False
    for p, sweep in enumerate(sweeps):
        for s in sweep.stores:
            readers = [b for b in last_read if b == s.buffer or not (kernel.buffers[b].unique or kernel.buffers[s.buffer].unique)]
            latest = max((last_read[b] for b in readers), default=p)
            if latest > p:
                place[id(s)] = latest
                moved = True
    return moved
