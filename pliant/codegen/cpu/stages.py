"""Long chains of operators, cut into stages that work on different points at a time: software pipelining.

A processor looks ahead some hundred instructions. Where one point's chain of operators, each waiting for the one before, takes longer than
that many instructions take to be issued, its units idle: `softplus`, or twelve operators on bf16, each rounded, are such chains. So the
loop over the vector dim runs stage 0 for some points and, in the same iteration, stage 1 for those before them: what the processor sees
then is several short chains. Values that a later stage needs are carried from iteration to iteration. The first iterations and the last
ones skip the stages that have no points.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pliant.lower.loops import SCALARS, Buffer, Node, Store

AHEAD = 330  # instructions that the processor looks ahead, of a loop like these
MOST = 4  # stages
SHARE = 0.3  # of the chain that would just not be waited for is in each
REGISTERS, SPARE = 14, 20  # that may carry values: beside functions, and beside simple operators alone
FUNCTION = 12  # what an operator costs whose polynomial fills registers
ROUND_INSTRUCTIONS, ROUND_LATENCY = 4, 9  # to bf16 or f16
ISSUED, ROUNDED = 2.4, 4  # instructions a cycle: of functions, and of rounding
LATENCY = {"load": 6, "div": 11, "sqrt": 14, "reciprocal": 11, "rsqrt": 26}  # in cycles, of what is not a chain of multiply-adds
CYCLES = 4  # of one of those


@dataclass(slots=True)
class Stage:
    """What one stage computes: `nodes`, operands first, loads among them; `stores`; `carried`: nodes whose values the next one is given."""

    nodes: list[Node] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    carried: list[Node] = field(default_factory=list)


def rounds(n: Node) -> bool:
    return n.op == "cast" and n.dtype in ("bf16", "f16")


def latency(n: Node) -> int:
    """Cycles from the operands to the value, roughly."""
    if n.op == "cast":
        return ROUND_LATENCY if rounds(n) else 0 if n.args[0].dtype == "bf16" else CYCLES
    return LATENCY.get(n.op) or (CYCLES * SCALARS[n.op].cost if n.op in SCALARS else 0)


def patience(nodes: list[Node]) -> float:
    """How many cycles a chain may take before the processor has nothing else to do."""
    functions = 1 + sum(SCALARS[n.op].cost for n in nodes if n.op in SCALARS)
    rounding = ROUND_INSTRUCTIONS * sum(map(rounds, nodes))
    return AHEAD * (functions / ISSUED + rounding / ROUNDED) / (functions + rounding)


def stages(nodes: list[Node], stores: list[Store], buffers: list[Buffer], copies: int) -> list[Stage]:
    """The stages of `nodes` (operands first) and `stores`, none if the chain is short; `copies` vectors run side by side."""
    done: dict[int, int] = {}
    for n in nodes:
        done[id(n)] = max((done[id(a)] for a in n.args if id(a) in done), default=0) + latency(n)
    longest, enough = max(done.values(), default=0), patience(nodes)
    if longest <= enough:
        return []
    room = REGISTERS if any(n.op in SCALARS and SCALARS[n.op].cost >= FUNCTION for n in nodes) else SPARE
    for count in range(min(max(round(longest / (SHARE * enough)), 2), MOST), 1, -1):
        place = {}
        for n in nodes:  # in the stage in which half of it is done
            place[id(n)] = min(int((done[id(n)] - latency(n) / 2) * count / longest), count - 1)
        found = placed(nodes, stores, buffers, place, count)
        if copies * sum(len(s.carried) for s in found) <= room:
            return found
    return []


def placed(nodes: list[Node], stores: list[Store], buffers: list[Buffer], place: dict[int, int], count: int) -> list[Stage]:
    """The stages, `place` telling those of nodes; loads, and what costs nothing, are where they are wanted.

    Memory that nobody writes is loaded in each stage that wants it, as counters are. What is written waits for the last stage, behind every
    load, where it might be memory that is also read or written otherwise.
    """
    wanted: dict[int, set[int]] = {id(n): set() for n in nodes}
    touched = [n.buffer for n in nodes if n.op == "load"]
    out = [Stage() for _ in range(count)]
    for s in stores:
        others = [*touched, *(x.buffer for x in stores if x is not s)]
        alone = all(b != s.buffer and (buffers[b].unique or buffers[s.buffer].unique) for b in others)
        at = place.get(id(s.node), 0) if alone else count - 1
        out[at].stores.append(s)
        if id(s.node) in wanted:
            wanted[id(s.node)].add(at)
    for n in reversed(nodes):
        readers = wanted[id(n)]
        if latency(n) == 0 or n.op == "load":
            place[id(n)] = min(readers)
        repeated = n.op == "index" or n.op == "load" and not buffers[n.buffer].written and buffers[n.buffer].unique
        for k in readers if repeated else {place[id(n)]}:
            out[k].nodes.insert(0, n)
        if not repeated:
            for k in range(place[id(n)], max(readers)):
                out[k].carried.append(n)
        for a in n.args:
            if id(a) in wanted:
                wanted[id(a)].add(place[id(n)])
    return out
