"""Instruction scheduling: an order with long native runs, and where the runs are cut.

Whatever stays an ATen call moves before or behind, as far as dependencies allow and not far from its place.
"""

from __future__ import annotations

import heapq

from pliant.graph.leaving import LEAVE, MARK
from pliant.lower.aliases import Aliases
from pliant.lower.dependences import Dependences
from pliant.lower.kernels import Launch
from pliant.lower.loop_nest import Facts
from pliant.lower.memory import hinted
from pliant.lower.peak_memory import Block, blocks_of, cut_at_peaks
from pliant.lower.program import Instruction, Run
from pliant.lower.segments import bytes_of
from pliant.symbolic.expr import Expr

WINDOW = 24
"""How far an operation may move ahead of one that could have run: moving further only keeps results alive for longer."""

SPECULATED = 32 << 10
"""Bytes that a kernel may touch to run ahead of a side exit: as long as a call of native code takes."""


def depend(items: list[Instruction], aliases: Aliases, sizes: Facts) -> None:
    """Number the instructions, and tell what each must come after.

    Behind a side exit stays what the other side would pay for, or raise.
    """
    order = Dependences()
    exit_ = -1
    for i, item in enumerate(items):
        item.index = i
        if exit_ >= 0 and not may_precede_exit(item, sizes):
            item.deps.add(exit_)
        if item.op is not None and item.op.target is LEAVE:
            exit_ = i
        for t in item.reads:
            order.read(item, aliases.storage(t))
        written, made = ({aliases.storage(t) for t in tensors} for tensors in (item.written, item.made))
        asked = not item.has_effect and any([op.binds for op in item.ops])  # an assertion about the number fails there
        order.write(item, written, made, item.has_effect or asked, item.only_checks or asked)
        if item.op is not None and item.op.target is MARK:
            order.publish({aliases.storage(t) for t in item.reads})
        for op in item.ops:
            order.symbols(item, op)
        order.uses(item, [step.sizes for step in item.steps])  # values that are computed again bring numbers of operations elsewhere
        item.deps.discard(i)


def may_precede_exit(item: Instruction, sizes: Facts) -> bool:
    """Whether to run it ahead of a side exit is cheaper, for the run that stays, than another native call."""
    if any(type(e := sizes.size(n)) is Expr and not e.backed for t in (*item.made, *item.reads) for n in t.sizes):
        return False  # perhaps the branch asks whether this is a size
    bytes = sum(hinted(bytes_of(t, sizes)) for t in (*item.made, *item.reads))
    return item.native and all(type(s) is Launch for s in item.steps) and bytes <= SPECULATED


def arrange(items: list[Instruction]) -> list[Instruction]:
    """The items in an order with long runs of native ones, all dependencies kept."""
    users: list[list[int]] = [[] for _ in items]
    missing = [len(item.deps) for item in items]
    for i, item in enumerate(items):
        for d in item.deps:
            users[d].append(i)
    ready: dict[bool, list[int]] = {True: [], False: []}
    for i, n in enumerate(missing):
        if not n:
            heapq.heappush(ready[items[i].native], i)
    out: list[Instruction] = []
    waiting, done, kind = 0, [False] * len(items), False
    while ready[True] or ready[False]:
        while done[waiting]:
            waiting += 1
        if not ready[kind] or ready[kind][0] > waiting + WINDOW:
            kind = not kind if ready[not kind] else kind
        i = heapq.heappop(ready[kind])
        done[i] = True
        out.append(items[i])
        for j in users[i]:
            missing[j] -= 1
            if not missing[j]:
                heapq.heappush(ready[items[j].native], j)
    return out


def sink(items: list[Instruction]) -> list[Instruction]:
    """The order, with kernels that read nothing (fills, mostly) where their results are first read: until then these took memory.

    Where an ATen call reads them they join the native run before it.
    """
    at = {item.index: k for k, item in enumerate(items)}
    first: dict[int, int] = {}
    for k, item in enumerate(items):
        for d in item.deps:
            first.setdefault(d, k)
    before: dict[int, list[Instruction]] = {}
    for item in items:
        target = first.get(item.index, -1)
        lasting = item.has_effect and not item.only_checks  # what reads nothing has no data to check: an `index_add` fills before it adds
        if not item.native or item.reads or item.written or lasting or target < 0:
            continue
        while target > at[item.index] and not items[target].native:
            target -= 1
            if items[target].native:
                target += 1
                break
        if target > at[item.index] + 1:
            before.setdefault(target, []).append(item)
    moved = {item.index for found in before.values() for item in found}
    out: list[Instruction] = []
    for k, item in enumerate(items):
        out += before.get(k, [])
        if item.index not in moved:
            out.append(item)
    return out


def join_runs(runs: list[Run], aliases: Aliases) -> list[Run]:
    """Native runs, and others, that follow each other joined, but where memory from before is written after an index was checked.

    So what fails in a check has, as a rule, not done anything yet, and the frame may run again.
    """
    out: list[Run] = []
    made: set[int] = set()
    checks = False
    for item in (item for run in runs for item in run.instructions):
        lasts = any(aliases.storage(t) not in made for t in item.written)
        if out and out[-1].native == item.native and not (checks and lasts):
            out[-1].instructions.append(item)
        else:
            out.append(Run([item]))
            checks = False
        checks = checks or item.native and item.has_effect
        made |= {aliases.storage(t) for t in item.made}
    return out


def cut_runs(runs: list[Run], aliases: Aliases, sizes: Facts) -> list[Run]:
    """Where the program holds most, runs cut where what they were given has died, as tensors saved for a backward pass do.

    Results of the next run take its memory.
    """
    items = [item for run in runs for item in run.instructions]
    at = set(cut_at_peaks([(len(run.instructions), run.native) for run in runs], blocks(items, aliases, sizes)))
    out: list[Run] = []
    position = 0
    for run in runs:
        for k, item in enumerate(run.instructions):
            if k == 0 or position in at:
                out.append(Run([]))
            out[-1].instructions.append(item)
            position += 1
    return out


def blocks(items: list[Instruction], aliases: Aliases, sizes: Facts) -> list[Block]:
    """What the program holds of memory, in typical bytes. Results, and what belongs to others, are freed by nobody here."""
    bytes: dict[int, int] = {}
    given: set[int] = set()
    for item in items:
        for t in (*item.reads, *item.made, *item.written):
            s = aliases.storage(t)
            if t.source is not None or t.constant is not None:
                given.add(s)
            elif s not in bytes:
                bytes[s] = hinted(bytes_of(t, sizes))
    kept = {aliases.storage(t) for t in aliases.kept}
    return blocks_of(items, aliases.storage, {s: n for s, n in bytes.items() if s not in given}, kept)
